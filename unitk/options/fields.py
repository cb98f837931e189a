"""The fields of a config dataclass as options: names, types, defaults, help; chosen components."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import threading
import typing
from collections.abc import Hashable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

# Python's parser can fail where several threads use it at once (CPython issue 106905)
PARSING = threading.Lock()


@dataclass(frozen=True)
class Option:
    """One field of an options dataclass."""

    name: str
    type: Any
    default: Any
    owner: type
    about: str = ""  # its help, where it is not found in a source

    @property
    def flag(self) -> str:
        return flag(self.name)

    @property
    def help(self) -> str:
        """The string that stands under the field; sources are not read before it is asked for."""
        # a subclass may explain a field anew
        every = (_field_docs(base) for base in self.owner.__mro__[:-1])
        return self.about or next((docs[self.name] for docs in every if self.name in docs), "")

    @property
    def brief(self) -> str:
        """The first sentence of its help, without the full stop."""
        return self.help.split(". ")[0].rstrip(".")


@dataclass(frozen=True)
class Component:
    """A chosen component: the registered object and its config (for an arch, the model's)."""

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
    return tuple(
        Option(
            field.name,
            hints[field.name],
            field.default_factory() if field.default_factory is not MISSING else field.default,
            field.metadata.get("owner", cls),
            field.metadata.get("help", ""),
        )
        for field in fields(cls)
    )


@functools.cache
def _field_docs(cls: Hashable) -> dict[str, str]:
    """Field name -> the string that stands under it in the class body."""
    assert isinstance(cls, type)
    try:
        with PARSING:
            source = textwrap.dedent(inspect.getsource(cls))
            parsed = ast.parse(source)
    except (OSError, TypeError):  # made in an interactive session: no source, no help
        return {}
    body = typing.cast(ast.ClassDef, parsed.body[0]).body
    found = {}
    for statement, following in zip(body, body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            found[statement.target.id] = " ".join(following.value.value.split())
    return found
