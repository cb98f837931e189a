"""`unitk.load` and `unitk.load_module`: open a trained model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unitk import registry
from unitk.api.arguments import set_environment
from unitk.errors import UsageError, require, show_value
from unitk.options.fields import flag
from unitk.options.settings import Origin, Settings, argument_text

if TYPE_CHECKING:
    import torch

    from unitk.api.text_model import TextModel
    from unitk.decoding.generator import Generator
    from unitk.kernels.weights import Precision
    from unitk.training.saving.checkpoint import Loaded

log = logging.getLogger(__name__)


def load(
    path: str | Path | Sequence[str | Path],
    device: str | torch.device = "cpu",
    *,
    task: str | None = None,
    precision: Precision = "fp32",
    format: str | None = None,
    vocab: str | Path | None = None,
    options: Mapping[str, object] | None = None,
    user_dir: str | Path | None = None,
) -> Generator:
    """Open the trained model in a run folder or checkpoint; several paths become an ensemble.

        unitk.load("runs/lm").generate(["The cat sat on the mat."], beam=5)

    `path` may be the name of a bundled model. `device` may be "auto", which prefers a GPU. `task`
    chooses one of the tasks that the model was trained with; `precision` is that of weights and
    cache. With a `format` ("hf", ...; `unitk convert --help` lists them), the checkpoint is that of
    another system, and `vocab` is its vocabulary if there is none in its folder. `options` override
    options of task and architecture that change no weight's shape: `{"task.delimiter": False}`.
    `user_dir` is a folder of plug-ins. The defaults of generation are those of the first
    checkpoint's generate.yaml. Raises `unitk.errors.CheckpointError`, which names what is damaged.
    """
    set_environment()
    # what follows imports torch
    from unitk.decoding.ensemble import join
    from unitk.decoding.files.defaults import NAME, read_defaults
    from unitk.decoding.generator import Generator
    from unitk.kernels.weights import prepare_weights
    from unitk.training.device import named_device

    device = named_device(device)
    try:
        paths = [Path(path)] if isinstance(path, str | PathLike) else [*map(Path, path)]
    except TypeError as error:
        raise UsageError(f"--checkpoint must be a path, got {show_value(path)}") from error
    require(paths, "--checkpoint is needed: a list of models is empty")
    loaded = _open_each(paths, device, task, format, vocab, _settings_of(options, user_dir))
    tasks = [part.task for part in loaded]
    models = [part.model.to(device) for part in loaded]
    size = sum(parameter.numel() for model in models for parameter in model.parameters())
    about = {
        "model": " + ".join(path.name or str(path) for path in paths),
        "size": f"{size / 1e6:.1f} M parameters, {len(tasks[0].vocab):,} tokens",
    }
    defaults = [part.decoding for part in loaded] if format else [*map(read_defaults, paths)]
    if any(options != defaults[0] for options in defaults):
        log.warning("the models differ in %s: that of %s is used", NAME, paths[0])
    if len(loaded) == 1:
        model = prepare_weights(models[0], precision)
        # the same weights as a language model rank what is filled into blanks
        lm = loaded[0].reader
        reader = None if lm is None else Generator(model, lm)
        return Generator(model, tasks[0], defaults[0], reader, about)
    # an ensemble takes sources of the length that all of its models saw in training
    shortest = min(filter(None, (task.trained.max_source for task in tasks)), default=None)
    tasks = [task.with_trained(max_source=shortest) for task in tasks]
    ensemble = join(list(zip(map(str, paths), models, tasks, strict=True)))
    return Generator(prepare_weights(ensemble, precision), tasks[0], defaults[0], None, about)


def load_module(
    path: str | Path,
    device: str | torch.device = "cpu",
    *,
    task: str | None = None,
    dtype: Literal["fp32", "fp64"] = "fp32",
    format: str | None = None,
    vocab: str | Path | None = None,
    options: Mapping[str, object] | None = None,
    user_dir: str | Path | None = None,
) -> TextModel:
    """Open a trained model as a torch module with logits, losses and gradients.

        unitk.load_module("runs/lm").loss(["The cat sat on the mat."]).backward()

    The other arguments are those of `load`. Symbols that an import added to the vocabulary have no
    probability until `train_added_rows()` is called.
    """
    set_environment()
    import torch

    from unitk.api.text_model import TextModel
    from unitk.training.device import named_device

    device = named_device(device)
    [loaded] = _open_each(
        [Path(path)], device, task, format, vocab, _settings_of(options, user_dir)
    )
    dtypes = {"fp32": torch.float32, "fp64": torch.float64}
    require(dtype in dtypes, f"--dtype must be one of {', '.join(dtypes)}, got {dtype!r}")
    return TextModel(loaded).to(device, dtypes[dtype])


def _settings_of(options: Mapping[str, object] | None, user_dir: str | Path | None) -> Settings:
    """The given options of task and architecture; plug-ins are loaded, which may have their own."""
    registry.load_plugins(Path(user_dir) if user_dir else None)
    texts: dict[str, str | None] = {}
    for key, value in (options or {}).items():
        key = str(key).replace("-", "_")
        name = flag(key)
        require(key.startswith(("task.", "arch.")), f"{name}: options are task.* and arch.*")
        texts[key] = argument_text(value, name)
    return Settings.of_texts(texts, Origin.FLAG)


def _open_each(
    paths: list[Path],
    device: str | torch.device,
    task: str | None,
    format: str | None,
    vocab: str | Path | None,
    given: Settings,
) -> list[Loaded]:
    """Open checkpoints of unitk, or of the other system that `format` names."""
    if format is None:
        require(vocab is None, "--vocab has no effect without --format")
        from unitk.training.saving import checkpoint

        return [checkpoint.load(path, device, task, given) for path in paths]
    if task is not None:
        given = Settings.of_texts({"task": task}, Origin.FLAG).under(given)
    read = registry.get("format", format, "--format").read
    folder = Path(vocab) if vocab else None
    return [read(path, folder, given, f"--format {format}") for path in paths]
