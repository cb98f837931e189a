"""Layers with a window, and heads that share keys and values, each by what must be true of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.errors import UsageError
from unitk.masks import dense, sees
from unitk.models import attention
from unitk.models.attention import Attention
from unitk.models.config import ModelConfig
from unitk.models.state import Reading
from unitk.slots import DOC, NOW, POS, POS2, Example, collate, query, stay

PLAIN = ModelConfig(
    num_layers=3,
    width=32,
    num_heads=4,
    ffn_width=48,
    positions="rotary",
    max_positions=0,
    init_std=0.2,
    dropout=0.0,
    attention_dropout=0.0,
)
WINDOW = 4

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def slots(*rows):
    return collate([[Example({"x": part}) for part in row] for row in rows]).to("cpu").towers["x"]


def words(n, **where):
    return stay(np.arange(n) % 50, np.arange(n), **where)


def rows():
    """Packed texts, blanks with second positions and queries, in an order that is not theirs."""
    blank = stay([1, 2, 3], [5, 5, 5], pos2=[1, 2, 3], at=[1, 2, 3])
    asks = query(np.arange(9), np.arange(9), at=np.arange(9))
    return slots(
        [words(12) + blank, words(9, at=np.arange(9)) + asks],
        [words(20, at=np.arange(20)[::-1])],
    )


def test_a_window_hides_what_is_further_away():
    table = rows()
    now, born, dies, doc = table[NOW : DOC + 1, ..., None]
    place = (table[POS] + table[POS2])[..., None]
    wanted = sees(now, doc, born.mT, dies.mT, doc.mT) & ((place - place.mT).abs() <= WINDOW)
    assert torch.equal(dense(table, table, WINDOW), wanted)
    assert torch.equal(torch.as_tensor(dense(table.numpy(), table.numpy(), WINDOW)), wanted)


@pytest.mark.every(2)
@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("products", [None, torch.float32])
def test_all_renderings_agree(window, heads, products):
    """Also for queries that see nobody, which find zeros."""
    torch.manual_seed(0)
    table = rows()
    size = table.shape[2]
    query_, key, value = (torch.randn(2, n, size, 8) for n in (4, heads, heads))
    given = Reading(table, "rule", size), torch.float32, 0.0
    view = attention.render_mask(*given, choice="dense", window=window)
    found = replace(view, products=products)(query_, key, value, 0.3)
    seen = dense(table, table, window)
    score = query_ @ key.repeat_interleave(4 // heads, 1).mT * 0.3
    weight = score.exp() * seen[:, None]
    weight = weight / weight.sum(-1, keepdim=True).clamp(min=1e-30)
    assert_near(found, weight @ value.repeat_interleave(4 // heads, 1))
    assert_near(
        attention.render_mask(*given, choice="flex", window=window)(query_, key, value, 0.3), found
    )


@pytest.mark.parametrize("products", [None, torch.float32])
def test_a_query_that_sees_nobody_has_no_gradient_and_harms_no_other(products):
    far = slots([words(3) + query([1, 2], [9, 1], at=1)])
    view = attention.render_mask(Reading(far, "rule", 16), torch.float32, 0.0, window=WINDOW)
    given = [torch.randn(1, 4, 16, 8, requires_grad=True) for _ in range(3)]
    found = replace(view, products=products)(*given, 0.3)
    found.square().sum().backward()
    blind = ~dense(far, far, WINDOW).any(-1)[0]
    assert blind[3] and not blind[4] and not found[:, :, blind].any()
    assert all(one.grad.isfinite().all() for one in given)
    assert given[0].grad[:, :, 4].any() and not given[0].grad[:, :, blind].any()


@torch.no_grad()
@pytest.mark.parametrize("windows", [(3,), (0, 3, 2), (1, 2)])
def test_a_word_reaches_as_far_as_the_windows_together(windows):
    """A change is seen within the sum of three windows, or everywhere if a layer has none."""
    torch.manual_seed(0)
    model = replace(PLAIN, layer_windows=windows).build(50).eval()
    tokens = np.arange(24)
    states = []
    for first in (1, 2):
        tokens[0] = first
        batch = collate([[Example({"x": stay(tokens, np.arange(24))})]]).to("cpu")
        states.append(model(batch)[0]["x"][0, :24])
    changed = (states[0] != states[1]).any(-1).nonzero()[-1]
    cycle = [windows[n % len(windows)] for n in range(3)]
    assert int(changed) == (23 if 0 in cycle else sum(cycle))


@torch.no_grad()
@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_heads_are_heads_with_the_same_keys_and_values(heads):
    torch.manual_seed(0)
    config = replace(PLAIN, num_kv_heads=heads)
    grouped, plain = Attention(config), Attention(PLAIN)
    kv = [
        part.unflatten(0, (heads, 8)).repeat_interleave(4 // heads, 0).flatten(0, 1)
        for part in (*grouped.kv.weight.chunk(2), *grouped.kv.bias.chunk(2))
    ]
    plain.qkv.weight.copy_(torch.cat([grouped.query.weight, *kv[:2]]))
    plain.qkv.bias.copy_(torch.cat([grouped.query.bias, *kv[2:]]))
    plain.out.load_state_dict(grouped.out.state_dict())
    table = rows()
    view = attention.render_mask(Reading(table, "rule", table.shape[2]), torch.float32, 0.0)
    x = torch.randn(2, table.shape[2], 32)
    assert_near(grouped(x, view), plain(x, view))


def test_a_cache_holds_the_keys_of_a_group_once():
    cache = replace(PLAIN, num_kv_heads=2).build(9).new_cache(3, 16)
    assert {tuple(one.shape) for one in [*cache.key, *cache.value]} == {(3, 2, 16, 8)}


@torch.no_grad()
def test_the_keys_of_a_latent_come_before_all_windows():
    """In steps, as in one pass: they have as many heads as keys, and everybody sees them."""
    torch.manual_seed(0)
    config = replace(registry.get("arch", "optimus_tiny")(), num_kv_heads=2, layer_windows=(3,))
    model = config.build(50, 50).eval()
    model.bridge.weight.data *= 100  # latents that tell texts apart
    found = []
    for source in (np.arange(5), np.arange(5) + 30):
        enc, dec = stay(source, np.arange(5)), words(9, at=np.arange(9))
        batch = collate([[Example({"enc": enc, "dec": dec})]]).to("cpu")
        condition, columns = model.condition(batch), batch.towers["dec"]
        whole = model(batch, condition)[0]["dec"][:, :9]
        cache = model.new_cache(1, 16, condition=condition)
        steps = []
        for at in range(9):
            sight = torch.ones(1, 1, at + 1, dtype=torch.bool)
            steps.append(model.step(columns[:, :, at : at + 1], sight, condition, cache, at))
        assert_near(torch.cat(steps, 1), whole)
        found.append(whole)
    assert not torch.allclose(*found, atol=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_kv_heads": 3}, "--arch.num-kv-heads must be a divisor of --arch.num-heads 4, got 3"),
        ({"layer_windows": (3, -1)}, "--arch.layer-windows must be numbers of at least 0"),
        ({"layer_rotary_bases": (-1.0,)}, "--arch.layer-rotary-bases must be numbers of at least"),
        ({"rotary_share": 0.4}, "--arch.positions rotary needs heads of 2 channels"),
        (
            {"rotary_wavelengths": (9.0, 3.0), "rotary_factor": 2.0},
            "--arch.rotary-wavelengths must be two rising numbers above 0",
        ),
        ({"rotary_wavelengths": (3.0, 9.0)}, "--arch.rotary-wavelengths needs --arch.rotary-fac"),
        (
            {"positions": "learned", "rotary_share": 0.5},
            "--arch.rotary-share must be 1.0 where positions are learned, got 0.5",
        ),
        (
            {"parallel_residual": True, "norm_first": False},
            "--arch.parallel-residual must be off without --arch.norm-first",
        ),
        ({"norm": "rms", "norm_bias": False}, "--arch.norm-bias must be on with --arch.norm rms"),
        ({"first_norm": False, "norm_first": False}, "--arch.first-norm must be on"),
        ({"qkv_bias": True}, "--arch.qkv-bias must be off with --arch.bias"),
        ({"out_bias": True}, "--arch.out-bias must be off with --arch.attention-bias"),
        ({"relative_distance": 64}, "--arch.relative-distance must be 128 without .*, got 64"),
        (
            {"rotary_base": 5e5, "layer_rotary_bases": (1e4, 1e6)},
            "--arch.rotary-base must be 10000.0 with --arch.layer-rotary-bases, got 500000",
        ),
        ({"qk_norm_joint": True}, "--arch.qk-norm-joint must be off without .*, got on"),
        ({"layer_heads": (2, 2, 2), "num_kv_heads": 2}, "--arch.layer-heads excludes .* grouped"),
    ],
)
def test_a_bad_value_names_its_option(given, message):
    with pytest.raises(UsageError, match=message):
        replace(PLAIN, **given)
