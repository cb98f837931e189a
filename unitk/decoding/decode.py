"""Decoding: feed a task's prompts and words to the model, and let the search choose the next words.

Keys of the prompt and of an encoder are stored once per input; its K hypotheses are K queries of
one row. Columns of words are only appended. A bool table of ancestors, which follows the
back-pointers, marks the columns that belong to each hypothesis. In the slot protocol, a probe
is after the word it follows, and the next word overwrites it. No task code runs within a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints, ends_in_word, word_rules
from unitk.decoding.constraints.searches import OnStep, report_step, start
from unitk.decoding.drivers import DIFFUSION, Driver, Prompt, Running, Watcher
from unitk.decoding.fit import batch_prompts, check_places, fill_up, round_to_grid
from unitk.decoding.search import Hypothesis, Request, Search
from unitk.decoding.steps.reader import PromptReader
from unitk.decoding.steps.work import Work
from unitk.errors import require
from unitk.kernels.capture import on_grid, recordings
from unitk.models.base import Decoder
from unitk.models.state import Condition
from unitk.progress import Report, no_report
from unitk.registry import register
from unitk.slots import Batch, Example, Protocol, collate, exact_sum

Conditions = Callable[[Batch, Sequence[int]], Condition]
"""Makes the condition of a batch of prompts, given also their numbers among all prompts."""


CHECK_EVERY = {"cpu": 1}
"""Steps between two checks for finished rows; on other devices a check makes the host wait."""


@register("driver", "steps")
@dataclass(frozen=True)
class Steps(Driver):
    """Writes outputs word by word, by a search or by sampling."""

    protocol: Protocol
    steps: ClassVar[bool] = True

    def outputs(
        self, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
    ) -> list[list[Hypothesis]]:
        return generate(
            self.model,
            [prompt.example for prompt in prompts],
            self.protocol,
            config,
            watch.report,
            constraints=self.constraints(prompts, config),
            inputs=[prompt.number for prompt in prompts],
            on_step=watch.on_step,
        )

    @torch.inference_mode()
    def begin(self, prompts: Sequence[Prompt], config: GenerateConfig) -> Running:
        constraints = self.constraints(prompts, config)
        batch, rows = lay_out(self.model, [prompt.example for prompt in prompts])
        reader = PromptReader(self.model, batch, self.protocol, config, max_len=constraints.max_len)
        seeds = [prompts[i].seeds(config.seed) for i in rows]
        return RunningSearch(reader, reader.request(constraints.select(rows), seeds), rows)

    def constraints(self, prompts: Sequence[Prompt], config: GenerateConfig) -> Constraints:
        """The constraints of options and prompts; raises UsageError for options without effect."""
        config.idle(f"has no effect: task {self.task.name} does not diffuse", *DIFFUSION)
        if config.diverse_beam_groups == 1:
            config.idle("has no effect without --diverse-beam-groups", "diverse_beam_strength")
        if len(self.model.members) > 1 and not config.sampling:
            require(config.temperature == 1, "--temperature in a search is for one model")
        by_input = [prompt.constraint for prompt in prompts]
        if config.begin_word:
            by_input = [self.keep_apart(prompt) for prompt in prompts]
        check_phrases(config, by_input)
        return Constraints(by_input, word_rules(config, self.task.vocab))

    def keep_apart(self, prompt: Prompt) -> Constraint:
        """A prompt's constraint with --begin-word: outputs do not continue the source's last word,
        except where they begin with given words."""
        apart = ends_in_word(prompt.source, self.task.source_vocab)
        return replace(prompt.constraint, apart=apart and not prompt.constraint.prefix)


def generate(
    model: Decoder,
    prompts: Sequence[Example],
    protocol: Protocol,
    config: GenerateConfig,
    report: Report = no_report,
    conditions: Conditions | None = None,
    *,
    constraints: Constraints | None = None,
    inputs: Sequence[int] | None = None,
    on_step: OnStep | None = None,
) -> list[list[Hypothesis]]:
    """The n best outputs for each prompt, in the order of the prompts.

    Batching changes outputs by no more than rounding. `report` is called with the number of prompts
    that each batch finished. `conditions` overrides what the model computes from the prompts (an
    encoder's states, a latent). `constraints` has one entry for each prompt; by default those of
    the config. `inputs` seed the draws, one number for each prompt; by default its place in the
    list. `on_step` receives the words as they are written.
    """
    constraints = constraints or Constraints.plain(config, len(prompts))
    inputs = range(len(prompts)) if inputs is None else inputs
    check_phrases(config, constraints.by_input)
    max_lens = [constraint.max_len for constraint in constraints.by_input]
    for number, (prompt, max_len) in enumerate(zip(prompts, max_lens, strict=True), start=1):
        check_places(prompt, protocol, max_len, model.config, f"prompt {number}")
    hypotheses: list[list[Hypothesis]] = [[] for _ in prompts]
    if training := model.training:  # it is given back as it was
        model.eval()
    try:
        lots = batch_prompts(
            prompts, config.max_tokens, max_lens, config.width, grid=on_grid(model)
        )
        for numbers, rows, batch, condition in read_ahead(model, prompts, lots, conditions):
            decoded = decode(
                model,
                batch,
                protocol,
                config,
                [inputs[i] for i in rows],
                condition,
                constraints=constraints.select(rows),
                on_step=on_step and partial(report_step, on_step, numbers),
            )
            for i, outputs in zip(rows, decoded, strict=True):
                hypotheses[i] = outputs
            report(len(numbers))
    finally:
        if training:
            model.train()
    return hypotheses


class Lot(NamedTuple):
    """Prompts that are decoded together."""

    numbers: list[int]  # of these prompts among all
    rows: list[int]  # the number of the prompt in each row of the batch
    batch: Batch
    condition: Condition


def read_ahead(
    model: Decoder,
    prompts: Sequence[Example],
    lots: Iterable[list[int]],
    conditions: Conditions | None,
) -> Iterator[Lot]:
    """Lay out and encode prompts, batch by batch; on a GPU a thread is one batch ahead."""

    @torch.inference_mode()
    def read(numbers: list[int]) -> Lot:
        batch, order = lay_out(model, [prompts[i] for i in numbers])
        rows = [numbers[i] for i in order]
        condition = conditions(batch, rows) if conditions else model.condition(batch)
        return Lot(numbers, rows, batch, condition)

    # autocast is of one thread
    if not on_grid(model) or torch.is_autocast_enabled(model.device.type):
        yield from map(read, lots)
        return
    with ThreadPoolExecutor(1) as thread:
        later = None
        for numbers in lots:
            ready = later
            later = thread.submit(read, numbers)
            if ready is not None:
                yield ready.result()
        if later is not None:
            yield later.result()


def lay_out(model: Decoder, prompts: Sequence[Example]) -> tuple[Batch, list[int]]:
    """A batch of prompts on the model's device, and which of them each of its rows holds."""
    batch = fill_up(prompts) if on_grid(model) else collate([[prompt] for prompt in prompts])
    rows = [min(row, len(prompts) - 1) for row in range(len(batch.last))]
    return batch.to(model.device), rows


def check_phrases(config: GenerateConfig, constraints: Sequence[Constraint]) -> None:
    """Raise `UsageError` for phrases that the kind of search cannot enforce."""
    if config.sampling or config.diverse_beam_groups > 1:
        phrases = any(constraint.phrases for constraint in constraints)
        require(not phrases, "--constraints are for a search without --sampling and groups")


@torch.inference_mode()
def decode(
    model: Decoder,
    batch: Batch,
    protocol: Protocol,
    config: GenerateConfig,
    numbers: Sequence[int] = (),
    condition: Condition | None = None,
    *,
    constraints: Constraints | None = None,
    on_step: Callable[[Search, Tensor], None] | None = None,
) -> list[list[Hypothesis]]:
    """The n best outputs of each row of a batch of prompts, on the model's device.

    `numbers` are the rows' numbers among all inputs, which seed their draws. Without `condition`,
    the model computes it from the batch. After each step, `on_step` is called with the search and
    the numbers of the rows that it still holds.
    """
    constraints = constraints or Constraints.plain(config, len(batch.last))
    reader = PromptReader(model, batch, protocol, config, condition, max_len=constraints.max_len)
    seeds = [(config.seed, number) for number in numbers]
    running = RunningSearch(reader, reader.request(constraints, seeds))
    hypotheses: list[list[Hypothesis]] = [[] for _ in batch.last]
    while len(running.rows):
        for row, outputs in running.step(on_step):
            hypotheses[row] = outputs
    return hypotheses


class RunningSearch:
    """A search over a batch of prompts, which its caller runs step by step.

    `rows` are the numbers of the prompts in the rows of the batch: several rows may hold the same
    prompt. By default, row i holds prompt i.
    """

    def __init__(self, reader: PromptReader, request: Request, rows: Sequence[int] = ()) -> None:
        self.model = reader.model  # a reference: recorded work has only a weak one
        self.work = Work(reader, start(request))
        self.grid = reader.grid
        self.recordings = recordings(reader.model, request.config.capture)
        device = reader.homes.device
        self.rows = torch.tensor(rows or range(len(reader.homes)), device=device)
        """[B] the prompts of the rows that are still computed, more than half of them open."""
        self.returned = torch.zeros(len(self.rows), dtype=torch.bool, device=device)
        """[B] which of these rows are finished and were returned by `step`."""
        self.check_every = CHECK_EVERY.get(device.type, 8)

    @torch.inference_mode()
    def step(
        self, on_step: Callable[[Search, Tensor], None] | None = None
    ) -> list[tuple[int, list[Hypothesis]]]:
        """Write a word of every hypothesis; returns the rows that finish, each with its outputs.

        After the words are chosen, `on_step` is called with the search and the rows that are held.
        """
        if self.recordings is not None and self.work.steps and self.work.recorded is None:
            self.work = self.recordings.adopt(self.work)
        self.work.step()
        search = self.work.search
        if on_step is not None:
            on_step(search, self.rows)
        # to know which rows are finished, the host waits for the device
        if self.work.steps % self.check_every and self.work.steps != search.max_steps:
            return []
        finished = list[tuple[int, list[Hypothesis]]]()
        over = ~search.open()
        fresh = (over & ~self.returned).nonzero()[:, 0]
        if len(fresh):
            finished += zip(self.rows[fresh].tolist(), search.results(fresh), strict=True)
            self.returned = over
        left = (~over).nonzero()[:, 0]
        if 2 * len(left) <= len(self.rows):  # dropping the others pays for the copy
            self._keep(left)
        return finished

    def _keep(self, left: Tensor) -> None:
        """Go on with some rows only, or with none."""
        work = self.work
        if len(left):
            if self.grid:  # repeat the last row up to a size of the grid
                number = torch.arange(round_to_grid(len(left)), device=left.device)
                left = left[number.clamp(max=len(left) - 1)]
            self.work = work.select(left)
        self.rows = self.rows[left]
        self.returned = self.returned[left]
        if self.recordings is not None:
            self.recordings.give_back(work)

    @torch.inference_mode()
    def drop(self, numbers: Sequence[int]) -> None:
        """Close the rows of these prompts without outputs; they leave with the next that end."""
        dropped = torch.isin(self.rows, torch.tensor(numbers, device=self.rows.device))
        self.returned = self.returned | dropped
        self.work.search.close(dropped)

    def partial_output(self, number: int) -> Hypothesis:
        """The words so far of the best open hypothesis of a prompt."""
        state = self.work.search.state
        words = self.work.steps
        row = int((self.rows == number).nonzero()[0, 0])
        ids = state.written[row, 0, :words].cpu().numpy()
        gains = state.gain[row, 0, :words].cpu().numpy()
        total = exact_sum(gains)
        return Hypothesis(ids.copy(), total / words, total, gains.copy())
