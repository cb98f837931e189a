"""The inputs and the memory of a tower: conditions, caches, carried states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from unitk.errors import require
from unitk.masks import dense
from unitk.packed import PackedDocs
from unitk.slots import DOC, POS, Batch

Store = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Puts new keys and values [B, H, q, K] of a layer aside and returns all that can be seen."""
Carry = Mapping[str, Tensor]
"""States that a model carries from one text of a stateful row to the next: tensors [B, ...] by
name, detached, whose shape does not depend on the batch's width (states and positions of the last
slots, or the state of a recurrent stack)."""


@dataclass(frozen=True)
class EarlierKeys:
    """Keys that are before those of the slots [9, B, T]: of a prefix or of a memory."""

    sight: Tensor
    """Whether a slot sees each of these keys: bool [B, T, P]."""
    slots: Tensor | None
    """[9, B, P]; the keys of a prefix have none."""
    pairs: list[tuple[Tensor, Tensor]]
    """Per layer these keys and their values, [B, H, P, K]."""

    @property
    def stores(self) -> list[Store]:
        """Functions that put each layer's keys and values after these."""
        return [partial(prepend, *pair) for pair in self.pairs]


@dataclass(frozen=True)
class Condition:
    """An encoder's states for cross-attention, or tables per doc computed from a latent.

    Slots find their rows of the tables by `doc`, so packing and beams change nothing. An empty
    condition changes nothing.
    """

    cross: Tensor | None = None
    """States [B, S, D] of the encoder."""
    slots: Tensor | None = None
    """[9, B, S] the slots of these states: their `doc`, and whether they may be read (`cross`)."""
    prefix: tuple[tuple[Tensor, Tensor], ...] = ()
    """Per layer keys and values [N, H, P, K] that every slot of a doc sees: they have neither clock
    nor position."""
    bias: Tensor | None = None
    """[N, D] added to the embedding of every slot of a doc."""
    docs: Tensor | None = None
    """[B, n] docs of each row, -1 where there are fewer; needed with a prefix."""
    memory: Carry = field(default_factory=dict)
    """The states carried from the row's previous text; empty at a beginning. A `Stack` reads the
    "states" [B, L, M, D] that entered its layers there, and their "slots" [B, 9, M]."""

    def select(self, rows: Tensor) -> Condition:
        """The condition of these batch rows only."""

        def pick(table: Tensor | None, axis: int) -> Tensor | None:
            return None if table is None else table.index_select(axis, rows)

        return replace(
            self,
            cross=pick(self.cross, 0),
            slots=pick(self.slots, 1),
            docs=pick(self.docs, 0),
            memory={name: table.index_select(0, rows) for name, table in self.memory.items()},
        )

    def sum_biases(self, slots: Tensor) -> Tensor | None:
        """The sum of the biases of slots [9, B, T], to add to their embeddings: [B, T, D]."""
        return None if self.bias is None else self.bias[slots[DOC]]

    def earlier_keys(self, slots: Tensor, layers: Iterable[Any]) -> EarlierKeys | None:
        """The keys of a prefix or of a memory, which are before those of slots [9, B, T]."""
        if self.prefix:
            return EarlierKeys(self.prefix_sight(slots), None, self.row_prefix())
        if not self.memory:
            return None
        # positions of a memory are counted from where this text begins; it is of the first doc
        before = self.memory["slots"].transpose(0, 1).clone()
        before[POS] += slots[POS, :, :1]
        before[DOC] = slots[DOC, :, :1]
        entered = zip(layers, self.memory["states"].unbind(1), strict=True)
        pairs = [layer.remember(states) for layer, states in entered]
        return EarlierKeys(dense(slots, before), before, pairs)

    def prefix_sight(self, slots: Tensor) -> Tensor:
        """Which keys of the rows' prefixes each slot sees: bool [B, T, n * P]."""
        assert self.docs is not None
        length = self.prefix[0][0].shape[2]
        # the keys of a row's docs are one after the other, `length` of each
        return slots[DOC][..., None] == self.docs.repeat_interleave(length, 1)[:, None]

    def row_prefix(self) -> list[tuple[Tensor, Tensor]]:
        """Per layer the prefix keys and values [B, H, n * P, K] of the rows' docs, in order."""
        assert self.docs is not None
        docs_Bn = self.docs.clamp(min=0)  # of rows with fewer docs any other's, which nobody sees

        def of_rows(table_NHPK: Tensor) -> Tensor:
            return table_NHPK[docs_Bn].transpose(1, 2).flatten(2, 3)

        return [(of_rows(key), of_rows(value)) for key, value in self.prefix]


