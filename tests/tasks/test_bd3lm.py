"""Block diffusion: the docstring's table, clipping, and the two objectives that it lies between."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.diffusion.bd3lm import BD3LM, layout
from unitk.families.diffusion.mdlm import MDLM, draw
from unitk.slots import Example, Protocol, collate, probe, stay, unroll
from unitk.tasks.lm import LM


@pytest.mark.parametrize(
    ("shift", "label"),
    [(False, ". . . . . a . c d S"), (True, ". . . d a . c . S .")],
)
def test_layout_is_the_table(ids, labels, shift, label):
    text, hidden = ids("C a b c d S"), np.array([1, 3, 4, 5])
    weight = np.array([1, 2, 1, 1], np.float32)
    block = np.arange(6) // 2
    example = layout(text, block, hidden, weight, mask=ids("M")[0], shift=shift)
    slots = example.towers["x"]
    assert slots.token.tolist() == ids("C a b c C M b M M M").tolist()
    assert slots.pos.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert slots.now.tolist() == slots.born.tolist() == [1, 1, 3, 3, 0, 0, 2, 2, 4, 4]
    assert (slots.dies[4:] == slots.now[4:]).all() and (slots.dies[:4] > 9).all()
    asked = [ids(one)[0] if one != "." else -1 for one in label.split()]
    assert labels(example, "bound") == asked
    [ask] = example.asks
    found = dict(zip(ask.label.tolist(), ask.weight.tolist(), strict=True))
    assert found == dict(zip(ids("a c d S").tolist(), [1, 2, 1, 1], strict=True))


ARCHS = ("mdlm_tiny", "gpt2_tiny", "modern_tiny", "gemma3_tiny", "unilm2_tiny")


@pytest.fixture(params=ARCHS)
def loss(request, toy_vocab):
    """The mean loss of a text to a task, by a model with random weights."""
    torch.manual_seed(0)
    config = replace(registry.get("arch", request.param)(), init_std=0.3, zero_init=False)
    model = config.build(len(toy_vocab)).eval()
    words = np.random.default_rng(1).permutation(np.arange(30, 130))[:23]

    @torch.no_grad()
    def of(cls, **options):
        task = cls(cls.Config(**options), toy_vocab)
        example = task.pretrain(Text([words], np.zeros(1, int)), np.random.default_rng(3))
        batch = collate([[example]]).to("cpu")
        found = CrossEntropy()(model, batch, 0, None)
        [(name, total)] = found.sums.items()
        assert batch.count[name] == pytest.approx(24)
        return float(total) / batch.count[name]

    of.model, of.words = model, words
    return of


def test_blocks_of_one_token_are_lm(loss):
    assert loss(BD3LM, block_length=1, shift=True) == pytest.approx(loss(LM), rel=1e-6)


@torch.no_grad()
def test_blocks_of_one_token_at_their_own_slots_are_a_causal_model_that_reads_masks(
    loss, toy_vocab
):
    """[MASK] after the words before it, as UniLM decodes."""
    given, mask = stay([toy_vocab.cls], [0]), probe([toy_vocab.mask], [1], at=2)
    protocol = Protocol(end=toy_vocab.sep, probe=toy_vocab.mask)
    written = np.append(loss.words, toy_vocab.sep)
    example = unroll(Example({"x": given + mask}), protocol, written)
    batch = collate([[example]]).to("cpu")
    nats = -loss.model.log_probs(batch, batch.asks["lm"]).mean()
    assert loss(BD3LM, block_length=1) == pytest.approx(float(nats), rel=1e-6)


@pytest.mark.parametrize("shift", [False, True])
def test_one_block_is_mdlm(loss, shift):
    found = loss(BD3LM, block_length=24 + 1, shift=shift)
    assert found == pytest.approx(loss(MDLM, shift=shift), rel=1e-6)
    assert loss(BD3LM, block_length=5, shift=shift) != pytest.approx(found, rel=1e-3)


def test_clipped_shares_are_uniform_and_each_block_weighs_its_tokens():
    rng, block = np.random.default_rng(0), np.arange(400) // 16
    counts = np.zeros(17)
    for _ in range(400):
        hidden, weight = draw(block, (0.3, 0.8), rng)
        counts += np.bincount(np.bincount(block[hidden]), minlength=17)
        assert np.bincount(block[hidden], weight) == pytest.approx(np.full(25, 16))
    # 4.8 to 12.8 of 16 tokens
    assert counts / counts.sum() == pytest.approx([0] * 5 + [1 / 8] * 8 + [0] * 4, abs=0.01)


def test_the_blocks_of_a_text_share_the_law_evenly():
    """Of 20 blocks of 4 tokens each number of hidden ones falls to 5."""
    rng, block = np.random.default_rng(0), np.arange(80) // 4
    for _ in range(50):
        hidden, _ = draw(block, (0, 1), rng)
        assert np.bincount(np.bincount(block[hidden])).tolist() == [0, 5, 5, 5, 5]


def test_short_blocks_hide_a_token_at_least():
    hidden, weight = draw(np.array([0, 1, 1]), (0.1, 0.4), np.random.default_rng(0))
    assert len(hidden) == 2 and hidden[0] == 0 and weight.tolist() == [1, 2]


def test_mistakes_are_refused(toy_vocab):
    for clip in ((0.5, 0.5), (0.6, 0.2), (0.0, 1.1), (-0.1, 0.5)):
        with pytest.raises(UsageError, match=r"--task.clip must be.*shares.* \[0, 1\]"):
            BD3LM.Config(clip=clip)
