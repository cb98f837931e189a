"""What state.json of a checkpoint says, beside tensors: how far a run has come and what it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Progress:
    """How far a run has come: all that a stopped run needs beside tensors and options."""

    step: int = 0
    """Updates done, skipped ones counted."""
    epoch: int = 0
    cursor: int = 0
    """Units of the epoch's plan that are done."""
    tokens: int = 0
    texts: int = 0
    """What was read, repetitions counted."""
    seconds: float = 0.0
    """Time spent, validations and saving included."""
    bad_steps: int = 0
    bad_row: int = 0
    """Updates skipped for NaN or infinity: all, and the last ones in a row."""
    validated: int = 0
    """Step of the last validation."""
    best: float | None = None
    best_step: int | None = None
    stale: int = 0
    """Validations since the best one."""
    means: dict[str, dict[str, float]] = field(default_factory=dict)
    """Sums and counts since the last log line."""


@dataclass(frozen=True)
class Identity:
    """What a run is: its options, and the data it is bound to."""

    config: dict[str, str]
    """Every option as text under its dotted key."""
    user_dir: str | None
    """Folder of plug-ins, absolute."""
    data: str
    """Fingerprint of the training data and their weights."""
    vocab: str
    """Hash of the vocabulary."""


def read_state(checkpoint: Path) -> dict[str, Any]:
    """state.json of a checkpoint whose manifest holds."""
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return state
