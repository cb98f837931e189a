"""The options of low-rank adapters; torch is not needed.  Hu et al. 2021, arXiv 2106.09685.

    W x   becomes   W x + alpha / rank B A x      with A [rank, in] and B [out, rank], first 0

A matrix that stacks several (queries, keys and values) has an A and a B for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from unitk.options.fields import Above, Checked, Positive, Rate
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from torch import Tensor

PLACES = {
    "all": "*",
    "attention": "*attention.*",
    "ffn": "*.ffn.*",
}


class AdapterConfig(Checked):
    """A registered way to train little beside a model's weights, which stay as they are: a frozen
    dataclass whose fields are the options of `--adapter NAME:field=value,...`."""

    KIND = "adapter"

    def apply(self, model: Any) -> None:
        """Add what is trained to a model; what it computes stays the same."""
        raise NotImplementedError

    def merge(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a model without adapter that computes the same."""
        raise NotImplementedError

    def _option_name(self, name: str) -> str:
        return f"--adapter: {name}"


@register("adapter", "lora")
@dataclass(frozen=True, kw_only=True)
class LoRA(AdapterConfig):
    """Low-rank matrices beside the matrices of attention and of the feed-forward parts."""

    rank: Positive = 16
    """Rank of what is added to a matrix."""
    alpha: Above | None = None
    """What is added is multiplied by alpha / rank. Default: twice the rank."""
    dropout: Rate = 0.0
    """Dropout of what enters the low-rank matrices."""
    on: str = "all"
    """Matrices that are adapted: all, attention, ffn, or patterns of their names, joined by +, such
    as layers.0.*+*.attention.qkv."""

    @property
    def scale(self) -> float:
        """The factor of the product of the low-rank matrices."""
        return 2.0 if self.alpha is None else self.alpha / self.rank

    def adapts(self, name: str) -> bool:
        """Whether a matrix with this name is adapted."""
        return any(
            fnmatchcase(name, PLACES.get(pattern, pattern)) for pattern in self.on.split("+")
        )

    def apply(self, model: Any) -> None:
        import_object("unitk.families.lora.network:apply")(self, model)

    def merge(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        merged: dict[str, Tensor] = import_object("unitk.families.lora.network:merge_adapters")(
            self, tensors
        )
        return merged
