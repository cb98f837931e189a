"""`unitk check`: five planted faults are found, and clean data and runs pass."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import toy_lines, write_pairs, write_text
from unitk import registry
from unitk.comparison.check import run as check
from unitk.comparison.checks.floors import floors
from unitk.comparison.checks.leaks import LeakCount, search, without_corruption
from unitk.comparison.checks.shared import shared_texts
from unitk.data.corpus.folders import open_corpus
from unitk.data.cuts import Text
from unitk.errors import DataError, UsageError
from unitk.slots import lm


@pytest.fixture
def checked(capsys):
    """`checked(paths)`: the findings as JSON, and the checks that found faults."""

    def call(*words):
        capsys.readouterr()
        try:
            check([*map(str, words), "--output-format", "json", "--device", "cpu"])
            fault = ""
        except DataError as error:
            fault = str(error)
        found = json.loads(capsys.readouterr().out)
        assert bool(fault) == bool(found["faults"])
        return found["findings"], found["faults"]

    return call


def status(findings, check):
    return [one["status"] for one in findings if one["check"] == check]


def test_clean_data_and_runs_pass(checked, runs, toy_data):
    findings, faults = checked(toy_data / "text", runs / "one", runs / "two")
    assert not faults
    assert {one["check"] for one in findings} == {"shared", "floors", "leaks", "equal", "batches"}
    assert status(findings, "leaks") == ["ok"] * 2 == status(findings, "batches")
    # made-up lines repeat each other
    assert checked(toy_data / "pairs", "--shared", "1")[1] == []


def test_a_shared_split_is_found(checked, toy_vocab, tmp_path):
    lines = toy_lines(60)
    write_text(tmp_path / "train", toy_vocab, lines[:40])
    # a document of train, one of it with another last line, and new ones
    held = lines[5:10] + lines[10:14] + lines[40:]
    write_text(tmp_path / "valid", toy_vocab, held)
    train_, valid = (open_corpus(tmp_path / name) for name in ("train", "valid"))
    same, share, size = shared_texts(valid, [train_])
    assert same.tolist() == [True] + [False] * 5
    assert share[0] == 1 and 0.5 < share[1] < 1 and not share[2:].any()
    assert (size == np.maximum(valid.document_lengths() - 12, 0)).all()
    findings, faults = checked(tmp_path)
    assert faults == ["shared"]
    [one] = [one for one in findings if one["check"] == "shared"]
    assert (one["figures"]["exact"], one["figures"]["near"]) == (1, 1)
    assert checked(tmp_path, "--shared", "0.5")[1] == []


def test_a_leak_is_found(toy_vocab):
    """A causal model that is asked for what it reads; the table of `lm` has no such slot."""
    cls = registry.get("task", "lm")

    class Leaking(cls):
        def pretrain(self, text, rng):
            example = super().pretrain(text, rng)
            rows = np.arange(1, len(example.towers["x"]))
            return replace(example, asks=[lm(rows, example.towers["x"].token[rows])])

    text = Text([np.arange(30, 40)], np.zeros(1, np.int64))
    for kind, seen in ((cls, False), (Leaking, True)):
        count = LeakCount()
        search(kind(kind.Config(), toy_vocab), "pretrain", (text,), 0, count)
        assert count.asked > 0
        assert (count.seen == count.asked) == seen and bool(count.example) == seen


@pytest.mark.parametrize(
    "name",
    ["mlm", "pmlm", "glm_infill", "unilm", "xlnet", "t5", "mass", "mdlm", "bd3lm", "spanbert"],
)
def test_no_objective_leaks(name, toy_vocab):
    cls = registry.get("task", name)
    task, count = cls(cls.Config(), toy_vocab), LeakCount()
    for index in range(8):
        rng = np.random.default_rng(index)
        words = rng.choice(task.words, 24)
        text = Text([words], np.zeros(1, np.int64))
        search(without_corruption(task), "pretrain", (text,), index, count)
    assert count.asked > 0 and count.seen == 0


def write_scores(path, score, tokens):
    with path.open("w") as file:
        for (good, bad), (one, two) in zip(score.tolist(), tokens.tolist(), strict=True):
            record = {"sentence_good": "a", "sentence_bad": "b", "score_good": good}
            record |= {"score_bad": bad, "tokens_good": one, "tokens_bad": two}
            file.write(json.dumps(record) + "\n")
    return path


def test_ties_half_precision_and_length_are_found(checked, tmp_path):
    rng = np.random.default_rng(0)
    score, tokens = -30 * rng.random((200, 2)) - 5, rng.integers(5, 12, (200, 2))
    clean = score.astype(np.float32)
    findings, faults = checked(write_scores(tmp_path / "clean.jsonl", clean, tokens))
    assert not faults and [one["status"] for one in findings] == ["ok"] * 3
    tied = clean.copy()
    tied[:20, 1] = tied[:20, 0]
    assert checked(write_scores(tmp_path / "tied.jsonl", tied, tokens))[1] == ["ties"]
    half = score.astype(np.float16).astype(np.float32)
    assert "precision" in checked(write_scores(tmp_path / "half.jsonl", half, tokens))[1]
    longer = np.where(tokens[:, :1] > tokens[:, 1:], [[0, 1]], [[1, 0]])
    by_length = -np.sort(-clean, axis=1)[np.arange(200)[:, None], 1 - longer]
    found = checked(write_scores(tmp_path / "length.jsonl", by_length, tokens))[1]
    assert found == ["length"]


def test_runs_of_another_length_are_found(checked, runs):
    findings, faults = checked(runs)
    assert faults == ["equal"]
    bad = {one["subject"] for one in findings if one["status"] == "FAULT"}
    assert {"updates", "texts"} <= bad <= {"updates", "texts", "tokens"}


def test_floors_are_those_of_counts_by_hand(toy_vocab, tmp_path):
    write_text(tmp_path / "train", toy_vocab, toy_lines(30))
    write_text(tmp_path / "valid", toy_vocab, toy_lines(40)[30:])
    train_, valid = (open_corpus(tmp_path / name) for name in ("train", "valid"))
    found = floors([train_], valid, len(toy_vocab))
    documents = [
        [np.concatenate(one.document(i)).tolist() for i in range(len(one))]
        for one in (train_, valid)
    ]
    size = len(toy_vocab)
    flat = [word for one in documents[0] for word in one]
    unigram = [(flat.count(word) + 1) / (len(flat) + size) for word in range(size)]
    pairs = [pair for one in documents[0] for pair in zip(one, one[1:], strict=False)]
    costs, plain = [], []
    for one in documents[1]:
        for i, word in enumerate(one):
            p = unigram[word]
            plain.append(-np.log(p))
            after = [b for a, b in pairs if i and a == one[i - 1]]
            if after:
                kinds = len(set(after))
                p = (after.count(word) + kinds * p) / (len(after) + kinds)
            costs.append(-np.log(p))
    wanted = {"uniform": np.log(size), "unigram": np.mean(plain), "bigram": np.mean(costs)}
    assert found == pytest.approx(wanted)


def test_what_cannot_be_checked_is_refused(toy_data, toy_vocab, tmp_path):
    with pytest.raises(UsageError, match="--paths"):
        check([])
    with pytest.raises(DataError, match="--paths .*nothing"):
        check([str(tmp_path / "nothing")])
    with pytest.raises(DataError, match="--paths .*"):
        check([str(tmp_path)])
    with pytest.raises(DataError, match="valid/"):
        check([str(toy_data / "text" / "train")])
    (tmp_path / "x.jsonl").write_text('{"score_good": "a"}\n')
    with pytest.raises(DataError, match="x.jsonl.*'score_good'"):
        check([str(tmp_path / "x.jsonl")])
    write_pairs(tmp_path / "train", toy_vocab, toy_lines(3), toy_lines(3))
    with pytest.raises(DataError, match="valid/"):
        check([str(tmp_path)])
