"""Beam search is brute force, and a naive beam that encodes every hypothesis alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from searching import begin_search

from unitk.decoding.config import SEARCH_PRESETS, GenerateConfig
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.decode import decode, generate
from unitk.decoding.search import Request, Search
from unitk.errors import NonFiniteError, UsageError
from unitk.slots import Protocol, collate

EXHAUSTIVE = GenerateConfig(beam=64, nbest=64, max_len=4, max_tokens=10**6, search="exact")


def words(hypotheses):
    return [one.ids.tolist() for one in hypotheses]


def assert_same(hypotheses, expected):
    """Equal words in equal order, and scores within 1e-5."""
    assert words(hypotheses) == [ids for ids, _ in expected]
    scores = [one.score for one in hypotheses]
    assert_near(scores, [score for _, score in expected])


@pytest.mark.every(2)
@pytest.mark.parametrize("lenpen", [-1.0, 0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("name", ["shift", "slot"])
def test_a_wide_beam_is_brute_force(toy, name, lenpen):
    case = toy.Case(name, words=2)
    prompt = case.prompt(np.array([0, 1, 1]))
    for rules in ({}, {"min_len": 2}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}):
        config = replace(EXHAUSTIVE, lenpen=lenpen, **rules)
        expected = toy.brute_force(case, prompt, config)
        (found,) = generate(case.model, [prompt], case.protocol, config)
        assert_same(found, expected)
        for nbest in (1, 3):  # stopping early loses nothing
            few = replace(config, nbest=nbest)
            (found,) = generate(case.model, [prompt], case.protocol, few)
            assert_same(found, expected[:nbest])


@pytest.mark.every(3)
@pytest.mark.parametrize("beam", [1, 3, 4])
def test_equals_a_naive_beam(toy, kind, beam):
    shared = 0
    for seed, scale in enumerate((0.15, 0.3, 0.6)):
        case = toy.Case(kind, words=6, scale=scale, seed=seed)
        prompts = case.prompts(5)
        config = GenerateConfig(
            beam=beam, nbest=beam, max_len=5, no_repeat_ngram_size=seed, lenpen=0.5 * seed
        )
        if beam > 1:  # the naive beam looks at everything
            config = replace(config, search="exact")
        naive = [list(toy.naive_beam(case, prompt, config)) for prompt in prompts]
        found = generate(case.model, prompts, case.protocol, config)
        for prompt, hypotheses, steps in zip(prompts, found, naive, strict=True):
            # greedy decoding ends with the first end, the naive beam does not
            finished = [greedy(case, prompt, config)] if beam == 1 else steps[-1][0]
            assert_same(hypotheses, finished)
        shared += open_beams_are_equal(case, prompts, config, naive)
    assert shared > 20 or beam == 1


def greedy(case, prompt, config):
    """The best allowed word, until the last end."""
    ids, raw = [], 0.0
    while not case.finished(prompt, ids):
        table = case.next(prompt, ids)
        best = max(
            (v for v in range(len(table)) if case.allowed(ids, v, config)), key=table.__getitem__
        )
        ids.append(best)
        raw += table[best]
    return ids, raw / len(ids) ** config.lenpen


@torch.inference_mode()
def open_beams_are_equal(case, prompts, config, naive):
    """Compare what is open after each step; how often hypotheses of an input shared a parent."""
    reader, search = begin_search(case, prompts, config)
    logits, shared = case.model.head(reader.read_prompt()), 0
    for step in range(1, search.max_steps):
        back, token, position = search.extend(logits)
        state = search.state
        for b, steps in enumerate(naive):
            kept = [k for k in range(config.beam) if state.score[b, k] > -torch.inf]
            if not kept:  # nothing is open, or the stopping rule dropped it
                continue
            opened = steps[step - 1][1]
            assert [state.written[b, k, :step].tolist() for k in kept] == [ids for ids, _ in opened]
            scores = [float(state.score[b, k]) for k in kept]
            assert_near(scores, [raw for _, raw in opened])
            shared += step > 1 and len(set(back[b, kept].tolist())) < len(kept)
        logits = case.model.head(reader.read(reader.next_window(), back, token, position))
    return shared


def test_score_is_the_log_probability_over_the_length(toy, kind):
    case = toy.Case(kind, words=6)
    prompts = case.prompts(6)
    config = GenerateConfig(beam=3, nbest=3, max_len=5, lenpen=0.7)
    for prompt, found in zip(
        prompts, generate(case.model, prompts, case.protocol, config), strict=True
    ):
        assert len(found) == 3
        for one in found:
            assert_near(one.log_prob, case.score(prompt, one.ids.tolist()))
            assert_near(one.log_prob, float(one.token_log_probs.sum()))
            assert_near(one.score, one.log_prob / len(one.ids) ** 0.7)
            assert len(one.token_log_probs) == len(one.ids)


def test_limits_hold_for_each_blank(toy, kind):
    case = toy.Case(kind, words=6, scale=0.6)
    prompts = case.prompts(6)
    for low, high in ((0, 3), (3, 3), (2, 6)):
        config = GenerateConfig(beam=4, nbest=4, min_len=low, max_len=high)
        for prompt, found in zip(
            prompts, generate(case.model, prompts, case.protocol, config), strict=True
        ):
            for one in found:
                *blanks, after = case.blanks_of(one.ids.tolist())
                assert len(blanks) == 1 + len(prompt.blanks) and after == []
                assert all(low <= len(blank) <= high for blank in blanks)


def test_an_end_counts_only_among_the_first_beam_continuations():
    config = GenerateConfig(beam=2, nbest=2, max_len=3)
    home, blanks = torch.zeros(1, 1, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    search = Search(Request(home, blanks, Protocol(end=4), config, Constraints.plain(config, 1)))
    end_is_third = torch.tensor([[2.0, 3.0, 0.0, 0.0, 1.0]])
    search.extend(end_is_third)
    assert search.state.best.tolist() == [[-torch.inf, -torch.inf]]
    assert search.state.written[0, :, 0].tolist() == [1, 0]
    end_is_second = torch.tensor([[3.0, 0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0, 0.0]])
    search.extend(end_is_second)
    assert search.state.best_written[0, 0, :2].tolist() == [1, 4]
    assert search.state.best[0, 1] == -torch.inf
    assert search.state.written[0, :, :2].tolist() == [[1, 0], [0, 1]]


def test_rules_that_leave_nothing_give_nothing(toy):
    case = toy.Case("shift", words=2)
    config = GenerateConfig(beam=2, min_len=4, max_len=5, no_repeat_ngram_size=1)
    assert generate(case.model, case.prompts(2), case.protocol, config) == [[], []]


def test_fewer_outputs_than_asked_for_where_there_are_no_more(toy):
    case = toy.Case("shift", words=1)
    config = GenerateConfig(beam=4, nbest=4, max_len=2)
    (found,) = generate(case.model, case.prompts(1), case.protocol, config)
    assert sorted(words(found)) == [[0, 0, 1], [0, 1], [1]]


def test_logits_that_are_not_finite_are_refused(toy):
    case = toy.Case("shift", words=4)
    torch.nn.init.constant_(case.model.decoder.norm.weight, torch.nan)
    with pytest.raises(NonFiniteError):
        generate(case.model, case.prompts(2), case.protocol, GenerateConfig(beam=2, max_len=3))


@pytest.mark.every(2)
@pytest.mark.parametrize("search", SEARCH_PRESETS)
def test_ways_to_search(toy, search):
    """Against the naive beam, stopped by the preset's own words."""
    for seed, lenpen in enumerate((0.0, 0.7, 1.0, 1.3)):
        case = toy.Case("shift", words=4, scale=0.5, seed=seed)
        config = GenerateConfig(beam=3, nbest=3, max_len=6, search=search, lenpen=lenpen)
        prompts = case.prompts(4)
        for prompt, found in zip(
            prompts, generate(case.model, prompts, case.protocol, config), strict=True
        ):
            naive = toy.naive_beam(case, prompt, config)
            for steps, (finished, opened, best) in enumerate(naive, 1):
                # the sum that must not beat the worst kept one, and the length it is divided by
                raw = best if search == "glm" else max((raw for _, raw in opened), default=0)
                length = {"exact": 7 if lenpen else 1, "glm": max(steps - 1, 1)}.get(search, steps)
                full = len(finished) == config.beam
                over = full and finished[-1][1] >= raw / length**lenpen
                if {"fairseq": full, "unilm": False}.get(search, over):
                    break
            assert_same(found, finished)


