"""A tokenizer.json that would take memory, time or a crash is refused, and its field is named."""

import json

import pytest

from unitk.errors import DataError
from unitk.vocab.open import open_vocab
from unitk.vocab.untrusted import has_nested_repeats

WORDS = {"type": "WordLevel", "vocab": {"[UNK]": 0, "x": 1}, "unk_token": "[UNK]"}
GROWN = {"type": "Replace", "pattern": {"String": "x"}, "content": "x" * 30}
LONG = {"type": "Replace", "pattern": {"Regex": "x"}, "content": "x" * 1000}


def split(pattern):
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def refused(tmp_path, **fields):
    spec = {"version": "1.0", "added_tokens": [], "model": WORDS} | fields
    (tmp_path / "x.json").write_text(json.dumps(spec))
    with pytest.raises(DataError) as found:
        open_vocab(tmp_path / "x.json")
    assert "x.json" in str(found.value) and "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"pre_tokenizer": split("(x+x+)+y")}, "pre_tokenizer.pattern"),
        ({"pre_tokenizer": split("(?:a|a)*b")}, "pre_tokenizer.pattern"),
        ({"pre_tokenizer": split(r"x+x+x+x+x+x+z")}, "pre_tokenizer.pattern"),
        (
            {"normalizer": sequence("normalizers", {**GROWN, "pattern": {"Regex": "([ab]*)*c"}})},
            r"normalizer.normalizers[0].pattern",
        ),
        ({"normalizer": sequence("normalizers", *[GROWN] * 3)}, "normalizer.normalizers[1]"),
        ({"normalizer": LONG}, "normalizer"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 1000}}, "normalizer"),
        ({"decoder": LONG}, "decoder"),
        (
            {
                "pre_tokenizer": sequence(
                    "pretokenizers",
                    *[{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}] * 30,
                )
            },
            "pre_tokenizer.pretokenizers[8]",
        ),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}}, "charsmap"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "x.json"),
        ({"model": WORDS | {"unk_token": "?"}}, "model.unk_token '?'"),
        ({"model": WORDS | {"type": "WordPiece", "unk_token": "?"}}, "model.unk_token '?'"),
        (
            {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"}},
            "model.unk_token '?'",
        ),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}}, "model.unk_id"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}}, "model.unk_id"),
        ({"model": WORDS | {"vocab": {"[UNK]": 4294967294}}}, "4294967294 in model.vocab"),
        ({"model": WORDS | {"vocab": {"[UNK]": -1}}}, "-1 in model.vocab"),
        (
            {"added_tokens": [{"id": 4294967294, "content": "<a>", "special": True}]},
            "4294967294 in added_tokens[0].id",
        ),
        (
            {
                "model": WORDS
                | {
                    "type": "WordPiece",
                    "max_input_chars_per_word": 10**9,
                    "continuing_subword_prefix": "##",
                }
            },
            "model.max_input_chars_per_word",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, "x.json"),
        (
            {
                "model": {
                    "type": "BPE",
                    "vocab": {"a": 0, "b": 1, "ab": 2},
                    "merges": ["a b"],
                    "continuing_subword_prefix": "x",
                }
            },
            "model.merges[0]",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}, "model.merges[0]"),
        ({"model": WORDS | {"unk_token": ["[UNK]"]}}, "model.unk_token"),
        ({"normalizer": {"type": "Sequence", "normalizers": [3]}}, "normalizer.normalizers[0]"),
        ({"model": 3}, "model.vocab"),
        ({"model": WORDS | {"vocab": [3]}}, "model.vocab[0]"),
        ({"model": WORDS | {"vocab": {"[UNK]": "0"}}}, "'0' in model.vocab"),
        ({"added_tokens": 5}, "added_tokens"),
        ({"added_tokens": [5]}, "added_tokens[0]"),
        ({"added_tokens": [{"id": 1}]}, "added_tokens[0]"),
        ({"normalizer": 5}, "x.json"),
    ],
)
def test_a_crafted_file_is_refused(tmp_path, fields, named):
    assert named in refused(tmp_path, **fields)


@pytest.mark.parametrize(
    ("pattern", "is_nested"),
    [
        (r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", False),
        (r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}]+[\r\n]*|\s*[\r\n]+", False),
        (r" ?[^(\s|[.,!?…。，、।۔،])]+", False),
        (r"(\w+\s?)+$", True),
        (r"((a*)b)*", True),
        (r"(?:a{2,})+", True),
        (r"(?:\(a\)|[+*)])+", False),
        (r"(a{1,3})+", False),
    ],
)
def test_nested_repetitions_are_found(pattern, is_nested):
    assert has_nested_repeats(pattern) == is_nested


def test_a_text_always_has_the_same_ids(tmp_path):
    model = {
        "type": "BPE",
        "dropout": 0.9,
        "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": [["a", "b"]],
    }
    (tmp_path / "x.json").write_text(json.dumps({"version": "1.0", "model": model}))
    vocab = open_vocab(tmp_path / "x.json")
    assert {tuple(vocab.encode("abab")) for _ in range(50)} == {(2, 2)}
