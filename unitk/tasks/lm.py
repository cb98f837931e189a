"""Causal language model.  Radford et al. 2018 (GPT), section 3; Radford et al. 2019 (GPT-2).

Every token is predicted from the tokens before it.

    text     a  b  c  d              source a b, target c d
    token    C  a  b  c  d           C  a  b  S  c  d
    pos      0  1  2  3  4           0  1  2  3  4  5
    at       0  1  2  3  4           0  1  2  3  4  5
    label    a  b  c  d  S           .  .  .  c  d  S
    source                           a  b  S  .  .  .     with a `source_weight`

A backward model reads C d c b a and writes c b a S. S is the end of a document, not of a block that
is cut out of one. Stateful rows read all of a block, and C where a document begins:

    text     a  b  c | d  e          two blocks of a document
    token    C  a  b  c | d  e
    label    a  b  c  d | e  S
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.options.fields import Weight
from unitk.registry import register
from unitk.slots import Example, Ids, Protocol, Slots, lm, stay, unroll
from unitk.tasks.base import Encoded, Task, places_of
from unitk.vocab.base import Vocab


def layout(tokens: Ids, unread: int = 1, first: int = 1) -> Example:
    """Lay out tokens; those from the `first` on are asked. The last one is read if not `unread`."""
    steps = np.arange(first - 1, len(tokens) - 1)
    read = tokens[: max(len(tokens) - unread, 1)]  # one token alone asks nothing
    places = np.arange(len(read))
    return Example({"x": stay(read, pos=places, at=places)}, [lm(steps, tokens[first:])])


@register("task", "lm")
class LM(Task):
    """Predict each token from those before it (GPT, GPT-2, ULMFiT, SiATL)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """Ends of texts; how source and target of a pair are joined and weighted."""

        ends: bool = True
        """Predict the ends of documents. Where --blocks cuts a document, no end is predicted. off:
        no text has an end, and documents of --blocks stream no separator."""
        cut_ends: bool = False
        """Read every text as a document of its own: it has an end also where --blocks cuts a
        document. Models of 0.1.0 were trained so."""
        source_weight: Weight = 0.0
        """Pairs: weight of the mean loss over the source, beside that over the target. GPT's
        auxiliary loss has 0.5 (section 3.2). 0: off."""
        opening: Literal["cls", "sep", "none", "gmask"] = "cls"
        """Symbol before a text; with --stateful-rows, before a document or a stream. cls: [CLS].
        sep: [SEP], the end of a text (GPT-2). none: nothing (GPT). gmask: [gMASK] <sop> (GLM-4)."""
        delimiter: Literal["on", "off", "always"] = "on"
        """on: [SEP] ends the source of a pair, and the prompt of a model that was trained on pairs.
        Other models continue their prompt. off: the target continues the source. always: [SEP] ends
        every prompt."""
        backward: bool = False
        """Read and write texts from their end to their beginning (ULMFiT's second model; ELMo has
        both directions in one). For texts, not for pairs."""

    config: Config
    arch = "qwen3_mini"
    from_nothing = continues = True
    earlier = {"cut_ends": "on"}  # 0.1.0

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.separates = config.ends
        self.frame = max(len(self.start), config.ends or config.cut_ends)

    @cached_property
    def protocol(self) -> Protocol:
        v = self.vocab
        return Protocol(end=v.sep, banned=(v.pad, v.cls, v.mask))

    @cached_property
    def asks(self) -> dict[str, float]:
        return {"source": self.config.source_weight}

    @cached_property
    def start(self) -> Ids:
        v = self.vocab
        starts = {"cls": [v.cls], "sep": [v.sep], "none": [], "gmask": [v.gmask, v.sop]}
        return np.array(starts[self.config.opening], np.int64)

    @property
    def backward(self) -> bool:  # type: ignore[override]
        return self.config.backward

    def put_in_order(self, text: Ids) -> Ids:
        """A text in the order in which it is read, or what was written as a text."""
        return text[::-1] if self.backward else text

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        edges = (text.ends, text.begins) if self.backward else (text.begins, text.ends)
        first, last = (edge or self.config.cut_ends for edge in edges)  # of a document, as read
        opened = len(self.start) > 0
        start = self.start if first or not text.carried else self.start[:0]
        end = [self.vocab.sep] if self.config.ends and last else []
        # the next text's first token, unless that text is unrelated or has an opening that asks
        asks_next = (text.carried and not opened) if last else (text.carried or not opened)
        more = (text.before if self.backward else text.after) if asks_next else self.start[:0]
        tokens = np.concatenate([start, self.put_in_order(text.ids), end, more]).astype(np.int64)
        return layout(tokens, not (text.carried and len(end) + len(more) == 0), max(len(start), 1))

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        require(not self.backward, "--task.backward is for texts: a target follows its source")
        prompt = self.lay_out_prompt(source, self.config.delimiter != "off")
        example = unroll(prompt, self.protocol, np.append(target, self.vocab.sep))
        if self.config.source_weight:
            [asked] = layout(prompt.towers["x"].token, first=max(len(self.start), 1)).asks
            example.asks.append(replace(asked, name="source"))
        return example

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        require(
            not (self.backward and len(before)),
            "--task.backward: a text has no probability after what comes before it",
        )
        tokens = np.concatenate([self.start, before, self.put_in_order(text)])
        # in the order of the text; where nothing opens it, the token that is read first is no label
        asked = self.put_in_order(np.arange(max(len(tokens) - len(text), 1), len(tokens)))
        return replace(layout(tokens), asks=[lm(asked - 1, tokens[asked])])

    def reading(self, source: list[Ids]) -> Slots:
        return self.lay_out_prompt(source, delimited=False).towers["x"]

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """C a S b S: the last S has read everything; the words are asked beside (GPT, figure 1).

        `delimiter` off: C a S b, read at the last word.
        """
        example = self.lay_out_prompt(parts, delimited=self.config.delimiter != "off")
        tokens = example.towers["x"].token
        # all after the first token are predicted, the last S too, whose own label is the class
        example.asks.extend(layout(tokens, first=max(len(self.start), 1)).asks)
        places = places_of(parts, len(self.start))
        if self.backward:
            last = 2 * len(self.start) + len(self.join(parts)) - 1
            places = [last - own for own in places]
        return Encoded(example, "x", len(tokens) - 1, places)

    def text(self, source: list[Ids], written: Ids) -> str:
        return super().text(source, self.put_in_order(written))

    def prompt(self, source: list[Ids]) -> Example:
        delimiter = self.config.delimiter
        answers = delimiter == "always" or (delimiter == "on" and self.trained.pairs)
        return self.lay_out_prompt(source, answers)

    def lay_out_prompt(self, source: list[Ids], delimited: bool) -> Example:
        """A source that is to be continued, or answered if it is delimited."""
        words = self.put_in_order(self.join(source))
        # from nothing: the end of the text before it, as GPT-2 reads it
        start = self.start if source or len(self.start) else np.array([self.vocab.sep])
        tokens = np.concatenate([start, words, [self.vocab.sep] * delimited])
        steps = np.arange(len(tokens))
        return Example({"x": stay(tokens, pos=steps, at=steps)})
