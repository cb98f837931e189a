"""What a format of another system's checkpoints is, and how a model is built from what it finds.

    register("format", "glm")(Format(about="GLM: ...", find=find, write=write))

`find` gives tensors, settings and vocabulary. This module turns them into a model for all formats
alike, and checks that they fit together. `unitk convert` and `unitk.load` know a format by its
name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk import registry
from unitk.decoding.files.defaults import write_defaults
from unitk.errors import CheckpointError, DataError, UsageError, require
from unitk.files import create, seal
from unitk.formats.names import Layout
from unitk.formats.settings import preset_of
from unitk.formats.vocabs import fit_vocab
from unitk.models.config import ModelConfig
from unitk.models.model import build
from unitk.options.config import Component, NoOptions, Parsed, resolve
from unitk.options.settings import NOTHING, Origin, Settings
from unitk.pretrained import locate
from unitk.tasks.base import Task
from unitk.training.parallel import Ranks
from unitk.training.saving import snapshot
from unitk.training.saving.checkpoint import IMPORTED, Loaded
from unitk.training.saving.state import Identity, Progress
from unitk.vocab.base import Vocab

COMPONENTS = ("task", "arch")
TOKENS, ENCODER = "embed.tokens.weight", "encoder.embed.tokens.weight"
POSITIONS = (".positions.weight", ".positions2.weight")
ROWS = (TOKENS, "heads.lm.weight", "heads.lm.bias")
"""Tensors with a row for every id of the vocabulary."""

MOST_LAYERS = 10_000  # a larger number in a file is damage
MOST_ROWS = 1_000  # rows of a table beyond the pieces: symbols, and what fills it up

log = logging.getLogger(__name__)


def write_model(folder: Path, model: torch.nn.Module, identity: Identity, task: Task) -> None:
    """Write a checkpoint into a folder that can be used and trained from, but not resumed.

    Raises OSError if the disk does.
    """
    copy = Ranks().copy_to_host
    taken = snapshot.take_snapshot(model, (), Progress(), identity, task, copy=copy)
    snapshot.write(folder, taken)


@dataclass(frozen=True)
class StoredModel:
    """The tensors, settings and vocabulary that a format has read from a checkpoint."""

    path: Path  # the file, for errors
    tensors: Mapping[str, Tensor]
    layout: Layout
    presets: Sequence[str]
    """Registered architectures; the nearest one names the model's."""
    config: ModelConfig
    task: str
    vocab: Vocab | None  # of the files in its folder; None without any
    options: Mapping[str, str] = field(default_factory=dict)  # of the task
    trained: Mapping[str, Any] = field(default_factory=lambda: {"pairs": False})
    """Fields of `Trained`, as far as the checkpoint says."""
    symbols: Mapping[str, int] = field(default_factory=dict)  # ids that the system fixes
    spelled: Mapping[int, str] = field(default_factory=dict)
    """Names of ids that have no piece."""
    source_vocab: Vocab | None = None  # of the encoder, if it has one of its own
    labels: tuple[str, ...] = ()  # of a fine-tuned model, by their numbers
    notes: Sequence[str] = ()  # what was left out
    check: Callable[[Task], None] = lambda task: None
    """Refuses options of the task that the checkpoint has no tensors for."""
    decoding: Callable[[Task], Mapping[str, Any]] = lambda task: {}
    """The options of `unitk generate` that the checkpoint brings."""
    says_heads: bool = True
    """Whether the checkpoint gives the number of heads; otherwise heads of 64 are assumed."""

    def build(self, given: Settings) -> Loaded:
        """A model in evaluation mode, with the options `given`."""
        return build_stored(self, given)

    @property
    def arch(self) -> str:
        """The registered architecture that is nearest to `config`."""
        return preset_of(self.presets, self.config)

    def rows(self, name: str) -> int:
        """The checkpoint's number of rows for the table `name` of unitk; 0 without it."""
        # a table has a single name, whereas projections may have several
        stored_name = self.layout.names.get(name.removesuffix(".weight"), "")
        assert isinstance(stored_name, str)
        table = self.tensors.get(f"{stored_name}.weight")
        return len(table) if table is not None and table.dim() == 2 else 0


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of another system's checkpoints, which is registered by its name."""

    about: str
    """One line about it, for `unitk list format`."""
    find: Callable[[Path, Path | None], StoredModel | Assembled] | None = None
    """Find what a path holds, with the vocabulary at another path if that is given. None: the
    format is only written."""
    write: Callable[..., None] | None = None
    """Write a model, `Loaded`, into an empty folder, with its `options`. None: the format is only
    read."""
    options: tuple[str, ...] = ()
    """The options of `unitk convert` that `write` takes by name."""
    translate: Callable[[Loaded, Mapping[str, Tensor]], dict[str, Tensor]] | None = None
    """Give weights, or their gradients, the names and shapes that they have in this format."""
    usage: Callable[[Loaded], str] | None = None
    """Markdown that shows how a written model is used, below a heading; for formats that have a
    model card."""
    library: str = "transformers"
    """The library that opens a written model, by the hub's name."""
    tag: Callable[[Loaded], str] = lambda parts: ""
    """The hub's name for such a model, if task and towers do not determine it."""
    carry: Callable[[Path, Path], None] = lambda source, folder: None
    """Copy the files beside a model that are no part of it, from a folder into another one."""
    cure: Callable[[Path], str] = lambda path: ""
    """Advice for the error if there is no such path."""

    def read(
        self,
        path: Path,
        vocab: Path | None = None,
        given: Settings = NOTHING,
        asked: str = "--from",
    ) -> Loaded:
        """Read a checkpoint as a model in evaluation mode, with task and vocabulary.

        `vocab` is a vocabulary to take instead of the one beside the file, and `given` are options
        of task and architecture, which override those of the checkpoint. `asked` is the option that
        asks for this format, for the error where it is only written. Raises `CheckpointError` for
        files that are damaged or do not fit, and `UsageError` where an option is missing.
        """
        if self.find is None:
            raise UsageError(f"{asked}: unitk only writes this format")
        path = locate(path, "files")
        if not path.exists():
            raise CheckpointError(f"{path}: no such file or folder{self.cure(path)}")
        return self.find(path, vocab).build(given)

    @staticmethod
    def save(
        loaded: Loaded,
        folder: Path,
        source: tuple[str, object],
        fetched: Mapping[str, Any] | None = None,
        user_dir: str | None = None,
    ) -> None:
        """Write an imported model as a checkpoint of unitk into an empty folder.

        `source` are the format and the path or name that it comes from, and `fetched` the files
        that were fetched for it.
        """
        known = loaded.task.trained
        # an import has seen no data: its source takes the place of the data's fingerprint
        identity = Identity(
            dict(loaded.config),
            user_dir,
            " ".join(map(str, source)),
            loaded.task.vocab.hash,
            "pairs" if known.pairs else "text",
            lengths=(known.max_source,) if known.max_source else None,
            labels=known.labels,
            parts=known.parts,
            window=known.window,
        )
        write_model(folder, loaded.model, identity, loaded.task)
        origin: dict[str, Any] = {"format": source[0], "rows": loaded.rows}
        if fetched:
            origin["source"] = fetched
        create(folder / IMPORTED, json.dumps(origin, indent=1) + "\n")
        seal(folder)
        write_defaults(folder, loaded.decoding)


