"""AdamW does what its paper says, and only matrices decay."""

from dataclasses import replace

import pytest
import torch

from unitk.models import archs
from unitk.optim.config import (
    AdafactorConfig,
    AdagradConfig,
    AdamWConfig,
    BertAdamConfig,
    LambConfig,
    SGDConfig,
)
from unitk.optim.plan import OptimPlan
from unitk.optim.schedules import Constant

BERT = replace(
    archs.preset("glm_tiny"),
    embedding_norm=True,
    output_bias=True,
    head_transform=True,
    num_segments=2,
)


def build(config, model, lr):
    """The one optimizer of a model, with its rates set."""
    plan = OptimPlan(model, config, lr, Constant())
    plan.begin(0, None, 0)
    (optimizer,) = plan.optimizers
    return optimizer


def test_norms_and_biases_do_not_decay():
    model = BERT.build(30)
    decayed, plain = build(AdamWConfig(weight_decay=0.3), model, 1e-3).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.3, 0.0)
    names = [name for name, _ in model.named_parameters()]
    kept = [name for name in names if name.endswith("bias") or "norm" in name]
    assert plain["param_names"] == kept
    assert decayed["param_names"] == [name for name in names if name not in kept]
    assert "embed.tokens.weight" in decayed["param_names"] and "heads.lm.bias" in kept


def test_frozen_parameters_are_left_out():
    model = BERT.build(30)
    model.decoder.embed.requires_grad_(False)
    groups = build(AdamWConfig(), model, 1e-3).param_groups
    assert not any(name.startswith("embed") for group in groups for name in group["param_names"])


def test_two_steps_are_adams():
    """Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2, with decoupled decay lr * wd."""
    layer = torch.nn.Linear(3, 1)
    config = AdamWConfig(betas=(0.8, 0.9), eps=1e-3, weight_decay=0.5)
    optimizer = build(config, layer, 0.1)
    weight, grads = layer.weight.detach().clone(), torch.randn(2, 1, 3)
    mean, square = torch.zeros(1, 3), torch.zeros(1, 3)
    for t, grad in enumerate(grads, start=1):
        layer.weight.grad = grad.clone()
        optimizer.step()
        mean, square = 0.8 * mean + 0.2 * grad, 0.9 * square + 0.1 * grad**2
        ascent = (mean / (1 - 0.8**t)) / ((square / (1 - 0.9**t)).sqrt() + 1e-3)
        weight = weight - 0.1 * (ascent + 0.5 * weight)
    assert torch.allclose(layer.weight, weight, atol=1e-6)


def test_steps_are_bert_adams():
    """BertAdam of pytorch_pretrained_bert 0.4 (UniLM), restated."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).double()
    optimizer = build(BertAdamConfig(betas=(0.8, 0.9), weight_decay=0.5), layer, 0.1)
    tensors = [(layer.weight, 0.5), (layer.bias, 0.0)]
    expected = [tensor.detach().clone() for tensor, _ in tensors]
    means = [(torch.zeros_like(one), torch.zeros_like(one)) for one in expected]
    for size in (3.0, 0.1, 1.0):  # gradients larger and smaller than the limit
        for i, (tensor, decay) in enumerate(tensors):
            grad = size * torch.randn_like(tensor)
            tensor.grad = grad.clone()
            grad *= min(1.0, 1 / (grad.norm().item() + 1e-6))
            mean, square = means[i]
            means[i] = mean, square = 0.8 * mean + 0.2 * grad, 0.9 * square + 0.1 * grad**2
            step = mean / (square.sqrt() + 1e-6) + decay * expected[i]
            expected[i] = expected[i] - 0.1 * step
        optimizer.step()
    for (tensor, _), one in zip(tensors, expected, strict=True):
        assert torch.allclose(tensor, one, rtol=1e-12)


def test_bert_adam_goes_on_from_its_state():
    torch.manual_seed(0)
    one = torch.nn.Linear(3, 2)
    two = torch.nn.Linear(3, 2)
    two.load_state_dict(one.state_dict())
    first, grads = build(BertAdamConfig(), one, 0.1), torch.randn(3, 2, 3)
    second = build(BertAdamConfig(), two, 0.1)
    for i, grad in enumerate(grads):
        one.weight.grad, two.weight.grad = grad.clone(), grad.clone()
        first.step()
        second.step()
        if i == 1:
            state, second = second.state_dict(), build(BertAdamConfig(), two, 0.1)
            second.load_state_dict(state)
    assert torch.equal(one.weight, two.weight)


@pytest.mark.parametrize("always_adapt", [True, False])
def test_steps_are_lambs(always_adapt):
    """You et al. 2020, arXiv 1904.00962, algorithm 2, one tensor after the other."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).double()
    with torch.no_grad():
        layer.bias.zero_()  # without a norm of its own, the first update is Adam's
    config = LambConfig(betas=(0.8, 0.9), weight_decay=0.5, always_adapt=always_adapt)
    optimizer = build(config, layer, 0.1)
    tensors = [(layer.weight, 0.5), (layer.bias, 0.0)]
    expected = [tensor.detach().clone() for tensor, _ in tensors]
    means = [(torch.zeros_like(one), torch.zeros_like(one)) for one in expected]
    for t in (1, 2, 3):
        for i, (tensor, decay) in enumerate(tensors):
            grad = torch.randn_like(tensor)
            tensor.grad = grad.clone()
            mean, square = means[i]
            means[i] = mean, square = 0.8 * mean + 0.2 * grad, 0.9 * square + 0.1 * grad**2
            ascent = (mean / (1 - 0.8**t)) / ((square / (1 - 0.9**t)).sqrt() + 1e-6)
            ascent = ascent + decay * expected[i]
            if expected[i].norm() and (decay or always_adapt):
                ascent = ascent * expected[i].norm() / ascent.norm()
            expected[i] = expected[i] - 0.1 * ascent
        optimizer.step()
    for (tensor, _), one in zip(tensors, expected, strict=True):
        assert torch.allclose(tensor, one, rtol=1e-12)


