"""`unitk train`: pre-train on text, fine-tune on pairs."""

from __future__ import annotations

from collections.abc import Sequence

from unitk.train.start import parse_train, prepare


def run(argv: Sequence[str]) -> None:
    """Refuse what can be refused, then import torch and train."""
    parsed = parse_train(argv)
    from unitk.train.log import show_log

    show_log()
    start = prepare(parsed)
    from unitk.train.loop import train

    train(start)
