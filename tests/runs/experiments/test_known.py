"""What an experiment goes on with: other options, damaged tables and runs without one are named."""

import json

import pytest

from unitk.errors import UsageError
from unitk.runs.experiments.known import check_plan, read_experiment

SPEC = {"options": [["64x2"], [800, 1200], None], "train": ["--lr", "1e-3", "--data=d"]}
NAMES = "--sizes", "--tokens", "--held-out"


def read(path, spec=SPEC, options=NAMES):
    return read_experiment(path, spec, "scale", options)


def test_there_is_nothing_before_the_first_run_and_then_what_was_written(tmp_path):
    path = tmp_path / "scale.json"
    assert read(path) == {}
    path.write_text(json.dumps({"scale": SPEC, "plan": []}))
    assert read(path) == {"scale": SPEC, "plan": []}


@pytest.mark.parametrize(
    ("options", "train", "named"),
    [
        ([["64x2"], [800], None], SPEC["train"], "--tokens 800,1200, not 800"),
        ([["64x2"], [800, 1200], "64x2-4k"], SPEC["train"], "--held-out none, not 64x2-4k"),
        (SPEC["options"], ["--lr", "2e-3", "--data=d"], "--lr 1e-3, not --lr 2e-3"),
        (SPEC["options"], ["--data=d"], "with --lr 1e-3"),
        (SPEC["options"], [*SPEC["train"], "--seed", "2"], "without --seed 2"),
    ],
)
def test_what_is_other_than_before_is_named(options, train, named, tmp_path):
    path = tmp_path / "scale.json"
    path.write_text(json.dumps({"scale": SPEC}))
    assert read(path, {"options": options, "train": train}) == {}  # nothing was trained yet
    (tmp_path / "lm/64x2-800/checkpoints").mkdir(parents=True)
    with pytest.raises(UsageError, match=f"--save-dir .*: {named}; "):
        read(path, {"options": options, "train": train})


def test_values_are_named_by_their_options(tmp_path):
    (tmp_path / "search/4-0/checkpoints").mkdir(parents=True)
    path, was = tmp_path / "mix.json", {"judge": {"lm": 0.5}, "grid": 4, "data": "1"}
    path.write_text(json.dumps({"mix": was}))
    now = {"judge": {"lm": 1.0}, "grid": 2, "data": "2"}
    said = "--judge lm=0.5, not lm=1; --grid 4, not 2; other texts"
    with pytest.raises(UsageError, match=said):
        read_experiment(path, now, "mix", ())


def test_the_first_option_may_have_several_values(tmp_path):
    (tmp_path / "trial-1/checkpoints").mkdir(parents=True)
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"sweep": {"options": ["lr=1", "2", "None"]}}))
    with pytest.raises(UsageError, match="--over lr=1,2, not lr=1,2,3; --trials None, not 4;"):
        now = {"options": ["lr=1", "2", "3", "4"]}
        read_experiment(path, now, "sweep", ("--over", "--trials"))


@pytest.mark.parametrize("text", ["", "[]", '{"scale": {"tr', "{}", '{"scale": 3}', '{"mix": {}}'])
def test_a_table_that_is_none_is_named(text, tmp_path):
    (tmp_path / "scale.json").write_text(text)
    with pytest.raises(UsageError, match=r"scale\.json"):
        read(tmp_path / "scale.json")


@pytest.mark.parametrize("run", ["trial-1", "lm/64x2-800"])
def test_runs_without_a_table_might_be_of_other_options(run, tmp_path):
    (tmp_path / run / "checkpoints").mkdir(parents=True)
    with pytest.raises(UsageError, match=f"{run}, .* scale.json"):
        read(tmp_path / "scale.json")


@pytest.mark.parametrize(
    "plan",
    [None, 3, [], {}, [1], [{"rung": "a"}], [{"rung": "b", "seconds": 1.0, "bytes": 2}]],
)
def test_a_plan_has_a_cost_for_each_row(plan, tmp_path):
    check_plan(tmp_path, [{"rung": "a", "seconds": 1.0, "bytes": 2}], [{"rung": "a"}])
    with pytest.raises(UsageError, match="damaged"):
        check_plan(tmp_path, plan, [{"rung": "a"}])


@pytest.mark.parametrize("run", [".", "trial-1", "lm/64x2-800"])
def test_a_folder_with_a_run_is_none_for_another_experiment(run, tmp_path):
    (tmp_path / run / "checkpoints").mkdir(parents=True)
    with pytest.raises(UsageError, match=f"--save-dir {tmp_path} .*{tmp_path / run},"):
        read(tmp_path / "scale.json")


WRONG = [None, 3, True, "x", 0.5, [], {}, [1], [[]], {"a": "b"}, {"lm": "x"}, [{"a": 1}]]


def test_an_edited_table_is_named_whatever_is_in_it(tmp_path):
    (tmp_path / "trial-1/checkpoints").mkdir(parents=True)
    path = tmp_path / "mix.json"
    spec = {"judge": {"lm": 0.5}, "options": [["64x2"], [800], None], "train": ["--lr"], "grid": 4}
    for key in spec:
        for wrong in WRONG:
            path.write_text(json.dumps({"mix": {**spec, key: wrong}}))
            with pytest.raises(UsageError, match=f"^--save-dir {tmp_path} .*options"):
                read_experiment(path, spec, "mix", NAMES)