@pytest.mark.parametrize("search", SEARCH_PRESETS)
@pytest.mark.parametrize("lenpen", [0.0, 0.7, 1.0])
def test_a_wide_beam_is_brute_force_in_every_way(toy, search, lenpen):
    case = toy.Case("slot", words=2, scale=0.6)
    prompt = case.prompt(np.array([0, 1, 1]))
    config = replace(EXHAUSTIVE, search=search, lenpen=lenpen, min_len=1)
    (found,) = generate(case.model, [prompt], case.protocol, config)
    assert_same(found, toy.brute_force(case, prompt, config))


def unilms_own(case, prompt, config):
    """The best output as UniLM's `modeling.py` finds it, frame by frame, ended words kept as beams.

    A frame is what K beams have written last; those that ended go on at a forbidding price.
    """
    beam, frames = config.beam, [[([], 0.0)]]
    while len(frames) <= config.max_len:
        following = []
        for words, raw in frames[-1]:
            over = case.end in words
            table = case.next(prompt, [v for v in words if v != case.end]) - 1e4 * over
            allowed = [v for v in range(len(table)) if v not in case.protocol.banned]
            best = sorted(allowed, key=lambda v, table=table: -table[v])[:beam]
            following += [([*words, v], raw + table[v]) for v in best]
        frames.append(sorted(following, key=lambda one: -one[1])[:beam])
        if all(words[-1] == case.end for words, _ in frames[-1]):
            break
    last = len(frames) - 1
    ended = [
        (words, raw / ((5 + n) / 6) ** config.lenpen)
        for n, frame in enumerate(frames)
        for words, raw in frame
        if n == last or n and words[-1] == case.end
    ]
    words, score = max(ended, key=lambda one: one[1])
    return words if words[-1] == case.end else [*words, case.end], score


