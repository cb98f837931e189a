"""A model that sees both ways leaves as a class of left-to-right models; its card says how."""

import re

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import toy_lines
from unitk.formats.hf.folder import usage
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded, load


@pytest.mark.parametrize("shift", [False, True])
def test_the_card_shows_what_fills_masks(hf, kit, toy_vocab, tmp_path, monkeypatch, capsys, shift):
    """Its lines are run in the folder: what they print is what unitk predicts at the mask."""
    task = get("task", "mlm")(get("task", "mlm").Config(shift=shift), toy_vocab)
    torch.manual_seed(0)
    model = kit.perturbed(get("arch", "qwen3_tiny")().build(len(toy_vocab)))
    parts = Loaded(model, task, {"arch": "qwen3_tiny"}, {})
    get("format", "hf").write(parts, tmp_path)
    text = toy_lines(1)[0].split()
    text[1] = hf.AutoTokenizer.from_pretrained(tmp_path).mask_token
    [code] = re.findall(r"```python\n(.*?)```", usage(parts), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(re.sub(r'tokenizer\(".*?"', f"tokenizer({' '.join(text)!r}", code), found := {})
    ids = found["inputs"]["input_ids"][0].numpy()
    [place] = (ids == toy_vocab.mask).nonzero()[0]
    logits = kit.logits(model, kit.single(ids))[place - shift]
    assert capsys.readouterr().out == found["tokenizer"].decode([logits.argmax()]) + "\n"


def test_it_comes_back_as_what_it_was(hf, kit, toy_vocab, tmp_path):
    task = get("task", "mlm")(get("task", "mlm").Config(mask_ratio=0.3), toy_vocab)
    torch.manual_seed(0)
    model = kit.perturbed(get("arch", "qwen3_tiny")().build(len(toy_vocab)))
    (tmp_path / "there").mkdir()
    get("format", "hf").write(Loaded(model, task, {"arch": "qwen3_tiny"}, {}), tmp_path / "there")
    kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    loaded = load(tmp_path / "ours")
    assert loaded.task.name == "mlm" and loaded.task.config.mask_ratio == 0.3
    tensors = load_file(tmp_path / "there" / "model.safetensors")
    kit.goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", tensors)
    assert "AutoModelForCausalLM" in (tmp_path / "back" / "README.md").read_text()
