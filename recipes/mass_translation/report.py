"""The table of MASS for translation.

BLEU on the test set from language 0 into 1 after so many epochs, of fine-tuning and then of
back-translation.
"""

from __future__ import annotations

import json
from pathlib import Path

from shared import markdown_table, parse_arguments, publish_table, read_stage_events

from unitk.metrics.bleu import bleu

STAGES = {"back": ["mass", "back"]}
"""Row -> its stages after the pre-training, where there is not one of its own name alone."""
ABOUT = {
    "scratch": "pairs without pre-training",
    "mass": "MASS, then pairs",
    "back": "MASS, pairs, then back-translation",
    "unsupervised": "MASS, then back-translation, no pairs",
}


def texts_of(run: Path, name: str) -> tuple[list[str], list[str]]:
    """The lines of both languages."""
    first, second = (
        (run / "text" / f"{name}.{language}").read_text(encoding="utf-8").splitlines()
        for language in (0, 1)
    )
    return first, second


def curve(run: Path, stage: str) -> str:
    """BLEU of the checkpoints of a stage, each after its epoch."""
    # pairs are read in both directions, too
    first, second = texts_of(run, "mono" if stage in ("back", "unsupervised") else "pairs")
    last = read_stage_events(run / stage, "train")[-1]
    rate = last["texts"] / last["step"] / (len(first) + len(second))
    scores = json.loads((run / f"{stage}.bleu.json").read_text())
    return ", ".join(f"{int(step) * rate:.3g}: {value:.1f}" for step, value in scores.items())


def main(run: Path, rows: list[str]) -> None:
    """Print and write the table."""
    sources, right = texts_of(run, "test")
    copied = bleu(sources, [[reference] for reference in right]).figures["bleu"]
    lines = [["copy the words", f"{copied:.1f}", "", ""]]
    for row in rows:
        stages = STAGES.get(row, [row])
        final = [*json.loads((run / f"{stages[-1]}.bleu.json").read_text()).values()][-1]
        spent = sum(read_stage_events(run / stage, "train")[-1]["seconds"] for stage in stages)
        curves = "; then ".join(curve(run, stage) for stage in stages)
        lines.append([ABOUT[row], f"{final:.1f}", curves, f"{spent / 60:.1f}"])
    text = markdown_table(["", "BLEU", "epoch: BLEU", "minutes"], lines)
    if rows != ["scratch"]:
        event = read_stage_events(run / "pretrain", "train")[-1]
        spent = f"{event['seconds'] / 60:.1f} minutes"
        text += f"\nMASS: {event['step']:,} updates, {event['texts']:,} texts in all, {spent}.\n"
    publish_table(run, text)


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, rows=[str]))
