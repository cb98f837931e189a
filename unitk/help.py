"""Help pages made from the options dataclasses: a line an option, grouped by component."""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from unitk import registry
from unitk.options import Component, Option, flag, options
from unitk.values import render, type_name


def help_page(
    verb: str,
    main: type,
    parts: dict[str, Component] | None,
    positional: str | None,
    brief: bool = False,
) -> str:
    """The help page of a verb, with the options of the components that are chosen.

    `parts` has them by key ("task", "task.glm_infill", "arch"); None: the task is yet to be chosen.
    `brief`: a line an option.
    """
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    words = f" {positional.upper()}" if positional else ""
    about, *examples = inspect.cleandoc(main.__doc__ or "").split("\n\n")
    lines = [f"unitk {verb}{words} [options]", "", textwrap.fill(" ".join(about.split()), width)]
    lines += [
        line for example in examples for line in ("", *("  " + one for one in example.split("\n")))
    ]
    rows = [(o.flag, o, o.default) for o in options(main)]
    left = dict.fromkeys(o.name for o in options(main))
    for owner in main.__mro__:  # a class's own options come first, then the inherited ones
        names = [name for name in left if name in owner.__dict__.get("__annotations__", ())]
        own = [row for row in rows if row[1].name in names]
        left = dict.fromkeys(name for name in left if name not in names)
        heading = [] if owner is main else [(owner.__doc__ or "").partition("\n")[0]]
        lines += ["", *heading, *_table(own, width, _left(rows), brief)] if own else []
    if parts is None:
        known = ", ".join(registry.names("task"))
        lines += ["", f"--task NAME chooses the objective ({known});"]
        lines += [
            f"`unitk {verb} --task NAME --help` adds its options. `unitk list` names everything."
        ]
    else:
        lines += _component_pages(parts, width, brief)
    lines += ["", f"`unitk {verb} --help` says all of it."] if brief else []
    return "\n".join(lines) + "\n"


def _component_pages(parts: dict[str, Component], width: int, brief: bool) -> list[str]:
    lines: list[str] = []
    for key, component in parts.items():
        rows = [
            (flag(f"{key}.{o.name}"), o, getattr(component.config, o.name))
            for o in options(type(component.config))
        ]
        kind = key.partition(".")[0]
        lines += ["", f"{flag(kind)} {component.name}", *_table(rows, width, _left(rows), brief)]
    return lines


def _left(rows: Sequence[tuple[str, Option, Any]]) -> int:
    """The column in which explanations begin."""
    return min(max((len(name) for name, _, _ in rows), default=0), 34) + 4


def _table(
    rows: Sequence[tuple[str, Option, Any]], width: int, left: int, brief: bool
) -> list[str]:
    lines = []
    for name, option, value in rows:
        about = option.help.rstrip(".")
        text = textwrap.wrap(f"{about} [{_notes(option, value)}]", width - left)
        if brief:
            first = re.split(r"\. (?=[A-Z`-])", about)[0]  # its first sentence
            text = [textwrap.shorten(first, width - left, placeholder=" ...")]
        head = f"  {name}".ljust(left)
        if len(head) > left:
            lines.append(head)
            head = " " * left
        lines += [head + text[0], *(" " * left + more for more in text[1:])]
    return lines


def _notes(option: Option, value: Any) -> str:
    """The default; where there is none, or only some words are possible, also what is possible."""
    kind = type_name(option.type)
    if value is MISSING:
        return f"{kind}, needed"
    default = "" if render(value) in ("none", "") else render(value)
    if not default or "|" in kind and option.type is not bool:
        return ", ".join(filter(None, [kind, default]))
    return default
