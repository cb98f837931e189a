"""Span laws by frequency and by invariants, on fixed seeds."""

import math

import numpy as np
import pytest

from unitk.spans import (
    block_places,
    corrupt,
    edge_start,
    length_law,
    long_span,
    most_spans,
    ngram_places,
    poisson_law,
    poisson_lengths,
    poisson_moments,
    poisson_spans,
    run_places,
    scatter,
    sentence_spans,
    take_fitting,
    word_ngrams,
    word_spans,
)

NO_WALLS = np.empty(0, np.int64)


def test_poisson_law_is_truncated_and_normalised():
    law = np.diff(poisson_law(3.0, 39), prepend=0)
    # P(1..5) and the mean as measured in GLM's sampler
    assert law[:5] == pytest.approx([0.157, 0.236, 0.236, 0.177, 0.106], abs=5e-4)
    assert law @ np.arange(1, 40) == pytest.approx(3.157, abs=5e-4)
    assert law.sum() == pytest.approx(1)


@pytest.mark.parametrize("mean", [0.01, 3.0, 1000.0])
def test_a_poisson_law_ends_where_nothing_is_left(mean):
    moments = poisson_moments(mean, 10**9)
    zero = math.exp(-mean)
    assert moments[0] == pytest.approx(mean / (1 - zero))
    variance = (mean + mean**2) / (1 - zero) - (mean / (1 - zero)) ** 2
    assert moments[1] == pytest.approx(variance, rel=1e-6)


def test_poisson_lengths_follow_the_law_and_reach_the_budget():
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(2000):
        lengths = poisson_lengths(76, 3.0, 39, rng)
        assert 76 <= lengths.sum() <= 76 + lengths[-1] - 1
        drawn.append(lengths)
    # the last length of a draw is biased by the stopping rule, the first is not
    firsts = np.array([lengths[0] for lengths in drawn])
    assert firsts.mean() == pytest.approx(3.157, abs=0.1)
    counts = np.array([len(lengths) for lengths in drawn])
    assert counts.mean() == pytest.approx(24.6, abs=0.3)
    assert counts.max() <= most_spans(76, 3.0, 39)
    assert len(poisson_lengths(0, 3.0, 39, rng)) == 0


def test_scatter_is_uniform_over_all_placements():
    rng = np.random.default_rng(0)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        spans = scatter(np.array([1, 2]), 6, rng)
        seen[tuple(spans[:, 0])] = seen.get(tuple(spans[:, 0]), 0) + 1
    # starts (a, b) with b >= a + 2 and b + 2 <= 6: i.i.d. draws, so equal ones weigh half
    assert set(seen) == {(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)}
    weight = {key: (1 if key[1] - key[0] == 2 else 2) for key in seen}
    for key, count in seen.items():
        assert count / 6000 == pytest.approx(weight[key] / 9, abs=0.02)


def test_scatter_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="do not fit"):
        scatter(np.array([3, 3]), 6, np.random.default_rng(0))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 30, 512])
def test_poisson_spans_hold_their_promises(size):
    rng = np.random.default_rng(size)
    for _ in range(200):
        budget = max(1, int(0.15 * size))
        most = int(min(most_spans(budget, 3.0, 39), size))
        spans = poisson_spans(size, budget, 3.0, 39, most, NO_WALLS, rng)
        assert 0 <= spans[0, 0] and spans[-1, 1] <= size and len(spans) <= most
        assert (spans[1:, 0] > spans[:-1, 1]).all(), "a word is between spans"
        assert (spans[:, 1] - spans[:, 0]).sum() >= min(budget, size)


def test_no_span_covers_a_wall():
    rng = np.random.default_rng(0)
    walls = np.array([10, 20, 21])
    hidden = np.zeros(30)
    for _ in range(500):
        for a, b in poisson_spans(30, 5, 3.0, 39, 20, walls, rng):
            hidden[a:b] += 1
    assert (hidden[walls] == 0).all() and (np.delete(hidden, walls) > 0).all()


