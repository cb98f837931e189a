"""Which attention heads matter, and checkpoints without those that do not.

Michel et al. 2019, arXiv 1905.10650. A gate on what a head finds removes the head where it is 0. H
heads of a part that attends, B texts of a batch, one in each row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unitk.data.batching import single_batches
from unitk.errors import UsageError, require
from unitk.evaluation.objective import Setup, objective
from unitk.files import new_file
from unitk.kernels.lean import RMSNorm
from unitk.models.attention import HeadParts
from unitk.models.model import Model
from unitk.options.fields import render
from unitk.pictures import save
from unitk.progress import Report, no_report
from unitk.training.average import mean, rewrite
from unitk.training.saving.checkpoint import check_finite

Gates = Mapping[str, Tensor]
"""A number for each head [H] of a part, by the name under which the part is stored."""


@dataclass(frozen=True)
class Step:
    """A model with some heads shut, and what `unitk evaluate` reports of it."""

    gates: Gates
    figures: dict[str, float]

    @property
    def left(self) -> dict[str, int]:
        """How many heads of each part are open."""
        return {name: int(gate.sum()) for name, gate in self.gates.items()}

    @property
    def removed(self) -> int:
        """How many heads are shut."""
        return sum(map(len, self.gates.values())) - sum(self.left.values())


def open_gates(model: Model) -> dict[str, Tensor]:
    """A gate of 1 for each head of the model."""
    gates = {name: torch.ones(part.num_heads) for name, part in _parts(model).items()}
    require(len(gates) > 0, "--checkpoint: this architecture has no attention heads")
    return gates


def _parts(model: Model) -> dict[str, HeadParts]:
    parts = model.named_modules()
    return {model.stored_name(name): part for name, part in parts if isinstance(part, HeadParts)}


@contextmanager
def gate(model: Model, gates: Gates) -> Iterator[None]:
    """A context in which the output of each head is multiplied by its gate."""
    parts = _parts(model)
    try:
        for name, gate in gates.items():
            parts[name].head_factors = gate
        yield
    finally:
        for name in gates:
            parts[name].head_factors = None


def importance(setup: Setup, gates: Gates, max_tokens: int) -> dict[str, Tensor]:
    """How much the loss of a text changes with each head's gate: the mean over texts of the
    absolute gradient (equation 2), in units of the length of all of a part (section 2.4)."""
    total = {name: torch.zeros(gate.shape, dtype=torch.float64) for name, gate in gates.items()}
    model = setup.model
    examples = setup.data.train
    batches = (
        batch
        for part in examples.parts.values() or [examples]
        for batch in single_batches(part, np.arange(len(part.bounds(0))), max_tokens)
    )
    for number, batch in enumerate(batches):
        batch = batch.to(setup.device)
        rows = next(iter(batch.towers.values())).shape[1]
        # a gate for each row: absolute values are taken before texts are added up
        gates_BH = {
            name: gate.to(setup.device).expand(rows, -1).clone().requires_grad_()
            for name, gate in gates.items()
        }
        torch.manual_seed(number)  # for models that draw noise
        with gate(model, gates_BH), setup.autocast():
            loss = setup.criterion(model, batch, 0, None)
        # sums over the words of a text, so that long texts weigh more, as in training
        summed = torch.stack([*loss.sums.values()]).sum()
        # a head that no ask of this batch reads has a gradient of 0
        gradients_BH = torch.autograd.grad(summed, [*gates_BH.values()], materialize_grads=True)
        for name, gradient_BH in zip(gates_BH, gradients_BH, strict=True):
            total[name] += gradient_BH.abs().sum(0).double().cpu()
    for name, sums in total.items():
        check_finite(sums, f"the importance of the heads of {name}")
    # the layers' gradients differ in size for reasons that have nothing to do with their heads
    return {name: sums / sums.norm().clamp(min=1e-30) for name, sums in total.items()}


def report_figures(setup: Setup, gates: Gates, max_tokens: int) -> dict[str, float]:
    """What `unitk evaluate` reports of a model with gates."""
    placed = {name: gate.to(setup.device) for name, gate in gates.items()}
    with gate(setup.model, placed):
        return objective(setup, max_tokens, no_report)  # the bar counts heads


def measure_each_head(
    setup: Setup, gates: Gates, max_tokens: int, report: Report
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The loss without each head (section 3.2), and with it alone in its part (section 3.3)."""
    without = {name: torch.zeros(gate.shape) for name, gate in gates.items()}
    alone = {name: torch.zeros(gate.shape) for name, gate in gates.items()}
    for name, gate in gates.items():
        for head in range(len(gate)):
            only = torch.zeros(len(gate))
            only[head] = 1  # this head of the part; all other parts keep theirs
            for losses, of_part in ((without, 1 - only), (alone, only)):
                figures = report_figures(setup, {**gates, name: of_part}, max_tokens)
                losses[name][head] = figures["loss"]
                report(1)
    return without, alone


def prune(gates: Gates, important: Gates, count: int) -> dict[str, Tensor]:
    """Gates of which the `count` least important open ones are shut; one of each part stays."""
    order = sorted(
        (float(important[name][head]), name, head)
        for name, gate in gates.items()
        for head in gate.nonzero().flatten().tolist()
    )
    pruned = {name: gate.clone() for name, gate in gates.items()}
    for _, name, head in order:
        # a layer without attention is no longer the architecture that it was
        if count and pruned[name].sum() > 1:
            pruned[name][head] = 0
            count -= 1
    return pruned


def count_removable(gates: Gates, until: float) -> int:
    """The number of heads to remove: the share `until` of all, but one head of each part stays."""
    total = sum(map(len, gates.values()))
    return min(round(until * total), total - len(gates))


