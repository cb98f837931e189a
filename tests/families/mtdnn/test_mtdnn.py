"""Several labelled corpora at once: heads, the joint mean, prediction, and going on with one."""

import json

import labelled_corpora
import numpy as np
import pytest
import torch
from exact_options import EXACT
from safetensors.torch import load_file

import unitk
from unitk.data.batching import FixedBatches
from unitk.errors import DataError, UsageError
from unitk.training import loop
from unitk.training.loop import Trainer
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train, prepare

FIXED = f"--precision fp32 {EXACT} --writers none --threads 1 --log-every 1 --max-tokens 600"
NAMES = "class", "number", "tags"


def start(text):
    return prepare(parse_train(f"{text} {FIXED}".split()))


def words(folder, names=NAMES):
    return "--task mtdnn --arch bert_tiny --lr 3e-3 " + " ".join(
        f"--data {folder / name}" for name in names
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory, toy_vocab):
    folder = labelled_corpora.write_corpora(tmp_path_factory.mktemp("runs"), toy_vocab)
    loop.train(start(f"{words(folder)} --max-steps 30 --save-dir {folder / 'run'}"))
    return folder


def test_each_corpus_has_a_head_and_a_validation(runs):
    table = load_file(runs / "run" / "last" / "model.safetensors")
    heads = {name.split(".")[1] for name in table if name.startswith("heads.")}
    assert heads >= {"class:class", "regress:number", "tag:tags"}
    assert len(table["heads.class:class.out.weight"]) == 2
    lines = [json.loads(line) for line in (runs / "run" / "log.jsonl").read_text().splitlines()]
    last = {key: value for line in lines for key, value in line.items()}
    assert {f"{name}/loss" for name in NAMES} <= last.keys()
    assert last["tags/labels/correct"] == last["tags/tags/correct"] > 0.7
    assert "number/labels/correct" not in last


def test_the_loss_is_the_mean_over_the_labels_of_all_corpora(runs, tmp_path):
    """Also where micro-batches have other corpora: sums and counts are added up first."""
    trainer = Trainer(start(f"{words(runs)} --max-steps 1 --save-dir {tmp_path / 'run'}"))
    trainer.model.eval()
    total = rows = 0.0
    for _, batch in FixedBatches(trainer.data.train, 600, texts=60):
        batch = batch.to(trainer.device)
        loss = trainer.criterion(trainer.model, batch, 0, None)
        each = [loss.parts[f"{name}/loss"] for name in NAMES if name in batch.asks]
        assert len(batch.asks) >= 1 and set(loss.sums) == {"labels"}
        torch.testing.assert_close(loss.sums["labels"], torch.stack(each).sum())
        counts = trainer.criterion.counts(batch)
        assert counts["labels"] == sum(len(ask.label) for ask in batch.asks.values())
        total, rows = total + float(loss.sums["labels"].detach()), rows + counts["labels"]
    assert rows > 60, "a text has a tag for each word"
    assert total / rows < 3


def test_prediction_names_the_corpus(runs):
    text = ["The baba lala kelo."]
    for name, key in (("class", "label"), ("number", "value"), ("tags", "tags")):
        model = unitk.load(runs / "run", options={"task.corpus": name})
        [found] = model.predict(text)
        assert key in found
    with pytest.raises(UsageError, match="--task.corpus .*class, number"):
        unitk.load(runs / "run").predict(text)
    with pytest.raises(UsageError, match="--task.corpus no: .*class"):
        unitk.load(runs / "run", options={"task.corpus": "no"}).predict(text)


def test_fine_tuning_goes_on_with_the_head_of_a_corpus(runs, tmp_path):
    before = load(runs / "run" / "last").tensors()
    one = f"{words(runs, ['class'])} --init-from {runs / 'run' / 'last'}"
    trainer = Trainer(start(f"{one} --max-steps 1 --save-dir {tmp_path / 'one'}"))
    after = dict(trainer.model.named_parameters())
    assert {name for name in after if "tags" in name or "regress" in name} == set()
    for name in ("heads.class:class.out.weight", "layers.0.attention.qkv.weight"):
        assert torch.equal(after[name].cpu(), before[name])
    plain = f"--task classify --data {runs / 'class'} --init-from {runs / 'run' / 'last'}"
    trainer = Trainer(start(f"{plain} --lr 1e-3 --max-steps 1 --save-dir {tmp_path / 'plain'}"))
    assert "heads.class:label.out.weight" in dict(trainer.model.named_parameters())


def test_evaluation_is_of_one_corpus(runs):
    found = unitk.evaluate(checkpoint=runs / "run", data=runs / "number")
    assert found["loss"] == pytest.approx(found["number/loss"], rel=1e-6)


def test_shares_of_corpora_follow_their_sizes(runs, tmp_path):
    """The exponent 0 gives equal shares, whatever --data says; 1 what it says."""
    data = f"--data {runs / 'class'}=3 --data {runs / 'number'}"
    given = f"--task mtdnn --arch bert_tiny --lr 1e-3 {data} --max-epochs 3"
    shares = {}
    for exponent in ("1", "0", "linear:floor=0"):
        option = f"--data-exponent {exponent} --save-dir {tmp_path / 'run'}"
        examples = start(f"{given} {option}").data.train
        weights = [examples.weights(epoch).reshape(2, -1).sum(1) for epoch in range(3)]
        shares[exponent] = np.array([one / one.sum() for one in weights])
        assert all(one.sum() == pytest.approx(640) for one in weights)
    assert shares["1"] == pytest.approx(np.array([[0.75, 0.25]] * 3))
    assert shares["0"] == pytest.approx(np.array([[0.5, 0.5]] * 3))
    half = 3**0.5 / (1 + 3**0.5)  # in the second of three epochs the exponent is a half
    assert shares["linear:floor=0"][:, 0] == pytest.approx([0.75, half, 0.5])
    with pytest.raises(UsageError, match="--data-exponent .*one corpus"):
        start(f"{words(runs, ['class'])} --max-steps 1 --data-exponent 0 --save-dir {tmp_path}/x")
    with pytest.raises(UsageError, match="--data-exponent.*--max-epochs"):
        of_epochs = "--data-exponent linear --max-steps 1"
        trained = start(f"{words(runs)} {of_epochs} --save-dir {tmp_path / 'x'}").data.train
        trained.weights(0)


def test_what_cannot_be_learnt_together_is_refused(runs, tmp_path):
    run = f"--max-steps 1 --save-dir {tmp_path / 'run'}"
    with pytest.raises(UsageError, match="number, tags.* choice"):
        start(f"{words(runs, ['class', 'choice'])} {run}")
    with pytest.raises(UsageError, match="labelled.* spans"):
        start(f"{words(runs, ['class', 'span'])} {run}")
    with pytest.raises(UsageError, match="--valid .*no --data.* tags"):
        start(f"{words(runs, ['class'])} --valid x={runs / 'tags' / 'valid'} {run}")
    with pytest.raises(UsageError, match="--task.corpus number .*training"):
        start(f"{words(runs)} --task.corpus number {run}")
    with pytest.raises(DataError, match="class, .*number"):
        data = f"--data {runs / 'class'} --data {runs / 'number'}"
        start(f"--task classify --lr 1e-3 {data} {run}")
