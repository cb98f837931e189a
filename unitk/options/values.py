"""One value as text: parsing by a field's type, and back.

Types: int, float, bool, str, Path, X | None, tuple[X, ...], Literal[...], a `Named` component, and
`Schedule`: a registered schedule written `NAME:field=value,field=value`, or a plain number.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np

from unitk import registry
from unitk.errors import UsageError

Schedule = Annotated[Any, "schedule"]
"""Marks a field whose value is a schedule: `(step, total) -> float`."""


class Named(NamedTuple):
    """Marks a field whose value is the name of a component of this kind, or another word."""

    kind: str
    other: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every value; plug-ins are to be loaded before."""
        return self.other, *registry.names(self.kind)


COMMA = re.compile(r"(?<!\\),")  # what parts the values of a list; `\,` is a comma within one
SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9}
WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def parse_value(text: str | None, kind: Any, name: str) -> Any:
    """`text` as a value of type `kind`; `name` is the option for the error message."""
    if kind is bool:
        if text is None:
            return True
        if text.lower() not in WORDS:
            raise UsageError(f"{name} must be on or off, got {text!r}")
        return WORDS[text.lower()]
    if text is None:
        raise UsageError(f"{name} needs a value ({type_name(kind)})")
    origin = get_origin(kind)
    if choices := _choices(kind):
        if text not in choices:
            hint = registry.nearest(text, choices)
            raise UsageError(f"{name} must be one of {', '.join(choices)}, got {text!r}{hint}")
        return text
    if origin is Annotated:
        return parse_schedule(text, name)
    if origin in (Union, UnionType):
        inner = [part for part in get_args(kind) if part is not NoneType]
        if len(inner) < len(get_args(kind)) and text.lower() in ("none", ""):
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
    """A path; an address such as https://... is refused."""
    if re.match(r"[A-Za-z][\w+.-]+://", text):
        raise UsageError(f"{name}: {text} is an address; download it and name the file")
    return Path(text)


def _parse_tuple(text: str, inner: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    parts = [part.replace("\\,", ",").strip() for part in COMMA.split(text)] if text else []
    if len(inner) == 2 and inner[1] is Ellipsis:
        if inner[0] is Path and len(parts) > 1 and os.path.lexists(text):
            return (Path(text),)  # a file or folder with a comma in its name
        if inner[0] is int and "..." in parts:
            return _progressions(parts, name)
        return tuple(parse_value(part, inner[0], name) for part in parts)
    if len(parts) != len(inner):
        form = ",".join(type_name(one) for one in inner)
        raise UsageError(f"{name} must be {len(inner)} values ({form}), got {text!r}")
    return tuple(parse_value(part, one, name) for part, one in zip(parts, inner, strict=True))


def _progressions(parts: list[str], name: str) -> tuple[int, ...]:
    """Whole numbers, of which `a,b,...,z` are all from a to z at the distance of a and b."""
    found: list[int] = []
    for before, part in zip(["", *parts], [*parts, ""], strict=True):
        step = found[-1] - found[-2] if len(found) > 1 else 0
        if part not in ("...", ""):
            number = int(_parse_number(part, int, name))
            if before == "..." and step > 0 and number in range(found[-1], number + 1, step):
                found += range(found[-1] + step, number, step)
                before = part
            found.append(number)
        if before == "...":
            form = "numbers that rise in equal steps, as in 1M,2M,...,10M"
            raise UsageError(f"{name}: ... stands between {form}")
    return tuple(found)


def _parse_number(text: str, kind: type, name: str) -> int | float:
    digits, scale = text.strip(), 1
    if digits[-1:] in SUFFIXES and digits[:-1]:
        digits, scale = digits[:-1], SUFFIXES[digits[-1]]
    try:
        number = float(digits) * scale
        if kind is float:
            return number
        if number == int(number):
            # a float has 53 bits, a seed may have more
            return int(digits) * scale if digits.lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"{name} must be a {type_name(kind)}, got {text!r}")


def parse_schedule(text: str, name: str) -> Any:
    """A number is a constant; otherwise `NAME:field=value,...` of a registered schedule."""
    try:
        return registry.get("schedule", "constant")(value=float(text))
    except ValueError:
        pass
    label, _, rest = text.partition(":")
    cls = registry.get("schedule", label, name)
    kinds = {field.name: field.type for field in fields(cls)}
    values = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in kinds:
            hint = registry.nearest(key, kinds) or f"; its fields are {', '.join(kinds)}"
            raise UsageError(f"{name}: {part!r} is not a field=value of schedule {label}{hint}")
        values[key] = _parse_number(value, float, f"{name}: {key}")
    return cls(**values)


def render(value: Any) -> str:
    """The text that `parse_value` turns back into `value`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(render(part).replace(",", "\\,") for part in value)
    if isinstance(value, (int, float, str, Path)):
        return str(value)
    for label in registry.names("schedule"):
        if registry.get("schedule", label) is type(value):
            given = [f"{f.name}={float(getattr(value, f.name))}" for f in fields(value)]
            return f"{label}:{','.join(given)}" if given else label
    raise AssertionError(f"no text for {value!r}")


def given_text(value: object, name: str) -> str:
    """The text of a value that a caller of Python gives for the option `name`.

    A list has the form of a tuple. Raises UsageError for types that no option has.
    """
    if isinstance(value, list | tuple):
        flat = not any(isinstance(one, list | tuple | dict) for one in value)
        if not flat:
            raise UsageError(f"{name} cannot be a list of lists or objects")
        return ",".join(given_text(one, name).replace(",", "\\,") for one in value)
    try:
        return render(value.item() if isinstance(value, np.generic) else value)
    except AssertionError:
        kind = type(value).__name__
        raise UsageError(f"{name} cannot be {value!r}: no option takes a {kind}") from None


def type_name(kind: Any) -> str:
    """What a help page and an error call a type."""
    origin = get_origin(kind)
    if kind is bool:
        return "on|off"
    if choices := _choices(kind):
        return "|".join(choices)
    if origin is Annotated:
        return "number or NAME:field=value,..."
    if origin in (Union, UnionType):
        return type_name(next(part for part in get_args(kind) if part is not NoneType))
    if origin is tuple:
        return type_name(get_args(kind)[0]) + ",..."
    return {int: "whole number", float: "number", str: "text", Path: "path"}[kind]
