"""What `torch.compile` is given: one graph for a layer, and the values of eager code."""

import pytest
import torch
from rounding import assert_near

from unitk.kernels.lean import map_normed, norm, unit_rms
from unitk.models import archs, attention
from unitk.models.relative import rotate, rotation
from unitk.models.stack import Stack
from unitk.models.state import Reading
from unitk.slots import Example, collate, stay


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As on a GPU: attention by SDPA; nothing is left of what other tests compiled."""
    monkeypatch.setattr(attention, "scores_by_products", lambda *given: False)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def traced(function):
    """The function as `torch.compile` traces it, without code of its own; a break is an error."""
    return torch.compile(function, backend="eager", fullgraph=True, dynamic=True)


def slots(length):
    return collate([[Example({"x": stay(range(length), range(length))})]]).to("cpu").towers["x"]


@pytest.mark.every(6)
@pytest.mark.parametrize(
    "arch",
    [
        *("bert_tiny", "glm_tiny", "gpt2_tiny", "t5_tiny", "modern_tiny"),
        *("gemma3_tiny", "modernbert_tiny", "pythia_tiny"),
    ],
)
@pytest.mark.parametrize("sight", ["full", "causal", "rule"])
def test_a_layer_is_one_graph_with_the_states_of_eager_code(arch, sight):
    torch.manual_seed(0)
    config = archs.preset(arch)
    eager = Stack(config, 50).eval()
    given = Reading(slots(12), sight, 12)
    wanted = eager.encode(given)
    for layer in eager.layers:
        layer.forward = traced(layer.forward)
    assert_near(eager.encode(given), wanted)


def test_a_traced_norm_and_rotation_have_the_values_and_gradients_of_eager_code():
    torch.manual_seed(0)
    config = archs.preset("modern_tiny")
    turns = rotation(config, slots(16), config.rotary_base)
    x = torch.randn(1, config.num_heads, 16, config.key_width)
    inside, down = (
        norm(config, config.key_width, inside=True),
        torch.nn.Linear(config.key_width, 3, bias=False),
    )
    ways = {
        "rotated": lambda x: rotate(x, turns),
        "normed": lambda x: unit_rms(x, config.norm_eps),
        "mapped": lambda x: map_normed(inside, down, x),
    }
    for way in ways.values():
        found = []
        for function in (way, traced(way)):
            own = x.clone().requires_grad_()
            made = function(own)
            (made * torch.linspace(-1, 1, made.numel()).view(made.shape)).sum().backward()
            found.append((made.detach(), own.grad))
        for one, other in zip(*found, strict=True):
            assert_near(one, other)
