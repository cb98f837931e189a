"""`unitk evaluate --bits`: bits per byte of texts, and what kind of value that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unitk.api.answering import open_generator
from unitk.comparison.texts import open_documents
from unitk.evaluation.base import Judged, Progress, RawEvaluation, figure_lines
from unitk.options.config import Parsed
from unitk.options.fields import Count, Positive
from unitk.registry import register

ABOUT = {
    "exact": "the probability of the text",
    "bound": "an upper bound: the model may be better, never worse",
    "pseudo": "no probability of a text: each token is predicted from all others",
}
"""Kind of a value -> its meaning."""


@register("evaluation", "bits")
@dataclass(frozen=True, kw_only=True)
class Bits(RawEvaluation):
    """Bits per byte of the text of --data, by a model of any task."""

    bits: bool = False
    """With --data: bits per byte of its documents, in windows that overlap, and whether the value
    is exact, a bound or pseudo. Bytes are those of the text, whatever the vocabulary."""
    stride: Positive | None = None
    context: Count | None = None
    draws: Positive | None = None
    whole_words: bool = False

    def measure(self, parsed: Parsed, progress: Progress) -> tuple[dict[str, Any], Judged]:
        from unitk.comparison.likelihood import How, measure

        options = parsed.main
        documents = open_documents(parsed)
        generator = open_generator(options, parsed.aside.texts)
        how = How(
            stride=self.stride,
            context=self.context,
            draws=self.draws,
            whole_words=self.whole_words,
            max_tokens=self.max_tokens,
        )
        likelihood = measure(generator, documents, how, progress)
        figures = likelihood.figures()
        named = {name: value for name, value in figures.items() if name != "kind"}
        lines = [f"{'kind':<24}{likelihood.kind}: {ABOUT[likelihood.kind]}", *figure_lines(named)]
        subject = {"checkpoint": str(options.checkpoint), "data": str(options.data)}
        return subject, Judged(figures, lines)
