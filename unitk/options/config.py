"""Options: frozen dataclass <-> settings, checked and explained.

A verb has one dataclass of flat options and may choose components by name (`--task glm_infill`),
whose fields are then options too (`--task.mean-span 5`). The string under a field is its help.
Every value arrives as text and is parsed by the field's type; the order is
dataclass < preset of the architecture < checkpoint < `--config` file < flags.

    parsed = parse("train", TrainConfig, argv, kinds=("task", "arch", "criterion", "optimizer"))
    parsed.main.lr, parsed.components["task"].config.mean_span
    parsed.settings["task.mean_span"].origin
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, is_dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from unitk import registry
from unitk.errors import UsageError, require
from unitk.options.fields import (
    Checked,
    Component,
    Mark,
    Schedule,
    check_values,
    flag,
    options,
    parse_value,
    render,
    type_name,
)
from unitk.options.help import help_page
from unitk.options.settings import (
    GONE,
    HELP,
    NOTHING,
    UNFLAGGED,
    Origin,
    Setting,
    Settings,
    argument_text,
    read_options,
    rename_old,
)

__all__ = ["Component", "Parsed", "flag", "options", "parse", "resolve"]

SIBLINGS = ("arch", "criterion")  # kinds whose default the task names
DEFAULTS = {"optimizer": "adamw"}
BARE = ("data", "input")  # options that other systems take as words without a flag


@dataclass(frozen=True)
class With(Mark):
    """An option that has an effect only where another is set, or has one of some values."""

    option: str
    values: tuple[str, ...] = ()

    def explain_unused(self, config: Any) -> str:
        """Why an option has no effect, such as "without --sampling"; empty if it has one."""
        value = getattr(config, self.option)
        if not self.values:
            needed = next(option for option in options(type(config)) if option.name == self.option)
            return "" if value != needed.default else f"without {needed.flag}"
        chosen = {*value} if isinstance(value, tuple) else {value}
        if chosen & {*self.values}:
            return ""
        return f"without {flag(self.option)} {' or '.join(self.values)}"


@dataclass(frozen=True)
class Shared(Mark):
    """Marks an option of several verbs with their common help; one under the field replaces it."""

    about: str


Checkpoint = Annotated[
    Path, Shared("Run folder (its best checkpoint), checkpoint or bundled model.")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], Shared("Device to compute on. auto: CUDA if there is a GPU.")
]
UserDir = Annotated[Path | None, Shared("Folder of plug-ins. Every .py file in it is imported.")]
ConfigFile = Annotated[Path | None, Shared("YAML file with options. Flags override it.")]


@dataclass(frozen=True)
class Parsed:
    """The options of a verb, parsed and checked."""

    main: Any
    components: dict[str, Component]
    given: Settings = NOTHING
    """The options that flags, config files or a checkpoint gave; the others have their defaults."""
    mixture: dict[str, Component] = field(default_factory=dict)
    """Tasks by name where several are mixed; the first one is `components["task"]` too."""
    aside: Settings = NOTHING
    """Options of components that are resolved later, with those of a checkpoint."""

    def fields(self) -> dict[str, tuple[Any, Any]]:
        """The type and the value of every option under its dotted key."""
        fields = {}

        def add(config: Any, prefix: str) -> None:
            for option in options(type(config)):
                fields[prefix + option.name] = option.type, getattr(config, option.name)

        for kind, component in self.components.items():
            if kind == "task" and self.mixture:
                shares = (f"{name}={render(task.share)}" for name, task in self.mixture.items())
                fields[kind] = str, " ".join(shares)
                for name, task in self.mixture.items():
                    add(task.config, f"task.{name}.")
            else:
                fields[kind] = str, component.name
                add(component.config, f"{kind}.")
        add(self.main, "")
        return fields

    @cached_property
    def settings(self) -> Settings:
        """Every option as text, which parses back to the same value, with its origin."""
        texts = {key: render(value) for key, (_, value) in self.fields().items()}
        return Settings({k: replace(self._setting(k), words=(text,)) for k, text in texts.items()})

    def _setting(self, key: str) -> Setting:
        """The words of an option, and where they come from."""
        if key in self.given:
            return self.given[key]
        kind, dot, _ = key.partition(".")
        if kind in SIBLINGS and not dot and "task" in self.components:
            return Setting((), Origin.TASK, f"task {self.components['task'].name}")
        if kind == "arch":
            return Setting((), Origin.PRESET, f"preset {self.components[kind].name}")
        return Setting(())

    def differences(self, other: Settings) -> dict[str, str]:
        """The options that have another value in these settings, each with its text there."""
        return {
            key: other[key].text
            for key, (kind, value) in self.fields().items()
            if key in other and parse_value(other[key].text, kind, flag(key)) != value
        }

    def idle(self, why: str, *names: str) -> None:
        """Raise a `UsageError` that the first given one of these options has no effect.

        An option of a checkpoint was not given: it may be idle.
        """
        for name in names:
            require(not self.settings.given(name), f"{flag(name)} has no effect {why}")


def parse(
    verb: str,
    main: type,
    argv: Sequence[str],
    kinds: Sequence[str] = (),
    positional: str | None = None,
    aside: Sequence[str] = (),
    defaults: Settings = NOTHING,
) -> Parsed:
    """Parse a verb's arguments; an option of `HELP` prints the options and ends the program.

    `positional` names the field that takes words without a flag; options of the kinds `aside` are
    not resolved. `--config FILE` and `--user-dir DIR` are understood when `main` has fields of
    these names. What is given wins over `defaults`.
    """
    given = defaults.under(read_words(verb, main, argv, kinds, positional))
    left = [key for key in given if key.startswith(tuple(f"{kind}." for kind in aside))]
    parsed = resolve(main, given.without(left), kinds)
    for option in options(main):
        for mark in option.marks:
            if isinstance(mark, With) and (lacks := mark.explain_unused(parsed.main)):
                parsed.idle(lacks, option.name)
    files = [o for o in options(main) if o.name != "output" and type_name(o.type)[:4] == "path"]
    piped = [o.flag for o in files if "-" in render(getattr(parsed.main, o.name)).split(",")]
    require(len(piped) < 2, f"{' and '.join(piped)} are standard input, which only one can read")
    return replace(parsed, aside=Settings({key: given[key] for key in left}))


def read_words(
    verb: str,
    main: type,
    argv: Sequence[str],
    kinds: Sequence[str] = (),
    positional: str | None = None,
    choose: Callable[[Settings], Settings] = lambda given: given,
) -> Settings:
    """The settings of a verb's arguments; a help page shows components that it would `choose`."""
    # anywhere but among texts: the other words decide the page
    helping = not set(HELP).isdisjoint(takewhile("--".__ne__, argv))
    given = read_options(argv, main, positional)
    if not helping:
        return given
    everything = "--help-all" in argv
    shown: dict[str, Component] | None = {}
    of_components = choose(given).only(*kinds)
    if kinds and ("task" not in kinds or "task" in of_components):
        named = {key.partition(".")[0] for key in of_components}
        # mixed tasks that differ in their --arch have a page, too
        shown_kinds = [kind for kind in kinds if everything or kind in named]
        parsed = resolve(NoOptions, of_components, shown_kinds)
        shown = {f"task.{name}": task for name, task in parsed.mixture.items()}
        shown |= {
            kind: component
            for kind, component in parsed.components.items()
            if not (kind == "task" and shown) and (everything or kind in ("task", *given))
        }
    elif kinds:
        shown = None
    sys.stdout.write(help_page(verb, main, shown, positional, everything))
    raise SystemExit(0)


