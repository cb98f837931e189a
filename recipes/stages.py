"""What the reports of the recipes share."""

import json
from pathlib import Path

from unitk.training.reporting.sinks import read_events


def outputs(run: Path) -> list[str]:
    """The best output for every source of RUN/written.jsonl."""
    lines = (run / "written.jsonl").read_text(encoding="utf-8").splitlines()
    return [record["outputs"][0]["text"] for record in map(json.loads, lines)]


def save(run: Path, **texts: list[str]) -> None:
    """Write lists of texts as RUN/NAME.txt, a text a line."""
    for name, lines in texts.items():
        one = [line.replace("\n", " ") + "\n" for line in lines]
        (run / f"{name}.txt").write_text("".join(one), encoding="utf-8")


def training(run: Path) -> str:
    """What each stage read and how long it took, in Markdown."""
    lines = []
    for stage in ("pretrain", "finetune"):
        if (run / stage).is_dir():
            last = {event["kind"]: event for event in read_events(run / stage / "log.jsonl")}
            train, valid = last["train"], last["valid"]
            lines.append(
                f"- {stage}: {train['step']:,} updates, {train['tokens']:,} tokens,"
                f" {train['seconds']:.0f} s; validation loss {valid['valid/loss']:.3f}\n"
            )
    return "".join(lines)