@dataclass(frozen=True)
class Reading:
    """The input of a tower: slots that see each other by the rule, and the outputs wanted."""

    slots: Tensor
    """[9, B, T]."""
    sight: str
    """How much of the rule there is (`Batch.sight`): full, causal or rule."""
    num_keys: int
    """Only the first `num_keys` slots have keys."""
    condition: Condition = field(default_factory=Condition)
    packed: PackedDocs | None = None
    """The documents of the slots, if no slot sees beyond its own document."""
    asked: Tensor | None = None
    """[B, a]: the states of other slots may be 0."""
    depths: list[Tensor] | None = None
    """A list to which the states of all depths are added: those that enter the first layer, and
    what each layer makes of them; the last ones are normed as those that are returned."""

    @classmethod
    def of(cls, batch: Batch, name: str, condition: Condition | None = None, **more: Any) -> Self:
        """The input of a tower for a batch."""
        return cls(
            batch.towers[name],
            batch.sight[name],
            batch.num_keys[name],
            Condition() if condition is None else condition,
            batch.packed.get(name),
            **more,
        )


def read_to_depth(
    read: Callable[[list[Tensor] | None], Tensor], depth: int, num_layers: int
) -> Tensor:
    """The states after `depth` layers of a tower of `num_layers`; no layer above them runs.

    `read` is a forward pass, which adds the states of all depths to the list that it is given.
    """
    if depth == num_layers:
        return read(None)
    depths = _Depths(depth)
    with suppress(_Reached):
        read(depths)
    return depths[depth]


class _Reached(Exception):  # noqa: N818  (no error: it ends the pass)
    """Raised within a forward pass at the depth that was asked for."""


class _Depths(list[Tensor]):
    """A list for `Reading.depths` that ends the pass at one depth."""

    def __init__(self, depth: int):
        self.depth = depth

    def append(self, states: Tensor) -> None:
        super().append(states)
        if len(self) > self.depth:
            raise _Reached


@dataclass(frozen=True)
class KeyValues:
    """The cache of a Transformer: keys and values of the slots that were read.

    Per layer keys and values [B, H, S, K], written in place; their `slots` [9, B, S].

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

        The prefix is before them.
        """
        key, value = self.key[layer], self.value[layer]
        alone = until == key_BHqK.shape[2] and not self.prefix  # only the prompt is seen
        at = at + self.prefix if self.prefix else at
        until = until + self.prefix
        put(key, 2, at, key_BHqK)
        put(value, 2, at, value_BHqK)
        # of a prompt: what was just made lies closer together than the cache's columns
        if alone:
            return key_BHqK, value_BHqK
        return key[:, :, :until], value[:, :, :until]

    def follow(self, back: Tensor) -> None:
        """Do nothing: columns are only appended, and a step's mask selects a hypothesis' own."""

    def select(self, rows: Tensor) -> KeyValues:
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
    """Write columns from `at` on; if it is a tensor, it names them all on the device (replay)."""
    if isinstance(at, int):
        table.narrow(axis, at, new.shape[axis]).copy_(new)
    else:
        table.index_copy_(axis, at, new.to(table.dtype))


class StatefulRows:
    """The states that stateful rows carry from update to update: tensors [R, ...] by name.

    A rank holds its own rows only. The states of an update take effect when the update is made.
    """

    def __init__(self, rows: int, tables: Carry) -> None:
        self.rows = rows
        self.tables = dict(tables)
        self.next: dict[str, Tensor] = {}

    def attach(self, batch: Batch) -> Batch:
        """Add the carried states of its rows to a batch."""
        if batch.stateful_rows is None:
            return batch
        carry = {name: table[batch.stateful_rows] for name, table in self.tables.items()}
        return replace(batch, carry=carry)

    def keep(self, batch: Batch, carry: Carry) -> None:
        """Keep the states that the rows of a batch carry on."""
        if batch.stateful_rows is None:
            return
        require(carry, "--stateful-rows: this --criterion carries nothing to the next text")
        for name, table in carry.items():
            if name not in self.next:
                self.next[name] = table.new_zeros(self.rows, *table.shape[1:])
            self.next[name][batch.stateful_rows] = table

    def advance(self) -> None:
        """After the update: the kept states enter the next one."""
        self.tables = self.next
        self.next = {}


def prepend(
    first_key: Tensor, first_value: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """Put the keys and values of a prefix before others, [B, H, ., K]."""
    first = first_key.to(key.dtype), first_value.to(value.dtype)
    return torch.cat([first[0], key], 2), torch.cat([first[1], value], 2)
