"""What tasks ask of the data: their own cut, static draws, virtual tokens, segments."""

import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from labelled_corpora import FORMS, write_corpora

from unitk import registry
from unitk.criterions.config import OfTask
from unitk.data.batching import draw
from unitk.data.limits import explain_misfit, tables_of
from unitk.errors import UsageError
from unitk.slots import Example, stay
from unitk.training.loop import train
from unitk.training.start import parse_train, prepare


@pytest.fixture
def begin(tmp_path, toy_data):
    """A checked start of a run on text: `begin("--task mlm")`."""

    def make(words, data="text"):
        base = f"--data {toy_data / data} --save-dir {tmp_path / 'run'} --max-steps 1"
        return prepare(parse_train(f"{base} --block-size 64 {words}".split()))

    return make


def drawn(source, epoch, count=20):
    source.bounds(epoch)
    examples = [draw(source, 1, epoch, i) for i in range(count)]
    return [one.towers["x"].table.tolist() for one in examples]


def test_pairs_of_sentences_are_cut_and_asked_about(begin):
    data = begin("--task mlm --arch bert_tiny --task.nsp on").data
    bounds = data.train.bounds(0)
    flags = []
    for i in range(len(bounds)):
        one = draw(data.train, 1, 0, i)
        assert len(one.towers["x"]) <= min(bounds[i], 64)
        flags += [int(ask.label[0]) for ask in one.asks if ask.name == "nsp"]
    assert set(flags) == {0, 1} and len(flags) == len(bounds)
    with pytest.raises(UsageError, match="--blocks .*no effect"):
        begin("--task mlm --arch bert_tiny --task.nsp on --blocks doc")


@pytest.mark.parametrize("nsp", ["on", "off"])
def test_static_masks_come_again_after_so_many_epochs(begin, nsp):
    data = begin(f"--task mlm --arch bert_tiny --task.copies 2 --task.nsp {nsp}").data
    epochs = [drawn(data.train, epoch) for epoch in range(4)]
    assert epochs[0] == epochs[2] != epochs[1] == epochs[3]
    dynamic = begin(f"--task mlm --arch bert_tiny --task.nsp {nsp}").data
    assert drawn(dynamic.train, 0) == epochs[0] != drawn(dynamic.train, 2)


def test_an_architecture_that_lacks_what_a_task_needs_is_refused(begin):
    with pytest.raises(UsageError, match=r"task pmlm needs --arch.num-virtual 1 for \[P\]"):
        begin("--task pmlm --arch bert_tiny")
    begin("--task pmlm --arch bert_tiny --task.pseudo mask")
    with pytest.raises(UsageError, match="task unilm needs --arch.num-segments 6"):
        begin("--task unilm --arch bert_tiny")
    added = begin("--task mlm --arch albert_tiny --task.nsp on").parsed.components["arch"]
    assert added.config.heads == ("class:sop:2", "class:nsp:2")
    with pytest.raises(UsageError, match="mlm asks class:nsp:2, but --arch.heads are tag:a:3: add"):
        begin("--task mlm --arch albert_tiny --task.nsp on --arch.heads tag:a:3")


def test_one_segment_is_that_of_all_parts(begin):
    data = begin("--task mlm --arch roberta_tiny --task.nsp on").data
    data.train.bounds(0)
    assert draw(data.train, 1, 0, 0).towers["x"].seg.max() == 1
    slots = stay(np.arange(3), pos=np.arange(3), at=0, seg=2)
    found = [
        explain_misfit(Example({"x": slots}), tables_of(registry.get("arch", name)()))
        for name in ("roberta_tiny", "gpt2_tiny", "bert_tiny")
    ]
    assert found == ["", "", "segment 2 is beyond --arch.num-segments 2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task mass --arch mass_tiny --max-steps 1 --criterion.ar 1", "--criterion.ar .*tower"),
        (
            "--task optimus --arch optimus_tiny --criterion.beta 1 --lr-schedule constant"
            " --criterion.aggressive-steps 1 --max-hours 1",
            "--criterion.aggressive-steps .*--max-steps",
        ),
    ],
)
def test_what_a_criterion_needs_in_training_is_refused_without_a_folder(
    train, tmp_path, words, message
):
    with pytest.raises(UsageError, match=message):
        train(words)
    assert not (tmp_path / "run").exists()


