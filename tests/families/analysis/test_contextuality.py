"""Measures of contextuality: definitions restated, synthetic states, and a model's first layer."""

import json
from itertools import combinations

import numpy as np
import pytest

import unitk
from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed
from unitk.errors import DataError, UsageError
from unitk.families.analysis import verbs as analyse
from unitk.families.analysis.contextuality import (
    explained_variance,
    measure_contextuality,
    measures,
    similarity,
)

TEXTS = ["the cat sat on the mat", "a dog and the cat ran", "the mat and the dog", "on and on"] * 2


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_measures_equal_their_definitions():
    x = np.random.default_rng(0).normal(size=(7, 5)) + 1
    every = [cosine(a, b) for a, b in combinations(x, 2)]
    assert similarity(unit(x)) == pytest.approx(np.mean(every))
    values = np.linalg.svd(x, compute_uv=False)
    assert explained_variance(x) == pytest.approx(values[0] ** 2 / (values**2).sum())
    assert explained_variance(x.T) == pytest.approx(explained_variance(x))
    # rows 0 to 2 and 3 to 6 are texts; rows 0 and 4 are one word, 1, 2 and 5 another
    words, starts, drawn = [np.array([0, 4]), np.array([1, 2, 5])], np.array([0, 3]), [1, 6]
    found = measures(x, words, starts, np.array(drawn))
    own = [cosine(x[0], x[4]), np.mean([cosine(*pair) for pair in combinations(x[[1, 2, 5]], 2)])]
    assert found.self_similarity == pytest.approx(np.mean(own))
    inside = [np.mean([cosine(a, some.mean(0)) for a in some]) for some in (x[:3], x[3:])]
    assert found.intra_sentence == pytest.approx(np.mean(inside))
    assert found.random_cosine == pytest.approx(cosine(x[1], x[6]))
    assert found.random_explained == pytest.approx(explained_variance(x[drawn]))
    assert found.figures()["self_similarity/adjusted"] == pytest.approx(
        found.self_similarity - found.random_cosine
    )


def test_static_vectors_and_noise():
    rng = np.random.default_rng(0)
    words = [np.arange(first, 400, 20) for first in range(20)]
    starts, drawn = np.arange(0, 400, 10), np.arange(3, 400, 10)
    table = rng.normal(size=(20, 64))
    static = measures(table[np.arange(400) % 20], words, starts, drawn)
    assert static.self_similarity == pytest.approx(1) and static.explained == pytest.approx(1)
    noise = measures(rng.normal(size=(400, 64)), words, starts, drawn)
    assert abs(noise.self_similarity) < 0.02 and abs(noise.random_cosine) < 0.02
    # what all states have in common is no context of a word
    shifted = measures(rng.normal(size=(400, 64)) + 3, words, starts, drawn)
    assert shifted.self_similarity > 0.8
    assert abs(shifted.figures()["self_similarity/adjusted"]) < 0.02


@pytest.fixture(scope="module")
def mini():
    return unitk.load("unitk-base-en", task="lm")


def sources(generator):
    return [[np.array(generator.vocab.encode(text))] for text in TEXTS]


HOW = EmbedConfig(pool="none")
LAYERS = 8  # of the bundled model, with the input


def test_layers_of_a_model(mini):
    """Rotary positions leave the embeddings static. Other measures are those of what `embed`
    writes, restated."""
    given = mini.model, mini.task, sources(mini)
    layers = measure_contextuality(*given, HOW, least=2)
    assert len(layers) == LAYERS
    assert layers[0].self_similarity == pytest.approx(1, abs=1e-6)
    assert layers[0].explained == pytest.approx(1, abs=1e-6)
    assert layers[-1].self_similarity < 0.99
    states = [x[1:].astype(float) for x in embed(*given, HOW)]  # without [CLS]
    ids = np.concatenate([source[0] for source in sources(mini)])
    table = np.concatenate(states)
    several = [np.flatnonzero(ids == one) for one in np.unique(ids) if (ids == one).sum() > 1]
    each = [np.mean([cosine(*table[[*pair]]) for pair in combinations(w, 2)]) for w in several]
    assert layers[-1].self_similarity == pytest.approx(np.mean(each), rel=1e-5)
    inside = [np.mean([cosine(a, some.mean(0)) for a in some]) for some in states]
    assert layers[-1].intra_sentence == pytest.approx(np.mean(inside), rel=1e-5)


def test_batches_seeds_and_counts(mini):
    given = mini.model, mini.task, sources(mini)
    one = measure_contextuality(*given, HOW, least=2)
    small = measure_contextuality(*given, EmbedConfig(pool="none", max_tokens=10), least=2)
    for a, b in zip(one, small, strict=True):
        assert b.figures() == pytest.approx(a.figures(), rel=1e-4, abs=1e-5)
    other = measure_contextuality(*given, HOW, least=2, seed=2)
    assert other[4].random_cosine != one[4].random_cosine
    assert other[4].self_similarity == pytest.approx(one[4].self_similarity)
    assert measure_contextuality(*given, HOW, least=2, most=2)[4] != one[4]
    frequent = measure_contextuality(*given, HOW, least=6)  # "the", "and", "on"
    assert frequent[4].self_similarity != one[4].self_similarity


def test_texts_with_too_little_in_common(mini):
    with pytest.raises(DataError, match="--input .*occurs 99 times"):
        measure_contextuality(mini.model, mini.task, sources(mini), HOW, least=99)
    with pytest.raises(DataError, match="--input .*words.*one text"):
        measure_contextuality(
            mini.model, mini.task, [sources(mini)[0], [np.zeros(0, int)]], HOW, least=2
        )
    with pytest.raises(DataError, match="--input .*no text.*words"):
        measure_contextuality(mini.model, mini.task, [[sources(mini)[0][0][:1]]] * 3, HOW, least=2)


def test_the_command(tmp_path, capsys):
    path, words = tmp_path / "texts.txt", "--checkpoint unitk-base-en --task lm --min-count 2"
    path.write_text("\n".join(TEXTS))
    analyse.run(["contextuality", *words.split(), "--input", str(path)])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["layer", "random", "self-sim"] and len(rows) == LAYERS
    plot, output = tmp_path / "c.svg", tmp_path / "c.json"
    more = ["--plot", str(plot), "--output", str(output), "--output-format", "json"]
    analyse.run(["contextuality", *words.split(), *more, *TEXTS])
    found = json.loads(output.read_text())["layers"]
    assert rows[3].split()[2] == f"{found[3]['self_similarity']:.4f}"
    assert plot.read_text().count("<path") > 20


def test_verbs(capsys):
    with pytest.raises(SystemExit):
        analyse.run([])
    assert capsys.readouterr().out.count("contextuality  how contextual") == 1
    with pytest.raises(UsageError, match="there .*no verb 'head'; .*mean heads"):
        analyse.run(["head"])
    with pytest.raises(UsageError, match="--min-count .*at least 2, got 1"):
        analyse.run("contextuality --checkpoint x --input y --min-count 1".split())
    with pytest.raises(UsageError, match="--seed .*at least 0, got -1"):
        analyse.run("contextuality --checkpoint x --input y --seed -1".split())
    for verb in ("contextuality --input y", "heads --data y"):
        with pytest.raises(UsageError, match="--plot .*end.* .png, .svg or .pdf, got x.foo"):
            analyse.run(f"{verb} --checkpoint x --plot x.foo".split())
    with pytest.raises(UsageError, match="--input must be"):
        analyse.run("contextuality --checkpoint unitk-base-en --input -".split())
