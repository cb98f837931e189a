"""Configurations that come with unitk, by name: `unitk train --config summarize`.

NAME.yaml has the settings of a recipe. Its first line says what it is for; the lines after it what
the recipe reached with it.
"""

from __future__ import annotations

from pathlib import Path

from unitk.registry import nearest

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The configurations there are."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def about(name: str) -> str:
    """The purpose of a configuration and the score that it reached, in one line."""
    lines = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))


def file_of(path: Path) -> Path:
    """The file of a configuration, where `path` is the name of one and no file; else `path`."""
    return path if path.exists() or str(path) not in names() else FOLDER / f"{path}.yaml"


def hint(path: Path) -> str:
    """A hint for a name that no file has: a configuration of a near one, or all for a bare name."""
    if file_of(path).exists():
        return ""
    known = names()
    is_name = not path.suffix and path.name == str(path)
    listed = f" (those that come with unitk: {', '.join(known)})" if is_name else ""
    return nearest(path.stem, known) or listed
