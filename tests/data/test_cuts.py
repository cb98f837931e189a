"""Cuts: each one by hand on a small corpus, and nothing lost on random ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unitk.data.cuts import CUTS, cut, drop_repeats
from unitk.errors import UsageError

# three documents: sentences of 3, 2, 4 | 1, 12 | 2 tokens
SENTENCES = np.cumsum([0, 3, 2, 4, 1, 12, 2])
DOCUMENTS = np.array([0, 3, 5, 6])


def blocks(name, size, sentences=SENTENCES, documents=DOCUMENTS, seed=0):
    made = cut(name, sentences, documents, size, np.random.default_rng(seed))
    return list(zip(made.starts.tolist(), made.stops.tolist(), strict=True))


def test_doc_blocks_are_whole_sentences_of_one_document():
    assert blocks("doc", 5) == [(0, 5), (5, 9), (9, 10), (10, 15), (15, 20), (20, 22), (22, 24)]
    assert blocks("doc", 100) == [(0, 9), (9, 22), (22, 24)]


def test_full_blocks_cross_documents_with_a_separator_each():
    made = cut("full", SENTENCES, DOCUMENTS, 11, np.random.default_rng(0))
    assert blocks("full", 11) == [(0, 10), (10, 21), (21, 24)]
    assert made.lengths.tolist() == [11, 11, 4]  # 9 + separator + 1; 11 of 12; 1 + sep + 2


def test_stream_windows_begin_at_a_random_offset():
    edges = {tuple(blocks("stream", 10, seed=seed))[0] for seed in range(30)}
    assert len(edges) > 5
    for seed in range(5):
        made = blocks("stream", 10, seed=seed)
        assert made[0][0] == 0 and made[-1][1] == 24
        unbroken = CUTS["stream"](SENTENCES, np.array([0, 6]), 10, np.random.default_rng(seed))
        assert (unbroken.lengths[1:-1] == 10).all()


def symbols(made, i, separator=-1):
    """What block i has: numbers of tokens, and separators."""
    runs = np.arange(made.starts[i], made.stops[i])
    places = made.breaks[slice(*made.inside[i])] - made.starts[i]
    return np.insert(runs, places, separator).tolist()


@pytest.mark.parametrize("size", [2, 3, 7, 10, 100])
def test_windows_of_a_stream_have_a_separator_between_documents(size):
    """Windows side by side are the documents with separators between them, wherever they begin."""
    first, second, third = np.split(np.arange(24), [9, 22])
    whole = [*first, -1, *second, -1, *third]
    for seed in range(20):
        made = cut("stream", SENTENCES, DOCUMENTS, size, np.random.default_rng(seed))
        windows = [symbols(made, i) for i in range(len(made.starts))]
        assert [one for window in windows for one in window] == whole
        assert made.lengths.tolist() == [*map(len, windows)]
        assert all(len(window) == size for window in windows[1:-1])
        assert made.edges.tolist() == [[i == 0, i + 1 == len(windows)] for i in range(len(windows))]


def test_blocks_tell_where_documents_begin_and_end():
    def edges(name, size):
        made = cut(name, SENTENCES, DOCUMENTS, size, np.random.default_rng(0))
        return list(
            zip(made.starts.tolist(), made.stops.tolist(), made.edges.tolist(), strict=True)
        )

    assert edges("doc", 5)[:3] == [
        (0, 5, [True, False]),
        (5, 9, [False, True]),
        (9, 10, [True, False]),
    ]
    assert edges("full", 11) == [
        (0, 10, [True, False]),
        (10, 21, [False, False]),
        (21, 24, [False, True]),
    ]
    assert edges("line", 4) == [  # a line that is cut off has no end
        *((a, b, [True, True]) for a, b in [(0, 3), (3, 5), (5, 9), (9, 10)]),
        (10, 14, [True, False]),
        (22, 24, [True, True]),
    ]


def test_line_blocks_are_sentences():
    assert blocks("line", 4) == [(0, 3), (3, 5), (5, 9), (9, 10), (10, 14), (22, 24)]


def test_an_unknown_cut_is_named():
    with pytest.raises(UsageError, match="--blocks .*did .*mean doc"):
        blocks("docs", 4)


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(1, 25),
    st.sampled_from(["doc", "full", "stream"]),
)
def test_cuts_cover_the_corpus_within_the_size(lengths, size, name):
    sentences = np.cumsum([0] + [n for document in lengths for n in document])
    documents = np.cumsum([0] + [len(document) for document in lengths])
    made = cut(name, sentences, documents, size, np.random.default_rng(1))
    assert (made.lengths <= size).all() and (made.stops > made.starts).all()
    covered = np.concatenate(
        [np.arange(a, b) for a, b in zip(made.starts, made.stops, strict=True)] or [[]]
    )
    assert covered.tolist() == list(range(sentences[-1]))
    if name == "doc":
        for a, b in zip(made.starts, made.stops, strict=True):
            assert not ((sentences[documents] > a) & (sentences[documents] < b)).any()


def test_every_cut_is_registered_under_its_name():
    assert set(CUTS) == {"doc", "full", "stream", "line"}


@given(st.lists(st.integers(0, 9), max_size=12).map(sorted))
def test_rising_numbers_are_taken_once(numbers):
    found = drop_repeats(np.array(numbers, np.int64))
    assert found.tolist() == sorted(set(numbers))
