"""Relative positions: the buckets of T5 and UniLMv2, read from `pos`, in every rendering."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.kernels import products
from unitk.models import archs
from unitk.models.relative import RelativeBias, buckets
from unitk.slots import POS, Example, Slots, collate, stay

STARTS = {1: 17, 8: 24, 12: 25, 16: 26, 23: 27, 32: 28, 46: 29, 64: 30, 91: 31}
"""Of keys after the query: the first distance of each bucket from 8 on (s2s-ft's code)."""


def test_buckets_are_those_of_unilm2():
    found = buckets(torch.arange(-300, 301), 32, 128).tolist()
    ahead, behind = found[300::-1], found[300:]
    assert ahead[0] == behind[0] == 0
    assert ahead[1:] == [bucket - 16 for bucket in behind[1:]]
    assert behind[1:9] == list(range(17, 25))
    for first, bucket in STARTS.items():
        assert behind[first] == bucket and behind[first - 1] != bucket
    assert set(behind[91:]) == {31}


@pytest.mark.parametrize(("count", "far"), [(4, 20), (8, 10), (32, 128), (64, 100)])
def test_buckets_begin_where_whole_numbers_say(count, far):
    """Bucket exact + j begins at the first d with d^m >= far^j exact^(m - j), m buckets in all."""
    exact, many = count // 4, count // 4
    for size in range(1, 2 * far):
        expected = size
        if size >= exact:
            powers = (far**j * exact ** (many - j) for j in range(1, many))
            expected = exact + sum(size**many >= power for power in powers)
        found = buckets(torch.tensor([-size, size]), count, far).tolist()
        assert found == [expected, expected + count // 2]


@pytest.fixture(scope="module")
def t5():
    return pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention


def unrounded(distance, exact, far):
    """The distances that begin no bucket as exact powers: theirs rounds those either way."""
    power = exact * (distance.abs().clamp(min=exact) / exact).log() / math.log(far / exact)
    return distance[(distance.abs() <= exact) | ((power - power.round()).abs() > 1e-3)]


def test_buckets_are_hugging_faces(t5):
    for count, far in ((32, 128), (16, 60)):
        distance = unrounded(torch.arange(-400, 401), count // 4, far)
        assert len(distance) > 780
        theirs = t5._relative_position_bucket(distance, True, count, far)
        assert torch.equal(buckets(distance, count, far), theirs)


def test_buckets_of_a_decoder_are_hugging_faces(t5):
    for count, far in ((32, 128), (16, 60), (8, 10)):
        distance = unrounded(torch.arange(-400, 401), count // 2, far)
        theirs = t5._relative_position_bucket(distance, False, count, far)
        found = buckets(distance, count, far, one_sided=True)
        assert torch.equal(found, theirs) and not found[distance >= 0].any()


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = replace(
        archs.preset("unilm2_tiny"), init_std=0.2, relative_buckets=8, relative_distance=10
    )
    return config.build(50).eval()


def shuffled(rng, n):
    """Slots in an arbitrary order, some of them at the same place."""
    return stay(rng.integers(50, size=n), rng.integers(40, size=n), at=rng.integers(3, size=n))


def batch(*rows):
    return collate([[Example({"x": slots}) for slots in row] for row in rows]).to("cpu")


def test_the_bias_is_looked_up_pair_by_pair(model):
    rng = np.random.default_rng(0)
    query, key = (torch.from_numpy(rng.integers(40, size=(2, n))) for n in (5, 7))
    found = model.decoder.relative(query, key, torch.float32)
    assert found.shape == (2, 4, 5, 7)
    table = model.decoder.relative.table.weight
    for b in range(2):
        for i in range(5):
            for j in range(7):
                bucket = buckets(key[b, j] - query[b, i], 8, 10)
                assert torch.equal(found[b, :, i, j], table[bucket])
    found.sum().backward()
    assert model.decoder.relative.table.weight.grad.sum() == found.numel()


@torch.no_grad()
def test_only_the_places_count_not_their_order(model):
    rng = np.random.default_rng(1)
    slots = shuffled(rng, 30)
    order = rng.permutation(30)
    states = model(batch([slots]))[0]["x"][0]
    moved = model(batch([slots.take(order)]))[0]["x"][0]
    assert_near(moved[:30], states[order])


@torch.no_grad()
def test_a_shift_of_all_places_changes_nothing_without_a_table():
    torch.manual_seed(0)
    config = replace(archs.preset("unilm2_tiny"), max_positions=0, init_std=0.2)
    model, slots = config.build(50), shuffled(np.random.default_rng(2), 20)
    further = Slots(slots.table + 100 * (np.arange(9) == POS)[:, None])
    states = [model(batch([one]))[0]["x"][0, :20] for one in (slots, further)]
    assert torch.allclose(*states, atol=1e-6)
    mirrored = Slots(np.where((np.arange(9) == POS)[:, None], 50 - slots.table, slots.table))
    assert not torch.allclose(model(batch([mirrored]))[0]["x"][0, :20], states[0], atol=1e-2)


@pytest.mark.parametrize("grad", [False, True])
def test_both_kernels_agree(model, grad, monkeypatch):
    """Step by step and in SDPA; gradients reach the table through either."""
    rng = np.random.default_rng(3)
    rows = batch([shuffled(rng, 30)], [shuffled(rng, 9), shuffled(rng, 12)])
    found = []
    for width in (products.SCORES_WIDTH, 0):
        monkeypatch.setattr(products, "SCORES_WIDTH", width)
        model.zero_grad()
        with torch.set_grad_enabled(grad):
            states = model(rows)[0]["x"]
        if grad:
            states.square().sum().backward()
            states = model.decoder.relative.table.weight.grad.clone()
        found.append(states)
    assert torch.allclose(*found, atol=1e-4 if grad else 1e-5, rtol=1e-5)


def test_the_layers_share_one_table():
    model = archs.preset("unilm2_tiny").build(50)
    assert [type(m) for m in model.modules()].count(RelativeBias) == 1
    assert model.decoder.relative.table.weight.shape == (32, 4)


@torch.no_grad()
def test_bf16_follows_the_computation(model):
    rows = batch([shuffled(np.random.default_rng(4), 30)])
    exact = model(rows)[0]["x"]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(rows)[0]["x"]
    assert torch.allclose(rough.float(), exact, atol=0.1)
