"""Towers from checkpoints of their own, and an encoder's vocabulary in the checkpoint."""

import pytest
import torch

from unitk.errors import CheckpointError, UsageError
from unitk.train import checkpoint
from unitk.train.loop import Trainer

OPTIMUS = "--task optimus --arch optimus_tiny --max-steps 2 --criterion.beta 1"


def weights(path):
    return checkpoint.load(path).model.state_dict()


def test_both_towers_begin_with_the_weights_of_other_runs(train, start, tmp_path):
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    train("--task lm --arch gpt2_tiny --max-steps 1", run="gpt")
    words = f"--init-encoder {tmp_path / 'bert'} --init-decoder {tmp_path / 'gpt'}"
    begun = start(f"{OPTIMUS} {words}", run="vae")
    assert "encoder of" in begun.beginning and "decoder of" in begun.beginning
    model = Trainer(begun).model.state_dict()
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
    with pytest.raises(CheckpointError, match=r"--init-encoder .* has no tensor embed.segments"):
        Trainer(start(f"{OPTIMUS} --init-encoder {tmp_path / 'gpt'}", run="vae"))
    with pytest.raises(UsageError, match="--arch glm_tiny has no encoder beside"):
        Trainer(start(f"--max-steps 1 --init-encoder {narrow}", run="vae"))
    with pytest.raises(UsageError, match="--init-from excludes --init-encoder"):
        start(f"{OPTIMUS} --init-from {narrow} --init-encoder {narrow}", run="vae")


def test_a_resumed_run_has_obeyed_them(train, start, tmp_path):
    train("--task lm --arch gpt2_tiny --max-steps 1", run="gpt")
    words = f"{OPTIMUS} --resume --init-decoder {tmp_path / 'gpt'}"
    assert start(words, run="vae").beginning.startswith("decoder of ")
    train(words, run="vae")
    assert start(words, run="vae").beginning.startswith("resumed from ")


def test_a_checkpoint_takes_the_encoders_vocabulary_along(train, tmp_path, toy_data):
    from unitk.vocab import train_vocab

    lines = ["the cat sat on the mat", "a dog ate the cat", "the mat is red"] * 20
    other = tmp_path / "other"
    train_vocab(iter(lines), size=40, kind="bpe").save(other)
    train(f"{OPTIMUS} --task.source-vocab {other}", run="vae")
    moved = other.rename(tmp_path / "gone")
    loaded = checkpoint.load(tmp_path / "vae")
    assert loaded.task.source_vocab.hash != loaded.vocab.hash
    assert len(loaded.model.encoder.embed.tokens.weight) == len(loaded.task.source_vocab)
    assert len(loaded.model.embed.tokens.weight) == len(loaded.vocab)
    assert moved.exists()
