"""Errors in the user's words: a file is named after the option that gives it."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

from unitk.api.verb import Verb, VerbGroup
from unitk.errors import UnitkError, UsageError
from unitk.options.fields import flag, options, type_name
from unitk.options.settings import UNFLAGGED, Settings, read_flags, read_options
from unitk.registry import PLUGIN

DEPTH = FEW = 6
"""How far a plug-in is looked for from what a line holds, and among how many items of a list."""


@contextmanager
def naming_files(verb: Verb | VerbGroup, words: Sequence[str]) -> Iterator[None]:
    """Put the option of a file or folder in front of an error that begins with its path.

    A plug-in that cannot be called or used as unitk does is a mistake in its file.
    """
    try:
        yield
    except UnitkError as error:
        # the first words may be what is wrong, or a file of --config, or a plug-in
        for read in (read_flags, read_options):
            # notes about the options have been shown before
            silently = redirect_stderr(StringIO())
            with suppress(UnitkError, OSError, IndexError, KeyError), silently:
                if isinstance(verb, VerbGroup):
                    verb = verb.verbs[words[0]]
                    words = words[1:]
                given = read(words, verb.options, verb.words)
                error.args = tuple(_name(str(line), verb, given) for line in error.args)
        raise
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        AssertionError,
        RuntimeError,
    ) as error:
        if file := _plugin_at_fault(error):
            frame, line = [*walk_tb(error.__traceback__)][-1]
            at = f"{Path(frame.f_code.co_filename).name}, line {line}"
            raise UsageError(f"{file}: {type(error).__name__}: {error} (at {at})") from error
        raise


def _plugin_at_fault(error: Exception) -> str:
    """The file of a plug-in that has given unitk what it cannot use, with the line of its last call
    if there is one; "" if no plug-in takes part, or if the error is in a plug-in's own lines."""
    called = re.split(r"\W", str(error))[0]  # as in `Mine.prompt() takes 1 positional argument`
    frames = [*walk_tb(error.__traceback__)]
    for frame, line in reversed(frames):
        if frame.f_globals.get("__name__", "").startswith(PLUGIN):
            return "" if frame is frames[-1][0] else f"{frame.f_code.co_filename}, line {line}"
    for name, module in [*sys.modules.items()]:
        if name.startswith(PLUGIN) and getattr(vars(module).get(called), "__module__", "") == name:
            return str(module.__file__)
    # what unitk's lines hold, and what that holds: a task is that of a generator
    lines = [[*frame.f_locals.values()] for frame, _ in reversed(frames)]
    for level in [[getattr(error, "obj", None)], *lines]:
        for _ in range(DEPTH):
            owners = (str(getattr(one, "__module__", "")) for one in level)
            if first := next((owner for owner in owners if owner.startswith(PLUGIN)), ""):
                return str(sys.modules[first].__file__)
            level = [inner for one in level for inner in _held(one)]
    return ""


def _held(value: object) -> Iterable[object]:
    """What an object or a collection of a few holds."""
    if isinstance(value, dict | list | tuple):
        return [*(value.values() if isinstance(value, dict) else value)][:FEW]
    return () if isinstance(value, ModuleType) else getattr(value, "__dict__", {}).values()


def _name(message: str, verb: Verb, settings: Settings) -> str:
    own = options(verb.options)
    kinds = {option.name: type_name(option.type) for option in own}
    # what reads a file serves verbs that lack an option which would help
    for see in {*re.findall(", see (--[a-z-]+)", message)} - {option.flag for option in own}:
        message = message.replace(f", see {see}", "")
    flags: dict[str, list[str]] = {}  # path of the message's first file -> options that have it
    for key, given in settings.items():
        texts = [*filter(None, given.words)]  # a name may have a comma or a = itself
        for part in {*texts, *re.split("[,=]", ",".join(texts))}:
            path = str(Path(part))
            # any option is one wherever the message has its value and a colon
            named = message.startswith(f"{part}: ")
            is_path = (
                named
                or kinds.get(key, "").startswith("path")
                or (part != "." and os.path.lexists(part))
            )
            if not part or not is_path or given.where == UNFLAGGED:
                continue
            begins = "|".join(map(re.escape, _beginnings(path)))
            if re.match(f"({begins})[ :,/]", message):
                flags.setdefault(path, []).append(flag(key))
    return f"{' and '.join(flags[max(flags, key=len)])} {message}" if flags else message


def _beginnings(path: str) -> list[str]:
    """How messages may begin that are about a path, or about a file that it stands for."""
    if path == "-":
        return ["standard input"]
    matches = glob.glob("*" if path == "." else path, recursive=True)
    return [path, os.path.abspath(path), *matches]
