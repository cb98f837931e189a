"""Options: frozen dataclass <-> flags <-> YAML, with the origin of every value.

A verb has one dataclass of flat options and may choose components by name (`--task glm_infill`),
whose fields are then options too (`--task.mean-span 5`). The string under a field is its help.
Every value arrives as text and is parsed by the field's type; the order is
dataclass < preset of the architecture < checkpoint < `--config` file < flags.

    parsed = parse("train", TrainConfig, argv, kinds=("task", "arch", "criterion", "optimizer"))
    parsed.main.lr, parsed.components["task"].config.mean_span
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args, get_origin

from unitk import registry
from unitk.errors import UsageError, require, say
from unitk.foreign import parse_yaml
from unitk.options.fields import Component, flag, options
from unitk.options.help import help_page
from unitk.options.values import WORDS, Schedule, parse_value, render

__all__ = ["Component", "Given", "Parsed", "flag", "options", "parse", "resolve"]

SIBLINGS = ("arch", "criterion")  # kinds whose default the task names
DEFAULTS = {"optimizer": "adamw"}
BARE = ("data", "input")  # options that other systems take as words without a flag
HELP = ("-h", "--help", "--help-all")
UNFLAGGED = "command line"  # the origin of words without a flag
CHECKPOINT = "checkpoint "  # how the origin of an option begins that a checkpoint brings


@dataclass(frozen=True)
class Given:
    """A value somebody gave: `text` is None for a bare switch; `origin` says where it stands."""

    key: str
    text: str | None
    origin: str


GONE = {"task.languages": "0,0", "arch.cross_by_segment": "off"}
"""Options that more components had once, with the value that changes nothing. Checkpoints and
config files that name them are read."""


def modern(given: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Options of an earlier checkpoint or config file under the names that they have now."""
    now = dict[tuple[str, str | None], tuple[str, str | None]]()
    given = list(given)
    if any(key == "task.languages" and text != GONE[key] for key, text in given):
        now |= {("task", name): ("task", "mass_translation") for name in ("mass", "seq2seq")}
    for key, text in given:
        if key == "arch.class_heads":  # nsp:2 is class:nsp:2
            heads = (text or "").split(",")
            now[key, text] = "arch.heads", ",".join(f"class:{head}" for head in heads if head)
    return [now.get(item, item) for item in given]


@dataclass(frozen=True)
class Parsed:
    """What a command line and a config file came to."""

    main: Any
    components: dict[str, Component]
    origins: dict[str, str]
    """Key -> "default", "preset NAME", "checkpoint PATH", the config file or the flag."""
    mixture: dict[str, Component] = field(default_factory=dict)
    """Tasks by name where several are mixed; the first one is `components["task"]` too."""
    aside: Sequence[Given] = ()
    """Fields of components that the verb takes from elsewhere, for whoever builds these."""

    def fields(self) -> dict[str, tuple[Any, Any]]:
        """The type and the value of every option under its dotted key."""
        found = {}
        for kind, component in self.components.items():
            mixed = self.mixture if kind == "task" else {}
            shares = (f"{name}={render(part.share)}" for name, part in mixed.items())
            found[kind] = str, " ".join(shares) or component.name
            parts = {f"task.{name}": part for name, part in mixed.items()} or {kind: component}
            for key, part in parts.items():
                for option in options(type(part.config)):
                    found[f"{key}.{option.name}"] = option.type, getattr(part.config, option.name)
        for option in options(type(self.main)):
            found[option.name] = option.type, getattr(self.main, option.name)
        return found

    def values(self) -> dict[str, str]:
        """Every value as text under its dotted key; parses back to the same thing."""
        return {key: render(value) for key, (_, value) in self.fields().items()}

    @property
    def overrides(self) -> dict[str, str]:
        """The fields `aside` as text by key; a bare switch is on."""
        return {item.key: item.text or "on" for item in self.aside}

    def idle(self, why: str, *names: str) -> None:
        """Raise a `UsageError` for the first of these options that was given: it has no effect.

        Those of a checkpoint were not given.
        """
        for name in names:
            given = not self.origins.get(name, CHECKPOINT).startswith(CHECKPOINT)
            require(not given, f"{flag(name)} has no effect {why}")

    def yaml(self) -> str:
        """The values as a file for `--config`, each with its origin."""
        import yaml

        lines = []
        for key, text in self.values().items():
            scalar = yaml.safe_dump({key: text}, width=10**6, allow_unicode=True).strip()
            lines.append(f"{scalar}  # {self.origins.get(key, 'default')}")
        return "\n".join(lines) + "\n"


