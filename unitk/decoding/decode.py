"""Decoding: feed a task's prompts and words to the model, and let the search choose the next words.

Keys of the prompt and of an encoder are stored once per input; its K hypotheses are K queries of
one row. Columns of words are only appended. A bool table of ancestors, which follows the
back-pointers, marks the columns that belong to each hypothesis. In the slot protocol, a probe
stands after the word it follows, and the next word overwrites it. No task code runs within a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from unitk import masks
from unitk.decoding.config import GenerateConfig, length
from unitk.decoding.constraints.base import Constraint, Constraints, word_rules
from unitk.decoding.constraints.searches import OnStep, report_step, start
from unitk.decoding.drivers import DIFFUSION, Driver, Prompt, Running, Watcher
from unitk.decoding.fit import batches, check_places, round_up
from unitk.decoding.search import Hypothesis, Request, Search, longest
from unitk.errors import require
from unitk.kernels.capture import STEPS, Recorded
from unitk.models.base import Decoder
from unitk.models.state import Condition, put
from unitk.registry import register
from unitk.slots import (
    BORN,
    CROSS,
    DIES,
    DOC,
    NEVER,
    NOW,
    POS,
    POS2,
    TOKEN,
    Batch,
    Example,
    Protocol,
    collate,
)

Conditions = Callable[[Batch, Sequence[int]], Condition]
"""From a batch of prompts, and their numbers among all, to what enters the model beside them."""

LOOK = {"cpu": 1}
"""Steps between two looks at what is finished; elsewhere a look makes the host wait."""


@register("driver", "steps")
@dataclass(frozen=True)
class Steps(Driver):
    """A word at a time: a search, or sampling."""

    protocol: Protocol

    def outputs(
        self, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
    ) -> list[list[Hypothesis]]:
        return generate(
            self.model,
            [one.example for one in prompts],
            self.protocol,
            config,
            watch.report,
            constraints=self.constraints(prompts, config),
            inputs=[one.number for one in prompts],
            on_step=watch.on_step,
        )

    @torch.inference_mode()
    def begin(self, prompts: Sequence[Prompt], config: GenerateConfig) -> Running:
        constraints = self.constraints(prompts, config)
        batch = collate([[one.example] for one in prompts]).to(self.model.device)
        reader = Reader(self.model, batch, self.protocol, config, max_len=constraints.max_len)
        return RunningSearch(reader, reader.request(constraints, [one.number for one in prompts]))

    def constraints(self, prompts: Sequence[Prompt], config: GenerateConfig) -> Constraints:
        """What the options and the prompts demand of outputs; UsageError for what has no effect."""
        config.idle(f"has no effect: task {self.task.name} does not diffuse", *DIFFUSION)
        if len(self.model.members) > 1 and not config.sampling:
            require(config.temperature == 1, "--temperature in a search is for one model")
        each = [one.constraint for one in prompts]
        check_phrases(config, each)
        return Constraints(each, word_rules(config, self.task.vocab))


def generate(
    model: Decoder,
    prompts: Sequence[Example],
    protocol: Protocol,
    config: GenerateConfig,
    report: Callable[[int], None] = lambda done: None,
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
    check_phrases(config, constraints.each)
    for number, (prompt, one) in enumerate(zip(prompts, constraints.each, strict=True)):
        check_places(prompt, protocol, one.max_len, model.config, f"prompt {number + 1}")
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    training = model.training  # it is given back as it was
    model.eval()
    try:
        most = [one.max_len for one in constraints.each]
        for numbers in batches(prompts, config.max_tokens, most, config.width):
            batch = collate([[prompts[i]] for i in numbers]).to(model.device)
            given = conditions(batch, numbers) if conditions else None
            some = constraints.select(numbers)
            named = [inputs[i] for i in numbers]
            stepped = on_step and partial(report_step, on_step, numbers)
            decoded = decode(
                model, batch, protocol, config, named, given, constraints=some, on_step=stepped
            )
            for i, outputs in zip(numbers, decoded, strict=True):
                found[i] = outputs
            report(len(numbers))
    finally:
        model.train(training)
    return found


def check_phrases(config: GenerateConfig, each: Sequence[Constraint]) -> None:
    """Raise `UsageError` for phrases that the kind of search cannot enforce."""
    if config.sampling or config.diverse_beam_groups > 1:
        asked = any(one.phrases for one in each)
        require(not asked, "--constraints are for a search without --sampling and groups")


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
    reader = Reader(model, batch, protocol, config, condition, max_len=constraints.max_len)
    running = RunningSearch(reader, reader.request(constraints, numbers))
    found: list[list[Hypothesis]] = [[] for _ in batch.last]
    while len(running.rows):
        for row, outputs in running.step(on_step):
            found[row] = outputs
    return found


class RunningSearch:
    """A search over a batch of prompts, which is taken on step by step."""

    def __init__(self, reader: Reader, request: Request) -> None:
        self.reader, self.search = reader, start(request)
        device = reader.homes.device
        self.rows = torch.arange(len(reader.homes), device=device)
        """The numbers of the rows that are held: open ones, and less than as many finished ones."""
        self.told = torch.zeros(len(self.rows), dtype=torch.bool, device=device)
        """[B] which of them are finished."""
        self.look = LOOK.get(device.type, 8)
        self.logits_RV = reader.model.head(reader.read_prompt())

    @torch.inference_mode()
    def step(
        self, on_step: Callable[[Search, Tensor], None] | None = None
    ) -> list[tuple[int, list[Hypothesis]]]:
        """Write a word of every hypothesis; returns the rows that finish, each with its outputs.

        After the words are chosen, `on_step` is called with the search and the rows that are held.
        """
        search, found = self.search, list[tuple[int, list[Hypothesis]]]()
        back, token, place = search.extend(self.logits_RV)
        if on_step is not None:
            on_step(search, self.rows)
        if search.steps % self.look == 0 or search.steps == search.most:
            over = ~search.open()
            fresh = (over & ~self.told).nonzero()[:, 0]
            if len(fresh):
                found = list(zip(self.rows[fresh].tolist(), search.results(fresh), strict=True))
                self.told = over
            left = (~over).nonzero()[:, 0]
            if 2 * len(left) <= len(self.rows):  # it pays to go on with these only
                self.rows, self.told, back, token, place = (
                    part[left] for part in (self.rows, self.told, back, token, place)
                )
                if not len(left):
                    return found
                search.select(left)
                self.reader.select(left)
        self.logits_RV = self.reader.model.head(self.reader.read(back, token, place))
        return found

    @torch.inference_mode()
    def drop(self, numbers: Sequence[int]) -> None:
        """Let rows finish without outputs, by number; they leave with those that finish next."""
        gone = torch.isin(self.rows, torch.tensor(numbers, device=self.rows.device))
        self.told = self.told | gone
        self.search.close(gone)


class Reader:
    """Feeds the model: first the prompts, then one word of every hypothesis per step.

    There are B inputs with K hypotheses each. The cache has the columns of the prompt, then K
    columns a step, then K for probes if the protocol has them.
    """

    def __init__(
        self,
        model: Decoder,
        batch: Batch,
        protocol: Protocol,
        config: GenerateConfig,
        condition: Condition | None = None,
        *,
        max_len: int | None = None,
    ) -> None:
        alike = model.config.static_steps or not config.capture
        require(alike, "--capture excludes xlnet_* and LSTMs, whose steps cannot be recorded")
        assert not batch.blanks.shape[1] or (protocol.begin is not None and protocol.probe is None)
        self.model, self.protocol, self.config = model, protocol, config
        self.beam, self.num_blanks = config.width, batch.num_blanks
        self.prompt = _prompt(batch, trim=not config.capture)
        _, rows, self.width = self.prompt.shape
        device = self.prompt.device
        asking = 0 if protocol.probe is None else 1
        max_len = max_len or length(config.max_len, 0)
        most = longest(batch.blanks.shape[1], max_len) - 1  # the last `end` is never read
        total = round_up(self.width + self.beam * (most + asking))
        self.condition = model.condition(batch) if condition is None else condition
        self.cache = model.new_cache(rows, total, condition=self.condition)
        self.at = self.width
        self.recorded: dict[int, Recorded] | None = {} if config.capture else None
        self.first_read = batch.last[:, None]  # states of the other prompt slots are not needed
        self.first = self.prompt[:, torch.arange(rows, device=device), batch.last]
        self.homes = torch.cat([self.first[[POS, POS2]].T[:, None], batch.blanks], 1)
        kept = (self.prompt[DIES] == NEVER) & (self.prompt[BORN] < NEVER)
        kept &= self.prompt[DOC] == self.first[DOC][:, None]
        # which columns are a hypothesis' own: the prompt, its ancestors, its last word
        self.mine = torch.zeros((rows, self.beam, total), dtype=torch.bool, device=device)
        self.mine[:, :, : self.width] = kept[:, None]
        self.itself = torch.eye(self.beam, dtype=torch.bool, device=device)  # not its rivals
        self.columns = self._columns()

    def _columns(self) -> Tensor:
        """The slots of a step, [9, B, K] or [9, B, 2K] with probes, except token, place, time."""
        words: Tensor = self.first[:, :, None].repeat(1, 1, self.beam)
        words[NOW : BORN + 1] = self.prompt[NOW].amax(1)[:, None]
        words[DIES], words[CROSS] = NEVER, 1
        if self.protocol.probe is None:
            return words
        probes = words.clone()
        words[NOW : BORN + 1] -= 1  # a word comes one tick before its probe
        probes[TOKEN], probes[DIES], probes[CROSS] = self.protocol.probe, probes[NOW], 0
        return torch.cat([words, probes], 2)

    def request(self, constraints: Constraints, numbers: Sequence[int]) -> Request:
        """The search that chooses what is read; `numbers` seed the draws of its rows."""
        homes, blanks = self.homes, self.num_blanks
        return Request(homes, blanks, self.protocol, self.config, constraints, numbers)

    def read_prompt(self) -> Tensor:
        """Read the prompts; returns the states [B, D] of the slots that predict the first words."""
        sight = masks.dense(self.prompt, self.prompt)
        states = self.model.step(self.prompt, sight, self.condition, self.cache, 0, self.first_read)
        return states[:, 0]

    def read(self, back: Tensor, token: Tensor, place: Tensor) -> Tensor:
        """Read the chosen words; returns the states [B * K, D] that predict the next ones.

        `back` [B, K] is the hypothesis that each one continues, `token` [B, K] the word to read,
        and `place` [B, K, 2] the positions of the slot that predicts the next word.
        """
        stop = self.at + self.columns.shape[2]
        if self.recorded is None:
            states = self._read(back, token, place, self.at, round_up(stop))
        else:
            span = STEPS * self.beam
            until = round_up(self.width + -(-(stop - self.width) // span) * span)
            until = min(until, self.mine.shape[2])
            step = self.recorded.setdefault(until, Recorded(partial(self._read, until=until)))
            states = step(back, token, place, torch.full_like(back[0, :1], self.at))
        self.at += self.beam
        return states

    def _read(
        self, back: Tensor, token: Tensor, place: Tensor, at: int | Tensor, until: int
    ) -> Tensor:
        """Read words into the columns from `at` on; they see the columns [0, until)."""
        beam, protocol = self.beam, self.protocol
        self.cache.follow(back)  # keys and values stay; `mine` tells whose they are
        own = self.mine[:, :, self.width : until]
        own.copy_(own.gather(1, back[..., None].expand_as(own)))
        itself = self.itself.expand(len(token), -1, -1)
        put(self.mine, 2, at, itself)
        self.columns[TOKEN, :, :beam] = token
        self.columns[POS : POS2 + 1, :, -beam:] = place.movedim(2, 0)
        sight = self.mine[:, :, :until]
        asked = None
        if protocol.probe is None:
            self.columns[NOW : BORN + 1] += 1
        else:
            # the word takes the place of the probe that asked for it
            self.columns[POS, :, :beam] = place[..., 0] - protocol.dpos
            self.columns[POS2, :, :beam] = place[..., 1] - protocol.dpos2
            self.columns[NOW : BORN + 1] += 2
            self.columns[DIES, :, beam:] += 2
            probes = sight.clone()
            put(probes, 2, at + beam, torch.zeros_like(itself) if protocol.unseen else itself)
            sight = torch.cat([sight, probes], 1)
            asked = torch.arange(beam, 2 * beam, device=token.device).expand(len(token), -1)
        states = self.model.step(self.columns, sight, self.condition, self.cache, at, asked)
        return states.flatten(0, 1)

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        if self.recorded is not None:
            self.recorded = {}  # all tables move
        self.cache = self.cache.select(rows)
        self.mine = self.mine.index_select(0, rows)
        self.columns = self.columns.index_select(1, rows)
        if self.condition is not None:
            self.condition = self.condition.select(rows)


def _prompt(batch: Batch, *, trim: bool) -> Tensor:
    """The prompts [9, B, T]; with `trim`, on a CPU, without columns that pad all rows."""
    prompt: Tensor = batch.towers[batch.decoded]
    if not trim or prompt.device.type != "cpu":
        return prompt
    used = (prompt[BORN] < NEVER).any(0).nonzero().amax()
    return prompt[:, :, : int(used.maximum(batch.last.amax())) + 1]
