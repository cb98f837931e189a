"""The recipe of THU-ERNIE: links and marks are where the data have them, vectors know company."""

import importlib.util
import json

import entity_files
import numpy as np
import pytest

from unitk.data.corpus.preprocess import Options, preprocess
from unitk.training.loop import train
from unitk.training.start import parse_train, prepare

from .test_recipes import ROOT, recipe

HERE = ROOT / "recipes" / "thu_ernie"


def script(name):
    spec = importlib.util.spec_from_file_location(f"thu_ernie_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # shared.py, as in the recipe
        patch.syspath_prepend(ROOT / "recipes")
        spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def shared_scripts(monkeypatch):
    """The module that scripts of recipes share."""
    monkeypatch.syspath_prepend(ROOT / "recipes")


@pytest.fixture(scope="module")
def data():
    return script("data")


def test_links_are_places_of_characters(data):
    sentence = {
        "tokens": ["ana", "##rch", "##ism", "is", "old", "."],
        "entities": [[0, 3, "Q1"], [4, 5, "Q2"]],
    }
    long = {"tokens": ["word"] * data.WORDS, "entities": [[1, 2, "Q3"]]}
    one, two = data.records({"sentences": [sentence, sentence, long]})
    assert one["text"] == "anarchism is old . anarchism is old ."
    places = [(one["text"][a:b], entity) for a, b, entity in one["links"]]
    assert places == [("anarchism", "Q1"), ("old", "Q2")] * 2
    assert two["links"] == [(5, 9, "Q3")]


def test_vectors_of_entities_that_occur_together_are_near(data):
    rows = [{"links": [(0, 1, name) for name in some]} for some in ["ab", "ac", "xy", "xz"] * 5]
    rows.append({"links": [(0, 1, "once")]})
    names, found = data.vectors(rows)
    assert names == list("abcxyz") and found.shape == (6, data.SIDE)
    near = found @ found.T
    assert np.allclose(near.diagonal(), 1, rtol=1e-3)
    assert near[0, 1] > 0.3 > abs(near[0, 3])  # a is beside b, never beside x


def test_heads_and_tails_are_marked(data, tmp_path):
    one = {
        "tokens": ["Isaac", "Newton", "led", "the", "Royal", "Society", "."],
        "h": ["royal society", "Q7", [[4, 5]]],
        "t": ["isaac newton", "Q5", [[0, 1]]],
    }
    (tmp_path / "fewrel.json").write_text(json.dumps({"P1": [one] * 5}))
    (tmp_path / "vectors.txt").write_text("Q5 0 1\n")
    (tmp_path / "names.tsv").write_text("other\tQ9\n")
    data.fewrel(tmp_path / "fewrel.json", tmp_path)
    (row,) = map(json.loads, (tmp_path / "relations.valid.jsonl").read_text().splitlines())
    wanted = "$ isaac newton $ led the # royal society # ."
    assert row == {"text": wanted, "label": "P1"}
    # a name is added where its entity has a vector
    assert (tmp_path / "names.tsv").read_text() == "other\tQ9\nisaac newton\tQ5\n"


def test_vectors_that_are_given_are_taken(data, tmp_path):
    (tmp_path / "v").write_text("2 2\nQ1 1 2\nQ2 3 4\n")
    names, found = data.read_vectors(tmp_path / "v")
    assert names == ["Q1", "Q2"] and found.tolist() == [[1, 2], [3, 4]]


@pytest.mark.slow
def test_entities_that_the_word_before_tells_are_all_predicted(tmp_path, toy_vocab, capsys):
    """One name stands for six entities: in texts not seen in training, none of them is missed."""
    toy_vocab.save(tmp_path / "vocab")
    linked, rng = entity_files.write_entities(tmp_path, toy_vocab), np.random.default_rng(0)
    words = [toy_vocab.decode([i]) for i in np.flatnonzero(toy_vocab.starts)]
    words = [word for word in words if word.isalpha() and len(toy_vocab.encode(word)) == 1]
    (name, *tells), others = words[:7], words[7:]
    for part, count in {"train": 400, "valid": 100}.items():
        rows = []
        for number in rng.integers(6, size=count).tolist():
            before, behind = (" ".join(rng.choice(others, 3)) for _ in range(2))
            text = f"{before} {tells[number]} {name} {behind}"
            begin = len(f"{before} {tells[number]} ")
            rows.append({"text": text, "links": [[begin, begin + len(name), f"Q{number}"]]})
        (tmp_path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    preprocess(
        Options(
            dest=tmp_path / "data",
            vocab=tmp_path / "vocab",
            input=(str(tmp_path / "train.jsonl"),),
            valid=(str(tmp_path / "valid.jsonl"),),
            source_field=("text",),
            label_field="links",
            labels="links",
        )
    )
    words = f"--task thu_ernie --task.entities {linked['entities']} --task.random-none-keep 0,1,0"
    words += f" --arch thu_ernie_tiny --arch.dropout 0 --data {tmp_path / 'data'} --lr 3e-3"
    words += f" --save-dir {tmp_path / 'run'} --max-steps 150 --max-tokens 1000 --valid none"
    train(prepare(parse_train(f"{words} --writers none --threads 1 --precision fp32".split())))
    capsys.readouterr()
    script("entities").main(str(tmp_path / "run"), str(tmp_path / "data" / "valid"), "0,1,0")
    found = json.loads(capsys.readouterr().out)
    assert found["asked"] == 100 and found["candidates"] == 6
    assert found["most frequent"] < 0.3 and found["accuracy"] == 1


def test_tables_are_of_the_scores(tmp_path):
    found = {"asked": 1071, "candidates": 50, "guess": 0.02, "most frequent": 0.25}
    scores = {"entities-0,1,0": found | {"accuracy": 0.125}, "entities-0,0,1": {"accuracy": 0.75}}
    for number, name in enumerate(("entities", "none")):
        scores[name] = {"class": {"accuracy": 30.0 + number, "f1_macro": 10.0 + number}}
    for name, figures in scores.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(figures))
    script("report").main(tmp_path)
    rows = [
        line.strip("| ").split(" | ") for line in (tmp_path / "table.md").read_text().splitlines()
    ]
    assert rows[0] == ["1,071 names of 50 entities", "right, %"] and rows[7][1:] == [
        "accuracy",
        "f1_macro",
    ]
    assert [row[1] for row in rows[2:6]] == ["2.0", "25.0", "12.5", "75.0"]
    assert [row[1:] for row in rows[9:]] == [["30.0", "10.0"], ["31.0", "11.0"]]


@pytest.mark.slow
def test_the_recipe_runs(tmp_path):
    few = {"PRETRAIN_STEPS": "3", "FINETUNE_STEPS": "3", "RUN": str(tmp_path / "run")}
    printed = recipe("thu_ernie", tmp_path, **few)
    for weights in ("0,1,0", "0,0,1"):
        found = json.loads((tmp_path / "run" / f"entities-{weights}.json").read_text())
        assert found["asked"] == 71 and 0 <= found["accuracy"] <= 1
    for row in ("entities", "none"):
        assert "accuracy" in (tmp_path / "run" / f"{row}.json").read_text()
    assert printed.endswith((tmp_path / "run" / "table.md").read_text())
