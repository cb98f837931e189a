"""Rows that hold whole documents, one after the other: a kernel needs no more than their bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unitk.slots import BORN, DIES, DOC, NEVER, NOW, Batch, Ids

FEWEST = 64
"""Bounds are padded to a power of two, at least this: few shapes are compiled or recorded."""


@dataclass(frozen=True)
class PackedDocs:
    """The documents of a tower, whose rows make a line of B * T slots."""

    bounds: Any
    """int32 [n + 1]: document i has the slots `bounds[i : i + 2]` of the line. So have the pads of
    a row, which see each other. Empty documents come last."""
    causal: bool
    """Whether a slot sees its document up to itself, or all of it."""


def with_documents(batch: Batch) -> Batch:
    """The batch with the documents of those towers where they are all that the rule asks about."""
    real = {name: table[BORN] < NEVER for name, table in batch.towers.items()}
    if sum(map(np.count_nonzero, real.values())) < batch.num_real:
        return batch  # slots that are never born cannot be told from pads
    packed = {name: find_documents(table, real[name]) for name, table in batch.towers.items()}
    return replace(batch, packed={name: docs for name, docs in packed.items() if docs is not None})


def find_documents(table: Ids, real: Any) -> PackedDocs | None:
    """The documents of slots [9, B, T], those that are `real` [B, T] and the pads after them.

    None where the rule is another than that a slot sees its document, or the part of it so far.
    """
    _, rows, width = table.shape
    doc = table[DOC]
    first = np.ones((rows, width), bool)  # of a document, or of the pads of a row
    first[:, 1:] = (doc[:, 1:] != doc[:, :-1]) | (real[:, 1:] != real[:, :-1])
    starts = np.flatnonzero(first)
    documents = real.ravel()[starts]  # whether a run of slots is a document, not pads
    if np.count_nonzero(documents) != len(np.unique(doc[real])):
        return None  # some document is in several pieces
    now, born, dies = (table[field].ravel() for field in (NOW, BORN, DIES))
    # whether every slot of a document sees all of it
    whole = np.maximum.reduceat(born, starts) <= np.minimum.reduceat(now, starts)
    whole &= np.maximum.reduceat(now, starts) <= np.minimum.reduceat(dies, starts)
    causal = not whole[documents].all()
    if causal:
        rising = np.append(True, now[1:] > now[:-1]) | first.ravel()
        if not ((born == now) & (dies == NEVER) & rising)[real.ravel()].all():
            return None
    size = max(FEWEST, 1 << len(starts).bit_length())  # there is one bound more than starts
    bounds = np.full(size, rows * width, np.int32)
    bounds[: len(starts)] = starts
    return PackedDocs(bounds, causal)
