"""Readers of pairs from records and SQuAD; pairs of lines are read in `sources.py`.

Records are those of any table (`records.py`). The user names their fields. A source may have
several, its parts. A target may have several equally good ones, of which the first is learnt. A
value is a text, or a list: the sentences of a source, which are joined with blanks, or equally good
targets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from unitk.data.files import sources
from unitk.data.files.records import records
from unitk.data.files.sources import PairBlock, PairText, check_fields
from unitk.errors import DataError
from unitk.foreign import parse_json

FORMS = {
    **dict.fromkeys(("class", "number", "tags", "choice"), "labelled"),
    **{"span": "spans", "links": "linked"},
}
"""Form of the labels -> kind of the corpus."""
Label = list[Any]
"""[name], [number], a list of names, [start, stop], or a list of (start, stop, name)."""
NO_SPAN: Label = [-1, -1]
WHOLE = re.compile(r"[+-]?[0-9]+\.0+")  # as tables of floats write it
BLANKS = re.compile(r"[ \t\r\n\v\f]+")  # ASCII only: a no-break space stands inside a word


@dataclass(frozen=True)
class Fields:
    """Which fields of a record are read, and as what."""

    source: tuple[str, ...]  # its parts, in this order
    target: tuple[str, ...]  # those of these that a record has
    mark: str = ""  # stands between the sentences of a target, which are its lines
    skip_empty: bool = False
    """Skip records without a source or a target instead of refusing them."""
    label: str = ""  # instead of a target: the field of labels of this form
    form: str = ""


def read_records(path: Path, fields: Fields) -> Iterator[PairText]:
    """The pairs of a file of records."""
    for block in record_blocks(path, fields):
        yield from block.pairs


def record_blocks(
    path: Path, fields: Fields, base: int = 0, name: str = "jsonl"
) -> Iterator[PairBlock]:
    """`read_records`, block by block."""
    wanted = (*fields.source, *fields.target, *filter(None, [fields.label]))
    found, read = records(path, name, wanted), _labelled if fields.form else _pair
    while some := list(islice(found, sources.PAIRS_IN_BLOCK)):
        pairs = [pair for record, where, _ in some if (pair := read(record, where, fields))]
        skipped = len(some) - len(pairs)
        yield PairBlock(path, base + some[0][2], pairs, labels=fields.form, skipped=skipped)


def _pair(record: Any, where: str, fields: Fields) -> PairText | None:
    source, found = source_of(record, where, fields), targets_of(record, where, fields)
    if not found or not all(source):
        _check_skipped(where, fields.target if all(source) else fields.source, fields)
        return None
    return PairText(source, found[0], tuple(found[1:]))


def _check_skipped(where: str, empty: tuple[str, ...], fields: Fields) -> None:
    if not fields.skip_empty:
        names = ", ".join(empty)
        raise DataError(f"{where}: {names} is empty; --skip-empty leaves such records out")


def _labelled(record: Any, where: str, fields: Fields) -> PairText | None:
    name = fields.label
    check_fields(record, (name,), "--label-field", where)
    if fields.form == "tags":
        source = words_of(record, where, fields.source[0])
    elif fields.form == "choice":
        source = choices_of(record, where, fields)
    else:
        source = source_of(record, where, fields)
    if not source or not all(source):
        _check_skipped(where, fields.source, fields)
        return None
    value, moved = record[name], False
    if fields.form == "span" and isinstance(value, dict):
        value, moved = _place(value, record[fields.source[-1]], f"{where}: field {name!r}")
    label = label_of(value, fields.form, f"{where}: field {name!r}")
    if fields.form == "choice":
        label = [chosen(label[0], source[1:], f"{where}: field {name!r}")]
    if fields.form == "tags" and len(label) != len(source):
        raise DataError(f"{where}: {name!r} needs {len(source)} tags, one a word, not {len(label)}")
    if fields.form == "links":
        label = _in_source(label, record, source[-1], where, fields)
    if fields.form == "span":
        spans = [] if label == NO_SPAN else [label]
        [label] = _in_source(spans, record, source[-1], where, fields) or [NO_SPAN]
    return PairText(source, "", label=label, where=where, moved=moved)


def _place(answers: dict[str, Any], passage: Any, where: str) -> tuple[list[int] | None, bool]:
    """The place of the first answer of a table of SQuAD, and whether its start was corrected.

    Such tables, those of `datasets`, have the fields text and answer_start: lists, empty if there
    is no answer.
    """
    texts: Any = answers.get("text")
    starts: Any = answers.get("answer_start")
    lists = isinstance(texts, list) and isinstance(starts, list) and isinstance(passage, str)
    if not lists or len(texts) != len(starts) or not all(isinstance(t, str) for t in texts):
        raise DataError(f"{where} has no lists text and answer_start of one length")
    if not texts:
        return None, False
    place, moved = find_answer(texts[0], passage, starts[0])
    if place is None:
        raise DataError(f"{where}: answer {texts[0]!r} is not in its passage")
    cut = len(passage) - len(passage.lstrip())
    return [place[0] + cut, place[1] + cut], moved


def _in_source(spans: Label, record: Any, source: str, where: str, fields: Fields) -> Label:
    """Places in a field as it stands, as places in the source, which has no blanks around it."""
    field = fields.source[-1]
    value = record[field]
    if not isinstance(value, str):
        raise DataError(f"{where}: field {field!r} must be a text to have places")
    cut = len(value) - len(value.lstrip())
    for start, stop, *_ in spans:
        if not cut <= start < stop <= cut + len(source):
            place = f"characters {start} to {stop} of {fields.label!r}"
            size = f"the {len(value)} characters of {field!r}"
            raise DataError(f"{where}: {place} are not within {size}")
    return [(start - cut, stop - cut, *more) for start, stop, *more in spans]


def words_of(record: Any, where: str, name: str) -> list[str]:
    """The words of a record's only source: a list, or a text that is split at blanks."""
    check_fields(record, (name,), "--source-field", where)
    value = record[name]
    return split_words(value) if isinstance(value, str) else _texts(value, name, where)


