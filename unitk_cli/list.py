"""`unitk list [KIND]`: every registered name with the first line of its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unitk import config, registry
from unitk.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Name everything registered: tasks, architectures, schedules, formats of corpora, ...

    Heads are listed when they are asked for, as that imports torch: `unitk list head`.
    """

    kind: str | None = None
    """This kind: task, criterion, arch, optimizer, schedule, vocab, corpus, annotator, head."""
    user_dir: Path | None = None
    """Folder of plug-ins: every .py in it is imported."""


def run(argv: Sequence[str]) -> None:
    """Print the table."""
    given = config.parse("list", Options, argv, positional="kind").main
    if given.kind is not None and given.kind.removesuffix("s") not in registry.KINDS:
        hint = registry.nearest(given.kind, registry.KINDS)
        raise UsageError(
            f"--kind must be one of {', '.join(registry.KINDS)}, got {given.kind!r}{hint}"
        )
    # those of modules named in MODULES import torch
    quick = [kind for kind in registry.KINDS if kind not in registry.MODULES]
    for kind in quick if given.kind is None else [given.kind.removesuffix("s")]:
        print(f"{kind}")
        for name in registry.names(kind):
            about = (inspect.getdoc(registry.get(kind, name)) or "").split("\n")[0]
            print(f"  {name:<16} {about}")
