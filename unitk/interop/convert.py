"""A checkpoint of another system as a model here, and the other way.

`read` of a format's module finds tensors, settings and vocabulary; what they become, and whether
all of it fits together, is decided here for all formats alike.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk import registry
from unitk.config import Component, Given, NoOptions, Parsed, resolve
from unitk.errors import CheckpointError, DataError, UsageError, require
from unitk.interop.names import Layout
from unitk.interop.settings import preset_of
from unitk.interop.vocabs import fitted
from unitk.models.config import ModelConfig
from unitk.models.stack import Model, build
from unitk.tasks.base import Task
from unitk.vocab.base import Vocab

# the module that reads and writes each format; imported when it is named, as all need torch
FORMATS = {
    name: f"unitk.interop.{name}" for name in ("hf", "unilm", "glm", "mass", "optimus", "diffusion")
}
FORMATS["fairseq"] = "unitk.fairseq.checkpoints"
WRITTEN = {name: f"unitk.interop.{name}" for name in ("ctranslate2", "onnx")}
"""Formats that are not read."""
READ = {"elmo": "unitk.interop.elmo"}
"""Formats that are not written; what they read needs no further step."""
KINDS = ("task", "arch")
TOKENS, ENCODER = "embed.tokens.weight", "encoder.embed.tokens.weight"
POSITIONS = (".positions.weight", ".positions2.weight")
ROWS = (TOKENS, "heads.lm.weight", "heads.lm.bias")
"""What has a row for every id of the vocabulary."""

MOST_LAYERS = 10_000  # of a model that is to be believed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A checkpoint of another system, as its format reads it."""

    path: Path  # the file, for errors
    tensors: Mapping[str, Tensor]
    layout: Layout
    presets: Sequence[str]
    """Registered architectures, of which the nearest is taken, and the settings in full."""
    config: ModelConfig
    task: str
    vocab: Vocab | None  # of the files beside it, if there are any
    options: Mapping[str, str] = field(default_factory=dict)  # of the task
    symbols: Mapping[str, int] = field(default_factory=dict)  # ids that the system fixes
    spelled: Mapping[int, str] = field(default_factory=dict)
    """Ids without a piece that have a name there."""
    source_vocab: Vocab | None = None  # of the encoder, if it has one of its own
    labels: tuple[str, ...] = ()  # of a fine-tuned model, by their numbers
    notes: Sequence[str] = ()  # what was left out
    check: Callable[[Task], None] = lambda task: None
    """Refuses options of the task that the checkpoint has no tensors for."""
    says_heads: bool = True
    """Whether it says how many heads there are; if not, heads of 64 are assumed."""

    @property
    def arch(self) -> str:
        """The name of the architecture that comes nearest."""
        return preset_of(self.presets, self.config)

    def rows(self, name: str) -> int:
        """How many rows a table of ours has there; 0 if it has none."""
        # a table has one name there, whereas projections may have several
        theirs = self.layout.names.get(name.removesuffix(".weight"), "")
        assert isinstance(theirs, str)
        table = self.tensors.get(f"{theirs}.weight")
        return len(table) if table is not None and table.dim() == 2 else 0


@dataclass(frozen=True)
class Parts:
    """A model with what is needed to use it, or to write it in another format."""

    model: Model
    task: Task
    values: Mapping[str, str]  # task and architecture as options
    rows: Mapping[str, int]
    """How many rows a tensor has for the ids of a vocabulary, where the other system has less than
    this model."""

    def tensors(self) -> dict[str, Tensor]:
        """Its weights by name, a shared one once, with the rows that the other system has."""
        found = {name: tensor.detach() for name, tensor in self.model.named_parameters()}
        return found | {name: found[name][:rows] for name, rows in self.rows.items()}


def module(name: str, option: str) -> Any:
    """The module of a format."""
    known = FORMATS | (WRITTEN if option == "--to" else READ)
    if name not in known:
        hint = registry.nearest(name, known) or f" (known: {', '.join(known)})"
        raise UsageError(f"{option}: there is no format {name!r}{hint}")
    return importlib.import_module(known[name])


