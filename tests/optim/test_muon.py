"""Muon's steps are orthogonal up to its iteration's error, whatever parameters they belong to."""

from dataclasses import replace

import pytest
import torch
from rounding import assert_near

from unitk.errors import UsageError
from unitk.models import archs
from unitk.models.attention import fused_parameters
from unitk.optim import muon
from unitk.optim.config import AdamWConfig, MuonConfig, parse_rules
from unitk.optim.muon import Muon, orthogonal
from unitk.optim.plan import OptimPlan
from unitk.optim.schedules import Constant

EXACT = MuonConfig(precision="fp32")
GATED = replace(archs.preset("mass_tiny"), ffn_gate=True, num_layers=1)


def optimizer_of(matrices, counts=None, config=EXACT, lr=0.1, decay=0.0):
    """Muon over matrices, some of which hold several."""
    parameters = [torch.nn.Parameter(one.clone()) for one in matrices]
    counts = counts or [1] * len(matrices)
    params = [(f"layers.{i}.weight", one) for i, one in enumerate(parameters)]
    group = {"params": params, "matrices": counts, "lr": lr, "weight_decay": decay}
    return Muon(config, [group]), parameters


def stepped(optimizer, parameters, *gradients):
    """The parameters after an update with each list of gradients."""
    for some in gradients:
        for one, grad in zip(parameters, some, strict=True):
            one.grad = grad.clone()
        optimizer.step()
    return [one.detach() for one in parameters]


def draw(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def with_singular_values(values, columns):
    """A matrix of these singular values."""
    left, _ = torch.linalg.qr(torch.randn(len(values), len(values)))
    right, _ = torch.linalg.qr(torch.randn(columns, len(values)))
    return left @ torch.diag(values) @ right.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_has_the_singular_vectors_and_almost_equal_values(dtype):
    torch.manual_seed(0)
    matrix = with_singular_values(torch.logspace(0, -1.5, 24), 60)
    (made,) = orthogonal(matrix[None], dtype).double()
    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    found = left.T @ made @ right.T
    assert 0.5 < found.diagonal().min() and found.diagonal().max() < 1.5
    assert (found - found.diagonal().diag()).abs().max() < (1e-5 if dtype.itemsize == 4 else 0.05)


def test_three_steps_are_those_of_the_definition():
    """Momentum and Nesterov by hand; the polynomial applied to the singular values, in float64."""
    (weight,), grads = draw((6, 10)), draw(*[(6, 10)] * 3, seed=1)
    optimizer, parameters = optimizer_of([weight], lr=0.1, decay=0.5)
    (found,) = stepped(optimizer, parameters, *([grad] for grad in grads))
    mean, weight = torch.zeros(6, 10).double(), weight.double()
    for grad in grads:
        mean = 0.95 * mean + 0.05 * grad.double()
        left, values, right = torch.linalg.svd(0.95 * mean + 0.05 * grad, full_matrices=False)
        values = values / values.norm()
        for _ in range(5):
            values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
        step = left @ values.diag() @ right
        weight = (1 - 0.1 * 0.5) * weight - 0.1 * 0.2 * 10**0.5 * step
    assert_near(found, weight.float())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [(16, 16), (12, 40), (40, 12)])
def test_updates_are_torchs(shape, precision, monkeypatch):
    (weight,), grads = draw(shape), draw(*[shape] * 3, seed=1)
    torchs = torch.nn.Parameter(weight.clone())
    other = torch.optim.Muon([torchs], lr=0.1, adjust_lr_fn="match_rms_adamw")
    with monkeypatch.context() as within:
        if precision == "fp32":  # torch's own always rounds to bf16
            within.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
            within.setattr(torch, "bfloat16", torch.float32)  # from 2.15 on
        for grad in grads:
            torchs.grad = grad.clone()
            other.step()
    config = replace(EXACT, precision=precision)
    optimizer, parameters = optimizer_of([weight], config=config, decay=0.1)
    (found,) = stepped(optimizer, parameters, *([grad] for grad in grads))
    if precision == "fp32":
        assert_near(found, torchs)
    else:  # which differs in where it rounds; the rounding itself is 0.004
        assert (found - torchs).norm() < 0.02 * (torchs - weight).norm()


def test_a_transposed_matrix_has_the_transposed_step():
    (weight, grad) = draw((8, 20), (8, 20))
    (wide,) = stepped(*optimizer_of([weight]), [grad])
    (tall,) = stepped(*optimizer_of([weight.T.contiguous()]), [grad.T])
    assert_near(wide, tall.T)


