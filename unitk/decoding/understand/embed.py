"""Embeddings of texts: states of a layer, a vector for each text, or its latent.

N texts, T slots, D the width of the states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.config import EmbedConfig
from unitk.decoding.fit import batches, beyond, shorten_source
from unitk.errors import DataError, NonFiniteError, UsageError, require
from unitk.models.base import Decoder, families_with
from unitk.models.model import Model
from unitk.slots import TOKEN, Example, Floats, Ids, collate
from unitk.tasks.base import Task

T = TypeVar("T")


@torch.inference_mode()
def embed(
    model: Decoder,
    task: Task,
    sources: Sequence[list[Ids]],
    config: EmbedConfig,
    *,
    first: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> list[Floats]:
    """A vector [D] for each source, or with pool="none" its states [T, D]; zeros if it is empty.

    Batching changes vectors by no more than rounding. `first` is the number of the first source
    among all inputs. A source that is too long raises DataError, or is shortened if the config says
    so.
    """
    require(len(model.members) == 1, "--checkpoint: one model embeds, not an ensemble")
    task = task.reading_as(config.side)
    if config.pool == "auto":
        config = replace(config, pool=task.pool)
    own: Model = model.members[0]
    layers = len(own.reader.layers)
    depth = config.layer + (layers + 1) * (config.layer < 0)
    require(0 <= depth <= layers, f"--layer must be {-1 - layers} to {layers}, got {config.layer}")
    if config.pool == "latent" and not own.config.latent:
        able = families_with(lambda arch: arch.latent > 0)
        raise UsageError(f"--pool latent: this architecture has none; {able} have")
    full = [i for i, source in enumerate(sources) if any(map(len, source))]
    named = [(sources[i], f"input {first + i + 1}") for i in full]
    read = [fit_text(task, source, own, name, config.truncate) for source, name in named]
    found: dict[int, Floats] = {}
    vocab = task.source_vocab
    symbols = torch.tensor([id_ for name, id_ in vocab.symbols.items() if name != "unk"])
    for some in batches(read, config.max_tokens):
        batch = collate([[read[i]] for i in some]).to(own.device)
        if config.pool == "latent":
            pooled = list(own.latents(batch))  # a text's mean latent, before any noise
        else:
            states_BTD, token_BT = own.embed(batch, depth), slots_read(batch.towers)[TOKEN]
            sizes = [len(slots_read(read[i].towers)) for i in some]
            each = zip(states_BTD.float().cpu(), token_BT.cpu(), sizes, strict=True)
            pooled = [_pool(x[:n], token[:n], symbols, config) for x, token, n in each]
        for i, vector in zip(some, pooled, strict=True):
            if not vector.isfinite().all():
                raise NonFiniteError("the model gives states that are not finite: no vector is one")
            found[full[i]] = vector.float().cpu().numpy()
        report(len(some))
    report(len(sources) - len(full))
    # a vector of zeros has the width of any other
    wide, *_ = found.values() or embed(model, task, [[np.array([len(vocab) - 1])]], config)
    nothing = wide[:0] if config.pool == "none" else np.zeros_like(wide)
    return [found.get(i, nothing) for i in range(len(sources))]


def _pool(x_TD: Tensor, token_T: Tensor, symbols: Tensor, config: EmbedConfig) -> Tensor:
    """The vector of a text, pooled from its states."""
    if config.pool == "none":
        return x_TD
    if config.pool != "mean":
        return x_TD[0 if config.pool == "first" else -1]
    counts = torch.ones_like(token_T, dtype=torch.bool)
    if not config.specials:
        counts = ~torch.isin(token_T, symbols)
    return x_TD[counts].mean(0) if counts.any() else torch.zeros_like(x_TD[0])


def fit_text(task: Task, source: list[Ids], model: Model, name: str, truncate: bool) -> Example:
    """Lay out a source by `Task.to_embed`, shortened with `truncate` if it is too long."""
    limits = model.config
    _, example, _ = shorten_source(source, task.to_embed, lambda one: beyond(one, limits), truncate)
    if (over := beyond(example, limits)) > 0:
        rows = model.reader.config.max_positions
        what = f"{name} is too long by {over} for the {rows} positions of this model"
        raise DataError(f"{what}; --truncate shortens its last part")
    return example


def slots_read(towers: Mapping[str, T]) -> T:
    """The slots that `Task.to_embed` laid out; two directions read the same ones."""
    return next(iter(towers.values()))
