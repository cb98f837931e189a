"""GLM-4's texts begin with two symbols, in all that reads or writes them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import unitk
from unitk.errors import CheckpointError, UsageError
from unitk.formats.hf.folder import write
from unitk.training.saving.checkpoint import load

from .test_hf import GLM

SPECIAL = "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|user|>".split()
TEXTS = ["the cat sat", "a small model writes", "cats"]


@pytest.fixture
def make(hf, kit, tmp_path):
    """Writes a random GLM with a tokenizer as the released ones; the model and its folder."""

    def made(name="Glm", ending="ForCausalLM", **more):
        there = tmp_path / "there"
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=270, initial_alphabet=letters)
        tokenizer.train_from_iterator(TEXTS, trainer)
        tokenizer.add_special_tokens([AddedToken(one, normalized=False) for one in SPECIAL])
        first = ["[gMASK]", "<sop>"]
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=" ".join([*first, "$A"]),
                    pair=" ".join([*first, "$A", "$B:1"]),
                    special_tokens=[(one, tokenizer.token_to_id(one)) for one in first],
                ),
            ]
        )
        end, user = map(tokenizer.token_to_id, ("<|endoftext|>", "<|user|>"))
        rows = {"vocab_size": 300, "eos_token_id": [end, user], "pad_token_id": end}
        torch.manual_seed(0)
        model_class = getattr(hf, name + ending)
        model = kit.perturbed(model_class(model_class.config_class(**{**GLM, **rows, **more})))
        model.save_pretrained(there)
        roles = {"eos_token": SPECIAL[0], "pad_token": SPECIAL[0]}
        fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **roles)
        fast.save_pretrained(there)
        return model, there, fast

    return made


@pytest.mark.parametrize("name", ["Glm", "Glm4"])
def test_a_text_has_both_symbols_here_and_there(hf, kit, make, tmp_path, name):
    model, there, tokenizer = make(name)
    ours = kit.to_unitk("hf", there, tmp_path / "ours")
    task = load(ours).task
    assert task.config.opening == "gmask"
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    again = hf.AutoTokenizer.from_pretrained(back)
    assert load(kit.to_unitk("hf", back, tmp_path / "again")).task.config == task.config
    generator = unitk.load(ours)
    for text, [found] in zip(TEXTS, generator.generate(TEXTS, beam=1, max_len=9), strict=True):
        words = task.vocab.encode(text)
        [ids] = tokenizer([text])["input_ids"]
        assert ids == [task.vocab.gmask, task.vocab.sop, *words] == again(text)["input_ids"]
        assert ids == task.prompt([np.array(words)]).towers["x"].token.tolist()
        row = torch.tensor([ids])
        never = [[index] for index in task.protocol.banned]
        made = model.generate(row, max_new_tokens=9, do_sample=False, bad_words_ids=never)
        ends = task.vocab.sep, *model.config.eos_token_id
        written = found.hypothesis.ids, made[0, len(ids) :].tolist()
        one, other = ([index for index in each if index not in ends] for each in written)
        assert one == other
        with torch.no_grad():
            seen = model(row).logits[0, 1:-1].log_softmax(-1)
        wanted = seen.gather(1, row[0, 2:, None])[:, 0]
        assert np.allclose(generator.likelihood([text])[0], wanted, rtol=1e-4)


def test_a_text_that_is_answered_ends_there_as_here(hf, kit, make, tmp_path):
    _, there, _ = make()
    parts = load(kit.to_unitk("hf", there, tmp_path / "ours"))
    task = parts.task.with_trained(pairs=True)
    (tmp_path / "back").mkdir()
    write(replace(parts, task=task), tmp_path / "back")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "back")
    for text in TEXTS:
        ids = task.prompt([np.array(task.vocab.encode(text))]).towers["x"].token.tolist()
        assert ids[-1] == task.vocab.sep and tokenizer(text)["input_ids"] == ids
    again = load(kit.to_unitk("hf", tmp_path / "back", tmp_path / "again")).task
    assert again.config == task.config and again.trained.pairs


def test_heads_read_both_symbols(make):
    model, there, tokenizer = make("Glm", "ForSequenceClassification", num_labels=3)
    for text, found in zip(TEXTS, unitk.load(there, format="hf").predict(TEXTS), strict=True):
        with torch.no_grad():
            row = model(torch.tensor([tokenizer(text)["input_ids"]])).logits.softmax(1)
        assert found["probability"] == pytest.approx(float(row.max()), rel=1e-4)


def test_llama_cpp_puts_one_symbol_there(kit, make, tmp_path):
    _, there, _ = make()
    ours = kit.to_unitk("hf", there, tmp_path / "ours")
    with pytest.raises(UsageError, match="--to gguf: .* one symbol"):
        kit.from_unitk(ours, "gguf", tmp_path / "model.gguf")


def test_a_share_that_cuts_a_pair_is_refused(kit, make, tmp_path):
    _, there, _ = make(partial_rotary_factor=0.3)
    with pytest.raises(CheckpointError, match="config.json: .* heads of 2"):
        kit.to_unitk("hf", there, tmp_path / "ours")


def test_a_share_of_all_channels_is_written(kit, make, tmp_path):
    """A file without it has half of them."""
    _, there, _ = make(partial_rotary_factor=1.0)
    ours = kit.to_unitk("hf", there, tmp_path / "ours")
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    written = json.loads((back / "config.json").read_text())
    assert written["rope_parameters"]["partial_rotary_factor"] == 1
    assert unitk.load_module(back, format="hf").model.config.rotary_share == 1
