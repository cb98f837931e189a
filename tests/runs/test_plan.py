"""`unitk train --dry-run`."""

import re

import pytest

import unitk
from unitk.errors import UsageError
from unitk.verbs.train import run


@pytest.fixture
def words(toy_data, tmp_path):
    return (
        f"--arch bart_tiny --task seq2seq --max-tokens 400 --lr 1e-2 --precision fp32 --device cpu"
        f" --data {toy_data}/pairs --save-dir {tmp_path / 'run'} --dry-run"
    )


def test_a_dry_run_measures_and_writes_nothing(words, tmp_path, capsys):
    run(f"{words} --max-steps 4000 --valid-every 400 --valid-generate 20".split())
    said = capsys.readouterr().out
    assert not any(tmp_path.iterdir())
    assert "length: 4,000 updates" in said and "10 validations, 8 checkpoints" in said
    update = float(re.search(r"an update: (\S+) s", said)[1])
    assert 0 < update < 60 and re.search(r"memory: \S+ GB", said)
    assert re.search("time: about ", said)
    # weights of fp32, and two averages of AdamW for each
    weights = float(re.search(r"(\S+) M parameters", said)[1])
    size = float(re.search(r"checkpoints of (\S+) MB", said)[1])
    assert size == pytest.approx(12 * weights, rel=0.1)


@pytest.mark.parametrize("more", ["--max-steps 1", "--max-hours 1 --lr-schedule constant"])
def test_other_lengths(words, more, capsys):
    words = words.partition(" --save-dir")[0] + " --dry-run"  # nothing is written to a folder
    run(f"{words} {more} --valid none".split())
    said = capsys.readouterr().out
    assert re.search(r"length: [\d,]+ updates?", said) and "a validation" not in said


def test_what_a_run_would_refuse_is_refused(words, tmp_path):
    with pytest.raises(UsageError, match="--max-source-len"):
        run(f"{words} --max-steps 1 --max-source-len 2000".split())
    with pytest.raises(UsageError, match="--dry-run"):
        unitk.train(
            **{"task": "lm", "data": "x", "save_dir": tmp_path, "max_steps": 1, "dry_run": True}
        )
