"""`unitk plot`: the curves of runs as an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unitk.errors import require
from unitk.options import config
from unitk.pictures import check_picture


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


def run(argv: Sequence[str]) -> None:
    """Draw the image and print its path."""
    given: Options = config.parse("plot", Options, argv, positional="runs").main
    require(len(given.runs) > 0, "--runs: name a run folder")
    output = given.output or given.runs[0] / "curves.png"
    from unitk.training.reporting.plots import plot

    plot(given.runs, output)
    print(output)
