"""What 0.1.0 wrote still loads, and says what the version that wrote it said.

`tests/fixtures/v0.1` holds a corpus, pairs, and a run of four updates for each kind of model;
`expected.json` has the losses of the checkpoints and of the two updates that followed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unitk.data.examples import open_data
from unitk.spans import edge_start
from unitk.tasks.mass import MASS
from unitk.training import loop
from unitk.training.reporting.sinks import read_events
from unitk.training.start import parse_train, prepare
from unitk.verbs import evaluate

OLD = Path(__file__).resolve().parents[1] / "fixtures" / "v0.1"
EXPECTED = json.loads((OLD / "expected.json").read_text())
CLOSE = 1e-5
"""Relative: sums of some hundred terms in fp32, in another order. A tenth of it is absolute, for a
figure of 3e-4 that is a difference of sums."""
SHARE = {"mixture": 0.5}
"""Run -> what the losses and texts of its tasks count now; 0.1.0 had their sum."""

COUNTED = {"words", "bytes", "ppl_word", "bits_per_byte"}
"""Figures in which 0.1.0 counted a word as two where a text was cut inside it."""


@pytest.fixture(autouse=True)
def spans_as_then(monkeypatch):
    """MASS of 0.1.0 hid half of a text's tokens but [CLS]; now this one counts, too."""

    def spans(self, tokens, share, rng):
        length = round(share * (tokens - 1))
        start = 1 + edge_start(tokens - 1, length, self.config.edges, rng)
        return np.array([[start, start + length]])

    monkeypatch.setattr(MASS, "spans", spans)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_old_checkpoint_has_the_losses_it_had(name, capsys, monkeypatch):
    def cut_as_then(parsed):  # 0.1.0 did not evaluate the sentence pairs of validation
        return open_data(replace(parsed, main=replace(parsed.main, seed=1)))

    monkeypatch.setattr("unitk.evaluation.objective.open_data", cut_as_then)
    data = OLD / ("pairs/train" if name in ("qg", "seq2seq", "t5") else "corpus/valid")
    words = ["--checkpoint", str(OLD / "runs" / name), "--data", str(data)]
    words += ["--output-format", "json"] + ["--draws", "3"] * (name == "optimus")
    evaluate.run(words)
    found = json.loads(capsys.readouterr().out)
    for key, value in EXPECTED[name]["evaluate"].items():
        if key in COUNTED:
            continue
        share = SHARE.get(name, 1) if key in ("loss", "texts") else 1
        assert found[key] == pytest.approx(share * value, rel=CLOSE, abs=CLOSE / 10), key


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"optimus"}))
def test_an_old_run_goes_on_as_it_would_have(name, tmp_path, monkeypatch):
    run = shutil.copytree(OLD / "runs" / name, tmp_path / name, symlinks=True)
    monkeypatch.chdir(OLD)  # its data are named relative to this folder
    words = ["--config", str(run / "config.yaml"), "--resume", "--max-steps", "6"]
    loop.train(prepare(parse_train([*words, "--save-dir", str(run)])))
    losses = {one["step"]: one["train/loss"] for one in read_events(run / "log.jsonl")}
    for step, value in EXPECTED[name]["losses"].items():
        assert losses[int(step)] == pytest.approx(SHARE.get(name, 1) * value, rel=CLOSE), step
