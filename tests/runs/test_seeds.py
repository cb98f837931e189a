"""Runs of several seeds, and training on a few texts of each class."""

import hashlib
import json
import os
import signal
from statistics import mean, stdev

import numpy as np
import pytest
from exact_options import EXACT
from labelled_corpora import write_corpora

from unitk.data.batching import Feed
from unitk.errors import CheckpointError, UsageError
from unitk.runs.seeds import seed_lines, train_seeds
from unitk.training import loop
from unitk.training.reporting.sinks import read_events
from unitk.training.saving.folder import find_checkpoint
from unitk.training.start import parse_train, prepare
from unitk.verbs.train import run

WORDS = (
    "--task classify --task.layout mlm --arch bert_tiny --arch.dropout 0.1 --arch.num-layers 1"
    " --max-steps 4 --batch-texts 4 --valid-every 2 --save-every 2 --precision fp32"
    f" {EXACT} --writers none"
)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory, toy_vocab):
    return write_corpora(tmp_path_factory.mktemp("labelled"), toy_vocab)


@pytest.fixture
def words(labelled, tmp_path):
    return lambda name, more="", form="class", few=6: (
        f"{WORDS} --per-label {few} --data {labelled / form} --save-dir {tmp_path / name} {more}"
    ).split()


def weights(run):
    return {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.glob("checkpoints/*/model.safetensors")
    }


def test_each_is_the_run_of_its_seed_and_scores_are_counted(words, tmp_path):
    found = train_seeds(parse_train(words("all", "--seeds 3 --seed 5")))
    loop.train(prepare(parse_train(words("alone", "--seed 6"))))
    assert weights(tmp_path / "all" / "seed-6") == weights(tmp_path / "alone")
    assert json.loads((tmp_path / "all" / "seeds.json").read_text()) == found
    assert [one["seed"] for one in found["runs"]] == [5, 6, 7]
    best = []
    for one in found["runs"]:
        folder = tmp_path / "all" / f"seed-{one['seed']}"
        events = [e for e in read_events(folder / "log.jsonl") if e["kind"] == "valid"]
        best.append(min(events, key=lambda event: event["valid/loss"]))
        assert find_checkpoint(folder).name == f"step-{best[-1]['step']}" == f"step-{one['step']}"
    values = [event["valid/class/correct"] for event in best]
    wanted = {"mean": pytest.approx(mean(values)), "std": pytest.approx(stdev(values))}
    assert found["scores"]["valid/class/correct"] == wanted
    [row] = [line for line in seed_lines(found) if line.startswith("valid/class/correct ")]
    numbers = [mean(values), stdev(values), *values]
    assert [float(cell) for cell in row.split()[1:]] == pytest.approx(numbers, rel=1e-3)


def test_one_run_has_no_deviation(words):
    found = train_seeds(parse_train(words("one", "--seeds 1")))
    assert found["scores"]["valid/loss"]["std"] is None and " -" in seed_lines(found)[1]


def test_stopped_runs_go_on_and_finished_ones_are_not_done_again(words, tmp_path, monkeypatch):
    whole = train_seeds(parse_train(words("whole", "--seeds 3")))
    done, update = [], loop.Trainer.update

    def watched(trainer, one):
        done.append((trainer.config.seed, trainer.progress.step))
        if len(done) == 7:  # the third update of the second run
            os.kill(os.getpid(), signal.SIGTERM)
        update(trainer, one)

    monkeypatch.setattr(loop.Trainer, "update", watched)
    with pytest.raises(SystemExit) as stopped:
        run(words("cut", "--seeds 3"))
    assert stopped.value.code == 143
    [first] = json.loads((tmp_path / "cut" / "seeds.json").read_text())["runs"]
    assert first == whole["runs"][0]
    run(["--resume", f"--save-dir={tmp_path / 'cut'}"])
    assert done == [(seed, step) for seed in (1, 2, 3) for step in range(4)]
    assert json.loads((tmp_path / "cut" / "seeds.json").read_text()) == whole
    for seed in (1, 2, 3):
        one, other = (tmp_path / name / f"seed-{seed}" for name in ("cut", "whole"))
        assert weights(other)["step-4"] == weights(one)["step-4"]
    more = train_seeds(parse_train(["--resume", f"--save-dir={tmp_path / 'cut'}", "--seeds=4"]))
    assert more["runs"][:3] == whole["runs"] and len(done) == 16


def test_what_excludes_seeds_is_refused(words, tmp_path):
    with pytest.raises(UsageError, match="--seeds .*several processes"):
        parse_train(words("a", "--seeds 2 --nproc 2"))
    with pytest.raises(UsageError, match="--seeds .*at least 1, got 0"):
        parse_train(words("a", "--seeds 0"))
    with pytest.raises(UsageError, match="--seeds .*validations.* --valid"):
        train_seeds(parse_train(words("a", "--seeds 2 --valid none")))
    loop.train(prepare(parse_train(words("single"))))
    with pytest.raises(UsageError, match="single .*single.*: --seeds needs another"):
        train_seeds(parse_train(words("single", "--seeds 2 --resume")))
    train_seeds(parse_train(words("some", "--seeds 1")))
    with pytest.raises(UsageError, match="some/seed-1 holds.*: --resume continues it"):
        train_seeds(parse_train(words("some", "--seeds 1")))
    with pytest.raises(CheckpointError, match="runs: name .*seed-1"):
        find_checkpoint(tmp_path / "some")


def read(start):
    """The texts of the first epoch, and their classes."""
    examples = start.data.train
    feed = Feed(examples=examples, seed=1, max_tokens=999, batch_tokens=999)
    ids = sorted(feed.plan(0).order.tolist())
    drawn = [examples.draw(0, i, np.random.default_rng(0), (0, None)) for i in ids]
    return ids, [int(one.asks[0].label[0]) for one in drawn]


def test_so_many_texts_of_each_class_are_read_and_fewer_are_a_part_of_more(words):
    few, labels = read(prepare(parse_train(words("a"))))
    assert sorted(labels) == [0] * 6 + [1] * 6
    more, _ = read(prepare(parse_train(words("a", few=20))))
    other, _ = read(prepare(parse_train(words("a", "--seed=2"))))
    assert set(few) < set(more) and len(more) == 40 and set(other) != set(few)


def test_too_few_texts_and_other_labels_are_refused(words):
    with pytest.raises(UsageError, match="--per-label 99: --data has only 80 texts of 'no'"):
        prepare(parse_train(words("a", few=99)))
    number = [w.replace("classify", "regress") for w in words("a", form="number")]
    with pytest.raises(UsageError, match="--per-label needs.*class, .*number"):
        prepare(parse_train(number))


def test_a_resumed_run_keeps_its_texts(words):
    loop.train(prepare(parse_train(words("a"))))
    changed = words("a", "--resume", few=7)
    with pytest.raises(UsageError, match="--per-label is 7, .*run.*resume.* 6"):
        prepare(parse_train(changed))
