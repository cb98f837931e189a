"""unitk's objectives under fairseq's own trainer; UNITK_FAIRSEQ_PYTHON names a Python that has it.

`recipes/benchmarks/fairseq_shim.py` tells how to install fairseq 0.12.2 for one.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from unitk.data.batching import FixedBatches, draw, make_batch
from unitk.data.examples import open_data
from unitk.interop.files import read_pickle
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train
from unitk.vocab.base import open_vocab
from unitk_cli import convert, fairseq_plugin

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("UNITK_FAIRSEQ_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="UNITK_FAIRSEQ_PYTHON names no Python with fairseq"),
]
TRAIN = "import fairseq_shim; from fairseq_cli.train import cli_main; cli_main()"


def fairseq_train(folder: Path, data: Path, task: str, words: str, options: str) -> dict:
    """What a run of `fairseq-train` logs: {"train": ..., "valid": ...}."""
    fairseq_plugin.run(["--dest", str(folder / "plugin")])
    line = [str(data), "--user-dir", str(folder / "plugin"), "--task", f"unitk_{task}"]
    line += ["--criterion", "unitk", "--unitk-options", options, "--save-dir", str(folder / "save")]
    line += "--cpu --optimizer adam --num-workers 0 --log-format json".split() + words.split()
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'recipes/benchmarks'}"}
    done = subprocess.run([PYTHON, "-c", TRAIN, *line], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [line.split(" | ") for line in (done.stdout + done.stderr).splitlines()]
    return {log[2]: json.loads(log[3]) for log in logs if log[2:3] in (["train"], ["valid"])}


@pytest.mark.parametrize(
    ("kind", "task", "arch", "options"),
    [
        ("text", "glm_infill", "glm_tiny", "blocks=line task.mean-span=2"),
        ("text", "pmlm", "unilm2_tiny", ""),  # two asks
        ("pairs", "seq2seq", "bart_tiny", "criterion.label-smoothing=0.1"),
    ],
)
def test_the_loss_of_an_update_is_our_own(toy_data, tmp_path, kind, task, arch, options):
    options = f"block-size=64 arch.dropout=0 arch.attention-dropout=0 {options}"
    words = f"--arch unitk_{arch} --lr 0 --max-update 1 --batch-size 1000"
    words += " --required-batch-size-multiple 1"  # else the last rows are a batch of their own
    logged = fairseq_train(tmp_path, toy_data / kind, task, words, options)
    flags = [f"--{word}" for word in options.split()]
    flags += [f"--task={task}", f"--arch={arch}", "--max-steps=1", "--save-dir=unused"]
    parsed = parse_train([*flags, f"--data={toy_data / kind}"])
    data = open_data(parsed)
    model = parsed.components["arch"].config.build(len(data.vocab), len(data.vocab))
    saved = read_pickle(tmp_path / "save" / "checkpoint_last.pt")["model"]
    state = {name.removeprefix("network."): tensor for name, tensor in saved.items()}
    model.load_state_dict(state)
    criterion = parsed.components["criterion"].config.build(data.vocab)
    examples = data.train.examples
    drawn = [draw(examples, 1, 0, i) for i in range(len(examples.bounds(0)))]
    for name, batches in {
        "train": [make_batch(drawn)],
        "valid": [batch for _, batch in FixedBatches(data.valid["valid"].examples, 10**6)],
    }.items():
        (batch,) = batches
        sums, counts = criterion(model, batch.to("cpu"), 0, 1).sums, criterion.counts(batch)
        means = {ask: total / counts[ask] for ask, total in sums.items()}
        for what, value in {"loss": sum(means.values()), **means}.items():
            found = float(logged[name][f"{name}_{what}"]) * math.log(2)
            assert found == pytest.approx(value.item(), abs=1e-4), f"{name} {what}"
        if name == "train":
            sum(means.values()).backward()
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
            assert float(logged["train"]["train_gnorm"]) == pytest.approx(norm.item(), abs=2e-3)
    assert np.isfinite(value.item()) and len(drawn) > 50


def test_it_learns_continues_and_comes_back(toy_data, tmp_path):
    words = "--arch unitk --unitk-arch gpt2_tiny --lr 1e-2 --max-tokens 400 --max-update"
    options = "blocks=line block-size=32"
    first = fairseq_train(tmp_path, toy_data / "text", "lm", f"{words} 5", options)
    (tmp_path / "plugin" / "__init__.py").unlink()
    (tmp_path / "plugin").rmdir()
    later = fairseq_train(tmp_path, toy_data / "text", "lm", f"{words} 60", options)
    assert int(later["train"]["train_num_updates"]) == 60
    losses = [float(log["valid"]["valid_loss"]) for log in (first, later)]
    assert losses[1] < losses[0] - 0.5
    save, dest = tmp_path / "save" / "checkpoint_last.pt", tmp_path / "ours"
    convert.run(["--from", "fairseq", str(save), "--to", "unitk", str(dest)])
    loaded, saved = load(dest), read_pickle(save)["model"]
    assert loaded.task.vocab.hash == open_vocab(toy_data / "text").hash
    for name, tensor in loaded.model.named_parameters():
        assert torch.equal(tensor, saved[f"network.{name}"])


def test_its_mistakes_are_told(toy_data, tmp_path):
    with pytest.raises(AssertionError, match=r"--unitk-options has no 'lr'.*\n"):
        fairseq_train(tmp_path, toy_data / "text", "lm", "--arch unitk --max-tokens 99", "lr=1")
