"""The table of a search: measures of each run of TREC in RUN/found. Writes RUN/table.md."""

from __future__ import annotations

from pathlib import Path

from shared import markdown_table, parse_arguments

import unitk

METRICS = ["ndcg@10", "mrr@10", "recall@1", "recall@10", "recall@100"]
ORDER = ["tfidf", "bm25", "before", "learnt"]


def main(run: Path) -> None:
    """Print the table and write it."""
    rows = []
    for path in sorted((run / "found").glob("*.trec"), key=lambda path: ORDER.index(path.stem)):
        scores = unitk.score(metric=METRICS, hypotheses=path, references=run / "text" / "qrels.txt")
        rows.append(
            [f"`{path.stem}`", *(f"{scores[metric].figures[metric]:.1f}" for metric in METRICS)]
        )
    text = markdown_table(["", *METRICS], rows)
    (run / "table.md").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
