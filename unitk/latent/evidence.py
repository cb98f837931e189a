"""What an autoencoder says of texts one by one, with draws that do not depend on the batches.

Texts are numbered in the order of the batches' docs. N texts of a batch, M of all, Z dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.latent.measures import active_units, importance_bound, log_weight, mutual_information
from unitk.slots import DOC, Batch

TEXT = "lm"
"""The ask whose labels are the text's words."""
SEED = 20040092
"""Of the draws: a text's draws are those of its number, in every run."""


@dataclass(frozen=True)
class Evidence:
    """Posteriors and likelihoods of M texts, on the CPU and in double precision; all in nats."""

    mean: Tensor
    logvar: Tensor
    z: Tensor
    """[M, Z]: the first draw of each text."""
    kl: Tensor
    """[M, Z]: divergence of each dimension from the prior."""
    nll: Tensor
    """[M]: what the text costs given its latent, the mean over the draws."""
    bound: Tensor
    """[M]: importance-weighted lower bound of its log-likelihood."""

    @property
    def mutual_information(self) -> float:
        return mutual_information(self.z, self.mean, self.logvar)

    @property
    def active(self) -> int:
        return active_units(self.mean)


def noise(numbers: Iterable[int], latent: int) -> Iterator[Tensor]:
    """Standard normal draws [N, Z] without end, those of a text a function of its number."""
    sources = [np.random.default_rng([SEED, number]) for number in numbers]
    while True:
        yield torch.from_numpy(np.stack([one.standard_normal(latent) for one in sources]))


def partners(count: int) -> Tensor:
    """Another text for each of `count` texts, at random: z is shuffled so."""
    order = np.random.default_rng(SEED).permutation(count)
    found = np.empty(count, np.int64)
    found[order] = np.roll(order, 1)
    return torch.from_numpy(found)


@torch.no_grad()
def gather(
    model: Any,
    batches: Iterable[Batch],
    draws: int = 1,
    report: Callable[[int], None] = lambda done: None,
    given_KMZ: Tensor | None = None,
) -> Evidence:
    """Encode every text, and judge it with so many draws; `report` hears of each text and draw.

    With `given_KMZ` the draws are made of this noise: K for each of the M texts.
    """
    draws = draws if given_KMZ is None else len(given_KMZ)
    found: list[tuple[Tensor, ...]] = []
    first = 0
    for batch in batches:
        posterior = model.posterior(batch)
        mean, logvar = posterior.mean.double(), posterior.logvar.double()
        numbers = range(first, first := first + len(mean))
        nll, weights, kept = mean.new_zeros(len(mean)), [], None
        drawn = noise(numbers, mean.shape[1])
        if given_KMZ is not None:
            drawn = iter(given_KMZ[:, numbers.start : numbers.stop].double())
        for _, draw in zip(range(draws), drawn, strict=False):
            z = mean + (logvar / 2).exp() * draw.to(mean.device)
            kept = z if kept is None else kept
            one = text_nll(model, batch, z.to(posterior.mean.dtype))
            nll += one / draws
            weights.append(log_weight(one, z, mean, logvar)[None])
            report(len(mean))
        assert kept is not None
        table = mean, logvar, kept, posterior.kl().double(), nll, importance_bound(weights)
        found.append(tuple(part.cpu() for part in table))
    return Evidence(*(torch.cat(column) for column in zip(*found, strict=True)))


@torch.no_grad()
def nll_of(model: Any, batches: Iterable[Batch], z: Tensor) -> Tensor:
    """[M] nats of every text given these latents [M, Z]."""
    found, first = [], 0
    for batch in batches:
        some = z[first : (first := first + len(batch.owner))]
        weight = next(model.parameters())
        found.append(text_nll(model, batch, some.to(weight.device, weight.dtype)).cpu())
    return torch.cat(found)


def text_nll(model: Any, batch: Batch, z_NZ: Tensor) -> Tensor:
    """[N] nats of the words of each doc given its latent."""
    ask = batch.asks[TEXT]
    nll_K: Tensor = -model.log_probs(batch, ask, model.latent(z_NZ, batch))
    doc_K = batch.towers[ask.tower][DOC].flatten()[ask.first]
    return nll_K.new_zeros(len(z_NZ), dtype=torch.double).index_add(
        0, doc_K, (ask.weight * nll_K).double()
    )
