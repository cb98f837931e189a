"""The model card of an exported model: how it was trained, its scores and its licence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unitk.errors import UsageError, printable
from unitk.files import VERSION
from unitk.foreign import read_json
from unitk.training.reporting.report import summary
from unitk.training.saving.folder import finding
from unitk.training.saving.state import Progress, read_state

PATHS = (
    *("data", "valid", "save_dir", "config", "user_dir", "init_from", "init_encoder"),
    *("init_decoder", "task.source_vocab"),
)
"""Options with folders of the machine, which say nothing elsewhere."""


def card(path: Path, weights: int, license: str, scores: Sequence[Path], usage: str = "") -> str:
    """The card of a checkpoint, in Markdown with the front matter that the Hugging Face hub reads.

    `weights` is the number of its parameters. `scores` is what `unitk evaluate` and `unitk score`
    print with `--output-format json`; `usage` shows in Markdown how the model is used.
    """
    state = finding(read_state)(path)
    config, at = state["config"], Progress.of(state)
    front = ["library_name: transformers", "tags: [unitk]"]
    front += [f"license: {license}"] * bool(license)
    lines = ["---", *front, "---", "", f"# {printable(path.resolve().name)}", ""]
    made = f"Made with unitk {VERSION}: task {config['task']}, architecture {config['arch']}"
    lines += [f"{made}, {weights / 1e6:.1f} M parameters.", ""]
    unstated = "not stated. The training data may restrict the use of the model"
    lines += [f"Licence: {license or unstated}.", "", *[usage] * bool(usage), "## Training", ""]
    trained = (
        f"{summary(at)}." if at.step else "The weights were imported, and not trained further."
    )
    lines += [trained, "", "| option | value |", "| --- | --- |"]
    shown = {key: value for key, value in config.items() if key not in PATHS and value != "none"}
    lines += [f"| `{_cell(key)}` | {_cell(value)} |" for key, value in shown.items()]
    if scores:
        lines += ["", "## Scores", "", "| scores | metric | value |", "| --- | --- | --- |"]
        for file in scores:
            found = read_json(file, UsageError)
            of = found.get("data", file.stem)
            rows = _numbers(found)
            lines += [f"| {_cell(of)} | {_cell(name)} | {value:.6g} |" for name, value in rows]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    """A name or a value as one cell of a table, whatever is in it."""
    return printable(value).replace("|", "\\|")


def _numbers(found: Mapping[str, Any], owner: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a JSON object; those of inner objects under both names."""
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{owner}{name}/")
        elif isinstance(value, int | float):
            yield owner + name, value