def test_a_model_of_one_tower_is_offered_two_of_its_own(train, begin, tmp_path):
    """The cures of the messages are taken at their word."""
    train("--arch qwen3_tiny --max-steps 1", run="one")
    one, words = tmp_path / "one", "--task"
    pair = f"--arch qwen3_encdec_tiny --init-encoder {one} --init-decoder {one}"
    for task in ("seq2seq", "t5"):
        with pytest.raises(UsageError, match=re.escape(f"one tower: take {pair}, ")):
            begin(f"{words} {task} --init-from {one}", data="pairs")
    assert "encoder of" in str(begin(f"{words} seq2seq {pair}", data="pairs").beginning)
    both = pair.removeprefix("--arch qwen3_encdec_tiny")
    with pytest.raises(UsageError, match="take --arch qwen3_encdec_tiny$"):
        begin(f"{words} seq2seq --arch t5gemma_mini {both}", data="pairs")
    with pytest.raises(UsageError, match="one tower, .*--init-encoder .*--init-decoder"):
        begin(f"{words} seq2seq --arch qwen3_encdec_tiny --init-from {one}", data="pairs")
    with pytest.raises(UsageError, match="ul2 .*take --task.towers one, or"):
        begin(f"{words} ul2 --init-from {one}", data="pairs")
    begin(f"{words} ul2 --task.towers one --init-from {one}", data="pairs")


OF_TASKS = {
    task: name
    for task in registry.names("task")
    if issubclass(registry.get("criterion", name := registry.get("task", task).criterion), OfTask)
}


@pytest.mark.parametrize("task", OF_TASKS)
def test_a_criterion_of_certain_tasks_learns_no_other(begin, task):
    criterion = OF_TASKS[task]
    with pytest.raises(UsageError, match=f"--criterion {criterion} is for --task .*{task}"):
        begin(f"--task lm --arch gpt2_tiny --criterion {criterion}")


@pytest.mark.parametrize(
    ("mixed", "arch"),
    [("optimus bart", "optimus"), ("adaptive_mlm mlm", "bert"), ("electra mlm", "electra")],
)
def test_a_criterion_of_certain_tasks_learns_no_mixture(begin, mixed, arch):
    """The asks of a mixture have other names, and batches of the other task lack what it reads."""
    task, other = mixed.split()
    words = f"--task {task}=1 --task {other}=1 --arch {arch}_tiny --criterion {OF_TASKS[task]}"
    with pytest.raises(UsageError, match=f"is for --task {task} alone"):
        begin(words)


def test_texts_are_translated_back_beside_another_objective(begin):
    words = "--task back_translation=1 --task mass_translation=1 --arch mass_translation"
    begin(f"{words} --criterion back_translation")


@pytest.mark.parametrize("data", ["text", "pairs"])
def test_negatives_need_sources_that_have_them(begin, data):
    words = "--task contrastive --arch bert_tiny --task.negatives"
    begin(f"{words} 0", data=data)
    with pytest.raises(UsageError, match="task contrastive .*--source-field text,negative1,"):
        begin(f"{words} 2", data=data)


def test_a_weight_of_words_needs_a_layout_that_asks_for_them(begin):
    words = "--task classify --task.lm-weight 0.3"
    for more in ("--arch bert_tiny", "--arch unilm_tiny --task.layout unilm"):
        with pytest.raises(UsageError, match="--task.lm-weight .*--task.layout lm$"):
            begin(f"{words} {more}")
    with pytest.raises(UsageError, match="labelled"):  # texts have no classes
        begin(f"{words} --arch gpt2_tiny --task.layout lm:opening=none")


@pytest.mark.parametrize("option", ["label-smoothing", "z-loss"])
@pytest.mark.parametrize("task", ["classify", "regress", "tag", "span", "choice", "multi_label"])
def test_what_smooths_words_has_no_effect_on_labels(begin, task, option):
    words = f"--criterion.{option} 0.1"
    with pytest.raises(UsageError, match=f"--criterion.{option}.* labels"):
        begin(f"--task {task} --arch bert_tiny {words}")
    with pytest.raises(UsageError, match="labelled|learns from"):  # words beside the labels
        begin(f"--task {task} --arch gpt2_tiny --task.layout lm {words}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--task seq2seq --arch bart_tiny",
            "--task seq2seq cannot pre-train on texts; it learns from pairs; .*glm_infill, ",
        ),
        (
            "--task lm --arch bart_tiny",
            "lm needs one tower, but --arch bart_tiny has an enc",
        ),
        (
            "--task mass --arch bert_tiny",
            "mass needs an encoder and a decoder, but --arch b",
        ),
    ],
)
def test_what_cannot_be_is_said_before_a_model_is_built(begin, words, message):
    with pytest.raises(UsageError, match=message):
        begin(words)


