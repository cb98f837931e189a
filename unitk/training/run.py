"""Makes the parts of a training run from its options; `loop.py` trains with them."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unitk.criterions.base import whole_update_option
from unitk.data.batching import Feed
from unitk.errors import CheckpointError, UsageError, require
from unitk.kernels.products import choose_products, computes_in_bf16, keep_memory
from unitk.models.attention import fused_parameters
from unitk.models.heads.base import Categorical
from unitk.models.layers import FeedForward, Layer
from unitk.models.model import Model, build
from unitk.models.stack import Stack
from unitk.models.state import StatefulRows
from unitk.optim.config import parse_rules
from unitk.optim.plan import OptimPlan, freeze
from unitk.options.fields import flag, parse_named
from unitk.tasks.base import Task
from unitk.training.config import TrainConfig
from unitk.training.device import (
    check_model_fits,
    choose_device,
    derive_seed,
)
from unitk.training.ema import Average
from unitk.training.measures import Means, Noise, Speed
from unitk.training.parallel import Ranks, join_processes
from unitk.training.saving import checkpoint, snapshot
from unitk.training.saving.state import Progress, plugins_named, read_state, settings_of
from unitk.training.saving.weights import Base, weights_of
from unitk.training.start import Start

log = logging.getLogger(__name__)
SHARED = ("embed.tokens.weight", "embed.virtual.weight")
"""Tensors that an encoder may share with its decoder."""
FOR_LAYERS = "recompute", "compile", "attention", "residual"
"""Options that change how the layers of a Transformer are computed."""
CROSS = re.compile(r"layers\.\d+\.cross_")
"""How the names of a layer's tensors begin that attend to an encoder."""


