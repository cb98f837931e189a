"""A run folder holds whole checkpoints, whenever a process is killed."""

import errno
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from unitk import files
from unitk.errors import CheckpointError, UsageError, refusal
from unitk.files import MANIFEST, damage
from unitk.training.saving import saver
from unitk.training.saving.folder import DAMAGED, RunFolder, find_checkpoint
from unitk.training.saving.saver import Saver


def fill(text="good"):
    def write(folder):
        (folder / "model").write_text(text * 50)
        (folder / "vocab").mkdir()
        (folder / "vocab" / "pieces").write_text("a b c")

    return write


@pytest.fixture
def run(tmp_path):
    """A run with good checkpoints of steps 5, 10 and 15, the best being 5."""
    folder = RunFolder(tmp_path / "run")
    folder.create("")
    for step in (5, 10, 15):
        folder.publish(step, fill(str(step)))
    folder.link("last", 15)
    folder.link("best", 5)
    return folder


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def harm(checkpoint, how):
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    path = how.choice(files)
    kind = how.choice(["flip", "truncate", "delete", "zero"])
    size = path.stat().st_size
    if kind == "flip":
        flip(path, how.randrange(size * 8))
    elif kind == "truncate":
        os.truncate(path, how.randrange(size))
    elif kind == "delete":
        path.unlink()
    else:
        path.write_bytes(bytes(size))
    return path, kind


def test_what_was_published_is_whole(run):
    assert run.steps() == [15, 10, 5]
    assert damage(run.step(15)) is None
    assert set(json.loads((run.step(5) / MANIFEST).read_text())["files"]) == {
        "model",
        "vocab/pieces",
    }
    assert run.newest() == run.step(15)
    assert find_checkpoint(run.path) == find_checkpoint(run.path / "best") == run.step(5)
    assert find_checkpoint(run.path / "last") == find_checkpoint(run.step(15)) == run.step(15)


@pytest.mark.parametrize("seed", range(100))
def test_any_damage_is_found_and_named_and_the_one_before_taken(run, caplog, seed):
    path, kind = harm(run.step(15), random.Random(seed))
    assert damage(run.step(15)) is not None, (path, kind)
    assert run.newest() == run.step(10)
    assert str(run.step(15)) in caplog.text and path.name in caplog.text
    with pytest.raises(CheckpointError, match=path.name):
        find_checkpoint(run.step(15))


@pytest.mark.parametrize("harmed", [MANIFEST, "model"])
@pytest.mark.parametrize("instead", [lambda path: path.symlink_to(path.name), Path.mkdir])
def test_a_file_that_cannot_be_read_is_damage(run, harmed, instead):
    (path := run.step(15) / harmed).unlink()
    instead(path)
    assert run.newest() == run.step(10)
    with pytest.raises(CheckpointError, match=harmed):
        find_checkpoint(run.step(15))


def test_a_damaged_best_falls_back_to_the_newest(run, caplog):
    (run.step(5) / "model").unlink()
    assert find_checkpoint(run.path) == run.step(15)
    assert "step-5 is damaged (model of manifest.json" in caplog.text


def test_nothing_good_is_an_error(run, tmp_path):
    for step in run.steps():
        (run.step(step) / "model").unlink()
    with pytest.raises(CheckpointError, match="no good checkpoint; damaged: 3"):
        run.newest()
    empty = RunFolder(tmp_path / "empty")
    empty.create("")
    assert empty.newest() is None
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        find_checkpoint(empty.path)
    (tmp_path / "file").touch()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "bert_config.json").touch()  # as BERT of 2018 has one
    bare = "has no checkpoints/ and no manifest.json"
    for name, what in (("file", "is a file"), ("bare", bare), ("bert", bare)):
        hint = "" if name == "bare" else "; `unitk convert` reads"
        with pytest.raises(CheckpointError, match=f"{name} .*no run.*checkpoint.* {what}{hint}"):
            find_checkpoint(tmp_path / name)
    with pytest.raises(CheckpointError, match="checkpoints .*; .*empty$"):
        find_checkpoint(empty.path / "checkpoints")
    with pytest.raises(CheckpointError, match="nowhere: there .*no .*run.*checkpoint"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="name one, such as .*empty"):
        find_checkpoint(tmp_path)
    (run.path / "gone").symlink_to("checkpoints/step-99")
    with pytest.raises(CheckpointError, match="its checkpoint.*gone"):
        find_checkpoint(run.path / "gone")


def test_a_failed_write_leaves_what_was_there(run):
    def full(folder):
        fill()(folder)
        raise OSError(28, "No space left on device")

    before = sorted(run.checkpoints.rglob("*"))
    with pytest.raises(OSError, match="No space"):
        run.publish(20, full)
    assert sorted(run.checkpoints.rglob("*")) == before
    assert run.newest() == run.step(15)


