"""Settings that cannot be meant are told in one line; every setting changes something."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.errors import UsageError
from unitk.models.config import EncoderDecoderConfig, ModelConfig
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
    "head_width": 12,
    "layer_heads": (2, 1),
    "num_kv_heads": 1,
    "layer_windows": (1, 0),
    "ffn_width": 40,
    "ffn_gate": True,
    "positions": "rotary",
    "rotary_base": 100.0,
    "layer_rotary_bases": (50.0, 0.0),
    "rotary_share": 0.5,
    "rotary_factor": 4.0,
    "rotary_wavelengths": (5.0, 50.0),
    "max_positions": 9,
    "max_positions2": 5,
    "position_offset": 2,
    "num_segments": 2,
    "num_tasks": 2,
    "num_virtual": 1,
    "relative_buckets": 8,
    "relative_distance": 5,
    "embedding_width": 12,
    "layer_groups": 1,
    "layer_share": "ffn",
    "embedding_scale": True,
    "norm_first": False,
    "embedding_norm": True,
    "final_norm": False,
    "norm_after": True,
    "first_norm": False,
    "parallel_residual": True,
    "norm": "rms",
    "norm_bias": False,
    "norm_eps": 0.1,
    "norm_inside": True,
    "qk_norm": True,
    "qk_norm_weights": True,
    "qk_norm_joint": True,
    "head_gate": True,
    "embedding_skip": True,
    "score_scale": False,
    "activation": "relu",
    "bias": False,
    "attention_bias": False,
    "qkv_bias": True,
    "out_bias": True,
    "tied": False,
    "output_scale": True,
    "logit_cap": 2.0,
    "output_bias": True,
    "head_transform": True,
    "heads": ("class:nsp:2",),
    "head_layers": (0, 1),
    "head_pooler": False,
    "head_dense": "transform",
    "dropout": 0.5,
    "attention_dropout": 0.5,
    "activation_dropout": 0.5,
    "init_std": 0.1,
    "base_width": 4,
    "scaled_init": False,
    "zero_init": True,
    "fan_in_init": True,
}

BESIDE = {
    "layer_share": {"layer_groups": 1},
    "head_pooler": {"heads": ("class:nsp:2",)},
    "head_dense": {"heads": ("class:nsp:2",)},
    "head_layers": {"heads": ("class:nsp:2",)},
    "rotary_base": {"positions": "rotary"},
    "layer_rotary_bases": {"positions": "rotary"},
    "rotary_share": {"positions": "rotary"},
    "cross_rotary": {"positions": "rotary"},
    "rotary_factor": {"positions": "rotary"},
    "rotary_wavelengths": {"positions": "rotary", "rotary_factor": 3.0},
    "relative_distance": {"relative_buckets": 8},
    "embedding_width": {"head_transform": True},
    "qk_norm_weights": {"qk_norm": True},
    "qk_norm_joint": {"qk_norm": True, "qk_norm_weights": True},
    "qkv_bias": {"bias": False},
    "out_bias": {"bias": False},
}
"""Settings that a field needs to matter."""
TWO_TOWERS = {"decoder_layers": 1, "shared_embeddings": False, "cross_rotary": False}


def batch():
    slots = stay(np.arange(6), np.arange(6), at=[0, 0, 0, 1, 2, 3], pos2=np.arange(6) % 4, seg=1)
    return collate([[Example({"x": slots}, [lm(np.arange(6), np.arange(6))])]]).to("cpu")


def outcome(config):
    """What a model is and does: shapes, and logits in training with fixed randomness."""
    torch.manual_seed(0)
    model = config.build(10).train()
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    states, _ = model(two_towers() if isinstance(config, EncoderDecoderConfig) else batch())
    return shapes, model.head(list(states.values())[-1].flatten(0, 1))


def two_towers():
    source = stay(np.arange(6), np.arange(6), pos2=np.arange(6) % 4, seg=1)
    target = stay(np.arange(5), np.arange(5), at=np.arange(5), pos2=np.arange(5) % 4, seg=1)
    ask = lm(np.arange(5), np.arange(5), tower="dec")
    return collate([[Example({"enc": source, "dec": target}, [ask])]]).to("cpu")


def of(cls, **settings):
    """The plain settings, of one tower or of two."""
    return cls(**{field.name: getattr(PLAIN, field.name) for field in fields(PLAIN)} | settings)


def test_every_field_is_tried():
    # what heads over labels read changes no logit of a word: tests/models/recurrent/test_elmo.py
    beside = {"head_layer_norm"}
    assert OTHER.keys() == {field.name for field in fields(ModelConfig)} - beside
    names = {field.name for field in fields(EncoderDecoderConfig)} - beside
    assert TWO_TOWERS.keys() == names - OTHER.keys()


CASES = [(ModelConfig, name) for name in OTHER]
CASES += [(EncoderDecoderConfig, name) for name in OTHER | TWO_TOWERS if name != "layer_heads"]


@pytest.mark.parametrize(("cls", "name"), CASES)
def test_every_field_changes_parameters_or_outputs(cls, name):
    config = of(cls, **BESIDE.get(name, {}))
    value = (OTHER | TWO_TOWERS)[name]
    assert getattr(config, name) != value
    shapes, logits = outcome(config)
    other_shapes, other_logits = outcome(replace(config, **{name: value}))
    assert shapes != other_shapes or not torch.allclose(logits, other_logits, atol=1e-3)


@pytest.mark.parametrize("cls", [ModelConfig, EncoderDecoderConfig])
def test_every_parameter_is_read(cls):
    everything = ("embedding_norm", "max_positions2", "num_segments", "output_bias", "tied")
    everything += ("head_transform", "position_offset", "num_virtual", "relative_buckets")
    config = of(cls, **{name: OTHER[name] for name in (*everything, "heads")})
    if cls is EncoderDecoderConfig:
        config = replace(config, shared_embeddings=False)
    model, rows = config.build(10), two_towers() if cls is EncoderDecoderConfig else batch()
    for table in rows.towers.values():
        table[0, 0, 1] = 10  # the virtual token
    states = list(model(rows)[0].values())[-1].flatten(0, 1)
    loss = model.head(states).square().sum() + model.head(states, "class:nsp").square().sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("cls", [ModelConfig, EncoderDecoderConfig])
@pytest.mark.parametrize("scaled", [True, False])
def test_weights_are_drawn_as_the_settings_say(scaled, cls):
    torch.manual_seed(0)
    model = of(cls, width=64, num_layers=8, scaled_init=scaled, tied=False).build(500)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert torch.all(parameter == (1.0 if name.endswith("norm.weight") else 0.0)), name
        else:
            adds = name.endswith(("attention.out.weight", "ffn.down.weight"))
            expected = 0.3 / 4 if adds and scaled else 0.3  # sqrt(2 * 8 layers) is 4
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name


def test_matrices_with_more_inputs_are_drawn_smaller():
    """T5's law: products of unit states have unit variance, scores too although nothing scales
    them."""
    torch.manual_seed(0)
    own = {"num_heads": 2, "head_width": 16, "score_scale": False, "relative_buckets": 32}
    own |= {"fan_in_init": True, "scaled_init": False, "tied": False, "init_std": 1.0}
    model = of(EncoderDecoderConfig, width=64, ffn_width=256, **own).build(500)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            table = name.endswith(("tokens.weight", "positions.weight"))
            inputs = 1 if table else 64 if "relative" in name else parameter.shape[1]
            if name.endswith(("attention.qkv.weight", "cross_attention.query.weight")):
                queries, rest = parameter[:32], parameter[32:]
                assert queries.std().item() == pytest.approx((64 * 16) ** -0.5, rel=0.1), name
                parameter = rest if len(rest) else 4 * queries
            assert parameter.std().item() == pytest.approx(inputs**-0.5, rel=0.15), name


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
        ({"num_heads": 5}, "--arch.num-heads must be a divisor of --arch.width 768, got 5"),
        (
            {"relative_buckets": 30},
            "--arch.relative-buckets must be a multiple of 4, got 30",
        ),
        (
            {"relative_buckets": 32, "relative_distance": 8},
            "--arch.relative-distance must be above a quarter of --arch.relative-buckets, got 8",
        ),
        (
            {"heads": ("nsp",)},
            "--arch.heads must be KIND:NAME[:SIZE],..., got 'nsp'",
        ),
        (
            {"bias": False, "attention_bias": False},
            "--arch.attention-bias must be on without --arch.bias, got off",
        ),
        (
            {"position_offset": 2, "max_positions": 0},
            "--arch.position-offset must be 0 where there is no table of positions, got 2",
        ),
    ],
)
def test_a_bad_value_names_its_option(given, message):
    with pytest.raises(UsageError) as error:
        ModelConfig(**given)
    assert str(error.value) == message


@pytest.mark.parametrize("cls", [ModelConfig, EncoderDecoderConfig])
def test_attention_alone_may_have_no_biases(cls):
    names = {
        bias: {name for name, _ in of(cls, attention_bias=bias).build(10).named_parameters()}
        for bias in (True, False)
    }
    assert names[True] - names[False] == {
        name for name in names[True] if name.endswith("bias") and "attention." in name
    }


def test_a_decoder_needs_a_greater_distance():
    far = {"relative_buckets": 32, "relative_distance": 16}
    assert ModelConfig(**far) and EncoderDecoderConfig(**far | {"relative_distance": 17})
    with pytest.raises(UsageError, match="relative-distance .*above"):
        EncoderDecoderConfig(**far)


def test_a_virtual_token_is_a_row_of_its_own():
    """Real tokens read as ever, the virtual one reads its row; the output has no row for it."""
    plain, model = PLAIN.build(10), replace(PLAIN, num_virtual=2).build(10)
    model.load_state_dict({**model.state_dict(), **plain.state_dict()})
    tokens = torch.arange(12).expand(9, 1, 12) * (torch.arange(9) == 0)[:, None, None]
    at_0 = model.decoder.embed.positions.weight[0]
    rows = torch.cat([model.decoder.embed.tokens.weight, model.decoder.embed.virtual.weight])
    assert torch.equal(model.decoder.embed(tokens)[0], rows + at_0)
    assert torch.equal(model.decoder.embed(tokens[..., :10]), plain.decoder.embed(tokens[..., :10]))
    assert model.head(torch.zeros(1, 16)).shape == (1, 10)


@pytest.mark.parametrize("cls", [ModelConfig, EncoderDecoderConfig])
def test_layers_of_a_group_share_all_or_a_part(cls):
    """Equal outputs of layers that were made equal; weights are counted once."""
    for share in ("layer", "attention", "ffn"):
        config = of(cls, num_layers=4, layer_groups=2, layer_share=share)
        model = config.build(10).eval()
        first, second, third, _ = layers = model.decoder.layers
        for part in ("attention", "attention_norm", "ffn", "ffn_norm"):
            common = share == "layer" or part.startswith(share)
            assert (getattr(first, part) is getattr(second, part)) == common
            assert getattr(second, part) is not getattr(third, part)
        stored = sum(parameter.numel() for parameter in model.parameters())
        assert config.num_weights(10) == pytest.approx(stored, rel=0.1)
        # the same weights in layers of their own
        alone = replace(config, layer_groups=0, layer_share="layer").build(10).eval()
        alone.load_state_dict(model.state_dict())
        rows = two_towers() if cls is EncoderDecoderConfig else batch()
        found, wanted = (list(one(rows)[0].values())[-1] for one in (model, alone))
        assert torch.equal(found, wanted) and len(layers) == 4


def test_both_towers_share_one_table_or_not():
    for shared in (True, False):
        model = of(EncoderDecoderConfig, shared_embeddings=shared, num_virtual=1).build(10)
        for name in ("tokens", "virtual"):
            tables = [getattr(tower.embed, name).weight for tower in (model.decoder, model.reader)]
            assert (tables[0] is tables[1]) == shared
        assert model.decoder.embed.positions is not model.reader.embed.positions
        names = [name for name, _ in model.named_parameters() if "embed.tokens" in name]
        assert len(names) == (1 if shared else 2)


@pytest.mark.parametrize("name", registry.names("arch"))
def test_weights_are_counted_without_building(name):
    """Biases and norms are few."""
    config = registry.get("arch", name)()
    with torch.device("meta"):
        grouped = isinstance(config, ModelConfig) and config.layer_groups
        small = config if grouped else replace(config, num_layers=2)
        built = sum(p.numel() for p in small.build(30_000).parameters())
    few = 0.12 if "tiny" in name else 0.04
    assert small.num_weights(30_000) == pytest.approx(built, rel=few)
    more = small if grouped else replace(small, num_layers=3)
    layer = more.num_weights(30_000) - small.num_weights(30_000)
    with torch.device("meta"):
        exact = sum(p.numel() for p in more.build(30_000).parameters()) - built
    assert layer == pytest.approx(exact, rel=0.02)
