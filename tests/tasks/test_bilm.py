"""ELMo: the docstring's table, characters as in the released models, and what heads read."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.recurrent.bilm import BiLM, layout, spell_word
from unitk.tasks.understanding.labels import Classify
from unitk.vocab.words import word_vocab


def test_layout_is_the_table(ids):
    tokens = ids("C a b c S")
    example = layout(tokens, np.arange(15).reshape(5, 3))
    fwd, bwd = example.towers["fwd"], example.towers["bwd"]
    assert list(example.towers) == ["bwd", "fwd"] and example.decoded == "fwd"
    assert fwd.token.tolist() == bwd.token.tolist() == tokens.tolist()
    assert fwd.pos.tolist() == bwd.pos.tolist() == fwd.now.tolist() == [0, 1, 2, 3, 4]
    assert bwd.now.tolist() == [0, -1, -2, -3, -4]
    asked = {ask.name: (ask.tower, ask.first.tolist()) for ask in example.asks}
    assert asked == {"fwd": ("fwd", [0, 1, 2, 3]), "bwd": ("bwd", [1, 2, 3, 4])}
    label = {ask.name: ask.label.tolist() for ask in example.asks}
    assert label == {"fwd": ids("a b c S").tolist(), "bwd": ids("C a b c").tolist()}
    assert example.inputs["fwd.chars"][4].tolist() == [12, 13, 14]


def test_characters_are_bytes_between_begin_and_end():
    assert spell_word("ab", 6).tolist() == [259, 98, 99, 260, 261, 261]
    assert spell_word("é", 4).tolist() == [259, 1 + 0xC3, 1 + 0xA9, 260]
    assert spell_word("abcdef", 5).tolist() == [259, 98, 99, 100, 260]
    assert spell_word("[CLS]", 5, 257).tolist() == [259, 257, 260, 261, 261]


def test_each_slot_has_the_characters_of_its_word():
    vocab = word_vocab("a bc d")
    task = BiLM(BiLM.Config(characters=5), vocab)
    ids = np.array(vocab.encode("bc a"))
    example = task.pretrain(Text([ids], np.zeros(1, int)), np.random.default_rng(0))
    assert example.towers["fwd"].token.tolist() == [vocab.cls, *ids, vocab.sep]
    words = [
        spell_word("", 5, 257),
        spell_word("bc", 5),
        spell_word("a", 5),
        spell_word("", 5, 258),
    ]
    assert (example.inputs["fwd.chars"] == np.stack(words)).all()
    assert not task.chars[vocab.pad].any()
    stream = BiLM(BiLM.Config(ends=False), vocab)
    plain = stream.pretrain(Text([ids], np.zeros(1, int)), np.random.default_rng(0))
    assert plain.towers["bwd"].token.tolist() == ids.tolist()
    with pytest.raises(UsageError, match="--task.characters .*at least 3, got 2"):
        BiLM.Config(characters=2)


def test_texts_side_by_side_keep_their_characters():
    vocab = word_vocab("a bc d")
    task = Classify(Classify.Config(layout="bilm", both_orders=True), vocab)
    task = task.with_trained(labels=("no", "yes"))
    one, other = (np.array(vocab.encode(text)) for text in ("a bc", "d"))
    example = task.classify([one, other], np.array([1]), np.random.default_rng(0))
    token = example.towers["fwd"].token
    assert (example.inputs["fwd.chars"] == task.layout.chars[token]).all()
    assert [ask.head for ask in example.asks] == ["class:label"]
    assert token[example.asks[0].rows].tolist() == [[vocab.sep, vocab.sep]]
