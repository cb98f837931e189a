"""METEOR has the formula of the paper, and matches stems without WordNet."""

import pytest

from unitk.metrics import meteor as module
from unitk.metrics.meteor import meteor

FIGURE = "meteor_exact_stem"


@pytest.fixture(autouse=True)
def without_wordnet(monkeypatch):
    monkeypatch.setattr(module, "_wordnet", module._NoSynonyms)


def test_the_formula_is_that_of_the_paper():
    # 5 of 6 words match in 2 chunks: precision 5/6, recall 5/6
    found = meteor(["the cat sat on the mat"], [["the cat was on the mat"]]).figures
    assert found[FIGURE] == pytest.approx(100 * 5 / 6 * (1 - 0.5 * (2 / 5) ** 3))


def test_recall_weighs_nine_times_as_much():
    # 2 of 2 words of 4: F = P R / (.9 P + .1 R), one chunk of two matches
    found = meteor(["the cat"], [["the cat was here"]]).figures
    assert found[FIGURE] == pytest.approx(100 * 0.5 / (0.9 + 0.05) * (1 - 0.5 * (1 / 2) ** 3))


def test_stems_match_and_synonyms_do_not():
    assert meteor(["cats walked"], [["cat walks"]]).figures[FIGURE] > 90
    found = meteor(["a big house"], [["some large building"]])
    assert found.figures == {FIGURE: 0} and "without WordNet" in found.about


def test_the_best_reference_counts_and_means_are_over_texts():
    found = meteor(["a b c", "x"], [["y", "a b c"], ["z"]]).figures
    assert found[FIGURE] == pytest.approx(100 * (1 - 0.5 / 27) / 2)


def test_words_are_the_treebanks():
    assert meteor(["It works."], [["it works ."]]).figures[FIGURE] > 95


def test_synonyms_match_where_wordnet_is(monkeypatch):
    class Lemma:
        def name(self):
            return "grand"

    class Set:
        def lemmas(self):
            return [Lemma()]

    class WordNet:
        def synsets(self, word):
            return [Set()] if word == "big" else []

    monkeypatch.setattr(module, "_wordnet", WordNet)
    found = meteor(["big"], [["grand"]])
    assert found.figures["meteor"] == 50 and "WordNet matches" in found.about
