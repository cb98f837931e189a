"""Ranks: the only file that knows that a run may have several processes.

`--nproc` or `torchrun` starts them; each reads its own share of every update's micro-batches. What
the loop needs of the others is here: sums over all ranks, values that all agree on, gradients.

Gradients are added up in buckets after the last micro-batch of an update, by all-reduce and not by
DistributedDataParallel: a criterion calls `model.condition` and `model.head` beside the forward
pass, which its wrapper does not see; an update of several micro-batches then never synchronises
too early; and a parameter that no rank used keeps no gradient, as in one process. What it gives up
is the overlap with the last backward pass, which gains nothing on a CPU (docs/benchmarks/cpu.md).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import FileStore, PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from unitk.errors import RanksError
from unitk.models.attention import CrossAttention
from unitk.models.layers import Layer
from unitk.models.model import Model
from unitk.optim.muon import Muon
from unitk.training.config import LAUNCHER, MEETING, process_ranks

BUCKET = 25_000_000  # bytes of gradients that are sent at a time

PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

T = TypeVar("T")


@dataclass
class Ranks:
    """The ranks as this process sees them; in this class it is the only one."""

    rank: int = 0
    world: int = 1
    sharded: bool = False  # whether each holds only a part of the parameters
    local: int = 0  # its number on this machine, which is the number of its GPU
    apart: bool = False  # whether each writes its own part of the parameters

    @property
    def leads(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def connect(self, device: torch.device, timeout: float) -> None:
        """Join the process group; wait at most `timeout` seconds for the other ranks."""

    def leave(self) -> None:
        """Leave the process group."""

    @property
    def suffix(self) -> str:
        """A suffix that distinguishes the files of several ranks."""
        return f"-rank{self.rank}" if self.world > 1 else ""

    def check_same(self, text: str) -> None:
        """Raise `RanksError` unless all ranks pass the same text."""

    def all_gather_texts(self, text: str) -> list[str]:
        """All-gather a text of each rank, in the order of the ranks."""
        return [text]

    def all_reduce_max(self, *values: float) -> list[float]:
        """All-reduce: the maximum of each value over all ranks."""
        return list(values)

    def total(self, values: dict[str, float]) -> dict[str, float]:
        """All-reduce: the sum of each name over all ranks; a name may be missing on some."""
        return values

    def total_tensors(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """All-reduce like `total`, with tensors that stay on the device."""
        return values

    def backward(self, model: nn.Module, total: Tensor) -> None:
        """Backward of a micro-batch's loss."""
        torch.autograd.backward(total)

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum the gradients over all ranks; one that no rank has stays None."""

    def norm(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """The norm of all gradients."""
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])

    def clip(self, parameters: Sequence[nn.Parameter], largest: float, norm: Tensor) -> None:
        """Scale gradients with this norm down to `largest`."""
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)

    def to_device(self, model: Model, device: torch.device) -> None:
        """Put the weights, or this rank's part of them, on the device."""
        model.to(device)

    def reshard(self, model: nn.Module) -> None:
        """After a forward pass without backward: keep only this rank's shard of the weights."""

    def gather_rows(self, rows: Tensor) -> Tensor:
        """A table [R, ...] in host memory, joined from equal shares of rows that the ranks hold."""
        return rows.to("cpu", copy=True).contiguous()

    def prepare(self, optimizers: Iterable[Any]) -> None:
        """Let optimizers that need whole matrices gather them."""

    def copy_to_host(self, tensor: Tensor) -> Tensor:
        """A copy in host memory; of a sharded tensor, the whole of it, on the leading rank only, or
        with `apart` the part that this rank holds."""
        return tensor.detach().to("cpu", copy=True).contiguous()

    def shard_like(self, tensor: Tensor, parameter: Tensor) -> Tensor:
        """A whole tensor, or this rank's part of it, divided as the parameter is."""
        return tensor.clone()

    def own_rows(self, tensor: Tensor) -> tuple[Tensor, int]:
        """The rows of a tensor that this rank holds, in their place; how many come before them."""
        return tensor, 0


