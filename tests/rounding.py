"""Equal but for rounding, on any CPU; and another CPU's rounding, made on this one.

Kernels differ in the order of their sums and in the last bit of exp and erf. A number's error is
some roundings of the largest number it was made of, not of itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDINGS = 128
"""Of fp32, 1.2e-7 each: logits and gradients of small models were up to 72 apart."""
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
POINTWISE = ("exp", "erf", "tanh", "gelu", "log", "rsqrt", "_softmax", "_log_softmax", "logsumexp")
WHOLE = ("native_layer_norm", "scaled_dot_product", "linear_pointwise")


def assert_near(
    found: ArrayLike | Tensor, wanted: ArrayLike | Tensor, *, roundings: int = ROUNDINGS
) -> None:
    """Fail if numbers differ by more than roundings of the largest of them, or of 1.

    Log-probabilities and states are made of logits and sums above 1, whatever they are themselves.
    """
    one, other = (
        np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, np.float64)
        for x in (found, wanted)
    )
    assert one.shape == other.shape
    finite = np.isfinite(other)
    assert np.array_equal(one[~finite], other[~finite], equal_nan=True)
    size = max(1.0, np.abs(other[finite]).max(initial=0.0))
    error = np.abs(one - other)[finite].max(initial=0.0)
    allowed = roundings * np.finfo(np.float32).eps * size
    assert error <= allowed, (
        f"an error of {error:.2g}, allowed {allowed:.2g} at a size of {size:.2g}"
    )


class Rounding(TorchDispatchMode):
    """While entered, products and functions in fp32 and fp64 are rounded otherwise.

    What is added to a number is a function of its bits, so equal computations stay equal.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if isinstance(y, tuple) and any(part in name for part in WHOLE) and "backward" not in name:
            return (self.rounded(y[0], y[0].abs().amax(-1, keepdim=True)), *y[1:])
        if not isinstance(y, Tensor) or "backward" in name:
            return y
        if name in PRODUCTS and not kwargs:
            return self.rounded(y, func(*map(torch.abs, args)) if y.is_floating_point() else y)
        if any(part in name for part in WHOLE) and y.numel():
            return self.rounded(y, y.abs().amax(-1, keepdim=True))
        return self.rounded(y, y.abs()) if name in POINTWISE else y

    def rounded(self, y: Tensor, size: Tensor) -> Tensor:
        """y with errors of half a rounding of `size`, the sum of the terms' sizes."""
        if y.dtype not in (torch.float32, torch.float64) or y.is_meta or y.is_mkldnn:
            return y
        bits = y.contiguous().view(torch.int32 if y.dtype == torch.float32 else torch.int64)
        hashed = (bits.long() & 0xFFFFFFFF ^ self.seed * 0x9E3779B1) * 2654435761 & 0xFFFFFFFF
        hashed = (hashed >> 15 ^ hashed) * 2246822519 & 0xFFFFFFFF
        share = (hashed >> 8).double().reshape(y.shape) / 2**23 - 1
        moved = y + share.to(y.dtype) * size * (torch.finfo(y.dtype).eps / 2)
        return torch.where(moved.isfinite(), moved, y)
