"""`unitk search` finds what a sort of `unitk embed`'s vectors finds."""

import json

import numpy as np
import pytest

import unitk
from unitk.errors import DataError, UsageError
from unitk.families.retrieval import search
from unitk.verbs import embed

TEXTS = ["The badage.", "Depo kasa.", "", "Kasa the depo badage.", "Badage kasa."]


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_data):
    from unitk.verbs import train

    folder = tmp_path_factory.mktemp("runs") / "vectors"
    words = ["--task", "contrastive", "--arch", "bert_tiny", "--data", toy_data / "pairs" / "train"]
    words += ["--save-dir", folder, "--max-steps", "2", "--valid", "none", "--batch-texts", "4"]
    train.run([str(word) for word in words])
    return folder


@pytest.fixture
def files(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("\n".join(TEXTS[:3]) + "\n")
    rows = [{"id": f"x{n}", "text": text} for n, text in enumerate(TEXTS[3:])]
    (tmp_path / "docs" / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "all.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "queries.txt").write_text("Kasa badage.\nDepo kasa.\n")
    return tmp_path


def test_found_are_the_nearest_of_embed(run, files):
    given = ["--checkpoint", str(run), "--input", str(files / "queries.txt"), "--top", "3"]
    out = files / "out.trec"
    search.run([*given, "--documents", str(files / "docs"), "--output", str(out)])
    model = unitk.load(run)
    texts, queries = model.embed(TEXTS), model.embed(["Kasa badage.", "Depo kasa."])
    norm = np.linalg.norm(texts, axis=1)
    cosines = (
        (queries @ texts.T) / np.linalg.norm(queries, axis=1)[:, None] / np.maximum(norm, 1e-9)
    )
    names = np.array(["0", "1", "2", "x0", "x1"])
    cosines[:, 2] = -2  # nothing
    order = np.argsort(-cosines, axis=1)[:, :3]
    lines = [line.split() for line in out.read_text().splitlines()]
    assert [line[2] for line in lines] == names[order].ravel().tolist()
    assert lines[3][:4] == ["1", "Q0", "1", "1"] and float(lines[3][4]) == pytest.approx(
        1, abs=1e-5
    )
    wanted = np.take_along_axis(cosines, order, axis=1).ravel()
    assert np.allclose([float(line[4]) for line in lines], wanted, atol=2e-5)
    found = unitk.search(
        ["Kasa badage.", "Depo kasa."], checkpoint=run, documents=files / "docs", top=9
    )
    assert [len(one["found"]) for one in found] == [4, 4]  # all but the empty one
    assert found[0]["found"][0] == {
        "id": lines[0][2],
        "score": float(lines[0][4]),
        "text": [*TEXTS][order[0, 0]],
    }


def test_stored_vectors_find_the_same(run, files):
    stored = str(files / "v.npy")
    embed.run(["--checkpoint", str(run), "--input", str(files / "all.txt"), "--output", stored])
    found = [
        unitk.search(
            ["Kasa badage."], checkpoint=run, documents=files / "all.txt", dimensions=16, **given
        )
        for given in ({}, {"vectors": stored})
    ]
    assert [one["id"] for one in found[0][0]["found"]] == [
        one["id"] for one in found[1][0]["found"]
    ]
    with pytest.raises(DataError, match=r"v\.npy has 5 x 64 .* 2 texts"):
        unitk.search(["a"], checkpoint=run, documents=files / "queries.txt", vectors=stored)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--documents docs --top 0", "--top"),
        ("--documents docs/a.txt --document-field text", "--document-field has no effect"),
        ("--documents docs --pool none", "--pool none"),
        ("--documents docs/b.jsonl --documents docs/b.jsonl", "id 'x0' comes twice"),
        ("--documents docs/b.jsonl --document-field body", "field 'body'"),
        ("--documents docs/b.jsonl --id-field number", "line 1: .*'number', see --id-field"),
        ("--documents some.jsonl", "some.jsonl, line 2: .*'id', see --id-field"),
        ("--documents null.jsonl", "null.jsonl, line 1: field 'id'"),
        ("--documents docs/a.txt --dimensions 65", "--dimensions 65"),
    ],
)
def test_what_cannot_be_meant_is_named(run, files, monkeypatch, words, message):
    monkeypatch.chdir(files)
    (files / "some.jsonl").write_text('{"text": "a", "id": 1}\n{"text": "b"}\n')
    (files / "null.jsonl").write_text('{"text": "a", "id": null}\n')
    with pytest.raises((UsageError, DataError), match=message):
        search.run(["--checkpoint", str(run), "Kasa.", *words.split()])