def test_what_a_killed_process_left_is_removed(run):
    left = run.checkpoints / ".tmp-step-20-77"
    left.mkdir()
    fill()(left)
    assert run.newest() == run.step(15)
    run.create("")
    assert not left.exists() and run.steps() == [15, 10, 5]


def test_pruning_keeps_the_newest_and_the_best(run):
    run.prune(1, best=[5])
    assert run.steps() == [15, 5]
    run.prune(5, best=[])
    assert run.steps() == [15, 5]
    run.prune(1, best=[])
    assert run.steps() == [15]


def test_other_names_are_no_steps(run):
    steps = run.steps()
    for name in ("step-007", "step-\u00b2", "step-\u0663", "step-x", "step-"):
        (run.checkpoints / name).mkdir()
    assert run.steps() == steps and run.newest() == run.step(steps[0])


def test_a_link_to_nothing_is_no_save_dir(tmp_path):
    for name, target in (("gone", "nowhere"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(UsageError, match=f"/{name}: "):
            RunFolder(tmp_path / name).check(resume=False)


def test_links_change_in_place_and_go_with_their_checkpoint(run):
    run.link("best", 10)
    assert os.readlink(run.path / "best") == "checkpoints/step-10"
    run.link("best", 99)
    assert not (run.path / "best").is_symlink()
    run.link("best", None)


def test_going_back_puts_later_checkpoints_aside(run):
    run.rewind(5)
    assert run.steps() == [5]
    assert (run.checkpoints / f"{DAMAGED}step-15").is_dir()
    run.publish(15, fill("anew"))
    run.rewind(5)
    assert run.steps() == [5]


@pytest.mark.parametrize("mark", ["config.yaml", "log.jsonl", "checkpoints/step-1/state.json"])
def test_a_used_folder_needs_resume(tmp_path, mark):
    folder = RunFolder(tmp_path / "run")
    folder.check(resume=False)
    folder.path.mkdir()
    folder.check(resume=False)
    (folder.path / mark).parent.mkdir(parents=True, exist_ok=True)
    (folder.path / mark).write_text("{}")
    with pytest.raises(UsageError, match="holds a run: --resume"):
        folder.check(resume=False)
    folder.check(resume=True)


def test_a_run_that_failed_before_its_first_update_can_be_repeated(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create("task: lm")
    (folder.path / "log.jsonl").touch()
    folder.check(resume=False)
    folder.create("task: mlm")
    assert (folder.path / "config.yaml").read_text() == "task: mlm"


@pytest.mark.parametrize("place", ["train", "train/source", "."])
def test_a_run_is_not_written_into_a_corpus_or_a_checkpoint(tmp_path, place):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "manifest.json").touch()
    with pytest.raises(UsageError, match="holds .*corpus.*checkpoint"):
        RunFolder(tmp_path).check(resume=False)
    RunFolder(tmp_path / "run").check(resume=False)


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file: .*folder"):
        RunFolder(tmp_path / "file" / "run").check(resume=False)
    with pytest.raises(OSError):
        RunFolder(tmp_path / "file" / "run").create("")


def test_a_checkpoint_that_was_moved_and_linked_is_kept_where_it_is(run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    for step in (5, 10):
        run.step(step).rename(disk / str(step))
        run.step(step).symlink_to(disk / str(step))
    before = sorted(path.relative_to(disk) for path in disk.rglob("*"))
    run.prune(1, [], [10])
    assert sorted(path.relative_to(disk) for path in disk.rglob("*")) == before
    assert 5 not in run.steps() and 10 in run.steps()
    assert not [path for path in run.checkpoints.iterdir() if path.name.startswith(".")]


def test_a_link_that_a_killed_process_left_is_removed(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    left = run.checkpoints / ".tmp-old-step-4"
    left.symlink_to(tmp_path / "elsewhere")
    run.create("")
    assert not left.is_symlink() and (tmp_path / "elsewhere" / "file").exists()


def test_what_cannot_be_removed_is_no_checkpoint_that_was_not_saved(run, monkeypatch, caplog):
    def refuses(*_):
        raise PermissionError(13, "Permission denied", "step-5")

    own = Saver(run, 1)
    monkeypatch.setattr(files, "move", refuses)
    monkeypatch.setattr(saver, "write", lambda path, snapshot: fill()(path))
    own.save(SimpleNamespace(step=20, publish=None), best=[20], named={})
    own.finish()
    assert own.failed() == 0 and 20 in run.steps()
    assert "step-5: Permission" in caplog.text


def test_the_reason_of_a_disk_is_told_without_numbers(tmp_path):
    """Nor with the name of a temporary file: the file that it was to become is named."""
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(OSError) as caught:
        RunFolder(tmp_path).create("task: lm\n")
    assert refusal(caught.value) == f"{tmp_path / 'config.yaml'}: {os.strerror(errno.EISDIR)}"
    full = os.strerror(errno.ENOSPC)
    assert refusal(OSError(errno.ENOSPC, full)) == full
