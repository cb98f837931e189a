"""Dictionaries of fairseq (dict.txt) and XLM (vocab.en-fr): a symbol and its count a line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from unitk.errors import DataError
from unitk.registry import register
from unitk.vocab.base import FILE, Vocab
from unitk.vocab.open import open_vocab
from unitk.vocab.subwords import VocabModel
from unitk.vocab.tokenizer_json import GPT2, Tokenizers
from unitk.vocab.words import WordList

FIRST = ("<s>", "<pad>", "</s>", "<unk>")
XLM_FIRST = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10)))
"""Symbols that every dictionary begins with and that its file leaves out."""
OVERWRITE = " #fairseq:overwrite"
END: int = FIRST.index("</s>")  # fairseq writes it after every line of text
GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
GLUE = 0.01
"""Share of symbols with sentencepiece's mark (\u2581 before a word) or subword-nmt's (@@ in one).
Above it they are marks; below it they are words that look like marks."""


class Dictionary(WordList):
    """A word list from a file of symbols and counts, which leaves out the symbols in `first`."""

    first: tuple[str, ...]

    def __init__(self, data: bytes) -> None:
        super().__init__(data, [*self.first, *symbols_of(data)], self.first.index("<unk>"))

    def is_control(self, index: int) -> bool:
        return index < len(self.first) and index != self.unk


@register("vocab", "xlm")
class XLMDictionary(Dictionary):
    """XLM's vocab.en-fr; texts are split at blanks, after fastBPE, whose @@ decoding removes."""

    kind = "xlm"
    file = "vocab.xlm"
    first = special = XLM_FIRST

    @classmethod
    def opens(cls, path: Path) -> bool:
        return re.fullmatch(r"vocab\.([a-z]{2}(-[a-z]{2})*|xlm)", path.name) is not None

    def decode(self, ids: list[int]) -> str:
        return "".join(f"{self.piece(index)} " for index in ids).replace("@@ ", "").rstrip()


