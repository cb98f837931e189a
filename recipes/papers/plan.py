"""What a run with the settings of a paper asks of a GPU, before any of it is started.

    python3 plan.py FOLDER SET OPTIONS...

OPTIONS are those of `unitk train`. Counted, not measured: the weights of the architecture, 16 bytes
of state for each, as mixed precision and Adam keep them, and 6 operations a weight and slot, also
where layers share their weights. An H100 is taken to do 30 % of its 989 TFLOPS, as `mlm` does there
(docs/benchmarks/gpu.md). Pairs are taken as long as the settings allow, texts with labels without a
limit as 128 slots, so that a run is shorter.
"""

import math
from pathlib import Path

import torch
from shared import parse_arguments

from unitk.models.model import build
from unitk.options.config import parse
from unitk.training.config import COMPONENTS, TrainConfig

PAIRS = {
    "squad_qg": 75_722,
    "cnndm": 287_113,
    "xsum": 204_045,
    "gigaword-10k": 10_000,
    "gigaword": 3_803_957,
    "squad": 87_599,
    "squad2": 130_319,
    "mnli": 392_702,
    "qnli": 104_743,
    "qqp": 363_846,
    "sst2": 67_349,
    "cola": 8_551,
    "stsb": 5_749,
    "mrpc": 3_668,
    "rte": 2_490,
}
"""The pairs or texts of training of each set."""
ARCHS = {
    "albert": "albert_xxlarge",
    "electra": "electra_small",
    "ernie2": "ernie2_base",
    "roberta": "roberta_large",
    "spanbert": "spanbert_large",
    "xlnet": "xlnet_large",
}
"""The model of the authors' figures, where the settings do not name it."""
VOCAB = 30_522  # BERT's; GLM's and BART's are within 2 % of the whole model
SPEED = 0.3 * 989e12


def plan(paper: str, name: str, options: list[str]) -> str:
    """One line: weights, memory of their state, updates, hours."""
    arch = [f"--arch={ARCHS[paper]}"] if paper in ARCHS else []
    words = [*arch, "--task.layout=mlm"] if "classify" in options else arch
    parsed = parse("train", TrainConfig, [*options, *words, "--data=d", "--save-dir=s"], COMPONENTS)
    run, config = parsed.main, parsed.components["arch"].config
    with torch.device("meta"):  # shapes only
        model = build(config, VOCAB)
    weights = sum(weight.numel() for weight in model.parameters())
    # layers that share weights compute with them as often
    shared = sum(n.numel() for name, n in model.named_parameters() if name.startswith("layers."))
    repeated = config.num_layers // config.layer_groups if getattr(config, "layer_groups", 0) else 1
    pairs, length = PAIRS[name], "at most" if run.max_source_len else "about"
    slots = (run.max_source_len or 128) + (run.max_target_len or 0)
    texts = run.batch_texts or run.batch_tokens / slots
    updates = run.max_steps or round(run.max_epochs * pairs / texts)
    used = weights + (repeated - 1) * shared
    minutes = 6 * used * updates * texts * slots / SPEED / 60
    time = f"{minutes / 60:.1f} hours" if minutes > 60 else f"{math.ceil(minutes)} minutes"
    return (
        f"{weights / 1e6:.0f} M weights, {16 * weights / 1e9:.1f} GB of state; {updates:,} updates"
        f" of {texts:.0f} texts of {length} {slots} slots; {length} {time} of an H100"
        " at 30 % of its peak (counted, not measured)"
    )


def main(folder: Path, set: str, options: list[str]) -> None:
    """Print the plan."""
    print(plan(folder.name, set, options))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, folder=Path, set=str, options=[str]))
