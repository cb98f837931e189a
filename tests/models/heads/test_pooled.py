"""Heads over all states of a text: concat pooling, attention."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.families.recurrent.heads import Attend, Concat, pool
from unitk.families.recurrent.lstm import LSTM
from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, gather
from unitk.slots import collate
from unitk.tasks.understanding.labels import Classify

LENGTHS = (5, 2, 4)


@pytest.fixture
def asked():
    torch.manual_seed(0)
    rows = torch.tensor([[i if i < n else -1 for i in range(5)] for n in LENGTHS])
    return Asked(torch.randn(3, 5, 8), rows)


def test_concat_pooling_is_the_last_the_largest_and_the_mean(asked):
    found = pool(asked.states, asked.real, torch.tensor(LENGTHS) - 1)
    for row, n in enumerate(LENGTHS):
        own = asked.states[row, :n]
        assert_near(found[row], torch.cat([own[-1], own.amax(0), own.mean(0)]))


@pytest.mark.parametrize("opening", ["none", "cls"])
def test_concat_pools_the_states_that_gradients_reach(toy_vocab, opening):
    """Of texts that are longer and shorter than these chunks, and where a symbol opens a text."""
    given = {"pooling": "concat", "layout": f"lm:opening={opening},ends=off", "lm_weight": 0}
    task, rng = Classify(Classify.Config(**given), toy_vocab), np.random.default_rng(0)
    task = task.with_trained(labels=("no", "yes"))
    config = replace(registry.get("arch", "awd_lstm_tiny")(), bptt=8, heads=task.heads)
    torch.manual_seed(0)
    model = replace(config, bptt_chunks=2).build(len(toy_vocab)).eval()
    texts, label = [rng.choice(task.layout.words, n) for n in (30, 26, 13)], np.array([0])
    batch = collate([[task.classify([text], label, rng)] for text in texts]).to("cpu")
    asked = gather(model(batch)[0], batch, [batch.asks["class"]])
    asked.states.retain_grad()
    head, weight = model.heads["concat:label"], model.decoder.layers[0].weight_ih
    found = head(asked, torch.zeros(0))
    found.sum().backward(retain_graph=True)
    shown = asked.states.grad.abs().sum(-1) > 0
    for row, n in enumerate(asked.real.sum(1).tolist()):
        learnt = [
            torch.autograd.grad(one.sum(), weight, retain_graph=True, allow_unused=True)[0]
            for one in asked.states[row, :n]
        ]
        reached = [grad is not None and bool(grad.any()) for grad in learnt]
        assert shown[row].tolist() == reached + [False] * (len(shown[row]) - n)
        steps = n + (opening == "cls")  # of two chunks of 8, the last one may be shorter
        assert sum(reached) == min(n, 8 + (steps - 1) % 8 + 1)
        alone = Asked(asked.states[row, shown[row]][None], asked.rows[row, shown[row]][None])
        vector = pool(alone.states, alone.real, alone.real.sum(1) - 1)
        assert_near(head.out(head.inner(vector)).detach(), found[row, None].detach())


def test_what_follows_a_text_changes_nothing(asked):
    for kind in (Concat, Attend):
        torch.manual_seed(1)
        head = kind(ModelConfig(width=8, num_heads=1), 20, 3).eval()
        expected = head(asked, torch.zeros(0)).detach()
        other = torch.where(asked.real[..., None], asked.states, 100.0)
        assert_near(head(Asked(other, asked.rows), torch.zeros(0)).detach(), expected)
        alone = Asked(asked.states[1:2, :2], asked.rows[1:2, :2])
        assert_near(head(alone, torch.zeros(0)).detach(), expected[1:2])


def test_concat_normalizes_a_batch_and_a_single_text_as_in_evaluation(asked):
    head = Concat(ModelConfig(width=8, num_heads=1), 20, 3)
    head.inner[1].p = head.out[1].p = 0.0
    for _ in range(200):
        head.train()(asked, torch.zeros(0))  # the running means become those of this batch
    norm = head.inner[0]
    x = pool(asked.states, asked.real, torch.tensor(LENGTHS) - 1)
    assert_near(norm.running_mean, x.mean(0))
    assert_near(norm.running_var, x.var(0))
    assert_near(norm(x).detach(), (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt())
    one = Asked(asked.states[:1], asked.rows[:1])
    before = norm.running_mean.clone()
    found = head(one, torch.zeros(0)).detach()
    assert norm.running_mean.equal(before)
    assert_near(found, head.eval()(one, torch.zeros(0)).detach())


def test_attention_weighs_the_states_of_a_further_layer(asked):
    head = Attend(ModelConfig(width=8, num_heads=1), 20, 3).eval()
    found = head(asked, torch.zeros(0)).detach()
    assert isinstance(head.top, LSTM)
    for row, n in enumerate(LENGTHS):
        zero = torch.zeros(1, 100)
        h, _ = head.top(asked.states[row : row + 1, :n], torch.tensor([n]), (zero, zero))
        score = torch.tanh(h[0] @ head.weigh.weight[0] + head.weigh.bias)
        share = score.exp() / score.exp().sum()
        assert_near(found[row], (head.out.weight @ (share @ h[0]) + head.out.bias).detach())
