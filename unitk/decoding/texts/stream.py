"""Yields the pieces of a text that is being written, from a callback in another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread


class Left(Exception):  # noqa: N818  (no error: it ends the work)
    """Raised within the work when the reader of the pieces has stopped."""


def pieces(work: Callable[[Callable[[str], None]], str]) -> Iterator[str]:
    """Yield the pieces of the text that `work` returns, while it works in a thread.

    `work` runs in a thread. It tells the function that it is given the text so far. If the reader
    leaves, the next such call ends it. A text so far that is not the beginning of a later one,
    such as half of a character, is held back.
    """
    news: SimpleQueue[str | BaseException | None] = SimpleQueue()
    left = False

    def tell(text: str) -> None:
        if left:  # the search has no other place at which it can be ended
            raise Left
        news.put(text.removesuffix("\ufffd"))

    def run() -> None:
        try:
            news.put(work(tell))
            news.put(None)
        except BaseException as error:  # it is raised again where the pieces are read
            news.put(error)

    # a generator of Python cannot be entered from within the search, so the search has a thread
    thread = Thread(target=run, name="unitk-stream", daemon=True)
    thread.start()
    sent = ""
    try:
        while (text := news.get()) is not None:
            if isinstance(text, BaseException):
                raise text
            if text.startswith(sent) and text != sent:
                yield text[len(sent) :]
                sent = text
    finally:
        left = True
        thread.join()  # at most a step of the model
