"""Schedules: pure functions of the update's number, for the learning rate, weights and shares.

`schedule(step, total)` is the value at update `step` of `total`; step 0 is before training, so a
loop asks for 1, 2, ..., total. The value rises linearly from 0 during the warm-up, equals `value`
when it ends (`linear_from_start` less), and from there goes down to `floor * value`, where it stays
after the end of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from unitk.errors import UsageError, require
from unitk.options.fields import Above, Bound, Chance, Checked, Part, Weight
from unitk.registry import register


class Options(Checked):
    """Options of schedules, which are named by their class."""

    def _option_name(self, name: str) -> str:
        return f"schedule {type(self).__name__}: {name}"


@register("schedule", "constant")
@dataclass(frozen=True, kw_only=True)
class Constant(Options):
    """A constant value after the warm-up; needs no end."""

    value: float = 1.0
    """Value that the warm-up rises to."""
    warmup: Weight = 0.0
    """Length of the warm-up. Below 1 it is a share of the run, otherwise a number of updates."""

    def __call__(self, step: int, total: int | None) -> float:
        warmup = self._warmup(total)
        share = step / warmup if step < warmup else self._decay(step, warmup, total)
        return self.value * share

    def _warmup(self, total: int | None) -> float:
        return self.warmup * _end(self, total) if 0 < self.warmup < 1 else self.warmup

    def _decay(self, step: int, warmup: float, total: int | None) -> float:
        """The share of `value` at a step at or after the warm-up's end."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Falling(Constant):
    """A schedule that falls after the warm-up."""

    floor: Chance = 0.0
    """Lowest value, as a share of the peak."""

    def _decay(self, step: int, warmup: float, total: int | None) -> float:
        end = _end(self, total)
        start = self._start(warmup, end)
        # the first update is at its beginning, even if it is the only one
        way = (step - start) / (end - start) if step < end else float(step > 1)
        return self._curve(max(0.0, way))

    def _start(self, warmup: float, end: int) -> float:
        """The step at which it begins to fall."""
        return warmup

    def _curve(self, way: float) -> float:
        """The share of `value` after this part of the way from there to the run's end."""
        raise NotImplementedError


@register("schedule", "linear")
@dataclass(frozen=True, kw_only=True)
class Linear(Falling):
    """A straight line from the warm-up's end to the floor at the end of the run."""

    def _curve(self, way: float) -> float:
        return 1 - (1 - self.floor) * way


@register("schedule", "linear_from_start")
@dataclass(frozen=True, kw_only=True)
class LinearFromStart(Linear):
    """A straight line from the start of the run to its end; the warm-up replaces its beginning.

    The highest value is below the peak (official code of BERT)."""

    def _start(self, warmup: float, end: int) -> float:
        return 0.0


@register("schedule", "slanted")
@dataclass(frozen=True, kw_only=True)
class Slanted(Constant):
    """A slanted triangle: a straight line up to the value, and a longer one down to where it began.

    Howard and Ruder 2018, arXiv 1801.06146, section 3.2, equation 3.
    """

    warmup: Weight = 0.1
    """Length of the way up. Below 1 it is a share of the run, otherwise a number of updates."""
    ratio: Annotated[float, Bound(1)] = 32.0
    """How many times larger the value is than the first and the last one."""

    def __call__(self, step: int, total: int | None) -> float:
        end = _end(self, total)
        cut = int(self._warmup(total))
        # a multiple of the way up, whatever rounding leaves of the run
        down = cut * (1 / self.warmup - 1) if 0 < self.warmup < 1 and cut else max(end - cut, 1)
        way = step / cut if step < cut else 1 - (step - cut) / down
        return self.value * (1 + max(way, 0.0) * (self.ratio - 1)) / self.ratio


@register("schedule", "exponential")
@dataclass(frozen=True, kw_only=True)
class Exponential(Falling):
    """The same factor in each update, from the warm-up's end to the floor at the end of the run."""

    floor: Part = 0.01

    def _curve(self, way: float) -> float:
        return self.floor**way


@register("schedule", "cosine")
@dataclass(frozen=True, kw_only=True)
class Cosine(Falling):
    """Half a cosine wave from the warm-up's end to the floor at the end of the run."""

    def _curve(self, way: float) -> float:
        wave = (1 + math.cos(math.pi * way)) / 2
        return self.floor + (1 - self.floor) * wave


@register("schedule", "wsd")
@dataclass(frozen=True, kw_only=True)
class Wsd(Linear):
    """Warm-up, stable, decay: flat after the warm-up, and a straight line down at the end.

    Hu et al. 2024, arXiv 2404.06395, section 4; linear as in Haegele et al. 2024, arXiv 2405.18392.
    """

    decay: Above = 0.2
    """Length of the final decay: below 1 a share of the run, otherwise a number of updates."""

    def _start(self, warmup: float, end: int) -> float:
        return max(warmup, end - (self.decay * end if self.decay < 1 else self.decay))


@register("schedule", "inverse_sqrt")
@dataclass(frozen=True, kw_only=True)
class InverseSqrt(Falling):
    """Falls with the root of the step; needs no end unless the warm-up is a share."""

    def _decay(self, step: int, warmup: float, total: int | None) -> float:
        start = max(warmup, 1.0)
        return max(self.floor, math.sqrt(start / max(step, start)))


@register("schedule", "cyclical")
@dataclass(frozen=True, kw_only=True)
class Cyclical(Options):
    """Cycles of nothing, a straight rise and the value held, for the weight beta of a divergence.

    Fu et al. 2019, arXiv 1903.10145; with the part of nothing, Optimus (arXiv 2004.04092, section
    4.3). The rise begins one update after its part of the cycle, as in the official code.
    """

    value: float = 1.0
    """Value that each cycle rises to and holds."""
    cycles: Annotated[float, Bound(1)] = 10
    """Cycles of the run. Optimus fine-tunes with 1."""
    zero: float = 0.5
    """Share of a cycle at 0."""
    ramp: float = 0.25
    """Share of a cycle that rises. The rest holds the value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = min(self.zero, self.ramp) >= 0 and self.zero + self.ramp <= 1
        require(
            shares,
            "schedule Cyclical: zero and ramp are shares of a cycle, "
            f"got {self.zero:g} and {self.ramp:g}",
        )

    def __call__(self, step: int, total: int | None) -> float:
        period = _end(self, total) / self.cycles
        done = max(step - 1, 0)
        cycle = int(done / period)
        if done >= int((cycle + 1) * period):  # a cycle begins at a whole update
            cycle += 1
        at = done - int(cycle * period)
        idle = math.ceil(period * self.zero)
        if cycle >= self.cycles:
            return self.value  # after the end
        if at < idle:
            return 0.0
        rise = period * self.ramp
        return self.value * min(1.0, (at - idle) / rise) if rise else self.value


def _end(schedule: object, total: int | None) -> int:
    if total is None:
        name = type(schedule).__name__
        raise UsageError(f"schedule {name} needs the number of updates: give --max-steps")
    return total
