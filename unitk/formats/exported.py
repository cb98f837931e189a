"""The temporary transformers folder that the exports to other runtimes start from."""

from __future__ import annotations

import importlib.util
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unitk.errors import UsageError
from unitk.files import copy
from unitk.formats.hf.families import kind_of
from unitk.formats.hf.folder import write as write_folder
from unitk.training.saving.checkpoint import Loaded

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@contextmanager
def hf_folder(
    parts: Loaded, folder: Path, target: str, check: Callable[[str, str], None]
) -> Iterator[tuple[Path, Any]]:
    """Export a model to a temporary transformers folder; yields the folder and its config.json.

    The tokenizer's files are copied to `folder`. `check` gets the name of the family and the kind
    of the head, and refuses what the format `target` has no place for. Raises `UsageError` if
    transformers or the package of that format, which has its name, is not installed.
    """
    # what no package can change comes first
    head = parts.task.head
    with as_target(target):
        check(kind_of(parts.model.config, parts.config.get("arch", ""), head), head)
    for name in (target, "transformers"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f"--to {target} needs the package {name}: pip install 'unitk[{target}]'"
            )
    from transformers.utils import logging as talk

    shows_progress = talk.is_progress_bar_enabled()
    level = talk.get_verbosity()
    with tempfile.TemporaryDirectory(prefix="unitk-") as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their own deprecations
        with as_target(target):
            write_folder(parts, Path(place))
        for name in TOKENIZER:
            if Path(place, name).exists():
                copy(Path(place, name), folder / name)
        try:
            # loaders show bars, and list every tensor that a format leaves out
            talk.disable_progress_bar()
            talk.set_verbosity_error()
            yield Path(place), json.loads(Path(place, "config.json").read_text(encoding="utf-8"))
        finally:
            talk.set_verbosity(level)
            if shows_progress:
                talk.enable_progress_bar()


@contextmanager
def as_target(target: str) -> Iterator[None]:
    """Let errors of an export name the format that was asked for."""
    try:
        yield
    except UsageError as error:
        raise error.replace("--to hf", f"--to {target}") from error