def test_sentences_are_whole():
    ends = np.array([0, 0, 1, 0, 1, 0], bool)
    rng = np.random.default_rng(0)
    whole = {(0, 3), (3, 5), (5, 6)}
    seen = set()
    for _ in range(100):
        spans = sentence_spans(ends, 1, 9, rng)
        seen |= {tuple(span) for span in spans.tolist()}
        assert len(spans) == 1
    assert seen == whole
    assert {tuple(s) for s in sentence_spans(ends, 6, 9, rng).tolist()} == whole
    assert len(sentence_spans(ends, 6, 2, rng)) == 2


def test_long_span_is_uniform_from_the_least_to_all():
    rng = np.random.default_rng(0)
    spans = np.concatenate([long_span(100, 50, rng) for _ in range(4000)])
    size = spans[:, 1] - spans[:, 0]
    assert size.min() == 50 and size.max() == 100 and size.mean() == pytest.approx(75, abs=1)
    assert spans.min() >= 0 and spans.max() <= 100
    assert long_span(1, 1, rng).tolist() == [[0, 1]]


def free(size, *walls):
    open_ = np.ones(size, bool)
    open_[list(walls)] = False
    return open_


def test_blocks_of_unilm2_have_the_published_statistics():
    """As simulated from algorithm 1: 512 tokens, 40 % of draws 2 to 6 tokens."""
    rng = np.random.default_rng(0)
    share, number, grams = [], [], []
    for _ in range(3000):
        hidden, sizes = block_places(free(512), 77, 0.4, 6, rng)
        assert len(hidden) == len(set(hidden.tolist())) == sizes.sum(), "no token twice"
        first = np.repeat(hidden[sizes.cumsum() - sizes], sizes)
        within = np.concatenate([np.arange(size) for size in sizes])
        assert (hidden == first + within).all(), "block by block"
        assert 77 <= sizes.sum() <= 77 + 5 and 77 > sizes[:-1].sum()
        share.append(sizes.sum() / 512)
        number.append(len(sizes))
        grams.append(sizes[sizes > 1].sum() / sizes.sum())
    assert np.mean(share) == pytest.approx(0.1524, abs=0.001)
    assert np.mean(number) == pytest.approx(37.5, abs=0.5)
    assert np.mean(grams) == pytest.approx(0.70, abs=0.01)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_what_has_no_neighbour_left_is_hidden_alone_where_all_blocks_should_be_longer(size):
    hidden, sizes = block_places(free(size), size, 1.0, 6, np.random.default_rng(0))
    assert sorted(hidden) == list(range(size)) and sizes.sum() == size
    hidden, sizes = block_places(free(7, 1, 3, 5), 4, 1.0, 6, np.random.default_rng(0))
    assert sorted(hidden) == [0, 2, 4, 6] and sizes.tolist() == [1] * 4


def test_blocks_come_in_random_order_and_never_touch_walls():
    rng, rising = np.random.default_rng(0), []
    for _ in range(500):
        hidden, sizes = block_places(free(40, 0, 7, 39), 6, 0.4, 6, rng)
        assert not set(hidden.tolist()) & {0, 7, 39}
        if len(sizes) > 1:
            rising.append(hidden[0] < hidden[sizes[0]])
    assert np.mean(rising) == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_laws_hold_for_very_short_texts(size):
    rng = np.random.default_rng(size)
    for budget in range(1, size + 3):
        for _ in range(50):
            hidden, _ = block_places(free(size), budget, 0.4, 6, rng)
            assert min(budget, size) <= len(hidden) <= size
            assert len(ngram_places(free(size), budget, 0.2, 3, rng)) == min(budget, size)


@pytest.mark.slow
def test_ngrams_of_unilm_reach_the_budget_and_stop_at_walls():
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(2000):
        hidden = ngram_places(free(512, 0, 200, 511), 77, 0.2, 3, rng)
        assert len(hidden) == 77 and (np.diff(hidden) > 0).all()
        assert not set(hidden.tolist()) & {0, 200, 511}
        runs.append(77 - (np.diff(hidden) == 1).sum())
    official = [np.sort(official_places(free(512, 0, 200, 511), 77, rng)) for _ in range(2000)]
    expected = [77 - (np.diff(hidden) == 1).sum() for hidden in official]
    assert np.mean(runs) == pytest.approx(np.mean(expected), abs=0.5)
    assert np.std(runs) == pytest.approx(np.std(expected), rel=0.1)
    assert len(ngram_places(free(9), 1, 1.0, 3, rng)) == 1, "what exceeds the budget is given back"


