"""The accuracies of IMDb and TREC."""

from __future__ import annotations

from pathlib import Path

from shared import (
    markdown_table,
    parse_arguments,
    publish_table,
    read_stage_events,
    score_majority,
    scores_in,
)


def main(run: Path, sets: list[str], rows: list[str]) -> None:
    """Print and write the table."""
    lines = [["majority class", *(f"{score_majority(run, f'{name}.'):.1f}" for name in sets)]]
    for row in rows:
        accuracies = (scores_in(run / name / f"{row}.json")["accuracy"] for name in sets)
        lines.append([row, *(f"{accuracy:.1f}" for accuracy in accuracies)])
    publish_table(run, markdown_table(["accuracy", *sets], lines))
    print()
    for name in ("general", *(f"{name}.lm" for name in sets)):
        for path in (run / name, run / f"{name}.backward"):
            if path.exists():
                last = read_stage_events(path, "valid")[-1]
                print(f"{path.name}: perplexity {last['valid/lm/ppl']:.1f} of held-out text")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, sets=str.split, rows=[str]))
