"""Weights prepared for decoding: in fewer bits if requested, and packed for the CPU's products."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.errors import require
from unitk.kernels.products import packs
from unitk.models.layers import ACTIVATIONS, FeedForward
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.options.fields import parse_value

M = TypeVar("M", bound=nn.Module)
log = logging.getLogger(__name__)
Precision = Literal["fp32", "bf16", "fp16", "int8"]
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.float32,  # all but the matrices
}
ROWS = 4
"""So many rows `Packed` multiplies at least: with one or two, oneDNN's product takes 10 to 35 %
longer (3.12, Zen 4), and with one row its sums may have other last digits than with more."""
FUSED = {
    ACTIVATIONS["gelu"]: ("gelu", "none"),
    ACTIVATIONS["gelu_tanh"]: ("gelu", "tanh"),
    ACTIVATIONS["relu"]: ("relu", ""),
}


class Packed(nn.Module):
    """A linear map whose matrix is laid out for oneDNN's product.

    oneDNN would otherwise reorder the matrix at every product, which with few rows takes longer
    than the product itself. Operations that follow the product (`FUSED`) run while its values are
    in cache.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, after: tuple[str, str] = ("none", "")
    ) -> None:
        super().__init__()
        self.after, self.how = after
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self.bias = bias

    def __reduce__(self) -> Any:  # torch neither copies nor pickles such a matrix
        return Packed, (self.weight.to_dense(), self.bias, (self.after, self.how))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[:-1].numel()
        repeated = torch.cat([x] * (ROWS // rows)) if 0 < rows <= ROWS // 2 else x
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            repeated, self.weight, self.bias, self.after, [], self.how
        )
        return y[: len(x)]


class Int8(nn.Module):
    """A linear map in 8-bit integers, with one scale for each output.

    The inputs are quantised too, with one scale a row, so that rows do not affect each other.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.middle = 64 if _saturates() else 128
        factor_N = _factor(weight.detach(), 127)
        whole = (weight.detach() / factor_N).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(whole.contiguous(), None)
        self.factor = factor_N[:, 0]
        self.bias = bias
        self.zero = torch.zeros(len(factor_N), dtype=torch.int32)

    def __reduce__(self) -> Any:
        # the same scales and integers come of it: each row has a number whose integer is 127
        return Int8, ((self.weight.to_dense() * self.factor).mT, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        factor = _factor(x, self.middle - 1)
        # unsigned, as the processor multiplies them: `middle` stands for 0, 0.5 is for rounding;
        # `to` takes twice as long as `astype` (torch 2.13)
        whole = torch.from_numpy((x / factor).add_(self.middle + 0.5).numpy().astype(np.uint8))
        y = _multiply_int8(whole, self.middle, self.weight, self.factor, self.zero)
        return y.mul_(factor) if self.bias is None else torch.addcmul(self.bias, y, factor)


class Padded(nn.Module):
    """A linear map with rows of zeros after its own, up to a multiple of 64.

    A GPU multiplies a matrix of another number of rows in 16 bits by a kernel for older tensor
    cores: with 50,257 words that was a sixth of a step's time on an H100.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.outputs = len(weight)
        weight = weight.detach()
        bias = bias if bias is None else bias.detach()
        if missing := -self.outputs % 64:  # else they are as they should be, and not copied
            weight = F.pad(weight, (0, 0, 0, missing))
            bias = bias if bias is None else F.pad(bias, (0, missing))
        self.weight = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)[..., : self.outputs]


def _factor(x: Tensor, largest: int) -> Tensor:
    """The scale of each row whose integers range from -`largest` to `largest`."""
    return x.abs().amax(-1, keepdim=True).clamp_(min=1e-12) / largest


def _multiply_int8(x: Tensor, middle: int, *matrix: Tensor) -> Tensor:
    """The product of unsigned rows, whose 0 is `middle`, with a matrix, its scales and zeros."""
    y: Tensor = torch.ops.onednn.qlinear_pointwise(
        x, 1.0, middle, *matrix, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return y


@cache
def _saturates() -> bool:
    """Whether sums of two products saturate at 2^15 (no VNNI); inputs then have 7 bits."""
    weight = torch.ops.onednn.qlinear_prepack(torch.full((32, 64), 127, dtype=torch.int8), None)
    x = torch.full((1, 64), 255, dtype=torch.uint8)
    y = _multiply_int8(x, 0, weight, torch.ones(32), torch.zeros(32, dtype=torch.int32))
    return bool((y != 64 * 127 * 255).any())


def prepare_weights(model: M, precision: Precision) -> M:
    """Prepare a model or an ensemble in place; afterwards it can only decode."""
    parse_value(precision, Precision, "--precision")
    cpu = next(model.parameters()).is_cpu
    require(cpu or precision != "int8", "--precision int8 is for --device cpu")
    model.to(DTYPES[precision]).requires_grad_(False)
    if cpu and not packs(precision):
        require(
            precision != "int8",
            "--precision int8 needs an x86-64 processor, and a PyTorch with oneDNN",
        )
        if precision != "fp32":  # 1.7 times the time, measured on a CPU with AVX2 alone
            log.warning(
                "--precision %s: this processor does not multiply in it; fp32 is faster", precision
            )
        return model
    product: type[Int8] | type[Packed] | type[Padded] = Padded
    if cpu:
        product = Int8 if precision == "int8" else Packed
        _pack_layers(model, product)
    for member in [module for module in model.modules() if isinstance(module, Model)]:
        _with_output(member, product)
    return model


def _pack_layers(model: nn.Module, kind: type[Int8] | type[Packed]) -> None:
    """Replace every linear map of the layers by a product of this kind."""
    for module in list(model.modules()):
        if isinstance(module, Stack) and kind is Int8 and packs("bf16"):
            module.cache_dtype = torch.bfloat16  # nearer to the truth than 8 bits, half of 32
        if isinstance(module, FeedForward) and isinstance(module.up, nn.Linear):
            if kind is Packed and not module.gated and module.activation in FUSED:
                module.up = Packed(module.up.weight, module.up.bias, FUSED[module.activation])
                module.activation = nn.Identity()
        for name, linear in module.named_children():
            if isinstance(linear, nn.Linear):
                setattr(module, name, kind(linear.weight, linear.bias))


def _with_output(model: Model, kind: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    """Let the head over the vocabulary compute its logits by a product of this kind."""
    head = model.words
    weight = model.decoder.embed.tokens.weight if head.weight is None else head.weight
    head.product = kind(weight, head.bias)
