"""Checkpoints that were damaged or crafted: each is named, and nothing in them is executed."""

import os
import pickle
import random
import shutil

import pytest
import torch

from unitk.errors import UnitkError
from unitk.files import damage, seal
from unitk.training import loop
from unitk.training.saving.checkpoint import load
from unitk.training.saving.folder import RunFolder, pass_over
from unitk.training.saving.snapshot import restore
from unitk.training.start import parse_train, prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(toy_data, tmp_path_factory):
    """A run with checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("run") / "run"
    words = (
        "--task glm_infill --arch glm_tiny --blocks line --block-size 64 --max-tokens 400"
        f" --max-steps 2 --save-every 1 --data {toy_data / 'text'} --save-dir {folder}"
        " --valid none --writers none"
    )
    loop.train(prepare(parse_train(words.split())))
    return RunFolder(folder)


def flip(path, chance):
    raw = bytearray(path.read_bytes())
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    path.write_bytes(raw)


def shorten(path, chance):
    os.truncate(path, chance.randrange(path.stat().st_size))


def zero(path, chance):
    path.write_bytes(bytes(path.stat().st_size))


def remove(path, chance):
    path.unlink()


def test_none_of_400_damaged_checkpoints_is_taken(run, tmp_path, caplog):
    chance = random.Random(1)
    whole = tmp_path / "whole"
    shutil.copytree(run.step(2), whole)
    for number in range(400):
        shutil.rmtree(run.step(2))
        shutil.copytree(whole, run.step(2))
        files = sorted(path for path in run.step(2).rglob("*") if path.is_file())
        path = chance.choice(files)
        [flip, shorten, zero, remove][number % 4](path, chance)
        caplog.clear()
        pass_over.cache_clear()  # what is damaged in the same way is told once
        assert run.newest() == run.step(1), f"{number}: {path} passed for good"
        assert path.name in damage(run.step(2))
        assert str(run.step(2)) in caplog.text and "is passed over" in caplog.text
    shutil.rmtree(run.step(2))
    shutil.copytree(whole, run.step(2))
    assert run.newest() == run.step(2)


class Payload:
    """What runs a command when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def crafted(mark):
    """Ways to write the payload into a file."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield lambda path, p=protocol: path.write_bytes(pickle.dumps(Payload(mark), p))
    yield lambda path: torch.save(Payload(mark), path)
    yield lambda path: torch.save({"w": Payload(mark)}, path, _use_new_zipfile_serialization=False)
    yield lambda path: path.write_bytes(
        len(body := pickle.dumps(Payload(mark))).to_bytes(8, "little") + body
    )


def test_crafted_pickles_execute_nothing(run, tmp_path):
    """The manifest is made to hold: whoever crafts a file can do that too."""
    mark, tried = tmp_path / "executed", 0
    for name in ("model.safetensors", "optim.safetensors", "state.json", "vocab/vocab.json"):
        for write in crafted(mark):
            folder = tmp_path / f"{tried}"
            shutil.copytree(run.step(2), folder)
            write(folder / name)
            (folder / "manifest.json").unlink()
            seal(folder)
            if name != "optim.safetensors":
                with pytest.raises(UnitkError):
                    load(folder)
            try:
                again = parse_train(f"{words_of(run)} --init-from {folder}".split())
                trainer = loop.Trainer(prepare(again))
                restore(folder, trainer.model, trainer.plan.optimizers, None, trainer.ranks)
            except UnitkError:
                pass
            tried += 1
    assert tried >= 25 and not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists()  # the payload is one


def words_of(run):
    data = next(
        line.split(": ")[1].split("  #")[0]
        for line in (run.path / "config.yaml").read_text().splitlines()
        if line.startswith("data:")
    )
    return (
        f"--task glm_infill --blocks line --block-size 64 --max-tokens 400 --max-steps 2"
        f" --data {data} --save-dir {run.path.parent / 'other'} --valid none --writers none"
    )
