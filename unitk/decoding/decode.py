"""Drives a task's protocol: reads prompts, then words, and lets the search choose what comes next.

The keys of the prompt, and of an encoder, are stored once per input, and its K hypotheses are K
queries of one row. Their own columns are only ever appended; a bool table of ancestors, which
follows the back-pointers, tells each hypothesis which of them are its own. A probe (slot protocol)
stands right after the word it follows and is overwritten by the next word: it leaves no trace. No
task code runs in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from unitk import masks
from unitk.decoding.capture import STEPS, Recorded
from unitk.decoding.config import GenerateConfig, length
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.constraints.constrained import Constrained
from unitk.decoding.constraints.diverse import Diverse
from unitk.decoding.sample import Sampling
from unitk.decoding.search import Hypothesis, Request, Search, longest
from unitk.errors import DataError, UsageError, require
from unitk.models.cache import put
from unitk.models.condition import Condition
from unitk.models.config import ModelConfig
from unitk.models.stack import Model
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
    WIDTH,
    Batch,
    Example,
    Protocol,
    collate,
)

Conditions = Callable[[Batch, Sequence[int]], Condition]
"""From a batch of prompts, and their numbers among all, to what enters the model beside them."""

LOOK = {"cpu": 1}
"""Steps between two looks at what is finished; elsewhere a look makes the host wait."""


def generate(
    model: Model,
    prompts: Sequence[Example],
    protocol: Protocol,
    config: GenerateConfig,
    report: Callable[[int], None] = lambda done: None,
    conditions: Conditions | None = None,
    *,
    constraints: Constraints | None = None,
    inputs: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The n best outputs for each prompt, in the order of the prompts.

    Which prompts share a batch changes nothing but rounding. `report` hears how many are done.
    `conditions` makes what enters beside the prompts, if the model shall not make it of them.
    `constraints` are one for each prompt; those of the config if there are none. `inputs` are what
    draws are seeded with, one for each prompt; its number here if there are none.
    """
    constraints = constraints or Constraints.plain(config, len(prompts))
    inputs = range(len(prompts)) if inputs is None else inputs
    if config.sampling or config.diverse_beam_groups > 1:
        asked = any(one.phrases for one in constraints.each)
        require(not asked, "--constraints are for a search without --sampling and groups")
    for number, (prompt, one) in enumerate(zip(prompts, constraints.each, strict=True)):
        check_places(prompt, protocol, one.max_len, model.config, f"prompt {number + 1}")
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    try:
        for numbers in batches(prompts, config, constraints):
            batch = collate([[prompts[i]] for i in numbers]).to(device)
            given = conditions(batch, numbers) if conditions else None
            some = constraints.select(numbers)
            named = [inputs[i] for i in numbers]
            decoded = decode(model, batch, protocol, config, named, given, constraints=some)
            for i, outputs in zip(numbers, decoded, strict=True):
                found[i] = outputs
            report(len(numbers))
    finally:
        model.train(training)
    return found


def batches(
    prompts: Sequence[Example], config: GenerateConfig, constraints: Constraints | None = None
) -> Iterator[list[int]]:
    """Numbers of prompts that are decoded together: of like length, within `--max-tokens`."""
    constraints = constraints or Constraints.plain(config, len(prompts))
    size = [
        (len(p.blanks), max(len(tower) for tower in p.towers.values()), one.max_len)
        for p, one in zip(prompts, constraints.each, strict=True)
    ]
    numbers: list[int] = []
    most = (0, 0, 0)  # blanks, slots, words
    for i in sorted(range(len(prompts)), key=size.__getitem__, reverse=True):
        blanks, slots, words = (max(pair) for pair in zip(most, size[i], strict=True))
        most = blanks, slots, words
        columns = _round_up(slots) + config.width * longest(blanks, words)
        if numbers and (len(numbers) + 1) * columns > config.max_tokens:
            yield numbers
            numbers, most = [], size[i]
        numbers.append(i)
    if numbers:
        yield numbers


