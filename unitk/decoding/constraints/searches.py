"""Which search the options and constraints need: phrases in outputs, groups of a beam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.constraints.rules import tabulate_phrases
from unitk.decoding.search import (
    Hypothesis,
    Proposals,
    Request,
    Search,
    best,
    draw,
    recent_words,
)
from unitk.slots import Ids

OnStep = Callable[[int, Ids], None]
"""Called after each step with the number of a prompt and the words of its best open hypothesis."""


def start(request: Request) -> Search:
    """The kind of search that the options and the constraints need."""
    if request.config.sampling:
        return Sampling(request)
    if request.config.diverse_beam_groups > 1:
        return Diverse(request)
    if own := request.constraints.by_input[0].own:
        found: Search = own.search(request)
        return found
    phrases = any(constraint.phrases for constraint in request.constraints.by_input)
    return Constrained(request) if phrases else Search(request)


def report_step(on_step: OnStep, numbers: Sequence[int], search: Search, rows: Tensor) -> None:
    """Report the words of each row with an open hypothesis; `numbers` are those of the prompts."""
    # of groups, which have a row of the state each, those of the first one
    first = search.state.written.unflatten(0, (len(rows), -1))[:, 0, 0, : int(search.steps)]
    written = first.cpu().numpy()
    open_words = {  # by number: rows that fill up a batch repeat another one
        row: ids
        for row, ids, unfinished in zip(rows.tolist(), written, search.open().tolist(), strict=True)
        if unfinished
    }
    for row, ids in open_words.items():
        if row < len(numbers):
            on_step(numbers[row], ids)


class Sampling(Search):
    """Draws `nbest` outputs for each input, each hypothesis on its own, in place of a beam.

    Top-k: Fan et al. 2018, arXiv 1805.04833, section 5. Top-p (nucleus): Holtzman et al. 2020,
    arXiv 1904.09751, section 3.1. Min-p: Nguyen et al. 2024, arXiv 2407.01082, section 3. The
    random numbers of an input depend only on the seed and the input's number, so batching does not
    change the draws.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        # word by word, so that the longest output of the batch changes no draw
        size = self.max_steps, self.config.nbest
        draws = [np.random.default_rng(seed).random(size, np.float32) for seed in request.seeds]
        self.state.chance = torch.from_numpy(np.stack(draws)).mT.to(request.homes.device)

    def propose(self, logits_RV: Tensor) -> Proposals:
        """Draw one continuation [B, K] of each hypothesis."""
        state, config = self.state, self.config
        rows, samples = state.score.shape
        if len(logits_RV) == rows:  # the prompts: all draws begin with them
            logits_RV = logits_RV.repeat_interleave(samples, 0)
        gain_RV = self.log_probs(logits_RV)
        score_RV = gain_RV / config.temperature
        self._forbid(score_RV, samples)
        only = torch.full_like(score_RV[0], -torch.inf)
        only[self.protocol.end] = 0
        score_RV = torch.where(self.full(self.steps).view(-1, 1), only, score_RV)
        word_R = draw(
            score_RV,
            state.chance[:, :, self.steps].flatten(),
            config.sampling_topk,
            config.sampling_topp,
            config.sampling_minp,
        )
        word_R1 = word_R[:, None]
        # where every word is forbidden there is nothing to draw
        impossible_R1 = score_RV.gather(1, word_R1).isneginf()
        gain = gain_RV.gather(1, word_R1).masked_fill(impossible_R1, -torch.inf).view(rows, samples)
        back = torch.arange(samples, device=gain.device).expand(rows, samples)
        return Proposals(gain + state.score, back, word_R.view(rows, samples), gain)

    def _stop(self, total: Tensor) -> None:
        """Nothing stops early: each output is drawn to its own end."""


