"""The visibility rule.

    key k is visible to query q  iff  doc[k] == doc[q]  and  born[k] <= now[q] <= dies[k]

`sees` is the rule; it works on numpy arrays and torch tensors alike. Everything that masks
attention in unitk calls it, or is tested against it.
"""

from __future__ import annotations

from typing import Any

from unitk.slots import BORN, CROSS, DIES, DOC, NOW, POS, POS2


def sees(now: Any, query_doc: Any, born: Any, dies: Any, key_doc: Any) -> Any:
    """Whether a query may look at a key: bool, broadcast over the arguments."""
    return (key_doc == query_doc) & (born <= now) & (now <= dies)


def dense(queries: Any, keys: Any, window: int = 0) -> Any:
    """The rule as a bool table: slots [9, ..., T] look at slots [9, ..., S] -> [..., T, S].

    Layers with a window see no key further away (`limit_window`).
    """
    sight = sees(
        queries[NOW][..., :, None],
        queries[DOC][..., :, None],
        keys[BORN][..., None, :],
        keys[DIES][..., None, :],
        keys[DOC][..., None, :],
    )
    return limit_window(sight, queries, keys, window)


def limit_window(sight: Any, queries: Any, keys: Any, window: int) -> Any:
    """A table [..., T, S] without the keys more than `window` positions away; 0: as it is."""
    if not window:
        return sight
    distance = text_positions(queries)[..., :, None] - text_positions(keys)[..., None, :]
    return sight & (abs(distance) <= window)


def text_positions(slots: Any) -> Any:
    """The positions of slots [9, ...] in a text; words of a blank count from its place (GLM)."""
    return slots[POS] + slots[POS2]


def cross(queries: Any, keys: Any) -> Any:
    """Cross-attention as a bool table: a decoder's slots [9, ..., T] look at an encoder's.

    A slot [9, ..., S] is visible iff it belongs to the same doc and `cross` is set; the clocks of
    two towers have nothing to do with each other.
    """
    same = queries[DOC][..., :, None] == keys[DOC][..., None, :]
    return same & (keys[CROSS][..., None, :] == 1)
