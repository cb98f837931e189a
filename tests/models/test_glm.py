"""glm_tiny equals an independent GLM: logits, loss and gradients, padded and packed."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.criterions.cross_entropy import CrossEntropy
from unitk.models import archs
from unitk.slots import Example, collate, lm, stay

V = 60


def reference(p, heads, token, pos, pos2, sep):
    """GLM of one example in plain torch (Du et al. 2022; official code `modeling_glm.py`).

    h = E[token] + P[pos] + P'[block]; pre-norm layers; final norm; logits h E^T. Key j is visible
    to query i iff j < sep or j <= i.
    """
    x = p["embed.tokens.weight"][token]
    x = x + p["embed.positions.weight"][pos] + p["embed.positions2.weight"][pos2]
    n, d = x.shape
    order = torch.arange(n)
    visible = (order[None, :] < sep) | (order[None, :] <= order[:, None])

    def normed(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        x = (x - mean) / torch.sqrt(variance + 1e-5)
        return x * p[name + ".weight"] + p[name + ".bias"]

    def linear(x, name):
        return x @ p[name + ".weight"].T + p[name + ".bias"]

    layers = 1 + max(int(name.split(".")[1]) for name in p if name.startswith("layers."))
    for layer in (f"layers.{number}." for number in range(layers)):
        mixed = linear(normed(x, layer + "attention_norm"), layer + "attention.qkv")
        q, k, v = mixed[:, :d], mixed[:, d : 2 * d], mixed[:, 2 * d :]
        outputs = []
        for head in range(heads):
            part = slice(head * d // heads, (head + 1) * d // heads)
            score = q[:, part] @ k[:, part].T / math.sqrt(d // heads)
            score = score.masked_fill(~visible, -65504.0)
            outputs.append(torch.softmax(score, -1) @ v[:, part])
        x = x + linear(torch.cat(outputs, -1), layer + "attention.out")
        h = linear(normed(x, layer + "ffn_norm"), layer + "ffn.up")
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, layer + "ffn.down")
    return normed(x, "norm") @ p["embed.tokens.weight"].T


def example(rng, shown, spans):
    """Part A of `shown` tokens, then the blanks of part B, each of as many slots as its span."""
    n = sum(spans)
    part_a = stay(rng.integers(V, size=shown), np.arange(shown))
    part_b = stay(
        rng.integers(V, size=n),
        np.repeat(rng.integers(shown, size=len(spans)), spans),
        pos2=np.concatenate([np.arange(1, span + 1) for span in spans]),
        at=1 + np.arange(n),
    )
    return Example({"x": part_a + part_b}, [lm(shown + np.arange(n), rng.integers(V, size=n))])


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = archs.preset("glm_tiny").build(V)
    with torch.no_grad():  # larger than at the start, so that every part matters
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


SHAPES = [(9, [3, 2]), (20, [1]), (5, [4, 1, 6]), (3, [2])]
ROWS = {"alone": [[0]], "ragged": [[0], [1], [2]], "packed": [[0, 1], [3, 2, 1], [2]]}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_glm_tiny_equals_the_reference(model, rows):
    rng = np.random.default_rng(1)
    examples = [example(rng, *shape) for shape in SHAPES]
    batch = collate([[examples[i] for i in row] for row in rows]).to("cpu")
    assert batch.sight["x"] == "rule"

    loss = CrossEntropy()(model, batch, 0, 1)
    loss.sums["lm"].backward()
    grads = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    states = model(batch)[0]["x"].flatten(0, 1)
    logits = model.head(states[batch.asks["lm"].rows[:, 0]])

    model.zero_grad()
    parameters = dict(model.named_parameters())
    expected = []
    for number in (number for row in rows for number in row):
        slots, ask = examples[number].towers["x"], examples[number].asks[0]
        columns = (torch.from_numpy(part) for part in (slots.token, slots.pos, slots.pos2))
        all_logits = reference(parameters, 4, *columns, sep=SHAPES[number][0])
        expected.append((all_logits[ask.rows[:, 0]], torch.from_numpy(ask.label)))
    wanted = torch.cat([part for part, _ in expected])
    label = torch.cat([part for _, part in expected])
    total = F.cross_entropy(wanted, label, reduction="sum")
    total.backward()

    assert_near(logits, wanted)
    assert batch.count["lm"] == len(label)
    assert torch.allclose(loss.sums["lm"], total, rtol=1e-5)
    for name, parameter in model.named_parameters():
        assert_near(grads[name], parameter.grad, roundings=512)


def test_a_tied_matrix_is_one_tensor(model):
    names = [name for name, value in model.state_dict().items() if len(value) == V]
    assert names == ["embed.tokens.weight"]
    assert len(list(model.parameters())) == len(model.state_dict())


def test_bf16_autocast_is_close(model):
    rng = np.random.default_rng(3)
    batch = collate([[example(rng, *shape)] for shape in SHAPES]).to("cpu")
    exact = CrossEntropy()(model, batch, 0, 1).sums["lm"]
    with torch.autocast("cpu", torch.bfloat16):
        rough = CrossEntropy()(model, batch, 0, 1).sums["lm"]
    rough.backward()
    assert rough.dtype == torch.float32
    assert torch.allclose(rough, exact, rtol=0.02)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
