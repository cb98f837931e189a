"""The plug-in example: by --user-dir, by an entry point, and under the property tests."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import unitk
from unitk import registry
from unitk.comparison.check import run_check
from unitk.decoding.drivers import Driver, Watcher, drive
from unitk.errors import UnitkError
from unitk.options.fields import parse_schedule
from unitk.verbs.evaluate import apply_evaluation
from unitk.vocab.open import open_vocab
from unitk_cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "recipes" / "plugin"


def run(*words, **env):
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, **env},
    )


def test_show_draws_the_table_of_its_docstring():
    done = run("-m", "unitk_cli", "show", "--user-dir", str(PLUGIN), "--task", "prefix_lm",
               "--seed", "3", "a b c d e")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[:4]}
    assert rows["token"] == ["[CLS]", "a", "b", "c", "d", "e"]
    assert rows["pos"] == ["0", "1", "2", "3", "4", "5"]
    times = [int(t) for t in rows["at"]]
    split = times.count(0) - 1
    assert times == [0] * (split + 1) + list(range(1, 6 - split))
    assert rows["label"] == ["."] * split + [*"abcde"[split:], "[SEP]"]


def test_an_entry_point_loads_it_without_a_flag(tmp_path):
    info = tmp_path / "my_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unitk.plugins]\nprefix = prefix_lm\n")
    path = os.pathsep.join([str(tmp_path), str(PLUGIN), str(ROOT)])
    done = run("-m", "unitk_cli", "list", "task", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "prefix_lm" in done.stdout


@pytest.mark.slow
def test_the_property_tests_cover_it():
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "",
        "-k",
        "prefix_lm or permutation_lm",
        "tests/properties",
    ]
    done = run(*words, UNITK_USER_DIR=str(PLUGIN))
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


@pytest.mark.slow
def test_an_evaluation_is_an_option_with_the_help_of_its_docstring(tmp_path):
    """Bits per byte of each text, and of all, are those of its log-probabilities."""
    plugin = ["evaluate", "--user-dir", str(PLUGIN)]
    page = run("-m", "unitk_cli", *plugin, "--help").stdout
    assert re.search("--compression PATH +Texts, one a line", page)
    (tmp_path / "x.txt").write_text("The cats sleep.\n\nThe dog ran.\n")
    words = [
        *plugin,
        "--checkpoint",
        "unitk-base-en",
        "--task",
        "lm",
        "--compression",
        f"{tmp_path}/x.txt",
    ]
    words += ["--output", f"{tmp_path}/each", "--output-format", "json", "--device", "cpu"]
    done = run("-m", "unitk_cli", *words)
    assert done.returncode == 0, done.stderr
    model = unitk.load("unitk-base-en", task="lm")
    texts = ["The cats sleep.", "The dog ran."]
    bits = [-gains.sum() / np.log(2) for gains in model.likelihood(texts)]
    each = [json.loads(line) for line in (tmp_path / "each").read_text().splitlines()]
    assert [one["text"] for one in each] == texts
    assert [one["bits"] for one in each] == pytest.approx(bits, rel=1e-4)
    found = json.loads(done.stdout)
    assert found["bits_per_byte"] == pytest.approx(sum(bits) / sum(map(len, texts)), rel=1e-4)
    done = run("-m", "unitk_cli", *words, "--overwrite", "--delimiter", "a")
    assert done.returncode == 2 and "without --choices" in done.stderr


def test_a_verb_is_found_in_the_folder_of_its_user(tmp_path):
    words = ["pieces", "--vocab", "unitk-base-en", "The cats sleep."]
    done = run("-m", "unitk_cli", *words)
    assert done.returncode == 2 and re.search("no verb 'pieces'", done.stderr)
    done = run("-m", "unitk_cli", *words, "--user-dir", str(PLUGIN))
    vocab = open_vocab(Path("unitk-base-en"))
    assert done.stdout.split() == vocab.pieces(vocab.encode("The cats sleep."))
    wrong = run("-m", "unitk_cli", "pieces", "--user-dir", str(PLUGIN), "--no-such")
    assert wrong.returncode == 2 and wrong.stderr.startswith("unitk pieces: --no-such: ")
    page = run("-m", "unitk_cli", "pieces", "--user-dir", str(PLUGIN), "--help").stdout
    assert page.startswith("unitk pieces TEXTS [options]\n") and "--vocab" in page
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unitk.plugins]\npieces = pieces\n")
    path = os.pathsep.join([str(tmp_path), str(PLUGIN), str(ROOT)])
    listed = run("-m", "unitk_cli", "--help", PYTHONPATH=path).stdout
    assert re.search("pieces +print the pieces", listed)


@pytest.mark.slow
def test_the_components_of_the_page_train(tmp_path):
    """Without its exponent, the example of a criterion is cross-entropy."""
    text = tmp_path / "text.txt"
    text.write_text("a cat sat on the mat\na dog ran to the house\n\n" * 4)
    words = ["--input", str(text), "--vocab", "unitk-base-en", "--dest", str(tmp_path / "data")]
    assert run("-m", "unitk_cli", "preprocess", *words).returncode == 0
    losses = {}
    for criterion in (["cross_entropy"], ["focal", "--criterion.gamma", "0"], ["focal"]):
        folder = tmp_path / "-".join(criterion)
        words = f"--task every_second --arch bert_narrow --arch.dropout 0 --optimizer nadam --data {tmp_path}/data --valid none --save-dir {folder} --max-steps 2 --log-every 1 --device cpu"  # noqa: E501
        done = run(
            "-m",
            "unitk_cli",
            "train",
            "--user-dir",
            str(PLUGIN),
            *words.split(),
            "--criterion",
            *criterion,
        )  # noqa: E501
        assert done.returncode == 0, done.stderr
        lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
        losses["-".join(criterion)] = [line["train/loss"] for line in lines if "train/loss" in line]
    plain, same, focal = losses.values()
    assert len(plain) == 2 and np.allclose(same, plain, rtol=1e-4)
    assert all(one < other for one, other in zip(focal, plain, strict=True))


def mistaken(folder, old, new):
    """A folder with the plug-ins of the page, one of which has a mistake; and the file with it."""
    for name in [name for name in sys.modules if name.startswith(registry.PLUGIN)]:
        del sys.modules[name]  # of other tests
    folder.mkdir()
    wrong = None
    for name in ("components.py", "every_second.py"):
        text = (PLUGIN / name).read_text()
        if old in text:
            wrong = folder / name
        (folder / name).write_text(text.replace(old, new))
    return wrong


def fault_of(capsys, monkeypatch, line):
    """The last line that a command with a mistake prints; its exit code is that of one."""
    monkeypatch.setattr(sys, "argv", ["unitk", *line.split()])
    with pytest.raises(SystemExit) as end:
        main()
    monkeypatch.setattr(UnitkError, "with_flags", False)
    assert end.value.code in (2, 3)
    return capsys.readouterr().err.splitlines()[-1].removeprefix("unitk train: ")


TRAIN = "--arch bert_narrow --criterion focal --optimizer nadam --max-steps 1 --valid none"
CALLED = [
    ("text: Text, rng: np.random.Generator", "text: Text", "TypeError: EverySecond.pretrain() "),
    ("def bert_narrow()", "def bert_narrow(width)", "TypeError: bert_narrow() missing 1"),
    ("groups: Groups) -> Any", "*, groups: Groups) -> Any", "TypeError: NAdamConfig.build() "),
    ("(OptimizerConfig)", "", "AttributeError: 'NAdamConfig' object has no attribute"),
    ("self, vocab: Vocab)", "self)", "TypeError: FocalConfig.build() "),
    ("def counts", "def count", "AttributeError: 'Focal' object has no"),
    (
        "batch: Batch, step: int, total: int | None",
        "batch: Batch",
        "TypeError: Focal.__call__() takes 3",
    ),
]
RETURNED = [
    ("return NAdam", "NAdam", "--optimizer of .*components.py: build .*, got None"),
    ("return Focal(", "Focal(", "--criterion focal of .*components.py: build .*None"),
    ("        return loss\n", "", "--criterion focal of .*components.py must .*, got None"),
    (" ).loss.sum()", " ).loss", r"--criterion focal of .*components.py must .*, got .*tensor\(\["),
    (
        " ).loss.sum()",
        " ).loss.sum().item()",
        r"--criterion focal of .*components.py must .*, got .*\d\.\d",
    ),
    (
        "batch.count\n",
        "{'foo': 1.0}\n",
        "--criterion focal of .*components.py: counts .* lm, got {'foo': 1.0}",
    ),
    ("batch.count\n", "5\n", "--criterion focal of .*components.py: counts .* lm, got 5"),
    ("frame = 1\n", "driver = 'stepz'\n", "--task every_second: .*'stepz'.* steps"),
]


@pytest.mark.parametrize(("old", "new", "message"), CALLED, ids=range(len(CALLED)))
def test_a_plugin_that_is_called_in_vain_is_named(
    old, new, message, tmp_path, toy_data, own_registry, monkeypatch, capsys
):
    """What unitk calls or asks for is in the plug-in's file, though no line of it has failed."""
    file = mistaken(tmp_path / "mine", old, new)
    line = f"train --user-dir {file.parent} --task every_second {TRAIN} --save-dir {tmp_path}/run"
    said = fault_of(capsys, monkeypatch, f"{line} --data {toy_data}/text/train")
    assert said.startswith(f"{file}: {message}") and not (tmp_path / "run").exists()


