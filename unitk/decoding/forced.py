"""Given outputs: their scores, as a search would report them, and their attention, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.config import SEARCH_PRESETS, GenerateConfig
from unitk.decoding.fit import batches, by_example
from unitk.decoding.search import Hypothesis
from unitk.errors import NonFiniteError, UsageError, require
from unitk.models.attention import CrossAttention
from unitk.models.base import Decoder, families
from unitk.models.heads.base import gather
from unitk.slots import Batch, Example, Floats, Ids, Protocol, collate
from unitk.vocab.base import Vocab

PACKED = 128
"""Slots of a row of several outputs that are scored: longer rows cost more attention than they save
in padding."""


@torch.inference_mode()
def score(
    model: Decoder,
    examples: Sequence[Example],
    max_tokens: int,
    report: Callable[[int], None] = lambda done: None,
) -> list[Floats]:
    """Score unrolled outputs [2, words]: log-probability, and 1 where a word is the likeliest."""
    found: list[Floats] = [np.empty((2, 0), np.float32)] * len(examples)
    for numbers, batch in _collated(model, examples, max_tokens, PACKED):
        [ask] = batch.asks.values()
        gain = model.judged(batch, ask)
        if not gain.isfinite().all():
            raise NonFiniteError("the model gives logits that are not finite: there is no score")
        for i, part in by_example(gain.T, examples, numbers):
            found[i] = part.T
        report(len(numbers))
    return found


@torch.inference_mode()
def logits(model: Decoder, examples: Sequence[Example], max_tokens: int) -> list[Floats]:
    """The logits [T, V] over the vocabulary at the slots of each example's only ask."""
    require(len(model.members) == 1, "--checkpoint: one model has logits, not an ensemble")
    read = {name for example in examples for name in example.towers}
    whole = not read or {*model.config.towers} <= read
    require(whole, "targets are needed: the model has an encoder")
    found: list[Floats] = [np.empty((0, 0), np.float32)] * len(examples)
    for numbers, batch in _collated(model, examples, max_tokens):
        [ask] = batch.asks.values()
        states, _ = model(batch, model.condition(batch))
        table = model.head(gather(states, batch, [ask]), ask.head).float()
        if not (table < torch.inf).all():  # those of words that are none are -inf
            raise NonFiniteError("the model gives logits that are not finite")
        for i, part in by_example(table, examples, numbers):
            found[i] = part
    return found


def as_hypothesis(
    ids: Ids, gains: Floats, protocol: Protocol, config: GenerateConfig, max_len: int
) -> Hypothesis:
    """A given output in the form of a search result whose outputs have at most `max_len` words."""
    preset = SEARCH_PRESETS[config.search]
    ends = np.flatnonzero(ids == protocol.end)  # one for each blank
    if protocol.endless:
        preset = replace(preset, counts_ends=True)
    words = np.diff(ends, prepend=-1) - 1
    forced = ends[words >= max_len] if preset.free_end else ends[:0]  # forced: they cost nothing
    gains = gains.copy()
    gains[forced] = 0
    length = float(max(len(ids) - len(forced) if preset.counts_ends else words.sum(), 1))
    total = float(gains.sum(dtype=np.float64))
    score = total / preset.divisor(length + protocol.opened, config.lenpen)
    return Hypothesis(ids, score, total, gains)


@torch.inference_mode()
def attention(
    model: Decoder,
    examples: Sequence[Example],
    protocol: Protocol,
    vocab: Vocab,
    layer: int,
    max_tokens: int,
) -> list[tuple[Floats, Ids]]:
    """The attention of every word of unrolled outputs to each source word, [words, source words],
    and the ids of the source words.

    It is the mean over the heads of a decoder layer, and over the models of an ensemble. Layers
    count from 1; 0 is the last. Source words are those of the encoder (`vocab`), from the first to
    the last one that is no special symbol; special symbols between them have weight 0.
    """
    special = [id_ for id_ in vocab.symbols.values() if id_ != vocab.unk]
    found = [(np.empty((0, 0), np.float32), np.empty(0, np.int64))] * len(examples)
    with watch(model, layer) as seen:
        for numbers, batch in _collated(model, examples, max_tokens):
            model(batch, model.condition(batch))
            weight = torch.stack([table.float() for table in seen]).mean(0).flatten(0, 1)
            if not weight.isfinite().all():
                raise NonFiniteError("the model gives attention that is not finite")
            [ask] = batch.asks.values()
            for i, table in by_example(weight[ask.first], examples, numbers):
                source, label = examples[i].towers["enc"].token, examples[i].asks[0].label
                real = ~np.isin(source, special)  # begin and end draw much, and say nothing
                places = np.flatnonzero(real)
                shown = slice(places[0], places[-1] + 1)
                words = (table[:, : len(source)] * real)[label != protocol.end, shown]
                found[i] = words, source[shown]
    return found


def check_layer(model: Decoder, layer: int | None) -> None:
    """Raise UsageError unless each model's decoder has this layer, if one is given, and attends to
    a source."""
    if layer is None:
        return
    for one in model.members:
        if not one.config.cross_attention:
            able = families(lambda arch: arch.cross_attention)
            what = "this architecture has no cross-attention"
            raise UsageError(f"--alignment-layer {layer}: {what}; {able} have")
        depth = len(one.decoder.layers)
        require(0 <= layer <= depth, f"--alignment-layer must be 0 to {depth}, got {layer}")


@contextmanager
def watch(model: Decoder, layer: int) -> Iterator[list[Tensor]]:
    """Record the attention [B, T, S] of each model's decoder layer to the source, in one pass."""
    seen: list[Tensor] = [torch.empty(0)] * len(model.members)
    with ExitStack() as stack:
        for number, one in enumerate(model.members):
            part = one.decoder.layers[layer - 1].cross_attention
            assert isinstance(part, CrossAttention)

            def note(module: CrossAttention, args: Any, given: Any, number: int = number) -> None:
                seen[number] = module.weights(*args, **given)

            stack.enter_context(part.register_forward_pre_hook(note, with_kwargs=True))
        yield seen


def _collated(
    model: Decoder, examples: Sequence[Example], max_tokens: int, packed: int = 0
) -> Iterator[tuple[list[int], Batch]]:
    """Batches of examples of like length, with their numbers; rows hold `packed` slots if given."""
    model.eval()
    for numbers in batches(examples, max_tokens):
        longest = max(len(tower) for tower in examples[numbers[0]].towers.values())
        several = max(1, packed // longest)
        rows = [numbers[i : i + several] for i in range(0, len(numbers), several)]
        yield numbers, collate([[examples[i] for i in row] for row in rows]).to(model.device)
