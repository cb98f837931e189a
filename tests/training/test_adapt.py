"""A causal model goes on with another objective: `--init-from` a run of task lm."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.families.diffusion.mdlm import narrow
from unitk.registry import get
from unitk.slots import Example, collate, lm, stay
from unitk.training.loop import Trainer
from unitk.training.saving.checkpoint import load, tensors_of

OTHERS = {
    "mlm": "--task.shift on",
    "mdlm": "--task.shift on --task.future constant:value=1,warmup=0.5",
    "bd3lm": "--task.shift on",
    "glm_infill": "--arch.max-positions2 64",
    "unilm": "--task.nsp off",
}


@pytest.fixture
def causal(train, tmp_path):
    train("--task lm --arch gpt2_tiny --max-steps 1", run="lm")
    return tmp_path / "lm"


@pytest.mark.parametrize(
    "task",
    [*list(OTHERS)[:2], *[pytest.param(one, marks=pytest.mark.slow) for one in list(OTHERS)[2:]]],
)
@pytest.mark.parametrize("arch", ["gpt2_tiny", pytest.param("qwen3_tiny", marks=pytest.mark.slow)])
def test_it_begins_with_the_weights(train, start, tmp_path, task, arch):
    """Nothing of the causal model is drawn anew; tables that it lacks change nothing."""
    train(f"--task lm --arch {arch} --max-steps 1", run="lm")
    words = OTHERS[task] if arch == "gpt2_tiny" else OTHERS[task].partition("--arch")[0]
    virtual = "--arch.num-virtual 3" if task == "glm_infill" and arch == "gpt2_tiny" else ""
    words = f"--task {task} {words} {virtual} --init-from {tmp_path / 'lm'} --arch {arch}"
    found = tensors_of(Trainer(start(f"{words} --max-steps 1", run="run")).model)
    before = tensors_of(load(tmp_path / "lm").model)
    assert all(torch.equal(found[name].cpu(), before[name]) for name in before)
    new = {name: tensor.cpu() for name, tensor in found.items() if name not in before}
    for name, tensor in new.items():
        if name == "embed.virtual.weight":
            assert_near(tensor, before["embed.tokens.weight"].mean(0).expand_as(tensor))
        elif ":" not in name:
            assert not tensor.any()
    train(f"{words} --max-steps 2", run="other")


def test_a_shifted_mask_is_predicted_as_the_causal_model_does(causal, toy_vocab):
    """Where all that a slot sees is the same, so is what it predicts."""
    model, made_from = load(causal).model, get("task", "mlm")
    mlm = made_from(made_from.Config(shift=True), toy_vocab)
    words = toy_vocab.encode("The cat sat on the mat.")
    tokens = np.append(toy_vocab.cls, words).astype(np.int64)
    place = np.arange(len(tokens))
    read = Example({"x": stay(tokens, pos=place, at=place)}, [lm(place, tokens)])
    # the last word is hidden, and no slot sees what comes after it
    filled = narrow(mlm.prompt([np.append(words[:-1], toy_vocab.mask)]), 0.0)
    [[slot]] = filled.asks[0].rows
    assert slot == len(words) - 1
    with torch.no_grad():
        states, hidden = (
            model(collate([[one]]).to("cpu"))[0]["x"][0, slot] for one in (read, filled)
        )
    assert_near(hidden, states)


def test_the_mask_opens_from_causal_to_full():
    def seen(share):
        example = SimpleNamespace(towers={"x": stay(np.zeros(5), np.arange(5))}, asks=[])
        slots = narrow(example, share).towers["x"]
        return (slots.born[None] <= slots.now[:, None]).astype(int).tolist()

    assert seen(0.0) == np.tril(np.ones((5, 5), int)).tolist()
    assert seen(1.0) == np.ones((5, 5), int).tolist()
    assert seen(0.5) == [
        [1, 1, 1, 0, 0],  # 2 of 4 tokens after it
        [1, 1, 1, 0, 0],  # 1.5 of 3
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]


def test_training_takes_the_share_of_the_update(toy_vocab):
    made_from, opens = get("task", "mdlm"), get("schedule", "constant")(value=1.0, warmup=10)
    task = made_from(made_from.Config(future=opens), toy_vocab)
    ids = toy_vocab.encode("The cat sat on the mat.")
    ahead = []
    for step in (0, 5, 10):
        text = SimpleNamespace(ids=np.asarray(ids), parts=[np.asarray(ids)], when=(step, 10))
        slots = task.pretrain(text, np.random.default_rng(0)).towers["x"]
        ahead.append((slots.born[None] <= slots.now[:, None]).mean())
    assert ahead[0] < ahead[1] < ahead[2] == 1
