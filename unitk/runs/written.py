"""Outputs of a model in training for sources of its validation sets: scores and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from unitk.data.batching import spread
from unitk.data.laid import LaidRecords
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import require
from unitk.metrics import Score
from unitk.metrics.texts import score_texts
from unitk.registry import register
from unitk.slots import Ids
from unitk.training.config import RANKING, SCORES, figure
from unitk.training.run import Run

SAMPLES = 3
"""Outputs that the README of a run shows."""
GROUP = 64
"""Sources that a rank decodes between two looks at signals."""
Sample = tuple[str, str, str]
"""A source, its target, and what the model wrote for the source."""


@register("measure", "written")
class WrittenScores:
    """Scores outputs of a model in training for `--valid-generate` sources of validation sets.

    Outputs are those of `unitk generate --input SET` in fp32 with the same `--beam`, and at most as
    long as the longest target of the training. Each rank writes its share of them.
    """

    def __init__(self, run: Run) -> None:
        config = run.config
        self.run = run
        self.ranks = run.ranks
        self.model = run.model
        self.max_tokens = config.max_tokens
        self.count = config.valid_generate or 0
        self.beam = config.valid_beam
        self.metrics = config.scores
        for examples in run.data.valid.values():
            written_part(examples)
        text = ["a text"]
        # a package that is missing is named at once, and so is a figure that needs its data
        scores = score_texts(self.metrics, text, [text], text)
        best = figure(config.best_metric or "")
        figures = as_values("valid", scores)
        meanings = "; ".join(f"{name}: {score.about}" for name, score in scores.items())
        known = ", ".join(name.removeprefix("valid/") for name in figures)
        require(
            best not in RANKING or f"valid/{best}" in figures,
            f"--best-metric {config.best_metric}: figures here are {known} ({meanings})",
        )

    def values(
        self, name: str, examples: Any, stopped: Callable[[], bool], show: Callable[[str], None]
    ) -> dict[str, float] | None:
        """The scores of one validation set, as NAME/rouge1 and so on; None if `stopped` says so.

        All ranks return the same scores.
        """
        samples = self.write(name, examples, stopped, show)
        if samples is None:
            return None
        sources, targets, outputs = zip(*samples, strict=True)
        scores = score_texts(self.metrics, outputs, [[text] for text in targets], sources)
        self.run.samples = samples[:: -(-len(samples) // SAMPLES)]
        self.run.sampled = self.run.progress.step
        return as_values(name, scores)

    def write(
        self, name: str, examples: Any, stopped: Callable[[], bool], show: Callable[[str], None]
    ) -> list[Sample] | None:
        """The samples of all ranks, in the order of the set; None if `stopped` says so."""
        pairs = written_part(examples)
        rank, world = self.ranks.rank, self.ranks.world
        ids = spread(len(pairs.items.source_lengths), self.count)
        samples: list[Sample] = []
        for at in range(0, len(ids), GROUP * world):
            if stopped():
                return None
            show(f"writing {name} {at}/{len(ids)}")
            samples += self.outputs(pairs, ids[at + rank : at + GROUP * world : world])
        shares_of_ranks = [
            json.loads(text) for text in self.ranks.all_gather_texts(json.dumps(samples))
        ]
        # rank r wrote sources r, r + world, r + 2 world and so on
        rounds = -(-len(ids) // world)
        return [
            tuple(shares[i]) for i in range(rounds) for shares in shares_of_ranks if i < len(shares)
        ]

    def outputs(self, pairs: LaidRecords, ids: Ids) -> list[Sample]:
        """Generate outputs for these records."""
        return write_outputs(self.model, pairs, ids, self.beam, 2 * self.max_tokens)


@register("measure", "samples")
@torch.no_grad()
def show_samples(run: Run) -> None:
    """Let the model write for a few validation sources, for the README of the run.

    They are of the first set that has pairs, if the task writes and no samples of this step are
    there yet."""
    for examples in run.data.valid.values():
        if run.sampled < run.progress.step and (parts := writing_parts(examples)):
            run.model.eval()
            ids = spread(len(parts[0].items.parts), SAMPLES)
            with run.average.apply() if run.average is not None else nullcontext():
                run.samples = write_outputs(run.model, parts[0], ids, 1, 2 * run.config.max_tokens)
            run.sampled = run.progress.step


def write_outputs(
    model: Any, pairs: LaidRecords, ids: Ids, beam: int, max_tokens: int
) -> list[Sample]:
    """Generate outputs for these records, in batches of at most `max_tokens` slots."""
    if not len(ids):
        return []
    assert pairs.max_lengths is not None  # of pairs
    task = pairs.tasks[0]
    max_source, max_target = pairs.max_lengths
    options: dict[str, Any] = {"max_source_len": max_source, "max_len": max_target}
    config = GenerateConfig(beam=beam, max_tokens=max_tokens, **options)
    records = [pairs.corpora[which].record(i) for which, i in map(pairs.items.locate, ids)]
    sources = [source for source, _ in records]
    outputs = Generator(model, task).outputs(Sources(sources, truncate=True), config)
    decode, decode_source = task.vocab.decode, task.source_vocab.decode
    return [
        (" ".join(map(decode_source, source)), decode(target), best[0].text if best else "")
        for (source, target), best in zip(records, outputs, strict=True)
    ]


def as_values(name: str, scores: Mapping[str, Score]) -> dict[str, float]:
    """The figures of metrics as values of a validation set.

    Of a metric with figures that rank models, these are all. One that another metric has by the
    same name has its own metric's name before it (qg_rougeL). Others are `stats/words` and so on.
    """
    values = {}
    for metric, score in scores.items():
        for key, value in score.figures.items():
            label = key if RANKING.get(key, metric) == metric else f"{metric}_{key}"
            label = label if SCORES[metric] else f"{metric}/{key}"
            if RANKING.get(label) == metric or not SCORES[metric]:
                values[f"{name}/{label}"] = float(value)
    return values


def written_part(examples: Any) -> LaidRecords:
    """The pairs of a validation set, as the first of its tasks that writes outputs lays them out;
    `UsageError` if there are none."""
    parts = laid_parts(examples)
    able = writing_parts(examples)
    names = ", ".join(part.task.name for part in parts)
    reason = "writes no outputs" if isinstance(parts[0], LaidRecords) else "reads texts, no pairs"
    require(able, f"--valid-generate needs pairs and a task that writes: {names} {reason}")
    return able[0]


def writing_parts(examples: Any) -> list[LaidRecords]:
    """The pairs of a validation set as each of its tasks that writes outputs lays them out."""
    parts = laid_parts(examples)
    able = [part for part in parts if part.task.generates and isinstance(part, LaidRecords)]
    return [part for part in able if part.method == "finetune"]


def laid_parts(examples: Any) -> list[Any]:
    """A validation set as each of its tasks lays it out; those of a mixture share its records."""
    return [part.own for part in examples.parts.values()] or [examples]
