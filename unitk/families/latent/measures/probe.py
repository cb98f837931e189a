"""Linear classifiers on features, trained with few labels (Optimus: arXiv 2004.04092, 5.3).

N texts, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unitk.errors import DataError

Features = npt.NDArray[np.float32]


def logistic(x_ND: Tensor, label_N: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """Weights [C, D] and biases [C] of multinomial logistic regression, found by L-BFGS.

    They minimise the texts' summed negative log-likelihood and l2 / 2 times the squared weights.
    """
    weight = x_ND.new_zeros(classes, x_ND.shape[1], requires_grad=True)
    bias = x_ND.new_zeros(classes, requires_grad=True)
    search = torch.optim.LBFGS(
        [weight, bias],
        max_iter=500,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        search.zero_grad()
        logits_NC = x_ND @ weight.T + bias
        nll = torch.nn.functional.cross_entropy(logits_NC, label_N, reduction="sum")
        total = (nll + l2 / 2 * weight.square().sum()) / len(x_ND)
        total.backward()
        return total

    search.step(loss)
    return weight.detach(), bias.detach()


def probe_classes(
    train: tuple[Features, Sequence[str]],
    test: tuple[Features, Sequence[str]],
    per_class: int,
    seeds: int,
    l2: float,
) -> list[float]:
    """Accuracies on `test` of classifiers trained on `per_class` texts of each class; 0: all.

    Seed i takes its texts from its own permutation, so that larger sets contain the smaller ones.
    Features are scaled to mean 0 and variance 1 over all of `train`, which needs no labels.
    """
    names = sorted(set(train[1]))
    for name in test[1]:
        if name not in names:
            raise DataError(f"--test has a label that --input has not: {name!r}")
    label = np.array([names.index(name) for name in train[1]])
    sizes = np.bincount(label)
    if len(names) < 2 or per_class > sizes.min():
        needed = f"{per_class} of each class" if len(names) > 1 else "two classes at least"
        raise DataError(
            f"--input has {sizes.min()} texts of {names[sizes.argmin()]!r}, which is too few for "
            f"{needed}"
        )
    mean, std = train[0].mean(0), train[0].std(0)
    scale = np.where(std > 0, std, 1)
    x, x_test = (
        torch.from_numpy((features - mean) / scale).double() for features in (train[0], test[0])
    )
    label_N = torch.tensor([names.index(name) for name in test[1]])
    accuracies = []
    for seed in range(seeds if per_class else 1):
        # the first texts of each class in a permutation: fewer labels are a part of more
        order = np.random.default_rng(seed).permutation(len(label))
        taken = [order[label[order] == c][: per_class or None] for c in range(len(names))]
        chosen = torch.from_numpy(np.concatenate(taken))
        weight, bias = logistic(x[chosen], torch.from_numpy(label)[chosen], len(names), l2)
        guess = (x_test @ weight.T + bias).argmax(1)
        accuracies.append(float((guess == label_N).double().mean()))
    return accuracies
