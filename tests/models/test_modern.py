"""Options of the modern stack, each by what must be true of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.errors import UsageError
from unitk.kernels.lean import RMSNorm, unit_rms
from unitk.models import archs
from unitk.models.attention import Attention, View
from unitk.models.config import ModelConfig
from unitk.models.layers import ACTIVATIONS, Context, FeedForward, Layer
from unitk.models.relative import rotate, rotation
from unitk.slots import POS, POS2, Example, collate, stay

PLAIN = ModelConfig(
    num_layers=2, width=32, num_heads=4, ffn_width=48, dropout=0.0, attention_dropout=0.0
)
ROTARY = replace(PLAIN, positions="rotary")


FIVE = torch.zeros(9, 2, 5, dtype=torch.int64)
VIEW = View(FIVE, FIVE)


def slots(pos, pos2=0):
    table = torch.zeros(9, 1, len(pos), dtype=torch.int64)
    table[POS, 0] = torch.as_tensor(pos)
    table[POS2, 0] = torch.as_tensor(pos2)
    return table


def scores(config, x_TK, table):
    """Scores of every slot with every other, where queries and keys are the same vectors."""
    x_1HTK = rotate(x_TK[None, None], rotation(config, table, config.rotary_base))
    return (x_1HTK @ x_1HTK.mT)[0, 0]


def test_rotary_scores_are_the_papers():
    """Equation 34 by hand: pair i of a query and a key meets at an angle of d * base^(-i / n)."""
    torch.manual_seed(0)
    config = replace(ROTARY, rotary_base=50.0)
    x, pos = torch.randn(5, 8, dtype=torch.float64), [3, 0, 11, 400, 7]
    found = scores(config, x, slots(pos))
    for a in range(5):
        for b in range(5):
            wanted = 0.0
            for i in range(4):
                angle = (pos[a] - pos[b]) * 50.0 ** (-i / 4)
                (q0, q1), (k0, k1) = x[a, 2 * i : 2 * i + 2], x[b, 2 * i : 2 * i + 2]
                wanted += np.cos(angle) * (q0 * k0 + q1 * k1) + np.sin(angle) * (q0 * k1 - q1 * k0)
            assert float(found[a, b]) == pytest.approx(float(wanted), abs=1e-5)


@pytest.mark.parametrize("shift", [1, 30, 100_000])
def test_rotary_scores_depend_on_differences_alone(shift):
    torch.manual_seed(0)
    x, pos = torch.randn(9, 8), torch.randint(500, (9,))
    assert_near(scores(ROTARY, x, slots(pos + shift)), scores(ROTARY, x, slots(pos)))


def test_second_positions_turn_the_second_half():
    """ChatGLM-6B: each half of a head is as a head of that width with one kind of position."""
    torch.manual_seed(0)
    both, half = replace(ROTARY, max_positions2=9), replace(ROTARY, width=16)
    x, pos, pos2 = torch.randn(6, 8), torch.arange(6) * 3, torch.arange(6) % 4
    wanted = scores(half, x[:, :4], slots(pos)) + scores(half, x[:, 4:], slots(pos2))
    assert_near(scores(both, x, slots(pos, pos2)), wanted)


def test_states_are_the_same_at_other_places():
    """Without a table, only differences of positions enter a model; the table's rows differ."""
    tokens = np.arange(7)
    models = [replace(one, init_std=0.2).build(10).eval() for one in (ROTARY, PLAIN)]
    for model, same in zip(models, (True, False), strict=True):
        found = []
        for first in (0, 40):
            example = Example({"x": stay(tokens, pos=first + tokens, at=tokens)})
            found.append(model(collate([[example]]).to("cpu"))[0]["x"][:, :7].detach())
        assert torch.allclose(*found, atol=1e-5) == same


def test_cross_attention_reads_differences_of_positions_too():
    """Both texts at other places: nothing changes. One of them alone: it does."""
    config = replace(archs.preset("modern_encdec_tiny"), init_std=0.2, zero_init=False)
    model, tokens = config.build(10).eval(), np.arange(7)

    def states(first, second):
        enc, dec = stay(tokens, first + tokens), stay(tokens, second + tokens, at=tokens)
        batch = collate([[Example({"enc": enc, "dec": dec})]]).to("cpu")
        return model(batch)[0]["dec"][:, :7].detach()

    once = states(0, 0)
    assert_near(states(50, 50), once)
    assert not torch.allclose(states(0, 50), once, atol=1e-3)