def build_stored(stored: StoredModel, given: Settings) -> Loaded:
    """Build a model in evaluation mode from a stored one, with the options `given`.

    Symbols that the vocabulary has beyond the checkpoint's rows get rows of their own, whose logits
    are -inf. Raises `CheckpointError` for files that do not fit, and `UsageError` where an option
    is missing.
    """
    parsed = _resolve_options(stored, given)
    arch: ModelConfig = parsed.components["arch"].config
    state = _state(stored, arch)
    task_choice = parsed.components["task"]
    target_vocab = _vocab(stored, len(state[TOKENS]))
    untrained: Task = task_choice.made_from(task_choice.config, target_vocab)
    task = untrained.with_trained(labels=stored.labels, **stored.trained)
    _begin_segments(task, state, arch.num_segments)
    stored.check(task)
    lacking = ", ".join(task.virtual[arch.num_virtual :])
    require(not lacking, f"--task {task.name}: {stored.path} has no row for {lacking}")
    sizes = dict.fromkeys(ROWS, len(target_vocab))
    if ENCODER in state:
        task = _with_source_vocab(task, target_vocab, stored, state)
        sizes[ENCODER] = len(task.source_vocab)
    # symbols beyond the checkpoint's rows get new rows at the end
    rows = {name: len(state[name]) for name in sizes if name in state}
    generator = torch.Generator().manual_seed(1)
    for name, count in rows.items():
        state[name] = _grow(state[name], sizes[name] - count, arch.init_std, generator)
    with torch.device("meta"):
        model = build(arch, len(target_vocab), len(task.source_vocab))
    for name in state:
        if name.endswith(POSITIONS):
            state[name] = model.resize_table(name, state[name])
    model.load_state_dict(state, strict=False, assign=True)
    # a row that nobody trained must not win against those that were: its logits are -inf
    model.leave_out(rows)
    if not stored.says_heads and "arch.num_heads" not in given:
        _assume_heads(stored.path, arch)
    for note in stored.notes:
        log.warning("%s: %s", stored.path, note)
    return Loaded(model.eval(), task, _component_options(parsed), rows, stored.decoding(task))


