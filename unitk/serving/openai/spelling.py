"""Outputs as strings: the text that each token adds, stop strings, a text that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from unitk.slots import Ids

NEAR = 16
"""Tokens before an output that are decoded with it, as they decide whether it begins with a
blank."""
BYTES = 4
"""The most tokens that spell one character: its bytes."""
HALF = "\ufffd"
"""The replacement of bytes that are not a whole character."""


class Speller:
    """Spells tokens one after the other; their strings make up the text.

    A token that begins a character adds nothing; the one that completes it adds the character.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], before: Iterable[int] = ()) -> None:
        self.decode = decode
        self.ids = [*before][-NEAR:]
        self.start = 0
        self.read = len(self.ids)
        self.pieces = list[str]()
        self.text = ""

    def add(self, words: Iterable[int]) -> str:
        """The text with further words."""
        for word in words:
            self.ids.append(int(word))
            added = self._added()
            # the last bytes may be the first ones of a character; it has no more than four
            if added.endswith(HALF) and len(self.ids) - self.read < BYTES:
                added = ""
            else:
                self.start = self.read
                self.read = len(self.ids)
            self.pieces.append(added)
            self.text += added
        return self.text

    def end(self) -> str:
        """The whole text, also of a character that is not complete."""
        if self.read < len(self.ids) and self.pieces:
            self.pieces[-1] = self._added()
            self.text += self.pieces[-1]
            self.read = len(self.ids)
        return self.text

    def _added(self) -> str:
        """What the words since `read` add to those before; these alone may lack a blank."""
        old = self.decode(self.ids[self.start : self.read])
        new = self.decode(self.ids[self.start :])
        return new[len(old) :] if new.startswith(old) else self.decode(self.ids[self.read :])


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first stop string begins in a text."""
    return min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)


def withhold_stops(text: str, stops: Sequence[str]) -> str:
    """A growing text without what may yet become a stop string, or comes after one."""
    if (at := find_stop(text, stops)) is not None:
        return text[:at]
    # what the text ends with may be what a stop string begins with
    for at in range(max(0, len(text) - max(map(len, stops), default=0)), len(text)):
        if any(stop.startswith(text[at:]) for stop in stops):
            return text[:at]
    return text


def pieces_of(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """A text as the strings of its tokens, given their characters; blanks are before tokens."""
    stops = [0]
    for _, stop in spans:
        stops.append(max(stop, stops[-1]))  # of bytes, all have the character
    if len(stops) > 1:
        stops[-1] = len(text)
    return [text[a:b] for a, b in zip(stops, stops[1:], strict=False)]


def without_ends(ids: Ids, end: int | None) -> Ids:
    """The ids of an output without its end symbols."""
    return ids if end is None else ids[ids != end]
