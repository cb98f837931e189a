"""generate.yaml: where it is found, what it may hold, and what given options leave of it."""

from __future__ import annotations

import pytest

from unitk.decoding.config import GenerateConfig, make_config
from unitk.decoding.files.defaults import (
    NAME,
    find_defaults,
    naming_defaults,
    read_defaults,
    select_defaults,
    write_defaults,
)
from unitk.errors import CheckpointError, UsageError
from unitk.options.settings import Origin, Settings

SEARCH = {"beam": 4, "search": "fairseq", "min_len": 3, "lenpen": 2.0}
DRAWS = {"sampling": True, "sampling_topp": 0.9, "temperature": 0.7, "max_len": 9}


def test_it_is_that_of_the_checkpoint_or_else_of_its_run(tmp_path, monkeypatch):
    step = tmp_path / "run" / "checkpoints" / "step-3"
    step.mkdir(parents=True)
    (tmp_path / "run" / "best").symlink_to("checkpoints/step-3")
    places = [tmp_path / "run", step, tmp_path / "run" / "best"]
    assert [read_defaults(place) for place in places] == [{}, {}, {}]
    (tmp_path / "run" / NAME).write_text("beam: 3\n")
    assert [read_defaults(place) for place in places] == [{"beam": 3}] * 3
    monkeypatch.chdir(tmp_path / "run" / "checkpoints")
    assert read_defaults(step.relative_to(tmp_path / "run" / "checkpoints")) == {"beam": 3}
    (step / NAME).write_text("beam: 2\n")
    assert [read_defaults(place)["beam"] for place in places] == [3, 2, 2]
    assert read_defaults(tmp_path / "none") == {}


@pytest.mark.parametrize("values", [SEARCH, DRAWS, {"no_repeat_ngram_size": 3, "max_len": "1.5x"}])
def test_what_is_written_is_read(tmp_path, values):
    write_defaults(tmp_path, values)
    assert read_defaults(tmp_path) == values
    assert "_" not in (tmp_path / NAME).read_text(), "options are spelled as on the command line"


def test_no_values_are_no_file(tmp_path):
    write_defaults(tmp_path, {})
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("min-leng: 3", "--min-leng is no option of decoding; did you mean --min-len"),
        ("checkpoint: x", r"--checkpoint is no option of decoding \(known: --beam, --nbest"),
        ("bad-words: x", "--bad-words is no option of decoding"),
        ("max-tokens: 9", "--max-tokens is no option of decoding"),
        ("beam: {size: 3}", "--beam must be a whole number, got 'size=3'"),
        ("no.beam: 3", "--no.beam is no option of decoding"),
        ("beam: many", "--beam must be a whole number, got 'many'"),
        ("beam:", "--beam must be a whole number, got ''"),
        ("min-len: 70", "--min-len must be at most --max-len 64, got 70"),
        ("- beam", "it must hold `option: value` lines"),
        ("beam: [", "it is not YAML"),
        ("beam: 2\nbeam: 3", "'beam' twice"),
    ],
)
def test_mistakes_name_the_file_and_the_option(tmp_path, text, told):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(CheckpointError, match=f"^{tmp_path / NAME}: .*{told}"):
        read_defaults(tmp_path)


@pytest.mark.parametrize(
    ("given", "defaults", "gone"),
    [
        ({}, SEARCH, set()),
        ({"beam": 1}, SEARCH, {"beam"}),
        ({"sampling": True}, SEARCH, {"beam", "search"}),
        ({"sampling": False}, SEARCH, set()),
        ({"sampling_topp": 0.5}, DRAWS, {"sampling_topp"}),
        ({"beam": 5}, DRAWS, {"sampling", "sampling_topp", "temperature"}),
        ({"sampling": False}, DRAWS, {"sampling", "sampling_topp", "temperature"}),
        (
            {"no_repeat_ngram_size": 0},
            {"no_repeat_ngram_size": 3, "no_repeat_ngram_ignore": "."},
            {"no_repeat_ngram_size", "no_repeat_ngram_ignore"},
        ),
    ],
)
def test_given_options_drop_what_has_no_effect_beside_them(given, defaults, gone):
    used = select_defaults(defaults, given)
    assert used == {name: value for name, value in defaults.items() if name not in gone}
    make_config(GenerateConfig, used | given)


def test_options_that_are_commented_out_are_none(tmp_path):
    for text in ("", "# beam: 2\n"):
        (tmp_path / NAME).write_text(text)
        assert read_defaults(tmp_path) == {}


def test_an_error_says_which_options_are_the_checkpoints():
    told = r"at most --max-len 2, got 3 \(--min-len 3: the checkpoint's generate.yaml\)"
    with pytest.raises(UsageError, match=told), naming_defaults({"min_len": 3, "beam": 4}):
        make_config(GenerateConfig, {"min_len": 3, "max_len": 2})
    # an option that is only near to what was typed is not at fault
    with pytest.raises(UsageError, match=r"--beam\?$"), naming_defaults({"beam": 4}):
        raise UsageError("--beem: no such option; did you mean --beam?")
    with pytest.raises(UsageError, match="got 0$"), naming_defaults({"min_len": 3}):
        make_config(GenerateConfig, {"beam": 0})


def test_a_checkpoint_with_a_comma_in_its_name_has_them_too(tmp_path):
    (tmp_path / "a, b").mkdir()
    write_defaults(tmp_path / "a, b", {"beam": 3})
    given = {"checkpoint": str(tmp_path / "a, b")}
    path, found = find_defaults(Settings.of_texts(given, Origin.FLAG, "--checkpoint"))
    assert path == str(tmp_path / "a, b") and found == {"beam": 3}
