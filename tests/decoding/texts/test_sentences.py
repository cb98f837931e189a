"""Draws of which the best are kept, and outputs that end with a sentence."""

from dataclasses import replace

import numpy as np
import pytest

import unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.sentences import (
    choose_outputs,
    count_repeats,
    key_sentence,
    sentence_ends,
    stable_part,
)
from unitk.errors import UsageError
from unitk.serving.openai.writing import has_sentences
from unitk.slots import Protocol

WORDS = "The cat sat . Mr Grey left ! So <end>".split()
END = WORDS.index("<end>")


def spell(ids):
    text = " ".join(WORDS[i] for i in ids if i != END)
    return text.replace(" .", ".").replace(" !", "!")


def written(text, *, end=False, gain=-1.0):
    ids = np.array([WORDS.index(word) for word in text.split()] + [END] * end, np.int64)
    gains = np.full(len(ids), gain, np.float32)
    return Hypothesis(ids, gain, gain * len(ids), gains)


@pytest.fixture(scope="module")
def base():
    return unitk.load("unitk-base-en")


@pytest.fixture
def protocol(toy_vocab):
    lm = unitk.registry.get("task", "lm")
    return replace(lm(lm.Config(), toy_vocab).protocol, end=END)


@pytest.mark.parametrize(
    ("text", "whole", "grows"),
    [
        ("He left. She stayed.", ["He left.", "He left. She stayed."], ["He left."]),
        ("Mr. Grey paid 3.4 million. Then", ["Mr. Grey paid 3.4 million."], None),
        ('"No!" she said. "Why', ['"No!" she said.'], None),
        ("she said.”", ["she said.”"], []),
        ("no end", [], None),
        ("彼は来た。彼女も", ["彼は来た。"], None),
        ("", [], None),
    ],
)
def test_ends_of_sentences(text, whole, grows):
    """A title, a number or an initial ends none; of a text that grows, the last stop may go on."""
    assert [text[:at] for at in sentence_ends(text)] == whole
    wanted = whole if grows is None else grows
    assert [text[:at] for at in sentence_ends(text, grows=True)] == wanted


def test_a_text_that_is_being_written():
    two = GenerateConfig(sentences=2)
    for text, stable, over in [
        ("He left", "", False),
        ("He left. She", "He left.", False),
        ("He left. She stayed. They", "He left. She stayed.", True),
        ("He left. She stayed. They ran. So", "He left. She stayed.", True),
    ]:
        assert (stable_part(text, two), has_sentences(text, two)) == (stable, over)
        assert (stable_part(text, GenerateConfig()), has_sentences(text, GenerateConfig())) == (
            text,
            False,
        )


def test_outputs_are_cut_and_ranked_by_what_is_left(protocol: Protocol):
    """By hand: the score is the mean of the tokens that stay."""
    long, short = written("The cat sat . So The cat"), written("Grey left ! So The", gain=-0.5)
    tail = replace(long, token_log_probs=np.array([-1, -1, -1, -1, -9, -9, -9], np.float32))
    config = GenerateConfig(sentences=1, nbest=2)
    best, other = choose_outputs(spell, [tail, short], config, protocol, 7)
    assert (best.text, other.text) == ("Grey left!", "The cat sat.")
    assert best.hypothesis.score == pytest.approx(-0.5) and len(best.hypothesis.ids) == 3
    assert other.hypothesis.log_prob == pytest.approx(-4)
    assert other.hypothesis.score == pytest.approx(-1)
    # as in a search, a symbol before the output counts as a word
    best, _ = choose_outputs(spell, [tail, short], config, replace(protocol, opened=1), 7)
    assert best.hypothesis.score == pytest.approx(-0.5 * 3 / 4)


def test_what_has_no_stop_comes_last_unless_the_model_has_ended_it(protocol: Protocol):
    open_, title = written("The cat sat", gain=-0.1), written("So The cat", end=True, gain=-3)
    whole = written("Grey left ! So", gain=-2)
    config = GenerateConfig(sentences=1, nbest=3)
    found = choose_outputs(spell, [open_, title, whole], config, protocol, 8)
    assert [one.text for one in found] == ["Grey left!", "So The cat", "The cat sat"]
    empty = written("")
    assert choose_outputs(spell, [empty], replace(config, nbest=1), protocol, 8)[0].text == ""
    # an end that --max-len forces is none of the model's
    forced = written("The cat sat . So", end=True)
    [cut] = choose_outputs(spell, [forced], replace(config, sentences=2), protocol, 5)
    assert cut.text == spell(forced.ids[:4])
    [kept] = choose_outputs(spell, [forced], replace(config, sentences=2), protocol, 6)
    assert kept.text == spell(forced.ids)


def test_equal_outputs_are_kept_once_as_long_as_there_are_others(protocol: Protocol):
    same = [written("The cat sat . So", gain=-1), written("The cat sat . Grey", gain=-1)]
    other = written("Grey left !", gain=-2)
    config = GenerateConfig(sentences=1, nbest=2)
    found = choose_outputs(spell, [*same, other], config, protocol, 9)
    assert [one.text for one in found] == ["The cat sat.", "Grey left!"]
    assert len(choose_outputs(spell, [*same, other], replace(config, nbest=3), protocol, 9)) == 3


