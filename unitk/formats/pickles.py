"""The names that a pickle may refer to, and inert objects in place of what they name.

A pickle can name any function, to be called when it is opened. torch calls those of its own list,
which makes tensors and plain values, and those in `REAL`. A class of another package, such as
fairseq.meters.TimeMeter, is never imported or called: an object that only keeps its state is in
for it. Functions, and what else Python's own library has, are refused.
"""

from __future__ import annotations

import argparse
import io
import pickletools
import sys
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING  # from the names of Python 2
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy._core.multiarray import _reconstruct, scalar

REAL: list[Any] = [
    argparse.Namespace,
    # numbers of numpy, and the state of its generator in a Megatron checkpoint
    *(
        (function, f"numpy.{core}.multiarray.{function.__name__}")
        for function in (_reconstruct, scalar)
        for core in ("core", "_core")
    ),
    np.ndarray,
    np.dtype,
    *{type(np.dtype(kind)) for kind in np.typecodes["All"]},
]
"""Harmless names that a pickle may have, besides torch's own list."""
PLAIN = frozenset(
    f"{module}.{name}"
    for module, names in {
        # getattr: a value of an enumeration, as Python 3.11.0 to 3.11.3 store it
        "builtins": "object type bool int float complex str bytes tuple list dict set frozenset"
        " range slice getattr",
        "collections": "defaultdict deque",
        "copyreg": "_reconstructor",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "functools": "partial",
        "logging": "Logger RootLogger getLogger",
        # ._local is Python 3.13's
        **dict.fromkeys(
            ("pathlib", "pathlib._local"),
            "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath",
        ),
        "random": "Random",
        "re": "_compile",
        "time": "struct_time",
        "types": "SimpleNamespace",
        "typing": "Any",
        "uuid": "UUID",
    }.items()
    for name in names.split()
)
"""Values of Python's own library that settings and states hold; they get a stand-in as well."""
NODES = "omegaconf."
"""The package whose nodes hold the settings of a checkpoint of fairseq main."""
LEGACY = 4  # pickles before the tensors in a file of torch before 1.6: three of them are numbers


class StandIn:
    """An object that keeps the state of another, whose class is only a name here."""

    of = ""
    """The name of that class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


class MappingStandIn(StandIn):
    """`StandIn` for a dictionary of another class; torch fills only dictionaries of known ones."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return OrderedDict[Any, Any]()


class ListStandIn(StandIn):
    """`StandIn` for a list of another class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return []


def stand_ins(path: Path, zipped: bool) -> list[Any]:
    """Stand-ins for the harmless names in a file of `torch.save`, as `safe_globals` takes them."""
    if zipped:
        with zipfile.ZipFile(path) as archive:
            name = next(
                (member for member in archive.namelist() if member.endswith("data.pkl")), None
            )
            kinds = kinds_of(io.BytesIO(archive.read(name))) if name else {}
    else:
        with path.open("rb") as file:
            kinds = {}
            for _ in range(LEGACY):
                kinds |= kinds_of(file)
    return [
        (type(name, (kind,), {"of": name}), name)
        for name, kind in kinds.items()
        if is_harmless(name)
    ]


def is_harmless(name: str) -> bool:
    """Whether a name is that of plain values or, outside Python's library, of a class."""
    package = name.partition(".")[0]
    last = name.rpartition(".")[2].lstrip("_")
    return name in PLAIN or (package not in sys.stdlib_module_names and last[:1].isupper())


def kinds_of(file: BinaryIO) -> dict[str, type[StandIn]]:
    """Each name in the next pickle of a file -> the stand-in that takes what is put into it.

    The opcodes are followed without being carried out. A damaged pickle ends the search: torch says
    what is wrong with it.
    """
    kinds: dict[str, type[StandIn]] = {}
    stack: list[str | None] = []  # of each object, the name that it was made by
    memo: dict[Any, str | None] = {}
    marks: list[int] = []
    with suppress(ValueError, IndexError, KeyError, UnicodeError):
        for opcode, argument, _ in pickletools.genops(file):
            kind: str | None = None
            before = list(opcode.stack_before)
            if pickletools.markobject in before:
                del stack[marks.pop() :]
                before = before[: before.index(pickletools.markobject)]
            target = stack[-len(before)] if before else None
            match opcode.name:
                case "GLOBAL":
                    module, _, last = str(argument).partition(" ")
                    module, last = NAME_MAPPING.get((module, last), (module, last))
                    kind = f"{IMPORT_MAPPING.get(module, module)}.{last}"
                    kinds.setdefault(kind, StandIn)
                case "MARK":
                    marks.append(len(stack))
                    continue
                case "GET" | "BINGET" | "LONG_BINGET":
                    kind = memo[argument]
                case "PUT" | "BINPUT" | "LONG_BINPUT":
                    memo[argument] = stack[-1]
                case "REDUCE" | "NEWOBJ" | "BUILD":
                    kind = target
                case "SETITEM" | "SETITEMS" | "APPEND" | "APPENDS":
                    kind = target
                    if target:
                        fills = opcode.name.startswith("SET")
                        kinds[target] = MappingStandIn if fills else ListStandIn
            del stack[len(stack) - len(before) :]
            stack += [kind] * len(opcode.stack_after)
    if "collections.defaultdict" in kinds:  # also an empty one
        kinds["collections.defaultdict"] = MappingStandIn
    return kinds


def to_plain(value: Any) -> Any:
    """A value with plain dictionaries, lists and values in place of omegaconf's nodes."""
    if isinstance(value, StandIn) and value.of.startswith(NODES):
        state = vars(value)
        return to_plain(state.get("_content", state.get("_val")))
    if isinstance(value, argparse.Namespace):
        return argparse.Namespace(**{name: to_plain(item) for name, item in vars(value).items()})
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list) else value
