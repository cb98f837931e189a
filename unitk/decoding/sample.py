"""Sampling: outputs drawn word by word, each hypothesis on its own.

Top-k: Fan et al. 2018, arXiv 1805.04833, section 5. Top-p (nucleus): Holtzman et al. 2020, arXiv
1904.09751, section 3.1. Min-p: Nguyen et al. 2024, arXiv 2407.01082, section 3. The random numbers
of an input depend only on the seed and the input's number, so batching does not change the draws.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.search import Request, Search


class Sampling(Search):
    """Draws `nbest` outputs for each input, in place of a beam."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        # word by word, so that the longest output of the batch changes no draw
        seed, size = self.config.seed, (self.most, self.config.nbest)
        draws = [np.random.default_rng([seed, n]).random(size, np.float32) for n in request.numbers]
        self.state.chance = torch.from_numpy(np.stack(draws)).mT.to(request.homes.device)

    def propose(self, logits_RV: Tensor) -> tuple[Tensor, ...]:
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
        return gain + state.score, back, word_R.view(rows, samples), gain

    def _stop(self, total: Tensor) -> None:
        """Nothing stops early: each output is drawn to its own end."""


def draw(
    score_RV: Tensor, chance_R: Tensor, top_k: int, top_p: float, min_p: float = 0.0
) -> Tensor:
    """Draw a word for each row: the first by id at which the cumulated softmax passes `chance_R`.

    In the order of their probabilities, two words that are equally likely but for rounding would
    change places with what else is in the batch, and with them the draws of all words between.
    """
    size, law_RV = score_RV.shape[1], score_RV.softmax(1)
    if top_k or top_p < 1 or min_p > 0:
        best_RK, word_RK = score_RV.topk(min(top_k or size, size))
        law_RK = best_RK.softmax(1)
        if top_p < 1:  # the likeliest words up to the one that reaches top_p
            law_RK = law_RK.masked_fill(law_RK.cumsum(1) - law_RK >= top_p, 0)
        if min_p > 0:  # not much less likely than the likeliest
            law_RK = law_RK.masked_fill(law_RK < min_p * law_RK[:, :1], 0)
        law_RV = torch.zeros_like(law_RV).scatter(1, word_RK, law_RK)
    # inverse transform: the first word whose cumulated share passes the uniform number
    reach_RV = law_RV.nan_to_num().cumsum(1, dtype=torch.float64)
    total_R1 = reach_RV[:, -1:].contiguous()
    index_R1 = torch.searchsorted(reach_RV, chance_R[:, None] * total_R1, right=True)
    # rounding must not pass the last word that has a probability
    return index_R1.minimum(torch.searchsorted(reach_RV, total_R1))[:, 0]