@pytest.mark.parametrize("shape", [(16, 16), (16, 48), (48, 16)])
def test_fused_matrices_are_separate_ones(shape):
    weights, grads = draw(*[shape] * 3), draw(*[shape] * 3, seed=1)
    apart = stepped(*optimizer_of(weights), grads)
    (whole,) = stepped(*optimizer_of([torch.cat(weights)], [3]), [torch.cat(grads)])
    assert_near(whole, torch.cat(apart))
    (joint,) = stepped(*optimizer_of([torch.cat(weights)]), [torch.cat(grads)])
    assert not torch.allclose(joint, torch.cat(apart), atol=1e-2)


def test_the_size_of_a_batch_changes_nothing(monkeypatch):
    weights, grads = (
        draw((8, 8), (8, 20), (20, 8), (8, 20)),
        draw((8, 8), (8, 20), (20, 8), (8, 20)),
    )
    at_once = stepped(*optimizer_of(weights), grads)
    monkeypatch.setattr(muon, "BATCH", 1)
    one_by_one = stepped(*optimizer_of(weights), grads)
    for one, other in zip(at_once, one_by_one, strict=True):
        assert_near(one, other)


def test_what_has_no_gradient_stays_and_has_no_state():
    (weight,) = draw((4, 4))
    optimizer, (parameter,) = optimizer_of([weight], decay=0.5)
    optimizer.step()
    assert torch.equal(parameter, weight) and not optimizer.state
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # no norm: nothing but decay
    assert_near(parameter.detach(), 0.95 * weight)


def plan_of(model, config, groups=()):
    rules = parse_rules(groups, config)
    return OptimPlan(model, config, 0.01, Constant(), rules, fused=fused_parameters(model))


def test_matrices_of_layers_are_muons_and_the_rest_adamws():
    model = GATED.build(30)
    plan = plan_of(model, MuonConfig(betas=(0.5, 0.6), weight_decay=0.3))
    kinds = {type(one).__name__: one for one in plan.optimizers}
    names = {
        kind: [name for group in one.param_groups for name in group["param_names"]]
        for kind, one in kinds.items()
    }
    dims = {name: parameter.dim() for name, parameter in model.named_parameters()}
    assert set(names["Muon"]) == {n for n in dims if "layers." in n and dims[n] == 2}
    assert set(names["Muon"]) | set(names["AdamW"]) == set(dims)
    for group in plan.groups:
        assert group["weight_decay"] in (0.3, 0.0)
    assert {group["betas"] for group in kinds["AdamW"].param_groups} == {(0.5, 0.6)}
    assert all(group["weight_decay"] == 0.3 for group in kinds["Muon"].param_groups)


def test_what_the_stack_fuses_is_split():
    model = GATED.build(30)
    counts = {
        name.rpartition("layers.0.")[2]: number
        for group in plan_of(model, MuonConfig()).groups
        for name, number in zip(group["param_names"], group["matrices"], strict=True)
        if "layers." in name and name.endswith("weight") and not name.startswith("encoder")
    }
    several = {name: count for name, count in counts.items() if count > 1}
    assert several == {
        "attention.qkv.weight": 3,
        "cross_attention.kv.weight": 2,
        "ffn.up.weight": 2,
    }
    named = dict(model.named_parameters())
    for name, count in fused_parameters(model).items():
        assert len(named[name]) % count == 0


def test_layer_decay_and_groups_scale_the_step():
    model, rates = GATED.build(30), {}
    plan = plan_of(model, MuonConfig(layer_decay=0.5), ["*.ffn.* lr-factor=3"])
    plan.begin(0, None, 0)
    for group in plan.groups:
        rates |= dict.fromkeys(group["param_names"], group["lr"])
    assert rates["layers.0.attention.qkv.weight"] == pytest.approx(0.01 * 0.5)
    assert rates["layers.0.ffn.up.weight"] == pytest.approx(0.01 * 0.5 * 3)
    assert rates["embed.tokens.weight"] == pytest.approx(0.01 * 0.25)


def test_muon_without_a_matrix_is_refused():
    model = GATED.build(30)
    with pytest.raises(UsageError, match=r"--group embed\.\*: muon.*no effect"):
        plan_of(model, AdamWConfig(), ["embed.* optimizer=muon"])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("layers." not in name)
    with pytest.raises(UsageError, match="--optimizer: muon.*no effect"):
        plan_of(model, MuonConfig())
