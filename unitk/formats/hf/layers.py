"""Entries of config.json about single layers: rotary positions, and how far each layer sees.

transformers 5 has them in `rope_parameters`, for all layers or for each type of `layer_types`.
Files of transformers 4 have the same in other entries, which are read, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import CAUSAL, Changes
from unitk.formats.settings import check_value
from unitk.models.config import ModelConfig
from unitk.options.fields import render

FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = (FULL, SLIDING)
"""Types of layers in `layer_types`: those that see everything, and those with a window."""
ROPES = ("default", "linear", "llama3")
SHARE, BASE = "partial_rotary_factor", "rope_theta"
T = TypeVar("T")


def ropes(declared: Mapping[str, Any], where: object) -> dict[str, Any]:
    """The entry `rope_parameters`, or `rope_scaling` of older files; both may say the same."""
    older, newer = (
        check_value(declared.get(key) or {}, dict, key, where)
        for key in ("rope_scaling", "rope_parameters")
    )
    by_type = check_value(newer.get(FULL, newer), dict, FULL, where)
    if older and by_type:
        # older files have these beside the entry
        beside = {key: declared[key] for key in (BASE, SHARE) if key in declared}
        first, second = (
            {**beside, "rope_type": entry.get("type", ROPES[0]), **entry}
            for entry in (older, by_type)
        )
        for key in (first.keys() | second.keys()) - {"type"}:
            if first.get(key) != second.get(key):
                raise CheckpointError(
                    f"{where}: {key} is {first.get(key)!r} in rope_scaling, but "
                    f"{second.get(key)!r} in rope_parameters: remove one entry"
                )
    return older | newer


def rotary(
    rope: Mapping[str, Any], where: object, base: object = 10000.0, share: object = 1.0
) -> Changes:
    """The settings of rotary positions of one entry; `base` and `share` where it has none."""
    rope = {BASE: base, SHARE: share} | {k: v for k, v in rope.items() if v is not None}

    def number(key: str) -> float:
        return float(check_value(rope.get(key), float, key, where))

    kind = rope.get("rope_type", rope.get("type", ROPES[0]))
    if kind not in ROPES:
        raise CheckpointError(f"{where}: rope_type must be one of {', '.join(ROPES)}, got {kind!r}")
    changes: Changes = {"rotary_base": number(BASE), "rotary_share": number(SHARE)}
    if kind != "default":
        changes["rotary_factor"] = number("factor")
    if kind == "llama3":
        # what turns once within these numbers of positions keeps its angle, or is scaled
        length = number("original_max_position_embeddings")
        bounds = (number("high_freq_factor"), number("low_freq_factor"))
        if min(bounds) <= 0:
            raise CheckpointError(f"{where}: {kind} needs factors above 0, got {bounds}")
        changes["rotary_wavelengths"] = tuple(length / bound for bound in bounds)
    return changes


def rotary_of_types(
    declared: Mapping[str, Any], bases: Mapping[str, object], types: Sequence[str], where: object
) -> Changes:
    """Rotary positions where each type of layer has a base; `bases` are those of older files."""
    of_types = ropes(declared, where)
    shared = {key: value for key, value in of_types.items() if key not in TYPES}
    changes: Changes = {}
    by_type: dict[str, Changes] = {}
    for kind in TYPES:
        of_type = check_value(of_types.get(kind) or {}, dict, kind, where)
        if kind == FULL:  # older files scale the positions of layers without a window only
            of_type = {**shared, **of_type}
        by_type[kind] = rotary(of_type, where, bases[kind])
    for kind in dict.fromkeys(types):
        other = {key: value for key, value in by_type[kind].items() if key != "rotary_base"}
        if changes and other != changes:
            raise CheckpointError(
                f"{where}: rope_parameters must scale the positions of {' and '.join(TYPES)} alike"
            )
        changes = other
    layers = [by_type[kind]["rotary_base"] for kind in types]
    return changes | bases_of(layers)


def bases_of_types(config: ModelConfig) -> dict[str, set[float]]:
    """The bases that layers of each type have."""
    kinds = config.layer_kinds
    return {
        kind: {base for reach, base in kinds if bool(reach) == (kind == SLIDING)} for kind in TYPES
    }


def bases_of(layers: Sequence[float]) -> Changes:
    """The settings of layers with these bases, 0 for one without rotary positions."""
    # one base for all layers is a setting of its own
    alike = len({*layers}) == 1 and layers[0] > 0
    return {
        "rotary_base": max(layers) or 10000.0,
        "layer_rotary_bases": () if alike else period(layers),
    }


def rotary_entries(config: ModelConfig, base: float | None = None) -> dict[str, Any]:
    """The entry `rope_parameters`, with another base if it is given."""
    entries: dict[str, Any] = {"rope_type": "default", BASE: base or config.rotary_base}
    if config.rotary_share != 1:
        entries |= {SHARE: config.rotary_share}
    if config.rotary_factor != 1:
        entries |= {"rope_type": "linear", "factor": config.rotary_factor}
    if config.rotary_wavelengths:
        # only the quotients count: the lower bound is the length of the first training, an integer
        first, second = config.rotary_wavelengths
        length = max(int(second), 1)
        entries |= {"rope_type": "llama3", "original_max_position_embeddings": length}
        entries |= {"low_freq_factor": length / second, "high_freq_factor": length / first}
    return entries


def rope_entries(config: ModelConfig, base: float | None = None) -> dict[str, Any]:
    """The entries of rotary positions, the same in all layers, also as transformers 4 reads them.

    It has them in `rope_scaling`, with base and share beside it.
    """
    rope = rotary_entries(config, base)
    beside = {key: rope[key] for key in (BASE, SHARE) if key in rope}
    older = {key: value for key, value in rope.items() if key not in beside}
    scaled = {"rope_scaling": older} if len(older) > 1 else {}
    return {"rope_parameters": rope, **beside, **scaled}


def layer_types(
    declared: Mapping[str, Any], default: Sequence[str], where: object, key: str = "layer_types"
) -> list[str]:
    """The type of each layer, by default those of `default`."""
    if (types := declared.get(key)) is None:
        return list(default)
    types = check_value(types, list, key, where)
    if len(types) != len(default) or not {*map(str, types)} <= {*TYPES}:
        raise CheckpointError(
            f"{where}: {key} must have {' or '.join(TYPES)} for each of {len(default)} layers, "
            f"got {types!r}"
        )
    return types


def read_windows(
    declared: Mapping[str, Any], types: Iterable[str], where: object
) -> tuple[int, ...]:
    """How far layers of these types see by `sliding_window`, as the setting of a model."""
    types = list(types)
    if SLIDING not in types:
        return ()
    window = check_value(declared.get("sliding_window"), int, "sliding_window", where)
    # a causal window counts the slot itself
    reach = window - (declared.get(CAUSAL) is not False)
    if reach < 1:
        raise CheckpointError(f"{where}: sliding_window must show another slot, got {window}")
    return period([reach if kind == SLIDING else 0 for kind in types])


def window_entries(config: ModelConfig, *, causal: bool = True) -> dict[str, Any]:
    """The entries of a model whose layers have one window, or see everything."""
    reach = max(config.layer_windows, default=0)
    entries: dict[str, Any] = {"sliding_window": reach + causal if reach else None}
    types = [SLIDING if window else FULL for window, _ in config.layer_kinds]
    return entries | {"layer_types": types}


def check_windows(config: ModelConfig) -> None:
    """Refuse a model whose layers have several windows, for which transformers has no class."""
    alike = len({*config.layer_windows} - {0}) <= 1
    require(
        alike,
        "--to hf: transformers has the same window in each layer that has one, but "
        f"--arch.layer-windows is {render(config.layer_windows)}",
    )


def check_bases(config: ModelConfig, bases: Iterable[Collection[float]]) -> None:
    """Refuse a model with more than one base in a group of layers."""
    alike = all(len(bases_of_group) <= 1 for bases_of_group in bases)
    require(
        alike,
        "--to hf: transformers has one base of rotary positions for layers of one type, but "
        f"--arch.layer-rotary-bases is {render(config.layer_rotary_bases)}",
    )


def period(values: Sequence[T]) -> tuple[T, ...]:
    """The shortest start of a list which gives all of it if it is repeated."""
    # a list is at most as short as its own length, so one size is always found
    size = next(
        size
        for size in range(1, len(values) + 1)
        if all(value == values[n % size] for n, value in enumerate(values))
    )
    return tuple(values[:size])
