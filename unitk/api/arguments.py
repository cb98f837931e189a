"""Keyword arguments as options: the command line and Python share one grammar."""

from __future__ import annotations

import keyword
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from inspect import Parameter, Signature
from typing import Any, TypeVar

from unitk.errors import UsageError
from unitk.options.config import flag, options
from unitk.options.settings import argument_texts

Function = TypeVar("Function", bound=Callable[..., Any])


def option_words(arguments: Mapping[str, object]) -> list[str]:
    """The command-line words for keyword arguments: `max_steps=9` becomes `--max-steps=9`.

    A string is the option's value as on the command line. A list or a tuple holds the values of an
    option that takes several, and a dict those of the form NAME=VALUE. `options` is a dict of the
    options of components: {"task.mask_ratio": 0.3}. Raises UsageError for any other type.
    """
    words: list[str] = []
    of_components = arguments.get("options") or {}
    if not isinstance(of_components, Mapping):
        raise UsageError(f"--options must be a dict, got {of_components!r}")
    flat = {key: value for key, value in arguments.items() if key != "options"}
    for key, value in {**flat, **of_components}.items():
        name = flag(str(key))
        words += [f"{name}={text}" for text in argument_texts(value, name)]
    return words


def argument(name: str) -> str:
    """The argument for an option; only keywords keep their underscore: `lambda_`, but `max`."""
    plain = name.rstrip("_")
    return name if keyword.iskeyword(plain) else plain


def takes(
    main: type,
    kinds: tuple[str, ...] = (),
    first: str | None = None,
    after_dashes: str = "",
    more: tuple[str, ...] = ("options",),
) -> Callable[[Function], Function]:
    """Decorate a function of keyword arguments: its signature has the options of `main`.

    `help(function)`, notebooks and editors then show their names, types and defaults. The option
    `first` may be positional; `after_dashes` names a dict with the arguments of another verb, and
    each of `more` is a dict of options.
    """

    def signed(function: Function) -> Function:
        empty = Parameter.empty
        parameters = [
            Parameter(
                argument(option.name),
                Parameter.POSITIONAL_OR_KEYWORD if option.name == first else Parameter.KEYWORD_ONLY,
                default=empty if option.default is MISSING else option.default,
                annotation=option.type,
            )
            for option in options(main)
        ]
        known = {parameter.name for parameter in parameters}
        if after_dashes:
            words = Parameter(after_dashes, Parameter.KEYWORD_ONLY, annotation=Mapping[str, object])
            parameters.append(words)
        others = {**dict.fromkeys(kinds, str), **dict.fromkeys(more, Mapping[str, object])}
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind | None)
            for name, kind in others.items()
            if name not in known
        ]
        parameters.sort(key=lambda parameter: parameter.kind)  # stable
        function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return function

    return signed


def set_environment() -> None:
    """Set the environment variables that PyTorch's libraries read at import."""
    # OpenMP threads wait for each other by spinning, for milliseconds: where other work has a core
    # (the thread that builds batches is enough), training is up to six times as slow.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # oneDNN and PyTorch keep a kernel of about 1 MB for each of the last 1,024 shapes of a product:
    # batches of all sizes would take a gigabyte over half an hour, and meet few of them again.
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "128")