def parse(
    verb: str,
    main: type,
    argv: Sequence[str],
    kinds: Sequence[str] = (),
    positional: str | None = None,
    aside: Sequence[str] = (),
    defaults: Sequence[Given] = (),
) -> Parsed:
    """Parse a verb's arguments; an option of `HELP` prints the options and ends the program.

    `positional` names the field that takes words without a flag; fields of the kinds `aside` are
    not resolved. `--config FILE` and `--user-dir DIR` are understood when `main` has fields of
    these names. What is given wins over `defaults`.
    """
    helping = not set(HELP).isdisjoint(argv)  # anywhere: the other words decide the page
    everything = [*defaults, *read_options(argv, main, positional)]
    left = [item for item in everything if item.key.startswith(tuple(f"{k}." for k in aside))]
    if not helping:
        parsed = resolve(main, [item for item in everything if item not in left], kinds)
        return replace(parsed, aside=left)
    whole = "--help-all" in argv
    named = {item.key for item in everything}
    parts: dict[str, Component] | None = {}
    if kinds and ("task" not in kinds or "task" in named):
        of_parts = [item for item in everything if item.key.partition(".")[0] in kinds]
        asked = {item.key.partition(".")[0] for item in of_parts}
        # mixed tasks that differ in their --arch have a page, too
        parsed = resolve(NoOptions, of_parts, [kind for kind in kinds if whole or kind in asked])
        parts = {f"task.{name}": part for name, part in parsed.mixture.items()}
        parts |= {
            kind: part
            for kind, part in parsed.components.items()
            if not (kind == "task" and parts) and (whole or kind in named)
        }
    elif kinds:
        parts = None
    sys.stdout.write(help_page(verb, main, parts, positional, whole))
    raise SystemExit(0)


def read_options(argv: Sequence[str], main: type, positional: str | None = None) -> list[Given]:
    """The options of `--config`, and behind them, as later ones win, those of the command line.

    Plug-ins are imported, those of `--user-dir` too.
    """
    given = read_flags([word for word in argv if word not in HELP], main, positional)
    files = [Path(item.text) for item in given if item.key == "config" and item.text]
    everything = [*(line for path in files for line in read_yaml(path)), *given]
    folders = [item.text for item in everything if item.key == "user_dir"]
    if folders and folders[-1] not in (None, "none"):
        registry.load_plugins(Path(folders[-1]))
    registry.load_plugins()
    return everything


def read_flags(argv: Sequence[str], main: type, positional: str | None = None) -> list[Given]:
    """Split words into options; a value may not begin with `--` (write `--x=--y`)."""
    switches = {option.name for option in options(main) if option.type is bool}
    lists = {option.name for option in options(main) if get_origin(option.type) is tuple}
    found, words = [], list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            if positional is not None or not re.match("-[a-z]$", word):
                found.append(Given(positional or "", word, UNFLAGGED))
                continue
        name, equals, text = word.partition("=")
        key = name.lstrip("-").replace("-", "_")
        key += "_" * keyword.iskeyword(key)
        value: str | None = text if equals else None
        if not equals and words and not re.match("--|-[a-z]$", words[0]):
            if key not in switches or words[0].lower() in WORDS:
                value = words.pop(0)
        found.append(Given(key, value, name))
        if key in lists and positional is None:  # a wildcard that the shell expanded
            while words and not words[0].startswith("--"):
                found.append(Given(key, words.pop(0), name))
    return found


def read_yaml(path: Path, named: str = "") -> list[Given]:
    """The values of a config file; nested levels and dotted keys mean the same.

    `named` is how errors name the file, if it is not that of `--config`.
    """
    named = named or f"--config {path}"
    tree = parse_yaml(path, named)
    if not isinstance(tree, dict):
        raise UsageError(f"{named} must hold `option: value` lines")
    return [Given(key, text, str(path)) for key, text in _flatten(tree, "")]


