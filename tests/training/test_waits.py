"""How often an update waits for the device: a GPU stands still until the host goes on."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unitk.models import model
from unitk.training import loop
from unitk.training.loop import Trainer

SIZED = {"nonzero", "_local_scalar_dense", "masked_select", "_unique2", "unique_dim"}
"""Operations whose result, or its shape, the host must know."""


class Waits(TorchDispatchMode):
    """While entered, counts what would wait for a GPU."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.found = Counter[str]()
        for name in ("tolist", "item", "cpu", "numpy"):
            patch.setattr(torch.Tensor, name, self.counted(name, getattr(torch.Tensor, name)))

    def counted(self, name, method):
        def call(tensor, *args, **kwargs):
            self.found[name] += 1
            return method(tensor, *args, **kwargs)

        return call

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = args[1] if name.startswith("index") and len(args) > 1 else ()
        by_mask = isinstance(masks, (list, tuple)) and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in masks
        )
        self.found[name] += name in SIZED or by_mask
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "words",
    [
        "--task lm --arch gpt2_tiny",
        "--task lm --arch modern_tiny --optimizer muon --criterion.z-loss 1e-4",
        "--task mlm --arch bert_tiny",
        "--task mass --arch mass_tiny",
        "--task glm_infill --arch glm_tiny",
        "--task t5 --arch t5_tiny",
        "--task unilm --task.nsp off --arch unilm_tiny",
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_an_update_waits_once_or_late(start, words, late, monkeypatch):
    """For the gradients' norm and the loss, which decide whether there is a step; on a GPU, after
    the next update has been computed."""
    monkeypatch.setattr(loop, "can_defer", lambda run: late)
    trainer = Trainer(start(f"{words} --max-steps 4 --batch-tokens 400 --device cpu"))
    updates = trainer.updates()
    trainer.update(next(updates)[0])
    second = next(updates)[0]
    # a CPU, which never waits, leaves out what nobody asks
    monkeypatch.setattr(model, "asked_slots", lambda *given: None)
    trainer.finish_updates()
    with monkeypatch.context() as patch, Waits(patch) as waits:
        trainer.update(second)
    assert +waits.found == ({} if late else {"tolist": 1})
