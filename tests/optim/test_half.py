"""Means in bf16 are rounded without bias; AdamW and Muon take their own steps on average."""

from copy import deepcopy

import pytest
import torch
from rounding import assert_near

from unitk.optim import half
from unitk.optim.config import AdamWConfig, MuonConfig, parse_rules
from unitk.optim.half import HalfAdamW, HalfMuon, draw, round_into
from unitk.optim.muon import Muon
from unitk.optim.optimizers import adamw, muon
from unitk.optim.plan import OptimPlan
from unitk.optim.schedules import Constant

HALF = AdamWConfig(state="bf16")
ALL = torch.arange(1 << 16, dtype=torch.int32)  # each random number once


def optimizer_of(config, *values):
    """An optimizer, and its parameters, which begin as these values."""
    parameters = [torch.nn.Parameter(one.clone()) for one in values]
    params = [(f"w{i}", one) for i, one in enumerate(parameters)]
    return adamw(config, [{"params": params, "lr": 0.1, "weight_decay": 0.2}]), parameters


def muon_of(state, *values):
    """Muon with momenta in this precision, and its parameters, which begin as these values."""
    parameters = [torch.nn.Parameter(one.clone()) for one in values]
    params = [(f"w{i}", one) for i, one in enumerate(parameters)]
    group = {"params": params, "matrices": [1] * len(params), "lr": 0.1, "weight_decay": 0.2}
    return muon(MuonConfig(state=state, precision="fp32"), [group]), parameters


def stepped(optimizer, parameters, gradients):
    """The parameters after an update with each gradient."""
    for some in gradients:
        for one, grad in zip(parameters, some, strict=True):
            one.grad = None if grad is None else grad.clone()
        optimizer.step()
    return [one.detach().clone() for one in parameters]


def rounded(value):
    """A value rounded with each random number."""
    found = torch.empty(len(ALL), dtype=torch.bfloat16)
    round_into(found, torch.full(ALL.shape, value), ALL)
    return found


@pytest.mark.parametrize("value", [1.003, -0.7654321, 3.1e-7, -1.2345e-39, 0.99999994])
def test_rounding_is_right_on_average(value):
    found = rounded(value).double()
    assert found.mean().item() == torch.tensor(value).item()  # every term is a dyadic fraction
    below, above = found.unique().tolist()
    assert below < torch.tensor(value).item() < above
    between = torch.tensor([below, above]).abs().bfloat16().view(torch.int16)
    assert abs(int(between[1]) - int(between[0])) == 1  # neighbours


@pytest.mark.parametrize("value", [0.0, 1.0, -0.15625, float("inf"), float("-inf")])
def test_a_value_of_bf16_is_not_rounded(value):
    assert rounded(value).unique().tolist() == [value]


def test_random_numbers_are_uniform_and_depend_on_the_step():
    cpu = torch.device("cpu")
    one = draw(1 << 18, 3, cpu)
    assert torch.equal(one, draw(1 << 18, 3, cpu)) and not torch.equal(one, draw(1 << 18, 4, cpu))
    assert (one >= 0).all() and (one < 1 << 16).all()
    counts = torch.bincount(one >> 10, minlength=64).double()  # 4,096 each
    assert (counts - 4096).abs().max() < 5 * 64  # standard deviations


def test_the_first_step_is_adamws():
    torch.manual_seed(0)
    values, grads = torch.randn(300, 7), torch.randn(300, 7)
    (found,), (wanted,) = (
        stepped(*optimizer_of(config, values), [[grads]]) for config in (HALF, AdamWConfig())
    )
    assert_near(found, wanted)


def test_means_follow_adamws_where_rounding_to_nearest_stands_still(monkeypatch):
    """A second mean moves by 1/50 of its distance; half of bf16's is 1/512 of its size."""
    monkeypatch.setitem(half.BLOCK, "cpu", 1 << 10)
    start, end = torch.full((5000,), 1.0), torch.full((5000,), 1.05)
    gradients = [[start]] * 400 + [[end]] * 20
    one, parameters = optimizer_of(HALF, torch.zeros(5000))
    stepped(one, parameters, gradients)
    two, parameters = optimizer_of(AdamWConfig(), torch.zeros(5000))
    stepped(two, parameters, gradients)
    for name in ("exp_avg", "exp_avg_sq"):
        (found,), (wanted,) = ([s[name] for s in o.state.values()] for o in (one, two))
        assert found.dtype == torch.bfloat16 and found.unique().numel() > 1
        # a step's rounding has a deviation of at most 1/256, of which some steps are left
        assert (found.double().mean() / wanted.double().mean() - 1).abs() < 1e-3


