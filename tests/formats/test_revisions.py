"""Checkpoints of a hybrid at counts of words, as revisions that transformers opens."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.errors import UnitkError
from unitk.slots import Example, collate, stay
from unitk.training.saving.checkpoint import load
from unitk.verbs import convert, train

HYBRID = "--task mlm=1 --task.mlm.shift on --task lm=1 --arch gpt2_tiny --blocks doc"


@pytest.fixture(scope="module")
def runs(tmp_path_factory, toy_data):
    """Folders of runs of some updates: `gpt2`, `bert` and `glm`."""
    folder = tmp_path_factory.mktemp("runs")
    base = f"--data {toy_data / 'text'} --valid none --max-tokens 400 --lr 1e-2 --precision fp32"
    base += " --lr-schedule constant"  # the last update changes weights, too
    for name, words in {
        "gpt2": f"{HYBRID} --max-words 1500 --save-at-words 400,800,...,1200",
        "bert": "--task mlm --task.shift on --arch bert_tiny --max-steps 1",
        "glm": "--task glm_infill --arch glm_tiny --max-words 400 --save-at-words 400",
    }.items():
        train.run([*base.split(), *words.split(), "--save-dir", str(folder / name)])
    return folder


def give(run, dest, *more):
    convert.run(["--from", "unitk", str(run), "--to", "hf", str(dest), *more])
    return dest


def test_each_revision_says_what_its_checkpoint_says(runs, tmp_path):
    transformers = pytest.importorskip("transformers")
    dest = give(runs / "gpt2", tmp_path / "hf", "--revisions", "--task", "lm")
    names = ["chck_400", "chck_800", "chck_1200"]
    assert {path.name for path in dest.iterdir()} == {"main", "push.sh", *names}
    ids, said = np.array([20, 30, 40, 50, 60]), []
    for name in [*names, "main"]:
        own = runs / "gpt2" if name == "main" else runs / "gpt2" / name.replace("chck", "words")
        loaded = load(own, task_name="lm")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(dest, subfolder=name).eval()
        assert type(theirs).__name__ == "GPT2LMHeadModel"
        with torch.no_grad():
            places = np.arange(5)
            batch = collate([[Example({"x": stay(ids, pos=places, at=places)})]]).to("cpu")
            ours = loaded.model.head(loaded.model(batch)[0]["x"][0, :5])
            assert_near(theirs(torch.tensor(ids)[None]).logits[0], ours)
            said.append(ours)
        assert transformers.AutoTokenizer.from_pretrained(dest / name)("The")["input_ids"]
    assert not any(torch.equal(one, two) for one, two in zip(said[:-1], said[1:], strict=True))


def test_one_command_uploads_all(runs, tmp_path):
    dest = give(runs / "gpt2", tmp_path / "hf", "--revisions", "--task", "lm")
    (tmp_path / "hf_command").mkdir()
    fake = tmp_path / "hf_command" / "hf"
    fake.write_text(f'#!/bin/sh\nls "$3" > /dev/null && echo "$@" >> {tmp_path / "calls"}\n')
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    subprocess.run(["sh", dest / "push.sh", "me/small"], check=True, env={"PATH": path})
    assert (tmp_path / "calls").read_text().splitlines() == [
        "upload me/small main . --private",
        "upload me/small chck_400 . --revision chck_400",
        "upload me/small chck_800 . --revision chck_800",
        "upload me/small chck_1200 . --revision chck_1200",
    ]


def test_a_name_in_a_run_is_never_a_command(runs, tmp_path, caplog):
    """Names of --save-at-words are revisions; those that a stranger put there are left out."""
    run, mark = tmp_path / "run", tmp_path / "PWNED"
    shutil.copytree(runs / "gpt2", run, symlinks=True)
    target = os.readlink(run / "words_400")
    for name in (
        f"words_1M $(touch {mark.name})",
        "words_1M;id",
        "words_",
        "words_-1",
        "words_1\n",
    ):
        (run / name).symlink_to(target)
    (run / "words_9").symlink_to("checkpoints")
    dest = give(run, tmp_path / "hf", "--revisions", "--task", "lm")
    names = {"main", "push.sh", "chck_400", "chck_800", "chck_1200"}
    assert {path.name for path in dest.iterdir()} == names
    assert "for revision in chck_400 chck_800 chck_1200; do" in (dest / "push.sh").read_text()
    assert caplog.text.count("is no link of --save-at-words") == 6


def test_a_shifted_encoder_leaves_with_a_word_of_warning(runs, tmp_path, caplog):
    give(runs / "bert", tmp_path / "hf")
    assert "logits of token i at token i - 1" in caplog.text


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("gpt2", ["--revisions"], "--task is needed: .* was trained with mlm, lm"),
        (
            "gpt2",
            ["--task", "mlm"],
            "transformers' GPT2 reads texts from left to right, but task mlm from both",
        ),
        ("gpt2", ["--task", "lm", "--task.ends", "off"], "--task.ends has no effect"),
        ("bert", ["--revisions"], "bert has no checkpoints of --save-at-words"),
        ("none", ["--revisions"], "none: there is"),
        ("glm", ["--revisions"], "--to hf: no class of transformers fits: a gpt2 model has --arch"),
    ],
)
def test_what_cannot_leave_is_refused_whole(runs, tmp_path, run, words, message):
    with pytest.raises(UnitkError, match=message):
        give(runs / run, tmp_path / "hf", *words)
    assert not (tmp_path / "hf").exists()
