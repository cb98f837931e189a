"""Ranks: the only file that knows that a run may have several processes.

The loop asks for totals over all ranks and whether any rank was told to stop. There is one process
for now: totals are its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unitk.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    world: int = 1

    def total(self, values: dict[str, float]) -> dict[str, float]:
        """Sums over all ranks, known on every one."""
        return values

    def total_tensors(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums over all ranks, left on the device."""
        return values

    def agree(self, signal: int | None) -> int | None:
        """The signal that any rank received."""
        return signal


def join() -> Ranks:
    """Join the other processes of the run, if a launcher started several."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        raise UsageError(f"WORLD_SIZE is {world}, but training runs in one process only")
    return Ranks()
