"""The table and the chart of a comparison.

    python3 report.py RUN

Reads RUN/OBJECTIVE/{pretrain,finetune} and RUN/scratch/TASK; prints the table, writes it to
RUN/table.md and RUN/table.json, and the chart to RUN/compare.png.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from stages import events, records, table

from unitk.score.bleu import bleu
from unitk.score.rouge import rouge
from unitk.training.saving.folder import find
from unitk.training.saving.state import read_state

COLUMNS = ["pre-training", "fine-tuned as", "arch", "pre-training loss", "dev loss"]
COLUMNS += ["BLEU-4", "ROUGE-L", "pre-training s", "fine-tuning s"]


def row(objective: str | None, finetune: Path) -> dict[str, Any]:
    """What came of one fine-tuned model."""
    config = read_state(find(finetune))["config"]
    found = records(finetune / "written.jsonl")
    written = [record["outputs"][0]["text"] for record in found]
    references = [[record["target"]] for record in found]
    scores = bleu(written, references, lowercase=True).figures | rouge(written, references).figures
    figures: dict[str, Any] = {
        "pre-training": objective or "none",
        "fine-tuned as": config["task"],
        "arch": config["arch"],
        "dev loss": min(event["valid/loss"] for event in events(finetune, "valid")),
        "BLEU-4": scores["bleu"],
        "ROUGE-L": scores["rougeL"],
        "fine-tuning s": events(finetune, "train")[-1]["seconds"],
    }
    if objective:
        pretrain = finetune.parent / "pretrain"
        figures["pre-training loss"] = events(pretrain, "valid")[-1]["valid/loss"]
        figures["pre-training s"] = events(pretrain, "train")[-1]["seconds"]
    return figures


def collect(run: Path) -> list[dict[str, Any]]:
    """A row for each objective, after it the same without pre-training."""
    rows = [row(path.parent.name, path) for path in sorted(run.glob("*/finetune"))]
    rows += [row(None, path) for path in sorted(run.glob("scratch/*"))]
    return sorted(rows, key=lambda one: (one["fine-tuned as"], one["pre-training"] == "none"))


def shown(value: Any, column: str) -> str:
    """A cell."""
    if not isinstance(value, float):
        return str(value or "")
    digits = 0 if column.endswith(" s") else 3 if "loss" in column else 2
    return f"{value:.{digits}f}"


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Does pre-training beat none on dev loss? Only losses of one kind compare."""
    scratch = {one["fine-tuned as"]: one for one in rows if one["pre-training"] == "none"}
    lines = []
    for one in rows:
        base = scratch.get(one["fine-tuned as"])
        if one["pre-training"] != "none" and base is not None:
            gain = base["dev loss"] - one["dev loss"]
            word = "better" if gain > 0 else "WORSE"
            lines.append(
                f"{one['pre-training']}: dev loss {abs(gain):.3f} {word} than from scratch"
            )
    return lines


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """Bars: dev loss, BLEU-4 and ROUGE-L, pre-trained beside from scratch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [f"{one['pre-training']}\n({one['fine-tuned as']})" for one in rows]
    colours = ["#9d9da1" if one["pre-training"] == "none" else "#4c78a8" for one in rows]
    figure, panels = pyplot.subplots(
        3, 1, figsize=(max(7, len(rows)), 9), sharex=True, layout="constrained"
    )
    for axis, column in zip(panels, ("dev loss", "BLEU-4", "ROUGE-L"), strict=True):
        bars = axis.bar(range(len(rows)), [one[column] for one in rows], color=colours)
        axis.bar_label(bars, [shown(one[column], column) for one in rows], fontsize=8)
        axis.set_title(
            f"{column} (lower is better; compare like with like)" if "loss" in column else column
        )
        axis.margins(y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xticks(range(len(rows)), names, fontsize=8)
    figure.savefig(path, dpi=120)


def main(run: Path) -> None:
    """Print and write everything."""
    rows = collect(run)
    (run / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    cells = [[shown(one.get(column), column) for column in COLUMNS] for one in rows]
    (run / "table.md").write_text(table(COLUMNS, cells))
    chart(rows, run / "compare.png")
    print(table(COLUMNS, cells), *verdicts(rows), f"chart: {run / 'compare.png'}", sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
