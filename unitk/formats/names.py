"""Tables of names: where each tensor of unitk is in another system's checkpoint.

`Layout` translates in both directions. `Stored`s are the ways in which a stored tensor may differ
from unitk's: transposed, with the channels of rotary positions in another order, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unitk.errors import CheckpointError
from unitk.models.config import ModelConfig

StoredNames = str | tuple[str, ...]
Names = Mapping[str, StoredNames]
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
POSITIONS = ("embed.positions.weight", "encoder.embed.positions.weight")


class Stored(NamedTuple):
    """How a tensor is stored: `load` makes unitk's of it, `save` makes it of unitk's."""

    load: Callable[[Tensor, ModelConfig], Tensor]
    save: Callable[[Tensor, ModelConfig], Tensor]


def turn(tensor: Tensor, config: ModelConfig) -> Tensor:
    """The transpose of a matrix."""
    return tensor.mT


def as_neighbours(rows: Tensor, config: ModelConfig) -> Tensor:
    """Order the rows of heads so that the channels that turn together are neighbours."""
    return _pair_channels(rows, config, (2, -1))


def as_halves(rows: Tensor, config: ModelConfig) -> Tensor:
    """Order the rows of heads so that the first half of the channels that turn comes before the
    second half: channel i turns together with channel i + R/2 of R."""
    return _pair_channels(rows, config, (-1, 2))


def _pair_channels(rows: Tensor, config: ModelConfig, stored: tuple[int, int]) -> Tensor:
    """Reorder the channels of each head that turn: reshaped as `stored`, they are transposed."""
    # channels that do not turn come after those that do, in both orders
    head_rows = rows.unflatten(0, (-1, config.key_width))
    turning = round(config.key_width * config.rotary_share)
    first, rest = head_rows.split([turning, config.key_width - turning], dim=1)
    first = first.unflatten(1, stored).transpose(1, 2).flatten(1, 2)
    return torch.cat([first, rest], dim=1).flatten(0, 1)


def by_part(rows: Tensor, config: ModelConfig) -> Tensor:
    """All queries, then all keys, then all values, of rows that are stored head by head."""
    query, key, value = rows.unflatten(0, (-1, 3, config.key_width)).unbind(1)
    parts = (as_neighbours(query.flatten(0, 1), config), as_neighbours(key.flatten(0, 1), config))
    return torch.cat([*parts, value.flatten(0, 1)])


def by_head(rows: Tensor, config: ModelConfig) -> Tensor:
    """The queries, keys and values of the first head, then those of the second, and so on."""
    # the inverse of `by_part`: a matrix or a bias, whose rows are cut alike
    query, key, value = rows.chunk(3)
    parts = (as_halves(query, config), as_halves(key, config), value)
    return torch.stack([part.unflatten(0, (-1, config.key_width)) for part in parts], 1).flatten(
        0, 2
    )


def fused_neighbours(rows: Tensor, config: ModelConfig) -> Tensor:
    """Queries, keys and values of rows in which they are one after the other, as in unitk."""
    query, key, value = rows.chunk(3)
    return torch.cat([as_neighbours(query, config), as_neighbours(key, config), value])


def fused_halves(rows: Tensor, config: ModelConfig) -> Tensor:
    """The inverse of `fused_neighbours`."""
    query, key, value = rows.chunk(3)
    return torch.cat([as_halves(query, config), as_halves(key, config), value])


def compose(*forms: Stored) -> Stored:
    """A tensor that is stored in several forms at once; the first one is undone first."""

    def load(tensor: Tensor, config: ModelConfig) -> Tensor:
        for form in forms:
            tensor = form.load(tensor, config)
        return tensor

    def save(tensor: Tensor, config: ModelConfig) -> Tensor:
        for form in reversed(forms):
            tensor = form.save(tensor, config)
        return tensor

    return Stored(load, save)


TURNED = Stored(turn, turn)
"""A matrix that is stored as [in, out]."""
HALVES = Stored(as_neighbours, as_halves)
"""Queries or keys, or weights of their channels: rotary positions turn channels i and i + R/2 of
the first R of a head together, and in unitk 2i and 2i + 1."""
BY_HEAD = Stored(by_part, by_head)
"""Queries, keys and values in one matrix [H, 3, K, D], queries and keys as in `HALVES`."""
FUSED = Stored(fused_neighbours, fused_halves)
"""Queries, keys and values in one matrix [3, H, K, D], queries and keys as in `HALVES`."""
LESS_ONE = Stored(lambda tensor, config: tensor + 1, lambda tensor, config: tensor - 1)
"""The weight of a norm that multiplies by 1 + w (Gemma)."""


@dataclass(frozen=True)
class Line:
    """One tensor of unitk, and the stored tensors that it is made of, joined along their rows."""

    name: str
    stored: tuple[str, ...]  # an empty name stands for zeros that are not stored


@dataclass(frozen=True)
class Layout:
    """The names of a system's tensors; `#` stands for the number of a layer.

    A tensor of a checkpoint that is not in `names`, `copies` or `ignored` is an error.
    """

    names: Names  # unitk's module, or a tensor of it -> the other system's; several are joined
    forms: Mapping[str, Stored] = field(default_factory=dict)
    """Patterns of stored names -> how these tensors are stored; the first match counts."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Second name of a tensor -> its first. A checkpoint whose two tensors differ is refused."""
    twice: Mapping[str, str] = field(default_factory=dict)
    """Like `copies`, of tensors that are written under both names."""
    ignored: Collection[str] = ()  # patterns of whole names that no model needs

    def lines(self, names: Iterable[str]) -> list[Line]:
        """The entry of each tensor of unitk; `CheckpointError` lists those without one."""
        lines, without = [], []
        for name in names:
            module, _, leaf = name.rpartition(".")
            # the first number of a name is the layer's, for which the tables have `#`
            number = re.search(r"\.(\d+)\.", f".{name}")
            digits = number[1] if number else ""
            generic, of_module = (_generic(text, digits) for text in (name, module))
            # a tensor may have another module than the rest of its own (UniLM's q_bias)
            if generic in self.names:
                stored = self.names[generic]
                end = ""
            elif of_module in self.names:
                stored = self.names[of_module]
                end = f".{leaf}"
            else:
                without.append(name)
                continue
            parts = (stored,) if isinstance(stored, str) else stored
            spelled = tuple(part and part.replace("#", digits) + end for part in parts)
            lines.append(Line(name, spelled))
        if without:
            raise CheckpointError(f"this format has no name for {list_names(without)}")
        return lines

    def form(self, name: str) -> Stored | None:
        """The form of the stored tensor of that name; None if it is as in unitk."""
        for pattern, form in self.forms.items():
            if re.fullmatch(pattern, name):
                return form
        return None

    def from_stored(
        self,
        stored: Mapping[str, Tensor],
        shapes: Mapping[str, torch.Size],
        config: ModelConfig,
        path: object,
    ) -> dict[str, Tensor]:
        """A checkpoint's tensors under unitk's names, with these shapes.

        Raises `CheckpointError` with all that are missing, unused or of another shape.
        """
        lines = self.lines(shapes)
        needed = {part for line in lines for part in line.stored if part}
        missing = sorted(needed - stored.keys())
        if missing:
            raise CheckpointError(f"{path} has no {list_names(missing)}, which the model needs")
        self._check_rest(stored, stored.keys() - needed, path)
        for name in sorted(needed):
            if stored[name].dtype not in FLOATS:
                kind = str(stored[name].dtype).removeprefix("torch.")
                raise CheckpointError(f"{path}: {name} is {kind}, so it is not a weight")
        tensors: dict[str, Tensor] = {}
        wrong = []
        for line in lines:
            tensor = self._join(line, stored, config)
            shape = shapes[line.name]
            if tensor is not None and tensor.shape == shape:
                tensors[line.name] = tensor
            else:
                parts = " + ".join(f"{n} {list(stored[n].shape)}" for n in line.stored if n)
                wrong.append(f"{parts} (needed: {list(shape)} for {line.name})")
        if wrong:
            raise CheckpointError(f"{path}: another shape is needed: {list_names(wrong)}")
        return tensors

    def to_stored(
        self, tensors: Mapping[str, Tensor], config: ModelConfig, *, copies: bool = False
    ) -> dict[str, Tensor]:
        """The tensors under the other system's names; `copies`: with the second names."""
        stored: dict[str, Tensor] = {}
        for line in self.lines(tensors):
            # a matrix that is stored in parts is divided along its rows
            parts = tensors[line.name].chunk(len(line.stored))
            for name, part in zip(line.stored, parts, strict=True):
                if name:
                    form = self.form(name)
                    stored[name] = (form.save(part, config) if form else part).contiguous()
        # safetensors stores no memory under two names
        second = {n: stored[first].clone() for n, first in self.twice.items() if first in stored}
        if copies:
            second |= {
                name: stored[first] for name, first in self.copies.items() if first in stored
            }
        stored = second | stored
        return stored

    def _join(self, line: Line, stored: Mapping[str, Tensor], config: ModelConfig) -> Tensor | None:
        """One tensor of unitk, joined from its stored parts; None if their shapes do not fit."""
        parts = []
        for name in filter(None, line.stored):
            form = self.form(name)
            # the shapes of a damaged file are anything
            try:
                parts.append(form.load(stored[name], config) if form else stored[name])
            except (RuntimeError, IndexError):  # it has not the dimensions that the form needs
                return None
        if len(line.stored) == 1:
            return parts[0]
        if len({part.shape for part in parts}) > 1 or not parts[0].dim():
            return None
        # an absent part has the size of the others
        absent = torch.zeros_like(parts[0]) if "" in line.stored else parts[0]
        rest = iter(parts)
        return torch.cat([next(rest) if name else absent for name in line.stored])

    def _check_rest(self, stored: Mapping[str, Tensor], rest: set[str], path: object) -> None:
        """Refuse tensors in `rest`, which no line needs, that are neither copies nor ignored."""
        unused = []
        for name in sorted(rest):
            if any(re.fullmatch(pattern, name) for pattern in self.ignored):
                continue
            first = self.copies.get(name, self.twice.get(name, ""))
            if first not in stored:
                unused.append(name)
            elif not equal_tensors(stored[name], stored[first]):
                raise CheckpointError(f"{path}: {name} should be a copy of {first}, but differs")
        if unused:
            raise CheckpointError(f"{path} has tensors of no known name: {list_names(unused)}")


