"""Kinds of data whose layouts are a plug-in's: they train, validate and resume like all others."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.data.batching import draw
from unitk.data.corpus.folders import open_corpus
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.data.texts import windows
from unitk.errors import DataError, UsageError
from unitk.slots import Ask, Example, stay
from unitk.tasks.base import Task
from unitk.training.start import parse_train, prepare

from ..conftest import toy_lines

FORMS = {"class": "sorts", "tags": "sorts", "span": "answers", "links": "links"}


def asked(rows, label):
    return Ask(
        "y", "class:y", "x", np.array(rows)[:, None], np.array(label), np.ones(len(rows), "f")
    )


class Sorts(Task):
    """Lays out every kind: a text between C and S, asked where its labels are."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """No options."""

    arch = "bert_tiny"
    classes = ("y",)

    def framed(self, parts):
        tokens = np.concatenate([[self.vocab.cls], *parts, [self.vocab.sep]])
        return {"x": stay(tokens, pos=np.arange(len(tokens)))}

    def classify(self, parts, labels, rng):
        starts = 1 + np.cumsum([0, *map(len, parts)])[: len(labels)]
        return Example(self.framed(parts), [asked(starts if len(labels) > 1 else [0], labels)])

    def answer(self, parts, span, rng):
        borders = np.where(span < 0, 0, 1 + len(parts[0]) + span - [0, 1])
        return Example(self.framed(parts), [asked(borders, [0, 1])])

    def link(self, parts, links, rng):
        rows = [*(1 + links[:, 0]), 0]
        return Example(self.framed(parts), [asked(rows, [*(links[:, 2] % 2), 0])])


@pytest.fixture(autouse=True)
def plugged(own_registry):
    registry.register("task", "sorts")(Sorts)


def label(form, line, i):
    words = line.split()
    return {
        "class": f"c{i % 2}",
        "tags": [f"t{len(word) % 2}" for word in words],
        "span": [line.index(words[1]), line.index(words[1]) + len(words[1])] if i % 3 else None,
        "links": [[0, 3, f"e{i % 2}"]] * (i % 2),
    }[form]


@pytest.fixture
def corpora(tmp_path, toy_vocab):
    """Folders of train/ and valid/ by form of the labels."""
    toy_vocab.save(tmp_path / "vocab")
    for form in FORMS:
        names = {}
        for name, lines in {"train": toy_lines(40), "valid": toy_lines(48)[40:]}.items():
            names[name] = tmp_path / f"{form}-{name}.jsonl"
            records = [
                {"a": "what", "b": line, "y": label(form, line, i)} for i, line in enumerate(lines)
            ]
            names[name].write_text("".join(json.dumps(record) + "\n" for record in records))
        fields = ("a", "b") if form in ("class", "span") else ("b",)
        preprocess(
            Options(
                input=(str(names["train"]),),
                valid=(str(names["valid"]),),
                dest=tmp_path / form,
                vocab=tmp_path / "vocab",
                workers=1,
                source_field=fields,
                label_field="y",
                labels=form,
            )
        )
    return tmp_path


def begin(corpora, form, words="", run="run", task="sorts --arch.class-heads y:2", lr="1e-3"):
    base = f"--task {task} --data {corpora / form} --save-dir {corpora / run}"
    base = f"{base} --max-tokens 300 --precision fp32 --lr {lr} {words}"
    base += "" if "--max-steps" in words else " --max-steps 8"
    return prepare(parse_train(base.split()))


@pytest.mark.every(2)
@pytest.mark.parametrize("form", FORMS)
def test_every_kind_trains_evaluates_and_resumes(corpora, form):
    from unitk.training.loop import train

    def losses(run):
        lines = (corpora / run / "log.jsonl").read_text().splitlines()
        return [
            event.get("train/loss", event.get("valid/loss")) for event in map(json.loads, lines)
        ]

    every = "--log-every 1 --valid-every 4 --save-every 4"
    train(begin(corpora, form, f"{every} --lr-schedule constant", "whole"))
    train(begin(corpora, form, f"{every} --lr-schedule constant --max-steps 4", "parts"))
    train(begin(corpora, form, f"{every} --lr-schedule constant --resume", "parts"))
    found = [[loss for loss in losses(run) if loss is not None] for run in ("whole", "parts")]
    assert found[0] == found[1] and len(found[0]) >= 10
    assert all(np.isfinite(found[0]))


def test_checkpoints_keep_the_labels(corpora):
    """They come back with the model; a run that is resumed or judged has no others."""
    from unitk.evaluation.objective import open_setup
    from unitk.training.loop import train
    from unitk.training.saving import checkpoint

    train(begin(corpora, "class", "--max-steps 1"))
    state = json.loads((corpora / "run" / "last" / "state.json").read_text())
    assert state["labels"] == ["c0", "c1"]
    assert checkpoint.load(corpora / "run").task.trained.labels == ("c0", "c1")
    again = f"--init-from {corpora / 'run'} --max-steps 1"
    assert begin(corpora, "class", again, "next").data.task.trained.labels == ("c0", "c1")
    wanted = r"--data has 2 labels \(t0, t1\), but .*step-1 has 2 \(c0, c1\)"
    for words in ("--resume --new-data", "--resume"):
        with pytest.raises(DataError, match=wanted):
            begin(corpora, "tags", words)
    with pytest.raises(DataError, match=wanted):
        open_setup(corpora / "run", corpora / "tags", torch.device("cpu"))
    # whoever has none yet, or learns something else from them, takes any
    assert begin(corpora, "span", again, "other").data.task.trained.labels == ()


def test_a_separable_set_is_learnt(corpora):
    from unitk.training.loop import train

    train(begin(corpora, "tags", "--max-steps 60 --log-every 60", lr="5e-3"))
    lines = (corpora / "run" / "log.jsonl").read_text().splitlines()
    last = [one["train/loss"] for one in map(json.loads, lines) if "train/loss" in one][-1]
    assert last < 0.5 * np.log(2)


def test_labels_move_with_the_layout_and_with_windows(corpora, toy_vocab):
    data = begin(corpora, "span", "--max-source-len 8").data
    assert data.about == "fine-tuning on answers in passages" and data.kind == "spans"
    corpus = open_corpus(corpora / "span" / "train")
    question, start = windows(*sizes(corpus, 8))
    assert data.train.about.startswith(f"40 questions in {len(start)} windows of up to 8 source")
    assert len(start) > 60 and not data.train.shortened
    found = set()
    for i, (number, first) in enumerate(zip(question, start, strict=True)):
        parts, span = corpus.record(number)
        example = draw(data.train, 1, 0, i)
        x, (ask,) = example.towers["x"], example.asks
        assert len(x) <= data.train.bounds(0)[i] <= 10
        shown = x.token[1 + len(parts[0]) : -1]
        assert shown.tolist() == parts[1][first : first + len(shown)].tolist()
        borders = ask.rows[:, 0]
        if first <= span[0] and span[1] <= first + len(shown):
            found.add(number)
            answer = toy_vocab.decode(x.token[borders[0] : borders[1] + 1])
            assert answer == toy_lines(40)[number].split()[1]
        else:
            assert not borders.any()
    assert found == {i for i in range(40) if i % 3}


def sizes(corpus, most):
    """The tokens of passages, and those that a window has of each."""
    lengths = np.array([[len(part) for part in corpus.record(i)[0]] for i in range(len(corpus))])
    return lengths[:, 1], most - lengths[:, 0]


def test_windows_hold_every_token_and_every_answer_of_half_a_window():
    lengths, sizes = np.meshgrid(np.arange(40), np.arange(1, 30))
    passage, start = windows(lengths.ravel(), sizes.ravel())
    for i, (length, size) in enumerate(zip(lengths.flat, sizes.flat, strict=True)):
        own = start[passage == i]
        assert own[0] == 0 and own[-1] == max(length - size, 0)
        assert (np.diff(own) > 0).all() and (np.diff(own) <= max(size // 2, 1)).all()
        assert (len(own) == 1) == (length <= size)
        for first in range(length - (size + 1) // 2 + 1):
            stop = first + (size + 1) // 2
            assert ((own <= first) & (stop <= own + size)).any()
    assert [one.tolist() for one in windows(np.array([9, 5]), np.array([0, 2]))] == [
        [0, 1, 1, 1, 1],
        [0, 0, 1, 2, 3],
    ]


def test_a_question_that_is_too_long_is_shortened(corpora):
    train = begin(corpora, "span", "--max-source-len 1").data.train
    wanted = "40 of 40 questions are shortened to 1 source tokens (--max-source-len)"
    assert train.shortened == wanted
    assert {len(draw(train, 1, 0, i).towers["x"]) for i in range(40)} == {3}


def test_labels_are_those_of_the_words(corpora, toy_vocab):
    tags = begin(corpora, "tags").data
    assert tags.task.trained.labels == ("t0", "t1")
    for i in range(40):
        example = draw(tags.train, 1, 0, i)
        names = [f"t{len(word) % 2}" for word in toy_lines(40)[i].split()]
        assert [tags.task.trained.labels[y] for y in example.asks[0].label] == names


def test_what_a_task_cannot_do_and_other_labels_are_named(corpora):
    able = "choice, classify, cloze, mtdnn, multi_label, regress, sorts, tag"
    with pytest.raises(UsageError, match=f"lm .*trained.*texts.*; {able} can"):
        begin(corpora, "class", task="lm --arch gpt2_tiny")
    with pytest.raises(UsageError, match="class.* holds labelled.*span.* holds spans"):
        begin(corpora, "class", f"--valid {corpora / 'span'}")
    with pytest.raises(DataError, match="class.*labels.*class.*tags.* of tags"):
        begin(corpora, "class", f"--valid {corpora / 'tags'}")
    records = (corpora / "class-train.jsonl").read_text().replace('"c1"', '"c2"')
    (corpora / "class-train.jsonl").write_text(records)
    others = {"source_field": ("a", "b"), "label_field": "y", "dest": corpora / "others"}
    files = {"input": (str(corpora / "class-train.jsonl"),), "vocab": corpora / "vocab"}
    preprocess(Options(workers=1, **files, **others))
    with pytest.raises(DataError, match="has .*labels.*: preprocess.*once"):
        begin(corpora, "class", f"--valid {corpora / 'others' / 'train'}")


def test_columns_of_conll_are_records_of_words_and_tags(tmp_path):
    from unitk.data.files.readers import records

    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER\n")
    found = [(record.values, record.place) for record in records(path)]
    assert found == [
        (
            {
                "words": ["EU", "rejects"],
                "tags": ["B-ORG", "O"],
                **{"0": ["EU", "rejects"], "1": ["NNP", "VBZ"], "2": ["B-ORG", "O"]},
            },
            f"{path}, line 3",
        ),
        (
            {"words": ["Peter"], "tags": ["B-PER"], "0": ["Peter"], "1": ["NNP"], "2": ["B-PER"]},
            f"{path}, line 7",
        ),
    ]
    path.write_text("a O\nb\n")
    with pytest.raises(DataError, match="a.conll, line 2: 1 column, but 2 before"):
        list(records(path))
