"""A causal model that goes on with another objective is the same model, before the first update."""

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.slots import Example, collate, lm, stay
from unitk.training.loop import Trainer, train
from unitk.training.saving import checkpoint
from unitk.training.start import parse_train, prepare

SIZES = "--arch qwen3_tiny --lr 2e-2"
PLAIN = "--block-size 64 --max-tokens 400 --precision fp32 --device cpu --valid none"
TOKENS = np.array([5, 9, 14, 7, 11, 30, 8, 6])


@pytest.fixture(scope="module")
def folder(toy_data, tmp_path_factory):
    """A model that was trained as `lm` for a few updates."""
    folder = tmp_path_factory.mktemp("causal") / "lm"
    words = f"--task lm {SIZES} --max-steps 4 --data {toy_data / 'text'} --save-dir {folder}"
    train(prepare(parse_train(f"{words} {PLAIN}".split())))
    return folder


@pytest.fixture
def causal(folder):
    """Its model."""
    return checkpoint.load(folder).model


@pytest.fixture
def adapted(folder, tmp_path, toy_data):
    """The model of a run that begins with it, in evaluation mode, and the run's task."""

    def make(words):
        where = f"--data {toy_data / 'text'} --save-dir {tmp_path / 'new'} --max-steps 1 {PLAIN}"
        given = f"{where} {words}".replace("LM", str(folder))
        trainer = Trainer(prepare(parse_train(given.split())))
        return trainer.model.eval(), trainer.data.task

    return make


@torch.no_grad()
def log_probs(model, example, among=None):
    """The log-probability of what each row of an example is asked for, `among` the first ids."""
    batch = collate([[example]]).to("cpu")
    (ask,) = batch.asks.values()
    states = model(batch)[0][ask.tower].flatten(0, 1)[ask.rows[:, 0]]
    logits = model.head(states, ask.head)[:, :among]
    return logits.log_softmax(1).gather(1, ask.label[:, None])[:, 0].double().numpy()


def continued(tokens, tower="x"):
    """Slots of a text that see what is before them, each asked for the next token."""
    place = np.arange(len(tokens) - 1)
    read = stay(tokens[:-1], pos=place, at=place)
    return Example({tower: read}, [lm(place, tokens[1:], tower=tower)])


@pytest.mark.parametrize(
    "task",
    ["mlm --task.shift on", "mdlm --task.shift on", "bd3lm --task.shift on", "glm_infill", "pmlm"]
    + ["unilm --task.nsp off", "xlnet", "mlm"],
)
def test_the_model_computes_what_it_did(causal, adapted, task):
    model, _ = adapted(f"--task {task} --init-from LM")
    assert_near(log_probs(model, continued(TOKENS)), log_probs(causal, continued(TOKENS)))


def test_sentinels_begin_near_the_mean_of_the_table(causal, adapted):
    model, task = adapted("--task ul2 --task.towers one --task.sentinels 9 --init-from LM")
    old, new = (one.decoder.embed.tokens.weight for one in (causal, model))
    assert len(task.vocab.sentinels) == len(new) - len(old) == 9
    assert torch.equal(new[: len(old)], old)
    away, spread = new[len(old) :] - old.mean(0), (old - old.mean(0)).norm(dim=1)
    # each has a place of its own, closer to the mean than any word
    assert 0 < away.norm(dim=1).min() and away.norm(dim=1).max() < spread.min()
    # the words share what is left of the probability in the proportions that they had
    found = log_probs(model, continued(TOKENS), len(old))
    assert_near(found, log_probs(causal, continued(TOKENS)))


def test_blocks_of_one_token_have_the_causal_models_probabilities(causal, adapted):
    _, task = adapted("--task bd3lm --task.shift on --task.block-length 1 --init-from LM")
    from unitk.families.diffusion.bd3lm import layout

    hidden = np.arange(1, len(TOKENS))
    laid = layout(
        TOKENS, np.arange(len(TOKENS)), hidden, hidden / 1, mask=task.vocab.mask, shift=True
    )
    assert_near(log_probs(causal, laid), log_probs(causal, continued(TOKENS)))


def test_the_first_hidden_token_of_closed_diffusion(causal, adapted):
    """While the future is closed, the slot before the first hidden token is as `lm` has it."""
    options = "--task.shift on --task.future 1e-9"
    model, task = adapted(f"--task mdlm {options} --init-from LM")
    laid = task.pretrain(Text([TOKENS], np.zeros(1, int)), np.random.default_rng(3))
    (ask,) = laid.asks
    read, place = laid.towers["x"].token, int(ask.rows[0, 0])
    tokens = np.append(read[: place + 1], ask.label[0])
    assert (read[: place + 1] != task.vocab.mask).all()
    assert_near(log_probs(model, laid)[0], log_probs(causal, continued(tokens))[-1])


class TestTwoTowers:
    """One causal model in encoder and decoder."""

    WORDS = "--arch qwen3_encdec_tiny --init-encoder LM --init-decoder LM"

    @pytest.mark.parametrize("task", ["t5 --task.sentinels 9", "mass", "ul2"])
    def test_the_decoder_writes_as_the_model_did(self, causal, adapted, task):
        """The maps of a new cross-attention begin at zero: no source changes anything."""
        model, _ = adapted(f"--task {task} {self.WORDS}")
        size = len(causal.decoder.embed.tokens.weight)
        for source in ([5, 6], [9, 8, 7, 30]):
            enc = stay(np.array(source), pos=np.arange(len(source)))
            dec = continued(TOKENS, "dec")
            found = log_probs(model, Example({"enc": enc, **dec.towers}, dec.asks), size)
            assert_near(found, log_probs(causal, continued(TOKENS)))

    def test_the_encoder_reads_as_the_model_did(self, causal, adapted):
        model, _ = adapted(f"--task mass {self.WORDS}")
        batch = collate([[continued(TOKENS, "enc")]]).to("cpu")
        for depth in (1, 2):
            assert_near(model.embed(batch, depth), causal.embed(batch, depth))

    def test_the_pair_of_towers_that_takes_the_model_is_named(self, adapted):
        with pytest.raises(UsageError) as raised:
            adapted("--task mass --arch modern_encdec_tiny --init-encoder LM --init-decoder LM")
        assert str(raised.value).endswith(": take --arch qwen3_encdec_tiny")
