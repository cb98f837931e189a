"""Cloze questions: classify a text by what a pre-trained model writes into a pattern's blank.

Schick and Schuetze 2021, arXiv 2001.07676 and 2009.07118; with GLM's blank Du et al. 2022, arXiv
2103.10360, section 2.3. No weight is added: the scores are those of the output layer over the
vocabulary. `blanks.py` lays out the slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from unitk.errors import DataError, require
from unitk.families.cloze.blanks import (
    SLACK,
    answer_of,
    answers_of,
    fill_blank,
    lay_out_answers,
    room_of,
)
from unitk.families.cloze.patterns import SETS, Pattern, read_pattern
from unitk.options.fields import Copied, Count
from unitk.registry import register
from unitk.slots import Example, Floats, Ids
from unitk.tasks.understanding.base import Understanding
from unitk.vocab.base import Vocab


@register("task", "cloze")
class Cloze(Understanding):
    """Predict labels or choices by filling the blank of a pattern (PET, GLM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Understanding.Config):
        """The objective that lays out the inputs, the pattern, and how its answers are scored."""

        patterns: Annotated[str, Copied("patterns.yaml")] = ""
        """Patterns and answers: a bundled set (boolq, cb and others), or a YAML file."""
        pattern: Count = 0
        """Number of the pattern to use, counted from 0."""
        multi_token: bool = False
        """Score answers of any length, which takes longer. off: the answer of a label is one token.
        Choices that come with the texts are always scored in full."""
        length_penalty: float = 0.0
        """Divide the score of several tokens by their number to this power. The end counts."""
        max_length: Count = 0
        """Maximum tokens of a text in its pattern; the longest field is truncated. 0: the positions
        of the model."""

    config: Config
    criterion, shortens, untrained, averages_labels = "cloze", True, True, True

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.filling = self.layout.protocol
        blanks = self.filling is None or self.filling.begin is not None
        require(
            self.layout.infills and blanks,
            f"--task.layout {config.layout} has no blank; glm_infill and mlm have one",
        )

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern that --task.patterns and --task.pattern choose."""
        pattern = read_pattern(self.config.patterns, self.config.pattern)
        c = self.config
        if pattern.path.parent != SETS:
            self.files = {"patterns.yaml": pattern.path.read_text(encoding="utf-8")}
        require(
            bool(pattern.labels) or not c.multi_token,
            f"--task.multi-token has no effect: {pattern.place} has choices, which are always "
            "scored in full",
        )
        several = c.multi_token or not pattern.labels or not c.length_penalty
        require(several, "--task.length-penalty has no effect without --task.multi-token on")
        return pattern

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.pattern.fields

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that have an answer."""
        return self.pattern.labels

    @property
    def form(self) -> str:  # type: ignore[override]
        return "class" if self.pattern.labels else "choice"

    @property
    def needs_criterion(self) -> str:  # type: ignore[override]
        return "" if self.single else self.criterion

    @property
    def single(self) -> bool:
        return self.form == "class" and not self.config.multi_token

    @cached_property
    def answer_ids(self) -> list[Ids]:
        """The ids of the labels' answers."""
        return answers_of(self.pattern, self.vocab, self.single)

    @cached_property
    def pattern_room(self) -> tuple[int, int]:
        return room_of(self.pattern, self.vocab)

    def pair_slots(self, source: Ids, target: Ids, parts: Ids) -> Ids:
        several = parts if self.form == "choice" else 0 * parts + len(self.answer_ids)
        alone = self.pattern_room[0] + self.pattern_room[1] * source
        answers = (SLACK + 2) * several + sum(map(len, self.answer_ids))
        return alone * (1 if self.single or self.filling else several) + answers

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        right = int(labels[0])
        known = self.pattern.labels
        if self.trained.labels and known:
            label = self.trained.labels[right]
            answered = ", ".join(known)
            require(
                label in known,
                f"{self.pattern.place}: no answer for {label!r} of --data; answers: {answered}",
            )
            right = known.index(label)
        example = self.fit_pattern(parts)
        *others, ask = example.asks
        if right >= (count := len(known) or ask.rows.shape[1]):
            raise ValueError(f"the right answer is number {right}, but there are {count}")
        return replace(example, asks=[*others, replace(ask, label=np.array([right]))])

    def lay_out(self, parts: list[Ids]) -> Example:
        needed = len(self.fields)
        count = len(parts)
        if count < needed or (self.form == "class" and count > needed):
            raise DataError(
                f"{self.pattern.path} reads {needed} parts ({', '.join(self.fields)}), but a text "
                f"has {count}; --source-field names them"
            )
        return self.fit_pattern(parts)

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        if self.single:
            ids = np.concatenate(self.answer_ids)  # the output's columns are in their order
            scores = output[0][np.searchsorted(np.sort(ids), ids)]
        else:
            words, ask = self.fit_pattern(parts).asks
            first = np.searchsorted(words.first, ask.rows[0])
            scores = np.add.reduceat(output * words.weight, first)
        return self.rank_names(scores, self.labels or range(len(scores)))

    def fit_pattern(self, parts: list[Ids]) -> Example:
        """A text in its pattern; the longest field is truncated until the example fits."""
        # texts that are made up to measure layouts have no known word: read them as empty
        known = any((part != self.vocab.unk).any() for part in parts)
        parts = [part if known else part[:0] for part in parts]
        last = len(self.fields) - 2 if self.form == "choice" else len(parts)
        fields = [0, *range(max(len(parts) - last, 1), len(parts))]
        if known and not self.pattern.has_blank([*map(self.vocab.decode, parts)]):
            raise DataError(f"{self.pattern.place}: no field of a text has {self.pattern.blank!r}")
        most = int(self.pair_slots(*map(np.array, (sum(map(len, parts)), 0, len(parts)))))
        while True:
            example = self.example(parts)
            [slots] = example.towers.values()
            limits = [
                limit for limit in (self.trained.position_limit, self.config.max_length) if limit
            ]
            over = max([len(slots) - most, *(int(slots.pos.max()) + 1 - n for n in limits)])
            if over <= 0:
                return example
            for _ in range(over):
                longest = max(fields, key=lambda i: len(parts[i]))
                if not len(parts[longest]):
                    raise DataError(f"{self.pattern.place}: the pattern is {over} tokens too long")
                parts[longest] = parts[longest][:-1]

    def example(self, parts: list[Ids]) -> Example:
        """A text in its pattern with its asks, not truncated."""
        texts = list(map(self.vocab.decode, parts))
        before, after = self.pattern.render(texts)
        around = self.vocab.encode(before.rstrip()), self.vocab.encode_inside(after)
        ids = np.array([*around[0], self.layout.blank, *around[1]], np.int64)
        if self.single:
            example = fill_blank(self.layout, ids, self.answer_ids[0])
            among = np.concatenate(self.answer_ids)
            zero = np.zeros(1, np.int64)
            ask = replace(example.asks[0], name="cloze", label=zero, among=among)
            return replace(example, asks=[ask])
        answers = [answer_of(self.vocab, a, before) for a in self.pattern.candidates(texts)]
        return lay_out_answers(self.layout, ids, answers, self.config.length_penalty)
