"""`unitk sweep`: what is drawn, halved, resumed and refused."""

import json
import os
import signal
from itertools import product

import pytest
from exact_options import EXACT

from unitk.api.arguments import option_words
from unitk.errors import NonFiniteError, UsageError
from unitk.options.config import parse
from unitk.runs.experiments import sweep
from unitk.training import loop
from unitk.training.reporting.sinks import read_events
from unitk.training.start import parse_train, prepare


@pytest.fixture
def base(toy_data):
    words = f"--task lm --arch gpt2_tiny --blocks line --block-size 64 --max-tokens 400 {EXACT}"
    words += (
        f" --precision fp32 --max-steps 8 --valid-every 2 --writers none --data {toy_data}/text"
    )
    return words.split()


def drawn(*over, **more):
    words = [f"--over={one}" for one in over] + [f"--{k}={v}" for k, v in more.items()]
    return sweep.draw_trials(parse("sweep", sweep.Options, [*words, "--save-dir=x"]).main)


def steps(folder):
    return [one["step"] for one in read_events(folder / "log.jsonl") if one["kind"] == "valid"]


def test_a_trial_that_was_stopped_before_its_last_validation_has_it_yet(base, tmp_path):
    def trial():
        return sweep.trial_of(tmp_path, 1, {"lr": "1e-3"}, [*base, "--log-every", "1"])

    with pytest.raises(SystemExit):
        for event in loop.events(loop.Trainer(trial().start)):
            if event["step"] == 7:  # the update that is under way is the last one
                os.kill(os.getpid(), signal.SIGTERM)
    assert steps(tmp_path / "trial-1") == [2, 4, 6] and not trial().finished
    sweep.train_to(trial(), sweep.WHOLE)
    assert trial().finished and steps(tmp_path / "trial-1") == [2, 4, 6, 8]


def test_python_names_values_by_a_dict_of_lists_whose_items_may_have_commas():
    over = {"lr": [1e-3, 3e-3], "arch.dropout": (0, 0.1), "freeze": ["embed.*,norm.*", "norm.*"]}
    words = option_words({"over": over, "save_dir": "x"})
    grid = sweep.draw_trials(parse("sweep", sweep.Options, words).main)
    values = [[f"{value}" for value in values] for values in over.values()]
    assert [tuple(one.values()) for one in grid] == list(product(*values))


def test_lists_are_a_grid_and_ranges_are_drawn():
    grid = drawn("lr=1e-3,2e-3", "arch.dropout=0,0.1,0.2")
    assert len(grid) == 6 and grid[0] == {"lr": "1e-3", "arch.dropout": "0"}
    some = drawn("lr=1e-4:1e-2:log", "arch.dropout=0:0.5", "task.ends=on,off", trials=200)
    rates = sorted(float(one["lr"]) for one in some)
    assert 1e-4 <= rates[0] and rates[-1] <= 1e-2
    assert rates[100] == pytest.approx(1e-3, rel=0.5)  # the middle of the logarithms
    shares = [float(one["arch.dropout"]) for one in some]
    assert sum(shares) / 200 == pytest.approx(0.25, abs=0.04)
    assert {one["task.ends"] for one in some} == {"on", "off"}
    assert some[:3] == drawn(
        *("lr=1e-4:1e-2:log", "arch.dropout=0:0.5", "task.ends=on,off"), trials=3
    )


def test_whole_bounds_draw_whole_numbers_each_as_often():
    seeds = [int(one["seed"]) for one in drawn("seed=1:3", "lr=0.0:1.0", trials=300)]
    assert all(80 <= seeds.count(one) <= 120 for one in (1, 2, 3))
    widths = [int(one["batch-tokens"]) for one in drawn("batch-tokens=1024:99999:log", trials=50)]
    assert 1024 <= min(widths) and max(widths) <= 99999
    assert 9 < sum(width < 9_999 for width in widths) < 41  # half of the logarithms


def test_no_trial_is_drawn_twice():
    some = drawn("seed=1:3", "task.ends=on,off", trials=6)
    assert len({tuple(one.values()) for one in some}) == 6
    with pytest.raises(UsageError, match="only 6 different trials"):
        drawn("seed=1:3", "task.ends=on,off", trials=7)


@pytest.mark.parametrize(
    ("rates", "end"),
    [(["2e-3", "1e-3", "1e-2"], ""), (["1e-2", "1e-3", "2e-3"], "highest"), (["1", "2"], "")],
)
def test_a_best_value_at_an_end_of_those_tried_is_named(rates, end):
    """Neither words nor two numbers have an end that says anything."""
    rows = [{"trial": "t", "lr": lr, "optimizer": "adamw", "steps": 9} for lr in rates]
    assert [line.split()[:3] for line in sweep.edges(rows)] == [["lr:", "the", end]] * bool(end)
    rows = [{"trial": "t", "lr": f"-{lr}", "steps": 9} for lr in rates]
    assert [line.split()[2] for line in sweep.edges(rows)] == ["lowest"] * bool(end)


def test_options_of_draws_and_of_halving_need_them(tmp_path):
    for words, needed in (("--rungs 2", "--halving"), ("--seed 4", "--trials")):
        own = f"--over lr=.1,.2 {words} --save-dir {tmp_path}/s -- --task lm --data d --max-steps 2"
        with pytest.raises(UsageError, match=f"{words.split()[0]} .*{needed}"):
            sweep.value(own.split())


