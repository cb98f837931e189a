"""What `unitk quickstart` refuses, and the folders that it may replace; a recipe's test runs it."""

from __future__ import annotations

import shlex

import pytest

from unitk.api.verb import find_verb
from unitk.data.files.pairs import PairText
from unitk.errors import DataError, UsageError
from unitk.options import config
from unitk.runs import quickstart
from unitk.training import start
from unitk.training.config import COMPONENTS


class Reached(Exception):
    """The first command would run."""


@pytest.fixture
def stopped(monkeypatch, tmp_path):
    """A quickstart in `tmp_path` that stops at its first command."""

    def first(name):
        raise Reached(name)

    monkeypatch.setattr(quickstart, "find_verb", first)
    return lambda *words: quickstart.run(["--save-dir", str(tmp_path / "run"), *words])


def test_a_folder_of_others_is_left_alone(stopped, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("a year")
    with pytest.raises(UsageError, match="--save-dir .*run holds.*made"):
        stopped()
    assert (tmp_path / "run" / "thesis.txt").read_text() == "a year"


def test_the_command_that_fails_is_named(monkeypatch, tmp_path):
    def fails(words):
        raise DataError(f"--dest {words[-1]}: full")

    monkeypatch.setattr(quickstart, "find_verb", lambda name: fails)
    with pytest.raises(DataError, match="^unitk preprocess --dest "):
        quickstart.run(["--save-dir", str(tmp_path / "run")])


def test_an_earlier_one_is_replaced(stopped, tmp_path):
    for _ in range(2):
        with pytest.raises(Reached, match="preprocess"):
            stopped()
        (tmp_path / "run" / "old.txt").touch()
    with pytest.raises(Reached):
        stopped()
    assert not (tmp_path / "run" / "old.txt").exists()


def test_what_it_cannot_use(stopped, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=f"--data {tmp_path}: .*is no train.json.gz in it"):
        stopped("--data", str(tmp_path))
    with pytest.raises(UsageError, match="--max-steps .*at least 1, got 0"):
        stopped("--max-steps", "0")
    monkeypatch.setattr(quickstart, "__file__", str(tmp_path / "unitk" / "verbs" / "x.py"))
    with pytest.raises(UsageError, match="the quickstart.*data"):
        stopped()


@pytest.mark.parametrize("teacher", ["unitk-base-en-questions", "my teacher", "none"])
def test_the_teacher_is_an_option_of_the_fine_tuning_alone(teacher, monkeypatch, tmp_path):
    commands = {}

    def note(name):
        if commands.setdefault(name, []):
            raise Reached(name)
        return commands[name].extend

    monkeypatch.setattr(quickstart, "find_verb", note)
    monkeypatch.setattr(quickstart, "report_questions", lambda *args: None)
    with pytest.raises(Reached, match="generate"):  # the second one
        quickstart.run(["--save-dir", str(tmp_path / "run"), "--teacher", teacher])
    taught = [name for name, words in commands.items() if "--criterion.teacher" in words]
    assert taught == ([] if teacher == "none" else ["train"])
    if taught:
        assert commands["train"][-2:] == ["--criterion.teacher", teacher]


def test_ten_questions_are_spread_over_the_best_tenth():
    """Each of 300 sentences has two questions, so that the best tenth has 30, the even scores."""
    scores = [-index for index in range(600)]
    records = [{"outputs": [{"text": f"q {score}", "score": score}]} for score in scores]
    sentences = [PairText(source=["a", f"s {index // 2}"], target="") for index in range(600)]
    picked = quickstart.pick_spread(records[::-1], sentences[::-1])
    assert [record["outputs"][0]["score"] for record, _ in picked] == list(range(0, -60, -6))
    assert [pair.source[1] for _, pair in picked] == [f"s {index}" for index in range(0, 30, 3)]
    assert len(quickstart.pick_spread(records[:6], sentences[:6])) == 3


def test_its_commands_are_commands(monkeypatch, tmp_path):
    """Their options are known; data and models need not be there."""
    places = {"data": "x", "init": "x", "run": tmp_path, "taught": f"{quickstart.TAUGHT} x"}
    places |= {"here": quickstart.home(), "steps": 1}

    class Accepted(Exception):
        """The options are good."""

    resolve = config.resolve

    def stop(*args, **kwargs):
        resolve(*args, **kwargs)
        raise Accepted

    monkeypatch.setattr(config, "resolve", stop)
    monkeypatch.setattr(
        start, "_resolve_with_parent", lambda given: stop(start.TrainConfig, given, COMPONENTS)
    )
    for commands in quickstart.STAGES.values():
        for command in commands:
            verb, *words = shlex.split(command.format(**places))
            with pytest.raises(Accepted):
                find_verb(verb)(words)
