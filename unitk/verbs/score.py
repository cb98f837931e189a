"""`unitk score`: score texts (BLEU, ROUGE) or labels (accuracy, F1) in files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from unitk import registry
from unitk.api.verb import verb
from unitk.data.files.columns import Side, order_by_id, read_column, read_labels, read_predictions
from unitk.data.files.labels import number_of_choice
from unitk.data.files.lines import name_file
from unitk.decoding.files.outputs import check_writable
from unitk.errors import DataError, UsageError, amount, require, show_value
from unitk.files import create, new_file
from unitk.metrics import Score
from unitk.metrics.bleu import Tokenize
from unitk.metrics.labels import answers, class_sets, classes, numbers, tags
from unitk.metrics.rouge import WordKind
from unitk.metrics.texts import Counting, Written, score_texts
from unitk.options.config import Parsed, UserDir, With
from unitk.progress import progress
from unitk.registry import register

log = logging.getLogger(__name__)
EXAMPLE = '(metric="rouge", hypotheses=["a cat sat"], references=["the cat sat"])["rouge"]'

LABELS: dict[str, tuple[str, Callable[[list[Any], list[Any]], Score]]] = {
    "class": ("label", classes),
    "classes": ("labels", class_sets),
    "number": ("value", numbers),
    "tags": ("tags", tags),
    "span": ("answer", answers),
}
"""Metric of labels -> the field that `unitk predict` writes, and who counts."""
RECORDS = {
    "hypotheses": ("output", *(field_name for field_name, _ in LABELS.values())),
    "references": ("target", "label"),
    "sources": ("source",),
}
"""Option -> the fields that a text or a label in memory stands for, whatever the metric reads."""
Treebank = Literal["hypotheses", "references"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Score texts (BLEU, ROUGE, METEOR, chrF) or labels (accuracy, F1, correlation).

    Files have a text or a label a line, or are tables (json, csv, tsv, parquet).
    References may be SQuAD json. Texts may be corpus folders of pairs.

    unitk score --metric bleu,rouge --hypotheses out.txt --references wanted.txt
    unitk score --metric class --hypotheses labels.jsonl --references dev.tsv
    """

    metric: tuple[str, ...]
    """Metrics to compute, separated by commas: bleu, rouge, meteor, chrf, qg, stats of texts;
    class, classes, number, tags, span of labels; ndcg, mrr, recall of rankings. similarity,
    analogy, category are of vectors of words. qg: BLEU and ROUGE-L as papers on question generation
    count. meteor: exact and stem matches if WordNet's data are missing. stats: lengths, new
    n-grams, repetition. ndcg@10, mrr@10, recall@100: of the first texts that `unitk search` has
    found; references are TREC's qrels. similarity: Spearman's correlation; analogy: accuracy
    (3CosAdd); category: purity of clusters; references are tables of words, and analogy@30000 reads
    the first vectors of `unitk analyse vectors`. class: accuracy, F1, Matthews. classes: micro and
    macro F1. number: Pearson, Spearman. tags: F1 of spans, as conlleval, or accuracy alone. span:
    exact match and F1 of answers, as SQuAD; a json object of id to answer is joined with a SQuAD
    json by its ids."""
    hypotheses: Path
    """File to score, in lines or as written by `generate` or `predict`. `-`: standard input."""
    references: tuple[Path, ...]
    """File of references, line by line. If texts have several references, give several files, with
    empty lines where a text has fewer."""
    sources: Annotated[Path | None, With("metric", ("qg", "stats"))] = None
    """File of sources, line by line (for qg and stats)."""
    hypothesis_field: tuple[str, ...] = ()
    """Field of a table of hypotheses. Default: the first output of `unitk generate`, or the
    prediction of `unitk predict`."""
    label_field: Annotated[str, With("metric", tuple(LABELS))] = "label"
    """Field of a table of references that holds the labels, of metrics of labels."""
    target_field: Annotated[tuple[str, ...], With("metric", get_args(Written))] = ("target",)
    """Field of a table of references. Several fields, or a list, are all references of a text."""
    source_field: Annotated[tuple[str, ...], With("metric", ("qg", "stats"))] = ("source",)
    """Field of a table of sources. Several fields are joined by blanks."""
    treebank: Annotated[tuple[Treebank, ...], With("metric", ("qg",))] = ()
    """Plain-text files to tokenize like the Penn Treebank first (for qg)."""
    tokenize: Annotated[Tokenize, With("metric", ("bleu",))] = "13a"
    """Tokenizer of bleu. zh is for Chinese, char for any script without blanks between words, none
    for tokenized texts. Some need a package or a model, which the error names."""
    rouge_words: Annotated[WordKind, With("metric", ("rouge",))] = "ascii"
    """Words of rouge. ascii: runs of a-z and digits, as papers count. unicode: runs of letters and
    digits of any script, and each character of scripts without blanks between words."""
    lowercase: Annotated[bool, With("metric", ("bleu", "chrf"))] = False
    """Lower-case the texts for bleu and chrf. rouge, meteor and qg always do."""
    separator: Annotated[str, With("metric", ("rouge", "stats"))] = "<q>"
    """Mark between the sentences of a text, for rougeLsum and stats. Line ends within the texts of
    a table part sentences, too."""
    output: Annotated[Path | None, With("metric", ("rouge",))] = None
    """File of json-lines to write: each text with its own ROUGE, the worst first."""
    overwrite: Annotated[bool, With("output")] = False
    """Replace an --output that exists."""
    output_format: Literal["text", "json"] = "text"
    """text: a line for each metric; json: one object."""
    user_dir: UserDir = None