def official_places(open_, budget, rng):
    """The sampler of UniLM's fine-tuning code, restated as it is written there."""
    candidates, hidden = np.flatnonzero(open_).tolist(), set()
    rng.shuffle(candidates)
    for start in candidates:
        if len(hidden) >= budget:
            break
        if start in hidden:
            continue
        size = int(rng.integers(2, 4)) if rng.random() < 0.2 else 1
        for place in range(start, start + size):
            if not (0 < place <= max(candidates) and open_[place]):
                break
            hidden.add(place)
    found = list(hidden)
    rng.shuffle(found)
    return np.array(found[:budget])


def test_units_are_taken_while_they_fit():
    assert take_fitting(np.array([3, 2, 4, 1, 1]), 5).tolist() == [0, 1]
    assert take_fitting(np.array([3, 4, 1, 1, 1]), 5).tolist() == [0, 2, 3]
    assert take_fitting(np.array([9, 7, 8]), 5).tolist() == [1], "the smallest where none fits"
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes, budget = rng.integers(1, 6, 30), int(rng.integers(5, 40))
        left, expected = budget, []
        for number, size in enumerate(sizes.tolist()):
            if size <= left:
                expected.append(number)
                left -= size
        assert take_fitting(sizes, budget).tolist() == expected


def test_runs_are_uniform_in_length_and_reach_the_budget():
    """Rare ones, so that no two touch: lengths 1, 2 and 3 are equally frequent among runs."""
    rng, lengths = np.random.default_rng(0), []
    for _ in range(4000):
        taken, run = run_places(np.arange(100), 1, 3, rng)
        assert (np.diff(taken) == 1).all() and (run == 0).all()
        lengths.append(len(taken) if 0 < taken[0] and taken[-1] < 99 else 0)
    share = np.bincount(lengths)[1:] / np.count_nonzero(lengths)
    assert share == pytest.approx([1 / 3] * 3, abs=0.03)
    for budget in (1, 5, 40, 99, 500):
        taken, run = run_places(np.arange(100), budget, 3, rng)
        assert min(budget, 100) <= len(taken) < min(budget, 100) + 3
        assert run[0] == 0 and set(np.diff(run)) <= {0, 1} and np.bincount(run).max() <= 3


def test_runs_of_words_cut_no_word():
    rng, word = np.random.default_rng(0), np.repeat(np.arange(40), np.arange(40) % 3 + 1)
    for _ in range(50):
        taken, run = run_places(word, 12, 3, rng)
        hidden = np.isin(np.arange(len(word)), taken)
        assert not set(word[hidden]) & set(word[~hidden])
        assert all(len(set(word[taken[run == one]])) <= 3 for one in set(run))


def test_a_span_at_an_edge_as_often_as_asked():
    rng = np.random.default_rng(0)
    starts = np.array([edge_start(19, 10, (0.2, 0.2), rng) for _ in range(20000)])
    assert np.mean(starts == 0) == pytest.approx(0.26, abs=0.01)
    assert np.mean(starts == 9) == pytest.approx(0.26, abs=0.01)
    assert edge_start(5, 5, (0.2, 0.2), rng) == 0


def test_corruption_has_its_weights_and_the_same_draws_whatever_they_are():
    words = np.arange(10, 1000)
    tokens = np.arange(2000, 22000)
    shown = corrupt(tokens, 5, words, (0.8, 0.1, 0.1), np.random.default_rng(0))
    kept = shown == tokens
    assert np.mean(shown == 5) == pytest.approx(0.8, abs=0.01)
    assert kept.mean() == pytest.approx(0.1, abs=0.01)
    assert np.isin(shown[~kept & (shown != 5)], words).all()
    one, two = np.random.default_rng(1), np.random.default_rng(1)
    assert (corrupt(tokens, 5, words, (1.0, 0.0, 0.0), one) == 5).all()
    corrupt(tokens, 5, words, (8.0, 1.0, 1.0), two)
    assert one.random() == two.random()
    run = np.arange(20000) // 4
    kept = corrupt(tokens, 5, words, (1.0, 1.0, 0.0), one, run).reshape(-1, 4) != 5
    assert (kept.all(1) | ~kept.any(1)).all() and kept.mean() == pytest.approx(0.5, abs=0.03)


