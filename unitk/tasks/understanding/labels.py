"""Classes and numbers of texts, and tags of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from unitk.data.files.labels import spaced_words, split_words
from unitk.errors import require
from unitk.metrics.labels import scheme_of, spans
from unitk.registry import register
from unitk.slots import DOC, Example, Floats, Ids
from unitk.tasks.base import Encoded
from unitk.tasks.understanding.base import Headed, Labelling, side_by_side, softmax, with_labels


class Whole(Labelling):
    """A task that predicts one value for a text or for a pair of texts."""

    counts_parts = True
    kind: ClassVar[str]
    """The name of its ask, and of the head that reads one slot."""
    pools: ClassVar[Mapping[str, str]]
    """`--task.pooling` -> the head that reads all slots."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Headed.Config):
        """The inputs' objective, auxiliary loss, orders of a pair, and pooling."""

        both_orders: bool = False
        """Read each pair in both orders and add the states, so that no text is first (GPT, 3.3)."""
        pooling: Literal["slot", "mean", "late"] = "slot"
        """States that the head reads. slot: that of one slot. mean: the mean of all states. late:
        all states, for the mean of the outputs (EuroBERT)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            fits = self.pooling == "slot" or not self.both_orders
            require(fits, "--task.both-orders needs --task.pooling slot")

    config: Config

    @property
    def head(self) -> str:  # type: ignore[override]
        return self.pools.get(self.config.pooling, self.kind)

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text", "other") if self.config.both_orders else ()

    def rows(self, encoded: Encoded) -> Ids:
        """The slots that the head reads: one, or all."""
        if self.config.pooling == "slot":
            return super().rows(encoded)
        return np.arange(len(encoded.example.towers[encoded.tower]))[None]

    def lay_out_orders(self, parts: list[Ids]) -> Example:
        """Texts laid out in one order, or in both side by side."""
        if self.config.pooling != "slot":
            example = super().lay_out(parts)  # pooling reads one order
            first, *others = example.asks
            return replace(example, asks=[replace(first, name=self.kind), *others])
        orders = [parts, parts[::-1]] if self.config.both_orders else [parts]
        laid = [self.lay_out_parts(order) for order in orders]
        example, rows = side_by_side(laid)
        return self.with_ask(example, laid[0].tower, rows)

    def lay_out(self, parts: list[Ids]) -> Example:
        require(
            len(parts) == 2 or not self.fields,
            f"--task.both-orders reads pairs of texts; number of texts given: {len(parts)}",
        )
        return self.lay_out_orders(parts)

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        return with_labels(self.lay_out_orders(parts), labels)


@register("task", "classify")
class Classify(Whole):
    """Predict the class of a text, or of a pair of texts."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Whole.Config):
        """The inputs' objective, auxiliary loss, orders, pooling and class weights."""

        pooling: Literal["slot", "mean", "late", "concat", "attention"] = "slot"  # type: ignore[assignment]
        """States that the head reads. slot: that of one slot. mean: the mean of all states. late:
        all states, for the mean of the outputs (EuroBERT). concat: the last state, and the largest
        and the mean values of all states (ULMFiT). attention: a weighted mean of all states, after
        an LSTM layer (SiATL)."""
        class_weights: tuple[float, ...] = ()
        """Weight of each class in the loss and in class/correct, in the order of the labels of the
        corpus."""

    config: Config
    form = kind = "class"
    pools = {"mean": "class_mean", "late": "class_late", "concat": "concat", "attention": "attend"}

    def rows(self, encoded: Encoded) -> Ids:
        """The slots to pool; of concat and attention, words in order, then what has read all."""
        if self.config.pooling not in ("concat", "attention"):
            return super().rows(encoded)
        words = np.setdiff1d(np.concatenate(encoded.parts), encoded.whole)
        return np.append(words, encoded.whole)[None]

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        names = self.labels
        weights = np.array(self.config.class_weights or np.ones(len(names)))
        require(
            len(weights) == len(names) and 0 < min(weights) <= max(weights) < np.inf,
            f"--task.class-weights needs {len(names)} finite weights above 0, for"
            f" {', '.join(names)}",
        )
        return with_labels(self.lay_out_orders(parts), labels, weights[labels])


@register("task", "regress")
class Regress(Whole):
    """Predict a number for a text or a pair of texts, such as their similarity."""

    kind, form = "regress", "number"
    pools = {"mean": "regress_mean", "late": "regress_late"}

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        return {"value": float(output[0])}


@register("task", "tag")
class Tag(Labelling):
    """Predict a tag for each word; the head reads the word's first token."""

    head, form, shortens_parts = "tag", "tags", False

    def texts(self, parts: Sequence[str]) -> list[str]:
        """Each word with the blank before it."""
        return spaced_words(split_words(parts[0]) if len(parts) == 1 else parts)

    def lay_out(self, parts: list[Ids]) -> Example:
        """Words, each of them a part, laid out as one text; one without tokens is unknown."""
        parts = [part if len(part) else np.array([self.vocab.unk]) for part in parts]
        encoded = self.lay_out_parts([np.concatenate(parts)])
        firsts = np.cumsum([0, *map(len, parts[:-1])])
        return self.with_ask(encoded.example, encoded.tower, encoded.parts[0][firsts, None])

    def measure(self, model: Any, batch: Any) -> tuple[Mapping[str, Any], Mapping[str, float]]:
        """F1 of spans as conlleval counts it: twice the right ones, over those of both sides."""
        if not scheme_of(self.labels):
            return {}, {}  # parts of speech mark no spans
        ask = batch.asks[self.head]
        output = model.output(batch, ask)
        counted = ask.weight > 0
        docs = batch.towers[ask.tower][DOC].flatten()[ask.first][counted].tolist()

        def spans_in(label_K: Any) -> set[Any]:
            tags: dict[int, list[str]] = {}  # of each doc
            for number, label in zip(docs, label_K[counted].tolist(), strict=True):
                tags.setdefault(number, []).append(self.labels[label])
            return spans([*tags.values()])

        predicted, wanted = spans_in(output.argmax(-1)), spans_in(ask.label)
        right = output.new_tensor(2.0 * len(predicted & wanted))
        return {"spans/f1": right}, {"spans": len(predicted) + len(wanted)}

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        odds = softmax(output).max(-1).tolist()
        return {"tags": [self.labels[i] for i in output.argmax(-1)], "probabilities": odds}
