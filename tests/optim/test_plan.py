"""Each parameter has the optimizer and the rate that the options say, from when on they say."""

import math
import re
from dataclasses import replace

import pytest
import torch

from unitk.errors import UsageError
from unitk.models import archs
from unitk.optim.config import AdamWConfig, BertAdamConfig, parse_rules
from unitk.optim.plan import OptimPlan, distances, freeze
from unitk.optim.schedules import Constant, Linear
from unitk.registry import get


def make(name="bert_tiny", **changes):
    torch.manual_seed(0)
    return replace(archs.preset(name), **changes).build(30)


def plan_of(model, config=None, groups=(), thaw=None, lr=0.01, schedule=Constant()):  # noqa: B008
    config = config or AdamWConfig()
    return OptimPlan(model, config, lr, schedule, parse_rules(groups, config), thaw)


def rates(plan, *when):
    plan.begin(*when)
    return {n: g["lr"] for g in plan.groups for n in g["param_names"]}


def update(model, plan, when=(0, None, 0)):
    """An update with gradients that are 1 everywhere, also where nothing may change."""
    plan.begin(*when)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    plan.step()
    plan.zero_grad()


def changed(model, before):
    return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}


def copy(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_rates_fall_from_layer_to_layer():
    found = rates(plan_of(make(num_layers=3), AdamWConfig(layer_decay=0.5)), 0, None, 0)
    for name, rate in found.items():
        layer = re.match(r"layers\.(\d)", name)
        below = 3 - int(layer[1]) if layer else 4 if name.startswith("embed.") else 0
        assert rate == 0.01 * 0.5**below, name
    assert set(found.values()) == {0.01, 0.005, 0.0025, 0.00125, 0.000625}


def test_each_tower_has_its_own_height():
    names = ["encoder.embed.x", "encoder.layers.1.x", "encoder.norm.x", "relative.table.w"]
    names += ["embed.x", "layers.0.x", "layers.2.x", "heads.lm.x"]
    assert [*distances(names).values()] == [3, 1, 0, 4, 4, 3, 1, 0]


def test_a_group_has_its_factor_schedule_and_decay():
    groups = ["embed.* lr-factor=0.1 weight-decay=0.3 lr-schedule=linear:warmup=4", "floor=0.5"]
    groups += ["layers.* lr-factor=2 betas=0.5", "0.25", "*.bias lr-factor=3"]
    plan = plan_of(make(), groups=groups, lr=0.1, schedule=Linear(warmup=2))
    found = rates(plan, 7, 12, 0)  # update 8
    assert found["embed.tokens.weight"] == pytest.approx(0.1 * 0.1 * 0.75)
    assert found["layers.1.ffn.up.bias"] == pytest.approx(0.1 * 2 * 0.4)
    assert found["heads.lm.bias"] == pytest.approx(0.1 * 3 * 0.4)
    assert found["heads.lm.transform.norm.weight"] == pytest.approx(0.1 * 0.4) == plan.rate
    decays = {n: g["weight_decay"] for g in plan.groups for n in g["param_names"]}
    assert decays["embed.tokens.weight"] == 0.3 and decays["layers.0.ffn.up.weight"] == 0.1
    assert decays["embed.norm.weight"] == 0.0
    betas = {n: g["betas"] for g in plan.groups for n in g["param_names"]}
    assert betas["layers.0.ffn.up.weight"] == (0.5, 0.25)
    assert betas["embed.tokens.weight"] == (0.9, 0.98)


@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf])
def test_no_update_has_a_rate_that_cannot_be_meant(value):
    """As a schedule of one's own may say: NaN would go into all weights."""
    plan = plan_of(make(), schedule=lambda step, total: value if step == 3 else 0.0)
    plan.begin(1, None, 0)
    with pytest.raises(UsageError, match="--lr-schedule: .*update 3 is "):
        plan.begin(2, None, 0)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adamw"])