@register("vocab", "fairseq")
class FairseqDictionary(Dictionary):
    """fairseq's dict.txt; texts are split at blanks, after any tokenizer."""

    kind = "fairseq"
    file = "dict.txt"
    first = FIRST
    special = {*FIRST, "<mask>"}

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        # a few such symbols may be words that look like it
        least = GLUE * self.size
        self._blanks = sum(symbol[0] == "\u2581" for symbol in self.symbols) > least
        self._joints = sum(symbol.endswith("@@") for symbol in self.symbols) > least

    @classmethod
    def opens(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(dictionaries(path)) and not (path / FILE).exists()
        return re.fullmatch(r"dict(\..+)?\.txt", path.name) is not None

    @classmethod
    def open(cls, path: Path) -> VocabModel:
        """Open dict.txt.

        The dictionary of RoBERTa and BART holds the numbers of GPT-2's pieces. If `encoder.json`
        and `vocab.bpe` are beside it, GPT-2's tokenizer with the dictionary's ids is opened.
        """
        words = cls(cls.read(path))
        if not words.numbers:
            return words
        folder = path if path.is_dir() else path.parent
        for names in GPT2_FILES:
            pieces, merges = (folder / name for name in names)
            if pieces.exists() and merges.exists():
                return Tokenizers(
                    renumber(GPT2.to_json(pieces, merges), words.symbols[len(FIRST) :])
                )
        return words

    @property
    def numbers(self) -> bool:
        """Whether most symbols are numbers of another tokenizer's pieces."""
        words = self.symbols[len(FIRST) :]
        return 2 * sum(symbol.isdigit() for symbol in words) > len(words)

    @classmethod
    def read(cls, path: Path) -> bytes:
        paths = dictionaries(path) if path.is_dir() else [path]
        if len({path.read_bytes() for path in paths}) > 1:
            names = " and ".join(path.name for path in paths)
            raise DataError(
                f"has {names}, which differ: unitk reads pairs of one vocabulary, as "
                "fairseq-preprocess --joined-dictionary makes them"
            )
        return paths[0].read_bytes()

    def line(self, text: str) -> list[int]:
        """The ids of a line as fairseq-preprocess writes it; `<s>` and the like are symbols."""
        get = self._index.get
        unk = self.unk
        return [*(get(word, unk) for word in text.split()), END]

    def decode(self, ids: list[int]) -> str:
        text = ("" if self._blanks else " ").join(self.piece(index) for index in ids)
        if self._blanks:
            return text.replace("\u2581", " ").strip()
        return (text + " ").replace("@@ ", "").strip() if self._joints else text

    def text(self, index: int) -> str:
        piece = self.piece(index)
        return piece.replace("\u2581", " ", 1) if self._blanks else " " + piece


def symbols_of(data: bytes) -> list[str]:
    """The symbols of dict.txt in its order.

    A symbol may be repeated only in a line marked `#fairseq:overwrite`; its last line counts.
    """
    symbols: list[str] = []
    seen = set(FIRST)
    lines = data.decode("utf-8").split("\n")
    for number, line in enumerate(lines[: -1 if lines[-1] == "" else None], start=1):
        overwrites = line.rstrip().endswith(OVERWRITE)
        symbol, blank, count = line.rstrip().removesuffix(OVERWRITE).rpartition(" ")
        if not blank or not symbol or not count.isdecimal():
            raise DataError(f"line {number} is not a symbol with its count: {line[:40]!r}")
        if symbol in seen and not overwrites:
            raise DataError(f"line {number} repeats the symbol {symbol!r}")
        symbols.append(symbol)
        seen.add(symbol)
    return symbols


def build_dictionary(counts: Counter[str], size: int | None = None, threshold: int = 0) -> bytes:
    """The dict.txt that fairseq-preprocess makes of word counts.

    Words are sorted by frequency, then by code point. At most `size` ids are kept, four of them for
    fairseq's symbols, and only words that occur `threshold` times. Fillers follow up to a multiple
    of 8 ids.
    """
    words = sorted(counts.keys() - set(FIRST), key=lambda word: (-counts[word], word))
    room = None if size is None else max(size - len(FIRST), 0)
    lines = {word: counts[word] for word in words[:room] if counts[word] >= threshold}
    # fairseq wants a multiple of 8 ids, for the speed of half precision
    filler = 0
    while (len(FIRST) + len(lines)) % 8:
        lines.setdefault(f"madeupword{filler:04d}", 0)
        filler += 1
    return "".join(f"{word} {count}\n" for word, count in lines.items()).encode()


def dictionaries(folder: Path) -> list[Path]:
    """The paths of dict.txt, or of the dictionaries of two languages, in a data-bin folder."""
    whole = folder / "dict.txt"
    return [whole] if whole.is_file() else sorted(folder.glob("dict.*.txt"))


def open_dictionary(path: Path) -> Vocab:
    """`open_vocab`, which refuses a dictionary of GPT-2's numbers without GPT-2's files."""
    vocab = open_vocab(path)
    if isinstance(vocab.model, FairseqDictionary) and vocab.model.numbers:
        raise DataError(
            f"{path} holds the numbers of GPT-2's pieces; put encoder.json and vocab.bpe beside it"
        )
    return vocab


def renumber(tokenizer: bytes, numbers: Sequence[str]) -> bytes:
    """GPT-2's tokenizer with the ids of a dictionary that holds its numbers."""
    spec = json.loads(tokenizer)
    piece_of = {str(number): piece for piece, number in spec["model"]["vocab"].items()}
    words = [*FIRST, *(piece_of.get(number, number) for number in numbers)]
    spec["model"]["vocab"] = {word: index for index, word in enumerate(words)}
    if lost := piece_of.keys() - set(numbers):
        raise DataError(f"dict.txt lacks {len(lost):,} numbers of GPT-2's pieces")
    return json.dumps(spec).encode()
