"""A run computes its fp32 products by the library that its options or a measurement chose."""

import pytest
import torch

from unitk.errors import UsageError
from unitk.kernels import products
from unitk.training.loop import Trainer
from unitk.training.reporting import report

needs_onednn = pytest.mark.skipif(not products.has_onednn(), reason="no oneDNN here")


@needs_onednn
def test_a_run_trains_as_with_torch_and_a_resumed_one_keeps_its_choice(
    train, start, curve, monkeypatch
):
    monkeypatch.setattr(products, "SMALL", 0)
    for name in ("torch", "onednn"):
        train(f"--max-steps 3 --device cpu --products {name}", run=name)
    one, other = (dict(curve(name)) for name in ("torch", "onednn"))
    assert one == pytest.approx(other, rel=1e-5)
    fast = dict.fromkeys(products.PRODUCTS, 2.0)
    monkeypatch.setattr(products, "speedups", lambda *shape: fast)
    train("--max-steps 3 --device cpu", run="a")
    assert dict(curve("a")) == other
    slow = dict.fromkeys(products.PRODUCTS, 0.5)
    monkeypatch.setattr(products, "speedups", lambda *shape: slow)
    trainer = Trainer(start("--max-steps 6 --device cpu --resume", run="a"))
    assert trainer.progress.products == list(products.PRODUCTS)
    assert Trainer(start("--max-steps 3 --device cpu", run="b")).progress.products == []


@needs_onednn
@pytest.mark.parametrize("many", ["states of layers", "logits"])
def test_what_is_made_anew_in_the_backward_pass_is_what_was_made(train, curve, monkeypatch, many):
    monkeypatch.setattr(products, "SMALL", 0)
    words = "--max-steps 2 --device cpu --products onednn"
    train(words, run="whole")
    if many == "logits":
        monkeypatch.setattr("unitk.models.heads.compare.CHUNK", 8)
    else:
        words += " --recompute"
    train(words, run="anew")
    assert dict(curve("anew")) == pytest.approx(dict(curve("whole")), rel=1e-6)


def test_products_without_effect_are_refused(start):
    with pytest.raises(UsageError, match="--products onednn.*effect.* CPU in fp32"):
        Trainer(start("--max-steps 3 --precision bf16 --products onednn"))


def test_without_onednn_torch_computes(start, no_onednn):
    assert products.fastest_products(4096, 1024, 4096) == []
    with pytest.raises(UsageError, match="--products onednn needs.* x86-64 processor"):
        Trainer(start("--max-steps 3 --device cpu --products onednn"))


@pytest.mark.parametrize("slow", [True, False])
def test_a_warning_says_where_bf16_is_slower(start, monkeypatch, slow):
    monkeypatch.setattr(report, "computes_in_bf16", lambda device: not slow)
    said = [*report.warnings(Trainer(start("--max-steps 1 --precision bf16 --device cpu")))]
    assert any("--precision bf16: this processor" in one for one in said) == slow


@pytest.mark.parametrize("more", ["", "--static", "--task mass --arch mass_tiny"])
def test_small_models_are_advised_to_be_recorded_on_a_gpu(start, more):
    trainer = Trainer(start(f"--max-steps 1 --device cpu {more}"))
    assert not [*report.faster(trainer)]
    trainer.device = torch.device("cuda")
    assert any("--static --capture" in one for one in report.faster(trainer)) != bool(more)
