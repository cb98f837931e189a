"""ROUGE and statistics of generated summaries, and a few of them in Markdown.

    python report.py RUN --test FILE --source-field NAME --target-field NAMES [--sentence-mark M]
    python report.py RUN --test-source-file FILE --test-target-file FILE

The files are those that `unitk preprocess` was given. Of several references the one with the best
F1 counts. The first one and three sentences of the source are scored beside, and the first that
announces what an abstract is about (../rules.py). Writes RUN/report.md, and the texts that were
scored.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rules import find_announcement
from shared import (
    describe_stages,
    markdown_table,
    read_outputs,
    read_record_pairs,
    save_texts,
    show_examples,
)

from unitk.data.files.documents import split_sentences
from unitk.data.files.files import pair_blocks
from unitk.data.files.pairs import Fields, PairText, join_sentences
from unitk.metrics.rouge import rouge
from unitk.metrics.stats import stats

SHOWN = 5
SOURCE = 600
"""Characters of a source that are shown."""
COLUMNS = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeLsum": "ROUGE-Lsum",
    "words": "words",
    "new1": "new words, %",
    "new2": "new bigrams, %",
    "new3": "new trigrams, %",
    "repeated": "repeated trigrams, %",
}


def read_test(args: argparse.Namespace) -> list[PairText]:
    """The test set, with all references."""
    if args.test_source_file:
        both = pair_blocks(args.test_source_file, args.test_target_file)
        return [pair for block in both for pair in block.pairs]
    names = [tuple(text.split(",")) for text in (args.source_field, args.target_field)]
    return read_record_pairs(args.test, Fields(*names, args.sentence_mark, args.skip_empty))


def row(texts: list[str], pairs: list[PairText], separator: str) -> dict[str, float]:
    """The figures of summaries of the sources of pairs."""
    references = [[pair.target, *pair.others] for pair in pairs]
    sources = [pair.source[-1] for pair in pairs]
    figures = rouge(texts, references, separator=separator).figures
    targets = [pair.target for pair in pairs]
    return figures | stats(texts, targets, sources, separator=separator).figures


def cells(figures: dict[str, float]) -> list[str]:
    """A row of the table; not every text has all figures."""
    return [f"{figures[key]:.1f}" if key in figures else "" for key in COLUMNS]


def example(number: int, pair: PairText, written: str) -> str:
    """A summary beside its source."""
    return (
        f"### {number}\n\n> {pair.source[-1][:SOURCE]} ...\n\n"
        f"- **written**: {written}\n- wanted: {pair.target}\n"
    )


def main() -> None:
    """Print the table and write everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    for name in ("test", "test-source-file", "test-target-file"):
        parser.add_argument(f"--{name}", type=Path)
    for name in ("source-field", "target-field", "sentence-mark"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--skip-empty", action="store_true")
    args = parser.parse_args()
    run, separator = args.run, args.sentence_mark or "<q>"
    pairs, written = read_test(args), read_outputs(args.run)
    assert len(pairs) == len(written), f"{len(written)} outputs for {len(pairs)} sources"
    leads = [split_sentences(pair.source[-1], "punct") for pair in pairs]
    first, three = (
        [join_sentences(lead[:n], args.sentence_mark) for lead in leads] for n in (1, 3)
    )
    by_rule = [find_announcement(lead) for lead in leads]
    sources = [pair.source[-1] for pair in pairs]
    save_texts(run, written=written, first=first, announcing=by_rule, sources=sources)
    count = max(len(pair.others) for pair in pairs) + 1
    for n in range(count):
        several = [[pair.target, *pair.others] for pair in pairs]
        save_texts(run, **{f"wanted{n + 1}": [([*own, *[""] * count])[n] for own in several]})
    rows = {
        "written": row(written, pairs, separator),
        "first sentence": row(first, pairs, separator),
        "first three": row(three, pairs, separator),
        "first that announces": row(by_rule, pairs, separator),
    }
    figures = rows["written"]
    rows["wanted"] = {
        key.removeprefix("reference_"): value
        for key, value in figures.items()
        if key.startswith("reference_")
    }
    parts = [
        f"# {len(pairs):,} summaries\n",
        markdown_table(
            ("", *COLUMNS.values()), [(name, *cells(scores)) for name, scores in rows.items()]
        ),
        f"{sum(1 + len(pair.others) for pair in pairs):,} references, of which the best counts;"
        f" {len(set(written)):,} different outputs, {figures['empty']} empty;"
        f" {figures['source_words']:.0f} words a source.\n",
        describe_stages(run),
        f"## {SHOWN} of them\n",
    ]
    parts += show_examples(SHOWN, example, pairs, written)
    (run / "report.md").write_text("\n".join(parts), encoding="utf-8")
    print(f"{parts[1]}\n{parts[2]}\nexamples: {run / 'report.md'}    texts: {run}/*.txt")


if __name__ == "__main__":
    main()
