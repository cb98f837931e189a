"""What a checkpoint holds, and how a model comes back from it. No pickle anywhere.

    model.safetensors   parameters and buffers, a tied tensor once (weights.py)
    ema.safetensors     with --ema or --average-last: the average, which is used of the model
    base.safetensors    with --adapter: its base, if that does not come with unitk
    carry.safetensors   with --stateful-rows: what each row carries into the next update
    optim.safetensors   the optimizer's tensors, "PARAMETER/STATE"
    state.json          progress, configuration, fingerprints, versions
    vocab/              the vocabulary
    source_vocab/       that of the encoder, where it has one of its own
    patterns.yaml       of --task cloze: the file that --task.patterns named
    entities.txt        of --task thu_ernie: the names of the entities; model.safetensors has their
                        vectors
    forms.tsv           of --task thu_ernie: the file that --task.forms named
    imported.json       of `unitk convert`: the rows that each table had elsewhere; those added are
                        no output until they are trained

`load` rebuilds task and model from the values in state.json; snapshot.py writes checkpoints and
puts runs back; folder.py says which files to trust.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unitk import registry
from unitk.errors import CheckpointError, NonFiniteError, UsageError, require
from unitk.files import sealed_files
from unitk.foreign import read_json
from unitk.models.model import Model, build
from unitk.options.config import Component, NoOptions, Parsed, resolve
from unitk.options.settings import NOTHING, Settings
from unitk.tasks.base import Task
from unitk.training.device import check_model_fits
from unitk.training.saving.folder import holds_checkpoint
from unitk.training.saving.state import plugins_named, read_state, settings_of, untrained_options
from unitk.training.saving.weights import weights_of
from unitk.vocab.base import Vocab

log = logging.getLogger(__name__)

POSITIONS = ".positions.weight"  # how the name of an embedding's position table ends
IMPORTED = "imported.json"
ADDED = ("tasks.weight", "segments.weight", "positions2.weight")
"""Tables of an embedding that begin as 0 where a checkpoint lacks them: nothing changes."""
OF_WORDS = {"embed.tokens.weight", "heads.lm.weight", "heads.lm.bias"}
"""Tensors with a row for every id of the vocabulary."""


@dataclass(frozen=True)
class Loaded:
    """A trained model with all that is needed to use it, or to write it in another format."""

    model: Any
    task: Task
    config: Mapping[str, str]
    """Options as text under their dotted keys: all of a run, or those of task and architecture."""
    rows: Mapping[str, int]
    """How many rows the tables of an imported model came with; training forgets it."""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """The options of `unitk generate` that a checkpoint of another system brings."""
    state: Mapping[str, Any] = field(default_factory=dict)  # state.json of a run
    path: Path | None = None
    reader: Task | None = None
    """The task `lm`, if the model was trained with it beside `task`."""

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of what is written."""
        return self.task.vocab

    def tensors(self) -> dict[str, Tensor]:
        """The weights by unitk's names, each shared weight once.

        Tables over the vocabulary have the rows of the imported checkpoint only (`rows`).
        """
        weights = {name: tensor.detach() for name, tensor in self.model.named_parameters()}
        return weights | {name: weights[name][:rows] for name, rows in self.rows.items()}


@holds_checkpoint
def load(
    folder: Path,
    device: str | torch.device = "cpu",
    task_name: str | None = None,
    given: Settings = NOTHING,
) -> Loaded:
    """Load the model of a run folder (its best checkpoint, else the newest good one) or checkpoint.

    The model is in eval mode. `task_name` chooses one of several tasks. `given` are options of task
    and architecture that replace the run's; options that change the shape of a weight are refused.
    Raises `CheckpointError`, which names a damaged or missing file.
    """
    state = read_state(folder)
    with plugins_named(state, folder):
        vocab = Vocab.load(folder / "vocab")
    given = untrained_options(state, task_name).under(given)
    parsed = components(state, folder, given)
    tasks = parsed.mixture or {parsed.components["task"].name: parsed.components["task"]}
    # models that come with unitk have a default task
    chosen = _choose_task(tasks, task_name or state.get("default_task"), folder)

    def make(component: Component) -> Task:
        task: Task = component.made_from(component.config, vocab)
        return task.with_trained(
            labels=tuple(state.get("labels", ())),
            corpora=state.get("corpora", {}),
            pairs=state.get("kind", "pairs") == "pairs",  # earlier versions did not say
            parts=state.get("parts", 0),
            max_source=(state.get("lengths") or (None,))[0],
            window=state.get("window"),
        )

    task = make(chosen)
    arch = parsed.components["arch"].config
    check_model_fits(arch, len(vocab), 4, torch.device("cpu"))  # fp32, of four bytes
    with plugins_named(state, folder), Undrawn():  # of a head
        model = build(arch, len(vocab), len(task.source_vocab))
    if given:
        _check_shapes(state, folder, given, vocab)
    load_weights(model, folder, averages=True, mapped=True)
    rows = imported_rows(folder)
    model.leave_out(rows)
    model = model.to(device).eval()
    others = (task for task in tasks.values() if task.name == "lm" and task is not chosen)
    reader = next(map(make, others), None)
    return Loaded(model, task, state["config"], rows, state=state, path=folder, reader=reader)


