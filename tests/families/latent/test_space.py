"""Where texts lie among the latents, and the texts of given places."""

import logging

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.errors import DataError, NonFiniteError, UsageError
from unitk.families.latent.space.config import Interpolate
from unitk.families.latent.space.geometry import path
from unitk.families.latent.space.points import LatentSpace
from unitk.slots import collate

LINES = ["the cat sat on the mat.", "a dog.", "the dog sees a small bird.", "big red tree."]
QUICK = GenerateConfig(beam=2, max_len=6)


def made(vocab, arch="optimus_tiny", task="optimus", **fields):
    torch.manual_seed(0)
    config = registry.get("arch", arch)()
    model = type(config)(**{**vars(config), "init_std": 0.3, **fields}).build(len(vocab))
    made_from = registry.get("task", task)
    return model, made_from(made_from.Config(), vocab)


@pytest.fixture(scope="module")
def space(toy_vocab):
    return LatentSpace(*made(toy_vocab))


@pytest.fixture(scope="module")
def latents(space):
    return space.encode(LINES)


def texts(found):
    return [[one.text for one in best] for best in found]


def test_no_batch_changes_where_a_text_lies(space, latents):
    alone = [space.encode([line]) for line in LINES]
    small = space.encode(LINES, max_tokens=40)
    for name in ("mean", "std", "kl", "pooled"):
        wanted = getattr(latents, name)
        assert len(wanted) == len(LINES)
        found = np.concatenate([getattr(one, name) for one in alone])
        assert_near(found, wanted)
        assert_near(getattr(small, name), wanted)


def test_one_string_is_one_text(space, latents):
    assert_near(space.encode(LINES[0]).mean, latents.mean[:1])


