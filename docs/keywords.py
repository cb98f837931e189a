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

from unitk.data.corpus.preprocess import Options as PreprocessConfig
from unitk.decoding.config import EmbedConfig, GenerateConfig, PredictConfig
from unitk.evaluation.options import with_evaluations
from unitk.options.fields import options
from unitk.training.config import KINDS, TrainConfig
from unitk.verbs.evaluate import Options

STUB = Path(__file__).resolve().parents[1] / "unitk" / "keywords.pyi"
HEAD = '''"""Keyword arguments of unitk's functions. Written by docs/keywords.py."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Required, TypedDict

Schedule = str | float | Callable[[int, int | None], float]
Strings = str | Path | Sequence[str | Path] | Mapping[str, object]
Numbers = str | float | Sequence[str | float]
'''
EvaluateConfig = with_evaluations(Options)
VERBS = {"Preprocess": PreprocessConfig, "Train": TrainConfig, "Evaluate": EvaluateConfig}
METHODS = {"Generate": GenerateConfig, "Embed": EmbedConfig, "Predict": PredictConfig}


def spelled(kind: Any, loose: bool) -> str:
    """A type as source text; `loose`: as a function takes it that also reads text, as a verb."""
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return "str" if inner[0] is str else "Schedule"  # a name
    if get_origin(kind) is Literal:
        return "Literal[" + ", ".join(f'"{one}"' for one in inner) + "]"
    if get_origin(kind) is tuple:
        return "Strings" if inner[0] is str else "Numbers"
    if inner:  # a union
        parts = [part for one in inner for part in spelled(one, loose).split(" | ")]
        return " | ".join(dict.fromkeys(parts))
    name = "None" if kind is NoneType else str(kind.__name__)
    return f"{name} | str" if loose and kind in (int, float, Path) else name


def entries(name: str, config: type, loose: bool) -> list[str]:
    """The lines of the TypedDict of a function's options."""
    known = {option.name.rstrip("_"): option for option in options(config)}
    kinds = {one: spelled(option.type, loose) for one, option in known.items()}
    for one, option in known.items():
        # a file of options may have it, or the run that is resumed
        if option.default is MISSING and "config" not in known:
            kinds[one] = f"Required[{kinds[one]}]"
    if loose:
        kinds["options"] = "Mapping[str, object] | None"
    if config is TrainConfig:  # several tasks are a mixture
        kinds |= {"task": "Strings | None", **dict.fromkeys(KINDS[1:], "str | None")}
    lines = [f"    {one}: {kind}" for one, kind in kinds.items()]
    lines = [
        re.sub(r"\[(.*)]", r"[\n        \1\n    ]", one) if len(one) > 100 else one for one in lines
    ]
    return [f"class {name}Options(TypedDict, total=False):", *lines]


def stub() -> str:
    """The content of the stub."""
    found = [HEAD]
    for loose, configs in ((True, VERBS), (False, METHODS)):
        found += ["\n".join(entries(*one, loose)) + "\n" for one in configs.items()]
    return "\n".join(found)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    STUB.write_text(stub(), encoding="utf-8")
