"""The page `api.md`: the functions of `unitk` and what they return, made from the docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from typing import Any

import unitk
from unitk import errors
from unitk.api.functions import Functions
from unitk.api.text_model import TextModel
from unitk.api.verb import Verb, find_verb
from unitk.decoding.config import EmbedConfig, GenerateConfig, PredictConfig
from unitk.decoding.generator import Generator
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.outputs import Output
from unitk.families.latent.space.points import LatentSpace
from unitk.options.fields import options, type_name

OPTIONS = {
    "generate": GenerateConfig,
    "infill": GenerateConfig,
    "sample": GenerateConfig,
    "score": GenerateConfig,
    "embed": EmbedConfig,
    "predict": PredictConfig,
}
"""Method -> where its options are defined."""
INNER = "predictions encode_blanks encode_marked has_blank constraints scores".split()
"""Methods of a generator that take encoded texts, for the command line."""


def page() -> str:
    """Markdown of the page."""
    lines = ["# API reference", "", "Made from the docstrings. [Python](python.md) is a tour.", ""]
    for name in unitk.__all__:
        found = getattr(unitk, name)
        if not isinstance(found, Functions):
            lines += function(f"## unitk.{name}", found)
            continue
        lines += [f"## unitk.{name}", "", doc(found), ""]
        for own, one in vars(found).items():
            if callable(one):
                lines += function(f"### unitk.{name}.{own}", one)
    for made in (Generator, Output, Hypothesis, TextModel, LatentSpace):
        lines += [f"## {made.__module__}.{made.__name__}", "", doc(made), ""]
        for name, method in vars(made).items():
            if callable(method) and not name.startswith("_") and name not in INNER:
                lines += function(f"### {name}", method)
    lines += ["## unitk.errors", "", doc(errors), ""]
    for name, error in vars(errors).items():
        if inspect.isclass(error) and issubclass(error, errors.UnitkError):
            lines += [f"**{name}** (exit code {error.code}): {doc(error)}", ""]
    return "\n".join(lines)


def doc(thing: Any) -> str:
    """A docstring."""
    return inspect.getdoc(thing) or ""


def function(heading: str, called: Callable[..., Any]) -> Iterator[str]:
    """A function: its arguments, its docstring, and a table of its options."""
    config = OPTIONS.get(called.__name__)
    if hasattr(called, "__signature__"):
        name, _, own = called.__qualname__.partition(".")
        verb = find_verb(name)
        config = (verb if isinstance(verb, Verb) else verb.verbs[own]).options
    given = [one for one in inspect.signature(called).parameters.values() if one.name != "self"]
    if hasattr(called, "__signature__"):  # its options are arguments
        shown = ["**options"]
    else:
        plain = [one.replace(annotation=one.empty) for one in given if one.name != "report"]
        shown = list(map(str, plain))
    yield from (f"{heading}({', '.join(shown)})", "", doc(called), "")
    if config is None:
        return
    yield from ("| option | meaning | type | default |", "| --- | --- | --- | --- |")
    for option in options(config):
        default = "" if option.default is MISSING else f"`{option.default!r}`"
        cells = f"`{option.name}`", option.help, type_name(option.type), default
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