def test_a_rotary_model_has_no_table_and_reads_beyond_any():
    model = replace(ROTARY, max_positions=0, max_positions2=5).build(10)
    assert not [name for name, _ in model.named_parameters() if "positions" in name]


def test_a_gate_of_0_removes_its_head():
    torch.manual_seed(0)
    config = replace(PLAIN, head_gate=True)
    gated, x = Attention(config).eval(), torch.randn(2, 5, 32)
    with torch.no_grad():
        gated.gate.weight.zero_()
        gated.gate.bias.zero_()
        plain = Attention(PLAIN)
        plain.load_state_dict(gated.state_dict(), strict=False)
        assert_near(gated(x, VIEW), plain(x, VIEW))  # as every gate is at first
        gated.gate.bias[2] = -torch.inf
        plain.out.weight[:, 16:24] = 0  # nothing of head 2 leaves
        assert_near(gated(x, VIEW), plain(x, VIEW))
        fewer = Attention(replace(PLAIN, num_heads=3, head_width=8))
        kept = torch.arange(32).view(4, 8)[[0, 1, 3]].flatten()
        fewer.qkv.weight.copy_(plain.qkv.weight.unflatten(0, (3, 32))[:, kept].flatten(0, 1))
        fewer.qkv.bias.copy_(plain.qkv.bias.unflatten(0, (3, 32))[:, kept].flatten())
        fewer.out.weight.copy_(plain.out.weight[:, kept])
        fewer.out.bias.copy_(plain.out.bias)
        assert_near(gated(x, VIEW), fewer(x, VIEW))


@pytest.mark.parametrize("cross", [False, True])
def test_a_new_layer_changes_nothing(cross):
    config = archs.preset("modern_encdec_tiny" if cross else "modern_tiny")
    model = config.build(50).eval()
    tokens = np.arange(9)
    own = stay(tokens, tokens, at=tokens)
    towers = {"enc": stay(tokens, tokens), "dec": own} if cross else {"x": own}
    batch = collate([[Example(towers)]]).to("cpu")
    tower = batch.towers[config.towers[-1]]
    states = model(batch, model.condition(batch))[0][config.towers[-1]]
    assert torch.equal(states, model.decoder.norm(model.decoder.embed(tower)))
    assert torch.any(PLAIN.build(50).decoder.layers[0].attention.out.weight != 0)


def test_the_scale_of_queries_and_keys_does_not_matter():
    torch.manual_seed(0)
    config = replace(ROTARY, qk_norm=True, bias=False, norm_eps=1e-12)
    attention, x = Attention(config), torch.randn(2, 5, 32)
    view = replace(VIEW, rotation=rotation(config, slots(range(5)), config.rotary_base))
    once = attention(x, view)
    scale = torch.ones(96, 1)
    scale[:32], scale[32:64] = 7.0, 0.01
    attention.qkv.weight.data *= scale
    assert_near(attention(x, view), once)
    with torch.no_grad():  # but the learned factor does
        attention.query_scale *= 2
    assert not torch.allclose(attention(x, view), once, atol=1e-3)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_what_enters_the_output_maps_is_normed_inside(norm):
    """The scale of values, of inner values too, does not matter; the map's input is a norm's."""
    torch.manual_seed(0)
    config = replace(PLAIN, norm=norm, norm_inside=True, bias=False, norm_eps=1e-12)
    config = replace(config, activation="relu")
    x = torch.randn(2, 5, 32)
    for part, weight, rows, given in (
        (Attention(config), "qkv.weight", slice(64, 96), (VIEW,)),
        (FeedForward(config), "up.weight", slice(None), ()),
    ):
        assert not list(part.norm.parameters())
        once = part(x, *given)
        with torch.no_grad():
            part.get_parameter(weight)[rows] *= 5
        assert_near(part(x, *given), once)


def test_states_and_embedding_are_mixed_by_learned_factors():
    torch.manual_seed(0)
    mixing, plain = Layer(replace(PLAIN, embedding_skip=True)), Layer(PLAIN)
    plain.load_state_dict(mixing.state_dict(), strict=False)
    x, first = torch.randn(2, 1, 5, 32)
    assert torch.equal(mixing(x, Context(VIEW), embedded_BTD=first), plain(x, Context(VIEW)))
    mixing.mix.data = torch.tensor([0.5, -2.0])
    assert_near(
        mixing(x, Context(VIEW), embedded_BTD=first), plain(0.5 * x - 2 * first, Context(VIEW))
    )


def test_squared_relu_is_its_formula():
    x = torch.linspace(-2, 2, 9)
    assert ACTIVATIONS["relu2"](x).tolist() == [0, 0, 0, 0, 0, 0.25, 1, 2.25, 4]


