import math

import pytest

from unitk.metrics.language import Units, perplexities


def test_units_count_the_end_but_not_the_begin():
    assert Units.of([("der Käse", 5)]) == Units(texts=1, tokens=6, words=3, size=10)
    assert Units.of([("", 0)]) == Units(1, 1, 1, 1)
    assert Units.of([("der Käse", 5), ("", 0)]) == Units(2, 7, 4, 11)
    assert Units.of([]) == Units()


def test_a_fair_coin_for_each_token():
    found = perplexities(12 * math.log(2), Units(texts=2, tokens=12, words=6, size=24))
    assert found == {
        "tokens": 12,
        "words": 6,
        "bytes": 24,
        "ppl_word": pytest.approx(4),
        "ppl_token": pytest.approx(2),
        "bits_per_byte": pytest.approx(0.5),
    }


def test_word_perplexity_and_bits_do_not_depend_on_the_tokenizer():
    coarse, fine = (perplexities(50.0, Units.of([("one two three", n)])) for n in (3, 9))
    assert coarse["ppl_word"] == fine["ppl_word"]
    assert coarse["bits_per_byte"] == fine["bits_per_byte"]
    assert coarse["ppl_token"] > fine["ppl_token"]


def test_absurd_nats_are_a_number_still():
    assert math.isfinite(perplexities(1e9, Units(1, 2, 2, 9))["ppl_word"])
