"""Options of a run that contradict each other are named."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unitk.errors import UsageError
from unitk.options.config import flag, options, parse
from unitk.training.config import TrainConfig, parse_named_set, parse_weighted
from unitk.training.device import choose_device
from unitk.training.start import parse_train

NEEDED = "--data d --save-dir s --max-steps 5"


def config(words):
    return parse("train", TrainConfig, words.split()).main


def test_defaults():
    given = config(NEEDED)
    assert (given.lr, given.max_tokens, given.batch_tokens) == (4e-4, 8192, None)
    assert given.lr_schedule(6, 100) == 1 and given.lr_schedule(100, 100) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--data d --save-dir s",
            "one of --max-steps, --max-epochs, --max-words and --max-hours is needed",
        ),
        ("--data d --max-steps 5", "--save-dir is needed"),
        ("--save-dir s --max-steps 5", "--data is needed"),
        ("--data= --save-dir s --max-steps 5", "--data is needed"),
        (f"{NEEDED} --rank-timeout 1e308", r"--rank-timeout must be in \[0.1, 604800\]"),
        (f"{NEEDED} --threads 100000", "--threads must be at most"),
        (f"{NEEDED} --batch-tokens 10 --batch-texts 10", "--batch-tokens excludes"),
        (f"{NEEDED} --data d=many", "--data d=many: what follows = is a weight"),
        (f"{NEEDED} --data d=0", "weight above 0"),
        (f"{NEEDED} --valid a --valid b", "two sets are called 'valid'; write NAME=DIR"),
        (f"{NEEDED} --valid train=b", "'train' is not a name for a validation set"),
        (f"{NEEDED} --precision fp8", "--precision must be one of auto, fp32, bf16, fp16"),
    ],
)
def test_mistakes_are_named(words, message):
    words = words.replace(
        "--data d --save-dir s --max-steps 5 --data", "--save-dir s --max-steps 5 --data"
    )
    with pytest.raises(UsageError, match=message) as error:
        config(words)
    assert error.value.code == 2 and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ({"batch_tokens": "64"}, "--batch-texts 3"),
        ({"batch_texts": "3"}, "--batch-tokens 64"),
        ({"ema": "0.9"}, "--average-last 0.5"),
        ({"average_last": "0.5"}, "--ema 0.9"),
        ({"stateful_rows": "4"}, "--static"),
    ],
)
def test_a_flag_takes_the_place_of_what_it_excludes(tmp_path, capsys, below, words):
    file = tmp_path / "given.yaml"
    [(name, text)] = below.items()
    file.write_text(f"{name}: {text}\ntask: lm\n")
    flagged = parse_train(f"{NEEDED} --config {file} {words}".split())
    alone = parse_train(f"{NEEDED} --task lm {words}".split())
    assert flagged.main == replace(alone.main, config=file)
    assert f"{words.split()[0]} drops {name} of {file}" in capsys.readouterr().err
    with pytest.raises(UsageError, match="excludes"):
        parse_train(f"{NEEDED} --task lm {words} {flag(name)} {text}".split())


def test_adafactor_is_not_divided(start):
    words = "--max-steps 3 --nproc 2 --shard"
    assert start(words).config.shard
    with pytest.raises(UsageError, match="--shard and --optimizer adafactor exclude"):
        start(f"{words} --optimizer adafactor")
    with pytest.raises(UsageError, match="--shard .*--optimizer.state bf16"):
        start(f"{words} --optimizer.state bf16")


def test_hours_alone_suit_schedules_without_end(start):
    linear = "linear:value=0.3,floor=0.5"
    hours = "--max-hours 2 --lr-schedule inverse_sqrt:warmup=9"
    assert start(hours).config.max_hours == 2
    for words, option in (
        ("--max-hours 2", "--lr-schedule"),
        (f"{hours} --task.mask-ratio {linear}", "--task.mask-ratio"),
    ):
        with pytest.raises(UsageError, match=f"--max-hours alone.* {option} when"):
            start(words)


def test_data_and_valid_are_taken_apart():
    assert parse_weighted("a=b=0.5") == (Path("a=b"), 0.5) and parse_weighted("a") == (
        Path("a"),
        1.0,
    )
    assert parse_named_set("dev=a=b") == ("dev", Path("a=b")) and parse_named_set("a") == (
        "valid",
        Path("a"),
    )
    assert config(f"{NEEDED} --valid none").named_valid == []


def test_fp32_on_a_gpu_is_fp32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    both = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [backend.allow_tf32 for backend in both]
    try:
        for wanted, rounds in (("cpu", True), ("auto", False)):
            for backend in both:
                backend.allow_tf32 = True
            choose_device(wanted)
            assert [backend.allow_tf32 for backend in both] == [rounds, rounds]
    finally:
        for backend, value in zip(both, before, strict=True):
            backend.allow_tf32 = value


@pytest.mark.parametrize(
    "name", [option.flag for option in options(TrainConfig) if option.type is not bool]
)
def test_an_option_without_its_value_is_named(name):
    with pytest.raises(UsageError, match=f"^{name} needs"):
        parse_train([name, "--task=mlm"])