def value(parsed: Parsed) -> dict[str, Score]:
    """The scores by metric."""
    options: Options = parsed.main
    _check(parsed)
    if options.output is not None:
        check_writable(options)
    if options.metric[0] in get_args(Written):
        return _score_texts(options)
    return _score_labels(options) if options.metric[0] in LABELS else _score_registered(options)


@register("verb", "score")
@verb(Options, value=value, records=RECORDS, example=EXAMPLE)
def run(parsed: Parsed) -> None:
    """Score and print."""
    options = parsed.main
    scores = value(parsed)
    if options.output_format == "json":
        print(json.dumps({name: {**s.figures, "about": s.about} for name, s in scores.items()}))
        return
    for name, score in scores.items():
        print(f"{name:<6}", *(f" {key} {_short(value)}" for key, value in score.figures.items()))
        print(f"{'':<6}  ({score.about})")


def _score_texts(options: Options) -> dict[str, Score]:
    columns = read_column(options.hypotheses, "output", options.hypothesis_field)
    hypotheses = [text for text, *_ in columns]
    count = len(hypotheses)
    files = [_read(path, "target", count, options) for path in options.references]
    sources: list[str] = []
    if options.sources:
        sources = [text for text, *_ in _read(options.sources, "source", count, options)]
    # a line may hold several references, and some files have none for it
    texts = [list(filter(None, chain(*lines))) or [""] for lines in zip(*files, strict=True)]
    for side, sets in {"outputs": [[text] for text in hypotheses], "references": texts}.items():
        if empty := sum(not any(map(str.strip, some)) for some in sets):
            log.warning("%s without a word: %d of %d", side, empty, count)
    how = Counting(
        tokenize=options.tokenize,
        lowercase=options.lowercase,
        rouge_words=options.rouge_words,
        separator=options.separator,
        treebank=options.treebank,
    )
    passes = ("bleu", "rouge", "chrf", "chrf")  # chrf counts twice, once with words
    with progress(count * sum(map(passes.count, options.metric)), unit="texts") as report:
        scores = score_texts(options.metric, hypotheses, texts, sources, how, report)
    if options.output is not None:
        rows: list[dict[str, Any]] = [
            {"id": i, **figures, "output": text, "target": wanted}
            for i, (figures, text, wanted) in enumerate(
                zip(scores["rouge"].each, hypotheses, texts, strict=True)
            )
        ]
        rows.sort(key=lambda row: row["rougeL"])
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        with new_file(options.output, "--output", replace=options.overwrite) as part:
            create(part, "".join(f"{line}\n" for line in lines))
    return scores


