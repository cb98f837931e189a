"""The progress bar of preprocessing, on a terminal only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unitk.errors import talks


@contextmanager
def progress(name: str, size: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call with how far into `size` bytes on disk the reader is, and how many bytes
    of text are done."""
    if not talks():
        yield lambda at, num_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    share = TextColumn("{task.percentage:>3.0f} %  {task.fields[speed]:>6.1f} MB/s")
    columns = TextColumn(name), BarColumn(), share, TimeRemainingColumn()
    start = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=size, speed=0.0)

        def tell(at: int, num_bytes: int) -> None:
            speed = num_bytes / 1e6 / (time.perf_counter() - start)
            bar.update(task, completed=at, speed=speed)

        yield tell
