"""Events of a run are read as they were written, by log.jsonl and the loggers."""

import importlib.machinery
import io
import json
import logging
import math
import sys
import types

import pytest

from unitk.errors import DataError, UsageError
from unitk.runs.writers import CsvLog, WandB
from unitk.training.reporting import plots
from unitk.training.reporting.log import Journal, Terminal, console
from unitk.training.reporting.plots import LATENT, curves_of, panels_of, plot_runs
from unitk.training.reporting.report import duration_text
from unitk.training.reporting.sinks import (
    JsonLog,
    choose_loggers,
    open_sinks,
    read_events,
    validation_at,
)
from unitk.verbs import plot as command


def journal(folder, step=0):
    folder.mkdir(exist_ok=True)
    return Journal([JsonLog(folder, step)], step=step, total=10)


def fill(folder, steps):
    with journal(folder) as log:
        for step in steps:
            values = {"train/loss": 5.0 / step, "lr": 1e-3, "gnorm": 1.0, "tokens/s": 9.0}
            log.event("train", step, values, "line")
            log.event("valid", step, {"valid/loss": 6.0 / step, "dev/loss": 5.0}, "line")


def test_events_are_read_as_they_were_written(tmp_path, caplog):
    caplog.set_level("INFO")
    fill(tmp_path / "a", [1, 2])
    events = read_events(tmp_path / "a" / "log.jsonl")
    assert [(e["kind"], e["step"]) for e in events] == [
        ("train", 1),
        ("valid", 1),
        ("train", 2),
        ("valid", 2),
    ]
    assert events[2]["train/loss"] == 2.5 and "step 2/10  line" in caplog.text


def test_a_resumed_run_repeats_the_events_after_its_step(tmp_path):
    fill(tmp_path / "a", [1, 2, 3])
    with journal(tmp_path / "a", step=2) as log:
        log.event("train", 3, {"train/loss": 7.0}, "line")
    events = read_events(tmp_path / "a" / "log.jsonl")
    assert [e["step"] for e in events] == [1, 1, 2, 2, 3] and events[-1]["train/loss"] == 7


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path):
    fill(tmp_path / "a", [1])
    path = tmp_path / "a" / "log.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"kind": "train", "st')
    assert len(read_events(path)) == 2
    JsonLog(tmp_path / "a", 5).close()
    assert path.read_text() == whole


def test_values_that_are_no_numbers_are_null(tmp_path):
    with journal(tmp_path / "a") as log:
        log.event("valid", 1, {"valid/loss": float("nan")}, "line")
    line = (tmp_path / "a" / "log.jsonl").read_text()
    assert json.loads(line)["valid/loss"] is None


def test_the_terminal_has_names_as_they_are():
    """Not the label between two colons as a picture of one."""
    record = logging.makeLogRecord({"msg": "no head span:label: it begins", "levelno": 20})
    with console.capture() as shown:
        Terminal().emit(record)
    assert shown.get().strip() == "no head span:label: it begins"