class Run:
    """The model, criterion, optimizer, data, progress and measures of a training run."""

    def __init__(self, start: Start) -> None:
        config = start.config
        self.start = start
        self.config = start.config
        self.data = start.data
        self._join_processes()
        self.model, self.base = begin(start, self.device, self.ranks)
        self.criterion = start.parsed.components["criterion"].config.build(self.data.vocab)
        self.plan = self._optim_plan()
        self.ranks.prepare(self.plan.optimizers)
        averaged = config.ema, config.average_last
        self.average = Average(self.model, *averaged) if any(averaged) else None
        self.progress = self._restore_progress()
        self.stateful = StatefulRows(
            config.stateful_rows, snapshot.load_carry(start.beginning.resumed, self.device)
        )
        self.progress.products = self._choose_products()
        self.means = Means(**self.progress.means)
        self.speed = Speed()
        self.spent = Speed()
        self.noise = Noise(self.progress.noise)
        self.norm = math.nan  # of the gradient of the last update
        self.last = ""  # the last losses
        self.validation_seconds = 0.0  # of the last validation
        self.samples = list[tuple[str, str, str]]()
        """Sources, targets and outputs of a validation set."""
        self.sampled = 0  # the step at which they were written
        self.feed = self._feed()
        self.feed.check_undivided(whole_update_option(self.criterion))
        self.per_epoch = self.feed.updates_per_epoch()
        self.total = self._count_updates()
        self.log_every = config.log_every or max(1, min(50, (self.total or 2000) // 40))

    def _join_processes(self) -> None:
        """Choose device and precision, join the other ranks, and seed the weights."""
        config, start = self.config, self.start
        self.ranks = join_processes(config.shard, config.save_shards)
        self.device = choose_device(config.device, self.ranks.local)
        configure_torch(config, self.device)
        self.precision = choose_precision(config, self.device)
        self.ranks.connect(self.device, config.rank_timeout)
        self.ranks.check_same(f"{start.identity} {start.beginning.resumed} {start.beginning}")
        torch.manual_seed(derive_seed(config.seed))  # of the weights; dropout has seeds of its own

    def _optim_plan(self) -> OptimPlan:
        """The optimizers, and which parameters each of them trains."""
        config = self.config
        optimizer = self.start.parsed.components["optimizer"].config
        return OptimPlan(
            self.model,
            optimizer,
            config.lr,
            config.lr_schedule,
            rules=parse_rules(config.group, optimizer),
            thaw=config.thaw,
            fused=fused_parameters(self.model),
        )

    def _restore_progress(self) -> Progress:
        """Put a resumed run's states back; returns how far it is, a new one at the beginning."""
        if (resumed := self.start.beginning.resumed) is None:
            return Progress()
        progress = snapshot.restore(
            resumed, self.model, self.plan.optimizers, self.average, self.ranks
        )
        if self.start.beginning.new_epoch:
            progress.epoch += 1
            progress.cursor = 0
        return progress

    def _feed(self) -> Feed:
        """The updates of this process."""
        config = self.config
        return Feed(
            examples=self.data.train,
            seed=config.seed,
            max_tokens=config.max_tokens,
            batch_tokens=config.batch_tokens or config.max_tokens,
            batch_texts=config.stateful_rows or config.batch_texts,
            rows=config.stateful_rows,
            backward=self.data.task.backward,
            undivided=bool(whole_update_option(self.criterion)),
            static=config.static,
            rank=self.ranks.rank,
            world=self.ranks.world,
        )

    def _choose_products(self) -> list[str] | None:
        """What multiplies matrices on a CPU; all ranks compute as the first one does."""
        config = self.config
        arch = self.model.config
        eager = self.device.type == "cpu" and self.precision == "fp32" and not config.compile
        products = choose_products(
            config.products,
            eager,
            self.progress.products,
            config.max_tokens,
            (arch.width, arch.ffn_width),
        )
        if products is None:
            return None
        return self.ranks.all_gather_texts(" ".join(products))[0].split()

    def _count_updates(self) -> int | None:
        """The updates after which the run ends; None if only a signal ends it."""
        config = self.config
        epochs = config.max_epochs
        if epochs and isinstance(config.block_size, int):
            epochs *= self.per_epoch
        elif epochs:  # they differ in length
            epochs = sum(map(self.feed.updates_per_epoch, range(epochs)))
        words = config.max_words and self.data.updates_until(self.feed, config.max_words)
        return min(filter(None, [config.max_steps, epochs, words]), default=None)


def begin(start: Start, device: torch.device, ranks: Ranks) -> tuple[Model, Base | None]:
    """Make the model of a run on the device, with its initial or restored weights.

    The base of its adapter is returned too, if it has one.
    """
    config = start.config
    parts = start.parsed.components
    resumed = start.beginning.resumed
    # a weight and its gradient of four bytes each, and what the optimizer keeps
    per_weight = 8 + parts["optimizer"].config.state_bytes
    divided = ranks.world if config.shard else 1
    check_model_fits(parts["arch"].config, len(start.data.vocab), per_weight / divided, device)
    adapter = parse_named("adapter", config.adapter, "--adapter") if config.adapter else None
    model = _build(start)
    base = None
    in_parts = False
    if resumed is None:
        taken = _initialise(model, start)
        if adapter is not None:
            adapter.apply(model)
            # output layers of what the model is fine-tuned for are trained whole, and what is new
            frozen = {n: p for n, p in model.named_parameters() if n in taken and ":" not in n}
            base = Base.of(frozen, start.beginning.init_from)
    elif adapter is not None:
        adapter.apply(model)
        _read_weights(model, resumed, len(start.data.vocab), merged=False)
        base = Base.of_checkpoint(resumed)
    elif ranks.sharded and snapshot.is_as_stored(model, resumed):
        in_parts = True  # each rank reads its part of the weights, once it has one
    else:
        _read_weights(model, resumed, len(start.data.vocab))
    for name in base.tensors if base is not None else ():
        model.get_parameter(name).requires_grad_(False)
    freeze(model, config.freeze)
    ranks.to_device(model, device)
    if resumed is not None and in_parts:
        snapshot.read_parts(model, resumed, ranks)
    prepare_model(model, config)
    return model, base


def configure_torch(config: TrainConfig, device: torch.device) -> None:
    """Apply `--threads` and `--deterministic` to the process, which keeps freed memory on a CPU."""
    if device.type == "cpu":
        keep_memory()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(config.deterministic)
    if config.compile:  # masks, towers and last layers differ: one code of a layer is not enough
        torch._dynamo.config.recompile_limit = 64


def choose_precision(config: TrainConfig, device: torch.device) -> str:
    """The precision that `--precision` means; auto: bf16 if the processor multiplies in it."""
    require(
        config.precision != "fp16" or device.type == "cuda",
        "--precision fp16 needs CUDA: a CPU computes fp16 slowly, take bf16 or fp32",
    )
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) else "fp32"
    require(
        precision != "fp32" or config.residual == "full", "--residual half needs --precision bf16"
    )
    return precision


def prepare_model(model: nn.Module, config: TrainConfig) -> None:
    """Choose how the parts of a model compute, by the options of a run; only rounding changes."""
    cpu = next(model.parameters()).is_cpu
    if config.attention == "flex" and cpu:
        raise UsageError("--attention flex needs CUDA: on a CPU FlexAttention has no backward")
    lean = cpu and not config.shard
    half_states = config.residual == "half"
    for part in model.modules():
        if isinstance(part, Stack):
            part.recompute = config.recompute
            part.attention = config.attention
            part.half_states = half_states
            if config.compile and config.static:
                part.compiled = torch.compile(part.pass_through, dynamic=False)
        elif isinstance(part, Layer):
            part.half_states = half_states
            if config.compile and not config.static:
                # layer by layer: all of them are one piece of code, whatever the batches' shapes
                part.compile(dynamic=True)
        elif isinstance(part, FeedForward):
            part.lean = lean and not (config.recompute or config.compile)
        elif isinstance(part, Categorical):
            part.compiled = config.compile and not cpu
        elif isinstance(part, Model):
            for name in FOR_LAYERS if part.config.sequential else ():
                idle = getattr(config, name) != getattr(type(config), name)
                require(not idle, f"--{name} has no effect on LSTM layers")
            part.decoder.embed.tokens.lean = lean and part.words.weight is None


def _build(start: Start) -> Model:
    resumed = start.beginning.resumed
    folder = resumed or start.beginning.init_from
    data = start.data
    with (
        plugins_named(read_state(folder), folder) if folder else nullcontext(),
        # weights that will be read take no memory before
        checkpoint.Undrawn() if resumed else nullcontext(),
    ):
        arch = start.parsed.components["arch"].config
        return build(arch, len(data.vocab), len(data.task.source_vocab))


def _initialise(model: Model, start: Start) -> set[str]:
    """Read what a new run takes from checkpoints and tables; returns the tensors it has read."""
    taken = set[str]()
    data = start.data
    if (folder := start.beginning.init_from) is not None:
        try:
            taken = _read_weights(model, folder, len(data.vocab), averages=True, task=data.task)
        except CheckpointError as error:  # a tensor of another shape, or that one of both lacks
            recorded = settings_of(read_state(folder), folder).only("arch")
            other = [
                key
                for key in start.parsed.differences(recorded)
                if start.parsed.settings.given(key)
            ]
            cause = f"; other than there: {', '.join(map(flag, other))}" if other else ""
            raise CheckpointError(f"{error}{cause}") from error
    fill_tables(model, data.task.tables)
    for tower, folder in start.beginning.init_towers.items():
        taken |= load_tower(model, tower, folder, data.task)
    return taken


def _read_weights(model: Model, folder: Path, num_ids: int, **how: Any) -> set[str]:
    """`checkpoint.load_weights`, which tells what an import added to tables of words."""
    taken = checkpoint.load_weights(model, folder, **how)
    rows = checkpoint.imported_rows(folder).get("embed.tokens.weight", num_ids)
    if added := num_ids - rows:
        log.info("from now on the rows that the import added have a probability: %d", added)
    return taken


def fill_tables(model: Model, tables: Mapping[str, Any]) -> None:
    """Copy the tables that a task brings, arrays by the names of tensors, into a model."""
    for name, rows in tables.items():
        tensor = model.get_parameter(name)
        wide, width = rows.shape[1], tensor.shape[1]
        require(
            rows.shape == tensor.shape,
            f"--task.entities: vectors of {wide} numbers need --arch.entity-width {wide}, got "
            f"{width}",
        )
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(rows))


