"""Vectors of entities from a file, and names found in texts."""

import numpy as np
import pytest

from unitk.errors import DataError, UsageError
from unitk.families.thu_ernie.entities import Forms
from unitk.formats.vectors import read_vectors
from unitk.vocab.train import train_vocab


@pytest.fixture(scope="module")
def vocab():
    lines = [
        "New York, York and Newton saw (York) yorkshire; the New York Times.",
        "a b c d 北 京 大 学",
    ]
    return train_vocab(lines * 30, 44)


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("head", ["", "2 3\n"])
def test_vectors_are_words2vecs(tmp_path, head):
    names, vectors = read_vectors(written(tmp_path / "v", f"{head}Q1 1 -2 3.5\nQ22\t0 1e-3 4\n"))
    assert names == ["Q1", "Q22"] and vectors.dtype == np.float32
    assert vectors.tolist() == [[1, -2, 3.5], [0, np.float32(1e-3), 4]]


def test_copies_have_names_alone(tmp_path):
    names, vectors = read_vectors(written(tmp_path / "v", "2 0\nQ1\nQ22\n"))
    assert names == ["Q1", "Q22"] and vectors.shape == (2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Q1 1 2\nQ2 1\n", "line 2: a name and 2 finite numbers are needed here, got 1"),
        ("2 3\nQ1 1 2\n", "line 2: a name and 3 finite numbers are needed here, got 2"),
        ("Q1\nQ2\n", "line 1: a name and 1 finite numbers are needed here, got 0"),
        ("Q1 1 2\n\nQ2 1 2\n", "line 2: a name and 2 finite numbers are needed here, got 0"),
        ("Q1 1 nan\n", "line 1: a name and 2 finite numbers are needed here, got 2"),
        ("Q1 one two\n", "line 1: not a name and the numbers of its vector"),
        ("Q1 1\nQ2 2\nQ1 3\n", "line 3: Q1 has a vector in line 1"),
        ("1 2\n", "there is no vector in it"),
        ("", "there is no vector in it"),
    ],
)
def test_bad_vectors_are_refused(tmp_path, text, message):
    with pytest.raises(DataError) as error:
        read_vectors(written(tmp_path / "v", text))
    assert str(error.value).startswith(f"{tmp_path / 'v'}") and message in str(error.value)


def found(linker, vocab, text):
    ids = np.array(vocab.encode(text))
    return [(vocab.decode(ids[a:b]).strip(), entity) for a, b, entity in linker(ids)]


def test_names_are_found_as_whole_words_and_the_longest_first(tmp_path, vocab):
    lines = "York\tQ1\nNew York\tQ2\nNew York Times\tQ3\nYork\tQ9\n\nNewton\tQ4\n北京\tQ5\n"
    linker = Forms(str(written(tmp_path / "f", lines)), vocab)
    assert found(linker, vocab, "the New York Times") == [("New York Times", "Q3")]
    assert found(linker, vocab, "New York, York and Newton.") == [
        *[("New York", "Q2"), ("York", "Q1"), ("Newton", "Q4")]
    ]
    assert found(linker, vocab, "yorkshire Newtons Yorks York") == [("York", "Q1")]
    assert found(linker, vocab, "saw (York)") == [("York", "Q1")]
    assert [entity for _, entity in found(linker, vocab, "北京大学")] == ["Q5"]
    assert found(linker, vocab, "a b c") == [] and linker(np.zeros(0, int)) == []


def test_errors_of_names(tmp_path, vocab):
    with pytest.raises(DataError, match="f, line 2: .*name.*entity"):
        Forms(str(written(tmp_path / "f", "York\tQ1\nNew York Q2\n")), vocab)
    with pytest.raises(UsageError, match="--task.linker forms needs.*names"):
        Forms("", vocab)
