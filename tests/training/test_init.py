"""What a run takes of the checkpoint that `--init-from` names beside its weights."""

import logging
import re

import pytest
import torch

from unitk.errors import CheckpointError, UsageError
from unitk.training.loop import Trainer
from unitk.training.loop import train as train_run
from unitk.training.reporting.report import first_lines
from unitk.training.saving import checkpoint
from unitk.training.start import parse_train, prepare

SEGMENTS = "embed.segments.weight"


@pytest.fixture
def begin(tmp_path, toy_data):
    """A checked start with no more than the data, the sizes and the words."""

    def make(words, run="new"):
        where = f"--data {toy_data / 'text'} --max-steps 1 --save-dir {tmp_path / run} {words}"
        return prepare(parse_train(where.split()))

    return make


def task_of(start):
    return start.parsed.components["task"].config


def test_the_options_of_the_same_task_are_inherited(train, start, tmp_path):
    train("--max-steps 1 --task mass --arch mass_tiny --task.opening sep", run="first")
    same = f"--task mass --max-steps 1 --init-from {tmp_path / 'first'}"
    begun = start(f"{same} --arch mass_tiny", run="second")
    assert task_of(begun).opening == "sep" and begun.beginning.changed == []
    assert "task.opening: sep  # checkpoint" in begun.parsed.settings.yaml()
    words = f"--task seq2seq --arch mass_tiny --max-steps 1 --init-from {tmp_path / 'first'}"
    other = start(words, data="pairs")
    assert task_of(other).opening == "cls"  # another task has its own
    flagged = start(f"{same} --arch mass_tiny --task.opening both", run="third")
    assert task_of(flagged).opening == "both"
    (line,) = flagged.beginning.changed
    assert "--task.opening is both" in line and line in first_lines(Trainer(flagged))


