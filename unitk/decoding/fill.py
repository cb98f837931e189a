"""Fill in masks in one pass, and blanks of a text whose other characters stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import regex
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.drivers import DIFFUSION, SEARCH, Driver, Prompt, Watcher
from unitk.decoding.fit import batch_prompts, split_by_example
from unitk.decoding.search import Hypothesis
from unitk.errors import NonFiniteError, require
from unitk.registry import register
from unitk.slots import Ids, collate
from unitk.tasks.base import Task
from unitk.vocab.base import MARKS, SYMBOLS, TYPED
from unitk.vocab.scripts import UNSPACED

NO_BLANK = regex.compile(UNSPACED, regex.V1)
NEAR = 8
"""Tokens before a blank that decide, with what fills it, whether a blank is between them."""


@register("driver", "once")
class Once(Driver):
    """Fills all masks in one pass, each with its most probable word."""

    shortens = False

    @torch.inference_mode()
    def outputs(
        self, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
    ) -> list[list[Hypothesis]]:
        """One output for each prompt: a word for each asked slot, and never a symbol."""
        config.idle(f"has no effect: task {self.task.name} does not diffuse", *DIFFUSION)
        why = "has no effect: masks are filled in one pass, one output with the most probable words"
        config.idle(why, *SEARCH, "sampling", "temperature", "nbest")
        constraints = [prompt.constraint for prompt in prompts]
        require(not any(constraint.prefix for constraint in constraints), f"--prefix-file {why}")
        require(not any(constraint.phrases for constraint in constraints), f"--constraints {why}")
        banned = np.array(list(self.task.vocab.symbols.values()))  # a mask stands for a word
        outputs: list[list[Hypothesis]] = [[] for _ in prompts]
        examples = [prompt.example for prompt in prompts]
        self.model.eval()
        for numbers in batch_prompts(examples, config.max_tokens):
            batch = collate([[examples[i]] for i in numbers]).to(self.model.device)
            [ask] = batch.asks.values()
            logits_KV = self.model.output(batch, ask)
            # before the softmax: the rest share all of the probability
            logits_KV[:, banned] = -torch.inf
            word_K = logits_KV.argmax(-1)
            head = self.model.members[0].heads.get(ask.head)
            gain_K = -head.terms(logits_KV, word_K, ask.weight).nll
            if not gain_K.isfinite().all():
                raise NonFiniteError(
                    "the model gives logits that are not finite: nothing is filled in"
                )
            words = split_by_example(word_K, examples, numbers)
            gains_of = split_by_example(gain_K, examples, numbers)
            for (i, ids), (_, gains) in zip(words, gains_of, strict=True):
                total = float(gains.sum())
                outputs[i] = [Hypothesis(ids, total / len(ids) ** config.lenpen, total, gains)]
            watch.report(len(numbers))
        return outputs


def fill_in(task: Task, text: str, source: list[Ids], written: Ids) -> str:
    """A text with what was `written` in the place of its blanks; `source` are its ids.

    Its other characters stay as they are, whatever the vocabulary makes of them. Tasks that write
    the whole text have their own.
    """
    blanks, fills = task.fills(source, written)
    ids = task.join(source)
    positions = np.flatnonzero(task.blanks(ids)).tolist()
    out, *pieces = MARKS.split(text)
    if len(pieces) != len(positions):  # blanks as people type them
        out, *pieces = MARKS.split(TYPED.sub(SYMBOLS["mask"], text))
    if not len(blanks) or len(pieces) != len(positions):
        return task.text(source, written)
    by_position = dict(zip(blanks.tolist(), fills, strict=False))
    decode = task.vocab.decode
    known: Ids = ids[:0]  # the tokens up to a blank
    read = 0
    for position, rest in zip(positions, pieces, strict=True):
        known = np.append(known, ids[read:position])
        read = position + 1
        fill = by_position.get(position, ids[:0])
        before = decode(known[-NEAR:])
        joined = decode(np.append(known[-NEAR:], fill))
        known = np.append(known, fill)
        new = joined[len(before) :] if joined.startswith(before) else " " + decode(fill)
        out = _append(out, new, bool(before), rest) + rest
    return out


def _append(out: str, fill: str, glues: bool, rest: str) -> str:
    """Append a fill, after a space if it begins with one and `out` does not end with one.

    An empty fill leaves no second space before the `rest` of the text. glues: a fill without a
    space takes the place of those at the end of `out`.
    """
    word = fill.strip()
    if not word:
        return out[:-1] if out.endswith(" ") and rest[:1].isspace() else out
    if not fill[0].isspace():
        return (out.rstrip(" ") if glues else out) + word
    spaced = not out or out[-1].isspace() or NO_BLANK.match(word)
    return out + word if spaced else f"{out} {word}"
