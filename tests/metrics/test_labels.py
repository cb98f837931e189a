"""Scores of labels by hand, and as the official scripts count."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unitk.errors import UsageError
from unitk.metrics.labels import answers, classes, numbers, scheme_of, spans, tags

SENTENCES = [
    # conlleval's decisions: a begin amid a span, another type amid one, a begin left out
    ("B-NP I-NP B-NP O", "B-NP I-NP I-NP O"),
    ("B-NP I-VP O", "B-NP I-NP O"),
    ("I-NP I-NP B-NP I-VP", "B-NP I-NP B-NP B-VP"),
]


def split(*lines):
    return [line.split() for line in lines]


def test_scores_of_classes_are_those_by_hand():
    # of class 1: three found, of which two are right, of four
    figures = classes(list("1101000"), list("1110100")).figures
    assert figures["accuracy"] == figures["f1_micro"] == pytest.approx(100 * 4 / 7)
    assert figures["f1:1"] == pytest.approx(100 * 2 * 2 / (3 + 4))
    assert figures["f1:0"] == pytest.approx(100 * 2 * 2 / (4 + 3))
    assert figures["f1_macro"] == pytest.approx((figures["f1:0"] + figures["f1:1"]) / 2)
    wrong = 3 * 4 * 4 * 3
    assert figures["matthews"] == pytest.approx(100 * (2 * 2 - 1 * 2) / wrong**0.5)


def test_a_class_that_is_never_right_counts_in_the_mean():
    figures = classes(["a", "b", "c"], ["a", "b", "b"]).figures
    assert figures["f1:c"] == 0 and figures["f1_macro"] == pytest.approx((100 + 200 / 3 + 0) / 3)


def test_labels_that_have_nothing_in_common_are_all_wrong():
    # as where a model calls everything 1 that is 0: Matthews' correlation has no denominator then
    score = classes(["1", "1"], ["0", "0"])
    assert set(score.figures.values()) == {0}
    said = "no prediction is among the references"
    assert said in score.about and said not in classes(["1", "0"], ["0", "0"]).about


@given(st.lists(st.sampled_from("ab"), min_size=1))
def test_what_is_right_is_entirely_right(labels):
    figures = classes(labels, labels).figures
    varied = len(set(labels)) > 1
    assert figures.pop("matthews") == pytest.approx(100 * varied)
    assert set(figures.values()) == {100}


def test_correlations_are_those_by_hand():
    figures = numbers([1, 2, 3, 10], [2, 1, 3, 4]).figures
    assert figures["spearman"] == pytest.approx(100 * (1 - 6 * 2 / (4 * 15)))
    # deviations from the means: -3 -2 -1 6 and -.5 -1.5 .5 1.5
    assert figures["pearson"] == pytest.approx(100 * (1.5 + 3 - 0.5 + 9) / (50 * 5) ** 0.5)
    assert numbers([3, 3], [1, 2]).figures["pearson"] == 0


def test_spans_are_those_by_hand():
    wanted, predicted = (split(*texts) for texts in zip(*SENTENCES, strict=True))
    figures = tags(predicted, wanted).figures
    # wanted: NP 0-2 NP 2-3 | NP 0-1 VP 1-2 | NP 0-2 NP 2-3 VP 3-4; predicted: NP 0-3 | NP 0-2 | ...
    assert (figures["spans"], figures["predicted_spans"]) == (7, 5)
    assert figures["precision"] == pytest.approx(100 * 3 / 5)
    assert figures["recall"] == pytest.approx(100 * 3 / 7)
    assert figures["f1"] == pytest.approx(100 * 2 * 3 / (5 + 7))
    assert figures["f1:NP"] == pytest.approx(100 * 2 * 2 / (4 + 5))
    assert figures["f1:VP"] == pytest.approx(100 * 2 * 1 / (1 + 2))
    assert figures["accuracy"] == pytest.approx(100 * 7 / 11)


def test_the_same_spans_in_iob1_and_iob2():
    iob1 = split("I-NP I-NP B-NP O I-VP", "I-NP")
    iob2 = split("B-NP I-NP B-NP O B-VP", "B-NP")
    figures = tags(iob1, iob2).figures
    assert figures["f1"] == figures["f1:NP"] == figures["f1:VP"] == 100
    assert figures["accuracy"] == pytest.approx(100 * 3 / 6)


def test_a_span_ends_with_its_text():
    assert tags(split("B-X", "I-X"), split("B-X", "I-X")).figures["spans"] == 2


def test_answers_by_hand():
    wanted = [["The Denver Broncos!", "Broncos"], ["in 1990"], ["the"], []]
    figures = answers([["denver  broncos"], ["1990, 1991"], [], ["x"]], wanted).figures
    assert figures["em"] == 50  # `the` has no word, as no answer has
    # one word of two is right, of two
    assert figures["f1"] == pytest.approx((100 + 50 + 100 + 0) / 4)
    assert figures["answerable_em"] == pytest.approx(100 * 2 / 3) and figures["answerable"] == 3
    assert figures["unanswerable_f1"] == 0 and figures["unanswerable"] == 1
    assert answers([[]], [[]]).figures["unanswerable_em"] == 100
    assert "answerable_em" not in answers([[]], [["x"]]).figures


def test_the_nearest_reference_counts_and_repeated_words_once():
    figures = answers([["a cat cat sat"]], [["dog", "cat sat down"]]).figures
    assert figures["em"] == 0 and figures["f1"] == pytest.approx(100 * 2 * 2 / (3 + 3))


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UsageError, match=r"number .*install 'unitk\[score\]'"):
        numbers([1, 2], [1, 2])


@pytest.mark.parametrize(
    ("scheme", "line"),
    [
        ("IOB", "O B-PER I-PER I-PER O B-LOC B-LOC"),
        ("IOBES", "O B-PER I-PER E-PER O S-LOC S-LOC"),
        ("BILOU", "O B-PER I-PER L-PER O U-LOC U-LOC"),
        ("BMES", "O B-PER M-PER E-PER O S-LOC S-LOC"),
    ],
)
def test_every_scheme_marks_the_same_spans(scheme, line):
    assert scheme_of(line.split()) == scheme
    assert spans(split(line)) == {(0, 1, 4, "PER"), (0, 5, 6, "LOC"), (0, 6, 7, "LOC")}
    figures = tags(split(line), split(line)).figures
    assert figures["f1"] == 100 and figures["spans"] == 3
    # of spans without a type, where one begins is all there is
    bare = " ".join(tag.partition("-")[0] for tag in line.split())
    assert {one[1:3] for one in spans(split(bare))} == {(1, 4), (5, 6), (6, 7)}


def test_parts_of_speech_are_no_scheme():
    assert scheme_of(["NN", "VBZ"]) is None and scheme_of(["B-X", "NOUN"]) is None
    assert scheme_of(["O", "B", "I"]) == "IOB"


@pytest.mark.parametrize(
    ("said", "wanted", "f1"),
    [
        ("在北京大学", "北京大学", 2 * 4 / (5 + 4)),  # CMRC's script counts characters
        ("《北京大学》。", "北京大学", 1),
        ("1990年", "1990年", 1),
        ("กรุงเทพ", "กรุงเทพฯ", None),
        ("the Oslo", "Oslo", 1),
    ],
)
def test_answers_without_blanks_are_compared_by_characters(said, wanted, f1):
    figures = answers([[said]], [[wanted]]).figures
    if f1 is None:
        assert 0 < figures["f1"] < 100
    else:
        assert figures["f1"] == pytest.approx(100 * f1)
