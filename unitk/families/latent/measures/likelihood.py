"""The estimator of texts by an autoencoder: the importance-weighted bound of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from unitk.decoding.fit import batch_prompts, count_excess, split_by_example
from unitk.decoding.likelihood import Texts
from unitk.errors import DataError
from unitk.evaluation.estimators import Cost, Estimation, Estimator, Kind
from unitk.families.latent.measures.evidence import TEXT, gather_evidence
from unitk.families.latent.task import Optimus
from unitk.models.base import Decoder
from unitk.registry import register
from unitk.slots import Batch, Example, Floats, collate
from unitk.tasks.base import Task


@register("estimator", "importance")
class Importance(Estimator):
    """The bound of Burda et al. 2016, arXiv 1509.00519, with draws of each text's latent.

    The cost of a token is its cost given the most probable latent; the latent and the end have the
    rest.
    """

    kind: ClassVar[Kind] = "bound"
    contexts = False
    draws = 100

    @torch.inference_mode()
    def costs(self, model: Decoder, task: Task, texts: Texts, how: Estimation) -> list[Cost]:
        assert isinstance(task, Optimus)
        config = replace(task.config, encoder_drop=0.0, decoder_drop=0.0, fusion=False)
        plain = task.with_attributes(config=config)
        examples, numbers = list[Example](), list[int]()
        for number, (_, text) in enumerate(texts):
            if len(text):
                numbers.append(number)
                examples.append(plain.lay_out_reply([text], text, np.random.default_rng(0)))
                if (over := count_excess(examples[-1], model.config)) > 0:
                    raise DataError(
                        f"{how.name(number)} is too long by {over:,} for this model's positions"
                    )
        [network] = model.members
        network.eval()
        # draws are those of a text's place in this order, whatever it shares a batch with
        order, drawn_batches = list[int](), list[Batch]()
        for numbers_of_batch in batch_prompts(examples, how.max_tokens):
            order += numbers_of_batch
            drawn_batches.append(
                collate([[examples[i]] for i in numbers_of_batch]).to(model.device)
            )
        bound = -gather_evidence(network, drawn_batches, how.draws, how.report).bound.numpy()
        costs = [Cost(np.zeros(len(text))) for _, text in texts]
        tokens = _cost_at_mean(network, drawn_batches, examples, order)
        for i, total in zip(order, bound.tolist(), strict=True):
            gains = tokens[i][:-1].astype(np.float64)  # without the end
            costs[numbers[i]] = Cost(gains, total - float(gains.sum()))
        return costs


def _cost_at_mean(
    network: Any,
    drawn_batches: list[Batch],
    examples: list[Example],
    order: list[int],
) -> dict[int, Floats]:
    """The cost of each label of each example, given its most probable latent."""
    tokens = dict[int, Floats]()
    rest = iter(order)
    for batch in drawn_batches:
        [ask] = batch.asks.values()
        assert ask.name == TEXT
        z_NZ = network.posterior(batch).mean
        nll_K = -network.log_probs(batch, ask, network.latent(z_NZ, batch))
        numbers = [next(rest) for _ in range(len(batch.owner))]
        tokens |= split_by_example(nll_K, examples, numbers)
    return tokens