def load_tower(model: Model, tower: str, folder: Path, task: Task) -> set[str]:
    """Copy a checkpoint's weights into the encoder and its pooler, or into the decoder.

    If the checkpoint has two towers, the one with the same name is used. What connects a decoder to
    its encoder may be initialised anew. This is logged, and so is everything that has no place
    here. Returns the names of the tensors that were copied.
    """
    tensors = checkpoint.tensors_of(model)
    stored = _tower(weights_of(folder, True), tower, model.between)
    own = _tower(tensors, tower, model.between)
    checkpoint.add_rows(stored, own, task)
    option = f"--init-{tower} {folder}"
    stack = model.reader if tower == "encoder" else model.decoder
    shared = [name for name in own if name in stored]
    anew = [name for name in own if name not in stored]
    for name in anew:
        if name.partition(".")[0] not in model.between and not CROSS.match(name):
            raise CheckpointError(f"{option} has no tensor {name}")
    for what, names in (("initialised", anew), ("left out", [n for n in stored if n not in own])):
        if names:
            short = dict.fromkeys(re.sub(r"(?<=^layers)\.\d+|\.\w+$", "", name) for name in names)
            log.info("%s: %s: %s", option, what, ", ".join(short))
    if (positions := f"embed{checkpoint.POSITIONS}") in shared:
        stored[positions] = stack.embed.resize_table(positions, stored[positions])
    for name in shared:
        if stored[name].shape != own[name].shape:
            shape = list(stored[name].shape)
            needed = list(own[name].shape)
            raise CheckpointError(f"{option}: {name} has shape {shape}, here it is {needed}")
        checkpoint.check_finite(stored[name], f"{option}: {name}")
    with torch.no_grad():  # once nothing is wrong with any of them
        for name in shared:
            own[name].copy_(stored[name])
    copied = {id(own[name]) for name in shared}
    return {name for name, tensor in tensors.items() if id(tensor) in copied}


def _tower(tensors: dict[str, Tensor], tower: str, between: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of a tower under their names within it, or all tensors of a single tower.

    The parts `between` the towers are included.
    """
    inner = {name for name in tensors if name.startswith("encoder.")}  # two towers
    if tower == "decoder":
        names = {name for name in tensors if between.get(name.partition(".")[0], tower) == tower}
        return {name: tensors[name] for name in tensors if name in names - inner}
    if inner:
        shared = {name: tensors[name] for name in SHARED if name in tensors}
        part = {name.removeprefix("encoder."): tensors[name] for name in inner}
        pool = {n: t for n, t in tensors.items() if between.get(n.partition(".")[0]) == tower}
        return (part if "embed.tokens.weight" in part else shared | part) | pool
    # BERT's pooler is the hidden layer of its sentence head
    pools = [part for part, comes_with in between.items() if comes_with == tower]
    pooler = re.compile(r"^heads\.class:\w+\.dense")
    return {pooler.sub(pools[0], name) if pools else name: t for name, t in tensors.items()}
