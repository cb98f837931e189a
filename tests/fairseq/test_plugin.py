"""Models of unitk that fairseq's trainer saved; by itself: tests/fairseq/test_trainer.py."""

from dataclasses import replace

import pytest
import torch

from unitk import registry
from unitk.errors import CheckpointError, UsageError
from unitk.training.saving.checkpoint import load
from unitk.vocab.open import open_vocab

from ..formats.conftest import to_unitk


@pytest.fixture
def saved(tmp_path, vocab_txt):
    """`saved("glm_infill", "glm_tiny", "task.mean-span=5")`: the file, and the model in it."""

    def write(task, arch, options):
        layers = 3 if "arch.num-layers=3" in options else 2
        config = replace(registry.get("arch", arch)(), num_layers=layers)
        torch.manual_seed(3)
        model = config.build(len(open_vocab(vocab_txt)))
        cfg = {
            "task": {"_name": f"unitk_{task}", "data": str(vocab_txt), "unitk_options": options},
            "model": {"_name": f"unitk_{arch}", "unitk_arch": arch},
        }
        state = {f"network.{name}": tensor for name, tensor in model.state_dict().items()}
        torch.save({"cfg": cfg, "model": state}, tmp_path / "checkpoint_best.pt")
        return tmp_path / "checkpoint_best.pt", model

    return write


@pytest.mark.parametrize(
    ("task", "arch", "options"),
    [
        ("glm_infill", "glm_tiny", "task.mean-span=5 block-size=64 arch.num-layers=3"),
        ("seq2seq", "bart_tiny", ""),
        ("mlm", "albert_tiny", "criterion.label-smoothing=0.1"),  # layers of the same weights
    ],
)
def test_the_model_is_what_was_saved(saved, tmp_path, task, arch, options):
    file, model = saved(task, arch, options)
    loaded = load(to_unitk("fairseq", file, tmp_path / "ours"))
    found = dict(loaded.model.named_parameters())
    there = dict(model.named_parameters())
    assert found.keys() == there.keys()
    for name, tensor in there.items():
        assert torch.equal(found[name][: len(tensor)], tensor)
    assert type(loaded.task) is registry.get("task", task)
    if task == "glm_infill":
        assert (loaded.task.config.mean_span, loaded.model.config.num_layers) == (5, 3)


def test_what_does_not_fit_is_told(saved, tmp_path):
    file, _ = saved("lm", "gpt2_tiny", "")
    found = torch.load(file, weights_only=True)
    found["model"]["network.more"] = torch.ones(3)
    torch.save(found, file)
    with pytest.raises(CheckpointError, match="network.more"):
        to_unitk("fairseq", file, tmp_path / "ours")
    found["cfg"]["task"]["_name"] = "unitk_lmm"
    torch.save(found, file)
    with pytest.raises(UsageError, match="lmm"):
        to_unitk("fairseq", file, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
