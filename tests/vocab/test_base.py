"""Symbols have ids that no text produces, and vocabularies come back whole."""

import json
import random

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from unitk.errors import DataError, UsageError
from unitk.vocab.base import SYMBOLS, Vocab, adopt
from unitk.vocab.open import open_vocab
from unitk.vocab.subwords import SentencePiece
from unitk.vocab.tokenizer_json import Tokenizers
from unitk.vocab.train import sample_lines, train_vocab
from unitk.vocab.words import word_vocab

rng = random.Random(0)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["".join(rng.choices(LETTERS, k=rng.randrange(2, 9))) for _ in range(300)]
LINES = [" ".join(rng.choices(WORDS, k=9)).capitalize() + rng.choice(".?!") for _ in range(400)]
LINES += ["Über 30 % sind naïve, says Zoë.", "It's 3:15; isn't it?", "中文句子。 真的吗？"]

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", ".", "[", "]"]
BERT += ["mask", "un", "##able"]
GPT2 = ["Ġ", "t", "h", "e", "c", "a", "s", ".", "u", "n", "b", "l", "th", "the", "Ġthe", "at"]
MERGES = ["t h", "th e", "Ġ the", "a t"]


@pytest.fixture(scope="module")
def vocabs(tmp_path_factory):
    """One vocabulary of each kind, with every symbol."""
    folder = tmp_path_factory.mktemp("vocabs")
    (folder / "vocab.txt").write_text("\n".join(BERT) + "\n")
    (folder / "gpt2").mkdir()
    alphabet = [*GPT2, *(letter for letter in LETTERS if letter not in GPT2)]
    pieces = {piece: i for i, piece in enumerate([*alphabet, "<|endoftext|>"])}
    (folder / "gpt2" / "vocab.json").write_text(json.dumps(pieces))
    (folder / "gpt2" / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
    wordpiece = open_vocab(folder / "vocab.txt")
    (folder / "some.json").write_bytes(wordpiece.model.data)
    return {
        "unigram": train_vocab(LINES, 400),
        "bpe": train_vocab(LINES, 400, "bpe"),
        "bytes": train_vocab(LINES, 600, byte_fallback=True, normalization="identity"),
        "wordpiece": wordpiece,
        "gpt2": open_vocab(folder / "gpt2"),
        "tokenizers": open_vocab(folder / "some.json"),
    }


KINDS = ["unigram", "bpe", "bytes", "wordpiece", "gpt2", "tokenizers"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_symbol_has_an_id_that_no_text_produces(vocabs, kind):
    vocab = vocabs[kind]
    assert vocab.symbols.keys() == SYMBOLS.keys()
    assert len(set(vocab.symbols.values())) == len(SYMBOLS)
    assert all(0 <= index < len(vocab) for index in vocab.symbols.values())
    assert vocab.mask == vocab.symbols["mask"]
    spelt = "the cat " + " ".join(SYMBOLS.values()) + " sat <mask> </s> <|endoftext|>"
    assert not set(vocab.encode(spelt)) & (set(vocab.symbols.values()) - {vocab.unk})


def test_trained_symbols_come_first(vocabs):
    assert list(vocabs["unigram"].symbols.values()) == list(range(len(SYMBOLS)))
    assert vocabs["unigram"].pieces(range(9)) == list(SYMBOLS.values())
    assert vocabs["unigram"].added == ()


def test_known_symbols_of_others_are_found_and_the_rest_appended(vocabs, tmp_path):
    bert, gpt2 = vocabs["wordpiece"], vocabs["gpt2"]
    assert (bert.pad, bert.unk, bert.cls, bert.sep, bert.mask) == (0, 1, 2, 3, 4)
    assert bert.added == tuple(list(SYMBOLS.values())[5:])
    assert bert.symbols["gmask"] == len(BERT) and bert.eop == len(bert) - 1
    assert gpt2.pieces([gpt2.sep]) == ["<|endoftext|>"] and "[SEP]" not in gpt2.added
    roberta = ["<s>", "<pad>", "</s>", "<unk>", *GPT2, "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(roberta)}))
    (tmp_path / "merges.txt").write_text("\n".join(MERGES))
    vocab = open_vocab(tmp_path / "merges.txt")
    assert [vocab.cls, vocab.pad, vocab.sep, vocab.unk, vocab.mask] == [
        0,
        1,
        2,
        3,
        len(roberta) - 1,
    ]


def test_a_piece_that_text_can_produce_is_no_symbol(tmp_path):
    model = tmp_path / "m"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_prefix=str(model),
        vocab_size=300,
        user_defined_symbols=["[MASK]"],
        minloglevel=2,
    )
    vocab = open_vocab(model.with_suffix(".model"))
    assert vocab.pieces([3]) == ["[MASK]"] and 3 in vocab.encode("a [MASK]")
    assert vocab.mask >= 300 and "[MASK]" in vocab.added
    assert (vocab.unk, vocab.cls, vocab.sep) == (0, 1, 2)


def test_symbols_must_be_distinct_and_complete(vocabs):
    good = vocabs["unigram"]
    with pytest.raises(DataError, match="mask .*gmask.*id 5"):
        Vocab(good.model, {**good.symbols, "mask": 5})
    with pytest.raises(DataError, match="lacks: eop"):
        Vocab(good.model, {name: i for name, i in good.symbols.items() if name != "eop"})
    with pytest.raises(DataError, match="pmlm needs.*pseudo"):
        good.require(["mask", "pseudo"], "pmlm")
    with pytest.raises(DataError, match="symbol eop.*id 400"):
        Vocab(good.model, {**good.symbols, "eop": 400})


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@given(text=st.text(alphabet=LETTERS + " .?!ZÜ中。☃ﬁ\t", max_size=40))
@settings(max_examples=60)
def test_decode_gives_the_normalised_text(vocabs, kind, text):
    vocab = vocabs[kind]
    if vocab.unk not in (ids := vocab.encode(text)):
        normal = vocab.model._processor.normalize(text).replace("▁", " ").strip()
        assert vocab.decode(ids) == normal


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁\0")))
@settings(max_examples=60)
def test_bytes_lose_nothing_but_repeated_blanks(vocabs, text):
    vocab = vocabs["bytes"]
    assert vocab.unk not in vocab.encode(text)
    assert vocab.decode(vocab.encode(text)) == " ".join(part for part in text.split(" ") if part)


@given(text=st.text(alphabet="thecasunbl .", max_size=30))
@settings(max_examples=60)
def test_byte_level_bpe_loses_nothing(vocabs, text):
    vocab = vocabs["gpt2"]
    assert vocab.decode(vocab.encode(text)) == text


def test_wordpieces_are_joined(vocabs):
    vocab = vocabs["wordpiece"]
    assert vocab.pieces(vocab.encode("The cats sat.")) == ["the", "cat", "##s", "sat", "."]
    assert vocab.decode(vocab.encode("The cats sat.")) == "the cats sat."
    assert vocab.decode([vocab.cls, *vocab.encode("the zebra"), vocab.sep, vocab.eop]) == (
        "the [UNK]"
    )


def test_capitals_stay_where_a_wordpiece_has_one(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT, "The"]))
    vocab = open_vocab(tmp_path / "vocab.txt")
    assert vocab.pieces(vocab.encode("The the")) == ["The", "the"]


