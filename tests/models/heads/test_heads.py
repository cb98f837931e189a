"""Every head is a few lines of plain torch, one example at a time, however examples are packed."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint
from unitk.decoding.drivers import Prompt, Watcher
from unitk.decoding.ensemble import Ensemble
from unitk.decoding.fill import Once
from unitk.decoding.forced import score
from unitk.errors import UsageError
from unitk.models import archs
from unitk.models.heads import compare
from unitk.models.heads.base import Asked
from unitk.slots import Ask, Example, Slots, collate, stay
from unitk.training.guard import split_batch

V, D, DOCS = 40, 64, 3
SIZE = {"class": 4, "tag": 5, "candidates": 30, "sbo": 6, "concat": 4, "attend": 3}
SIZE |= {"class_mean": 4, "class_late": 4, "classes": 4, "project": 5}
VALUED = "regress", "project", "classes"
"""Beginnings of heads whose loss is not that of one choice."""
ASKED = [kind for kind in registry.names("head") if kind != "difficulty"]  # which keeps weights
NAMED = {kind: f"{kind}:x" for kind in ASKED} | {"lm": "lm"}


def built(tied=True):
    """A small model with a head of every kind, all of whose weights matter; of texts that have no
    entities it is a BERT."""
    torch.manual_seed(0)
    sized = {kind: f"{kind}:x:{SIZE[kind]}" for kind in SIZE}
    heads = tuple(sized.get(kind, name) for kind, name in NAMED.items() if kind != "lm")
    config = replace(archs.preset("thu_ernie_tiny"), heads=heads, tied=tied)
    model = config.build(V).eval()
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model


def asking(kind, rng, name="ask"):
    """An example of up to three docs, with two questions (for a choice: one) of this kind."""
    docs = rng.integers(2, DOCS + 1)
    sizes = rng.integers(6, 12, docs)
    doc = np.arange(docs).repeat(sizes)
    pos = np.concatenate([np.arange(n) for n in sizes])
    slots = stay(rng.integers(V, size=len(doc)), pos, doc=doc)
    starts, among = np.cumsum(sizes) - sizes, None
    rows, label = starts[:2, None], rng.integers(SIZE.get(kind, V), size=2)
    match kind:
        case "regress":
            label = rng.normal(size=2).astype(np.float32)
        case "project":
            label = rng.normal(size=(2, 5)).astype(np.float32)
        case "classes":
            label = rng.integers(2, size=(2, 4)).astype(np.float32)
        case "detect":
            label = rng.integers(2, size=2)
        case "choice":
            rows, label = starts[None], rng.integers(docs, size=1)
        case "span":  # the second question may read fewer slots
            rows = np.stack([np.arange(6), np.array([7, 8, 9, 10, 11, -1])])
            label = np.sort(rng.integers(5, size=(2, 2)), 1)
        case "concat" | "attend" | "class_mean" | "class_late":
            rows = np.stack([np.arange(6), np.array([7, 8, 9, 10, 11, -1])])
        case "regress_mean" | "regress_late":
            label = rng.normal(size=2).astype(np.float32)
            rows = np.stack([np.arange(6), np.array([7, 8, 9, 10, 11, -1])])
        case "sbo":  # words 2 and 4 of the span between slots 1 and 5 of the first doc
            rows, label = np.array([[1, 5, 2], [1, 5, 4]]), rng.integers(V, size=2)
        case "candidates":
            among = rng.permutation(30)[:7]
            label = rng.integers(7, size=2)
    weight = rng.random(len(rows)).astype(np.float32)
    return Example({"x": slots}, [Ask(name, NAMED[kind], "x", rows, label, weight, among)])


def plain(kind, model, example, among):
    """(loss, log p, right) of each question, by hand, from the states of the example alone."""
    [ask] = example.asks
    own = model.heads.get(ask.head)
    doc = example.towers["x"].doc
    parts = [Slots(example.towers["x"].table[:, doc == number]) for number in range(doc.max() + 1)]
    for part in parts:
        part.table[7] = 0
    alone = [model(collate([[Example({"x": one})]]).to("cpu"))[0]["x"][0] for one in parts]
    x = torch.cat([states[: len(one)] for states, one in zip(alone, parts, strict=True)])
    w = dict(own.named_parameters())
    pool = lambda x: torch.tanh(F.linear(x, w["dense.weight"], w["dense.bias"]))  # noqa: E731
    out = lambda x: F.linear(x, w["out.weight"], w["out.bias"])  # noqa: E731

    def dense(x, name, activation=F.gelu, norm=None):
        x = activation(F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"]))
        return F.layer_norm(x, x.shape[-1:], w[f"{norm}.weight"], w[f"{norm}.bias"], 1e-12)

    table = w.get("weight", model.decoder.embed.tokens.weight)
    for row, label in zip(ask.rows, ask.label, strict=True):
        real = row[row >= 0]
        match kind:
            case "lm":
                logits = dense(x[row[0]], "transform.dense", norm="transform.norm") @ table.T
                logits = logits + w["bias"]
            case "class":
                logits = out(pool(x[row[0]]))
            case "class_mean":
                logits = out(pool(x[real].mean(0)))
            case "class_late":
                logits = torch.stack([out(pool(x[one])) for one in real]).mean(0)
            case "regress_mean":
                yield (out(pool(x[real].mean(0)))[0] - label) ** 2, None, None
                continue
            case "regress_late":
                value = torch.stack([out(pool(x[one]))[0] for one in real]).mean()
                yield (value - label) ** 2, None, None
                continue
            case "tag":
                logits = out(x[row[0]])
            case "regress":
                yield (out(pool(x[row[0]]))[0] - label) ** 2, None, None
                continue
            case "project":
                yield (
                    (w["out.weight"] @ x[row[0]] - torch.tensor(label)).square().mean(),
                    None,
                    None,
                )
                continue
            case "classes":
                share, there = out(pool(x[row[0]])).sigmoid(), torch.tensor(label)
                yield -torch.where(there > 0, share, 1 - share).log().mean(), None, None
                continue
            case "detect":
                h = F.gelu(w["dense.weight"] @ x[row[0]] + w["dense.bias"])
                # two classes, of which one has the logit 0
                logits = F.pad(w["out.weight"] @ h + w["out.bias"], (1, 0))
            case "choice":
                logits = torch.stack([out(pool(x[one]))[0] for one in real])
            case "concat":
                h = torch.cat([x[real[-1]], x[real].amax(0), x[real].mean(0)])
                for part in ("inner", "out"):  # the running mean and variance are 0 and 1
                    h = h / (1 + 1e-5) ** 0.5 * w[f"{part}.0.weight"] + w[f"{part}.0.bias"]
                    h = F.linear(h, w[f"{part}.2.weight"], w[f"{part}.2.bias"])
                    h = h.relu() if part == "inner" else h
                logits = h
            case "attend":
                h, c, states = torch.zeros(100), torch.zeros(100), []
                for one in x[real]:
                    gates = w["top.weight_ih"] @ one + w["top.weight_hh"] @ h + w["top.bias"]
                    i, f, g, o = gates.view(4, -1)
                    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                    h = o.sigmoid() * c.tanh()
                    states.append(h)
                states = torch.stack(states)
                score = torch.tanh(states @ w["weigh.weight"][0] + w["weigh.bias"])
                logits = out(score.softmax(0) @ states)
            case "span":
                both = torch.stack([out(x[one]) for one in real]).T
                each = [
                    F.cross_entropy(*pair) for pair in zip(both, torch.tensor(label), strict=True)
                ]
                right = (both.argmax(1) == torch.tensor(label)).all()
                yield sum(each) / 2, -sum(each), right
                continue
            case "sbo":
                place = w["places.weight"][row[2] - row[0] - 1]
                h = torch.cat([x[row[0]], x[row[1]], place])
                h = dense(h, "transform.0", norm="transform.2")
                h = dense(h, "transform.3", norm="transform.5")
                logits = h @ table.T + w["bias"]
            case "candidates":
                h = dense(x[row[0]], "transform.dense", norm="transform.norm")
                logits = h @ w["table.weight"][among].T
                label = among.index(ask.among[label])
        p = logits.log_softmax(-1)[label]
        yield -p, p, logits.argmax() == label


@pytest.mark.parametrize("dense", ["gelu", "transform"])
def test_what_comes_before_a_linear_map(dense):
    """Of heads over texts, over single slots and over spans, by hand."""
    heads = ("class:x:3", "tag:x:3", "span:x")
    config = replace(archs.preset("bert_tiny"), heads=heads, head_dense=dense)
    torch.manual_seed(0)
    model = config.build(V).eval()
    states = torch.randn(4, 1, D)
    for name in ("class:x", "tag:x", "span:x"):
        head = model.heads.get(name)
        w = {n: p.detach() for n, p in head.named_parameters()}
        x = states[:, 0]
        if dense == "transform":
            x = F.gelu(F.linear(x, w["transform.dense.weight"], w["transform.dense.bias"]))
            weights = w["transform.norm.weight"], w["transform.norm.bias"]
            x = F.layer_norm(x, x.shape[-1:], *weights, config.norm_eps)
        if dense == "gelu" and name == "class:x":
            x = F.gelu(F.linear(x, w["dense.weight"], w["dense.bias"]))
        wanted = F.linear(x, w["out.weight"], w["out.bias"])
        found = head(Asked(states, torch.zeros(4, 1, dtype=torch.long)), torch.zeros(0))
        assert_near(found[..., 0] if name == "span:x" else found, wanted)


def batches(made):
    """Alone, padded and packed."""
    yield [[one] for one in made]
    yield [made[:2], made[2:]]
    yield [made[::-1]]


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", NAMED)
def test_loss_and_gradients_are_plain_torchs_however_packed(kind, tied):
    model, rng = built(tied), np.random.default_rng(5)
    made = [asking(kind, rng) for _ in range(4)]
    known = [one.asks[0].among for one in made]
    among = None if known[0] is None else sorted({*np.concatenate(known).tolist()})
    terms = [list(plain(kind, model, one, among)) for one in made]
    weight = [one.asks[0].weight for one in made]
    wanted = sum(
        w * term[0]
        for each, own in zip(weight, terms, strict=True)
        for w, term in zip(each.tolist(), own, strict=True)
    )
    expected = gradients(model, wanted)
    for rows in batches(made):
        batch = collate(rows).to("cpu")
        loss = CrossEntropy()(model, batch, 0, 1)
        assert loss.sums["ask"].item() == pytest.approx(wanted.item(), rel=1e-6)
        found = gradients(model, loss.sums["ask"])
        assert found.keys() == expected.keys()
        size = max(float(one.abs().max()) for one in expected.values())
        for name, gradient in expected.items():
            assert torch.allclose(found[name], gradient, atol=2e-6 * size, rtol=1e-5), name
        assert batch.count["ask"] == pytest.approx(sum(w.sum() for w in weight))
        numbers = {id(one): number for number, one in enumerate(made)}
        order = [numbers[id(one)] for row in rows for one in row]
        if kind.startswith(VALUED):
            assert loss.parts == {}
            continue
        each = torch.stack([term[1] for i in order for term in terms[i]])
        assert_near(model.log_probs(batch, batch.asks["ask"]).detach(), each)
        pairs = [pair for i in order for pair in zip(weight[i], terms[i], strict=True)]
        right = sum(w * float(term[2]) for w, term in pairs)
        assert loss.parts["ask/correct"].item() == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize("kind", NAMED)
def test_chunks_change_nothing(kind, monkeypatch):
    model, rng = built(), np.random.default_rng(1)
    batch = collate([[asking(kind, rng)] for _ in range(5)]).to("cpu")
    whole = CrossEntropy()(model, batch, 0, 1)
    expected = gradients(model, whole.sums["ask"])
    monkeypatch.setattr(compare, "CHUNK", 2)
    chunked = CrossEntropy()(model, batch, 0, 1)
    for name, gradient in gradients(model, chunked.sums["ask"]).items():
        assert_near(gradient, expected[name], roundings=512)
    assert_near(chunked.sums["ask"], whole.sums["ask"])


@pytest.mark.parametrize("kind", NAMED)
def test_an_ensemble_of_equal_models_answers_as_one(kind):
    one, rng = built(), np.random.default_rng(2)
    batch = collate([[asking(kind, rng), asking(kind, rng)]]).to("cpu")
    other = built()
    with torch.no_grad():
        alone = CrossEntropy()(one, batch, 0, 1)
        both = CrossEntropy()(Ensemble([one, other]), batch, 0, 1)
        assert_near(both.sums["ask"], alone.sums["ask"])
        for parameter in other.parameters():
            parameter.mul_(1.3)
        mixed = Ensemble([one, other])
        if kind.startswith(VALUED):
            return
        each = torch.stack([m.log_probs(batch, batch.asks["ask"]) for m in (one, other)])
        if kind != "span":  # a span's log p is that of two borders, each with its own mean
            wanted = each.logsumexp(0) - math.log(2)
            assert_near(mixed.log_probs(batch, batch.asks["ask"]), wanted)


def test_words_among_candidates_are_the_vocabularys_restricted():
    model, rng = built(), np.random.default_rng(3)
    example = asking("lm", rng)
    ids = np.array([9, 3, 21])
    label = np.array([2, 0])

    def log_probs(label, among=None):
        ask = replace(example.asks[0], label=np.array(label), among=among)
        batch = collate([[replace(example, asks=[ask])]]).to("cpu")
        return model.log_probs(batch, batch.asks["ask"])

    every = torch.stack([log_probs([i, i]) for i in ids]).logsumexp(0)
    assert_near(log_probs(label, ids), log_probs(ids[label]) - every)


def test_training_score_and_fill_have_the_same_log_probabilities():
    model, rng = built(), np.random.default_rng(4)
    examples = [asking("lm", rng) for _ in range(3)]
    for example in examples:
        example.asks[0].weight[:] = 1
        example.towers["x"].table[7] = 0
    task = SimpleNamespace(name="any", vocab=SimpleNamespace(symbols={"pad": 0, "sep": 5}))
    prompts = [Prompt(i, [], one, Constraint()) for i, one in enumerate(examples)]
    filled = Once(model, task, None).outputs(prompts, GenerateConfig(), Watcher())
    words = [one.ids for [one] in filled]
    assert not np.isin(np.concatenate(words), [0, 5]).any()
    given = [
        replace(one, asks=[replace(one.asks[0], label=ids)])
        for one, ids in zip(examples, words, strict=True)
    ]
    scores = [gain for gain, _ in score(model, given, 100)]
    batch = collate([[one] for one in given]).to("cpu")
    nll = CrossEntropy()(model, batch, 0, 1).parts["ask/nll"]
    assert_near(np.concatenate(scores).sum(), -nll)
    # a filled word's is among those that are not banned
    both = np.concatenate([one.token_log_probs for [one] in filled])
    assert (both >= np.concatenate(scores)).all()


def test_what_cannot_be_is_told():
    config = archs.preset("bert_tiny")
    with pytest.raises(UsageError, match="--arch.heads: .*no head 'clas'; .*mean cla"):
        replace(config, heads=("clas:x:2",)).build(V)
    with pytest.raises(UsageError, match="--arch.heads class:x.*size"):
        replace(config, heads=("class:x",)).build(V)
    with pytest.raises(UsageError, match="--arch.heads must be.*names"):
        replace(config, heads=("class:x:2", "class:x:3"))
    batch = collate([[asking("regress", np.random.default_rng(0))]]).to("cpu")
    with pytest.raises(UsageError, match="ask: .*head regress:x.*no probabilities"):
        built().log_probs(batch, batch.asks["ask"])


@pytest.mark.parametrize("kind", NAMED)
def test_halves_of_a_batch_ask_the_same(kind):
    """What `--oom-retry` cuts in two: rows that read several slots, and a batch's candidates."""
    model, rng = built(), np.random.default_rng(6)
    batch = collate([[asking(kind, rng)] for _ in range(4)]).to("cpu")
    with torch.no_grad():
        whole = CrossEntropy()(model, batch, 0, 1).sums["ask"]
        parts = [CrossEntropy()(model, part, 0, 1).sums["ask"] for part in split_batch(batch)]
    assert len(parts) == 2
    assert_near(sum(parts), whole)
