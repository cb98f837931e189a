"""Outputs as texts, and a table of them that a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unitk import notebook
from unitk.decoding.search import Hypothesis
from unitk.slots import Floats, Ids
from unitk.vocab.base import Vocab


@dataclass(frozen=True)
class Output:
    """One output as text; for a source with blanks, the source with the blanks filled in."""

    text: str
    hypothesis: Hypothesis
    attention: Floats | None = None
    """[words, source words] of a decoder layer, if it was requested; see `forced.attention`."""
    source: Ids | None = None
    """The source words of `attention`, ids of the task's source vocabulary."""

    def __repr__(self) -> str:
        return f"Output({self.text!r}, score={self.hypothesis.score:.4g})"


NO_WORDS = Output("", Hypothesis(np.zeros(0, np.int64), 0.0, 0.0, np.zeros(0, np.float32)))


class OutputTable(list[list[Output]]):
    """A list of the n best outputs of each source.

    A notebook shows the tokens on a ground that is the greener the more probable they are.
    """

    def __init__(
        self, outputs: Sequence[list[Output]], sources: Sequence[Sequence[str]], vocab: Vocab
    ) -> None:
        super().__init__(outputs)
        self.sources = [*sources]
        self.vocab = vocab

    def add(self, sources: Sequence[Sequence[str]], outputs: Sequence[list[Output]]) -> None:
        """Add the outputs of further sources, each in its parts; that of an empty one is empty."""
        self.sources += sources
        self += [best or [NO_WORDS] for best in outputs]

    def _repr_html_(self) -> str:
        # parts of a source as the page of the server writes them
        pairs = zip(map(" | ".join, self.sources), self, strict=True)
        return notebook.outputs((source, [*map(self._written, some)]) for source, some in pairs)

    def _written(self, output: Output) -> notebook.OutputRow:
        hypothesis, vocab = output.hypothesis, self.vocab
        texts = [vocab.decode([index]) for index in hypothesis.ids.tolist()]
        starts = vocab.starts[hypothesis.ids]
        # a symbol without a text is the end of the output, or of a blank
        tokens = [
            f" {text}" if start else text or notebook.END
            for text, start in zip(texts, starts.tolist(), strict=True)
        ]
        return notebook.OutputRow(
            output.text, hypothesis.score, tokens, hypothesis.token_log_probs.tolist()
        )
