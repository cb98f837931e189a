"""Pairs of a source and what it leads to, from records.

The user names the fields of records. A source may have several, its parts. A target may have
several equally good ones, of which the first is learnt. A value is a text, or a list: the sentences
of a source, which are joined with blanks, or equally good targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from unitk.data.files import labels
from unitk.data.files.lines import split_in_groups
from unitk.data.files.readers import EmptyField, Record, records
from unitk.errors import DataError


@dataclass(frozen=True)
class PairText:
    """A source as its parts, of which only the last may be shortened, and its target."""

    source: list[str]
    target: str
    others: tuple[str, ...] = ()  # further targets that would be as good; only scores know them
    focus: tuple[int, int] | None = None
    """The characters of the last part that a window of it must keep: those of the answer."""
    label: Any = None  # what it leads to instead of `target`
    where: str = ""  # its place in its file, for errors in the label
    moved: bool = False  # the answer is elsewhere than the file says


@dataclass(frozen=True)
class PairBlock:
    """Some pairs of a file, with `at` as in `Block`, in bytes of the file of sources."""

    path: Path
    at: int
    pairs: list[PairText]
    window: int | None = None
    """Most tokens of a source: of a longer one's last part, a window is kept."""
    form: str = ""  # of answer and passage: how the source is made of them (`arrange`)
    labels: str = ""  # the form of the labels that they lead to instead of targets
    skipped: int = 0  # records left out because they are empty
    fresh: bool = True


@dataclass(frozen=True)
class Fields:
    """Which fields of a record are read, and as what."""

    source: tuple[str, ...]  # its parts, in this order
    target: tuple[str, ...]  # those of these that a record has
    mark: str = ""  # is between the sentences of a target, which are its lines
    skip_empty: bool = False
    """Skip records without a source or a target instead of refusing them."""
    label: str = ""  # instead of a target: the field of labels of this form
    form: str = ""


def record_blocks(
    path: Path, fields: Fields, base: int = 0, name: str = "auto"
) -> Iterator[PairBlock]:
    """The pairs of a file of records in this format."""
    names = *fields.source, *fields.target, *filter(None, [fields.label])
    read = _read_label if fields.form else _pair
    for group in split_in_groups(records(path, names, name)):
        pairs = [pair for record in group if (pair := _read(read, record, fields))]
        yield PairBlock(
            path, base + group[0].at, pairs, labels=fields.form, skipped=len(group) - len(pairs)
        )


def _read(
    read: Callable[[Record, Fields], PairText], record: Record, fields: Fields
) -> PairText | None:
    try:
        return read(record, fields)
    except EmptyField as error:
        if fields.skip_empty:
            return None
        raise DataError(f"{error}; --skip-empty leaves such records out") from error


def _pair(record: Record, fields: Fields) -> PairText:
    source = source_of(record, fields)
    targets = targets_of(record, fields)
    _check_filled(record, fields, source)
    if not targets:
        raise EmptyField(f"{record.place}: {', '.join(fields.target)} is empty")
    return PairText(source, targets[0], tuple(targets[1:]))


def _check_filled(record: Record, fields: Fields, source: list[str]) -> None:
    """Raise an `EmptyField` that names the field of an empty part; the last may have several."""
    for text, name in zip_longest(source or [""], fields.source, fillvalue=fields.source[-1]):
        if not text:
            raise EmptyField(f"{record.where(name)} is empty")


def _read_label(record: Record, fields: Fields) -> PairText:
    name, form = fields.label, fields.form
    record.need(name, option="--label-field")
    source = PARTS_OF.get(form, source_of)(record, fields)
    _check_filled(record, fields, source)
    value = record.get(name)
    where = record.where(name)
    # a table has blanks where a text is not labelled; of spans and links there may be none
    if (value is None or not str(value).strip()) and form not in ("span", "links"):
        raise EmptyField(f"{where} is empty")
    moved = False
    if form == "span" and (isinstance(value, dict) or f"{name}.text" in record):
        value, moved = _place(record, name, record.get(fields.source[-1]))
    label = labels.label_of(value, form, where)
    if form == "choice":
        # ARC has choices.text, and choices.label: A to D, or 1 to 4
        names = record.get(f"{fields.source[-1].rpartition('.')[0]}.label")
        label = [labels.number_of_choice(label[0], source[1:], where, names)]
    if form == "tags" and len(label) != len(source):
        raise DataError(
            f"{record.place}: {name!r} needs {len(source)} tags, one a word, not {len(label)}"
        )
    if form == "links":
        label = _locate_in_source(label, record, source[-1], fields)
    if form == "span":
        spans = [] if label == labels.NO_SPAN else [label]
        [label] = _locate_in_source(spans, record, source[-1], fields) or [labels.NO_SPAN]
    return PairText(source, "", label=label, where=record.place, moved=moved)


