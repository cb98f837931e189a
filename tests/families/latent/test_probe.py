"""A probe separates what can be separated, and nothing else."""

import numpy as np
import pytest
import torch

from unitk.errors import DataError
from unitk.families.latent.measures.probe import logistic, probe_classes

RNG = np.random.default_rng(0)


def blobs(each, distance, classes=3, width=5):
    """Normal clouds around points on the axes, and their labels."""
    label = np.repeat(np.arange(classes), each)
    x = RNG.standard_normal((len(label), width), np.float32)
    x[np.arange(len(label)), label] += distance
    return x, [f"class {i}" for i in label]


def test_what_can_be_separated_is_from_one_label_a_class():
    assert probe_classes(blobs(20, 100, width=3), blobs(30, 100, width=3), 1, 5, 1.0) == [1.0] * 5


def test_labels_at_random_are_at_chance():
    (x, label), (x_test, label_test) = blobs(200, 0), blobs(400, 0)
    found = probe_classes((x, label), (x_test, label_test), 50, 4, 1.0)
    assert np.mean(found) == pytest.approx(1 / 3, abs=0.06)


def test_the_weights_are_where_the_gradient_is_zero():
    x = torch.from_numpy(RNG.standard_normal((40, 3)))
    label = torch.from_numpy(RNG.integers(0, 4, 40))
    weight, bias = logistic(x, label, 4, 0.5)
    error = torch.softmax(x @ weight.T + bias, -1) - torch.nn.functional.one_hot(label, 4)
    assert (error.T @ x + 0.5 * weight).abs().max() < 1e-4
    assert error.sum(0).abs().max() < 1e-4


def test_two_classes_on_a_line_are_parted_as_by_hand():
    # symmetric: no bias, and w = w1 - w0 solves penalty * w / 2 = 2 / (1 + exp(w))
    x = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    weight, bias = logistic(x, torch.tensor([0, 1]), 2, 0.1)
    w = float(weight[1] - weight[0])
    assert 0.1 * w / 2 == pytest.approx(2 / (1 + np.exp(w)), rel=1e-5)
    assert bias.tolist() == pytest.approx([0, 0], abs=1e-6)


def test_all_labels_are_one_run_and_more_labels_are_better():
    train, test = blobs(300, 1), blobs(300, 1)
    few, many, every = (probe_classes(train, test, n, 8, 1.0) for n in (2, 100, 0))
    assert len(few) == len(many) == 8 and len(every) == 1
    assert np.mean(few) < np.mean(many) < every[0] + 0.03
    assert probe_classes(train, test, 2, 3, 1.0) == few[:3]


def test_a_feature_that_never_changes_does_no_harm():
    (x, label), (y, wanted) = blobs(10, 100, width=4), blobs(10, 100, width=4)
    x[:, 3] = y[:, 3] = 7
    assert probe_classes((x, label), (y, wanted), 2, 2, 1.0) == [1.0, 1.0]


def test_what_cannot_be_measured_is_refused():
    x, label = blobs(5, 1)
    with pytest.raises(DataError, match="5 texts of 'class 0', .*few.* 6 of each"):
        probe_classes((x, label), (x, label), 6, 2, 1.0)
    with pytest.raises(DataError, match="--test .*label.* --input has not: 'other'"):
        probe_classes((x, label), (x[:1], ["other"]), 1, 2, 1.0)
    with pytest.raises(DataError, match="too few.*classes"):
        probe_classes((x[:2], label[:2]), (x[:2], label[:2]), 1, 2, 1.0)
