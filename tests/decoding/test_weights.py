"""Weights made ready for decoding write the same words."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from torch import nn

from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.decoding.search import best
from unitk.errors import UsageError
from unitk.kernels import weights
from unitk.kernels.products import SCORES_WIDTH, has_onednn, packs
from unitk.kernels.weights import FUSED, Int8, Packed, Padded, prepare_weights
from unitk.models import archs
from unitk.models.heads.words import WordHead
from unitk.models.layers import ACTIVATIONS
from unitk.slots import Example, collate, stay

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="no oneDNN here")
CONFIG = GenerateConfig(beam=3, nbest=3, max_len=6, search="exact")


def words(found):
    return [[one.ids.tolist() for one in some] for some in found]


def scores(found):
    return np.array([one.score for some in found for one in some])


@pytest.mark.every(2)
@needs_onednn
def test_packed_weights_change_nothing(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(9)
    expected = generate(case.model, prompts, case.protocol, CONFIG)
    packed = prepare_weights(copy.deepcopy(case.model), "fp32")
    assert not any(isinstance(part, nn.Linear) for part in packed.modules())
    found = generate(packed, prompts, case.protocol, CONFIG)
    assert words(found) == words(expected)
    assert np.abs(scores(found) - scores(expected)).max() < 1e-5
    assert toy.least_gap(case, prompts, CONFIG) > 1e-5


@needs_onednn
@pytest.mark.parametrize(
    ("make", "dtype"),
    [(Packed, torch.float32), (Packed, torch.bfloat16), (Int8, torch.float32)],
)
@pytest.mark.parametrize("twin", [copy.deepcopy, lambda map: pickle.loads(pickle.dumps(map))])
def test_what_is_packed_is_copied_and_pickled_bit_for_bit(make, dtype, twin):
    if dtype == torch.bfloat16 and not packs("bf16"):
        pytest.skip("no products of bf16 here")
    torch.manual_seed(0)
    packed = make(torch.randn(48, 64, dtype=dtype), torch.randn(48, dtype=dtype))
    x = torch.randn(5, 64, dtype=dtype)
    assert torch.equal(twin(packed)(x), packed(x))


@needs_onednn
def test_bf16_and_int8_write_what_a_trained_model_writes(toy):
    """A model that has learned to count, from any number on, by threes."""
    case = toy.Case("shift", words=20, scale=0.1)
    rng, n = np.random.default_rng(0), np.arange(16)
    adam = torch.optim.Adam(case.model.parameters(), lr=0.01)
    for _ in range(60):
        some = [(rng.integers(20) + 3 * n) % 20 for _ in range(8)]
        examples = [[Example({"x": stay(x[:-1], n[:-1], at=n[:-1])})] for x in some]
        batch = collate(examples).to("cpu")
        states = case.model(batch)[0]["x"][:, :15].flatten(0, 1)
        label = torch.from_numpy(np.stack(some)[:, 1:].flatten())
        adam.zero_grad()
        nn.functional.cross_entropy(case.model.head(states), label).backward()
        adam.step()
    prompts = [case.prompt((i + 3 * n[:3]) % 20) for i in range(20)]
    config = GenerateConfig(beam=3, min_len=10, max_len=10)
    for precision in ("fp32", "bf16", "int8"):
        model = prepare_weights(copy.deepcopy(case.model), precision)
        found = generate(model, prompts, case.protocol, config)
        right = [
            one[0][:-1] == ((i + 9 + 3 * n[:10]) % 20).tolist()
            for i, one in enumerate(words(found))
        ]
        assert np.mean(right) >= 0.95, precision


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("seven_bits", [True, False])
def test_int8_is_near_and_rows_do_not_change_each_other(bias, seven_bits, monkeypatch):
    if seven_bits:  # as on a processor without VNNI
        monkeypatch.setattr(weights, "_saturates", lambda: True)
    torch.manual_seed(0)
    linear = nn.Linear(64, 48, bias=bias)
    x = torch.randn(5, 7, 64) * torch.logspace(-3, 3, 7)[:, None]
    whole = Int8(linear.weight.detach(), linear.bias)
    wanted, found = linear(x).detach(), whole(x).detach()
    plain = wanted if linear.bias is None else wanted - linear.bias.detach()
    error = (found - wanted).abs().amax(-1) / plain.abs().amax(-1)
    assert error.max() < 0.02 * 128 / whole.middle
    assert torch.equal(whole(x[2:3, 4:5]).detach(), found[2:3, 4:5])
    assert torch.isfinite(whole(torch.zeros(1, 64))).all()


@needs_onednn
@pytest.mark.parametrize(
    "name", ["none", *(name for name in ACTIVATIONS if ACTIVATIONS[name] in FUSED)]
)
def test_packed_equals_linear(name):
    torch.manual_seed(0)
    linear = nn.Linear(64, 48)
    x = 3 * torch.randn(5, 7, 64)
    wanted = linear(x) if name == "none" else ACTIVATIONS[name](linear(x))
    after = ("none", "") if name == "none" else FUSED[ACTIVATIONS[name]]
    packed = Packed(linear.weight, linear.bias, after)
    for rows in (5, 2, 1, 0):
        assert_near(packed(x[:rows]), wanted[:rows])
        assert_near(packed(x[:rows, 3]), wanted[:rows, 3])


@needs_onednn
def test_output_matrix_is_packed_tied_or_not(toy):
    for tied in (True, False):
        config = toy.Case("shift", words=8).model.config
        model = type(config)(**{**config.__dict__, "tied": tied}).build(11)
        states = torch.randn(4, config.width)
        wanted = model.head(states)
        head = prepare_weights(model, "fp32").heads["lm"]
        assert isinstance(head, WordHead) and isinstance(head.product, Packed)
        assert torch.allclose(model.head(states), wanted, atol=1e-6)


def test_without_onednn_torch_decodes(toy, no_onednn):
    case = toy.Case("shift", words=8)
    for precision in ("fp32", "bf16"):
        model = prepare_weights(copy.deepcopy(case.model), precision)
        assert not any(isinstance(part, Packed) for part in model.modules())
        assert all(generate(model, case.prompts(3), case.protocol, CONFIG))
    with pytest.raises(UsageError, match="--precision int8 needs an x86-64 processor"):
        prepare_weights(copy.deepcopy(case.model), "int8")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_warning_says_where_16_bits_are_slower(toy, monkeypatch, caplog, precision):
    monkeypatch.setattr(weights, "packs", lambda which: False)
    prepare_weights(toy.Case("shift", words=8).model, precision)
    assert [one.message[:16] for one in caplog.records] == ["--precision bf16"] * (
        precision == "bf16"
    )


def test_int8_is_for_a_cpu():
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match="--precision int8 is for --device cpu"):
        prepare_weights(model, "int8")


@pytest.mark.parametrize("words", [100, 4096, 50257, 65536])
def test_best_is_topk(words):
    rng = np.random.default_rng(words)
    for count in (1, 2, 10):
        gain = torch.from_numpy(rng.permutation(words * 3).reshape(3, words)).float()
        gain[1] = -torch.inf
        gain[1, rng.integers(words, size=4)] = 1.0 + torch.arange(4)
        gain[2, : words // 3] = -torch.inf
        value, index = best(gain, count)
        assert torch.equal(value, gain.topk(count).values)
        assert torch.equal(gain.gather(1, index), value)
        assert all(len(set(row.tolist())) == count for row in index)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("outputs", [63, 64, 65])
def test_a_padded_product_is_the_product(outputs, biased):
    torch.manual_seed(0)
    linear = nn.Linear(8, outputs, bias=biased)
    padded, x = Padded(linear.weight, linear.bias), torch.randn(3, 8)
    assert len(padded.weight) % 64 == 0
    shared = padded.weight.data_ptr() == linear.weight.data_ptr()
    assert shared == (outputs == 64)
    assert_near(padded(x), linear(x))


@needs_onednn
@pytest.mark.parametrize("slots", [40, SCORES_WIDTH + 8])
def test_a_text_is_read_with_scores_in_the_caches_dtype(slots):
    """Longer texts are left to SDPA, whose table of scores is never whole."""
    torch.manual_seed(0)
    model = replace(archs.preset("bert_tiny"), max_positions=slots).build(50).eval()
    n = np.arange(slots)
    batch = collate([[Example({"x": stay(n % 50, n)})]]).to("cpu")
    with torch.no_grad():
        wanted = model(batch)[0]["x"]
        model.decoder.cache_dtype = torch.bfloat16
        error = (model(batch)[0]["x"] - wanted).abs().max() / wanted.abs().max()
    assert (0 < error < 0.02) if slots <= SCORES_WIDTH else error == 0
