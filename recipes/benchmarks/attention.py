"""How long the renderings of the visibility rule take, forward and backward, and where each wins.

    python recipes/benchmarks/attention.py [--device cuda] [--widths 256,512,1024,2048,4096]

Rows of packed examples as three objectives lay them out; scores of `--heads` heads of 64. Each
rendering makes its mask anew, as in every update, for `--layers` layers. The renderings take turns;
printed are the medians in milliseconds. FlexAttention is measured on CUDA only: it has no backward
on a CPU. The last line tells from which width on it won, which is what `FLEX_WIDTH` in
`unitk/models/attention.py` should say.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unitk.models import attention
from unitk.models.state import Reading
from unitk.slots import Example, Slots, collate, probe, stay

K = 64


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--widths", default="256,512,1024,2048")
    parser.add_argument("--slots", type=int, default=8192, help="of a micro-batch")
    parser.add_argument("--docs", type=int, default=2, help="examples of a row")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    ways = ["none", "causal", "dense"] + ["flex"] * (args.device == "cuda")
    print(f"{args.device}, {args.precision}, torch {torch.__version__}; milliseconds")
    print(f"{'':<20}" + "".join(f"{way:>10}" for way in ways))
    wins = {}
    for width in map(int, args.widths.split(",")):
        lost = False
        for objective, example in OBJECTIVES.items():
            rows = [
                [Example({"x": example(width // args.docs)}) for _ in range(args.docs)]
                for _ in range(max(1, args.slots // width))
            ]
            slots = collate(rows).to(args.device).towers["x"]
            took = compare(args, slots, dtype, ways)
            lost |= took.get("flex", 0.0) > took["dense"]
            shown = "".join(f"{1e3 * took[way]:10.1f}" for way in ways)
            print(f"{objective + f', {slots.shape[2]}':<20}{shown}", flush=True)
        wins[width] = "flex" in ways and not lost
    first = next((width for width in wins if all(w for n, w in wins.items() if n >= width)), None)
    if "flex" in ways:
        print(f"FlexAttention wins from {first} slots on" if first else "the dense mask wins")


def mlm(n: int) -> Slots:
    """Everything sees everything."""
    return stay(np.arange(n), np.arange(n))


def glm_infill(n: int) -> Slots:
    """Context, and 15 % that are written one after the other."""
    part = n * 15 // 100
    return mlm(n - part) + stay(np.arange(part), np.arange(part), at=np.arange(1, part + 1))


def pmlm(n: int) -> Slots:
    """Context with masks, and steps of three words, each beside its pseudo tokens."""
    hidden = n * 15 // 130
    step, word = np.arange(hidden) // 3 + 1, np.arange(hidden)
    return mlm(n - 2 * hidden) + stay(word, word, at=2 * step + 1) + probe(word, word, at=2 * step)


OBJECTIVES: dict[str, Callable[[int], Slots]] = {
    "mlm": mlm,
    "glm_infill": glm_infill,
    "pmlm": pmlm,
}


def compare(
    args: argparse.Namespace, slots: Tensor, dtype: torch.dtype, ways: list[str]
) -> dict[str, float]:
    """Median seconds of each way to see these slots [9, B, T], in turns."""
    shape = 3, slots.shape[1], args.heads, slots.shape[2], K
    qkv = torch.randn(shape, device=args.device, dtype=dtype).requires_grad_()
    turns: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(args.rounds + 1):
        for way in ways:
            began = now(args.device)
            forward_backward(args.layers, slots, qkv, way)
            if turn:  # the first one compiles
                turns[way].append(now(args.device) - began)
    return {way: statistics.median(seconds) for way, seconds in turns.items()}


def forward_backward(layers: int, slots: Tensor, qkv: Tensor, way: str) -> None:
    """One rendering of the mask, and so many layers that share it."""
    width = slots.shape[2]
    if way in ("none", "causal"):
        sight = "full" if way == "none" else "causal"
        view = attention.render_mask(Reading(slots, sight, width), qkv.dtype, 0.0)
    else:
        view = attention.render_mask(Reading(slots, "rule", width), qkv.dtype, 0.0, choice=way)
    for _ in range(layers):
        view(*qkv, K**-0.5).sum().backward()


def now(device: str) -> float:
    """Seconds, with what was started done: of this process's processor time on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


if __name__ == "__main__":
    main()
