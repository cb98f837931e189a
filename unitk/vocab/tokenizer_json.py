"""Vocabularies of the tokenizers library: tokenizer.json, and what becomes one."""

from __future__ import annotations

import copy
import functools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from unitk.errors import DataError
from unitk.foreign import parse_json, require_file
from unitk.registry import register
from unitk.vocab import untrusted
from unitk.vocab.subwords import Offsets, Packed, VocabModel, pack_ids
from unitk.vocab.untrusted import failures

END_OF_WORD = "</w>"  # of GPT's pieces
SPLITS = "split_special_tokens"
"""Key of transformers, which unitk writes into a file: a text only spells special tokens."""
UNTYPED = "\U0010ffff\U0010fffe\U0010ffff"
"""What no text has: code points that are no characters. It begins the stand-ins of symbols."""


@register("vocab", "tokenizers")
class Tokenizers(VocabModel):
    """A tokenizer of the `tokenizers` library (tokenizer.json): byte-level BPE and others.

    Added tokens are found in a text as the library finds them, except for those that are `plain`:
    unitk's own symbols, which a text only spells. By default, all special ones are plain, and
    always if the file has `SPLITS`.
    """

    kind = "tokenizers"
    file = "tokenizer.json"

    def __init__(self, data: bytes, plain: Collection[int] | None = None) -> None:
        super().__init__(data)
        spec = parse_json(data, "is not a tokenizer of the tokenizers library")
        untrusted.check(spec)
        self._spec: dict[str, Any] | None = spec  # until the library has it
        model = spec["model"]
        added = spec.get("added_tokens") or []
        pieces = model["vocab"]
        self.size = 0
        if isinstance(pieces, list):
            self.size = len(pieces)
            pieces = {piece: index for index, (piece, _) in enumerate(pieces)}
        self._ids: dict[str, int] = pieces | {token["content"]: token["id"] for token in added}
        self._pieces = {index: piece for piece, index in self._ids.items()}
        self.size = max(self.size, max(self._pieces, default=-1) + 1)
        unknown = model.get("unk_token")
        self.unk = self._ids.get(unknown) if isinstance(unknown, str) else model.get("unk_id")
        self.special = {token["id"] for token in added if token.get("special")}
        self._plain = frozenset(self.special if plain is None else plain)
        self._always = frozenset(self.special if spec.pop(SPLITS, False) else ())
        outside = json.dumps([spec.get("pre_tokenizer"), spec.get("decoder")])
        self._bytes = _byte_of_letter() if '"ByteLevel"' in outside else None
        self._begins = '"add_prefix_space": true' in outside
        self._prefix: str | None = None
        if untrusted.kind_of(model) == "WordPiece":
            self._prefix = model.get("continuing_subword_prefix", "##")

    @functools.cached_property
    def _tokenizer(self) -> Any:
        """The library's tokenizer, tried on what files of unknown origin may do."""
        spec = self._spec
        self._spec = None
        assert spec is not None
        tokenizer = _build(spec, self._plain, self._pieces)
        added = spec.get("added_tokens") or []
        for number, token in enumerate(added):
            index = tokenizer.token_to_id(self._stand_in(token["id"]))
            if index is not None and index != token["id"]:
                raise DataError(
                    f"has added_tokens[{number}].id {token['id']:,} for {token['content']!r}, but "
                    f"the library gives it the id {index:,}"
                )
        self._check_twins(tokenizer.normalizer, added)
        untrusted.try_patterns(spec, tokenizer.encode)
        return tokenizer

    def _check_twins(self, normalizer: Any, added: Sequence[Mapping[str, Any]]) -> None:
        """Refuse added tokens that a normalized text cannot tell apart: the library takes any."""
        if normalizer is None:
            return
        ids: dict[str, int] = {}
        for token in added:
            if token.get("normalized") and token["id"] not in self._plain:
                text = normalizer.normalize_str(token["content"])
                if (twin := ids.setdefault(text, token["id"])) != token["id"]:
                    raise DataError(
                        f"has {self.piece(twin)!r} and {token['content']!r} in added_tokens, which "
                        "are one to its normalizer"
                    )

    @classmethod
    def opens(cls, path: Path) -> bool:
        return path.suffix == ".json" and not GPT2.opens(path)

    def declares(self, index: int) -> bool:
        return index in self.special

    def without(self, symbols: Collection[int]) -> VocabModel:
        plain = self._always | {index for index in symbols if index < self.size}
        tokenizer = self
        if plain != self._plain:
            tokenizer = type(self)(self.data, plain) if self._spec is None else copy.copy(self)
            tokenizer._plain = plain
        assert tokenizer._tokenizer is not None  # what the library refuses is refused here
        return tokenizer

    def encode_packed(self, texts: list[str]) -> Packed:
        # one thread, as `unitk preprocess` has a process for each core
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        with failures("the tokenizer cannot read a text"):
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return pack_ids([encoding.ids for encoding in encodings])

    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        with failures("the tokenizer cannot read a text"):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_inside(self, text: str) -> list[int]:
        if self._begins or (self._bytes is None and self._prefix is None):
            return super().encode_inside(text)
        return self.encode(text)  # no blank is put in front

    def decode(self, ids: list[int]) -> str:
        text = str(self._tokenizer.decode(ids, skip_special_tokens=False))
        if UNTYPED in text:
            for index in self._plain.intersection(ids):
                text = text.replace(self._stand_in(index), self.piece(index))
        return text

    def piece(self, index: int) -> str:
        return self._pieces.get(index, "")

    def find(self, piece: str) -> int | None:
        return self._ids.get(piece)

    def text(self, index: int) -> str:
        piece = self.piece(index)
        if self._prefix is not None:
            inside = piece.startswith(self._prefix)
            return piece.removeprefix(self._prefix) if inside else " " + piece
        if self._bytes is not None and self._bytes.keys() >= set(piece):
            return bytes(self._bytes[letter] for letter in piece).decode("utf-8", "ignore")
        return piece.replace("▁", " ")

    def is_control(self, index: int) -> bool:
        return index in self.special and index != self.unk

    def _stand_in(self, index: int) -> str:
        return _stand_in(index) if index in self._plain else self.piece(index)


