"""Configurations that come with unitk."""

import pytest

from unitk.errors import UsageError
from unitk.options import ready
from unitk.options.config import resolve
from unitk.options.settings import Origin, Settings, read_options
from unitk.training.config import COMPONENTS, TrainConfig
from unitk.verbs.list import run as list_names


def options(words):
    given = read_options(words.split(), TrainConfig)
    place = Settings.of_texts({"data": "x", "save_dir": "y"}, Origin.FLAG)
    return resolve(TrainConfig, place.under(given), COMPONENTS), given


@pytest.mark.parametrize("name", ready.names())
def test_each_is_a_run_with_its_figure(name):
    parsed, given = options(f"--config {name} --lr 1e-9")
    assert parsed.main.max_steps and parsed.main.lr == 1e-9
    assert given["task"].where == name  # and no path of this machine
    assert any(letter.isdigit() for letter in ready.about(name))


def test_a_file_of_the_same_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "summarize").write_text("task: lm\nmax-steps: 7\n")
    assert options("--config summarize")[0].main.max_steps == 7


@pytest.mark.parametrize(
    ("name", "near"), [("sumarize", "summarize"), ("x/tag.yaml", "tag"), ("xyz", "pretrain-small")]
)
def test_a_name_of_nothing_has_a_hint(name, near):
    with pytest.raises(UsageError, match=f"--config.*{name}.*{near}"):
        options(f"--config {name}")


def test_they_are_listed(capsys):
    list_names(["config"])
    assert all(f"  {name} " in capsys.readouterr().out for name in ready.names()[:1])
