"""Towers from checkpoints of their own, and an encoder's vocabulary in the checkpoint."""

import logging
import re

import numpy as np
import pytest
import torch

from unitk.errors import CheckpointError, NonFiniteError, UsageError
from unitk.files import seal
from unitk.models.state import Reading
from unitk.registry import get
from unitk.slots import collate
from unitk.training.loop import Trainer
from unitk.training.run import load_tower
from unitk.training.saving import checkpoint
from unitk.training.saving.weights import WEIGHTS, load_tensors, save_tensors

OPTIMUS = "--task optimus --arch optimus_tiny --max-steps 2 --criterion.beta 1"


def weights(path):
    return checkpoint.load(path).model.state_dict()


def test_both_towers_begin_with_the_weights_of_other_runs(train, start, tmp_path):
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    train("--task lm --arch gpt2_tiny --max-steps 1", run="gpt")
    words = f"--init-encoder {tmp_path / 'bert'} --init-decoder {tmp_path / 'gpt'}"
    begun = start(f"{OPTIMUS} {words}", run="vae")
    assert "encoder of" in str(begun.beginning) and "decoder of" in str(begun.beginning)
    model = Trainer(begun).model.cpu().state_dict()
    bert, gpt = weights(tmp_path / "bert"), weights(tmp_path / "gpt")
    for name, tensor in model.items():
        if name.startswith("encoder."):
            assert torch.equal(tensor, bert[name.removeprefix("encoder.")]), name
        elif not name.startswith(("pool.", "bridge.", "memory.", "embedding.")):
            assert torch.equal(tensor, gpt[name]), name


def test_what_does_not_fit_is_named(train, start, tmp_path):
    train("--task lm --arch gpt2_tiny --arch.width 32 --max-steps 1", run="narrow")
    narrow = tmp_path / "narrow"
    with pytest.raises(CheckpointError, match=r"--init-decoder .*embed.tokens.weight has shape"):
        Trainer(start(f"{OPTIMUS} --init-decoder {narrow}", run="vae"))
    train("--task lm --arch gpt2_tiny --max-steps 1", run="gpt")
    with pytest.raises(
        UsageError, match=r"--arch.norm-first is off.*choose another --arch.encoder"
    ):
        start(f"{OPTIMUS} --init-encoder {tmp_path / 'gpt'}", run="vae")
    train("--task mlm --arch bert_tiny --arch.num-segments 0 --max-steps 1", run="bert")
    with pytest.raises(CheckpointError, match=r"--init-encoder .*no tensor embed.segments"):
        Trainer(start(f"{OPTIMUS} --init-encoder {tmp_path / 'bert'}", run="vae"))
    with pytest.raises(UsageError, match="--arch glm_tiny .*no encoder"):
        Trainer(start(f"--max-steps 1 --init-encoder {narrow}", run="vae"))
    with pytest.raises(UsageError, match="--init-from excludes --init-encoder"):
        start(f"{OPTIMUS} --init-from {narrow} --init-encoder {narrow}", run="vae")


@pytest.mark.parametrize("fault", ["nan", "shape"])
def test_nothing_is_copied_of_weights_that_are_refused(train, start, tmp_path, fault):
    """Whatever is wrong with the last tensor, and whichever way they come in."""
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    [path] = (tmp_path / "bert/checkpoints").iterdir()
    tensors = {name: one.clone() for name, one in load_tensors(path / WEIGHTS).items()}
    wrong = {"nan": torch.full_like, "shape": lambda one, _: one.repeat(2)}[fault]
    tensors["layers.1.ffn_norm.bias"] = wrong(tensors["layers.1.ffn_norm.bias"], torch.nan)
    save_tensors(tensors, path / WEIGHTS)
    (path / "manifest.json").unlink()
    seal(path)
    two = Trainer(start(f"{BART} {LIKE_BERT}", run="bart"))
    one = Trainer(start("--task mlm --arch bert_tiny --max-steps 1 --seed 5", run="other"))
    for trainer, load in (
        (two, lambda model: load_tower(model, "encoder", path, two.data.task)),
        (one, lambda model: checkpoint.load_weights(model, path)),
    ):
        model = trainer.model
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with pytest.raises((CheckpointError, NonFiniteError), match="layers.1.ffn_norm.bias"):
            load(model)
        after = model.state_dict()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_resumed_run_has_obeyed_them(train, start, tmp_path):
    train("--task lm --arch gpt2_tiny --max-steps 1", run="gpt")
    words = f"{OPTIMUS} --resume --init-decoder {tmp_path / 'gpt'}"
    assert str(start(words, run="vae").beginning).startswith("decoder of ")
    train(words, run="vae")
    assert str(start(words, run="vae").beginning).startswith("resumed from ")


