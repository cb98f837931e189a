"""Settings: what wins, where it comes from, and that every option survives as text."""

import json

import pytest

from unitk import registry
from unitk.data.corpus.preprocess import Options
from unitk.errors import UsageError
from unitk.options.config import NoOptions, parse, resolve
from unitk.options.fields import options, parse_value, render
from unitk.options.settings import NOTHING, Origin, Setting, Settings, read_flags
from unitk.training.config import COMPONENTS, TrainConfig

NEEDED = ["--data", "x", "--save-dir", "y", "--max-steps", "1"]


def texts(origin=Origin.FILE, where="file.yaml", **values):
    named = {key.replace("__", "."): text for key, text in values.items()}
    return Settings.of_texts(named, origin, where)


def test_the_later_one_wins_and_says_where_it_is_from():
    both = texts(lr="1", seed="2").under(texts(Origin.FLAG, "", seed="3"))
    assert both["lr"] == Setting(("1",), Origin.FILE, "file.yaml")
    assert both["seed"] == Setting(("3",), Origin.FLAG, "--seed")
    assert both.given("lr") and not both.given("lr", Origin.FLAG) and not both.given("other")
    assert both == NOTHING.under(both) == both.under(NOTHING)


def test_another_component_drops_the_options_of_the_one_below(capsys):
    below = texts(task="mlm", task__max_span="3", arch__dropout="0")
    both = below.under(texts(Origin.FLAG, "", task="lm"))
    assert set(both) == {"task", "arch.dropout"}
    assert "--task lm drops task.max_span of file.yaml" in capsys.readouterr().err
    assert below.under(texts(task="mlm")) == below


def test_another_model_drops_the_layout_of_the_one_below(capsys):
    below = texts(task="classify", task__layout="lm", task__separators="2", init_from="base")
    both = below.under(texts(Origin.FLAG, "", init_from="bert"))
    assert set(both) == {"task", "task.separators", "init_from"}
    assert "bert drops" in capsys.readouterr().err
    given = texts(Origin.FLAG, "", init_from="bert", task__layout="mlm")
    assert below.under(given)["task.layout"].text == "mlm"
    for same in ("base", "none"):
        assert below.under(texts(init_from=same))["task.layout"].text == "lm"


@pytest.mark.parametrize(
    ("later", "noted"),
    [
        ({"init_from": "bert"}, True),
        ({"init_from": "bert", "lr": "2e-5"}, False),
        ({"init_from": "base"}, False),
        ({"lr": "1"}, False),
        ({"optimizer": "muon"}, True),
        ({"optimizer": "adamw"}, False),
    ],
)
def test_a_rate_that_is_for_another_model_is_noted(capsys, later, noted):
    below = texts(task="tag", lr="5e-4", init_from="base", optimizer="adamw")
    assert below.under(texts(Origin.FLAG, "", **later)).texts == below.texts | later
    assert ("keeps --lr 5e-4" in capsys.readouterr().err) == noted


def test_the_options_of_a_part():
    some = texts(task="mlm=1 lm=2", task__lm__ends="off", task__mlm__nsp="on", arch__width="8")
    assert some.tasks() == {"mlm": "task.mlm", "lm": "task.lm"}
    assert some.of("task.lm").texts == {"ends": "off"} and some.of("task").texts == {}
    assert some.of("arch").texts == {"width": "8"} and set(some.only("arch")) == {"arch.width"}
    assert texts(task="lm").tasks() == {"lm": "task"}


def test_a_written_file_has_every_origin(tmp_path):
    (tmp_path / "given.yaml").write_text("arch.dropout: 0\n")
    argv = ["--task", "lm", "--config", str(tmp_path / "given.yaml"), *NEEDED]
    settings = parse("train", TrainConfig, argv, COMPONENTS).settings
    (tmp_path / "config.yaml").write_text(settings.yaml())
    assert Settings.read(tmp_path / "config.yaml") == settings
    assert {one.origin for one in settings.values()} == {*Origin} - {Origin.CHECKPOINT}


def test_a_file_of_a_run_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"task: \xff\n")
    with pytest.raises(UsageError, match="config.yaml.*UTF-8"):
        Settings.read(path)


@pytest.mark.parametrize("kind", ["task", "arch", "criterion", "optimizer"])
def test_every_option_survives_as_text(kind):
    """text -> value -> text -> state.json -> text, whatever is registered."""
    for name in registry.names(kind):
        parsed = resolve(NoOptions, texts(**{kind: name}), [kind])
        for option in options(type(parsed.components[kind].config)):
            text = parsed.settings[f"{kind}.{option.name}"].text
            value = parse_value(text, option.type, option.flag)
            assert value == getattr(parsed.components[kind].config, option.name)
            assert render(value) == text
        kept = Settings.of_texts(json.loads(json.dumps(parsed.settings.texts)), Origin.CHECKPOINT)
        assert resolve(NoOptions, kept, [kind]).settings.texts == parsed.settings.texts


def test_an_empty_folder_of_plug_ins_is_not_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')\n")
    found = parse("train", TrainConfig, [*NEEDED, "--task", "lm", "--user-dir="], COMPONENTS)
    assert found.main.user_dir is None


def test_a_word_of_dashes_is_a_value_and_no_option():
    """As a mark between documents; two of them end the options."""
    given = read_flags(["--document-mark", "---", "--dest", "d"], Options)
    assert [one.words for one in given.values()] == [("---",), ("d",)]
    for words in (["---"], ["--document-mark", "--"]):
        with pytest.raises(UsageError, match=f"unexpected word '{words[-1]}'"):
            resolve(Options, read_flags(words, Options))