def resolve(main: type, given: Settings, kinds: Sequence[str] = ()) -> Parsed:
    """Build the dataclasses from settings; an option that no component has is an error."""
    given = rename_old(given)
    components: dict[str, Component] = {}
    known: dict[str, list[str]] = {}
    mixture = _mixture(given) if "task" in kinds else {}
    faults: list[str] = []
    for kind in kinds:
        if kind == "task" and mixture:
            components[kind] = next(iter(mixture.values()))
            known[kind] = [
                f"task.{name}.{option.name}"
                for name, task in mixture.items()
                for option in options(type(task.config))
            ]
            continue
        _check_shared(kind, given, mixture)
        named = kind not in SIBLINGS or kind in given
        if not named and "task" in kinds and "task" not in components:
            continue  # its task would have named it
        try:
            components[kind] = _component(kind, given, components)
        except UsageError as error:
            faults += error.args
        else:
            known[kind] = [f"{kind}.{o.name}" for o in options(type(components[kind].config))]
    flat = [option.name for option in options(main)] + list(kinds)
    lost = set(kinds) - components.keys()  # these failed: their options are not known
    for key, setting in given.items():
        if key.partition(".")[0] not in lost:
            faults += _unknown(key, setting, flat, known, components)
    if faults:
        raise UsageError(*dict.fromkeys(faults))
    return Parsed(build_config(main, given), components, given, mixture)


def _mixture(given: Settings) -> dict[str, Component]:
    """The tasks of `--task A=0.5 --task B=0.5`, each with its fields; none where one is named."""
    words = given["task"].parts if "task" in given else []
    if not any("=" in word for word in words):
        return {}
    tasks: dict[str, Component] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name in tasks or len(words) == 1:
            raise UsageError(
                f"--task {word}: tasks are mixed as --task A=0.5 --task B=0.5, each with its share"
            )
        made_from = registry.get("task", name)
        share = parse_value(text, Schedule, f"--task {name}")
        try:
            config = build_config(made_from.Config, given, f"task.{name}.")
        except UsageError as error:  # the task knows its options by their short names
            raise error.replace(rf"--task\.(?!{re.escape(name)}\.)", f"--task.{name}.") from error
        tasks[name] = Component(name, made_from, config, share)
    return tasks