def _choose_task(tasks: Mapping[str, Component], name: str | None, folder: Path) -> Component:
    """The task of that name, or the only one; `UsageError` if there is none, or no name."""
    trained = f"{folder} was trained with {', '.join(tasks)}"
    require(name is not None or len(tasks) == 1, f"--task is needed: {trained}")
    require(name is None or name in tasks, f"--task {name}: {trained}")
    return tasks[name or next(iter(tasks))]


class Undrawn(TorchFunctionMode):
    """A context in which a model is built without drawing its weights: all will be read."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.__name__ in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def imported_rows(folder: Path) -> dict[str, int]:
    """The number of rows that each table of an imported checkpoint had, by the tensor's name."""
    if IMPORTED not in sealed_files(folder):
        return {}
    return read_json(folder / IMPORTED, CheckpointError)["rows"]


def components(
    state: dict[str, Any],
    folder: Path,
    given: Settings = NOTHING,
    chosen_kinds: Sequence[str] = ("task", "arch"),
    main: type | None = None,
) -> Parsed:
    """The run's task or tasks, and its architecture; plug-ins come from `--user-dir` only.

    `given` overrides the options of the run. `chosen_kinds` are the kinds of components to
    resolve, and `main` the class of the options that belong to none.
    """
    registry.load_plugins()  # entry points only; the caller has loaded --user-dir
    # of another task than it was trained with, only its architecture can be meant
    kinds = ("arch",) if "task" in given else chosen_kinds
    with plugins_named(state, folder):
        settings = settings_of(state, folder).only(*kinds)
        return resolve(main or NoOptions, settings.under(given), chosen_kinds)


def _check_shapes(state: dict[str, Any], folder: Path, given: Settings, vocab: Vocab) -> None:
    """Raise `UsageError` naming the option that would change the shape of a weight."""

    def shapes(changed: Settings) -> dict[str, torch.Size]:
        parsed = components(state, folder, changed)
        chosen = parsed.components["task"]
        task = chosen.made_from(chosen.config, vocab)
        with torch.device("meta"):  # shapes only: no weight takes memory
            model = build(parsed.components["arch"].config, len(vocab), len(task.source_vocab))
        return {name: tensor.shape for name, tensor in tensors_of(model).items()}

    trained = shapes(NOTHING)
    if shapes(given) == trained:
        return
    for key, setting in given.items():
        new = shapes(Settings({key: setting}))
        changed = [name for name in new | trained if new.get(name) != trained.get(name)]
        if changed:
            raise UsageError(
                f"{setting.where} changes {min(changed)} of {folder}: "
                "only training or `unitk convert` can change a weight's shape"
            )


def load_weights(
    model: Model,
    folder: Path,
    *,
    averages: bool = False,
    task: Task | None = None,
    mapped: bool = False,
    merged: bool = True,
) -> set[str]:
    """Copy a checkpoint's weights into a model of the same shapes, else `CheckpointError`.

    Returns the names of the tensors that the checkpoint has in the model's shapes. A longer table
    of positions repeats the rows of a shorter one. With `averages`, those of `--ema` or
    `--average-last` are copied, if any; with `merged`, adapters are merged into the weights. With
    `mapped`, tensors are memory-mapped: a page is read when needed, and copied when written to.
    With a `task`, which begins to train the model, `_complete` initialises what is missing.
    """
    stored = weights_of(folder, averages, merged)
    own = tensors_of(model)
    taken = {name for name in own if name in stored and stored[name].shape == own[name].shape}
    for name, tensor in own.items():
        if name.endswith(POSITIONS) and name in stored and len(tensor) > len(stored[name]):
            stored[name] = model.resize_table(name, stored[name])
        if name.endswith(".mix.scale") and name in stored:
            stored[name] = stored[name].reshape(1)  # earlier versions stored a scalar
    if task:
        _complete(stored, own, model, task, folder)
    for name in [*own, *stored]:
        if name not in stored:
            raise CheckpointError(f"{folder} has no tensor {name}, which this architecture needs")
        if name not in own:
            raise CheckpointError(f"{folder} has a tensor {name} that this architecture lacks")
        if stored[name].shape != own[name].shape:
            raise CheckpointError(
                f"{name} has shape {list(stored[name].shape)} in {folder}, "
                f"but this architecture's is {list(own[name].shape)}"
            )
    parameters = dict[str, Tensor]([*model.named_parameters(), *model.named_buffers()])
    checked = {name: check_finite(stored[name], f"{folder}: {name}") for name in own}
    for name, tensor in own.items():  # once nothing is wrong with any of them
        if mapped:
            parameters[name].data = checked[name].to(tensor.dtype)
        else:
            tensor.copy_(checked[name])
    return taken


