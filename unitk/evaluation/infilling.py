"""Text infilling: words of texts are hidden, and what a model writes there is judged by BLEU.

As in Shen et al. 2020, arXiv 2002.03079, section 4.2, and Du et al. 2022, arXiv 2103.10360: a share
of the words is hidden, and neighbours share a blank. A model that fills a mask with a token, such
as BERT, has a mask for each token and so knows their number; MASS fills one run of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unitk.data.files.readers import records
from unitk.decoding.config import GenerateConfig
from unitk.errors import UsageError, require
from unitk.evaluation.base import Judged, Progress, Writing
from unitk.metrics.bleu import bleu
from unitk.options.fields import Fraction
from unitk.progress import Report, no_report
from unitk.registry import register
from unitk.slots import Bools, Ids

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator

LONGEST = 32
"""Most tokens of a blank; of a whole output, beside twice those of the source."""


@dataclass(frozen=True)
class Infilled:
    """Texts, the same with blanks, and with the blanks filled in; `blanks` is their number."""

    share: float
    texts: Sequence[str]
    left: Sequence[str]
    filled: Sequence[str]
    blanks: int

    def lines(self) -> Iterator[dict[str, Any]]:
        """A record for each text."""
        for text, filled in zip(self.texts, self.filled, strict=True):
            yield {"mask_ratio": self.share, "text": text, "filled": filled}

    def figures(self) -> dict[str, Any]:
        """BLEU of the filled-in texts, and of the texts without their blanks."""
        references = [[text] for text in self.texts]
        scores = {"bleu": self.filled, "bleu_unfilled": self.left}
        bleu_of = {name: bleu(some, references).figures["bleu"] for name, some in scores.items()}
        return {"mask_ratio": self.share, **bleu_of, "blanks": self.blanks}


@register("evaluation", "infill")
@dataclass(frozen=True, kw_only=True)
class Infilling(Writing):
    """Texts whose words are hidden and filled in again: json-lines with the field text, or lines.
    Reports BLEU of the filled texts."""

    mask_ratio: tuple[Fraction, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """With --infill: shares of the words to hide, each tried in turn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mask_ratio, "--mask-ratio needs shares of words, got none")

    def read(self, paths: Sequence[Path]) -> list[str]:
        every = (record for path in paths for record in records(path, plain="text"))
        return [record.text("text", blank=False) for record in every]

    def judge(self, generator: Generator, texts: Sequence[str], progress: Progress) -> Judged:
        with progress(len(texts) * len(self.mask_ratio)) as report:
            results = infill(generator, texts, self.mask_ratio, self.max_tokens, report)
        figures_of = [entry.figures() for entry in results]
        lines = [f"{'mask ratio':<24}{'bleu':>8}{'unfilled':>10}{'blanks':>10}"]
        for entry in figures_of:
            scores = f"{entry['bleu']:8.2f}{entry['bleu_unfilled']:10.2f}{entry['blanks']:10,}"
            lines.append(f"{entry['mask_ratio']:<24}{scores}")
        figures = {"texts": len(texts), "infill": figures_of}
        return Judged(figures, lines, (line for result in results for line in result.lines()))


def infill(
    generator: Generator,
    texts: Sequence[str],
    shares: Sequence[float],
    max_tokens: int,
    report: Report = no_report,
) -> list[Infilled]:
    """Hide each of these shares of the words of each text, and fill them in greedily.

    Which words are hidden depends only on the share, the text's number and its words. Raises
    UsageError or DataError, before any text is filled, for one that the model cannot fill.
    """
    task = generator.task
    mask = generator.vocab.mask
    require(task.infills, f"--infill: task {task.name} does not fill blanks")
    fixed = task.protocol is None or task.length([np.array([mask])]) is not None
    ids = [ids_of_text for (ids_of_text,) in generator.encode([[text] for text in texts])]
    # an encoder-decoder writes the text, or all blanks, as one output
    whole = task.protocol is not None and task.protocol.begin is None
    longest = f"2x+{LONGEST}" if whole else LONGEST
    config = GenerateConfig(beam=1, max_len=longest, max_tokens=max_tokens)
    from unitk.decoding.drivers import Watcher  # imports torch
    from unitk.decoding.texts.sources import Sources

    decode = generator.vocab.decode
    read = [*map(decode, ids)]
    prepared: list[list[Blanked]] = []
    for share in shares:
        prepared.append([])
        for number, text in enumerate(ids):
            require(len(text) > 0, f"--infill: text {number + 1} has no token of the vocabulary")
            blanked = blank(generator, number, text, share, fixed)
            prepared[-1].append(blanked)
            try:
                generator.prompts(Sources([[blanked.shown]], first=number), config)
            except UsageError as error:
                raise UsageError(
                    f"--infill: text {number + 1} with --mask-ratio {share:g}: {error}"
                ) from error
    watch = Watcher(report)
    results = []
    for share, texts_of in zip(shares, prepared, strict=True):
        sources = Sources([[text.shown] for text in texts_of])
        filled = [best.text for (best,) in generator.outputs(sources, config, watch=watch)]
        left = [decode(text.left) for text in texts_of]
        results.append(Infilled(share, read, left, filled, sum(text.blanks for text in texts_of)))
    return results


class Blanked(NamedTuple):
    """A text in which a share of the words is hidden."""

    left: Ids  # the tokens that are not hidden
    shown: Ids
    """All tokens, with a mask for each hidden one or for each run of them."""
    blanks: int  # runs of hidden tokens


def blank(generator: Generator, number: int, text: Ids, share: float, fixed: bool) -> Blanked:
    """Hide a share of the words of text `number`; `fixed`: a model writes one token for a mask."""
    starts = generator.vocab.starts[text]
    run = fixed and generator.task.protocol is not None
    hidden = hide(starts, share, run, np.random.default_rng([0, number]))
    # a hidden token after one that is not
    begins = hidden & ~np.append(False, hidden[:-1])
    shown = np.where(hidden, generator.vocab.mask, text)[~hidden | fixed | begins]
    return Blanked(text[~hidden], shown, int(begins.sum()))


def hide(starts: Bools, share: float, run: bool, rng: np.random.Generator) -> Bools:
    """Which tokens to hide: those of a share of the words, at least one; `run`: one stretch."""
    # the first token begins a word, also where a text was cut inside one
    word = np.cumsum(starts | (np.arange(len(starts)) == 0)) - 1
    total = int(word[-1]) + 1
    count = max(1, round(share * total))
    first = int(rng.integers(total - count + 1))
    chosen = first + np.arange(count) if run else rng.choice(total, count, replace=False)
    return np.isin(word, chosen)
