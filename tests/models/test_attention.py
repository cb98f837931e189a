"""All renderings of the visibility rule give the same numbers."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.kernels import products
from unitk.masks import sees
from unitk.models import archs, attention
from unitk.models.state import Reading
from unitk.slots import BORN, DOC, NEVER, NOW, Example, collate, probe, query, stay


@pytest.fixture
def model():
    torch.manual_seed(0)
    return replace(archs.preset("glm_tiny"), init_std=0.2).build(50)


def batch(*rows):
    return collate([[Example({"x": slots}) for slots in row] for row in rows]).to("cpu")


def words(rng, n, **where):
    return stay(rng.integers(50, size=n), np.arange(n), **where)


def masked(model, table, sight):
    """States by a mask that is written out here, one head and one query at a time."""
    x = model.decoder.embed(table)
    b, t, d = x.shape
    for layer in model.decoder.layers:
        qkv = layer.attention.qkv(layer.attention_norm(x)).view(b, t, 3, 4, d // 4)
        out = torch.zeros(b, t, 4, d // 4)
        for row in range(b):
            for at in range(t):
                q, k, v = qkv[row, at, 0], qkv[row, sight[row, at], 1], qkv[row, sight[row, at], 2]
                weight = torch.softmax(torch.einsum("hk,shk->hs", q, k) / (d // 4) ** 0.5, -1)
                out[row, at] = torch.einsum("hs,shk->hk", weight, v)
        x = x + layer.attention.out(out.flatten(2))
        x = x + layer.ffn(layer.ffn_norm(x))
    return model.decoder.norm(x)


def cases():
    rng = np.random.default_rng(0)
    yield "full", batch([words(rng, 16)], [words(rng, 16)])
    yield "causal", batch(*([words(rng, n, at=np.arange(n))] for n in (20, 16, 7)))
    yield "rule", batch([words(rng, 9), words(rng, 5, at=np.arange(5))], [words(rng, 13)])
    asks = [words(rng, 6, at=np.arange(6)), query(range(6), range(6), at=np.arange(6) + 1)]
    asks.append(probe([1, 1], [3, 4], at=4))
    yield "rule", batch([sum(asks[1:], asks[0])], [asks[0] + asks[2]])


@pytest.mark.parametrize(("sight", "batch"), list(cases()))
@torch.no_grad()
def test_every_rendering_is_the_rule(model, sight, batch):
    assert batch.sight["x"] == sight
    table = batch.towers["x"]
    now, born, dies, doc = table[NOW : DOC + 1, ..., None]
    visible = sees(now, doc, born.mT, dies.mT, doc.mT)
    states = model(batch)[0]["x"]
    dense = model.decoder.encode(Reading(table, "rule", table.shape[2]))
    expected = masked(model, table, visible)
    # what a pad computes is never read: the causal kernel lets it look elsewhere
    real = (table[BORN] < NEVER) | (table[NOW] > 0)
    assert_near(states[real], expected[real])
    assert_near(dense[real], expected[real])
    assert states.isfinite().all()


@torch.no_grad()
def test_the_kernel_for_16_bits_is_as_close_as_another(model):
    """Both stay near the exact states, for every kind of mask."""
    for sight, rows in cases():
        table = rows.towers["x"]
        exact = model(rows)[0]["x"]
        real = (table[BORN] < NEVER) | (table[NOW] > 0)
        with torch.autocast("cpu", torch.bfloat16):
            view = attention.render_mask(
                Reading(table, sight, rows.num_keys["x"]), torch.bfloat16, 0.0
            )
            assert view.products
            rough = model(rows)[0]["x"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(products, "SCORES_WIDTH", 0)
                other = model(rows)[0]["x"]
        error, bound = ((states - exact)[real].norm() for states in (rough, other))
        assert error < 2 * bound and bound < 0.05 * exact[real].norm(), sight


def test_keys_are_made_for_the_slots_that_are_seen(model):
    rng = np.random.default_rng(0)
    slots = words(rng, 20) + query(np.arange(40), np.arange(40), at=1)
    rows = batch([slots])
    assert rows.num_keys["x"] == 20
    view = attention.render_mask(Reading(rows.towers["x"], "rule", 20), torch.float32, 0.0)
    assert view.num_keys == 32 and view.bias_BHTS.shape == (1, 1, 64, 32)
    x = model.decoder.embed(rows.towers["x"])
    layer = model.decoder.layers[0].attention
    few, all_slots = layer.project(x, 32), layer.project(x, 64)
    for part, whole in zip(few, all_slots, strict=True):
        assert torch.allclose(part, whole[:, :, : part.shape[2]], atol=1e-6)
    assert [part.shape[2] for part in few] == [64, 32, 32]


def test_the_choice_is_logged_once(model, caplog):
    attention._say_once.cache_clear()
    rows = batch([words(np.random.default_rng(0), 9)])
    slow = replace(model.config, attention_dropout=0.1).build(50)
    with caplog.at_level(logging.INFO, logger="unitk"):
        for _ in range(3):
            model(rows)
            slow(rows)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("dense" in message for message in messages) == 1
    slow_ones = [message for message in messages if "--arch.attention-dropout" in message]
    assert len(slow_ones) == 1


def test_dropout_is_off_in_evaluation(model):
    rows = batch([words(np.random.default_rng(0), 9)])
    config = replace(model.config, dropout=0.5, attention_dropout=0.5)
    noisy = config.build(50)
    noisy.load_state_dict(model.state_dict())
    assert torch.equal(noisy.eval()(rows)[0]["x"], model.eval()(rows)[0]["x"])
    assert not torch.allclose(noisy.train()(rows)[0]["x"], model(rows)[0]["x"], atol=1e-2)


@torch.inference_mode()
@pytest.mark.parametrize("keys", [1, 64, 100, 192])
def test_few_rows_are_multiplied_as_many_are(keys):
    """With a library of their own, where tables and rows lie in memory as a cache's do."""
    torch.manual_seed(0)
    cache = torch.randn(2, 3, 200, 8)[:, :, 2 : keys + 2]
    query = torch.randn(2, 5, 3, 8).transpose(1, 2)
    many = query.repeat(1, 1, products.FEW // 5 + 1, 1)
    score = products.multiply(query, cache.mT)
    assert_near(score, products.multiply(many, cache.mT)[:, :, :5])
    assert_near(score, torch.einsum("bhqk,bhsk->bhqs", query, cache))
    mixed = torch.einsum("bhqs,bhsk->bhqk", score, cache)
    assert torch.allclose(products.multiply(score, cache), mixed, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize(("dtype", "roundings"), [(torch.float32, 128), (torch.bfloat16, 1 << 17)])
def test_products_of_a_step_are_exact(dtype, roundings):
    """Keys and values of a cache are cut from wider tables; bf16 rounds 2^16 times as much."""
    torch.manual_seed(0)
    key, value = torch.randn(2, 2, 4, 30, 16, dtype=dtype)[:, :, :, :23]
    query, weight = torch.randn(2, 4, 3, 16).to(dtype), torch.rand(2, 4, 3, 23).to(dtype)
    for rows, table in ((query, key.mT), (weight, value)):
        found = products.multiply(rows, table)
        assert found.dtype == dtype
        assert_near(found.double(), rows.double() @ table.double(), roundings=roundings)
