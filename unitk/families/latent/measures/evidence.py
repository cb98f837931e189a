"""Evidence of single texts under an autoencoder, with draws that batching does not change.

Texts are numbered in the order of the batches' docs. N texts of a batch, M of all, Z dimensions of
a normal posterior; the prior is N(0, 1). The measures at the end are pure functions of tensors, in
nats and in double precision. docs/latent-measures.md explains how to read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.progress import Report, no_report
from unitk.slots import DOC, Batch

TEXT = "lm"  # the ask whose labels are the text's words
SEED = 20040092  # of the draws: a text's draws are those of its number, in every run
ACTIVE = 0.01  # variance of a dimension's posterior means from which on it counts as active
DENSITIES = 1 << 22
"""Most densities that are computed at a time: blocks of texts against all texts."""


@dataclass(frozen=True)
class Evidence:
    """Posteriors and likelihoods of M texts, on the CPU and in double precision; all in nats."""

    mean: Tensor
    logvar: Tensor
    z: Tensor  # [M, Z]: the first draw of each text
    kl: Tensor  # [M, Z]: divergence of each dimension from the prior
    nll: Tensor  # [M]: what the text costs given its latent, the mean over the draws
    bound: Tensor  # [M]: importance-weighted lower bound of its log-likelihood

    def figures(self, objective: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """The measures that training and evaluation share: docs/latent-measures.md."""
        return {
            "reconstruction": float(self.nll.mean()),
            "kl": sum(self.kl.mean(0).tolist()),
            "kl_objective": float(objective(self.kl)) / len(self.kl),
            "mi": mutual_information(self.z, self.mean, self.logvar),
            "mi_ceiling": math.log(len(self.z)),
            "active": active_units(self.mean),
        }


def noise(numbers: Iterable[int], latent: int) -> Iterator[Tensor]:
    """Endless standard normal draws [N, Z]; those of a text depend only on its number."""
    # a generator for each text, so that batches do not change what it draws
    sources = [np.random.default_rng([SEED, number]) for number in numbers]
    while True:
        yield torch.from_numpy(np.stack([source.standard_normal(latent) for source in sources]))


def partners(count: int) -> Tensor:
    """A random other text for each of `count` texts, to shuffle latents with."""
    order = np.random.default_rng(SEED).permutation(count)
    partner = np.empty(count, np.int64)
    # one cycle through all texts: none is its own partner
    partner[order] = np.roll(order, 1)
    return torch.from_numpy(partner)


@torch.no_grad()
def gather_evidence(
    model: Any,
    batches: Iterable[Batch],
    draws: int = 1,
    report: Report = no_report,
) -> Evidence:
    """Encode every text, and compute its likelihood with this many draws.

    `report` is called for each text and draw.
    """
    rows: list[tuple[Tensor, ...]] = []
    first = 0
    for batch in batches:
        posterior = model.posterior(batch)
        mean, logvar = posterior.mean.double(), posterior.logvar.double()
        numbers = range(first, first := first + len(mean))
        nll = mean.new_zeros(len(mean))
        log_weights = []
        first_draw = None
        for _, draw in zip(range(draws), noise(numbers, mean.shape[1]), strict=False):
            z = mean + (logvar / 2).exp() * draw.to(mean.device)
            first_draw = z if first_draw is None else first_draw
            cost = text_nll(model, batch, z.to(posterior.mean.dtype))
            nll += cost / draws
            log_weights.append(log_weight(cost, z, mean, logvar))
            report(len(mean))
        assert first_draw is not None
        bound = importance_bound(torch.stack(log_weights))
        row = mean, logvar, first_draw, posterior.kl().double(), nll, bound
        rows.append(tuple(column.cpu() for column in row))
    return Evidence(*(torch.cat(column) for column in zip(*rows, strict=True)))


@torch.no_grad()
def nll_of(model: Any, batches: Iterable[Batch], z: Tensor) -> Tensor:
    """[M] nats of every text given these latents [M, Z]."""
    costs = []
    first = 0
    weight = next(model.parameters())
    for batch in batches:
        z_NZ = z[first : (first := first + len(batch.owner))]
        costs.append(text_nll(model, batch, z_NZ.to(weight.device, weight.dtype)).cpu())
    return torch.cat(costs)


def z_gap(model: Any, batches: Iterable[Batch], z: Tensor, own_nll: Tensor) -> float:
    """The mean cost in nats of a text given another text's latent, minus that given its own.

    `z` are the latents [M, Z], and `own_nll` the costs [M] given these. There are two texts or
    more.
    """
    return float((nll_of(model, batches, z[partners(len(z))]) - own_nll).mean())


def text_nll(model: Any, batch: Batch, z_NZ: Tensor) -> Tensor:
    """[N] nats of the words of each doc given its latent."""
    ask = batch.asks[TEXT]
    nll_K: Tensor = -model.log_probs(batch, ask, model.latent(z_NZ, batch))
    # words are asked in any order of docs, so each is added to its own
    doc_K = batch.towers[ask.tower][DOC].flatten()[ask.first]
    return nll_K.new_zeros(len(z_NZ), dtype=torch.double).index_add(
        0, doc_K, (ask.weight * nll_K).double()
    )


def log_normal(z: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """Log-density of each latent under its own posterior: [..., Z] -> [...]."""
    z, mean, logvar = z.double(), mean.double(), logvar.double()
    square = (z - mean) ** 2 * (-logvar).exp()
    return -(square + logvar + math.log(2 * math.pi)).sum(-1) / 2


def mutual_information(z: Tensor, mean: Tensor, logvar: Tensor) -> float:
    """Mutual information of latent and text in nats, at most ln M; arguments are [M, Z].

    The mean over texts of log q(z | x) - log q(z), where z is one draw of the text's posterior and
    q(z) the mean of all M posteriors: Hoffman and Johnson 2016 ("ELBO surgery"), as estimated by
    He et al. 2019, arXiv 1901.05534, over the whole set as in Optimus. These take the mean of log
    q(z | x) in closed form, which has the same expectation, more noise, and no sharp ceiling.
    """
    z, mean, logvar = z.double(), mean.double(), logvar.double()
    own_M = log_normal(z, mean, logvar)
    precision = (-logvar).exp()
    scale_M = ((mean**2 * precision) + logvar + math.log(2 * math.pi)).sum(-1)
    total = z.new_zeros(())
    rows = max(1, DENSITIES // len(z))
    for start in range(0, len(z), rows):
        block = z[start : start + rows]
        # (z - mean)^2 / var multiplied out: two products of matrices instead of [rows, M, Z]
        square = block**2 @ precision.T - 2 * block @ (mean * precision).T
        density = -(square + scale_M) / 2
        # the text's own posterior, to the last bit: the ceiling holds
        rows_of_block = torch.arange(len(block), device=z.device)
        density[rows_of_block, start + rows_of_block] = own_M[start : start + rows]
        total += (own_M[start : start + rows] - density.logsumexp(-1)).sum()
    return float(total) / len(z) + math.log(len(z))


def active_units(mean: Tensor) -> int:
    """Dimensions whose posterior mean [M, Z] varies between texts by 0.01 or more.

    Burda et al. 2016, arXiv 1509.00519, section 5; variance with M - 1 degrees of freedom. A single
    text has none.
    """
    square = mean.double().var(0, correction=0) * len(mean)
    return int((square >= ACTIVE * max(len(mean) - 1, 1)).sum())


def log_weight(nll: Tensor, z: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """log p(x | z) + log p(z) - log q(z | x) of draws z [..., Z], given -log p(x | z) [...]."""
    prior = log_normal(z, torch.zeros_like(z), torch.zeros_like(z))
    return prior - log_normal(z, mean, logvar) - nll.double()


def importance_bound(log_weights: Tensor) -> Tensor:
    """A lower bound [M] of each log p(x): the log of the mean weight over draws [draws, M].

    The more draws, the tighter (Burda et al. 2016, arXiv 1509.00519, theorem 1).
    """
    return log_weights.double().logsumexp(0) - math.log(len(log_weights))
