"""`unitk plot`: draw the curves of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unitk.api.verb import verb
from unitk.errors import print_note
from unitk.options.config import Parsed
from unitk.pictures import check_picture
from unitk.registry import register


@dataclass(frozen=True, kw_only=True)
class Options:
    """Draw loss, learning rate, gradient norm and speed of runs over each other.

    unitk plot runs/lm runs/glm --output curves.svg
    """

    runs: tuple[Path, ...]
    """Run folders (--save-dir of `unitk train`)."""
    output: Path | None = None
    """Image file: .png, .svg or .pdf. Default: curves.png in the first run."""

    def __post_init__(self) -> None:
        check_picture(self.output, "--output")


def value(parsed: Parsed) -> Path:
    """Draw the image; its path."""
    options: Options = parsed.main
    output = options.output or options.runs[0] / "curves.png"
    from unitk.training.reporting.plots import plot_runs

    plot_runs(options.runs, output)
    return output


@register("verb", "plot")
@verb(Options, words="runs", value=value, example='(runs=["runs/lm"], output="loss.png")')
def run(parsed: Parsed) -> None:
    """Draw the image and print its path."""
    print_note(value(parsed))
