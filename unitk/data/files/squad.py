"""Reader of SQuAD's json, and the forms of a source that is made of answer and passage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unitk.data.files.labels import NO_SPAN, find_answer
from unitk.data.files.lines import name_file, read_text
from unitk.data.files.pairs import PairText
from unitk.data.files.readers import Reader, Record, json_format
from unitk.errors import DataError, require
from unitk.foreign import parse_json
from unitk.registry import register

SQUAD_SOURCE = "{answer} [SEP] {passage}"
SENTENCE = "{sentence}"  # in such a form: the sentences of the answer


@register("reader", "squad")
class Squad(Reader):
    """The questions of a SQuAD json, each with the passage that it is about as the field context.

    A json cannot be read in blocks.
    """

    endings = (".json",)
    holds = "questions"

    def recognizes(self, ending: str, start: bytes) -> bool:
        return not json_format(start)

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        tree = parse_json(read_text(path), name_file(path))
        for i, article in enumerate(_member(tree, "data", list, name_file(path))):
            where = f"{name_file(path)}: data[{i}]"
            for j, paragraph in enumerate(_member(article, "paragraphs", list, where)):
                place = f"{where}.paragraphs[{j}]"
                passage = _member(paragraph, "context", str, place)
                for k, entry in enumerate(_member(paragraph, "qas", list, place)):
                    spot = f"{place}.qas[{k}]"
                    _member(entry, "question", str, spot)
                    yield Record(entry | {"context": passage}, spot)


def check_form(form: str) -> None:
    """Refuse a form of the source that lacks the answer, or passage and sentence, or has both."""
    require(
        "{answer}" in form and ("{passage}" in form) != (SENTENCE in form),
        f"--squad-source needs {{answer}}, and {{passage}} or {{sentence}}, got {form!r}",
    )


def arrange(source: Sequence[str], form: str) -> list[str]:
    """The parts of a source made from answer and passage; [SEP] in `form` ends a part.

    {sentence} stands for what `cut_window` has left of the passage.
    """
    answer, passage = source
    fields = {"{answer}": answer, "{passage}": passage, SENTENCE: passage}
    pieces = [re.split(r"(\{[a-z]+\})", part) for part in form.split("[SEP]")]
    return ["".join(fields.get(piece, piece) for piece in part).strip() for part in pieces]


def read_squad(path: Path, spans: bool = False) -> Iterator[PairText]:
    """Read answer and passage -> question from a SQuAD json; of several answers the first is taken.

    With `spans`, read question and passage -> the place of the answer; target and alternatives are
    the texts of the answers. Questions marked `is_impossible` (SQuAD 2.0) then have no answer;
    otherwise they are left out.
    """
    for record in Squad().records(path):
        asked = [record.text("question").strip(), record.text("context").strip()]
        texts = right_answers(record)
        if not texts:
            if spans:
                yield PairText(asked, "", label=NO_SPAN, where=record.place)
            continue
        answer, *others = map(str.strip, texts)
        starts = record.get("answers.answer_start")
        start = starts[0] if isinstance(starts, list) else starts
        focus, moved = find_answer(texts[0], record.text("context"), start)
        if not spans:
            yield PairText([answer, asked[1]], asked[0], focus=focus, moved=moved)
        elif focus is not None:
            yield PairText(asked, answer, tuple(others), None, [*focus], record.place, moved)
        else:
            raise DataError(f"{record.place}: answer {answer!r} is not in its passage")


def right_answers(record: Record) -> list[str]:
    """The texts of the answers to a question, a list of objects or an object of lists.

    There are none only if it is marked `is_impossible`, or has empty lists, as `datasets` has.
    """
    answers = record.get("answers")
    texts = record.texts("answers.text") if answers else []
    if not (texts or isinstance(answers, dict) or record.get("is_impossible")):
        raise DataError(f"{record.place} has no answer, and is not marked is_impossible")
    return texts


def _member(node: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(node, dict) or not isinstance(node.get(name), kind):
        noun = "list" if kind is list else "text"
        raise DataError(f"{where} has no {noun} {name!r}, so this is not a SQuAD json")
    if kind is str and not node[name].strip():
        raise DataError(f"{where}: the {name} is empty")
    return node[name]
