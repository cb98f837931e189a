"""Sampling: laws of frequency, seeds, and the same scores as a full pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.decoding.search import draw
from unitk.errors import UsageError

CONFIG = GenerateConfig(sampling=True, nbest=3, max_len=5)


def law(scores, top_k, top_p, min_p=0.0):
    """Top-k, then top-p, then min-p, in plain numpy."""
    chance = np.exp(scores - scores.max())
    order = np.argsort(-scores)[: top_k or len(scores)]
    chance = chance[order] / chance[order].sum()
    kept = (np.cumsum(chance) - chance < top_p) & (chance >= min_p * chance[0])
    found = np.zeros(len(scores))
    found[order[kept]] = chance[kept] / chance[kept].sum()
    return found


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(0, 1.0, 0.0), (3, 1.0, 0.0), (0, 0.7, 0.0), (4, 0.8, 0.0), (1, 1.0, 0.0)]
    + [(0, 1.0, 0.3), (4, 0.9, 0.5), (0, 1.0, 1.0), (0, 1e-300, 0.0)],
)
def test_draws_follow_the_law(top_k, top_p, min_p):
    scores = np.random.default_rng(0).normal(size=9)
    count = 40000
    chance = torch.rand(count, generator=torch.Generator().manual_seed(1))
    rows = torch.tensor(scores, dtype=torch.float32).expand(count, -1)
    words = draw(rows, chance, top_k, top_p, min_p)
    share = np.bincount(words.numpy(), minlength=9) / count
    expected = law(scores, top_k, top_p, min_p)
    assert share == pytest.approx(expected, abs=0.01)
    assert (share[expected == 0] == 0).all()


def test_the_edges_of_the_law_are_its_own_words():
    rows = torch.tensor([[-torch.inf, 0.0, 1.0, -torch.inf]]).expand(2, -1)
    for dtype in (torch.float32, torch.float64):
        one = torch.ones((), dtype=dtype)
        points = torch.stack([torch.zeros_like(one), one.nextafter(0 * one)])
        assert draw(rows, points, 0, 1.0).tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["shift", "slot", "blanks", "cross"])
def test_scores_are_those_of_a_full_pass_and_blanks_are_all_filled(toy, kind):
    case = toy.Case(kind, words=6)
    prompts = case.prompts(4)
    for prompt, outputs in zip(
        prompts, generate(case.model, prompts, case.protocol, CONFIG), strict=True
    ):
        assert len(outputs) == 3
        assert [one.score for one in outputs] == sorted((o.score for o in outputs), reverse=True)
        for one in outputs:
            assert one.log_prob == pytest.approx(case.score(prompt, one.ids.tolist()), abs=1e-4)
            assert (one.ids == case.end).sum() == 1 + len(prompt.blanks)


def test_the_first_word_is_drawn_from_the_model(toy):
    case = toy.Case("shift", words=6, scale=0.6)
    prompt = case.prompts(3)[2]
    many = replace(CONFIG, nbest=2000, max_len=1, temperature=2.0, max_tokens=10**6)
    (outputs,) = generate(case.model, [prompt], case.protocol, many)
    share = np.bincount([one.ids[0] for one in outputs], minlength=case.words + 3) / 2000
    scores = case.next(prompt, []) / 2.0
    scores[list(case.protocol.banned)] = -np.inf
    assert share == pytest.approx(law(scores, 0, 1.0), abs=0.04)


def test_min_p_is_that_by_hand():
    """Of 0.5, 0.3, 0.15 and 0.05, a share of 0.3 keeps 0.5, 0.3 and 0.15, which is 0.3 * 0.5."""
    scores = torch.tensor([[0.05, 0.5, 0.15, 0.3]]).log().expand(4, -1)
    points = torch.tensor([0.1, 0.52 / 0.95, 0.9 / 0.95, 0.999])
    assert draw(scores, points, 0, 1.0, 0.299).tolist() == [1, 2, 3, 3]
    assert draw(scores, points, 0, 1.0, 0.301).tolist() == [1, 1, 3, 3]


@pytest.mark.parametrize("rule", [{}, {"top_k": 6}, {"top_p": 0.99}, {"min_p": 0.01}])
def test_words_that_differ_by_rounding_may_change_places(rule):
    """Three equally likely words, of which each in turn has the least more that there is."""
    scores = torch.tensor([[0.1, 0.5, 0.3, 0.7, 0.5, 0.2, 0.5, 0.4]])
    more = torch.nextafter(scores, torch.tensor(torch.inf))
    points = torch.rand(2000, generator=torch.Generator().manual_seed(1))
    found = []
    for likelier in (1, 4, 6):
        one = scores.clone()
        one[:, likelier] = more[:, likelier]
        found.append(draw(one.expand(2000, -1), points, **{"top_k": 0, "top_p": 1.0} | rule))
    for other in found[1:]:
        assert (found[0] != other).float().mean() < 0.005  # a boundary may move by as little


def assert_same_words(found, other):
    for outputs, others in zip(found, other, strict=True):
        assert [one.ids.tolist() for one in outputs] == [one.ids.tolist() for one in others]


def test_seeds_fix_the_draws_whatever_the_batch(toy):
    case = toy.Case("shift", words=6)
    prompts = case.prompts(6)
    found = generate(case.model, prompts, case.protocol, CONFIG)
    assert_same_words(found, generate(case.model, prompts, case.protocol, CONFIG))
    alone = replace(CONFIG, max_tokens=1)
    assert_same_words(found, generate(case.model, prompts, case.protocol, alone))
    other = generate(case.model, prompts, case.protocol, replace(CONFIG, seed=2))
    assert any(
        [one.ids.tolist() for one in a] != [one.ids.tolist() for one in b]
        for a, b in zip(found, other, strict=True)
    )


def test_the_likeliest_word_only_is_greedy_decoding(toy):
    case = toy.Case("slot", words=6, scale=0.6)
    prompts = case.prompts(4)
    drawn = replace(CONFIG, nbest=1, sampling_topk=1)
    greedy = GenerateConfig(beam=1, max_len=5)
    assert_same_words(
        generate(case.model, prompts, case.protocol, drawn),
        generate(case.model, prompts, case.protocol, greedy),
    )


@pytest.mark.parametrize(
    "wrong",
    [{"sampling_topk": 3}, {"sampling_topp": 0.5}, {"sampling_minp": 0.1}],
)
def test_what_has_no_effect_is_refused(wrong):
    name = list(wrong)[-1].replace("_", "-")
    with pytest.raises(UsageError, match=f"--{name} must be"):
        GenerateConfig(**wrong)
