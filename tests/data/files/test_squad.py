"""Questions of SQuAD's json, and where their answers are."""

import json
from dataclasses import replace

import pytest
from packed_files import write

from unitk.data.files.columns import read_answers, read_labels
from unitk.data.files.labels import find_answer
from unitk.data.files.pairs import PairText
from unitk.data.files.squad import read_squad
from unitk.decoding.files.inputs import read_questions
from unitk.errors import DataError

QUESTION = {"question": " Who? ", "answers": [{"text": "Ann"}, {"text": "Bob"}]}


def squad(**paragraph):
    entry = {"context": "Ann met Bob.", "qas": [QUESTION], **paragraph}
    return {"data": [{"title": "x", "paragraphs": [entry]}]}


def test_squad_asks_for_the_first_answer(tmp_path):
    impossible = {"question": "Why?", "answers": [], "is_impossible": True}
    tree = squad(qas=[QUESTION, impossible, {**QUESTION, "question": "What?"}])
    path = write(tmp_path / "x.json.gz", json.dumps(tree))
    assert list(read_squad(path)) == [
        PairText(["Ann", "Ann met Bob."], "Who?", focus=(0, 3)),
        PairText(["Ann", "Ann met Bob."], "What?", focus=(0, 3)),
    ]


@pytest.mark.parametrize(
    ("start", "focus"),
    [(11, (9, 12)), (2, (0, 3)), (None, (0, 3)), (3, (0, 3)), (-5, (0, 3))],
)
def test_an_answer_is_where_it_is_said_to_be_or_near_it(tmp_path, start, focus):
    question = {"question": "Who?", "answers": [{"text": "Ann", "answer_start": start}]}
    tree = squad(context="  Ann, not Annie", qas=[question])
    (found,) = read_squad(write(tmp_path / "x.json", json.dumps(tree)))
    assert found.focus == focus and found.source[1][slice(*focus)] == "Ann"


MOVES = "😀 Köln war alt. Ann zog nach Köln 😀, dann weg von Köln."


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "count",
    [
        len,
        lambda text: len(text.encode("utf-16-le")) // 2,  # as JavaScript counts
        lambda text: len(text.encode()),
        lambda text: len(text) + 3,
        lambda text: len(text) - 2,
        lambda text: len(text) + 1,
    ],
)
def test_a_start_in_other_units_or_off_by_few_means_the_same_answer(tmp_path, number, count):
    start = [at for at in range(len(MOVES)) if MOVES.startswith("Köln", at)][number]
    said = count(MOVES[:start])
    question = {"question": "Wo?", "answers": [{"text": "Köln", "answer_start": said}]}
    path = write(tmp_path / "x.json", json.dumps(squad(context=MOVES, qas=[question])))
    (found,), (span,) = read_squad(path), read_squad(path, spans=True)
    assert found.focus == (*span.label,) == (start, start + 4)
    assert found.moved == span.moved == (said != start)


@pytest.mark.parametrize("said", [15, 15.0, "15"])
def test_a_start_is_a_number_however_it_is_written(said):
    assert find_answer("Ann", "Ann was not an Ann", said) == ((15, 18), False)
    assert find_answer("Ann", "Ann was not an Ann", -3) == ((0, 3), False)


@pytest.mark.parametrize("answer", ["New  York", "new york", "New\u00a0York", "NEW\nYORK"])
def test_blanks_and_case_of_an_answer_may_differ(answer):
    passage = " In York, New \n York and New York."
    assert find_answer(answer, passage, 25) == ((24, 32), False)
    assert find_answer(answer, passage, 23) == ((24, 32), True)
    assert find_answer(answer, passage, None) == ((9, 19), False)
    assert find_answer("New York", passage, 0) == ((24, 32), True), "the same spelling comes first"


def test_occurrences_may_overlap():
    assert find_answer("aa", "baaab", 2) == ((2, 4), False)
    assert find_answer("aa", "baaab", 3) == ((2, 4), True)


