"""BLiMP's accuracy and the losses at each count of words, as a table and a chart.

Reads RUN/train and RUN/blimp; writes RUN/table.md, RUN/table.json and RUN/curve.png.
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from stages import arguments, events, table

from unitk.training.saving.folder import find
from unitk.training.saving.state import read_state

JUDGES = {"lm": "BLiMP, causal", "mlm": "BLiMP, masked"}


def rows(run):
    """A record for each checkpoint, in the order of their words."""
    valid, found = events(run / "train", "valid"), []
    for link in (run / "train").glob("words_*"):
        state = read_state(find(link))
        last = [event for event in valid if event["step"] <= state["step"]][-1:]
        judged = {
            title: json.loads(path.read_text())["mean_of_sets"]
            for task, title in JUDGES.items()
            if (path := run / "blimp" / f"{link.name}-{task}.json").exists()
        }
        losses = {
            f"loss, {kind}": event[f"valid.{task}/loss"]
            for event in last
            for task, kind in (("lm", "causal"), ("mlm", "masked"))
        }
        found.append({"words": state["words"], "updates": state["step"], **losses, **judged})
    return sorted(found, key=lambda one: one["words"])


def draw(found, titles, path):
    """The curves over words."""
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for title in titles:
        axes.plot(
            *zip(*((one["words"], one[title]) for one in found), strict=True), "o-", label=title
        )
    axes.axhline(50, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="words read", ylabel="mean over BLiMP's sets, %")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main(run):
    found = rows(run)
    columns = ("words", "updates", "loss, causal", "loss, masked", *JUDGES.values())
    titles = [title for title in columns if any(title in one for one in found)]
    shown = [
        [
            f"{one[t]:,}" if isinstance(one.get(t), int) else f"{one[t]:.2f}" if t in one else ""
            for t in titles
        ]
        for one in found
    ]
    text = table(titles, shown)
    (run / "table.md").write_text(text)
    (run / "table.json").write_text(json.dumps(found, indent=1) + "\n")
    if judged := [title for title in JUDGES.values() if title in titles]:
        draw(found, judged, run / "curve.png")
    print("\n" + text)


if __name__ == "__main__":
    main(*arguments(__doc__, run=Path))
