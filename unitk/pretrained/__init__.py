"""Models that come with unitk: a checkpoint each, in a folder of its name.

    NAME/README.md            the card: data, licences, how it was trained, scores, limits
    NAME/model.safetensors    the weights, in bf16
    NAME/generate.yaml        how it is meant to be decoded, if it writes from a source
    NAME/state.json  vocab/  manifest.json    as in every checkpoint; nothing of the optimizer

Wherever a run or a checkpoint is asked for, such a name will do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from unitk import registry
from unitk.files import MANIFEST, RemotePath
from unitk.registry import nearest

FOLDER = Path(__file__).parent
fetched: dict[str, dict[str, Any]] = {}
"""What this process has fetched by name: its revision, and the SHA-256 of its files."""


def names() -> list[str]:
    """The models there are."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{MANIFEST}"))


def about(name: str) -> str:
    """One line about a model: the title of its card."""
    with (FOLDER / name / "README.md").open(encoding="utf-8") as card:
        return card.readline().strip("# \n").removeprefix(f"{name}: ")


def locate(path: Path, part: str = "checkpoint") -> Path:
    """The folder of a model, where `path` is the name of one; anything else as it is given.

    A name that begins with that of a registered hub, such as hf:ORG/NAME@REVISION, is fetched;
    `part` says what is wanted of it: checkpoint, vocab, corpus, files, or a file of data. A file or
    folder of that name on disk wins.
    """
    if not isinstance(path, RemotePath) and (path.exists() or path.is_symlink()):
        return path
    # a drive of Windows has a colon, too, but no hub its name
    hub, colon, name = str(path).partition(":")
    if colon and hub in registry.sources("hub"):
        return registry.get("hub", hub)(name, part)
    return FOLDER / path if str(path) in names() else path


def hint(path: Path) -> str:
    """A hint for a `path` at which there is nothing.

    It names a model whose name is near; else all models if `path` is a bare name, and how to get a
    model from the hub.
    """
    if near := nearest(str(path), names()):
        return near
    bare = path.name == str(path) and not path.suffix
    every = f" (models that come with unitk: {', '.join(names())})" if bare else ""
    return every + from_hub(path)


def from_hub(path: Path, kind: str = "model") -> str:
    """A hint for a missing `path` that may be a name on the Hugging Face hub.

    "" for a path that looks like one of this machine: the hub's are NAME or ORGANIZATION/NAME.
    """
    name = re.fullmatch(r"(?:([\w-]+)/)?[\w-]+(\.[\w-]*\d[\w-]*)*", path.as_posix())
    if not name or name[1] == "runs" or (name[1] and Path(name[1]).exists()):
        return ""
    by_name = f"hf:{path.as_posix()}"
    if kind != "model":
        by_name = f"hf://datasets/{path.as_posix()}/FILE, an input of `unitk preprocess`"
    return f"; if it is a {kind} of the Hugging Face hub, write {by_name}"
