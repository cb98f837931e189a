"""A decoder reads an encoder: who may look at what, packed or alone, at once or step by step."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import masks
from unitk.errors import UsageError
from unitk.kernels import products
from unitk.models import archs, attention
from unitk.slots import BORN, CROSS, DOC, NEVER, Example, collate, lm, stay

V = 50
LENGTHS = ((9, 4), (3, 12), (17, 6), (5, 1))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return replace(archs.preset("mass_tiny"), init_std=0.2).build(V).eval()


def example(rng, source, target):
    """Every third source slot is hidden from the decoder; the towers' clocks are unrelated."""
    order = np.arange(target)
    hidden = np.arange(source) % 3 == 2
    towers = {
        "enc": stay(rng.integers(V, size=source), np.arange(source), cross=~hidden),
        "dec": stay(rng.integers(V, size=target), order + 2, at=order - 50),
    }
    return Example(towers, [lm(order, rng.integers(V, size=target), tower="dec")])


def examples():
    rng = np.random.default_rng(0)
    return [example(rng, *lengths) for lengths in LENGTHS]


def packed(rows):
    made = examples()
    return collate([[made[i] for i in row] for row in rows]).to("cpu")


ROWS = [[0, 1], [2, 3]]


def test_a_slot_sees_its_own_doc_where_it_may_look():
    batch = packed(ROWS)
    enc, dec = batch.towers["enc"], batch.towers["dec"]
    sight = masks.cross(dec, enc)
    assert sight.shape == (2, dec.shape[2], enc.shape[2])
    for b in range(2):
        for i in range(dec.shape[2]):
            for j in range(enc.shape[2]):
                same = dec[DOC, b, i] == enc[DOC, b, j]
                assert sight[b, i, j] == bool(same and enc[CROSS, b, j])
    assert sight.any(-1).all(), "also a pad looks at something"
    assert not sight[:, :, :][enc[BORN].eq(NEVER)[:, None].expand_as(sight)].any()


def test_gradients_reach_what_may_be_read_and_nothing_else(model):
    batch = packed(ROWS)
    condition = model.condition(batch)
    leaf = condition.cross.detach().requires_grad_()
    states = model(batch, replace(condition, cross=leaf))[0]["dec"]
    dec, enc = batch.towers["dec"], batch.towers["enc"]
    for b, doc in ((0, 0), (0, 1), (1, 2), (1, 3)):
        (grad,) = torch.autograd.grad(
            states[b, dec[DOC, b] == doc].square().sum(), leaf, retain_graph=True
        )
        reached = grad.abs().sum(-1) > 0
        expected = (enc[DOC] == doc) & (enc[CROSS] == 1)
        assert torch.equal(reached, expected)


@torch.no_grad()
def test_all_renderings_agree(model, monkeypatch):
    batch = packed([[0], [1], [2], [3]])
    assert batch.sight["dec"] == "causal"
    expected = model(batch)[0]["dec"]
    by_rule = model(replace(batch, sight={"enc": "rule", "dec": "rule"}))[0]["dec"]
    real = batch.towers["dec"][BORN] < NEVER
    assert_near(by_rule[real], expected[real])
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(batch)[0]["dec"]
        monkeypatch.setattr(products, "SCORES_WIDTH", 0)
        other = model(batch)[0]["dec"]
    error, bound = ((one.float() - expected)[real].norm() for one in (rough, other))
    assert error < 2 * bound and bound < 0.05 * expected[real].norm()