def _begin_segments(task: Task, state: dict[str, Tensor], count: int) -> None:
    """Segments of a task that a checkpoint lacks begin as copies of those it has."""
    for name, (source, rows) in task.first_rows.items():
        if rows and name in state and len(state[name]) < count:
            state[name] = state[source][torch.tensor(rows).clamp(max=len(state[source]) - 1)]


def _assume_heads(path: Path, arch: ModelConfig) -> None:
    """Log how many heads are assumed, or raise UsageError if the width allows no assumption."""
    lack = f"{path} does not say how many heads a layer has"
    require(arch.width % 64 == 0, f"--arch.num-heads is needed: {lack}")
    log.warning("%s: %d heads of 64 are assumed (--arch.num-heads)", lack, arch.num_heads)


def _with_source_vocab(
    task: Task, target_vocab: Vocab, stored: StoredModel, state: Mapping[str, Tensor]
) -> Task:
    """The task with the vocabulary of the encoder: the one of its options, or the one stored."""
    rows = len(state[ENCODER])
    chosen = task.source_vocab is not target_vocab
    source_vocab = task.source_vocab if chosen else stored.source_vocab
    if source_vocab is not None:
        source_vocab = fit_vocab(source_vocab, rows)
        if source_vocab.hash == target_vocab.hash:  # its ids need no translation, by way of words
            return task
        return task.with_attributes(source_vocab=source_vocab)
    if rows != len(state[TOKENS]):
        raise UsageError(f"--task.source-vocab is needed for the encoder of {stored.path}")
    return task


@dataclass(frozen=True)
class Assembled:
    """The options and tensors of a checkpoint whose architecture its file gives as options."""

    path: Path  # the file, for errors
    options: Mapping[str, str]  # of task and architecture
    vocab: Vocab
    rows: int
    """Rows that tables over the vocabulary have in the file."""
    tensors: Mapping[str, Tensor]  # by unitk's names

    def build(self, given: Settings) -> Loaded:
        """A model in evaluation mode, with the options `given`.

        Raises `CheckpointError` if a tensor has another shape than the model's.
        """
        of_file = Settings.of_texts(self.options, Origin.CHECKPOINT, str(self.path))
        parsed = resolve(NoOptions, of_file.under(given), COMPONENTS)
        task_choice, arch = (parsed.components[kind] for kind in COMPONENTS)
        untrained: Task = task_choice.made_from(task_choice.config, self.vocab)
        task = untrained.with_trained(pairs=False)
        model = build(arch.config, len(self.vocab))
        generator = torch.Generator().manual_seed(1)
        shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
        tensors = dict(self.tensors)
        for name, tensor in tensors.items():
            if name in ROWS:
                # a word without a trained row stays close to the others, and is no output
                count = len(self.vocab) - self.rows
                tensors[name] = tensor = _grow(tensor, count, 0.02, generator)
            if tensor.shape != shapes[name]:
                raise CheckpointError(
                    f"{self.path}: {name} has shape {list(tensor.shape)}, but its options need "
                    f"{list(shapes[name])}"
                )
        model.load_state_dict(tensors, strict=False)
        counts = {name: self.rows for name in shapes if name in ROWS}
        model.leave_out(counts)
        return Loaded(model.eval(), task, _component_options(parsed), counts)


