"""A mistake in a file is told with the option that names the file."""

import re
import sys
from pathlib import Path

import pytest

import unitk
from unitk import registry
from unitk.api.naming import naming_files
from unitk.api.verb import Verb, find_verb
from unitk.errors import DataError, UnitkError
from unitk.options.fields import flag, options, type_name
from unitk_cli.main import main

WRONG = "there/x.txt, line 3: odd"


def every():
    """Every option of a file or folder, with its verb and the words before it."""
    for name in registry.names("verb"):
        found = find_verb(name)
        group = {} if isinstance(found, Verb) else found.verbs
        for own, verb in group.items() or [("", found)]:
            for option in options(verb.options):
                if type_name(option.type).startswith("path"):
                    words = [own] if own else []
                    yield pytest.param(found, words, option.flag, id=f"{name} {own}{option.flag}")


def tell(verb, words, message):
    """The message of an error as it is raised again."""
    with pytest.raises(DataError) as error, naming_files(verb, words):
        raise DataError(message)
    return error.value.args[0]


@pytest.mark.parametrize(("verb", "words", "name"), [*every()])
def test_every_option_of_a_file_is_named(verb, words, name):
    assert tell(verb, [*words, name, "there/x.txt"], WRONG) == f"{name} {WRONG}"
    assert tell(verb, [*words, name, "there"], WRONG) == f"{name} {WRONG}"
    assert tell(verb, [*words, f"{name}=ther"], WRONG) == WRONG


def test_the_file_that_is_named_most_closely_counts():
    generate = find_verb("generate")
    words = "--output there --bad-words there/x.txt --input in.txt".split()
    assert tell(generate, words, WRONG) == f"--bad-words {WRONG}"
    both = [*words, "--constraints", "there/x.txt"]
    assert tell(generate, both, WRONG) == f"--bad-words and --constraints {WRONG}"
    assert tell(generate, ["there/x.txt"], WRONG) == WRONG  # a text, or the words of a usage line
    assert tell(find_verb("convert"), ["--from", "hf", "there"], WRONG) == WRONG


def test_options_of_components_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    words = ["--task", "optimus", "--task.source-vocab", "there"]
    assert tell(find_verb("train"), words, WRONG) == f"--task.source-vocab {WRONG}"
    words = ["--task", "mlm", "--criterion", "distill", "--criterion.teacher", "gone"]
    for given in ("gone: odd", "gone is odd"):  # what is not there may be no path at all
        named = f"--criterion.teacher {given}" if ":" in given else given
        assert tell(find_verb("train"), words, given) == named


def test_notes_about_options_are_not_repeated(capsys):
    words = ["--config", "classify", "--init-from", "bert", "--data", "there/x.txt"]
    assert tell(find_verb("train"), words, WRONG) == f"--data {WRONG}"
    assert not capsys.readouterr().err  # they come when the options are read


@pytest.mark.parametrize("name", ["bad_words", "prefix_file", "constraints"])
@pytest.mark.parametrize("kind", ["missing", "a folder", "not UTF-8", "empty"])
def test_files_beside_the_input(name, kind, make_checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the cat\n")
    if kind == "a folder":
        (tmp_path / "x").mkdir()
    elif kind != "missing":
        (tmp_path / "x").write_bytes(b"" if kind == "empty" else b"caf\xe9\n")
    path = str(make_checkpoint("lm", "gpt2_tiny"))
    words = ["generate", "--checkpoint", path, "--input", "in.txt", "--max-len", "4"]
    words += [flag(name), "x"]
    monkeypatch.setattr(sys, "argv", ["unitk", *words])
    with pytest.raises(SystemExit) as end:
        main()
    monkeypatch.setattr(UnitkError, "with_flags", False)
    assert end.value.code == 3 or kind == "empty"
    said = capsys.readouterr().err
    assert re.fullmatch(rf"unitk generate: {flag(name)} x\b[^\n]*\n", said), said
    with pytest.raises(UnitkError, match=rf"^{name} x\b"):
        unitk.generate(checkpoint=path, input="in.txt", max_len=4, **{name: "x"})


def test_a_file_that_a_folder_or_a_pattern_stands_for_is_named(tmp_path, monkeypatch):
    """Of several options the one that says most is named, and one of words is never."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/x.txt").touch()
    generate = find_verb("generate")
    for given in ("there", "./there/", "there/*", "*/*.txt", "**/*.txt", ".", "./"):
        assert tell(generate, ["--input", given], WRONG) == f"--input {WRONG}", given
    words = ["--input", ".", "--bad-words", "there/x.txt", "--delimiter", "."]
    assert tell(generate, words, WRONG) == f"--bad-words {WRONG}"
    assert tell(generate, ["--delimiter", ".", "--prefix", "*"], WRONG) == WRONG
    assert tell(generate, ["--input", "other/*"], WRONG) == WRONG


def test_whole_paths_and_what_cannot_be_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generate = find_verb("generate")
    whole = f"{tmp_path.resolve() / 'there'}/x.txt: odd"
    assert tell(generate, ["--checkpoint", "there"], whole) == f"--checkpoint {whole}"

    def refuse(self, **_):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", refuse)  # of a folder that may not be searched
    wrong = "shut/x.yaml: odd"
    assert tell(generate, ["--config", "shut/x.yaml"], wrong) == f"--config {wrong}"
    assert tell(find_verb("convert"), ["--to", "hf", "shut/x.yaml"], wrong) == f"--to {wrong}"


def test_a_loop_of_links_is_told_with_its_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    monkeypatch.setattr(sys, "argv", "unitk generate --checkpoint loop the".split())
    with pytest.raises(SystemExit) as end:
        main()
    monkeypatch.setattr(UnitkError, "with_flags", False)
    # for Python from 3.13 it is a link to nothing
    kind, code = ("links", 3) if sys.version_info < (3, 13) else ("gone[)]", 4)
    assert end.value.code == code
    assert re.fullmatch(
        rf"unitk generate: --checkpoint loop: [^\n]*{kind}\n", capsys.readouterr().err
    )


def test_an_option_that_a_verb_lacks_is_not_named():
    wrong = "line 1: no field 'source', see --source-field; there are a"
    assert tell(find_verb("generate"), ["--input", "x"], wrong) == wrong
    sample = tell(find_verb("latent"), ["sample", "--among", "x"], wrong)
    assert "see" not in sample and sample.endswith("'source'; there are a")


def test_names_with_commas_and_standard_input_are_named(tmp_path, monkeypatch):
    generate = find_verb("generate")
    for name in ("a,b.txt", "a=b.txt", "a,b=c.txt"):
        assert tell(generate, ["--input", name], f"{name}: odd") == f"--input {name}: odd"
    wrong = "standard input, line 3: odd"
    assert tell(generate, ["--input", "-"], wrong) == f"--input {wrong}"