@pytest.mark.parametrize(("old", "new", "message"), RETURNED, ids=range(len(RETURNED)))
def test_what_a_plugin_must_return_is_said(
    old, new, message, tmp_path, toy_data, own_registry, monkeypatch, capsys
):
    file = mistaken(tmp_path / "mine", old, new)
    line = f"train --user-dir {file.parent} --task every_second {TRAIN} --save-dir {tmp_path}/run"
    said = fault_of(capsys, monkeypatch, f"{line} --data {toy_data}/text/train")
    assert re.match(message, said) and not (tmp_path / "run").exists()


MEMBER = "    def pretrain("
MEMBERS = [
    (
        "train",
        "return Protocol(end=self.vocab.sep, banned=(self.vocab.pad, self.vocab.cls))",
        "return 3",
    ),
    ("generate", "end=self.vocab.sep", "end='a'"),
    ("generate", "end=self.vocab.sep", "end=10**6"),
    ("generate", "(self.vocab.pad, self.vocab.cls)", "('a',)"),
    ("train", "    @property\n    def protocol", "    def protocol"),
    ("train", MEMBER, "    asks = ['lm']\n" + MEMBER),
    ("train", MEMBER, "    asks = {'lm': 'a'}\n" + MEMBER),
    ("train", MEMBER, "    heads = 3\n" + MEMBER),
    ("train", MEMBER, "    def slots(self, n):\n        return 'a'\n\n" + MEMBER),
    (
        "generate",
        MEMBER,
        "    def text(self, source, written):\n        return written\n\n" + MEMBER,
    ),
    ("generate", MEMBER, "    def text(self, source, written):\n        return None\n\n" + MEMBER),
]