@dataclass
class Group(Ranks):
    """One of several processes, each with all the weights."""

    timeout: float = 0.0
    device: Any = None
    names: set[str] = field(default_factory=set)  # names of sums that any rank has had yet

    def connect(self, device: torch.device, timeout: float) -> None:
        self.device = device
        self.timeout = timeout
        if {"TORCHELASTIC_RUN_ID", MEETING} & os.environ.keys() and sys.platform == "linux":
            # where the launcher is killed, its ranks save and end too
            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if int(os.environ.get(LAUNCHER, os.getppid())) != os.getppid():
            raise RanksError(f"rank {self.rank}: the process that started it is gone")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        # what the host decides on goes over gloo, so that no rank waits for its GPU
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        limit = timedelta(seconds=timeout)

        def meet() -> None:
            if folder := os.environ.get(MEETING):
                store: Store = FileStore(str(Path(folder, "store")), self.world)
                store.set_timeout(limit)
            else:
                shared, *_ = next(rendezvous("env://", self.rank, self.world, timeout=limit))
                store = PrefixStore(attempt(), shared)
            dist.init_process_group(backend, None, limit, self.world, self.rank, store)

        self._ask(meet)

    def leave(self) -> None:
        dist.destroy_process_group()

    def check_same(self, text: str) -> None:
        digest = hashlib.sha256(text.encode()).digest()
        words = torch.tensor([int.from_bytes(digest[i : i + 4], "big") for i in range(0, 32, 4)])
        if not torch.equal(self._reduce(words, "MAX"), self._reduce(words, "MIN")):
            raise RanksError(
                f"rank {self.rank}: the processes of this run were started with other options,"
                " data or checkpoints than each other"
            )

    def all_reduce_max(self, *values: float) -> list[float]:
        return self._reduce(torch.tensor(values, dtype=torch.double), "MAX").tolist()

    def total(self, values: dict[str, float]) -> dict[str, float]:
        names = self._gather_names(values)
        sums = torch.tensor([values.get(name, 0.0) for name in names], dtype=torch.double)
        return dict(zip(names, self._reduce(sums).tolist(), strict=True))

    def total_tensors(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        if not (names := self._gather_names(values)):
            return {}
        zero = torch.zeros((), dtype=torch.double, device=self.device)
        sums = torch.stack([values.get(name, zero).double() for name in names])
        return dict(zip(names, self._reduce(sums).unbind(), strict=True))

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        # a rank may have no gradient where others have one: its share is 0
        used_here = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
        somewhere = self._reduce(used_here, "MAX").tolist()
        for parameter, used in zip(parameters, somewhere, strict=True):
            if used and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        pending = []
        for bucket in group_tensors(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            pending.append((bucket, flat, self._sum(flat)))
        for bucket, flat, work in pending:
            self._ask(work.wait)
            sums = flat.split([gradient.numel() for gradient in bucket])
            for gradient, total in zip(bucket, sums, strict=True):
                gradient.copy_(total.view_as(gradient))

    def _gather_names(self, names: Iterable[str]) -> list[str]:
        """The names that any rank has, in the same order on all ranks."""
        own = set(names)
        known = sorted(self.names)
        unknown, *used = self.all_reduce_max(
            not own <= self.names, *(name in own for name in known)
        )
        if not unknown:
            return [name for name, by_any in zip(known, used, strict=True) if by_any]
        self.names |= set("\n".join(self.all_gather_texts("\n".join(own))).split("\n")) - {""}
        return self._gather_names(own)

    def all_gather_texts(self, text: str) -> list[str]:
        # as bytes, since what PyTorch does with objects is pickle
        raw = text.encode()
        size = int(self.all_reduce_max(len(raw))[0])
        padded = torch.tensor([*raw.ljust(size)], dtype=torch.uint8)
        gathered = [torch.empty_like(padded) for _ in range(self.world)]
        self._ask(lambda: dist.all_gather(gathered, padded))
        return [bytes(codes.tolist()).decode().strip() for codes in gathered]

    def gather_rows(self, rows: Tensor) -> Tensor:
        shares = [share.contiguous() for share in super().gather_rows(rows).chunk(self.world)]
        self._ask(lambda: dist.all_gather(shares, shares[self.rank].clone()))
        return torch.cat(shares)

    def _reduce(self, values: Tensor, how: str = "SUM") -> Tensor:
        reduced = values.clone()
        self._ask(lambda: dist.all_reduce(reduced, getattr(dist.ReduceOp, how)))
        return reduced

    def _sum(self, flat: Tensor) -> Any:
        return self._ask(lambda: dist.all_reduce(flat, async_op=True))

    def _ask(self, call: Callable[[], T]) -> T:
        """The result of a collective call; `RanksError` with a message if another rank is gone."""
        try:
            return call()
        except RuntimeError as error:
            reason = re.sub(r"^\[\S+:\d+\] ", "", str(error).split("\n")[0])  # gloo's file and line
            raise RanksError(
                f"rank {self.rank} of {self.world}: another rank is gone, or did not answer within"
                f" {self.timeout:g} s (--rank-timeout): {reason}"
            ) from error


@dataclass
class Sharded(Group):
    """One of several processes, each of which holds a part of every parameter (FSDP2).

    The weights of a layer that is `alone` are gathered when it runs, all others when the model is
    called.
    """

    sharded: bool = True
    used: dict[nn.Parameter, bool] = field(default_factory=dict)
    """Whether a loss of this rank had a part in the gradient of each parameter outside the layers,
    since the last update."""

    def to_device(self, model: Model, device: torch.device) -> None:
        import torch.distributed.fsdp as fsdp
        from torch.distributed.device_mesh import init_device_mesh

        # nothing here changes what a model returned in place
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(device.type, (self.world,))
        for part in reversed(list(model.modules())):
            if isinstance(part, CrossAttention):
                fsdp.fully_shard(part.kv, mesh=mesh)  # it runs before its layer does
            elif isinstance(part, Layer) and part.alone:
                fsdp.fully_shard(part, mesh=mesh)
                fsdp.register_fsdp_forward_method(part, "remember")
        fsdp.fully_shard(model, mesh=mesh, reshard_after_forward=False)
        for part in model.modules():
            if isinstance(part, fsdp.FSDPModule):
                # gradients are sums: the loss was divided by the count of all ranks
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)
        for name in model.beside_forward:
            fsdp.register_fsdp_forward_method(model, name)

    def reshard(self, model: nn.Module) -> None:
        model.reshard()  # type: ignore[operator]

    def backward(self, model: nn.Module, total: Tensor) -> None:
        from torch.distributed.tensor import DTensor

        # FSDP joins the gradients that a rank has before it adds them to those of other ranks: if
        # one lacked a head's, as its texts do not ask it, those of different heads would be added
        whole = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and not isinstance(parameter, DTensor)
        ]
        used = set[str]()
        hooks = []
        for name, parameter in whole:
            parameter.grad = torch.zeros_like(parameter)
            hooks.append(parameter.register_hook(lambda _, name=name: used.add(name)))
        super().backward(model, total)
        for hook in hooks:
            hook.remove()
        shards = dict(model.named_parameters())
        for name, _ in whole:
            self.used[shards[name]] = self.used.get(shards[name], False) or name in used

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """FSDP has added them in each backward pass; one that no rank has is None again."""
        own = torch.tensor([*self.used.values()], dtype=torch.uint8)
        somewhere = self._reduce(own, "MAX").tolist()
        for parameter, used in zip(self.used, somewhere, strict=True):
            if not used:
                parameter.grad = None
        self.used.clear()

    def norm(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        local = torch.nn.utils.get_total_norm(_local_gradients(parameters))
        return self._reduce(local.square()).sqrt()

    def clip(self, parameters: Sequence[nn.Parameter], largest: float, norm: Tensor) -> None:
        torch._foreach_mul_(_local_gradients(parameters), largest / (norm + 1e-6))

    def prepare(self, optimizers: Iterable[Any]) -> None:
        for optimizer in optimizers:
            if isinstance(optimizer, Muon):
                optimizer.gather = lambda tensor: tensor.full_tensor()  # type: ignore[attr-defined]
                optimizer.divide = self.shard_like

    def copy_to_host(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        if isinstance(tensor, DTensor) and self.apart:
            return super().copy_to_host(tensor.to_local())
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if not self.leads and whole.dim():
            whole = whole[:0]
        return super().copy_to_host(whole)

    def own_rows(self, tensor: Tensor) -> tuple[Tensor, int]:
        from torch.distributed.tensor import DTensor

        if not isinstance(tensor, DTensor):
            return super().own_rows(tensor)
        # as FSDP divides them: equal parts, of which the last ones may be shorter or empty
        rows = -(-len(tensor) // self.world)
        return tensor.to_local(), min(self.rank * rows, len(tensor))

    def shard_like(self, tensor: Tensor, parameter: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if tensor.shape != parameter.shape or not isinstance(parameter, DTensor):
            return tensor.clone()
        # every rank reads the file: none needs to be sent its part
        mesh, placements = parameter.device_mesh, parameter.placements
        return distribute_tensor(tensor.to(parameter.device), mesh, placements, src_data_rank=None)


def _local_gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    from torch.distributed.tensor import DTensor

    return [p.grad.to_local() for p in parameters if isinstance(p.grad, DTensor)]


def attempt() -> str:
    """A text that distinguishes this start of the ranks from earlier ones (torchrun's restarts).

    The store of torchrun (2.13) outlives a restart with the addresses of processes that are gone,
    for which new ones would wait. Launchers of several machines may have counted differently.
    """
    alone = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if alone else "0"


def join_processes(shard: bool = False, apart: bool = False) -> Ranks:
    """This process among those that `--nproc` or `torchrun` started, or alone."""
    rank, world, local = process_ranks()
    if world == 1:
        return Ranks()
    kind = Sharded if shard else Group
    return kind(rank, world, local=local, apart=apart)


def group_tensors(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group tensors of one dtype into runs of at most `BUCKET` bytes (or one tensor)."""
    groups: list[list[Tensor]] = []
    room = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if not groups or size > room or tensor.dtype != groups[-1][0].dtype:
            groups.append([])
            room = BUCKET
        groups[-1].append(tensor)
        room -= size
    return groups
