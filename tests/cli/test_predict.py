"""`unitk predict`: options that have no effect together."""

import json

import pytest

from unitk.api.answering import record
from unitk.data.files.pairs import Fields, record_blocks
from unitk.decoding.files.inputs import Input, read_inputs, read_questions
from unitk.errors import UsageError
from unitk.verbs import predict


def test_probabilities_need_an_output_of_objects():
    with pytest.raises(UsageError, match="--probabilities .*no effect.* --output-format text"):
        predict.run(["--checkpoint", "x", "a", "--output-format", "text", "--probabilities"])


def test_a_prediction_has_the_id_of_its_question(tmp_path):
    """So that `unitk score` finds it whatever the order; other texts have their number."""
    asked = {"id": "q7", "question": "Who?"}
    tree = {"data": [{"paragraphs": [{"context": "Ann met Bob.", "qas": [asked]}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(tree))
    [question] = read_questions(tmp_path / "dev.json")
    one, parts = question.id, question.parts
    assert json.loads(record(0, Input(parts, id=one), {"answer": "Ann"}))["id"] == "q7"
    assert json.loads(record(3, Input(["a"]), {"label": "x"}))["id"] == 3


@pytest.mark.parametrize("name", ["x.conllu", "x.jsonl"])
def test_the_words_of_a_list_are_those_of_preprocess(tmp_path, name):
    words = [["Vi\u1ec7t Nam", "\u0111\u1eb9p"], ["H\u00e0", "\u200b", "l\u1edbn l\u1eafm"]]
    rows = (
        "".join(f"{i}\t{word}\t_\tX\t_\t_\t0\t_\t_\t_\n" for i, word in enumerate(some, 1))
        if name == "x.conllu"
        else json.dumps({"words": some, "tags": ["X"] * len(some)})
        for some in words
    )
    (tmp_path / name).write_text("".join(f"{row}\n" for row in rows))
    fields = Fields(("words",), (), label="tags", form="tags")
    [block] = record_blocks(tmp_path / name, fields)
    assert [pair.source for pair in block.pairs] == words
    assert [one.parts for one in read_inputs(tmp_path / name, "auto", fields)] == words
