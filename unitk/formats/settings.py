"""Translate a model's settings to and from the names of another system."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from torch import Tensor

from unitk import registry
from unitk.data.limits import UNLIMITED
from unitk.errors import CheckpointError, UnitkError, UsageError
from unitk.foreign import JSON_NAMES
from unitk.formats.archive import LARGEST, read_json, write_json
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.options.config import flag
from unitk.options.fields import render
from unitk.tasks.base import Task

Config = TypeVar("Config", bound=ModelConfig)
Keys = Mapping[str, tuple[str, ...]]
"""Field -> its names in the other system: any is read, the first is written."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
"""Name in the other system -> name in unitk; the first of several is written."""
FREE = {"scaled_init", "dropout", "attention_dropout", "activation_dropout", "init_std"}
FREE |= {"zero_init", "fan_in_init", "base_width"}
"""Fields that do not change what a trained model computes."""
KEPT = "unitk"
"""The key in config.json of the task and its options, which only unitk reads."""
BESIDE = "unitk.json"
"""The file that has this key where a system has no config.json."""
NONE: Mapping[str, str] = MappingProxyType({})
LONGEST = 100_000  # positions of a text that a table is made for
SIZES = {"num_layers", "decoder_layers", "width", "num_heads", "ffn_width", "max_positions"}
"""Fields in which the models of one family differ."""


def keys(text: str) -> dict[str, tuple[str, ...]]:
    """Parse `Keys` from words such as `norm_eps=layer_norm_eps|layer_norm_epsilon`."""
    pairs = (word.split("=") for word in text.split())
    return {option: tuple(spellings.split("|")) for option, spellings in pairs}


def read(
    config: Config,
    keys: Keys,
    declared: Mapping[str, Any],
    where: object,
    activations: Mapping[str, str] = ACTIVATIONS,
) -> Config:
    """The configuration with the settings that a file has `declared`; `where` names the file."""
    values: dict[str, Any] = {}
    for name, spellings in keys.items():
        present = [key for key in spellings if declared.get(key) is not None]
        if not present:
            continue
        value = check_value(declared[present[0]], type(getattr(config, name)), present[0], where)
        if name == "activation":
            possible = ", ".join(activations)
            if value not in activations:
                raise CheckpointError(
                    f"{where}: {present[0]} must be one of {possible}, got {value}"
                )
            value = activations[value]
        values[name] = value
    return with_values(config, where, **values)


def with_values(config: Config, where: object, **values: Any) -> Config:
    """The configuration with `values` replaced; errors name the file `where` they come from."""
    try:
        return replace(config, **values)
    except UnitkError as error:
        raise CheckpointError(f"{where}: {error}") from error


def check_value(value: Any, kind: type, key: str, where: object, most: float = LARGEST) -> Any:
    """Check a JSON value's type, and that a number is plausible; otherwise `CheckpointError`."""
    types = (int, float) if kind is float else kind
    if not isinstance(value, types) or isinstance(value, bool) != (kind is bool):
        raise CheckpointError(f"{where}: {key} must be {JSON_NAMES[kind]}, got {value!r}")
    if isinstance(value, int | float) and not abs(value) <= most:
        raise CheckpointError(f"{where}: {key} cannot be {value!r}")
    return value


def refuse(declared: Mapping[str, Any], fixed: Mapping[str, Any], where: object) -> None:
    """Raise `CheckpointError` if a setting has another value than the one that unitk computes."""
    for key, value in fixed.items():
        if key in declared and declared[key] != value:
            raise CheckpointError(
                f"{where}: unitk reads only {key} {value!r}, got {declared[key]!r}"
            )


def write(
    config: ModelConfig, keys: Keys, activations: Mapping[str, str] = ACTIVATIONS
) -> dict[str, Any]:
    """The configuration under the other system's names."""
    values = {name: getattr(config, name) for name in keys}
    # 0 means as many layers as the encoder, the width divided by the heads, or as many heads
    if isinstance(config, EncoderDecoderConfig) and values.get("decoder_layers") == 0:
        values["decoder_layers"] = config.num_layers
    if "num_kv_heads" in keys:
        values["num_kv_heads"] = config.kv_heads
    if "head_width" in keys:
        values["head_width"] = config.key_width
    if "activation" in keys:
        values["activation"] = next(
            stored for stored, activation in activations.items() if activation == config.activation
        )
    return {spellings[0]: values[name] for name, spellings in keys.items()}


def config_of_preset(name: str) -> Any:
    """The configuration of a registered architecture."""
    return registry.get("arch", name)()


def check_family(config: ModelConfig, name: str, free: Collection[str], target: str) -> None:
    """Raise `UsageError` for a setting that differs from the registered architecture `name`.

    The fields in `free`, sizes and rates of dropout may differ. `target` names the target format.
    """
    for difference in find_differences(config, name, free):
        raise UsageError(f"{target} has {difference}")


