"""A layer may add to its scores what depends on the query and on where query and key are."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from distance_attention import Segmented
from rounding import assert_near

from unitk.errors import UsageError
from unitk.masks import dense
from unitk.models import attention
from unitk.models.state import Condition, Reading
from unitk.slots import POS, SEG, Example, collate, query, stay

K, H = 8, 3


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"num_layers": 1, "width": K * H, "num_heads": H, "ffn_width": 32}
    plain = {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.3}
    return Segmented(**sizes, **plain, norm_first=False).build(50).eval()


@pytest.fixture
def slots():
    """Two packed examples, with queries that nobody sees, and one of other places alone."""
    rng = np.random.default_rng(0)
    places = rng.permutation(7)
    one = stay(rng.integers(50, size=7), places, at=np.arange(7), seg=places > 3)
    asks = query(rng.integers(50, size=7), places, at=np.arange(7), seg=places > 3)
    two = stay(rng.integers(50, size=5), np.arange(5) + 20, seg=[0, 1, 2, 2, 2])
    rows = [[one + asks, two], [two]]
    return collate([[Example({"x": part}) for part in row] for row in rows]).to("cpu").towers["x"]


def sine(distance, width):
    """Yang et al. 2019's code: pos_emb = concat([sin(pos_seq x inv_freq), cos(...)])."""
    angles = [distance / 10_000 ** (i / width) for i in range(0, width, 2)]
    return torch.tensor([f(a) for f in (np.sin, np.cos) for a in angles], dtype=torch.float32)


def plainly(layer, x, slots, sight, prefix=()):
    """What the layer's attention adds, one query and one key at a time."""
    b, t, d = x.shape
    q, k, v = (part.view(b, t, H, K) for part in layer.qkv(x).chunk(3, -1))
    out = torch.zeros(b, t, H, K)
    for row, i, h in np.ndindex(b, t, H):
        scores, values = [], []
        for key, value in prefix:
            scores.append(q[row, i, h] @ key[row, h, 0])
            values.append(value[row, h, 0])
        for j in np.flatnonzero(sight[row, i].numpy()):
            distance = slots[POS, row, i] - slots[POS, row, j]
            r = (layer.map.weight @ sine(int(distance), d)).view(H, K)[h]
            s = layer.s[int(slots[SEG, row, i] != slots[SEG, row, j]), h]
            score = (q[row, i, h] + layer.u[h]) @ k[row, j, h]
            score = score + (q[row, i, h] + layer.v[h]) @ r + (q[row, i, h] + layer.w[h]) @ s
            scores.append(score)
            values.append(v[row, j, h])
        weight = (torch.stack(scores) / K**0.5).softmax(0)
        out[row, i, h] = weight @ torch.stack(values)
    return layer.out(out.flatten(2))


@torch.no_grad()
def test_the_scores_are_xlnets(model, slots):
    stack = model.decoder
    layer, x = stack.layers[0].attention, stack.embed(slots)
    view = attention.render_mask(
        Reading(slots, "rule", slots.shape[2]), torch.float32, 0.0, own_bias=True
    )
    wanted = plainly(layer, x, slots, dense(slots, slots))
    for products in (None, torch.float32):
        assert_near(layer(x, replace(view, products=products)), wanted)


@torch.no_grad()
def test_keys_of_a_prefix_have_no_place(model, slots):
    stack = model.decoder
    layer, docs = stack.layers[0], torch.tensor([[0, 1], [2, -1]])
    alone = slots[:, 1:, :16]  # a row with one doc
    key, value = torch.randn(2, 3, H, 1, K)
    condition = Condition(prefix=((key, value),), docs=docs[1:, :1])
    x = stack.embed(alone)
    made = plainly(layer.attention, x, alone, dense(alone, alone), [(key[2:], value[2:])])
    middle = layer.attention_norm(x + made)
    wanted = stack.norm(layer.ffn_norm(middle + layer.ffn(middle)))
    assert_near(stack.encode(Reading(alone, "rule", 16, condition)), wanted)


@torch.no_grad()
def test_flex_attention_cannot_and_says_so(model, slots, caplog):
    attention._say_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="unitk"):
        model.decoder.encode(Reading(slots, "rule", slots.shape[2]))
    assert "biased by" in caplog.text and "dense mask" in caplog.text
    model.decoder.attention = "flex"
    with pytest.raises(UsageError, match="--attention flex .*query: .*dense"):
        model.decoder.encode(Reading(slots, "rule", slots.shape[2]))
