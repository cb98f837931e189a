"""BLiMP's accuracy and the losses at each count of words, as a table and a chart.

Reads RUN/train and RUN/blimp; writes RUN/table.md, RUN/table.json and RUN/curve.png. Of a folder of
seeds, RUN/seed-1 and so on, whose tables are written, it writes the means with their range.
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from shared import markdown_table, parse_arguments, read_stage_events

from unitk.training.saving.folder import find_checkpoint
from unitk.training.saving.state import read_state

LOSSES = {"valid/loss": "causal", "valid.lm/loss": "causal", "valid.mlm/loss": "masked"}
"""Names of validation losses, of a single objective and of two -> what they are called."""
MAIN = "results/entry/main/zero_shot/causal/blimp/blimp_filtered/scores.json"
"""What the model that is uploaded as main reaches on all pairs."""
JUDGES = {"lm": "BLiMP, causal", "mlm": "BLiMP, masked"}


def rows(run):
    """A record for each checkpoint, in the order of their words."""
    valid, lines = read_stage_events(run / "train", "valid"), []
    for link in (run / "train").glob("words_*"):
        state = read_state(find_checkpoint(link))
        last = [event for event in valid if event["step"] <= state["step"]][-1:]
        judged = {
            title: json.loads(path.read_text())["mean_of_sets"]
            for task, title in JUDGES.items()
            if (path := run / "blimp" / f"{link.name}-{task}.json").exists()
        }
        losses = {
            f"loss, {kind}": event[name]
            for event in last
            for name, kind in LOSSES.items()
            if name in event
        }
        lines.append({"words": state["words"], "updates": state["step"], **losses, **judged})
    return sorted(lines, key=lambda line: line["words"])


def over_seeds(runs):
    """The means and the ranges of the tables of several seeds, whose rows are as many."""
    tables = [json.loads((run / "table.json").read_text()) for run in runs]
    rows_of_means = []
    for rows in zip(*tables, strict=True):
        means = {}
        for title in rows[0]:
            values = [row[title] for row in rows]
            means[title] = sum(values) / len(values)
            if title in JUDGES.values():
                means[f"{title}, range"] = f"{min(values):.2f} to {max(values):.2f}"
        rows_of_means.append(
            {**means, "words": round(means["words"]), "updates": round(means["updates"])}
        )
    return rows_of_means


def all_pairs(paths):
    """A sentence about the models that are uploaded; empty where there is none."""
    scores = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not scores:
        return ""
    means = [score["mean_of_sets"] for score in scores]
    spread = f" ({min(means):.2f} to {max(means):.2f})" if len(means) > 1 else ""
    what = f"{len(means)} models" if len(means) > 1 else "the model"
    return (
        f"\nBLiMP of {what} to upload, {scores[0]['pairs']:,} pairs, mean of"
        f" {len(scores[0]['sets'])} sets: {sum(means) / len(means):.2f}{spread}\n"
    )


def cell(value):
    """A figure as the table has it."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value


def draw(rows, titles, path):
    """The curves over words."""
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for title in titles:
        axes.plot(
            *zip(*((row["words"], row[title]) for row in rows), strict=True), "o-", label=title
        )
    axes.axhline(50, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="words read", ylabel="mean over BLiMP's sets, %")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main(run):
    seeds = sorted(run.glob("seed-*"))
    results = over_seeds(seeds) if seeds else rows(run)
    judges = [word for title in JUDGES.values() for word in (title, f"{title}, range")]
    columns = ("words", "updates", "loss, causal", "loss, masked", *judges)
    titles = [title for title in columns if any(title in row for row in results)]
    shown = [[cell(row.get(title, "")) for title in titles] for row in results]
    text = markdown_table(titles, shown) + all_pairs([folder / MAIN for folder in seeds or [run]])
    (run / "table.md").write_text(text)
    (run / "table.json").write_text(json.dumps(results, indent=1) + "\n")
    if judged := [title for title in JUDGES.values() if title in titles]:
        draw(results, judged, run / "curve.png")
    print("\n" + text)


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
