"""What a checkpoint may do: no code runs, only listed files are read, and damage is one line."""

import errno
import json
import os
import shutil
import threading

import pytest

import unitk
from unitk import files
from unitk.api.verb import find_verb
from unitk.errors import CheckpointError, UsageError
from unitk.files import MANIFEST, seal
from unitk.training.saving import checkpoint, folder
from unitk.training.saving.folder import RunFolder
from unitk.training.saving.state import read_state


@pytest.fixture(scope="module")
def trained(make_checkpoint):
    return make_checkpoint("lm", "gpt2_tiny", "--block-size 32")


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of a checkpoint, in the folder that is the current one."""
    shutil.copytree(trained, tmp_path / "model")
    return tmp_path / "model"


def change(path, **values):
    """Another state.json under a manifest that holds."""
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | values))
    (path / MANIFEST).unlink()
    seal(path)
    return state


def verbs(path, tmp_path, toy_data):
    (tmp_path / "in.txt").write_text("the cat\n")
    yield f"generate --checkpoint {path} --input {tmp_path}/in.txt --max-len 1"
    yield f"evaluate --checkpoint {path} --data {toy_data}/text"
    yield f"convert --from unitk {path} --to hf {tmp_path}/hf"
    yield f"average --checkpoint {path} --checkpoint {path} --dest {tmp_path}/mean"
    yield f"preprocess --input {tmp_path}/in.txt --vocab {path} --dest {tmp_path}/corpus"
    run = (
        f"--save-dir {tmp_path}/run --block-size 32 --max-steps 1 --max-tokens 64 --batch-tokens 64"
    )
    yield f"train --data {toy_data}/text --init-from {path} --task lm {run}"


@pytest.mark.parametrize("user_dir", ["evil", "."])
def test_a_checkpoint_never_decides_which_code_runs(
    copy, tmp_path, toy_data, monkeypatch, user_dir
):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "x.py").write_text("open('OWNED', 'w')")
    monkeypatch.chdir(tmp_path / ("evil" if user_dir == "." else "."))
    change(copy, user_dir=user_dir)
    for line in verbs(copy, tmp_path, toy_data):
        name, *words = line.split()
        find_verb(name)(words)
    unitk.load(copy)
    assert not list(tmp_path.rglob("OWNED"))


PLUGIN = """
from unitk.registry import register
from unitk.tasks.lm import LM

@register("task", "their_own")
class TheirOwn(LM):
    pass
