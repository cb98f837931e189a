"""The fields of a config dataclass as options: types, bounds, help, and values as text.

Types: int, float, bool, str, Path, X | None, tuple[X, ...], Literal[...], a `Named` component, and
`Schedule`: a registered schedule written `NAME:field=value,field=value`, or a plain number. What a
number must be is a part of its type (`Positive`); `Checked` refuses others, help pages show it.
"""

from __future__ import annotations

import ast
import functools
import glob
import inspect
import math
import operator
import os
import re
import textwrap
import threading
import typing
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin

from unitk import registry
from unitk.errors import UsageError, require

# Python's parser can fail where several threads use it at once (CPython issue 106905)
PARSING = threading.Lock()


class Mark:
    """Metadata in the type of an option, besides how its text is parsed."""

    about: str = ""
    """The help of an option that has no string under its field."""


@dataclass(frozen=True)
class Copied(Mark):
    """The path of a file, or of a folder of files, that checkpoints copy under this name."""

    name: str


class Rule(Mark):
    """A condition on the values of an option."""

    def fault(self, value: Any) -> str:
        """What is wrong with a value, such as `must be in [0, 1]`; empty if nothing is."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bound(Rule):
    """Numbers in [low, high], without the low end if `above`, without the high one if `below`.

    Each of several numbers must be there, and of a schedule its `value`. NaN never is.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def fault(self, value: Any) -> str:
        if isinstance(value, tuple):
            return next(filter(None, map(self.fault, value)), "")
        if callable(value) and not hasattr(value, "value"):
            return "needs a schedule with a largest `value`"
        number = value.value if callable(value) else value
        holds = not isinstance(number, int | float) or self.contains(number)
        return "" if holds else f"must be {self}"

    def contains(self, value: float) -> bool:
        """Whether a number is in these bounds."""
        # NaN fails every comparison
        low = self.low < value if self.above else self.low <= value
        return low and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        # 1e-6, not 1e-06
        low, high = (f"{end:g}".replace("e-0", "e-") for end in (self.low, self.high))
        if self.high < math.inf:
            between = f"{'(' if self.above else '['}{low}, {high}{')' if self.below else ']'}"
            return f"in {between}" if self.low + self.high else f"between {low} and {high}"
        finite = " and finite" if self.below else ""
        return f"{'above' if self.above else 'at least'} {low}{finite}"


@dataclass(frozen=True)
class Weighted(Rule):
    """Weights that can be drawn from."""

    def fault(self, value: Any) -> str:
        return "" if min(value) >= 0 < sum(value) else "needs a weight above 0 and none below"


Schedule = Annotated[Any, "schedule"]
"""Marks a field whose value is a schedule: `(step, total) -> float`."""
Place = Annotated[str, "place"]
"""Marks a text that names files: a path, wildcards, DIR=WEIGHT or NAME=PATH."""
Count = Annotated[int, Bound(0)]
Positive = Annotated[int, Bound(1)]
Weight = Annotated[float, Bound(0, below=True)]
Chance = Annotated[float, Bound(0, 1)]
Part = Annotated[float, Bound(0, 1, above=True)]
"""A part of a whole that is not empty."""
Rate = Annotated[float, Bound(0, 1, below=True)]
"""The rate of dropout or of a running mean."""
Fraction = Annotated[float, Bound(0, 1, above=True, below=True)]
Above = Annotated[float, Bound(0, above=True, below=True)]
Weights = Annotated[tuple[float, float, float], Weighted()]
Share = Annotated[float | Schedule, Bound(0, 1, above=True)]
"""A part of a whole that may change during the run."""


