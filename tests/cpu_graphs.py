"""A recorder on a CPU that stands in for CUDA graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from unitk.kernels.capture import Recorded

WAITS = "item _local_scalar_dense is_nonzero nonzero unique _unique2 equal masked_select".split()
"""Operations for whose result a host waits, which no CUDA graph can have."""


class Tape(TorchDispatchMode):
    """The operations of a function, which are computed only when they are replayed.

    As with a CUDA graph: the memory that was read and written is read and written again, whatever
    lies there by then; what was a Python number stays what it was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.made: dict[int, Tensor] = {}  # what the function itself makes, kept so that ids last
        self.outside: dict[int, tuple[Tensor, int, torch.Size]] = {}
        self.before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, given = func._schema.name.split("::")[1], tree_leaves((args, kwargs))
        sized = name in ("index", "index_put_") and any(
            isinstance(one, Tensor) and one.dtype == torch.bool for one in given[1:]
        )
        assert name not in WAITS and not sized, f"the host would wait: {func}"
        for one in given:
            if isinstance(one, Tensor) and id(one) not in self.made | self.outside:
                self.outside[id(one)] = one, one.data_ptr(), one.shape
                self.before.append((one, one.clone()))
        out = func(*args, **kwargs)
        for one in tree_leaves(out):
            if isinstance(one, Tensor) and id(one) not in self.outside:
                self.made[id(one)] = one
        self.steps.append((func, args, kwargs, out))
        return out

    def rewind(self) -> None:
        """Undo what the recording computed."""
        for table, old in self.before:
            table.copy_(old)
        self.before = []

    def replay(self) -> None:
        """Compute the operations."""
        for table, address, shape in self.outside.values():
            assert (table.data_ptr(), table.shape) == (address, shape), "a table has moved"
        now: dict[int, Any] = {}

        def current(one: Any) -> Any:
            return now.get(id(one), one) if isinstance(one, Tensor) else one

        for func, args, kwargs, out in self.steps:
            found = func(*tree_map(current, args), **tree_map(current, kwargs))
            for was, new in zip(tree_leaves(out), tree_leaves(found), strict=True):
                if isinstance(was, Tensor):
                    now[id(was)] = new


class Replayed(Recorded):
    """A recording of `Tape`."""

    def record(self) -> Tape:
        with Tape() as tape:
            self.function()
        tape.rewind()
        return tape