def test_steps_are_adafactors():
    """Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 to 6 and section 8, restated."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3)
    with torch.no_grad():
        layer.bias.zero_()  # a tensor of zeros moves by at least 1e-3 times the rate
    optimizer = build(AdafactorConfig(), layer, 0.6)
    weight, bias = (one.detach().double() for one in (layer.weight, layer.bias))
    rows, columns, square = torch.zeros(3, 1), torch.zeros(1, 4), torch.zeros(3)
    for t in (1, 2, 3, 4):
        grads = [torch.randn(3, 4).double(), torch.randn(3).double()]
        grads[0][1] = 0  # a word that a batch does not have
        layer.weight.grad, layer.bias.grad = (one.float() for one in grads)
        optimizer.step()
        new, rate = t**-0.8, min(0.6, t**-0.5)
        rows = (1 - new) * rows + new * (grads[0] ** 2).mean(1, keepdim=True)
        columns = (1 - new) * columns + new * (grads[0] ** 2).mean(0, keepdim=True)
        square = (1 - new) * square + new * grads[1] ** 2
        means = rows * columns / rows.mean(), square
        for one, grad, mean in zip((weight, bias), grads, means, strict=True):
            ascent = grad / mean.clamp(min=1e-30).sqrt()
            ascent /= max(1, float((ascent**2).mean().sqrt()))
            one -= rate * max(1e-3, float((one**2).mean().sqrt())) * ascent
    assert torch.allclose(layer.weight.double(), weight, rtol=1e-4, atol=1e-6)
    assert torch.allclose(layer.bias.double(), bias, rtol=1e-4, atol=1e-6)


def test_steps_are_adagrads():
    """The rate over the root of the sum of squares, which begins with the accumulator."""
    layer = torch.nn.Linear(4, 3, bias=False).double()
    optimizer = build(AdagradConfig(accumulator=1.0, weight_decay=0.5), layer, 0.2)
    weight, total = layer.weight.detach().clone(), torch.ones(3, 4).double()
    for grad in torch.randn(3, 3, 4).double():
        layer.weight.grad = grad.clone()
        optimizer.step()
        grad = grad + 0.5 * weight
        total += grad**2
        weight = weight - 0.2 * grad / (total.sqrt() + 1e-10)
    assert torch.allclose(layer.weight, weight, rtol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_go_down_the_gradient(momentum):
    layer = torch.nn.Linear(4, 3, bias=False).double()
    optimizer = build(SGDConfig(momentum=momentum, weight_decay=0.5), layer, 0.2)
    weight, past = layer.weight.detach().clone(), torch.zeros(3, 4).double()
    for grad in torch.randn(3, 3, 4).double():
        layer.weight.grad = grad.clone()
        optimizer.step()
        past = momentum * past + grad + 0.5 * weight
        weight = weight - 0.2 * past
    assert torch.allclose(layer.weight, weight, rtol=1e-12)


def test_the_kernel_is_fused():
    assert build(AdamWConfig(), torch.nn.Linear(2, 2), 0.1).defaults["fused"]
