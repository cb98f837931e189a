"""Filled texts that are ranked as wholes."""

from dataclasses import replace

import numpy as np
import pytest

import unitk
from unitk.decoding.blanks import LENGTHS, is_seen, rank_filled, searches
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sentences import count_repeats
from unitk.decoding.texts.sources import Sources
from unitk.errors import UsageError

MINI, TEXT = "unitk-base-en", "He was born in [MASK], the capital of France."


@pytest.fixture(scope="module")
def filler():
    return unitk.load(MINI)


@pytest.fixture(scope="module")
def reader():
    return unitk.load(MINI, task="lm")


def test_the_score_is_the_log_probability_of_the_text(filler, reader):
    """The same weights give it as a language model; of equal outputs the most probable is first."""
    for outputs in filler.infill([TEXT, "The [MASK] sat on the [MASK]."], beam=4, nbest=4):
        texts = [one.text for one in outputs]
        scores = [one.hypothesis.score for one in outputs]
        wanted = [float(gains.sum()) for gains in reader.likelihood(texts)]
        assert scores == pytest.approx(wanted, rel=1e-4)
        fills = [float(one.hypothesis.token_log_probs.sum()) for one in outputs]
        rows = zip(texts, scores, fills, strict=True)
        order = [(count_repeats(text), -score - 0.5 * fill) for text, score, fill in rows]
        assert order == sorted(order) and len(set(texts)) == 4


def test_the_best_text_is_that_of_all_searches(filler, reader):
    one = GenerateConfig(beam=5, lenpen=GenerateConfig.INFILL_LENPEN)
    every = {}
    for config in searches(one):
        how = {"max_len": config.max_len, "min_len": config.min_len, "rerank": "off"}
        [found] = filler.infill(TEXT, beam=config.beam, nbest=config.beam, **how)
        for output in found:
            own = float(output.hypothesis.token_log_probs.sum())
            text = float(reader.likelihood(output.text)[0].sum())
            every.setdefault(output.text, (count_repeats(output.text), -text - 0.5 * own))
    [[best]] = filler.infill(TEXT)
    assert best.text == min(every, key=every.get)


def test_words_of_the_text_come_after_all_others(filler):
    texts = "light, water and water", "light, water and air", "light, water and Water", "a, b and a"
    [[some]] = filler.infill(TEXT, beam=2)
    scores = np.array([-1.0]), np.array([-1.0, -2.0]), np.array([-2.0]), np.array([-9.0])
    ranked = rank_filled([replace(some, text=text) for text in texts], scores)
    assert [one.text for one in ranked] == [texts[n] for n in (1, 3, 0, 2)]
    assert [one.hypothesis.score for one in ranked] == [-3, -9, -1, -2]


def test_of_equal_texts_the_likelier_fill_is_first(filler):
    [[one]] = filler.infill(TEXT, beam=2)
    fills = [replace(one.hypothesis, token_log_probs=np.array([x])) for x in (-3.0, -1.0, -2.0)]
    outputs = [replace(one, hypothesis=fill) for fill in fills]
    gains = np.array([-5.0]), np.array([-5.0]), np.array([-4.4])  # -6.5, -5.5, -5.4
    assert [best.hypothesis.token_log_probs[0] for best in rank_filled(outputs, gains)] == [
        -2,
        -1,
        -3,
    ]


def test_bytes_that_are_no_character_fill_no_blank(filler):
    source, vocab = filler.encode_blanks(TEXT), filler.vocab
    whole = vocab.encode("\N{DEGREE SIGN}")
    cut = whole[:-1]
    assert len(whole) > 1 and "\ufffd" in vocab.decode(cut)
    assert [is_seen(filler.task, source, ids) for ids in (whole, cut)] == [True, False]


def test_every_blank_is_filled_with_something(filler):
    """A piece that is a blank alone fills nothing, though the text without the word is likely."""
    [outputs] = filler.infill("The [MASK] were singing in the trees.", nbest=5)
    assert all(len(one.text.split()) >= 7 for one in outputs)


def test_lengths_are_those_that_the_options_allow():
    def lengths(**options):
        return [(one.min_len, one.max_len) for one in searches(GenerateConfig(**options))]

    assert lengths(max_len=9) == [*((1, n) for n in LENGTHS), (1, 9)]
    assert lengths(max_len=2) == [(1, 1), (1, 2)]
    assert lengths(min_len=3, max_len=4) == [(3, 3), (3, 4)]
    assert lengths(max_len="1.2x+10") == [(0, "1.2x+10")]
    assert lengths(max_words=3) == [(0, 64)]


def test_phrases_that_are_asked_for_have_room(filler):
    """A short blank would refuse them."""
    source, long = filler.encode_blanks(TEXT), "a small town near Paris"
    for wanted in filler.constraints([long]), filler.constraints(phrases=[[long]]):
        config = GenerateConfig(lenpen=GenerateConfig.INFILL_LENPEN)
        [[best]] = filler.fill([TEXT], Sources([source], constraints=wanted), config)
        assert long in best.text
        with pytest.raises(UsageError, match="--rerank on .*prefix"):
            how = replace(config, rerank="on")
            filler.fill([TEXT], Sources([source], constraints=wanted), how)


def test_draws_and_greedy_outputs_are_as_they_come(filler):
    for options in ({"beam": 1}, {"sampling": True, "seed": 3}):
        options |= {"max_len": 6}
        [[auto]], [[off]] = (filler.infill(TEXT, rerank=how, **options) for how in ("auto", "off"))
        assert auto.text == off.text and auto.hypothesis.score == off.hypothesis.score
        with pytest.raises(UsageError, match="--rerank"):
            filler.infill(TEXT, rerank="on", **options)


def test_a_model_that_is_no_language_model_ranks_nothing(filler, reader):
    other = unitk.load("unitk-base-en-questions")
    assert other.reader is None and filler.reader is not None
    with pytest.raises(UsageError, match="--rerank.*--task lm"):
        other.infill(TEXT, rerank="on")
    with pytest.raises(UsageError, match="--rerank.*blanks"):
        reader.generate("He was", rerank="on")
