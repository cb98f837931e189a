"""Measures of a latent against hand calculation, laws and known truths."""

import math
import warnings

import pytest
import torch

from unitk.families.latent.measures import evidence
from unitk.families.latent.measures.evidence import (
    active_units,
    importance_bound,
    log_normal,
    log_weight,
    mutual_information,
)


def posteriors(count, latent, spread, deviation, seed=0):
    """Means of that spread, one deviation for all, and a draw of each."""
    source = torch.Generator().manual_seed(seed)
    mean = spread * torch.randn(count, latent, generator=source, dtype=torch.double)
    logvar = torch.full_like(mean, 2 * math.log(deviation))
    noise = torch.randn(count, latent, generator=source, dtype=torch.double)
    return mean + deviation * noise, mean, logvar


def test_density_is_the_normal_law():
    z, mean, logvar = torch.randn(3, 4, 2).double()
    law = torch.distributions.Normal(mean, (logvar / 2).exp())
    assert torch.allclose(log_normal(z, mean, logvar), law.log_prob(z).sum(-1), atol=1e-12)


def test_mutual_information_is_that_by_hand():
    # two texts, one dimension, deviation 1: means 0 and 2, draws 1 and 2
    z, mean = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [2.0]])
    near, far = math.exp(-1 / 2), math.exp(-4 / 2)
    first = math.log(near / ((near + near) / 2))
    second = math.log(1 / ((far + 1) / 2))
    found = mutual_information(z, mean, torch.zeros(2, 1))
    assert found == pytest.approx((first + second) / 2, abs=1e-12)


def test_mutual_information_between_collapse_and_ceiling():
    same = posteriors(50, 8, 0.0, 1.0)
    assert mutual_information(*same) == pytest.approx(0, abs=1e-12)
    apart = posteriors(50, 8, 100.0, 0.01)
    assert mutual_information(*apart) == pytest.approx(math.log(50), abs=1e-9)
    for seed in range(20):
        assert mutual_information(*posteriors(9, 3, 3.0, 0.3, seed)) <= math.log(9) + 1e-12


def test_mutual_information_of_a_gaussian_channel():
    # z = mean + noise: 1/2 ln(1 + spread^2 / deviation^2) a dimension
    found = mutual_information(*posteriors(3000, 2, 1.0, 0.5))
    assert found == pytest.approx(2 * math.log(1 + 4) / 2, rel=0.03)


def test_mutual_information_has_the_expectation_of_the_usual_estimate():
    z, mean, logvar = posteriors(500, 4, 1.0, 1.0)
    closed = -(4 * math.log(2 * math.pi) + (1 + logvar).sum(-1)) / 2
    mixture = log_normal(z[:, None], mean, logvar).logsumexp(1) - math.log(500)
    usual = float((closed - mixture).mean())
    noise = math.sqrt(4 / 2 / 500)  # of the mean of log q(z | x), which the usual one leaves in
    assert mutual_information(z, mean, logvar) == pytest.approx(usual, abs=4 * noise)


@pytest.mark.parametrize("chunk", [1, 7, 40, 1 << 20])
def test_mutual_information_does_not_depend_on_chunks(chunk, monkeypatch):
    some = posteriors(20, 3, 1.0, 0.4)
    whole = mutual_information(*some)
    monkeypatch.setattr(evidence, "DENSITIES", chunk)
    assert mutual_information(*some) == pytest.approx(whole, abs=1e-12)


def test_active_units_are_those_by_hand():
    # variances with one degree of freedom less: 0.0098, 0.0128, 0
    mean = torch.tensor([[0.0, 0.0, 5.0], [0.14, 0.16, 5.0]])
    assert active_units(mean) == 1
    assert active_units(0.8 * mean) == 0 and active_units(1.1 * mean) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where nothing is left to divide by
        assert active_units(mean[:1]) == 0


def linear_gaussian(count, draws, seed=1):
    """x = z + noise of deviation 1/2, z from N(0, 1): texts, draws of a poor q, its log-weights."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, generator=source, dtype=torch.double) * math.sqrt(1.25)
    mean, logvar = 0.5 * x, torch.zeros_like(x)  # the posterior is N(0.8 x, 0.2)
    noise = torch.randn(draws, count, 1, generator=source, dtype=torch.double)
    z = mean + noise
    nll = -torch.distributions.Normal(z, 0.5).log_prob(x)[..., 0]
    truth = torch.distributions.Normal(torch.zeros_like(x), math.sqrt(1.25)).log_prob(x)[:, 0]
    return log_weight(nll, z, mean, logvar), truth


def test_the_bound_rises_to_the_likelihood():
    weights, truth = linear_gaussian(200, 4096)
    bounds = [
        float(torch.cat([importance_bound(part) for part in weights.split(k)]).mean())
        for k in (1, 4, 16, 64, 256)
    ]
    assert bounds == sorted(bounds) and bounds[-1] < float(truth.mean())
    assert torch.allclose(importance_bound(weights), truth, atol=0.15)
    assert float(importance_bound(weights).mean()) == pytest.approx(float(truth.mean()), abs=4e-3)


def test_the_true_posterior_gives_the_likelihood_with_one_draw():
    x, z = torch.randn(2, 30, 1).double()
    mean, logvar = 0.8 * x, torch.full_like(x, math.log(0.2))
    nll = -torch.distributions.Normal(z, 0.5).log_prob(x)[..., 0]
    truth = torch.distributions.Normal(torch.zeros_like(x), math.sqrt(1.25)).log_prob(x)[..., 0]
    assert torch.allclose(importance_bound(log_weight(nll, z, mean, logvar)[None]), truth)


def test_the_bound_of_weights_beyond_what_exp_can_do():
    weights, _ = linear_gaussian(5, 100)
    low = importance_bound(weights - 2000)
    assert torch.isfinite(low).all()
    assert torch.allclose(low, importance_bound(weights) - 2000, atol=1e-9)
