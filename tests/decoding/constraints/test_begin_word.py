"""Outputs that do not go on inside the last word of a text."""

import numpy as np
import pytest
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import ends_in_word, word_rules
from unitk.decoding.generator import Generator
from unitk.errors import UsageError
from unitk.registry import get


@pytest.fixture
def lm(toy_vocab):
    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    torch.manual_seed(1)
    model = get("arch", "gpt2_tiny")().build(len(toy_vocab)).eval()
    return Generator(model, task)


def test_what_goes_on_inside_a_word(toy_vocab):
    """Pieces that begin with a letter, digit or hyphen and no blank; marks are none of them."""
    inside = word_rules(GenerateConfig(begin_word=True), toy_vocab).inside
    pieces = toy_vocab.pieces(inside)
    assert pieces and not any(piece.startswith("▁") for piece in pieces)
    marks = [i for i in range(toy_vocab.model.size) if toy_vocab.model.text(i) in (".", ",")]
    assert marks and not {*marks} & {*inside}
    assert not word_rules(GenerateConfig(), toy_vocab).inside


@pytest.mark.parametrize(("text", "within"), [("lami", True), ("lami.", False), ("", False)])
def test_a_text_ends_in_a_word_or_not(toy_vocab, text, within):
    source = [np.array(toy_vocab.encode(text), np.int64)]
    assert ends_in_word(source, toy_vocab) is within


def test_the_first_word_is_the_most_probable_that_is_allowed(lm):
    """Batches hold both kinds of text; words after the first are free."""
    vocab = lm.vocab
    inside = [*word_rules(GenerateConfig(begin_word=True), vocab).inside]
    texts = ["lami", "lami.", "soto lami na", "lami na."]
    table = [one[0].copy() for one in lm.logits(texts, ["la"] * 4)]
    for row, text in zip(table, texts, strict=True):
        row[[vocab.pad, vocab.cls, vocab.mask]] = -np.inf
        if text[-1].isalpha():
            row[inside] = -np.inf
    found = lm.generate(texts, beam=1, max_len=4, min_len=1, begin_word=True)
    for (best,), row in zip(found, table, strict=True):
        row[vocab.sep] = -np.inf  # --min-len 1
        assert best.hypothesis.ids[0] == row.argmax()
    free = lm.generate(texts[1::2], beam=1, max_len=4, min_len=1)
    assert [a.text for (a,) in found[1::2]] == [b.text for (b,) in free]
    every = lm.generate("lami", sampling=True, nbest=400, max_len=2, min_len=2, begin_word=True)
    first, second = ({int(one.hypothesis.ids[at]) for one in every[0]} for at in (0, 1))
    assert not first & {*inside} and second & {*inside}


def test_blanks_do_not_take_it(toy_vocab):
    task = get("task", "glm_infill")
    task = task(task.Config(), toy_vocab)
    model = get("arch", "glm_tiny")().build(len(toy_vocab)).eval()
    with pytest.raises(UsageError, match="--begin-word"):
        Generator(model, task).infill("lami [MASK]", begin_word=True)
