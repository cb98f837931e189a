"""`unitk check`: faults that make a comparison void, found in corpora, runs and scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unitk import pretrained, registry
from unitk.api.verb import verb
from unitk.data.corpus.folders import is_corpus, parts
from unitk.errors import DataError, UsageError, printable, require, show_value
from unitk.options.config import Device, Parsed, UserDir
from unitk.options.fields import Chance, Checked
from unitk.registry import register

if TYPE_CHECKING:
    from unitk.comparison.checks.base import DataSplit, Finding, Subjects, TrainedRun


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Checked):
    """Check corpora, runs and scores for faults that make a comparison void: shared texts, visible
    answers, unequal data or length, ties, half precision, padding that counts.

    unitk check data
    unitk check runs/lm runs/glm
    unitk check runs
    unitk check scores.jsonl
    """

    paths: tuple[Path, ...] = ()
    """Folders of `unitk preprocess`, runs or checkpoints, folders of runs, and files of
    `unitk evaluate --pairs --output`."""
    shared: Chance = 0.01
    """Largest share of held-out texts that may be in the training data, too, exactly or nearly
    (half of their runs of 13 words)."""
    output_format: Literal["text", "json"] = "text"
    """text: a line for each finding; json: one object."""
    device: Device = "auto"
    """Device to score on. auto: CUDA if there is a GPU."""
    user_dir: UserDir = None


def value(parsed: Parsed) -> list[Finding]:
    """Run all registered checks on the paths; returns their findings."""
    options: CheckOptions = parsed.main
    require(len(options.paths) > 0, "--paths: name a corpus, a run or a file of scores")
    registry.load_plugins(options.user_dir)
    subjects = subjects_of(options)
    # in the order of names, so that two reports can be compared line by line
    return [found for name in registry.names("check") for found in run_check(name, subjects)]


def run_check(name: str, subjects: Subjects) -> list[Finding]:
    """The findings of a check, whose plug-in may return anything."""
    from unitk.comparison.checks.base import Finding  # imports torch

    findings: Any = registry.get("check", name)(subjects)
    if isinstance(findings, Iterable):
        findings = [*findings]
        if all(isinstance(finding, Finding) for finding in findings):
            return findings
    raise UsageError(
        f"check {name!r} of {registry.sources('check')[name]} must return Findings, "
        f"got {show_value(findings)}"
    )


@register("verb", "check")
@verb(CheckOptions, words="paths", value=value, example='(["data/docs", "runs/lm"])')
def run(parsed: Parsed) -> None:
    """Print the findings; `DataError` if there is a fault."""
    print_findings(value(parsed), parsed.main.output_format)


def subjects_of(options: CheckOptions) -> Subjects:
    """Open the subjects that the paths name: runs, folders of corpora, files of scores."""
    from unitk.comparison.checks.base import DataSplit, Subjects, TrainedRun  # imports torch

    real = [path.resolve() for path in options.paths]
    for at, path in enumerate(options.paths):
        require(real[at] not in real[:at], f"--paths names {path} twice")
    opened = [subject for path in options.paths for subject in _open(pretrained.locate(path))]
    runs = [subject for subject in opened if isinstance(subject, TrainedRun)]
    for run in runs:
        missing = [folder for folder, _ in run.parsed.main.weighted_data if not folder.exists()]
        if missing:
            raise DataError(f"--paths {run.name}: its --data {missing[0]} is not there")
    splits = [subject for subject in opened if isinstance(subject, DataSplit)]
    scores = [subject for subject in opened if isinstance(subject, Path)]
    return Subjects(splits, runs, scores, options.shared, options.device)


def _open(path: Path) -> list[TrainedRun | DataSplit | Path]:
    """The runs, the folder of corpora or the file of scores that a path names."""
    from unitk.comparison.checks.base import DataSplit, TrainedRun  # imports torch

    if path.is_file():
        return [path]
    if not path.exists():
        raise DataError(f"--paths {path}: no such file or folder")
    if path.resolve().name == "checkpoints" and not is_corpus(path):
        raise DataError(f"--paths {path} is a part of a run: name {path.resolve().parent}")
    if (path / "checkpoints").is_dir() or (path / "state.json").is_file():
        return [TrainedRun(path)]
    # a folder of runs is one whose folders have checkpoints
    if inner := [folder.parent for folder in sorted(path.glob("*/checkpoints")) if folder.is_dir()]:
        return [*map(TrainedRun, inner)]
    if parts(path) or is_corpus(path):
        split = DataSplit.of_folder(path)
        if not split.held_out:
            raise DataError(f"{path} has no valid/ or test/: there is no held-out text")
        return [split]
    if deeper := sorted({path.parents[1] for path in path.glob("*/*/checkpoints")}):
        names = " ".join(map(str, deeper))
        raise DataError(f"--paths {path} holds folders of runs: name {names}")
    raise DataError(f"--paths {path} is not a corpus, a run, a folder of runs or a file of scores")


def print_findings(findings: Sequence[Finding], form: str) -> None:
    """Print findings and their number; `DataError` names the checks that found faults."""
    # each check once, in the order of the findings
    faults = list(dict.fromkeys(finding.check for finding in findings if finding.status == "FAULT"))
    if form == "json":
        print(json.dumps({"faults": faults, "findings": [asdict(finding) for finding in findings]}))
    else:
        width = max((len(finding.subject) for finding in findings), default=0)
        print(*(printable(finding.line(width)) for finding in findings), sep="\n")
        notes = sum(finding.status == "note" for finding in findings)
        count = sum(finding.status == "FAULT" for finding in findings)
        numbers = {"finding": len(findings), "fault": count, "note": notes}
        total, *others = (f"{n} {noun}{'' if n == 1 else 's'}" for noun, n in numbers.items())
        print(f"{total}: {', '.join(others)}")
    # the exit code of bad data, so that a script stops
    if faults:
        raise DataError(f"a comparison on these rests on faults: {', '.join(faults)}")
