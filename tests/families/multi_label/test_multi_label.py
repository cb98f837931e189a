"""Several classes a text: the loss by hand, sets that are learnt, stored and scored."""

import json

import numpy as np
import pytest
import torch

import unitk
from tests.conftest import toy_lines
from unitk.data.corpus.corpus import Labelled
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.data.files.labels import label_of
from unitk.errors import DataError, UsageError
from unitk.families.multi_label.head import ClassesHead
from unitk.metrics.labels import class_sets
from unitk.models.config import ModelConfig
from unitk.training.loop import train as train_run
from unitk.training.start import parse_train, prepare


def record(i):
    """A record with two words that have a class each; neither, one or both are there."""
    words = toy_lines(i + 1)[i].lower().rstrip(".").split()
    marked = {"la": i % 2, "na": i // 2 % 2}
    text = " ".join([*words, *(f"{one}{one}" for one, there in marked.items() if there)])
    return {"a": text, "y": [one for one, there in marked.items() if there]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, toy_vocab):
    folder = tmp_path_factory.mktemp("classes")
    toy_vocab.save(folder / "vocab")
    for name, some in {"train": range(160), "valid": range(160, 200)}.items():
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(record(i)) for i in some))
    given = {"source_field": ("a",), "label_field": "y", "labels": "classes", "workers": 1}
    files = {"input": (str(folder / "train.jsonl"),), "valid": (str(folder / "valid.jsonl"),)}
    preprocess(Options(**files, **given, vocab=folder / "vocab", dest=folder / "data"))
    return folder


def test_records_have_their_classes_back(corpus):
    stored = Labelled(corpus / "data" / "train")
    assert stored.labels == ["la", "na"] and stored.form == "classes"
    for i in (0, 1, 2, 3, 159):
        assert [stored.labels[one] for one in stored.record(i)[1]] == record(i)["y"]


def test_the_loss_is_the_mean_of_logistic_losses():
    head = ClassesHead(ModelConfig(), 10, 3)
    logits = torch.tensor([[0.0, 2.0, -1.0], [1.0, 0.0, 0.5]])
    label = torch.tensor([[1.0, 0, 1], [0, 0, 0]])
    found = head.terms(logits, label, torch.tensor([1.0, 2.0])).loss
    p = 1 / (1 + np.exp(-logits.double().numpy()))
    each = -np.log(np.where(label.numpy() == 1, p, 1 - p)).mean(-1)
    assert found.tolist() == pytest.approx([each[0], 2 * each[1]], rel=1e-5)
    mean = head.mean([logits, -logits]).sigmoid()
    assert mean.flatten().tolist() == pytest.approx([0.5] * 6)


def test_models_that_are_sure_agree_on_finite_logits():
    logits = torch.tensor([[[20.0, -120.0, 3.0]], [[25.0, -110.0, 1.0]]])
    yes, no = ((sign * logits.double()).sigmoid().mean(0).log() for sign in (1, -1))
    mean = ClassesHead(ModelConfig(), 10, 3).mean([*logits])
    assert mean[0].tolist() == pytest.approx((yes - no)[0].tolist(), rel=1e-5)


@pytest.mark.slow
def test_sets_are_learnt_predicted_and_scored(corpus, tmp_path):
    words = f"--task multi_label --arch bert_tiny --data {corpus / 'data'} --max-steps 60"
    words += " --batch-tokens 1200 --lr 4e-3 --device cpu --precision fp32 --seed 1"
    words += f" --save-dir {tmp_path / 'run'}"
    train_run(prepare(parse_train(words.split())))
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").open()]
    valid = [one for one in records if one["kind"] == "valid"][-1]
    texts = [record(i)["a"] for i in range(160, 200)]
    said = unitk.predict(texts, checkpoint=tmp_path / "run", probabilities=True, device="cpu")
    # the loss and F1 of validation are those of what is predicted
    losses, right, named = [], 0, 0
    for i, one in enumerate(said, 160):
        wanted, odds = record(i)["y"], one["probabilities"]
        assert one["labels"] == [name for name, p in odds.items() if p > 0.5]
        losses.append(np.mean([-np.log(p if k in wanted else 1 - p) for k, p in odds.items()]))
        right += 2 * len({*wanted} & {*one["labels"]})
        named += len(wanted) + len(one["labels"])
    assert valid["valid/loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    assert valid["valid/labels/f1"] == pytest.approx(right / named)
    assert right / named > 0.9
    data = corpus / "data" / "valid"
    figures = unitk.evaluate(checkpoint=tmp_path / "run" / "last", data=data, device="cpu")
    assert figures["labels/f1"] == pytest.approx(right / named)
    scores = unitk.score(
        metric="classes", hypotheses=said, references=corpus / "valid.jsonl", label_field="y"
    )
    assert scores["classes"].figures["f1_micro"] == pytest.approx(100 * right / named)


def test_scores_by_hand():
    """The second text has no prediction, the third none and no class."""
    found = class_sets([["a", "b"], [], [], ["a"]], [["a"], ["b", "c"], [], ["a"]]).figures
    assert found == {
        "accuracy": 50,
        "f1_micro": pytest.approx(100 * 4 / 7),
        "precision_micro": pytest.approx(200 / 3),
        "recall_micro": 50,
        "f1_macro": pytest.approx(100 * 2 * 0.375 * 0.5 / 0.875),
        "precision_macro": 37.5,
        "recall_macro": 50,
    }
    nothing = class_sets([[]], [[]]).figures
    assert nothing.pop("accuracy") == 100 and not any(nothing.values())


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (["b", "a", "b"], ["b", "a"]),
        ([], []),
        ("b, a", ["b", "a"]),
        ('["a, b"]', ["a, b"]),
        ([1], ["1"]),
    ],
)
def test_labels_of_files(value, label):
    assert label_of(value, "classes", "here") == label


@pytest.mark.parametrize("value", ["", None, 3, [[]], ["a", ""], {"a": 1}])
def test_labels_that_are_none(value):
    with pytest.raises(DataError, match="here .*list of labels"):
        label_of(value, "classes", "here")


def test_other_labels_are_refused(corpus, tmp_path):
    words = f"--task classify --arch bert_tiny --data {corpus / 'data'} --save-dir {tmp_path / 'x'}"
    with pytest.raises(UsageError, match="form class, .* classes"):
        prepare(parse_train([*words.split(), "--max-steps", "1"]))
