"""Embeddings of texts: states of a layer, a vector for each text, or its latent.

N texts, T slots, D the width of the states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.config import EmbedConfig
from unitk.decoding.fit import batch_prompts, count_excess, lay_out_to_fit
from unitk.errors import DataError, NonFiniteError, UsageError, require
from unitk.models.base import Decoder, families_with
from unitk.models.model import Model
from unitk.progress import Report, no_report
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
    report: Report = no_report,
) -> list[Floats]:
    """A vector [D] for each source, or with pool="none" its states [T, D]; zeros if it is empty.

    Batching changes vectors by no more than rounding. `first` is the number of the first source.
    A source that is too long raises DataError, or is shortened if the config says so.
    """
    require(len(model.members) == 1, "--checkpoint: one model embeds, not an ensemble")
    task = task.reading_as(config.side)
    if config.pool == "auto":
        config = replace(config, pool=task.pool)
    member: Model = model.members[0]
    depth = _depth(member, config)
    full = [i for i, source in enumerate(sources) if any(map(len, source))]
    examples = [fit_text(task, sources[i], member, first + i, config.truncate) for i in full]
    vectors: dict[int, Floats] = {}
    for numbers in batch_prompts(examples, config.max_tokens):
        pooled = _pool_batch(member, task, [examples[i] for i in numbers], depth, config)
        for i, vector in zip(numbers, pooled, strict=True):
            if not vector.isfinite().all():
                raise NonFiniteError("the model gives states that are not finite: no vector is one")
            vectors[full[i]] = vector.float().cpu().numpy()
        report(len(numbers))
    report(len(sources) - len(full))
    # a vector of zeros has the width of any other
    last = np.array([len(task.source_vocab) - 1])
    wide, *_ = vectors.values() or embed(model, task, [[last]], config)
    nothing = wide[:0] if config.pool == "none" else np.zeros_like(wide)
    return [vectors.get(i, nothing) for i in range(len(sources))]


def _depth(model: Model, config: EmbedConfig) -> int:
    """The layer whose states are pooled, 0 being the embedding; UsageError if there is none."""
    layers = len(model.reader.layers)
    depth = config.layer if config.layer >= 0 else config.layer + layers + 1
    require(0 <= depth <= layers, f"--layer must be {-1 - layers} to {layers}, got {config.layer}")
    if config.pool == "latent" and not model.config.latent:
        able = families_with(lambda arch: arch.latent > 0)
        raise UsageError(f"--pool latent: this architecture has none; {able} have")
    return depth


def _pool_batch(
    model: Model, task: Task, examples: Sequence[Example], depth: int, config: EmbedConfig
) -> list[Tensor]:
    """The vector of each text of a batch, or its states."""
    batch = collate([[example] for example in examples]).to(model.device)
    if config.pool == "latent":
        return list(model.latents(batch))  # a text's mean latent, before any noise
    symbols = [id_ for name, id_ in task.source_vocab.symbols.items() if name != "unk"]
    states_BTD = model.embed(batch, depth)
    token_BT = slots_to_embed(batch.towers)[TOKEN]
    sizes = [len(slots_to_embed(example.towers)) for example in examples]
    rows = zip(states_BTD.float().cpu(), token_BT.cpu(), sizes, strict=True)
    return [_pool(x[:n], token[:n], torch.tensor(symbols), config) for x, token, n in rows]


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


def fit_text(task: Task, source: list[Ids], model: Model, number: int, truncate: bool) -> Example:
    """Lay out source `number` by `Task.to_embed`, shortened with `truncate` if it is too long."""
    limits = model.config
    example, _ = lay_out_to_fit(
        source, task.to_embed, lambda ids: count_excess(ids, limits), truncate
    )
    if (over := count_excess(example, limits)) > 0:
        rows = model.reader.config.max_positions
        raise DataError(
            f"input {number + 1} is too long by {over:,} for the {rows:,} positions of this model; "
            "--truncate shortens its last part"
        )
    return example


def slots_to_embed(towers: Mapping[str, T]) -> T:
    """The slots that `Task.to_embed` laid out; two directions read the same ones."""
    return next(iter(towers.values()))
