import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "recipes" / "benchmarks"


@pytest.mark.slow
def test_preprocessing_is_measured_against_the_tokenizer_alone(tmp_path):
    (tmp_path / "x.txt").write_text(Path(__file__).read_text() * 20)
    words = [sys.executable, str(BENCHMARKS / "preprocess.py"), "--data", "x.txt"]
    words += ["--vocab-size", "150", "--vocab-kind", "bpe", "--repeats", "1", "--workers", "2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "unitk / raw, 1" in done.stdout and "byte-identical" in done.stdout
