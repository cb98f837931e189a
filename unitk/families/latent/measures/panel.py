"""Detects posterior collapse during training.

Bowman et al. 2016, arXiv 1511.06349, section 3.1, describe the failure: the decoder learns to write
without its latent, and the posteriors become the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from unitk.criterions.base import Panel
from unitk.data.cuts import When
from unitk.families.latent.components import ELBOConfig
from unitk.families.latent.measures.evidence import gather_evidence, z_gap
from unitk.slots import Batch

IGNORED = 0.1
"""Nats a text. With a smaller z-gap, the decoder might as well not have the latent."""
EARLY = 0.1  # share of a run in which a decoder need not use its latent yet
EARLY_STEPS = 100, 1000  # the same in updates, at least and at most
WIDTH = 48  # most bars; with more dimensions a bar is the mean of several
BARS = "▁▂▃▄▅▆▇█"


def collapse(
    model: Any,
    batches: Sequence[Batch],
    config: ELBOConfig,
    objective: Callable[[Tensor], Tensor],
    beta: float,
    when: When,
) -> Panel | None:
    """The panel after an update, counted from 0; None if there are not two texts to compare."""
    seen = gather_evidence(model, batches)
    count = len(seen.nll)
    if count < 2:
        return None
    gap = z_gap(model, batches, seen.z, seen.nll)
    nats = seen.kl.mean(0).tolist()
    values = {**seen.figures(objective), "z_gap": gap, "beta": beta}
    lines = [
        f"reconstruction {values['reconstruction']:.2f}  kl {values['kl']:.2f}"
        f" (objective {values['kl_objective']:.2f})"
        f"  mi {values['mi']:.2f} of at most {values['mi_ceiling']:.2f} (ln {count:,})"
        f"  active {values['active']}/{len(nats)}  z-gap {gap:.2f}  beta {beta:.3g}",
        f"kl of each dimension, sorted  {bars(nats)}",
    ]
    named = {f"panel/{name}": value for name, value in values.items()}
    named |= {f"panel_kl/{i}": value for i, value in enumerate(nats)}
    (step, total), (least, most) = when, EARLY_STEPS
    # a run without an end has the most early updates
    early = min(max(EARLY * (total or math.inf), least), most)
    ignored = gap < IGNORED and beta > 0 and step >= early
    return Panel(named, lines, advice(gap, config) if ignored else "")


def bars(values: Sequence[float]) -> str:
    """Sorted values as bars, largest first, with the largest and the smallest in numbers."""
    # of a model that has diverged, a value that is no number is shown as infinite
    ordered = sorted((math.inf if math.isnan(v) else v for v in values), reverse=True)
    # so many dimensions share a bar that all bars fit
    top = max(ordered[0], 1e-9)
    size = -(-len(ordered) // WIDTH)
    groups = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    means = [sum(group) / len(group) for group in groups]
    heights = [mean / top if mean < math.inf else 1.0 for mean in means]
    drawn = "".join(BARS[max(0, math.ceil(height * len(BARS)) - 1)] for height in heights)
    return f"{ordered[0]:.3f} {drawn} {ordered[-1]:.3f}"


def advice(gap: float, config: ELBOConfig) -> str:
    """A warning that the decoder ignores the latent, and what to change in the next run."""
    remedies = []
    if config.beta(1, 1 << 20) > config.beta.value / 2:
        remedies.append("begin with beta at 0 (--criterion.beta cyclical)")
    if config.kl_mode == "sum" or not config.kl_threshold:
        remedies.append(
            "give it nats for nothing (--criterion.kl-mode mask, --criterion.kl-threshold)"
        )
    if not remedies:
        remedies.append("raise --criterion.kl-threshold")
    words = f"the decoder ignores the latent (z-gap {gap:.3f} nats a text); another run should"
    return f"{words} {' and '.join(remedies)}, or make the decoder need it (--task.decoder-drop)"
