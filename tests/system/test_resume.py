"""A run that was stopped after any of its updates ends as if it had not been.

`whole` keeps the checkpoint of each of its updates; `chain` is stopped after every one of them and
resumed. Each checkpoint of the chain must be the whole run's, bit for bit, and whatever continues
from one of them must end like the whole run: log, weights and optimizer.
"""

import json
import random
import shutil

import numpy as np
import pytest

from unitk import registry
from unitk.training import loop
from unitk.training.reporting.sinks import read_events
from unitk.training.saving.state import read_state

SPEED = {"seconds", "tokens/s", "slots/s", "wait", "padding"}
"""What is measured since the last log line or start."""
PROGRESS = ("step", "epoch", "cursor", "tokens", "texts", "bad_steps", "means")


def events(folder):
    """All events of a run, but for their speed."""
    found = read_events(folder / "log.jsonl")
    return [{name: value for name, value in one.items() if name not in SPEED} for one in found]


def content(folder):
    """What a checkpoint holds: checksums of its tensors, and how far the run was."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    state = json.loads((folder / "state.json").read_text())
    tensors = [files[f"{name}.safetensors"]["sha256"] for name in ("model", "optim")]
    return tensors, [state[name] for name in PROGRESS]


def step(folder, number):
    return folder / "checkpoints" / f"step-{number}"


def check_stops(runs, tmp_path, words, steps, tails):
    """Stop after each update; continue to the end from those in `tails`."""
    words += f" --max-steps {steps} --log-every 3 --keep-last 99"
    whole, chain = tmp_path / "whole", tmp_path / "chain"
    runs.train(f"{words} --save-every 1", whole)
    for stop in range(1, steps):
        runs.train(f"{words} --save-every 999", chain, stop)
        assert content(step(chain, stop)) == content(step(whole, stop)), stop
        if stop in tails:
            shutil.copytree(chain, tail := tmp_path / f"tail-{stop}", symlinks=True)
            runs.train(f"{words} --save-every 999", tail)
            assert content(tail / "last") == content(step(whole, steps)), stop
            assert events(tail) == events(whole), stop
            shutil.rmtree(tail)
    runs.train(words, chain)
    assert content(chain / "last") == content(step(whole, steps))
    assert events(chain) == events(whole)


WHOLE = ("contrastive",)
"""Tasks that compare the texts of an update, which is one micro-batch."""


def how(precision, micro_batches, task=""):
    """Options of an update of one or of about four micro-batches."""
    micro_batches = 1 if task in WHOLE else micro_batches
    return f" --precision {precision} --batch-tokens 160 --max-tokens {160 // micro_batches}"


@pytest.mark.every(8)
@pytest.mark.parametrize("task", registry.names("task"))
def test_a_run_stopped_after_any_of_a_few_updates_ends_alike(runs, tmp_path, task):
    words = runs.words(task) + how("fp32", 2, task) + " --valid-every 2"
    check_stops(runs, tmp_path, words, steps=4, tails=[2])


WAYS = [("fp32", 1, "ahead"), ("fp32", 4, "ahead"), ("bf16", 1, "ahead"), ("bf16", 4, "ahead")]


@pytest.mark.slow
@pytest.mark.parametrize("precision, micro_batches, fetched", [*WAYS, ("fp32", 4, "when asked")])
@pytest.mark.parametrize("task", registry.names("task"))
def test_a_run_stopped_after_any_of_59_updates_ends_alike(
    runs, tmp_path, monkeypatch, task, precision, micro_batches, fetched
):
    """All 59 stops of a run of 60 updates; two of them continue to the end, for GLM once all."""
    if fetched == "when asked":
        monkeypatch.setattr(loop, "prefetch", lambda updates: updates)
    words = runs.words(task) + how(precision, micro_batches, task) + " --valid-every 25"
    every = (task, precision, micro_batches, fetched) == ("glm_infill", *WAYS[1])
    tails = range(1, 60) if every else random.Random(task).sample(range(1, 60), 2)
    check_stops(runs, tmp_path, words, 60, tails)


SHARE = "--task.mask-ratio linear:value=0.3,floor=0.5"
BLOCKS = "--blocks stream --block-size constant:value=48,warmup=3 --max-epochs 4"


@pytest.mark.every(2)
@pytest.mark.parametrize("fetched", ["ahead", pytest.param("when asked", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "task, schedule",
    [
        ("mlm", SHARE),
        ("lm", BLOCKS),
        pytest.param("glm_infill", SHARE, marks=pytest.mark.slow),
        pytest.param("mlm", BLOCKS, marks=pytest.mark.slow),
    ],
)
def test_shares_and_block_sizes_by_schedule(runs, tmp_path, monkeypatch, task, schedule, fetched):
    """Stopped within epochs and at their ends."""
    if fetched == "when asked":
        monkeypatch.setattr(loop, "prefetch", lambda updates: updates)
    words = runs.words(task)
    if schedule is BLOCKS:
        words = words.replace(" --block-size 64", "").replace(" --blocks line", "")
    words += f" {schedule} --precision fp32 --batch-tokens 1200 --max-tokens 600 --valid-every 4"
    check_stops(runs, tmp_path, words, steps=7, tails=[3])
    states = (read_state(step(tmp_path / "whole", number)) for number in range(1, 8))
    at = [(state["epoch"], state["cursor"]) for state in states]
    assert {epoch for epoch, _ in at} >= {0, 1} and 0 in {cursor for _, cursor in at}


@pytest.mark.parametrize(
    "batch", ["--batch-tokens 160", pytest.param("--batch-texts 3", marks=pytest.mark.slow)]
)
def test_every_example_once_however_often_an_epoch_is_stopped(runs, tmp_path, batch):
    """20 stops in an epoch; each time with another size of micro-batches."""
    words = f"{runs.words('glm_infill')} --precision fp32 {batch} --max-epochs 1 --valid none"
    whole = runs.train(f"{words} --max-tokens 160", tmp_path / "whole")
    chance, seen = random.Random(5), []
    for stop in [*sorted(chance.sample(range(1, len(whole)), 20)), 0]:
        size = chance.choice([40, 80, 160])
        seen += runs.train(f"{words} --max-tokens {size}", tmp_path / "run", stop)
    assert [update.ids.tolist() for update in seen] == [update.ids.tolist() for update in whole]
    assert sorted(np.concatenate([update.ids for update in seen])) == list(range(200))
