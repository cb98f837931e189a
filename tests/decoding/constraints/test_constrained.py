"""Required phrases are there, whatever else; a wide beam is brute force."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from searching import contains, outputs

from unitk.decoding import decode as module
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints, WordRules
from unitk.decoding.constraints.searches import Constrained
from unitk.decoding.decode import generate
from unitk.decoding.search import Request
from unitk.errors import DataError, UsageError

EXHAUSTIVE = GenerateConfig(beam=150, nbest=150, max_len=4, max_tokens=10**6, search="exact")


def search(case, prompts, config, phrases, bad=()):
    each = [Constraint(phrases=tuple(some)).with_lengths(config, 0) for some in phrases]
    constraints = Constraints(each, WordRules(bad=bad))
    return generate(case.model, prompts, case.protocol, config, constraints=constraints)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", ["shift", "slot", "cross"])
@pytest.mark.parametrize("way", ["exact", "fairseq", "glm", "unilm"])
def test_a_wide_beam_is_brute_force(toy, name, way):
    case = toy.Case(name, words=2, scale=0.6)
    prompt = case.prompt(np.array([0, 1, 1]))
    config = replace(EXHAUSTIVE, search=way)
    everything = toy.brute_force(case, prompt, config)
    for phrases in (
        [(1,)],
        [(0, 1, 0)],
        [(0, 0), (1,)],
        [(0, 1), (1, 0)],  # which may share a word
        [(0, 0, 1), (0, 1)],
        [(0, 1, 0, 0)],
        [(0,), (1, 1), (1, 1)],
    ):
        (found,) = search(case, [prompt], config, [phrases])
        expected = [one for one in everything if all(contains(one[0], p) for p in phrases)]
        assert expected and outputs([found]) == [expected]


def test_the_most_words_hold_beside_phrases(toy, kind):
    case = toy.Case(kind, words=12)
    config = GenerateConfig(beam=5, nbest=5, max_len=9, max_words=3)
    for found in search(case, case.prompts(4), config, [[(i,)] for i in range(4)]):
        assert found and all((one.ids != case.end).sum() <= 3 for one in found)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_every_output_contains_every_phrase(toy, kind, beam):
    rng = np.random.default_rng(beam)
    case = toy.Case(kind, words=12)
    prompts = case.prompts(8)
    config = GenerateConfig(beam=beam, nbest=beam, max_len=9)
    phrases = [
        [tuple(rng.integers(12, size=rng.integers(1, 4)).tolist()) for _ in range(i % 4)]
        for i in range(8)
    ]
    for prompt, some, found in zip(
        prompts, phrases, search(case, prompts, config, phrases), strict=True
    ):
        assert found
        for one in found:
            assert all(contains(one.ids.tolist(), phrase) for phrase in some)
            assert_near(one.log_prob, case.score(prompt, one.ids))
            assert (one.ids == case.end).sum() == 1 + len(prompt.blanks)


def test_phrases_just_fit(toy, kind):
    """All words that there is room for are asked for, and one more blank is there."""
    case = toy.Case(kind, words=12)
    config = GenerateConfig(beam=2, max_len=5)
    phrases = [[(3, 4, 5), (6, 7)]] * 3
    for (one,) in search(case, case.prompts(3), config, phrases):
        assert all(contains(one.ids.tolist(), phrase) for phrase in phrases[0])


def test_no_phrase_is_plain_beam_search(toy, kind, monkeypatch):
    """And so is an input without phrases that is decoded beside others with some."""
    case = toy.Case(kind, words=8)
    prompts = case.prompts(6)
    config = GenerateConfig(beam=3, nbest=3, max_len=6)
    plain = generate(case.model, prompts, case.protocol, config)
    phrases = [[], [(1, 2), (3,)], [], [(4, 5, 6)], [], [(7,)]]
    found = search(case, prompts, config, phrases)
    assert outputs(found)[::2] == outputs(plain)[::2]
    for look in (1, 10**6):
        monkeypatch.setattr(module, "CHECK_EVERY", {"cpu": look})
        assert outputs(search(case, prompts, config, phrases)) == outputs(found)
    alone = [search(case, [p], config, [some])[0] for p, some in zip(prompts, phrases, strict=True)]
    assert outputs(alone) == outputs(found)


def test_the_beam_is_dealt_out(toy):
    """In the first step of three, hypotheses with none and with one word of the phrase are open."""
    case = toy.Case("shift", words=12)
    config = GenerateConfig(beam=4, max_len=9)
    constraints = Constraints([Constraint(phrases=((5, 6, 7),)).with_lengths(config, 0)])
    homes = torch.zeros(1, 1, 2, dtype=torch.int64)
    blanks = torch.zeros(1, dtype=torch.int64)
    found = Constrained(Request(homes, blanks, case.protocol, config, constraints))
    logits = torch.linspace(8, 1, 15).expand(1, -1)
    found.extend(logits)
    assert found.state.written[0, :, 0].tolist() == [5, 0, 1, 2]
    found.extend(logits.expand(4, -1))
    assert found.state.written[0, :, :2].tolist() == [[5, 6], [0, 5], [0, 0], [1, 5]]


def test_what_the_rules_forbid_has_no_output(toy):
    case = toy.Case("shift", words=4)
    config = GenerateConfig(beam=3, max_len=6)
    found = search(case, case.prompts(2), config, [[(1, 2)], []], bad=((2,),))
    assert not found[0] and found[1]


def test_mistakes_are_refused(toy):
    case = toy.Case("shift", words=4)
    for more in ({"sampling": True}, {"beam": 4, "diverse_beam_groups": 2}):
        with pytest.raises(UsageError, match="--constraints .*search.* --sampling"):
            search(case, case.prompts(1), GenerateConfig(max_len=4, **more), [[(1,)]])
    with pytest.raises(DataError, match="input 1 .*phrase.* 5 tokens, and --max-len is 4"):
        Constraint(phrases=((0,) * 5,)).with_lengths(GenerateConfig(max_len=4), 1, name="input 1")