@pytest.mark.parametrize("kind", KINDS)
def test_decode_drops_symbols_only(vocabs, kind):
    vocab = vocabs[kind]
    ids = vocab.encode("the cat sat")
    marks = [i for name, i in vocab.symbols.items() if name != "unk"]
    assert vocab.decode(np.array([*marks, *ids, *marks])) == vocab.decode(ids)
    assert vocab.decode(iter(ids)) == vocab.decode(ids)
    assert vocab.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_only_our_spellings_are_symbols_in_a_marked_text(vocabs, kind):
    vocab = vocabs[kind]
    assert vocab.encode_marked(" the cat ") == vocab.encode(" the cat ")
    assert vocab.encode_marked("<mask> </s>") == vocab.encode("<mask> </s>")
    symbols = {index: name for name, index in vocab.symbols.items() if name != "unk"}
    marked = vocab.encode_marked("the [MASK] cat [sMASK][gMASK]")
    names = [symbols.get(index, "") for index in marked]
    assert [name for name in names if name] == ["mask", "smask", "gmask"]
    at = names.index("mask")
    assert marked[:at] == vocab.encode("the")
    assert marked[at + 1 : -2] == vocab.encode(" cat") and names[-2:] == ["smask", "gmask"]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "bytes", "gpt2", "wordpiece"])