@pytest.mark.parametrize(
    "idle",
    [
        {"order": "random"},
        {"steps": 3},
        {"block_length": 4},
        {"rerank": "on"},
        {"avoid_part": 1},
        {"max_source_len": 4},
        {"extract": True},
        {"capture": "on"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_options_that_a_point_makes_idle_are_refused(space, latents, idle):
    """As `unitk generate` refuses those that a task makes idle."""
    name = next(iter(idle)).replace("_", "-")
    with pytest.raises(UsageError, match=f"--{name} "):
        space.decode(latents.mean[:1], beam=1, max_len=4, **idle)


def test_steps_of_a_path_are_none_of_diffusion(space, latents):
    options = Interpolate(checkpoint="x", beam=1, max_len=4, steps=3)
    assert len(space.decode(latents.mean[:1], options)) == 1


def test_no_texts_have_no_latents(space):
    none = space.encode([])
    assert none.mean.shape == none.std.shape == none.kl.shape == (0, 16)
    assert none.pooled.shape == (0, 64) and space.decode(none.mean) == []


@pytest.mark.parametrize("points", [np.zeros((2, 3)), np.zeros(16)])
def test_points_of_another_space_are_refused(space, points):
    with pytest.raises(UsageError, match=r"points must be \[N, 16\], got \["):
        space.decode(points)


def test_infinite_latents_are_refused(toy_vocab):
    space = LatentSpace(*made(toy_vocab))
    space.weight.data *= 1e6
    with pytest.raises(NonFiniteError, match="the divergence.*latents.* NaN or infinity"):
        space.encode(LINES)


def test_equal_texts_are_at_one_point(space):
    mean = space.encode([LINES[0], *LINES, LINES[0]]).mean
    assert (mean[0] == mean[1]).all() and (mean[0] == mean[-1]).all()


def test_latents_are_the_model_s_posterior(space, latents):
    ids = [np.array(space.task.vocab.encode(LINES[2]))]
    batch = collate([[space.task.prompt(ids)]]).to("cpu")
    with torch.no_grad():
        posterior = space.model.posterior(batch)
    assert_near(latents.mean[2], posterior.mean[0].numpy())
    assert_near(latents.std[2], (posterior.logvar[0] / 2).exp().numpy())
    assert_near(latents.kl[2], posterior.kl()[0].numpy())
    assert latents.mean.shape == (4, 16) and latents.pooled.shape == (4, 64)


def test_decoding_the_mean_is_what_generate_writes(space, latents):
    for options in (dict(beam=2, nbest=2), dict(beam=1), dict(sampling=True, nbest=2)):
        config = GenerateConfig(max_len=6, **options)
        wanted = Generator(space.model, space.task).generate(LINES, **vars(config))
        found = space.decode(latents.mean, config)
        assert texts(found) == texts(wanted)
        scores = [[one.hypothesis.score for one in best] for best in found]
        assert scores == pytest.approx(
            np.array([[one.hypothesis.score for one in best] for best in wanted]), abs=1e-4
        )


def test_no_batch_changes_what_a_point_says(space):
    points = space.prior(7, seed=3)
    together = space.decode(points, sampling=True, max_len=6)
    parted = space.decode(points, sampling=True, max_len=6, max_tokens=50)
    assert texts(together) == texts(parted)
    assert len({best[0].text for best in together}) > 1


def test_samples_are_seeded_and_more_begin_with_the_same_ones(space):
    few, many = space.prior(3, seed=5), space.prior(8, seed=5)
    assert (few == many[:3]).all() and (few != space.prior(3, seed=6)).any()
    assert (space.prior(3, 5, spread=0.5) == few / 2).all()
    lots = space.prior(4000, seed=1)
    assert lots.mean() == pytest.approx(0, abs=0.02) and lots.std() == pytest.approx(1, abs=0.02)


def test_draws_have_the_posterior_s_mean_and_deviation(latents):
    rng = np.random.default_rng(0)
    draws = np.stack([latents.draw(rng) for _ in range(4000)])
    assert ((draws.mean(0) - latents.mean) / latents.std) == pytest.approx(0, abs=0.1)
    assert (draws.std(0) / latents.std) == pytest.approx(1, abs=0.1)
    assert (latents.draw(rng, spread=0.0) == latents.mean).all()


@pytest.mark.parametrize("how", ["lerp", "slerp"])
def test_a_path_ends_at_the_reconstructions(space, latents, how):
    a, b = latents.mean[:2]
    way = texts(space.decode(path(a, b, 5, how)[1], QUICK))
    assert [way[0], way[-1]] == texts(space.decode(latents.mean[:2], QUICK))


@pytest.mark.parametrize("inject", ["memory", "embedding"])
def test_a_point_decides_what_is_written(toy_vocab, inject):
    space = LatentSpace(*made(toy_vocab, inject=inject))
    found = texts(space.decode(np.stack([np.full(16, -3), np.full(16, 3)]), beam=1, max_len=6))
    assert found[0] != found[1]


def test_too_long_a_text_is_refused_or_shortened(toy_vocab):
    space = LatentSpace(*made(toy_vocab, max_positions=9))
    long = " ".join(["the cat"] * 400)
    with pytest.raises(DataError, match="'the cat.*cat .*too long.*encoder.*tokens"):
        space.encode(["a dog.", long])
    assert space.encode(["a dog.", long], truncate=True).mean.shape == (2, 16)
    with pytest.raises(UsageError, match="--max-len .*at most 8, got 64"):
        space.decode(space.prior(1, 1), max_len=64)
    with pytest.raises(UsageError, match="--max-len must be"):
        space.decode(space.prior(1, 1), max_len="2x")
    assert space.decode(space.prior(1, 1), max_len=8, beam=1)


def test_only_a_latent_model_has_a_latent_space(toy_vocab):
    with pytest.raises(UsageError, match="task seq2seq .*latent space; optimus"):
        LatentSpace(*made(toy_vocab, "bart_tiny", "seq2seq"))


def test_a_collapsed_space_is_said(toy_vocab, caplog):
    space = LatentSpace(*made(toy_vocab))
    torch.nn.init.zeros_(space.model.bridge.weight)
    with caplog.at_level(logging.WARNING):
        space.encode(LINES)
    assert "the latents tell 0.000 nats a text" in caplog.text
    caplog.clear()
    LatentSpace(*made(toy_vocab)).encode(LINES)
    assert not caplog.text
