"""All that can be said of a latent on a corpus: bound, divergence, information, collapse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from unitk.data.batching import single_batches
from unitk.latent.elbo import ELBO, Autoencoder
from unitk.latent.evidence import gather, nll_of, partners
from unitk.latent.panel import IGNORED
from unitk.score.language import Units, perplexities
from unitk.slots import Batch, Ids
from unitk.training.evaluate import Evaluation, Report, texts_of, units_of


def has_latent(evaluation: Evaluation) -> bool:
    """Whether it is an autoencoder."""
    return isinstance(evaluation.model, Autoencoder) and isinstance(evaluation.criterion, ELBO)


@dataclass(frozen=True)
class Latent:
    """An autoencoder on M texts."""

    figures: dict[str, float]  # by name, see docs/latent-measures.md
    each: list[float]  # nats of divergence of each dimension
    means: np.ndarray  # [M, Z]: the most likely latents
    texts: list[Ids]  # the words of each text, in the same order
    notes: list[str]  # what is absurd, and why


@torch.no_grad()
def latent(evaluation: Evaluation, draws: int, max_tokens: int, report: Report) -> Latent:
    """Everything about the latent; `report` hears of every text in every draw."""
    examples = evaluation.data.train.examples
    texts: list[Ids] = []

    def batches(keep: bool = False) -> Iterator[Batch]:
        ids = np.arange(len(examples.bounds(0)))
        for batch in single_batches(examples, ids, max_tokens):
            if keep:
                texts.extend(texts_of(batch))
            yield batch.to(evaluation.device)

    with evaluation.autocast():
        seen = gather(evaluation.model, batches(keep=True), draws, report)
        count = len(texts)
        gap = math.nan
        if count > 1:
            other = nll_of(evaluation.model, batches(), seen.z[partners(count)])
            own = nll_of(evaluation.model, batches(), seen.z)
            gap = float((other - own).mean())
    units = units_of(evaluation, texts)
    each = seen.kl.mean(0).tolist()
    told = seen.figures(evaluation.criterion.objective)
    figures = {
        "bound": -float(seen.bound.mean()),
        "elbo": told["reconstruction"] + told["kl"],
        **told,
        "dimensions": len(each),
        "z_gap": gap,
        **perplexities(-float(seen.bound.sum()), units),
    }
    notes = list(_notes(evaluation, figures, units))
    return Latent(figures, each, seen.mean.numpy(), texts, notes)


def _notes(evaluation: Evaluation, figures: dict[str, float], units: Units) -> Iterator[str]:
    beta, step = evaluation.criterion.config.beta, evaluation.state["step"]
    steps = evaluation.state["config"].get("max_steps", "none")
    uniform = units.tokens / units.texts * math.log(len(evaluation.data.vocab))
    words = "reconstruction means something, but bound, kl and perplexities are no VAE's"
    if beta.value == 0:
        yield f"trained with beta = 0: an autoencoder, whose divergence was left free; {words}"
    elif steps != "none" and step and not evaluation.criterion.beta(step - 1, int(steps)):
        yield f"saved at update {step:,}, while beta was 0: the divergence was free; {words}"
    elif figures["elbo"] > uniform:
        yield (
            f"a kl of {figures['kl']:.4g} nats a text is beyond sense: equal chances for all words"
            f" cost {uniform:.4g}, and ln M = {figures['mi_ceiling']:.2f} tell the texts apart;"
            " trained with too small a beta, or on other texts"
        )
    if figures["z_gap"] < IGNORED:
        yield "the decoder ignores the latent (posterior collapse): this is a language model"
