"""The encoder-decoder baseline: the docstring's table."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.tasks.seq2seq import Seq2Seq


def test_layout_is_the_table(toy_vocab, labels):
    v, made = toy_vocab, Seq2Seq(Seq2Seq.Config(), toy_vocab)
    example = made.finetune([np.array([40, 41])], np.array([50, 51]), np.random.default_rng(0))
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == [v.cls, 40, 41, v.sep]
    assert enc.pos.tolist() == [0, 1, 2, 3] and not enc.now.any() and enc.cross.all()
    assert dec.token.tolist() == [v.cls, 50, 51]
    assert dec.pos.tolist() == dec.now.tolist() == dec.born.tolist() == [0, 1, 2]
    assert labels(example, "lm", "dec") == [50, 51, v.sep]


def test_parts_are_joined_by_separators(toy_vocab):
    v, made = toy_vocab, Seq2Seq(Seq2Seq.Config(), toy_vocab)
    enc = made.prompt([np.array([40]), np.array([41])]).towers["enc"]
    assert enc.token.tolist() == [v.cls, 40, v.sep, 41, v.sep]


def test_it_does_not_pre_train(toy_vocab):
    with pytest.raises(UsageError, match="cannot pre-train"):
        Seq2Seq(Seq2Seq.Config(), toy_vocab).pretrain(
            Text([np.array([40])], np.zeros(1, int)), np.random.default_rng(0)
        )


@pytest.mark.parametrize(
    ("opening", "before", "start"),
    [("sep", [], ["sep"]), ("both", ["cls"], ["sep", "cls"]), ("pad", [], ["pad"])],
)
def test_what_opens_elsewhere(toy_vocab, labels, opening, before, start):
    """fairseq and MASS open with the end symbol alone, BART with both, T5 with the pad."""
    v, made = toy_vocab, Seq2Seq(Seq2Seq.Config(opening=opening), toy_vocab)
    example = made.finetune([np.array([40, 41])], np.array([50]), np.random.default_rng(0))
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == [*(v.symbols[name] for name in before), 40, 41, v.sep]
    assert dec.token.tolist() == [*(v.symbols[name] for name in start), 50]
    assert dec.pos.tolist() == dec.now.tolist() == list(range(len(start) + 1))
    assert labels(example, "lm", "dec")[-2:] == [50, v.sep]
