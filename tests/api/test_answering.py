"""Words without a flag, and files that a verb reads, whichever verb it is."""

from dataclasses import MISSING
from pathlib import Path
from typing import get_args

import pytest

import unitk
from unitk import registry
from unitk.api.verb import VerbGroup, find_verb
from unitk.errors import DataError, UnitkError, UsageError
from unitk.options.fields import options


def verbs_of_texts():
    """The words of each verb that takes texts, and the options that it needs."""
    for name in registry.names("verb"):
        verb = find_verb(name)
        for own, one in (verb.verbs if isinstance(verb, VerbGroup) else {"": verb}).items():
            if one.words == "texts":
                needed = [o for o in options(one.options) if o.default is MISSING]
                files = [o.flag for o in needed if Path in (o.type, *get_args(o.type))]
                files.remove("--checkpoint")
                others = [f"{o.flag}=x" for o in needed if o.type is str]
                yield f"{name} {own}".split(), files, [*others, "--checkpoint=unitk-base-en"]


@pytest.mark.parametrize(("verb", "files", "others"), [*verbs_of_texts()])
def test_a_word_that_names_a_file_is_no_text(verb, files, others, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("a b\tx\n")
    name, *own = verb
    for word, what in ((file, "file"), (tmp_path, "folder")):
        with pytest.raises(UsageError, match=f"'{word}' .*{what}"):
            find_verb(name)([*own, str(word), *others, *(f"{flag}={file}" for flag in files)])


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("latent encode --checkpoint x", "input"),
        ("latent neighbors a --checkpoint x", "among"),
        ("latent probe --input a --checkpoint x", "test"),
        ("analyse contextuality --checkpoint x", "input"),
        ("search a --checkpoint x", "documents"),
        ("evaluate --checkpoint x", "pairs"),
    ],
)
def test_an_output_is_no_file_that_is_read(line, output, tmp_path):
    path, same = tmp_path / "a.txt", tmp_path / "same.txt"
    path.write_text("a b\tx\n")
    same.hardlink_to(path)
    verb, *words = line.split()
    for one in (path, same):
        with pytest.raises(UsageError, match=f"--output {one} .* --{output}"):
            find_verb(verb)([*words, f"--{output}={path}", f"--output={one}", "--overwrite"])
    assert path.read_text() == "a b\tx\n"


def test_a_table_is_no_text_that_is_compared(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\na b\n")
    with pytest.raises(UsageError, match="--table .* --data"):
        find_verb("compare")(["a", "b", f"--data={path}", f"--table={path}", "--overwrite"])


def test_a_message_names_words_as_they_were_given(monkeypatch):
    """PATHS of the usage line, or the flag; in Python the argument."""
    monkeypatch.setattr(UnitkError, "with_flags", True)
    for words, name in ((["nosuch"], "PATHS"), (["--paths", "nosuch"], "--paths")):
        with pytest.raises(DataError, match=f"^{name} nosuch"):
            find_verb("check")(words)
    monkeypatch.setattr(UnitkError, "with_flags", False)
    with pytest.raises(DataError, match="^paths nosuch"):
        unitk.check(["nosuch"])
