"""`unitk check`: five planted faults are found, and clean data and runs pass."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.comparison.conftest import RUN
from tests.conftest import toy_lines, write_pairs, write_text
from unitk import registry
from unitk.comparison.check import run as check
from unitk.comparison.checks.base import TrainedRun
from unitk.comparison.checks.batches import compare_batches
from unitk.comparison.checks.floors import floors
from unitk.comparison.checks.leaks import LeakCount, search, without_corruption
from unitk.comparison.checks.shared import find_shared
from unitk.comparison.checks.words import (
    HashedTexts,
    Spelling,
    fold_letters,
    folded_words,
    hash_corpus,
    hash_runs,
    hash_texts,
    join_texts,
)
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.data.cuts import Text
from unitk.errors import DataError, UsageError
from unitk.evaluation.pairs import score_pairs
from unitk.slots import lm
from unitk.verbs.preprocess import run as preprocess
from unitk.verbs.train import run as train


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
    names = {"shared", "floors", "leaks", "equal", "batches"}
    assert {one["check"] for one in findings} == names
    assert status(findings, "leaks") == ["ok"] * 2 == status(findings, "batches")
    # made-up lines repeat each other
    assert checked(toy_data / "pairs", "--shared", "1")[1] == []


def hashed(path):
    return join_texts(hash_corpus(open_corpus(path), corpus_vocab(path)))


def test_words_are_hashed_as_they_are_spelt(toy_vocab, tmp_path):
    """Equal words have equal hashes, whatever their pieces are; so have runs and whole texts."""
    lines = toy_lines(12)
    write_text(tmp_path / "data", toy_vocab, lines)
    corpus, texts = open_corpus(tmp_path / "data"), hashed(tmp_path / "data")
    spelt = [
        folded_words(" ".join(map(toy_vocab.decode, corpus.document(i))))
        for i in range(len(corpus))
    ]
    assert texts.lengths.tolist() == [*map(len, spelt)]
    flat = [word for one in spelt for word in one]
    assert len({*texts.words.tolist()}) == len({*flat})
    known = dict(zip(flat, texts.words.tolist(), strict=True))
    assert [known[word] for word in flat] == texts.words.tolist()
    runs = hash_runs(texts.words, 3).tolist()
    words = [tuple(flat[i : i + 3]) for i in range(len(flat) - 2)]
    assert len(set(zip(runs, words, strict=True))) == len({*runs}) == len({*words})
    whole, without = hash_texts(texts)
    # the text that lacks a word, hashed by itself
    for place in (0, 2, len(flat) - 1):
        text = int(np.searchsorted(texts.bounds, place, "right")) - 1
        rest = np.delete(texts.text(text), place - texts.bounds[text])
        alone, _ = hash_texts(HashedTexts(rest, np.array([0, len(rest)])))
        assert alone[0] == without[place] != whole[text]


def test_case_blanks_and_marks_part_no_words():
    assert folded_words("“Don\u2019t”  stop,\tSTRASSE (ﬁne)!") == folded_words(
        "dont STOP straße fine"
    )
    assert folded_words("学校 is 好") == ["学", "校", "is", "好"]
    assert fold_letters(" , ") == [0, 0]


def test_what_a_vocabulary_does_not_know_is_a_letter(toy_vocab):
    spelling = Spelling.of(toy_vocab)
    ids = np.array([40, toy_vocab.unk, toy_vocab.cls])
    texts = spelling.hash_words(ids, np.array([0, 1, 3]), np.array([0, 1, 3]))
    assert texts.lengths.tolist() == [1, 1]


LONG_LINE = "Every old sailor in the harbour knows three songs about the green lantern, he said."
CHANGES = {
    "case": str.upper,
    "blanks": lambda text: text.replace(" ", "   ").replace(",", " , "),
    "marks": lambda text: text.replace(",", "").replace(".", "!"),
    "one-word": lambda text: text.replace("three", "seven"),
    "one-word-more": lambda text: text.replace("three", "three sad"),
    "one-word-less": lambda text: text.replace("three ", ""),
}


def test_texts_that_were_changed_a_little_are_found(checked, tmp_path):
    others = [line for line in toy_lines(90) if line]
    held = [f"A text of its own about {word} and nothing that was said before." for word in "abcde"]
    (tmp_path / "train.txt").write_text("\n".join([*others, LONG_LINE]) + "\n")
    vocab = "--vocab-size 400 --byte-fallback"
    for change, changed in CHANGES.items():
        (tmp_path / "valid.txt").write_text("\n".join([*held, changed(LONG_LINE)]) + "\n")
        words = f"--input {tmp_path}/train.txt --valid {tmp_path}/valid.txt --documents line"
        preprocess(f"{words} {vocab} --dest {tmp_path / change}".split(" "))
        vocab = f"--vocab {tmp_path / change}"
        findings, faults = checked(tmp_path / change)
        [one] = [one for one in findings if one["check"] == "shared"]
        exact = change in ("case", "blanks", "marks")
        assert faults == ["shared"] and "(text 6)" in one["text"], change
        figures = one["figures"]
        assert (figures["exact"], figures["near"]) == (int(exact), int(not exact)), change


def test_a_shared_split_is_found(checked, toy_vocab, tmp_path):
    lines = toy_lines(60)
    write_text(tmp_path / "train", toy_vocab, lines[:40])
    # a document of train, one of it with another last line, and new ones
    held = lines[5:10] + lines[10:14] + lines[40:]
    write_text(tmp_path / "valid", toy_vocab, held)
    train_, valid = (hashed(tmp_path / name) for name in ("train", "valid"))
    found = find_shared(valid, [train_])
    assert found.same.tolist() == [True] + [False] * 5
    share = found.hits / np.maximum(found.runs, 1)
    assert share[0] == 1 and 0.5 < share[1] < 1 and not share[2:].any()
    assert (found.runs == np.maximum(valid.lengths - 12, 0)).all()
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


def test_the_accuracy_of_ties_is_around_that_of_evaluate(checked, tmp_path):
    """Of four pairs one is won and one ties; two of equal sentences count half, whatever scores."""
    pairs = [("a b", "a c", -1.0), ("a d", "a e", -2.0), *[("a f", "a f", -2.0)] * 2]
    lines = [
        {"sentence_good": good, "sentence_bad": bad, "score_good": score, "score_bad": -2.0}
        for good, bad, score in pairs
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    findings, _ = checked(tmp_path / "x.jsonl")
    assert findings[0]["figures"] == {"ties": 1, "pairs": 4}
    assert findings[0]["text"].endswith("50.00 to 75.00")
    right, _ = score_pairs(np.array([[score, -2.0] for _, _, score in pairs]))
    assert right.mean() == (0.5 + 0.75) / 2


def test_scores_of_other_pairs_and_scores_that_are_none_are_found(checked, tmp_path):
    lines = [
        {"sentence_good": f"a {n}", "sentence_bad": "b", "score_good": -1.1 - n, "score_bad": -9.3}
        for n in range(4)
    ]
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path, some in zip(paths, (lines, lines[1:]), strict=True):
        path.write_text("".join(json.dumps(line) + "\n" for line in some))
    findings, faults = checked(*paths)
    assert faults == ["pairs"] and findings[-1]["status"] == "FAULT"
    paths[1].write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))
    assert checked(*paths)[1] == []
    paths[1].write_text(json.dumps(lines[0] | {"score_bad": float("nan")}))
    with pytest.raises(DataError, match="two.jsonl, line 1.*'score_bad'.*nan"):
        check([str(paths[1])])


def test_answers_in_their_own_inputs_are_found(checked, toy_vocab, tmp_path):
    """Targets at the end of their sources, unless the task is to copy; words that tell classes."""
    sources = [line for line in toy_lines(200) if len(line.split()) > 4][:40]
    targets = sources[1:] + sources[:1]
    cases = {
        "clean": (sources, targets, []),
        "leak": ([f"{a} {b}" for a, b in zip(sources, targets, strict=True)], targets, ["answers"]),
        "copies": (sources, sources, []),
    }
    for name, (source, target, wanted) in cases.items():
        write_pairs(tmp_path / name / "train", toy_vocab, source, target)
        write_pairs(tmp_path / name / "valid", toy_vocab, source, target)
        findings, faults = checked(tmp_path / name, "--shared", "1")
        assert faults == wanted and len(status(findings, "answers")) == 2
    for name, mark, wanted in (("plain", "", []), ("marked", " dog dog", ["answers"])):
        rows = [
            {"text": line + mark * (i % 2), "label": "ab"[i % 2]}
            for i, line in enumerate(line.replace("dog", "cat") for line in sources * 2)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = f"--input {path} --valid {path} --vocab {tmp_path / 'clean' / 'train'}"
        words += f" --source-field text --label-field label --dest {tmp_path / name}"
        preprocess(words.split())
        findings, faults = checked(tmp_path / name, "--shared", "1")
        assert faults == wanted
        assert ("'dog'" in findings[0]["text"]) == bool(wanted)


def test_the_layouts_of_a_mixture_are_looked_at(checked, toy_data, tmp_path):
    words = f"{RUN} --data {toy_data / 'text'} --max-steps 1 --save-dir {tmp_path / 'mixed'}"
    train([*words.replace("--task lm", "--task lm=1 --task mlm=1").split()])
    findings, faults = checked(tmp_path / "mixed")
    leaks = [one["subject"].rpartition(" ")[2] for one in findings if one["check"] == "leaks"]
    assert faults == [] and leaks == ["lm", "mlm"]


def test_a_cost_that_depends_on_the_batch_is_found(runs, monkeypatch):
    from unitk.comparison.checks import batches
    from unitk.comparison.estimators import Exact

    class Padded(Exact):
        """Counts the padding after a text."""

        def costs(self, model, task, texts, how):
            longest = max(len(text) for _, text in texts)
            found = super().costs(model, task, texts, how)
            return [one._replace(rest=0.1 * (longest - len(one.tokens))) for one in found]

    run = TrainedRun(runs / "one")
    assert compare_batches(run, "cpu").status == "ok"
    monkeypatch.setattr(batches, "estimator_of", lambda task: Padded())
    assert compare_batches(run, "cpu").status == "FAULT"


def test_runs_of_another_length_are_found(checked, runs):
    findings, faults = checked(runs)
    assert faults == ["equal"]
    bad = {one["subject"] for one in findings if one["status"] == "FAULT"}
    assert {"updates", "texts"} <= bad <= {"updates", "texts", "tokens"}


def test_the_length_of_a_run_is_not_that_of_its_best_checkpoint(checked, runs, toy_data, tmp_path):
    """Runs that read as much are equal, wherever their validation was best."""
    words = f"--data {toy_data / 'text'} --save-dir {tmp_path / 'early'} --max-steps 2"
    train([*RUN.split(), *words.split(), "--save-every", "1", "--seed", "3"])
    best = tmp_path / "early" / "best"
    best.unlink(missing_ok=True)
    best.symlink_to(Path("checkpoints") / "step-1")
    assert TrainedRun(tmp_path / "early").checkpoint.name == "step-1"
    assert checked(runs / "one", runs / "two", tmp_path / "early")[1] == []


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
    with pytest.raises(UsageError, match="PATHS"):
        check([])
    with pytest.raises(DataError, match="PATHS .*nothing"):
        check([str(tmp_path / "nothing")])
    with pytest.raises(DataError, match="PATHS .*"):
        check([str(tmp_path)])
    with pytest.raises(UsageError, match="PATHS names .* twice"):
        check([str(toy_data / "text"), str(toy_data / "text" / ".." / "text")])
    with pytest.raises(DataError, match="PATHS unitk-base-en: its --data train"):
        check(["unitk-base-en"])
    (tmp_path / "ladder/lm/16x1-800/checkpoints").mkdir(parents=True)
    with pytest.raises(DataError, match="PATHS .*name .*16x1-800$"):
        check([str(tmp_path / "ladder/lm/16x1-800/checkpoints")])
    with pytest.raises(DataError, match="PATHS .*ladder/lm$"):
        check([str(tmp_path / "ladder")])
    with pytest.raises(DataError, match="valid/"):
        check([str(toy_data / "text" / "train")])
    (tmp_path / "x.jsonl").write_text('{"score_good": "a"}\n')
    with pytest.raises(DataError, match="x.jsonl.*'score_good'"):
        check([str(tmp_path / "x.jsonl")])
    write_pairs(tmp_path / "train", toy_vocab, toy_lines(3), toy_lines(3))
    with pytest.raises(DataError, match="valid/"):
        check([str(tmp_path)])
