"""The noise scale: what it is of gradients whose noise is known, and when a run tells it."""

import logging

import numpy as np
import pytest
import torch

from unitk.data.batching import Update
from unitk.slots import Example, collate, concatenate, lm, stay
from unitk.training.measures import Noise
from unitk.training.parallel import Ranks


@pytest.mark.parametrize("world", [1, 3])
def test_gradients_of_known_noise_have_its_scale(world):
    """Texts' gradients are normal, with mean norm 2 and variances that sum to 400."""
    chance = torch.Generator().manual_seed(1)
    mean = torch.full((2000,), 2 / 2000**0.5)
    noise = Noise([0.0, 0.0, 0.0])
    for _ in range(100):
        texts = mean + torch.randn(96, 2000, generator=chance) * (400 / 2000) ** 0.5
        firsts = [texts[i * 8 : i * 8 + 8].mean(0) for i in range(world)]
        values = (
            sum(first.square().sum() for first in firsts),
            torch.tensor(world / 8),
            torch.tensor(float(world)),
        )
        noise.add(dict(zip(Noise.parts, values, strict=True)), float(texts.mean(0).norm()), 96)
    assert noise.scale == pytest.approx(400 / 4, rel=0.15)


def test_nothing_is_said_too_early():
    noise = Noise([4.0, 400.0, Noise.least - 1])
    assert noise.scale is None
    noise.state[2] += 1
    assert noise.scale == 100
    noise.state[0] = -1.0  # less signal than the estimate can tell from none
    assert noise.scale is None


def test_a_text_of_several_docs_counts_once():
    slots = [stay([1, 2], [0, 1], doc=doc) for doc in range(3)]
    example = Example({"x": concatenate(slots)}, [lm(np.arange(1), [1])])
    batches = [collate([[example] * 2]).to("cpu"), collate([[example] * 4]).to("cpu")]
    update = Update(0, 6, batches, [0, 1], np.arange(6))
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    norm2, inverse, ranks = Noise([]).look(update, 0, [weight], Ranks(), 1.0).values()
    assert (float(norm2), float(inverse), float(ranks)) == (pytest.approx((5 * 6 / 2) ** 2), 0.5, 1)


@pytest.mark.parametrize(("more", "told"), [("--max-tokens 270", True), ("", False)])
def test_a_run_tells_it_where_it_can(train, curve, tmp_path, caplog, monkeypatch, more, told):
    monkeypatch.setattr(Noise, "every", 1)
    monkeypatch.setattr(Noise, "least", 2)
    caplog.set_level(logging.INFO)
    train(f"--max-steps 3 {more or '--max-tokens 800'}")
    assert ("gradient noise scale about" in caplog.text) == told
    assert ("gradient noise scale" in (tmp_path / "run/README.md").read_text()) == told
    assert bool(curve(value="noise_scale")) == told


def test_the_first_micro_batch_is_measured_as_if_it_were_the_update(start, monkeypatch):
    """Its scaled gradient is that of the mean over its texts."""
    from unitk.training import loop

    seen = []
    add = Noise.add
    monkeypatch.setattr(
        Noise,
        "add",
        lambda self, sums, *how: (seen.append((dict(sums), *how)), add(self, sums, *how)),
    )
    trainer = loop.Trainer(start("--max-steps 9 --max-tokens 270 --arch.dropout 0"))
    update, *_ = next(trainer.updates())
    first = update.batches[0]
    trainer.criterion(trainer.model, first, 0, 9).sums["lm"].div(first.count["lm"]).backward()
    norm = float(trainer.ranks.norm(trainer.plan.parameters))
    trainer.plan.zero_grad()
    trainer.model.train()
    trainer.update(update)
    trainer.finish_updates()
    ((parts, _, texts),) = seen
    share = first.count["lm"] / sum(batch.count["lm"] for batch in update.batches)
    few = len(first.owner)
    assert texts == len(update.ids) and float(parts["noise/inverse"]) == pytest.approx(1 / few)
    # the update's texts are counted, not their words
    assert float(parts["noise/norm2"]) ** 0.5 == pytest.approx(norm * share * texts / few, rel=1e-5)
    assert Noise.every > 1