@dataclass(frozen=True)
class Option:
    """One field of an options dataclass."""

    name: str
    type: Any
    default: Any
    owner: type
    marks: tuple[Mark, ...] = ()
    about: str = ""  # its help, where it is not found in a source

    @functools.cached_property
    def rule(self) -> Rule | None:
        return next((mark for mark in self.marks if isinstance(mark, Rule)), None)

    @property
    def flag(self) -> str:
        return flag(self.name)

    @property
    def help(self) -> str:
        """The string under the field; the source file is read when it is first needed."""
        # a subclass may explain a field anew
        every = (_field_docs(base) for base in self.owner.__mro__[:-1])
        marked = next((mark.about for mark in self.marks if mark.about), "")
        return self.about or next((docs[self.name] for docs in every if self.name in docs), marked)

    @property
    def brief(self) -> str:
        """The first sentence of its help, without the full stop."""
        return self.help.split(". ")[0].rstrip(".")


@dataclass(frozen=True)
class Component:
    """A chosen component: the registered object and its config."""

    name: str
    made_from: Any
    config: Any
    share: Any = None  # of a task that is mixed with others: a schedule


def flag(key: str) -> str:
    """`task.mean_span` -> `--task.mean-span`; a field `from_` is `--from`."""
    owner, dot, name = key.rpartition(".")  # of mixed tasks with the task's name, as it is
    return f"--{owner}{dot}{name.rstrip('_').replace('_', '-')}"


def options(cls: type) -> tuple[Option, ...]:
    """The fields of a config dataclass."""
    return _options(cls)


@functools.cache
def _options(cls: Hashable) -> tuple[Option, ...]:  # so mypy has what a cache takes
    assert isinstance(cls, type) and is_dataclass(cls), cls
    hints = typing.get_type_hints(cls, include_extras=True)
    # a subclass that has another default need not repeat the marks
    bases = [base for base in reversed(cls.__mro__[1:]) if is_dataclass(base)]
    marks = {option.name: option.marks for base in bases for option in _options(base)}
    return tuple(
        Option(
            field.name,
            _plain(hints[field.name]),
            field.default_factory() if field.default_factory is not MISSING else field.default,
            field.metadata.get("owner", cls),
            tuple(_marks(hints[field.name])) or marks.get(field.name, ()),
            field.metadata.get("help", ""),
        )
        for field in fields(cls)
    )


def _plain(kind: Any) -> Any:
    """A type without marks."""
    inner = tuple(_plain(part) for part in get_args(kind))
    if get_origin(kind) is Annotated:
        return inner[0] if any(isinstance(mark, Mark) for mark in get_args(kind)) else kind
    if get_origin(kind) in (Union, UnionType):
        return functools.reduce(operator.or_, inner)
    return GenericAlias(tuple, inner) if get_origin(kind) is tuple else kind


def _marks(kind: Any) -> Iterator[Mark]:
    """The marks in a type."""
    for part in get_args(kind):
        if isinstance(part, Mark):
            yield part
        yield from _marks(part)


class Checked:
    """A base of config dataclasses whose values are checked against their types."""

    KIND: ClassVar[str] = ""
    """The kind of component that has these options, as in `--task.mean-span`."""

    def __post_init__(self) -> None:
        check_values(self, self._option_name)

    def _option_name(self, name: str) -> str:
        """The name of an option in messages."""
        return flag(f"{self.KIND}.{name}" if self.KIND else name)


def check_values(config: Any, called: Callable[[str], str]) -> None:
    """Raise a `UsageError` for a value that its option's type excludes; `called` names options."""
    for option in options(type(config)):
        value = getattr(config, option.name)
        fault = option.rule.fault(value) if option.rule and value is not None else ""
        if get_origin(option.type) is Literal and value not in get_args(option.type):
            fault = f"must be one of {', '.join(get_args(option.type))}"
        require(not fault, fault and f"{called(option.name)} {fault}, got {_show(value)}")


def _show(value: Any) -> str:
    """A value for a message; a schedule is shown by its highest value."""
    if isinstance(value, tuple):
        return ",".join(map(_show, value))
    if callable(value):
        return _show(value.value) if hasattr(value, "value") else type(value).__name__
    return f"{value:g}" if isinstance(value, float) else str(value)


