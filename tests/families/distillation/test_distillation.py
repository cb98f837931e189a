"""Distillation by truths: each loss by hand, what a perfect student has, what is refused."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.errors import UsageError
from unitk.families.distillation.config import DistillConfig
from unitk.families.distillation.criterion import (
    PROJECT,
    attention_scores,
    distance,
    score_distance,
    teacher_divergence,
)
from unitk.slots import Ask, Example, collate, lm, stay

V = 60


def network(arch="bert_tiny", seed=1, **changes):
    torch.manual_seed(seed)
    return replace(registry.get("arch", arch)(), **changes).build(V)


def batch_of(causal=False):
    rng = np.random.default_rng(0)
    made = []
    for n in (9, 14, 5):
        tokens, places = rng.integers(5, V, n), np.arange(n)
        slots = stay(tokens, places, at=places if causal else 0)
        made.append([Example({"x": slots}, [lm(places[::2], tokens[::2])])])
    return collate(made).to("cpu")


def learn(teacher, model, batch, **options):
    criterion = DistillConfig(**options).build(Hashed)
    criterion.teacher = teacher.eval().requires_grad_(False)
    return criterion, criterion(model.train(), batch, 0, 1)


class Hashed:
    hash = "same"


def logits(model, batch):
    ask = batch.asks["lm"]
    states, _ = model(batch)
    return model.head(states["x"].flatten(0, 1)[ask.first])


def test_outputs_are_compared_at_a_temperature_by_hand():
    batch, teacher, model = batch_of(), network(seed=1), network(seed=2)
    _, loss = learn(teacher, model, batch, labels_weight=0.25, logits_weight=3.0, temperature=4.0)
    ours, theirs = logits(model, batch), logits(teacher, batch)
    soft = 16 * F.kl_div((ours / 4).log_softmax(-1), (theirs / 4).softmax(-1), reduction="sum")
    hard = F.cross_entropy(ours, batch.asks["lm"].label, reduction="sum")
    assert_near(loss.sums["lm"], 0.25 * hard + 3 * soft)
    assert_near(loss.parts["lm/teacher"], soft)
    assert_near(loss.parts["lm/nll"], hard)


@pytest.mark.parametrize("classes", [3, 4])
def test_logits_of_several_classes_are_compared_by_hand(classes):
    """There are three texts, so that three classes would hide a price of the wrong axis."""
    heads = (head := f"classes:kinds:{classes}",)
    teacher, model = (network(seed=seed, heads=heads) for seed in (1, 2))
    label, place = np.ones((1, classes), np.float32), np.zeros((1, 1), np.int64)
    ask = Ask("kinds", head[:-2], "x", place, label, np.ones(1, np.float32))
    texts = (stay(np.arange(5, 5 + n), np.arange(n)) for n in (3, 5, 4))
    batch = collate([[Example({"x": text}, [ask])] for text in texts]).to("cpu")
    batch.asks["kinds"].weight[:] = torch.tensor([0.5, 1.0, 2.0])
    _, loss = learn(teacher, model, batch, logits_weight=1.0, labels_weight=0.0)
    apart = model.output(batch, batch.asks["kinds"]) - teacher.output(batch, batch.asks["kinds"])
    assert_near(loss.sums["kinds"], (apart.square().mean(1) * torch.tensor([0.5, 1, 2])).sum())


def test_a_batch_that_asks_for_nothing_has_no_loss():
    batch = batch_of()
    ask = batch.asks["lm"]
    none = replace(ask, rows=ask.rows[:0], label=ask.label[:0], weight=ask.weight[:0])
    _, loss = learn(network(), network(seed=2), replace(batch, asks={"lm": none}))
    assert loss.sums["lm"].item() == 0


def test_without_a_teacher_s_weight_the_gradient_is_that_of_the_labels():
    batch = batch_of()
    grads = []
    for criterion in (None, CrossEntropy()):
        model = network(seed=2)
        if criterion is None:
            _, loss = learn(network(), model, batch, labels_weight=1.0, logits_weight=0.0)
        else:
            loss = criterion(model.train(), batch, 0, 1)
        loss.sums["lm"].backward()
        grads.append(model.decoder.layers[0].ffn.up.weight.grad)
    assert_near(*grads)


@pytest.mark.parametrize("arch", ["bert_tiny", "albert_tiny", "gpt2_tiny", "modern_tiny"])
def test_a_model_that_is_its_teacher_is_no_distance_from_it(arch):
    batch, teacher = batch_of("gpt2" in arch), network(arch)
    model = network(arch)
    _, loss = learn(
        teacher,
        model,
        batch,
        labels_weight=0.0,
        logits_weight=1.0,
        states_weight=1.0,
        attention_weight=1.0,
    )
    assert loss.sums.keys() == {"lm", "states", "attention"}
    for value in loss.sums.values():
        assert_near(value, torch.zeros(()))


def test_states_are_compared_at_the_depths_of_the_map():
    batch, teacher, model = batch_of(), network(seed=1, num_layers=3), network(seed=2)
    options = {"labels_weight": 0.0, "logits_weight": 0.0, "states_weight": 2.0}
    criterion, loss = learn(teacher, model, batch, **options, layers=("0=0", "2=3"))
    real = batch.towers["x"][5] < 1 << 30
    ours, theirs = [], []
    model.read("x", batch, depths=ours)
    teacher.read("x", batch, depths=theirs)
    each = [((ours[a] - theirs[b]) ** 2).mean(-1)[real].sum() for a, b in ((0, 0), (2, 3))]
    assert_near(loss.sums["states"], 2 * sum(each) / 2)
    assert criterion.counts(batch)["states"] == real.sum() == 28
    even = DistillConfig(**options).build(Hashed)
    assert even.match_depths(model, teacher) == [(0, 0), (1, 2), (2, 3)]


def test_a_projection_makes_states_as_wide():
    batch, teacher = batch_of(), network(seed=1)
    model = network(seed=2, width=32, num_heads=2, heads=(f"{PROJECT}:64",))
    options = {"labels_weight": 0.0, "logits_weight": 0.0, "states_weight": 1.0}
    _, loss = learn(teacher, model, batch, **options, layers=("1=1",))
    ours, theirs = [], []
    model.read("x", batch, depths=ours)
    teacher.read("x", batch, depths=theirs)
    mapped = ours[1] @ model.heads[PROJECT].out.weight.T
    real = batch.towers["x"][5] < 1 << 30
    assert_near(
        loss.sums["states"], F.mse_loss(mapped[real], theirs[1][real], reduction="sum") / 64
    )
    with pytest.raises(UsageError, match=r"--arch\.heads project:states:64"):
        learn(teacher, network(width=32, num_heads=2), batch, **options)


@pytest.mark.parametrize(("arch", "causal"), [("bert_tiny", False), ("qwen3_tiny", True)])
def test_attention_is_what_the_model_attends_to(arch, causal):
    """What it finds is the mean of the values, weighed by it."""
    batch, model = batch_of(causal), network(arch).eval()
    seen = []

    def note(module, given, output):
        seen.append((module, *given[:2], output))

    model.decoder.attention = "dense"
    handles = [one.attention.register_forward_hook(note) for one in model.decoder.layers]
    model(batch)
    for handle in handles:
        handle.remove()
    for attention, x, view, output in seen:
        weight = attention_scores(attention, x, view).softmax(-1)
        assert_near(weight.sum(-1), torch.ones(weight.shape[:-1]))
        value = attention.project(x, view.num_keys, view.rotation)[2]
        assert_near(attention.join(weight @ value, x), output)


def test_states_of_the_first_slots_alone_are_compared():
    """Two texts are in one row, so that not every first slot is that of a row."""
    rng, teacher, model = np.random.default_rng(0), network(seed=1), network(seed=2)
    rows = [[stay(rng.integers(5, V, n), np.arange(n)) for n in row] for row in ((9, 14), (5,))]
    made = [[Example({"x": one}, [lm([1], one.token[1:2])]) for one in row] for row in rows]
    batch = collate(made).to("cpu")
    options = {"labels_weight": 0.0, "logits_weight": 0.0, "states_weight": 1.0}
    criterion, loss = learn(
        teacher, model, batch, **options, layers=("2=2",), states_of="first", states_loss="normed"
    )
    ours, theirs = [], []
    model.read("x", batch, depths=ours)
    teacher.read("x", batch, depths=theirs)
    first = [(0, 0), (0, 9), (1, 0)]
    a, b = (
        F.normalize(torch.stack([one[2][at] for at in first]), dim=-1) for one in (ours, theirs)
    )
    assert_near(loss.sums["states"], (a - b).square().sum())
    assert criterion.counts(batch)["states"] == 3


def test_scores_are_compared_by_hand():
    """Of the second query, the second key is not seen."""
    ours = torch.tensor([[[[1.0, 2.0], [3.0, -math.inf]]]], requires_grad=True)
    theirs = torch.tensor([[[[3.0, 5.0], [2.0, -math.inf]]]])
    found = score_distance(ours, theirs, "scores")
    assert found.tolist() == [[[(4 + 9) / 2, 1]]]
    found.sum().backward()
    assert ours.grad.tolist() == [[[[-2, -3], [2, 0]]]]


def test_scores_tell_models_apart_whose_attention_is_equal():
    """The softmax hides what is added to all scores of a query."""
    ours = torch.randn(1, 2, 3, 3)
    assert score_distance(ours, ours + 2, "scores").tolist() == [[pytest.approx([4, 4, 4])] * 2]
    assert_near(score_distance(ours, ours + 2, "divergence"), torch.zeros(1, 2, 3))


@pytest.mark.parametrize("loss", ["divergence", "scores"])
def test_attention_is_a_sum_over_slots_and_a_mean_over_heads_and_layers(loss):
    batch, teacher, model = batch_of(), network(seed=1, num_layers=4), network(seed=2)
    options = {"labels_weight": 0.0, "logits_weight": 0.0, "attention_weight": 3.0}
    criterion, found = learn(teacher, model, batch, **options, attention_loss=loss)
    each = []
    for ours, theirs in ((0, 1), (1, 3)):
        some = []
        for one, layer in ((model, ours), (teacher, theirs)):
            calls, part = [], one.decoder.layers[layer].attention
            handle = part.register_forward_pre_hook(lambda m, x, calls=calls: calls.append((m, *x)))
            one.decoder.attention = "dense"
            one(batch)
            handle.remove()
            some.append(attention_scores(*calls[0][:3]))
        each.append(score_distance(*some, loss).mean(1))
    real = batch.towers["x"][5] < 1 << 30
    assert_near(found.sums["attention"], 3 * sum(one[real].sum() for one in each) / 2)
    assert criterion.counts(batch)["attention"] == 28


def papers():
    """The options of each paper, as docs/distillation.md has them."""
    page = (Path(__file__).parents[3] / "docs" / "distillation.md").read_text()
    table = page.split("| paper | options |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| `(--criterion[^`]+)` \|$", table, re.M)
    return {name: dict(re.findall(r"--criterion\.([\w-]+) (\S+)", words)) for name, words in rows}


@pytest.mark.parametrize("paper", papers())
def test_a_student_learns_by_the_options_of_a_paper(paper):
    """Half as deep as its teacher; each loss that has a weight reaches the student."""
    given = papers()[paper]
    options = {name.replace("-", "_"): value for name, value in given.items()}
    layers = tuple(options.pop("layers", "").split(",")) if "layers" in options else ()
    options = {k: float(v) if v[0].isdigit() else v for k, v in options.items()}
    batch, teacher, model = batch_of(), network(seed=1, num_layers=12), network(num_layers=6)
    _, loss = learn(teacher, model, batch, **options, layers=layers)
    wanted = {name for name in ("states", "attention") if options.get(f"{name}_weight")}
    assert loss.sums.keys() == {"lm", *wanted}
    sum(loss.sums.values()).backward()
    assert model.decoder.layers[0].attention.qkv.weight.grad.abs().sum() > 0


def test_distances_are_those_by_hand():
    a, b = torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[0.0, 2.0]]])
    assert distance(a, b, "mse").item() == pytest.approx((9 + 4) / 2)
    assert distance(a, b, "cosine").item() == pytest.approx(1 - 0.8)
    assert distance(a, b, "normed").item() == pytest.approx(2 * (1 - 0.8))


def test_choices_that_are_none_change_nothing():
    ours, theirs = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0]])
    wider = [F.pad(one, (0, 2), value=-math.inf).requires_grad_() for one in (ours, theirs)]
    found = teacher_divergence(wider[0], wider[1].detach(), 2.0)
    assert_near(found, teacher_divergence(ours, theirs, 2.0))
    found.sum().backward()
    assert wider[0].grad.isfinite().all()


def test_validation_is_of_the_labels_and_needs_no_teacher():
    batch, model = batch_of(), network().eval()
    criterion = DistillConfig().build(Hashed)
    assert_near(
        criterion(model, batch, 0, 1).sums["lm"], CrossEntropy()(model, batch, 0, 1).sums["lm"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": ("1-2",), "states_weight": 1.0}, "STUDENT=TEACHER"),
        ({"layers": ("1=2",)}, "--criterion.layers"),
        ({"states_loss": "cosine"}, "--criterion.states-loss"),
        ({"states_of": "first"}, "--criterion.states-of"),
        ({"temperature": 3.0, "logits_weight": 0.0}, "--criterion.temperature"),
        ({"attention_loss": "scores"}, "--criterion.attention-loss"),
        ({"labels_weight": 0.0, "logits_weight": 0.0}, "--criterion distill"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        DistillConfig(**options)


def test_what_does_not_fit_is_named():
    batch, model = batch_of(), network()
    with pytest.raises(UsageError, match=r"--criterion\.teacher CHECKPOINT"):
        DistillConfig().build(Hashed)(model.train(), batch, 0, 1)
    layers = {"states_weight": 1.0, "layers": ("2=9",)}
    with pytest.raises(UsageError, match="2=9"):
        learn(network(), model, batch, **layers)
    with pytest.raises(UsageError, match="--criterion.attention-weight: .* 4 .* 2"):
        learn(network(num_heads=2), model, batch, attention_weight=1.0)
