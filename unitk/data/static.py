"""Batches of one shape (`--static`): more pads, but one graph to compile or to record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk.data.plan import pack
from unitk.errors import require
from unitk.packed import with_documents
from unitk.slots import BORN, DOC, PAD, WIDTH, Ask, Batch, Example, Ids, collate

ASKED = 256
"""Asked slots of a batch are padded to a multiple of this, with weight 0."""
SPARE = 16
"""One row in this many is spare, because texts do not fill all rows to their ends."""
FRACTIONS = 8
"""The rows of a shape are divided by this where they are many more than texts need."""


def fixed_shape(bound: Ids, max_tokens: int) -> tuple[int, int]:
    """The rows and the width of all batches of examples that have at most `bound` slots each."""
    longest = int(bound.max())
    width = -(-max(longest, min(2 * longest, 512)) // WIDTH) * WIDTH
    rows = -(-max_tokens * (SPARE + 1) // (SPARE * width))
    return (-(-rows // 4) * 4 if rows > 32 else rows), width


def make_fixed(examples: Sequence[Example], shape: tuple[int, int]) -> Batch:
    """Pack examples into the rows of the shape, or into some eighths of them; where it is too small
    for all, there are more."""
    rows, width = shape
    packed = pack([example.towers[example.decoded].table.shape[1] for example in examples], width)
    # fewer where tasks share an update, and in the last one of an epoch
    step = -(-rows // FRACTIONS)
    if not rows - step < len(packed) <= rows:
        rows = -(-len(packed) // step) * step
    return pad_batch(collate([[examples[i] for i in row] for row in packed]), rows, width)


def pad_batch(batch: Batch, rows: int, width: int) -> Batch:
    """A batch of one tower with more rows and slots, and asked slots of weight 0."""
    own = "--static is for tasks of one tower without inputs beside the tokens"
    require(len(batch.towers) == 1 and not batch.inputs, own)
    ((name, table),) = batch.towers.items()
    _, count, before = table.shape
    more = rows - count
    wide = np.tile(PAD[:, :, None], (1, rows, width))
    wide[DOC, :count] = batch.docs[:, :1]
    wide[:, :count, :before] = table
    # a document of one slot in each further row, so that no pad's row of a mask is empty
    wide[DOC, count:] = len(batch.owner) + np.arange(more)[:, None]
    wide[BORN, count:, 0] = 0

    def extend(array: npt.NDArray[Any], value: int = 0) -> npt.NDArray[Any]:
        return np.pad(array, [(0, more), *[(0, 0)] * (array.ndim - 1)], constant_values=value)

    # no rendering of the rule that only some batches have: each would be a graph of its own
    padded = replace(
        batch,
        towers={name: wide},
        asks={ask: _pad(asked, before, width) for ask, asked in batch.asks.items()},
        num_keys={name: width},
        sight={name: "rule"},
        docs=extend(batch.docs, -1),
        last=extend(batch.last),
        blanks=extend(batch.blanks),
        num_blanks=extend(batch.num_blanks),
    )
    if not with_documents(batch).packed:
        return padded
    padded = with_documents(padded)
    ((name, documents),) = padded.packed.items()
    # a row has two documents and pads, as a rule: more of them change the shape
    lacking = (1 << (3 * rows).bit_length()) - len(documents.bounds)
    bounds = np.pad(documents.bounds, (0, max(0, lacking)), mode="edge")
    return replace(padded, packed={name: replace(documents, bounds=bounds)})


def _pad(ask: Ask, before: int, width: int) -> Ask:
    """An ask whose rows are numbers in wider rows; if words are asked, with further ones."""
    rows = np.where(ask.rows < 0, -1, ask.rows // before * width + ask.rows % before)
    if ask.head != "lm" or ask.among is not None:
        return replace(ask, rows=rows)
    lacking = -len(rows) % ASKED
    return replace(
        ask,
        rows=np.pad(rows, ((0, lacking), (0, 0))),
        label=np.pad(ask.label, (0, lacking)),
        weight=np.pad(ask.weight, (0, lacking)),
    )
