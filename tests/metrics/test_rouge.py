"""ROUGE has the scores of the paper and of rouge-score."""

import pytest
from rouge_score.rouge_scorer import RougeScorer

from unitk.data.files.lines import read_lines
from unitk.errors import DataError
from unitk.metrics.rouge import ROUGE, rouge


def test_the_example_of_the_paper_has_its_scores():
    # Lin 2004, section 3.1: the second has the words, but only "the gunman" in order
    one = rouge(["police kill the gunman"], [["police killed the gunman"]]).figures
    two = rouge(["the gunman kill police"], [["police killed the gunman"]]).figures
    assert one["rouge1"] == two["rouge1"] == pytest.approx(100)  # the stemmer joins kill and killed
    assert one["rougeL"] == pytest.approx(100)
    assert two["rougeL"] == pytest.approx(50)
    assert two["rouge2"] == pytest.approx(100 / 3)


def test_summary_level():
    # Lin 2004, section 3.2: the union of w1 w2 and w1 w3 w5 is 4 of 5 words, of 10 written
    figures = rouge(["w1 w2 w6 w7 w8<q>w1 w3 w8 w9 w5"], [["w1 w2 w3 w4 w5"]]).figures
    assert figures["rougeLsum"] == pytest.approx(100 * 2 * 0.8 * 0.4 / 1.2)
    other = rouge(["w1 w2 w6 w7 w8 || w1 w3 w8 w9 w5"], [["w1 w2 w3 w4 w5"]], separator="||")
    assert other.figures == figures


def test_the_separator_is_no_word():
    assert rouge(["one two<q>three"], [["one two three"]]).figures["rouge1"] == pytest.approx(100)


def test_the_best_reference_counts():
    assert rouge(["a b c"], [["x y z", "a b c"]]).figures["rouge2"] == pytest.approx(100)


def test_figures_are_those_of_the_library():
    hypotheses = ["The quick foxes were running, quickly!", "", "12 monkeys and naïve cities"]
    references = ["Quick foxes run.", "nothing", "A dozen monkeys of the naive city"]
    scorer = RougeScorer(ROUGE, use_stemmer=True)
    found = rouge(hypotheses, [[text] for text in references]).figures
    for kind in ROUGE:
        each = [scorer.score(r, h)[kind] for r, h in zip(references, hypotheses, strict=True)]
        assert found[kind] == pytest.approx(100 * sum(s.fmeasure for s in each) / 3)


def test_a_script_that_rouge_does_not_know_is_refused():
    with pytest.raises(DataError, match="a-z"):
        rouge(["你好"], [["你好"]])


@pytest.mark.slow
def test_published_summaries(shared_data):
    folder = shared_data("metric-refs/xsum")
    hypotheses = list(read_lines(folder / "topic-convs2s-test-output.txt.gz"))
    references = list(read_lines(folder / "gold-test-sentences.txt.gz"))
    figures = rouge(hypotheses, [[text] for text in references]).figures
    found = [round(figures[kind], 2) for kind in ("rouge1", "rouge2", "rougeL")]
    assert found == [31.58, 11.49, 25.58]  # ROUGE-1.5.5: 31.89 11.54 25.75


def test_words_of_any_script(caplog):
    """Chinese by characters, Russian by words: each has what its letters have in common."""
    said, wanted = ["今天天气很好，气温25度。"], [["昨天股票下跌了25点。"]]
    found = rouge(said, wanted, kind="unicode").figures
    assert found["rouge1"] == pytest.approx(100 * 2 * 2 / (10 + 9))  # 天 and 25
    found = rouge(["приезд в 1990"], [["отъезд в 1990"]], kind="unicode").figures
    assert found["rouge1"] == pytest.approx(100 * 2 / 3)
    assert not caplog.text
    assert rouge(["приезд в 1990"], [["отъезд в 1990"]]).figures["rouge1"] == 100
    assert "leaves out 64 % of the letters" in caplog.text and "--rouge-words" in caplog.text


def test_words_of_english_are_the_same_either_way():
    texts = ["The quick foxes were running, quickly!", "12 monkeys and cities"]
    references = [["Quick foxes run."], ["A dozen monkeys of the city"]]
    one, other = (rouge(texts, references, kind=kind).figures for kind in ("ascii", "unicode"))
    assert one == other
