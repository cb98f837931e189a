"""`unitk.open_run`: a run folder as Python and notebooks see it, its events and its curve."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unitk import notebook
from unitk.errors import DataError
from unitk.options.settings import Settings
from unitk.training.reporting.plots import LOSS
from unitk.training.reporting.sinks import LOG, Event, read_events
from unitk.training.saving.folder import CONFIG

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator


class RunView:
    """A run folder of `unitk.train`; a notebook shows the curves of its losses.

    `options` are those of the run as text, `events` what it has logged until this moment, dicts as
    of `unitk.train`. `load()` opens the best model so far, with the arguments of `unitk.load`.
    Raises `unitk.errors.DataError` for a folder that holds no run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / CONFIG).is_file():
            raise DataError(f"{self.path} is not a run: there is no {self.path / CONFIG}")

    @property
    def options(self) -> dict[str, str]:
        """The options of the run, as text under their names."""
        given = dict(Settings.read(self.path / CONFIG).texts)
        if not {"task", "arch"} <= given.keys():
            raise DataError(f"{self.path / CONFIG} is damaged: it lacks the task or the arch")
        return given

    @property
    def events(self) -> list[Event]:
        """What the run has logged until this moment; `pandas.DataFrame(run.events)` is a table."""
        return read_events(self.path / LOG)

    def load(self, **how: Any) -> Generator:
        """The best model of the run so far, as `unitk.load` opens it with the same arguments."""
        from unitk.api.loading import load

        return load(self.path, **how)

    def __repr__(self) -> str:
        options, events = self.options, self.events
        parts = [f"task {options['task']}", f"arch {options['arch']}"]
        if events:
            parts.append(f"update {events[-1]['step']:,}")
            # the newest value of each loss, in the order in which they were first logged
            last = {name: loss for event in events for name, loss in event.items() if LOSS in name}
            parts += [f"{name} {loss:.4g}" for name, loss in last.items() if loss is not None]
        return f"Run({', '.join([str(self.path), *parts])})"

    def _repr_html_(self) -> str:
        events = self.events
        names = dict.fromkeys(name for event in events for name in event if name.endswith(LOSS))
        lines = {
            name: [(e["step"], e[name]) for e in events if e.get(name) is not None]
            for name in names
        }
        picture = notebook.curves(lines, f"loss of {self.path}, by update")
        return f"<pre>{escape(repr(self))}</pre>{picture}"


def open_run(path: str | Path) -> RunView:
    """The run in a folder of `unitk.train`, finished or not; a notebook shows its curves.

        unitk.open_run("runs/lm").events[-1]

    Its `options` are text, its `events` dicts as of `unitk.train`. `load()` opens the best model so
    far, with the arguments of `unitk.load`. Raises `unitk.errors.DataError` for a folder that holds
    no run.
    """
    return RunView(Path(path))
