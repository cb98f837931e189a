"""Fill in masks in one pass, each with its likeliest word, for tasks without a protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import regex
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.fit import batches, by_example
from unitk.decoding.search import Hypothesis
from unitk.errors import NonFiniteError
from unitk.models.base import Decoder
from unitk.slots import Example, Ids, collate
from unitk.tasks.base import Task
from unitk.vocab.base import MARKS
from unitk.vocab.scripts import UNSPACED

NO_BLANK = regex.compile(UNSPACED, regex.V1)
NEAR = 8
"""Tokens before a blank that decide, with what fills it, whether a blank stands between them."""


@torch.inference_mode()
def fill(
    model: Decoder,
    prompts: Sequence[Example],
    banned: Ids,
    config: GenerateConfig,
    report: Callable[[int], None] = lambda done: None,
) -> list[list[Hypothesis]]:
    """One output for each prompt: a word for each asked slot, never one of `banned`."""
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    model.eval()
    for numbers in batches(prompts, config.max_tokens):
        batch = collate([[prompts[i]] for i in numbers]).to(model.device)
        [ask] = batch.asks.values()
        found_K = model.likeliest(batch, ask, banned)
        if not found_K[1].isfinite().all():
            raise NonFiniteError("the model gives logits that are not finite: nothing is filled in")
        both = [by_example(one, prompts, numbers) for one in found_K]
        for (i, ids), (_, each) in zip(*both, strict=True):
            total = float(each.sum())
            found[i] = [Hypothesis(ids, total / len(ids) ** config.lenpen, total, each)]
        report(len(numbers))
    return found


def filled_in(task: Task, text: str, source: list[Ids], written: Ids) -> str:
    """A text with what was `written` in the place of its blanks; `source` are its ids.

    Its other characters stay as they are, whatever the vocabulary makes of them. Tasks that write
    the whole text have their own.
    """
    blanks, fills = task.fills(source, written)
    ids, decode = task.joined(source), task.vocab.decode
    places, marks = np.flatnonzero(task.blanks(ids)), list(MARKS.finditer(text))
    if not len(blanks) or len(marks) != len(places):
        return task.text(source, written)
    by_place = dict(zip(blanks.tolist(), fills, strict=False))
    out, at, read = "", 0, 0
    known: Ids = ids[:0]  # the tokens up to a blank
    for mark, place in zip(marks, places.tolist(), strict=True):
        out, at = out + text[at : mark.start()], mark.end()
        known, read = np.append(known, ids[read:place]), place + 1
        fill = by_place.get(place, ids[:0])
        before, both = decode(known[-NEAR:]), decode(np.append(known[-NEAR:], fill))
        known = np.append(known, fill)
        new = both[len(before) :] if both.startswith(before) else " " + decode(fill)
        word, apart = new.strip(), new[:1].isspace()
        if not word:
            out = out[:-1] if out.endswith(" ") and text[at : at + 1].isspace() else out
        elif apart and out and not out[-1].isspace() and not NO_BLANK.match(word):
            out += " "
        elif not apart and before:
            out = out.rstrip(" ")
        out += word
    return out + text[at:]
