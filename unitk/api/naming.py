"""Errors as who typed the words reads them: a file stands behind the option that names it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from unitk.api.verb import Verb, VerbGroup
from unitk.errors import UnitkError
from unitk.options.fields import flag, options, type_name
from unitk.options.settings import UNFLAGGED, read_options


@contextmanager
def naming_files(verb: Verb | VerbGroup, words: Sequence[str]) -> Iterator[None]:
    """Put the option of a file or folder in front of an error that begins with its path."""
    try:
        yield
    except UnitkError as error:
        # the first words may be what is wrong
        with suppress(UnitkError, IndexError, KeyError):
            if isinstance(verb, VerbGroup):
                verb = verb.verbs[words[0]]
                words = words[1:]
            error.args = tuple(_name(str(line), verb, words) for line in error.args)
        raise


def _name(message: str, verb: Verb, words: Sequence[str]) -> str:
    kinds = {option.name: type_name(option.type) for option in options(verb.options)}
    flags: dict[str, list[str]] = {}  # path at the message's beginning -> options that have it
    for key, given in read_options(words, verb.options, verb.words).items():
        texts = [*filter(None, given.words)]  # a name may have a comma or a = itself
        for part in {*texts, *re.split("[,=]", ",".join(texts))}:
            is_path = kinds.get(key, "").startswith("path") or os.path.lexists(part)
            path = str(Path(part)) if part and is_path and given.where != UNFLAGGED else message
            path = "standard input" if path == "-" else path
            if message.startswith(path) and re.match("[ :,/]", message[len(path) :]):
                flags.setdefault(path, []).append(flag(key))
    return f"{' and '.join(flags[max(flags, key=len)])} {message}" if flags else message