class Constrained(Search):
    """Beam search whose outputs contain given phrases [B, C, L], padded with -1, in any order.

    Dynamic beam allocation: Post and Vilar 2018, arXiv 1804.06609, section 3. Hypotheses of an
    input are sorted into banks by the words of the phrases that they have written, and the beam is
    dealt out to the banks in turn, so that those that get on with the phrases are never crowded
    out. A phrase may be in any blank, and share words with another one.
    """

    carried = "faulty", "phrases", "sizes", "met", "begun"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        phrases_of = [constraint.phrases for constraint in request.constraints.by_input]
        self.phrases = tabulate_phrases(phrases_of).to(request.homes.device)
        self.sizes = (self.phrases >= 0).sum(2)
        self.banks = 1 + max(sum(map(len, phrases)) for phrases in phrases_of)
        self.met = (self.sizes == 0)[:, None].repeat(1, self.config.beam, 1)
        """[B, K, C] which phrases a hypothesis has written."""
        self.begun = self._prefix_matches()

    @property
    def fixed(self) -> tuple[Any, ...]:
        return *super().fixed, self.banks

    def _prefix_matches(self) -> Tensor:
        """[B, K, C, L + 1] whether the last p words of a hypothesis are the first p of a phrase."""
        parts = [torch.ones_like(self.met)]  # every hypothesis ends with the first 0 words
        for size in range(1, self.phrases.shape[2] + 1):
            last_BKp = recent_words(self.state.written, self.steps, size)
            # [B, K, 1, p] == [B, 1, C, p]; the -1 after a shorter phrase equals no word
            parts.append((last_BKp[:, :, None] == self.phrases[:, None, :, :size]).all(-1))
        return torch.stack(parts, -1)

    def extend(self, logits_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose the next words as a plain search does, and record which phrases are complete."""
        back, token, position = super().extend(logits_RV)
        self.begun = self._prefix_matches()
        # a phrase of n words is complete where the last n words are its first n
        length = self.sizes[:, None, :, None].expand(-1, self.met.shape[1], -1, 1)
        met = self.met.gather(1, back[..., None].expand_as(self.met))
        self.met = met | self.begun.gather(3, length)[..., 0]
        return back, token, position

    def propose(self, logits_RV: Tensor) -> Proposals:
        """The continuations that the banks of an input take in turn, each bank its best first."""
        gain_BKV = self.ruled_log_probs(logits_RV)
        size = gain_BKV.shape[2]
        index = self._candidates(gain_BKV)
        gain = gain_BKV.flatten(1).gather(1, index)
        total = gain + self.state.score.gather(1, index // size)
        # what is named twice, and here next to itself, counts once
        total[:, 1:].masked_fill_(index[:, 1:] == index[:, :-1], -torch.inf)
        total, order = total.sort(dim=1, descending=True, stable=True)
        gain, index = gain.gather(1, order), index.gather(1, order)
        back = index // size
        word = index % size
        order = self._order_by_bank(total, self._bank(back, word))[:, : self.wide]
        found = Proposals(total, back, word, gain)
        return self.fill_up(Proposals(*(table.gather(1, order) for table in found)))

    def _candidates(self, gain_BKV: Tensor) -> Tensor:
        """Candidate continuations of an input, sorted, as hypothesis * V + word.

        They are the best overall, the best of each hypothesis, and those that continue a phrase.
        """
        _, beams, size = gain_BKV.shape
        # the best words of each hypothesis: the best continuations of all are among them
        offset = torch.arange(beams, device=gain_BKV.device)[:, None] * size
        candidates = best(gain_BKV.flatten(0, 1), min(self.wide, size))
        gain, word = (table.unflatten(0, (-1, beams)) for table in candidates)
        total = (gain + self.state.score[:, :beams, None]).flatten(1)
        best_index = total.topk(min(self.wide, total.shape[1])).indices
        overall = (word + offset).flatten(1).gather(1, best_index)
        # The word that goes on with the longest begun part of each phrase. A complete phrase has no
        # next word; the hypothesis' own best word stands in its place.
        longest = _last(self.begun[:, :beams, :, :-1])[..., None]
        follow = self.phrases[:, None].expand(-1, beams, -1, -1).gather(3, longest)[..., 0]
        best_word = word[..., :1]
        follow = torch.where(self.met[:, :beams], best_word, follow)
        of_each = (torch.cat([best_word, follow], 2) + offset).flatten(1)
        # sorted, so that `propose` finds equal ones side by side
        return torch.cat([overall, of_each], 1).sort(1).values

    def _bank(self, back: Tensor, word: Tensor) -> Tensor:
        """[B, N] how many words of the phrases each continuation of a hypothesis has met."""
        # where a hypothesis ends with p words of a phrase, its next word makes p + 1
        wide = back[..., None, None].expand(-1, -1, *self.begun.shape[2:])
        begun = self.begun.gather(1, wide)[..., :-1] & (
            self.phrases[:, None] == word[..., None, None]
        )
        reached = torch.where(begun.any(-1), _last(begun) + 1, 0)
        sizes = self.sizes[:, None]
        met = self.met.gather(1, wide[..., 0]) | (reached == sizes)
        # all words of complete phrases, and those of the open phrase that has got farthest
        return (sizes * met).sum(2) + reached.masked_fill(met, 0).amax(2)

    def _order_by_bank(self, total: Tensor, bank: Tensor) -> Tensor:
        """The order in which the banks take continuations, which are sorted by their totals."""
        possible = total > -torch.inf
        same = (bank[:, :, None] == bank[:, None]) & possible[:, None]
        # The j-th best of a bank takes turn j. In a turn the fullest bank comes first;
        # continuations that do not exist come last.
        key = same.tril(-1).sum(2) * self.banks - bank
        return key.masked_fill(~possible, key.max() + 1).argsort(dim=1, stable=True)

    def _forbid(self, gain_RV: Tensor, beams: int) -> None:
        super()._forbid(gain_RV, beams)
        # the last blank cannot end while a phrase is missing
        last = self.state.blank[:, :beams] == self.state.last_blank
        lacking = ~self.met[:, :beams].all(2) & last
        gain_RV[:, self.protocol.end].masked_fill_(lacking.flatten(), -torch.inf)


class Diverse(Search):
    """A beam search of B * G rows: the G groups of an input, which avoid each other's words.

    Vijayakumar et al. 2016, arXiv 1610.02424, algorithm 1 with Hamming diversity. The groups of an
    input write their j-th words one after the other; a word costs `strength` for every hypothesis
    of an earlier group that chose it there. The cost steers the choice, the scores stay the
    model's own.
    """

    def __init__(self, request: Request) -> None:
        config, constraints = request.config, request.constraints
        self.groups = config.diverse_beam_groups
        self.nbest = config.nbest
        self.strength = config.diverse_beam_strength
        size = config.beam // self.groups
        config = replace(config, beam=size, nbest=min(config.nbest, size), diverse_beam_groups=1)
        by_group = [constraint for constraint in constraints.by_input for _ in range(self.groups)]
        super().__init__(
            replace(
                request,
                homes=request.homes.repeat_interleave(self.groups, 0),
                num_blanks=request.num_blanks.repeat_interleave(self.groups),
                config=config,
                constraints=replace(constraints, by_input=by_group),
            )
        )

    @property
    def fixed(self) -> tuple[Any, ...]:
        return *super().fixed, self.groups, self.nbest

    def extend(self, logits_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose the next words; an input's hypotheses are those of its groups in turn."""
        if len(logits_RV) * self.groups == len(self.state.score):  # prompts: all groups begin so
            logits_RV = logits_RV.repeat_interleave(self.groups, 0)
        back, token, position = super().extend(logits_RV)
        # a group numbers its hypotheses from 0; its input counts those of the groups before it
        first = torch.arange(self.groups, device=back.device) * self.config.beam
        back = back.unflatten(0, (-1, self.groups)) + first[:, None]
        size = (len(back), self.groups * self.config.beam)
        return back.flatten(1), token.view(size), position.view(*size, 2)

    def propose(self, logits_RV: Tensor) -> Proposals:
        """The best continuations of each group, given what the groups before it chose."""
        gain = self.ruled_log_probs(logits_RV)
        _, beams, size = gain.shape
        gain = gain.view(-1, self.groups, beams * size)
        score = self.state.score[:, :beams].unflatten(0, (-1, self.groups))
        cost = gain.new_zeros(len(gain), size)
        chosen = []
        for group in range(self.groups):
            total = gain[:, group] + score[:, group].repeat_interleave(size, 1)
            value = total - cost.repeat(1, beams)  # flat index: hypothesis * V + word
            _, index = best(value, min(self.wide, value.shape[1]))
            total = total.gather(1, index)
            word = index % size
            found = Proposals(total, index // size, word, gain[:, group].gather(1, index))
            chosen.append(self.fill_up(found))
            # words that this group writes cost more in the groups after it
            possible = (total > -torch.inf)[:, : self.config.beam].to(cost.dtype)
            cost.scatter_add_(1, word[:, : self.config.beam], self.strength * possible)
        tables_of = zip(*chosen, strict=True)
        return Proposals(*(torch.stack(tables, 1).flatten(0, 1) for tables in tables_of))

    def select(self, rows: Tensor) -> None:
        """Keep only these inputs."""
        super().select(self._expand_rows(rows))

    def close(self, rows: Tensor) -> None:
        """End the search of inputs, [B] which."""
        super().close(rows.repeat_interleave(self.groups))

    def open(self) -> Tensor:
        """[B] whether a group of an input has an open hypothesis left."""
        return super().open().view(-1, self.groups).any(1)

    def results(self, rows: Tensor | None = None) -> list[list[Hypothesis]]:
        """The n best of all groups of these inputs, or of all."""
        results = super().results(None if rows is None else self._expand_rows(rows))
        inputs = [results[i : i + self.groups] for i in range(0, len(results), self.groups)]
        ranked = (sorted(sum(groups, []), key=lambda output: -output.score) for groups in inputs)
        return [outputs[: self.nbest] for outputs in ranked]

    def _expand_rows(self, rows: Tensor) -> Tensor:
        """The rows of the groups of inputs."""
        groups = torch.arange(self.groups, device=rows.device)
        return (rows[:, None] * self.groups + groups).flatten()


def _last(flags: Tensor) -> Tensor:
    """The index of the last True along the last axis, 0 if there is none."""
    return (flags * torch.arange(flags.shape[-1], device=flags.device)).amax(-1)