def find_differences(config: ModelConfig, name: str, free: Collection[str]) -> list[str]:
    """What the registered architecture `name` has and a model has not, as `check_family` says."""
    family = config_of_preset(name)
    extra = [field.name for field in fields(config) if not hasattr(family, field.name)]
    differences = [f"no {flag(f'arch.{name}')}, but this model has" for name in extra]
    for field in fields(family):
        own = getattr(config, field.name, None)
        usual = getattr(family, field.name)
        if field.name not in {*free, *FREE, *SIZES} and own != usual:
            option = flag(f"arch.{field.name}")
            usual, own = (render(value) or "none" for value in (usual, own))
            differences.append(f"{option} {usual}, but this model has {own}")
    return differences


def preset_of(names: Sequence[str], config: ModelConfig) -> str:
    """The first of these architectures that has the model's layers and widths; else the first."""
    for sizes in (("num_layers", "width", "ffn_width"), ("num_layers", "width")):
        for name in names:
            if all(
                getattr(config_of_preset(name), size) == getattr(config, size) for size in sizes
            ):
                return name
    return names[0]


def layers_of(tensors: Mapping[str, Tensor], prefix: str) -> int:
    """The number of layers, from names that begin with `prefix` and a number."""
    matches = (re.match(rf"{re.escape(prefix)}(\d{{1,4}})\.", name) for name in tensors)
    return max((int(match[1]) + 1 for match in matches if match), default=0)


def shape_of(tensors: Mapping[str, Tensor], name: str, where: object) -> tuple[int, int]:
    """The shape of a matrix; `CheckpointError` if it is missing or has not two dimensions."""
    tensor = tensors.get(name)
    if tensor is None or tensor.dim() != 2:
        fault = "has no" if tensor is None else f"needs two dimensions, not {tensor.dim()}, in"
        raise CheckpointError(f"{where} {fault} {name}")
    return tensor.shape[0], tensor.shape[1]


def sizes_of(
    tensors: Mapping[str, Tensor], places: Mapping[str, tuple[str, int]], where: object
) -> dict[str, int]:
    """Sizes by name, each read from one axis of a matrix."""
    return {name: shape_of(tensors, tensor, where)[axis] for name, (tensor, axis) in places.items()}


def describe_task(task: Task) -> dict[str, Any]:
    """What config.json keeps of a task, so that unitk reads the model as the same task again.

    Paths are left out, since they are those of this machine. A task that predicts labels is known
    by its output layer.
    """
    if task.predicts:
        return describe_training(task)
    given = {key: value for key, value in vars(task.config).items() if not isinstance(value, Path)}
    options = {name: render(value) for name, value in given.items()}
    return {"task": task.name, "options": options, **describe_training(task)}


def describe_training(task: Task) -> dict[str, Any]:
    """What config.json keeps of the data that a task was trained on."""
    known = task.trained
    form = {"parts": known.parts, "max_source": known.max_source, "window": known.window}
    return {"answers": known.pairs} | {name: value for name, value in form.items() if value}


def read_task(
    declared: Mapping[str, Any], where: object, task: str, options: Mapping[str, str] = NONE
) -> dict[str, Any]:
    """The fields of `StoredModel` about the task that a config.json keeps.

    If it keeps none, they are `task` with `options`.
    """
    kept = check_value(declared.get(KEPT, {}), dict, KEPT, where)
    if "task" in kept:
        task = check_value(kept["task"], str, "task", where)
        options = check_value(kept.get("options"), dict, "options", where)
        for name, text in options.items():
            check_value(text, str, name, where)
    kinds = {"answers": bool, "parts": int, "max_source": int, "window": list}
    known = {
        # of a model that has any number of positions, `max_source` is next to UNLIMITED
        name: check_value(kept[name], kind, name, where, UNLIMITED)
        for name, kind in kinds.items()
        if name in kept
    }
    if "window" in known:
        size, form = known["window"] if len(known["window"]) == 2 else (0, None)
        if size is not None:
            check_value(size, int, "window", where)
        check_value(form, str, "window", where)
    return {
        "task": task,
        "options": options,
        "trained": {"pairs": known.pop("answers", False), **known},
    }


def write_kept(task: Task, folder: Path) -> None:
    """Write what config.json keeps of a task into a folder of a system without config.json."""
    write_json({KEPT: describe_task(task)}, folder / BESIDE)


def read_kept(weights: Path, task: str, options: Mapping[str, str] = NONE) -> dict[str, Any]:
    """`read_task` of the folder of a file of weights that has no config.json."""
    where = weights.with_name(BESIDE)
    return read_task(read_json(where) if where.exists() else {}, where, task, options)
