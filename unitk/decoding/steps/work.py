"""A batch that is decoded step by step; steps may be recorded once and replayed."""

from __future__ import annotations

import weakref
from copy import copy
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unitk.decoding.search import Search, State
from unitk.decoding.steps.reader import PromptReader
from unitk.kernels.capture import RECORDERS, Memory, Recorded, tensors_within


class Work:
    """A batch that is being decoded: its reader, its search, and the words chosen last.

    After `keep`, its tensors belong to it alone, and steps are recorded that read and write them.
    Later batches of the same shapes are copied into these tensors. There is a recording for each
    number of columns that a step may see (`PromptReader.next_window`).
    """

    def __init__(self, reader: PromptReader, search: Search) -> None:
        self.reader = reader
        self.search = search
        self.steps = 0  # words of each hypothesis so far
        self.chosen: tuple[Tensor, ...] = ()
        """From `Search.extend`: hypotheses and words, [B, K] each, and positions [B, K, 2]."""
        self.recorded: dict[int, Recorded] | None = None
        self.memory: Memory | None = None  # of the recordings

    def step(self) -> None:
        """Read the words that were chosen, or the prompts, and choose the next words."""
        self.steps += 1
        if self.steps == 1:
            self.chosen = self.search.extend(self.reader.model.head(self.reader.read_prompt()))
            return
        until = self.reader.next_window()
        if self.recorded is None:
            self.chosen = self.advance(until)
        else:
            if until not in self.recorded:
                recorder = RECORDERS[self.reader.mine.device.type]
                memory = self.memory
                assert memory is not None
                self.recorded[until] = recorder(partial(self.renew, until), memory)
            self.recorded[until]()

    def advance(self, until: int) -> tuple[Tensor, ...]:
        """Read the chosen words, and choose the next ones."""
        reader = self.reader
        return self.search.extend(reader.model.head(reader.read(until, *self.chosen)))

    def renew(self, until: int) -> None:
        """Compute a step in place, for recording: its results overwrite the tensors it has read."""
        tables = self.step_tensors()
        new = copy(self)
        new.search = copy(self.search)
        new.search.state = replace(self.search.state)
        new.chosen = new.advance(until)
        for table, value in zip(tables, new.step_tensors(), strict=True):
            if value is not table:
                table.copy_(value)

    def step_tensors(self) -> list[Tensor]:
        """The tensors that one step of the search passes to the next."""
        more = [getattr(self.search, name) for name in self.search.carried]
        return list(tensors_within([self.search.state, self.chosen, more]))

    def tables(self) -> list[Tensor]:
        """All tensors that a step reads and that differ from batch to batch."""
        reader = self.reader
        counts = reader.at, self.search.steps
        tables = [reader.cache, reader.condition, reader.mine, reader.columns, counts]
        return [*tensors_within(tables), *self.step_tensors()]

    @property
    def fixed(self) -> tuple[Any, ...]:
        """The values that two batches must share, besides shapes, to use one recorded step."""
        return *self.search.fixed, self.reader.width

    def count_on_device(self) -> None:
        """Count steps and columns in tensors on the device, as a recorded step must."""
        device = self.reader.mine.device
        self.reader.at = torch.full((1,), int(self.reader.at), device=device)
        self.search.steps = torch.full((1,), self.steps, device=device)

    def go_on_from(self, other: Work) -> None:
        """Continue the batch `other` of the same shapes, whose tensors were copied into these."""
        self.steps = other.steps
        self.reader.reads = other.reader.reads

    def keep(self, memory: Memory) -> None:
        """Give the work tensors of its own, so that steps over them can be recorded."""
        if not isinstance(self.reader.model, weakref.ProxyTypes):
            # work is kept for the model: a reference to it would keep the model alive
            self.reader.model = weakref.proxy(self.reader.model)
        search = self.search
        search.state = State(
            **{field.name: getattr(search.state, field.name).clone() for field in fields(State)}
        )
        for name in search.carried:
            setattr(search, name, getattr(search, name).clone())
        self.chosen = tuple(table.clone() for table in self.chosen)
        self.recorded = {}
        self.memory = memory

    def select(self, rows: Tensor) -> Work:
        """The work on these rows of the batch only, without recordings."""
        selected = copy(self)
        selected.recorded = None
        selected.reader = copy(self.reader)
        selected.search = copy(self.search)
        selected.reader.at = self.reader.width + self.reader.reads * self.reader.beam
        selected.search.steps = self.steps
        selected.reader.select(rows)
        selected.search.select(rows)
        selected.chosen = tuple(table[rows] for table in self.chosen)
        return selected
