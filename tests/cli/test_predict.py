"""`unitk predict`: options that have no effect together."""

import json

import pytest

from unitk.api.answering import record
from unitk.data.files.squad import read_questions
from unitk.decoding.files.inputs import Input
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
    [(one, parts)] = read_questions(tmp_path / "dev.json")
    assert json.loads(record(0, Input(parts, id=one), {"answer": "Ann"}))["id"] == "q7"
    assert json.loads(record(3, Input(["a"]), {"label": "x"}))["id"] == 3
