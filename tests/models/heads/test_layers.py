"""Heads that read several layers, mixed by learned weights (`--arch.head-layers`)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.decoding.ensemble import Ensemble
from unitk.errors import UsageError
from unitk.models import archs
from unitk.models.state import Reading
from unitk.slots import Ask, Example, collate, lm, stay

V = 30
HEADS = ("class:x:4", "tag:x:3", "span:x", "regress:x", "choice:x")


def built(arch="bert_tiny", **settings):
    torch.manual_seed(0)
    config = replace(archs.preset(arch), heads=HEADS, **settings)
    return config.build(V).eval()


def batch(towers=("x",)):
    rng, ones = np.random.default_rng(0), np.ones(1, np.float32)
    rows = {"class": [[0]], "tag": [[2]], "span": [[0, 1, 2, 3]], "regress": [[3]], "choice": [[0]]}
    made = []
    for n in (7, 5):
        slots = {name: stay(rng.integers(V, size=n), np.arange(n)) for name in towers}
        zeros = {"span": np.zeros((1, 2), int), "regress": np.zeros(1, np.float32)}
        asks = [
            Ask(
                head,
                f"{head}:x",
                towers[-1],
                np.array(row),
                zeros.get(head, np.zeros(1, int)),
                ones,
            )
            for head, row in rows.items()
        ]
        words = lm(np.arange(n), slots[towers[-1]].token, tower=towers[-1])
        made.append([Example(slots, [*asks, words])])
    return collate(made).to("cpu")


def states_of(model, one):
    """The states of all layers of the tower that is decoded."""
    every, name = [], model.config.towers[-1]
    model.decoder.encode(Reading.of(one, name, model.condition(one), depths=every))
    return every


def set_mix(model, weight, scale=1.0):
    for name, head in model.heads.items():
        if name != "lm":
            head.mix.weight.data = torch.tensor(weight)
            head.mix.scale.data.fill_(scale)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize(("arch", "towers"), [("bert_tiny", ("x",)), ("bart_tiny", ("enc", "dec"))])
@torch.no_grad()
def test_with_all_weight_on_one_layer_a_head_reads_that(arch, towers, layer):
    mixed, plain, one = built(arch, head_layers=(0, 1, 2)), built(arch), batch(towers)
    mixed.load_state_dict(plain.state_dict(), strict=False)
    set_mix(mixed, [0.0 if i == layer else -torch.inf for i in range(3)])
    every = states_of(plain, one)
    for ask in one.asks.values():
        own = every[-1 if ask.head == "lm" else layer]
        assert_near(mixed.output(one, ask), plain.head(own_rows(own, ask), ask.head))


def own_rows(states, ask):
    from unitk.models.heads.base import Asked

    return Asked(states.flatten(0, 1)[ask.rows], ask.rows)


@torch.no_grad()
def test_the_mixture_is_peters_equation():
    model, one = built(head_layers=(0, 2, -2)), batch()
    set_mix(model, [0.3, -1.0, 2.0], 1.7)
    every, (ask, *_) = states_of(model, one), one.asks.values()
    weight = torch.tensor([0.3, -1.0, 2.0]).exp()
    weight /= weight.sum()
    x = 1.7 * sum(w * every[i] for w, i in zip(weight, (0, 2, 1), strict=True))
    head, [rows] = model.heads["class:x"], ask.rows.T
    wanted = head.out(torch.tanh(head.dense(x.flatten(0, 1)[rows])))
    assert_near(model.output(one, ask), wanted)
    set_mix(model, [0.0, 0.0, 0.0])
    assert_near(model.heads["class:x"].mix(torch.stack(every, 2)), sum(every) / 3)


@torch.no_grad()
def test_an_ensemble_is_the_mean_of_its_models():
    one = batch()
    models = [built(head_layers=(0, 1, 2)), built(head_layers=(2, 1, 0), width=32)]
    ask = one.asks["class"]
    each = [model.output(one, ask).softmax(-1) for model in models]
    assert_near(Ensemble(models).output(one, ask).exp(), sum(each) / 2)


def test_layers_that_are_not_there_are_refused():
    for layers in ((3,), (-4,)):
        with pytest.raises(UsageError, match=r"--arch.head-layers must be.* -3 to 2, got \("):
            built(head_layers=layers)
    with pytest.raises(UsageError, match="--arch.head-layers must be.* -2 to 1"):
        built("bart_tiny", head_layers=(2,), decoder_layers=1)