@torch.no_grad()
def test_the_sources_keys_are_made_once(model, monkeypatch):
    """Step by step equals at once, rows are selected together, and the encoder runs once."""
    batch = packed([[0], [1], [2]])
    expected = model(batch)[0]["dec"]
    runs, encode = [], model.reader.encode
    monkeypatch.setattr(model.reader, "encode", lambda *args: (runs.append(1), encode(*args))[1])
    condition = model.condition(batch)
    columns = batch.towers["dec"]
    width = columns.shape[2]
    cache = model.new_cache(3, width, condition=condition)
    kept = [layer.clone() for pair in cache.cross for layer in pair]
    sight = masks.dense(columns, columns)
    states = [model.step(columns[:, :, :3], sight[:, :3, :3], condition, cache, 0)]
    for at in range(3, 4):
        new, seen = columns[:, :, at : at + 1], sight[:, at : at + 1, : at + 1]
        states.append(model.step(new, seen, condition, cache, at))
    assert_near(torch.cat(states, 1), expected[:, :4])
    rows = torch.tensor([2, 1])
    cache, condition = cache.select(rows), condition.select(rows)
    columns, sight = columns[:, rows], sight[rows]
    for at in range(4, 6):
        new, seen = columns[:, :, at : at + 1], sight[:, at : at + 1, : at + 1]
        state = model.step(new, seen, condition, cache, at)
        assert_near(state[:, 0], expected[rows, at])
    assert len(runs) == 1
    again = [layer for pair in cache.cross for layer in pair]
    assert all(torch.equal(new, old[rows]) for new, old in zip(again, kept, strict=True))


@torch.no_grad()
def test_bf16_cache_follows_the_computation(model):
    batch = packed([[0], [1]])
    columns, expected = batch.towers["dec"], model(batch)[0]["dec"]
    sight, real = masks.dense(columns, columns), columns[BORN] < NEVER
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=not half):
            model.bfloat16() if half else None
            condition = model.condition(batch)
            cache = model.new_cache(2, columns.shape[2], condition=condition)
            assert {key.dtype for key, _ in cache.cross} == {torch.bfloat16}
            rough = model.step(columns, sight, condition, cache, 0)
        assert torch.allclose(rough.float()[real], expected[real], atol=0.2)


def test_the_wrong_towers_are_told(model):
    slots = stay([1, 2], [0, 1])
    batch = collate([[Example({"x": slots}, [lm(np.arange(2), [1, 2])])]]).to("cpu")
    for call in (model, model.condition):
        with pytest.raises(UsageError, match="--arch .*towers enc.*dec, .*lays"):
            call(batch)


def test_towers_may_differ_in_depth():
    model = replace(archs.preset("bart_tiny"), num_layers=3, decoder_layers=1).build(V)
    assert (len(model.reader.layers), len(model.decoder.layers)) == (3, 1)
    assert all(layer.cross_attention is None for layer in model.reader.layers)
    assert model.config.num_layers == 3


@torch.no_grad()
def test_each_tower_has_relative_positions_of_its_own():
    torch.manual_seed(0)
    config = replace(
        archs.preset("bart_tiny"), relative_buckets=8, relative_distance=10, init_std=0.2
    )
    model, batch = config.build(V).eval(), packed([[0], [1]])
    before = model(batch)[0]
    model.decoder.relative.table.weight.add_(torch.randn(8, 4))
    after = model(batch)[0]
    assert torch.equal(before["enc"], after["enc"])
    assert not torch.allclose(before["dec"], after["dec"], atol=1e-2)


def test_the_choice_for_cross_attention_is_logged(model, caplog):
    attention._say_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="unitk"):
        model(packed(ROWS))
    assert sum("cross-attention" in record.getMessage() for record in caplog.records) == 1


def test_tensors_keep_their_stored_names():
    """Towers are parts of a model; on disk the decoded one has no name and the other is encoder."""
    config = replace(archs.preset("mass_tiny"), shared_embeddings=False)
    model = config.build(V)
    names = [name for name, _ in model.named_parameters()]
    assert names[0] == "embed.tokens.weight" and "encoder.layers.1.ffn.up.weight" in names
    assert list(model.state_dict()) and set(model.state_dict()) == set(names)
    # the optimizer meets decoder, output layers and encoder in this order
    assert [*map(id, model.parameters())] == [id(p) for _, p in model.named_parameters()]
    firsts = list(dict.fromkeys("encoder" * name.startswith("encoder.") for name in names))
    assert firsts == ["", "encoder"]
    for name, parameter in model.named_parameters():
        assert (
            model.get_parameter(name) is parameter and model.stored_name(model.inner(name)) == name
        )
    other = config.build(V)
    other.load_state_dict(model.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
    odd = other.load_state_dict(
        {"encoder.layers.0.ffn.up.bias": torch.ones(len(model.reader.layers[0].ffn.up.bias))},
        strict=False,
    )
    assert "embed.tokens.weight" in odd.missing_keys and not odd.unexpected_keys