@pytest.fixture(scope="module")
def prefix_lm(toy_data, tmp_path_factory):
    """A run of the task of the example."""
    folder = tmp_path_factory.mktemp("prefix") / "run"
    line = (
        f"train --user-dir {PLUGIN} --task prefix_lm --arch glm_tiny --data {toy_data}/text/train"
    )
    line = f"{line} --valid none --save-dir {folder} --max-steps 1 --max-tokens 512"
    done = run("-m", "unitk_cli", *line.split())
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("verb", "old", "new"), MEMBERS, ids=range(len(MEMBERS)))
def test_a_member_of_a_wrong_type_is_one_line_with_its_file(
    verb, old, new, tmp_path, toy_data, prefix_lm, own_registry, monkeypatch, capsys
):
    """Wherever unitk uses it: a line of unitk fails, which holds something of the plug-in."""
    for name in [name for name in sys.modules if name.startswith(registry.PLUGIN)]:
        del sys.modules[name]
    folder = tmp_path / "mine"
    folder.mkdir()
    file = folder / "prefix_lm.py"
    text = (PLUGIN / file.name).read_text()
    line = f"train --user-dir {folder} --task prefix_lm --arch glm_tiny --max-steps 1 --valid none"
    line = f"{line} --data {toy_data}/text/train --save-dir {tmp_path}/run"
    if verb == "generate":
        (tmp_path / "in.txt").write_text("a\n")
        line = f"generate --user-dir {folder} --checkpoint {prefix_lm} --input {tmp_path}/in.txt"
    assert old in text
    file.write_text(text.replace(old, new, 1))
    said = fault_of(capsys, monkeypatch, line).removeprefix("unitk generate: ")
    assert said.startswith(str(file)) and "Error: " in said


ANNOTATOR = """
from unitk.registry import register

@register("annotator", "odd")
class Odd:
    def __init__(self, path):
        pass

    def __call__(self, text, ids, vocab):
        return GIVEN
"""
MARKS = ["None", "'a'", "[1]", "[1] * 99", "[0.5] * len(ids)", "[300] * len(ids)"]


@pytest.mark.parametrize("given", MARKS, ids=range(len(MARKS)))
def test_an_annotator_gives_a_byte_for_each_token(
    given, tmp_path, own_registry, monkeypatch, capsys
):
    file = tmp_path / "mine" / "odd.py"
    file.parent.mkdir()
    file.write_text(ANNOTATOR.replace("GIVEN", given))
    (tmp_path / "a.txt").write_text("a b\n")
    line = f"--input {tmp_path}/a.txt --vocab unitk-base-en --annotate odd --dest {tmp_path}/d"
    said = fault_of(capsys, monkeypatch, f"preprocess --user-dir {file.parent} {line}")
    assert said.startswith(f"unitk preprocess: {file}: ") and not (tmp_path / "d").exists()


