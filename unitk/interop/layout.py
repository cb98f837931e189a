"""A table of names: where each of our tensors stands in another system's checkpoint."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unitk.errors import CheckpointError

Names = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Line:
    """One of our tensors, and those that it is made of there, one below the other."""

    ours: str
    theirs: tuple[str, ...]
    """An empty name stands for zeros that are not stored."""
    transposed: bool


@dataclass(frozen=True)
class Layout:
    """How a system calls its tensors; `#` stands for the number of a layer.

    Every tensor of a checkpoint must have its place here, or be one of the `copies` or `ignored`.
    """

    names: Names
    """Our module, or one tensor of it, -> theirs; several are joined."""
    transposed: Collection[str] = ()
    """Our modules whose weight is stored [in, out]."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Their second name of a tensor -> its first; both are equal, or the checkpoint is refused."""
    ignored: Collection[str] = ()
    """Patterns of whole names that carry nothing a model needs."""

    def lines(self, ours: Iterable[str]) -> list[Line]:
        """The line of each of our tensors; an error lists those that have none."""
        found, without = [], []
        for name in ours:
            module, _, leaf = name.rpartition(".")
            number = re.search(r"\.(\d+)\.", f".{name}")
            digits = number[1] if number else ""
            generic, of_module = (_generic(text, digits) for text in (name, module))
            if generic in self.names:
                theirs, end = self.names[generic], ""
            elif of_module in self.names:
                theirs, end = self.names[of_module], f".{leaf}"
            else:
                without.append(name)
                continue
            parts = (theirs,) if isinstance(theirs, str) else theirs
            spelled = tuple(part and part.replace("#", digits) + end for part in parts)
            transposed = leaf == "weight" and of_module in self.transposed
            found.append(Line(name, spelled, transposed))
        if without:
            raise CheckpointError(f"this format has no place for {listed(without)}")
        return found

    def to_ours(
        self, theirs: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], path: object
    ) -> dict[str, Tensor]:
        """Our tensors, of these shapes; an error lists what is missing, unused or misshapen."""
        lines = self.lines(shapes)
        needed = {part for line in lines for part in line.theirs if part}
        missing = sorted(needed - theirs.keys())
        if missing:
            raise CheckpointError(f"{path} has no {listed(missing)}, which the model needs")
        self._check_rest(theirs, theirs.keys() - needed, path)
        found: dict[str, Tensor] = {}
        wrong = []
        for line in lines:
            tensor, wanted = joined(line, theirs), shapes[line.ours]
            if tensor is not None and tensor.shape == wanted:
                found[line.ours] = tensor
            else:
                parts = " + ".join(f"{n} {list(theirs[n].shape)}" for n in line.theirs if n)
                wrong.append(f"{parts} (needed: {list(wanted)} for {line.ours})")
        if wrong:
            raise CheckpointError(f"{path}: the shape does not fit of {listed(wrong)}")
        return found

    def to_theirs(self, ours: Mapping[str, Tensor], *, copies: bool = False) -> dict[str, Tensor]:
        """Their tensors; with the copies where their reader expects them."""
        found: dict[str, Tensor] = {}
        for line in self.lines(ours):
            tensor = ours[line.ours].mT if line.transposed else ours[line.ours]
            for name, part in zip(line.theirs, tensor.chunk(len(line.theirs)), strict=True):
                if name:
                    found[name] = part.contiguous()
        if copies:
            found = {a: found[b] for a, b in self.copies.items() if b in found} | found
        return found

    def _check_rest(self, theirs: Mapping[str, Tensor], rest: set[str], path: object) -> None:
        ignored = {n for n in rest if any(re.fullmatch(one, n) for one in self.ignored)}
        unused = []
        for name in sorted(rest - ignored):
            first = self.copies.get(name, "")
            if first not in theirs:
                unused.append(name)
            elif not same(theirs[name], theirs[first]):
                raise CheckpointError(f"{path}: {name} should be a copy of {first}, but differs")
        if unused:
            raise CheckpointError(f"{path} has {listed(unused)}, which this format has no use for")


def joined(line: Line, theirs: Mapping[str, Tensor]) -> Tensor | None:
    """One of our tensors from its parts; None if they do not fit together."""
    stored = [theirs[name] for name in line.theirs if name]
    if len({part.shape for part in stored}) > 1 or line.transposed and stored[0].dim() != 2:
        return None
    if len(line.theirs) == 1:
        return stored[0].mT if line.transposed else stored[0]
    if not stored[0].dim():
        return None
    # what is absent is of the same size as what is not
    parts = [theirs[name] if name else torch.zeros_like(stored[0]) for name in line.theirs]
    whole = torch.cat(parts)
    return whole.mT if line.transposed else whole


def moved(table: Tensor, have: int, want: int) -> Tensor:
    """A position table with `want` rows before that of position 0, which nothing looks up."""
    return (
        table if have == want else torch.cat([table.new_zeros(want, table.shape[1]), table[have:]])
    )


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal, bit for bit or not at all."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))


def listed(names: Collection[str], most: int = 12) -> str:
    """Names for an error message; the first of very many."""
    shown = ", ".join(list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _generic(name: str, digits: str) -> str:
    return f".{name}.".replace(f".{digits}.", ".#.")[1:-1] if digits else name
