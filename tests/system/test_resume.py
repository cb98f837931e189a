"""A run that was stopped after any of its updates ends as if it had not been."""

import random
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from unitk.train import loop
from unitk.train.sinks import read_events
from unitk.train.start import parse_train, prepare

pytestmark = pytest.mark.slow
STEPS = 60
ARCHS = {"glm_infill": "glm_tiny", "mass": "mass_tiny", "pmlm": "unilm2_tiny", "mlm": "bert_tiny"}
SAME = ("step", "train/loss", "valid/loss", "gnorm", "lr", "tokens", "texts")


def run(words, folder, stop=None, monkeypatch=None):
    """Train; with `stop` until that update is saved."""
    with monkeypatch.context() as patch:
        if stop is not None:
            end = loop.Trainer.end
            patch.setattr(
                loop.Trainer,
                "end",
                lambda self: "stopped" if self.progress.step == stop else end(self),
            )
        loop.train(prepare(parse_train([*words.split(), f"--save-dir={folder}", "--resume"])))


def events(folder):
    found = read_events(folder / "log.jsonl")
    # a stopped run validates and logs where it stops
    return {
        (event["kind"], event["step"]): [event.get(name) for name in SAME]
        for event in found
        if event["kind"] == "train" or event["step"] % 20 == 0
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("max_tokens", [800, 200])
@pytest.mark.parametrize("task", list(ARCHS))
def test_stopped_after_any_update(toy_data, tmp_path, monkeypatch, task, max_tokens, precision):
    """GLM after every one of 59, the others after six; accumulation 1 and about 4."""
    words = (
        f"--task {task} --arch {ARCHS[task]} --arch.dropout 0.1 --blocks line --block-size 64"
        f" --max-tokens {max_tokens} --batch-tokens 800 --precision {precision} --lr 1e-2"
        f" --log-every 1 --valid-every 20 --save-every 999 --max-steps {STEPS} --writers none"
        f" --data {toy_data / 'text'}"
    )
    train = partial(run, words, monkeypatch=monkeypatch)
    train(tmp_path / "whole")
    every = task == "glm_infill" and max_tokens == 200 and precision == "fp32"
    stops = range(1, STEPS) if every else random.Random(1).sample(range(1, STEPS), 6)
    for stop in stops:
        train(tmp_path / str(stop), stop=stop)
        train(tmp_path / str(stop))
        assert events(tmp_path / str(stop)) == events(tmp_path / "whole"), stop
        one, other = (
            load_file(tmp_path / name / "last" / "model.safetensors")
            for name in (str(stop), "whole")
        )
        assert all(torch.equal(one[name], other[name]) for name in other), stop
