"""Errors name flags on the command line, and arguments to callers of the library."""

import inspect
import io
import re
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import get_origin

import numpy as np
import pytest

from unitk import registry
from unitk.api.verb import find_verb
from unitk.decoding.config import EmbedConfig, GenerateConfig
from unitk.errors import DataError, UnitkError, UsageError, out_of_memory, printable, say
from unitk.options.config import NoOptions, resolve
from unitk.options.fields import flag, options
from unitk.options.settings import Origin, Settings
from unitk_cli.main import verb_names

BAD = {int: (-5, 0, 10**9), float: (-5.0, 0.0, 2.0, 10**9), str: ("?", "")}
"""Values of which some cannot be meant, whatever an option is for."""


def every():
    """Every dataclass of options, each with its defaults."""
    for kind in ("task", "criterion", "optimizer", "arch"):
        for name in registry.names(kind):
            made = registry.get(kind, name)
            yield made() if kind == "arch" else made.Config() if kind == "task" else made()
    registry.discover("verb")
    modules = "unitk.verbs.", "unitk.families.latent.space.config", "unitk.families.analysis.verbs"
    found = [module for name, module in sys.modules.items() if name.startswith(modules)]
    kinds = {kind for module in found for _, kind in inspect.getmembers(module, inspect.isclass)}
    for kind in sorted(filter(is_dataclass, kinds), key=str):
        # what `unitk train` needs is more than a value for each option
        if kind.__module__ == "unitk.training.config":
            continue
        if kind.__module__.startswith("unitk") and all(field.kw_only for field in fields(kind)):
            needed = [o for o in options(kind) if o.default is MISSING]
            several = {o.name: get_origin(o.type) is tuple for o in needed}
            yield kind(
                **{name: (Path("x"),) if many else Path("x") for name, many in several.items()}
            )


def test_every_option_is_named_as_the_caller_writes_it(monkeypatch):
    seen = 0
    for given in every():
        for option in options(type(given)):
            for value in BAD.get(type(option.default), ()):
                try:
                    replace(given, **{option.name: value})
                except UsageError as error:
                    monkeypatch.setattr(UnitkError, "with_flags", True)
                    shown = str(error)
                    monkeypatch.setattr(UnitkError, "with_flags", False)
                    flags = {
                        part.rpartition(".")[2] for part in re.findall(r"--([\w.-]+\w)", shown)
                    }
                    own = {o.name for o in options(type(given)) if flag(o.name)[2:] in flags}
                    assert own, f"{type(given).__name__}: {shown}"
                    assert all(name in str(error) for name in own), str(error)
                    assert "--" not in str(error), str(error)
                    seen += 1
    assert seen > 300


@pytest.mark.parametrize("text", ["use --beam 5", "it's --beam", '"--beam" it\'s', "a\n--beam"])
def test_quoted_texts_stay_as_they_were_written(monkeypatch, text):
    monkeypatch.setattr(UnitkError, "with_flags", False)
    error = UsageError(f"--max-len: the models' text {text!r} is none; --no-repeat 'x' --beam 1")
    wanted = f"max_len: the models' text {text!r} is none; no_repeat 'x' beam 1"
    assert str(error) == wanted


def test_flags_become_arguments(monkeypatch):
    monkeypatch.setattr(UnitkError, "with_flags", False)
    with pytest.raises(UsageError, match=r"^beam .*10000\], got 0$"):
        GenerateConfig(beam=0)
    with pytest.raises(UsageError, match="^specials .*no effect.*first$"):
        EmbedConfig(specials=True, pool="first")
    text = str(DataError("--from: /a/b--c/--d has no x--y; --task.mean-span. Or --src.lang-x, --"))
    assert text == "from_: /a/b--c/--d has no x--y; task.mean_span. Or src.lang_x, --"


@pytest.mark.parametrize(
    "with_flags, mixed", [(True, "--task.mlm.mask-"), (False, "task.mlm.mask_")]
)
def test_a_fault_of_a_component_names_it_to_every_caller(with_flags, mixed, monkeypatch):
    """Also where a part raised it that knows its options by shorter names."""
    monkeypatch.setattr(UnitkError, "with_flags", with_flags)
    for task in ("mlm=0.5 lm=0.5", "mlm"):
        prefix = "task.mlm." if "=" in task else "task."
        texts = {"task": task, f"{prefix}mask_ratio": "15", "nonsense": "1"}
        with pytest.raises(UsageError) as failure:
            resolve(NoOptions, Settings.of_texts(texts, Origin.FLAG), ("task",))
        first, *_ = str(failure.value).split("\n")
        wanted = f"{mixed}ratio must be in (0, 1], got 15"
        assert first == wanted.replace("task.mlm.", prefix)


BAD_TEXTS = ["\x1b[31mred", "a\nb", "a\rb", "a\x07", "\x9b31m", "a\u2028b", "\u202eabc", "\udcff"]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_a_message_is_one_line_without_commands_for_a_terminal(text, capsys):
    """Names, keys and values in it may come from a file of anybody."""
    for shown in (str(UsageError(f"{text}: no")), str(DataError("x", text)), printable(text)):
        assert all(c.isprintable() for c in shown.replace("x\n", "x"))
    say(text, "end")
    assert capsys.readouterr().err.count("\n") == 2


def test_what_is_printable_stays_as_it_is():
    for text in ("a b", "\u0645\u06cc\u200c\u062e", "\U0001f600", "a\u00a0b", "\\x1b", "\u4e2d"):
        assert printable(text) == text
    assert printable(printable("\x1b")) == printable("\x1b") == r"\x1b"


def test_a_path_below_the_current_folder_is_shown_as_one_types_it(tmp_path, monkeypatch):
    (here := tmp_path / "a.b").mkdir()
    monkeypatch.chdir(here)
    for text in ("weights of {}runs/x", "'{}x' and ({}y)", "--data={}d/train"):
        assert printable(text.format(*[f"{here}/"] * 2)) == text.format("", "")
    for text in (f"{tmp_path}/x", f"{here}b/x", f"s3://box{here}/x", f"{here}/", str(here)):
        assert printable(text) == text
    monkeypatch.chdir("/")
    assert printable("a /b c/d 1 / 2") in ("a /b c/d 1 / 2", "a b c/d 1 / 2")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert printable(f"{gone}/x") == f"{gone}/x"


def test_several_mistakes_have_a_line_each():
    assert str(UsageError("one", "two\nlines")) == "one\ntwo\\nlines"


def test_only_options_that_a_verb_has_are_said_to_save_memory():
    for verb in verb_names():
        advice = find_verb(verb).cure
        with redirect_stdout(io.StringIO()) as page, suppress(SystemExit, UnitkError):
            find_verb(verb)(["--help-all"] if verb != "analyse" else ["heads", "--help-all"])
        with redirect_stdout(page), suppress(SystemExit):
            if verb in ("scale", "mix"):  # a training follows --
                find_verb("train")(["--help-all"])
        for option in re.findall(r"--[\w-]+", advice):
            assert option in page.getvalue(), f"{verb} has no {option}"


def test_a_table_beyond_all_memory_is_too_little_memory():
    with pytest.raises((ValueError, MemoryError)) as error:
        np.zeros((2**62, 2**10))
    assert out_of_memory(error.value)
    assert not out_of_memory(ValueError("the array is odd"))
