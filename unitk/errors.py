"""Errors that a user can make, each with its exit code of the command line."""

from __future__ import annotations

import keyword
import os
import re
import sys
from contextlib import suppress
from typing import Self

QUIET = "UNITK_QUIET"
"""Environment variable: neither progress nor what goes well is shown (`--quiet`)."""

REPORT = "UNITK_REPORT"
"""Environment variable: the file for the error of a process, which who started it prints."""


def shows_progress() -> bool:
    """Whether to show progress: to a terminal or a notebook, unless --quiet is set."""
    return (sys.stderr.isatty() or "ipykernel" in sys.modules) and QUIET not in os.environ


FLAG = re.compile(
    r"(?<![\w/.-])--([a-z]\w*(?:[.-]\w+)*)"
    r"""|(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)"""
)
"""An option in a message: `--max-len`, or `--task.mean-span` of a component; or a quoted text, in
which no option is meant."""
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that end a line, turn it around or say to a terminal what it should do."""
BUNDLED = os.path.join(os.path.dirname(__file__), "pretrained", "")
"""Where the models that come with unitk are."""


def printable(text: object) -> str:
    """A text in one line as a terminal may have it: other characters as Python's escapes.

    Names, keys and answers that others wrote may have any characters in them. A model that comes
    with unitk is shown by its name, and a path below the current folder as one types it there.
    """
    text = str(text).replace(BUNDLED, "")
    with suppress(OSError):  # the folder may be gone
        text = re.sub(rf"(?<![^\s'\"(=]){re.escape(os.getcwd())}/(?=[\w.])", "", text)
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(*lines: object) -> None:
    """Print lines of a message to standard error, if it takes them: work goes on without."""
    with suppress(OSError):
        print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


def print_note(*lines: object) -> None:
    """Print lines about files, which are worth more than the lines if these are lost."""
    try:
        print(*map(printable, lines), sep="\n", flush=True)
    except OSError:
        silence()


def silence() -> None:
    """Discard what standard output still holds, about which Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class UnitkError(Exception):
    """A mistake that is reported in one line, without a traceback; `code` is the exit code.

    Several mistakes at once are several arguments, a line each. Messages are written with flags, as
    the command line shows them. To other callers `str` names the arguments: `--max-len must be ...`
    reads `max_len must be ...`, and `--task.mean-span` is `task.mean_span`, a key of `options`.
    """

    code = 1
    with_flags = False  # whether this process is a command line; set by its entry point

    def __str__(self) -> str:
        text = "\n".join(map(printable, self.args))
        return text if UnitkError.with_flags else FLAG.sub(_argument, text)

    def replace(self, old: str, new: str) -> Self:
        """The same error with an expression replaced, in its message as it was written."""
        return type(self)(*(re.sub(old, new, str(line)) for line in self.args))


def _argument(flag: re.Match[str]) -> str:
    if flag[1] is None:
        return flag[0]
    name = flag[1].replace("-", "_")
    return name + "_" * keyword.iskeyword(name)


class UsageError(UnitkError):
    """A wrong option, or options that contradict each other: names them and what is possible."""

    code = 2


class DataError(UnitkError):
    """A file that cannot be read or does not fit: names the file and the line."""

    code = 3


class CheckpointError(UnitkError):
    """A checkpoint that cannot be written, is damaged, or belongs to something else."""

    code = 4


class NonFiniteError(UnitkError):
    """Training met NaN or infinity more often than `--on-nonfinite` allows, or a model has it."""

    code = 5


class RanksError(UnitkError):
    """Another process of the run is gone, does not answer or was started otherwise."""

    code = 6


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is too little memory, whichever library raised it."""
    name = type(error).__name__
    text = str(error)
    host = re.search("CPUAllocator|bad_alloc|can(?:'|no)t allocate|array is too big", text, re.I)
    return isinstance(error, MemoryError) or name == "OutOfMemoryError" or host is not None


def refusal(error: OSError) -> str:
    """The reason in an error of the operating system, after the file that it names, if any."""
    named = error.filename2 or error.filename, error.strerror
    return ": ".join(map(str, filter(None, named))) or str(error)


def show_value(value: object) -> str:
    """A value of Python in a message: its repr, of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def amount(number: int, nouns: str) -> str:
    """A number of things, whose plural ends in s: `1 update`, `2,000 updates`."""
    return f"{number:,} {nouns.removesuffix('s') if number == 1 else nouns}"


def require(holds: object, message: str) -> None:
    """Raise a `UsageError` unless the condition holds; the message names the option."""
    if not holds:
        raise UsageError(message)


def check_option(given: object, key: str, holds: bool, what: str) -> None:
    """Raise a `UsageError` unless an option of `given` is `what` it must be.

    `key` is its whole name, as in "task.mean_span".
    """
    value = str(getattr(given, key.rpartition(".")[2]))
    shown = {"True": "on", "False": "off"}.get(value, value)
    require(holds, f"--{key.replace('_', '-')} must be {what}, got {shown}")
