"""Evaluation of a checkpoint on a corpus, by the objective it was trained with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unitk import registry
from unitk.data.batching import Feed, FixedBatches
from unitk.data.corpus.folders import is_corpus, parts
from unitk.data.examples import Data, open_data
from unitk.data.texts import Texts
from unitk.errors import DataError, UsageError
from unitk.metrics.language import Units, perplexities
from unitk.models.state import StatefulRows
from unitk.options.config import Parsed, flag
from unitk.options.settings import NOTHING, Origin, Settings
from unitk.progress import Report
from unitk.slots import Batch, Ids
from unitk.training.checks.data import check_data, check_stateful
from unitk.training.config import CUT, TrainConfig
from unitk.training.measures import Means
from unitk.training.saving import checkpoint
from unitk.training.saving.folder import holds_checkpoint
from unitk.training.saving.state import read_state, recorded_options, untrained_options

TEXT = "lm"  # the ask whose labels are a text's words, named like its head
BOUND = "bound"  # the ask whose mean is an upper bound of a token's negative log-probability


@dataclass(frozen=True)
class Setup:
    """A trained model, and texts laid out by its task."""

    path: Path
    corpus: Path
    model: Any
    criterion: Any
    data: Data
    parsed: Parsed
    state: dict[str, Any]
    device: torch.device
    bf16: bool

    @property
    def num_texts(self) -> int:
        """The number of texts that are read; each counts once for every task."""
        return sum(self.texts_of_tasks.values())

    @property
    def texts_of_tasks(self) -> dict[str, int]:
        """The number of texts that each task reads; of one that is not mixed, the name is empty."""
        examples = self.data.train
        rows = self.parsed.main.stateful_rows or 1  # which are equally long
        parts = examples.parts or {"": examples}
        return {name: len(part.bounds(0)) // rows * rows for name, part in parts.items()}

    @property
    def bounds(self) -> bool:
        """Whether the objective is a bound, which is averaged over draws of what is hidden."""
        names = self.parsed.mixture or [self.parsed.components["task"].name]
        return any(registry.get("task", name).bounds for name in names)

    @property
    def when(self) -> tuple[int, int]:
        """The checkpoint's step, and the run's last step if it was known."""
        step = self.state["step"]
        last = self.state["config"].get("max_steps", "none")
        earlier = step if last == "none" else int(last)  # before it was recorded
        return step, self.state.get("total") or earlier

    def autocast(self) -> AbstractContextManager[None]:
        """A context that computes in the chosen precision."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)


@holds_checkpoint
def open_setup(
    folder: Path,
    corpus: Path,
    device: torch.device,
    bf16: bool = False,
    task: str | None = None,
    given: Settings = NOTHING,
    rows: int = 0,
) -> Setup:
    """Open a run or checkpoint, and a corpus (or the valid/ in what `unitk preprocess` made).

    `task`, with its options `given`, evaluates the model as a task that it was not trained with.
    With stateful `rows`, texts are read in order, each row with what it carries. Without, each text
    is read alone.
    """
    corpus = corpus_of(corpus)
    state = read_state(folder)
    untrained = untrained_options(state, task)
    if not untrained and (task is not None or given):
        option = "--task" if task is not None else flag(next(iter(given)))
        raise UsageError(
            f"{option} has no effect without --pairs, --last-word, --choices or --stride, or a "
            "--task such as cloze, which the model was not trained with"
        )
    arch = checkpoint.components(state, folder, chosen_kinds=("arch",)).components["arch"].config
    texts = _options_of_cut(state, arch.position_limit)
    for name, part in recorded_options(state).tasks().items():
        if not untrained and registry.has("task", name):
            hides = registry.get("task", name).hides
            texts |= {f"{part}.{key}": value for key, value in hides.items()}
    # texts are cut as those of validation are, which have the seed 0 in any run
    texts |= {"data": f"{corpus}=1", "valid": "none", "seed": "0", "stateful_rows": str(rows)}
    texts |= {"save_dir": str(folder), "max_steps": "1"}
    kinds = ("task", "arch", "criterion")
    settings = Settings.of_texts(texts, Origin.CHECKPOINT).under(untrained).under(given)
    parsed = checkpoint.components(state, folder, settings, kinds, TrainConfig)
    data = open_data(parsed)
    check_data(state, data, folder)
    check_stateful(parsed, data, 1)
    loaded = checkpoint.load(folder, device, task or next(iter(parsed.mixture), None), given)
    criterion = parsed.components["criterion"].config.build(data.vocab)
    return Setup(folder, corpus, loaded.model, criterion, data, parsed, state, device, bf16)


def _options_of_cut(state: dict[str, Any], limit: int) -> dict[str, str]:
    """The options of a run that say what an example is, with the lengths that it had.

    `limit` is the number of positions, 0 without one, to which a checkpoint of no run is held.
    """
    recorded = state["config"]
    usual = TrainConfig.block_size
    assert isinstance(usual, int)
    texts = {"block_size": str(min(usual, limit or usual))}
    cut = CUT if state.get("kind", "text") == "text" else CUT[2:]  # records are not cut in blocks
    # a schedule of the block size counts epochs up to the last one
    texts |= {key: recorded[key] for key in (*cut, "max_epochs") if key in recorded}
    lengths = state.get("lengths") or ()
    return texts | {key: str(tokens) for key, tokens in zip(CUT[2:], lengths, strict=False)}


