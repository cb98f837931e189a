"""Learning rates that fit a model: what `--lr auto` chooses, and what new models of our own take.

The rates are those of a width of 256 (docs/benchmarks/cpu.md). How they and the first weights
change with the width is Yang et al. 2022, arXiv 2203.03466, table 3, for AdamW, and Bernstein 2025,
https://docs.modula.systems, for Muon: see `width_factor` of the optimizers.
"""

from __future__ import annotations

from unitk.errors import require
from unitk.options.settings import NOTHING, Origin, Settings

RATES = {"muon": 4e-3, "adamw": 2e-3}
"""Optimizer -> peak rate at `BASE_WIDTH`."""
BASE_WIDTH = 256
AUTO = "auto"
RECIPE = "recipe"
"""The origin of these settings in config.yaml."""


def choose_rates(given: Settings, own: bool, new: bool, width: int) -> Settings:
    """The settings of a run with the optimizer and the rate that fit, where they are not given.

    `own`: the architecture is unitk's own, which no paper trains; `new`: no weights are taken from
    a checkpoint. Other runs keep the published defaults, but for `--lr auto`. Raises UsageError for
    `--lr auto` with an optimizer whose rate was never measured.
    """
    auto = "lr" in given and given["lr"].text == AUTO
    if not auto and not (own and new):
        return given
    # given values win over chosen ones
    rates: dict[str, str | None] = {}
    if own and new and "optimizer" not in given:
        rates["optimizer"] = "muon"
    optimizer = given["optimizer"].text if "optimizer" in given else rates.get("optimizer", "adamw")
    rate = RATES.get(optimizer or "")
    known = " and ".join(RATES)
    require(
        rate is not None or not auto,
        f"--lr auto knows rates of {known}, not of --optimizer {optimizer}: give a number",
    )
    # a rate that somebody gives is meant for this model as it is
    if rate is not None and (auto or "lr" not in given):
        rates["lr"] = f"{rate:g}"
        # at the base width nothing changes; a paper's first weights are left as they are
        if width != BASE_WIDTH:
            rates["optimizer.base_width"] = str(BASE_WIDTH)
            if own and new:
                rates["arch.base_width"] = str(BASE_WIDTH)
    chosen = Settings.of_texts(rates, Origin.TASK, RECIPE) if rates else NOTHING
    return Settings({**chosen, **given.without(["lr"] if auto else [])})
