"""BLEU and chrF are those of the papers and of sacrebleu."""

import pytest

from unitk.errors import UsageError
from unitk.metrics.bleu import bleu, chrf
from unitk.metrics.meteor import meteor
from unitk.metrics.qg import qg


def test_equal_texts_score_100():
    texts = ["the cat sat on the mat .", "a dog ran far away"]
    assert bleu(texts, [[text] for text in texts]).figures["bleu"] == pytest.approx(100)


def test_clipped_precision_is_that_of_the_paper():
    # Papineni et al. 2002, example 2: "the" counts twice, as often as in one reference
    references = [["the cat is on the mat", "there is a cat on the mat"]]
    figures = bleu(["the the the the the the the"], references).figures
    assert figures["precision1"] == pytest.approx(100 * 2 / 7)
    assert figures["words"] == 7


def test_texts_with_different_numbers_of_references():
    found = bleu(["a b c d e", "f g h i j"], [["x x x x x"], ["y y y y y", "f g h i j"]])
    assert found.figures["precision4"] == pytest.approx(50)
    assert "nrefs:var" in found.about


def test_brevity_penalty():
    figures = bleu(["a b c d"], [["a b c d e f"]], tokenize="none").figures
    assert figures["bleu"] == pytest.approx(100 * 2.718281828 ** (1 - 6 / 4))
    assert figures["precision4"] == 100


def test_case_and_tokenizer():
    assert bleu(["A B C D"], [["a b c d"]], lowercase=True).figures["bleu"] == pytest.approx(100)
    assert bleu(["A B C D"], [["a b c d"]], smooth="none").figures["bleu"] == 0
    assert bleu(["一二三四五"], [["一二三四六"]], tokenize="zh").figures["precision1"] == 80


def test_the_example_of_nlg_eval_has_its_scores(shared_data):
    # the figures of that repository's own unit test
    folder = shared_data("metric-refs/nlg-eval-example")
    hypotheses, *files = (
        (folder / f"{name}.txt").read_text().splitlines() for name in ("hyp", "ref1", "ref2")
    )
    references = [list(several) for several in zip(*files, strict=True)]
    figures = bleu(hypotheses, references, tokenize="none", smooth="none").figures
    product, expected = 1.0, [0.550000, 0.428174, 0.284043, 0.201143]
    for n, value in enumerate(expected, start=1):
        product *= figures[f"precision{n}"] / 100
        assert product ** (1 / n) == pytest.approx(value, abs=1e-6)
    assert figures["bleu"] == pytest.approx(20.1143, abs=1e-4)


def test_chrf():
    # letters 3 of 4, pairs 2 of 3, triples 1 of 2, quadruples 0 of 1: P = R = F at each order
    found = chrf(["abcd"], [["abce"]]).figures
    assert found["chrf"] == pytest.approx(100 * (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4)
    assert chrf(["a b c d"], [["x", "a b c d"]]).figures == {"chrf": 100, "chrf++": 100}
    assert chrf(["ABC"], [["abc"]]).figures["chrf"] == 0
    assert chrf(["ABC"], [["abc"]], lowercase=True).figures["chrf"] == pytest.approx(100)


def test_tokenised_text_is_scored_without_advice(caplog):
    texts = ["a tokenised line ."] * 200
    assert bleu(texts, [[text] for text in texts]).figures["bleu"] == pytest.approx(100)
    assert caplog.records == []


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_texts_are_counted_in_blocks(monkeypatch, metric):
    """Any blocks add up to the score of the whole corpus."""
    from unitk.metrics import bleu as module

    texts = [f"the cat number {n} sat on mat {n % 3}" for n in range(7)]
    references = [[f"the cat {n} sat on the mat {n % 2}"] * (1 + n % 2) for n in range(7)]
    whole = metric(texts, references).figures
    monkeypatch.setattr(module, "BLOCK", 2)
    told = []
    assert metric(texts, references, report=told.append).figures == whole
    assert max(told) == 2 and sum(told) == len(texts) * (2 if metric is chrf else 1)


def test_texts_without_blanks_name_a_tokenizer(caplog):
    said, wanted = ["今天的天气非常好。"], [["今天的天气真的非常好。"]]
    assert bleu(said, wanted, tokenize="zh").figures["bleu"] > 30 and not caplog.text
    bleu(said, wanted)
    assert "--tokenize zh" in caplog.text
    for other in (lambda: qg(said, wanted[0], ["x"]), lambda: meteor(said, wanted)):
        caplog.clear()
        other()
        assert "most of these texts have none" in caplog.text


def test_a_tokenizer_that_is_not_installed_names_its_package():
    with pytest.raises(UsageError, match=r"--tokenize ko-mecab .*sacrebleu\[ko\]"):
        bleu(["a"], [["a"]], tokenize="ko-mecab")
