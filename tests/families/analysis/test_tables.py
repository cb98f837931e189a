"""Measures of static vectors: by hand, by scipy, and what tables must not say."""

import numpy as np
import pytest

from unitk.errors import DataError, UsageError
from unitk.families.analysis.tables import rank_values
from unitk.options.config import parse
from unitk.verbs import score

VECTORS = """\
6 2
king 2 1
man 2 0
woman 0 1
queen 0.1 3
Paris -1 0.1
rome -3 0.2
"""


@pytest.fixture
def scores(tmp_path):
    """`scores(metric, table, ...)`: figures of tables, (name, text) each."""

    def call(metric, *tables, vectors=VECTORS):
        (tmp_path / "words.txt").write_text(vectors)
        for name, text in tables:
            (tmp_path / name).write_text(text)
        paths = ",".join(str(tmp_path / name) for name, _ in tables)
        words = ["--metric", metric, "--hypotheses", str(tmp_path / "words.txt")]
        words += ["--references", paths]
        return {k: v.figures for k, v in score.value(parse("score", score.Options, words)).items()}

    return call


def test_similarity_is_spearmans(scores):
    stats = pytest.importorskip("scipy.stats")
    pairs = ["king\tman\t8", "king\tqueen\t7.5", "man\twoman\t7.5", "Rome\tparis\t9"]
    head, unknown = "Word 1\tWord 2\tHuman (mean)", "king\tcabbage\t1"
    table = {name: np.array(values) for name, values in {
        "king": [2, 1], "man": [2, 0], "woman": [0, 1], "queen": [0.1, 3],
        "paris": [-1, 0.1], "Rome": [-3, 0.2]}.items()}  # fmt: skip
    cosines, said = [], []
    for line in pairs:
        a, b, number = line.split("\t")
        x, y = table[a], table[b]
        cosines.append(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
        said.append(float(number))
    wanted = 100 * stats.spearmanr(cosines, said).statistic
    lines = "\n".join([head, *pairs, "", "# a note", unknown])
    found = scores("similarity", ("ws.tab", lines))["similarity"]
    assert found == {"similarity": pytest.approx(wanted), "lines": 4, "left_out": 1}
    # the same with blanks, commas and further columns
    plain = "\n".join(pairs).replace("\t", " ")
    commas = "\n".join(f'"{a}",{b},{n},9,9' for a, b, n in (line.split("\t") for line in pairs))
    for table_ in (("ws.txt", plain), ("ws.csv", "Word 1,Word 2,Human\n" + commas)):
        assert scores("similarity", table_)["similarity"]["similarity"] == pytest.approx(wanted)
    noted = "\n".join(["# a note", "", *lines.split("\n")])
    assert scores("similarity", ("ws.tab", noted))["similarity"] == found
    with pytest.raises(DataError, match="line 4: .* no number"):
        scores("similarity", ("ws.tab", noted.replace(head, f"{head}\n{head}")))
    assert scores("similarity", ("e.txt", "king man 1\nking queen 1"))["similarity"] == {
        "similarity": 0, "lines": 2, "left_out": 0}  # fmt: skip


def test_ranks_with_ties():
    assert rank_values(np.array([3.0, 1, 3, 2, 3])).tolist() == [4, 1, 4, 2, 4]


def test_analogies_are_those_by_hand(scores):
    """woman - man + king: of the others, queen is nearest; the three themselves are not meant."""
    table = ": family\nman king woman queen\nMAN KING WOMAN QUEEN\n: other\nman king woman rome\n"
    found = scores("analogy", ("q.txt", table + "a b c d\n"))["analogy"]
    assert found == {
        "analogy": pytest.approx(200 / 3),
        "analogy:family": 100,
        "analogy:other": 0,
        "lines": 3,
        "left_out": 1,
    }
    few = scores("analogy@4", ("q.txt", table))["analogy@4"]
    assert few["analogy@4"] == 100 and few["left_out"] == 1


def test_purity_is_that_by_hand(scores):
    """Clusters {king, man}, {woman, queen}, {Paris, rome}."""
    pytest.importorskip("scipy")
    right = "king ruler\nman ruler\nwoman person\nqueen person\nParis city\nrome city\n"
    assert scores("category", ("c.txt", right))["category"]["category"] == 100
    wrong = right.replace("man ruler", "man person").replace("queen person", "queen ruler")
    found = scores("category", ("c.txt", wrong))["category"]
    assert found["category"] == pytest.approx(100 * 4 / 6) and found["lines"] == 6
    assert scores("category", ("c.txt", "king ruler\nunicorn beast\n"))["category"] == {
        "category": 100, "lines": 1, "left_out": 1}  # fmt: skip


def test_several_tables(scores):
    found = scores("similarity", ("a.txt", "king man 2\nking rome 1"), ("b.tsv", "king\tman\t1"))
    names = "similarity", "lines", "left_out"
    assert [*found["similarity"]] == [f"{one}:{file}" for file in "ab" for one in names]
    assert found["similarity"]["similarity:a"] == pytest.approx(100)
    alone = scores("similarity", ("a.txt", "king man 2"))
    assert alone == {"similarity": {"similarity": 0, "lines": 1, "left_out": 0}}


@pytest.mark.parametrize(
    "metric, table, message",
    [
        ("similarity", ("a.txt", "king man\n"), "a.txt, line 1: .* 3 columns"),
        ("similarity", ("a.txt", "king man 1\nking rome far"), "a.txt, line 2: 'far'"),
        ("similarity", ("a.txt", "king man nan\nking rome nan"), "a.txt, line 2: 'nan'"),
        ("similarity", ("a.txt", "word word score\n"), "a.txt: .*3 columns"),
        ("similarity", ("a.txt", "x y 1\n"), "words.txt .* of .*a.txt"),
        ("similarity", ("a.json", "{}"), "--references .*a.json: .* lines"),
        ("similarity,bleu", ("a.txt", "king man 1"), "--metric similarity .* bleu"),
        ("analogy", ("a.txt", ": s\nman king woman"), "a.txt, line 2: .* 4 columns"),
        ("analogy@x", ("a.txt", "a b c d"), "--metric analogy@x"),
        ("category", ("a.txt", "king\n"), "a.txt, line 1: .* 2 columns"),
    ],
)
def test_what_tables_must_not_say(scores, metric, table, message):
    with pytest.raises((UsageError, DataError), match=message):
        scores(metric, table)


def test_vectors_that_are_none(scores):
    with pytest.raises(DataError, match="words.txt, line 2"):
        scores("similarity", ("a.txt", "king man 1"), vectors="king 1 2\nman 1\n")
