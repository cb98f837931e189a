"""How a CPU multiplies matrices: every choice of a library or kernel is here, and of memory.

    scores of attention   SDPA's kernel or plain products, by dtype and length   scores_by_products
    a decoding step       plain products, in fp32 by numpy's library             multiply
    fp32 linear maps      PyTorch's library (MKL) or oneDNN, as measured         choose_products
    weights in decoding   laid out for oneDNN where it is fast                   packs
    freed memory          kept by the process for what comes next                keep_memory

On AMD processors MKL leaves up to half of the arithmetic unused. All compute fp32 exactly.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from unitk.errors import require

SCORES_WIDTH = 1024
"""Longer inputs leave the table of scores, [B, H, T, S], to a kernel that never holds it whole."""
FEW = 32
"""Up to this number of queries in a row, plain products compute attention instead of SDPA."""
COLUMNS = 64
"""So many keys numpy's library multiplies as they lie in memory."""
PRODUCTS = ("forward", "inputs", "weights")
"""A linear map's products: its own, and those of the two gradients."""
SMALL = 1 << 23
"""Multiplications of a product below which a call costs as much as what it could gain."""
SAMPLE = 1 << 27
"""Multiplications of the products that are timed."""
MARGIN = {"forward": 1.05, "inputs": 1.05, "weights": 1.2}
"""oneDNN must be so much faster: a Zen 4 gave 1.08 to 1.32 and, for the weights, 0.83 to 1.13, so
that a rerun there comes to the same choice."""

KEPT = 1 << 30
"""The process keeps up to this many freed bytes at the end of its heap."""

log = logging.getLogger(__name__)


@cache
def has_onednn() -> bool:
    """Whether oneDNN's own products, which PyTorch keeps private, can be called; Arm's cannot."""
    try:
        product(*torch.ones(2, 1, 1, device="cpu", dtype=torch.float32))
    except (AttributeError, RuntimeError):  # no such product, or one with other arguments
        return False
    return platform.machine() in ("x86_64", "AMD64")


def packs(precision: str) -> bool:
    """Whether this CPU's library has fast products of packed matrices."""
    if precision == "fp16" or not has_onednn():
        return False
    return precision != "bf16" or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def computes_in_bf16(device: torch.device) -> bool:
    """Whether the device multiplies in bf16, not only stores it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    can = torch.cpu.get_capabilities()
    return bool(can.get("avx512_bf16") or can.get("amx_bf16"))


@cache
def keep_memory() -> None:
    """Let the process keep what it frees for what comes next; a second call does nothing.

    glibc otherwise returns large blocks, such as gradients or a step's logits, and Linux hands the
    same memory out again in zeroed pages: a tenth of the time of a wide step or of an update.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for parameter in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            libc.mallopt(parameter, KEPT)


def scores_by_products(slots: Tensor, dtype: torch.dtype, biased: bool) -> bool:
    """Whether attention over these slots is computed by plain products instead of SDPA."""
    # in 16 bits, forward and backward take half the time of SDPA's kernel (torch 2.13), and so they
    # do where the mask itself is learned
    slow = dtype == torch.bfloat16 or biased
    return slots.device.type == "cpu" and slow and slots.shape[2] <= SCORES_WIDTH


def is_decoding_step(slots: Tensor) -> bool:
    """Whether few enough slots are read at once (a step) for plain products to be faster."""
    return slots.device.type == "cpu" and slots.shape[2] <= FEW


