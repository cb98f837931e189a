"""The word list as a vocabulary."""

from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab
from unitk.vocab.words import word_vocab


def test_words_have_ids_in_order_and_symbols_follow():
    vocab = word_vocab("b a b", "c [MASK]")
    assert vocab.encode("a b c") == [1, 0, 2]
    assert vocab.pieces([0, 1, 2, vocab.mask]) == ["b", "a", "c", "[MASK]"]
    assert vocab.encode_marked("a [MASK] c") == [1, vocab.mask, 2]
    assert sorted(vocab.symbols.values()) == list(range(3, len(vocab)))


def test_an_unknown_word_is_unk_and_stays_visible():
    vocab = word_vocab("a b")
    assert vocab.encode("a z") == [0, vocab.unk]
    assert vocab.decode([0, vocab.unk, vocab.sep]) == "a [UNK]"


def test_it_is_saved_loaded_and_opened(tmp_path):
    vocab = word_vocab("a b c")
    vocab.save(tmp_path / "vocab")
    assert Vocab.load(tmp_path / "vocab").hash == vocab.hash
    (tmp_path / "toy.words").write_text("a\nb\nc\n")
    assert open_vocab(tmp_path / "toy.words").encode("c a") == [2, 0]


def test_symbols_in_a_file_of_words_have_the_ids_of_their_lines(tmp_path):
    (tmp_path / "own.words").write_text("[UNK]\n[CLS]\na\nb\n")
    vocab = open_vocab(tmp_path / "own.words")
    assert (vocab.unk, vocab.cls) == (0, 1)
    assert vocab.encode("b zebra [CLS] a") == [3, 0, 0, 2]
