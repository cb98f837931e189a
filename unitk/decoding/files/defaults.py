"""generate.yaml: the options of `unitk generate` with which a checkpoint is meant to be decoded.

The file is in the folder of a checkpoint, or in that of its run. Its options are defaults for
generating from sources: options that are given win. It is text for people to edit, so that no
manifest has its hash; training neither writes nor copies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unitk import pretrained
from unitk.decoding.config import BLANKS_ONLY, LOCAL, GenerateConfig
from unitk.errors import CheckpointError, UsageError, require
from unitk.files import create
from unitk.options.config import resolve
from unitk.options.fields import flag, options, parse_value, render
from unitk.options.settings import Settings, read_yaml
from unitk.registry import nearest

NAME = "generate.yaml"
SEARCHES = {"beam", "search", "diverse_beam_groups", "diverse_beam_strength", "contrast"}
DRAWS = {"sampling", "temperature", "sampling_topk", "sampling_topp", "sampling_minp"}
DRAWS |= {"best_of", "repeat_cost"}
BELONGS = {
    "no_repeat_ngram_size": "no_repeat_ngram_ignore",
    "diverse_beam_groups": "diverse_beam_strength",
    "avoid_part": "contrast",
}
"""Option -> one that belongs to its value."""


def read_defaults(path: Path) -> dict[str, Any]:
    """The values of the generate.yaml of a checkpoint, run or bundled model; none without one.

    Raises `CheckpointError`, which names the file and the option.
    """
    folder = pretrained.locate(path).resolve()
    run = [folder.parent.parent] if folder.parent.name == "checkpoints" else []
    file = next((path for parent in (folder, *run) if (path := parent / NAME).is_file()), None)
    if file is None:
        return {}
    known = [
        option.flag
        for option in options(GenerateConfig)
        if option.name not in (*LOCAL, *BLANKS_ONLY)
    ]
    try:
        settings = read_yaml(file, "it")
        for name in map(flag, settings):
            hint = nearest(name, known) or f" (known: {', '.join(known)})"
            require(name in known, f"{name} is no option of decoding{hint}")
        config = resolve(GenerateConfig, settings).main
    except UsageError as error:
        raise CheckpointError(f"{file}: {Exception.__str__(error)}") from error
    values = {key: getattr(config, key) for key in settings}
    digits = (key for key in ("min_len", "max_len") if str(values.get(key)).isdigit())
    return values | {key: int(values[key]) for key in digits}


def write_defaults(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the generate.yaml of a checkpoint, if there are values."""
    import yaml

    if values:
        named = {flag(key)[2:]: value for key, value in values.items()}
        create(folder / NAME, yaml.safe_dump(named, sort_keys=False, allow_unicode=True))


def select_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a checkpoint that apply where some options are given, by name.

    Options of a search drop those of sampling, and the other way round; raises UsageError if a beam
    is given where outputs are drawn.
    """
    draws = given.get("sampling", defaults.get("sampling") and SEARCHES.isdisjoint(given))
    usual = str(given.get("beam", GenerateConfig.beam)) == str(GenerateConfig.beam)
    require(not draws or usual, "--beam has no effect where outputs are drawn")
    idle = {*given, *(SEARCHES if draws else DRAWS)}
    idle |= {part for name, part in BELONGS.items() if name in given}
    if str(given.get("beam")) == "1":  # one output is in no need of ranking
        idle.add("contrast")
    return {name: value for name, value in defaults.items() if name not in idle}


def select_scored(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a checkpoint that apply where outputs are given, by name."""
    used = select_defaults(defaults, given)
    counts = GenerateConfig.scored(given.get("search", used.get("search", "")))
    return {name: value for name, value in used.items() if name in counts}


def find_defaults(given: Settings) -> tuple[str, dict[str, Any]]:
    """The (first) checkpoint, and those of its options that the given ones leave in effect."""
    texts: dict[str, Any] = given.texts
    named = given["checkpoint"].words[0] if "checkpoint" in given else None
    path = str(parse_value(named, tuple[Path, ...], "--checkpoint")[0]) if named else ""
    for name in texts.keys() & {"sampling", "score"}:
        texts[name] = parse_value(texts[name], bool, flag(name))
    select = select_scored if texts.get("score") else select_defaults
    defaults = {} if not path or "infill" in texts else read_defaults(Path(path))
    return path, select(defaults, texts)


@contextmanager
def naming_defaults(used: Mapping[str, Any]) -> Iterator[None]:
    """A context in which errors about options name those that come from the checkpoint."""
    try:
        yield
    except UsageError as error:
        text = Exception.__str__(error)
        about = text.partition("; ")[0]  # after it is what else is possible
        named = set(re.findall(r"[a-z][\w-]*", about))  # --min-len, or min_len of a request
        names = [name for name in used if not named.isdisjoint({name, flag(name)[2:]})]
        own = [f"{flag(name)} {render(used[name])}" for name in names]
        if not own:
            raise
        raise UsageError(f"{text} ({', '.join(own)}: the checkpoint's {NAME})") from error
