"""Tasks of understanding: classes, numbers, tags, spans and choices, over any objective's inputs.

The objective of pre-training lays out the texts (`lay_out_parts`). A head reads the slot after |.

    mlm, unilm, pmlm     |C  a  b  S  c  d  S                  Devlin et al. 2019, figure 4
    lm                    C  a  b  S  c  d |S                  Radford et al. 2018, figure 1
    xlnet                 a  b  S  c  d  S |C                  Yang et al. 2019, section 2.5
    glm_infill            C  M  a  b  S  c  d  S |S            the S that begins to fill the blank
    seq2seq, bart, ...    C  a  b  S  c  d  S  ->  C  a  b  S  c |d     Lewis et al. 2020, 3.1
    optimus              |C  a  b  S  c  d  S  ->  C           the encoder, before its latent

Tags are read at the first token of each word, the borders of an answer at all slots. As a border,
the slot after | means that there is no answer (Devlin et al. 2019, sections 4.2, 4.3 and 5.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from unitk import registry
from unitk.errors import UsageError, check_option, require
from unitk.options.config import build_config, options
from unitk.options.fields import Bound, Schedule
from unitk.options.settings import Origin, gather_settings
from unitk.slots import DOC, Ask, Example, Floats, Ids, Slots, concatenate
from unitk.tasks.base import Encoded, Task, split_layout
from unitk.vocab.base import Vocab

LAYOUT = "--task.layout"
SYMBOLS = 6
"""The most symbols that a layout adds to a pair of texts."""


def parse_layout(text: str) -> tuple[type[Task], Any]:
    """Parse NAME or NAME:option=value,... to an objective and its options."""
    name, given = split_layout(text)
    task = registry.get("task", name, LAYOUT)
    require(not task.predicts, f"{LAYOUT} needs another objective, not {name}")
    keys = [option.name for option in options(task.Config)]
    for key, equals, value in given:
        if not equals or key not in keys:
            hint = registry.nearest(key, keys) or f"; {name} has {', '.join(keys)}"
            wrong = key + equals + value
            raise UsageError(f"{LAYOUT}: {wrong!r} is not an option=value of task {name}{hint}")
    items = ((key, value, LAYOUT) for key, _, value in given)
    try:
        return task, build_config(task.Config, gather_settings(items, Origin.FLAG))
    except UsageError as error:
        raise UsageError(f"{LAYOUT} {name}: {error}") from error


class Understanding(Task):
    """A task that predicts something about texts, over the inputs of another objective."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """The objective that lays out the inputs."""

        layout: str = "mlm"
        """Objective that lays out the inputs, with its options: lm, lm:opening=none. Default: the
        objective of the model of --init-from."""

    config: Config
    symbols = ()
    predicts = True
    windowed: ClassVar[bool] = False
    """Whether a passage that is too long is read in windows that overlap."""
    shortens_parts: ClassVar[bool] = True
    """Whether `--truncate` may cut off the end of a text that is too long."""
    averages_labels: ClassVar[bool] = False
    """Whether the models of an ensemble may differ in their outputs, so that only the probabilities
    of labels can be averaged."""

    def __init__(self, config: Config, vocab: Vocab) -> None:
        task, own = parse_layout(config.layout)
        self.layout = task(own, vocab)
        super().__init__(config, self.layout.vocab)
        # the model reads texts as it does for its layout, and checkpoints keep what that needs
        of_layout = "source_vocab", "first_rows", "needs", "virtual", "tables", "files"
        for name in (*of_layout, "reading", "to_embed"):
            setattr(self, name, getattr(self.layout, name))

    @classmethod
    def component(cls, kind: str, config: Any) -> str:
        task, own = parse_layout(config.layout)
        # an autoencoder's criterion needs predicted words, of which there are none
        return task.component(kind, own) if kind == "arch" else cls.criterion

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels that it predicts."""
        return self.trained.labels

    def lay_out(self, parts: list[Ids]) -> Example:
        """Lay out texts with an ask whose labels are not set (`with_labels`)."""
        raise NotImplementedError

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        """The prediction of an output [K, ...] of the first ask, as `unitk predict` writes it."""
        return self.rank_names(output[0], self.labels)

    def texts(self, parts: Sequence[str]) -> list[str]:
        """The texts to encode for the parts of a source."""
        return [part.strip() for part in parts]

    def in_words(self, parts: Sequence[str], prediction: dict[str, Any]) -> dict[str, Any]:
        """The prediction for a source as a record; places in tokens become places in its text."""
        return prediction

    def alike(self, other: Task) -> bool:
        """Whether an ensemble may average what two tasks predict."""
        return type(self) is type(other)

    def decide(self, parts: list[Ids], output: Floats, null_threshold: float) -> dict[str, Any]:
        """The `prediction`; no answer if that is likelier by more than `null_threshold`."""
        return self.prediction(parts, output)

    def rank_names(self, logits: Floats, names: Sequence[Any]) -> dict[str, Any]:
        """The name with the largest logit, its probability, and the probabilities of all names."""
        best = int(logits.argmax())
        odds = softmax(logits).tolist()
        return {
            "label": names[best],
            "probability": odds[best],
            "probabilities": dict(zip(names, odds, strict=True)),
        }


