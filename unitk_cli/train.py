"""`unitk train`: pre-train on text, fine-tune on pairs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from unitk.train.start import parse_train, prepare


def run(argv: Sequence[str]) -> None:
    """Refuse what can be refused, then import torch and train."""
    parsed = parse_train(argv)
    from unitk.train.log import show_log

    show_log()
    start = prepare(parsed)
    # OpenMP threads wait for each other by spinning, for milliseconds: where other work has a core
    # (the thread that builds batches is enough), training is up to six times as slow. It is read
    # when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    from unitk.train.loop import train

    train(start)
