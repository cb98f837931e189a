"""Verbs as functions of Python: `unitk.score(metric="bleu", hypotheses="out.txt", ...)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from unitk.api.arguments import option_words, set_environment, takes
from unitk.api.naming import naming_files
from unitk.api.records import store_records
from unitk.api.verb import Verb, VerbGroup, find_verb
from unitk.data.corpus.writer import called_from_python
from unitk.decoding.files.outputs import STDOUT
from unitk.errors import UsageError, require, show_value
from unitk.options.config import options

WAYS = {"input", "infill", "interactive", "num_samples", "output"}
"""Arguments beside an empty list of texts with which a verb has something to do."""
ARGUMENTS = """
Options have the names and the values of the command line (`unitk VERB --help`), with `_` for `-`;
those of components are in `options`, as in `options={"task.mask_ratio": 0.3}`. Raises the errors of
`unitk.errors` for wrong options, and for files and checkpoints.
"""


class Functions:
    """The verbs of a group as functions, such as `unitk.latent.encode`."""

    def __init__(self, name: str, group: VerbGroup) -> None:
        self.__name__ = name
        self.__doc__ = f"The verbs of `unitk {name}` as functions: {', '.join(group.verbs)}."
        for own, verb in group.verbs.items():
            setattr(self, own, function_of(f"{name}.{own}", verb))

    def __repr__(self) -> str:
        return f"<unitk.{self.__name__}: {self.__doc__}>"


def function(name: str) -> Callable[..., Any] | Functions:
    """Return a verb as a function, or a group of verbs as an object with a method for each."""
    verb = find_verb(name)
    return Functions(name, verb) if isinstance(verb, VerbGroup) else function_of(name, verb)


def function_of(name: str, verb: Verb) -> Callable[..., Any]:
    """Make a function of keyword arguments from a verb; its signature has the verb's options.

    The words that a command line takes without a flag are the function's first argument.
    """

    def run(*first: object, **arguments: object) -> Any:
        set_environment()
        if first:
            require(verb.words is not None, f"{name}: options have names")
            require(
                len(first) == 1,
                f"{name}: options have names, and "
                f"several {verb.words} are one list: {name}({show_value(list(first))}, ...)",
            )
            arguments[verb.words or ""] = first[0]
        with called_from_python():
            return run_verb(verb, arguments, name.replace(".", " "))

    run.__name__ = name.rpartition(".")[2]
    run.__qualname__ = name
    about = inspect.cleandoc(verb.options.__doc__ or "").partition("\n\n")[0]
    run.__doc__ = f"{about}\n\n    unitk.{name}{verb.example}\n\n{ARGUMENTS.strip()}"
    return takes(verb.options, verb.kinds, verb.words, verb.after_dashes)(run)


def run_verb(verb: Verb, arguments: Mapping[str, object], name: str) -> Any:
    """Run a verb and return its value; with an `output`, it writes the file and returns None."""
    known = {option.name: option for option in options(verb.options)}
    own = dict(arguments)
    trailing = list[str]()
    # a sweep's training is another verb's options, which a command line has after --
    if verb.after_dashes:
        training = own.pop(verb.after_dashes, None)
        if not isinstance(training, Mapping):
            raise UsageError(
                f"{name} needs {verb.after_dashes}, a dict of options, got {training!r}"
            )
        trailing = ["--", *option_words(training)]
    if verb.words in own and known[verb.words].type == tuple[str, ...]:
        from unitk.decoding.texts.sources import split_parts  # imports torch

        # as they are: commas and blanks belong to a text
        texts = split_parts(own.pop(verb.words), verb.words)
        trailing = ["--", *map("\t".join, texts)]
        if verb.none is not None and not texts and WAYS.isdisjoint(own):
            verb.parsed(option_words(own), name)  # names and values are checked all the same
            return verb.none()
    # what is found, unless there is a file for it
    printed = "output" in known and known["output"].default == STDOUT
    files = store_records(own, verb.records)
    with files as given_files, naming_files(verb, words := [*option_words(given_files), *trailing]):
        given = verb.parsed(words, name)
        if verb.value is None or (printed and given_files.get("output") is not None):
            return verb.act(given)
        idle = "--output-format has no effect in Python, where answers are returned"
        require("output_format" not in own, idle)
        return verb.value(given)
