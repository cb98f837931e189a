"""Logits, losses and gradients are those of transformers, under its names."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import unitk
from tests.conftest import toy_lines
from unitk.errors import UsageError
from unitk.formats.hf.folder import write
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded


@pytest.fixture
def there(kit, tmp_path, toy_vocab):
    """A folder of transformers with a random model."""
    pytest.importorskip("transformers")

    def made(arch, task):
        task_type = get("task", task)
        torch.manual_seed(0)
        model = kit.perturbed(tiny(get("arch", arch)()).build(len(toy_vocab)))
        write(Loaded(model, task_type(task_type.Config(), toy_vocab), {"arch": arch}, {}), tmp_path)
        return tmp_path

    return made


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("fp64", 1e-9)])
@pytest.mark.parametrize(
    ("arch", "task"),
    [("bert_base", "mlm"), ("roberta_base", "mlm"), ("gpt2_small", "lm"), ("bart_base", "seq2seq")],
)
def test_gradients_are_theirs(there, arch, task, dtype, tolerance):
    import transformers as hf

    folder = there(arch, task)
    ours = unitk.load_module(folder, format="hf", dtype=dtype)
    kind = {"mlm": "MaskedLM", "lm": "CausalLM", "seq2seq": "Seq2SeqLM"}[task]
    theirs = getattr(hf, f"AutoModelFor{kind}").from_pretrained(folder).eval()
    theirs.to(torch.float64 if dtype == "fp64" else torch.float32)
    texts = toy_lines(3)
    targets = texts[::-1] if task == "seq2seq" else None
    losses = [0, 0]
    for i, logits in enumerate(ours.logits(texts, targets)):
        labels = torch.from_numpy(np.roll(ours.ids(texts, targets)[i], 1))
        if targets is None:
            given = {"input_ids": torch.from_numpy(ours.ids(texts)[i])[None]}
        else:
            example = ours._lay_out(texts, targets)[i]
            given = {"input_ids": example.towers["enc"].token}
            given["decoder_input_ids"] = example.towers["dec"].token
            given = {name: torch.from_numpy(ids)[None] for name, ids in given.items()}
        wanted = theirs(**given).logits[0, -len(labels) :]
        assert torch.allclose(
            logits, wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max())
        )
        for number, one in enumerate((logits, wanted)):
            losses[number] = losses[number] + F.cross_entropy(one, labels)
    for loss in losses:
        loss.backward()
    found = ours.tensors(gradients=True)
    compared, least = 0, 0.01 * max(float(one.abs().max()) for one in found.values())
    for name, weight in theirs.named_parameters():
        if weight.grad is None:
            assert not found[name].any()
            continue
        compared += 1
        scale = max(
            weight.grad.abs().max().item(), least
        )  # that of a key's bias is 0 but for rounding
        assert torch.allclose(found[name], weight.grad, rtol=tolerance, atol=tolerance * scale), (
            name
        )
    assert compared > 20
    weights = ours.tensors()
    assert all(torch.equal(weights[name], one) for name, one in theirs.named_parameters())


@pytest.mark.parametrize(
    ("arch", "task", "pairs"),
    [("bert_base", "mlm", False), ("gpt2_small", "lm", False), ("bart_base", "seq2seq", True)],
)
def test_a_step_down_the_loss_lowers_it(there, arch, task, pairs):
    model = unitk.load_module(there(arch, task), format="hf", dtype="fp64")
    texts = toy_lines(3)
    given = (texts, texts[::-1]) if pairs else (texts,)
    before = model.loss(*given)
    assert before == model.loss(*given) and before.dtype == torch.float64
    before.backward()
    slope = sum(float((one.grad**2).sum()) for one in model.parameters() if one.grad is not None)
    step = 1e-5 / slope**0.5
    with torch.no_grad():
        for one in model.parameters():
            if one.grad is not None:
                one -= step * one.grad
    assert float(before - model.loss(*given)) == pytest.approx(step * slope, rel=1e-2)


def test_the_loss_of_pairs_is_their_score(there):
    folder = there("bart_base", "seq2seq")
    texts = toy_lines(2)
    module = unitk.load_module(folder, format="hf", dtype="fp64")
    found = unitk.load(folder, format="hf").score(texts, texts[::-1])
    words = sum(len(one.hypothesis.ids) for one in found)
    wanted = -sum(one.hypothesis.log_prob for one in found) / words
    assert float(module.loss(texts, texts[::-1])) == pytest.approx(wanted, rel=1e-5)


def test_mistakes_are_named(there):
    model = unitk.load_module(there("bart_base", "seq2seq"), format="hf")
    with pytest.raises(UsageError, match="targets .*needed.*encoder"):
        model.logits("a")
    with pytest.raises(UsageError, match="there must be.*text"):
        model.loss(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="texts: none"):
        model.loss([], [])
