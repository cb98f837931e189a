"""A training in Python is the command line's, and whoever leaves it finds a checkpoint."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

import unitk
from unitk.errors import UsageError
from unitk.training.loop import Trainer
from unitk.training.reporting.sinks import read_events
from unitk.training.saving.folder import RunFolder

WEIGHTS = ("model.safetensors", "optim.safetensors")


def saved(run):
    return [(run / "last" / name).read_bytes() for name in WEIGHTS]


@pytest.fixture
def whole(short, tmp_path):
    """The events of a run that nothing interrupts, and its folder."""
    return list(unitk.train(**short, save_dir=tmp_path / "whole")), tmp_path / "whole"


@pytest.mark.slow
def test_weights_are_those_of_the_command_line(short, whole, tmp_path):
    words = (
        f"train --task lm --arch gpt2_tiny --arch.dropout 0.1 --data {short['data']} --max-steps 6"
        " --max-tokens 400 --precision fp32 --log-every 1 --valid-every 3"
    )
    program = [sys.executable, "-m", "unitk_cli", *words.split()]
    subprocess.run([*program, "--save-dir", str(tmp_path / "words")], check=True)
    events, run = whole
    assert saved(run) == saved(tmp_path / "words")
    configs = [(folder / "config.yaml").read_text() for folder in (run, tmp_path / "words")]
    assert configs[0].replace("/whole", "/words") == configs[1]
    assert events == read_events(run / "log.jsonl")
    kinds = [(event["kind"], event["step"]) for event in events]
    assert kinds == [
        *(("train", step) for step in (1, 2, 3)),
        ("valid", 3),
        *(("train", step) for step in (4, 5, 6)),
        ("valid", 6),
    ]


def left(short, run):
    """A run that its caller leaves after four updates."""
    for event in unitk.train(**short, save_dir=run):
        if event["step"] == 4:
            break


def raised(short, run):
    """A run whose caller is interrupted between two updates."""
    with pytest.raises(KeyboardInterrupt):
        for event in unitk.train(**short, save_dir=run):
            if event["step"] == 4:
                signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def interruptible():
    """Ctrl-C acts as in a terminal, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.every(2)
@pytest.mark.parametrize("stop", [left, raised])
def test_who_leaves_the_loop_leaves_a_checkpoint(stop, short, whole, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    stop(short, run := tmp_path / "cut")
    assert signal.getsignal(signal.SIGINT) is before
    assert RunFolder(run).steps()[0] == 4
    events = list(unitk.train(save_dir=run, resume=True))
    assert events[0]["step"] == 5
    assert saved(run) == saved(whole[1])


def test_an_interrupted_update_is_finished_and_saved(short, whole, tmp_path, monkeypatch, capfd):
    update = Trainer.update

    def interrupted(self, given):
        if self.progress.step == 2:
            signal.raise_signal(signal.SIGINT)
        update(self, given)

    monkeypatch.setattr(Trainer, "update", interrupted)
    run, seen = tmp_path / "cut", []
    with pytest.raises(KeyboardInterrupt):
        for event in unitk.train(**short, save_dir=run):
            seen.append(event)
    assert "finishing this update" in capfd.readouterr().err
    assert [event["step"] for event in seen] == [1, 2, 3] and RunFolder(run).steps() == [3]
    monkeypatch.undo()
    list(unitk.train(save_dir=run, resume=True))
    assert saved(run) == saved(whole[1])


def test_an_interrupted_run_releases_its_folder(short, whole, tmp_path):
    """As in a notebook, where the traceback of an interruption keeps the iterator alive."""
    first = unitk.train(**short, save_dir=tmp_path / "cut")
    assert next(first)["step"] == 1
    list(unitk.train(save_dir=tmp_path / "cut", resume=True))
    assert next(first, None) is None
    assert saved(tmp_path / "cut") == saved(whole[1])


@pytest.mark.slow
def test_a_run_that_is_open_when_python_ends_is_saved(short, tmp_path):
    program = f"import unitk; run = unitk.train(**{short!r}, save_dir={str(tmp_path)!r}); next(run)"
    program = "from pathlib import *; " + program
    subprocess.run([sys.executable, "-c", program], check=True)
    assert RunFolder(tmp_path).steps() == [1]


def test_another_thread_trains_too(short, whole, tmp_path):
    run = tmp_path / "thread"
    thread = threading.Thread(target=lambda: list(unitk.train(**short, save_dir=run)))
    thread.start()
    thread.join()
    assert saved(run) == saved(whole[1])


def test_threads_that_train_change_no_number_of_each_other(short, whole, tmp_path):
    """Both seed torch's one generator, from which dropout draws."""
    runs = [tmp_path / "one", tmp_path / "other"]
    threads = [
        threading.Thread(target=lambda run=run: list(unitk.train(**short, save_dir=run)))
        for run in runs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [*map(saved, runs)] == [saved(whole[1])] * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nproc": 2}, "--nproc has no effect in Python"),
        ({"seeds": 2}, "--seeds has no effect in Python"),
        ({"options": {"task.mask_rato": 1}}, "task lm has no such option"),
    ],
)
def test_mistakes_are_told_at_once(given, message, short, tmp_path):
    with pytest.raises(UsageError, match=message):
        unitk.train(**{**short, **given}, save_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_notebook_shows_a_bar(short, tmp_path):
    """Its widget is looked for: an empty line of output would be there without one, too."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    for needed in ("ipykernel", "ipywidgets"):
        pytest.importorskip(needed)
    code = f"import unitk\nfrom pathlib import *\nfor event in unitk.train(**{short!r}, save_dir="
    cell = nbformat.v4.new_code_cell(f"{code}{str(tmp_path)!r}):\n    pass\nevent['step']")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    client.NotebookClient(notebook, timeout=300).execute()
    outputs = notebook.cells[0].outputs
    assert any("application/vnd.jupyter.widget-view+json" in one.get("data", {}) for one in outputs)
    assert outputs[-1]["data"]["text/plain"] == "6"