def test_a_mark_inside_a_word_begins_no_word(vocabs, kind):
    vocab = vocabs[kind]
    inside = vocab.encode_marked("un[MASK]able.")
    ids = inside[inside.index(vocab.mask) + 1 :]
    assert kind == "wordpiece" or not vocab.starts[ids[0]]
    assert vocab.decode(ids).replace(" ", "") in ("able.", "[UNK].")
    spaced = vocab.encode_marked("un [MASK] the")
    assert spaced[spaced.index(vocab.mask) + 1 :] == vocab.encode(" the")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unknown_after_a_mark_is_not_lost(vocabs, kind):
    """A model may join unknown characters, also that which stands for the mark."""
    vocab = vocabs[kind]
    alone = [index for index in vocab.encode("\u4e26") if vocab.pieces([index]) != ["▁"]]
    assert vocab.encode_marked("[MASK]\u4e26 the") == [vocab.mask, *alone, *vocab.encode(" the")]


def test_a_word_after_a_mark_is_whole_where_pieces_are_words():
    spec = Tokenizer(models.WordLevel({"[UNK]": 0, "able": 1}, unk_token="[UNK]"))
    spec.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    vocab = adopt(Tokenizers(spec.to_str().encode()))
    assert vocab.encode_marked("[MASK]able able") == [vocab.mask, 1, 1]


def test_word_starts_and_sentence_ends(vocabs):
    for kind, text in (
        ("unigram", "Über naïve cats."),
        ("wordpiece", "the cats ."),
        ("gpt2", " the cat"),
    ):
        vocab = vocabs[kind]
        ids = vocab.encode(text)
        assert vocab.starts[ids].sum() == len(text.split()), kind
        assert len(vocab.starts) == len(vocab.sentence_end) == len(vocab)
        assert not vocab.starts[[i for n, i in vocab.symbols.items() if n != "unk"]].any()
    lines = ["北京大学在北京。", "カメラを見る", "the cat"] * 20
    vocab = train_vocab(lines, 29)
    for text in lines[:2]:  # written without blanks: each piece is a word, but not the full stop
        ids = vocab.encode(text)
        pieces = [piece.strip("▁") for piece in vocab.pieces(ids)]
        assert vocab.starts[ids][1:].tolist() == [piece not in "。" for piece in pieces[1:]]
    vocab = vocabs["unigram"]
    ends = {
        piece for i, piece in enumerate(vocab.pieces(range(len(vocab)))) if vocab.sentence_end[i]
    }
    assert {".", "?", "!"} <= ends and "▁" not in ends
    assert all(set(piece) & set(".?!;:。？！；…\n") for piece in ends)
    assert vocabs["bytes"].sentence_end[vocabs["bytes"].model.find("<0x0A>")]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_is_loaded(vocabs, kind, tmp_path):
    vocab = vocabs[kind]
    vocab.save(tmp_path / "vocab")
    vocab.save(tmp_path / "run" / "best" / "vocab")
    for folder in (tmp_path, tmp_path / "vocab", tmp_path / "run"):
        again = open_vocab(folder)
        assert (again.hash, again.symbols, again.added) == (vocab.hash, vocab.symbols, vocab.added)
        assert again.encode(LINES[0]) == vocab.encode(LINES[0])
    assert len({one.hash for one in vocabs.values()}) == len(KINDS) - 1  # two are the same file


