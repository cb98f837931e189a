"""The subjects of checks, and their findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from unitk.data.corpus.folders import open_corpus, part
from unitk.data.examples import Data, open_data, train_parts
from unitk.options.config import Parsed
from unitk.training.config import TrainConfig
from unitk.training.saving import checkpoint
from unitk.training.saving.folder import RunFolder, find_checkpoint
from unitk.training.saving.state import Progress, read_state, recorded_options

Status = Literal["ok", "note", "FAULT"]
HELD_OUT = ("valid", "test")


@dataclass(frozen=True)
class Finding:
    """One line of a check: its status, its subject, and the result as text."""

    status: Status
    check: str
    subject: str
    text: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def line(self, width: int) -> str:
        """The finding as a line to print; `width` is that of subjects."""
        return f"{self.status:<7}{self.check:<10}{self.subject:<{width}}  {self.text}"


@dataclass(frozen=True)
class DataSplit:
    """Corpora to train on, and held-out ones by name."""

    name: str
    train: tuple[Path, ...]
    held_out: Mapping[str, Path]

    @classmethod
    def of_folder(cls, folder: Path) -> DataSplit:
        """The corpora in a folder of `unitk preprocess`."""
        held = {name: place for name in HELD_OUT if (place := part(folder, name))}
        return cls(str(folder), tuple(train_parts(folder)), held)

    def open_splits(self) -> Iterator[tuple[str, Any]]:
        """The held-out corpora by name."""
        for name, place in self.held_out.items():
            yield name, open_corpus(place)


@dataclass(frozen=True)
class TrainedRun:
    """A run folder or checkpoint; `name` is its path as it was given."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @cached_property
    def checkpoint(self) -> Path:
        """The checkpoint, or the best one of the run."""
        return find_checkpoint(self.path)

    @cached_property
    def state(self) -> dict[str, Any]:
        """The state.json of the checkpoint."""
        return read_state(self.checkpoint)

    @cached_property
    def progress(self) -> Progress:
        """How far the run had come, whichever of its checkpoints is the best one."""
        newest = None
        if (self.path / "checkpoints").is_dir():
            newest = RunFolder(self.path).newest()
        return Progress.of(read_state(newest) if newest else self.state)

    @cached_property
    def config(self) -> dict[str, str]:
        """Every option of the run as text."""
        return recorded_options(self.state).texts

    @cached_property
    def parsed(self) -> Parsed:
        """The options of the run as it would be started, or on other data."""
        components = ("task", "arch", "criterion", "optimizer")
        return checkpoint.components(
            self.state, self.checkpoint, recorded_options(self.state), components, TrainConfig
        )

    @cached_property
    def examples(self) -> Data:
        """The data of the run, laid out by its tasks."""
        return open_data(self.parsed)

    @property
    def split(self) -> DataSplit:
        """The corpora that it was trained and validated on."""
        main = self.parsed.main
        folders = [folder for folder, _ in main.weighted_data]
        held = {name: part(place, "valid") or place for name, place in main.named_valid}
        if not main.valid and (inner := part(folders[0], "valid")):
            held = {"valid": inner}
        trained = (path for folder in folders for path in train_parts(folder))
        return DataSplit(self.name, tuple(trained), held)

    @property
    def whole_split(self) -> DataSplit:
        """The split with the test sets in the folder of the data."""
        split = self.split
        folders = [folder for folder, _ in self.parsed.main.weighted_data]
        tests = {place: place.name for folder in folders if (place := part(folder, "test"))}
        named = {name if len(tests) == 1 else str(place): place for place, name in tests.items()}
        return DataSplit(split.name, split.train, {**named, **split.held_out})


@dataclass(frozen=True)
class Subjects:
    """The subjects of all checks: folders of corpora, runs, and files of scores of pairs."""

    splits: list[DataSplit]
    runs: list[TrainedRun]
    scores: list[Path]
    shared: float
    """The largest share of held-out texts that may be in train, too."""
    device: str = "auto"

    def all_splits(self) -> list[DataSplit]:
        """The splits of folders and runs, each once."""
        splits: dict[tuple[Any, ...], DataSplit] = {}
        for split in [*self.splits, *(run.whole_split for run in self.runs)]:
            key = tuple(map(Path.resolve, (*split.train, *split.held_out.values())))
            splits.setdefault(key, split)
        return list(splits.values())


Findings = Iterable[Finding]
