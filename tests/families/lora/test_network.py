"""An adapter adds nothing at first; merged, a model computes the same without it."""

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.errors import UsageError
from unitk.models.attention import fused_parameters
from unitk.models.model import build
from unitk.optim.config import MuonConfig
from unitk.optim.muon import Muon
from unitk.optim.plan import OptimPlan
from unitk.optim.schedules import Constant
from unitk.options.fields import parse_named
from unitk.slots import Example, collate, lm, stay
from unitk.training.saving.checkpoint import tensors_of

V = 40
TINY = [one for one in registry.names("arch") if one.endswith("_tiny")]
STACKS = [one for one in TINY if not registry.get("arch", one)().sequential]


def lora(text="rank=3"):
    return parse_named("adapter", f"lora:{text}", "--adapter")


def built(arch, config=None):
    """A model in evaluation mode, the same one each time, with an adapter if it is given."""
    torch.manual_seed(1)
    model = build(registry.get("arch", arch)(), V).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # none of a layer's maps begins as 0 here
            parameter.add_(0.05 * torch.randn_like(parameter))
    if config is not None:
        config.apply(model)
    return model


def trained(model):
    """The model with an adapter that is not at its beginning."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_b." in name:
                parameter.normal_(std=0.3)
    return model


def batch(model, task="lm"):
    """Texts of two lengths in each tower; the decoded one reads from left to right."""
    examples = []
    for length in (9, 5):
        ids = np.arange(length) % V
        towers = {
            name: stay(ids, pos=np.arange(length), at=np.arange(length) * (name != "enc"))
            for name in model.config.towers
        }
        ask = lm(np.arange(length), ids, name="lm", tower=model.config.towers[-1])
        examples.append(Example(towers, [ask]))
    return collate([[one] for one in examples]).to(torch.device("cpu"))


@torch.no_grad()
def states(model):
    found, _ = model(batch(model))
    return found[model.config.towers[-1]]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("on=nosuch", "on=nosuch .*layers.0"),
        ("on=attention+nosuch", "on=nosuch .*attention, ffn"),
        ("on=layers.7.*", "on=layers.7"),
        ("on=embed.*", "on=embed"),
        ("on=attention.gate", "on=attention.gate"),
        ("rank=65", "rank must be at most 64, .*65"),
        ("rank=1000000000", "rank must be at most 64"),
    ],
)
def test_what_would_add_nothing_is_refused(text, named):
    """As it is of no matrix, or of a rank that none of them has."""
    for arch in ("gpt2_tiny", "bart_tiny"):  # of width 64
        with pytest.raises(UsageError, match=f"--adapter: {named}"):
            built(arch, lora(text))
        built(arch, lora("rank=64,on=ffn+*attention.out"))


@pytest.mark.parametrize("arch", STACKS)
def test_it_adds_nothing_at_first_and_merges_into_the_sum(arch):
    config = lora("rank=3,alpha=5")
    base, model = built(arch), built(arch, config)
    if not base.config.carries and arch not in ("optimus_tiny", "thu_ernie_tiny"):
        assert torch.equal(states(base), states(model))
    before = tensors_of(base)
    assert all(torch.equal(before[name], tensors_of(model)[name]) for name in before)
    merged = config.merge(tensors_of(trained(model)))
    assert merged.keys() == before.keys()
    base.load_state_dict(merged, strict=False)
    assert_near(states(base), states(model))
    adapted = {n.removesuffix("lora_a.weight") for n in tensors_of(model) if ".lora_a." in n}
    changed = {n for n in before if not torch.equal(merged[n], before[n])}
    assert not changed - {f"{name}weight" for name in adapted}


def test_parameters_are_counted_as_by_hand():
    model = built("qwen3_tiny", lora("rank=3"))
    config = model.config
    width, inner, keys = config.width, config.ffn_width, config.kv_width
    # queries; keys and values; out; gate and values; down: in and out of each
    sides = [(width, config.heads_width)] + [(width, keys)] * 2 + [(config.heads_width, width)]
    if not config.grouped:
        assert keys == config.heads_width
    sides += [(width, inner)] * 2 + [(inner, width)]
    own = [p.numel() for name, p in model.named_parameters() if ".lora_" in name]
    assert sum(own) == config.num_layers * sum(3 * (a + b) for a, b in sides)


@pytest.mark.parametrize(
    ("on", "parts"),
    [
        ("attention", {"attention.qkv", "attention.out"}),
        ("ffn", {"ffn.up", "ffn.down"}),
        ("*.qkv+layers.0.ffn.up", {"attention.qkv", "ffn.up"}),
    ],
)
def test_it_is_put_where_it_is_named(on, parts):
    names = [name for name, _ in built("gpt2_tiny", lora(f"on={on}")).named_parameters()]
    found = [name.removesuffix(".lora_a.weight") for name in names if ".lora_a." in name]
    assert {name.split(".", 2)[2] for name in found} == parts
    assert sum("ffn.up" in name for name in found) == (1 if "layers.0" in on else 2 * (on == "ffn"))


def test_both_towers_and_what_is_between_them():
    names = [name for name, _ in built("bart_tiny", lora()).named_parameters()]
    found = {name.split(".lora_")[0].replace(".1.", ".0.") for name in names if ".lora_" in name}
    own = {"attention.qkv", "attention.out", "ffn.up", "ffn.down"}
    across = {f"cross_attention.{part}" for part in ("query", "kv", "out")}
    assert found == {f"encoder.layers.0.{one}" for one in own} | {
        f"layers.0.{one}" for one in own | across
    }


def test_an_lstm_has_no_such_matrix():
    name = next(one for one in TINY if registry.get("arch", one)().sequential)
    with pytest.raises(UsageError, match="--adapter lora"):
        built(name, lora())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lora:rnk=8", "rank"),
        ("lora:rank=0", "rank.*at least 1.*0"),
        ("lora:alpha=0", "alpha.*0"),
        ("lora:dropout=1", "dropout.*1"),
        ("lor", "did you mean lora"),
    ],
)
def test_an_option_that_is_wrong_is_named(text, message):
    with pytest.raises(UsageError, match=f"--adapter.*{message}"):
        parse_named("adapter", text, "--adapter")


def test_gradients_are_those_of_the_sum():
    """dA = s B' dW and dB = s dW A', where dW is the gradient of a whole matrix."""
    config = lora("rank=3,alpha=6")
    model = trained(built("qwen3_tiny", config))
    merged = built("qwen3_tiny")
    merged.load_state_dict(config.merge(tensors_of(model)), strict=False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name)
    for one in (model, merged):
        found, _ = one(batch(one))
        found["x"].square().sum().backward()
    whole = dict(merged.named_parameters())
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            assert parameter.grad is None
    own = dict(model.named_parameters())
    for stem in (n.removesuffix("lora_a.weight") for n in own if n.endswith("lora_a.weight")):
        a, b = own[f"{stem}lora_a.weight"], own[f"{stem}lora_b.weight"]
        count = len(a) // 3
        for low, up, w, da, db in zip(
            *(one.chunk(count) for one in (a, b, whole[f"{stem}weight"].grad, a.grad, b.grad)),
            strict=True,
        ):
            for found, right in ((da, 2 * up.mT @ w), (db, 2 * w @ low.mT)):
                assert (found - right).norm() < 1e-4 * right.norm()


def test_muon_orthogonalises_each_matrix_that_is_stacked():
    model = built("gpt2_tiny", lora())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name)
    plan = OptimPlan(model, MuonConfig(), 1e-3, Constant(), fused=fused_parameters(model))
    [optimizer] = plan.optimizers
    assert isinstance(optimizer, Muon)
    counts = {
        name: count
        for group in optimizer.param_groups
        for name, count in zip(group["param_names"], group["matrices"], strict=True)
    }
    assert counts.keys() == {n for n, p in model.named_parameters() if p.requires_grad}
    assert all(count == (3 if "qkv" in name else 1) for name, count in counts.items())


def test_dropout_is_of_the_adapter_alone():
    model = trained(built("gpt2_tiny", lora("dropout=0.5")))
    first = states(model)
    assert torch.equal(first, states(model))
    model.train()
    one, other = states(model), states(model)
    assert not torch.equal(one, other)
    for name, parameter in model.named_parameters():
        if ".lora_b." in name:
            parameter.data.zero_()
    if not model.config.dropout:
        assert torch.equal(states(model), states(built("gpt2_tiny")))
