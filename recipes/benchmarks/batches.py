"""How fast unitk decodes one batch after the other, on a GPU: with recorded steps and without.

    python recipes/benchmarks/batches.py --case encdec-128 --batch 32 --batches 50 --peer

Models and sources are those of `decode.py`, but each batch has sources of another length, of a
quarter, a half, three quarters and all of the case's. Eight batches come first, twice, in which
steps are recorded; the figures are of the others. What is slow is measured on fewer batches. The
words of recorded steps are compared with those of steps that are not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

import decode
import numpy as np
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.kernels.capture import Recorded
from unitk.kernels.weights import prepare_weights
from unitk.models.model import Model
from unitk.slots import Ids

WARM = 8
"""Batches that come first."""
SLOW = 8
"""Batches on which what is not recorded is measured."""
Write = Callable[[list[Ids]], list[list[int]]]
"""Decodes a batch."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", default="encdec-128", choices=decode.CASES)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--precision", default="bf16", choices=decode.KINDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--peer", action="store_true", help="measure transformers, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    case = replace(decode.CASES[given.case], rows=given.batch)
    model = decode.build(case)
    batches = draw(case, given.batches)
    print(decode.machine(given))
    print(
        f"{given.case}: {given.batches} batches of {case.rows} x {case.source // 4} to "
        f"{case.source} words, {case.new} new, beam {given.beam}, {given.precision}"
    )
    print("| | seconds a batch | words/s | recorded before, then |\n| --- | --- | --- | --- |")
    every = case.rows * case.new
    ready = prepare_weights(deepcopy(model).to(given.device), given.precision)
    found = {}
    for label, capture in (("unitk", "auto"), ("unitk, not recorded", "off")):
        some = batches if capture == "auto" else batches[:SLOW]
        before = Recorded.made
        write = ours(case, ready, given, capture)
        run(write, batches[:WARM])
        warm = run(write, batches[:WARM])
        first = Recorded.made - before
        seconds, found[label] = timed(write, some, given.device)
        made = f"{first}, {Recorded.made - before - first}"
        print(f"| {label} | {seconds:.4f} | {every / seconds:,.0f} | {made} |", flush=True)
        again = [one == other for one, other in zip(found[label], warm, strict=False)]
        assert all(again), f"{label}: {len(again) - sum(again)} outputs differ from those before"
    pairs = list(zip(*found.values(), strict=False))
    same = sum(mine == others for mine, others in pairs)
    if given.peer:
        write = theirs(case, model, given)
        run(write, batches[:2])
        seconds, _ = timed(write, batches[:SLOW], given.device)
        print(f"| transformers | {seconds:.4f} | {every / seconds:,.0f} | |")
    print(f"{same} of {len(pairs)} outputs of recorded steps are those of steps that are not")
    if given.device == "cuda":
        print(f"peak memory: {torch.cuda.max_memory_allocated() / 1e9:.2f} GB")


def draw(case: decode.Case, count: int) -> list[list[Ids]]:
    """Batches of sources of like length."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        most = case.source * (1 + number % 4) // 4
        sizes = rng.integers(most - case.source // 8, most, case.rows) + 1
        found.append([rng.integers(5, decode.MASK, size) for size in sizes])
    return found


def ours(case: decode.Case, ready: Model, given: argparse.Namespace, capture: str) -> Write:
    """unitk, as `unitk generate` calls it."""
    config = GenerateConfig(
        beam=given.beam,
        min_len=case.new - 1,
        max_len=case.new - 1,
        max_tokens=10**9,
        search="unilm",  # the end symbol comes last, for nothing
        capture=capture,
    )

    def write(sources: list[Ids]) -> list[list[int]]:
        protocol, prompts = decode.lay_out(case, sources)
        return [best.ids.tolist() for best, *_ in generate(ready, prompts, protocol, config)]

    return write


def theirs(case: decode.Case, model: Model, given: argparse.Namespace) -> Write:
    """transformers' `generate`, with the same weights."""
    own = decode.reference(case, model).to(given.device, decode.KINDS[given.precision])

    def write(sources: list[Ids]) -> list[list[int]]:
        most = max(map(len, sources))
        ids, seen = (np.full((len(sources), most), one) for one in (decode.PAD, 0))
        for row, source in enumerate(sources):
            # a decoder goes on where its prompt ends
            at = slice(len(source)) if case.arch.startswith("bart") else slice(-len(source), None)
            ids[row, at], seen[row, at] = source, 1
        with torch.inference_mode():
            out = own.generate(
                torch.from_numpy(ids).to(given.device),
                attention_mask=torch.from_numpy(seen).to(given.device),
                num_beams=given.beam,
                min_new_tokens=case.new - 1,
                max_new_tokens=case.new,
                do_sample=False,
                forced_eos_token_id=decode.END,
            )
        return out.tolist()

    return write


def run(write: Write, batches: Sequence[list[Ids]]) -> list[list[int]]:
    """The outputs of all batches."""
    return [words for sources in batches for words in write(sources)]


def timed(write: Write, batches: Sequence[list[Ids]], device: str) -> tuple[float, list[list[int]]]:
    """Seconds a batch, and the outputs."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    found = run(write, batches)  # the words come to the host: nothing is under way any more
    return (time.perf_counter() - start) / len(batches), found


if __name__ == "__main__":
    main()
