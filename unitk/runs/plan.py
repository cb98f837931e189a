"""What `unitk train --dry-run` prints: the plan of a run, its memory and its time, measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from unitk.data.batching import FixedBatches, prefetch, spread
from unitk.errors import amount, printable
from unitk.registry import register
from unitk.runs.written import written_part
from unitk.training.loop import Trainer
from unitk.training.reporting.report import duration_text, first_lines, warnings
from unitk.training.saving.checkpoint import tensors_of
from unitk.training.start import Start

WARM_UP, UPDATES, SECONDS = 1, 10, 30.0
"""Updates that are not timed, and the most that are; seconds after which no further one begins."""
SOURCES, BATCHES = 8, 3
"""Sources that the model writes outputs for, and batches of a validation set that are timed."""


@register("measure", "plan")
def print_plan(start: Start) -> None:
    """Print what a run will do and need, after some of its updates. Nothing is written.

    All ranks compute; the first one prints.
    """
    trainer = Trainer(start)
    try:
        trainer.try_out()
        for line in (*first_lines(trainer), *(f"warning: {text}" for text in warnings(trainer))):
            print_once(trainer, line)
        for line in lines(trainer):
            print_once(trainer, line)
        print_once(trainer, "dry run: nothing was written")
    finally:
        trainer.ranks.leave()


def print_once(trainer: Trainer, line: str) -> None:
    """Print a line once."""
    if trainer.ranks.leads:
        print(printable(line), flush=True)


def lines(trainer: Trainer) -> Iterator[str]:
    """The length of the run, its memory and its time, as far as they are known."""
    config, ranks = trainer.config, trainer.ranks
    updates, tokens = time_updates(trainer)
    judged = time_validation(trainer)
    memory = ranks.all_reduce_max(peak(trainer.device))[0]
    left = None if trainer.total is None else trainer.total - trainer.progress.step
    if left is None and config.max_hours:
        left = int(3600 * config.max_hours / updates)
    runs = config.seeds or 1
    if left is not None:
        looks, saves = (
            count_due(trainer.progress.step, left, every)
            for every in (config.valid_every, config.save_every)
        )
        looks = looks if trainer.data.valid else 0
        epochs = left / trainer.per_epoch
        rough = f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.2g}"
        yield (
            f"length: {amount(left, 'updates')} ({rough} epochs), {amount(looks, 'validations')}, "
            f"{amount(saves, 'checkpoints')}"
        )
    yield f"an update: {updates:.3g} s, {tokens:,.0f} tokens/s, measured on the first ones"
    if trainer.data.valid:
        yield f"a validation: {judged:.3g} s"
    of = "a process" if ranks.world > 1 else "the process"
    yield f"memory: {memory / 1e9:.2g} GB at the peak of {of}"
    kept = config.keep_last + len(config.save_at_words)
    if trainer.data.valid:
        kept += config.keep_best
    size = checkpoint_bytes(trainer)
    size_text = f"{size / 1e9:.2g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
    yield f"disk: up to {amount(kept, 'checkpoints')} of {size_text}"
    if left is not None:
        total = runs * (left * updates + looks * judged)
        seeds = f" for {runs} seeds, one after the other" if runs > 1 else ""
        yield f"time: {duration_text(total)}{seeds}"


def count_due(step: int, left: int, every: int) -> int:
    """How often what is due every `every` updates is done in those left, the last one included."""
    return -(-(step + left) // every) - step // every if left else 0


def time_updates(trainer: Trainer, most: float = SECONDS) -> tuple[float, float]:
    """The seconds of an update, and its tokens a second; the slowest rank counts.

    No update begins after `most` seconds but the first two.
    """
    trainer.model.train()
    updates = prefetch(trainer.updates())
    seconds, tokens, done = 0.0, 0, 0
    began = time.perf_counter()
    try:
        for number, (update, read, _) in enumerate(updates):
            start = time.perf_counter()
            trainer.update(update)
            trainer.progress.step += 1
            spent = trainer.ranks.all_reduce_max(time.perf_counter() - start)[0]
            # the first update allocates memory and chooses kernels
            if number >= WARM_UP:
                seconds += spent
                tokens += read
                done += 1
            # all ranks leave the loop at the same update
            late = trainer.ranks.all_reduce_max(time.perf_counter() - began)[0] > most
            if done and (late or done == UPDATES or trainer.progress.step == trainer.total):
                break
            if trainer.progress.step == trainer.total:  # of a single update, which warms up
                return spent, read / spent
    finally:
        updates.close()
        trainer.progress.step -= number + 1
    return seconds / done, tokens / seconds


@torch.no_grad()
def time_validation(trainer: Trainer) -> float:
    """The seconds of a validation, from a few batches of each set and a few outputs."""
    config, ranks = trainer.config, trainer.ranks
    total = 0.0
    trainer.model.eval()
    for examples in trainer.data.valid.values():
        share = config.max_tokens, config.valid_texts, ranks.rank, ranks.world
        batches = FixedBatches(examples, *share)
        timed = [batch for (_, batch), _ in zip(batches, range(BATCHES), strict=False)]
        began = time.perf_counter()
        for number, batch in enumerate(timed):
            trainer.loss(batch.to(trainer.device), number)
        total += (time.perf_counter() - began) * len(batches) / len(timed)
        if trainer.written is not None:
            pairs = written_part(examples)
            began = time.perf_counter()
            count = len(trainer.written.outputs(pairs, spread(len(pairs.items.parts), SOURCES)))
            seconds = (time.perf_counter() - began) / count
            total += seconds * min(config.valid_generate or 0, len(pairs.items.parts)) / ranks.world
    return float(ranks.all_reduce_max(total)[0])


def peak(device: torch.device) -> int:
    """The most bytes that this process has held, on its GPU or in memory; 0 where none can say."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ModuleNotFoundError:  # Windows has none
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def checkpoint_bytes(trainer: Trainer) -> int:
    """The bytes of a checkpoint: weights, optimizer state and averages, those of all ranks."""
    # beside an adapter, its base is not stored
    base = trainer.base.tensors if trainer.base is not None else {}
    tensors = [tensor for name, tensor in tensors_of(trainer.model).items() if name not in base]
    for optimizer in trainer.plan.optimizers:
        for state in optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    if trainer.average is not None:
        tensors += [*trainer.average.tensors.values()]
    # a tensor that is divided among ranks has the size of all parts together
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
