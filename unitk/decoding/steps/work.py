"""A batch that is decoded: called step by step, or recorded once and replayed."""

from __future__ import annotations

import weakref
from copy import copy
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unitk.decoding.search import Search, State
from unitk.decoding.steps.reader import Reader
from unitk.kernels.capture import RECORDERS, Recorded, tensors_within


class Work:
    """A batch under way: what reads it, what searches, and the words that were chosen last.

    Once it is `kept`, it has tables of its own, which later batches of the same shapes fill anew:
    a step is recorded over them, for all columns that it may see (`Reader.window`).
    """

    def __init__(self, reader: Reader, search: Search) -> None:
        self.reader, self.search = reader, search
        self.steps = 0  # words that a hypothesis has
        self.chosen: tuple[Tensor, ...] = ()
        """[B, K] the hypotheses that are continued and the words to read, [B, K, 2] positions."""
        self.recorded: dict[int, Recorded] | None = None

    def step(self) -> None:
        """Read the words that were chosen, or the prompts, and choose the next words."""
        self.steps += 1
        if self.steps == 1:
            self.chosen = self.search.extend(self.reader.model.head(self.reader.read_prompt()))
            return
        until = self.reader.window()
        self.reader.reads += 1
        if self.recorded is None:
            self.chosen = self.advance(until)
        else:
            if until not in self.recorded:
                recorder = RECORDERS[self.reader.mine.device.type]
                self.recorded[until] = recorder(partial(self.renew, until))
            self.recorded[until]()

    def advance(self, until: int) -> tuple[Tensor, ...]:
        """The words that are chosen next."""
        reader = self.reader
        return self.search.extend(reader.model.head(reader.read_until(until, *self.chosen)))

    def renew(self, until: int) -> None:
        """A step as it is recorded: what it makes takes the place of what was there."""
        own = self.passed_on()
        new = copy(self)
        new.search = copy(self.search)
        new.search.state = replace(self.search.state)
        new.chosen = new.advance(until)
        for table, value in zip(own, new.passed_on(), strict=True):
            if value is not table:
                table.copy_(value)

    def passed_on(self) -> list[Tensor]:
        """What one step of the search leaves to the next."""
        more = [getattr(self.search, name) for name in self.search.carried]
        return list(tensors_within([self.search.state, self.chosen, more]))

    def tables(self) -> list[Tensor]:
        """All tensors that a step reads and that differ from batch to batch."""
        reader = self.reader
        counts = reader.at, self.search.steps
        own = [reader.cache, reader.condition, reader.mine, reader.columns, counts]
        return [*tensors_within(own), *self.passed_on()]

    @property
    def fixed(self) -> tuple[Any, ...]:
        """What must be equal, beside the shapes, where a recording serves two batches."""
        return *self.search.fixed, self.reader.width

    def count_on_device(self) -> None:
        """Let the device count steps and columns."""
        device = self.reader.mine.device
        self.reader.at = torch.full((1,), int(self.reader.at), device=device)
        self.search.steps = torch.full((1,), self.steps, device=device)

    def go_on_from(self, other: Work) -> None:
        """Take the place of a batch of the same shapes, whose tables were copied."""
        self.steps, self.reader.reads = other.steps, other.reader.reads

    def keep(self) -> None:
        """Take tables that nobody else has, to record steps over them."""
        if not isinstance(self.reader.model, weakref.ProxyTypes):
            # what is kept for a model must not keep the model
            self.reader.model = weakref.proxy(self.reader.model)
        search = self.search
        parts = {one.name: getattr(search.state, one.name).clone() for one in fields(search.state)}
        search.state = State(**parts)
        for name in search.carried:
            setattr(search, name, getattr(search, name).clone())
        self.chosen = tuple(one.clone() for one in self.chosen)
        self.recorded = {}

    def select(self, rows: Tensor) -> Work:
        """The work on these rows of the batch alone."""
        found = copy(self)
        found.recorded = None
        found.reader, found.search = copy(self.reader), copy(self.search)
        found.reader.at = self.reader.width + self.reader.reads * self.reader.beam
        found.search.steps = self.steps
        found.reader.select(rows)
        found.search.select(rows)
        found.chosen = tuple(one[rows] for one in self.chosen)
        return found