def split_words(text: str) -> list[str]:
    """The words of a text between blanks, tabs and line ends; U+00A0 and U+3000 are characters."""
    return [word for word in BLANKS.split(text) if word]


def choices_of(record: Any, where: str, fields: Fields) -> list[str]:
    """A text and its choices: a field for each choice, or one field with a list of all."""
    first, *others = fields.source
    text = source_of(record, where, replace(fields, source=(first,)))
    for name in others:
        own = record.get(name)
        one = replace(fields, source=(name,))
        text += _texts(own, name, where) if isinstance(own, list) else source_of(record, where, one)
    if len(text) < 3:
        least = "a choice is between two texts at least, behind the first --source-field"
        raise DataError(f"{where}: {least}")
    return text


def chosen(label: str, choices: Sequence[str], where: str) -> int:
    """The number of a choice: given as a number from 0, else a letter from A, else its text."""
    letters = [chr(ord("A") + i) for i in range(len(choices))]
    for names in ([*map(str, range(len(choices)))], letters, choices):
        if label in names:
            return names.index(label)
    if (number := _name(label)) != label:
        return chosen(number, choices, where)
    most = f"{len(choices) - 1} or {letters[-1]}"
    raise DataError(f"{where} must be 0 or A to {most}, or one of the choices, got {label!r}")


def label_of(value: Any, form: str, where: str) -> Label:
    """A field as labels of the form; `where` names it in errors."""
    if isinstance(value, str) and form in ("span", "links"):  # of CSV
        value = parse_json(value, where) if value.strip() else None
    if form in ("class", "choice") and (name := _name(value)):
        # a choice may be the text "1.0"
        return [value.strip() if form == "choice" and isinstance(value, str) else name]
    if form == "number":
        with suppress(TypeError, ValueError):
            if math.isfinite(number := float(value)):
                return [number]
    if form == "tags" and isinstance(value, str | list):
        tags = split_words(value) if isinstance(value, str) else value
        if all(names := [_name(tag) for tag in tags]):
            return names
    if form == "span" and value is None:
        return NO_SPAN
    if form == "span" and _is_span(value, 2):
        return [*map(int, value)]
    if form == "links" and isinstance(value or [], list):
        if all(_is_span(link, 3) for link in value or []):
            return [(int(a), int(b), _name(name) or str(name)) for a, b, name in value or []]
    shape = {
        "class": "one label",
        "number": "a number",
        "choice": "the number of a choice",
        "tags": "a list of tags",
        "span": "[start, stop] in characters, or null",
        "links": "a list of [start, stop, entity] in characters",
    }
    regress = form == "class" and type(value) is float
    cure = "; numbers to regress on are --labels number" if regress else ""
    raise DataError(f"{where} must be {shape[form]}, got {value!r}{cure}")


