"""A training step here and with another system's trainer, in turns.

    python recipes/benchmarks/peers.py [--peer transformers] [--sizes tiny,small,base]
    python recipes/benchmarks/peers.py --model xlnet --sizes small

Both train a model of the same size on the same texts of random words, padded rows there and packed
ones here, with AdamW; each turn is a process of its own. The best step of all turns is printed in
processor seconds, which say the same on a busy machine, as real tokens a second; then the ratio,
and the peak of memory: of training (weights, gradients, means, what backward needs; not measured
for fairseq), and of the process with its libraries. The peer is transformers' Trainer (it takes
`pip install transformers accelerate`) or, with `--peer fairseq`, fairseq's with RoBERTa, which has
no token types; on a CPU it computes in fp32 beside our bf16 too. `--model` is BERT that predicts
15 % of the tokens (`mlm`) or one of two classes of a text (`classify`), or XLNet, one token of six.
`--task` compares other objectives of unitk with `mlm` instead, any but those that need labels:
`--task pmlm,glm_infill`, or one of several within a task, `--task pmlm:ae,pmlm:par`. They train
BERT with the tables that they need, or, where they have one, a family of their own. `--options`
are more of unitk's own, such as `--options="--optimizer.state bf16"`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fairseq_peer
import numpy as np
import torch

SIZES = {"tiny": (2, 128, 2, 64), "small": (4, 512, 8, 8), "base": (12, 768, 12, 4)}
"""Layers, width, heads, rows of a step."""
WORDS, LONGEST = 30_000, 128
LIBRARIES: list[float] = []
"""GB that were there before the first step, beside the weights."""


def main() -> None:
    """Compare, or run one side of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", default="transformers", choices=("transformers", "fairseq"))
    parser.add_argument("--model", default="mlm", choices=("mlm", "classify", "xlnet"))
    parser.add_argument("--sizes", default="tiny,small,base")
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--shortest", type=int, default=LONGEST, help="16: 41 %% of rows are pads")
    parser.add_argument("--task", help="of unitk (comma list), instead of a peer")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="measured in a turn")
    parser.add_argument("--options", default="", help="of unitk's runs")
    parser.add_argument("--side", help="size, precision and side of one turn")
    args = parser.parse_args()
    if args.side:
        print_side(args)
        return
    check_peer(args)
    others = args.task.split(",") if args.task else [f"{args.peer}:{args.model}"]
    width = max(24, 16 + max(map(len, others)))
    titles = f"{'tokens/s of ' + ', '.join(others):>{width}}{args.model:>9}{'ratio':>7}"
    print(f"{'':<14}{titles}{'memory':>16}{'process':>16}")
    for size in args.sizes.split(","):
        for precision in args.precision.split(","):
            compare(args, others, size, precision, width)


def print_side(args: argparse.Namespace) -> None:
    """Run one side, and print its tokens a second and its memory as json."""
    size, precision, side = args.side.split(",")
    peers = {"transformers": transformers_steps, "fairseq": fairseq_steps}
    run = peers.get(side.partition(":")[0], partial(unitk_steps, args.options))
    seconds, tokens = run(side, size, precision, args.shortest, args.steps + 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps([tokens / seconds, peak - LIBRARIES[0] if LIBRARIES else peak, peak]))


def check_peer(args: argparse.Namespace) -> None:
    """Exit with a message if the other side cannot be measured."""
    if args.peer == "fairseq" and args.model != "mlm":
        sys.exit(f"--peer fairseq trains --model mlm, got {args.model}")
    if not args.task and args.peer == "transformers":
        if not (find_spec("transformers") and find_spec("accelerate")):
            sys.exit("the other side is not installed: pip install transformers accelerate")
    if not args.task and args.peer == "fairseq" and not fairseq_peer.installed():
        sys.exit(fairseq_peer.LACKING)


def compare(
    args: argparse.Namespace, others: Sequence[str], size: str, precision: str, width: int
) -> None:
    """Measure all sides in turns, and print the best turn of each of the others beside ours."""
    sides = [*others, args.model]
    turns = [[turn(args, size, precision, side) for side in sides] for _ in range(args.turns)]
    *figures, b = (
        [max(column) for column in zip(*side, strict=True)] for side in zip(*turns, strict=True)
    )
    for other, a in zip(others, figures, strict=True):
        name = f"{other} " if len(others) > 1 else ""
        print(
            f"{size + ', ' + precision:<14}{f'{name}{a[0]:,.0f}':>{width}}{b[0]:9,.0f}"
            f"{b[0] / a[0]:7.2f}{b[1]:8.2f} of {a[1]:.2f}{b[2]:8.2f} of {a[2]:.2f} GB",
            flush=True,
        )


