"""What a large corpus and many ranks cost before the first update: seconds, memory, and the order.

    python recipes/benchmarks/scale.py [--tokens 10e9] [--ranks 64] [--sentence 250] [--starts 3]

The corpus is a sparse file: its tokens take no room on the disk, its index does. Some ranks start
in a process of their own, as `unitk train` does: they open the corpus, plan the epoch and build
their share of the first updates. Printed are seconds and the peak of memory of each. Then one
process builds the first update of every rank: together they must have each micro-batch once, and
all starts must have planned the same order. The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from train import sample

from unitk.data.batching import Feed
from unitk.data.corpus.columns import DOCUMENTS, SENTENCES
from unitk.data.corpus.writer import ColumnFile
from unitk.data.examples import open_data
from unitk.data.plan import Plan
from unitk.files import digest
from unitk.training.start import parse_train

DOCUMENT = 40  # sentences


def main() -> None:
    """Start some ranks, and build the first update of all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=float, default=10e9)
    parser.add_argument("--sentence", type=int, default=250, help="tokens of each")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--starts", type=int, default=3, help="ranks that start by themselves")
    parser.add_argument("--task", default="lm")
    parser.add_argument("--blocks", default="stream")
    parser.add_argument("--block-size", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=16384, help="slots of a micro-batch")
    parser.add_argument("--data", type=Path, help="the corpus of a rank that starts (--rank)")
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    if args.rank is not None:
        print(json.dumps(start(args)))
        return
    with tempfile.TemporaryDirectory() as name:
        args.data = sparse(Path(name), int(args.tokens) // args.sentence, args.sentence)
        size = (args.data / "tokens.bin").stat().st_size
        print(f"{args.tokens:,.0f} tokens, {size / 1e9:.0f} GB, {args.ranks} ranks")
        words = [*sys.argv[1:], "--data", str(args.data)]
        reports = []
        for number in range(args.starts):
            rank = number * (args.ranks - 1) // max(args.starts - 1, 1)
            run = [sys.executable, __file__, *words, "--rank", str(rank)]
            reports.append(json.loads(subprocess.check_output(run).splitlines()[-1]))
            print(
                f"rank {rank}: " + ", ".join(f"{k} {v}" for k, v in reports[-1].items()), flush=True
            )
        numbers, order = together(args)
    same = {report["order"] for report in reports} == {order}
    once = sorted(numbers) == list(range(len(numbers)))
    print(f"order of all starts: {'the same' if same else 'DIFFERENT'}; micro-batches of the first")
    print(f"update: {len(numbers)}, {'each on one rank' if once else 'NOT each on one rank'}")
    sys.exit(not (same and once))


def sparse(folder: Path, sentences: int, size: int) -> Path:
    """A corpus of so many sentences of `size` times token 0."""
    vocab, corpus = sample(folder) / "train", folder / "sparse"
    corpus.mkdir()
    (vocab / "vocab").rename(corpus / "vocab")
    about: dict[str, Any] = json.loads((vocab / "manifest.json").read_text())
    with (corpus / "tokens.bin").open("wb") as tokens:
        tokens.truncate(2 * sentences * size)
    documents = -(-sentences // DOCUMENT)
    last = sentences - (documents - 1) * DOCUMENT  # sentences of the last document
    for column, sizes in (
        (SENTENCES, np.full(sentences, size)),
        (DOCUMENTS, np.append(np.full(documents - 1, DOCUMENT), last)),
    ):
        index = ColumnFile(corpus, column)
        index.append(sizes)
        index.close()
    files = {
        path.relative_to(corpus).as_posix(): {
            "size": path.stat().st_size,
            "sha256": "" if path.name == "tokens.bin" else digest(path),
        }
        for path in corpus.rglob("*")
        if path.is_file()
    }
    counts = dict(documents=documents, sentences=sentences, tokens=sentences * size, words=0)
    # format 1: the tokens have no hashes of blocks, which would have to read them all
    about |= {"format": 1, "counts": counts | {"unknown": 0}, "files": files}
    (corpus / "manifest.json").write_text(json.dumps(about))
    return corpus


def feed_of(args: argparse.Namespace, rank: int) -> Feed:
    """What `unitk train` would read on a rank."""
    parsed = parse_train(
        f"--data={args.data} --task={args.task} --valid=none --max-steps=9 --save-dir=run"
        f" --blocks={args.blocks} --block-size={args.block_size} --max-tokens={args.max_tokens}"
        f" --arch.max-positions={args.block_size}".split()
    )
    examples = open_data(parsed).train
    return Feed(
        examples=examples,
        seed=1,
        max_tokens=args.max_tokens,
        batch_tokens=args.ranks * args.max_tokens,
        rank=rank,
        world=args.ranks,
    )


def start(args: argparse.Namespace) -> dict[str, Any]:
    """One rank from its start to its second update; the hash of its plan."""
    began = time.perf_counter()
    feed = feed_of(args, args.rank)
    opened = time.perf_counter()
    updates = list(islice(feed.updates(), 2))
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    assert len(updates) == 2
    return {
        "seconds to open": round(opened - began, 2),
        "to two updates": round(done - opened, 2),
        "processor seconds": round(time.process_time(), 2),
        "GB at most": round(peak, 2),
        "order": order_of(feed.plan(0)),
    }


def order_of(plan: Plan) -> str:
    """A hash of the order of an epoch."""
    return hashlib.sha256(plan.order.data).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Planned(Feed):
    """A feed whose plan is made already: that of all ranks in one process."""

    made: Plan

    def plan(self, epoch: int) -> Plan:
        return self.made


def together(args: argparse.Namespace) -> tuple[list[int], str]:
    """The numbers of the micro-batches of the first update on all ranks; the hash of the plan."""
    feed = feed_of(args, 0)
    plan, numbers = feed.plan(0), list[int]()
    for rank in range(args.ranks):
        rank_feed = Planned(**{**vars(feed), "rank": rank}, made=plan)
        numbers += next(rank_feed.updates()).numbers
    return numbers, order_of(plan)


if __name__ == "__main__":
    main()