def _check_shared(kind: str, given: Settings, mixture: dict[str, Component]) -> None:
    """Raise a `UsageError` if mixed tasks differ in their default architecture or criterion."""
    if kind not in SIBLINGS or kind in given:
        return
    defaults = {name: task.made_from.component(kind, task.config) for name, task in mixture.items()}
    if len(set(defaults.values())) > 1:
        listed = ", ".join(f"{name}: {default}" for name, default in defaults.items())
        raise UsageError(f"{flag(kind)} is needed: the mixed tasks differ in it ({listed})")


def _component(kind: str, given: Settings, chosen: dict[str, Component]) -> Component:
    if kind in given:
        words = given[kind].words
        name = words[-1] or ""
        if len(words) > 1:
            raise UsageError(f"{flag(kind)} is given twice: {words[0]} and {words[1]}")
    elif kind in SIBLINGS and "task" in chosen:
        name = chosen["task"].made_from.component(kind, chosen["task"].config)
        require(name, f"{flag(kind)} is needed: task {chosen['task'].name} has no default")
    elif kind in DEFAULTS:
        name = DEFAULTS[kind]
    else:
        raise UsageError(f"{flag(kind)} is needed (known: {', '.join(registry.names(kind))})")
    made_from = registry.get(kind, name)
    # an architecture is registered as a function that returns its config
    preset = made_from() if kind == "arch" else None
    if kind == "arch" and not is_dataclass(preset):
        raise UsageError(f"--arch {name}: {preset!r} is made in place of a model config")
    cls = type(preset) if preset is not None else made_from
    cls = made_from.Config if kind == "task" else cls
    return Component(name, made_from, build_config(cls, given, f"{kind}.", preset))


def build_config(cls: type, given: Settings, prefix: str = "", preset: Any = None) -> Any:
    """Build a `cls` from settings; the key of a field is `prefix` and its name."""
    values: dict[str, Any] = {}
    for option in options(cls):
        if (key := prefix + option.name) in given:
            lacks = None in given[key].words and option.type is not bool
            require(
                not lacks, f"{flag(key)} needs a value: {option.brief or type_name(option.type)}"
            )
            values[option.name] = value_of(given[key], option.type, flag(key))
    if preset is not None:
        return replace(preset, **values)
    for option in options(cls):
        needed = option.default is MISSING and values.get(option.name, ()) == ()
        require(not needed, f"{flag(prefix + option.name)} is needed: {option.brief}")
    config = cls(**values)
    if not isinstance(config, Checked):  # of a plug-in
        check_values(config, lambda name: flag(prefix + name))
    return config


def value_of(setting: Setting, kind: Any, name: str) -> Any:
    """Parse a setting as a value of type `kind`; errors call the option `name`."""
    words = setting.words
    is_list = get_origin(kind) is tuple
    if len(words) > 1 and not is_list:
        raise UsageError(
            f"{name} is given twice: {'on' if words[0] is None else words[0]} and "
            f"{'on' if words[1] is None else words[1]}"
        )
    if is_list and setting.where == UNFLAGGED:
        # words without a flag are not split at commas
        return tuple(parse_value(word, get_args(kind)[0], name) for word in words)
    if is_list and len(words) > 1 and get_args(kind)[-1] is Ellipsis:
        return tuple(value for word in words for value in parse_value(word or "", kind, name))
    if len(words) == 1:
        return parse_value(words[0], kind, name)
    # each of several words is one value: commas within it are escaped
    return parse_value(argument_text(words, name), kind, name)


def _unknown(
    key: str,
    setting: Setting,
    flat: list[str],
    known: dict[str, list[str]],
    components: dict[str, Component],
) -> list[str]:
    """The faults of a setting that is no option of any component; empty if it is one."""
    kind, dot, _ = key.partition(".")
    name = key.rpartition(".")[2]
    if key in flat or key in known.get(kind, []):
        return []
    if GONE.get(f"{kind}.{name}") == setting.text:
        return []
    if not key:
        bare = next((f"--{name} " for name in BARE if name in flat), "")
        hint = "; did you mean {}{}?" if bare else ""
        # a word of dashes alone is near to no option
        return [
            f"unexpected word {word!r}: options begin with --"
            f"{hint.format('-' * (word[0] == '-') or bare, word) if word.strip('-') else ''}"
            for word in map(str, setting.words)
        ]
    where = "" if setting.where.startswith("-") else f" (in {setting.where})"
    shown = flag(key) if where else setting.where
    spelled = [flag(own) for own in known.get("task", []) if own.endswith(f".{name}")]
    if kind == "task" and key.count(".") == 1 and spelled and known["task"][0].count(".") > 1:
        return [f"{shown}{where}: tasks are mixed, write {' or '.join(spelled)}"]
    if dot and kind in components:
        candidates = known[kind]
        owner = f"{kind} {components[kind].name} has no such option"
    else:
        candidates = [*flat, *chain(*known.values())]
        owner = "no such option"
    flags = [flag(candidate) for candidate in candidates]
    near = registry.nearest(flag(key), flags) if len(key) > 1 else ""
    hint = registry.hint("option", key.rstrip("_"), flags) or near
    return [f"{shown}{where}: {owner}{hint or '; --help-all lists what applies'}"]


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """No flat options: only the components are resolved."""
