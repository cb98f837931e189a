"""`unitk average`: average the weights of several checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from unitk.api.verb import verb
from unitk.decoding.files.defaults import read_defaults, write_defaults
from unitk.errors import CheckpointError, amount, print_note, require
from unitk.files import new_folder
from unitk.options.config import Parsed
from unitk.options.fields import Bound, Checked
from unitk.registry import register
from unitk.training.saving.folder import RunFolder, find_checkpoint


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Average the weights of checkpoints of one architecture, task and vocabulary.

    unitk average --checkpoint runs/lm --last 5 --dest runs/mean
    """

    checkpoint: tuple[Path, ...]
    """Checkpoints or run folders, of which the best checkpoint is used. Several follow one another,
    as an unquoted wildcard gives them."""
    last: Annotated[int, Bound(2)] | None = None
    """Average this many of the newest checkpoints of a single run folder. `unitk train --keep-last`
    says how many a run keeps."""
    dest: Path
    """Folder of the checkpoint to write, empty or absent."""


def value(parsed: Parsed) -> Path:
    """Find the checkpoints, average them, and write a folder that is complete or absent."""
    options: Options = parsed.main
    checkpoints = newest(options) if options.last else [*map(find_checkpoint, options.checkpoint)]
    require(len(checkpoints) > 1, "--checkpoint: give two or more, or a run folder with --last N")
    with new_folder(options.dest, "--dest", CheckpointError) as folder:
        # what is wrong with the options was told before torch is imported
        from unitk.training.average import average

        average(checkpoints, folder)
        write_defaults(folder, read_defaults(checkpoints[0]))
    return options.dest


@register("verb", "average")
@verb(Options, value=value, example='(checkpoint="runs/lm", last=2, dest="runs/mean")')
def run(parsed: Parsed) -> None:
    """Write the average, and say where it is."""
    options: Options = parsed.main
    count = amount(options.last or len(options.checkpoint), "checkpoints")
    print_note(f"{value(parsed)}: the mean of {count}")


def newest(options: Options) -> list[Path]:
    """The newest checkpoints of a run, oldest first."""
    assert options.last is not None
    require(len(options.checkpoint) == 1, "--last needs one run folder as --checkpoint")
    run = RunFolder(options.checkpoint[0])
    require(run.checkpoints.is_dir(), f"--last: {run.path} is not a run folder")
    numbers = run.steps()[: options.last]
    if len(numbers) < options.last:
        raise CheckpointError(
            f"--last {options.last}: {run.path} has {amount(len(numbers), 'checkpoints')} (unitk "
            "train --keep-last N keeps more)"
        )
    return [find_checkpoint(run.step(number)) for number in numbers[::-1]]