GEOMETRIC = length_law(tuple(0.8**k for k in range(10)))
HARMONIC = length_law((1, 1 / 2, 1 / 3))


def test_laws_of_lengths_have_the_published_means():
    for law, mean in ((GEOMETRIC, 3.797), (HARMONIC, 18 / 11)):
        assert np.diff(law, prepend=0) @ np.arange(1, len(law) + 1) == pytest.approx(mean, abs=5e-4)
    assert np.diff(HARMONIC, prepend=0) == pytest.approx([6 / 11, 3 / 11, 2 / 11])


def test_spans_of_words_hide_the_budget_and_begin_anywhere():
    rng = np.random.default_rng(0)
    unit, firsts = np.arange(40).repeat(np.resize([1, 2, 3], 40)), []
    for _ in range(3000):
        for budget in (9, len(unit)):
            assert len(word_spans(unit, budget, GEOMETRIC, rng)) == budget
        # of the first span one token only
        firsts += word_spans(unit, 1, GEOMETRIC, rng).tolist()
    # it is the first of a word, which is found as often as it has tokens
    assert set(np.flatnonzero(np.diff(unit, prepend=-1))) == set(firsts)
    share = np.bincount(unit[firsts], minlength=40) / 3000
    assert share == pytest.approx(np.bincount(unit) / len(unit), abs=0.015)


def run_lengths(choose, law):
    """The lengths of the runs of words that are hidden in texts so long that few runs meet."""
    rng, sizes = np.random.default_rng(0), []
    for _ in range(4):
        hidden = choose(np.arange(400_000), 1500, law, rng)
        borders = np.flatnonzero(np.diff(hidden) > 1) + 1
        sizes += [len(part) for part in np.split(hidden, borders)]
    return sizes


def test_spans_of_words_follow_the_law():
    """In a text so long that a span hardly meets another, the runs of words are the spans."""
    sizes = run_lengths(word_spans, GEOMETRIC)
    law = np.diff(GEOMETRIC, prepend=0)
    assert np.bincount(sizes, minlength=11)[1:11] / len(sizes) == pytest.approx(law, abs=0.03)
    assert np.mean(sizes) == pytest.approx(3.797, rel=0.05)


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_ngrams_of_words_are_whole_and_stay_within_the_budget(count):
    rng = np.random.default_rng(count)
    for _ in range(300):
        unit = np.arange(count).repeat(rng.integers(1, 4, count))
        budget = int(rng.integers(1, len(unit) + 2))
        hidden = np.isin(np.arange(len(unit)), word_ngrams(unit, budget, HARMONIC, rng))
        assert not set(unit[hidden]) & set(unit[~hidden])
        sizes = np.bincount(unit)
        assert 0 < hidden.sum() <= max(budget, sizes.min())


def test_ngrams_of_words_follow_the_law():
    sizes = run_lengths(word_ngrams, HARMONIC)
    share = np.bincount(sizes, minlength=4)[1:4] / len(sizes)
    assert share == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)


def test_ngrams_at_the_end_have_the_law_of_what_is_left():
    """Of two words, a bigram is drawn with (1 / 2) / (1 + 1 / 2) = 1 / 3 where the first is drawn,
    that is before the second: 1 / 6 of all; otherwise one word alone, and then the other."""
    rng, law = np.random.default_rng(0), length_law((1, 1 / 2))
    both = [len(word_ngrams(np.array([0, 1]), 2, law, rng)) for _ in range(50)]
    assert set(both) == {2}
    first = [word_ngrams(np.array([0, 0, 1]), 2, law, rng).tolist() for _ in range(6000)]
    # budget 2: a bigram of three tokens is shortened to its first word
    assert np.mean([one == [0, 1] for one in first]) == pytest.approx(1 / 2, abs=0.02)
    assert np.mean([one == [2] for one in first]) == pytest.approx(1 / 2, abs=0.02)
