"""Processes that work for this one; each of them may die at any moment without harm.

A worker has a connection of its own. If it dies, its caller gets an error at once, also in the
middle of a message; a pool whose processes share a pipe may wait for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from unitk.errors import UnitkError


class Worker:
    """A process that calls a function again and again: the result of `begin(*state)` in it.

    `begin`, all arguments and all results must be picklable. `cure` is what messages advise if
    memory is short.
    """

    def __init__(self, cure: str, begin: Callable[..., Callable[..., Any]], *state: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.cure = cure
        self._first: tuple[Any, ...] | None = (begin, *state)
        try:
            self._connection, other_end = context.Pipe()
            self._process = context.Process(target=_serve, args=(other_end,), daemon=True)
            with _starting():
                self._process.start()
        except OSError as error:  # the system allows no further process or file
            raise UnitkError(
                f"no worker process can be started: {error.strerror}; {cure}"
            ) from error
        other_end.close()  # or the end of the process would not end the connection

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; raises what it raises, or `UnitkError` if the process has died."""
        try:
            if self._first:
                self._connection.send(self._first)
                self._first = None
            self._connection.send(arguments)
            good, answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else "ended early"
            cure = f" (out of memory?): {self.cure}" if code == -signal.SIGKILL else ""
            raise UnitkError(f"a worker process {how}{cure}") from None
        if not good:
            raise answer
        return answer

    def close(self) -> None:
        """End the process at once; a caller that waits for it gets an error."""
        self._process.kill()
        self._process.join()


@contextmanager
def _starting() -> Iterator[None]:
    """A context in which started processes print no errors, and are passed little.

    A signal that ends them during their imports would print a traceback. Errors of their work are
    raised in this process anyway. What multiprocessing passes must fit into a pipe: if the process
    died before it read, this one would wait for ever.
    """
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    words = sys.argv
    sys.argv = sys.argv[:1]
    os.dup2(null, 2)
    try:
        yield
    finally:
        sys.argv = words
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _serve(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:  # a parent that is killed cannot do so
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    begin, *state = connection.recv()
    function = begin(*state)
    while True:
        arguments = connection.recv()
        try:
            answer = True, function(*arguments)
        except BaseException as error:  # whatever it is, the parent must get it
            if not isinstance(error, UnitkError):
                error.add_note(traceback.format_exc())
            answer = False, error
        connection.send(answer)