@pytest.mark.parametrize(
    ("over", "named"),
    [
        ("lr=1:0.1", "--over lr=1:0.1"),
        ("lr=0:1:log", "--over lr=0:1:log"),
        ("lr=0:inf", "--over lr=0:inf"),
        ("lr", "--over lr"),
        ("lr=0.1:1", "--trials"),
    ],
)
def test_what_is_no_list_and_no_range(over, named):
    with pytest.raises(UsageError, match=named):
        drawn(over)


@pytest.mark.slow
def test_the_best_go_on_as_the_runs_that_they_are(base, tmp_path, capsys):
    folder = tmp_path / "sweep"
    words = f"--over lr=1e-9,1e-8,1e-2,2e-9 --halving 2 --rungs 3 --save-dir {folder} --".split()
    sweep.run([*words, "train", *base])
    reached = {n: steps(folder / f"trial-{n}")[-1] for n in range(1, 5)}
    assert reached[3] == 8 and sorted(reached.values()) == [2, 2, 4, 8]
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["trial", "lr", "steps"] and table[1].split()[0] == "trial-3"
    rows = json.loads((folder / "sweep.json").read_text())["trials"]
    assert [row["steps"] for row in rows] == [8, 4, 2, 2]
    # stopped twice, it is the run of its options
    alone = [*base, "--lr=1e-2", f"--save-dir={tmp_path / 'alone'}"]
    loop.train(prepare(parse_train(alone)))
    weights = "checkpoints/step-8/model.safetensors"
    assert (folder / "trial-3" / weights).read_bytes() == (
        tmp_path / "alone" / weights
    ).read_bytes()
    # once more: nothing is left to do
    before = (folder / "trial-3/log.jsonl").read_bytes()
    sweep.run([*words, *base])
    assert (folder / "trial-3/log.jsonl").read_bytes() == before
    with pytest.raises(UsageError, match="--save-dir"):
        sweep.run(["--over", "lr=1e-3", "--save-dir", str(folder), "--", *base])
    # without its table it would be taken for the runs of other options
    (folder / "sweep.json").unlink()
    with pytest.raises(UsageError, match="no sweep.json"):
        sweep.run(["--over", "lr=1e-3", "--save-dir", str(folder), "--", *base])


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("--over lr=1,abc", "", "--lr"),
        ("--over nonsense=1,2", "", "--nonsense"),
        ("--over lr=1,2", "--save-dir x", "--save-dir"),
        ("--over lr=1,2", "--nproc 2", "--nproc"),
        ("--over lr=1,2", "--valid none", "--valid"),
        ("--over lr=1,2,1", "", "--over lr names 1 twice"),
        ("--over save-dir=a,b", "", "--over save-dir: "),
    ],
)
def test_mistakes_come_before_training(base, before, after, named, tmp_path):
    with pytest.raises(UsageError, match=named):
        sweep.run([*before.split(), f"--save-dir={tmp_path / 's'}", "--", *base, *after.split()])
    assert not (tmp_path / "s").exists()


def test_a_sweep_without_a_finite_value_has_no_best_trial(base, tmp_path):
    words = ["--over", "lr=1e30", "--save-dir", str(tmp_path), "--", *base]
    with pytest.raises(NonFiniteError, match="finite valid/loss: .*sweep.json"):
        sweep.run(words)
    [row] = json.loads((tmp_path / "sweep.json").read_text())["trials"]
    assert row["valid/loss"] is None


def test_a_sweep_that_stops_in_its_first_trial_goes_on(base, tmp_path, monkeypatch):
    """Its table is there before the first run."""
    words = ["--over", "lr=1e-3", "--save-dir", str(tmp_path / "s"), "--", *base]

    def stop(trial, budget):
        (tmp_path / "s/trial-1/checkpoints").mkdir(parents=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "train_to", stop)
        with pytest.raises(KeyboardInterrupt):
            sweep.run(words)
    assert [row["steps"] for row in sweep.value(words)] == [8]


@pytest.mark.parametrize(
    ("over", "more", "named"),
    [
        ("task=lm,mlm", "", "--over task: valid/loss .*lm.*mlm"),
        ("task=lm,mlm", "--best-metric valid/lm/correct", "--over task: valid/lm/correct"),
        ("criterion.label-smoothing=0,0.1", "", "--over criterion.label-smoothing: valid/loss"),
        ("best-metric=valid/loss,valid/lm/ppl", "", "--over best-metric"),
        ("valid={data}/text/train,{data}/text/valid", "", "--over valid: .*--valid"),
    ],
)
def test_what_no_value_ranks_is_refused_before_training(
    over, more, named, base, toy_data, tmp_path
):
    words = ["--over", over.format(data=toy_data), "--save-dir", str(tmp_path / "sweep"), "--"]
    with pytest.raises(UsageError, match=named):
        sweep.run([*words, *base[2 * over.startswith("task") :], *more.split()])
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("over", "more"),
    [
        ("task=lm,unilm", "--valid-generate 2 --valid-metric rouge --best-metric valid/rouge1"),
        ("criterion.label-smoothing=0,0.1", "--best-metric valid/lm/ppl"),
        ("lr=1e-3,1e-2", ""),
    ],
)
def test_what_means_the_same_ranks(over, more, base, toy_data, tmp_path):
    words = [*base, *more.split()]
    if over.startswith("task"):
        words = [*base[2:-2], "--data", f"{toy_data}/pairs", *more.split()]
    option, _, values = over.partition("=")
    trials = [
        sweep.trial_of(tmp_path, number, {option: value}, words)
        for number, value in enumerate(values.split(","))
    ]
    sweep.check_comparable(trials)