def read_checkpoint(
    name: str, path: Path, vocab: Path | None = None, given: Sequence[Given] = ()
) -> Parts:
    """The model of another system's checkpoint; `given` are options of task and architecture."""
    if name in READ:
        parts: Parts = module(name, "--from").read(path, vocab, given)
        return parts
    found: Found = module(name, "--from").read(path, vocab)
    parsed = _parsed(found, given)
    arch: ModelConfig = parsed.components["arch"].config
    state = _state(found, arch)
    chosen = parsed.components["task"]
    own = _vocab(found.vocab, found, len(state[TOKENS]))
    task: Task = chosen.made_from(chosen.config, own)
    task.answers, task.labels = False, found.labels
    for one, (source, begin) in task.first_rows.items():
        # segments of the task that the checkpoint lacks begin as copies of those it has
        if begin and one in state and len(state[one]) < arch.num_segments:
            state[one] = state[source][torch.tensor(begin).clamp(max=len(state[source]) - 1)]
    found.check(task)
    sizes = dict.fromkeys(ROWS, len(own))
    if ENCODER in state:
        given_one = task.source_vocab if task.source_vocab is not own else found.source_vocab
        if given_one is not None:
            task.source_vocab = fitted(given_one, len(state[ENCODER]))
        elif len(state[ENCODER]) != len(state[TOKENS]):
            raise UsageError(f"--task.source-vocab is needed: the encoder of {found.path} has one")
        sizes[ENCODER] = len(task.source_vocab)
    # what the vocabulary has beyond the checkpoint's rows is added behind them
    rows = {name: len(state[name]) for name in sizes if name in state}
    generator = torch.Generator().manual_seed(1)
    for one, count in rows.items():
        state[one] = _grown(state[one], sizes[one] - count, arch.init_std, generator)
    with torch.device("meta"):
        model = build(arch, len(own), len(task.source_vocab))
    for one in state:
        if one.endswith(POSITIONS):
            state[one] = model.resized(one, state[one])
    model.load_state_dict(state, strict=False, assign=True)
    # a row that nobody trained must not win against those that were: its logits are -inf
    model.leave_out(rows)
    if not found.says_heads and all(item.key != "arch.num_heads" for item in given):
        what = f"{found.path} does not say how many heads a layer has"
        require(arch.width % 64 == 0, f"--arch.num-heads is needed: {what}")
        log.warning("%s: %d heads of 64 are assumed (--arch.num-heads)", what, arch.num_heads)
    for note in found.notes:
        log.warning("%s: %s", found.path, note)
    values = {k: v for k, v in parsed.values().items() if k.partition(".")[0] in KINDS}
    return Parts(model.eval(), task, values, rows)


def _parsed(found: Found, given: Sequence[Given]) -> Parsed:
    """Task and architecture, first as found, then as given."""
    arch = Component(found.arch, registry.get("arch", found.arch), found.config)
    values = Parsed(NoOptions(), {"arch": arch}, {}).values() | {"task": found.task}
    values |= {f"task.{name}": text for name, text in found.options.items()}
    name = next((one.text or "" for one in reversed(given) if one.key == "task"), found.task)
    if 0 < found.config.num_segments < (least := len(registry.get("task", name).segments)):
        values["arch.num_segments"] = str(least)
    own = [Given(key, text, str(found.path)) for key, text in values.items()]
    return resolve(NoOptions, [*own, *given], KINDS)


def _state(found: Found, arch: ModelConfig) -> dict[str, Tensor]:
    """Our tensors as the checkpoint has them, before anything is added to a table."""
    stored = arch.layer_groups or arch.depth
    # a damaged file may claim millions of layers, which would take hours to lay out
    if stored > len(found.tensors) or arch.depth > MOST_LAYERS:
        raise CheckpointError(f"{found.path} has not the tensors of {arch.depth:,} layers")
    # tables of positions and segments as long as there; `read_checkpoint` makes them longer
    places = {name: getattr(found.config, name) for name in ("max_positions", "max_positions2")}
    if 0 < found.config.num_segments < arch.num_segments:
        places["num_segments"] = found.config.num_segments
    rows = found.rows(TOKENS)
    with torch.device("meta"):
        model = build(replace(arch, **places), rows, found.rows(ENCODER) or rows)
    shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
    state = found.layout.to_ours(found.tensors, shapes, found.path)
    for name, tensor in state.items():
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            what = "NaN or infinity" if tensor.is_floating_point() else f"{tensor.dtype}"
            raise CheckpointError(f"{found.path}: {what} in {name}: these are no weights")
    return {name: tensor.to(torch.float32) for name, tensor in state.items()}


def _vocab(own: Vocab | None, found: Found, rows: int) -> Vocab:
    if own is None:
        raise UsageError(f"--vocab is needed: there is no vocabulary beside {found.path}")
    try:
        return fitted(own, rows, found.symbols, found.spelled)
    except DataError as error:
        raise DataError(f"{found.path}: {error}") from error


def _grown(table: Tensor, more: int, std: float, generator: torch.Generator) -> Tensor:
    """A table with so many further rows about the mean of all, as no row drawn far from the others
    may win (Hewitt 2021, Initializing new word embeddings for pretrained language models)."""
    drawn = torch.zeros(more, *table.shape[1:])
    if drawn.dim() > 1:
        drawn.normal_(std=std / 10, generator=generator)
    return torch.cat([table, table.mean(dim=0) + drawn])