def test_blocks_of_any_size_and_lacking_gradients(monkeypatch):
    torch.manual_seed(0)
    values = [torch.randn(40, 3), torch.randn(5), torch.randn(())]
    gradients = [[torch.randn_like(one) for one in values] for _ in range(3)]
    gradients[0][1] = gradients[1][2] = None
    small, wanted = (optimizer_of(config, *values) for config in (HALF, AdamWConfig()))
    monkeypatch.setitem(half.BLOCK, "cpu", 32)
    pairs = zip(stepped(*small, gradients), stepped(*wanted, gradients), strict=True)
    for found, one in pairs:
        # three steps of 0.1, whose means are off by 1/256
        assert (found - one).abs().max() < 3 * 0.1 * 3 / 256
    assert [int(s["step"]) for s in small[0].state.values()] == [3, 2, 2]
    assert stepped(*optimizer_of(HALF, values[0]), [[None]])[0].equal(values[0])


@pytest.mark.parametrize("other", [HALF, AdamWConfig()])
def test_a_state_is_continued_from_bit_for_bit_or_rounded(other):
    torch.manual_seed(0)
    gradients = torch.randn(4, 1, 90)
    first, parameters = optimizer_of(other, torch.zeros(90))
    stepped(first, parameters, gradients[:2])
    again, copies = optimizer_of(HALF, parameters[0].detach())
    again.load_state_dict(deepcopy(first.state_dict()))
    for name, found in again.state[copies[0]].items():
        assert torch.equal(found, first.state[parameters[0]][name].to(found.dtype))
    later = stepped(again, copies, gradients[2:])
    if other is HALF:
        assert torch.equal(later[0], stepped(first, parameters, gradients[2:])[0])


@pytest.mark.parametrize("block", [1 << 17, 64])
def test_muons_first_step_is_that_of_momenta_in_fp32(block, monkeypatch):
    monkeypatch.setitem(half.BLOCK, "cpu", block)
    torch.manual_seed(0)
    values, grads = (
        [torch.randn(8, 30), torch.randn(30, 8)],
        [torch.randn(8, 30), torch.ones(30, 8)],
    )
    both = (stepped(*muon_of(state, *values), [grads]) for state in ("bf16", "fp32"))
    for found, wanted in zip(*both, strict=True):
        assert_near(found, wanted)


def test_momenta_follow_gradients_where_rounding_to_nearest_stands_still():
    """A momentum moves by 1/20 of its distance; half of bf16's is 1/256 of its size at 1."""
    start, end = torch.full((40, 50), 1.0), torch.full((40, 50), 1.04)
    optimizer, (parameter,) = muon_of("bf16", torch.zeros(40, 50))
    optimizer.state[parameter] |= {"momentum": start.bfloat16(), "step": 1}
    stepped(optimizer, [parameter], [[end]] * 20)
    found = optimizer.state[parameter]["momentum"]
    assert found.dtype == torch.bfloat16 and found.unique().numel() > 1
    wanted = 1.04 - 0.04 * 0.95**20
    # a rounding has a deviation below 1/256; the mean of 2,000 is off by 1/40 of a few of them
    assert abs(found.double().mean().item() - wanted) < 1e-3


@pytest.mark.parametrize("state", ["bf16", "fp32"])
def test_momenta_are_continued_from_bit_for_bit_or_rounded(state):
    torch.manual_seed(0)
    gradients = torch.randn(4, 1, 9, 11)
    first, parameters = muon_of(state, torch.zeros(9, 11))
    stepped(first, parameters, gradients[:2])
    again, copies = muon_of("bf16", parameters[0].detach())
    again.load_state_dict(deepcopy(first.state_dict()))
    found, wanted = again.state[copies[0]], first.state[parameters[0]]["momentum"]
    assert torch.equal(found["momentum"], wanted.bfloat16())
    later = stepped(again, copies, gradients[2:])
    if state == "bf16":
        assert torch.equal(later[0], stepped(first, parameters, gradients[2:])[0])


def test_who_keeps_means_in_bf16():
    assert (HALF.state_bytes, AdamWConfig().state_bytes) == (4, 8)
    layer = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Linear(3, 2)])})
    muon = MuonConfig(state="bf16")
    kinds = {type(one) for one in OptimPlan(layer, muon, 1, Constant()).optimizers}
    assert kinds == {HalfAdamW, HalfMuon}
    rules = parse_rules(["*.bias state=bf16"], MuonConfig())
    plan = OptimPlan(layer, MuonConfig(), 1, Constant(), rules)
    assert {type(one) for one in plan.optimizers} == {HalfAdamW, Muon}
