"""How much faster several ranks on several cores train than one rank on one core.

    python recipes/benchmarks/ranks.py [--ranks 2] [--arch glm_small] [--steps 20] [--turns 3]

Each rank has one thread and a core; gradients go over gloo. Both ways make the same updates of the
bundled sample, in turns. Printed are the medians of the text tokens a second of updates (of all
turns, the first update of each left out), their ratio, and the tokens for each second of processor
time (what a run of one update takes is left out), which busy cores distort less. Twice its ratio is
what the ranks would reach if none waited for another.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from train import sample


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--task", default="glm_infill")
    parser.add_argument("--arch", default="glm_small")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--block-size", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=4096, help="slots of a micro-batch")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    ways: dict[int, list[tuple[float, float]]] = {1: [], args.ranks: []}
    with tempfile.TemporaryDirectory() as name:
        data = sample(Path(name))
        for turn in range(args.turns):
            for ranks, found in ways.items():
                run = Path(name) / f"{turn}-{ranks}"
                [first], start = trained(args, data, run.with_suffix(".start"), ranks, 1)
                events, busy = trained(args, data, run, ranks, args.steps)
                thrift = (events[-1]["tokens"] - first["tokens"]) / (busy - start)
                found += [(event["tokens/s"], thrift) for event in events[1:]]
    speeds = {
        ranks: [statistics.median(column) for column in zip(*found, strict=True)]
        for ranks, found in ways.items()
    }
    print(f"{args.task}, {args.arch}, {args.precision}, updates of {args.ranks} x")
    print(f"{args.max_tokens:,} slots; {'tokens/s':>10} {'tokens/processor s':>20}")
    for ranks, (speed, thrift) in speeds.items():
        print(f"{ranks} ranks on {ranks} cores {speed:10,.0f} {thrift:20,.0f}")
    one, several = speeds.values()
    print(f"ratio {several[0] / one[0]:20.2f} {several[1] / one[1]:20.2f}")


def trained(
    args: argparse.Namespace, data: Path, run: Path, ranks: int, steps: int
) -> tuple[list[dict[str, Any]], float]:
    """What a run logs of each update, and its seconds of processor time."""
    cores = sorted(os.sched_getaffinity(0))[:ranks]
    words = (
        f"-m unitk_cli train --task {args.task} --arch {args.arch} --data {data}"
        f" --save-dir {run} --valid none --device cpu --threads 1 --writers none --log-every 1"
        f" --max-steps {steps} --block-size {args.block_size} --save-every {steps}"
        f" --max-tokens {args.max_tokens} --batch-tokens {args.ranks * args.max_tokens}"
        f" --precision {args.precision} --nproc {ranks}"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *words.split()],
        check=True,
        capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    log = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [event for event in log if event["kind"] == "train"], busy


if __name__ == "__main__":
    main()
