"""GLM blank infilling.  Du et al. 2022, arXiv 2103.10360, section 2.1 and figure 2.

Each span shrinks to one MASK in part A; part B spells the spans out, in shuffled order.

    text     a  b  c  d  e  f      spans [4, 6) then [2, 3)
    token    a  b  M  d  M   | S  e  f  | S  c
    pos      0  1  2  3  4   | 4  4  4  | 2  2
    pos2     0  0  0  0  0   | 1  2  3  | 1  2
    at       0  0  0  0  0   | 1  2  3  | 4  5
    label    .  .  .  .  .   | e  f  E  | c  E
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.options.fields import Above, Positive, Share, Weights
from unitk.registry import register
from unitk.slots import Example, Ids, Protocol, lm, stay, unroll
from unitk.spans import choose, long_span, most_share, most_spans, poisson_spans, sentence_spans
from unitk.tasks.base import Encoded, Task, max_share, places_of, share_at

MODES = "lm", "sentences", "document"  # their asks; lm: short spans, and fine-tuning


def layout(text: Ids, spans: Ids, *, mask: int, start: int, end: int, name: str) -> Example:
    """Lay out one text; `spans` [n, 2] do not overlap and come in the order of part B."""
    first = spans[:, 0]
    sizes = spans[:, 1] - spans[:, 0] + 1  # in part B: the words, and S or E
    stops = sizes.cumsum()
    begins = stops - sizes
    steps = np.arange(1, stops[-1] + 1)
    within = steps - begins.repeat(sizes)  # 1, 2, 3, ... in each span
    word = (first - 1).repeat(sizes) + within  # which is predicted; after the last one comes E
    label = text.take(word, mode="clip")
    fed = text[word - 1]
    label[stops - 1] = end
    fed[begins] = start
    shown = text.copy()
    kept = np.ones(len(text) + 1, bool)
    # the first place of a span has its MASK, and the place after it is no part of it
    shown[first] = mask
    kept[word] = False
    kept[spans] = True
    home = kept[:-1].cumsum() - 1  # where word i of the text is in part A
    part_a = stay(shown[kept[:-1]], pos=np.arange(home[-1] + 1))
    part_b = stay(fed, pos=home[first].repeat(sizes), pos2=within, at=steps)
    return Example({"x": part_a + part_b}, [lm(len(part_a) + steps - 1, label, name=name)])


@register("task", "glm_infill")
class GLMInfill(Task):
    """Blank infilling: spans, sentences or one long span, spelt out autoregressively (GLM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """Span laws and mixture of GLM pre-training; where the blank is in fine-tuning."""

        mask_ratio: Share = 0.15
        """Share of the text that moves to part B in token and sentence mode (section 2.1). A
        schedule is possible, of which validation uses the last value."""
        mean_span: Above = 3.0
        """Mean of the Poisson law of span lengths."""
        max_span: Positive = 39
        """Longest span of the Poisson law."""
        mixture: Weights = (1.0, 0.0, 0.0)
        """Weights of three modes (section 2.1): short spans [MASK], whole sentences [sMASK], one
        span of 50 to 100 % of the text [gMASK]. The loss is the weighted sum of their means."""
        mode_symbols: bool = True
        """Give each mode its own symbol. off: [MASK] in all of them (GLM-Doc and GLM-Sent large).
        It counts where --task.mixture has whole sentences or long spans."""
        mask_place: Literal["first", "last"] = "first"
        """Fine-tuning and prompts: put the blank before the source (first) or after it (last). A
        model that has learnt document mode, and no pairs, continues its prompt."""
        mask_symbol: Literal["mask", "smask", "gmask"] = "mask"
        """Fine-tuning and prompts: symbol of the blank."""
        opened: bool = True
        """Fine-tuning and prompts: begin part A with [CLS]."""
        unidirectional: bool = False
        """Scores of texts: part A has only the first token of the context (section 3.3)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            share = max_share(self.mask_ratio)
            limit = most_share(self.mean_span, self.max_span)
            require(
                share <= limit,
                f"--task.mask-ratio must be in (0, {limit:.2g}] with spans of {self.mean_span:g} "
                f"tokens on average, at most {self.max_span}, got {share:g}",
            )

    config: Config
    symbols = ("pad", "cls", "sep", "mask", "gmask", "smask", "sop", "eop")
    arch = "qwen3_mini"
    infills = True
    from_nothing = True
    needs = ("max_positions2",)
    record_asks: dict[str, float] = {}  # of the mixture nothing is left

    @cached_property
    def asks(self) -> dict[str, float]:
        total = sum(self.config.mixture)
        return {name: share / total for name, share in zip(MODES, self.config.mixture, strict=True)}

    @property
    def blank(self) -> int:
        return self.vocab.symbols[self.config.mask_symbol]

    @cached_property
    def protocol(self) -> Protocol:
        *banned, end = (self.vocab.symbols[name] for name in self.symbols)
        return Protocol(end=end, dpos=0, dpos2=1, begin=self.vocab.sop, banned=tuple(banned))

    def slots(self, n: Ids) -> Ids:
        c = self.config
        budget = np.maximum(1, (max_share(c.mask_ratio) * (n + self.frame)).astype(np.int64))
        max_spans = np.minimum(most_spans(budget, c.mean_span, c.max_span), np.maximum(n, 1))
        return n + self.frame + 2 * max_spans

    def last_pos2(self, n: int) -> int:
        short = not any(self.config.mixture[1:])
        return min(n, self.config.max_span if short else n) + 1  # of a span, after its S

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        v = self.vocab
        c = self.config
        ids = text.ids
        n = len(ids)
        mode = choose(c.mixture, rng)
        # the frame counts, as in the original
        share = share_at(c.mask_ratio, text.when)
        budget = max(1, min(int(share * (n + self.frame)), n))
        max_spans = min(int(most_spans(budget, c.mean_span, c.max_span)), max(n, 1))
        framed = np.concatenate([[v.cls], ids, [v.sep]])
        end = v.eop
        borders = ids == v.sep  # of documents
        if mode == 0:
            border = borders.nonzero()[0]
            spans = poisson_spans(n, budget, c.mean_span, c.max_span, max_spans, border, rng)
        elif mode == 1:
            spans = sentence_spans(v.sentence_end[ids] | borders, budget, max_spans, rng)
        else:
            spans = long_span(n, min(int((n + self.frame) / 2), n), rng)
            # of several documents a prefix LM writes the rest, S included (official code)
            if borders.any() and n > 1:
                spans = spans + n - spans[0, 1] + [1, 0]
                framed = framed[:-1]
                end = v.sep
        mask = (v.mask, v.smask, v.gmask)[mode if c.mode_symbols else 0]
        order = rng.permutation(spans) + 1
        return layout(framed, order, mask=mask, start=v.sop, end=end, name=MODES[mode])

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        return unroll(self.lay_out_prompt(source), self.protocol, np.append(target, self.vocab.eop))

    def prompt(self, source: list[Ids]) -> Example:
        return self.lay_out_prompt(source, self.trained.pairs or not self.config.mixture[2])

    def lay_out_prompt(self, source: list[Ids], answer: bool = True) -> Example:
        """Part A with the blank of an answer, or of the rest of a text, and the S that opens it."""
        v = self.vocab
        c = self.config
        ids = self.join(source)
        long = not answer and c.mode_symbols and c.mask_symbol == "mask"
        blank = [] if self.blanks(ids).any() else [v.gmask if long else self.blank]
        parts = [blank, ids] if answer and c.mask_place == "first" else [ids, blank]
        opening = [v.cls] if c.opened else []
        ids = np.concatenate([opening, *parts, [v.sep]]).astype(np.int64)
        part_a = stay(ids, pos=np.arange(len(ids)))
        at = np.flatnonzero(self.blanks(ids))
        homes = np.stack([at, np.ones_like(at)], axis=1)
        return Example({"x": part_a + stay([v.sop], at[:1], pos2=1, at=1)}, blanks=homes[1:])

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        # the rest of the context is written like the text, but not asked for
        shown, written = np.split(before, [1 if self.config.unidirectional else len(before)])
        prompt = np.append(shown, self.blank)
        example = super().lay_out_continuation(prompt, np.append(written, text))
        return replace(example, asks=[lm(example.asks[0].first[len(written) :], text)])

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """Part A with its blank, and the S that would begin to fill it: that slot has read all."""
        example = self.lay_out_prompt(parts)
        last = len(example.towers["x"]) - 1
        parts_first = self.config.mask_place == "first"  # the parts are before the last S of part A
        first = last - 1 - len(self.join(parts)) if parts_first else int(self.config.opened)
        return Encoded(Example(example.towers), "x", last, places_of(parts, first))

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        ends = np.flatnonzero(written == self.vocab.eop) + 1
        return np.flatnonzero(self.blanks(self.join(source))), np.split(written, ends)
