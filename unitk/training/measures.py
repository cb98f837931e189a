"""Measures of the updates of a run: mean losses, speed, gradient noise, a profile.

The noise of gradients is the simple noise scale of McCandlish et al. 2018, arXiv 1812.06162.
Appendix A.1: of the mean gradients of a micro-batch of b texts and of a whole update of B texts,

    |G|^2 ~ (B |g_B|^2 - b |g_b|^2) / (B - b)      tr(S) ~ (|g_b|^2 - |g_B|^2) / (1/b - 1/B)

are unbiased estimates of the squared norm of the true gradient and of the variance of a text's
gradient. Their averages over updates give the noise scale tr(S) / |G|^2, in texts. An update of far
fewer texts is mostly noise; one of far more gains little from them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule

from unitk.criterions.base import Criterion
from unitk.data.batching import Update
from unitk.files import check_plain, create
from unitk.slots import Batch
from unitk.training.config import RANKING, SCORES, figure
from unitk.training.parallel import Ranks

log = logging.getLogger(__name__)


@dataclass
class Means:
    """Means over asks; a part such as "lm/nll" is divided by the count of its ask, lm.

    Sums stay on the device, in double precision, until they are read.
    """

    sums: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    weighted: dict[str, Any] = field(default_factory=dict)
    """Sums of asks by the weights of their updates, and sums of the shares of tasks."""

    def add(self, sums: Mapping[str, Tensor], counts: Mapping[str, float]) -> None:
        """Add the sums of asks and their parts, and the asks' counts."""
        _add(self.sums, {name: value.detach().double() for name, value in sums.items()})
        _add(self.counts, counts)

    def weigh(self, sums: Mapping[str, Tensor], update: Update) -> None:
        """Add the weights that an update gave to the sums that it added."""
        of_asks = {ask: weight * sums.get(ask, 0.0) for ask, weight in update.asks.items()}
        _add(self.weighted, of_asks | update.shares)

    @property
    def weights(self) -> dict[str, float]:
        """The weights of means in the loss of all updates, each of which may have had its own."""
        return {
            name: float(total) / (float(self.sums.get(name, 1)) or 1)
            for name, total in self.weighted.items()
        }

    def state(self) -> dict[str, dict[str, float]]:
        """The sums as plain numbers, exactly: `Means(**state)` restores them."""
        return {name: {k: float(v) for k, v in own.items()} for name, own in vars(self).items()}

    def values(self, prefix: str, weights: Mapping[str, float]) -> dict[str, float]:
        """`PREFIX/loss` (the weighted sum of the asks' means), and means, parts and perplexities.

        For a mixture there is also `PREFIX.TASK/...` for each task; the loss is then the mean over
        the tasks that had texts, weighted by their shares. An ask without a weight counts 1.
        """
        tasks = dict.fromkeys(name.partition(".")[0] for name in self.sums if "." in name)
        means: dict[str, float] = {}
        losses = list[float]()
        shares = 0.0
        for task in tasks:
            of_task = Means(_of(task, self.sums), _of(task, self.counts))
            means |= of_task.values(f"{prefix}.{task}", _of(task, weights))
            share = weights.get(task, 1.0)
            if (loss := means.get(f"{prefix}.{task}/loss")) is not None:
                losses.append(share * loss)
                shares += share
        if means:
            return {f"{prefix}/loss": sum(losses) / (shares or 1.0), **means}
        for name, value in self.sums.items():
            ask, _, part = name.partition("/")
            if not self.counts[ask]:  # an ask that no text had has no mean
                continue
            means[f"{prefix}/{name}"] = mean = float(value) / self.counts[ask]
            if not part:
                losses.append(weights.get(ask, 1.0) * mean)
            if part == "nll":
                means[f"{prefix}/{ask}/ppl"] = math.exp(min(mean, 99.0))  # no overflow
        return {f"{prefix}/loss": sum(losses), **means} if losses else means


