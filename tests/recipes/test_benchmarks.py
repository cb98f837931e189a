"""Scripts of benchmarks run at a tiny size, with the options of their examples."""

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "recipes" / "benchmarks"
SCRIPTS = [path.name for path in BENCHMARKS.glob("*.py") if "ArgumentParser" in path.read_text()]


@pytest.fixture
def script(monkeypatch, tmp_path, capsys):
    """`script("train.py --updates 1")` -> what it prints, run in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(BENCHMARKS)
    loaded = set(sys.modules)

    def run(words):
        monkeypatch.setattr(sys, "argv", words.split())
        runpy.run_path(str(BENCHMARKS / sys.argv[0]), run_name="__main__")
        return capsys.readouterr().out

    yield run
    for path in BENCHMARKS.glob("*.py"):
        if path.stem not in loaded:
            sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_has_the_options_of_its_example(script, capsys, name):
    for script_name, needs in (("serve.py", "httpx"), ("exchange.py", "transformers")):
        if name == script_name:
            pytest.importorskip(needs)
    with pytest.raises(SystemExit) as exit:
        script(f"{name} --help")
    said = capsys.readouterr().out
    assert exit.value.code == 0 and said.startswith(f"usage: {name} ")
    examples = re.findall(
        rf"\n    python recipes/benchmarks/{name} (.*)", (BENCHMARKS / name).read_text()
    )
    used = set(re.findall("--[a-z-]+", " ".join(examples)))
    assert examples and used <= set(re.findall("--[a-z-]+", said))


def test_renderings_of_the_mask_are_measured(script):
    sizes = "--widths 32 --slots 64 --heads 2 --layers 1 --rounds 1 --precision fp32 --device cpu"
    lines = script(f"attention.py {sizes}").splitlines()
    assert lines[1].split() == ["none", "causal", "dense"]
    for objective, line in zip(("mlm", "glm_infill", "pmlm"), lines[2:], strict=True):
        name, width, *milliseconds = line.split()
        assert name == f"{objective}," and int(width) >= 32
        assert len(milliseconds) == 3 and all(float(one) >= 0 for one in milliseconds)


@pytest.mark.slow
def test_the_start_of_a_command_is_measured(script):
    head, torch, unitk = script("start.py --rounds 1 -- --version").splitlines()
    for name, line in (("import torch", torch), ("unitk --version", unitk)):
        least = re.findall(r"([0-9.]+) \(\1\)", line.removeprefix(name))
        first, early, end, busy = map(float, least)
        assert line.startswith(name) and 0 < first <= end and early <= busy + 0.02 and busy > 0


@pytest.mark.slow
def test_preprocessing_is_measured_against_the_tokenizer_alone(tmp_path):
    (tmp_path / "x.txt").write_text(Path(__file__).read_text() * 20)
    words = [sys.executable, str(BENCHMARKS / "preprocess.py"), "--data", "x.txt"]
    words += ["--vocab-size", "150", "--vocab-kind", "bpe", "--repeats", "1", "--workers", "2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "unitk / raw, 1" in done.stdout and "byte-identical" in done.stdout
    assert re.search(r"tokenizers +0 of \d+ texts have other ids", done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("fairseq_cli") is not None, reason="fairseq is installed")
def test_a_peer_that_is_not_there_is_told():
    words = [sys.executable, str(BENCHMARKS / "peers.py"), "--peer", "fairseq"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("fairseq is not installed: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "train.py --task lm --arch gpt2_tiny --threads 1 --updates 1 --rounds 1 --build lm",
        "stacks.py gpt2_tiny modern_tiny --block-size 64 --max-tokens 256 --rounds 1",
        "quality.py --updates 1 --turn 1 --texts 1 --windows 1",
        "optimizers.py --task lm --arch gpt2_tiny --optimizers adamw,muon --threads 1 --updates 1",
        "peers.py --side tiny,bf16,mlm --steps 1",
        "peers.py --side tiny,bf16,unilm --steps 1",
        "peers.py --side tiny,bf16,seq2seq --steps 1",
    ],
)
def test_steps_are_measured(words, tmp_path):
    script, *options = words.split()
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_reading_is_measured(script):
    """Where both sides hold the same weights, the script itself compares what they say."""
    pytest.importorskip("transformers")
    lines = script("read.py --texts 2 --rounds 1").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["pairs", "labels"]
    for line in lines:
        mine, peer, ratio = map(float, re.findall(r"\d+\.\d+", line))
        assert abs(mine / peer - ratio) < 0.05 * ratio + 0.1 * ratio / peer


@pytest.mark.slow
def test_what_transformers_computes_is_compared(script):
    pytest.importorskip("transformers")
    versions, _, head, _, *rows = script("exchange.py bert t5gemma --texts 1").splitlines()
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert versions.startswith("transformers ") and len(rows) == 2
    for row in rows:
        found = dict(zip(names, (cell.strip() for cell in row.strip("|").split("|")), strict=True))
        assert max(float(found[name]) for name in ("out", "in", "states")) < 1e-5
        assert found["bits"] == "equal" and found["ids"] == "201 of 201"
        assert found["greedy"] == found["beam"] == ("" if "bert" in found["type"] else "1 of 1")


@pytest.mark.slow
def test_every_task_is_compared_but_most_of_labels(tmp_path):
    """Each has an architecture that its layouts fit, and a corpus; classes are compared, too."""
    words = """
import sys, peers
from pathlib import Path
from unitk import registry
from unitk.training.start import parse_train, prepare
peers.SIZES["tiny"] = 1, 8, 2, 4
for task in registry.names("task"):
    try:
        Path(task).mkdir()
        data = peers.corpus(Path(task), peers.texts(16, 4, 1), task)
    except SystemExit as error:
        print(task, error)
        continue
    kind = "--block-size 256" if peers.pretrains(task) else ""
    line = f"--task {task} {peers.architecture(task, 'tiny')} --save-dir run --data {data}"
    prepare(parse_train(f"{line} --max-steps 1 --valid none {kind}".split()))
"""
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{BENCHMARKS}:{BENCHMARKS.parents[1]}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    labels = [line.split()[0] for line in done.stdout.splitlines() if "learns from labels" in line]
    assert sorted(labels) == "choice cloze mtdnn multi_label regress span tag".split()
