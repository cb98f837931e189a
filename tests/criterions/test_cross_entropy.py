"""Cross-entropy is torch's, however the rows are asked, weighted, packed or chunked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk import registry
from unitk.criterions import cross_entropy
from unitk.criterions.config import CrossEntropyConfig
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.models import archs
from unitk.models.heads import compare
from unitk.slots import Ask, Example, collate, lm, stay
from unitk.tasks.lm import layout

V = 40
WEIGHT = {"lm": [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0], "tail": [0.5, 0.0, 2.0]}


def example(rng):
    tokens = rng.integers(V, size=(2, 10))
    slots = stay(tokens[0], np.arange(10), at=np.arange(10))
    asks = []
    for name, weight in WEIGHT.items():
        rows = rng.permutation(10)[: len(weight), None]
        asks.append(Ask(name, "lm", "x", rows, tokens[1, rows[:, 0]], np.array(weight, np.float32)))
    return Example({"x": slots}, asks)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return collate([[example(rng), example(rng)], [example(rng)]]).to("cpu")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return archs.preset("glm_tiny").build(V)


def asked(model, batch, name):
    """Logits at the rows of an ask, all at once."""
    ask = batch.asks[name]
    return model.head(model(batch)[0]["x"].flatten(0, 1)[ask.rows[:, 0]]), ask


def grads(model, total):
    model.zero_grad()
    total.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_are_torchs_and_counts_the_weights(model, batch, smoothing):
    loss = CrossEntropyConfig(label_smoothing=smoothing).build(V)(model, batch, 0, 1)
    counts = cross_entropy.CrossEntropy().counts(batch)
    assert loss.sums.keys() == counts.keys() == WEIGHT.keys()
    for name in WEIGHT:
        logits, ask = asked(model, batch, name)
        each = F.cross_entropy(logits, ask.label, reduction="none", label_smoothing=smoothing)
        assert torch.allclose(loss.sums[name], (each * ask.weight).sum(), rtol=1e-6)
        assert counts[name] == 3 * sum(WEIGHT[name])
        nll = F.cross_entropy(logits, ask.label, reduction="none")
        assert torch.allclose(loss.parts[f"{name}/nll"], (nll * ask.weight).sum(), rtol=1e-6)
        right = (logits.argmax(-1) == ask.label) * ask.weight
        assert loss.parts[f"{name}/correct"] == right.sum()
        assert not any(part.requires_grad for part in loss.parts.values())


def test_the_right_word_on_top_is_counted(model, batch):
    logits, ask = asked(model, batch, "tail")
    ask.label.copy_(logits.argmax(-1))
    loss = cross_entropy.CrossEntropy()(model, batch, 0, 1)
    assert loss.parts["tail/correct"] == batch.count["tail"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_change_nothing(model, batch, smoothing, monkeypatch):
    criterion = cross_entropy.CrossEntropy(smoothing)
    whole = criterion(model, batch, 0, 1)
    expected = grads(model, sum(whole.sums.values()))
    monkeypatch.setattr(compare, "CHUNK", 4)
    chunked = criterion(model, batch, 0, 1)
    got = grads(model, sum(chunked.sums.values()))
    with torch.inference_mode():
        valid = criterion(model, batch, 0, 1)
    for name in WEIGHT:
        assert torch.allclose(chunked.sums[name], whole.sums[name], rtol=1e-6)
        assert torch.allclose(chunked.sums[name], valid.sums[name], rtol=1e-6)
    for name, part in whole.parts.items():
        assert torch.allclose(chunked.parts[name], part, rtol=1e-6)
    for name, grad in expected.items():
        assert_near(got[name], grad, roundings=512)


def test_chunks_keep_no_logits(model, batch, monkeypatch):
    """What autograd saves does not hold the logits of all rows."""
    monkeypatch.setattr(compare, "CHUNK", 4)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: saved.append(x.shape) or x, lambda x: x
    ):
        cross_entropy.CrossEntropy()(model, batch, 0, 1)
    assert saved and not any(shape[-1:] == (V,) for shape in saved)


def test_sums_are_made_in_32_bits(model, batch):
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy.CrossEntropy(0.1)(model, batch, 0, 1)
        logits, ask = asked(model, batch, "lm")
    assert logits.dtype == torch.bfloat16
    each = F.cross_entropy(logits.float(), ask.label, reduction="none", label_smoothing=0.1)
    assert torch.allclose(loss.sums["lm"], (each * ask.weight).sum(), rtol=1e-6)


def test_rows_of_weight_zero_change_nothing(model, batch):
    criterion = cross_entropy.CrossEntropy(0.1)
    before = criterion(model, batch, 0, 1)
    batch.asks["lm"].label[batch.asks["lm"].weight == 0] = 0
    after = criterion(model, batch, 0, 1)
    assert torch.equal(before.sums["lm"], after.sums["lm"])


def test_what_it_cannot_compare_is_told(model):
    slots = stay([1, 2], [0, 1])
    ask = lm(np.arange(1), [1])
    for asks, message in (
        ([], "--criterion cross_entropy: this task has nothing to predict"),
        ([replace(ask, name="qa", head="span:qa")], "--arch has no output layer 'span:qa'"),
    ):
        batch = collate([[Example({"x": slots}, asks)]]).to("cpu")
        with pytest.raises(UsageError, match=message):
            cross_entropy.CrossEntropy()(model, batch, 0, 1)


@pytest.mark.parametrize("given", [{}, {"label_smoothing": 0.1}, {"z_loss": 0.1}])
def test_classes_are_counted_beside_words_and_never_smoothed(given):
    """Some examples have a class, all have words; each ask has its own sum and count."""
    torch.manual_seed(0)
    model = archs.preset("bert_tiny").build(V)
    rng = np.random.default_rng(1)
    examples = []
    for label in (0, None, 1):
        one = example(rng)
        if label is not None:
            rows = np.zeros((1, 1), np.int64)
            weight = np.ones(1, np.float32)
            one.asks.append(Ask("nsp", "class:nsp", "x", rows, np.array([label]), weight))
        examples.append(one)
    batch = collate([examples[:2], examples[2:]]).to("cpu")
    loss = CrossEntropyConfig(**given).build(V)(model, batch, 0, 1)
    states = model(batch)[0]["x"]
    logits = model.head(states[:, 0], "class:nsp")  # the first slots of rows 0 and 1
    assert logits.shape == (2, 2)
    label = torch.tensor([0, 1])
    expected = F.cross_entropy(logits, label, reduction="sum")
    assert torch.allclose(loss.sums["nsp"], expected, rtol=1e-6)
    assert cross_entropy.CrossEntropy().counts(batch) == {
        "nsp": 2,
        **{name: 3 * sum(each) for name, each in WEIGHT.items()},
    }
    assert loss.parts["nsp/correct"] == (logits.argmax(-1) == label).sum()
    assert "nsp/nll" not in loss.parts


def test_smoothing_over_others_is_unilms():
    """s2s-ft's LabelSmoothingLoss, restated: targets without [PAD], Kullback-Leibler divergence."""
    torch.manual_seed(0)
    pad, e, rows = 3, 0.1, 150  # more than a block of rows
    logits = (3 * torch.randn(rows, V, dtype=torch.double)).requires_grad_()
    label = torch.randint(4, V, (rows,))
    price = torch.rand(rows, dtype=torch.double)
    target = torch.full((V,), e / (V - 2), dtype=torch.double)
    target[pad] = 0
    target = target.repeat(rows, 1).scatter_(1, label[:, None], 1 - e)
    assert torch.allclose(target.sum(1), torch.ones(rows, dtype=torch.double))
    each = F.kl_div(logits.log_softmax(1), target, reduction="none").sum(1)
    (price * each).sum().backward()
    # what is given is overwritten, so that it may be no leaf
    ours = logits.detach().requires_grad_()
    loss, nll, _ = compare.compare(ours * 1, label, price, e, pad)
    loss.sum().backward()
    assert torch.allclose(loss, price * each.detach(), rtol=1e-12, atol=1e-14)
    assert torch.allclose(ours.grad, logits.grad, rtol=1e-10, atol=1e-15)
    assert torch.allclose(nll, F.cross_entropy(logits.detach(), label, reduction="none"))
    sure = target[:1].log().clamp(min=-1e3)  # no prediction does better than the targets
    best, _, _ = compare.compare(sure.clone(), label[:1], price[:1], e, pad)
    assert best.item() == pytest.approx(0, abs=1e-10)
    padded = logits.detach().requires_grad_()
    free, _, _ = compare.compare(padded * 1, torch.where(price < 0.5, pad, label), price, e, pad)
    free.sum().backward()
    assert (free[price < 0.5] == 0).all() and not padded.grad[price < 0.5].any()
    assert torch.equal(free[price >= 0.5], loss[price >= 0.5])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_z_loss_is_the_formula(smoothing):
    """price * (cross-entropy + z logsumexp^2), its gradient too; nll is that of the labels."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(150, V, dtype=torch.double) + 2).requires_grad_()
    label, price = torch.randint(V, (150,)), torch.rand(150, dtype=torch.double)
    each = F.cross_entropy(logits, label, reduction="none", label_smoothing=smoothing)
    wanted = price * (each + 0.3 * logits.logsumexp(1) ** 2)
    gradient = torch.autograd.grad(wanted.sum(), logits)[0]
    loss, nll, _ = compare.compare(logits * 1, label, price, smoothing, z_loss=0.3)
    assert torch.allclose(loss, wanted, rtol=1e-12)
    assert torch.allclose(torch.autograd.grad(loss.sum(), logits)[0], gradient, rtol=1e-10)
    assert torch.allclose(nll, F.cross_entropy(logits, label, reduction="none"))


def test_capped_logits_and_the_z_loss_have_the_gradients_of_their_formulas(batch):
    """In doubles, through all of a model; a capped logit is saved beside what is overwritten."""
    torch.manual_seed(0)
    config = replace(archs.preset("modern_tiny"), logit_cap=2.0, zero_init=False)
    model = config.build(V).double()
    found = cross_entropy.CrossEntropy(z_loss=0.1)(model, batch, 0, 1).sums
    ours = torch.autograd.grad(found["lm"] + found["tail"], list(model.decoder.parameters()))
    total = 0.0
    for name in WEIGHT:
        logits, ask = asked(model, batch, name)
        each = F.cross_entropy(logits, ask.label, reduction="none") + 0.1 * logits.logsumexp(1) ** 2
        total += (each * ask.weight).sum()
    theirs = torch.autograd.grad(total, list(model.decoder.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("z_loss", [0.0, 0.2])
def test_what_is_compiled_computes_the_same(dtype, z_loss, monkeypatch):
    made = torch.compile(compare.compare_rows, dynamic=True, backend="aot_eager")
    monkeypatch.setattr(compare, "_compiled", lambda: made)
    monkeypatch.setattr(compare, "BLOCK", 4)  # the last block is another size
    torch.manual_seed(0)
    logits, label, price = torch.randn(10, V).to(dtype), torch.arange(10), torch.rand(10)
    found = []
    for compiled in (True, False):
        own = logits.clone().requires_grad_()
        terms = compare.compare(own * 1, label, price, z_loss=z_loss, compiled=compiled)
        terms[0].sum().backward()
        found.append([*terms, own.grad])
    for one, other in zip(*found, strict=True):
        # which bits of a product are kept before it is rounded to 16 bits differs
        assert_near(
            one.float(), other.float(), roundings=round(8 * torch.finfo(dtype).eps / 2**-23)
        )


@pytest.mark.parametrize(("smoothing", "pad"), [(0.0, None), (0.1, None), (0.1, 0), (0.1, 7)])
def test_what_an_import_added_is_not_smoothed_over(smoothing, pad):
    torch.manual_seed(0)
    few = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    label, price = torch.tensor([1, 2, 3, 4, 5]), torch.rand(5, dtype=torch.float64)
    # a pad that was added, 7, is none of the original's words
    known = few if pad != 7 else torch.cat([few, few.new_full((5, 1), -torch.inf)], 1)
    its = 6 if pad == 7 else pad
    loss, nll, correct = compare.compare(known.clone(), label, price, smoothing, its)
    added = torch.cat([few, few.new_full((5, 3), -torch.inf)], 1)
    found = compare.compare(added, label, price, smoothing, pad)
    for one, other in zip(found, (loss, nll, correct), strict=True):
        assert other.isfinite().all() and torch.allclose(1.0 * one, 1.0 * other, rtol=1e-12)
    gradient = torch.autograd.grad(loss.sum(), few)[0]
    assert torch.allclose(torch.autograd.grad(found[0].sum(), few)[0], gradient, rtol=1e-12)
    if pad is None and smoothing:
        each = F.cross_entropy(few, label, reduction="none", label_smoothing=smoothing)
        assert torch.allclose(loss, price * each, rtol=1e-12)


def test_smoothing_over_others_needs_smoothing(toy_vocab):
    built = CrossEntropyConfig(label_smoothing=0.1, smoothed_over="others").build(toy_vocab)
    assert built == cross_entropy.CrossEntropy(0.1, toy_vocab.pad)
    with pytest.raises(UsageError, match="--criterion.smoothed-over .*no effect"):
        CrossEntropyConfig(smoothed_over="others")


def test_states_and_their_differences_are_kept_small_in_training(toy_vocab):
    """AR and TAR: means over real slots, and over neighbours of one doc, before dropout."""
    torch.manual_seed(0)
    config = replace(registry.get("arch", "awd_lstm_tiny")(), init_range=0.5, dropout=0.5)
    model, rng = config.build(len(toy_vocab)), np.random.default_rng(0)
    examples = [layout(rng.integers(30, 60, n)) for n in (9, 5, 7)]
    batch = collate([examples[:2], examples[2:]]).to("cpu")
    criterion = CrossEntropy(ar=2.0, tar=3.0)
    states, _ = model.train()(batch)
    dropped, raw = states["x"].detach(), states["x/raw"].detach()
    assert ((dropped == 0) | (dropped == 2 * raw)).all() and (dropped != raw).any()

    def given(batch, condition):
        return states, {}

    model.forward = given
    loss, counts = criterion(model, batch, 0, 1), criterion.counts(batch)
    assert counts == {**batch.count, "ar": 18, "tar": 15}
    own = [(0, slice(0, 8)), (0, slice(8, 12)), (1, slice(0, 6))]
    squares = sum(float(dropped[at].square().sum()) for at in own)
    turns = sum(float(raw[at].diff(dim=0).square().sum()) for at in own)
    assert loss.sums["ar"].item() == pytest.approx(2 * squares / 64, rel=1e-5)
    assert loss.sums["tar"].item() == pytest.approx(3 * turns / 64, rel=1e-5)
    model.eval()
    assert criterion(model, batch, 0, 1).sums.keys() == {"lm"}  # it is judged by its words


@pytest.mark.parametrize("arch", ["bert_tiny", "unilm2_tiny", "modern_tiny", "xlnet_tiny"])
@pytest.mark.parametrize("sizes", [(16, 16), (16, 9)], ids=["full", "rule"])
def test_slots_that_nobody_asks_change_nothing(arch, sizes, monkeypatch):
    """Loss and gradients are those of a model whose last layer makes all states."""
    torch.manual_seed(0)
    made = archs.preset(arch).build(V).eval()
    rng, examples = np.random.default_rng(0), []
    for size, asks in zip(sizes, (4, 2), strict=True):
        slots, rows = stay(rng.integers(V, size=size), np.arange(size)), rng.permutation(size)
        examples.append([Example({"x": slots}, [lm(rows[:asks], rng.integers(V, size=asks))])])
    batch = collate(examples).to("cpu")
    assert batch.sight["x"] == ("full" if sizes[1] == 16 else "rule")
    used = [p for name, p in made.named_parameters() if not name.startswith("heads.")]
    few = CrossEntropy()(made, batch, 0, 1).sums["lm"]
    lean = torch.autograd.grad(few, used, allow_unused=True)
    monkeypatch.setattr(cross_entropy, "replace", lambda batch, **kwargs: batch)
    every = CrossEntropy()(made, batch, 0, 1).sums["lm"]
    assert_near(few, every)
    for one, other in zip(lean, torch.autograd.grad(every, used, allow_unused=True), strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            assert_near(one, other)


def test_towers_of_which_there_are_several_have_no_activations_to_regularize(toy_vocab):
    model = registry.get("arch", "elmo_tiny")().build(len(toy_vocab)).train()
    task = registry.get("task", "bilm")
    text = Text([np.arange(30, 40)], np.zeros(1, int))
    example = task(task.Config(), toy_vocab).pretrain(text, np.random.default_rng(0))
    with pytest.raises(UsageError, match="--criterion.ar .*tar.*one tower"):
        CrossEntropy(ar=1.0)(model, collate([[example]]).to("cpu"), 0, 1)
