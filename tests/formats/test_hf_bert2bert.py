"""EncoderDecoderModel of two BERTs: logits, words and tensors; what is refused."""

import json

import numpy as np
import pytest
import torch
from rounding import assert_near
from safetensors.torch import load_file

import unitk
from unitk.errors import CheckpointError

BERT = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_attention_heads": 4}
BERT |= {"num_hidden_layers": 2, "intermediate_size": 48, "max_position_embeddings": 40}
BERT |= {"pad_token_id": 0}
DECODER = {**BERT, "num_hidden_layers": 3, "is_decoder": True, "add_cross_attention": True}


@pytest.fixture
def make(hf, kit, tmp_path, vocab_txt):
    """A random model and its folder; its decoder may have other settings."""

    def made(shared=False, **decoder):
        torch.manual_seed(0)
        config = hf.EncoderDecoderConfig(
            encoder=BERT, decoder=DECODER | decoder, decoder_start_token_id=2, pad_token_id=0,
            eos_token_id=3,
        )  # fmt: skip
        model = kit.perturbed(hf.EncoderDecoderModel(config), 0.2)
        if shared:
            table = model.encoder.embeddings.word_embeddings.weight.data
            model.decoder.bert.embeddings.word_embeddings.weight.data = table.clone()
        model.save_pretrained(tmp_path / "there")
        (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
        return model, tmp_path / "there"

    return made


@pytest.mark.parametrize("shared", [False, True])
def test_models_come_and_go_alike(hf, kit, make, tmp_path, shared):
    model, there = make(shared)
    ours = unitk.load(kit.to_unitk("hf", there, tmp_path / "ours"))
    assert ours.model.config.shared_embeddings == shared
    rng = np.random.default_rng(1)
    tokens, fed = kit.ids(rng, 14), kit.ids(rng, 9)
    given = {"input_ids": torch.from_numpy(tokens)[None]}
    given["decoder_input_ids"] = torch.from_numpy(fed)[None]
    with torch.no_grad():
        wanted = model(**given).logits[0]
    assert_near(kit.logits(ours.model, kit.pair(tokens, fed), 60), wanted)
    saved = load_file(there / "model.safetensors")
    saved = {name: one for name, one in saved.items() if "pooler" not in name}
    back = kit.goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", saved)
    again, info = hf.EncoderDecoderModel.from_pretrained(back, output_loading_info=True)
    # nothing reads the pooler of the encoder
    assert not info["unexpected_keys"] and all("pooler" in name for name in info["missing_keys"])
    with torch.no_grad():
        assert_near(again(**given).logits[0], wanted)
    tokenizer, text = hf.AutoTokenizer.from_pretrained(back), "w7 w9 w30"
    row = tokenizer([text], return_tensors="pt")
    banned = [[i] for i in ours.task.protocol.banned if i < 60]
    made = again.generate(**row, num_beams=1, max_new_tokens=9, bad_words_ids=banned)[0].tolist()
    [[best]] = ours.generate([text], beam=1, max_len=8)
    assert best.hypothesis.ids.tolist()[:8] == made[1:9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "relu"}, "encoder and decoder must have the same hidden_act"),
        ({"model_type": "gpt2"}, "decoder.model_type must be bert, got 'gpt2'; of others, convert"),
        ({"add_cross_attention": False}, "decoder.add_cross_attention must be true, got False"),
    ],
)
def test_towers_that_unitk_does_not_have_are_named(kit, make, tmp_path, change, message):
    _, there = make()
    about = json.loads((there / "config.json").read_text())
    about["decoder"] |= change
    (there / "config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=message) as error:
        kit.to_unitk("hf", there, tmp_path / "ours")
    assert "\n" not in str(error.value) and not (tmp_path / "ours").exists()
