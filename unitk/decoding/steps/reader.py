"""Feeds a model word by word with the slots that a protocol defines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unitk import masks
from unitk.decoding.config import GenerateConfig, length
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.fit import round_up
from unitk.decoding.search import Request, longest
from unitk.kernels.capture import on_grid
from unitk.models.base import Decoder
from unitk.models.state import Condition, put
from unitk.slots import BORN, CROSS, DIES, DOC, NEVER, NOW, POS, POS2, TOKEN, Batch, Protocol

STEPS = 32
"""If steps are recorded, one recording serves this many steps, which see the same columns."""


class PromptReader:
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
        assert not batch.blanks.shape[1] or (protocol.begin is not None and protocol.probe is None)
        self.model = model
        self.protocol = protocol
        self.config = config
        self.beam = config.width
        self.num_blanks = batch.num_blanks
        self.grid = on_grid(model)
        self.prompt = _prompt(batch, trim=not self.grid)
        _, rows, self.width = self.prompt.shape
        device = self.prompt.device
        asking = 0 if protocol.probe is None else 1
        max_len = max_len or length(config.max_len, 0)
        reads = longest(batch.blanks.shape[1], max_len) - 1  # the last `end` is never read
        if self.grid:
            reads = -(-reads // STEPS) * STEPS
        self.max_steps = reads + 1
        total = round_up(self.width + self.beam * (reads + asking))
        self.condition = model.condition(batch) if condition is None else condition
        self.cache = model.new_cache(rows, total, condition=self.condition)
        self.at: int | Tensor = self.width
        """The next column to write; a tensor [1] on the device if steps are recorded."""
        self.reads = 0  # words of a hypothesis that were read
        self.first_read = batch.last[:, None]  # states of the other prompt slots are not needed
        self.first = self.prompt[:, torch.arange(rows, device=device), batch.last]
        self.homes = torch.cat([self.first[[POS, POS2]].T[:, None], batch.blanks], 1)
        kept = (self.prompt[DIES] == NEVER) & (self.prompt[BORN] < NEVER)
        kept &= self.prompt[DOC] == self.first[DOC][:, None]
        # [B, K, columns] what a hypothesis sees: the prompt, its ancestors, its last word
        self.mine = torch.zeros((rows, self.beam, total), dtype=torch.bool, device=device)
        self.mine[:, :, : self.width] = kept[:, None]
        self.itself = torch.eye(self.beam, dtype=torch.bool, device=device)  # not the others
        self.columns = self._columns()

    def _columns(self) -> Tensor:
        """The slots of a step, [9, B, K] or [9, B, 2K] with probes, except token, place, time."""
        words: Tensor = self.first[:, :, None].repeat(1, 1, self.beam)
        words[NOW : BORN + 1] = self.prompt[NOW].amax(1)[:, None]
        words[DIES] = NEVER
        words[CROSS] = 1
        if self.protocol.probe is None:
            return words
        probes = words.clone()
        words[NOW : BORN + 1] -= 1  # a word comes one tick before its probe
        probes[TOKEN], probes[DIES], probes[CROSS] = self.protocol.probe, probes[NOW], 0
        return torch.cat([words, probes], 2)

    def request(self, constraints: Constraints, seeds: Sequence[Sequence[int]]) -> Request:
        """The request for a search over the rows of the batch; `seeds` are those of their draws."""
        homes, blanks = self.homes, self.num_blanks
        return Request(
            homes, blanks, self.protocol, self.config, constraints, seeds, self.max_steps
        )

    def read_prompt(self) -> Tensor:
        """Read the prompts; returns the states [B, D] of the slots that predict the first words."""
        sight = masks.dense(self.prompt, self.prompt)
        states = self.model.step(self.prompt, sight, self.condition, self.cache, 0, self.first_read)
        return states[:, 0]

    def next_window(self) -> int:
        """Count a word of each hypothesis that is to be read; returns how many columns it sees.

        The number is the same for `STEPS` recorded steps.
        """
        own = self.reads * self.beam + self.columns.shape[2]
        self.reads += 1
        if self.grid:
            span = STEPS * self.beam
            own = -(-own // span) * span
        return min(round_up(self.width + own), self.mine.shape[2])

    def read(self, until: int, back: Tensor, token: Tensor, position: Tensor) -> Tensor:
        """Read the chosen words; returns the states [B * K, D] that predict the next ones.

        The words come into the next columns and see the columns [0, until) (`next_window`). `back`
        [B, K] is the hypothesis that each one continues, `token` [B, K] the word to read, and
        `position` [B, K, 2] the positions of the slot that predicts the next word.
        """
        beam, protocol = self.beam, self.protocol
        at = word_at = self.at
        probe_at = at + beam
        if isinstance(at, Tensor):  # a recorded step writes to columns by their numbers
            at = at + torch.arange(self.columns.shape[2], device=at.device)
            word_at = at[:beam]
            probe_at = at[beam:]
        self.cache.follow(back)  # keys and values stay in place: `mine` selects them
        own = self.mine[:, :, self.width : until]
        own.copy_(own.gather(1, back[..., None].expand_as(own)))
        itself = self.itself.expand(len(token), -1, -1)
        put(self.mine, 2, word_at, itself)
        self.columns[TOKEN, :, :beam] = token
        self.columns[POS : POS2 + 1, :, -beam:] = position.movedim(2, 0)
        sight = self.mine[:, :, :until]
        asked = None
        if protocol.probe is None:
            self.columns[NOW : BORN + 1] += 1
        else:
            # the word takes the place of the probe that asked for it
            self.columns[POS, :, :beam] = position[..., 0] - protocol.dpos
            self.columns[POS2, :, :beam] = position[..., 1] - protocol.dpos2
            self.columns[NOW : BORN + 1] += 2
            self.columns[DIES, :, beam:] += 2
            probes = sight.clone()
            put(probes, 2, probe_at, torch.zeros_like(itself) if protocol.unseen else itself)
            sight = torch.cat([sight, probes], 1)
            asked = torch.arange(beam, 2 * beam, device=token.device).expand(len(token), -1)
        states = self.model.step(self.columns, sight, self.condition, self.cache, at, asked)
        self.at += beam
        return states.flatten(0, 1)

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
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
