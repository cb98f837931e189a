"""Settings: options as text under their dotted keys, each with its origin.

Command lines, YAML files, checkpoints and run folders are read as `Settings`. `Settings.under`
merges those of several sources, and `config.resolve` parses the result into options.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_origin

from unitk import registry
from unitk.errors import UsageError, require, say, show_value
from unitk.foreign import parse_yaml
from unitk.options import ready
from unitk.options.fields import WORDS, flag, options, render

HELP = ("-h", "--help", "--help-all")
UNFLAGGED = "command line"  # where words without a flag are


class Origin(IntEnum):
    """Where the value of an option comes from; a later origin wins over an earlier one."""

    DEFAULT, TASK, PRESET, CHECKPOINT, FILE, FLAG = range(6)


STARTS = {
    "task ": Origin.TASK,
    "recipe": Origin.TASK,
    "preset ": Origin.PRESET,
    "checkpoint ": Origin.CHECKPOINT,
    "--": Origin.FLAG,
    UNFLAGGED: Origin.FLAG,
}
"""How `Setting.where` begins -> its origin; other texts are paths of files."""


@dataclass(frozen=True)
class Setting:
    """The words of an option, and who gave them."""

    words: tuple[str | None, ...]
    """Several if the option is repeated; None stands for a switch without a value."""
    origin: Origin = Origin.DEFAULT
    where: str = "default"
    """Its source in messages: the flag, the file, "preset NAME", "checkpoint PATH", ..."""

    @property
    def text(self) -> str:
        """The last word; a switch without a value is on."""
        return "on" if self.words[-1] is None else self.words[-1]

    @property
    def parts(self) -> list[str]:
        """The words, split at blanks."""
        return [part for word in self.words for part in (word or "").split()]


class Settings(Mapping[str, Setting]):
    """Options by dotted key: `lr`, `task`, `task.mean_span`."""

    def __init__(self, settings: Mapping[str, Setting] | None = None) -> None:
        self._settings = dict(settings or {})

    def __getitem__(self, key: str) -> Setting:
        return self._settings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    @classmethod
    def of_texts(cls, texts: Mapping[str, str | None], origin: Origin, where: str = "") -> Settings:
        """Options of one origin; without a `where`, each is named by its flag."""
        return cls(
            {key: Setting((text,), origin, where or flag(key)) for key, text in texts.items()}
        )

    @classmethod
    def read(cls, path: Path) -> Settings:
        """The options of a run from its config.yaml, each with the origin that it had (`yaml`)."""
        settings = read_yaml(path)  # refuses other encodings
        lines = path.read_text(encoding="utf-8").splitlines()
        noted = {line.partition(":")[0]: line.rpartition("  # ")[2] for line in lines}
        for key, where in noted.items():
            if key in settings:  # people may edit the file
                starts = (origin for start, origin in STARTS.items() if where.startswith(start))
                origin = Origin.DEFAULT if where == "default" else next(starts, Origin.FILE)
                settings._settings[key] = replace(settings[key], origin=origin, where=where)
        return settings

    @property
    def texts(self) -> dict[str, str]:
        """The text of each option."""
        return {key: setting.text for key, setting in self.items()}

    def given(self, key: str, least: Origin = Origin.FILE) -> bool:
        """Whether an option has the origin `least` or a later one."""
        return key in self and self[key].origin >= least

    def of(self, part: str) -> Settings:
        """The options of a component ("task", or "task.lm" of mixed ones), without its name."""
        keys = (key for key in self if key.rpartition(".")[0] == part)
        return Settings({key.rpartition(".")[2]: self[key] for key in keys})

    def only(self, *kinds: str) -> Settings:
        """The choice of components of these kinds, and all their options."""
        return Settings({key: self[key] for key in self if key.partition(".")[0] in kinds})

    def without(self, keys: Iterable[str]) -> Settings:
        """All options but these."""
        return Settings({key: self[key] for key in self if key not in {*keys}})

    def tasks(self) -> dict[str, str]:
        """The names of the tasks, each with the part that has its options: task, or task.NAME."""
        parts = (word.partition("=") for word in self["task"].parts)
        return {name: f"task.{name}" if share else "task" for name, share, _ in parts}

    def under(self, later: Settings) -> Settings:
        """Merge these settings with `later` ones, which win.

        If the later ones choose another component, the options of the one chosen here are dropped,
        and a note says so. So is the layout of texts with another --init-from; that a learning rate
        for another model or optimizer is kept is noted, too.
        """
        kept = self
        # a component is named without a dot, its options with one
        for kind in [key for key in later if key in self and "." not in key]:
            names = _names(later[kind])
            # a layout is that of the model which the lower settings name
            start = "task.layout" if kind == "init_from" else f"{kind}."
            old = [key for key in kept if key.startswith(start)]
            if names in (_names(self[kind]), ["none"]):
                continue
            choice = f"{flag(kind)} {' '.join(names)}"
            if kind in ("init_from", "optimizer") and "lr" in {*self} - {*later}:
                usual = "; BERT is fine-tuned at 2e-5 to 5e-5" if kind == "init_from" else ""
                say(
                    f"note: {choice} keeps --lr {self['lr'].text} of {self['lr'].where}, which is "
                    f"for {self[kind].text}{usual}"
                )
            if old:
                say(f"note: {choice} drops {', '.join(old)} of {self[old[0]].where}")
                kept = kept.without(old)
        return Settings({**kept, **later})

    def yaml(self) -> str:
        """The settings as a file for `--config`, each with its origin as a remark."""
        import yaml

        lines = []
        for key, setting in self.items():
            scalar = yaml.safe_dump({key: setting.text}, width=10**6, allow_unicode=True).strip()
            lines.append(f"{scalar}  # {setting.where}")
        return "\n".join(lines) + "\n"


NOTHING = Settings()
GONE = {"task.languages": "0,0", "task.opening": "cls", "arch.cross_by_segment": "off"}
"""Options that more components had in 0.1.0, each with the value that has no effect. Files with
these values can be read."""


def _names(choice: Setting) -> list[str]:
    """The components that a setting names, without the shares of mixed tasks."""
    return [word.partition("=")[0] for word in choice.parts]


def rename_old(given: Settings) -> Settings:
    """Rename the options of an earlier version to their current names."""
    if (heads := given.get("arch.class_heads")) is None:
        return given
    words = (word for text in heads.words for word in (text or "").split(",") if word)
    now = replace(heads, words=(",".join(f"class:{word}" for word in words),))
    return Settings({**given.without(["arch.class_heads"]), "arch.heads": now})


def gather_settings(items: Iterable[tuple[str, str | None, str]], origin: Origin) -> Settings:
    """Settings of one origin from (key, word, where).

    Words of the same place belong together; those of a later place win.
    """
    settings: dict[str, Setting] = {}
    for key, word, where in items:
        before = settings.get(key)
        words = before.words if before and before.where == where else ()
        settings[key] = Setting((*words, word), origin, where)
    return Settings(settings)


def read_options(argv: Sequence[str], main: type, positional: str | None = None) -> Settings:
    """The options of a command line above those of the files that its `--config` names.

    Plug-ins are imported, those of `--user-dir` too.
    """
    given = read_flags(argv, main, positional)
    files = NOTHING
    if "config" in given:
        for path in filter(None, given["config"].words):
            files = files.under(read_yaml(Path(path)))
    settings = files.under(given)
    folder = settings["user_dir"].words[-1] if "user_dir" in settings else None
    if folder not in (None, "none", ""):  # Path("") is the current folder
        registry.load_plugins(Path(folder))
    registry.load_plugins()
    return settings


def read_flags(argv: Sequence[str], main: type, positional: str | None = None) -> Settings:
    """Parse words of a command line; a value may not begin with `--` (write `--x=--y`)."""
    return gather_settings(_split(argv, main, positional), Origin.FLAG)


def _split(
    argv: Sequence[str], main: type, positional: str | None
) -> Iterator[tuple[str, str | None, str]]:
    """Yield the key, the value and the flag of each option in a command line."""
    kinds = {option.name: option.type for option in options(main)}
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--" and positional:  # texts, whatever they begin with
            yield from ((positional, text, UNFLAGGED) for text in words)
            return
        if word in HELP:
            continue
        if not word.startswith("--") or not word.strip("-"):
            if positional is not None or not re.match("-[a-z]$", word):
                yield positional or "", word, UNFLAGGED
                continue
        name, equals, text = word.partition("=")
        key = name.lstrip("-").replace("-", "_")
        if keyword.iskeyword(key):
            key += "_"
        value: str | None = text if equals else None
        # a word of three dashes or more, such as a mark of documents, is no option
        if not equals and words and not re.match("--(?!-+$)|-[a-z]$", words[0]):
            # after a switch comes one of the verb's words, if it takes any, else its value
            if positional is None or kinds.get(key) is not bool or words[0].lower() in WORDS:
                value = words.pop(0)
        yield key, value, name
        if (
            positional is None and get_origin(kinds.get(key)) is tuple
        ):  # a wildcard that the shell expanded
            while words and not words[0].startswith("--"):
                yield key, words.pop(0), name


def read_yaml(path: Path, named: str = "") -> Settings:
    """The options of a config file; nested levels and dotted keys mean the same.

    `named` is how errors name the file, if it is not that of `--config`.
    """
    if not named:
        if hint := ready.hint(path):
            raise UsageError(f"--config: there is no file {path}{hint}")
        named = f"--config {path}"
    tree = parse_yaml(ready.file_of(path), named) or {}  # a file of comments has no option
    require(isinstance(tree, dict), f"{named} must hold `option: value` lines")
    given = ((key, text, str(path)) for key, text in _flatten(tree, ""))
    return gather_settings(given, Origin.FILE)


def _flatten(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        path = (prefix + str(key)).replace("-", "_")
        if isinstance(value, dict) and path.partition(".")[0] in registry.KINDS:
            yield from _flatten(value, path + ".")
        elif prefix == "task." and key in registry.names("task"):
            yield "task", f"{key}={value}"
        else:
            # `task: {name: glm_infill}` is the nested spelling of `task: glm_infill`
            path = re.sub("^([^.]+)[.]name$", r"\1", path)
            yield from ((path, text) for text in argument_texts(value, flag(path)))


def plain(value: Any) -> Any:
    """A value, an array, a column or a table of numpy, pandas, Arrow or polars as Python's own."""
    for name in ("to_pylist", "to_dicts", "tolist", "as_py"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def argument_texts(value: object, name: str) -> list[str]:
    """The texts of an option that may be repeated: of a dict, or of a list of mixed tasks.

    The values of a dict have the form NAME=VALUE; other values are as for `argument_text`.
    """
    if isinstance(value, Mapping):
        return [f"{key}={argument_text(item, name)}" for key, item in value.items()]
    if name == "--task" and isinstance(value, list | tuple):
        return [argument_text(item, name) for item in value]
    return [argument_text(value, name)]


def argument_text(value: object, name: str) -> str:
    """The text of a value that a caller of Python gives for the option `name`.

    A list has the form of a tuple. Raises UsageError for types that no option has.
    """
    value = plain(value)
    if isinstance(value, list | tuple):
        flat = not any(isinstance(item, list | tuple | dict) for item in value)
        require(flat, f"{name} cannot be a list of lists or objects")
        return ",".join(argument_text(item, name).replace(",", "\\,") for item in value)
    try:
        return render(fspath(value) if isinstance(value, PathLike) else value)
    except AssertionError:
        raise UsageError(
            f"{name} cannot be {show_value(value)}: no option takes a {type(value).__name__}"
        ) from None