"""


def test_a_checkpoint_that_needs_a_plug_in_names_it(copy, tmp_path, toy_data, own_registry):
    state = json.loads((copy / "state.json").read_text())
    for name in ("theirs", "for_load"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(PLUGIN.replace("their_own", f"{name}_own"))
    change(copy, config=state["config"] | {"task": "for_load_own"})
    with pytest.raises(UsageError, match="no task 'for_load_own'"):
        unitk.load(copy)
    unitk.load(copy, user_dir=tmp_path / "for_load").generate(["the cat"], max_len=2)
    config = state["config"] | {"task": "theirs_own"}
    change(copy, config=config, user_dir=str(tmp_path / "theirs"))
    generate, evaluate, convert, average, *_ = verbs(copy, tmp_path, toy_data)
    for line in (generate, evaluate, convert):
        name, *words = line.split()
        with pytest.raises(UsageError, match="no task 'theirs_own'.*give --user-dir .*trust"):
            find_verb(name)(words)
    find_verb("average")(average.split()[1:])  # builds no model
    for line in (generate, evaluate):
        name, *words = line.split()
        find_verb(name)([*words, "--user-dir", str(tmp_path / "theirs")])


def test_files_beside_the_manifest_are_not_read(copy, trained, make_checkpoint, tmp_path):
    other = make_checkpoint("lm", "gpt2_tiny", seed=1)
    shutil.copy(other / "model.safetensors", copy / "ema.safetensors")
    shutil.copytree(other / "vocab", copy / "source_vocab")
    (copy / "imported.json").write_text("{")
    texts = ["the cat", "a dog"]
    found, expected = (
        [one.text for (one,) in unitk.load(path).generate(texts, beam=2, max_len=4)]
        for path in (copy, trained)
    )
    assert found == expected
    find_verb("average")(f"--checkpoint {copy} {copy} --dest {tmp_path}/mean".split())
    listed = json.loads((tmp_path / "mean" / MANIFEST).read_text())["files"]
    own = json.loads((trained / MANIFEST).read_text())["files"]
    assert listed.keys() == own.keys()
    assert listed["model.safetensors"] == own["model.safetensors"]
    find_verb("convert")(f"--from unitk {copy} --to hf {tmp_path}/hf".split())


def test_using_a_model_reads_no_optimizer(copy, monkeypatch):
    size = (copy / "optim.safetensors").stat().st_size
    (copy / "optim.safetensors").write_bytes(bytes(size))
    unitk.load(copy)
    with pytest.raises(CheckpointError, match="damaged: 1"):
        run = RunFolder(copy.parent / "run")
        run.checkpoints.mkdir(parents=True)
        copy.rename(run.step(1))
        run.newest()  # which is what a run goes on from


@pytest.mark.parametrize(
    "values",
    [
        {"config": None}, {"config": []}, {"config": {}}, {"config": {"task": 1, "arch": "x"}},
        {"user_dir": []}, {"user_dir": 1}, {"vocab": None}, {"data": 7}, {"optimizer": []},
    ],
)  # fmt: skip
def test_altered_states_are_one_line(copy, values):
    change(copy, **values)
    with pytest.raises(CheckpointError, match=r"state.json is damaged") as caught:
        unitk.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{}", "\xff", '{"a": 1' + "}" * 3])
@pytest.mark.parametrize("name", ["state.json", "vocab/vocab.json"])
def test_altered_json_is_one_line(copy, name, text):
    (copy / name).write_bytes(text.encode("latin-1"))
    (copy / MANIFEST).unlink()
    seal(copy)
    with pytest.raises(unitk.errors.UnitkError, match=name) as caught:
        unitk.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "vocab/vocab.json"])
def test_what_a_manifest_must_list(copy, name):
    (copy / name).unlink()
    (copy / MANIFEST).unlink()
    seal(copy)
    with pytest.raises(CheckpointError, match=f"has no {name} .*manifest"):
        unitk.load(copy)


def saves(trained, run, step):
    """What a trainer does whenever it saves: one more checkpoint, and none but it is kept."""
    run.publish(step, lambda part: shutil.copytree(trained, part, dirs_exist_ok=True))
    run.link("last", step)
    run.link("best", step)
    run.prune(1, best=[step])


@pytest.fixture
def run(trained, tmp_path):
    """A run that has saved the same checkpoint as that of step 1."""
    made = RunFolder(tmp_path / "run")
    made.create("")
    saves(trained, made, 1)
    return made


PLACES = [(folder, "damage"), (checkpoint, "read_state"), (checkpoint, "load_weights")]


@pytest.mark.parametrize(("place", "name"), PLACES)
@pytest.mark.parametrize("locks", [True, False])
def test_what_is_read_stays_until_it_is_read(trained, run, monkeypatch, place, name, locks):
    """On a disk without locks it does not, and the next one is read."""
    real = getattr(place, name)
    steps = iter(range(2, 20))

    def slow(*given, **more):
        if (step := next(steps)) < 4:
            saves(trained, run, step)
        return real(*given, **more)

    def refuses(*_):
        raise OSError(errno.ENOLCK, "no locks")

    if not locks:
        monkeypatch.setattr(files.fcntl, "flock", refuses)
    monkeypatch.setattr(place, name, slow)
    found = checkpoint.load(run.path).path
    assert found in [run.step(step) for step in ((1,) if locks else (1, 2, 3))]
    assert found.exists()
    saves(trained, run, 9)
    assert run.steps() == [9]  # nothing holds it any more


def test_damage_is_not_waited_for(run):
    os.remove(run.step(1) / "state.json")
    with pytest.raises(CheckpointError, match="state.json of manifest.json is missing"):
        checkpoint.load(run.path / "best")


@pytest.mark.parametrize("name", ["", "best", "last"])
def test_a_hundred_readers_of_a_run_that_saves_all_the_time_are_served(trained, run, name):
    """As a run with --keep-last 1 that saves as fast as the disk allows."""
    over = threading.Event()

    def train():
        step = 2
        while not over.is_set():
            saves(trained, run, step)
            step += 1

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        for _ in range(100):
            with folder.hold_checkpoint(run.path / name) as found:
                assert "step" in read_state(found) and (found / "model.safetensors").exists()
    finally:
        over.set()
        trainer.join()
    assert run.newest() == run.step(run.steps()[0])


def test_a_process_keeps_what_it_found(trained, run):
    """As --init-from, which is read long after it was found."""
    found = folder.find_checkpoint(run.path)
    assert folder.find_checkpoint(run.path / "best") == found == run.step(1).resolve()
    saves(trained, run, 2)
    assert found.exists() and run.steps() == [2, 1]
    folder._held.pop(found).close()
    saves(trained, run, 3)
    assert run.steps() == [3]