def test_gated_values_are_the_gelu_of_one_half_times_the_other():
    torch.manual_seed(0)
    part, x = FeedForward(replace(PLAIN, ffn_gate=True, activation="gelu")), torch.randn(3, 32)
    gate, values = part.up(x).split(48, dim=-1)
    assert_near(part(x), part.down(gate * (1 + torch.erf(gate / 2**0.5)) / 2 * values))


def test_capped_logits_are_a_tanh_of_the_plain_ones():
    """Below the cap, unchanged near 0, and the derivative is 1 - (logit / cap)^2."""
    torch.manual_seed(0)
    model, plain = (replace(PLAIN, logit_cap=cap, init_std=1.0).build(40) for cap in (5.0, 0.0))
    model.load_state_dict(plain.state_dict())
    states = torch.randn(6, 32, requires_grad=True)
    capped, free = model.head(states), plain.head(states)
    assert capped.abs().max() < 5 < free.abs().max()
    assert_near(capped, 5 * torch.tanh(free / 5))
    one = torch.zeros_like(capped)
    one[2, 3] = 1
    (found,) = torch.autograd.grad(capped, states, one, retain_graph=True)
    (wanted,) = torch.autograd.grad(free, states, one)
    assert_near(found, wanted * (1 - (capped[2, 3] / 5) ** 2).detach())


def test_rms_norm_and_its_gradient_are_its_formula():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: unit_rms(x, 0.1), x)
    ours, theirs = RMSNorm(10, 1e-6).double(), torch.nn.RMSNorm(10, 1e-6).double()
    for norm in (ours, theirs):
        torch.nn.init.constant_(norm.weight, 1.5)
    assert_near(ours(x), theirs(x))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"rotary_base": 100.0},
            "--arch.rotary-base must be 10000.0 where positions are learned, got 100.0",
        ),
        (
            {"positions": "rotary", "num_heads": 32},
            "--arch.positions rotary needs heads of 2 channels or a multiple, got 1",
        ),
        (
            {"positions": "rotary", "position_offset": 2},
            "--arch.position-offset must be 0 where there is no table of positions, got 2",
        ),
    ],
)
def test_a_bad_value_names_its_option(given, message):
    with pytest.raises(UsageError) as error:
        replace(PLAIN, **given)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "vocab_size", "least", "most"),
    [
        ("modern_mini", 8000, 5.0, 5.5),
        ("qwen3_mini", 8000, 5.0, 5.5),
        ("t5gemma_mini", 8000, 5.0, 5.5),
        ("qwen3_small", 16384, 28, 33),
        ("qwen3_base", 16384, 105, 115),
        ("t5gemma_small", 16384, 33, 36),
        ("modern_small", 16384, 28, 33),
        ("modern_base", 16384, 105, 115),
        ("modern_encdec_mini", 8000, 5.0, 5.5),
        ("modern_encdec_small", 8000, 28, 33),
        ("modern_encdec_base", 16384, 105, 115),
    ],
)
def test_sizes(name, vocab_size, least, most):
    assert least < archs.preset(name).num_weights(vocab_size) / 1e6 < most


def test_without_second_positions_rotary_ones_are_the_sum():
    torch.manual_seed(0)
    x, pos, pos2 = torch.randn(6, 8), torch.arange(6) * 3, torch.arange(6) % 4
    assert_near(scores(ROTARY, x, slots(pos, pos2)), scores(ROTARY, x, slots(pos + pos2, 0 * pos)))


def test_weights_of_query_and_key_norms_are_qwen3s():
    """Of each head the root mean square is 1, channels are weighed, then the pairs turn."""
    torch.manual_seed(0)
    config = replace(ROTARY, qk_norm=True, qk_norm_weights=True, bias=False, norm_eps=1e-12)
    attention, x = Attention(config), torch.randn(2, 5, 32)
    torch.nn.init.normal_(attention.query_norm.weight)
    torch.nn.init.normal_(attention.key_norm.weight)
    turns = rotation(config, slots(range(5)), config.rotary_base)
    found = attention.project(x, 5, turns)
    parts = (x @ attention.qkv.weight.mT).view(2, 5, 3, 4, 8).permute(2, 0, 3, 1, 4)
    norms = attention.query_norm, attention.key_norm
    for part, norm, made in zip(parts, norms, found, strict=False):
        unit = part / part.square().mean(-1, keepdim=True).sqrt()
        assert_near(made, rotate(unit * norm.weight, turns))
