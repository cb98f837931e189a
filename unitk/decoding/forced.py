"""Scores given outputs as a search would report them, and their attention, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.data.texts import shorten
from unitk.decoding.config import SEARCH_PRESETS, GenerateConfig, length
from unitk.decoding.constraints.base import Constraint, find_ends
from unitk.decoding.drivers import Driver, Prompt, Watcher
from unitk.decoding.fit import batch_prompts, lay_out_to_fit, measure_overrun, split_by_example
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.outputs import Output
from unitk.errors import DataError, NonFiniteError, UsageError, require
from unitk.models.attention import CrossAttention
from unitk.models.base import Decoder, families_with
from unitk.models.heads.base import gather
from unitk.models.model import Model
from unitk.progress import Report, no_report
from unitk.slots import Batch, Example, Floats, Ids, Protocol, collate, exact_sum, lm, unroll
from unitk.tasks.base import Task
from unitk.vocab.base import Vocab

PACKED = 128
"""Slots of a row of several outputs that are scored: attention in longer rows costs too much."""


@torch.inference_mode()
def score(
    model: Decoder, examples: Sequence[Example], max_tokens: int, report: Report = no_report
) -> list[Floats]:
    """Score unrolled outputs [2, words]: log-probability, and 1 where a word is most probable."""
    scores: list[Floats] = [np.empty((2, 0), np.float32)] * len(examples)
    for numbers, batch in _collate(model, examples, max_tokens, PACKED):
        [ask] = batch.asks.values()
        gain = model.score_labels(batch, ask)
        if not gain.isfinite().all():
            raise NonFiniteError("the model gives logits that are not finite: there is no score")
        for i, gain_2K in split_by_example(gain.T, examples, numbers):
            scores[i] = gain_2K.T
        report(len(numbers))
    return scores


def ask_all_tokens(task: Task, text: Ids, target: Ids | None) -> Example:
    """Lay out a text with an ask at every slot that reads it, whose label is the slot's token.

    With a target: the asks of its words and its end, as decoding meets them after the text.
    Raises UsageError where the task writes none.
    """
    if target is None:
        slots = task.reading([text])
        return Example({"x": slots}, [lm(np.arange(len(slots)), slots.token)])
    if task.protocol is None:
        raise UsageError(f"targets: task {type(task).__name__} writes none")
    return unroll(task.prompt([text]), task.protocol, np.append(target, task.protocol.end))


@torch.inference_mode()
def logits(model: Decoder, examples: Sequence[Example], max_tokens: int) -> list[Floats]:
    """The logits [T, V] over the vocabulary at the slots of each example's only ask."""
    require(len(model.members) == 1, "--checkpoint: one model has logits, not an ensemble")
    member: Model = model.members[0]
    laid_out = {name for example in examples for name in example.towers}
    complete = not laid_out or {*model.config.towers} <= laid_out
    require(complete, "targets are needed: the model has an encoder")
    tables: list[Floats] = [np.empty((0, 0), np.float32)] * len(examples)
    for numbers, batch in _collate(model, examples, max_tokens):
        [ask] = batch.asks.values()
        states, _ = member(batch, member.condition(batch))
        logits_KV = member.head(gather(states, batch, [ask]), ask.head).float()
        if not (logits_KV < torch.inf).all():  # those of words that are none are -inf
            raise NonFiniteError("the model gives logits that are not finite")
        for i, table in split_by_example(logits_KV, examples, numbers):
            tables[i] = table
    return tables


@dataclass(frozen=True)
class TargetScorer(Driver):
    """Scores given outputs as a search would report them.

    The output of a prompt is what its constraint begins with: the words of all blanks, with an end
    symbol after each, the last of which is optional.
    """

    protocol: Protocol

    def prompt(
        self,
        number: int,
        source: list[Ids],
        constraint: Constraint,
        config: GenerateConfig,
        truncate: bool,
    ) -> Prompt:
        protocol = self.protocol
        limits = self.model.config
        name = f"input {number + 1}"
        ids, endless = constraint.prefix, protocol.endless
        if not endless and (not ids or ids[-1] != protocol.end):
            ids += (protocol.end,)
        ends = [i for i, word in enumerate(ids) if word == protocol.end]
        if endless:
            ends.append(len(ids))
        words = int(np.diff(ends, prepend=-1).max()) - 1

        def lay_out(source: list[Ids]) -> Prompt:
            limit = length(config.max_len, sum(map(len, source)))
            return Prompt(number, source, self.task.prompt(source), Constraint(ids, max_len=limit))

        def overrun(prompt: Prompt) -> tuple[int, int]:
            return measure_overrun(prompt.example, protocol, words, limits)

        source = shorten(source, config.max_source_len)
        prompt, _ = lay_out_to_fit(source, lay_out, lambda one: overrun(one)[0], truncate)
        beyond = max(overrun(prompt))
        if beyond > 0:
            raise DataError(
                f"{name} with its target of {words:,} tokens is too long by {beyond:,} for this "
                "model's positions; --truncate shortens the last part of the source"
            )
        blanks = 1 + len(prompt.example.blanks)
        if len(ends) != blanks:
            raise DataError(f"{name}: {len(ends)} targets for {blanks} blanks")
        return prompt

    def outputs(
        self, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
    ) -> list[list[Hypothesis]]:
        protocol = self.protocol
        written = [np.array(prompt.constraint.prefix, np.int64) for prompt in prompts]
        examples = [
            unroll(prompt.example, protocol, ids)
            for prompt, ids in zip(prompts, written, strict=True)
        ]
        scores = score(self.model, examples, config.max_tokens, watch.report)
        gains_of = [gains for gains, _ in scores]
        for end in find_ends(config, self.task.vocab):
            # as in a search, an end has the probability of the most probable symbol that ends
            relabelled = [_relabel(example, protocol.end, end) for example in examples]
            scores = score(self.model, relabelled, config.max_tokens, lambda done: watch.report(0))
            gains_of = [
                np.maximum(gains, others)
                for gains, (others, _) in zip(gains_of, scores, strict=True)
            ]
        hypotheses = list[list[Hypothesis]]()
        for prompt, ids, gains in zip(prompts, written, gains_of, strict=True):
            if config.unkpen:
                gains = gains - np.float32(config.unkpen) * (ids == self.task.vocab.unk)
            max_len = prompt.constraint.max_len
            hypotheses.append([as_hypothesis(ids, gains, protocol, config, max_len)])
        return hypotheses


