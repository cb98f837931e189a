"""Every option of a registered component is read from its config somewhere in the code."""

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import shape

from unitk import registry
from unitk.models.config import ModelConfig
from unitk.options.fields import options

HOLDERS = {"config", "c", "own", "arch", "settings", "optimizer"}
"""What the code calls a config, or the last part of it, as in `self.config.width`."""


def reads():
    """Name of an attribute -> (what it is read from, the file)."""
    found = defaultdict(set)
    for name in shape.files():
        for node in ast.walk(shape.tree(name)):
            if isinstance(node, ast.Attribute):
                holder = getattr(node.value, "attr", getattr(node.value, "id", ""))
                found[node.attr].add((holder, name))
    return found


def is_read(name, cls, found):
    """Whether something reads the option from a config; its own class calls it `self`."""
    paths = (inspect.getsourcefile(base) for base in cls.__mro__[:-1])
    homes = {str(Path(path).relative_to(shape.ROOT)) for path in paths if path}
    homes = {home for home in homes if not home.startswith("unitk/options/")}
    return any(
        holder in HOLDERS or (holder == "self" and at in homes) for holder, at in found[name]
    )


def test_every_option_is_read():
    found = reads()
    for kind in ("task", "criterion", "optimizer", "arch", "schedule"):
        for name in registry.names(kind):
            component = registry.get(kind, name)
            if not component.__module__.startswith("unitk."):
                continue  # of a plug-in that another test has registered
            made = component() if kind == "arch" else component
            cls = component.Config if kind == "task" else type(made) if kind == "arch" else made
            unread = [one.name for one in options(cls) if not is_read(one.name, cls, found)]
            assert not unread, f"{kind} {name}: nothing reads {unread}"


def test_an_attribute_of_something_else_is_not_an_option_that_is_read():
    found = reads()
    assert found["weight"] and found["grad"]  # of modules and tensors
    assert not is_read("weight", ModelConfig, found) and not is_read("grad", ModelConfig, found)
