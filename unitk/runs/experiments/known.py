"""An experiment of several runs: its options, and what it has left in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unitk.errors import UsageError, require
from unitk.foreign import read_json
from unitk.options.config import parse


def parse_experiment(verb: str, options: type[Any], argv: Sequence[str]) -> tuple[Any, list[str]]:
    """The options of a verb, and the training that comes after --."""
    words = [*argv]
    at = words.index("--") if "--" in words else len(words)
    given = parse(verb, options, words[:at]).main
    base = [*words[at + 1 :]]
    base = base[1:] if base[:1] == ["train"] else base
    needs = "--data DIR --max-steps N" if verb == "mix" else "--task lm --data DIR"
    require(base, f"{verb} needs a training after --: unitk {verb} ... -- {needs}")
    return given, base


def read_experiment(
    path: Path, spec: Mapping[str, Any], verb: str, options: Sequence[str]
) -> dict[str, Any]:
    """The contents of a table such as DIR/scale.json; empty where nothing was begun.

    `spec` is what `unitk VERB` is asked for: its "train" are the words of the training, its "data"
    tell texts from others, its "options" are the values of these `options` in their order, of
    which the first may have several, and the rest are values of options by their names. Raises
    UsageError where the table is damaged or its runs are of something else, and where there are
    runs but no table that says of what.
    """
    folder = path.parent
    runs = (
        path.parent for name in ("", "*/", "*/*/") for path in folder.glob(f"{name}checkpoints")
    )
    other = next(iter(sorted(runs)), None)
    if not path.exists():
        require(
            other is None,
            f"--save-dir {folder} has the run {other}, but no {path.name}: name another folder",
        )
        return {}
    known = read_json(path, UsageError)
    was = known.get(verb)
    if not isinstance(was, dict) or was.keys() != spec.keys():
        raise UsageError(f"{path} is no table of unitk {verb}: name another --save-dir")
    differences = (
        change_text(key, was[key], spec[key], options) for key in spec if was[key] != spec[key]
    )
    changes = "; ".join(differences)
    if changes and other is None:  # such as those of a mistake that the first run found
        return {}
    require(
        not changes,
        f"--save-dir {folder} has runs of other options: {changes}; name another folder",
    )
    return known


def change_text(key: str, was: Any, now: Any, options: Sequence[str]) -> str:
    """How a part of the table differs from what is asked for."""
    if key == "train":
        old = pair_options(was)
        new = pair_options(now)
        dropped = " ".join(option for option in old if option not in new)
        added = " ".join(option for option in new if option not in old)
        if dropped and added:
            return f"{dropped}, not {added}"
        return f"with {dropped}" if dropped else f"without {added}"
    if key == "options" and isinstance(was, list) and len(was) >= len(options):
        # all values but the last ones are those of the first option
        several = len(was) - len(options) + 1
        old_values = [was[:several], *was[several:]]
        several = len(now) - len(options) + 1
        new_values = [now[:several], *now[several:]]
        pairs = zip(options, old_values, new_values, strict=True)
        return "; ".join(
            f"{name} {option_text(a)}, not {option_text(b)}" for name, a, b in pairs if a != b
        )
    if key == "data":
        return "other texts"
    return f"--{key} {option_text(was)}, not {option_text(now)}"


def pair_options(words: Any) -> list[str]:
    """Words with those options together that have their values after them."""
    pairs = list[str]()
    for word in map(str, words if isinstance(words, list) else [words]):
        if pairs and not word.startswith("--"):
            pairs[-1] += f" {word}"
        else:
            pairs.append(word)
    return pairs


def option_text(value: Any) -> str:
    """A value as a command line has it."""
    if isinstance(value, dict):
        value = [f"{key}={option_text(number)}" for key, number in value.items()]
    if isinstance(value, list):
        return ",".join(map(option_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def check_plan(path: Path, plan: Any, names: Sequence[Mapping[str, Any]]) -> None:
    """Raise a UsageError if a plan that was kept does not have these rows, each with its cost."""
    good = isinstance(plan, list) and len(plan) == len(names)
    good = good and all(isinstance(row, dict) for row in plan)
    good = good and all(
        all(row.get(key) == value for key, value in name.items())
        and all(isinstance(row.get(cost), (int, float)) for cost in ("seconds", "bytes"))
        for row, name in zip(plan, names, strict=True)
    )
    require(good, f"{path}: its plan is damaged: name another --save-dir")