class Headed(Understanding):
    """A task with a head of its own."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Understanding.Config):
        """The objective that lays out the inputs, the auxiliary loss and the separators."""

        lm_weight: Annotated[float | Schedule, Bound(0)] = 0.5
        """Layout lm: weight of the mean loss over words, or a schedule of it (GPT: 0.5). 0: off."""
        separators: int = 1
        """Number of [SEP]s between two texts (RoBERTa and BART in transformers: 2)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            check_option(self, "task.separators", self.separators in (1, 2), "1 or 2")

    config: Config

    @property
    def asks(self) -> dict[str, float | Schedule]:
        return {"lm": self.config.lm_weight}

    @property
    def heads(self) -> tuple[str, ...]:  # type: ignore[override]
        size = f":{len(self.labels)}" if self.labels else ""
        return f"{self.head}:label{size}", *self.layout.table_heads

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        further = [self.vocab.sep] * (self.config.separators - 1)
        ended = [np.append(part, further).astype(np.int64) for part in parts[:-1]]
        encoded = self.layout.lay_out_parts([*ended, parts[-1]])
        of_tokens = [slots[: len(part)] for slots, part in zip(encoded.parts, parts, strict=True)]
        return replace(encoded, parts=of_tokens)

    def lay_out(self, parts: list[Ids]) -> Example:
        encoded = self.lay_out_parts(parts)
        return self.with_ask(encoded.example, encoded.tower, self.rows(encoded))

    def with_ask(self, example: Example, tower: str, rows: Ids) -> Example:
        """The example with an ask whose predictions read the slots `rows` [K, a] of a tower."""
        weight = np.ones(len(rows), np.float32)
        ask = Ask(self.head, f"{self.head}:label", tower, rows, np.zeros(len(rows)), weight)
        beside = example.asks if self.config.lm_weight else []
        return replace(example, asks=[ask, *beside])

    def rows(self, encoded: Encoded) -> Ids:
        """The slots [K, a] that the head reads."""
        return np.array([[encoded.whole]])


class Labelling(Headed):
    """A task with a head that learns from labelled texts."""

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        return with_labels(self.lay_out(parts), labels)


def side_by_side(texts: Sequence[Encoded]) -> tuple[Example, Ids]:
    """Join laid-out texts in one example, a doc each; returns it and the docs' slots [1, a]."""
    towers: dict[str, list[Slots]] = {}
    sizes = Counter[str]()
    asks = []
    rows = []
    for number, text in enumerate(texts):
        rows.append(sizes[text.tower] + text.whole)
        asks += [replace(ask, rows=ask.rows + sizes[ask.tower]) for ask in text.example.asks]
        for tower, slots in text.example.towers.items():
            own_doc = slots.table.copy()
            own_doc[DOC] = number
            towers.setdefault(tower, []).append(Slots(own_doc))
            sizes[tower] += len(slots)
    joined = {tower: concatenate(runs) for tower, runs in towers.items()}
    inputs = {
        name: np.concatenate([text.example.inputs[name] for text in texts])
        for name in texts[0].example.inputs
    }
    return Example(joined, asks, inputs=inputs), np.array([rows])


def softmax(logits: Floats) -> Floats:
    """Probabilities over the last axis."""
    odds: Floats = np.exp(logits - logits.max(-1, keepdims=True))
    odds /= odds.sum(-1, keepdims=True)
    return odds


def with_labels(example: Example, labels: Any, weight: Any = None) -> Example:
    """The example with labels, and optionally weights, for its first ask."""
    first, *others = example.asks
    weight = first.weight if weight is None else np.asarray(weight, np.float32)
    return replace(example, asks=[replace(first, label=labels, weight=weight), *others])
