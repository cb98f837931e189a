"""What an update costs with one architecture, as a multiple of what it costs with another.

    python recipes/benchmarks/stacks.py gpt2_mini modern_mini "modern_mini head-gate=on"

The first one is the measure. Options may follow a name (`--arch.head-gate on`). All make
the same updates, without dropout, in turns; printed are the medians of the processor time of an
update (of the time that passes, on CUDA) and of its ratio to the first one's in the same turn.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from train import sample

from unitk.training.loop import Trainer
from unitk.training.start import parse_train, prepare


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stacks", nargs="+", help="NAME or 'NAME OPTION=VALUE ...'")
    parser.add_argument("--data", type=Path, help="corpus folder instead of the bundled sample")
    parser.add_argument("--task", default="lm")
    parser.add_argument("--block-size", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=4096, help="slots of an update")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or sample(Path(folder))
        trainers = [trainer(args, data, Path(folder), words) for words in args.stacks]
        compare(args, trainers)


def trainer(args: argparse.Namespace, data: Path, folder: Path, words: str) -> Trainer:
    """What `unitk train` would train with."""
    arch, *options = words.split()
    flags = (
        f"--data={data} --task={args.task} --arch={arch} --arch.dropout=0 --valid=none"
        f" --arch.attention-dropout=0 --max-steps=1000 --block-size={args.block_size}"
        f" --max-tokens={args.max_tokens} --device={args.device} --precision={args.precision}"
        f" --save-dir={folder / 'run'}"
    )
    own = [f"--arch.{option}" for option in options]
    built = Trainer(prepare(parse_train([*flags.split(), *own])))
    built.model.train()
    return built


def compare(args: argparse.Namespace, trainers: list[Trainer]) -> None:
    """Time the same updates in turns; the first one is for warming up."""
    updates = [update for update, *_ in islice(trainers[0].updates(), args.rounds + 1)]
    turns = [[seconds(trainer, update) for trainer in trainers] for update in updates][1:]
    print(f"{args.task}, {args.precision}, torch {torch.__version__}: milliseconds an update")
    for number, (name, trainer) in enumerate(zip(args.stacks, trainers, strict=True)):
        size = sum(parameter.numel() for parameter in trainer.model.parameters()) / 1e6
        median = statistics.median(turn[number] for turn in turns)
        ratio = statistics.median(turn[number] / turn[0] for turn in turns)
        print(f"{name:<50} {size:6.2f} M {1e3 * median:9.0f} {ratio:7.3f}")


def seconds(trainer: Trainer, update: object) -> float:
    """Of processor time on a CPU, which says the same on a busy machine."""
    clock = time.perf_counter if trainer.device.type == "cuda" else time.process_time
    start = clock()
    trainer.update(update)  # type: ignore[arg-type]
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


if __name__ == "__main__":
    main()