@pytest.mark.parametrize("spans", [False, True])
def test_answers_as_lists_are_those_of_objects(tmp_path, spans):
    """The lists are those of `datasets`."""
    objects = [{"text": "Ann", "answer_start": 9}, {"text": "Bob", "answer_start": 1}]
    lists = {key: [answer[key] for answer in objects] for key in objects[0]}
    found = []
    for name, answers, none in (("a", objects, []), ("b", lists, {"text": [], "answer_start": []})):
        impossible = {"question": "Why?", "answers": none, "is_impossible": name == "a"}
        tree = squad(
            context="Bob met Ann", qas=[{"question": "Who?", "answers": answers}, impossible]
        )
        path = write(tmp_path / f"{name}.json", json.dumps(tree))
        pairs = [replace(pair, where="") for pair in read_squad(path, spans)]
        found.append((pairs, [*read_answers(path)]))
    assert found[0] == found[1] and len(found[0][0]) == 1 + spans


def test_a_blank_before_an_answer_is_counted(tmp_path):
    question = {"question": "Who?", "answers": [{"text": " Ann ", "answer_start": 14}]}
    tree = squad(context="Ann was not an Ann .", qas=[question])
    (found,) = read_squad(write(tmp_path / "x.json", json.dumps(tree)))
    assert found.focus == (15, 18) and not found.moved


def test_questions_need_no_answers(tmp_path):
    asked = [{"question": " a "}, {"question": "b", "answers": []}, QUESTION]
    asked.append({"question": "c", "answers": [{"text": "nowhere"}]})
    path = write(tmp_path / "x.json", json.dumps(squad(qas=asked)))
    found = [[question, "Ann met Bob."] for question in ("a", "b", "Who?", "c")]
    assert [question.parts for question in read_questions(path)] == found


def test_right_answers_need_no_place(tmp_path):
    asked = [QUESTION, {"question": "a", "answers": [{"text": " nowhere "}]}]
    asked.append({"question": "b", "is_impossible": True})
    path = write(tmp_path / "x.json", json.dumps(squad(qas=asked)))
    assert [right for _, right in read_answers(path)] == [["Ann", "Bob"], ["nowhere"], []]
    found = read_labels(path, "span", "answer", "--label-field")
    assert [one.label for one in found] == [["Ann", "Bob"], ["nowhere"], []]


def test_an_answer_may_be_nowhere(tmp_path):
    question = {"question": "Who?", "answers": [{"text": "Carl"}]}
    (found,) = read_squad(write(tmp_path / "x.json", json.dumps(squad(qas=[question]))))
    assert found.focus is None


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "x.json has no list 'data', so this is not a SQuAD json"),
        ({"data": [{"title": "x"}]}, r"x.json: data\[0\] has no list 'paragraphs'"),
        (squad(context=3), r"data\[0\].paragraphs\[0\] has no text 'context'"),
        (squad(qas=[{"answers": []}]), r"qas\[0\] has no text 'question'"),
        (squad(qas=[{"question": "a"}]), r"qas\[0\] has no answer, and is not"),
        (squad(qas=[{"question": "a", "answers": 3}]), r"qas\[0\]: no field 'answers.text'"),
        (squad(qas=[{"question": "a", "answers": []}]), r"qas\[0\] has no answer, and is not"),
        (squad(qas=[{"question": "a", "answers": ["b"]}]), r"qas\[0\]: no field 'answers.text'"),
        (squad(qas=[QUESTION, {**QUESTION, "question": " "}]), r"qas\[1\]: the question is empty"),
        (squad(context="\n"), r"paragraphs\[0\]: the context is empty"),
    ],
)
def test_what_is_no_squad(tmp_path, tree, message):
    with pytest.raises(DataError, match=message):
        list(read_squad(write(tmp_path / "x.json", json.dumps(tree))))
    with pytest.raises(DataError, match="x.json: not JSON"):
        list(read_squad(write(tmp_path / "x.json", "{")))


def test_right_answers_in_cells_of_csv_are_those_of_records(tmp_path):
    answers = {"text": ["1040", "in 1040"], "answer_start": [20, 17]}
    found = []
    for name, spell in (("a.csv", json.dumps), ("b.csv", repr), ("c.jsonl", None)):
        path = tmp_path / name
        if spell:
            path.write_text('answers\n"' + spell(answers).replace('"', '""') + '"\n')
        else:
            path.write_text(json.dumps({"answers": answers}) + "\n")
        if spell is repr:  # it was the only right answer
            with pytest.raises(DataError, match=r"b.csv, line 2.*not JSON.*double quotes"):
                read_labels(path, "span", "answers", "--label-field")
        else:
            found.append([read.label for read in read_labels(path, "span", "answers", "")])
    assert found == [[answers["text"]]] * 2