def _complete(
    stored: dict[str, Tensor], own: dict[str, Tensor], model: Model, task: Task, folder: Path
) -> None:
    """Initialise what a checkpoint lacks of a model that a task begins to train.

    Tables get the task's `first_rows`, and rows for its sentinels; other tables are 0. The model's
    `additions` are drawn anew, and its `copied` towers begin as the decoded one.
    """
    for name, (source, rows) in task.first_rows.items():
        missing = name not in stored or len(stored[name]) < len(own.get(name, ()))
        if rows and name in own and missing and source in stored:
            log.info("%s begins as rows %s of %s", name, list(rows), source)
            stored[name] = stored[source][torch.tensor(rows).clamp(max=len(stored[source]) - 1)]
    for name, tensor in own.items():
        if name.removeprefix("embed.") in ADDED:
            stored.setdefault(name, torch.zeros_like(tensor))
        if name == "embed.virtual.weight" and name not in stored:
            # near the others, as the rows that an import adds
            stored[name] = stored["embed.tokens.weight"].float().mean(0).expand_as(tensor)
        if name.partition(".")[0] in model.additions:
            stored.setdefault(name, tensor)
    add_rows(stored, own, task)
    for name in own:
        tower, _, rest = name.partition(".")
        if tower in model.copied and rest in stored:
            stored.setdefault(name, stored[rest])
    _reorder_labels(stored, tuple(read_state(folder).get("labels", ())), task.trained.labels)
    _initialise_heads(stored, own, folder)


def add_rows(stored: dict[str, Tensor], own: dict[str, Tensor], task: Task) -> None:
    """Add the rows of a task's sentinels to tables that lack them, near the mean of the others."""
    count = len(task.vocab.sentinels)
    for name in OF_WORDS & stored.keys() & own.keys():
        table, drawn = stored[name], own[name]
        if count and len(drawn) - len(table) == count:
            stored[name] = torch.cat([table, table.float().mean(0) + drawn[len(table) :] / 10])


def _reorder_labels(stored: dict[str, Tensor], old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Order the rows of heads over labels as the new labels; drop heads of other labels."""
    if not (old and new) or old == new:
        return
    order = [old.index(name) for name in new] if sorted(old) == sorted(new) else None
    for name in [name for name in stored if re.match(r"heads\.\w+:label\.out\.", name)]:
        rows = stored.pop(name)
        if order:
            stored[name] = rows[order]


def _initialise_heads(stored: dict[str, Tensor], own: dict[str, Tensor], folder: Path) -> None:
    """Initialise heads that a checkpoint lacks or has for other classes; drop heads not needed.

    A pooler starts from that of another head (Devlin et al. 2019, section 4.1), and a transform
    from that before the words (ModernBERT).
    """
    inner = re.compile(r"^heads\.(?:lm|\w+:\w+)\.(?=dense\.|transform\.)|^pool(?=\.)")
    pooled = {inner.sub("", name): t for name, t in stored.items() if inner.match(name)}
    begun = set()
    for name, tensor in own.items():
        if ":" in name and (name not in stored or stored[name].shape != tensor.shape):
            _, head, inside = name.split(".", 2)
            trained = pooled.get(inside, pooled.get(inside.removeprefix("dense")))
            stored[name] = (
                trained if trained is not None and trained.shape == tensor.shape else tensor
            )
            begun.add(head)
    for name in [name for name in stored if ":" in name and name not in own]:
        del stored[name]
    if begun:
        log.info("%s lacks weights of %s: these are initialised", folder, ", ".join(sorted(begun)))


def check_finite(tensor: Tensor, what: str) -> Tensor:
    """The tensor; `NonFiniteError` if it has NaN or infinity."""
    # a thirtieth of the time of a table of which values are finite
    if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
        raise NonFiniteError(f"{what} has NaN or infinity: no such model can be used")
    return tensor


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a tensor with several names has the first of them."""
    first = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}  # tied: once
    return {name: tensor for name, tensor in model.state_dict().items() if name in first}
