"""Vocabularies that are trained: their characters, and what is logged of these."""

import logging
import random
import re
import string
from collections import Counter

import numpy as np
import pytest

from unitk.vocab import train as vocab_training
from unitk.vocab.train import LONG, _short, train_vocab

DRAW = random.Random(0)
# lower-case Latin, and letters that occur once in 40,000 characters
WORDS = ["".join(DRAW.choices(string.ascii_lowercase, k=5)) for _ in range(60)]
ENGLISH = [" ".join(DRAW.choices(WORDS, k=11)) for _ in range(600)] + ["Zq 7"]


def count(lines, normalization):
    """The characters of a text, as the vocabulary sees them."""
    return vocab_training.normalize(vocab_training.characters(lines), normalization)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_all_letters_of_an_alphabet_that_is_used_are_in(kind):
    vocab = train_vocab(ENGLISH, 60, kind)
    used = {*"".join(ENGLISH)} - {" "}
    assert all(vocab.unk not in vocab.encode(one) for one in used)
    before = train_vocab(ENGLISH, 60, kind, coverage=0.9995)
    assert vocab.unk in before.encode("Z") and vocab.unk in before.encode("7")


def test_few_characters_are_all_in_and_alphabets_complete():
    counts = count(ENGLISH * 50, "nmt_nfkc")
    coverage, required = vocab_training.choose_coverage(counts, 8000, "nmt_nfkc")
    assert coverage == 1.0 and {*string.ascii_letters} <= {*required}
    assert not {*string.digits} & {*required}  # of digits there is but one
    lowered = vocab_training.choose_coverage(counts, 8000, "nmt_nfkc_cf")[1]
    assert {*lowered} == {*string.ascii_lowercase}


def test_of_thousands_the_rare_ones_are_left_out_but_no_letter(caplog):
    rng = np.random.default_rng(0)
    han = [chr(0x4E00 + i) for i in range(3000)]
    share = 1 / np.arange(1, 3001) ** 2
    text = ["".join(rng.choice(han, 50, p=share / share.sum())) for _ in range(400)]
    text += ["ABC 12", "".join(han[2990:]), "\u03b1"]
    counts = count(text, "nmt_nfkc")
    coverage, required = vocab_training.choose_coverage(counts, 800, "nmt_nfkc")
    assert coverage == 0.9995 and {*required} == {*"ABC12"}  # one alpha is no use of Greek
    with caplog.at_level(logging.WARNING):
        vocab = train_vocab(text, 800)
    assert all(vocab.model.find(one) is not None for one in "ABC12")
    gone = [one for one in counts if vocab.model.find(one) is None]
    assert gone and f"leaves out {len(gone):,} of {len(counts):,} characters" in caplog.text
    shown = caplog.text.rpartition("text): ")[2].partition(", and")[0].split(", ")
    times = [int(one.split(" ")[1]) for one in shown]
    assert times == sorted(times, reverse=True)
    assert all(counts[one.split(" ")[0]] == int(one.split(" ")[1]) for one in shown)


def test_characters_are_counted_as_the_vocabulary_sees_them():
    lines = ["a\u0301 \ufb01n \uff21", "a" * 5, "\U0001f363"]
    found = count(lines, "identity")
    assert found == Counter("".join("".join(lines).split()))
    assert count(["\ufb01n\uff21\u2026"], "nmt_nfkc") == Counter("finA...")


@pytest.mark.parametrize(
    ("normalization", "changed"),
    [
        ("nmt_nfkc", r".* nmt_nfkc changes 2 of .*: U\+200C . a blank 12, \ufb01 . fi 1$"),
        ("nmt_nfkc_cf", r".* nmt_nfkc_cf changes 2 of .*: U\+200C . a blank 12, \ufb01 . fi 1$"),
        ("nfkc", r".* nfkc changes 1 of .*: \ufb01 . fi 1$"),
        ("identity", None),
    ],
)
def test_what_the_normalization_changes_is_told(caplog, normalization, changed):
    text = ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"] * 12 + [
        "abc abd abc abd The\u00a0\ufb01n\t"
    ]
    vocab = train_vocab(text, 32, "bpe", normalization=normalization)
    told = [one.getMessage() for one in caplog.records if "changes" in one.getMessage()]
    assert len(told) == bool(changed) and (not changed or re.match(changed, told[0]))
    assert (vocab.decode(vocab.encode(text[0])) == text[0]) == (
        changed is None or "200" not in changed
    )


def test_long_lines_are_parted_at_blanks():
    rng = random.Random(0)
    words = ["x" * rng.randint(1, 9) for _ in range(LONG // 2)]
    parts = _short(" ".join(words))
    assert len(parts) > 1 and max(map(len, parts)) <= LONG + 1
    assert " ".join(parts).split(" ") == words
    solid = "y" * (3 * LONG)
    assert "".join(_short(solid)) == solid and len(_short(solid)) == 3
