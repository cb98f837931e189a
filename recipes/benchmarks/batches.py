"""How fast unitk decodes one batch after the other, on a GPU: with recorded steps and without.

    python recipes/benchmarks/batches.py --case encdec-128 --batch 32 --batches 48 --peer

Models and sources are those of `decode.py`, but a quarter of the batches each has sources of a
quarter, a half, three quarters and all of the case's words. Batches of every length come first,
twice, in which steps are recorded; the figures are of all batches. What is slow is measured on
fewer batches. The words of recorded steps are compared with those of steps that are not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace

import decode
import numpy as np
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.decoding.fit import round_to_grid
from unitk.decoding.search import longest
from unitk.kernels.capture import Recorded
from unitk.kernels.weights import prepare_weights
from unitk.models.model import Model
from unitk.slots import WIDTH, Ids

FEW = 2
"""Batches of each length that come first, and on which what is not recorded is measured."""
Write = Callable[[list[list[Ids]]], list[list[list[int]]]]
"""Decodes batches of sources of like length; returns the outputs of each batch."""
Written = list[list[list[list[int]]]]
"""For each length and batch, the outputs."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", default="encdec-128", choices=decode.CASES)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=48)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--precision", default="bf16", choices=decode.KINDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--peer", action="store_true", help="measure transformers, too")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    case = replace(decode.CASES[args.case], rows=args.batch)
    model = decode.build(case)
    lengths = draw(case, args.batches // 4)
    few = [batches[:FEW] for batches in lengths]
    print(decode.machine(args))
    print(
        f"{args.case}: {sum(map(len, lengths))} batches of {case.rows} x {case.source // 4} to "
        f"{case.source} words, {case.new} new, beam {args.beam}, {args.precision}"
    )
    print("| | seconds a batch | words/s | recorded before, then |\n| --- | --- | --- | --- |")
    every = case.rows * case.new
    ready = prepare_weights(deepcopy(model).to(args.device), args.precision)
    outputs_of = {}
    for label, capture in (("unitk", "auto"), ("unitk, not recorded", "off")):
        some = lengths if capture == "auto" else few
        before = Recorded.count
        write = ours(case, ready, args, capture)
        run(write, few)
        warm = run(write, few)
        first = Recorded.count - before
        seconds, outputs_of[label] = timed(write, some, args.device)
        recorded = f"{first}, {Recorded.count - before - first}"
        print(f"| {label} | {seconds:.4f} | {every / seconds:,.0f} | {recorded} |", flush=True)
        again = [first == other for first, other in pairs(outputs_of[label], warm)]
        if not all(again):
            print(f"{label}: {len(again) - sum(again)} of {len(again)} outputs differ from before")
    same = [own == others for own, others in pairs(*outputs_of.values())]
    if args.peer:
        write = theirs(case, model, args)
        run(write, [batches[:1] for batches in few])
        seconds, _ = timed(write, few, args.device)
        print(f"| transformers | {seconds:.4f} | {every / seconds:,.0f} | |")
    print(f"{sum(same)} of {len(same)} outputs of recorded steps are those of steps that are not")
    if args.device == "cuda":
        print(f"peak memory: {torch.cuda.max_memory_allocated() / 1e9:.2f} GB")


def draw(case: decode.Case, count: int) -> list[list[list[Ids]]]:
    """For each of four lengths, so many batches of sources of about that length."""
    rng, drawn = np.random.default_rng(0), []
    for quarters in range(1, 5):
        longest = case.source * quarters // 4
        sizes = rng.integers(longest - case.source // 8, longest, (count, case.rows)) + 1
        drawn.append([[rng.integers(5, decode.MASK, n) for n in batch] for batch in sizes])
    return drawn


def ours(case: decode.Case, ready: Model, args: argparse.Namespace, capture: str) -> Write:
    """unitk, as `unitk generate` calls it: with the sources of several batches at once."""

    def write(batches: list[list[Ids]]) -> list[list[list[int]]]:
        protocol, prompts = decode.lay_out(case, [source for some in batches for source in some])
        slots = max(len(tower) for prompt in prompts for tower in prompt.towers.values())
        config = GenerateConfig(
            beam=args.beam,
            min_len=case.new - 1,
            max_len=case.new - 1,
            # as many as a batch has
            max_tokens=case.rows
            * (round_to_grid(slots, WIDTH) + args.beam * longest(0, case.new - 1)),
            search="unilm",  # the end symbol comes last, for nothing
            capture=capture,
        )
        done: list[int] = []
        outputs = generate(ready, prompts, protocol, config, done.append)
        assert done == [case.rows] * len(batches), f"batches of {done}"
        return in_batches([best.ids.tolist() for best, *_ in outputs], case.rows)

    return write


def theirs(case: decode.Case, model: Model, args: argparse.Namespace) -> Write:
    """transformers' `generate`, with the same weights."""
    own = decode.reference(case, model).to(args.device, decode.KINDS[args.precision])

    def write(batches: list[list[Ids]]) -> list[list[list[int]]]:
        return [write_batch(sources) for sources in batches]

    def write_batch(sources: list[Ids]) -> list[list[int]]:
        width = max(map(len, sources))
        ids, seen = (np.full((len(sources), width), value) for value in (decode.PAD, 0))
        for row, source in enumerate(sources):
            # a decoder goes on where its prompt ends
            at = slice(len(source)) if case.arch.startswith("bart") else slice(-len(source), None)
            ids[row, at], seen[row, at] = source, 1
        with torch.inference_mode():
            out = own.generate(
                torch.from_numpy(ids).to(args.device),
                attention_mask=torch.from_numpy(seen).to(args.device),
                num_beams=args.beam,
                min_new_tokens=case.new - 1,
                max_new_tokens=case.new,
                do_sample=False,
                forced_eos_token_id=decode.END,
            )
        return out.tolist()

    return write


def in_batches(outputs: list[list[int]], rows: int) -> list[list[list[int]]]:
    """The outputs of each batch."""
    return [outputs[at : at + rows] for at in range(0, len(outputs), rows)]


def pairs(ones: Written, others: Written) -> Iterator[tuple[list[int], list[int]]]:
    """The outputs of two runs for the sources that both had."""
    for length in zip(ones, others, strict=True):
        for batch in zip(*length, strict=False):
            yield from zip(*batch, strict=True)


def run(write: Write, lengths: Sequence[list[list[Ids]]]) -> Written:
    """The outputs for each length."""
    return [write(batches) for batches in lengths]


def timed(write: Write, lengths: Sequence[list[list[Ids]]], device: str) -> tuple[float, Written]:
    """Seconds a batch, and the outputs."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    outputs = run(write, lengths)  # the words come to the host: nothing is under way any more
    return (time.perf_counter() - start) / sum(map(len, lengths)), outputs


if __name__ == "__main__":
    main()
