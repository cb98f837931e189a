"""`unitk score`: BLEU, ROUGE, METEOR, chrF and question-generation scores of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unitk import config
from unitk.config import Parsed
from unitk.data.reading.columns import Side, read_column
from unitk.errors import DataError, require
from unitk.score import Score
from unitk.score.bleu import Tokenize, bleu, chrf
from unitk.score.meteor import meteor
from unitk.score.qg import qg, treebank
from unitk.score.rouge import rouge
from unitk.score.stats import stats

CONCERNS = {
    "tokenize": ("bleu",),
    "lowercase": ("bleu", "chrf"),
    "separator": ("rouge", "stats"),
    "sources": ("qg", "stats"),
    "treebank": ("qg",),
}
"""Options of some metrics only."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Score texts: BLEU, ROUGE, METEOR, chrF, question generation.

    Files have a text a line, or are tables (json, csv, tsv, parquet) or corpus folders of pairs.

    unitk score --metric bleu,rouge --hypotheses out.txt --references wanted.txt
    """

    metric: tuple[Literal["bleu", "rouge", "meteor", "chrf", "qg", "stats"], ...]
    """What to compute, separated by commas; meteor: without WordNet's data, exact and stem matches;
    qg: question generation, counted as papers do; stats: lengths, new n-grams, repetition."""
    hypotheses: Path
    """The texts to judge; `-` is standard input; what `generate --output-format jsonl` wrote."""
    references: tuple[Path, ...]
    """What they should be, line by line; several references of a text: several files, with empty
    lines where a text has fewer."""
    sources: Path | None = None
    """What the texts were made from, line by line (for qg and stats)."""
    hypothesis_field: tuple[str, ...] = ()
    """Field of a table of hypotheses; default: the first output that `unitk generate` wrote."""
    target_field: tuple[str, ...] = ("target",)
    """Field of a table of references; several, or a list, are all references of a text."""
    source_field: tuple[str, ...] = ("source",)
    """Field of a table of sources; several are joined by blanks."""
    treebank: tuple[Literal["hypotheses", "references"], ...] = ()
    """Files of plain text, to be split into words as the Penn Treebank does (for qg)."""
    tokenize: Tokenize = "13a"
    """Tokenizer of bleu; zh for Chinese, none when the texts are tokenised."""
    lowercase: bool = False
    """Lower-case for bleu and chrf (rouge, meteor and qg always do)."""
    separator: str = "<q>"
    """What stands between the sentences of a text, for rougeLsum and stats."""
    output_format: Literal["text", "json"] = "text"
    """A line for each metric, or one JSON object."""


def run(argv: Sequence[str]) -> None:
    """Score and print."""
    parsed = config.parse("score", Options, argv)
    given: Options = parsed.main
    _check(parsed)
    read = read_column(given.hypotheses, "output", given.hypothesis_field)
    hypotheses = [text for text, *_ in read]
    count = len(hypotheses)
    files = [_read(path, "--references", "target", count, given) for path in given.references]
    sources: list[str] = []
    if given.sources:
        sources = [text for text, *_ in _read(given.sources, "--sources", "source", count, given)]
    texts = []
    # a line may hold several references, and so may its place in further files
    for (first, *others), *more in zip(*files, strict=True):
        texts.append([first, *filter(None, [*others, *(text for line in more for text in line)])])
    wanted = [first for first, *_ in texts]

    def tokens(name: str, lines: list[str]) -> list[str]:
        return list(map(treebank, lines)) if name in given.treebank else lines

    metrics: dict[str, Callable[[], Score]] = {
        "bleu": lambda: bleu(hypotheses, texts, tokenize=given.tokenize, lowercase=given.lowercase),
        "rouge": lambda: rouge(hypotheses, texts, separator=given.separator),
        "meteor": lambda: meteor(hypotheses, texts),
        "chrf": lambda: chrf(hypotheses, texts, lowercase=given.lowercase),
        "qg": lambda: qg(tokens("hypotheses", hypotheses), tokens("references", wanted), sources),
        "stats": lambda: stats(hypotheses, wanted, sources, separator=given.separator),
    }
    scores = {name: metrics[name]() for name in given.metric}
    if given.output_format == "json":
        print(json.dumps({name: {**s.figures, "about": s.about} for name, s in scores.items()}))
        return
    for name, score in scores.items():
        print(f"{name:<6}", *(f" {key} {_short(value)}" for key, value in score.figures.items()))
        print(f"{'':<6}  ({score.about})")


def _check(parsed: Parsed) -> None:
    given: Options = parsed.main
    require(
        bool(given.metric), "--metric needs at least one of bleu, rouge, meteor, chrf, qg, stats"
    )
    for name, metrics in CONCERNS.items():
        if not set(metrics) & set(given.metric):
            parsed.idle(f"without --metric {' or '.join(metrics)}", name)
    grouped, lacks = "predictions are grouped by their source", "new n-grams are those it lacks"
    for name, why in {"qg": grouped, "stats": lacks}.items():
        has = given.sources is not None or name not in given.metric
        require(has, f"--metric {name} needs --sources FILE: {why}")
    one = "qg" not in given.metric or len(given.references) == 1
    require(one, "--metric qg takes one --references file: it finds the references itself")
    require(bool(given.separator), "--separator must not be empty")


def _read(path: Path, option: str, side: Side, count: int, given: Options) -> list[list[str]]:
    lines = read_column(path, side, given.source_field if side == "source" else given.target_field)
    if len(lines) != count:
        raise DataError(
            f"{option} {path} has {len(lines):,} lines,"
            f" but --hypotheses {given.hypotheses} has {count:,}"
        )
    return lines


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