def _add(totals: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Add values to the totals of their names."""
    for name, value in values.items():
        totals[name] = totals.get(name, 0.0) + value


def count_asks(criterion: Criterion, batches: Iterable[Batch]) -> dict[str, float]:
    """The counts of all asks of a rank's micro-batches, which divide their losses."""
    counts = dict[str, float]()
    for batch in batches:
        if batch.num_real:
            _add(counts, criterion.counts(batch))
    return counts


def _of(task: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of one task's asks, under the names they have within the task."""
    start = f"{task}."
    return {k.removeprefix(start): v for k, v in values.items() if k.startswith(start)}


HIGHER = "correct", "f1"
"""Parts of an ask for which higher is better; for all others, as for losses, lower is."""
JUDGED = "ppl", "correct"
"""Parts of an ask that the line of a validation shows, the first one that there is."""


def values_line(prefix: str, values: Mapping[str, float], parts: Sequence[str] = ()) -> str:
    """The losses of a set as a line: its loss, that of each ask if there are several, and parts.

    Each ask shows the first of the `parts` that it has. The tasks of a mixture follow one by one.
    """
    asks = {name: v for name, v in values.items() if name.rpartition("/")[0] == prefix}
    text = f"loss {asks.pop(f'{prefix}/loss', math.nan):.4g}"
    if len(asks) > 1:
        losses = (f"{name.rpartition('/')[2]} {value:.4g}" for name, value in asks.items())
        text += f" ({', '.join(losses)})"
    for part in parts:
        having = [ask for ask in asks if f"{ask}/{part}" in values]
        if having:
            figures = (f"{values[f'{ask}/{part}']:.4g}" for ask in having)
            text += f"  {part} {', '.join(figures)}"
        for ask in having:
            del asks[ask]
    names = (name for name in values if name.startswith(f"{prefix}."))
    tasks = [name.removesuffix("/loss") for name in names if name.endswith("/loss")]
    lines = [
        f"{task.removeprefix(f'{prefix}.')} {values_line(task, values, parts)}" for task in tasks
    ]
    return "; ".join([text, *lines])


def valid_line(sets: Iterable[str], values: Mapping[str, float], metric: str) -> str:
    """The lines of validation sets, each with the main figure of each score of outputs.

    A `metric` that is not a loss comes last, under its whole name.
    """
    scores = [name for name in values if figure(name) in RANKING]
    last = [metric] if metric.count("/") > 1 or metric in scores else []
    losses = {name: value for name, value in values.items() if name not in (*last, *scores)}
    main = {figures[0] for figures in SCORES.values() if figures}
    shown = [score for score in scores if figure(score) in main and score not in last]
    lines = []
    for name in sets:
        of_set = (score for score in shown if score.rpartition("/")[0] == name)
        figures = (f"{figure(score)} {values[score]:.4g}" for score in of_set)
        lines.append("  ".join([f"{name} {values_line(name, losses, JUDGED)}", *figures]))
    return "  ".join(lines + [f"{name} {values[name]:.4g}" for name in last])


@dataclass
class Speed:
    """Work and seconds since the last log line, without validation and saving."""

    tokens: int = 0
    real: float = 0
    slots: float = 0
    busy: float = 0.0
    waited: float = 0.0
    updates: int = 0

    def add(self, other: Speed) -> None:
        """Add the counts of another `Speed`."""
        _add(vars(self), vars(other))

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Time an update with its data ("busy"), or the wait for these ("waited")."""
        began = time.perf_counter()
        yield
        setattr(self, part, getattr(self, part) + time.perf_counter() - began)

    def count(self, update: Update, tokens: int) -> None:
        """Count an update with this many tokens."""
        self.updates += 1
        self.tokens += tokens
        for batch in update.batches:
            self.real += batch.num_real
            self.slots += batch.num_slots

    def all_ranks(self, total: Callable[[dict[str, float]], dict[str, float]]) -> None:
        """Sum slots over all ranks; `tokens` is counted over all ranks already."""
        sums = total({"real": self.real, "slots": self.slots})
        self.real = sums["real"]
        self.slots = sums["slots"]

    def values(self) -> dict[str, float]:
        """Tokens and real slots a second, and the shares of padding and of waiting for data."""
        return {
            "tokens/s": self.tokens / self.busy,
            "slots/s": self.real / self.busy,
            "padding": 1 - self.real / self.slots,
            "wait": self.waited / self.busy,
        }


@dataclass
class Noise:
    """The noise of gradients, averaged over every tenth update.

    Each rank measures after its first micro-batch, when the gradient is that of this one alone.
    """

    every: ClassVar[int] = 10  # updates between those that are looked at
    decay: ClassVar[float] = 0.95  # of the averages
    least: ClassVar[int] = 10  # how many updates make an average
    parts: ClassVar = ("noise/norm2", "noise/inverse", "noise/ranks")
    """Names under which the measured parts are summed over ranks, beside the losses."""

    state: list[float]  # [|G|^2, tr(S), updates looked at], which checkpoints keep

    def look(
        self,
        update: Update,
        step: int,
        parameters: Sequence[nn.Parameter],
        ranks: Ranks,
        scale: float,
    ) -> dict[str, Tensor]:
        """Measure after the backward pass of a rank's first micro-batch; empty if not due.

        Gradients were multiplied by `scale`. Mixed tasks are not measured, because a micro-batch
        holds only one of them; neither are sharded gradients.
        """
        alone = len(update.batches) * ranks.world == 1
        first = update.batches[0]
        if step % self.every or alone or update.shares or ranks.sharded or not first.num_real:
            return {}
        texts = first.owner[-1] + 1  # a text may have several docs
        # gradients are of sums that were divided by all counts
        share = scale * texts / len(update.ids)
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        values = (norm.double() / share).square(), 1 / texts, norm.new_tensor(1)
        return dict(zip(self.parts, values, strict=True))

    def add(self, sums: dict[str, Tensor], norm: float, texts: int) -> None:
        """Add an update: its gradient norm and number of texts; removes its parts from `sums`."""
        parts = [sums.pop(name) for name in self.parts if name in sums]
        if not parts:
            return
        norm2, inverse, ranks = torch.stack([part.double() for part in parts]).tolist()
        norm2, few = norm2 / ranks, ranks / inverse
        if few >= texts:
            return  # only one rank had texts: its micro-batch was the whole update
        signal = (texts * norm**2 - few * norm2) / (texts - few)
        spread = (norm2 - norm**2) / (1 / few - 1 / texts)
        for number, value in enumerate((signal, spread)):
            self.state[number] = self.decay * self.state[number] + (1 - self.decay) * value
        self.state[2] += 1

    @property
    def scale(self) -> float | None:
        """The noise scale in texts; None before `least` looks, or if all is noise."""
        signal, spread, looks = self.state
        return spread / signal if looks >= self.least and signal > 0 and spread > 0 else None


WARM_UP, PROFILED = 2, 5
"""Updates before the profiled ones, and how many of these there are."""


@contextmanager
def start_profile(folder: Path | None) -> Iterator[Callable[[], None]]:
    """Profile some updates into a folder, if any; yields a function to call after each update."""
    if folder is None:
        yield lambda: None
        return

    def done(profiler: Any) -> None:
        by = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=by, row_limit=10, max_name_column_width=40)
        for line in table.splitlines():  # a log has no line with several
            log.info("%s", line)
        profiler.export_chrome_trace(str(create(path)))
        log.info("chrome://tracing shows the profile of these updates: %s", path)

    cuda = torch.cuda.is_available()
    path = folder / "profile.json"
    check_plain(path)
    kinds = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]
    when = schedule(wait=WARM_UP - 1, warmup=1, active=PROFILED, repeat=1)
    with profile(activities=kinds, schedule=when, on_trace_ready=done) as profiler:
        yield profiler.step
        if profiler.step_num <= WARM_UP:
            log.warning("--profile: the run had too few updates: %d", profiler.step_num)
