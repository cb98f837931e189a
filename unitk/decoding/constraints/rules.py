"""Which words may not come next: bad words, an end that is too early, repeated n-grams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraints, Phrases
from unitk.slots import Protocol


def tabulate_phrases(phrases_of: Sequence[Phrases], at_end: bool = False) -> Tensor:
    """[B, N, L] the phrases of each input, with -1 after the shorter ones, or with `at_end` in
    front of them, and -1 for those that are lacking."""
    length = max((len(phrase) for phrases in phrases_of for phrase in phrases), default=1)
    table = torch.full((len(phrases_of), max(map(len, phrases_of)), length), -1)
    for row, phrases in zip(table, phrases_of, strict=True):
        for line, phrase in zip(row, phrases, strict=False):
            start = (length - len(phrase)) * at_end
            line[start : start + len(phrase)] = torch.tensor(phrase)
    return table


class Rules:
    """Forbids words by setting their log-probability to minus infinity, for all hypotheses at once.

    A rule that is off costs no time.
    """

    def __init__(
        self,
        protocol: Protocol,
        config: GenerateConfig,
        constraints: Constraints,
        device: torch.device | str,
    ) -> None:
        self.end = protocol.end
        self.unkpen = config.unkpen
        self.ngram = config.no_repeat_ngram_size
        self.early = any(constraint.min_len for constraint in constraints.by_input)
        self.begin = max(len(constraint.prefix) for constraint in constraints.by_input)
        self.words = constraints.words

        def tensor(ids: object) -> Tensor:
            return torch.tensor(ids, dtype=torch.int64, device=device)

        self.free = tensor(self.words.free)
        apart = any(constraint.apart for constraint in constraints.by_input)
        self.inside = tensor(self.words.inside) if apart else None
        # phrases of one length are one table; those of one word are simply banned
        by_length = defaultdict(list)
        for phrase in self.words.bad:
            by_length[len(phrase)].append(phrase)
        ends = [word for word in self.words.ends if word != self.end]
        written = {*self.words.allowed, *ends}
        banned = [word for word in protocol.banned if word not in written]
        banned += [word for (word,) in by_length.pop(1, [])]
        self.ends = tensor([self.end, *ends]) if ends else None
        self.draws = config.sampling
        self.banned = tensor(banned)
        self.bad = [tensor(by_length[size]) for size in sorted(by_length)]
        self.avoids = any(constraint.avoid for constraint in constraints.by_input)
        self.looks_back = bool(self.bad or self.avoids or self.ngram)  # at words before the next

    def forbid(
        self,
        gain_RV: Tensor,
        written_RL: Tensor,
        count_R: Tensor,
        least_R: Tensor,
        forced_R: Tensor | None = None,
        avoid_RPL: Tensor | None = None,
    ) -> None:
        """Change `gain_RV` of R hypotheses in place.

        `written_RL` are their L words so far, the last `count_R` of them in the blank at hand,
        which needs `least_R`. Where `forced_R` is a word, not -1, only that can follow. Phrases
        that a hypothesis itself avoids are `avoid_RPL`, as `tabulate_phrases` gives them.
        """
        if forced_R is not None:
            forced_R1 = forced_R[:, None]
            kept_R1 = gain_RV.gather(1, forced_R1.clamp(min=0))  # before any rule
        gain_RV.index_fill_(1, self.banned, -torch.inf)
        if self.ends is not None:
            self.join_ends(gain_RV, self.ends)
        if self.unkpen and self.words.unk is not None:
            gain_RV[:, self.words.unk] -= self.unkpen
        if self.early:
            gain_RV[:, self.end].masked_fill_(count_R < least_R, -torch.inf)
        for phrases in self.bad:
            if written_RL.shape[1] >= phrases.shape[1] - 1:
                self.forbid_phrases(gain_RV, written_RL, phrases)
        if avoid_RPL is not None:
            self.forbid_own(gain_RV, written_RL, avoid_RPL)
        if self.ngram and written_RL.shape[1] >= self.ngram:
            self.forbid_repeats(gain_RV, written_RL, count_R)
        if forced_R is not None:
            # a forced row loses all words, then gets back the forced one
            gain_RV.masked_fill_(forced_R1 >= 0, -torch.inf)
            word_R1 = forced_R1.clamp(min=0)
            kept_R1 = torch.where(forced_R1 >= 0, kept_R1, gain_RV.gather(1, word_R1))
            gain_RV.scatter_(1, word_R1, kept_R1)

    def keep_apart(self, gain_RV: Tensor, inside_N: Tensor, apart_R: Tensor) -> None:
        """Forbid words inside others, for the hypotheses that have yet to begin one."""
        blow_R1 = torch.where(apart_R, -torch.inf, 0.0)[:, None].to(gain_RV.dtype)
        gain_RV.index_add_(1, inside_N, blow_R1.expand(-1, len(inside_N)))

    def join_ends(self, gain_RV: Tensor, end_E: Tensor) -> None:
        """Let the first of several ends stand for all of them.

        In a search it has the probability of the most likely one, as each would be a hypothesis. A
        draw gives it their sum.
        """
        gain_RE = gain_RV[:, end_E]
        joint_R = gain_RE.logsumexp(1) if self.draws else gain_RE.amax(1)
        gain_RV.index_fill_(1, end_E, -torch.inf)
        gain_RV[:, self.end] = joint_R

    def forbid_phrases(self, gain_RV: Tensor, written_RL: Tensor, phrases_Pn: Tensor) -> None:
        """Forbid the last word of every bad phrase.

        A phrase holds no end symbol, so none reaches across blanks.
        """
        tail_Rn = written_RL[:, written_RL.shape[1] - phrases_Pn.shape[1] + 1 :]
        same_RP = (tail_Rn[:, None] == phrases_Pn[:, :-1]).all(-1)
        self._forbid_hits(gain_RV, phrases_Pn[:, -1].expand_as(same_RP), same_RP)

    def forbid_own(self, gain_RV: Tensor, written_RL: Tensor, avoid_RPL: Tensor) -> None:
        """Forbid the last word of every phrase that a hypothesis itself avoids."""
        before = avoid_RPL.shape[2] - 1
        missing = max(0, before - written_RL.shape[1])  # a word that was not written equals none
        tail_RL = torch.nn.functional.pad(written_RL, (missing, 0), value=-2)
        tail_RL = tail_RL[:, tail_RL.shape[1] - before :]
        begun_RPL = avoid_RPL[..., :-1]
        last_RP = avoid_RPL[..., -1]
        same_RP = ((begun_RPL < 0) | (begun_RPL == tail_RL[:, None])).all(-1) & (last_RP >= 0)
        self._forbid_hits(gain_RV, last_RP.clamp(min=0), same_RP)

    def forbid_repeats(self, gain_RV: Tensor, written_RL: Tensor, count_R: Tensor) -> None:
        """Forbid n-grams that the blank has already, unless they contain an exempt word."""
        # Window w holds the words [w, w + n). Its last word is forbidden where its others are the
        # n - 1 words written last.
        grams_RWn = written_RL.unfold(1, self.ngram, 1)
        length, windows = written_RL.shape[1], grams_RWn.shape[1]
        first = torch.arange(windows, device=written_RL.device)
        inside_RW = first >= length - count_R[:, None]
        tail_Rn = written_RL[:, length - self.ngram + 1 :]
        same_RW = inside_RW & (grams_RWn[..., :-1] == tail_Rn[:, None]).all(-1)
        if len(self.free):
            same_RW &= ~torch.isin(grams_RWn, self.free).any(-1)
        # before the first word there are none, which cannot be hit
        self._forbid_hits(gain_RV, grams_RWn[..., -1].clamp(min=0), same_RW)

    def _forbid_hits(self, gain_RV: Tensor, word_RN: Tensor, hit_RN: Tensor) -> None:
        """Forbid the words that are hit."""
        # amin, because a word may be hit in one place and not in another
        blow = torch.where(hit_RN, -torch.inf, torch.inf).to(gain_RV.dtype)
        gain_RV.scatter_reduce_(1, word_RN, blow, "amin")
