"""The cache of decoding: keys and values of the slots that were read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cache:
    """Per layer the keys and values [B, H, S, K], written in place; their `slots` [9, B, S].

    Columns that were not written are zeros. The caller decides who may look at which column.
    """

    key: list[Tensor]
    value: list[Tensor]
    slots: Tensor
    cross: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Per layer the keys and values of the encoder's states, made once for every input."""
    prefix: int = 0
    """Keys and values before those of the columns, which every slot sees."""

    @property
    def columns(self) -> int:
        return self.slots.shape[2]

    def write(
        self, layer: int, at: int | Tensor, until: int, key_BHqK: Tensor, value_BHqK: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values from column `at` on; returns those of columns [0, until).

        The prefix stands before them.
        """
        key, value = self.key[layer], self.value[layer]
        alone = until == key_BHqK.shape[2] and not self.prefix  # nothing but the prompt is seen
        at, until = at + self.prefix, until + self.prefix
        put(key, 2, at, key_BHqK)
        put(value, 2, at, value_BHqK)
        # of a prompt: what was just made lies closer together than the cache's columns
        if alone:
            return key_BHqK, value_BHqK
        return key[:, :, :until], value[:, :, :until]

    def follow(self, back: Tensor) -> None:
        """Do nothing: columns are only appended, and a step's mask selects a hypothesis' own."""

    def select(self, rows: Tensor) -> Cache:
        """The cache of these batch rows, copied."""

        def pick(table: Tensor) -> Tensor:
            return table.index_select(0, rows)

        return replace(
            self,
            key=[pick(key) for key in self.key],
            value=[pick(value) for value in self.value],
            slots=self.slots.index_select(1, rows),
            cross=[(pick(key), pick(value)) for key, value in self.cross],
        )


def put(table: Tensor, axis: int, at: int | Tensor, new: Tensor) -> None:
    """Write columns from `at` on; if `at` is a tensor [1], it is read on the device (replay)."""
    count = new.shape[axis]
    if isinstance(at, int):
        table.narrow(axis, at, count).copy_(new)
    else:
        where = at + torch.arange(count, device=table.device)
        table.index_copy_(axis, where, new.to(table.dtype))