def _is_span(value: Any, size: int) -> bool:
    if not isinstance(value, list) or len(value) != size:
        return False
    # not isinstance: true is an int in Python, and no place in a text
    return all(type(one) is int or type(one) is float and one.is_integer() for one in value[:2])


def _name(value: Any) -> str:
    """A label as text, a whole number always as such: 1 and 1.0, however written, are "1".

    "" if the value is none.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip() if isinstance(value, str | int) else ""
    return str(int(text.partition(".")[0])) if WHOLE.fullmatch(text) else text


def source_of(record: Any, where: str, fields: Fields) -> list[str]:
    """The parts of a record's source."""
    return [part.strip() for part in as_given(record, where, fields)]


def as_given(record: Any, where: str, fields: Fields) -> list[str]:
    """The parts of a record's source with the blanks that are around them."""
    for name in fields.source:
        check_fields(record, (name,), "--source-field", where)
    return [" ".join(_texts(record[name], name, where)) for name in fields.source]


def targets_of(record: Any, where: str, fields: Fields) -> list[str]:
    """The targets of a record, the first one first, each on one line; empty ones are dropped."""
    check_fields(record, fields.target, "--target-field", where)
    return [
        one
        for name in fields.target
        if name in record
        for text in _texts(record[name], name, where)
        if (one := joined(text.split("\n"), fields.mark))
    ]


def joined(lines: Iterable[str], mark: str) -> str:
    """Join sentences into one line, with a mark between them."""
    return (f" {mark} " if mark else " ").join(line for text in lines if (line := text.strip()))


def _texts(value: Any, name: str, where: str) -> list[str]:
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in several):
        raise DataError(f"{where}: field {name!r} must be a text or a list of texts")
    return several


def find_answer(answer: str, passage: str, said: Any) -> tuple[tuple[int, int] | None, bool]:
    """The characters of the stripped passage that are the answer, and whether they stand elsewhere
    than the file says.

    `said` counts characters, or else UTF-16 units (JavaScript, Java) or bytes. If the answer stands
    at none of these places, its occurrence nearest to `said` is taken; without `said`, the first.
    Where none is spelled in the same way, blanks and case may differ. None if there is no answer.
    """
    blanks, answer = len(answer) - len(answer.lstrip()), answer.strip()
    cut = len(passage) - len(passage.lstrip())
    given = _whole(said)
    if answer and given is not None and passage.startswith(answer, given + blanks):
        start = given + blanks
        return (start - cut, start - cut + len(answer)), False
    found = list[tuple[int, int]]()
    for words, case in (([answer], 0), (answer.split(), re.IGNORECASE)):
        pattern = r"\s+".join(map(re.escape, words))  # looked ahead for, as they may overlap
        found = found or [one.span(1) for one in re.finditer(f"(?=({pattern}))", passage, case)]
    if not answer or not found:
        return None, False
    if given is None:
        return (found[0][0] - cut, found[0][1] - cut), False
    units = passage.encode("utf-16-le")[: 2 * given].decode("utf-16-le", "ignore")
    read = passage.encode()[:given].decode("utf-8", "ignore")
    places = [place + blanks for place in (given, len(units), len(read))]
    there = (one for place in places for one in found if one[0] == place)
    start, stop = next(there, min(found, key=lambda one: abs(one[0] - places[0])))
    return (start - cut, stop - cut), start != places[0]


def _whole(number: Any) -> int | None:
    """A place in a text as tables write it: 3, 3.0 or "3"; None if it is none."""
    text = _name(number) if not isinstance(number, bool) else ""
    return int(text) if re.fullmatch("[0-9]+", text) else None
