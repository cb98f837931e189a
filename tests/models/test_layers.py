"""The layer equals torch's own Transformer layer."""

import pytest
import torch
from rounding import assert_near
from torch import nn

from unitk.models import archs
from unitk.models.attention import View, bias
from unitk.models.config import ModelConfig
from unitk.models.layers import ACTIVATIONS, Context, Embedding, Layer
from unitk.models.model import build
from unitk.models.stack import Stack
from unitk.models.state import Reading
from unitk.slots import Example, collate, stay

NAMES = {
    "self_attn.in_proj_": "attention.qkv.",
    "self_attn.out_proj.": "attention.out.",
    "linear1.": "ffn.up.",
    "linear2.": "ffn.down.",
    "norm1.": "attention_norm.",
    "norm2.": "ffn_norm.",
}


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layer_equals_torch(norm_first, activation):
    torch.manual_seed(0)
    config = ModelConfig(
        width=32,
        num_heads=4,
        ffn_width=48,
        norm_first=norm_first,
        activation=activation,
        norm_eps=1e-6,
        dropout=0.0,
    )
    ours = Layer(config)
    theirs = nn.TransformerEncoderLayer(
        32,
        4,
        48,
        dropout=0.0,
        activation=ACTIVATIONS[activation],
        norm_first=norm_first,
        layer_norm_eps=1e-6,
        batch_first=True,
    )
    state = theirs.state_dict()
    for theirs_name, our_name in NAMES.items():
        state = {name.replace(theirs_name, our_name): value for name, value in state.items()}
    ours.load_state_dict(state)
    x = torch.randn(2, 7, 32)
    sight = torch.rand(7, 7) < 0.6
    sight.fill_diagonal_(True)
    expected = theirs(x, src_mask=~sight)
    slots = torch.zeros(9, 2, 7, dtype=torch.int64)
    view = View(slots, slots, bias(sight.expand(2, 7, 7), x.dtype))
    assert_near(ours(x, Context(view)), expected)


@torch.no_grad()
def test_what_a_layer_adds_is_dropped():
    x = torch.randn(2, 5, 32)
    config = ModelConfig(width=32, num_heads=4, ffn_width=48, dropout=0.999999)
    slots = torch.zeros(9, 2, 5, dtype=torch.int64)
    assert torch.equal(Layer(config).train()(x, Context(View(slots, slots))), x)


@torch.no_grad()
def test_embeddings_are_dropped_after_their_norm():
    config = ModelConfig(width=32, num_heads=4, embedding_norm=True, dropout=0.5)
    slots = torch.zeros(9, 4, 50, dtype=torch.int64)
    states = Embedding(config, 10).train()(slots)
    assert (states == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_activation_names_are_those_of_the_config():
    from typing import get_args

    from unitk.models.config import Activation

    assert tuple(ACTIVATIONS) == get_args(Activation)


@pytest.mark.parametrize("arch", ["bert_tiny", "gpt2_tiny", "pythia_tiny"])
def test_states_of_16_bits_stay_near_those_of_32(arch):
    """In between nothing has 32 bits; gradients reach the weights in theirs."""
    torch.manual_seed(0)
    model = build(archs.preset(arch), 50)
    batch = collate([[Example({"x": stay(range(12), range(12))})]]).to("cpu")
    exact, found = model(batch)[0]["x"], []
    for half in (False, True):
        for part in model.modules():
            if isinstance(part, Stack | Layer):
                part.half_states = half
        every: list[torch.Tensor] = []
        with torch.autocast("cpu", torch.bfloat16):
            found.append(model.decoder.encode(Reading.of(batch, "x", depths=every)))
        wide = {state.dtype for state in every[1:-1]}
        assert wide == {torch.bfloat16 if half else torch.float32}
    full, half = ((one - exact).norm() / exact.norm() for one in found)
    assert half < max(3 * full, 0.02)
    found[1].float().sum().backward()
    assert model.decoder.layers[0].ffn.down.weight.grad.dtype == torch.float32