def multiply(rows: Tensor, table: Tensor) -> Tensor:
    """`rows @ table`, each [B, H, ., .]; a table of fewer heads serves groups of them.

    The few rows of a step of decoding are multiplied by numpy's library in fp32, which on a CPU
    takes a third to a half of the time of torch's (torch 2.13, numpy 2.4). Nothing here depends on
    the number of texts: a text in a batch has the scores that it has alone.
    """
    if rows.shape[1] != table.shape[1]:
        # a group's rows one below the other, so that nobody copies the table for each of its heads
        grouped = rows.reshape(len(rows), table.shape[1], -1, rows.shape[3])
        return multiply(grouped, table).view(*rows.shape[:3], table.shape[3])
    if table.dtype.itemsize == 2 and table.stride(-2) == 1:
        # oneDNN copies what was cut from a wider table, and a transposed one slowly
        table = table.mT.contiguous().mT
    alone = torch.get_num_threads() <= 2 and not torch.is_grad_enabled()
    if not (is_decoding_step(rows) and alone and rows.dtype == table.dtype == torch.float32):
        return rows @ table
    result = torch.empty(*rows.shape[:3], table.shape[3])
    out, left, right = result.numpy(), rows.numpy(), table.numpy()
    for at in range(0, table.shape[3], COLUMNS):  # more at a time: it lays out the table anew
        part = slice(at, at + COLUMNS)
        np.matmul(left, right[..., part], out=out[..., part])
    return result


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b by oneDNN; a transposed weight is not copied."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class OneDNNLinear(torch.autograd.Function):
    """A linear map, some of whose products are oneDNN's."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, parts: frozenset[str]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.parts = parts
        return product(x, weight, bias) if "forward" in parts else F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = product(g, weight.t()) if "inputs" in ctx.parts else g @ weight
        if ctx.needs_input_grad[1]:
            # one row for each vector, whatever was around them; transposes are not copied
            g_KN, x_KM = g.flatten(0, -2), x.flatten(0, -2)
            dw = product(g_KN.t(), x_KM.t()) if "weights" in ctx.parts else g_KN.t() @ x_KM
        if ctx.needs_input_grad[2]:
            db = g.flatten(0, -2).sum(0)
        return dx, dw, db, None


class Products(TorchFunctionMode):
    """A context in which large fp32 linear maps on CPU take these products from oneDNN."""

    entered: ClassVar[list[Products]] = []
    """The contexts that are entered now, which a second pass in backward enters again."""

    def __init__(self, parts: Iterable[str]) -> None:
        super().__init__()
        self.parts = frozenset(parts)

    def __enter__(self) -> Products:
        self.entered.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.entered.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # nn.Linear gives no keywords; autocast has cast x and weight before they come here
        if func is F.linear and not kwargs:
            x, weight, bias = (*args, None)[:3]
            plain = x.is_cpu and x.dtype == weight.dtype == torch.float32 and x.dim() > 1
            if plain and x.numel() * len(weight) >= SMALL:
                return OneDNNLinear.apply(x, weight, bias, self.parts)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def fastest_products(rows: int, width: int, inner: int) -> list[str]:
    """The products that oneDNN computes faster here, by a measurement of about 50 ms.

    Most products of the model map `rows` vectors of `width` to `inner` values or back.
    """
    if rows * width * inner < SMALL or not has_onednn():
        return []
    gain = speedups(width, inner, torch.get_num_threads())
    faster = [part for part in PRODUCTS if gain[part] >= MARGIN[part]]
    log.info(
        "fp32 products by oneDNN: %s (gains: %s)",
        ", ".join(faster) or "none",
        ", ".join(f"{part} {gain[part]:.2f}" for part in PRODUCTS),
    )
    return faster


@cache
def speedups(width: int, inner: int, threads: int) -> dict[str, float]:
    """The speedup by oneDNN of each product of a linear map of these widths, as measured."""
    rows = min(1024, max(64, SAMPLE // (width * inner)))
    x, weight, g = (torch.ones(n, m) for n, m in ((rows, width), (inner, width), (rows, inner)))
    ways: dict[str, tuple[Callable[[], Tensor], ...]] = {
        "forward": (lambda: F.linear(x, weight), lambda: product(x, weight)),
        "inputs": (lambda: g @ weight, lambda: product(g, weight.t())),
        "weights": (lambda: g.t() @ x, lambda: product(g.t(), x.t())),
    }
    ratios = {}
    for part, calls in ways.items():
        # in turns, and the least of each: what else the machine does only ever adds
        turns = [[_seconds(call) for call in calls] for _ in range(6)]
        plain, other = (min(column) for column in zip(*turns, strict=True))
        ratios[part] = plain / other
    return ratios


def _seconds(call: Callable[[], Tensor]) -> float:
    """Processor seconds, which a busy machine does not distort."""
    start = time.process_time()
    call()
    return time.process_time() - start


def choose_products(
    choice: Literal["auto", "torch", "onednn"],
    eager: bool,
    recorded: list[str] | None,
    rows: int,
    widths: tuple[int, int],
) -> list[str] | None:
    """The products that oneDNN computes in a run: those of the run so far, if `recorded`.

    `eager` is whether the run computes on CPU in fp32 without `--compile`; otherwise the result is
    None.
    """
    if not eager:
        require(
            choice == "auto", f"--products {choice} has an effect on CPU in fp32 without --compile"
        )
        return None
    require(
        choice != "onednn" or has_onednn(),
        "--products onednn needs an x86-64 processor, and a PyTorch with oneDNN",
    )
    if choice != "auto":
        return list(PRODUCTS) if choice == "onednn" else []
    # measured once a run: what a rerun or a resumed run computes must not depend on the moment
    known = recorded if has_onednn() else []
    return fastest_products(rows, *widths) if known is None else known


@contextmanager
def compute_in(
    device: torch.device, precision: str, products: Iterable[str] | None
) -> Iterator[None]:
    """A context in which models compute in this precision, with these products by oneDNN."""
    half = torch.float16 if precision == "fp16" else torch.bfloat16
    with torch.autocast(device.type, half, enabled=precision != "fp32"):
        with Products(products) if products else nullcontext():
            yield


def recompute(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The value of a function, which backward computes again with the same products."""
    if Products.entered:
        parts = Products.entered[-1].parts
        options["context_fn"] = lambda: (nullcontext(), Products(parts))
    return checkpoint(function, *arguments, use_reentrant=False, **options)