def _relabel(example: Example, old: int, new: int) -> Example:
    """An unrolled output with another label where its label is `old`; it is read as before."""
    [ask] = example.asks
    return replace(example, asks=[replace(ask, label=np.where(ask.label == old, new, ask.label))])


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
    total = exact_sum(gains)
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
    attended = [(np.empty((0, 0), np.float32), np.empty(0, np.int64))] * len(examples)
    with watch(model, layer) as recorded:
        for numbers, batch in _collate(model, examples, max_tokens):
            model(batch, model.condition(batch))
            weight = torch.stack([table.float() for table in recorded]).mean(0).flatten(0, 1)
            if not weight.isfinite().all():
                raise NonFiniteError("the model gives attention that is not finite")
            [ask] = batch.asks.values()
            for i, table in split_by_example(weight[ask.first], examples, numbers):
                source = examples[i].towers["enc"].token
                label = examples[i].asks[0].label
                real = ~np.isin(source, special)  # begin and end draw much, and say nothing
                places = np.flatnonzero(real)
                shown = slice(places[0], places[-1] + 1)
                words = (table[:, : len(source)] * real)[label != protocol.end, shown]
                attended[i] = words, source[shown]
    return attended


def add_attention(
    driver: Driver,
    prompts: Sequence[Prompt],
    outputs: Sequence[list[Output]],
    layer: int,
    max_tokens: int,
) -> list[list[Output]]:
    """A driver's outputs for prompts, each with the attention of its words to the source's."""
    protocol = driver.protocol
    vocab = driver.task.source_vocab
    assert protocol is not None, "outputs that are written word by word have attention"
    examples = [
        unroll(prompt.example, protocol, output.hypothesis.ids)
        for prompt, of_prompt in zip(prompts, outputs, strict=True)
        for output in of_prompt
    ]
    tables = iter(attention(driver.model, examples, protocol, vocab, layer, max_tokens))

    def with_attention(output: Output) -> Output:
        table, source = next(tables)
        return replace(output, attention=table, source=source)

    return [list(map(with_attention, of_prompt)) for of_prompt in outputs]


def check_layer(model: Decoder, layer: int | None) -> None:
    """Raise UsageError unless every decoder has this layer, if any, and attends to a source."""
    if layer is None:
        return
    for member in model.members:
        if not member.config.cross_attention:
            able = families_with(lambda arch: arch.cross_attention)
            raise UsageError(
                f"--print-alignment: this architecture has no cross-attention; {able} have"
            )
        depth = len(member.decoder.layers)
        require(0 <= layer <= depth, f"--alignment-layer must be 0 to {depth}, got {layer}")


@contextmanager
def watch(model: Decoder, layer: int) -> Iterator[list[Tensor]]:
    """Record the attention [B, T, S] of each model's decoder layer to the source, in one pass."""
    recorded: list[Tensor] = [torch.empty(0)] * len(model.members)
    with ExitStack() as stack:
        for number, member in enumerate(model.members):
            module = member.decoder.layers[layer - 1].cross_attention
            assert isinstance(module, CrossAttention)

            def record(
                module: CrossAttention, args: Any, kwargs: Any, number: int = number
            ) -> None:
                recorded[number] = module.weights(*args, **kwargs)

            stack.enter_context(module.register_forward_pre_hook(record, with_kwargs=True))
        yield recorded


def _collate(
    model: Decoder, examples: Sequence[Example], max_tokens: int, packed: int = 0
) -> Iterator[tuple[list[int], Batch]]:
    """Batches of examples of like length, with their numbers; rows hold `packed` slots if given."""
    model.eval()
    for numbers in batch_prompts(examples, max_tokens):
        longest = max(len(tower) for tower in examples[numbers[0]].towers.values())
        per_row = max(1, packed // longest)
        rows = [numbers[i : i + per_row] for i in range(0, len(numbers), per_row)]
        yield numbers, collate([[examples[i] for i in row] for row in rows]).to(model.device)
