"""Labels that texts lead to: classes, numbers, tags, choices, and places in a text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from unitk.errors import DataError
from unitk.foreign import parse_json

Label = list[Any]
"""[name], [number], a list of names, [start, stop], or a list of (start, stop, name)."""
NO_SPAN: Label = [-1, -1]
WHOLE = re.compile(r"[+-]?[0-9]+\.0+")  # as tables of floats write it
WORDS = re.compile(r"[^ \t\r\n\v\f]+")  # blanks of ASCII only: a no-break space is inside a word


def label_of(value: Any, form: str, where: str) -> Label:
    """A field as labels of the form; `where` names it in errors."""
    form_text, read = LABEL_READERS[form]
    if isinstance(value, str) and re.match(AS_JSON.get(form, "(?!)"), value.lstrip()):
        value = parse_json(value, where) if value.strip() else None
    if (label := read(value)) is not None:
        return label
    cures = {
        float: "; numbers to regress on are --labels number",
        list: "; a list is --labels classes, or tags for the words of a text",
    }
    cure = cures.get(type(value), "") if form == "class" else ""
    raise DataError(f"{where} must be {form_text}, got {value!r}{cure}")


def _choice(value: Any) -> Label | None:
    # a choice may be the text "1.0"
    return [text] if (text := value.strip() if isinstance(value, str) else _name(value)) else None


def _number(value: Any) -> Label | None:
    if isinstance(value, str) and "_" in value:  # which Python alone reads as a number
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if math.isfinite(number := float(value)):
            return [number]
    return None


def _classes(value: Any) -> Label | None:
    names = _names(value.split(",") if isinstance(value, str) else value)
    return names and list(dict.fromkeys(names))


def _span(value: Any) -> Label | None:
    if value in (None, []):
        return NO_SPAN
    return [*map(int, value)] if _is_span(value, 2) else None


def _links(value: Any) -> Label | None:
    links = value or []
    if not isinstance(links, list) or not all(_is_span(link, 3) for link in links):
        return None
    return [(int(a), int(b), _name(name) or str(name)) for a, b, name in links]


LABEL_READERS: dict[str, tuple[str, Callable[[Any], Label | None]]] = {
    "class": ("one label", lambda value: _names([value])),
    "classes": ("a list of labels, which may be empty", _classes),
    "choice": ("the number of a choice", _choice),
    "number": ("a number", _number),
    "tags": (
        "a list of tags",
        lambda value: _names(split_words(value) if isinstance(value, str) else value),
    ),
    "span": ("[start, stop] in characters, or null", _span),
    "links": ("a list of [start, stop, entity] in characters", _links),
}
"""Form of labels -> what a field must hold, for errors, and the labels in it; None if there are
none. `FORMS` in data/corpus/columns.py tells how they are stored."""
AS_JSON = {"classes": r"\[", "tags": r"\[", "span": r"[\[{]|null|$", "links": r"\[|null|$"}
"""Form -> how a text begins that has the labels as json, as in CSV; an empty one is null."""


def _is_span(value: Any, size: int) -> bool:
    if not isinstance(value, list) or len(value) != size:
        return False
    # not isinstance: true is an int in Python, and no place in a text
    return all(type(at) is int or (type(at) is float and at.is_integer()) for at in value[:2])


def _name(value: Any) -> str:
    """A label as text, a whole number always as such: 1 and 1.0, however written, are "1".

    "" if the value is none.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip() if isinstance(value, str | int) else ""
    return str(int(text.partition(".")[0])) if WHOLE.fullmatch(text) else text


def _names(values: Any) -> Label | None:
    """A list of labels as texts; None if it is no list, or if one of them is none."""
    if isinstance(values, list) and all(names := [_name(value) for value in values]):
        return names
    return None


def number_of_choice(label: str, choices: Sequence[str], where: str, names: Any = None) -> int:
    """The number of a choice: given as a number from 0, else a letter from A, else its text.

    Where a table has `names` of its own for the choices, such as 1 to 4, these go first.
    """
    letters = [chr(ord("A") + i) for i in range(len(choices))]
    whole = isinstance(names, list) and len(names) == len(choices)
    own = [*map(str, names)] if whole else []
    for known in (own, [*map(str, range(len(choices)))], letters, choices):
        if label in known:
            return known.index(label)
    if (number := _name(label)) != label:
        return number_of_choice(number, choices, where, names)
    raise DataError(
        f"{where} must be 0 or A to {len(choices) - 1} or {letters[-1]}, or one of the choices, "
        f"got {label!r}"
    )


def spaced_words(words: Sequence[str]) -> list[str]:
    """Each word of a text as it is encoded: with the blank before it, but for the first."""
    return [f" {word}" if i else word for i, word in enumerate(words)]


def split_words(text: str, where: str = "") -> list[str]:
    """The words of a text between blanks, tabs and line ends; U+00A0 and U+3000 are characters.

    A text that begins as a list of texts in json is one, as in CSV; `where` names it in errors.
    """
    if re.match(r"\[\s*['\"]", text):
        return [*map(str, parse_json(text, where))]
    return WORDS.findall(text)


def find_answer(answer: str, passage: str, start: Any) -> tuple[tuple[int, int] | None, bool]:
    """The characters of the stripped passage that are the answer, and whether they begin elsewhere
    than at `start`, the position in the file.

    It counts characters, or else UTF-16 units (JavaScript, Java) or bytes. If the answer is at
    none of these, its occurrence nearest to `start` is taken; without a `start`, the first one.
    Where none is spelled in the same way, blanks and case may differ. None if there is no answer.
    """
    blanks = len(answer) - len(answer.lstrip())
    answer = answer.strip()
    cut = len(passage) - len(passage.lstrip())
    index = _parse_index(start)
    if answer and index is not None and passage.startswith(answer, index + blanks):
        start = index + blanks
        return (start - cut, start - cut + len(answer)), False
    spans = list[tuple[int, int]]()
    for words, case in (([answer], 0), (answer.split(), re.IGNORECASE)):
        pattern = r"\s+".join(map(re.escape, words))  # looked ahead for, as they may overlap
        spans = spans or [match.span(1) for match in re.finditer(f"(?=({pattern}))", passage, case)]
    if not answer or not spans:
        return None, False
    if index is None:
        index = spans[0][0] - blanks
    units = passage.encode("utf-16-le")[: 2 * index].decode("utf-16-le", "ignore")
    read = passage.encode()[:index].decode("utf-8", "ignore")
    starts = [start + blanks for start in (index, len(units), len(read))]
    exact = (span for start in starts for span in spans if span[0] == start)
    start, stop = next(exact, min(spans, key=lambda span: abs(span[0] - starts[0])))
    return (start - cut, stop - cut), start != starts[0]


def _parse_index(number: Any) -> int | None:
    """A place in a text as tables write it: 3, 3.0 or "3"; None if it is none."""
    text = _name(number) if not isinstance(number, bool) else ""
    return int(text) if re.fullmatch("[0-9]+", text) else None
