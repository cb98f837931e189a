"""Groups of a beam: with one, or without a cost, they are plain beams; else as the paper has it."""

from dataclasses import replace

import pytest
from rounding import assert_near
from searching import outputs

from unitk.decoding import decode as module
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.searches import Diverse
from unitk.decoding.decode import generate

CONFIG = GenerateConfig(beam=6, nbest=6, max_len=5, diverse_beam_groups=3)


def test_one_group_is_beam_search(toy, kind, monkeypatch):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(5)
    config = replace(CONFIG, diverse_beam_groups=1, no_repeat_ngram_size=2, lenpen=0.6)
    plain = generate(case.model, prompts, case.protocol, config)
    monkeypatch.setattr(module, "Search", Diverse)
    assert outputs(generate(case.model, prompts, case.protocol, config)) == outputs(plain)


@pytest.mark.parametrize("most", [None, 3])
@pytest.mark.parametrize("search", ["likely", "exact", "fairseq", "glm"])
def test_without_a_cost_groups_are_beams_of_their_size(toy, kind, search, most):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(5)
    config = replace(CONFIG, search=search, diverse_beam_strength=0.0, max_words=most)
    one = replace(config, beam=2, nbest=2, diverse_beam_groups=1)
    found = generate(case.model, prompts, case.protocol, config)
    alone = generate(case.model, prompts, case.protocol, one)
    thrice = [[output for output in some for _ in range(3)] for some in alone]
    assert outputs(found) == outputs(thrice)


def naive(case, prompt, config):
    """Algorithm 1 in plain Python, each hypothesis encoded alone, until nothing is open."""
    groups, size = config.diverse_beam_groups, config.beam // config.diverse_beam_groups
    opened = [[([], 0.0)] for _ in range(groups)]
    pools = [[] for _ in range(groups)]
    while any(opened):
        chosen = []
        for g in range(groups):
            following = []
            for words, raw in opened[g]:
                table = case.next(prompt, words)
                for v in range(len(table)):
                    if case.allowed(words, v, config):
                        cost = config.diverse_beam_strength * chosen.count(v)
                        following.append(([*words, v], raw + table[v], raw + table[v] - cost))
            following = sorted(following, key=lambda one: -one[2])[: 2 * size]
            chosen += [words[-1] for words, _, _ in following[:size]]
            ended = [case.finished(prompt, words) for words, _, _ in following]
            pools[g] += [
                (words, raw / len(words) ** config.lenpen)
                for (words, raw, _), end in zip(following[:size], ended, strict=False)
                if end
            ]
            pools[g] = sorted(pools[g], key=lambda one: -one[1])[:size]
            kept = [one for one, end in zip(following, ended, strict=True) if not end]
            opened[g] = [(words, raw) for words, raw, _ in kept[:size]]
    return sorted(sum(pools, []), key=lambda one: -one[1])[: config.nbest]


@pytest.mark.every(2)
def test_equals_a_naive_diverse_beam(toy, kind):
    differs = 0
    for seed, strength in enumerate((0.3, 2.0)):
        case = toy.Case(kind, words=5, scale=0.5, seed=seed)
        prompts = case.prompts(2)
        # with so long a way to go, nothing stops before the end
        config = replace(
            CONFIG, nbest=5, max_len=4, search="exact", lenpen=2.0, diverse_beam_strength=strength
        )
        found = generate(case.model, prompts, case.protocol, config)
        for prompt, some in zip(prompts, found, strict=True):
            expected = naive(case, prompt, config)
            assert_near([one.score for one in some], [s for _, s in expected])
            assert sorted(one.ids.tolist() for one in some) == sorted(ids for ids, _ in expected)
            for one in some:
                assert_near(one.log_prob, case.score(prompt, one.ids))
        plain = generate(case.model, prompts, case.protocol, replace(config, diverse_beam_groups=1))
        differs += outputs(found) != outputs(plain)
    assert differs


def test_cost_makes_first_words_differ(toy):
    case = toy.Case("shift", words=8)
    config = replace(CONFIG, diverse_beam_groups=6, diverse_beam_strength=100.0)
    for some in generate(case.model, case.prompts(4), case.protocol, config):
        assert len({one.ids[0] for one in some}) == 6


@pytest.mark.every(2)
def test_batches_and_compaction_change_nothing(toy, kind, monkeypatch):
    case = toy.Case(kind, words=8, scale=1.0)
    prompts = case.prompts(9)
    config = replace(CONFIG, search="fairseq", max_len=10)
    found = generate(case.model, prompts, case.protocol, config)
    apart = generate(case.model, prompts, case.protocol, replace(config, max_tokens=1))
    assert outputs(apart) == outputs(found)
    monkeypatch.setattr(module, "CHECK_EVERY", {"cpu": 10**6})
    assert outputs(generate(case.model, prompts, case.protocol, config)) == outputs(found)
