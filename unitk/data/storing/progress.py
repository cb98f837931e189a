"""The progress bar of preprocessing, on a terminal only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from unitk.data.reading.sources import Block, PairBlock
from unitk.errors import talks


class Progress:
    """Shows how far into `size` bytes on disk the reader is, and how much text is done."""

    def __init__(self, name: str, size: int) -> None:
        self._bar: Any = None
        self._start = time.perf_counter()
        if not talks():
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn(name),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[speed]:>6.1f} MB/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(name, total=size, speed=0.0)

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def follow(self, blocks: Iterable[Block | PairBlock]) -> Iterator[Block | PairBlock]:
        """The blocks, as the reader comes to them."""
        for block in blocks:
            if self._bar:
                self._bar.update(self._task, completed=block.at)
            yield block

    def tell(self, num_bytes: int) -> None:
        """So much text is encoded."""
        if self._bar:
            speed = num_bytes / 1e6 / (time.perf_counter() - self._start)
            self._bar.update(self._task, speed=speed)
