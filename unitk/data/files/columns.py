"""Reading for `unitk score`: a text or a label a line, from files, tables and corpora."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from unitk.data.corpus.corpus import Pairs
from unitk.data.corpus.folders import corpus_vocab, is_corpus, open_corpus
from unitk.data.files.labels import label_of
from unitk.data.files.lines import name_file, numbered_lines, read_text, strip_packing
from unitk.data.files.pairs import Fields, source_of, targets_of
from unitk.data.files.readers import Record, format_of, records
from unitk.data.files.squad import Squad, read_squad, right_answers
from unitk.errors import DataError
from unitk.foreign import parse_json

log = logging.getLogger(__name__)

Side = Literal["source", "target", "output"]


def read_column(path: Path, side: Side, names: tuple[str, ...]) -> list[list[str]]:
    """The text of every line, record or pair, and its alternatives; line ends within stay.

    `names` are a table's fields. For outputs they may be empty: then the field that `unitk
    generate` writes is read.
    """
    if path.is_dir() or is_corpus(path):
        return _texts_of_corpus(path, side)
    name = format_of(path)
    if name == "text":
        # not stripped: scores are of lines as they stand, but for an end from Windows
        column = [[line.removesuffix("\r")] for line, _ in numbered_lines(path)]
    elif name == "squad" and side != "output":
        pairs = read_squad(path)
        column = [[" ".join(pair.source) if side == "source" else pair.target] for pair in pairs]
    else:
        column = [_texts_of_record(record, side, names) for record in records(path, names)]
    if not column:
        raise DataError(f"{name_file(path)} is empty")
    return column


class Read(NamedTuple):
    """A label as it stands in the file."""

    label: Any
    where: str  # file and line
    choices: Sequence[str] = ()
    """The texts that a prediction has chosen from by number."""
    id: str | int = ""
    """The id of a question, by which its prediction is found."""
    passage: str = ""
    """The last part of the source of a prediction."""
    names: Any = None
    """The names of the choices, if the table of a reference has some (`number_of_choice`)."""

    def answers(self, passage: str) -> list[str]:
        """The right answers; a place is one of the passage that the prediction was made for."""
        if not (self.label and isinstance(self.label[0], int)):
            return list(self.label)
        start, stop = self.label
        if not 0 <= start < stop <= len(passage):
            raise DataError(f"{self.where}: {self.label} is no place in the source of a prediction")
        return [passage[start:stop]]


def read_answers(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Read the id of each question of a SQuAD json, and its right answers, wherever they are.

    There are none if it is marked `is_impossible`. A question without an id has an empty one.
    """
    for record in Squad().records(path):
        right = [*filter(None, map(str.strip, right_answers(record)))]
        yield str(record.values.get("id", "")), right


def read_labels(path: Path, form: str, name: str, option: str) -> list[Read]:
    """The label of every line, of a field of every record, or of every question of a SQuAD json.

    A class is a name, and tags are a list. An answer (span) is the list of right texts, which is
    empty if there is none, or a place [start, stop]. `option` is the option that names the field.
    """
    kind = format_of(path)
    if kind == "squad" and form == "span":
        labels = [Read(right, name_file(path), id=key) for key, right in read_answers(path)]
    elif kind == "text":
        labels = [Read(_label(line, form, where), where) for line, where in numbered_lines(path)]
    else:
        rows = records(path, (name, "id", "source", "choices"))
        labels = [_read(record, form, name, option) for record in rows]
        # `unitk predict` numbers texts that have no ids
        numbered = all(label.id == line for line, label in enumerate(labels))
        labels = [label._replace(id="" if numbered else str(label.id)) for label in labels]
    if not labels:
        raise DataError(f"{name_file(path)} is empty")
    return labels


def _read(record: Record, form: str, name: str, option: str) -> Read:
    record.need(name, option=option)
    # of a table of SQuAD: an object of lists, or a list of objects, which may be in a cell of CSV
    texts = f"{name}.text"
    value = record.get(texts if form == "span" and texts in record else name)
    where = record.where(name)
    if isinstance(value, str) and re.match(r"\[?\{'", value):  # as Python prints it: an error
        parse_json(value, where)
    source = record.get("source")
    key = record.get("id")
    chosen = isinstance(value, int) and isinstance(source, list)
    choices = list(map(str, source[1:])) if chosen else []
    passage = source[-1] if isinstance(source, list) and source else source
    label = _label(value, form, where)
    if type(key) not in (str, int):
        key = ""
    names = record.get("choices.label")
    return Read(label, where, choices, key, passage if isinstance(passage, str) else "", names)


def read_predictions(path: Path, questions: Sequence[Read]) -> list[Read] | None:
    """The predictions of an object of id to text, as SQuAD's scripts read it, in the order of the
    questions; None if the file is none.

    A question without a prediction has an empty one, and is counted in a warning.
    """
    if (
        not all(question.id for question in questions)
        or strip_packing(path).suffix.lower() != ".json"
    ):
        return None
    try:
        tree = parse_json(read_text(path), name_file(path))
    except DataError:  # a record a line
        return None
    if not isinstance(tree, dict):
        return None
    texts = {key: _best(value) for key, value in tree.items()}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    ids = {question.id for question in questions}
    if lacking := ids - texts.keys():
        log.warning(
            "%s has no prediction for %d of %d questions, such as %s",
            path,
            len(lacking),
            len(ids),
            min(lacking),
        )
    if others := texts.keys() - ids:
        log.warning(
            "%s has %d predictions for questions that the references lack, such as %s",
            path,
            len(others),
            min(others),
        )
    where = name_file(path)
    return [
        Read(_label(texts.get(question.id, ""), "span", where), where, id=question.id)
        for question in questions
    ]


def _best(value: Any) -> Any:
    """The first of several predictions, as nbest_predictions.json has them."""
    best = value[0] if isinstance(value, list) and value else value
    return best.get("text") if isinstance(best, dict) else best


def order_by_id(predictions: list[Read], questions: Sequence[Read]) -> list[Read]:
    """Predictions in the order of the questions, where both have the same ids, each once."""
    of_id = {prediction.id: prediction for prediction in predictions}
    ids = [question.id for question in questions]
    predicted = [prediction.id for prediction in predictions]
    if predicted != ids and "" not in (*predicted, *ids) and len(predicted) == len(ids):
        if len(of_id) == len(ids) and of_id.keys() == {*ids}:
            return [of_id[key] for key in ids]
        differing = next(pair for pair in zip(predicted, ids, strict=True) if len({*pair}) > 1)
        log.warning(
            "ids differ from the references', or are given twice: their order counts (%s, %s)",
            *differing,
        )
    return predictions


def _label(value: Any, form: str, where: str) -> Any:
    if form != "span":
        label: Any = label_of(value, form, where)
        return label if form in ("tags", "classes") else label[0]
    if isinstance(value, list) and [*map(type, value)] == [int, int]:
        return value
    answers = value
    if isinstance(value, str):
        answers = [value]
    elif value is None:
        answers = []
    if not isinstance(answers, list) or not all(isinstance(text, str) for text in answers):
        raise DataError(f"{where} must be an answer or a list of answers, got {value!r}")
    return list(filter(None, map(str.strip, answers)))


def _texts_of_record(record: Record, side: Side, names: tuple[str, ...]) -> list[str]:
    if side == "source":
        return [" ".join(source_of(record, Fields(names, ())))]
    if names:
        return targets_of(record, Fields((), names, mark="\n")) or [""]
    if not any(name in record for name in ("outputs", "output", "error")):
        raise DataError(
            f"{record.place}: nothing that unitk generate wrote; --hypothesis-field names it"
        )
    name = "output" if "output" in record else "outputs"  # of a table, or with all n best
    if record.get(name) in (None, "", []):  # also in the record of an error
        return [""]
    return [record.text(name.replace("outputs", "outputs.0.text"))]


def _texts_of_corpus(path: Path, side: Side) -> list[list[str]]:
    corpus = open_corpus(path)
    if not isinstance(corpus, Pairs):
        raise DataError(f"{path} holds texts; a corpus of pairs, or a file, is needed")
    decode = corpus_vocab(path).decode
    pairs = map(corpus.record, range(len(corpus)))
    if side == "source":
        return [[" ".join(map(decode, parts))] for parts, _ in pairs]
    return [[decode(target)] for _, target in pairs]