def layout_of_pair(shared: Layout, apart: Layout) -> Callable[[Any], Layout]:
    """What chooses the layout of an encoder-decoder, whose towers may share one embedding."""
    return lambda config: shared if config.shared_embeddings else apart


def count_from(tensors: dict[str, Tensor], have: int, want: int) -> None:
    """Change the rows before position 0 in tables of positions from `have` to `want`, in place."""
    for name in POSITIONS:
        if have != want and name in tensors:
            table = tensors[name]  # the rows before position 0 are never read, so they may be zero
            tensors[name] = torch.cat([table.new_zeros(want, table.shape[1]), table[have:]])


def equal_tensors(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, type and values."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))


def list_names(names: Collection[str]) -> str:
    """Names for an error message: all, or the first twelve and the number of the others."""
    shown = ", ".join(list(names)[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def _generic(name: str, digits: str) -> str:
    """A name with `#` for the layer's number, if it has one."""
    return f".{name}.".replace(f".{digits}.", ".#.")[1:-1] if digits else name


def layer(
    qkv: StoredNames, out: str, attention_norm: str, up: StoredNames, down: str, ffn_norm: str
) -> dict[str, StoredNames]:
    """The names of a layer's parts, given in the other system's words."""
    return {
        "attention.qkv": qkv,
        "attention.out": out,
        "attention_norm": attention_norm,
        "ffn.up": up,
        "ffn.down": down,
        "ffn_norm": ffn_norm,
    }


def cross_layer(
    query: str, kv: tuple[str, str], out: StoredNames, norm: str
) -> dict[str, StoredNames]:
    """The names of a layer's cross-attention, given in the other system's words."""
    names: dict[str, StoredNames] = {"query": query, "kv": kv, "out": out}
    return {f"cross_attention.{part}": name for part, name in names.items()} | {"cross_norm": norm}


def prefix_names(prefix: str, own_prefix: str, names: Names) -> dict[str, Any]:
    """Prepend `prefix` to the other system's names, and `own_prefix` to unitk's."""
    return {
        f"{own_prefix}{key}": tuple(prefix + part for part in value)
        if isinstance(value, tuple)
        else prefix + value
        for key, value in names.items()
    }


def class_head(name: str, dense: str, out: str) -> dict[str, str]:
    """The names of a head over classes that reads a slot through a pooler."""
    return {f"heads.{name}.dense": dense, f"heads.{name}.out": out}


def current_name(name: str) -> str:
    """The name of a tensor today: norms had gamma and beta instead of weight and bias."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