def turn(args: argparse.Namespace, size: str, precision: str, side: str) -> list[float]:
    """Tokens a second and GB (training, process) of one side, in a process of its own."""
    words = [f"--side={size},{precision},{side}", f"--shortest={args.shortest}"]
    words += [f"--steps={args.steps}", f"--options={args.options}"]
    done = subprocess.run(
        [sys.executable, __file__, *words], check=True, capture_output=True, text=True
    )
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def begins(model: torch.nn.Module) -> None:
    """The first step begins: memory in use but for the weights is the libraries'."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    weights = sum(parameter.nbytes for parameter in model.parameters())
    LIBRARIES.append((pages * resource.getpagesize() - weights) / 1e9)


def texts(shortest: int, rows: int, steps: int) -> list[np.ndarray]:
    """Texts of random words; two more slots come around each."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(shortest - 2, LONGEST - 1, rows * steps)
    return [rng.integers(100, WORDS, n) for n in lengths]


def transformers_steps(
    side: str, size: str, precision: str, shortest: int, steps: int
) -> tuple[float, float]:
    """Processor seconds of the best step of transformers' Trainer, and its tokens on average."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(1)
    model, batch = transformers_model(side.partition(":")[2], size)
    rows = SIZES[size][-1]
    data = texts(shortest, rows, steps)
    took: list[float] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            begins(kwargs["model"])
            self.began = time.process_time()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            took.append(time.process_time() - self.began)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=rows,
            bf16=precision == "bf16",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            remove_unused_columns=False,
            disable_tqdm=True,
        )
        Trainer(model, arguments, batch, data, callbacks=[Watch()]).train()
    return min(took[1:]), sum(map(len, data)) / steps


def transformers_model(
    name: str, size: str
) -> tuple[torch.nn.Module, Callable[[list[np.ndarray]], dict[str, Any]]]:
    """A model of transformers, and what makes its padded batches from texts."""
    import transformers as hf

    layers, width, heads, _ = SIZES[size]
    if name == "xlnet":
        found = hf.XLNetConfig(
            vocab_size=WORDS, d_model=width, n_layer=layers, n_head=heads, d_inner=4 * width
        )
        return hf.XLNetLMHeadModel(found), permuted
    config = hf.BertConfig(
        vocab_size=WORDS,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        attention_probs_dropout_prob=0.0,
    )
    if name == "classify":
        return hf.BertForSequenceClassification(config), classified
    return hf.BertForMaskedLM(config), masked


def padded(some: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """Rows of [CLS] text [SEP], and which slots are no pads."""
    ids = torch.zeros(len(some), LONGEST, dtype=torch.int64)
    for row, text in enumerate(some):
        ids[row, 1 : len(text) + 1] = torch.from_numpy(text)
        ids[row, 0], ids[row, len(text) + 1] = 2, 3
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def masked(some: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """15 % of the words are hidden and asked."""
    rows = padded(some)
    ids = rows["input_ids"]
    hidden = (torch.rand(ids.shape) < 0.15) & (ids >= 100)
    labels = torch.where(hidden, ids, -100)
    return {**rows, "input_ids": torch.where(hidden, 4, ids), "labels": labels}


def classified(some: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """A text's class is whether its first word is odd."""
    return {**padded(some), "labels": torch.tensor([int(text[0]) % 2 for text in some])}