def test_a_full_disk_does_not_end_the_run(tmp_path, caplog, monkeypatch):
    with journal(tmp_path / "a") as log:

        def full(*args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(log.sinks[0], "write", full)
        for step in (1, 2):
            log.event("train", step, {"train/loss": 1.0}, "line")
    assert caplog.text.count("No space left on device; training continues") == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_is_gone_does_not_end_the_run(tmp_path, monkeypatch, terminal):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(5, "Input/output error")

        def isatty(self):
            return terminal

    monkeypatch.setattr(sys, "stderr", Gone())
    with journal(tmp_path / "a") as log:
        for step in (1, 2):
            Terminal().emit(logging.makeLogRecord({"msg": "a line", "levelno": 20}))
            log.event("train", step, {"train/loss": 1.0}, "line")
            log.advance(step, lambda: ("line", ""))
    assert len(read_events(tmp_path / "a" / "log.jsonl")) == 2


def test_a_table_of_values_continues_like_the_log(tmp_path):
    first = CsvLog(tmp_path, 0)
    for step in (1, 2, 3):
        first.write("train", step, {"train/loss": 1 / step, "lr": 0.5})
    first.close()
    again = CsvLog(tmp_path, 1)
    again.write("valid", 2, {"valid/loss": float("nan")})
    again.close()
    assert (tmp_path / "values.csv").read_text().splitlines() == [
        "step,kind,name,value",
        "1,train,train/loss,1.0",
        "1,train,lr,0.5",
        "2,valid,valid/loss,nan",
    ]


def test_writers_are_chosen_by_name():
    assert choose_loggers(["csv"]) == ["csv"] and choose_loggers(["none"]) == []
    with pytest.raises(UsageError, match="no writer 'tensorbord'.*tensorboard"):
        choose_loggers(["tensorbord"])


@pytest.fixture
def wandb(monkeypatch):
    """A module that notes what Weights & Biases is told; without an account where so set."""
    module = types.ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    module.Error, module.told, module.account = type("Error", (Exception,), {}), [], True

    def init(**options):
        if not module.account:
            raise module.Error("No API key configured.\nUse `wandb login` to log in.")
        module.told.append(options)
        return types.SimpleNamespace(
            log=lambda values, step: module.told.append((step, values)),
            finish=lambda: module.told.append("finished"),
        )

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_run_of_wandb_is_one_run_however_often_it_is_resumed(tmp_path, wandb):
    assert choose_loggers(["wandb"]) == ["wandb"]
    for folder in ("a/run", "a/run", "b/run"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        _, sink = open_sinks(tmp_path / folder, ["wandb"], 0)
        sink.write("train", 3, {"train/loss": 2.0})
        sink.close()
    (one, again, other), values = wandb.told[::3], wandb.told[1]
    assert one["id"] == again["id"] != other["id"] and one["name"] == other["name"] == "run"
    assert values == (3, {"train/loss": 2.0}) and wandb.told[2] == "finished"


def test_what_wandb_lacks_is_told(tmp_path, wandb, monkeypatch):
    wandb.account = False
    with pytest.raises(UsageError, match="--writers wandb: No API key configured. .*offline"):
        open_sinks(tmp_path, ["wandb"], 0)
    monkeypatch.setattr(WandB, "package", "no_such_package")
    with pytest.raises(UsageError, match="needs the package no_such_package: pip install"):
        choose_loggers(["wandb"])


@pytest.mark.parametrize("runs", ["a", "ab"])
def test_curves_of_runs_are_drawn(tmp_path, runs):
    for run in runs:
        fill(tmp_path / run, range(1, 30))
    plot_runs([tmp_path / run for run in runs], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_every_run_has_its_name_beside_the_curves(tmp_path, monkeypatch):
    """Also one that matplotlib hides, long ones, and those that differ in an outer folder."""
    names = ["a/x", "b/x", "_hidden", "$1$", "long-name-" * 9]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        fill(tmp_path / name, range(1, 4))
    drawn = []
    save = plots.save
    monkeypatch.setattr(plots, "save", lambda *given: (drawn.append(given[0]), save(*given)))
    plot_runs([tmp_path / name for name in names], tmp_path / "curves.png")
    [figure] = drawn
    figure.canvas.draw()
    [legend] = figure.legends
    found = [text.get_text().strip().split()[0] for text in legend.get_texts()]
    assert [*dict.fromkeys(found)] == names
    place, all_of_it = legend.get_window_extent(), figure.bbox
    assert all_of_it.x0 <= place.x0 and place.x1 <= all_of_it.x1
    assert all(place.y1 <= axis.get_window_extent().y0 for axis in figure.axes)


def test_panels_are_drawn_where_a_run_has_them(tmp_path):
    heights = []
    for run in "ab":
        fill(tmp_path / run, range(1, 9))
        plot_runs([tmp_path / one for one in "ab"[: len(heights) + 1]], tmp_path / "curves.png")
        heights.append((tmp_path / "curves.png").read_bytes()[20:24])
        with (tmp_path / run / "log.jsonl").open("a") as file:
            for name in LATENT:
                file.write(json.dumps({"kind": "panel", "step": 9, name: 0.5}) + "\n")
    assert heights[0] < heights[1]


def test_mixed_tasks_have_a_panel_each():
    logged = [f"{data}{task}/loss" for data in ("train", "valid") for task in ("", ".mlm", ".lm")]
    logged += ["train.mlm/mlm", "train/kl/beta", "panel/beta", "panel/lr", "lr", "gnorm"]
    panels = panels_of(logged)
    assert list(panels)[0] == "/loss" and list(panels)[-2:] == [".lm/loss", ".mlm/loss"]
    assert curves_of("/loss", logged) == ["train/loss", "valid/loss"]
    # the training set is first, which is drawn as a line, also where a validation was logged first
    for order in (logged, logged[::-1]):
        assert curves_of(".mlm/loss", order) == ["train.mlm/loss", "valid.mlm/loss"]
    assert curves_of("lr", logged) == ["lr"]
    # beta as it was in the updates, not only where there was a panel
    assert panels["train/kl/beta"] == "beta" and "panel/beta" not in panels
    assert set(panels_of(["train/loss", "lr"])) == {"/loss", "lr", "gnorm", "tokens/s"}


def test_an_image_that_cannot_be_written(tmp_path):
    fill(tmp_path / "a", [1])
    with pytest.raises(DataError, match="^--output .*: No such"):
        plot_runs([tmp_path / "a"], tmp_path / "nowhere" / "curves.png")
    # before a run is read
    with pytest.raises(UsageError, match="^--output .*end.* .png, .svg or .pdf, got curves.what"):
        command.run(["no run", "--output", "curves.what"])
    with pytest.raises(UsageError, match="^--output nowhere/curves.png: .*write"):
        command.run(["no run", "--output", "nowhere/curves.png"])


def test_a_damaged_log_is_named(tmp_path):
    fill(tmp_path / "a", [1])
    with (tmp_path / "a" / "log.jsonl").open("a") as file:
        file.write("{{{\n")
    with pytest.raises(DataError, match="log.jsonl line 3: not JSON"):
        plot_runs([tmp_path / "a"], tmp_path / "curves.png")


def test_no_run_no_curves(tmp_path):
    with pytest.raises(DataError, match="a .*run"):
        plot_runs([tmp_path / "a"], tmp_path / "a" / "curves.png")
    fill(tmp_path / "a", [])
    with pytest.raises(DataError, match="holds no event yet"):
        plot_runs([tmp_path / "a"], tmp_path / "curves.png")


def test_slow_updates_are_shown_before_their_event_is_due(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    now = 0.0
    monkeypatch.setattr("unitk.training.reporting.log.time.monotonic", lambda: now)
    shown = []
    with journal(tmp_path / "a") as log:
        for step in range(1, 1001):
            now += 1.0
            log.advance(step, lambda: ("early", "about 4 hours to go"))
            if len(caplog.messages) > len(shown):
                shown.append(step)
            if step == 200:
                log.event("train", step, {"train/loss": 2.0}, "due")
    lines = [line for line in caplog.messages if "early" in line]
    assert shown[:5] == [5, 6, 15, 35, 75] and "step 5/10  early" in lines[0]
    assert len(lines) < 10  # the distances double
    assert caplog.messages.count("about 4 hours to go") == 1
    assert [event["step"] for event in read_events(tmp_path / "a" / "log.jsonl")] == [200]


def test_a_line_that_was_shown_is_not_shown_again(tmp_path, monkeypatch, caplog):
    """The last update of a run is an event; it may have been slow enough to be shown before."""
    caplog.set_level("INFO")
    now = 0.0
    monkeypatch.setattr("unitk.training.reporting.log.time.monotonic", lambda: now)
    with journal(tmp_path / "a") as log:
        for step in (1, 2):
            now += 60.0
            log.advance(step, lambda: ("line", ""))
        log.event("train", 2, {"train/loss": 2.0}, "line")
        log.event("valid", 2, {"valid/loss": 2.0}, "line")
    assert caplog.messages == [f"step {step}/10  line" for step in (1, 2, 2)]
    assert [event["kind"] for event in read_events(tmp_path / "a" / "log.jsonl")] == [
        "train",
        "valid",
    ]


def test_fast_updates_and_other_ranks_show_nothing_early(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    now = 0.0
    monkeypatch.setattr("unitk.training.reporting.log.time.monotonic", lambda: now)
    with journal(tmp_path / "a") as log, Journal([], step=0, total=10, shown=False) as other:
        for step in range(1, 40):
            now += 1.0
            log.event("train", step, {"train/loss": 2.0}, "due")
            log.advance(step, lambda: ("early", ""))
            other.advance(step, lambda: ("early", "about 4 hours to go"))
    assert "early" not in caplog.text and "about" not in caplog.text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(61, "1 minute"), (2400, "40 minutes"), (7199, "120 minutes"), (15_000, "4.2 hours"),
     (86_400, "24 hours"), (300_000, "3.5 days"), (8_640_000, "100 days")],
)  # fmt: skip
def test_times_in_words(seconds, words):
    assert duration_text(seconds) == f"about {words}"


def test_the_values_of_a_validation_are_found_by_its_step(tmp_path):
    assert validation_at(tmp_path, 1) == {}
    lines = [("train", 1, 3.0), ("valid", 1, 2.0), ("valid", 2, math.nan)]
    sink = JsonLog(tmp_path, 0)
    for kind, step, loss in lines:
        sink.write(kind, step, {"dev/loss": loss})
    sink.close()
    found = [validation_at(tmp_path, step) for step in (1, 2, 3, None)]
    assert found == [{"dev/loss": 2.0}, {"dev/loss": None}, {}, {}]


@pytest.mark.parametrize(
    "line",
    ["3", "[]", "null", '"x"', "{}", '{"step": 1}', '{"kind": "train"}', '{"kind": 1, "step": 1}']
    + ['{"kind": "train", "step": "1"}', '{"kind": "train", "step": 1, "lr": "x"}'],
)
def test_a_line_that_is_no_event_is_named(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_text('{"kind": "train", "step": 1, "train/loss": null}\n' + line + "\n")
    with pytest.raises(DataError, match=rf"^{path} line 2: no event"):
        read_events(path)