def test_words_that_are_repeated_cost_rank(protocol: Protocol):
    """By hand: "Grey left! Grey left" repeats 2 of 4 words, and 3 of 4 after a "Grey"."""
    again, fresh = written("Grey left ! Grey left", gain=-1), written("The cat sat .", gain=-2)
    for cost, source, wanted in [
        (0, "GREY", again),
        (1.4, "", again),
        (1.4, "GREY", fresh),
        (1.9, "", again),
        (2.1, "", fresh),
    ]:
        config = GenerateConfig(sampling=True, best_of=2, repeat_cost=cost)
        [found] = choose_outputs(spell, [again, fresh], config, protocol, 9, source)
        assert found.hypothesis is wanted, (cost, source)
    assert (
        count_repeats("Grey grey greys", "") == 1 and count_repeats("one Two three", "Three") == 1
    )


def test_the_best_of_several_draws(base):
    """They are those that as many outputs would have been; without a repeat, the best of them."""
    how = {"sampling_topp": 0.9, "max_len": 6, "sentences": 0, "seed": 3}
    how["repeat_cost"] = 0
    [every] = base.generate(["The king"], nbest=12, best_of=1, **how)
    [best] = base.generate(["The king"], nbest=3, best_of=12, **how)
    distinct = list(dict.fromkeys(one.text for one in every))
    assert [one.text for one in best] == distinct[:3]
    scores = [one.hypothesis.score for one in every]
    assert scores == sorted(scores, reverse=True)
    with_fewer = base.generate(["The king"], nbest=12, best_of=3, **how)
    assert [one.text for one in with_fewer[0]] == [one.text for one in every]


@pytest.mark.slow
def test_sentences_of_a_model(base):
    """What is left are the first tokens of the same draw; a stream brings whole sentences."""
    how = {"max_len": 60, "best_of": 1, "seed": 1}
    texts = ["The population of the country", "The king"]
    long, short = (base.generate(texts, sentences=count, **how) for count in (0, 1))
    for (all_,), (cut,) in zip(long, short, strict=True):
        size = len(cut.hypothesis.ids)
        assert all_.text.startswith(cut.text) and len(sentence_ends(cut.text)) == 1
        assert (all_.hypothesis.ids[:size] == cut.hypothesis.ids).all()
        gains = all_.hypothesis.token_log_probs[:size]
        assert cut.hypothesis.score == pytest.approx(gains.mean(), rel=1e-5)
    for text in texts:
        [[cut]] = base.generate(text, sentences=2, **how)
        pieces = list(base.stream(text, sentences=2, **how))
        assert "".join(pieces) == cut.text and len(pieces) <= 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"best_of": 3}, "--best-of"),
        ({"sentences": 1, "contrast": 0.1, "avoid_part": 1}, "--sentences"),
    ],
)
def test_what_does_not_go_together(options, said):
    with pytest.raises(UsageError, match=said):
        GenerateConfig(**options)


def test_blanks_and_streams_refuse_them(base):
    with pytest.raises(UsageError, match="--sentences"):
        base.infill("The [MASK] sat.", sentences=1)
    with pytest.raises(UsageError, match="--best-of"):
        next(base.stream("The king", best_of=4))


PHRASES = ("we  propose", "This paper")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Much is known. Here We\npropose more. We propose less.", "Here We propose more."),
        ("Much is known of this paper. Here we propose more.", "Much is known of this paper."),
        ("Much is known. Nothing is new.", "Much is known."),
        ("All are slow. To this end, we  propose Élan.", "We propose Élan."),
        ("So we, we propose, and we propose.", "We propose, and we propose."),
        ("We propose one, this paper too.", "We propose one, this paper too."),
        ("In this paper, we propose more.", "In this paper, we propose more."),
        ("no stop", "no stop"),
        ("", ""),
    ],
)
def test_the_sentence_that_says_what_matters(text, sentence):
    assert key_sentence(text, PHRASES) == sentence


def test_phrases_of_any_case_and_width():
    assert key_sentence("Ruhe. DIE  STRASSE (frei).", ["straße"]) == "DIE STRASSE (frei)."
    assert key_sentence("One. A (b) c.", ["a (b)"]) == "A (b) c."


def test_only_that_sentence_is_read(base):
    """Outputs, scores and lengths are those of the sentence alone; it is one of the last part."""
    how = {"beam": 2, "max_len": "1x", "min_len": "1x", "sentences": 0}
    texts = ["Much is known. Here we propose more of it.", "Much is known.", ""]
    alone = ["Here we propose more of it.", "Much is known.", ""]
    for ours, theirs in zip(
        base.generate(texts, key_phrases=PHRASES, **how), base.generate(alone, **how), strict=True
    ):
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert ours[0].hypothesis.score == pytest.approx(theirs[0].hypothesis.score, rel=1e-4)
    [one], [other] = (
        base.score(text, "It is good.", key_phrases=phrases)
        for text, phrases in ((texts[0], PHRASES), (alone[0], ()))
    )
    assert one.hypothesis.log_prob == pytest.approx(other.hypothesis.log_prob, rel=1e-4)
    ids = base.encode([["A title", texts[0]], ["A title"]])
    both, title = base.key_sentences(ids, GenerateConfig(key_phrases=PHRASES))
    assert [base.vocab.decode(part) for part in both] == ["A title", alone[0]]
    assert base.vocab.decode(title[0]) == "A title"


def test_where_there_is_no_source_to_choose_from(base):
    with pytest.raises(UsageError, match="--key-phrases"):
        base.infill("The [MASK] sat.", key_phrases=PHRASES)
