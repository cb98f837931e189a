"""Failures within an update: NaN or infinity, and lack of memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from unitk.criterions.base import Loss, whole_update_option
from unitk.data.batching import Update
from unitk.errors import NonFiniteError, UsageError, amount, out_of_memory, refusal, require
from unitk.files import create
from unitk.models.model import Model
from unitk.slots import DOC, Batch
from unitk.training.device import derive_seed
from unitk.training.run import Run
from unitk.training.saving.state import Progress

GROWTH = 2000  # updates after which the scale of fp16 doubles (as in PyTorch's GradScaler)

Sums = dict[str, Tensor]
Passes = Callable[[Update, Mapping[str, float]], Sums]
log = logging.getLogger(__name__)


def skip(run: Run, compute: Callable[[Batch, int], Loss], update: Update, loss: float) -> None:
    """Count and report an update with NaN or infinity; too many in a row end the run.

    `loss` is that of the update; `compute` computes the loss of a micro-batch with a seed.
    """
    config, at = run.config, run.progress
    at.bad_steps += 1
    at.bad_row += 1
    numbers = ", ".join(map(str, update.ids[:8])) + (", ..." if len(update.ids) > 8 else "")
    what = f"loss {loss:g}, gradient norm {run.norm:g}"
    seeds = [derive_seed(config.seed, at.step, number) for number in update.numbers]
    fault = locate_nonfinite(run.model, update, seeds, compute)
    run.ranks.reshard(run.model)
    first = next(filter(None, run.ranks.all_gather_texts(fault)), "no module alone")
    log.warning(
        "step %d: %s: skipped (%d in a row, %d in all); first bad: %s; examples %s",
        at.step + 1,
        what,
        at.bad_row,
        at.bad_steps,
        first,
        numbers,
    )
    if at.bad_row >= config.max_bad_row:
        path = run.start.run.path / f"bad-step-{at.step + 1}{run.ranks.suffix}.npz"
        give_up(path, update, at.bad_row, f"{what}; first bad: {first}")


@contextmanager
def watch_nonfinite(model: Model) -> Iterator[list[str]]:
    """A context that records the modules that output NaN or infinity, in order."""
    faults: list[str] = []

    def watch(name: str) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not bool(output.isfinite().all()):
                faults.append(f"module {name or type(module).__name__}")

        return look

    hooks = [
        module.register_forward_hook(watch(model.stored_name(name)))
        for name, module in model.named_modules()
    ]
    try:
        yield faults
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def locate_nonfinite(
    model: Model, update: Update, seeds: Sequence[int], loss: Callable[[Batch, int], Loss]
) -> str:
    """Run an update again with the same seeds, and say where NaN or infinity first appears.

    The result is a message, empty if nothing is found.
    """
    first: list[str] = []
    for number, batch, seed in zip(update.numbers, update.batches, seeds, strict=True):
        with watch_nonfinite(model) as faults:
            sums = loss(batch, seed).sums
        faults += [f"loss {name}" for name, total in sums.items() if not total.isfinite()]
        if faults:
            first.append(f"{faults[0]} in micro-batch {number}")
    return first[0] if first else bad_gradient(model)


def bad_gradient(model: nn.Module) -> str:
    """The first gradient, in backward order, with NaN or infinity, as a message; empty if none."""
    for name, parameter in reversed(list(model.named_parameters())):  # backward order
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            return f"gradient of {name}"
    return ""


def unscale(parameters: Iterable[nn.Parameter], scale: float) -> None:
    """Divide gradients by a power of two, which is exact."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.div_(scale)


def adapt_loss_scale(at: Progress, precision: str, overflow: bool = False) -> None:
    """Adapt the loss scale of fp16: halve it on overflow, double it after `GROWTH` updates."""
    if precision != "fp16":
        return
    at.unscaled = 0 if overflow else at.unscaled + 1
    if overflow:
        at.scale /= 2  # exact: a power of two
        at.bad_steps += 1
        log.warning("step %d: fp16 overflow: skipped, loss scale %g", at.step + 1, at.scale)
    elif at.unscaled >= GROWTH:
        at.scale *= 2
        at.unscaled = 0


def give_up(path: Path, update: Update, row: int, what: str) -> NoReturn:
    """End a run after too many bad updates in a row: `NonFiniteError`; the last update is saved."""
    try:
        save_batches(path, update)
        where = f"is in {path}"
    except OSError as error:
        where = f"could not be saved: {refusal(error)}"  # the message of the run comes first
    raise NonFiniteError(
        f"{amount(row, 'updates')} in a row had NaN or infinity (--on-nonfinite), the last one "
        f"with {what}; its batch {where}; the checkpoints before it are good"
    )


