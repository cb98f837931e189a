"""What a model carries from update to update over stateful rows."""

import json

import pytest
import torch
from ranks import run_ranks
from recurrent import RecurrentConfig
from safetensors.torch import load_file

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.errors import UsageError
from unitk.slots import BORN, NEVER
from unitk.training import loop
from unitk.training.start import parse_train, prepare

ROWS = 4
FILES = ("model.safetensors", "optim.safetensors", "carry.safetensors")


@pytest.fixture
def words(toy_data, monkeypatch):
    """`words(run, "--max-steps 3")`: the options of a run of the recurrent network."""
    monkeypatch.setitem(registry._entries["arch"], "recurrent", RecurrentConfig)
    monkeypatch.setitem(registry._places, ("arch", "recurrent"), "tests/recurrent.py:1")

    def make(run, more="", rows=ROWS):
        text = (
            f"--task lm --arch recurrent --arch.dropout 0 --data {toy_data / 'text'}"
            f" --save-dir {run} --blocks stream --block-size 24 --stateful-rows {rows} --lr 1e-2"
            " --lr-schedule constant --precision fp32 --products torch --valid none --log-every 1"
            f" --writers none --threads 1 --rank-timeout 30 {more}"
        )
        flags = dict(pairwise_options(text))
        return [f"{name}={value}" for name, value in flags.items()]

    return make


def pairwise_options(text):
    """Options with their values; the last one of a name counts, as in a dictionary."""
    for option in text.split(" --"):
        name, _, value = option.removeprefix("--").partition(" ")
        yield f"--{name}", value or "on"


def train(words):
    loop.train(prepare(parse_train(words)))


def sums(run, step):
    files = json.loads((run / "checkpoints" / f"step-{step}" / "manifest.json").read_text())
    return [files["files"][name]["sha256"] for name in FILES]


def losses(run):
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [event["train/loss"] for event in events if "train/loss" in event]


def test_updates_over_rows_are_one_long_pass(words, tmp_path):
    """With weights that stay, the losses are those of each row's texts read in one go."""
    train(words(tmp_path / "run", "--max-steps 4 --lr 1e-30"))
    trainer = loop.Trainer(prepare(parse_train(words(tmp_path / "again", "--max-steps 4"))))
    model, criterion = trainer.model, CrossEntropy()
    state = torch.zeros(ROWS, model.config.width)
    before = state.clone()
    updates = trainer.feed.updates()
    for number, found in enumerate(losses(tmp_path / "run")):
        update = next(updates)
        [batch] = [one.to("cpu") for one in update.batches]
        assert update.begins == (number == 0)
        # row r has the r-th part of the texts: update u reads the text u of each
        assert update.ids.tolist() == [r * trainer.per_epoch + number for r in range(ROWS)]
        with torch.no_grad():
            x = model.decoder.embed(batch.towers["x"])
            for t in range(x.shape[1]):
                real = batch.towers["x"][BORN, :, t] < NEVER
                state[real] = model.next(state[real], x[real, t])
            alone = criterion(model, batch, 0, None).sums["lm"] / batch.count["lm"]
            batch.carry["state"] = before
            whole = criterion(model, batch, 0, None).sums["lm"] / batch.count["lm"]
        assert found == pytest.approx(float(whole), rel=1e-5)
        assert not number or abs(found - float(alone)) > 1e-4
        before = state.clone()
    carried = load_file(tmp_path / "run" / "last" / "carry.safetensors")["state"]
    assert torch.allclose(carried, state, atol=1e-6)


def test_stopped_and_resumed_is_uninterrupted(words, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(words(whole, "--max-steps 40 --save-every 1 --keep-last 99"))
    epoch = [
        json.loads((whole / "checkpoints" / f"step-{step}" / "state.json").read_text())["epoch"]
        for step in range(1, 41)
    ]
    new = epoch.index(1) + 1  # the update after this one begins an epoch, with nothing carried
    for stop in (2, 3, new, new + 1, 40):
        train(words(parts, f"--max-steps {stop} --resume --keep-last 99"))
        assert sums(parts, stop) == sums(whole, stop), stop
    assert losses(parts) == losses(whole)
    first, second = (load_file(whole / "checkpoints" / f"step-{s}" / FILES[2]) for s in (2, 3))
    assert (first["state"] != second["state"]).all() and len(first["state"]) == ROWS


@pytest.mark.parametrize("micro", [1, 2])
def test_two_ranks_are_one_run_and_continue_as_one(words, tmp_path, micro):
    more = f"--max-tokens {32 * ROWS // 2 // micro} --max-steps"
    for world in (1, 2):
        run = tmp_path / str(world)
        assert set(run_ranks(" ".join(words(run, f"{more} 5")), world)) == {0}
    # what the other number of ranks left is taken up
    for world in (1, 2):
        run = tmp_path / str(3 - world)
        assert set(run_ranks(" ".join(words(run, f"{more} 9 --resume")), world)) == {0}
    one, two = (tmp_path / "1", tmp_path / "2")
    assert losses(one) == pytest.approx(losses(two), rel=1e-6)
    for name in FILES[::2]:
        a, b = (load_file(run / "last" / name) for run in (one, two))
        assert all(torch.allclose(a[key], b[key], atol=1e-4) for key in a), name


def test_two_ranks_resume_bit_for_bit(words, tmp_path):
    for run, stops in (("whole", [6]), ("parts", [3, 6])):
        for stop in stops:
            more = f"--max-steps {stop} --resume"
            assert set(run_ranks(" ".join(words(tmp_path / run, more)), 2)) == {0}
    assert sums(tmp_path / "parts", 6) == sums(tmp_path / "whole", 6)


def test_what_excludes_stateful_rows_is_named(words, tmp_path, toy_data):
    for more, what in (
        ("--arch gpt2_tiny", "no effect: --arch gpt2_tiny carries nothing"),
        ("--batch-tokens 400", "--batch-tokens has no effect with --stateful-rows 4"),
        (f"--data {toy_data / 'text'}=2", "--data takes no weight"),
        (f"--data {toy_data / 'pairs'}", "needs texts in their order"),
    ):
        with pytest.raises(UsageError, match=what):
            prepare(parse_train(words(tmp_path / "run", f"--max-steps 1 {more}")))
