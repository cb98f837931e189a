"""Settings that cannot be meant are told in one line; every setting changes something."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from unitk.errors import UsageError
from unitk.models.config import ModelConfig
from unitk.slots import Example, collate, lm, stay

PLAIN = ModelConfig(
    num_layers=2,
    width=16,
    num_heads=2,
    ffn_width=32,
    max_positions=8,
    dropout=0.0,
    attention_dropout=0.0,
    init_std=0.3,
)
OTHER = {
    "num_layers": 3,
    "width": 24,
    "num_heads": 4,
    "ffn_width": 40,
    "max_positions": 9,
    "max_positions2": 5,
    "position_offset": 2,
    "num_segments": 2,
    "norm_first": False,
    "embedding_norm": True,
    "final_norm": False,
    "norm_eps": 0.1,
    "activation": "relu",
    "bias": False,
    "tied": False,
    "output_bias": True,
    "head_transform": True,
    "dropout": 0.5,
    "attention_dropout": 0.5,
    "init_std": 0.1,
    "scaled_init": False,
}


def batch():
    slots = stay(np.arange(6), np.arange(6), at=[0, 0, 0, 1, 2, 3], pos2=np.arange(6) % 4, seg=1)
    return collate([[Example({"x": slots}, [lm(np.arange(6), np.arange(6))])]], pad=0).to("cpu")


def outcome(config):
    """What a model is and does: shapes, and logits in training with fixed randomness."""
    torch.manual_seed(0)
    model = config.build(10).train()
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    states, _ = model(batch())
    return shapes, model.head(states["x"].flatten(0, 1))


def test_every_field_is_tried():
    assert OTHER.keys() == {field.name for field in fields(ModelConfig)}


@pytest.mark.parametrize("name", OTHER)
def test_every_field_changes_parameters_or_outputs(name):
    assert getattr(PLAIN, name) != OTHER[name]
    shapes, logits = outcome(PLAIN)
    other_shapes, other_logits = outcome(replace(PLAIN, **{name: OTHER[name]}))
    assert shapes != other_shapes or not torch.allclose(logits, other_logits, atol=1e-3)


def test_every_parameter_is_read():
    everything = {
        name: OTHER[name]
        for name in ("embedding_norm", "max_positions2", "num_segments", "output_bias", "tied")
    }
    model = replace(PLAIN, **everything, head_transform=True, position_offset=1).build(10)
    states, _ = model(batch())
    model.head(states["x"].flatten(0, 1)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("scaled", [True, False])
def test_weights_are_drawn_as_the_settings_say(scaled):
    torch.manual_seed(0)
    model = replace(PLAIN, width=64, num_layers=8, scaled_init=scaled, tied=False).build(500)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert torch.all(parameter == (1.0 if name.endswith("norm.weight") else 0.0)), name
        else:
            adds = name.endswith(("attention.out.weight", "ffn.down.weight"))
            expected = 0.3 / 4 if adds and scaled else 0.3  # sqrt(2 * 8 layers) is 4
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name


def test_position_offset_shifts_the_table():
    model = replace(PLAIN, position_offset=2).build(10)
    plain = PLAIN.build(10)
    state = model.state_dict()
    assert len(state["embed.positions.weight"]) == PLAIN.max_positions + 2
    state["embed.positions.weight"] = state["embed.positions.weight"][2:]
    plain.load_state_dict(state)
    assert torch.equal(model(batch())[0]["x"], plain(batch())[0]["x"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_layers": 0}, "--arch.num-layers must be at least 1, got 0"),
        ({"num_heads": 5}, "--arch.num-heads must be a divisor of --arch.width 768, got 5"),
        ({"dropout": 1.0}, "--arch.dropout must be in [0, 1), got 1.0"),
        ({"norm_eps": 0.0}, "--arch.norm-eps must be above 0, got 0.0"),
        ({"max_positions": -1}, "--arch.max-positions must be at least 0, got -1"),
        (
            {"activation": "swish"},
            "--arch.activation must be one of gelu, gelu_tanh, relu, got swish",
        ),
        (
            {"position_offset": 2, "max_positions": 0},
            "--arch.position-offset must be 0 where --arch.max-positions is 0, got 2",
        ),
    ],
)
def test_a_bad_value_names_its_option(given, message):
    with pytest.raises(UsageError) as error:
        ModelConfig(**given)
    assert str(error.value) == message