def permuted(some: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """One word of six is asked for, in a random order."""
    rows = padded(some)
    asked = max(len(text) // 6 for text in some)
    hidden = torch.zeros(len(some), LONGEST, LONGEST)
    targets = torch.zeros(len(some), asked, LONGEST)
    labels = torch.full((len(some), asked), -100)
    for row, text in enumerate(some):
        count = len(text) // 6
        places = 1 + torch.randperm(len(text))[:count]
        time = torch.zeros(LONGEST)
        time[places] = torch.arange(1.0, count + 1)
        # a slot sees what comes before it; those that are not asked come first, together
        hidden[row] = ((time[None] >= time[:, None]) & (time[None] > 0)).float()
        targets[row, torch.arange(count), places] = 1
        labels[row, :count] = rows["input_ids"][row, places]
    return {**rows, "perm_mask": hidden, "target_mapping": targets, "labels": labels}


def fairseq_steps(
    side: str, size: str, precision: str, shortest: int, steps: int
) -> tuple[float, float]:
    """Processor seconds of the best step of fairseq's trainer in fp32, and its tokens."""
    *shape, rows = SIZES[size]
    return fairseq_peer.masked_lm(shape, rows, texts(shortest, rows, steps), WORDS, steps)


def unitk_steps(
    options: str, side: str, size: str, precision: str, shortest: int, steps: int
) -> tuple[float, float]:
    """Processor seconds of the best update, and its tokens on average."""
    from unitk.training.loop import Trainer
    from unitk.training.start import parse_train, prepare

    rows, (task, _, objective) = SIZES[size][-1], side.partition(":")
    with tempfile.TemporaryDirectory() as name:
        data = corpus(Path(name), texts(shortest, rows, steps), task)
        line = (
            f"--task {task} {architecture(task, size)} --save-dir {Path(name) / 'run'}"
            f" --data {data} --valid none --threads 1 --precision {precision} --writers none"
            f" --batch-texts {rows} --max-tokens {4 * rows * LONGEST} --max-steps {steps} {options}"
        )
        if pretrains(task):
            line += f" --block-size {2 * LONGEST}"  # a text is a document, which is not cut
        if objective:
            line += f" --task.objective {objective}"
        trainer = Trainer(prepare(parse_train(line.split())))
        trainer.model.train()
        took, updates, tokens = [], trainer.updates(), 0
        for _ in range(steps):
            begins(trainer.model)
            began = time.process_time()
            update, count, _ = next(updates)
            trainer.update(update)
            took.append(time.process_time() - began)
            tokens += count
    return min(took[1:]), tokens / steps


def pretrains(task: str) -> bool:
    """Whether a task learns from texts; otherwise from pairs. Ends where it needs labels."""
    from unitk import registry
    from unitk.tasks.base import Task

    kind = registry.get("task", task)
    if kind.pretrain is Task.pretrain and kind.finetune is Task.finetune and task != "classify":
        sys.exit(f"--task {task} learns from labels: give one that learns from texts or pairs")
    return kind.pretrain is not Task.pretrain


def architecture(task: str, size: str) -> str:
    """Options of BERT with the tables that a task needs, or of the task's own family."""
    from unitk import registry

    layers, width, heads, _ = SIZES[size]
    objective = "mlm" if task == "classify" else task  # texts with classes are laid out as BERT's
    bert, kind = registry.get("arch", "bert_base")(), registry.get("task", objective)
    own, config = kind.arch, registry.get("arch", kind.arch)()
    sizes = {"num_layers": layers, "width": width, "num_heads": heads, "ffn_width": 4 * width}
    sizes |= {"attention_dropout": 0, "max_positions": max(512, 2 * LONGEST), "memory_length": 0}
    if type(config) is type(bert):
        own = "bert_base"
        tables = "num_virtual", "num_segments", "max_positions2", "num_tasks"
        sizes |= {name: max(getattr(config, name), getattr(bert, name)) for name in tables}
        sizes["num_segments"] = max(sizes["num_segments"], len(kind.segments))
        sizes |= {need: max(sizes.get(need, 0), 2 * LONGEST) for need in kind.needs}
    there = {field.name for field in fields(config)}
    options = [(name.replace("_", "-"), n) for name, n in sizes.items() if name in there]
    return " ".join([f"--arch {own}", *(f"--arch.{name} {n}" for name, n in options)])


def corpus(folder: Path, data: list[np.ndarray], task: str) -> Path:
    """A corpus of texts, of texts with classes, or of pairs of their halves, for a task."""
    from unitk.data.corpus.preprocess import Options, preprocess

    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*symbols, *(f"w{i}" for i in range(WORDS - len(symbols)))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    options: dict[str, Any] = {"dest": folder / "corpus", "vocab": folder / "vocab.txt"}
    lines = [[words[i] for i in ids] for ids in data]
    if task == "classify":
        rows = [[*line, f"\t{ids[0] % 2}"] for line, ids in zip(lines, data, strict=True)]
        sides = {"input": [["text\tlabel"], *rows]}
        options |= {"labels": "class", "source_field": ("text",), "label_field": "label"}
    elif pretrains(task):
        sides = {"input": lines}
    else:
        sides = {"source_file": [x[::2] for x in lines], "target_file": [x[1::2] for x in lines]}
    for name, side in sides.items():
        path = folder / f"{name}.{'tsv' if task == 'classify' else 'txt'}"
        path.write_text("".join(f"{' '.join(x)}\n" for x in side))
        options[name] = (str(path),)
    # a document each, of one sentence
    preprocess(Options(**options, documents="line"))
    return folder / "corpus"


if __name__ == "__main__":
    main()