def save_batches(path: Path, update: Update) -> None:
    """Save the batches of an update as plain arrays: "0/x" are slots, "0/lm/rows" an ask's."""
    arrays: dict[str, Any] = {"ids": update.ids}
    for number, batch in update.numbered():
        arrays |= {f"{number}/{tower}": table.cpu() for tower, table in batch.towers.items()}
        for name, ask in batch.asks.items():
            for field in ("rows", "label", "weight"):
                arrays[f"{number}/{name}/{field}"] = getattr(ask, field).cpu()
    np.savez(create(path), **arrays)


def split_update(update: Update) -> Update:
    """The same update with each micro-batch split in two; dropout then differs."""
    batches = list[Batch]()
    numbers = list[int]()
    for number, batch in update.numbered():
        pieces = split_batch(batch)
        batches += pieces
        numbers += [2 * number + i for i in range(len(pieces))]  # own seeds of dropout
    return replace(update, batches=batches, numbers=numbers)


def split_batch(batch: Batch) -> list[Batch]:
    """The two halves of a batch's rows; a batch of one row stays as it is."""
    rows = len(batch.docs)
    if rows == 1:
        return [batch]
    return [_rows(batch, 0, rows // 2), _rows(batch, rows // 2, rows)]


def _rows(batch: Batch, start: int, stop: int) -> Batch:
    """The batch of rows [start, stop), its docs numbered from 0."""
    docs = batch.docs[start:stop]
    first = int(docs[docs >= 0].min())  # rows hold consecutive docs
    last = int(docs.max()) + 1
    towers = {name: table[:, start:stop].clone() for name, table in batch.towers.items()}
    for table in towers.values():
        table[DOC] -= first  # pads have a doc of their row
    asks = {}
    for name, ask in batch.asks.items():
        width = batch.towers[ask.tower].shape[2]
        row_K = ask.first // width  # asked rows are flat slot numbers: row * width + column
        within_K = (row_K >= start) & (row_K < stop)
        asks[name] = replace(
            ask,
            rows=torch.where(ask.rows < 0, -1, ask.rows - start * width)[within_K],
            label=ask.label[within_K],
            weight=ask.weight[within_K],
        )
    return replace(
        batch,
        towers=towers,
        asks=asks,
        count={name: float(ask.weight.sum()) for name, ask in asks.items()},
        docs=torch.where(docs >= 0, docs - first, docs),
        packed={},
        owner=batch.owner[first:last] - batch.owner[first],
        inputs={
            name: table[start:stop] if "." in name else table[first:last]
            for name, table in batch.inputs.items()
        },
        last=batch.last[start:stop],
        stateful_rows=None if batch.stateful_rows is None else batch.stateful_rows[start:stop],
        blanks=batch.blanks[start:stop],
        num_blanks=batch.num_blanks[start:stop],
    )


def run_fitting(run: Run, passes: Passes, update: Update, counts: Mapping[str, float]) -> Sums:
    """Run the passes of an update and return their sums.

    With `--oom-retry`, the micro-batches are halved as long as memory is out on any rank.
    """
    config = run.config
    ranks = run.ranks
    whole = whole_update_option(run.criterion)
    while True:
        parts = len(update.batches) * ranks.world
        error = None
        size = "--batch-texts" if config.batch_texts else "--batch-tokens"
        require(
            not whole or parts == 1,
            f"{whole} needs an update in one micro-batch, not in {parts}: "
            f"raise --max-tokens or lower {size}",
        )
        try:
            sums = passes(update, counts)
        except (RuntimeError, MemoryError) as caught:
            if not out_of_memory(caught):
                raise
            check_divisible(update, caught, config.max_tokens, config.oom_retry)
            error = caught
        if not (config.oom_retry and ranks.all_reduce_max(error is not None)[0]):
            return sums
        run.plan.zero_grad()
        update = split_update(update)
        log.warning(
            "step %d: out of memory: "
            "tried again with half as large micro-batches, whose dropout differs",
            run.progress.step + 1,
        )


def check_divisible(update: Update, error: BaseException, max_tokens: int, retry: bool) -> None:
    """Raise `UsageError` naming the option to lower, if memory is out and batches cannot shrink."""
    batch = max(update.batches, key=lambda batch: batch.num_slots)
    size = " and ".join(f"{t.shape[1]} x {t.shape[2]}" for t in batch.towers.values())
    if retry and len(batch.docs) > 1:
        return
    more = "" if retry else ", give --oom-retry"
    raise UsageError(
        f"out of memory with a micro-batch of {size} slots: lower --max-tokens (it is"
        f" {max_tokens}; the size of an update stays){more} or give --recompute"
    ) from error
