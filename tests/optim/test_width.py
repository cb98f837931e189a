"""Rates and first weights that fit every width: the coordinate check of Yang et al. 2022, D.1."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from unitk.criterions.cross_entropy import CrossEntropy
from unitk.models import archs
from unitk.models.attention import fused_parameters
from unitk.optim.config import AdamWConfig, MuonConfig
from unitk.optim.plan import OptimPlan
from unitk.optim.rates import BASE_WIDTH, RATES
from unitk.optim.schedules import Constant
from unitk.slots import Example, collate, lm, stay

WIDTHS = 64, 256
UPDATES = 3
OPTIMIZERS = {"muon": MuonConfig(precision="fp32"), "adamw": AdamWConfig()}


def texts():
    """Rows in which each token decides the next one."""
    rng, rows = np.random.default_rng(0), []
    following = rng.permutation(40)
    for first in rng.integers(40, size=4):
        ids = [int(first)]
        while len(ids) < 17:
            ids.append(int(following[ids[-1]]))
        slots = stay(np.array(ids[:-1]), pos=np.arange(16), at=np.arange(16))
        rows.append([Example({"x": slots}, [lm(rows=np.arange(16), label=ids[1:])])])
    return collate(rows).to("cpu")


def sizes(width, optimizer, rate, base):
    """The root mean squares of the states after each layer and of the logits, after training."""
    torch.manual_seed(0)
    shape = {"num_layers": 1, "width": width, "ffn_width": width, "num_heads": width // 16}
    model = replace(archs.preset("qwen3_mini"), **shape, base_width=base).build(40)
    own = replace(optimizer, base_width=base)
    plan = OptimPlan(model, own, rate, Constant(), fused=fused_parameters(model))
    batch, criterion, found = texts(), CrossEntropy(), {}
    for step in range(UPDATES):
        plan.begin(step, None, 0)
        (criterion(model, batch, step, None).sums["lm"] / 64).backward()
        plan.step()
        plan.zero_grad()

    def note(name):
        return lambda _, __, out: found.update({name: float(out.detach().square().mean().sqrt())})

    for name, part in model.named_modules():
        if re.search(r"layers\.\d+$|^heads.lm$", name):
            part.register_forward_hook(note(name))
    criterion(model, batch, 0, None)
    assert len(found) == 2
    return found


def spread(name, base, widths=WIDTHS):
    """How many times as large the states are at one width as at another, at most."""
    each = [sizes(width, OPTIMIZERS[name], RATES[name], base) for width in widths]
    return max(max(one[key] for one in each) / min(one[key] for one in each) for key in each[0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_are_as_large_at_every_width(name):
    assert spread(name, BASE_WIDTH) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_are_as_large_at_twice_the_base_width(name):
    assert spread(name, BASE_WIDTH, (64, 256, 512)) < 1.5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_a_base_width_states_grow_with_it(name):
    assert spread(name, 0) > 2


@pytest.mark.parametrize(("optimizer", "share"), [(MuonConfig(), 0.5), (AdamWConfig(), 0.25)])
def test_rates_of_layers_fall_with_the_width(optimizer, share):
    """At four times the base width."""
    model = replace(archs.preset("qwen3_tiny"), width=64).build(30)
    plan = OptimPlan(model, replace(optimizer, base_width=16), 0.1, Constant())
    rates = {name: one["factor"] for one in plan.groups for name in one["param_names"]}
    matrices = {rate for n, rate in rates.items() if re.search(r"layers.*(qkv|out|up|down)", n)}
    assert matrices == {share}
    assert rates.pop("norm.weight") == 0.25
    vectors = [n for n in rates if n.startswith("embed") or n.endswith("norm.weight")]
    assert vectors and {rates[name] for name in vectors} == {1}


def test_first_weights_fall_with_the_root_of_the_width():
    config = replace(archs.preset("qwen3_mini"), width=256, num_layers=1, zero_init=False)
    torch.manual_seed(0)
    plain = dict(config.build(30).named_parameters())
    torch.manual_seed(0)
    scaled = dict(replace(config, base_width=64).build(30).named_parameters())
    for name, one in plain.items():
        factor = {"norm.weight": 0.25}.get(name, 0.5 if "layers" in name and one.dim() > 1 else 1)
        assert torch.allclose(scaled[name], factor * one), name
