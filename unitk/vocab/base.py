"""Vocabularies: text <-> ids, and the special symbols every objective draws from.

A vocabulary is trained (`unitk.vocab.train`) or taken from elsewhere (`unitk.vocab.open`);
`unitk.vocab.subwords` has the libraries behind it. Its ids are the model's own, followed by the
symbols that the model lacks.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unitk import registry
from unitk.errors import DataError
from unitk.files import create
from unitk.foreign import HALF, HALF_MESSAGE, read_bytes, read_json
from unitk.slots import Bools

if TYPE_CHECKING:
    from unitk.vocab.subwords import Packed, VocabModel

ALIASES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
    "gmask": ("[gMASK]",),
    "smask": ("[sMASK]",),
    "sop": ("<|startofpiece|>", "<sop>"),
    "eop": ("<|endofpiece|>", "<eop>"),
}
"""Spellings under which vocabularies from elsewhere have a symbol, the preferred one first."""
SYMBOLS = {name: spellings[0] for name, spellings in ALIASES.items()}
"""Name -> spelling. `sep` is also the end of a text; `sop` and `eop` open and close a blank."""
BLANKS = ("mask", "gmask", "smask")
"""Symbols that stand for a blank in a text."""
MARKS = re.compile("|".join(re.escape(SYMBOLS[name]) for name in BLANKS))
"""A blank as a text has it."""
TYPED = re.compile(r"_{2,}|\[[Mm]ask\]|<mask>|<MASK>")
"""What else is typed for a blank in a text whose blanks are to be filled."""
NO_BLANK = "--infill: there is no blank in {!r}; write one as ___, [MASK], [gMASK] or [sMASK]"
SENTENCE_END = frozenset(".?!;:。？！；…\n")
NORMALIZED = {"A": "a", "é": "e", "ﬁ": "fi"}
"""Texts that are others after a normalization: of case, of accents, of compatibility (NFKC)."""
FILE = "vocab.json"
MARKED = re.compile("|".join(re.escape(symbol) for symbol in SYMBOLS.values()))


class Vocab:
    """A model's pieces and the special symbols, each with an id of its own.

    `symbols` maps the names of `SYMBOLS` to ids; `vocab.mask` is `vocab.symbols["mask"]`. `added`
    are the spellings of the symbols beyond the model's last id; the last `further` of them are a
    task's own, and vocabularies that differ in these alone are the same.
    """

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    gmask: int
    smask: int
    sop: int
    eop: int

    def __init__(
        self,
        model: VocabModel,
        symbols: Mapping[str, int],
        added: Sequence[str] = (),
        further: int = 0,
    ) -> None:
        self.symbols = dict(symbols)
        self.added = tuple(added)
        self.further = further
        self.model = model.without(self.symbols.values())
        self.require(SYMBOLS, "unitk")
        for name, index in self.symbols.items():
            twins = [other for other, same in self.symbols.items() if same == index]
            if len(twins) > 1:
                raise DataError(f"symbols {' and '.join(twins)} have the same id {index}")
            if not 0 <= index < len(self):
                raise DataError(f"symbol {name} has id {index}, but there are {len(self)} ids")
            setattr(self, name, index)
        described = [model.kind, self.symbols, self.added[: len(self.added) - further]]
        head = json.dumps(described, sort_keys=True).encode()  # equal hash: equal ids of any text
        self.hash = hashlib.sha256(head + b"\0" + model.data).hexdigest()

    def __len__(self) -> int:
        return self.model.size + len(self.added)

    @functools.cached_property
    def sentinels(self) -> list[int]:
        """The ids of T5's sentinels <extra_id_0>, <extra_id_1>, ..., if the vocabulary has them."""
        added_ids = {name: self.model.size + number for number, name in enumerate(self.added)}
        sentinels: list[int] = []
        while True:
            name = f"<extra_id_{len(sentinels)}>"
            index = added_ids.get(name, self.model.find(name))
            if index is None:
                return sentinels
            sentinels.append(index)

    @property
    def about_normalization(self) -> str:
        """`; texts are normalized (A as a, ﬁ as fi)` after a description; "" if they are not."""
        alike = [
            f"{text} as {other}"
            for text, other in NORMALIZED.items()
            if (ids := self.encode(text)) == self.encode(other) and self.unk not in ids
        ]
        return f"; texts are normalized ({', '.join(alike)})" if alike else ""

    def with_sentinels(self, count: int) -> Vocab:
        """The vocabulary with this many sentinels after its ids, the last first, if it has none."""
        if self.sentinels:
            return self
        more = (f"<extra_id_{number}>" for number in reversed(range(count)))
        return Vocab(self.model, self.symbols, (*self.added, *more), count)

    def require(self, names: Iterable[str], who: str) -> None:
        """Raise a `DataError` unless there is a symbol of each name; `who` needs them."""
        missing = [name for name in names if name not in self.symbols]
        if missing:
            raise DataError(f"{who} needs symbols the vocabulary lacks: {', '.join(missing)}")

    def encode(self, text: str) -> list[int]:
        """The ids of a text; symbols written out in it are plain text."""
        return self.encode_packed([text])[0].tolist()

    def encode_packed(self, texts: list[str]) -> Packed:
        """The ids of texts as one int32 array, and the number of ids of each text."""
        try:
            return self.model.encode_packed(texts)
        except (RuntimeError, TypeError) as error:  # what the libraries raise says nothing
            half = next(filter(None, map(HALF.search, texts)), None)
            if half is None:
                raise
            raise DataError(HALF_MESSAGE.format(half[0])) from error

    def encode_batch(self, texts: list[str]) -> list[npt.NDArray[np.int32]]:
        """The ids of each text."""
        ids, lengths = self.encode_packed(texts)
        return np.split(ids, np.cumsum(lengths)[:-1]) if texts else []

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text in which `[MASK]` and the other names in `SYMBOLS` are read as
        symbols.
        """
        index_of = {SYMBOLS[name]: index for name, index in self.symbols.items() if name in SYMBOLS}
        ids: list[int] = []
        at = 0
        encode = self.encode
        for mark in MARKED.finditer(text):
            # a symbol brings its own blank: the one before it would be a piece by itself
            ids += [*encode(text[at : mark.start()].rstrip()), index_of[mark[0]]]
            at = mark.end()
            encode = self.encode_inside
        return ids + encode(text[at:])

    def encode_inside(self, text: str) -> list[int]:
        """The ids of a text that continues after a symbol; after a blank it begins a new word."""
        if not text.strip():
            return []
        return self.model.encode(text) if text[0].isspace() else self.model.encode_inside(text)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters [start, stop) of each token of a text, without the blanks around them.

        A token that is a part of a character, such as one of its bytes, has all of it. A token that
        is a blank has none: start and stop are the same.
        """
        ids, spans = self.model.encode_offsets(text)
        stop = len(text)  # of the token that ends a character
        for i in reversed(range(len(ids))):
            # a library that spells an affix in bytes counts them as characters of the text
            first, last = (min(at, len(text)) for at in spans[i])
            piece = self.model.text(ids[i])
            only_blank = not text[first:last].strip() and piece[:1].isspace()
            if first == last or (only_blank and not piece.isspace()):
                last = stop
            else:
                stop = last
            while first < last and text[first].isspace():
                first += 1
            while first < last and text[last - 1].isspace():
                last -= 1
            spans[i] = first, last
        return spans

    def token_spans(self, text: str, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """For characters [start, stop) of a text, the shortest runs of tokens that contain them.

        A run has at least one token.
        """
        tokens = self.offsets(text)
        spans = []
        firsts = [first for first, _ in tokens]
        lasts = [last for _, last in tokens]
        for start, stop in places:
            part = text[start:stop]
            stop = start + len(part.rstrip())
            start += len(part) - len(part.lstrip())
            last = min(max(bisect_left(firsts, stop), 1), len(tokens))  # blanks may have no token
            spans.append((min(bisect_right(lasts, start), last - 1), last))
        return spans

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids without special symbols; unknown words remain visible."""
        array = np.fromiter(ids, np.int64)
        return self.model.decode(array[~self._silent[array]].tolist())

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The spelling of each id."""
        size = self.model.size
        return [self.model.piece(i) if i < size else self.added[i - size] for i in map(int, ids)]

    @functools.cached_property
    def starts(self) -> Bools:
        """Which ids begin a word: all, if no piece shows it; of the symbols, the unknown one."""
        starts = np.zeros(len(self), bool)
        indices = range(self.model.size)
        shown = any(self.model.text(index)[:1].isspace() for index in indices)
        starts[: self.model.size] = [not shown or self.model.starts(index) for index in indices]
        starts[[index for name, index in self.symbols.items() if name != "unk"]] = False
        return starts

    @functools.cached_property
    def sentence_end(self) -> Bools:
        """Which ids contain a mark that can end a sentence, see `SENTENCE_END`."""
        ends = np.zeros(len(self), bool)
        texts = (self.model.text(index) for index in range(self.model.size))
        ends[: self.model.size] = [not SENTENCE_END.isdisjoint(text) for text in texts]
        return ends

    @functools.cached_property
    def _silent(self) -> Bools:
        silent = np.ones(len(self), bool)
        silent[: self.model.size] = [self.model.is_control(i) for i in range(self.model.size)]
        silent[list(self.symbols.values())] = True
        silent[self.unk] = self.unk >= self.model.size  # the model spells its own
        return silent

    def save(self, folder: Path) -> None:
        """Write the model's file and `vocab.json` into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        create(folder / self.model.file, self.model.data)
        about = {
            "kind": self.model.kind,
            "size": len(self),
            "symbols": self.symbols,
            "added": self.added,
            "hash": self.hash,
        }
        if self.further:
            about["further"] = self.further
        create(folder / FILE, json.dumps(about, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def load(folder: Path) -> Vocab:
        """Load the vocabulary from a folder; a `DataError` if it was altered after it was saved."""
        path = folder / FILE
        about = read_json(path)
        try:
            kind, symbols, added = about["kind"], about["symbols"], about["added"]
            model_type: type[VocabModel] = registry.get("vocab", kind, f"{path}: kind")
            path = folder / model_type.file
            model = model_type(read_bytes(path))
            path = folder / FILE
            vocab = Vocab(model, symbols, added, about.get("further", 0))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is not what unitk wrote ({error!r})") from error
        except DataError as error:
            raise DataError(f"{path} {error}") from error
        if vocab.hash != about.get("hash"):
            raise DataError(f"{folder}: the vocabulary was altered after it was written")
        return vocab


def adopt(model: VocabModel, known: Mapping[str, int] | None = None) -> Vocab:
    """Map a tokenizer's own symbols to ours, and append those that it lacks.

    `known` are the ids of symbols, if files say which they are. Otherwise the spelling decides: a
    piece that its file calls no symbol, and that plain text can produce, is none. No id has two
    meanings.
    """

    def spells(index: int) -> bool:
        return index in model.encode(model.piece(index))

    symbols: dict[str, int] = {}
    added: list[str] = []
    for name, spellings in ALIASES.items():
        if known is not None:
            free = [known[name]] if name in known else []
        else:
            indices = [
                index for spelling in spellings if (index := model.find(spelling)) is not None
            ]
            if name == "unk" and model.unk is not None:
                indices = [model.unk]
            free = [
                index
                for index in indices
                if index not in symbols.values()
                and (name == "unk" or model.declares(index) or not spells(index))
            ]
        symbols[name] = free[0] if free else model.size + len(added)
        if not free:
            added.append(SYMBOLS[name])
    return Vocab(model, symbols, added)