@pytest.mark.parametrize("given", [None, 3, [[]]])
def test_what_unitk_calls_without_a_run_is_named_with_its_file(given, own_registry, tmp_path):
    """A metric, a check, an evaluation and a driver may return anything."""

    class Odd(Driver):
        def outputs(self, prompts, config, watch):
            return given

    for kind in ("metric", "check", "evaluation"):
        monkeyed = dataclass(type("Named", (), {})) if kind == "evaluation" else lambda *_: given
        registry.register(kind, "odd")(monkeyed)
    registry.register("driver", "odd")(Odd)
    judge = SimpleNamespace(judge=lambda *_: given)
    text = tmp_path / "a.txt"
    text.write_text("a\n")
    for kind, call in {
        "metric": lambda: unitk.score(metric="odd", hypotheses=text, references=text),
        "check": lambda: run_check("odd", None),
        "evaluation": lambda: apply_evaluation("odd", judge),
        "driver": lambda: drive(
            Odd(None, SimpleNamespace(driver="odd"), None), [], None, Watcher()
        ),
    }.items():
        with pytest.raises(UnitkError, match=f"^{kind} 'odd' of .*test_plugin.py .*, got "):
            call()


@pytest.mark.parametrize("given", [None, "1", torch.ones(()), np.float32(1)])
def test_a_schedule_that_gives_no_number_is_refused_in_every_option(given, own_registry):
    @registry.register("schedule", "odd")
    @dataclass(frozen=True, kw_only=True)
    class Odd:
        def __call__(self, step, total):
            return given

    for option in ("--lr-schedule", "--task.mask-ratio"):
        with pytest.raises(UnitkError, match=f"^{option}: odd must .* number"):
            parse_schedule("odd", option)


def test_a_layout_that_fails_is_named_by_its_line(
    tmp_path, toy_data, own_registry, monkeypatch, capsys
):
    """The text with which a task is tried has 4 words."""
    file = mistaken(tmp_path / "mine", "np.arange(len(ids)))", "np.arange(5))")
    number = file.read_text()[: file.read_text().index("np.arange(5))")].count("\n") + 1
    line = f"train --user-dir {file.parent} --task every_second {TRAIN} --save-dir {tmp_path}/run"
    said = fault_of(capsys, monkeypatch, f"{line} --data {toy_data}/text/train")
    assert f": {file}, line {number}: ValueError: " in said


@pytest.mark.slow
def test_a_format_in_one_file_goes_both_ways(tmp_path, own_registry):
    """The weights come back bit for bit, and what cannot be read is one line."""
    plugin = ["--user-dir", str(PLUGIN / "formats")]
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    words = ["-m", "unitk_cli", "convert", *plugin]
    done = run(*words, "--from", "unitk", "unitk-base-en", "--to", "npz", there, "--task", "lm")
    assert done.returncode == 0, done.stderr
    done = run(*words, "--from", "npz", there, "--to", "unitk", back)
    assert done.returncode == 0, done.stderr
    ours = unitk.load("unitk-base-en", task="lm")
    again = unitk.load(there, format="npz", user_dir=PLUGIN / "formats")
    for one in (again, unitk.load(back)):
        tensors = one.model.state_dict()
        assert all(torch.equal(own, tensors[k]) for k, own in ours.model.state_dict().items())
        assert one.task.config == ours.task.config and one.task.vocab.hash == ours.task.vocab.hash
    (tmp_path / "there" / "weights.npz").write_bytes(b"PK")
    done = run(*words, "--from", "npz", there, "--to", "unitk", f"{back}2")
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and "weights.npz" in done.stderr
    assert "npz" in run("-m", "unitk_cli", "list", "format", *plugin).stdout


@pytest.mark.slow
def test_an_exported_model_names_the_option_that_brings_it_back(toy_data, tmp_path):
    """Its card, and the error of a command without the option."""
    pytest.importorskip("transformers")
    plugin = f"--user-dir {PLUGIN}"
    line = f"train {plugin} --task prefix_lm --arch qwen3_tiny --data {toy_data}/text/train"
    line = f"{line} --valid none --save-dir {tmp_path}/run --max-steps 1 --max-tokens 512"
    back = f"convert --from hf {tmp_path}/hf --to unitk {tmp_path}/back"
    for words in (line, f"convert --from unitk {tmp_path}/run --to hf {tmp_path}/hf {plugin}"):
        done = run("-m", "unitk_cli", *words.split())
        assert done.returncode == 0, done.stderr
    text = (tmp_path / "hf" / "README.md").read_text()
    assert "need `--user-dir DIR`" in text and "\n\n\n" not in text
    done = run("-m", "unitk_cli", *back.split())
    assert done.returncode == 2 and "'prefix_lm'; a plug-in's needs --user-dir" in done.stderr
    done = run("-m", "unitk_cli", *back.split(), *plugin.split())
    assert done.returncode == 0, done.stderr
