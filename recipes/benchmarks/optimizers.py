"""What an update costs with each optimizer, in turns on the same batches.

    python recipes/benchmarks/optimizers.py [--optimizers adamw,muon,lamb] [--arch gpt2_mini]

The data is a corpus folder (--data), or else the bundled sample, preprocessed into a temporary
folder. Every update is made with each optimizer in turn, so that a busy machine slows all of them;
printed are the median seconds of processor time (of the clock on a GPU), the ratio to the first
optimizer (the median of the updates' own ratios), the time of the optimizer's own step, and the
mean loss of each quarter of the updates. A name may have options:
`--optimizers "adamw,adamw --optimizer.state bf16"`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean, median

import torch
from train import sample

from unitk.training.loop import Trainer
from unitk.training.measures import Means
from unitk.training.start import parse_train, prepare


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="corpus folder instead of the bundled sample")
    parser.add_argument("--task", default="lm")
    parser.add_argument("--arch", default="gpt2_mini")
    parser.add_argument("--optimizers", default="adamw,muon,lamb")
    parser.add_argument("--max-tokens", type=int, default=4096, help="slots of an update")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(args, args.data or sample(Path(folder)), Path(folder))


def measure(args: argparse.Namespace, data: Path, folder: Path) -> None:
    """The same updates by every optimizer, in turns."""
    trainers = {}
    for name in args.optimizers.split(","):
        words = (
            f"--data={data} --task={args.task} --arch={args.arch} --valid=none --max-steps=1000"
            f" --arch.dropout=0 --max-tokens={args.max_tokens} --precision={args.precision}"
            f" --threads={args.threads} --optimizer={name} --save-dir={folder}/{len(trainers)}"
        )
        trainers[name] = Trainer(prepare(parse_train(words.split())))
        trainers[name].model.train()
    first_trainer = next(iter(trainers.values()))
    size = sum(parameter.numel() for parameter in first_trainer.model.parameters())
    print(f"{args.task}, {args.arch}: {size / 1e6:.1f} M parameters, {first_trainer.precision}")
    whole: dict[str, list[float]] = {name: [] for name in trainers}
    alone: dict[str, list[float]] = {name: [] for name in trainers}
    losses: dict[str, list[float]] = {name: [] for name in trainers}
    for update, *_ in islice(first_trainer.updates(), 2 + args.updates):
        for name, trainer in trainers.items():
            trainer.plan.step = timed(type(trainer.plan).step, trainer.plan, alone[name])
            timed(Trainer.update, trainer, whole[name])(update)
            losses[name].append(trainer.means.values("train", {})["train/loss"])
            trainer.means = Means()
    first = whole[args.optimizers.split(",")[0]][2:]
    for name in trainers:
        took, own = whole[name][2:], alone[name][2:]  # the first two warm up
        ratio = median(a / b for a, b in zip(took, first, strict=True))
        at = [len(losses[name]) * part // 4 for part in range(5)]
        parts = [f"{mean(losses[name][a:b]):.4f}" for a, b in pairwise(at) if a < b]
        shown = f"{name:<10} {median(took):.3f} s  x {ratio:.3f}  own step {median(own):.3f} s"
        print(f"{shown}  loss {' '.join(parts)}")
    print(f"{args.updates} updates, {args.threads} threads, torch {torch.__version__}")


def timed(call: Callable[..., None], self: object, into: list[float]) -> Callable[..., None]:
    """The method, noting how long it takes."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time

    def noted(*args: object) -> None:
        start = clock()
        call(self, *args)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        into.append(clock() - start)

    return noted


if __name__ == "__main__":
    main()
