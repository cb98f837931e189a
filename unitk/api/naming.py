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
                verb, words = verb.verbs[words[0]], words[1:]
            error.args = tuple(_name(str(line), verb, words) for line in error.args)
        raise


def _name(message: str, verb: Verb, words: Sequence[str]) -> str:
    kinds = {one.name: type_name(one.type) for one in options(verb.options)}
    found: dict[str, list[str]] = {}
    for key, one in read_options(words, verb.options, verb.words).items():
        for part in re.split("[,=]", ",".join(filter(None, one.words))):
            named = kinds.get(key, "").startswith("path") or os.path.lexists(part)
            head = str(Path(part)) if part and named and one.where != UNFLAGGED else message
            if message.startswith(head) and re.match("[ :,/]", message[len(head) :]):
                found.setdefault(head, []).append(flag(key))
    return f"{' and '.join(found[max(found, key=len)])} {message}" if found else message
