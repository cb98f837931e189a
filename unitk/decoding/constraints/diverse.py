"""Diverse beam search: groups of beams that avoid each other's words.

Vijayakumar et al. 2016, arXiv 1610.02424, algorithm 1 with Hamming diversity. The groups of an
input write their j-th words one after the other; a word costs `strength` for every hypothesis of an
earlier group that chose it there. The cost steers the choice, the scores stay the model's own.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from unitk.decoding.search import Hypothesis, Request, Search, best


class Diverse(Search):
    """A beam search of B * G rows, the G groups of an input side by side."""

    def __init__(self, request: Request) -> None:
        config, constraints = request.config, request.constraints
        self.groups, self.nbest = config.diverse_beam_groups, config.nbest
        self.strength = config.diverse_beam_strength
        size = config.beam // self.groups
        config = replace(config, beam=size, nbest=min(config.nbest, size), diverse_beam_groups=1)
        each = [one for one in constraints.each for _ in range(self.groups)]
        super().__init__(
            replace(
                request,
                homes=request.homes.repeat_interleave(self.groups, 0),
                num_blanks=request.num_blanks.repeat_interleave(self.groups),
                config=config,
                constraints=replace(constraints, each=each),
            )
        )

    def extend(self, logits_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose the next words; an input's hypotheses are those of its groups in turn."""
        if not self.steps:  # the prompts: every group begins with them
            logits_RV = logits_RV.repeat_interleave(self.groups, 0)
        back, token, place = super().extend(logits_RV)
        # a group numbers its hypotheses from 0; its input counts those of the groups before it
        first = torch.arange(self.groups, device=back.device) * self.config.beam
        back = back.unflatten(0, (-1, self.groups)) + first[:, None]
        whole = (len(back), self.groups * self.config.beam)
        return back.flatten(1), token.view(whole), place.view(*whole, 2)

    def propose(self, logits_RV: Tensor) -> tuple[Tensor, ...]:
        """The best continuations of each group, given what the groups before it chose."""
        gain = self.gains(logits_RV)
        _, each, size = gain.shape
        gain = gain.view(-1, self.groups, each * size)
        score = self.state.score[:, :each].unflatten(0, (-1, self.groups))
        cost = gain.new_zeros(len(gain), size)
        chosen = []
        for group in range(self.groups):
            total = gain[:, group] + score[:, group].repeat_interleave(size, 1)
            value = total - cost.repeat(1, each)  # flat index: hypothesis * V + word
            _, index = best(value, min(self.wide, value.shape[1]))
            total, word = total.gather(1, index), index % size
            chosen.append(self.filled(total, index // size, word, gain[:, group].gather(1, index)))
            # what goes on in this group makes its words dearer for the groups after it
            some = (total > -torch.inf)[:, : self.config.beam].to(cost.dtype)
            cost.scatter_add_(1, word[:, : self.config.beam], self.strength * some)
        return tuple(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*chosen, strict=True))

    def select(self, rows: Tensor) -> None:
        """Keep only these inputs."""
        groups = torch.arange(self.groups, device=rows.device)
        super().select((rows[:, None] * self.groups + groups).flatten())

    def open(self) -> Tensor:
        """[B] whether a group of an input has an open hypothesis left."""
        return super().open().view(-1, self.groups).any(1)

    def results(self) -> list[list[Hypothesis]]:
        """The n best of all groups of every input."""
        found = super().results()
        inputs = [found[i : i + self.groups] for i in range(0, len(found), self.groups)]
        return [
            sorted(sum(groups, []), key=lambda one: -one.score)[: self.nbest] for groups in inputs
        ]