@functools.cache
def _field_docs(cls: Hashable) -> dict[str, str]:
    """Field name -> the string under it in the class body."""
    assert isinstance(cls, type)
    try:
        with PARSING:
            parsed = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):  # made in an interactive session: no source, no help
        return {}
    body = typing.cast(ast.ClassDef, parsed.body[0]).body
    docs = {}
    for statement, following in zip(body, body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                docs[name] = " ".join(text.split())
    return docs


class Named(NamedTuple):
    """Marks a field whose value is the name of a component of this kind, or another word."""

    kind: str
    other: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every value; plug-ins are to be loaded before."""
        return self.other, *registry.names(self.kind)


COMMA = re.compile(r"(?<!\\),")  # what parts the values of a list; `\,` is a comma within one
SUFFIXES = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def parse_value(text: str | None, kind: Any, name: str) -> Any:
    """`text` as a value of type `kind`; `name` is the option for the error message."""
    if kind is bool:
        if text is None:
            return True
        require(text.lower() in WORDS, f"{name} must be on or off, got {text!r}")
        return WORDS[text.lower()]
    if text is None:
        raise UsageError(f"{name} needs a value")
    origin = get_origin(kind)
    if choices := _choices(kind):
        if text not in choices:
            hint = registry.nearest(text, choices)
            raise UsageError(f"{name} must be one of {', '.join(choices)}, got {text!r}{hint}")
        return text
    if origin is Annotated:
        return text if kind == Place else parse_schedule(text, name)
    if origin in (Union, UnionType):
        inner = [part for part in get_args(kind) if part is not NoneType]
        if NoneType in get_args(kind) and (text.lower() == "none" or not text and inner != [str]):
            return None
        # int | Schedule: what begins with a letter is no number
        scheduled = inner[-1] == Schedule and text[:1].isalpha()
        return parse_value(text, Schedule if scheduled else inner[0], name)
    if origin is tuple:
        return _parse_tuple(text, get_args(kind), name)
    if kind in (int, float):
        return _parse_number(text, kind, name)
    assert kind in (str, Path), f"{name}: no parser for {kind}"
    return text if kind is str else local(text, name)


def _choices(kind: Any) -> tuple[str, ...]:
    """The words that a value must be one of; none where it may be another."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    mark = get_args(kind)[1] if get_origin(kind) is Annotated else None
    return mark.names if isinstance(mark, Named) else ()


def local(text: str, name: str) -> Path:
    """A path, or the file that a name such as hf://datasets/... has; no other address."""
    if address := re.match(r"([A-Za-z][\w+.-]+):(?=//)", text):
        require(address[1] in registry.sources("hub"), f"{name}: {text} is an address; download it")
        return registry.get("hub", address[1])(text[address.end() :], "file")
    require(text, f"{name} is the path of a file or folder, got ''")
    return Path(text)


def _parse_tuple(text: str, inner: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    values = COMMA.split(text) if text else []
    if inner[0] in (Path, Place):
        values = [*_join_paths(values)]
    values = [value.replace("\\,", ",").strip() for value in values]
    if len(inner) == 2 and inner[1] is Ellipsis:
        if inner[0] is int and "..." in values:
            return _progressions(values, name)
        return tuple(parse_value(value, inner[0], name) for value in values)
    form = ",".join(map(type_name, inner))
    require(len(values) == len(inner), f"{name} must be {len(inner)} values ({form}), got {text!r}")
    return tuple(parse_value(value, kind, name) for value, kind in zip(values, inner, strict=True))


def _join_paths(parts: list[str]) -> Iterator[str]:
    """The paths of a list that was cut at commas, some of which belong to names of files."""
    apart = all(map(_is_there, parts))
    while parts:
        stops = (n for n in range(min(len(parts), 9), 1, -1) if _is_there(",".join(parts[:n])))
        stop = 1 if apart else next(stops, 1)
        yield ",".join(parts[:stop])
        parts = parts[stop:]


def _is_there(text: str) -> bool:
    """Whether there is a file of a name, which may have NAME= before it or =WEIGHT after it."""
    names = text, re.sub("^[^,=]*=", "", text), re.sub("=[^,=]*$", "", text)
    return any(os.path.lexists(name) or glob.glob(name) for name in map(str.strip, names))


def _progressions(parts: list[str], name: str) -> tuple[int, ...]:
    """Whole numbers, of which `a,b,...,z` are all from a to z at the distance of a and b."""
    numbers: list[int] = []
    for before, part in zip(["", *parts], [*parts, ""], strict=True):
        step = numbers[-1] - numbers[-2] if len(numbers) > 1 else 0
        if part not in ("...", ""):
            number = int(_parse_number(part, int, name))
            if before == "..." and step > 0 and number in range(numbers[-1], number + 1, step):
                numbers += range(numbers[-1] + step, number, step)
                before = part
            numbers.append(number)
        if before == "...":
            raise UsageError(f"{name}: ... stands for numbers in equal steps, as in 1M,2M,...,9M")
    return tuple(numbers)


def _parse_number(text: str, kind: type, name: str) -> int | float:
    digits = text.strip()
    scale = 1
    if digits[-1:] in SUFFIXES and digits[:-1]:
        digits, scale = digits[:-1], SUFFIXES[digits[-1]]
    whole = kind is int and digits.lstrip("+-").isdecimal()
    with suppress(ValueError, OverflowError):
        number: int | float = float(digits) * scale
        if whole:
            number = int(digits) * scale  # a float has 53 bits, a seed may have more
        if number == number and (kind is float or (number == int(number) and abs(number) < 2**63)):
            return kind(number)  # NaN, of which nothing holds, is no value of any option
    bits = " of less than 64 bits" if whole else ""
    raise UsageError(f"{name} must be a {type_name(kind)}{bits}, got {text!r}")


def parse_schedule(text: str, name: str) -> Any:
    """A number is a constant; otherwise `NAME:field=value,...` of a registered schedule."""
    with suppress(ValueError):
        text = f"constant:value={float(text)}"
    schedule = parse_named("schedule", text, name)
    require(isinstance(schedule(1, 1000), float | int), f"{name}: {text} must return a number")
    return schedule


def parse_named(kind: str, text: str, name: str) -> Any:
    """`NAME:field=value,...`: a registered component of this kind with options of its own."""
    label, _, assignments = text.partition(":")
    cls = registry.get(kind, label, name)
    kinds = {option.name: option.type for option in options(cls)}
    values = {}
    for assignment in filter(None, assignments.split(",")):
        key, equals, value = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in kinds:
            hint = registry.nearest(key, kinds) or f"; its fields are {', '.join(kinds)}"
            raise UsageError(f"{name}: {assignment!r} is not a field=value of {kind} {label}{hint}")
        require(key not in values, f"{name}: {key} is given twice")
        values[key] = parse_value(value, kinds[key], f"{name}: {key}")
    return cls(**values)


def render(value: Any) -> str:
    """The text that `parse_value` turns back into `value`."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    if isinstance(value, tuple):
        return ",".join(render(part).replace(",", "\\,") for part in value)
    if isinstance(value, (int, float, str, Path)):
        return str(value)
    for label in registry.names("schedule"):
        if registry.get("schedule", label) is type(value):
            given = [f"{f.name}={float(getattr(value, f.name))}" for f in fields(value)]
            return f"{label}:{','.join(given)}" if given else label
    raise AssertionError(f"no text for {value!r}")


def type_name(kind: Any) -> str:
    """The name of a type on help pages and in errors."""
    origin = get_origin(kind)
    if kind is bool:
        return "on|off"
    if choices := _choices(kind):
        return "|".join(choices)
    if origin is Annotated:
        return "path" if kind == Place else "number or NAME:field=value,..."
    if origin in (Union, UnionType):
        return type_name(next(part for part in get_args(kind) if part is not NoneType))
    if origin is tuple:
        return type_name(get_args(kind)[0]) + ",..."
    return {int: "whole number", float: "number", str: "text", Path: "path"}[kind]