def _score_labels(options: Options) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    path = options.hypotheses
    for form in options.metric:
        default_field, score = LABELS[form]
        [field] = options.hypothesis_field or [default_field]
        references = read_labels(options.references[0], form, options.label_field, "--label-field")
        predictions = read_predictions(path, references) if form == "span" else None
        if predictions is None:
            predictions = order_by_id(
                read_labels(path, form, field, "--hypothesis-field"), references
            )
        _check_count(options.references[0], references, len(predictions), options)
        pairs = list(zip(predictions, references, strict=True))
        if form == "class" and all(guess.choices for guess in predictions):
            # of choices, which are predicted by number
            expected: list[Any] = [
                str(
                    number_of_choice(
                        reference.label, guess.choices, reference.where, reference.names
                    )
                )
                for guess, reference in pairs
            ]
        elif form == "span":
            expected = [reference.answers(guess.passage) for guess, reference in pairs]
        else:
            expected = [reference.label for reference in references]
        for guess, reference in pairs:
            if form == "tags" and len(guess.label) != len(reference.label):
                raise DataError(
                    f"{reference.where}: {len(reference.label)} tags, "
                    f"but {len(guess.label)} in {guess.where}"
                )
        scores[form] = score([guess.label for guess in predictions], expected)
    return scores


def _score_registered(options: Options) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for metric in options.metric:
        name, at, depth = metric.partition("@")
        require(
            not at or (depth.isdecimal() and int(depth) > 0),
            f"--metric {metric}: a number from 1 follows the @",
        )
        score = registry.get("metric", name, "--metric")
        limit = int(depth) if at else None
        scored = score(metric, options.hypotheses, options.references, limit)
        if not isinstance(scored, Score):
            raise UsageError(
                f"metric {name!r} of {registry.sources('metric')[name]} must return a Score, "
                f"got {show_value(scored)}"
            )
        scores[metric] = scored
    return scores


def _check(parsed: Parsed) -> None:
    options: Options = parsed.main
    built_in = (*get_args(Written), *LABELS)
    added = registry.names("metric")
    known = *built_in, *added
    require(options.metric, f"--metric needs at least one of {', '.join(known)}")
    ranked = [metric for metric in options.metric if metric.partition("@")[0] in added]
    for metric in options.metric:
        require(
            metric in (*built_in, *ranked),
            f"--metric must be one of {', '.join(known)}, got {metric!r}"
            f"{registry.nearest(metric, known)}",
        )
    if ranked:
        others = " and ".join(name for name in options.metric if name not in ranked)
        require(not others, f"--metric {ranked[0]} reads other files than {others}: score twice")
    if judged := [name for name in options.metric if name in LABELS]:
        more = " and ".join(name for name in options.metric if name not in LABELS)
        require(not more, f"--metric {judged[0]} is of labels, and {more} of texts: score twice")
        require(
            len(options.references) == 1 and len(options.hypothesis_field) < 2,
            f"--metric {judged[0]} takes one --references file, one --hypothesis-field",
        )
    reasons = {
        "qg": "predictions are grouped by their source",
        "stats": "new n-grams are those it lacks",
    }
    for name, why in reasons.items():
        require(
            options.sources is not None or name not in options.metric,
            f"--metric {name} needs --sources FILE: {why}",
        )
    require(
        "qg" not in options.metric or len(options.references) == 1,
        "--metric qg takes one --references file: it finds the references itself",
    )
    require(options.separator, "--separator must not be empty")


def _read(path: Path, side: Side, count: int, options: Options) -> list[list[str]]:
    fields = options.source_field if side == "source" else options.target_field
    lines = read_column(path, side, fields)
    _check_count(path, lines, count, options)
    return lines


def _check_count(path: Path, lines: list[Any], count: int, options: Options) -> None:
    if len(lines) != count:
        other = name_file(options.hypotheses)
        raise DataError(
            f"{name_file(path)} has {amount(len(lines), 'lines')}, but {other} has {count:,}"
        )


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
