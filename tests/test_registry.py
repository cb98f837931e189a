"""The registry: duplicates, near misses, plug-ins from a folder."""

import inspect
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from unitk import registry
from unitk.errors import UsageError
from unitk.options.config import NoOptions, options, resolve
from unitk.options.settings import Origin, Settings
from unitk.tasks.base import Task
from unitk.verbs import convert
from unitk.verbs import list as listing

PLUGIN = '''
from unitk.registry import register
from unitk.tasks.base import Task

@register("task", "{name}")
class Mine(Task):
    """An objective of one's own."""

    arch = "bert_tiny"
'''


def test_a_duplicate_names_both_places():
    @registry.register("driver", "test_twice")
    class One:
        pass

    with pytest.raises(UsageError, match=r"registered twice: .*test_registry.*test_registry"):

        @registry.register("driver", "test_twice")
        class Two:
            pass

    del registry._entries["driver"]["test_twice"]


def test_a_near_miss_is_suggested():
    with pytest.raises(UsageError, match="did you mean glm_infill"):
        registry.get("task", "glm_infll")
    with pytest.raises(UsageError, match="known: .*glm_infill"):
        registry.get("task", "zzz")
    with pytest.raises(UsageError, match="list arch"):
        registry.get("arch", "zzz")  # nearly two hundred
    with pytest.raises(UsageError, match="unknown kind 'tsak'; .*mean task"):
        registry.register("tsak", "x")


def run(*argv):
    words = [sys.executable, "-m", "unitk_cli", *argv]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_user_dir_loads_every_file_and_two_folders_may_share_names(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(PLUGIN.format(name=f"mine_{folder}"))
    for folder in ("a", "b"):
        registry.load_plugins(tmp_path / folder)
        registry.load_plugins(tmp_path / folder)  # a second time changes nothing
    assert {"mine_a", "mine_b"} <= set(registry.names("task"))
    for folder in ("a", "b"):
        del registry._entries["task"][f"mine_{folder}"]


def test_user_dir_mistakes_are_one_line(tmp_path):
    done = run("list", "--user-dir", str(tmp_path / "absent"))
    assert done.returncode == 2 and "--user-dir" in done.stderr and done.stderr.count("\n") == 1
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    done = run("list", "--user-dir", str(tmp_path))
    assert done.returncode == 2 and "broken.py, line 1, cannot" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "broken.py").write_text(PLUGIN.format(name="glm_infill"))
    done = run("list", "--user-dir", str(tmp_path))
    assert (
        done.returncode == 2
        and "registered twice" in done.stderr
        and "glm_infill.py" in done.stderr
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\ndef f(:\n", ".*SyntaxError: .*line 2"),
        ("\nimport nothing_of_this_name", "line 2, .*nothing_of_this_name"),
        ("def f():\n    raise RuntimeError('a b')\nf()", "line 2, .*RuntimeError: a b"),
        ("{}['a']", "line 1, .*KeyError"),
        ("import sys\nsys.exit(0)", "line 2, .*SystemExit"),
    ],
)
def test_a_file_that_cannot_be_imported_names_its_line(tmp_path, own_registry, source, message):
    """Whatever it raises, and whichever function of it does."""
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(UsageError, match=f"--user-dir: .*mine.py.*{message}"):
        registry.load_plugins(tmp_path)


def test_an_installed_plugin_that_cannot_be_imported_is_named(monkeypatch):
    broken = EntryPoint("mine", "nothing_of_this_name", "unitk.plugins")
    monkeypatch.setattr(registry, "_installed", lambda: [broken])
    with pytest.raises(UsageError, match="plug-in mine .*imported"):
        registry.load_plugins()


@pytest.mark.parametrize("kind", registry.OFFERS)
def test_a_component_has_what_its_kind_offers(own_registry, kind):
    with pytest.raises(UsageError, match=f"{kind} 'mine' of .*test_registry.*has no "):
        registry.register(kind, "mine")(object)


@pytest.mark.parametrize("kind", registry.CONFIGURED)
def test_options_are_those_of_a_dataclass(own_registry, kind):
    """A decorator that is above `register` comes too late."""

    class Plain:
        build = symbols = None

    Plain.Config = type("Config", (), {}) if kind == "task" else Plain
    with pytest.raises(UsageError, match=f"^{kind} 'mine' of .*test_registry.*dataclass"):
        registry.register(kind, "mine")(Plain)


def test_fields_of_a_class_that_is_no_dataclass_are_refused(own_registry):
    """It inherits being one, but not for its own fields, which would be no options."""

    class Mine(Task):
        class Config(Task.Config):
            chance: float = 0.5

    with pytest.raises(UsageError, match="^task 'mine' of .*test_registry.*dataclass"):
        registry.register("task", "mine")(Mine)