def test_unilms_way_is_its_programs(toy):
    cut = 0
    for seed in range(8):
        case = toy.Case("slot", words=5, scale=0.5, seed=seed)
        config = GenerateConfig(beam=3, max_len=5, search="unilm", lenpen=0.5 * (seed % 3))
        prompts = case.prompts(3)
        for prompt, found in zip(
            prompts, generate(case.model, prompts, case.protocol, config), strict=True
        ):
            assert_same(found, [unilms_own(case, prompt, config)])
            cut += len(found[0].ids) == 6
    assert 0 < cut < 24


def test_glms_way_fills_blanks(toy):
    case = toy.Case("blanks", words=5, scale=0.5)
    prompts = case.prompts(4)
    config = GenerateConfig(beam=3, nbest=3, max_len=3, search="glm", lenpen=0.7, min_len=2)
    for prompt, found in zip(
        prompts, generate(case.model, prompts, case.protocol, config), strict=True
    ):
        for steps, (finished, _, best) in enumerate(toy.naive_beam(case, prompt, config), 1):
            if len(finished) == 3 and finished[-1][1] >= best / max(steps - 1, 1) ** 0.7:
                break
        assert_same(found, finished)
    with pytest.raises(UsageError, match="--search unilm.*outputs.*one blank"):
        generate(case.model, prompts, case.protocol, replace(config, search="unilm"))


class Table:
    """A language model without a network: random logits for every beginning."""

    def __init__(self, words, seed):
        self.rng, self.size, self.seen = np.random.default_rng(seed), words + 1, {}

    def __call__(self, written):
        scale = 8 if len(written) > 1 else 2  # a bad beginning may have a sure end
        logits = self.seen.setdefault(tuple(written), self.rng.normal(0, scale, self.size))
        return logits - np.log(np.exp(logits).sum())


