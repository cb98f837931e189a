"""Products of fp32 matrices on CPU by oneDNN are PyTorch's, forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.kernels import products

needs_onednn = pytest.mark.skipif(not products.has_onednn(), reason="no oneDNN here")


@needs_onednn
@pytest.mark.parametrize("parts", [["forward"], ["inputs"], ["weights"], products.PRODUCTS])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_map_and_its_gradients_are_torchs(parts, bias, monkeypatch):
    monkeypatch.setattr(products, "SMALL", 0)
    torch.manual_seed(0)
    shapes = {"x": (3, 50, 40), "weight": (70, 40), "bias": (70,)}
    found = []
    given = {name: torch.randn(shape) for name, shape in shapes.items()}
    for mode in (products.Products(parts), products.Products([])):
        own = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
        with mode:
            y = F.linear(own["x"], own["weight"], own["bias"] if bias else None)
        y.square().sum().backward()
        found.append([y, *(own[name].grad for name in ("x", "weight"))])
        found[-1] += [own["bias"].grad] if bias else []
    plain = F.linear(given["x"], given["weight"], given["bias"] if bias else None)
    for one, other in zip(*found, strict=True):
        assert_near(one, other)
    assert_near(found[0][0], plain)
