"""What a run with the settings of a paper asks of a GPU, before any of it is started.

    python3 plan.py FOLDER

Counted, not measured: the weights of the architecture, 16 bytes of state for each, as mixed
precision and Adam keep them, and 6 operations a weight and slot. An H100 is taken to do 30 % of its
989 TFLOPS, as `mlm` does there (docs/benchmarks/gpu.md); pairs are taken as long as the settings
allow, so that a run is shorter.
"""

from pathlib import Path

import torch
from stages import arguments

from unitk.models.model import build
from unitk.options.config import parse
from unitk.training.config import KINDS, TrainConfig

PAIRS = {
    "squad_qg": 75_722,
    "cnndm": 287_113,
    "xsum": 204_045,
    "gigaword-10k": 10_000,
    "gigaword": 3_803_957,
}
"""The training pairs of each set."""
VOCAB = 30_522  # BERT's; GLM's and BART's are within 2 % of the whole model
SPEED = 0.3 * 989e12


def plan(folder: Path) -> str:
    """One line: weights, memory of their state, updates, hours."""
    words = ["--config", str(folder / "train.yaml"), "--data", "d", "--save-dir", "s"]
    parsed = parse("train", TrainConfig, words, KINDS)
    run = parsed.main
    with torch.device("meta"):  # shapes only
        model = build(parsed.components["arch"].config, VOCAB)
    weights = sum(weight.numel() for weight in model.parameters())
    pairs = PAIRS[folder.name.partition("-")[2]]
    slots = run.max_source_len + run.max_target_len
    texts = run.batch_texts or run.batch_tokens / slots
    updates = run.max_steps or round(run.max_epochs * pairs / texts)
    hours = 6 * weights * updates * texts * slots / SPEED / 3600
    return (
        f"{weights / 1e6:.0f} M weights, {16 * weights / 1e9:.1f} GB of state; {updates:,} updates"
        f" of {texts:.0f} pairs of at most {slots} slots; at most {hours:.1f} hours of an H100"
        " at 30 % of its peak (counted, not measured)"
    )


def main(folder: Path) -> None:
    """Print the plan."""
    print(plan(folder))


if __name__ == "__main__":
    main(*arguments(__doc__, folder=Path))
