"""Settings of a model under another system's names, both ways."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from torch import Tensor

from unitk import registry
from unitk.config import flag
from unitk.errors import CheckpointError, UnitkError, UsageError
from unitk.interop.files import LARGEST
from unitk.models.config import EncoderDecoderConfig, ModelConfig

Config = TypeVar("Config", bound=ModelConfig)
Keys = Mapping[str, tuple[str, ...]]
"""Our field -> its names there, of which the first is written and any is read."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
"""Theirs -> ours; the first of several is written."""
FREE = {"scaled_init", "dropout", "attention_dropout", "activation_dropout", "init_std"}
"""Fields that a trained model computes the same without."""
SIZES = {"num_layers", "decoder_layers", "width", "num_heads", "ffn_width", "max_positions"}
"""Fields in which the models of one family differ."""


def keys(text: str) -> dict[str, tuple[str, ...]]:
    """`Keys` from words such as `norm_eps=layer_norm_eps|layer_norm_epsilon`."""
    pairs = (word.split("=") for word in text.split())
    return {ours: tuple(theirs.split("|")) for ours, theirs in pairs}


def read(
    config: Config,
    keys: Keys,
    given: Mapping[str, Any],
    where: object,
    activations: Mapping[str, str] = ACTIVATIONS,
) -> Config:
    """The configuration with what is given under their names; `where` is the file, for errors."""
    values: dict[str, Any] = {}
    for name, theirs in keys.items():
        found = [key for key in theirs if given.get(key) is not None]
        if not found:
            continue
        value = checked(given[found[0]], type(getattr(config, name)), found[0], where)
        if name == "activation":
            possible = ", ".join(activations)
            if value not in activations:
                raise CheckpointError(f"{where}: {found[0]} must be one of {possible}, got {value}")
            value = activations[value]
        values[name] = value
    return changed(config, where, **values)


def changed(config: Config, where: object, **values: Any) -> Config:
    """The configuration with other values; an error names the file they come from."""
    try:
        return replace(config, **values)
    except UnitkError as error:
        raise CheckpointError(f"{where}: {error}") from error


def checked(value: Any, kind: type, key: str, where: object) -> Any:
    """A value of a json file, if it is of this kind and no absurd number."""
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or isinstance(value, bool) != (kind is bool):
        raise CheckpointError(f"{where}: {key} must be a {kind.__name__}, got {value!r}")
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise CheckpointError(f"{where}: {key} cannot be {value!r}")
    return value


def refuse(given: Mapping[str, Any], fixed: Mapping[str, Any], where: object) -> None:
    """Raise unless every key that is given has the one value that unitk computes."""
    for key, value in fixed.items():
        if key in given and given[key] != value:
            raise CheckpointError(f"{where}: unitk reads {key} {value!r} only, got {given[key]!r}")


def write(
    config: ModelConfig, keys: Keys, activations: Mapping[str, str] = ACTIVATIONS
) -> dict[str, Any]:
    """The configuration under their names."""
    values = {name: getattr(config, name) for name in keys}
    # here 0 stands for as many as the encoder has, and for an equal share of the width
    if isinstance(config, EncoderDecoderConfig) and values.get("decoder_layers") == 0:
        values["decoder_layers"] = config.num_layers
    if "head_width" in keys:
        values["head_width"] = config.key_width
    if "activation" in keys:
        values["activation"] = next(
            theirs for theirs, ours in activations.items() if ours == config.activation
        )
    return {theirs[0]: values[name] for name, theirs in keys.items()}


def preset(name: str) -> Any:
    """The settings of a registered architecture."""
    return registry.get("arch", name)()


def check_family(config: ModelConfig, name: str, free: Collection[str], what: str) -> None:
    """Raise where a model has a setting, none of the `free` ones, that its family elsewhere has
    otherwise: as the registered architecture `name`."""
    family = preset(name)
    for one in fields(family):
        ours, theirs = getattr(config, one.name, None), getattr(family, one.name)
        if one.name not in {*free, *FREE, *SIZES} and ours != theirs:
            option = flag(f"arch.{one.name}")
            raise UsageError(f"{what} has {option} {theirs}, but this model has {ours}")


def preset_of(names: Sequence[str], config: ModelConfig) -> str:
    """Which of these architectures a model is, found from layers and widths; else the first."""
    for sizes in (("num_layers", "width", "ffn_width"), ("num_layers", "width")):
        for name in names:
            if all(getattr(preset(name), size) == getattr(config, size) for size in sizes):
                return name
    return names[0]


def layers_of(tensors: Mapping[str, Tensor], prefix: str) -> int:
    """How many layers there are, found from names that begin with `prefix` and a number."""
    found = (re.match(rf"{re.escape(prefix)}(\d{{1,4}})\.", name) for name in tensors)
    return max((int(one[1]) + 1 for one in found if one), default=0)


def shape_of(tensors: Mapping[str, Tensor], name: str, where: object) -> tuple[int, int]:
    """The shape of a matrix that must be there."""
    tensor = tensors.get(name)
    if tensor is None or tensor.dim() != 2:
        what = "has no" if tensor is None else f"needs two dimensions, not {tensor.dim()}, in"
        raise CheckpointError(f"{where} {what} {name}")
    return tensor.shape[0], tensor.shape[1]


def sizes_of(
    tensors: Mapping[str, Tensor], places: Mapping[str, tuple[str, int]], where: object
) -> dict[str, int]:
    """Sizes of matrices: name -> the matrix and its axis."""
    return {name: shape_of(tensors, one, where)[axis] for name, (one, axis) in places.items()}
