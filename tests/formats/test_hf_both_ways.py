"""A model that sees both ways leaves as a class of left-to-right models; its card says how."""

import re

import numpy as np
import pytest
import torch
from rounding import assert_near
from safetensors.torch import load_file

from tests.conftest import toy_lines
from unitk.errors import UsageError
from unitk.formats.hf.families import kind_of
from unitk.formats.hf.folder import usage
from unitk.registry import get
from unitk.slots import Example, collate, stay
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


def test_the_card_of_what_writes_blanks_promises_states_alone(
    hf, kit, toy_vocab, tmp_path, monkeypatch
):
    """Its lines are run in the folder: the states are those of the last layer here."""
    task, lm = (
        get("task", name)(get("task", name).Config(), toy_vocab) for name in ("unilm", "lm")
    )
    torch.manual_seed(0)
    model = kit.perturbed(get("arch", "qwen3_tiny")().build(len(toy_vocab)))
    parts = Loaded(model, task, {"arch": "qwen3_tiny"}, {}, reader=lm)
    get("format", "hf").write(parts, tmp_path)
    about = usage(parts)
    assert "fills masks" not in about and "`unitk convert --task lm` writes" in about
    [code] = re.findall(r"```python\n(.*?)```", about, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, found := {})
    ids = found["tokenizer"]("The cat sat on the mat.")["input_ids"]
    batch = collate([[Example({"enc": stay(ids, np.arange(len(ids)))})]]).to("cpu")
    with torch.no_grad():
        assert_near(found["states"][0], model.embed(batch, 2)[0, : len(ids)])


def test_an_autoencoder_says_why_it_stays():
    with pytest.raises(UsageError, match="^--to hf: .* latent"):
        kind_of(get("arch", "optimus_tiny")())


def test_it_comes_back_as_what_it_was(hf, kit, toy_vocab, tmp_path, caplog):
    task = get("task", "mlm")(get("task", "mlm").Config(mask_ratio=0.3), toy_vocab)
    torch.manual_seed(0)
    model = kit.perturbed(get("arch", "qwen3_tiny")().build(len(toy_vocab)))
    (tmp_path / "there").mkdir()
    get("format", "hf").write(Loaded(model, task, {"arch": "qwen3_tiny"}, {}), tmp_path / "there")
    assert "version 4" in caplog.text
    kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    loaded = load(tmp_path / "ours")
    assert loaded.task.name == "mlm" and loaded.task.config.mask_ratio == 0.3
    tensors = load_file(tmp_path / "there" / "model.safetensors")
    kit.goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", tensors)
    assert "AutoModelForCausalLM" in (tmp_path / "back" / "README.md").read_text()
