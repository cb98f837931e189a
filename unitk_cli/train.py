"""`unitk train`: pre-train on text, fine-tune on pairs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from unitk.training.config import launched, process_ranks
from unitk.training.signals import Signals
from unitk.training.start import parse_train, prepare


def run(argv: Sequence[str]) -> None:
    """Check all options, then import torch and train, in one process or in several."""
    with Signals(saves=False):
        parsed = parse_train(argv)
        from unitk.training.reporting.log import show_log

        show_log(logging.INFO if process_ranks()[0] == 0 else logging.ERROR)
        if parsed.main.seeds:
            from unitk.training.seeds import train_seeds

            train_seeds(parsed)
            return
        start = prepare(parsed)
        if parsed.main.nproc > 1 and not launched():
            from unitk.training.parallel import launch

            launch(parsed.main.nproc, argv, parsed.main.rank_timeout)
        else:
            from unitk.training.loop import train

            train(start)
