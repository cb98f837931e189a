"""Means, counts and lines of losses, also of mixed tasks."""

import json
import math

import numpy as np
import pytest
import torch

from unitk.data.batching import Examples, Update
from unitk.training.loop import Trainer
from unitk.training.measures import JUDGED, Means, valid_line, values_line


def test_every_ask_has_its_own_mean():
    means = Means()
    means.add({"lm": torch.tensor(6.0), "lm/nll": torch.tensor(4.0)}, {"lm": 2.0, "nsp": 0.0})
    means.add({"lm": torch.tensor(2.0), "lm/nll": torch.tensor(2.0)}, {"lm": 2.0})
    means.add({"nsp": torch.tensor(3.0)}, {"nsp": 6.0})
    values = means.values("dev", {})
    assert values == pytest.approx(
        {
            "dev/loss": 2.5,
            "dev/lm": 2.0,
            "dev/lm/nll": 1.5,
            "dev/lm/ppl": math.exp(1.5),
            "dev/nsp": 0.5,
        }
    )


def test_what_was_not_asked_has_no_mean():
    means = Means()
    means.add({"lm": torch.tensor(0.0)}, {"lm": 0.0})
    assert means.values("train", {}) == {} == Means().values("train", {})


def test_sums_survive_a_checkpoint_exactly():
    one = Means()
    one.add({"lm": torch.tensor(1 / 3)}, {"lm": 3.0})
    two = Means(**json.loads(json.dumps(one.state())))
    for means in (one, two):
        means.add({"lm": torch.tensor(1 / 7)}, {"lm": 5.0})
    assert one.values("train", {}) == two.values("train", {}) and one.state() == two.state()


def test_asks_and_mixed_tasks_count_by_their_weights():
    means = Means()
    sums = {"a.lm": 6.0, "a.source": 8.0, "b.mlm": 5.0}
    counts = {"a.lm": 2.0, "a.source": 4.0, "b.mlm": 1.0}
    means.add({name: torch.tensor(value) for name, value in sums.items()}, counts)
    values = means.values("dev", {"a": 0.9, "b": 0.1, "a.source": 0.5})
    assert values["dev.a/loss"] == pytest.approx(3 + 0.5 * 2)
    assert values["dev.b/loss"] == pytest.approx(5)
    assert values["dev/loss"] == pytest.approx(0.9 * 4 + 0.1 * 5)
    assert means.values("dev", {"a": 0.0, "b": 1.0})["dev/loss"] == pytest.approx(5)
    alone = Means()  # between two log lines there may be no text of a rare task
    alone.add({"a.lm": torch.tensor(6.0)}, {"a.lm": 2.0})
    assert alone.values("train", {"a": 0.9, "b": 0.1})["train/loss"] == pytest.approx(3)


def test_the_line_of_a_validation_has_perplexities_of_words_and_shares_of_right_classes():
    sums = {"lm": 4.0, "lm/nll": 4.0, "lm/correct": 1.0, "class": 1.0, "class/correct": 3.0}
    means = Means()
    means.add({name: torch.tensor(one) for name, one in sums.items()}, {"lm": 2.0, "class": 4.0})
    values = means.values("dev", {})
    line = "loss 2.25 (lm 2, class 0.25)"
    assert values_line("dev", values) == line
    assert values_line("dev", values, JUDGED) == f"{line}  ppl 7.389  correct 0.75"
    mixed = {name.replace("dev/", "dev.a/"): one for name, one in values.items()}
    shown = values_line("dev", {"dev/loss": 1.0, **mixed}, JUDGED)
    assert shown == f"loss 1; a {line}  ppl 7.389  correct 0.75"


def test_the_metric_that_says_what_is_best_stands_in_the_line_once():
    values = {"dev/loss": 1.0, "dev/class": 1.0, "dev/class/correct": 0.75, "dev/spans/f1": 0.5}
    sets = {"dev": 0, "test": 0}
    values |= {name.replace("dev", "test"): value for name, value in values.items()}
    judged, plain = "loss 1  correct 0.75", "loss 1  test loss 1  correct 0.75"
    assert valid_line(sets, values, "dev/loss") == f"dev {judged}  test {judged}"
    assert (
        valid_line(sets, values, "dev/spans/f1") == f"dev {judged}  test {judged}  dev/spans/f1 0.5"
    )
    assert valid_line(sets, values, "dev/class/correct") == f"dev {plain}  dev/class/correct 0.75"


def test_the_loss_of_a_log_line_has_the_weights_of_each_update(train, curve, monkeypatch):
    """It is the sum of losses by their weights, over their count."""
    monkeypatch.setattr(Examples, "ask_weights", lambda self, step, total: {"lm": 0.5 + step})
    found = []
    record = Trainer.record

    def look(self, computed, norm, update):
        found.append((self.progress.step, float(computed.sums["lm"]), computed.counts["lm"]))
        record(self, computed, norm, update)

    monkeypatch.setattr(Trainer, "record", look)
    train("--task lm --arch gpt2_tiny --max-steps 6 --log-every 3 --lr 0.1")
    loss = {
        last: sum((1.5 + step) * total for step, total, _ in found[last - 3 : last])
        / sum(count for *_, count in found[last - 3 : last])
        for last in (3, 6)
    }
    assert dict(curve()) == pytest.approx(loss, rel=1e-6)


def test_mixed_tasks_count_by_their_mean_shares():
    means = Means()
    for shares, sums in (
        ({"a": 0.2, "b": 0.8}, {"a.lm": 6.0}),
        ({"a": 0.6, "b": 0.4}, {"b.lm": 5.0}),
    ):
        tensors = {name: torch.tensor(total) for name, total in sums.items()}
        means.add(tensors, dict.fromkeys(sums, 2.0))
        means.weigh(tensors, Update(0, 0, [], [], np.arange(2), shares, {"b.lm": 0.5}))
    values = means.values("train", means.weights)
    assert values["train/loss"] == pytest.approx(0.4 * 3 + 0.6 * 0.5 * 2.5)
    again = Means(**json.loads(json.dumps(means.state())))
    assert again.values("train", again.weights) == values