def run_table(table, end, blanks, config):
    """Search with the log-probabilities that a table gives for each beginning."""
    homes = torch.zeros(1, blanks + 1, 2, dtype=torch.int64)
    protocol = Protocol(end=end, begin=end + 1)
    plain = Constraints.plain(config, 1)
    search = Search(Request(homes, torch.tensor([blanks]), protocol, config, plain))
    written = [()]
    while bool(search.open()[0]):
        logits = np.stack([table(words) for words in written])
        search.extend(torch.tensor(logits, dtype=torch.float32))
        written = [tuple(row) for row in search.state.written[0, :, : search.steps].tolist()]
    return search


def all_outputs(table, end, blanks, config):
    """Every output, best first: (words, score)."""
    opened, found = [((), 0.0)], []
    while opened:
        words, raw = opened.pop()
        count = len(words) - max((i + 1 for i, word in enumerate(words) if word == end), default=0)
        for word, gain in enumerate(table(words)):
            if word != end and count < config.max_len:
                opened.append(((*words, word), raw + gain))
            elif word == end and words.count(end) < blanks:
                opened.append(((*words, word), raw + gain))
            elif word == end:
                score = (raw + gain) / (len(words) + 1) ** config.lenpen
                found.append(([*words, word], score))
    return sorted(found, key=lambda one: -one[1])


@pytest.mark.every(3)
@pytest.mark.parametrize("lenpen", [-1.5, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0])
def test_the_exact_stop_loses_nothing_and_saves_steps(lenpen):
    """A beam that holds everything finds the best outputs of all, whatever the length penalty."""
    end, saved = 2, 0
    for seed in range(40):
        table, blanks, nbest = Table(end, seed), seed % 3, 1 + seed % 2
        rule = {"lenpen": lenpen, "search": "exact"}
        config = GenerateConfig(beam=80, nbest=nbest, max_len=4 - blanks, **rule)
        search = run_table(table, end, blanks, config)
        expected = all_outputs(table, end, blanks, config)[:nbest]
        assert_same(search.results()[0], expected)
        saved += search.max_steps - search.steps
    assert saved > 0


def test_the_exact_stop_counts_on_further_blanks():
    """An output of two blanks is overtaken by one whose second blank was not yet begun."""
    end, many = 1000, 1001

    def table(written):
        chance = np.full(many, 1e-9)
        if not written:
            chance[[0, end]] = 0.01, 0.99
        elif written[0] == end:
            chance[:], chance[end] = 0.8 / (many - 1), 0.2
        else:
            full = len(written) in (3, 7)
            chance[end if full else 0] = 1.0
        return np.log(chance / chance.sum())

    config = GenerateConfig(beam=4, max_len=3, search="exact")
    ((best,),) = run_table(table, end, 1, config).results()
    assert best.ids.tolist() == [0, 0, 0, end] * 2
    assert best.score == pytest.approx(np.log(0.01) / 8, abs=1e-4)


def test_a_temperature_is_that_of_the_logits(toy, kind):
    case, other = toy.Case(kind, words=6), toy.Case(kind, words=6)
    head = other.model.head
    other.model.head = lambda states: head(states) / 1.7
    prompts, config = case.prompts(4), GenerateConfig(beam=3, nbest=3, max_len=4)
    hot = generate(case.model, prompts, case.protocol, replace(config, temperature=1.7))
    for one, two in zip(hot, generate(other.model, prompts, case.protocol, config), strict=True):
        assert [a.ids.tolist() for a in one] == [b.ids.tolist() for b in two]
        assert [a.score for a in one] == pytest.approx([b.score for b in two])


@pytest.mark.usefixtures("one_thread")
def test_a_batch_is_decoded_as_its_rows(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(6)
    config = GenerateConfig(beam=3, max_len=4)
    batch = collate([[prompt] for prompt in prompts]).to("cpu")
    found = decode(case.model, batch, case.protocol, config)
    order = np.random.default_rng(0).permutation(6)
    batch = collate([[prompts[i]] for i in order]).to("cpu")
    for i, hypotheses in zip(order, decode(case.model, batch, case.protocol, config), strict=True):
        for one, other in zip(hypotheses, found[i], strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.token_log_probs.tolist() == other.token_log_probs.tolist()  # bit-equal
