"""Verbs of the command line: functions of parsed options, registered by name.

    @register("verb", NAME)
    @verb(Options, words="parts")
    def run(parsed: Parsed) -> None: ...

`unitk --help` prints the first line of its module, which is not imported for it. In Python, verbs
are functions of keyword arguments with the names of the options (functions.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unitk import registry
from unitk.errors import UsageError
from unitk.options import config
from unitk.options.settings import HELP


@dataclass(frozen=True)
class Verb:
    """What a verb does with its options, and how the words of a command line become these."""

    act: Callable[[Any], None]
    options: type
    """The class of its options."""
    words: str | None = None
    """The option that words without a flag belong to."""
    kinds: tuple[str, ...] = ()
    """Kinds of components that the options choose."""
    aside: tuple[str, ...] = ()
    """Kinds of components whose options the checkpoint resolves."""
    parses: bool = False
    """Whether it acts on the words themselves, which it parses in its own way."""
    cure: str = ""
    """What makes it need less memory."""
    behind: str = ""
    """What Python calls the words behind `--`: a dict of the arguments of that verb."""
    records: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Options of files that may be records in memory in Python, and the fields of a record that a
    text or a label stands for; () if it stands for none."""
    value: Callable[[Any], Any] | None = None
    """Finds, of what `act` would be given, what `act` prints: it is returned in Python."""

    def __call__(self, argv: Sequence[str], name: str = "") -> None:
        """Run the verb on the words behind its `name`, by default that of the registry."""
        self.act(self.parsed(argv, name))

    def parsed(self, argv: Sequence[str], name: str = "") -> Any:
        """What `act` and `value` are given: parsed options, or words."""
        if self.parses:
            return argv
        # a verb of a group is told its name; of others the registry knows it
        name = name or registry.name_of("verb", self).replace("_", "-")
        return config.parse(name, self.options, argv, self.kinds, self.words, self.aside)


def verb(options: type, **how: Any) -> Callable[[Callable[[Any], None]], Verb]:
    """A decorator that makes a verb of a function of parsed options; `how`: fields of `Verb`."""
    return lambda act: Verb(act, options, **how)


@dataclass(frozen=True)
class VerbGroup:
    """A verb with verbs of its own, which the first word names."""

    verbs: Mapping[str, Verb]
    cure: str = ""

    def __call__(self, argv: Sequence[str]) -> None:
        """Run a verb, or print what there is."""
        own = registry.name_of("verb", self)
        if not argv or argv[0] in HELP:
            print(f"unitk {own} VERB [options]", "", "Verbs:", sep="\n")
            for name, one in self.verbs.items():
                page = " ".join((one.options.__doc__ or "").split())
                about = re.split("[.:] ", page)[0].rstrip(".")
                print(f"  {name:<15}{about[0].lower()}{about[1:]}")
            print("", f"`unitk {own} VERB --help` lists a verb's options.", sep="\n")
            raise SystemExit(0)
        if argv[0] not in self.verbs:
            hint = registry.nearest(argv[0], self.verbs) or f" (known: {', '.join(self.verbs)})"
            raise UsageError(f"there is no verb {argv[0]!r}{hint}")
        self.verbs[argv[0]](argv[1:], f"{own} {argv[0]}")


def find_verb(name: str) -> Verb | VerbGroup:
    """The verb of that name, which is imported."""
    found: Verb | VerbGroup = registry.get("verb", name.replace("-", "_"))
    return found