def test_an_altered_vocabulary_is_named(vocabs, tmp_path):
    vocabs["unigram"].save(tmp_path)
    about = json.loads((tmp_path / "vocab.json").read_text())
    about["symbols"]["mask"], about["symbols"]["sep"] = 3, 4
    (tmp_path / "vocab.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match="was altered.*written"):
        Vocab.load(tmp_path)
    (tmp_path / "sentencepiece.model").write_bytes(b"x")
    with pytest.raises(DataError, match="sentencepiece.model .*sentencepiece model"):
        Vocab.load(tmp_path)
    (tmp_path / "sentencepiece.model").unlink()
    with pytest.raises(DataError, match="sentencepiece.model: No such"):
        Vocab.load(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(DataError, match="vocab.json .*wrote"):
        Vocab.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.model", None, "none.model: no such file or folder"),
        ("x.model", b"abc", "x.model is not a sentencepiece model"),
        ("x.json", b"{}", "x.json is not a tokenizer of the tokenizers library"),
        ("vocab.txt", b"a\nb\n", r"vocab.txt has no line \[UNK\]"),
        ("vocab.txt", b"\xff\n", "vocab.txt is not UTF-8"),
        ("x.bin", b"abc", "x.bin is not a vocabulary: possible are"),
    ],
)
def test_what_is_no_vocabulary(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_vocab(tmp_path / name)


def test_a_folder_of_a_tokenizer_is_its_file(tmp_path):
    """tokenizer.json is preferred, as it says more than vocab.txt."""
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT, "more"]) + "\n")
    more = open_vocab(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n")
    assert open_vocab(tmp_path).model.size == len(BERT)
    (tmp_path / "tokenizer.json").write_bytes(more.model.data)
    assert open_vocab(tmp_path).model.size == len(BERT) + 1


@given(texts=st.lists(st.text(alphabet="abcxyz ▁.☃ﬁ\t\u00a8\u3000", max_size=30), max_size=6))
@example(texts=["", "▁", " ", "a ▁▁ b", "☃ ☃", "¨ ¨a"])
@settings(max_examples=60)
@pytest.mark.parametrize("kind", ["unigram", "bpe", "bytes"])
def test_a_batch_equals_its_texts_one_by_one(vocabs, kind, texts):
    """For BPE this is the cache of words against the library itself."""
    vocab = vocabs[kind]
    expected = [vocab.model._processor.encode(text) for text in texts]
    assert [ids.tolist() for ids in vocab.encode_batch(texts)] == expected
    assert [vocab.encode(text) for text in texts] == expected


def test_the_cache_of_words_is_used_for_bpe_and_bounded(vocabs, monkeypatch):
    assert vocabs["unigram"].model._words is None
    words = vocabs["bpe"].model._words
    assert words is not None
    monkeypatch.setattr("unitk.vocab.subwords.CACHED_WORDS", 100)
    for start in range(0, 400, 20):
        lines = LINES[start : start + 20]
        expected = [vocabs["bpe"].model._processor.encode(line) for line in lines]
        assert [ids.tolist() for ids in vocabs["bpe"].encode_batch(lines)] == expected
        assert len(words._index) == len(words._size) < 100 + 20 * 9 + 20


def test_pieces_over_blanks_switch_the_cache_off(tmp_path):
    model = tmp_path / "m"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b a b c"] * 20),
        model_prefix=str(model),
        model_type="bpe",
        vocab_size=12,
        split_by_whitespace=False,
        minloglevel=2,
    )
    vocab = open_vocab(model.with_suffix(".model"))
    assert any("▁" in piece[1:] for piece in vocab.pieces(range(vocab.model.size)))
    assert vocab.model._words is None


def test_training_is_the_same_every_time_and_follows_the_seed():
    one, same = (train_vocab(iter(LINES), 100, "bpe", sample=50, seed=3) for _ in range(2))
    assert one.hash == same.hash
    assert train_vocab(LINES, 100, "bpe", sample=50, seed=4).hash != one.hash
    assert len(one) == 100


def test_lower_casing_is_a_normalization():
    vocab = train_vocab(LINES, 300, normalization="nmt_nfkc_cf")
    assert vocab.encode("THE CAT") == vocab.encode("the cat")


