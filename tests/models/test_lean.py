"""What is kept for backward: less memory, the same gradients."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near
from torch.autograd.graph import saved_tensors_hooks

from unitk.kernels.lean import Dropout, Table, map_normed, norm
from unitk.models import archs
from unitk.models.layers import FeedForward


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_its_share_and_the_mean(p):
    torch.manual_seed(0)
    x = torch.ones(1000, 999, requires_grad=True)
    y = Dropout(p)(x)
    y.sum().backward()
    kept = (y != 0).double().mean().item()
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert abs(kept - (1 - p)) < 5 * deviation + 1 / 65536
    assert y.max().item() == pytest.approx(1 / (1 - p), rel=1e-4)
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(Dropout(p).eval()(x), x) and torch.equal(Dropout(0.0)(x), x)


def test_dropout_is_independent_between_neighbours_and_fixed_by_the_seed():
    torch.manual_seed(1)
    x = torch.ones(1 << 18)
    kept = Dropout(0.3)(x) != 0
    both = (kept[1:] & kept[:-1]).double().mean().item()
    assert both == pytest.approx(0.49, abs=5 * (0.49 * 0.51 / 2**18) ** 0.5 * 2)
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.3)(x) != 0, kept)


def test_dropout_keeps_a_byte_a_value():
    sizes = []
    x = torch.ones(64, 64, requires_grad=True)
    with saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t):
        Dropout(0.1)(x)
    assert sum(sizes) <= x.numel() + 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "relu2", "silu"])
@pytest.mark.parametrize("arch", ["glm_tiny", "modern_tiny"])
def test_an_activation_applied_again_in_backward_gives_the_same_gradients(
    arch, activation, gated, dtype
):
    """Once, though the norm inside the modern stack keeps its result too."""
    config = replace(archs.preset(arch), activation=activation, ffn_gate=gated)
    found = []
    for lean in (False, True):
        torch.manual_seed(0)
        ffn = FeedForward(config).to(dtype).train()
        torch.nn.init.normal_(ffn.down.weight)
        ffn.lean, plain, calls = lean, ffn.activation, []
        ffn.activation = lambda x, plain=plain, calls=calls: calls.append(x) or plain(x)
        x = torch.randn(2, 8, config.width, dtype=dtype, requires_grad=True)
        y = ffn(x)
        F.mse_loss(y, torch.ones_like(y)).backward()
        assert len(calls) == 1 + lean
        found.append([y, x.grad, *(p.grad for p in ffn.parameters())])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("tied", [True, False])
def test_a_lean_table_has_the_gradient_of_an_embedding(tied):
    torch.manual_seed(0)
    index, found = torch.randint(9, (3, 20)), []
    for lean in (False, True):
        table = Table(12, 8)
        with torch.no_grad():
            table.weight.copy_(torch.linspace(-1, 1, 96).view(12, 8))
        table.lean = lean
        for _ in range(2):  # micro-batches of an update
            rows = table(index).tanh()
            scores = rows @ table.weight.T if tied else rows
            scores.square().sum().backward()
        found.append(table.weight.grad)
    torch.testing.assert_close(*found)
    assert not table.requires_grad_(False)(index).requires_grad


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_a_norm_before_a_map_may_scale_its_outputs(kind, bias):
    """The same states and gradients in either order."""
    torch.manual_seed(0)
    config = replace(archs.preset("modern_tiny"), norm=kind)
    inside, linear = norm(config, 24, inside=True), torch.nn.Linear(24, 10, bias=bias)
    x, found = torch.randn(3, 5, 24, requires_grad=True), []
    for y in (map_normed(inside, linear, x), linear(inside(x))):
        found.append([y, *torch.autograd.grad(y.sin().sum(), [x, *linear.parameters()])])
    for one, other in zip(*found, strict=True):
        assert_near(one, other)
