"""XLNet's memory over stateful rows: killed, with two ranks, in validation, and in evaluation."""

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_options import EXACT
from ranks import exit_codes, run_ranks, start_forks
from safetensors.torch import load_file

from unitk.data.batching import draw
from unitk.errors import UsageError
from unitk.evaluation import objective as evaluate
from unitk.models.state import StatefulRows
from unitk.slots import BORN, NEVER, collate
from unitk.training.start import parse_train, prepare

from .test_carry import FILES, losses, pairwise_options, sums, train

CPU = torch.device("cpu")


@pytest.fixture
def words(toy_data):
    """`words(run, "--max-steps 3")`: the options of a run with a memory of 40 states."""

    def make(run, more=""):
        text = (
            f"--task xlnet --arch xlnet_tiny --arch.memory-length 40 --data {toy_data / 'text'}"
            f" --save-dir {run} --blocks stream --block-size 24 --stateful-rows 4 --lr 1e-2"
            " --lr-schedule constant --precision fp32 --valid none --log-every 1"
            f" {EXACT} --writers none --threads 1 --rank-timeout 30 {more}"
        )
        return [f"{name}={value}" for name, value in dict(pairwise_options(text)).items()]

    return make


def test_rows_read_the_texts_from_both_ends(words, tmp_path):
    """The second half of the rows reads what the first half reads, in reverse order."""
    data = prepare(parse_train(words(tmp_path / "run", "--max-steps 1"))).data
    source = data.train
    count = len(source.bounds(0))
    assert count % 2 == 0 and (source.bounds(0) == source.bounds(0)[::-1]).all()
    assert (data.train.items.words == data.train.items.words[::-1]).all()
    for i in range(count // 2):
        there, back = (draw(source, 1, 0, j).towers["x"] for j in (i, count - 1 - i))
        contents = [one.take(np.flatnonzero(one.born < NEVER)) for one in (there, back)]
        symbols = [data.vocab.sep, data.vocab.cls]
        one, other = (each.token[~np.isin(each.token, symbols)] for each in contents)
        assert one.tolist() == other[::-1].tolist()
        assert (np.diff(contents[0].pos) == 1).all() and (np.diff(contents[1].pos) == -1).all()


@pytest.mark.slow
def test_killed_within_a_document_it_goes_on_bit_for_bit(words, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = "--max-steps 12 --save-every 1 --keep-last 99 --device cpu"
    train(words(whole, more))
    again = words(parts, f"{more} --resume")
    for updates in (3, 3, 0):
        [process] = start_forks(lambda rank: train(again), 1, ranked=False)
        log = parts / "log.jsonl"
        first = log.read_bytes().count(b"\n") if log.exists() else 0
        while updates and process.is_alive():
            if log.exists() and log.read_bytes().count(b"\n") >= first + updates:
                os.kill(process.pid, signal.SIGKILL)
                break
            time.sleep(0.002)
        [code] = exit_codes([process])
        assert code == (-signal.SIGKILL if updates else 0)
    for step in (4, 8, 12):
        assert sums(parts, step) == sums(whole, step), step
    assert losses(parts) == losses(whole)
    memory = load_file(whole / "checkpoints" / "step-8" / FILES[2])
    assert (memory["slots"][:, BORN] < NEVER).all(), "it is full"
    assert memory["states"].shape == (4, 2, 40, 64) and memory["states"].any()


@pytest.mark.parametrize("shard", ["off", pytest.param("on", marks=pytest.mark.slow)])
def test_two_ranks_resume_bit_for_bit_and_are_one_run(words, tmp_path, shard):
    for run, stops in (("whole", [6]), ("parts", [3, 6])):
        for stop in stops:
            more = f"--max-steps {stop} --resume on --shard {shard}"
            assert set(run_ranks(" ".join(words(tmp_path / run, more)), 2)) == {0}
    assert sums(tmp_path / "parts", 6) == sums(tmp_path / "whole", 6)
    train(words(tmp_path / "alone", "--max-steps 6 --device cpu"))
    assert losses(tmp_path / "alone") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


@pytest.mark.slow
def test_evaluation_has_the_memory_where_rows_are_given(words, tmp_path, toy_data):
    """As each row is read by itself; without rows each text is read alone."""
    run = tmp_path / "run"
    train(words(run, "--max-steps 8"))
    opened = evaluate.open_setup(run, toy_data / "text", CPU, rows=4)
    model, source = opened.model, opened.data.train
    count = len(source.bounds(0))
    order = np.array([[r * count // 4 + u for r in range(4)] for u in range(count // 4)])
    for rows in (4, 0):
        stateful = StatefulRows(rows, {})
        total = asked = 0.0
        for update in order if rows else np.arange(count)[:, None]:
            for row, i in enumerate(update):
                batch = collate([[draw(source, 0, 0, int(i))]]).to("cpu")
                if rows:
                    batch = replace(batch, stateful_rows=torch.tensor([row]))
                with torch.no_grad():
                    loss = opened.criterion(model, stateful.attach(batch), 0, None)
                stateful.keep(batch, loss.carry)
                total, asked = total + float(loss.sums["lm"]), asked + batch.count["lm"]
            stateful.advance()
        opened = evaluate.open_setup(run, toy_data / "text", CPU, rows=rows)
        found = evaluate.objective(opened, 300, lambda done: None)
        assert found["loss"] == pytest.approx(total / asked, rel=1e-5)
        assert found["lm/ppl"] == pytest.approx(np.exp(total / asked), rel=1e-5)


def test_what_excludes_a_memory_is_named(words, tmp_path, toy_data):
    for more, what in (
        ("--stateful-rows 3", "--stateful-rows 3 must be even: half of the rows read"),
        ("--arch.memory-length 0", "no effect: --arch xlnet_tiny carries nothing"),
    ):
        with pytest.raises(UsageError, match=what):
            prepare(parse_train(words(tmp_path / "run", f"--max-steps 1 {more}")))
    odd = "--max-steps 1 --stateful-rows 3 --task.both-ways off"
    prepare(parse_train(words(tmp_path / "run", odd)))
    train(words(tmp_path / "run", "--max-steps 1"))
    with pytest.raises(UsageError, match="--stateful-rows 5 must be"):
        evaluate.open_setup(tmp_path / "run", toy_data / "text", CPU, rows=5)


def test_a_mixture_with_another_cut_reads_from_the_beginning(words, tmp_path):
    base = [w for w in words(tmp_path / "run") if not w.startswith(("--task", "--stateful"))]
    base += ["--max-steps=1", "--task=xlnet=0.5", "--task=mlm=0.5"]
    with pytest.raises(UsageError, match=r"both ends.*--task.xlnet.both-ways off"):
        prepare(parse_train(base))
    begun = prepare(parse_train([*base, "--task.xlnet.both-ways=off"]))
    assert begun.data.train.parts.keys() == {"xlnet", "mlm"}
