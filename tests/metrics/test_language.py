"""Perplexities by units: tokens, words, characters and bytes of texts."""

import math

import numpy as np
import pytest

from unitk.metrics.language import Units, perplexities


def units(*texts):
    """Units of texts whose tokens are their characters, given as sentences."""
    each = [[np.frombuffer(one.encode("utf-32-le"), np.int32) for one in text] for text in texts]
    return Units.of(each, lambda ids: "".join(map(chr, ids)))


def test_units_count_the_end_but_not_the_begin():
    assert units(["der Käse"]) == Units(texts=1, tokens=9, words=3, size=10)
    assert units([""]) == Units(1, 1, 1, 1)
    assert units(["der Käse"], [""]) == Units(2, 10, 4, 11)
    assert units() == Units()


def test_sentences_are_apart():
    whole, cut = units(["Er kam. Sie ging."]), units(["Er kam.", "Sie ging."])
    assert (cut.words, cut.size) == (whole.words, whole.size)


def test_an_end_inside_a_text_stands_for_the_blank_there():
    text = units(["Er kam.", "Sie ging."])
    lines = units(["Er kam."], ["Sie ging."])
    assert text.with_ends(2) == Units(1, lines.tokens, lines.words, lines.size)
    assert text.with_ends(0).size == len("Er kam. Sie ging.")


def test_a_fair_coin_costs_a_bit_a_token():
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
    coarse, fine = (perplexities(50.0, Units(1, n, 4, 14)) for n in (3, 9))
    assert coarse["ppl_word"] == fine["ppl_word"]
    assert coarse["bits_per_byte"] == fine["bits_per_byte"]
    assert coarse["ppl_token"] > fine["ppl_token"]


def test_absurd_nats_are_a_number_still():
    assert math.isfinite(perplexities(1e9, Units(1, 2, 2, 9))["ppl_word"])
