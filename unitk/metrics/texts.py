"""The metrics of written texts, by the names that `unitk score` and `unitk train` call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from unitk.metrics import Score, TextLists
from unitk.metrics.bleu import Tokenize, bleu, chrf
from unitk.metrics.meteor import meteor
from unitk.metrics.qg import qg, treebank
from unitk.metrics.rouge import WordKind, rouge
from unitk.metrics.stats import stats
from unitk.progress import Report, no_report

Written = Literal["bleu", "rouge", "meteor", "chrf", "qg", "stats"]


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How texts are scored: the options of `unitk score` with the same names."""

    tokenize: Tokenize = "13a"
    lowercase: bool = False
    rouge_words: WordKind = "ascii"
    separator: str = "<q>"
    treebank: tuple[Literal["hypotheses", "references"], ...] = ()


def score_texts(
    names: Sequence[str],
    hypotheses: Sequence[str],
    references: TextLists,
    sources: Sequence[str] = (),
    how: Counting = Counting(),
    report: Report = no_report,
) -> dict[str, Score]:
    """The scores of texts by the metrics of these names; each text has at least one reference.

    A line end within a text ends a sentence of a summary, and is a blank elsewhere. `qg` and
    `stats` need the `sources`, and compare with the first reference.
    """
    flat = _flat(hypotheses)
    flat_references = list(map(_flat, references))
    first_references = [first for first, *_ in flat_references]

    def tokens(name: Literal["hypotheses", "references"], lines: list[str]) -> list[str]:
        return list(map(treebank, lines)) if name in how.treebank else lines

    metrics: dict[str, Callable[[], Score]] = {
        "bleu": lambda: bleu(
            flat, flat_references, tokenize=how.tokenize, lowercase=how.lowercase, report=report
        ),
        "rouge": lambda: rouge(
            hypotheses, references, separator=how.separator, kind=how.rouge_words, report=report
        ),
        "meteor": lambda: meteor(flat, flat_references),
        "chrf": lambda: chrf(flat, flat_references, lowercase=how.lowercase, report=report),
        "qg": lambda: qg(
            tokens("hypotheses", flat), tokens("references", first_references), sources
        ),
        "stats": lambda: stats(flat, first_references, sources, separator=how.separator),
    }
    return {name: metrics[name]() for name in names}


def _flat(texts: Sequence[str]) -> list[str]:
    """Texts without line ends."""
    return [
        " ".join(filter(None, map(str.strip, text.split("\n")))) if "\n" in text else text
        for text in texts
    ]