def curve(
    setup: Setup, step: float, until: float, max_tokens: int, report: Report
) -> Iterator[Step]:
    """Remove heads, a share `step` of all at a time (section 4).

    Importance is measured anew before each step. It ends where the share `until` is gone, or each
    part has one head.
    """
    gates = open_gates(setup.model)
    total = sum(map(len, gates.values()))
    last = count_removable(gates, until)
    removed = 0
    yield Step(gates, report_figures(setup, gates, max_tokens))
    while removed < last:
        count = min(
            max(1, round(step * total)), last - removed
        )  # a small share is one head at least
        gates = prune(gates, importance(setup, gates, max_tokens), count)
        removed += count
        report(count)
        yield Step(gates, report_figures(setup, gates, max_tokens))


def check_prunable(setup: Setup, gates: Gates) -> None:
    """UsageError where the layers of an architecture cannot differ in their heads."""
    try:
        replace(setup.model.config, layer_heads=tuple(map(len, gates.values())))
    except UsageError as error:
        raise UsageError(f"--dest: {error}") from error


def write(setup: Setup, gates: Gates, folder: Path) -> None:
    """Fill an empty folder with the checkpoint, without the heads whose gates are 0.

    What it computes is what the gates make of the model.
    """
    parts = _parts(setup.model)
    left = {name: gate.nonzero().flatten() for name, gate in gates.items()}
    heads = tuple(map(len, left.values()))
    tensors = mean([setup.path])
    for name, rows in left.items():
        for stored in [stored for stored in tensors if stored.startswith(f"{name}.")]:
            leaf = stored.removeprefix(f"{name}.")
            tensors[stored] = _cut(tensors[stored], leaf, parts[name], rows)
    options = setup.state["config"] | {"arch.layer_heads": render(heads)}
    rewrite(setup.path, folder, tensors, {"config": options}, untrained=True)


def _cut(tensor: Tensor, leaf: str, attention: HeadParts, left: Tensor) -> Tensor:
    """The rows or columns of a part's tensor that belong to the heads that are left."""
    whole = attention.num_heads
    if leaf.startswith("qkv."):
        # queries, keys and values lie one below the other, each with a stretch for each head
        return tensor.unflatten(0, (3, whole, -1))[:, left].flatten(0, 2)
    if leaf == "out.weight":
        weight: Tensor = tensor.unflatten(1, (whole, -1))[:, left].flatten(1)
        # the norm before it is one of fewer values then (`Stack`)
        if isinstance(attention.norm, RMSNorm):
            weight = weight * (whole / len(left)) ** 0.5
        return weight
    shared = leaf in ("out.bias", "query_norm.weight", "key_norm.weight")
    return tensor if shared else tensor[left]  # a head's own gate and query scale


def compare_models(before: Setup, after: Setup, max_tokens: int) -> dict[str, float]:
    """Weights and loss of two models, and how long each takes for the corpus: the least of three
    passes."""
    figures: dict[str, float] = {}
    for name, setup in {"before": before, "after": after}.items():
        figures[f"{name}/weights"] = sum(p.numel() for p in setup.model.parameters())
        seconds = []  # the shortest: whatever else the machine does makes a pass longer
        for _ in range(3):
            start = time.perf_counter()
            figures[f"{name}/loss"] = objective(setup, max_tokens, no_report)["loss"]
            seconds.append(time.perf_counter() - start)
        figures[f"{name}/seconds"] = min(seconds)
    return figures


def draw(important: Gates, steps: Sequence[Step], output: Path) -> None:
    """Draw the importance of all heads, and the loss while heads are removed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    table = torch.full((len(important), max(map(len, important.values()))), torch.nan)
    for row, importances in zip(table, important.values(), strict=True):
        row[: len(importances)] = importances
    image = left.imshow(table.numpy(), aspect="auto", vmin=0)
    figure.colorbar(image)
    left.set_yticks(range(len(important)), [name.removesuffix(".attention") for name in important])
    left.set_xticks(range(table.shape[1]))
    left.set_xlabel("head")
    left.set_title("importance")
    right.plot([step.removed for step in steps], [s.figures["loss"] for s in steps], marker=".")
    right.set_xlabel(f"heads removed of {table.isfinite().sum()}")
    right.set_title("loss")
    right.grid(alpha=0.3)
    with new_file(output, "--plot") as path:
        save(figure, path, 120)


def draw_over_run(important: Mapping[int, Gates], output: Path) -> None:
    """Draw the importance of all heads at the checkpoints of a run, a row for each head."""
    from matplotlib.figure import Figure

    steps = [*important]
    names = [*next(iter(important.values()))]
    # [heads, checkpoints]: the heads of a part one below the other
    table = torch.stack([torch.cat([*of_step.values()]) for of_step in important.values()], dim=1)
    sizes = [len(important[steps[0]][name]) for name in names]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    figure = Figure(figsize=(8, 1.5 + 0.18 * len(table)), layout="constrained")
    axis = figure.subplots()
    figure.colorbar(axis.imshow(table.numpy(), aspect="auto", vmin=0, interpolation="nearest"))
    axis.set_yticks(starts, [name.removesuffix(".attention") for name in names])
    for start in starts[1:]:
        axis.axhline(start - 0.5, color="white", linewidth=1)
    axis.set_xticks(range(len(steps)), [f"{step:,}" for step in steps], rotation=45)
    axis.set_xlabel("update")
    axis.set_title("importance of the heads of each layer")
    with new_file(output, "--plot") as path:
        save(figure, path, 120)
