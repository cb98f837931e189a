"""What may not be written next: banned ids, an end that comes too early, repeated n-grams."""

from __future__ import annotations

import torch
from torch import Tensor

from unitk.generate.config import GenerateConfig
from unitk.slots import Protocol


class Rules:
    """Forbids words: their log-probability becomes minus infinity, for all hypotheses at once."""

    def __init__(
        self, protocol: Protocol, config: GenerateConfig, device: torch.device | str
    ) -> None:
        self.end, self.min_len = protocol.end, config.min_len
        self.ngram = config.no_repeat_ngram_size
        self.banned = torch.tensor(protocol.banned, dtype=torch.int64, device=device)

    def forbid(self, gain_RV: Tensor, written_RL: Tensor, count_R: Tensor) -> None:
        """Change `gain_RV` of R hypotheses in place.

        `written_RL` are their L words so far, the last `count_R` of them in the blank at hand.
        """
        gain_RV.index_fill_(1, self.banned, -torch.inf)
        if self.min_len:
            gain_RV[:, self.end].masked_fill_(count_R < self.min_len, -torch.inf)
        if self.ngram and written_RL.shape[1] >= self.ngram:
            self.forbid_repeats(gain_RV, written_RL, count_R)

    def forbid_repeats(self, gain_RV: Tensor, written_RL: Tensor, count_R: Tensor) -> None:
        """No n-gram twice within a blank."""
        grams_RWn = written_RL.unfold(1, self.ngram, 1)
        length, windows = written_RL.shape[1], grams_RWn.shape[1]
        first = torch.arange(windows, device=written_RL.device)
        inside_RW = first >= length - count_R[:, None]
        tail_Rn = written_RL[:, length - self.ngram + 1 :]
        same_RW = inside_RW & (grams_RWn[..., :-1] == tail_Rn[:, None]).all(-1)
        # amin, because a word may follow both a window that matches and one that does not
        blow = torch.where(same_RW, -torch.inf, torch.inf).to(gain_RV.dtype)
        gain_RV.scatter_reduce_(1, grams_RWn[..., -1], blow, "amin")