def test_a_checkpoint_takes_the_encoders_vocabulary_along(train, tmp_path, toy_data):
    from unitk.vocab.train import train_vocab

    lines = ["the cat sat on the mat", "a dog ate the cat", "the mat is red"] * 20
    other = tmp_path / "other"
    train_vocab(iter(lines), size=40, kind="bpe").save(other)
    train(f"{OPTIMUS} --task.source-vocab {other}", run="vae")
    train(f"{OPTIMUS} --task.source-vocab {other} --resume --max-steps 3", run="vae")
    moved = other.rename(tmp_path / "gone")
    loaded = checkpoint.load(tmp_path / "vae")
    assert loaded.task.source_vocab.hash != loaded.vocab.hash
    assert len(loaded.model.reader.embed.tokens.weight) == len(loaded.task.source_vocab)
    assert len(loaded.model.decoder.embed.tokens.weight) == len(loaded.vocab)
    assert moved.exists()


BART = "--task mass --arch bart_tiny --max-steps 1 --arch.position-offset 0"
LIKE_BERT = "--arch.num-segments 2 --arch.norm-eps 1e-12 --arch.max-positions 512"


def states(model, batch):
    """The encoder's states, of the only tower or of one of two."""
    with torch.no_grad():
        slots = batch.towers["enc"]
        return model.reader.eval().encode(Reading(slots, "full", slots.shape[2]))


@pytest.fixture
def sources(toy_vocab):
    """A batch of two towers."""
    task = get("task", "seq2seq")
    made = task(task.Config(), toy_vocab)
    rows = [np.arange(10, 30), np.arange(40, 47)]
    return collate([[made.prompt([row])] for row in rows]).to("cpu")


def test_an_encoder_begins_with_the_states_of_its_source(train, start, tmp_path, sources, caplog):
    """Tokens, segments and positions come along, also where the decoder shares the first."""
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    bert = checkpoint.load(tmp_path / "bert").model
    begun = start(f"{BART} {LIKE_BERT} --init-encoder {tmp_path / 'bert'}", run="bart")
    with caplog.at_level(logging.INFO):
        model = Trainer(begun).model.cpu()
    assert model.reader.embed.tokens is model.decoder.embed.tokens
    wanted = states(bert, sources)
    assert (states(model, sources) - wanted).abs().max() < 1e-6 * wanted.abs().max()
    assert "heads.lm, heads.lm.transform.dense" in caplog.text and "left out" in caplog.text


def test_both_towers_begin_as_bert(train, start, tmp_path, sources, caplog):
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    both = f"--init-encoder {tmp_path / 'bert'} --init-decoder {tmp_path / 'bert'}"
    with caplog.at_level(logging.INFO):
        model = Trainer(start(f"{BART} {LIKE_BERT} {both}", run="two")).model.cpu().state_dict()
    bert = weights(tmp_path / "bert")
    for name, tensor in model.items():
        if "cross_" not in name:
            assert torch.equal(tensor, bert[name.removeprefix("encoder.")]), name
    assert re.search("initialised: .*layers.cross_norm", caplog.text)


@pytest.mark.parametrize("shared", ["on", "off"])
def test_towers_of_an_encoder_decoder(train, start, tmp_path, shared):
    words = f"{BART} --arch.shared-embeddings {shared}"
    train(words, run="first")
    first = f"{tmp_path / 'first'}"
    begun = start(f"{words} --init-encoder {first} --init-decoder {first} --seed 2", run="second")
    model = Trainer(begun).model.cpu().state_dict()
    assert all(torch.equal(model[name], t) for name, t in weights(tmp_path / "first").items())


def test_a_latent_is_made_of_the_pretrained_pooler(train, start, tmp_path):
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    model = Trainer(start(f"{OPTIMUS} --init-encoder {tmp_path / 'bert'}", run="vae")).model.cpu()
    bert = checkpoint.load(tmp_path / "bert").model
    dense = bert.heads["class:nsp"].dense
    assert torch.equal(model.pool.weight, dense.weight) and torch.equal(model.pool.bias, dense.bias)


def test_towers_that_would_compute_otherwise_are_refused(train, start, tmp_path):
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    train("--task mlm --arch bert_tiny --max-steps 1 --seed 2", run="other")
    with pytest.raises(
        UsageError, match="--arch.position-offset is 2, but 0 in .*: add --arch.position"
    ):
        start(f"--task mass --arch bart_tiny --max-steps 1 --init-encoder {tmp_path / 'bert'}")
    both = f"--init-encoder {tmp_path / 'bert'} --init-decoder {tmp_path / 'other'}"
    with pytest.raises(UsageError, match="need --arch.shared-embeddings off"):
        start(f"{BART} {both}", run="two")
