"""`--profile`: a profile of a few updates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from unitk.files import create

FIRST, UPDATES = 2, 5
"""Updates before the profiled ones (they warm up), and how many of these there are."""

log = logging.getLogger(__name__)


@contextmanager
def profiled(folder: Path | None) -> Iterator[Callable[[], None]]:
    """A function to call after each update; the trace goes into `folder`. None: no profile."""
    if folder is None:
        yield lambda: None
        return

    def done(found: Any) -> None:
        path = folder / "profile.json"
        found.export_chrome_trace(str(create(path)))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = found.key_averages().table(sort_by=by, row_limit=10, max_name_column_width=40)
        log.info("%d updates were profiled; chrome://tracing shows %s", UPDATES, path)
        log.info("%s", table)

    kinds = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(ProfilerActivity.CUDA)
    when = schedule(wait=FIRST - 1, warmup=1, active=UPDATES, repeat=1)
    with profile(activities=kinds, schedule=when, on_trace_ready=done) as found:
        yield found.step
