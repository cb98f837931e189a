"""unitk: one toolkit for unified language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from unitk.generate.generator import Generator

__version__ = "0.1.0"


def load(
    path: str | Path | Sequence[str | Path],
    device: str | torch.device = "cpu",
    *,
    task: str | None = None,
    dtype: torch.dtype | None = None,
) -> Generator:
    """A trained model that generates, of a run folder or a checkpoint; several are an ensemble.

        unitk.load("runs/qg/best").generate(["The cat sat on the mat."], beam=5)

    `task` chooses one where the model was trained with several; `dtype` is that of weights and
    cache. Raises `unitk.errors.CheckpointError`, naming what is damaged or does not fit.
    """
    # what follows imports torch
    from pathlib import Path

    from unitk.generate.ensemble import join
    from unitk.generate.generator import Generator
    from unitk.train import checkpoint

    paths = [path] if isinstance(path, str | Path) else path
    loaded = [checkpoint.load(Path(one), device, task) for one in paths]
    model = loaded[0].model
    if len(loaded) > 1:
        model = join([(str(one.path), one.model, one.task) for one in loaded])
    return Generator(model if dtype is None else model.to(dtype), loaded[0].task)
