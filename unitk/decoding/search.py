"""Beam search and sampling as tensors: open hypotheses, their words, and the pool of finished ones.

Of the 2K best continuations of an input's K hypotheses, an `end` counts only among the first K; the
K best others stay open. The length of a hypothesis counts its words and every end symbol. At
`--max-len` words, only `end` can follow. Greedy decoding is a beam of 1. A `SearchPreset` may
change each of these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.config import SEARCH_PRESETS, GenerateConfig
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.constraints.rules import Rules, tabulate_phrases
from unitk.errors import NonFiniteError, UsageError
from unitk.models.state import put
from unitk.slots import Floats, Ids, Protocol, exact_sum

BLOCK = 128  # words among which `best` looks for a maximum first


@dataclass(frozen=True)
class Hypothesis:
    """One output: its words with an end symbol after each blank, and their scores."""

    ids: Ids
    score: float  # log_prob / length ** lenpen, or as the search preset defines it
    log_prob: float
    token_log_probs: Floats


@dataclass(frozen=True)
class Request:
    """The inputs of a search over B sources."""

    homes: Tensor  # [B, M + 1, 2] (pos, pos2) of the slot that is read first in each blank
    num_blanks: Tensor  # [B] blanks beyond the first one
    protocol: Protocol
    config: GenerateConfig
    constraints: Constraints
    seeds: Sequence[Sequence[int]] = ()  # of the draws of each input
    max_steps: int = 0  # words to make room for, if more than the longest output has


@dataclass
class State:
    """The whole state of a search over B inputs; row b of each tensor belongs to input b."""

    homes: Tensor  # [B, M + 1, 2] (pos, pos2) of the slot that is read first in each blank
    last_blank: Tensor  # [B, 1] the number of the last blank
    least: Tensor  # [B, 1] words that a blank needs
    apart: Tensor  # [B, 1] 1 if outputs must not continue a word of the source
    limit: Tensor  # [B, 1] words that a blank may have
    prefix: Tensor  # [B, P] the words that outputs begin with, then -1 at least once
    avoid: Tensor  # [B, N, L] phrases that outputs do not contain; -1 in front of shorter ones
    score: Tensor  # [B, K] log-probability of the open hypotheses, best first; -inf: there is none
    count: Tensor  # [B, K] words in the blank at hand
    blank: Tensor  # [B, K] the number of this blank
    written: Tensor  # [B, K, L] the words so far, all blanks
    gain: Tensor  # [B, K, L] their log-probabilities
    best: Tensor  # [B, K] scores of the finished hypotheses, best first; -inf: there is none
    length: Tensor  # [B, K] their lengths
    best_written: Tensor
    best_gain: Tensor
    chance: Tensor  # [B, K, L] uniform numbers that words are drawn with; [B, K, 0] in a search

    def select(self, rows: Tensor) -> State:
        """The state of these inputs only."""
        return State(*(getattr(self, field.name).index_select(0, rows) for field in fields(self)))


class Proposals(NamedTuple):
    """Hypotheses with one more word, of each input the best first: [B, N] each."""

    total: Tensor  # the log-probability of all words
    back: Tensor  # the number of the hypothesis that is continued
    word: Tensor
    gain: Tensor  # the log-probability of the word


class Search:
    """Beam search over B inputs."""

    carried: ClassVar[tuple[str, ...]] = ("faulty",)
    """Names of tensors besides the state that a step may change; all but `faulty` have a row for
    each input."""

    def __init__(self, request: Request) -> None:
        self.protocol = protocol = request.protocol
        self.config = config = request.config
        constraints = request.constraints.by_input
        device = request.homes.device
        further_blanks = request.homes.shape[1] - 1
        preset = SEARCH_PRESETS[config.search]
        self.preset = replace(preset, free_end=True) if protocol.endless else preset
        if self.preset.norm == "wu" and further_blanks:
            raise UsageError(f"--search {config.search} is for outputs of one blank")
        self.wide = self.preset.wide * config.width
        self.rules = Rules(protocol, config, request.constraints, device)
        self.steps: int | Tensor = 0
        """Words that were chosen; a tensor [1] on the device if steps are recorded."""
        self.faulty = torch.zeros((), dtype=torch.bool, device=device)  # NaN or infinity came
        # before this step no hypothesis is full: `ruled_log_probs` need not look
        lengths = [constraint.max_len for constraint in constraints]
        self.soonest = min(config.max_words or lengths[0], *lengths)
        self.stride = torch.tensor([protocol.dpos, protocol.dpos2], device=device)
        self.max_steps = max(
            request.max_steps, longest(further_blanks, request.constraints.max_len)
        )
        # the divisor of a total at each length, on the device; no output has length 0
        counted = [max(n, 1) + protocol.opened for n in range(self.max_steps + 2)]
        norms = [self.preset.divisor(length, config.lenpen) for length in counted]
        self.norms = torch.tensor(norms, dtype=torch.float32, device=device)
        self.state = self._begin(request)

    def _begin(self, request: Request) -> State:
        """The state before the first step, which continues hypothesis 0 of every input only.

        Word j is in column j of `written`, which has room for the longest output of the batch.
        """
        homes = request.homes
        device = homes.device

        def fill(value: float, *more: int) -> Tensor:
            kind = torch.int64 if isinstance(value, int) else torch.float32
            return homes.new_full((len(homes), self.config.width, *more), value, dtype=kind)

        inputs = request.constraints.by_input
        # one table [B, 3 + P] on the host, moved to the device once; -1: any word may follow
        width = self.rules.begin + 1
        table = [
            [c.min_len, c.max_len, c.apart, *c.prefix, *[-1] * (width - len(c.prefix))]
            for c in inputs
        ]
        least, limit, apart, prefix = torch.tensor(table, device=device).split([1, 1, 1, width], 1)
        return State(
            homes=homes,
            last_blank=request.num_blanks[:, None],
            least=least,
            limit=limit,
            apart=apart,
            prefix=prefix,
            avoid=tabulate_phrases([c.avoid for c in inputs], at_end=True).to(device),
            score=fill(0.0),
            count=fill(0),
            blank=fill(0),
            written=fill(0, self.max_steps),
            gain=fill(0.0, self.max_steps),
            best=fill(-torch.inf),
            length=fill(1),
            best_written=fill(0, self.max_steps),
            best_gain=fill(0.0, self.max_steps),
            chance=fill(0.0, 0),
        )

    @property
    def fixed(self) -> tuple[Any, ...]:
        """The values that two searches must share, besides shapes, to use one recorded step."""
        rules = self.rules
        active = rules.early, rules.begin > 0, rules.avoids, rules.inside is not None
        return type(self), self.config, self.protocol, rules.words, active

    def extend(self, logits_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose the next words, given the logits of the B prompts or of the B * K hypotheses.

        Returns, [B, K] each: the hypothesis that is continued, the token to read next, and [B, K,
        2] the positions (pos, pos2) of the slot that predicts the word after it.
        """
        state = self.state
        total, back, word, gain = self.propose(logits_RV)
        end = word == self.protocol.end
        finish = end & (state.blank.gather(1, back) == state.last_blank)
        finish |= total.isneginf()  # impossible continuations are not kept open
        # the words of the hypotheses that are continued, with the new word in its column
        wide = back[..., None].expand(-1, -1, self.max_steps)
        written, gains = state.written.gather(1, wide), state.gain.gather(1, wide)
        put(written, 2, self.steps, word[..., None])
        put(gains, 2, self.steps, gain[..., None])
        self.steps += 1
        self._keep(total, back, finish, written, gains)

        # stable: the best ones that do not finish here, in their order
        order = finish.byte().sort(dim=1, stable=True).indices[:, : self.config.width]
        wide = order[..., None].expand(-1, -1, self.max_steps)
        state.written = written.gather(1, wide)
        state.gain = gains.gather(1, wide)
        state.score = total.masked_fill(finish, -torch.inf).gather(1, order)
        back, word, end = back.gather(1, order), word.gather(1, order), end.gather(1, order)
        closed = end & ~finish.gather(1, order)
        count = (state.count.gather(1, back) + 1).masked_fill_(closed, 0)
        # impossible hypotheses are still read with the others: their positions must stay in range
        state.count = count.minimum(state.limit)
        state.blank = state.blank.gather(1, back) + closed
        self._stop(total)
        if self.protocol.begin is not None:
            word = word.masked_fill(closed, self.protocol.begin)
        # the next slot is a stride after the place of its blank for each word in it
        home = state.homes.gather(1, state.blank[..., None].expand(-1, -1, 2))
        return back, word, home + state.count[..., None] * self.stride

    def propose(self, logits_RV: Tensor) -> Proposals:
        """The `wide` best continuations [B, wide] of each input."""
        state, wide = self.state, self.wide
        rows = len(state.score)
        beams = len(logits_RV) // rows  # hypotheses of an input: 1 at first, then K
        gain_RV = self.log_probs(logits_RV)
        self._forbid(gain_RV, beams)
        # the best `wide` words of each hypothesis suffice: the best of all are among them
        gain, word = best(gain_RV, min(wide, logits_RV.shape[1]))
        if (full_R := self.must_end(beams)) is not None:
            gain.masked_fill_(full_R[:, None], -torch.inf)
            gain[:, 0] = torch.where(full_R, self.last(gain_RV, full_R), gain[:, 0])
            word[:, 0].masked_fill_(full_R, self.protocol.end)
        gain, word = gain.view(rows, beams, -1), word.view(rows, -1)
        total = (gain + state.score[:, :beams, None]).flatten(1)
        total, index = total.topk(min(wide, total.shape[1]))
        back = index // gain.shape[2]
        word, gain = word.gather(1, index), gain.flatten(1).gather(1, index)
        return self.fill_up(Proposals(total, back, word, gain))

    def fill_up(self, found: Proposals) -> Proposals:
        """Pad continuations [B, n] to `wide` with impossible ones."""
        missing = self.wide - found.total.shape[1]
        if missing <= 0:
            return found
        pad = torch.nn.functional.pad  # a vocabulary of a few words
        total, *others = found
        others = [pad(table, (0, missing)) for table in others]
        return Proposals(pad(total, (0, missing), value=-torch.inf), *others)

    def log_probs(self, logits_RV: Tensor) -> Tensor:
        """[R, V] log-probabilities of the words before any rule: rules do not renormalise them."""
        if not self.config.sampling and self.config.temperature != 1:
            logits_RV = logits_RV / self.config.temperature
        # half the time of logsumexp on CPU
        gain_RV = logits_RV.log_softmax(1, dtype=torch.float32)
        # a row with NaN or an infinite logit is NaN everywhere
        self.faulty |= gain_RV[:, 0].isnan().any()
        if self.protocol.endless:
            full_BK = self.full(self.steps)[:, : len(gain_RV) // len(self.state.count)]
            gain_RV[:, self.protocol.end] = torch.where(full_BK.flatten(), 0.0, -torch.inf)
        return gain_RV

    def full(self, steps: int | Tensor) -> Tensor:
        """[B, K] whether a hypothesis of this many steps can only end."""
        limit = self.config.max_words
        full_BK = self.state.count >= self.state.limit
        return full_BK if limit is None else full_BK | (steps - self.state.blank >= limit)

    def ruled_log_probs(self, logits_RV: Tensor) -> Tensor:
        """[B, n, V] log-probabilities of all words after the open hypotheses, under the rules."""
        beams = len(logits_RV) // len(self.state.score)
        gain_RV = self.log_probs(logits_RV)
        self._forbid(gain_RV, beams)
        if (full_R := self.must_end(beams)) is not None:
            last_R = self.last(gain_RV, full_R).clone()
            gain_RV.masked_fill_(full_R[:, None], -torch.inf)
            gain_RV[:, self.protocol.end] = last_R
        return gain_RV.view(-1, beams, gain_RV.shape[1])

    def must_end(self, beams: int) -> Tensor | None:
        """[R] which of the first `beams` hypotheses of all inputs can only end; None: not one."""
        if isinstance(self.steps, int) and self.steps < self.soonest:
            return None
        return self.full(self.steps)[:, :beams].flatten()

    def last(self, gain_RV: Tensor, full_R: Tensor) -> Tensor:
        """[R] the log-probability of the end; 0 if only it can follow and the preset says so."""
        last_R = gain_RV[:, self.protocol.end]
        if self.preset.free_end:
            last_R = last_R.masked_fill(full_R & (last_R > -torch.inf), 0)
        return last_R

    def _forbid(self, gain_RV: Tensor, beams: int) -> None:
        """Apply the rules to the first `beams` hypotheses of every input."""
        state, steps, rules = self.state, self.steps, self.rules

        def rows(table_B1: Tensor) -> Tensor:
            return table_B1.expand(-1, beams).flatten()

        written = state.written[:, :beams, :0]
        begun = state.prefix
        if isinstance(steps, int):
            written = state.written[:, :beams, :steps]
            begun = begun[:, steps : steps + 1]
        elif rules.looks_back:
            written = recent_words(state.written[:, :beams], steps, self.max_steps)
        if isinstance(steps, Tensor) and rules.begin:
            begun = begun[:, steps.clamp(max=rules.begin)]
        forced = rules.begin > 0 and (isinstance(steps, Tensor) or steps < rules.begin)
        rules.forbid(
            gain_RV,
            written.flatten(0, 1),
            state.count[:, :beams].flatten(),
            rows(state.least),
            rows(begun) if forced else None,
            state.avoid.repeat_interleave(beams, 0) if rules.avoids else None,
        )
        if rules.inside is not None and (isinstance(steps, Tensor) or steps == 0):
            rules.keep_apart(gain_RV, rules.inside, rows((state.apart > 0) & (steps == 0)))

    def _norm(self, back: Tensor) -> Tensor:
        """The divisor of the total log-probability of outputs that end at this step."""
        state, preset = self.state, self.preset
        if not preset.counts_ends:
            return self.norms[self.steps - 1 - state.blank.gather(1, back)]
        if preset.free_end:
            return self.norms[self.steps - self.full(self.steps - 1).gather(1, back).long()]
        return self.norms[self.steps]

    def _keep(
        self, total: Tensor, back: Tensor, finish: Tensor, written: Tensor, gains: Tensor
    ) -> None:
        """Merge what finishes among the first K continuations into the pool of the best K."""
        state = self.state
        beam = self.config.width
        enters = finish[:, :beam]
        if self.preset.stop == "first":  # what comes when the pool is full replaces nothing
            enters = enters & (enters.cumsum(1) <= state.best.isneginf().sum(1, keepdim=True))
        # pool and newcomers are sorted together; stable, so that of equal ones the older stays
        score = (total[:, :beam] / self._norm(back[:, :beam])).masked_fill(~enters, -torch.inf)
        best, index = torch.cat([state.best, score], 1).sort(dim=1, descending=True, stable=True)
        index = index[:, :beam]
        wide = index[..., None].expand(-1, -1, self.max_steps)
        state.best = best[:, :beam]
        length = torch.cat([state.length, torch.zeros_like(state.length) + self.steps], 1)
        state.length = length.gather(1, index)
        state.best_written = torch.cat([state.best_written, written[:, :beam]], 1).gather(1, wide)
        state.best_gain = torch.cat([state.best_gain, gains[:, :beam]], 1).gather(1, wide)

    def _stop(self, total: Tensor) -> None:
        """Drop the open hypotheses of inputs whose search is over."""
        state = self.state
        stop = self.preset.stop
        bar = state.best[:, -1]
        if self.config.beam == 1 or stop == "first":
            over = bar > -torch.inf
        elif stop == "none":
            return
        elif stop == "glm":
            over = bar >= total[:, 0] / self.norms[self.steps - 1]
        else:
            # log-probabilities only fall, so the kindest length bounds what a hypothesis can reach
            length = self.steps
            if stop == "exact":
                bar = state.best[:, self.config.nbest - 1]
                longest_B1 = (state.last_blank + 1) * (state.limit + 1)
                length = longest_B1 if self.config.lenpen > 0 else self.steps + 1
            over = bar >= (state.score / self.norms[length]).amax(1)
        state.score = state.score.masked_fill(over[:, None], -torch.inf)

    def select(self, rows: Tensor) -> None:
        """Keep only these inputs."""
        self.state = self.state.select(rows)
        for name in self.carried[1:]:
            setattr(self, name, getattr(self, name)[rows])

    def open(self) -> Tensor:
        """[B] whether an input has an open hypothesis left."""
        return self.state.score[:, 0] > -torch.inf

    def close(self, rows: Tensor) -> None:
        """End the search of inputs, [B] which."""
        self.state.score.masked_fill_(rows[:, None], -torch.inf)  # where a recording finds it

    def results(self, rows: Tensor | None = None) -> list[list[Hypothesis]]:
        """The n best outputs of these inputs, or of all; fewer if the rules forbid more."""
        state = self.state
        if bool(self.faulty):
            raise NonFiniteError("the model gives logits that are not finite: nothing is written")
        score, length, written, gain = (
            (table if rows is None else table[rows])[:, : self.config.nbest].cpu().numpy()
            for table in (state.best, state.length, state.best_written, state.best_gain)
        )

        def hypothesis(b: int, k: int) -> Hypothesis:
            n = length[b, k]
            gains = gain[b, k, :n].copy()
            total = exact_sum(gains)
            return Hypothesis(written[b, k, :n].copy(), float(score[b, k]), total, gains)

        return [
            [hypothesis(b, k) for k in np.flatnonzero(row > -np.inf).tolist()]
            for b, row in enumerate(score)
        ]


def draw(
    score_RV: Tensor, chance_R: Tensor, top_k: int, top_p: float, min_p: float = 0.0
) -> Tensor:
    """Draw a word for each row: the first by id at which the cumulated softmax passes `chance_R`.

    In the order of their probabilities, two words that are equally likely but for rounding would
    change places with what else is in the batch, and with them the draws of all words between.
    """
    law_RV = score_RV.softmax(1)
    if top_k or top_p < 1 or min_p > 0:
        best_RK, word_RK = score_RV.topk(min(top_k or law_RV.shape[1], law_RV.shape[1]))
        law_RK = best_RK.softmax(1)
        if top_p < 1:  # the most probable words up to the one that reaches top_p
            law_RK = law_RK.masked_fill(law_RK.cumsum(1) - law_RK >= max(top_p, 1e-7), 0)
        if min_p > 0:  # not much less likely than the most probable
            law_RK = law_RK.masked_fill(law_RK < min_p * law_RK[:, :1], 0)
        law_RV = torch.zeros_like(law_RV).scatter(1, word_RK, law_RK)
    # inverse transform: the first word whose cumulated share passes the uniform number
    reach_RV = law_RV.nan_to_num().cumsum(1, dtype=torch.float64)
    total_R1 = reach_RV[:, -1:].contiguous()
    index_R1 = torch.searchsorted(reach_RV, chance_R[:, None] * total_R1, right=True)
    # rounding must not pass the last word that has a probability
    return index_R1.minimum(torch.searchsorted(reach_RV, total_R1))[:, 0]


def recent_words(written: Tensor, steps: int | Tensor, count: int) -> Tensor:
    """The last `count` of the first `steps` words [..., L]; -2, which is no word, before them."""
    where = torch.arange(1, count + 1, device=written.device) + (steps - count)
    return torch.nn.functional.pad(written, (1, 0), value=-2)[..., where.clamp(min=0)]


def longest(further_blanks: int, max_len: int) -> int:
    """The most words that a hypothesis can have, including an end symbol for each blank."""
    return (further_blanks + 1) * (max_len + 1)


def best(gain_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`gain_RV.topk(count)`, but faster: the best words lie in the blocks of the best maxima."""
    whole = gain_RV.shape[1] // BLOCK * BLOCK
    if whole < 16 * count * BLOCK:
        return gain_RV.topk(count)
    # two small topk, over the maxima of the blocks and within the best blocks, beat a large one
    blocks_RNb = gain_RV[:, :whole].unflatten(1, (-1, BLOCK))
    number_Rn = blocks_RNb.amax(2).topk(count).indices
    word_RX = blocks_RNb.gather(1, number_Rn[..., None].expand(-1, -1, BLOCK)).flatten(1)
    gain, index = torch.cat([word_RX, gain_RV[:, whole:]], 1).topk(count)
    beyond = index - word_RX.shape[1]  # from 0 on: a word after the blocks
    first = number_Rn.gather(1, index.clamp(max=word_RX.shape[1] - 1) // BLOCK) * BLOCK
    return gain, torch.where(beyond < 0, first + index % BLOCK, whole + beyond)
