"""Panels: what a criterion reports every --panel-every updates about a few fixed texts."""

from __future__ import annotations

import logging
import sys
from typing import Any

import torch

from unitk.criterions.base import Watching
from unitk.data.batching import single_batches, spread
from unitk.errors import UsageError
from unitk.kernels.products import compute_in
from unitk.options.fields import flag
from unitk.options.settings import Origin
from unitk.slots import Batch
from unitk.training.reporting.log import Journal
from unitk.training.run import Run

log = logging.getLogger(__name__)


class Watch:
    """Evaluates a panel on the same texts each time: --panel-texts of the first validation set.

    Without a validation set, they are training texts. Nothing here changes what training computes.
    """

    def __init__(self, run: Run) -> None:
        start = run.start
        device = run.device
        self.precision = run.precision
        config, data, criterion = start.config, start.data, run.criterion
        self.criterion = criterion
        self.device = device
        self.ranks = run.ranks
        self.done = run.progress.step
        self.every = sys.maxsize  # never due
        self.batches = list[Batch]()
        if not isinstance(criterion, Watching):
            for name in ("panel_every", "panel_texts"):
                if start.parsed.settings.given(name, Origin.FLAG):
                    what = start.parsed.components["criterion"].name
                    raise UsageError(f"{flag(name)} has no effect: criterion {what} has no panel")
            return
        if config.panel_every:
            examples = next(iter(data.valid.values()), data.train)
            count = len(examples.bounds(0))
            ids = spread(count, config.panel_texts)  # each time the same ones: looks compare
            self.every = config.panel_every
            self.batches = [b.to(device) for b in single_batches(examples, ids, config.max_tokens)]

    @torch.no_grad()
    def look(self, model: Any, step: int, total: int | None, rate: float, journal: Journal) -> None:
        """Log the panel after `step` updates of `total`; the last one had this learning rate."""
        self.done = step
        if not self.batches:
            return
        model.eval()
        with compute_in(self.device, self.precision, None):
            panel = self.criterion.panel(model, self.batches, step - 1, total)
        self.ranks.reshard(model)
        model.train()
        if panel is None:
            return
        first, *more = panel.lines
        text = "\n      ".join([f"{first}  lr {rate:.2e}", *more])
        journal.event("panel", step, {**panel.values, "panel/lr": rate}, text)
        if panel.warning:
            log.warning("step %s: %s", f"{step:,}", panel.warning)