def test_a_help_page_has_the_components_that_the_run_would_have(train, tmp_path, capsys):
    train("--max-steps 1 --task mass --arch mass_tiny --arch.width 24", run="first")
    path = tmp_path / "first"
    for words in (
        f"--task mass --init-from {path}",
        f"--task seq2seq --init-from {path}",
        f"--save-dir {path} --resume",
        f"--save-dir {tmp_path / 'none'} --resume --task mass --arch mass_tiny --arch.width 24",
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            parse_train([*words.split(), "--help-all"])
        page = capsys.readouterr().out
        assert re.search(r"^--arch mass_tiny$(.|\n)*--arch.width N .*\[24\]$", page, re.M)
        task = "seq2seq" if "seq2seq" in words else "mass"
        assert f"\n--task {task}\n" in page


def test_mixed_tasks_inherit_each_its_own(train, begin, tmp_path):
    train("--max-steps 1 --task lm --arch gpt2_tiny --task.source-weight 0.25", run="one")
    one, two = tmp_path / "one", tmp_path / "three"
    words = "--task lm=0.5 --task mlm=linear:value=0.5 --arch gpt2_tiny --blocks line"
    begun = begin(f"{words} --init-from {one}", run="two")
    shares = "lm=0.5 mlm=linear:value=0.5,"  # as they were given
    assert f"with task {shares}" in first_lines(Trainer(begun))[0]
    begun = begin(f"{words} --init-from {one}", run="three")
    assert begun.parsed.mixture["lm"].config.source_weight == 0.25
    train_run(begun)
    assert task_of(begin(f"--task lm --init-from {two}")).source_weight == 0.25


def test_sentinels_are_those_of_the_checkpoint(train, start, tmp_path):
    sizes, place = "--arch t5_tiny --max-steps 1", f"--init-from {tmp_path / 'first'}"
    train(f"--task t5 --task.sentinels 9 {sizes}", run="first")
    with pytest.raises(UsageError, match="9 sentinels, but.* run 0: train.* --task t5"):
        start(f"--task seq2seq {sizes} {place}", data="pairs")
    begun = start(f"--task t5 {sizes} {place}", data="pairs")
    assert len(begun.data.vocab.sentinels) == 9
    with pytest.raises(UsageError, match="9 sentinels, but.* run 8: train.* --task.sentinels 9"):
        start(f"--task t5 --task.sentinels 8 {sizes} {place}", data="pairs")


@pytest.mark.parametrize(
    "option", ["num-heads 2", "activation relu", "score-scale off", "norm-eps 0.1"]
)
def test_what_shapes_do_not_show_is_named(train, start, tmp_path, option):
    train("--max-steps 1", run="first")
    begun = start(f"--max-steps 1 --init-from {tmp_path / 'first'} --arch.{option}", run="second")
    name, value = option.split()
    (line,) = begun.beginning.changed
    assert line.startswith(f"--arch.{name} is {value}, but ") and str(tmp_path / "first") in line


def test_a_preset_that_changes_the_weights_meaning_is_refused(train, start, begin, tmp_path):
    train("--max-steps 1 --task mlm --arch bert_tiny --arch.activation relu", run="first")
    words = f"--task mlm --max-steps 1 --init-from {tmp_path / 'first'}"
    with pytest.raises(UsageError, match="--arch.activation .*gelu.*relu.*or leave out --arch"):
        start(f"{words} --arch bert_tiny", run="second")
    assert begin(f"--task mlm --init-from {tmp_path / 'first'}").beginning.changed == []


def test_unilm_begins_with_berts_segments(train, begin, tmp_path, caplog):
    train("--max-steps 1 --task mlm --arch bert_tiny", run="bert")
    bert = checkpoint.load(tmp_path / "bert").model.state_dict()
    for arch in ("", "--arch unilm_tiny"):
        begun = begin(f"--task unilm --init-from {tmp_path / 'bert'} {arch}")
        with caplog.at_level(logging.INFO):
            model = Trainer(begun).model.cpu().state_dict()
        assert torch.equal(model.pop(SEGMENTS), bert[SEGMENTS][[0, 1, 0, 0, 0, 1]])
        assert all(torch.equal(tensor, bert[name]) for name, tensor in model.items())
    assert f"{SEGMENTS} begins as rows [0, 1, 0, 0, 0, 1]" in caplog.text


def test_unilm_begins_with_the_only_segment_of_roberta(train, begin, tmp_path):
    train("--max-steps 1 --task mlm --arch bert_tiny --arch.num-segments 1", run="roberta")
    model = Trainer(begin(f"--task unilm --init-from {tmp_path / 'roberta'}")).model.cpu()
    one = checkpoint.load(tmp_path / "roberta").model.decoder.embed.segments.weight
    assert torch.equal(model.decoder.embed.segments.weight, one.expand(6, -1))


def test_a_pseudo_token_begins_as_the_mask(train, begin, tmp_path):
    train("--max-steps 1 --task mlm --arch bert_tiny", run="bert")
    words = f"--task pmlm --init-from {tmp_path / 'bert'}"
    with pytest.raises(UsageError, match="task pmlm needs --arch.num-virtual 1"):
        begin(words)
    embed = Trainer(begun := begin(f"{words} --arch.num-virtual 1")).model.decoder.embed
    assert torch.equal(embed.virtual.weight[0], embed.tokens.weight[begun.data.vocab.mask])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task glm_infill --arch bert_tiny", "glm_infill needs --arch.max-positions2 above 0"),
        ("--task unilm --arch bert_tiny", "unilm needs --arch.num-segments 6"),
    ],
)
def test_a_task_names_what_it_needs(begin, words, message):
    with pytest.raises(UsageError, match=message):
        begin(words)


def test_the_option_that_changes_a_shape_is_named(train, tmp_path):
    train("--max-steps 1 --task mlm --arch bert_tiny", run="first")
    words = f"--max-steps 1 --task mlm --arch bert_tiny --init-from {tmp_path / 'first'}"
    for option in ("--arch.num-layers 1", "--arch.num-layers 3", "--arch.width 32"):
        with pytest.raises(CheckpointError) as error:
            train(f"{words} {option}", run="second")
        assert option.split()[0] in str(error.value)
    assert not (tmp_path / "second").exists()