def _stand_in(index: int) -> str:
    return f"{UNTYPED}{index}{UNTYPED}"


def _build(spec: Mapping[str, Any], plain: Collection[int], pieces: Mapping[int, str]) -> Any:
    """The library's tokenizer in which no text becomes one of the `plain` ids.

    The library finds a piece wherever a text has it. Therefore these have another spelling in it.
    """
    hidden = {pieces[index]: _stand_in(index) for index in plain if index in pieces}
    model = dict(spec["model"])
    vocab = spec["model"]["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = vocab = {**vocab}
        for piece in hidden.keys() & vocab:
            vocab[hidden[piece]] = vocab.pop(piece)
    else:
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocab]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if hidden and model.get("merges"):
        cut = len(model.get("continuing_subword_prefix") or "")
        model["merges"] = [pair for pair in model["merges"] if not _merge_is_cut(pair, cut, hidden)]
    if "dropout" in model:
        model["dropout"] = None  # a text always has the same ids
    added = [
        token | {"content": hidden.get(token["content"], token["content"])}
        for token in spec.get("added_tokens") or []
    ]
    unused = dict.fromkeys(("truncation", "padding", "post_processor"))
    return untrusted.load_tokenizer(
        json.dumps({**spec, "model": model, "added_tokens": added, **unused})
    )


def _merge_is_cut(pair: str | Sequence[str], cut: int, hidden: Collection[str]) -> bool:
    """Whether a merge makes one of the pieces, or joins one."""
    first, second = pair.split(" ", 1) if isinstance(pair, str) else pair
    return not {first, second, first + second[cut:]}.isdisjoint(hidden)


@register("vocab", "wordpiece")
class WordPiece(Tokenizers):
    """BERT's vocab.txt; texts are lower-cased unless a piece has a capital letter."""

    @classmethod
    def opens(cls, path: Path) -> bool:
        return path.suffix == ".txt"

    @classmethod
    def read(cls, path: Path) -> bytes:
        require_file(path)
        pieces = path.read_text(encoding="utf-8").split("\n")
        pieces = pieces[:-1] if pieces[-1] == "" else pieces
        return cls.to_json([piece.rstrip("\r") for piece in pieces])

    @staticmethod
    def to_json(pieces: Sequence[str]) -> bytes:
        """The tokenizer.json of these pieces, whose ids are their places."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        vocab = {piece: index for index, piece in enumerate(pieces)}
        if "[UNK]" not in vocab:
            raise DataError("has no line [UNK], so it is no WordPiece (fairseq: dict.LANG.txt)")
        plain = [piece for piece in vocab if not (piece[:1] in "[<" and piece[-1:] in "]>")]
        lowercase = all(piece == piece.lower() for piece in plain)
        tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        return tokenizer.to_str().encode()


@register("vocab", "gpt2")
class GPT2(Tokenizers):
    """BPE in a folder with vocab.json and merges.txt: byte-level (GPT-2, RoBERTa), or GPT's.

    GPT's pieces are of characters, and `</w>` ends a word. Its texts lose case and accents.
    """

    @classmethod
    def opens(cls, path: Path) -> bool:
        folder = path.parent if path.name in ("vocab.json", "merges.txt") else path
        return (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()

    @classmethod
    def read(cls, path: Path) -> bytes:
        folder = path.parent if path.is_file() else path
        for name in ("vocab.json", "merges.txt"):
            require_file(folder / name)
        return cls.to_json(folder / "vocab.json", folder / "merges.txt")

    @staticmethod
    def to_json(vocab: Path, merges: Path) -> bytes:
        """The tokenizer.json of these two files."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        try:
            pieces, pairs = models.BPE.read_file(str(vocab), str(merges))
            tokenizer = Tokenizer(models.BPE(pieces, pairs))
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"holds no byte-level BPE ({error})") from error
        if any(piece.endswith(END_OF_WORD) for piece in pieces):
            about = {"unk_token": "<unk>"} if "<unk>" in pieces else {}
            tokenizer = Tokenizer(
                models.BPE(pieces, pairs, end_of_word_suffix=END_OF_WORD, **about)
            )
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
        return tokenizer.to_str().encode()


def _byte_of_letter() -> dict[str, int]:
    """GPT-2's letters by byte: printable bytes are themselves, others are letters from U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(256 + i): byte for i, byte in enumerate(others)}
    return letters | {chr(byte): byte for byte in printable}
