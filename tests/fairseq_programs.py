"""fairseq, where it is installed (`make fairseq`)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# the folder tests/fairseq has the name of the package
needs_fairseq = pytest.mark.skipif(
    find_spec("fairseq_cli") is None, reason="fairseq is not installed: make fairseq"
)
ROOT = Path(__file__).resolve().parents[1]


def run_fairseq(verb: str, *words: str, folder: Path | None = None) -> str:
    """What a program of fairseq prints, such as `fairseq-train` for "train"."""
    command = [sys.executable, "-W", "ignore", "-m", f"fairseq_cli.{verb}", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    if verb == "generate":  # torch 2.6 and later refuse fairseq's checkpoints otherwise
        env["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout + done.stderr
