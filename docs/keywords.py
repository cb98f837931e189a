"""Writes unitk/keywords.pyi: the options of unitk's functions, for type checkers and editors.

A test compares the stub with the code.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import MISSING
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from unitk.api.arguments import argument
from unitk.api.verb import Verb, VerbGroup, find_verb
from unitk.decoding.config import EmbedConfig, GenerateConfig, PredictConfig
from unitk.options.fields import options
from unitk.training.config import COMPONENTS, TrainConfig

STUB = Path(__file__).resolve().parents[1] / "unitk" / "keywords.pyi"
HEAD = '''"""Keyword arguments of unitk's functions. Written by docs/keywords.py."""

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from unitk.api.drawing import Drawing
from unitk.comparison.checks.base import Finding
from unitk.data.corpus.columns import Counts
from unitk.decoding.texts.outputs import Output
from unitk.metrics import Score
from unitk.slots import Floats
from unitk.verbs.serve import Served

Schedule = str | float | Callable[[int, int | None], float]
Records = Iterable[Any]
Strings = str | Path | Sequence[str | Path] | Mapping[str, object]
Numbers = str | float | Sequence[str | float]
'''
RETURNS = {
    **{"average": "Path", "convert": "None", "embed": "Floats | list[Floats]"},
    **{"evaluate": "dict[str, Any]", "generate": "list[list[Output]]", "merge": "None"},
    **{"plot": "Path", "predict": "list[dict[str, Any]]", "push": "None"},
    **{"preprocess": "dict[str, dict[str, Counts]]", "score": "dict[str, Score]"},
    **{"show": "list[Drawing]", "list": "dict[str, dict[str, str]]", "check": "list[Finding]"},
    **{"compare": "list[dict[str, Any]]", "sweep": "list[dict[str, Any]]", "quickstart": "None"},
    **{"scale": "dict[str, Any]", "mix": "dict[str, Any]"},
    **{"search": "list[dict[str, Any]]"},
    **{"serve": "Served", "fairseq_plugin": "Path", "launch": "str"},
}
"""Verb that is a function -> what it returns; of one that writes an `output`, if none is given."""
GROUPS: dict[str, dict[str, str]] = {
    "analyse": {
        "contextuality": "list[dict[str, float]]",
        "vectors": "dict[str, Floats]",
        "heads": "dict[str, Any]",
    },
    "latent": {
        "encode": "Floats",
        "plot": "Path",
        **dict.fromkeys(
            "sample reconstruct interpolate analogy restyle traverse neighbors probe".split(),
            "list[dict[str, Any]]",
        ),
    },
}
"""Group of verbs -> its verbs, and what these return."""
VERBS = {"Train": TrainConfig}
METHODS = {"Generate": GenerateConfig, "Embed": EmbedConfig, "Predict": PredictConfig}


def spelled(kind: Any, loose: bool) -> str:
    """A type as source text; `loose`: as a function takes it that also reads text, as a verb."""
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return "str" if inner[0] is str else "Schedule"  # a name
    if get_origin(kind) is Literal:
        return "Literal[" + ", ".join(f'"{one}"' for one in inner) + "]"
    if get_origin(kind) is tuple:
        return "Numbers" if inner[0] in (int, float) else "Strings"
    if inner:  # a union
        parts = [part for one in inner for part in spelled(one, loose).split(" | ")]
        return " | ".join(dict.fromkeys(parts))
    name = "None" if kind is NoneType else str(kind.__name__)
    return f"{name} | str" if loose and kind in (int, float, Path) else name


def entries(name: str, config: type, loose: bool) -> list[str]:
    """The lines of the TypedDict of a function's options."""
    kinds = {argument(one.name): spelled(one.type, loose) for one in options(config)}
    if loose:
        kinds["options"] = "Mapping[str, object] | None"
    if config is TrainConfig:  # several tasks are a mixture
        kinds |= {name: f"{kinds[name]} | Records" for name in ("data", "valid")}
        kinds["preprocess"] = "Mapping[str, object] | None"
        kinds |= {"task": "Strings | None", **dict.fromkeys(COMPONENTS[1:], "str | None")}
    lines = [f"    {one}: {kind}" for one, kind in kinds.items()]
    return [f"class {name}Options(TypedDict, total=False):", *map(broken, lines)]


def broken(line: str) -> str:
    """A line, or as the formatter writes it if it is too long."""
    return re.sub(r"\[(.*)]", r"[\n        \1\n    ]", line) if len(line) > 100 else line


def function(name: str, verb: Verb, returns: str) -> str:
    """A verb as a function whose options are spelled out."""
    known = options(verb.options)
    named = {"config", "user_dir"} & {option.name for option in known}
    first, others = list[str](), list[str]()
    for option in known:
        kind = spelled(option.type, True) + " | Records" * (option.name in verb.records)
        # a file of options may have it
        needed = option.default is MISSING and "config" not in named
        written = f"    {argument(option.name)}: {kind}" + ("," if needed else " = ...,")
        (first if option.name == verb.words else others).append(written)
    more = [f"    {verb.after_dashes}: Mapping[str, object],"] if verb.after_dashes else []
    more += [f"    {kind}: str | None = ...," for kind in verb.kinds]
    more.append("    options: Mapping[str, object] | None = ...,")
    inner = "\n".join(map(broken, [*first, "    *,", *others, *more]))
    return f"def {name}(\n{inner}\n) -> {returns}: ..."


def group(name: str) -> str:
    """A group of verbs as a class with a static function for each."""
    found, lines = find_verb(name), [f"class {name}:"]
    assert isinstance(found, VerbGroup)
    for own, returns in GROUPS[name].items():
        written = function(own, found.verbs[own], returns)
        lines += ["    " + line for line in ["@staticmethod", *written.splitlines()]]
    return "\n".join(lines)


def stub() -> str:
    """The content of the stub."""
    found = [HEAD]
    for loose, configs in ((True, VERBS), (False, METHODS)):
        found += ["\n".join(entries(*one, loose)) + "\n" for one in configs.items()]
    # a first option that is needed comes before all that are not
    for name, returns in RETURNS.items():
        verb = find_verb(name)
        assert isinstance(verb, Verb)
        found.append(function(name, verb, returns))
    whole = "\n".join([*found, *("\n" + group(name) for name in GROUPS), ""])
    return re.sub(r"(?<![\w.])list\[", "builtins.list[", whole)  # there is a verb `list`


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    STUB.write_text(stub(), encoding="utf-8")