def test_data_that_a_task_cannot_read_leave_no_folder(begin):
    """So that the command runs again on other data without another name."""
    start = begin("--task spanbert --arch bert_tiny --task.units phrases")
    with pytest.raises(UsageError, match="--task.units phrases: --data .*--annotate"):
        train(start)
    assert not start.run.path.exists()


TINY = [name for name in registry.names("arch") if name.endswith("_tiny")]
LAYOUTS = {
    "must return an Example, got .1, 2": lambda one, size: (1, 2),
    "lays out ids .*below 300": lambda one, size: changed(one, token=size),
    "lays out ids .*below 300, ": lambda one, size: changed(one, token=-1),
    "asks for ids .*below 300": lambda one, size: changed(one, label=size),
}


def changed(example, token=None, label=None):
    """The example with another first token, or another label."""
    slots, (ask,) = example.towers["x"], example.asks
    if token is not None:
        slots = stay(np.array([token, *slots.token[1:]]), slots.pos)
    labels = ask.label if label is None else np.full_like(ask.label, label)
    return Example({"x": slots}, [replace(ask, label=labels)])


@pytest.mark.parametrize("message", LAYOUTS)
def test_a_layout_of_a_plug_in_that_cannot_be_is_named(begin, own_registry, tmp_path, message):
    @registry.register("task", "mine")
    class Mine(registry.get("task", "mlm")):
        def pretrain(self, text, rng):
            return LAYOUTS[message](super().pretrain(text, rng), len(self.vocab))

    with pytest.raises(UsageError, match=f"^--task mine: pretrain {message}"):
        train(begin("--task mine --arch bert_tiny"))
    assert not (tmp_path / "run").exists()


def test_a_bound_that_a_plug_in_exceeds_is_named(begin, own_registry, tmp_path):
    @registry.register("task", "mine")
    class Mine(registry.get("task", "mlm")):
        def slots(self, n):
            return n  # without the special symbols

    with pytest.raises(UsageError, match=r"^--task mine: pretrain .*\bslots or pair_slots"):
        train(begin("--task mine --arch bert_tiny"))
    assert not (tmp_path / "run").exists()


def test_a_layout_is_not_written_out(begin, own_registry):
    """Only a message needs its text: it takes many times as long as the layout."""

    class Silent(Example):
        def __repr__(self):
            raise AssertionError("written out")

    @registry.register("task", "mine")
    class Mine(registry.get("task", "mlm")):
        def pretrain(self, text, rng):
            one = super().pretrain(text, rng)
            return Silent(**{field.name: getattr(one, field.name) for field in fields(one)})

    example = draw(begin("--task mine --arch bert_tiny").data.train, 1, 0, 0)
    assert type(example) is Silent


NETWORKS = {registry.get("arch", name)().network: name for name in TINY}
"""What builds a network -> a small architecture that it builds."""


def is_trained_or_refused(begin, task, arch):
    """Whether a run trains; its folder is there if it does, and only then."""
    small = "--max-tokens 512 --valid none"
    try:
        start = begin(f"--task {task} --arch {arch} {small}")
        path = start.run.path
        train(start)
    except UsageError:
        path = Path("run").absolute()
        trained = False
    else:
        trained = True
    assert path.exists() == trained
    return trained


def test_what_an_architecture_cannot_compute_leaves_no_folder(begin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for task in ("albert", "ernie", "spanbert", "thu_ernie"):
        assert not is_trained_or_refused(begin, task, "electra_tiny")
    assert is_trained_or_refused(begin, "mlm", "electra_tiny")


@pytest.mark.slow
@pytest.mark.parametrize("arch", NETWORKS.values())
def test_every_task_trains_with_an_architecture_or_leaves_no_folder(
    begin, tmp_path, monkeypatch, arch
):
    monkeypatch.chdir(tmp_path)
    for task in registry.names("task"):
        if is_trained_or_refused(begin, task, arch):
            shutil.rmtree("run")


def test_labels_of_another_form_are_refused_by_their_form(tmp_path, toy_vocab):
    """Whatever labels there are in place of a task's own, before it lays anything out."""
    data = write_corpora(tmp_path, toy_vocab)
    for task, own in (FORMS | {"multi_label": "classes"}).items():
        for form in {*FORMS.values(), "classes"} - {own}:
            words = (
                f"--task {task} --arch bert_tiny --data {data / form} --save-dir {tmp_path / 'run'}"
            )
            with pytest.raises(UsageError, match=f"form {own}, .* {form} "):
                prepare(parse_train(f"{words} --max-steps 1".split()))
