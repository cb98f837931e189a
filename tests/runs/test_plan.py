"""`unitk train --dry-run`."""

import itertools
import re

import pytest
from safetensors.torch import load_file

import unitk
from unitk.errors import UsageError
from unitk.runs import plan
from unitk.training.saving.state import Progress
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


def test_what_is_due_is_counted_from_where_a_run_goes_on():
    for step, left, every in itertools.product(range(7), range(7), range(1, 5)):
        at, done = Progress(step=step), step
        times = 0
        for _ in range(left):
            at.step += 1
            if at.due(every, done, at.step == step + left):
                done = at.step
                times += 1
        assert plan.count_due(step, left, every) == times


@pytest.mark.parametrize(
    "more",
    [
        "--adapter lora:rank=2 --init-from {base}",
        pytest.param("--nproc 2 --shard", marks=pytest.mark.slow),
    ],
)
def test_checkpoints_are_as_large_as_announced(words, more, tmp_path, capfd):
    """Of an adapter the base is not in them, and of a divided model each rank has a part."""
    words = words.replace("--dry-run", "--max-steps 2 --valid none --writers none")
    run(words.replace("/run", "/base").split())
    words = f"{words} {more.format(base=tmp_path / 'base')}"
    capfd.readouterr()
    run([*words.split(), "--dry-run"])
    size = float(re.search(r"checkpoints? of (\S+) MB", capfd.readouterr().out)[1])
    run(words.split())
    stored = [tmp_path / "run" / "last" / f"{name}.safetensors" for name in ("model", "optim")]
    held = sum(tensor.nbytes for path in stored for tensor in load_file(path).values())
    assert size == pytest.approx(held / 1e6, rel=0.01)


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
