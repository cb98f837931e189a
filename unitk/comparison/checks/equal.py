"""Runs that are compared: the same data, the same length, and how many seeds there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from unitk.comparison.checks.base import Finding, Findings, Status, Subjects, TrainedRun
from unitk.registry import register

SLACK, MOST = 0.02, 0.1
"""Shares by which texts and tokens may differ: objectives frame and batch texts in their own way.
Up to the first one they are equal, and beyond the second one they are another comparison."""
OWN = ("save_dir", "seed", "resume", "device", "nproc", "threads", "log_every", "writers")
"""Options that every run may have its own value of."""


@register("check", "equal")
def check_equal(subjects: Subjects) -> Findings:
    """Whether runs have the same data, length and further options, and their seeds."""
    runs = subjects.runs
    if len(runs) < 2:
        return
    yield agree("train data", {run.name: run.state["data"] for run in runs})
    yield agree("valid data", {run.name: valid_fingerprints(run) for run in runs})
    yield agree("vocabulary", {run.name: run.state["vocab"] for run in runs})
    for count, slack in (("step", (0.0, 0.0)), ("texts", (SLACK, MOST)), ("tokens", (SLACK, MOST))):
        yield compare_counts(
            count, {run.name: int(getattr(run.progress, count)) for run in runs}, *slack
        )
    yield from compare_options(runs)
    yield seeds(runs)


def valid_fingerprints(run: TrainedRun) -> str:
    """The fingerprints of what a run was judged by."""
    # what a set is called is a part of it: curves of runs compare by name
    return " ".join(f"{name}={corpus.fingerprint}" for name, corpus in run.split.open_splits())


def agree(name: str, values: Mapping[str, str]) -> Finding:
    """Whether a value is the same in all runs; the first run that differs is named."""
    (first, value), *rest = values.items()
    other = next((run for run, its_value in rest if its_value != value), None)
    text = f"equal in {len(values)} runs" if other is None else f"{other} has other than {first}"
    return Finding("ok" if other is None else "FAULT", "equal", name, text)


def compare_counts(count: str, counts: Mapping[str, int], slack: float, most: float) -> Finding:
    """Whether counts are the same in all runs, but for a share; a note up to the share `most`."""
    least, largest = (choose(counts, key=counts.__getitem__) for choose in (min, max))
    text = f"{counts[largest]:,} in {len(counts)} runs"
    status: Status = "ok"
    if counts[largest] > (1 + slack) * counts[least]:
        status = "note" if counts[largest] <= (1 + most) * counts[least] else "FAULT"
        text = f"{least} has {counts[least]:,}, {largest} has {counts[largest]:,}"
    elif counts[largest] != counts[least]:
        text = f"{counts[least]:,} to {counts[largest]:,} in {len(counts)} runs"
    name = {"step": "updates"}.get(count, count)
    return Finding(status, "equal", name, text, dict(counts))


def compare_options(runs: Sequence[TrainedRun]) -> Findings:
    """Options beside those of the task that differ between runs: a note each.

    Where runs have other components, such as another --arch, their options are counted only.
    """
    keys = {key for run in runs for key in run.config if not key.startswith("task")}
    differing: dict[str, str] = {}
    for key in sorted(keys - {*OWN, "data", "valid"}):
        values = defaultdict[str, list[str]](list)
        for run in runs:
            values[run.config.get(key, "absent")].append(run.name)
        if len(values) > 1:
            differing[key] = "; ".join(f"{value}: {names[0]}" for value, names in values.items())
    for key, text in differing.items():
        component, dot, _ = key.partition(".")
        if not dot:
            count = sum(other.startswith(f"{key}.") for other in differing)
            text += f"; with {count} of its options" if count else ""
        if not dot or component not in differing:
            yield Finding("note", "equal", key, text)


def seeds(runs: Sequence[TrainedRun]) -> Finding:
    """How many seeds each objective has; one alone has no interval."""
    # a setting is all options but those that every run has of its own
    groups = defaultdict[tuple[Any, ...], set[str]](set)
    for run in runs:
        setting = tuple(sorted(item for item in run.config.items() if item[0] not in OWN))
        groups[setting].add(run.config.get("seed", "absent"))
    counts = sorted(map(len, groups.values()))
    text = f"{counts[0]} to {counts[-1]}" if counts[0] != counts[-1] else str(counts[0])
    text += f" for each of {len(counts)} settings"
    few = counts[0] < 3
    if few:
        text += "; below three there is no interval over seeds"
    return Finding("note" if few else "ok", "equal", "seeds", text, {"seeds": counts})
