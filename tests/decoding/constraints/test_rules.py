"""What may not follow, against plain loops and brute force."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from searching import contains

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints, WordRules, word_rules
from unitk.decoding.constraints.rules import Rules, tabulate_phrases
from unitk.decoding.decode import generate
from unitk.errors import DataError, UsageError
from unitk.slots import Protocol

EXHAUSTIVE = GenerateConfig(beam=100, nbest=100, max_len=4, max_tokens=10**6, search="exact")


def rules_of(config, protocol, words=None):
    return Rules(
        protocol,
        config,
        Constraints([Constraint().with_lengths(config, 0)], words or WordRules()),
        "cpu",
    )


def forbidden(rules, written, count, size, least=0):
    """The words that may not follow, for each row."""
    scores = torch.zeros(len(written), size)
    count = torch.as_tensor(count)
    rules.forbid(scores, torch.as_tensor(written), count, torch.full_like(count, least))
    return [set((row == -torch.inf).nonzero()[:, 0].tolist()) for row in scores]


def naive_repeats(written, count, n, free):
    """The words that would end an n-gram seen before in the blank at hand."""
    blank = written[len(written) - count :]
    grams = [tuple(blank[i : i + n]) for i in range(len(blank) - n + 1)]
    tail = tuple(blank[len(blank) - (n - 1) :]) if n > 1 else ()
    if len(blank) < n - 1:
        return set()
    return {gram[-1] for gram in grams if gram[:-1] == tail and not free & set(gram)}


def test_no_ngram_twice_equals_a_loop():
    rng = np.random.default_rng(0)
    blocked = 0
    for case in range(1000):
        n, length, words = rng.integers(1, 5), rng.integers(0, 20), rng.integers(2, 6)
        written = rng.integers(words, size=(3, length))
        count = rng.integers(0, length + 1, size=3)
        free = set(rng.integers(words, size=case % 3).tolist())
        config = GenerateConfig(no_repeat_ngram_size=int(n))
        rules = rules_of(config, Protocol(end=6), WordRules(free=tuple(free)))
        found = forbidden(rules, written, count, 7)
        for row, words_so_far, inside in zip(found, written.tolist(), count, strict=True):
            assert row == naive_repeats(words_so_far, int(inside), int(n), free)
            blocked += len(row)
    assert blocked > 1000


def test_banned_words_and_early_ends():
    rules = rules_of(GenerateConfig(min_len=2), Protocol(end=2, banned=(3, 5)))
    assert forbidden(rules, [[0] * 4] * 2, [1, 2], 6, least=2) == [{2, 3, 5}, {3, 5}]


def test_symbols_that_are_allowed_again(toy_vocab):
    config = GenerateConfig(allow_symbols="[CLS] [PAD]")
    banned = (toy_vocab.pad, toy_vocab.cls, toy_vocab.mask)
    rules = rules_of(config, Protocol(end=0, banned=banned), word_rules(config, toy_vocab))
    assert forbidden(rules, [[]], [0], len(toy_vocab)) == [{toy_vocab.mask}]
    with pytest.raises(UsageError, match="--allow-symbols: .*special symbol"):
        word_rules(GenerateConfig(allow_symbols="the"), toy_vocab)


@pytest.mark.parametrize("sampling", [False, True])
def test_several_ends_are_one(toy_vocab, sampling):
    """The most probable end stands for all in a search, their sum in a draw; other words stay."""
    pieces = toy_vocab.pieces(range(len(toy_vocab)))
    config = GenerateConfig(end_symbols=f"{pieces[9]} [CLS]", sampling=sampling)
    protocol = Protocol(end=toy_vocab.sep, banned=(toy_vocab.cls, toy_vocab.pad))
    rules = rules_of(config, protocol, word_rules(config, toy_vocab))
    before = torch.randn(3, len(toy_vocab)).log_softmax(1)
    after = before.clone()
    rules.forbid(after, torch.zeros(3, 0, dtype=torch.long), torch.zeros(3), torch.zeros(3))
    ends = [toy_vocab.sep, 9, toy_vocab.cls]
    one = before[:, ends].exp().sum(1).log() if sampling else before[:, ends].max(1).values
    assert_near(after[:, toy_vocab.sep], one)
    assert (after[:, [9, toy_vocab.cls, toy_vocab.pad]] == -torch.inf).all()
    others = [index for index in range(len(toy_vocab)) if index not in (*ends, toy_vocab.pad)]
    assert torch.equal(after[:, others], before[:, others])


def test_an_end_that_the_vocabulary_lacks(toy_vocab):
    with pytest.raises(UsageError, match=r"--end-symbols: '\[CLX\]' .*\[CLS\]"):
        word_rules(GenerateConfig(end_symbols="[CLX]"), toy_vocab)


def test_a_limit_of_all_blanks_together(toy):
    """What is left are the outputs of no more words; none of them is scored otherwise."""
    case = toy.Case("blanks", words=2)
    for prompt in case.prompts(3):
        [found] = search(case, [prompt], replace(EXHAUSTIVE, beam=400, nbest=400, max_len=2))
        for most in (1, 2, 3):
            config = replace(EXHAUSTIVE, beam=400, nbest=400, max_len=2, max_words=most)
            [limited] = search(case, [prompt], config)
            ids = [one for one in found if (one.ids != case.end).sum() <= most]
            assert [one.ids.tolist() for one in limited] == [one.ids.tolist() for one in ids]
            assert [one.score for one in limited] == pytest.approx([one.score for one in ids])
            drawn = replace(
                config, search="likely", beam=1, nbest=20, sampling=True, temperature=2.0
            )
            [draws] = search(case, [prompt], drawn)
            assert all((one.ids != case.end).sum() <= most for one in draws)


def test_bad_phrases_equal_a_loop():
    rng = np.random.default_rng(1)
    blocked = 0
    for _ in range(300):
        bad = [tuple(rng.integers(4, size=rng.integers(1, 4)).tolist()) for _ in range(4)]
        written = rng.integers(4, size=(3, rng.integers(0, 9)))
        rules = rules_of(GenerateConfig(), Protocol(end=4), WordRules(bad=tuple(bad)))
        for row, so_far in zip(
            forbidden(rules, written, [0] * 3, 5), written.tolist(), strict=True
        ):
            ends = {w for w in range(4) if any((*so_far, w)[-len(b) :] == b for b in bad)}
            assert row == ends
            blocked += len(ends)
    assert blocked > 500


def test_phrases_of_an_input_equal_a_loop():
    rng = np.random.default_rng(2)
    blocked = 0
    for _ in range(300):
        sizes = rng.integers(1, 4, size=(3, rng.integers(0, 3)))
        own = [[tuple(rng.integers(4, size=size).tolist()) for size in row] for row in sizes]
        written = rng.integers(4, size=(3, rng.integers(0, 9)))
        scores = torch.zeros(3, 5)
        avoid = tabulate_phrases([tuple(phrases) for phrases in own], at_end=True)
        count = torch.zeros(3, dtype=torch.int64)
        rules = rules_of(GenerateConfig(), Protocol(end=4))
        rules.forbid(scores, torch.as_tensor(written), count, count, avoid_RPL=avoid)
        for row, so_far, phrases in zip(scores, written.tolist(), own, strict=True):
            ends = {w for w in range(4) if any((*so_far, w)[-len(b) :] == b for b in phrases)}
            assert set((row == -torch.inf).nonzero()[:, 0].tolist()) == ends
            blocked += len(ends)
    assert blocked > 300


def search(case, prompts, config, wanted=None, words=None):
    """What is found for prompts with a constraint each."""
    each = [one.with_lengths(config, 0) for one in wanted or [Constraint()] * len(prompts)]
    constraints = Constraints(each, words or WordRules())
    return generate(case.model, prompts, case.protocol, config, constraints=constraints)


def assert_same(hypotheses, expected):
    assert [one.ids.tolist() for one in hypotheses] == [ids for ids, _ in expected]
    scores = [one.score for one in hypotheses]
    assert_near(scores, [score for _, score in expected])


@pytest.mark.parametrize("name", ["shift", "slot"])
def test_lexicons_equal_brute_force(toy, name):
    case = toy.Case(name, words=2, scale=0.6)
    prompt = case.prompt(np.array([0, 1, 1]))
    for bad in ([(0, 1)], [(1,)], [(0, 0), (1, 0, 1)]):
        (found,) = search(case, [prompt], EXHAUSTIVE, words=WordRules(bad=tuple(bad)))

        def clean(words, bad=bad):
            return not any(contains(words, phrase) for phrase in bad)

        assert_same(found, toy.brute_force(case, prompt, EXHAUSTIVE, accept=clean))
    config = replace(EXHAUSTIVE, unkpen=1.5, search="fairseq")
    (found,) = search(case, [prompt], config, words=WordRules(unk=1))
    assert_same(found, toy.brute_force(case, prompt, config, penalty={1: 1.5}))


@pytest.mark.parametrize("name", ["shift", "slot", "cross"])
def test_what_inputs_avoid_equals_brute_force(toy, name):
    case = toy.Case(name, words=2, scale=0.6)
    prompts = [case.prompt(np.array(ids)) for ids in ([0, 1, 1], [1, 0], [0])]
    own = [[(0, 1)], [], [(1,), (0, 0, 0)]]
    wanted = [Constraint(avoid=tuple(phrases)) for phrases in own]
    for prompt, phrases, found in zip(
        prompts, own, search(case, prompts, EXHAUSTIVE, wanted), strict=True
    ):

        def clean(words, phrases=phrases):
            return not any(contains(words, phrase) for phrase in phrases)

        assert_same(found, toy.brute_force(case, prompt, EXHAUSTIVE, accept=clean))


@pytest.mark.parametrize("name", ["shift", "slot", "cross"])
def test_beginnings_equal_brute_force_and_forced_decoding(toy, name):
    case = toy.Case(name, words=2, scale=0.6)
    prompt = case.prompt(np.array([0, 1, 1]))
    for prefix in ((1,), (0, 1, 1), (1, 1, 1, 1)):
        (found,) = search(case, [prompt], EXHAUSTIVE, [Constraint(prefix)])

        def begins(words, prefix=prefix):
            return tuple(words[: len(prefix)]) == prefix

        assert_same(found, toy.brute_force(case, prompt, EXHAUSTIVE, begins))
        for one in found:
            assert_near(one.log_prob, case.score(prompt, one.ids))


def test_a_beginning_is_kept_whatever_the_rules(toy):
    case = toy.Case("shift", words=6, scale=0.6)
    prompts = case.prompts(3)
    config = GenerateConfig(beam=2, max_len=6, min_len=5, no_repeat_ngram_size=1)
    prefixed = Constraint((3, 3, case.mask))
    for found in (
        search(case, prompts, config, [prefixed] * 3, WordRules(bad=((3,),), unk=3)),
        search(case, prompts, replace(config, search="fairseq"), [prefixed] * 3),
        search(case, prompts, replace(config, sampling=True, nbest=2), [prefixed] * 3),
    ):
        for prompt, (one, *_) in zip(prompts, found, strict=True):
            assert tuple(one.ids[:3]) == prefixed.prefix
            assert_near(one.log_prob, case.score(prompt, one.ids))


def test_the_first_blank_begins_so(toy):
    case = toy.Case("blanks", words=6, scale=0.6)
    prompts = case.prompts(5)
    config = GenerateConfig(beam=3, nbest=3, max_len=4)
    for found in search(case, prompts, config, [Constraint((2, 2, 5))] * 5):
        assert len(found) == 3
        assert all(case.blanks_of(one.ids.tolist())[0][:3] == [2, 2, 5] for one in found)


@pytest.mark.parametrize("options", [{"beam": 3, "nbest": 3}, {"sampling": True, "nbest": 2}])
def test_what_others_are_asked_changes_nothing(toy, kind, options):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(6)
    config = GenerateConfig(max_len="1.5x+2", min_len="0.5x", **options)
    constraints = Constraints(
        [
            Constraint((4, 3, 2, 1)[:n] if n % 2 else ()).with_lengths(config, n)
            for n in (3, 1, 0, 2, 5, 4)
        ],
        WordRules(bad=((5, 6), (7,))),
    )
    together = generate(case.model, prompts, case.protocol, config, constraints=constraints)
    if "beam" in options:  # draws depend on the number of an input
        for i, prompt in enumerate(prompts):
            alone = constraints.select([i])
            (found,) = generate(case.model, [prompt], case.protocol, config, constraints=alone)
            assert [o.ids.tolist() for o in found] == [o.ids.tolist() for o in together[i]]
    few = replace(config, max_tokens=1)
    apart = generate(case.model, prompts, case.protocol, few, constraints=constraints)
    for found, others, sized in zip(together, apart, constraints.by_input, strict=True):
        assert [o.ids.tolist() for o in found] == [o.ids.tolist() for o in others]
        for one in found:
            *blanks, _ = case.blanks_of(one.ids.tolist())
            assert all(sized.min_len <= len(b) <= sized.max_len for b in blanks)
            assert not any(contains(one.ids.tolist(), b) for b in [(5, 6), (7,)])


def test_lengths_of_lines():
    config = GenerateConfig(min_len="0.5x+1", max_len="1.2x+10")
    sized = Constraint().with_lengths(config, 7)
    assert (sized.min_len, sized.max_len) == (4, 18)
    assert Constraint().with_lengths(GenerateConfig(max_len="0.1x"), 3).max_len == 1
    with pytest.raises(DataError, match="input 2: --min-len 1x is 9 here, and --max-len 8"):
        Constraint().with_lengths(GenerateConfig(min_len="1x", max_len=8), 9, name="input 2")
    with pytest.raises(DataError, match="input 3 begins with 4 tokens, and --max-len is 3"):
        Constraint((0,) * 4).with_lengths(GenerateConfig(max_len=3), 1, name="input 3")


def test_words_of_the_vocabulary(toy_vocab, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("the bade\n\n fido \n\u4e00\n")
    config = GenerateConfig(
        bad_words=path, no_repeat_ngram_size=3, no_repeat_ngram_ignore=". [SEP]"
    )
    words = word_rules(config, toy_vocab)
    assert set(words.bad) == {tuple(toy_vocab.encode(text)) for text in ("the bade", "fido")}
    assert toy_vocab.sep in words.free and len(words.free) >= 2
    assert {toy_vocab.decode([i]).strip() for i in words.free if i != toy_vocab.sep} == {"."}
    assert words.unk is None
    assert word_rules(replace(config, unkpen=1.0), toy_vocab).unk == toy_vocab.unk
    with pytest.raises(UsageError, match="--no-repeat-ngram-ignore: 'xyzzy' .*piece"):
        word_rules(replace(config, no_repeat_ngram_ignore="xyzzy"), toy_vocab)