def corpus_of(path: Path) -> Path:
    """The corpus that --data names: itself, or the valid/ in it."""
    if is_corpus(path) or not path.is_dir():
        return path
    names = parts(path)
    if "valid" in names:
        return path / "valid"
    holds = f"; it holds {', '.join(names)}: name one of them" if names else ""
    raise DataError(f"--data {path} is not a corpus, and there is no valid/ in it{holds}")


@torch.no_grad()
def objective(setup: Setup, max_tokens: int, report: Report, draws: int = 1) -> dict[str, float]:
    """The means of the objective by name ("loss", "lm", "lm/ppl"), computed as in validation.

    Losses of mixed tasks are weighted by their shares at the step of the checkpoint. Where every
    word of the texts and their ends are predicted, there are perplexities in all units. With
    several draws of each text, the values are means over the draws; a bound has its standard error
    too.
    """
    means = Means()
    words = 0
    bounds_of = dict[str, list[float]]()
    for seed in range(draws):
        drawn = Means()
        words = _pass(setup, max_tokens, report, seed, drawn)
        means.add(drawn.sums, drawn.counts)
        for name, count in drawn.counts.items():
            if name.rpartition(".")[2] == BOUND:  # of a mixture TASK.bound
                bound = float(drawn.sums[f"{name}/nll"]) / count
                bounds_of.setdefault(name.replace(".", "/"), []).append(bound)
    for name, total in means.sums.items():
        checkpoint.check_finite(torch.as_tensor(total), f"{setup.path}: loss {name}")
    weights = setup.data.train.loss_weights(*setup.when)
    figures = {name[2:]: value for name, value in means.values("x", weights).items()}
    for name, bounds in bounds_of.items():
        figures |= {f"{name}/bits": float(np.mean(bounds)) / math.log(2), "draws": draws}
        if draws > 1:
            figures[f"{name}/error"] = float(np.std(bounds, ddof=1)) / math.sqrt(draws)
    labels = int(means.counts.get(TEXT, 0))
    if units := units_of(setup, words, labels - words):
        figures |= perplexities(figures[f"{TEXT}/nll"] * labels, units)
    return figures


def _pass(setup: Setup, max_tokens: int, report: Report, seed: int, means: Means) -> int:
    """Add the sums of one draw of each text; returns the number of words predicted, ends apart."""
    words = 0
    stateful = StatefulRows(setup.parsed.main.stateful_rows, {})
    for number, batch in _batches(setup, max_tokens, seed, stateful):
        # a decoder that writes a text anew has an encoder, which has read parts of it
        if TEXT in batch.asks and len(batch.towers) == 1:
            words += int((batch.asks[TEXT].label != setup.data.vocab.sep).sum())
        for ask in batch.asks.values():
            if ask.head == TEXT and (ask.label >= setup.model.trained).any():
                lacking = setup.data.vocab.pieces([int(ask.label.max())])[0]
                raise DataError(
                    f"--data: {ask.name} asks for {lacking}, which the imported model {setup.path} "
                    "lacks: train it with --init-from first"
                )
        torch.manual_seed(number)  # for models that draw noise
        moved = stateful.attach(batch.to(setup.device))
        with setup.autocast():
            loss = setup.criterion(setup.model, moved, 0, None)
            means.add(*setup.data.task.measure(setup.model, moved))
        stateful.keep(moved, loss.carry)
        means.add(loss.logged, setup.criterion.counts(batch))
        report(int(batch.owner.max()) + 1)  # examples, which may have several docs
    return words


def _batches(
    setup: Setup, max_tokens: int, seed: int, stateful: StatefulRows
) -> Iterator[tuple[int, Batch]]:
    """The texts once, by a number; with stateful rows, the next ones of all rows one by one."""
    examples = setup.data.train
    rows = stateful.rows
    if not rows:
        yield from FixedBatches(examples, max_tokens, seed=seed)
        return
    feed = Feed(
        examples=examples,
        seed=seed,
        max_tokens=max_tokens,
        batch_tokens=max_tokens,
        batch_texts=rows,
        rows=rows,
        backward=setup.data.task.backward,
    )
    for update in feed.updates():
        yield from update.numbered()
        stateful.advance()
        if not update.cursor:
            return


def units_of(setup: Setup, words: int, ends: int) -> Units | None:
    """The units of all texts; None if a pass did not predict every one of their words.

    `words` are the tokens that it predicted, and `ends` the ends among all predictions.
    """
    items = setup.data.train.items
    if not words or not isinstance(items, Texts) or words != items.cuts[0].tokens.sum():
        return None
    return Units.of(documents(items), setup.data.vocab.decode).with_ends(ends)


def documents(items: Texts) -> Iterator[list[Ids]]:
    """The sentences of all texts in order; texts that follow each other in a document join."""
    [corpus] = items.corpora
    [cut] = items.cuts
    apart = cut.starts[1:] != cut.stops[:-1]
    apart |= np.isin(cut.starts[1:], corpus.sentences[corpus.documents])
    for run in np.split(np.arange(len(cut.starts)), np.flatnonzero(apart) + 1):
        start, stop = int(cut.starts[run[0]]), int(cut.stops[run[-1]])
        low, high = corpus.sentences.searchsorted((start + 1, stop))
        yield np.split(corpus.tokens(start, stop), corpus.sentences[low:high] - start)
