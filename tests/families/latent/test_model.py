"""A latent between two towers: what reaches the decoder, and what does not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.errors import UsageError
from unitk.models.archs import preset
from unitk.models.state import Reading
from unitk.slots import Ask, collate

V, ONE = 60, np.ones(1, np.float32)


@pytest.fixture
def texts(texts_of):
    return texts_of(7, 2, 4)


def build(**settings):
    torch.manual_seed(1)
    return replace(preset("optimus_tiny"), init_std=0.2, **settings).build(V).eval()


def batched(texts, rows=([0], [1], [2])):
    return collate([[texts[i] for i in row] for row in rows]).to("cpu")


def test_parameters_are_berts_and_gpt2s_and_three_maps():
    """BERT-base cased with pooler, GPT-2 small with three more words, latent of 32."""
    with torch.device("meta"):
        model = preset("optimus_base").build(50260, 28996)
    count = sum(parameter.numel() for parameter in model.parameters())
    bert, gpt2 = 108_310_272, 124_439_808 + 3 * 768
    assert count == bert + gpt2 + 2 * 32 * 768 + 32 * 12 * 768 + 32 * 768


def test_nothing_but_the_latent_reaches_the_decoder(texts):
    model, batch = build(), batched(texts)
    z = torch.randn(3, 16, generator=torch.manual_seed(2))
    one = model(batch, model.latent(z, batch))[0]["dec"]
    batch.towers["enc"][0] = 40  # all words of the encoder
    assert torch.equal(model(batch, model.latent(z, batch))[0]["dec"], one)


@pytest.mark.parametrize("inject", ["both", "memory", "embedding"])
def test_every_doc_has_its_own_latent(texts, inject):
    """Padded or packed, three texts and a latent of 5: an axis slip would show."""
    model = build(inject=inject, latent=5)
    z = torch.randn(3, 5, generator=torch.manual_seed(2))
    found = []
    for rows in ([[0], [1], [2]], [[0, 1, 2]], [[0, 1], [2]]):
        batch = batched(texts, rows)
        states = model(batch, model.latent(z, batch))[0]["dec"].flatten(0, 1)
        found.append(states[batch.asks["lm"].rows[:, 0]])
    assert_near(found[1], found[0])
    assert_near(found[2], found[0])
    batch = batched(texts)
    moved = z + torch.tensor([[0.0], [1.0], [0.0]])
    states = model(batch, model.latent(moved, batch))[0]["dec"].flatten(0, 1)
    same = (states[batch.asks["lm"].rows[:, 0]] - found[0]).abs().amax(1) < 1e-6
    assert same.tolist() == [True] * 8 + [False] * 3 + [True] * 5


def test_with_a_memory_positions_begin_at_one(texts):
    with_memory, without = build(), build(inject="embedding")
    assert len(with_memory.decoder.embed.positions.weight) == 1024
    assert len(without.decoder.embed.positions.weight) == 1023
    for model, unused in ((with_memory, True), (without, False)):
        batch = batched(texts)
        model(batch)[0]["dec"].sum().backward()
        assert (not model.decoder.embed.positions.weight.grad[0].any()) == unused


def test_the_memory_is_one_vector_as_key_and_value(texts):
    model, batch = build(), batched(texts)
    z = torch.randn(3, 16)
    condition = model.latent(z, batch)
    for layer, (key, value) in enumerate(condition.prefix):
        assert torch.equal(key, value) and key.shape == (3, 4, 1, 16)
        expected = z @ model.memory.weight[64 * layer : 64 * (layer + 1)].T
        torch.testing.assert_close(key.flatten(1), expected)


def test_posterior(texts):
    model, batch = build(), batched(texts)
    posterior = model.posterior(batch)
    torch.manual_seed(0)
    many = torch.stack([posterior.sample() for _ in range(4000)])
    torch.testing.assert_close(many.mean(0), posterior.mean, atol=0.15, rtol=0.05)
    torch.testing.assert_close(many.var(0), posterior.logvar.exp(), atol=0.02, rtol=0.15)
    normal = torch.distributions.Normal(posterior.mean, (posterior.logvar / 2).exp())
    expected = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0, 1))
    torch.testing.assert_close(posterior.kl(), expected)
    given = model.condition(batch)
    torch.testing.assert_close(given.bias, model.latent(posterior.mean, batch).bias)


@pytest.mark.parametrize("settings", [{}, {"encoder": "bert_small", "latent": 5}])
def test_heads_read_the_encoder_its_latent_or_its_layers(texts, settings):
    """Also where the encoder is wider than the decoder; each doc's own, packed or not."""
    heads = ("class:x:3",)
    asked = [
        replace(one, asks=[Ask("class", "class:x", "enc", np.array([[0]]), np.zeros(1, int), ONE)])
        for one in texts
    ]
    with torch.no_grad():
        model = build(heads=heads, head_latent=True, head_pooler=False, **settings)
        for rows in ([[0], [1], [2]], [[0, 1, 2]]):
            batch = batched(asked, rows)
            [ask] = batch.asks.values()
            assert_near(
                model.output(batch, ask), model.latents(batch) @ model.heads["class:x"].out.weight.T
            )
        model = build(heads=heads, head_pooler=False, **settings)
        every = []
        batch = batched(asked)
        [ask] = batch.asks.values()
        model.reader.encode(Reading.of(batch, "enc", depths=every))
        weight = model.heads["class:x"].out.weight.T
        assert_near(model.output(batch, ask), every[-1][:, 0] @ weight)
        mixed = build(heads=heads, head_pooler=False, head_layers=(0, -1), **settings)
        mixed.load_state_dict(model.state_dict(), strict=False)
        assert_near(mixed.output(batch, ask), (every[0][:, 0] + every[-1][:, 0]) / 2 @ weight)


def test_the_variance_may_be_one(texts):
    """The official code's deterministic connection: z = mean + N(0, 1), KL = mean^2 / 2."""
    model, batch = build(unit_variance=True), batched(texts)
    learned = build().posterior(batch)
    posterior = model.posterior(batch)
    torch.testing.assert_close(posterior.mean, learned.mean)
    noise = torch.randn_like(posterior.mean)
    torch.testing.assert_close(posterior.sample(noise), posterior.mean + noise)
    torch.testing.assert_close(posterior.kl(), posterior.mean**2 / 2)
    assert learned.logvar.any()


def test_towers_and_their_positions():
    config = preset("optimus_base")
    assert config.tower("enc").max_positions == config.position_limit == 512
    assert config.tower("dec").max_positions == 1023
    assert replace(config, dropout=0.3).tower("enc").dropout == 0.3


def test_what_is_refused(texts):
    with pytest.raises(UsageError, match="--arch.encoder: .*no arch 'bert_bse'.*bert_base"):
        replace(preset("optimus_base"), encoder="bert_bse")
    with pytest.raises(UsageError, match="--arch.encoder must be.*tower"):
        replace(preset("optimus_base"), encoder="bart_base")
    with pytest.raises(UsageError, match="--arch.latent .*at least 1, got 0"):
        replace(preset("optimus_base"), latent=0)
    with pytest.raises(UsageError, match="--arch.head-layers must be.*head-latent"):
        replace(preset("optimus_tiny"), head_layers=(0,), head_latent=True)
    with pytest.raises(UsageError, match="--arch.head-layers must be.* -13 to 12, got"):
        replace(preset("optimus_tiny"), encoder="bert_base", head_layers=(13,))
    batch = batched(texts)
    batch = replace(batch, towers={"x": batch.towers["dec"]})
    with pytest.raises(UsageError, match="the towers enc.*dec.*task lays.*x"):
        build().condition(batch)
