"""Fine-tuning of recurrent models: heads over all states, thawing, the loss over words."""

import json

import labelled_corpora
import numpy as np
import pytest
from exact_options import EXACT
from safetensors.torch import load_file

from unitk.errors import UsageError
from unitk.tasks.understanding.labels import Classify
from unitk.training import loop
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train, prepare
from unitk.verbs import average, convert

FIXED = (
    f"--precision fp32 {EXACT} --valid none --writers none --threads 1 --log-every 1"
    " --max-tokens 500"
)


def train(text):
    loop.train(prepare(parse_train(f"{text} {FIXED}".split())))


def weights(run):
    return load_file(run / "last" / "model.safetensors")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, toy_data, toy_vocab):
    """A language model, and the labelled texts."""
    folder = labelled_corpora.write_corpora(tmp_path_factory.mktemp("runs"), toy_vocab)
    train(f"--task lm --arch awd_lstm_tiny --data {toy_data / 'text'} --max-steps 3"
          f" --save-dir {folder / 'lm'} --lr 1e-2")  # fmt: skip
    return folder


@pytest.mark.every(2)
@pytest.mark.parametrize("pooling", ["concat", "attention"])
def test_a_classifier_goes_on_where_it_stopped(runs, tmp_path, pooling):
    """With layers thawed one by one, at rates that fall by 2.6 from layer to layer (ULMFiT)."""
    words = (
        f"--task classify --task.pooling {pooling} --init-from {runs / 'lm'} --thaw 2 --lr 1e-2"
        f" --data {runs / 'class' / 'train'} --lr-schedule constant --optimizer.layer-decay 0.385"
    )
    train(f"{words} --max-steps 6 --save-dir {tmp_path / 'whole'}")
    for stop in (3, 6):
        train(f"{words} --max-steps {stop} --save-dir {tmp_path / 'parts'} --resume")
    whole, parts, before = (
        weights(run) for run in (tmp_path / "whole", tmp_path / "parts", runs / "lm")
    )
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)
    moved = {name for name, table in before.items() if not whole[name].equal(table)}
    assert {"layers.0.weight_hh", "layers.1.weight_hh"} <= moved
    assert "embed.tokens.weight" not in moved  # its turn would come with the seventh update


def test_the_loss_over_words_counts_less_and_less(runs, tmp_path):
    """The loss is that of the class, plus the weight of the update times that of the words."""
    train(f"--task classify --task.pooling attention --init-from {runs / 'lm'} --max-steps 5"
          f" --task.lm-weight exponential:value=0.2,floor=0.5 --data {runs / 'class' / 'train'}"
          f" --save-dir {tmp_path / 'run'} --lr 1e-3")  # fmt: skip
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if "train/class" in event]
    assert len(events) == 5
    for event in events:
        weight = 0.2 * 0.5 ** (event["step"] / 5)
        expected = event["train/class"] + weight * event["train/lm"]
        assert event["train/loss"] == pytest.approx(expected, rel=1e-5)


def test_heads_over_all_states_are_not_exported(runs, tmp_path):
    train(f"--task classify --task.pooling concat --arch bert_tiny --max-steps 1 --lr 1e-3"
          f" --data {runs / 'class' / 'train'} --save-dir {tmp_path / 'run'}")  # fmt: skip
    with pytest.raises(UsageError, match="transformers .*no class.*head concat"):
        convert.run(f"--from unitk {tmp_path / 'run'} --to hf {tmp_path / 'hf'}".split())


def test_a_row_reads_the_words_in_order_and_last_the_slot_that_has_read_all(toy_vocab):
    words = np.array([40, 41, 42])
    for layout, rows in {"lm": [1, 2, 3, 4], "mlm": [1, 2, 3, 0]}.items():
        task = Classify(Classify.Config(layout=layout, pooling="concat"), toy_vocab)
        task = task.with_trained(labels=("no", "yes"))
        example = task.classify([words], np.array([1]), np.random.default_rng(0))
        assert example.asks[0].rows.tolist() == [rows]
        assert example.asks[0].head == "concat:label" and task.heads == ("concat:label:2",)
        assert example.asks[0].name == "class"
    with pytest.raises(UsageError, match="--task.both-orders needs --task.pooling slot"):
        Classify.Config(pooling="concat", both_orders=True)


def test_an_average_comes_with_the_statistics_of_normalization(runs, tmp_path):
    """Batch normalization counts what it has seen; such numbers are not averaged."""
    words = f"--task classify --task.pooling concat --init-from {runs / 'lm'} --lr 1e-2 --ema 0.5"
    train(f"{words} --data {runs / 'class' / 'train'} --max-steps 3 --save-dir {tmp_path / 'run'}")
    found, last = load(tmp_path / "run").model.state_dict(), weights(tmp_path / "run")
    average = load_file(tmp_path / "run" / "last" / "ema.safetensors")
    kept = {name for name in last if name not in average}
    assert "heads.concat:label.inner.0.running_mean" in kept
    assert all(found[name].equal(last[name]) for name in kept)
    assert all(found[name].equal(table) for name, table in average.items())


@pytest.mark.parametrize("more", ["", "--ema 0.5"])
def test_the_mean_of_checkpoints_has_the_mean_of_their_statistics(runs, tmp_path, more):
    words = f"--task classify --task.pooling concat --init-from {runs / 'lm'} --lr 1e-2 {more}"
    train(f"{words} --data {runs / 'class' / 'train'} --max-steps 4 --save-every 2"
          f" --save-dir {tmp_path / 'run'}")  # fmt: skip
    both = [tmp_path / "run" / "checkpoints" / f"step-{step}" for step in (2, 4)]
    average.run(["--checkpoint", *map(str, both), "--dest", str(tmp_path / "mean")])
    one, other, mean = (load(path).model.state_dict() for path in (*both, tmp_path / "mean"))
    assert "heads.concat:label.inner.0.running_mean" in mean
    for name, found in mean.items():
        if found.is_floating_point():
            assert found.equal(((one[name].double() + other[name]) / 2).to(found.dtype)), name
        else:  # of batches
            assert found.equal(other[name])
