"""OPT: narrow embeddings become wide ones, and its folder tells what is before a text."""

import json

import pytest
import torch
from rounding import assert_near

import unitk
from tests.vocab.test_open import ROBERTA, odd_texts
from unitk.training.saving.checkpoint import load

SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"ffn_dim": 48, "max_position_embeddings": 40, "pad_token_id": 0}
SIZES |= {"bos_token_id": 3, "eos_token_id": 3}
NARROW = {**SIZES, "word_embed_proj_dim": 12, "do_layer_norm_before": False}


@pytest.mark.parametrize("cls", ["OPTForCausalLM", "OPTForSequenceClassification"])
def test_narrow_embeddings_compute_the_same(hf, kit, tmp_path, vocab_txt, cls):
    """OPT-350M has maps between its embeddings and its states; both are multiplied."""
    torch.manual_seed(0)
    theirs = kit.perturbed(getattr(hf, cls)(hf.OPTConfig(**NARROW, num_labels=3)))
    theirs.save_pretrained(tmp_path / "there")
    (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
    found = unitk.load(kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours"))
    row = [7, 8, 9, 10, 11]
    if cls == "OPTForCausalLM":
        example = kit.single(torch.tensor(row).numpy(), at=range(5))
        with torch.no_grad():
            wanted = theirs(torch.tensor([row])).logits[0]
        assert_near(kit.logits(found.model, example, 60), wanted)
    back = kit.from_unitk(tmp_path / "ours", "hf", tmp_path / "back")
    again = getattr(hf, cls).from_pretrained(back)
    with torch.no_grad():
        assert_near(again(torch.tensor([row])).logits, theirs(torch.tensor([row])).logits)
    assert again.config.word_embed_proj_dim == 32 and not again.config.tie_word_embeddings


@pytest.mark.parametrize("layout", ["slow", "fast"])
def test_its_tokenizer_is_theirs(hf, kit, tmp_path, layout):
    """The files of facebook/opt-125m: GPT-2's class, whose end symbol has another name."""
    there = tmp_path / "there"
    there.mkdir()
    ROBERTA(there)
    about = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "</s>"}
    about |= {"eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    (there / "tokenizer_config.json").write_text(json.dumps(about))
    ids = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2, "vocab_size": 384}
    hf.OPTForCausalLM(hf.OPTConfig(**SIZES | ids)).save_pretrained(there)
    theirs = hf.AutoTokenizer.from_pretrained(there)
    if layout == "fast":
        theirs.save_pretrained(there)
        (there / "merges.txt").unlink()
        (there / "vocab.json").unlink()
    task = load(kit.to_unitk("hf", there, tmp_path / "ours")).task
    vocab = task.vocab
    assert (vocab.sep, vocab.pad, task.config.opening) == (2, 1, "sep")
    texts = [text for text in odd_texts() if not any(s in text for s in ("</s>", "<pad>"))]
    found = theirs(texts, add_special_tokens=False).input_ids
    assert [vocab.encode(text) for text in texts] == found
    prompt = task.prompt([vocab.encode_batch(["The lazy dog"])[0]]).towers["x"].token
    assert theirs("The lazy dog").input_ids == prompt.tolist()
