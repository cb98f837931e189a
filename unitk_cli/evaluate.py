"""`unitk evaluate`: measure a trained model on a corpus or on texts."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence

from unitk.api.evaluate import measure, parse_evaluate
from unitk.errors import printable


def run(argv: Sequence[str]) -> None:
    """Measure and print."""
    parsed = parse_evaluate(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is temporary is removed then
    from unitk.kernels.products import keep_memory

    keep_memory()
    about, judged = measure(parsed)
    if parsed.main.output_format == "json":
        print(json.dumps(about | judged.figures))
        return
    print(
        *(f"{name:<24}{printable(value)}" for name, value in about.items()), *judged.lines, sep="\n"
    )