def test_the_weights_of_layers_decay_where_a_group_says_so(optimizer):
    """ELMo's lambda |w|^2: a vector goes to 0 by its decay alone, and w of a gradient is one of
    the decay's loss."""
    heads = "class:label:3"
    model = make(heads=(heads,), head_layers=(0, 1, 2))
    name = "heads.class:label.mix.weight"
    config = get("optimizer", optimizer)(weight_decay=0.0)
    weight = dict(model.named_parameters())[name]
    with torch.no_grad():
        weight.copy_(torch.tensor([2.0, -1.0, 0.5]))
    others = {n: p.detach().clone() for n, p in model.named_parameters() if n != name}
    plan = plan_of(model, config, groups=["heads.*.mix.weight weight-decay=0.4"], lr=0.1)
    plan.begin(0, None, 0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = weight.detach().clone()
    plan.step()
    assert all(torch.equal(p, others[n]) for n, p in model.named_parameters() if n != name)
    if optimizer == "adagrad":  # its first step is the rate, whatever the gradient
        torch.testing.assert_close(weight.detach(), before - 0.1 * before.sign())
    else:
        torch.testing.assert_close(weight.detach(), before * (1 - 0.1 * 0.4))


def test_what_is_frozen_is_bit_equal():
    model = make()
    before = copy(model)
    freeze(model, ["embed.*", "layers.0.*"])
    update(model, plan_of(model))
    names = {name for name, _ in model.named_parameters()}
    assert changed(model, before) == {n for n in names if not n.startswith(("embed", "layers.0"))}


@pytest.mark.parametrize("thaw", ["epoch", "10"])
def test_one_layer_more_is_thawed_at_a_time(thaw):
    model = make(num_layers=2)
    plan = plan_of(model, thaw=thaw)
    stages = ["heads", "layers.1", "layers.0", "embed"]
    for stage in range(5):
        for step in (10 * stage, 10 * stage + 9):  # the first and the last update of a stage
            before = copy(model)
            update(model, plan, (step, None, stage))
            names = {name for name, _ in model.named_parameters()}
            allowed = tuple(stages[: stage + 1])
            assert changed(model, before) == {n for n in names if n.startswith(allowed)}


def test_two_optimizers_are_two_runs_on_disjoint_parts():
    both, one, two = make(), make(), make()
    own = BertAdamConfig(weight_decay=0.2)
    plans = [
        plan_of(both, groups=["layers.*.weight optimizer=bert_adam weight-decay=0.2"]),
        plan_of(one),
        plan_of(two, own),
    ]
    assert [type(o).__name__ for o in plans[0].optimizers] == ["AdamW", "BertAdam"]
    for model, plan in zip((both, one, two), plans, strict=True):
        for step in range(3):
            update(model, plan, (step, None, 0))
    named = [dict(model.named_parameters()) for model in (both, one, two)]
    for name, tensor in named[0].items():
        mine = name.startswith("layers") and name.endswith("weight")
        assert torch.equal(tensor, named[2 if mine else 1][name]), name
    assert not torch.equal(named[1]["layers.0.ffn.up.weight"], named[2]["layers.0.ffn.up.weight"])


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("layer.* lr-factor=2", r"--group: no parameter has a name like 'layer\.\*'"),
        ("layers.* lr-facto=2", "--group layers.*: there is no 'lr-facto'; did you mean lr-factor"),
        ("layers.* optimizer=adam", "--group layers.* optimizer: there is no optimizer 'adam'"),
        ("layers.* eps=-1", "--group layers.* eps must be above 0.*, got -1"),
        ("layers.* lr-factor=-1", "--group layers.* lr-factor must be above 0.*, got -1"),
        ("layers.* lr-factor=x", "--group layers.* lr-factor must be a number, got 'x'"),
        ("heads.* layer-decay=0.5", "--group heads.* layer-decay has no effect"),
        ("heads.lm.bias optimizer=muon", "--group heads.lm.bias: muon has no effect"),
        ("*.bias optimizer=muon lr-factor=2", r"--group .*bias: muon has no effect"),
        (  # matrices decay, and adapt therefore
            "layers.*.ffn.*.weight optimizer=lamb always-adapt=off",
            "--group layers.*.ffn.*.weight always-adapt has no effect",
        ),
        (
            "layers.* lr-factor=2,layers.0.* lr-factor=3",
            "--group layers.0.*: a group before it has all of its parameters",
        ),
    ],
)
def test_a_bad_group_names_its_place(group, message):
    with pytest.raises(UsageError, match=message.replace("*:", r"\*:").replace(".* ", r"\.\* ")):
        plan_of(make(), groups=[group])


def test_an_option_that_some_parameters_read_is_none_without_effect():
    groups = ["layers.*.weight optimizer=lamb always-adapt=off", "embed.tokens.* "]
    plan_of(make(), groups=[*groups, "embed.* layer-decay=0.5"])  # norms do not decay


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(UsageError, match=r"--freeze: no .*'embd.\*' .*begin .*heads"):
        freeze(make(), ["embd.*"])
    model = make()
    freeze(model, ["*"])
    with pytest.raises(UsageError, match="--freeze .*nothing"):
        plan_of(model)
    model = make()
    freeze(model, ["embed.*", "layers.*"])
    with pytest.raises(UsageError, match="--thaw .*no effect"):
        plan_of(model, thaw="epoch")


def test_a_group_of_frozen_parameters_is_answered_with_what_froze_them():
    model = make()
    freeze(model, ["layers.0.*"])
    with pytest.raises(UsageError, match=r"^--group layers\.0\.\*: --freeze or --adapter"):
        plan_of(model, groups=["layers.0.* lr-factor=2"])
    part = plan_of(model, groups=["layers.* lr-factor=2"])  # the other layer is trained
    assert {group["factor"] for group in part.groups} == {1, 2}
