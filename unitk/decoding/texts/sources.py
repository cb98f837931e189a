"""Reads, checks and encodes sources as a task reads them, and phrases of outputs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.data.files.pairs import PairText
from unitk.data.files.squad import SENTENCE, arrange
from unitk.data.files.window import cut_window
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, encode_phrase
from unitk.decoding.texts.sentences import key_sentence
from unitk.errors import DataError, UsageError, require, show_value
from unitk.options.settings import plain
from unitk.slots import Ids
from unitk.vocab.base import BLANKS, NO_BLANK, SYMBOLS, TYPED

if TYPE_CHECKING:
    from unitk.tasks.base import Task
    from unitk.vocab.base import Vocab

log = logging.getLogger(__name__)
Parted = Sequence[Sequence[str]]
"""Texts, each as its parts: one, or a question and a passage."""


@dataclass(frozen=True)
class Sources:
    """Sources that are decoded together, and what holds for them."""

    ids: Sequence[list[Ids]]
    """The ids of each part of each source; one without parts stands for nothing."""
    constraints: Sequence[Constraint] = ()  # one for each source, or none at all
    truncate: bool | None = False
    """Whether a source that is too long is shortened; otherwise it raises DataError. None: it is
    for a model that was trained on pairs."""
    first: int = 0  # the number of the first source among all inputs


class SourceEncoder:
    """Encodes texts for the task of a model."""

    task: Task
    vocab: Vocab

    def _ids(self, texts: str | Sequence[str], name: str = "texts") -> list[Ids]:
        return [ids for (ids,) in self.encode([[text] for text in as_strings(texts, name)])]

    def encode(self, sources: Parted) -> list[list[Ids]]:
        """The ids of each part of each source."""
        ids = iter(self.task.vocab.encode_batch([part for parts in sources for part in parts]))
        return [[next(ids).astype(np.int64) for _ in parts] for parts in sources]

    def read(
        self, texts: Parted, config: GenerateConfig, given: Container[str]
    ) -> tuple[list[list[Ids]], GenerateConfig]:
        """The ids of sources, and the options with the limit on their length.

        The limit is that of the training unless `max_source_len` is among the names `given`.
        """
        if SYMBOLS["mask"] in str(texts):
            log.warning("a blank in a text is read as plain text; infill fills blanks")
        if "max_source_len" in given:
            return self.sources(texts, config.max_source_len or sys.maxsize), config
        return self.sources(texts), replace(config, max_source_len=self.task.trained.max_source)

    def sources(
        self,
        texts: Parted,
        limit: int | None = None,
        focus: Sequence[tuple[int, int] | None] = (),
    ) -> list[list[Ids]]:
        """The ids of sources as in training, where each part is a text.

        If the pairs were made with `unitk preprocess --window`, a source of answer and passage of
        more than `limit` tokens (default: that window) keeps the passage around the answer:
        around `focus`, its characters in the passage, or the first occurrence.
        """
        if (window := self.task.trained.window) is None:
            return self.encode(texts)
        max_tokens = limit or window[0]
        form = window[1]
        pairs = zip_longest(texts, focus)
        return self.encode(
            [around_answer(pair, max_tokens, self.vocab, form, at) for pair, at in pairs]
        )

    def check_parts(self, sources: Sequence[list[Ids]], first: int) -> bool:
        """Warn of the first source unlike those of the training; returns whether there is one.

        It has another number of parts, an empty one, or an answer that is not in its passage.
        Raises DataError if answer or passage is missing for a model that was trained on both.
        """
        task = self.task
        known = task.trained
        form = [part.strip() for part in known.window[1].split("[SEP]")] if known.window else []
        trained = len(form) or known.parts
        fixed = trained and (known.pairs or task.counts_parts)
        for number, source in enumerate(sources if fixed else (), first + 1):
            blank = task.infills and any(task.blanks(part).any() for part in source)
            if blank or not any(map(len, source)):
                continue
            if len(source) != trained:
                if form:
                    raise DataError(
                        f"input {number} has {len(source)} of {trained} parts: this model reads "
                        f"{' and '.join(form)}, with a tab between them (in Python a list of texts)"
                    )
                log.warning(
                    "input %d has another number of parts (%d) than the sources of the training "
                    "(%d): a tab in a line, or a list of texts in Python, separates parts",
                    number,
                    len(source),
                    trained,
                )
                return True
            if not all(map(len, source)):
                log.warning("input %d has an empty part", number)
                return True
            answer, passage = arrange_parts([*map(task.vocab.decode, source)], " [SEP] ".join(form))
            if answer.casefold() not in passage.casefold():
                log.warning("input %d: answer %r is not in its passage", number, answer)
                return True
        return False

    def key_sentences(
        self, sources: Sequence[list[Ids]], config: GenerateConfig
    ) -> Sequence[list[Ids]]:
        """The sources with one sentence of their last part, if `key_phrases` ask for that."""
        if not config.key_phrases:
            return sources
        texts = [self.task.vocab.decode(part) for source in sources for part in source[-1:]]
        sentences = iter(self.encode([[key_sentence(text, config.key_phrases)] for text in texts]))
        return [[*source[:-1], *next(sentences)] if source else [] for source in sources]

    def encode_blanks(self, text: str) -> list[Ids]:
        """The ids of a text with blanks such as [MASK]; `UsageError` if it has none."""
        require(self.task.infills, f"--infill: task {self.task.name} does not fill blanks")
        ids = self.encode_marked(text, typed=True)
        require(self.has_blank(ids), NO_BLANK.format(text))
        return [ids]

    def encode_marked(self, text: str, typed: bool = False) -> Ids:
        """The ids of a text in which names such as [MASK] stand for symbols.

        typed: so do a run of underscores and the like, for the task's blank.
        """
        text = TYPED.sub(self.blank, text) if typed else text
        return np.array(self.vocab.encode_marked(text), np.int64)

    @property
    def blank(self) -> str:
        """The blank of the task's prompts as a text has it."""
        spelling = {self.vocab.symbols[name]: SYMBOLS[name] for name in BLANKS}
        return spelling[self.task.blank]

    def has_blank(self, ids: Ids) -> bool:
        """Whether a text has a blank that the task can fill."""
        return self.task.infills and bool(self.task.blanks(ids).any())

    def constraints(
        self,
        prefixes: str | Sequence[str] = (),
        phrases: Sequence[Sequence[str]] = (),
        names: tuple[str, str] = ("prefix", "constraints"),
    ) -> list[Constraint]:
        """The constraint on each source's outputs; errors name the option and the source."""
        vocab = self.task.vocab
        prefixes = as_strings(prefixes, "prefixes")
        # each letter of a string would be taken for a phrase
        listed = not any(isinstance(phrase, str) for phrase in [phrases, *phrases])
        require(listed, "constraints must be a list of phrases for each text")
        phrases = [as_strings(some, "constraints") for some in phrases]
        begin, contain = (f"{name} {{}}".format for name in names)
        return [
            Constraint(
                encode_phrase(prefix, vocab, begin(number)),
                # within an output, a word comes after a blank
                tuple(
                    encode_phrase(" " + phrase, vocab, contain(number))
                    for phrase in some
                    if phrase.strip()
                ),
            )
            for number, (prefix, some) in enumerate(zip_longest(prefixes, phrases, fillvalue=""), 1)
        ]


