"""Mirrored runs: whatever request is the last one, the store has a checkpoint that is complete."""

from __future__ import annotations

import json

import pytest

from unitk import files
from unitk.errors import CheckpointError, UsageError
from unitk.remote.store import Store
from unitk.training.saving.folder import OPTIMIZER, RunFolder, hold_checkpoint


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def requests(monkeypatch):
    """Counts what is written; the request of this number is the first that is not done."""
    state = {"done": 0, "last": 1 << 30}

    def counted(method):
        def call(self, *given):
            if state["done"] == state["last"]:
                raise Killed
            state["done"] += 1
            return method(self, *given)

        return call

    for name in ("upload", "put", "remove", "forget_folder"):
        monkeypatch.setattr(Store, name, counted(getattr(Store, name)))
    return state


def save(run, step, text="", best=None, named=()):
    """A checkpoint, as the saver of a run writes it."""

    def write(folder):
        (folder / "vocab").mkdir()
        for name in ("model.safetensors", OPTIMIZER, "vocab/vocab.json"):
            (folder / name).write_text(f"{name} of {step}{text}")

    (run.path / "log.jsonl").write_text(f"until {step}")
    run.publish(step, write)
    run.link("last", step)
    run.link("best", best or step)
    run.prune(1, [best or step], named)
    run.mirror()


def begin(path, resume=True):
    run = RunFolder.at(path, resume)
    run.create("task: lm\n")
    return run


def content(folder):
    """The files of a run that are mirrored."""
    own = (".mirrored", ".bring", "remote.json")
    every = files.below(folder).items()
    return {n: p.read_bytes() for n, p in every if n not in own and "damaged-" not in n}


def story(path):
    """A run that saves, prunes, keeps one by name, and writes a step again."""
    run = begin(path)
    save(run, 2)
    save(run, 4, best=2)
    save(run, 6, best=4, named=[2])
    run.rewind(4)
    save(run, 6, text=" again")
    return run


def test_a_run_that_is_brought_is_the_run_that_was_mirrored(bucket, machine):
    path, folder = bucket
    run = story(path / "run")
    (run.path / "log.jsonl").write_text("until 6, and more")
    run.mirror()
    here = content(run.path)
    assert {
        n: p.read_bytes() for n, p in files.below(folder / "run").items() if n != "remote.json"
    } == {name: data for name, data in here.items() if not name.startswith(("last/", "best/"))}
    machine("there")
    brought = RunFolder.at(path / "run", resume=True)
    assert brought.path != run.path and content(brought.path) == here
    assert (brought.path / "best").resolve() == brought.step(6).resolve()


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_whichever_request_is_the_last_a_checkpoint_is_complete(bucket, machine, requests, every):
    path, _ = bucket
    story(path / "whole")
    total, seen = requests["done"], set()
    assert total > 30
    for last in range(0, total, every):
        machine(f"here{last}")
        address = path / f"run{last}"
        requests |= {"done": 0, "last": last}
        with pytest.raises(Killed):
            story(address)
        requests["last"] = 1 << 30
        machine(f"there{last}")
        run = RunFolder.at(address, resume=True)
        assert [step for step in run.steps() if files.damage(run.step(step))] == []
        newest = run.newest()
        seen.add(newest and (newest.name, (newest / "model.safetensors").read_text()[-5:]))
        # and it goes on from there
        save(begin(address), 8)
        machine(f"elsewhere{last}")
        assert RunFolder.at(address, resume=True).newest().name == "step-8"
    written = {("step-2", " of 2"), ("step-4", " of 4"), ("step-6", " of 6"), ("step-6", "again")}
    assert seen <= {None, *written} and (len(seen) == 5 or every > 1)


def test_a_used_address_needs_resume(bucket, machine):
    path, _ = bucket
    story(path / "run")
    machine("there")
    with pytest.raises(UsageError, match="--save-dir file:.*/run.*--resume"):
        RunFolder.at(path / "run", resume=False)


def test_what_could_not_be_uploaded_is_continued_on_the_same_machine(bucket, machine, monkeypatch):
    path, folder = bucket
    run = begin(path / "run")
    save(run, 2)
    with monkeypatch.context() as patched:

        def full(self, *_):
            raise OSError(28, "No space left on device", "file:///x")

        for name in ("upload", "put"):
            patched.setattr(Store, name, full)
        with pytest.raises(OSError, match="No space"):
            save(run, 4)
    machine("here")
    again = RunFolder.at(path / "run", resume=True)
    assert again.newest().name == "step-4"
    machine("there")
    assert RunFolder.at(path / "run", resume=True).newest().name == "step-2"
    machine("here")
    RunFolder.at(path / "run", resume=True).mirror()
    assert (folder / "run" / "checkpoints" / "step-4" / "manifest.json").exists()


def test_a_run_that_was_removed_from_the_store_begins_anew(bucket, machine):
    path, folder = bucket
    story(path / "run")
    (folder / "run").rename(folder / "other")
    machine("here")
    run = RunFolder.at(path / "run", resume=True)
    assert run.newest() is None and not (run.path / "config.yaml").exists()
    (folder / "run").mkdir()
    save(begin(path / "run"), 1)
    machine("there")
    story(path / "run2")
    (folder / "run").rename(folder / "gone")
    (folder / "run2").rename(folder / "run")
    machine("here")  # another run has the address now
    assert RunFolder.at(path / "run", resume=True).steps() == [6]


def test_a_reader_gets_the_best_checkpoint_without_the_optimizer(bucket, machine):
    path, folder = bucket
    run = begin(path / "run")
    with pytest.raises(CheckpointError, match="file:.*/run"):
        run.mirror()
        with hold_checkpoint(path / "run"):
            raise AssertionError
    save(run, 2)
    save(run, 4, best=2)
    for name, step in {"run": 2, "run/best": 2, "run/last": 4, "run/checkpoints/step-4": 4}.items():
        machine("there")
        with hold_checkpoint(path / name) as found:
            assert (found / "model.safetensors").read_text() == f"model.safetensors of {step}"
            size = len(f"{OPTIMIZER} of {step}")
            assert (found / OPTIMIZER).read_bytes() == bytes(size)
    machine("elsewhere")
    (folder / "run" / "checkpoints" / "step-2" / "model.safetensors").write_text("altered")
    with pytest.raises(CheckpointError, match="model.safetensors"), hold_checkpoint(path / "run"):
        raise AssertionError


def test_the_index_says_where_links_lead(bucket):
    path, folder = bucket
    save(begin(path / "run"), 2)
    index = json.loads((folder / "run" / "remote.json").read_text())
    assert index["links"] == {"best": "checkpoints/step-2", "last": "checkpoints/step-2"}
