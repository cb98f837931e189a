"""Scores of question generation are counted as the papers count them."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unitk.data.files.lines import read_lines
from unitk.metrics.qg import _common, group, qg, rouge_l, treebank


def test_a_source_keeps_its_last_prediction_and_all_its_questions():
    kept, asked = group(["h1", "h2", "h3"], ["r1", "r2", "r3"], ["s", "t", "s"])
    assert kept == ["h3", "h2"]
    assert asked == [["r1", "r3"], ["r2"]]


def test_grouped_and_single():
    # by source the prediction finds its question, line by line only one of two does
    hypotheses = ["Who wrote this book ?"] * 2
    references = ["when was it printed , then ?", "who wrote this book ?"]
    found = qg(hypotheses, references, ["A source .", "a Source ."]).figures
    assert found["sources"] == 1 and found["questions"] == 2
    assert found["bleu4"] == pytest.approx(100)
    assert found["rougeL"] == pytest.approx(100)
    assert 0 < found["bleu4_single"] < 60


def test_no_smoothing():
    assert qg(["a b c d"], ["a b c e"], ["s"]).figures["bleu4"] == 0


def test_rouge_l_is_that_by_hand():
    # "a b c" of 4 written and 6 asked: P 3/4, R 1/2
    p, r, weight = 3 / 4, 1 / 2, 1.2**2
    expected = (1 + weight) * p * r / (r + weight * p)
    assert rouge_l("a x b c", ["a b d e f c"]) == pytest.approx(expected)
    assert rouge_l("a", ["b", ""]) == rouge_l("", ["b"]) == 0


def longest(a, b):
    if not a or not b:
        return 0
    if a[0] == b[0]:
        return 1 + longest(a[1:], b[1:])
    return max(longest(a[1:], b), longest(a, b[1:]))


@given(st.text("abc", max_size=7), st.text("abcd", max_size=7))
def test_common_is_the_longest_common_subsequence(a, b):
    assert _common(a, b) == longest(a, b)


def test_the_example_of_nlg_eval_has_its_scores(shared_data):
    folder = shared_data("metric-refs/nlg-eval-example")
    names = ("hyp", "ref1", "ref2")
    hypotheses, *files = (list(read_lines(folder / f"{name}.txt")) for name in names)
    references = zip(*files, strict=True)
    scores = [rouge_l(h, rs) for h, rs in zip(hypotheses, references, strict=True)]
    assert sum(scores) / 2 == pytest.approx(0.522104, abs=1e-6)


def test_published_questions(shared_data):
    split = shared_data("squad-v1.1-nqg-split")
    baseline = shared_data("metric-refs/squad-qg-nqg-baseline")
    figures = qg(
        list(read_lines(baseline / "nonlm.sample.test.hyp.txt.gz")),
        list(read_lines(split / "nqg-tgt-test.txt.gz")),
        list(read_lines(split / "nqg-src-test.txt.gz")),
    ).figures
    assert round(figures["bleu4"], 2) == 12.06
    assert round(figures["bleu4_single"], 2) == 8.15
    assert figures["sources"] == 6652
    assert figures["questions"] == 11877


def test_plain_text_is_split_as_in_the_treebank():
    question = " What did Beyoncé's \"fans\" (2,000 of them) say they won't do in the U.S.?\n"
    expected = "What did Beyoncé 's `` fans '' -LRB- 2,000 of them -RRB- "
    assert treebank(question) == expected + "say they wo n't do in the U.S. ?"


@pytest.mark.slow
def test_plain_questions_become_those_of_the_published_split(shared_data):
    folder = shared_data("squad-v1.1-nqg-split")
    tree = json.loads(gzip.decompress((folder / "test.json.gz").read_bytes()))
    paragraphs = [paragraph for article in tree["data"] for paragraph in article["paragraphs"]]
    asked = [treebank(entry["question"]).lower() for one in paragraphs for entry in one["qas"]]
    published = [line.strip() for line in read_lines(folder / "nqg-tgt-test.txt.gz")]
    same = sum(one == other for one, other in zip(asked, published, strict=True))
    assert len(asked) == 11_877 and same / len(asked) > 0.994
