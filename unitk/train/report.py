"""What a run tells a person about itself: its first lines, its last ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unitk.train.state import Progress

if TYPE_CHECKING:
    from unitk.train.loop import Trainer


def first_lines(trainer: Trainer) -> list[str]:
    """What is trained, on what, where."""
    start, data, feed, ranks = trainer.start, trainer.data, trainer.feed, trainer.ranks
    parts = start.parsed.components
    slots, texts = f"{feed.batch_tokens:,} slots", f"{feed.batch_texts or 0:,} texts"
    examples = len(data.train.examples.bounds(0))
    weights = sum(parameter.numel() for parameter in trainer.model.parameters())
    processes = f"{ranks.world} processes, each " if ranks.world > 1 else ""
    return [
        f"{data.about} with task {start.parsed.values()['task']}, {start.beginning}",
        f"train: {data.train.about}; an epoch is {examples:,} examples, {trainer.per_epoch:,}"
        f" updates of {texts if feed.batch_texts else slots}",
        *(f"{name}: {source.about}" for name, source in data.valid.items()),
        f"model: {parts['arch'].name}, {weights / 1e6:.1f} M parameters,"
        f" vocabulary of {len(data.vocab):,}",
        f"{processes}on {trainer.device.type} ({torch.get_num_threads()} threads),"
        f" {trainer.precision}",
    ]


def so_best(at: Progress) -> str:
    """The best validation yet, in words."""
    if at.best is None:
        return "none was finite"
    return "best yet" if at.stale == 0 else f"best {at.best:.4g} at step {at.best_step:,}"


def so_far(at: Progress) -> str:
    """What was done, in words."""
    best = f"; best {at.best:.4g} at step {at.best_step:,}" if at.best is not None else ""
    bad = f", {at.bad_steps:,} skipped" if at.bad_steps else ""
    return (
        f"{at.step:,} updates{bad}, {at.tokens:,} tokens of {at.texts:,} texts"
        f" in {clock(at.seconds)}{best}"
    )


def clock(seconds: float) -> str:
    """`h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
