"""What other runtimes take is made from a folder of transformers: this writes one for a while."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unitk.errors import UsageError
from unitk.interop import hf
from unitk.interop.convert import Parts

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@contextmanager
def hf_folder(
    parts: Parts, folder: Path, target: str, *packages: str
) -> Iterator[tuple[Path, Any]]:
    """A folder of transformers with a model, and its config.json; `folder` gets the tokenizer.

    UsageError where one of the packages that the target format needs is not installed.
    """
    for name in (*packages, "transformers"):
        if importlib.util.find_spec(name) is None:
            cure = f"pip install 'unitk[{target}]'"
            raise UsageError(f"--to {target} needs the package {name}: {cure}")
    from transformers.utils import logging as talk

    shown, level = talk.is_progress_bar_enabled(), talk.get_verbosity()
    with tempfile.TemporaryDirectory(prefix="unitk-") as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their own deprecations
        hf.write(parts, Path(place))
        for name in TOKENIZER:
            if Path(place, name).exists():
                shutil.copy(Path(place, name), folder)
        try:
            # loaders show bars, and list every tensor that a format leaves out
            talk.disable_progress_bar()
            talk.set_verbosity_error()
            yield Path(place), json.loads(Path(place, "config.json").read_text(encoding="utf-8"))
        finally:
            talk.set_verbosity(level)
            if shown:
                talk.enable_progress_bar()
