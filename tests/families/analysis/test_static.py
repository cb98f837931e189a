"""Static vectors: components by numpy, places by hand, and states as `embed` writes them."""

import numpy as np
import pytest

import unitk
from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed
from unitk.errors import DataError, UsageError
from unitk.families.analysis import verbs as analyse
from unitk.families.analysis.static import Occurrences, draw_places, find_vectors, reduce_states
from unitk.formats.vectors import read_vectors

TEXTS = ["the river bank", "The bank lends money.", "", "money (at the bank) for the river"]


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (1, 5)])
def test_the_component_explains_most(shape):
    """It is numpy's first right singular vector, on the side of the mean."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    first = np.linalg.svd(x)[2][0]
    found = reduce_states(x, "component")
    assert found == pytest.approx(np.sign(first @ x.mean(axis=0)) * first, abs=1e-5)
    assert reduce_states(-x, "component") == pytest.approx(-found, abs=1e-5)
    assert reduce_states(x, "mean") == pytest.approx(x.mean(axis=0))


def test_states_that_point_one_way_and_none():
    one = np.array([3.0, 4.0], np.float32)
    found = reduce_states(np.outer([1, 2, 0.5], one).astype(np.float32), "component")
    assert found == pytest.approx([0.6, 0.8])
    assert reduce_states(np.zeros((2, 3), np.float32), "component").tolist() != [np.nan] * 3


def test_places_are_drawn():
    rows = np.array([[i % 3, i, 1, 2] for i in range(30)] + [[3, 0, 3, 4]])
    found, counts = draw_places(rows, Occurrences(least=2, most=4))
    assert found[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert counts.tolist() == [10, 10, 10, 1]
    assert {tuple(row) for row in found} <= {tuple(row) for row in rows}
    assert not np.array_equal(found, draw_places(rows, Occurrences(least=2, most=4, seed=2))[0])
    every = draw_places(rows, Occurrences(least=1))[0]
    assert sorted(map(tuple, every)) == sorted(map(tuple, rows))


@pytest.fixture(scope="module")
def base():
    return unitk.load("unitk-base-en", task="lm")


HOW = EmbedConfig(layer=2)


def test_vectors_of_a_model_are_means_of_its_states(base):
    """The places of each word in the texts, its tokens found by hand."""
    given = base.model, base.task, [[text] for text in TEXTS], HOW
    found = find_vectors(*given, Occurrences(least=2, reduce="mean"))
    assert [*found] == ["the", "bank", "river", "money"]
    sources = [[np.array(base.vocab.encode(text))] for text in TEXTS]
    states = embed(base.model, base.task, sources, EmbedConfig(layer=2, pool="none"))
    each = []
    for (ids,), x in zip(sources, states, strict=True):
        pieces = base.vocab.pieces(ids)
        own = [1 + i for i, piece in enumerate(pieces) if piece.strip("▁Ġ ") == "river"]
        assert own or "river" not in "".join(pieces)  # a token of its own
        each += [x[i] for i in own]  # after [CLS]
    assert found["river"] == pytest.approx(np.mean(each, axis=0), rel=1e-4, abs=1e-5)
    small = EmbedConfig(layer=2, max_tokens=12)
    again = find_vectors(*given[:3], small, Occurrences(least=2, reduce="mean"))
    for word, vector in found.items():
        assert again[word] == pytest.approx(vector, rel=1e-4, abs=1e-5)
    lower = find_vectors(*given, Occurrences(least=2, lowercase=True))
    assert [*lower] == ["the", "bank", "river", "money"]
    assert np.linalg.norm(lower["the"]) == pytest.approx(1, rel=1e-5)


def test_a_word_of_several_tokens_is_their_mean(base):
    word = "Znorkblat"
    ids = np.array(base.vocab.encode(word))
    assert len(ids) > 1
    [found] = find_vectors(
        base.model, base.task, [[word]], HOW, Occurrences(least=1, reduce="mean")
    ).values()
    [states] = embed(base.model, base.task, [[ids]], EmbedConfig(layer=2, pool="none"))
    assert found == pytest.approx(states[1 : 1 + len(ids)].mean(axis=0), rel=1e-4, abs=1e-5)


def test_the_command(tmp_path, capsys):
    path, output = tmp_path / "texts.txt", tmp_path / "words.txt"
    path.write_text("\n".join(TEXTS))
    words = f"vectors --checkpoint unitk-base-en --task lm --input {path} --layer 0"
    analyse.run(f"{words} --min-count 2 --output {output}".split())
    lines = output.read_text().splitlines()
    names, vectors = read_vectors(output)
    assert lines[0] == f"4 {vectors.shape[1]}" and names == ["the", "bank", "river", "money"]
    found = unitk.analyse.vectors(
        input=path, checkpoint="unitk-base-en", task="lm", layer=0, min_count=2
    )
    assert [*found] == names and np.array_equal(np.stack([*found.values()]), vectors)
    keyed = pytest.importorskip("gensim.models").KeyedVectors.load_word2vec_format(str(output))
    assert keyed.index_to_key == names and np.array_equal(keyed.vectors, vectors)


def test_what_cannot_be(base, tmp_path):
    with pytest.raises(DataError, match="--input .*9 times"):
        find_vectors(base.model, base.task, [[text] for text in TEXTS], HOW, Occurrences(least=9))
    with pytest.raises(DataError, match="--input .*no word"):
        find_vectors(base.model, base.task, [["", ""]], HOW, Occurrences(least=1))
    with pytest.raises(UsageError, match="--layer .* 99"):
        find_vectors(base.model, base.task, [["a b"]], EmbedConfig(layer=99), Occurrences(least=1))
    with pytest.raises(UsageError, match="--min-count .*0"):
        analyse.run("vectors --checkpoint x --input y --min-count 0".split())
