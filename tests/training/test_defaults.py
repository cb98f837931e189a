"""New models of our own stacks train by the good recipe, published ones as published."""

import re

import pytest

from unitk.errors import UsageError
from unitk.training.config import TrainConfig
from unitk.training.start import parse_train

LM = "--task lm --data x --save-dir y --max-steps 9"


def chosen(words):
    """The architecture, the optimizer and the rate of a run."""
    texts = parse_train(words.split()).settings.texts
    return texts["arch"], texts["optimizer"], float(texts["lr"])


@pytest.mark.parametrize("task", ["lm", "mlm", "unilm", "pmlm", "glm_infill", "mdlm", "bd3lm"])
def test_one_tower(task):
    assert chosen(LM.replace(" lm", f" {task}")) == ("qwen3_mini", "muon", 4e-3)


@pytest.mark.parametrize("task", ["seq2seq", "bart", "t5", "mass", "ul2"])
def test_two_towers(task):
    assert chosen(LM.replace(" lm", f" {task}")) == ("t5gemma_mini", "muon", 4e-3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--arch modern_small", ("modern_small", "muon", 4e-3)),
        ("--arch qwen3_15m", ("qwen3_15m", "muon", 4e-3)),
        ("--arch gpt2_small", ("gpt2_small", "adamw", 4e-4)),
        ("--arch qwen3_0.6b", ("qwen3_0.6b", "adamw", 4e-4)),
        ("--optimizer adamw", ("qwen3_mini", "adamw", 2e-3)),
        ("--optimizer adamw --lr 1e-3", ("qwen3_mini", "adamw", 1e-3)),
        ("--lr 1e-3", ("qwen3_mini", "muon", 1e-3)),
        ("--optimizer lamb", ("qwen3_mini", "lamb", 4e-4)),
        ("--optimizer.momentum 0.9", ("qwen3_mini", "muon", 4e-3)),
        ("--lr auto --arch gpt2_small", ("gpt2_small", "adamw", 2e-3)),
        ("--lr auto --arch gpt2_small --optimizer muon", ("gpt2_small", "muon", 4e-3)),
    ],
)
def test_what_is_given_wins(words, expected):
    assert chosen(f"{LM} {words}") == expected


@pytest.mark.parametrize(
    ("words", "optimizer", "arch"),
    [
        ("", "0", "0"),  # the rate is that of this width
        ("--arch.width 512", "256", "256"),
        ("--arch qwen3_small", "256", "256"),
        ("--arch.width 512 --lr 1e-3", "0", "0"),  # a rate is meant for the model it is given for
        ("--arch gpt2_small", "0", "0"),
        ("--arch gpt2_small --lr auto", "256", "0"),  # a paper's first weights are the paper's
    ],
)
def test_rates_that_are_chosen_are_carried_over_to_the_width(words, optimizer, arch):
    texts = parse_train(f"{LM} {words}".split()).settings.texts
    assert (texts["optimizer.base_width"], texts["arch.base_width"]) == (optimizer, arch)


def test_fine_tuning_keeps_its_defaults():
    words = "--task glm_infill --init-from unitk-base-en --data x --save-dir y --max-steps 9"
    assert chosen(words) == ("qwen3_15m", "adamw", TrainConfig.lr)
    assert chosen(f"{words} --lr auto --optimizer muon") == ("qwen3_15m", "muon", 4e-3)


@pytest.mark.parametrize("words", ["", "--arch gpt2_small", "--init-from unitk-base-en"])
def test_help_shows_what_a_run_takes(words, capsys):
    with pytest.raises(SystemExit):
        parse_train(f"{LM} {words} --help-all".split())
    page = capsys.readouterr().out
    optimizer = chosen(f"{LM} {words}")[1]
    assert re.findall(r"^--optimizer (\w+)$", page, re.M) == [optimizer]
    of_muon = "--optimizer.momentum" in page
    assert of_muon == (optimizer == "muon")


def test_only_measured_rates_are_chosen():
    with pytest.raises(UsageError, match="--lr auto .*muon.*lamb"):
        parse_train(f"{LM} --optimizer lamb --lr auto".split())