def _component_options(parsed: Parsed) -> dict[str, str]:
    """The options of task and architecture."""
    return parsed.settings.only(*COMPONENTS).texts


def _resolve_options(stored: StoredModel, given: Settings) -> Parsed:
    """Resolve the options of task and architecture: those of the checkpoint, then those given."""
    arch = Component(stored.arch, registry.get("arch", stored.arch), stored.config)
    values = Parsed(NoOptions(), {"arch": arch}).settings.texts | {"task": stored.task}
    values |= {f"task.{name}": text for name, text in stored.options.items()}
    name = given["task"].text if "task" in given else stored.task
    require(
        "task" in given or name in registry.names("task"),
        f"{stored.path}: there is no task {name!r}; a plug-in's needs --user-dir, its folder",
    )
    if 0 < stored.config.num_segments < (least := len(registry.get("task", name).segments)):
        values["arch.num_segments"] = str(least)
    of_checkpoint = Settings.of_texts(values, Origin.CHECKPOINT, str(stored.path))
    return resolve(NoOptions, of_checkpoint.under(given), COMPONENTS)


def _state(stored: StoredModel, arch: ModelConfig) -> dict[str, Tensor]:
    """The checkpoint's tensors under unitk's names as fp32, before rows are added to a table."""
    stored_layers = arch.layer_groups or arch.depth
    # a damaged file may claim millions of layers, which would take hours to lay out
    if stored_layers > len(stored.tensors) or arch.depth > MOST_LAYERS:
        raise CheckpointError(f"{stored.path} does not have the tensors of {arch.depth:,} layers")
    # tables of positions and segments have their stored length; `build_stored` extends them
    stored_rows = {
        name: getattr(stored.config, name) for name in ("max_positions", "max_positions2")
    }
    if 0 < stored.config.num_segments < arch.num_segments:
        stored_rows["num_segments"] = stored.config.num_segments
    rows = stored.rows(TOKENS)
    with torch.device("meta"):
        model = build(replace(arch, **stored_rows), rows, stored.rows(ENCODER) or rows)
    shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
    state = stored.layout.from_stored(stored.tensors, shapes, arch, stored.path)
    for name, tensor in state.items():
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{stored.path}: {name} has NaN or infinity, so it is not a weight"
            )
    return {name: tensor.to(torch.float32) for name, tensor in state.items()}


def _vocab(stored: StoredModel, rows: int) -> Vocab:
    """The vocabulary of a checkpoint, with an id for each of the `rows` of its embedding."""
    if (vocab := stored.vocab) is None:
        raise UsageError(f"--vocab is needed: there is no vocabulary beside {stored.path}")
    pieces = vocab.model.size
    if pieces <= len(vocab.symbols) and rows > len(vocab.symbols):
        raise DataError(
            f"{stored.path}: the vocabulary has {pieces} pieces, and the checkpoint {rows:,} rows "
            "(--vocab names another one)"
        )
    if rows - pieces > MOST_ROWS:
        log.warning(
            "%s: %s; is it the one of this model? (--vocab)",
            stored.path,
            f"the vocabulary has {pieces:,} pieces for {rows:,} rows",
        )
    try:
        return fit_vocab(vocab, rows, stored.symbols, stored.spelled)
    except DataError as error:
        raise DataError(f"{stored.path}: {error}") from error


def _grow(table: Tensor, count: int, std: float, generator: torch.Generator) -> Tensor:
    """The table with `count` further rows, drawn close to the mean of its rows.

    A row far from the others could win against them (Hewitt 2021, Initializing new word embeddings
    for pretrained language models).
    """
    drawn = torch.zeros(count, *table.shape[1:])
    if drawn.dim() > 1:
        drawn.normal_(std=std / 10, generator=generator)
    return torch.cat([table, table.mean(dim=0) + drawn])
