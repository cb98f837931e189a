"""Measures of a latent, as pure functions of tensors; see docs/latent-measures.md for reading them.

All are in nats. M texts, each with a normal posterior of Z independent dimensions, prior N(0, 1);
sums are in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

ACTIVE = 0.01
"""Variance of a dimension's posterior means from which on it counts as active."""
CHUNK = 1 << 22
"""Most densities that are computed at a time: blocks of texts against all texts."""


def log_normal(z: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """Log-density of each latent under its own posterior: [..., Z] -> [...]."""
    z, mean, logvar = z.double(), mean.double(), logvar.double()
    square = (z - mean) ** 2 * (-logvar).exp()
    return -(square + logvar + math.log(2 * math.pi)).sum(-1) / 2


def mutual_information(z: Tensor, mean: Tensor, logvar: Tensor, chunk: int = CHUNK) -> float:
    """What a latent tells of which text it was drawn from, at most ln M (Z, Z, Z: [M, Z] each).

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
    rows = max(1, chunk // len(z))
    for start in range(0, len(z), rows):
        some = z[start : start + rows]
        square = some**2 @ precision.T - 2 * some @ (mean * precision).T
        density = -(square + scale_M) / 2
        # the text's own posterior, to the last bit: the ceiling holds
        here = torch.arange(len(some), device=z.device)
        density[here, start + here] = own_M[start : start + rows]
        total += (own_M[start : start + rows] - density.logsumexp(-1)).sum()
    return float(total) / len(z) + math.log(len(z))


def active_units(mean: Tensor, threshold: float = ACTIVE) -> int:
    """Dimensions whose posterior mean [M, Z] varies between texts by at least the threshold.

    Burda et al. 2016, arXiv 1509.00519, section 5; variance with M - 1 degrees of freedom.
    """
    return int((mean.double().var(0, correction=1) >= threshold).sum())


def log_weight(nll: Tensor, z: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """log p(x | z) + log p(z) - log q(z | x) of draws z [..., Z], given -log p(x | z) [...]."""
    prior = log_normal(z, torch.zeros_like(z), torch.zeros_like(z))
    return prior - log_normal(z, mean, logvar) - nll.double()


def importance_bound(chunks: Iterable[Tensor]) -> Tensor:
    """A lower bound [M] of each log p(x): the log of the mean weight over all draws.

    `chunks` are log-weights [k, M] of some draws each; the more draws in all, the tighter (Burda et
    al. 2016, arXiv 1509.00519, theorem 1). How they are divided changes nothing but rounding.
    """
    draws, found = 0, None
    for chunk in chunks:
        total = chunk.double().logsumexp(0)
        found = total if found is None else torch.logaddexp(found, total)
        draws += len(chunk)
    assert found is not None, "there are no draws"
    return found - math.log(draws)
