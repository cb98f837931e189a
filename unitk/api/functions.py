"""Verbs as functions of Python: `unitk.score(metric="bleu", hypotheses="out.txt", ...)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from unitk.api.arguments import settle, takes, words
from unitk.api.verb import Verb, VerbGroup, find
from unitk.errors import UsageError, require
from unitk.options.config import options

ARGUMENTS = """
Options have the names and the values of the command line (`unitk VERB --help`), with `_` for `-`;
those of components are in `options`, as in `options={"task.mask_ratio": 0.3}`. Raises the errors of
`unitk.errors` for options that cannot be meant, and for files and checkpoints.
"""
EXAMPLES = {
    "preprocess": '(input="docs/*.txt", valid="dev.txt", vocab_size=8000, dest="data/docs")',
    "merge": '(parts=["data/0", "data/1"], dest="data/all")',
    "evaluate": '(checkpoint="runs/lm", data="data/docs")["lm/ppl"]',
    "generate": '(["The cat sat on"], checkpoint="runs/lm", beam=5)',
    "predict": '(["A lovely film."], checkpoint="runs/sst2")[0]["label"]',
    "embed": '(["The cat sat on the mat."], checkpoint="runs/lm")',
    "score": '(metric="bleu", hypotheses="out.txt", references="dev.txt")',
    "show": '("The cat sat on the mat.", task="glm_infill")',
    "plot": '(runs=["runs/lm"], output="loss.png")',
    "average": '(checkpoint="runs/lm", last=2, dest="runs/mean")',
    "convert": '(from_=["unitk", "runs/lm"], to=["hf", "exported/lm"])',
    "push": '(model="exported/lm", repo="me/lm")',
}
"""Verb -> the arguments of a call, which stands in its docstring."""


def function(name: str) -> Callable[..., Any]:
    """A verb as a function of keyword arguments, in whose signature its options stand.

    What a command line takes without a flag may come first, without its name.
    """
    verb = find(name)
    if isinstance(verb, VerbGroup):
        raise UsageError(f"unitk {name} has verbs of its own: use the command line")

    def run(*first: object, **arguments: object) -> Any:
        settle()
        if first:
            require(verb.words is not None and len(first) == 1, f"{name}: options have names")
            arguments[verb.words or ""] = first[0]
        return returned(verb, arguments, name)

    run.__name__ = run.__qualname__ = name
    about = inspect.cleandoc(verb.options.__doc__ or "").partition("\n\n")[0]
    run.__doc__ = f"{about}\n\n    unitk.{name}{EXAMPLES[name]}\n\n{ARGUMENTS.strip()}"
    return takes(verb.options, verb.kinds, verb.words)(run)


def returned(verb: Verb, arguments: Mapping[str, object], name: str) -> Any:
    """What a verb finds; it writes that instead, as on a command line, to an `output`."""
    known = {option.name for option in options(verb.options)}
    if verb.words and isinstance(text := arguments.get(verb.words), str):
        arguments = {**arguments, verb.words: [text]}  # in which a comma parts nothing
    given = verb.parsed(words(arguments), name)
    if verb.value is None:
        return verb.act(given)
    if "overwrite" in known and arguments.get("output") is not None:
        return verb.act(given)
    idle = "output_format" in known and "output_format" in arguments
    require(not idle, "--output-format has no effect in Python, where answers are returned")
    return verb.value(given)