def test_a_file_is_imported_again_once_it_is_mended(tmp_path, own_registry):
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="mended") + "nothing_of_this_name\n")
    for _ in range(2):
        with pytest.raises(UsageError, match="NameError"):
            registry.load_plugins(tmp_path)
        assert not registry.has("task", "mended")
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="mended"))
    registry.load_plugins(tmp_path)
    assert registry.has("task", "mended")


def test_an_architecture_is_needed_and_is_a_config(own_registry):
    @registry.register("task", "mine")
    class Mine(Task):
        """It has no architecture of its own."""

    registry.register("arch", "nothing")(lambda: None)
    given = {"task": "mine"}
    for more, message in ({}, "--arch is needed.*mine"), ({"arch": "nothing"}, "--arch nothing: "):
        with pytest.raises(UsageError, match=message):
            resolve(NoOptions, Settings.of_texts(given | more, Origin.FLAG), ("task", "arch"))


def test_user_dir_appears_in_the_list(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="my_objective"))
    done = run("list", "tasks", "--user-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "my_objective     An objective of one's own." in done.stdout


@pytest.mark.parametrize(
    "kind", [kind for kind in registry.KINDS if kind not in registry.UNLISTED] + ["model"]
)
def test_every_kind_is_listed_by_its_name(kind, capsys):
    listing.run([kind])
    one = capsys.readouterr().out
    assert one.startswith(f"{kind}\n  ")
    meanings = [line.split(maxsplit=1)[1] for line in one.splitlines()[1:]]
    # a sentence is whole, and a name ends without a mark
    assert not [one for one in meanings if one[-1] in ",;:" or one.count("(") != one.count(")")]
    if kind in registry.KINDS:
        for name in registry.names(kind):
            first, *rest = (
                (inspect.getdoc(registry.get(kind, name)) or "").partition("\n\n")[0].split("\n")
            )
            assert not rest or first[-1] in ".:", f"{kind} {name}: its first line is cut"
    assert kind == "arch" or len({*meanings}) == len(meanings), "two names have the same meaning"
    if kind != "corpus":
        listing.run([f"{kind}s"])
        assert capsys.readouterr().out == one


def test_help_names_all_kinds_and_all_formats():
    """Every kind that `unitk list` takes, and every format that `unitk convert` reads or writes."""
    kinds = [kind for kind in registry.KINDS if kind not in registry.UNLISTED]
    about = next(option.help for option in options(listing.Options) if option.name == "kind")
    documented = about.partition(": ")[2].rstrip(".").split(", ")
    assert documented == [*kinds, listing.MODEL, listing.CONFIG]
    page = " ".join(convert.Options.__doc__.split())
    table = (
        (Path(__file__).parents[1] / "docs" / "interop.md")
        .read_text()
        .partition("## Formats")[2]
        .partition("\n**hf**")[0]
    )
    for name in registry.names("format"):
        assert re.search(rf"\b{name}\b", page), name
        assert f"`{name}`" in table, name


def test_unknown_verb_and_version():
    assert run("--version").stdout.startswith("unitk, version")
    done = run("trian")
    assert done.returncode == 2 and "did you mean train" in done.stderr


def test_a_beginning_is_the_nearest():
    assert registry.nearest("glm", ["lm", "mlm", "glm_infill"]) == "; did you mean glm_infill?"
    assert registry.nearest("mml", ["lm", "mlm", "glm_infill"]).startswith("; did you mean mlm")
    both = registry.nearest("--hypothesis", ["--hypothesis-field", "--hypotheses"])
    assert re.findall(r"--[\w-]+", both) == ["--hypotheses", "--hypothesis-field"]


@pytest.mark.slow
def test_a_kind_is_found_without_the_others():
    # in a process of its own, which forks for each kind: here other tests have imported everything
    code = """
import torch, unitk.registry as r
from multiprocessing import get_context

with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
    alone = pool.map(r.names, r.KINDS, chunksize=1)
together = {kind: r.names(kind) for kind in r.KINDS[::-1]}
assert dict(zip(r.KINDS, alone)) == together
assert "optimus_tiny" in together["arch"]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_a_component_is_found_without_its_kind():
    code = (
        "import sys; from unitk import registry as r; print(r.get('task', 'lm').__name__,"
        " 'unitk.tasks.pmlm' in sys.modules, r.has('task', 'pmlm'), r.has('task', 'nothing'))"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.check_output(words, text=True, timeout=60) == "LM False True False\n"


def test_examples_of_what_one_may_add_register_it():
    root = Path(__file__).resolve().parents[1]
    rows = re.findall(
        r"^\| an? .* \| (`.*`) \| `(.*)` \|$", (root / "CONTRIBUTING.md").read_text(), re.M
    )
    assert len(rows) >= 7
    for kinds, file in rows:
        for kind in re.findall(r"`(\w+)`", kinds):
            assert kind in registry.KINDS
            assert f'register("{kind}"' in (root / file).read_text(), f"{file} registers no {kind}"
