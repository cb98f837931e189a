"""An evaluation, for docs/evaluation.md: how well a model compresses texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unitk.data.files.lines import read_lines
from unitk.evaluation.base import Judged, Progress, Scoring, Writing, figure_lines
from unitk.registry import register

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator


@register("evaluation", "compression")
@dataclass(frozen=True, kw_only=True)
class Compression(Scoring, Writing):
    """Texts, one a line, whose bits per byte are measured."""

    def read(self, paths: Sequence[Path]) -> list[str]:
        return [line for path in paths for line in read_lines(path) if line.strip()]

    def judge(self, generator: Generator, texts: Sequence[str], progress: Progress) -> Judged:
        ids = [(text[:0], text) for (text,) in generator.encode([[text] for text in texts])]
        likelihoods = self.likelihoods(generator, ids, "line {}".format, progress)
        sizes = [len(text.encode()) for text in texts]
        bits = [-float(gains.sum()) / math.log(2) for gains, _ in likelihoods]
        figures = {"texts": len(texts), "bits_per_byte": sum(bits) / sum(sizes)}
        entries = [{"text": text, "bits": cost} for text, cost in zip(texts, bits, strict=True)]
        return Judged(figures, figure_lines(figures), entries)
