"""NaN and infinity wherever they come from: told, never learnt, never saved over what is good."""

import json
import random

import pytest
import torch

from unitk.errors import NonFiniteError
from unitk.training import loop
from unitk.training.saving.folder import RunFolder

STEPS = 4


def leaves(model):
    """Modules whose output is a tensor of numbers, without others in them."""
    return [
        model.stored_name(name)
        for name, part in model.named_modules()
        if not list(part.children()) and name.rpartition(".")[2] in ("up", "down", "qkv", "out")
    ]


def inject(patch, step, where, value, chance):
    """From update `step` on something is `value`; the words it must be told with are appended."""
    update, loss, passes = loop.Trainer.update, loop.Trainer.loss, loop.Trainer.passes
    words = []

    def poisoned(self, one):
        if self.progress.step + 1 < step:
            return update(self, one)
        with pytest.MonkeyPatch.context() as inner:
            hook = None
            if where == "loss":
                words.append("loss lm")
                inner.setattr(loop.Trainer, "loss", spoil_loss)
            elif where == "module":
                words.append(name := f"module {chance.choice(leaves(self.model))}")
                part = self.model.get_submodule(name[7:])
                hook = part.register_forward_hook(lambda *args: args[2] * value)
            else:
                parameter = chance.choice([name for name, _ in self.model.named_parameters()])
                words.append(f"gradient of {parameter}")
                inner.setattr(loop.Trainer, "passes", spoil_gradient)
            try:
                return update(self, one)
            finally:
                if hook is not None:
                    hook.remove()

    def spoil_loss(self, batch, seed):
        found = loss(self, batch, seed)
        found.sums["lm"] = found.sums["lm"] * value
        return found

    def spoil_gradient(self, *args):
        sums = passes(self, *args)
        grad = self.model.get_parameter(words[-1][12:]).grad
        grad.view(-1)[chance.randrange(grad.numel())] = value
        return sums

    patch.setattr(loop.Trainer, "update", poisoned)
    return words


def tensors(folder):
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return [files[f"{name}.safetensors"]["sha256"] for name in ("model", "optim")]


def check_case(runs, tmp_path, monkeypatch, caplog, number):
    """One case: where, what and when by its number; first skipped, then as the end of a run."""
    chance = random.Random(number)
    where, step = ("loss", "module", "gradient")[number % 3], chance.randint(2, STEPS)
    value = torch.tensor(chance.choice([float("nan"), float("inf"), float("-inf")]))
    words = f"{runs.words('glm_infill')} --precision fp32 --max-tokens 80 --batch-tokens 160"
    words += f" --max-steps {STEPS} --save-every 1 --keep-last 9"
    for how in ("skip:9", "stop"):
        folder = RunFolder(tmp_path / f"{number}-{how[:4]}")
        caplog.clear()
        with monkeypatch.context() as patch:
            told = inject(patch, step, where, value, chance)
            if how == "stop":
                with pytest.raises(NonFiniteError) as error:
                    runs.train(f"{words} --on-nonfinite stop", folder.path)
                assert error.value.code == 5 and f"first bad: {told[-1]}" in str(error.value)
                assert folder.newest() == folder.step(step - 1)
                assert (folder.path / f"bad-step-{step}.npz").exists()
            else:
                runs.train(f"{words} --on-nonfinite skip:9", folder.path)
                for later in range(step, STEPS + 1):  # neither weights nor optimizer were touched
                    assert tensors(folder.step(later)) == tensors(folder.step(step - 1))
                assert all(f"first bad: {one}" in caplog.text for one in told)
        assert f"step {step}: loss" in caplog.text and "; examples " in caplog.text


@pytest.mark.parametrize("number", [1, 2])
def test_a_nonfinite_value_is_skipped_or_ends_the_run(runs, tmp_path, monkeypatch, caplog, number):
    check_case(runs, tmp_path, monkeypatch, caplog, number)


@pytest.mark.slow
def test_thirty_nonfinite_values_are_skipped_or_end_the_run(runs, tmp_path, monkeypatch, caplog):
    for number in range(30):
        check_case(runs, tmp_path, monkeypatch, caplog, number)