def _flatten(tree: dict[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for key, value in tree.items():
        path = (prefix + str(key)).replace("-", "_")
        if isinstance(value, dict):
            yield from _flatten(value, path + ".")
        else:
            # `task: {name: glm_infill}` is the nested spelling of `task: glm_infill`
            path = path.removesuffix(".name") if path.count(".") == 1 else path
            comma = " " if path == "task" else ","
            yield path, comma.join(map(str, value)) if isinstance(value, list) else str(value)


def resolve(main: type, given: Sequence[Given], kinds: Sequence[str] = ()) -> Parsed:
    """Build the dataclasses from given values (later ones win) and check that each one landed."""
    renamed = [
        Given(key, text, item.origin)
        for item, (key, text) in zip(given, modern((i.key, i.text) for i in given), strict=True)
    ]
    given = _drop_orphans(renamed, kinds)
    origins: dict[str, str] = {}
    components: dict[str, Component] = {}
    known: dict[str, list[str]] = {}
    mixture = _mixture(given, origins) if "task" in kinds else {}
    faults: list[str] = []
    for kind in kinds:
        if kind == "task" and mixture:
            components[kind] = next(iter(mixture.values()))
            parts = {name: options(type(part.config)) for name, part in mixture.items()}
            known[kind] = [f"task.{name}.{o.name}" for name, own in parts.items() for o in own]
            continue
        _check_shared(kind, given, mixture)
        named = any(item.key == kind for item in given)
        if kind in SIBLINGS and not named and "task" in kinds and "task" not in components:
            continue  # its task would have named it
        try:
            components[kind] = _component(kind, given, components, origins)
        except UsageError as error:
            faults.append(str(error))
        else:
            known[kind] = [f"{kind}.{o.name}" for o in options(type(components[kind].config))]
    flat = [option.name for option in options(main)] + list(kinds)
    lost = set(kinds) - components.keys()  # whose options nobody knows
    faults += [
        fault
        for item in given
        if item.key.partition(".")[0] not in lost
        and (fault := _unknown(item, flat, known, components))
    ]
    if faults:
        raise UsageError(*dict.fromkeys(faults))
    return Parsed(build(main, "", given, origins), components, origins, mixture)


def _mixture(given: Sequence[Given], origins: dict[str, str]) -> dict[str, Component]:
    """The tasks of `--task A=0.5 --task B=0.5`, each with its fields; none where one is named."""
    named = [item for item in given if item.key == "task"]
    words = [w for i in named if i.origin == named[-1].origin for w in (i.text or "").split()]
    if not any("=" in word for word in words):
        return {}
    origins["task"] = named[-1].origin
    found: dict[str, Component] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name in found or len(words) == 1:
            raise UsageError(
                f"--task {word}: tasks are mixed as --task A=0.5 --task B=0.5, each with its share"
            )
        made_from = registry.get("task", name)
        share = parse_value(text, Schedule, f"--task {name}")
        try:
            config = build(made_from.Config, f"task.{name}.", given, origins)
        except UsageError as error:  # the task knows its options by their short names
            short = re.sub(rf"--task\.(?!{re.escape(name)}\.)", f"--task.{name}.", str(error))
            raise UsageError(short) from error
        found[name] = Component(name, made_from, config, share)
    return found


def _check_shared(kind: str, given: Sequence[Given], mixture: dict[str, Component]) -> None:
    """Mixed tasks have one architecture and one criterion; where theirs differ, it is given."""
    if kind not in SIBLINGS or any(item.key == kind for item in given):
        return
    wanted = {name: part.made_from.component(kind, part.config) for name, part in mixture.items()}
    if len(set(wanted.values())) > 1:
        each = ", ".join(f"{name}: {default}" for name, default in wanted.items())
        raise UsageError(f"{flag(kind)} is needed: the mixed tasks differ in it ({each})")


def _component(
    kind: str, given: Sequence[Given], chosen: dict[str, Component], origins: dict[str, str]
) -> Component:
    named = [item for item in given if item.key == kind]
    flags = [item for item in named if item.origin.startswith("--")]
    if len(flags) > 1:
        raise UsageError(f"{flag(kind)} is given twice: {flags[0].text} and {flags[1].text}")
    if named:
        name, origins[kind] = named[-1].text or "", named[-1].origin
    elif kind in SIBLINGS and "task" in chosen:
        task = chosen["task"]
        name, origins[kind] = task.made_from.component(kind, task.config), f"task {task.name}"
    elif kind in DEFAULTS:
        name = DEFAULTS[kind]
    else:
        raise UsageError(f"{flag(kind)} is needed (known: {', '.join(registry.names(kind))})")
    made_from = registry.get(kind, name)
    cls, preset = made_from.Config if kind == "task" else made_from, None
    if kind == "arch":  # registered is what makes its config
        preset = made_from()
        cls = type(preset)
        origins.update({f"{kind}.{option.name}": f"preset {name}" for option in options(cls)})
    return Component(name, made_from, build(cls, f"{kind}.", given, origins, preset))


def build(
    cls: type, prefix: str, given: Sequence[Given], origins: dict[str, str], preset: Any = None
) -> Any:
    """An instance of `cls` from the given values, whose keys are its fields behind a prefix."""
    values: dict[str, Any] = {}
    for option in options(cls):
        key, is_list = prefix + option.name, get_origin(option.type) is tuple
        items = [item for item in given if item.key == key]
        # flags, which come last, win over the config file
        items = [item for item in items if item.origin == items[-1].origin]
        if not items:
            continue
        texts, origins[key] = [item.text for item in items], items[0].origin
        if len(items) > 1 and not is_list:
            raise UsageError(f"{flag(key)} is given twice: {texts[0]} and {texts[1]}")
        if is_list and items[0].origin == UNFLAGGED:
            kind = get_args(option.type)[0]  # a comma within a word does not part it
            values[option.name] = tuple(parse_value(text, kind, flag(key)) for text in texts)
        elif is_list and len(texts) > 1 and get_args(option.type)[-1] is Ellipsis:
            each = (parse_value(text or "", option.type, flag(key)) for text in texts)
            values[option.name] = tuple(value for one in each for value in one)
        else:  # of several words, each is a value, whatever is in it
            whole = ",".join((text or "").replace(",", "\\,") for text in texts)
            text = whole if len(texts) > 1 else texts[0]
            values[option.name] = parse_value(text, option.type, flag(key))
    if preset is not None:
        return replace(preset, **values)
    for option in options(cls):
        needed = option.default is MISSING and option.name not in values
        require(not needed, f"{flag(prefix + option.name)} is needed: {option.brief}")
    return cls(**values)


def _drop_orphans(given: Sequence[Given], kinds: Sequence[str]) -> list[Given]:
    """Where a flag names another component than the file does, drop the old one's fields, aloud."""
    kept = list(given)
    for kind in kinds:
        named: dict[str, list[str]] = {}  # what each origin names
        for item in kept:
            if item.key == kind:
                words = (word.partition("=")[0] for word in (item.text or "").split())
                named.setdefault(item.origin, []).extend(words)
        *gone, (_, chosen) = named.items() or [("", [])]
        earlier = [origin for origin, names in gone if names != chosen]
        old = [i for i in kept if i.key.startswith(kind + ".") and i.origin in earlier]
        if old:
            dropped = ", ".join(item.key for item in old)
            names = f"{flag(kind)} {' '.join(chosen)}"
            say(f"note: {names} drops {dropped} of {old[0].origin}")
            kept = [item for item in kept if item not in old]
    return kept


def _unknown(
    item: Given, flat: list[str], known: dict[str, list[str]], components: dict[str, Component]
) -> str:
    """What is wrong with a given value that no component takes; nothing if one does."""
    kind, dot, _ = item.key.partition(".")
    name = item.key.rpartition(".")[2]
    if item.key in flat or item.key in known.get(kind, []):
        return ""
    if (f"{kind}.{name}", item.text) in GONE.items():
        return ""
    if not item.key:
        meant = next((f"; did you mean --{name} {item.text}?" for name in BARE if name in flat), "")
        return f"unexpected word {item.text!r}: options begin with --{meant}"
    where = "" if item.origin.startswith("-") else f" (in {item.origin})"
    shown = flag(item.key) if where else item.origin
    spelled = [flag(key) for key in known.get("task", []) if key.endswith(f".{name}")]
    if kind == "task" and item.key.count(".") == 1 and spelled and known["task"][0].count(".") > 1:
        return f"{shown}{where}: tasks are mixed, write {' or '.join(spelled)}"
    if dot and kind in components:
        candidates, owner = known[kind], f"{kind} {components[kind].name} has no such option"
    else:
        candidates = flat + [key for keys in known.values() for key in keys]
        owner = "no such option"
    flags = [flag(key) for key in candidates]
    near = registry.nearest(flag(item.key), flags) if len(item.key) > 1 else ""
    hint = registry.hint("option", item.key, flags) or near
    return f"{shown}{where}: {owner}{hint or '; --help-all lists what applies'}"


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """No flat options: only the components are resolved."""
