"""How long a command of unitk takes to its first line of output, and to its end.

    python recipes/benchmarks/start.py [--rounds 5] -- VERB OPTIONS ...

The command runs in processes of its own, in turns with `import torch` alone. Printed are the least
and the median of the seconds and of the processor seconds, which say the same on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("words", nargs="+", help="a verb and its options, after --")
    args = parser.parse_args()
    ways = {
        "import torch": ["-c", "import torch; print(1, flush=True)"],
        f"unitk {args.words[0]}": ["-m", "unitk_cli", *args.words],
    }
    times: dict[str, list[Sequence[float]]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, words in ways.items():
            times[name].append(timed(words))
    heads = ("first line, s", "processor s", "end, s", "processor s")
    print(" " * 16 + "".join(f"{head:>16}" for head in heads))
    for name, rounds in times.items():
        columns = zip(*rounds, strict=True)
        cells = [f"{min(column):.2f} ({statistics.median(column):.2f})" for column in columns]
        print(f"{name:16}" + "".join(f"{cell:>16}" for cell in cells))


def timed(words: Sequence[str]) -> tuple[float, float, float, float]:
    """Seconds and processor seconds of a Python program to its first line, and to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    first = time.perf_counter() - began
    with open(f"/proc/{child.pid}/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[11:13]  # utime and stime of proc(5)
    child.stdout.read()
    assert child.wait() == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    early = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return first, early, time.perf_counter() - began, busy


if __name__ == "__main__":
    main()
