"""Fill in masks in one pass, each with its likeliest word, for tasks without a protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.fit import batches, by_example
from unitk.decoding.search import Hypothesis
from unitk.errors import NonFiniteError
from unitk.models.base import Decoder
from unitk.slots import Example, Ids, collate


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
