"""The characters of tokens, for every kind of vocabulary and any text."""

import random
from itertools import pairwise

import pytest

from tests.formats.test_hf_tokenizer import LINES, VOCABS, odd_texts
from unitk.vocab.open import open_vocab

BOTH = {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"}


@pytest.fixture(scope="module", params=VOCABS)
def vocab(request, tmp_path_factory):
    return VOCABS[request.param](tmp_path_factory.mktemp("vocab"))


def test_tokens_have_their_characters_in_order_and_no_blanks_around_them(vocab):
    for text in odd_texts():
        ids, found = vocab.encode(text), vocab.offsets(text)
        assert len(found) == len(ids)
        assert all(a <= c and b <= d for (a, b), (c, d) in pairwise(found)), text
        for (start, stop), index in zip(found, ids, strict=True):
            part = text[start:stop]
            assert 0 <= start <= stop <= len(text) and part == part.strip()
            blank = any(letter.isspace() and letter != " " for letter in text)
            assert part or blank or vocab.model.text(index).isspace(), (text, index)


def test_what_changes_no_character_spells_the_characters(vocab):
    """Where a text is decoded as it is, so are the characters of its tokens."""
    count = 0
    for text in [*odd_texts(), *LINES]:
        ids, found = vocab.encode(text), vocab.offsets(text)
        # a sentencepiece model whose blanks end words has one after the last word, too
        exact = vocab.decode(ids) in (text, f"{text} ")
        if vocab.unk in ids or not exact or "@@" in text:
            continue
        for (start, stop), index in zip(found, ids, strict=True):
            spelt = vocab.model.text(index).strip()
            if spelt and "\ufffd" not in vocab.decode([index]):
                assert text[start:stop] == spelt, (text, index)
                count += 1
    assert count > 100 or vocab.model.kind == "fairseq"  # whose @@ join words


def test_spans_of_tokens_and_of_characters_are_inverse(vocab):
    rng = random.Random(0)
    for text in odd_texts(200):
        found = vocab.offsets(text)
        full = [i for i, (start, stop) in enumerate(found) if start < stop]
        for _ in range(5 if full else 0):
            first, last = sorted(rng.choices(full, k=2))
            start, stop = found[first][0], found[last][1]
            [(a, b)] = vocab.token_spans(text, [(start, stop)])
            assert a <= first and last < b
            # more tokens only where they share a character
            assert all(found[i][1] > start and found[i][0] < stop for i in range(a, b) if i in full)


def test_a_word_that_loses_its_accents_keeps_its_characters(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\nbe\n##yon\n##ce\nsang\nin\n")
    vocab = open_vocab(tmp_path / "vocab.txt")
    text = "  Beyoncé\u00a0sang in Zürich"
    assert vocab.pieces(vocab.encode(text)) == ["be", "##yon", "##ce", "sang", "in", "[UNK]"]
    words = [text[a:b] for a, b in vocab.offsets(text)]
    assert words == ["Be", "yon", "cé", "sang", "in", "Zürich"]


@pytest.mark.parametrize("affixes", [{"end_of_word_suffix": "</w>"}, {}, BOTH])
def test_bytes_of_affixes_are_beyond_no_text(tmp_path, affixes):
    """tokenizers spells the affixes of an unknown character in bytes, as if they were its text."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = {letter + end for letter in ("a", "##a") for end in ("", "</w>")}
    names = ["[UNK]", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(letters)]
    model = tokenizers.models.BPE(
        vocab={name: i for i, name in enumerate(names)},
        merges=[],
        unk_token="[UNK]",
        byte_fallback=True,
        **affixes,
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocab = open_vocab(tmp_path / "tokenizer.json")
    for text in ("a", "\u65e5\u672c a", "z\xe9", "a\xe9 a", "\xe9"):
        found = vocab.offsets(text)
        assert len(found) == len(vocab.encode(text))
        assert all(0 <= start <= stop <= len(text) for start, stop in found)
        assert "a" not in text or text.index("a") in [start for start, _ in found]