def split_parts(texts: Any, name: str = "texts") -> list[Sequence[str]]:
    """Each text as its parts; a string is a single text of one part."""
    # iterating over a table of pandas gives the names of its columns, not texts
    require(
        not hasattr(type(texts), "columns"),  # asking a LazyFrame for them computes it
        f"{name} must be a column of a table, such as table['text'], not all of it",
    )
    split: list[Sequence[str]] = []
    for number, text in enumerate(_items(plain(texts)), 1):
        parts = _items(text)
        wrong = [part for part in parts if not isinstance(part, str)]
        if wrong or not parts:
            raise UsageError(
                f"{name}: text {number} must be a string, got {show_value([*wrong, parts][0])}"
            )
        split.append(parts)
    return split


def _items(value: Any) -> list[Any]:
    """The items of a list; a value that stands alone is its only item."""
    alone = isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)
    return [value] if alone else [*value]


def as_strings(texts: str | Sequence[str], name: str = "texts") -> list[str]:
    """Texts of one part each; a string is a single text."""
    split = split_parts(texts, name)
    require(all(len(parts) == 1 for parts in split), f"{name} must be a list of strings")
    return [text for (text,) in split]


def around_answer(
    parts: Sequence[str],
    limit: int | None,
    vocab: Vocab,
    form: str,
    focus: tuple[int, int] | None = None,
) -> Sequence[str]:
    """`cut_window` for a source that has this form already; `focus` is of its passage.

    Without `focus`, the window is around the first occurrence of the answer. A source whose parts
    are not answer and passage, and a passage without the answer, stay as they are.
    """
    answer, passage = arrange_parts(parts, form)
    first = passage.find(answer)
    if not answer or (first < 0 and focus is None):
        return parts
    pair = PairText([answer, passage], "", focus=focus or (first, first + len(answer)))
    return arrange(cut_window(pair, limit, vocab, form).source, form)


def arrange_parts(parts: Sequence[str], form: str) -> tuple[str, str]:
    """Answer and passage of a source in this form; empty where its parts are others."""
    names = [name.strip() for name in form.split("[SEP]")]
    text = SENTENCE if SENTENCE in names else "{passage}"
    if sorted(names) != ["{answer}", text] or len(parts) != 2:
        return "", ""
    return parts[names.index("{answer}")], parts[names.index(text)]
