"""Exact search: the texts whose vectors are nearest to those of queries, by blocks of texts.

Q queries, N texts of a block, K texts found so far, W dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unitk.slots import Floats, Ids


def rank_nearest(queries_QW: Floats, blocks: Iterable[Floats], most: int) -> tuple[Floats, Ids]:
    """The cosines [Q, K] and the numbers [Q, K] of the nearest texts, the nearest one first.

    Blocks [N, W] are the vectors of texts in order; only one is held at a time. K is `most`, or all
    texts if there are fewer. Of texts that are equally near, the first ones are found. Empty texts
    and queries, whose vectors are 0, have the cosine -inf.
    """
    unit_QW = normalize_rows(queries_QW)
    scores_QK = np.zeros((len(unit_QW), 0), np.float32)
    number_QK = np.zeros((len(unit_QW), 0), np.int64)
    read = 0
    for block_NW in blocks:
        unit_NW = normalize_rows(block_NW)
        own_QN = unit_QW @ unit_NW.T
        own_QN[:, ~unit_NW.any(axis=1)] = -np.inf
        own_QN[~unit_QW.any(axis=1)] = -np.inf
        number_N = np.arange(read, read := read + len(block_NW))
        scores_QM = np.concatenate([scores_QK, own_QN], axis=1)
        number_QM = np.concatenate(
            [number_QK, np.broadcast_to(number_N, (len(unit_QW), len(number_N)))], axis=1
        )
        found_QK = _first(scores_QM, most)
        scores_QK, number_QK = (
            np.take_along_axis(table, found_QK, axis=1) for table in (scores_QM, number_QM)
        )
    return scores_QK, number_QK


def normalize_rows(vectors_NW: Floats) -> Floats:
    """Vectors of length 1; those of empty texts, which are 0, stay."""
    vectors_NW = np.asarray(vectors_NW, np.float32)
    length_N1 = np.linalg.norm(vectors_NW, axis=1, keepdims=True)
    return vectors_NW / np.maximum(length_N1, np.finfo(np.float32).tiny)


def _first(scores_QM: Floats, most: int) -> Ids:
    """The places of the largest scores of each row, in order; of equal ones, the first."""
    columns = scores_QM.shape[1]
    if columns <= most:
        return np.argsort(-scores_QM, axis=1, kind="stable")
    # a selection is linear; its places are sorted, so that equal scores keep their order
    part_QK = np.sort(np.argpartition(-scores_QM, most - 1, axis=1)[:, :most], axis=1)
    chosen_QK = np.take_along_axis(scores_QM, part_QK, axis=1)
    # where others equal the last one that was chosen, the selection has taken any of them
    tied_Q = (scores_QM >= chosen_QK.min(axis=1, keepdims=True)).sum(axis=1) > most
    order_QK = np.argsort(-chosen_QK, axis=1, kind="stable")
    found_QK: Ids = np.take_along_axis(part_QK, order_QK, axis=1)
    found_QK[tied_Q] = np.argsort(-scores_QM[tied_Q], axis=1, kind="stable")[:, :most]
    return found_QK