@pytest.mark.slow
def test_very_long_lines_are_trained_on():
    assert train_vocab([" ".join(LINES) * 3], 200).encode("Zoë") != []


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_size_that_cannot_be_names_the_option_and_the_limit(kind):
    few = ["the cat sat on the mat ."] * 9
    with pytest.raises(UsageError, match="--vocab-size 500 .*large.* possible is") as raised:
        train_vocab(few, 500, kind)
    most = int(str(raised.value).split()[-1])
    assert len(train_vocab(few, most, kind)) == most
    with pytest.raises(UsageError, match="--vocab-size 12 .*small.* take (19|20) ids"):
        train_vocab(few, 12, kind)
    for nothing in ([], [" "], ["\u200b"]):
        with pytest.raises(DataError, match="no text.*vocabulary"):
            train_vocab(nothing, 100, kind)


def test_every_piece_begins_a_word_where_none_shows_it(tmp_path):
    vocab = {"[UNK]": 0, "the": 1, "cat": 2, "猫": 3}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    tree = {"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    (tmp_path / "x.json").write_text(json.dumps(tree))
    found = open_vocab(tmp_path / "x.json")
    assert found.starts[found.encode("the cat 猫 dog")].tolist() == [True] * 4
    assert not found.starts[[found.mask, found.sep]].any()


def test_a_span_covers_its_place_where_the_text_before_it_is_divided_otherwise(tmp_path):
    """Here abc is a bc, but ab alone is one token; ö is two, of which abö has the first."""
    pieces, merges = ["a", "b", "c", "Ã", "¶", "bc", "ab", "abÃ"], ["b c", "a b", "ab Ã"]
    spec = {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": merges}
    outside = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tree = {"model": spec, "decoder": outside, "pre_tokenizer": outside | {"use_regex": False}}
    (tmp_path / "x.json").write_text(json.dumps(tree))
    vocab = open_vocab(tmp_path / "x.json")
    text = "abcabcabö"
    ids = vocab.encode(text)
    assert vocab.pieces(ids) == ["a", "bc", "a", "bc", "abÃ", "¶"]
    # the characters of each token
    places = [(0, 1), (1, 3), (3, 4), (4, 6), (6, 9), (8, 9)]
    for start in range(len(text)):
        for stop in range(start + 1, len(text) + 1):
            own = [i for i, (a, b) in enumerate(places) if a < stop and b > start]
            found = vocab.token_spans(text, [(start, stop)])
            assert found == [(own[0], own[-1] + 1)], (start, stop)


def test_half_a_character_is_refused(toy_vocab, tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n")
    for vocab in (toy_vocab, open_vocab(tmp_path / "vocab.txt")):
        for encode in (vocab.encode, vocab.encode_marked):
            with pytest.raises(DataError, match="'the .ud800' ends.*pair"):
                encode("the \ud800 cat")
        with pytest.raises(DataError, match="'.ud800' ends.*pair"):
            vocab.encode_batch(["a", "\ud800"] * 9)
        with pytest.raises(TypeError):
            vocab.encode_batch([3])
    with pytest.raises(DataError, match="'.udcff' ends.*pair"):
        word_vocab("a", "the \udcff cat")  # as Python reads a byte that is not UTF-8


@given(count=st.integers(1, 40), total=st.integers(0, 60), seed=st.integers(0, 5))
def test_a_sample_holds_different_lines(count, total, seed):
    lines = [str(i) for i in range(total)]
    chosen = sample_lines(iter(lines), count, seed)
    assert len(chosen) == len(set(chosen)) == min(count, total) and set(chosen) <= set(lines)


def test_every_line_is_sampled_equally_often():
    counts = np.zeros(20)
    for seed in range(3000):
        counts[[int(line) for line in sample_lines(map(str, range(20)), 5, seed)]] += 1
    assert abs(counts / 3000 - 0.25).max() < 0.035  # 4.4 standard deviations


def test_an_adopted_model_may_have_its_unknown_anywhere(vocabs):
    assert adopt(SentencePiece(vocabs["bpe"].model.data)).symbols == vocabs["bpe"].symbols