def check_places(
    prompt: Example,
    protocol: Protocol,
    max_len: int,
    config: ModelConfig,
    name: str,
    fits: int = 0,
) -> None:
    """Refuse what would leave the model's position tables, before anything is decoded.

    A source of `fits` tokens, if this is known and above 0, would not be refused.
    """
    pos, pos2 = overrun(prompt, protocol, max_len, config)
    if pos2 > 0:
        at_most = max_len - -(-pos2 // protocol.dpos2) if protocol.dpos2 else 0
        raise UsageError(
            f"--max-len {max_len} is more than this model's {config.max_positions2} second "
            f"positions allow: at most {at_most}"
        )
    if pos > 0:
        wish = f" with --max-len {max_len}" if protocol.dpos else ""
        raise DataError(
            f"{name} is too long{wish} by {pos} for the {config.max_positions} positions of this "
            f"model; --truncate{f' or --max-source-len {fits}' * (fits > 0)} shortens its last part"
        )


def overrun(
    prompt: Example, protocol: Protocol, max_len: int, config: ModelConfig
) -> tuple[int, int]:
    """By how much decoding may pass the end of the two position tables (at most 0: it fits)."""
    over = []
    homes = _homes(prompt)
    strides = (protocol.dpos, protocol.dpos2)
    ends = homes.max(axis=0) + np.multiply(strides, max_len)
    for field, axis, name in ((POS, 0, "max_positions"), (POS2, 1, "max_positions2")):
        found = []
        for tower, slots in prompt.towers.items():
            last = int(slots.table[field].max())
            last = last if tower == "enc" else max(last, int(ends[axis]))
            if rows := getattr(config.tower(tower), name):
                found.append(last + 1 - rows)
        over.append(max(found, default=0))
    return over[0], over[1]


def _homes(prompt: Example) -> np.ndarray:
    """[M + 1, 2] (pos, pos2) of the slot that is read first in each blank."""
    tower = prompt.towers[prompt.decoded]
    return np.concatenate([tower.table[[POS, POS2], -1:].T, prompt.blanks])


@torch.inference_mode()
def decode(
    model: Model,
    batch: Batch,
    protocol: Protocol,
    config: GenerateConfig,
    numbers: Sequence[int] = (),
    condition: Condition | None = None,
    *,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """The n best outputs of each row of a batch of prompts, which is on the model's device.

    `numbers` are the rows' numbers among all inputs: what their draws are seeded with. A
    `condition` that is not given is made of the batch.
    """
    assert not batch.blanks.shape[1] or (protocol.begin is not None and protocol.probe is None)
    constraints = constraints or Constraints.plain(config, len(batch.last))
    reader = Reader(model, batch, protocol, config, condition, max_len=constraints.max_len)
    request = Request(reader.homes, batch.num_blanks, protocol, config, constraints, numbers)
    search = start(request)
    rows = torch.arange(len(reader.homes), device=reader.homes.device)
    found: list[list[Hypothesis]] = [[] for _ in rows]
    look = LOOK.get(rows.device.type, 8)
    logits_RV = model.head(reader.read_prompt())
    while True:
        back, token, place = search.extend(logits_RV)
        if search.steps % look == 0 or search.steps == search.most:
            left = search.open().nonzero()[:, 0]
            if 2 * len(left) <= len(rows):  # it pays to go on with these only
                for row, outputs in zip(rows.tolist(), search.results(), strict=True):
                    found[row] = outputs
                if not len(left):
                    return found
                rows, back, token, place = rows[left], back[left], token[left], place[left]
                search.select(left)
                reader.select(left)
        logits_RV = model.head(reader.read(back, token, place))


def start(request: Request) -> Search:
    """The kind of search that the options and the constraints need."""
    if request.config.sampling:
        return Sampling(request)
    if request.config.diverse_beam_groups > 1:
        return Diverse(request)
    phrases = any(one.phrases for one in request.constraints.each)
    return Constrained(request) if phrases else Search(request)


class Reader:
    """Feeds the model: the prompts once, then a word of every hypothesis at a time.

    B inputs, K hypotheses each; the cache's columns are the prompt's, then K a step, then K for
    probes if the protocol has them.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        protocol: Protocol,
        config: GenerateConfig,
        condition: Condition | None = None,
        *,
        max_len: int | None = None,
    ) -> None:
        self.model, self.protocol, self.beam = model, protocol, config.width
        self.prompt = _prompt(batch, trim=not config.capture)
        _, rows, self.width = self.prompt.shape
        device = self.prompt.device
        asking = 0 if protocol.probe is None else 1
        max_len = max_len or length(config.max_len, 0)
        most = longest(batch.blanks.shape[1], max_len) - 1  # the last `end` is never read
        total = _round_up(self.width + self.beam * (most + asking))
        self.condition = model.condition(batch) if condition is None else condition
        self.cache = model.new_cache(rows, total, condition=self.condition)
        self.at = self.width
        self.recorded: dict[int, Recorded] | None = {} if config.capture else None
        self.first_read = batch.last[:, None]
        self.first = self.prompt[:, torch.arange(rows, device=device), batch.last]
        self.homes = torch.cat([self.first[[POS, POS2]].T[:, None], batch.blanks], 1)
        kept = (self.prompt[DIES] == NEVER) & (self.prompt[BORN] < NEVER)
        kept &= self.prompt[DOC] == self.first[DOC][:, None]
        # which columns are a hypothesis' own: the prompt, its ancestors, its last word
        self.mine = torch.zeros((rows, self.beam, total), dtype=torch.bool, device=device)
        self.mine[:, :, : self.width] = kept[:, None]
        self.itself = torch.eye(self.beam, dtype=torch.bool, device=device)
        self.columns = self._columns()

    def _columns(self) -> Tensor:
        """What a step reads, [9, B, K] words and as many probes, but for token, place and time."""
        words: Tensor = self.first[:, :, None].repeat(1, 1, self.beam)
        words[NOW : BORN + 1] = self.prompt[NOW].amax(1)[:, None]
        words[DIES], words[CROSS] = NEVER, 1
        if self.protocol.probe is None:
            return words
        probes = words.clone()
        words[NOW : BORN + 1] -= 1  # a word comes one tick before its probe
        probes[TOKEN], probes[DIES], probes[CROSS] = self.protocol.probe, probes[NOW], 0
        return torch.cat([words, probes], 2)

    def read_prompt(self) -> Tensor:
        """The states [B, D] at the slots that are read first."""
        sight = masks.dense(self.prompt, self.prompt)
        asked = self.first_read
        states = self.model.step(self.prompt, sight, self.condition, self.cache, 0, asked)
        return states[:, 0]

    def read(self, back: Tensor, token: Tensor, place: Tensor) -> Tensor:
        """The states [B * K, D] that the next words are asked at.

        [B, K]: the hypothesis each one continues, the token read, and [B, K, 2] the place of the
        slot that asks for the next word.
        """
        stop = self.at + self.columns.shape[2]
        if self.recorded is None:
            states = self._read(back, token, place, self.at, _round_up(stop))
        else:
            span = STEPS * self.beam
            until = _round_up(self.width + -(-(stop - self.width) // span) * span)
            until = min(until, self.mine.shape[2])
            step = self.recorded.setdefault(until, Recorded(partial(self._read, until=until)))
            states = step(back, token, place, torch.full_like(back[0, :1], self.at))
        self.at += self.beam
        return states

    def _read(
        self, back: Tensor, token: Tensor, place: Tensor, at: int | Tensor, until: int
    ) -> Tensor:
        """Read at column `at`, seeing the columns [0, until)."""
        beam, protocol = self.beam, self.protocol
        self.cache.follow(back)
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
            put(probes, 2, at + beam, itself)
            sight = torch.cat([sight, probes], 1)
            asked = torch.arange(beam, 2 * beam, device=token.device).expand(len(token), -1)
        states = self.model.step(self.columns, sight, self.condition, self.cache, at, asked)
        return states.flatten(0, 1)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch only."""
        if self.recorded is not None:
            self.recorded = {}  # all tables move
        self.cache = self.cache.select(rows)
        self.mine = self.mine.index_select(0, rows)
        self.columns = self.columns.index_select(1, rows)
        if self.condition is not None:
            self.condition = self.condition.select(rows)


def _prompt(batch: Batch, *, trim: bool) -> Tensor:
    """The prompts [9, B, T]; on CPU without columns that are pads in every row, if wished."""
    prompt: Tensor = batch.towers[batch.decoded]
    if not trim or prompt.device.type != "cpu":
        return prompt
    used = (prompt[BORN] < NEVER).any(0).nonzero().amax()
    return prompt[:, :, : int(used.maximum(batch.last.amax())) + 1]


def _round_up(columns: int) -> int:
    return -(-columns // WIDTH) * WIDTH
