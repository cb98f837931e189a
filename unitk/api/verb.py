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
from unitk.errors import UnitkError, UsageError
from unitk.options import config
from unitk.options.settings import HELP


@dataclass(frozen=True)
class Verb:
    """A verb: a function of its options, and how a command line is parsed into these."""

    act: Callable[[Any], None]
    options: type
    """The class of its options."""
    words: str | None = None  # the option that takes words without a flag
    kinds: tuple[str, ...] = ()
    """Kinds of components that its options choose, such as "task"."""
    aside: tuple[str, ...] = ()
    """Kinds of components whose options are resolved later, with those of the checkpoint."""
    parses: bool = False  # whether `act` takes the words of the command line and parses them
    cure: str = ""  # what to change if memory is short, as a message says it
    example: str = ""  # the arguments of a call in Python, which is in its docstring
    after_dashes: str = ""
    """The argument with the options of another verb, which a command line has after `--`."""
    records: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The options of files that may be records in memory in Python, each with the fields of a
    record for which a single text or label stands; () if there are none."""
    value: Callable[[Any], Any] | None = None
    """Takes the same as `act`, and returns what `act` prints: the result of the verb in Python."""
    none: Callable[[], Any] | None = None
    """Makes the result of an empty list of `words` in Python, if it is no mistake."""

    def __call__(self, argv: Sequence[str], name: str = "") -> None:
        """Run the verb on the words after its `name`, by default that of the registry."""
        try:
            self.act(self.parsed(argv, name))
        except UnitkError as error:
            # without a flag in the words, as in the usage line: PATHS rather than --paths
            if (own := self.words) and not any(word.startswith(f"--{own}") for word in argv):
                flag = re.compile(rf"(?<![\w-])--{own}\b(?![.-])")
                error.args = tuple(flag.sub(own.upper(), str(text)) for text in error.args)
            raise

    def parsed(self, argv: Sequence[str], name: str = "") -> Any:
        """Parse words into what `act` and `value` take: options, or with `parses` the words."""
        if self.parses:
            return argv
        # the verbs of a group are not registered one by one: the group passes their names
        name = name or registry.name_of("verb", self).replace("_", "-")
        return config.parse(name, self.options, argv, self.kinds, self.words, self.aside)


def verb(options: type, **how: Any) -> Callable[[Callable[[Any], None]], Verb]:
    """Decorate a function of parsed options to make it a verb; `how` are fields of `Verb`."""
    return lambda act: Verb(act, options, **how)


@dataclass(frozen=True)
class VerbGroup:
    """A verb such as `unitk latent` whose first word names one of its own verbs."""

    verbs: Mapping[str, Verb]
    cure: str = ""

    def __call__(self, argv: Sequence[str]) -> None:
        """Run the verb that the first word names; without one, list them all."""
        own = registry.name_of("verb", self)
        if not argv or argv[0] in HELP:
            print(f"unitk {own} VERB [options]", "", "Verbs:", sep="\n")
            for name, member in self.verbs.items():
                help_text = " ".join((member.options.__doc__ or "").split())
                about = re.split("[.:] ", help_text)[0].rstrip(".")
                print(f"  {name:<15}{about[0].lower()}{about[1:]}")
            print("", f"`unitk {own} VERB --help` lists a verb's options.", sep="\n")
            raise SystemExit(0)
        if argv[0] not in self.verbs:
            hint = registry.nearest(argv[0], self.verbs) or f" (known: {', '.join(self.verbs)})"
            raise UsageError(f"there is no verb {argv[0]!r}{hint}")
        self.verbs[argv[0]](argv[1:], f"{own} {argv[0]}")


def find_verb(name: str) -> Verb | VerbGroup:
    """Import the module of a verb, and return the verb."""
    verb_of_name: Verb | VerbGroup = registry.get("verb", name.replace("-", "_"))
    return verb_of_name
