"""The loss of an update, made of its micro-batches."""

import pytest
import torch

from unitk.criterions.base import Loss


def test_micro_batches_add_up_to_the_weighted_means_of_the_update():
    weight, counts = {"lm": 1.0, "nsp": 0.5}.__getitem__, {"lm": 6.0, "nsp": 2.0, "tag": 0.0}
    parts = [{"lm": 4.0, "nsp": 3.0}, {"lm": 5.0}, {"tag": 0.0}]  # nothing asks for tags
    losses = [Loss({name: torch.tensor(x) for name, x in one.items()}, {}) for one in parts]
    totals = [loss.weigh(weight, counts) for loss in losses]
    assert totals[2] is None
    assert float(totals[0] + totals[1]) == pytest.approx((4 + 5) / 6 + 0.5 * 3 / 2)


def test_all_that_is_logged_are_sums_and_parts():
    loss = Loss({"lm": torch.tensor(1.0)}, {"lm/nll": torch.tensor(2.0)})
    assert loss.logged == {"lm": 1.0, "lm/nll": 2.0} and set(loss.sums) == {"lm"}
