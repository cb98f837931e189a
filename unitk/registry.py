"""Names for components: tasks, criterions, architectures, optimizers, heads and more.

    @register("task", "my_objective")
    class MyObjective(Task): ...

Built-ins are found in every module of this package; plug-ins come from `--user-dir DIR`
(every `.py` of the folder) and from the entry-point group `unitk.plugins`. No built-in module that
registers something imports torch, but for the kinds of `MODULES`, so that a list, a help page or a
typo is answered at once.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from unitk.errors import UsageError, require

UNLISTED = HINT, VERB, WRITER, CONSTRAINT = "hint", "verb", "writer", "constraint"
"""Kinds that say nothing of a model: names of other toolkits, verbs, loggers of a run, and what
outputs of a search must be."""
KINDS = (
    "task criterion arch optimizer schedule vocab reader corpus annotator linker head format "
    "model_type evaluation measure driver estimator check route hub adapter metric tokenizer "
    f"{VERB} {HINT} {WRITER} {CONSTRAINT}"
).split()
MODULES = f"head format model_type driver measure estimator check route {CONSTRAINT}".split()
"""Kinds whose components need torch: finding them imports it."""
REGISTERS = re.compile(rb'register\("(\w+)"(?:, "(\w+)")?')
"""What the source of a module looks like that registers a component: its kind, mostly its name."""

OFFERS = {"task": ("Config", "symbols"), "criterion": ("build",), "optimizer": ("build",)}
"""Kind -> members without which a component cannot be chosen."""
CONFIGURED = "task", "criterion", "optimizer", "schedule", "evaluation"
"""Kinds whose options are the fields of a dataclass: the component, or the `Config` of a task."""

_entries: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
_places: dict[tuple[str, str], str] = {}
_loaded: set[str] = set()
_installed = functools.cache(lambda: entry_points(group="unitk.plugins"))  # takes 15 ms
PLUGIN = "unitk_user_"  # how the name of the module that a plug-in's file becomes begins
T = TypeVar("T")


def register(kind: str, name: str) -> Callable[[T], T]:
    """Give a component its name; the same name twice is an error that shows both places."""
    if kind not in _entries:
        raise UsageError(f"cannot register {name!r}: unknown kind {kind!r}{nearest(kind, KINDS)}")
    caller = sys._getframe(1)  # for the message of a name given twice
    at = f"{caller.f_code.co_filename}:{caller.f_lineno}"

    def add(component: T) -> T:
        if name in _entries[kind]:
            raise UsageError(f"{kind} {name!r} is registered twice: {_places[kind, name]} and {at}")
        missing = [member for member in OFFERS.get(kind, ()) if not hasattr(component, member)]
        if missing:
            raise UsageError(f"{kind} {name!r} of {at} has no {' and no '.join(missing)}")
        # not one that is inherited: fields of a class that is none are no options
        options = vars(getattr(component, "Config", component))
        if kind in CONFIGURED and "__dataclass_fields__" not in options:
            raise UsageError(f"{kind} {name!r} of {at}: its options are not those of a dataclass")
        _entries[kind][name] = component
        _places[kind, name] = at
        return component

    return add


def get(kind: str, name: str, option: str | None = None, known: Sequence[str] = ()) -> Any:
    """The component of that name, or a `UsageError` with the nearest of all or of those `known`."""
    if not has(kind, name):
        known = known or names(kind)
        listed = f" (known: {', '.join(known)})"
        if len(known) > 50:
            listed = f"; unitk list {kind} names all"
        near = hint("choice", name, known) or nearest(name, known) or listed
        raise UsageError(f"{option or '--' + kind}: there is no {kind} {name!r}{near}")
    return _entries[kind][name]


def has(kind: str, name: str) -> bool:
    """Whether a component has that name; only modules that spell the name are imported, if any."""
    for module, spelled in _registering().get(kind, {}).items():
        if name in spelled:
            importlib.import_module(module)
    return name in _entries[kind] or name in names(kind)


def name_of(kind: str, component: Any) -> str:
    """The name of a registered component; of any other one its own."""
    for name, registered in _entries[kind].items():
        if registered is component:
            return name
    return str(component.__name__)


def names(kind: str) -> list[str]:
    """Every registered name of a kind, sorted."""
    discover(kind)
    return sorted(_entries[kind])


def sources(kind: str) -> dict[str, Path]:
    """Name -> the file that registers it, as far as sources spell names; nothing is imported."""
    root = Path(__file__).parents[1]
    paths = dict[str, Path]()
    for module, spelled in _registering().get(kind, {}).items():
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        paths |= {name: path for name in spelled if name}
    # a plug-in's file is known by what it has registered
    return paths | {name: Path(_places[kind, name].rpartition(":")[0]) for name in _entries[kind]}


def discover(kind: str) -> None:
    """Import the modules of the package that register components of a kind, once."""
    for module in _registering().get(kind, []):
        importlib.import_module(module)


@functools.cache
def _registering() -> dict[str, dict[str, set[str]]]:
    """Kind -> module of this package -> names that its source registers, as far as it spells them.

    Reading them takes milliseconds; importing every module would import torch.
    """
    root = Path(__file__).parent
    by_kind: dict[str, dict[str, set[str]]] = {}
    for path in sorted(root.rglob("*.py")):
        if path != Path(__file__):
            module = ".".join(["unitk", *path.relative_to(root).with_suffix("").parts])
            for kind, name in REGISTERS.findall(path.read_bytes()):
                modules = by_kind.setdefault(kind.decode(), {})
                modules.setdefault(module.removesuffix(".__init__"), set()).add(name.decode())
    return by_kind


def import_object(path: str) -> Any:
    """The object `module:name`, imported when it is needed.

    A registered config names what it builds by a string, so that it can be read without torch.
    """
    return pkgutil.resolve_name(path)


def load_plugins(user_dir: Path | None = None) -> None:
    """Import entry-point plug-ins and every `.py` of `user_dir`; safe to call more than once."""
    for entry in _installed():
        if entry.value not in _loaded:
            _loaded.add(entry.value)
            with _name_plugin(f"the plug-in {entry.name} = {entry.value} of an installed package"):
                entry.load()
    if user_dir is None:
        return
    require(any(user_dir.glob("*.py")), f"--user-dir: {user_dir} is no folder with .py files")
    for path in sorted(user_dir.resolve().glob("*.py")):
        if str(path) not in _loaded:
            _import_file(path)
            _loaded.add(str(path))


def hint(role: str, name: str, known: Collection[str]) -> str:
    """`; fairseq's ... is ... here` if an "option" or "choice" has that name in another toolkit.

    Classes that know such names are registered; they are asked when an error is about to be raised.
    """
    hints = (getattr(_entries[HINT][toolkit], role)(name, known) for toolkit in names(HINT))
    return next(filter(None, hints), "")


def nearest(given: str, known: Collection[str]) -> str:
    """`; did you mean ...?` for a near miss or a beginning, otherwise nothing."""
    close = list[str]()
    if given.strip("-"):  # every name begins with nothing
        close = difflib.get_close_matches(given, known, 1, 0.85)  # --hypotheses for --hypothesis
        close += [name for name in known if name.startswith(given) and name not in close]
    close = close[:3] or difflib.get_close_matches(given, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _import_file(path: Path) -> None:
    # the whole path is part of the module's name: two folders may hold files of the same name
    name = f"{PLUGIN}{abs(hash(str(path))):x}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = {*_places}
    try:
        with _name_plugin(f"--user-dir: {path}"):
            spec.loader.exec_module(module)
    except UsageError:  # a file that is mended can be imported again, as in a notebook
        for kind, component in {*_places} - before:
            del _places[kind, component], _entries[kind][component]
        raise


def plugin_line(error: BaseException) -> str:
    """`FILE, line N` of the last call in a plug-in of `--user-dir` before an error; "" if none."""
    lines = [
        f"{frame.f_code.co_filename}, line {line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(PLUGIN)
    ]
    return lines[-1] if lines else ""


@contextmanager
def _name_plugin(plugin: str) -> Iterator[None]:
    """Name a plug-in that cannot be imported, and the line, instead of a traceback."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        if line := plugin_line(error):
            plugin = f"--user-dir: {line},"
        raise UsageError(f"{plugin} cannot be imported: {type(error).__name__}: {error}") from error
