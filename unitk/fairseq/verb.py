"""`unitk fairseq-plugin`: use unitk's objectives in fairseq's trainer."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from unitk import registry
from unitk.api.verb import verb
from unitk.errors import CheckpointError, print_note, require
from unitk.files import create, new_folder
from unitk.options.config import Parsed
from unitk.registry import register


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write a folder for fairseq's --user-dir. It adds unitk's tasks and architectures (unitk_NAME)
    and the criterion unitk to fairseq's own trainer. DATA is a folder of `unitk preprocess` or a
    data-bin. See docs/interop.md.

    unitk fairseq-plugin --dest objectives
    fairseq-train DATA --user-dir objectives --task unitk_lm --criterion unitk
        --arch unitk_gpt2_small --unitk-options 'block-size=128' ...
    """

    dest: Path
    """Folder to write, empty or absent. fairseq imports it by its name."""
    user_dir: Path | None = None
    """Folder of unitk plug-ins to make known to fairseq as well."""


PLUGIN = '''\
"""unitk's objectives inside fairseq, for --user-dir; written by `unitk fairseq-plugin`."""

from unitk.fairseq.trainer import register

register({})
'''


def value(parsed: Parsed) -> Path:
    """Write the folder; its path."""
    options: Options = parsed.main
    name = options.dest.name
    # fairseq imports the folder by its name, beside all that is installed
    free = name.isidentifier() and not is_taken(name, options.dest)
    require(
        free, f"--dest {options.dest}: fairseq imports it as {name!r}, which is not a free name"
    )
    registry.load_plugins(options.user_dir)  # its mistakes are told here
    user_dir = repr(str(options.user_dir.resolve())) if options.user_dir else ""
    with new_folder(options.dest, "--dest", CheckpointError) as folder:
        create(folder / "__init__.py", PLUGIN.format(user_dir))
    return options.dest


@register("verb", "fairseq_plugin")
@verb(Options, value=value, example='(dest="objectives")')
def run(parsed: Parsed) -> None:
    """Write the folder, and print the command that reads it."""
    dest = value(parsed)
    print_note(f"fairseq-train DATA --user-dir {dest} --task unitk_NAME --criterion unitk ...")


def is_taken(name: str, dest: Path) -> bool:
    """Whether a module other than that of `dest` has this name."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:  # none, or a mere folder
        return False
    return Path(spec.origin).parent != dest.resolve()
