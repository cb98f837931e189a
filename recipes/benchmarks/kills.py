"""Two ranks under torchrun, one of which is killed again and again: are the weights the same?

    python recipes/benchmarks/kills.py [--kills 50] [--ranks 2] [--steps 400]

A small model trains on the bundled sample, once undisturbed. Then it trains with `--resume` under
`torchrun --max-restarts`, and a rank drawn at random is killed (SIGKILL) at a random moment: three
times of four after 1 to 8 further updates, otherwise within seconds of its start. After the last
kill the run goes on to its end. Printed are the kills, those while a checkpoint was written, the
seconds from a start to its first update, and whether the weights equal the undisturbed ones bit by
bit. The exit code is 1 if they do not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from train import sample


def main() -> None:
    """Run both, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="updates of the run")
    parser.add_argument("--task", default="glm_infill")
    parser.add_argument("--arch", default="glm_tiny")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = sample(folder)
        whole = started(args, data, folder / "whole", 0)
        assert whole.wait() == 0, (folder / "whole.txt").read_text()[-2000:]
        killed, saving, waits = disturbed(args, data, folder / "killed")
        whole, other = (
            (folder / run / "checkpoints" / f"step-{args.steps}" / "model.safetensors").read_bytes()
            for run in ("whole", "killed")
        )
    print(f"{args.ranks} ranks of {args.task}, {args.steps} updates: {killed} kills, {saving} of")
    print(f"them while a checkpoint was written; {statistics.median(waits):.1f} s (median) and")
    print(f"{max(waits):.1f} s at most from a start to its first update")
    print(f"weights after the last update: {'bit-equal' if whole == other else 'DIFFERENT'}")
    sys.exit(whole != other)


def started(
    args: argparse.Namespace, data: Path, run: Path, restarts: int
) -> subprocess.Popen[bytes]:
    """The run under torchrun, which restarts it so many times."""
    words = (
        f"-m torch.distributed.run --standalone --nproc-per-node {args.ranks}"
        f" --max-restarts {restarts} -m unitk_cli train --task {args.task} --arch {args.arch}"
        f" --data {data} --save-dir {run} --resume --valid none --device cpu --threads 1"
        f" --max-steps {args.steps} --save-every 4 --log-every 1 --block-size 64 --writers none"
        " --max-tokens 256 --batch-tokens 512 --precision fp32 --seed 1"
    )
    with run.with_suffix(".txt").open("wb") as out:
        return subprocess.Popen([sys.executable, *words.split()], stdout=out, stderr=out)


def disturbed(args: argparse.Namespace, data: Path, run: Path) -> tuple[int, int, list[float]]:
    """Kill a rank at random moments: kills, those while a checkpoint was written, and waits."""
    chance, killed, saving, waits = random.Random(args.seed), 0, 0, list[float]()
    launcher, dead = started(args, data, run, args.kills), set[int]()
    while killed < args.kills and (ranks := alive(launcher, args.ranks, dead)):
        began, least = time.monotonic(), None
        soon = chance.uniform(0, 3) if chance.random() < 0.25 else 1e6
        more, waited = chance.randint(1, 8), False
        while launcher.poll() is None and time.monotonic() < began + soon:
            now = events(run)
            least = now if least is None or now < least else least  # who resumes cuts the log
            if now > least and not waited:
                waits.append(time.monotonic() - began)
                waited = True
            if now >= least + more:
                break
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        dead |= set(ranks)
        with contextlib.suppress(ProcessLookupError):  # the run is at its end
            os.kill(chance.choice(ranks), signal.SIGKILL)
            killed, saving = killed + 1, saving + any((run / "checkpoints").glob(".tmp*"))
            print(f"kill {killed} after {events(run)} updates", file=sys.stderr, flush=True)
    assert launcher.wait() == 0, run.with_suffix(".txt").read_text()[-2000:]
    return killed, saving, waits


def alive(launcher: subprocess.Popen[bytes], count: int, dead: set[int]) -> list[int]:
    """The ranks, once all that were restarted are there; none where the run has ended."""
    while launcher.poll() is None:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        if len(ranks := [int(pid) for pid in children if int(pid) not in dead]) == count:
            return ranks
        time.sleep(0.01)
    return []


def events(run: Path) -> int:
    """Lines of the log of a run."""
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


if __name__ == "__main__":
    main()
