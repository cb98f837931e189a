"""The table of a translation.

A row for each system in RUN (folders SYSTEM-SEED with bleu.json), with the mean over its seeds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

from shared import markdown_table, parse_arguments, publish_table, read_stage_events, scores_in


def figures(folder: Path) -> tuple[float, float, int, float]:
    """BLEU of the average, and of the last validation perplexity, updates and minutes."""
    score = scores_in(folder / "bleu.json")
    if (folder / "fairseq.json").exists():
        other = json.loads((folder / "fairseq.json").read_text())
        return score["bleu"], other["perplexity"], other["updates"], other["minutes"]
    valid, train = (read_stage_events(folder / "train", kind)[-1] for kind in ("valid", "train"))
    perplexity = next(value for key, value in valid.items() if key.endswith("/ppl"))
    return score["bleu"], perplexity, train["step"], train["seconds"] / 60


def main(run: Path) -> None:
    """Print and write the table."""
    systems = defaultdict(list)
    for path in sorted(run.glob("*-*/bleu.json")):
        systems[path.parent.name.rpartition("-")[0]].append(figures(path.parent))
    rows = []
    for name, runs_of in systems.items():
        scores, perplexities, updates, minutes = zip(*runs_of, strict=True)
        cells = [f"{mean(scores):.2f}", ", ".join(f"{score:.2f}" for score in scores)]
        cells += [f"{mean(perplexities):.2f}", f"{updates[0]:,}", f"{mean(minutes):.0f}"]
        rows.append([name, *cells])
    titles = ["", "BLEU", "of each seed", "validation perplexity", "updates", "minutes a seed"]
    publish_table(run, markdown_table(titles, rows))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
