"""Checkpoints of small models with random weights."""

import pytest
import torch

from unitk.files import seal
from unitk.formats.base import write_model
from unitk.options.config import parse
from unitk.training.saving.state import Identity
from unitk.training.start import TrainConfig
from unitk.verbs.generate import run

SMALL = "--arch.num-layers 2 --arch.width 32 --arch.num-heads 2 --arch.ffn-width 64"
SMALL += " --arch.max-positions 64 --arch.init-std 0.2"


@pytest.fixture(scope="session")
def make_checkpoint(toy_vocab, tmp_path_factory):
    def make(task, arch, more="", seed=0, small=SMALL):
        words = f"--data x --save-dir x --max-steps 1 --task {task} --arch {arch} {small} {more}"
        parsed = parse("train", TrainConfig, words.split(), ("task", "arch"))
        torch.manual_seed(seed)
        model = parsed.components["arch"].config.build(len(toy_vocab))
        path = tmp_path_factory.mktemp("runs") / "step-1"
        path.mkdir()
        identity = Identity(parsed.settings.texts, None, "data", toy_vocab.hash, "text")
        made = parsed.components["task"].made_from(parsed.components["task"].config, toy_vocab)
        write_model(path, model, identity, made)
        seal(path)
        return path

    return make


@pytest.fixture
def files(request, tmp_path, monkeypatch):
    """The folder that is the current one; its in.txt has the LINES of the module."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("\n".join(request.module.LINES) + "\n")
    return tmp_path


@pytest.fixture
def decode(trained, files):
    """`decode("--input in.txt", "a text")`: `unitk generate` with the module's model."""

    def go(line, *more, path=trained):
        run(["--checkpoint", str(path), *line.split(), *more])

    return go