def _place(record: Record, name: str, passage: Any) -> tuple[list[int] | None, bool]:
    """The place of the first answer of a table of SQuAD, and whether its start was corrected.

    Such tables, those of `datasets`, have the fields text and answer_start: lists, empty if there
    is no answer, or a list of objects with both.
    """
    where = record.where(name)
    texts = record.get(f"{name}.text")
    starts = record.get(f"{name}.answer_start")
    lists = isinstance(texts, list) and isinstance(starts, list) and isinstance(passage, str)
    if not lists or len(texts) != len(starts) or not all(isinstance(t, str) for t in texts):
        raise DataError(f"{where} has no lists text and answer_start of one length")
    if not texts:
        return None, False
    span, moved = labels.find_answer(texts[0], passage, starts[0])
    if span is None:
        raise DataError(f"{where}: answer {texts[0]!r} is not in its passage")
    cut = len(passage) - len(passage.lstrip())
    return [span[0] + cut, span[1] + cut], moved


def _locate_in_source(
    spans: labels.Label, record: Record, source: str, fields: Fields
) -> labels.Label:
    """Places in a field as it stands, as places in the source, which has no blanks around it."""
    field = fields.source[-1]
    value = record.get(field)
    if not isinstance(value, str):
        raise DataError(f"{record.where(field)} must be a text to have places")
    cut = len(value) - len(value.lstrip())
    for start, stop, *_ in spans:
        if not cut <= start < stop <= cut + len(source):
            raise DataError(
                f"{record.place}: characters {start} to {stop} of {fields.label!r} "
                f"are not within the {len(value)} characters of {field!r}"
            )
    return [(start - cut, stop - cut, *more) for start, stop, *more in spans]


def parts_as_given(record: Record, fields: Fields) -> list[str]:
    """The parts of a record's source with the blanks that are around them."""
    return [" ".join(record.texts(name, "--source-field")) for name in fields.source]


def source_of(record: Record, fields: Fields) -> list[str]:
    """The parts of a record's source."""
    return [part.strip() for part in parts_as_given(record, fields)]


def words_of(record: Record, fields: Fields) -> list[str]:
    """The words of a record's only source: a list, or a text that is split at blanks."""
    field = fields.source[0]
    words = record.texts(field, "--source-field")
    if isinstance(record.get(field), list):
        return words
    return labels.split_words(words[0], record.where(field))


def choices_of(record: Record, fields: Fields) -> list[str]:
    """A text and its choices: a field for each choice, or one field with a list of all."""
    first, *others = fields.source
    parts = [" ".join(record.texts(first, "--source-field")).strip()]
    for name in others:
        texts = record.texts(name, "--source-field")
        parts += texts if isinstance(record.get(name), list) else [texts[0].strip()]
    if len(parts) < 3:
        raise DataError(
            f"{record.place}: "
            "a choice is between two texts at least, after the first --source-field"
        )
    return parts


PARTS_OF = {"tags": words_of, "choice": choices_of}
"""Form of labels -> what reads the parts of its sources, where each text of a list is one."""


def targets_of(record: Record, fields: Fields) -> list[str]:
    """The targets of a record on a line each; empty ones go, and null ones beside another."""
    record.need(*fields.target, option="--target-field")
    present = [name for name in fields.target if name in record]
    held = [name for name in present if record.get(name) is not None] or present[:1]
    targets = (
        join_sentences(text.split("\n"), fields.mark)
        for name in held
        for text in record.texts(name)
    )
    return [*filter(None, targets)]


def join_sentences(lines: Iterable[str], mark: str) -> str:
    """Join sentences into one line, with a mark between them."""
    return (f" {mark} " if mark else " ").join(filter(None, map(str.strip, lines)))
