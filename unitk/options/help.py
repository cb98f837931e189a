"""Help pages made from the options dataclasses: a line an option, grouped by component."""

from __future__ import annotations

import inspect
import math
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from unitk import registry
from unitk.options.fields import Bound, Component, Option, flag, options, render, type_name

VALUES = {"whole number": "N", "number": "X", "text": "TEXT", "path": "PATH"}
"""Name of a type -> the placeholder of its values on a help page."""
SHORT = 20
"""Characters of choices that are beside the name of their option."""


def help_page(
    verb: str,
    main: type,
    components: dict[str, Component] | None,
    positional: str | None,
    everything: bool = True,
) -> str:
    """The help page of a verb, with the options of the components that are chosen.

    `components` has them by key ("task", "task.glm_infill", "arch"); None: the task is yet to be
    chosen.
    Where `main.HELP` sorts the options of a verb (see `group_options`), the page has its common
    ones, each with the first sentence of its text; `everything`: all, with all of their texts.
    """
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    words = f" {positional.upper()}" if positional else ""
    about, *examples = inspect.cleandoc(main.__doc__ or "").split("\n\n")
    lines = [f"unitk {verb}{words} [options]", "", textwrap.fill(" ".join(about.split()), width)]
    for example in examples:
        lines += ["", textwrap.indent(example, "  ")]
    brief = not everything and "HELP" in vars(main)
    groups = group_options(main)
    sections = [(head, common if brief else common + rare) for head, common, rare in groups]
    rows = {o.name: (o.flag, o, o.default) for o in options(main)}
    left = _column([rows[name] for _, names in sections for name in names])
    for heading, names in sections:
        if names:
            lines += ["", *filter(None, [heading])]
            lines += _table([rows[name] for name in names], width, left, brief)
    if components is None:
        known = textwrap.fill(", ".join(registry.names("task")), width - 2)
        lines += ["", "--task NAME chooses the objective:", textwrap.indent(known, "  ")]
        lines += [f"`unitk {verb} --task NAME --help` adds its options."]
    else:
        lines += _component_pages(components, width)
    if brief:
        lines += ["", f"`unitk {verb} --help-all` explains every option."]
    return "\n".join(lines) + "\n"


def group_options(main: type) -> list[tuple[str, list[str], list[str]]]:
    """The options of a verb by heading: the common ones, and those that only --help-all shows.

    A class that has `HELP` sorts its options there: heading -> "common names | rare names"; others
    are rare, and listed with their class. Without `HELP` all are common, a class's own ones
    before the inherited ones, whose heading is the first line of their class's docstring.
    """
    owns = [vars(owner).get("__annotations__", ()) for owner in main.__mro__]
    if "HELP" in vars(main):
        groups = []
        for heading, names in vars(main)["HELP"].items():
            common, _, rare = names.partition("|")
            groups.append((heading, common.split(), rare.split()))
        group_of = {
            name: at for at, (_, common, rare) in enumerate(groups) for name in common + rare
        }
        for name in [option.name for option in options(main) if option.name not in group_of]:
            # where most of the options of its class are
            own = next(own for own in owns if name in own)
            count = Counter(group_of[mate] for mate in own if mate in group_of)
            groups[max(range(len(groups)), key=count.__getitem__)][2].append(name)
        return groups
    groups = []
    left = dict.fromkeys(option.name for option in options(main))
    for owner, own in zip(main.__mro__, owns, strict=True):
        names = [name for name in left if name in own]
        left = dict.fromkeys(name for name in left if name not in names)
        heading = "" if owner is main else (owner.__doc__ or "").partition("\n")[0]
        groups.append((heading, names, []))
    return groups


def _component_pages(components: dict[str, Component], width: int) -> list[str]:
    lines: list[str] = []
    for key, component in components.items():
        rows = [
            (flag(f"{key}.{o.name}"), o, getattr(component.config, o.name))
            for o in options(type(component.config))
        ]
        kind = key.partition(".")[0]
        lines += ["", f"{flag(kind)} {component.name}", *_table(rows, width, _column(rows))]
    return lines


def _column(rows: Sequence[tuple[str, Option, Any]]) -> int:
    """The column in which explanations begin."""
    return min(max((len(_head(*row[:2])) for row in rows), default=0), 24) + 4


def _head(name: str, option: Option) -> str:
    """An option as it is written: its name and what stands for its value; a switch has none."""
    kind, *more = type_name(option.type).split(",")
    if "|" in kind:  # a few short words stand for themselves: auto|cpu|cuda
        value = {"on|off": ""}.get(kind, kind if len(kind) <= SHORT else "NAME")
    else:
        value = VALUES.get(kind, "X|NAME:...")
    return " ".join(filter(None, [name, ",".join([value, *more[-1:]])]))


def _table(
    rows: Sequence[tuple[str, Option, Any]], width: int, left: int, brief: bool = False
) -> list[str]:
    lines = []
    for name, option, value in rows:
        about = option.help.removesuffix(f" Default: {_derived(option)}.").rstrip(".")
        words = option.brief if brief else about, _notes(option, value, brief)
        text = textwrap.wrap(" ".join(filter(None, words)), width - left, break_on_hyphens=False)
        head = f"  {_head(name, option)}"
        if len(head) > left - 2:
            lines.append(head)
            head = ""
        lines += [head.ljust(left) + "".join(text[:1]), *(" " * left + line for line in text[1:])]
    return lines


def _derived(option: Option) -> str:
    """The default of an option that depends on others, as its last sentence says it."""
    match = re.search(r"Default: ([^.]+)\.$", option.help)
    return match[1] if match else ""


def _notes(option: Option, value: Any, brief: bool) -> str:
    """What is possible, where only some words are and they are not beside the name, and the
    default.

    Unless `brief`, the bounds of a share are shown too; that a count is not negative is plain.
    """
    kind = type_name(option.type)
    rule = option.rule
    notes = []
    if "|" in kind and len(kind) > SHORT:
        notes.append(f"one of {kind.replace('|', ', ')}")
    if isinstance(rule, Bound) and rule.high < math.inf and not brief:
        notes.append(str(rule))
    nothing = value is MISSING or value is None or value is False
    default = "" if nothing else render(value)
    if value is MISSING:
        notes.append("needed")
    elif default := _derived(option) or default:
        notes.append(f"default: {default}" if notes or option.default is None else default)
    return f"[{'; '.join(notes)}]" if notes else ""
