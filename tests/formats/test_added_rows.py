"""What an import adds to a vocabulary takes no part in any probability until it is trained."""

import json
import logging
import math
import re
import string

import numpy as np
import pytest
import torch
from rounding import assert_near
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Joined
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

import unitk
from unitk.errors import DataError, UsageError
from unitk.training.saving.checkpoint import load
from unitk.verbs import average, evaluate, preprocess, train

LETTERS = string.ascii_letters + "Ġ"
GPT2 = ["<|endoftext|>", "<unk>", *LETTERS]
GPT = ["<unk>", *LETTERS]
BART = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS]
SOURCES = ["".join(LETTERS[(7 * i + 3 * j) % 52] for j in range(2 + i % 5)) for i in range(8)]
MOST = 12


def saved(model, words, folder):
    """A folder of theirs, with a tokenizer of letters, whose special symbols are these."""
    model.save_pretrained(folder)
    pieces = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(BPE(pieces, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), Joined()
    tokenizer.add_special_tokens([word for word in words if len(word) > 1])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="module")
def gpt2(hf, kit, tmp_path_factory):
    """A random GPT-2 that likes to end, and its folder."""
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
    config = hf.GPT2Config(vocab_size=len(GPT2), bos_token_id=0, eos_token_id=0, **sizes)
    model = kit.perturbed(hf.GPT2LMHeadModel(config), 0.2)
    with torch.no_grad():
        model.transformer.ln_f.bias += 4 * model.transformer.wte.weight[0]
    return model, saved(model, GPT2, tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def gpt(hf, kit, tmp_path_factory):
    """A random GPT, which has no end."""
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
    config = hf.OpenAIGPTConfig(vocab_size=len(GPT), **sizes)
    model = kit.perturbed(hf.OpenAIGPTLMHeadModel(config), 0.2)
    return model, saved(model, GPT, tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def bart(hf, kit, tmp_path_factory):
    torch.manual_seed(0)
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48)
    config = hf.BartConfig(vocab_size=len(BART), d_model=32, max_position_embeddings=40, **sizes)
    config.forced_eos_token_id = None
    model = kit.perturbed(hf.BartForConditionalGeneration(config), 0.2)
    model.final_logits_bias[0, 2] = 8.0
    return model, saved(model, BART, tmp_path_factory.mktemp("bart"))


def ids(words, text):
    return [words.index(word) for word in text]


def theirs(model, words, prompt, end, **options):
    """The 5 best outputs and their scores; `prompt` is what the decoder or the encoder reads."""
    read = torch.tensor([prompt])
    made = model.generate(
        read,
        attention_mask=torch.ones_like(read),
        num_beams=5,
        num_return_sequences=5,
        max_new_tokens=MOST,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        early_stopping=False,
        **options,
    )
    start = 2 if model.config.is_encoder_decoder else len(prompt)
    found = []
    for row, score in zip(made.sequences.tolist(), made.sequences_scores.tolist(), strict=True):
        written = row[start:]
        assert end is None or end in written
        written = written[: written.index(end)] if end is not None else written
        found.append(
            ("".join(words[i] for i in written).replace("Ġ", " "), pytest.approx(score, abs=1e-4))
        )
    return found


def ours(generator, **options):
    found = generator.generate(SOURCES, beam=5, nbest=5, max_len=MOST - 1, **options)
    return [[(one.text, one.hypothesis.score) for one in outputs] for outputs in found]


def test_five_best_of_gpt2(gpt2):
    model, there = gpt2
    found = ours(unitk.load(there, format="hf"))
    for source, outputs in zip(SOURCES, found, strict=True):
        prompt = [0, *ids(GPT2, source)]
        assert outputs == theirs(model, GPT2, prompt, 0, pad_token_id=0)


def test_five_best_of_gpt_which_goes_on_for_ever(gpt):
    model, there = gpt
    generator = unitk.load(there, format="hf")
    found = generator.generate(SOURCES, beam=5, nbest=5, max_len=MOST)
    for source, outputs in zip(SOURCES, found, strict=True):
        expected = theirs(model, GPT, ids(GPT, source), None)
        assert [(one.text, one.hypothesis.score) for one in outputs] == expected
        for one in outputs:
            if "<unk>" not in one.text:
                [again] = generator.score([source], [one.text])
                assert_near(again.hypothesis.score, one.hypothesis.score)
    for option in ({"sampling": True}, {"beam": 4, "diverse_beam_groups": 2}):
        [[drawn]] = generator.generate(SOURCES[:1], max_len=MOST, **option)
        assert len(drawn.text) == MOST and math.isfinite(drawn.hypothesis.score)
    [[forced]] = generator.generate(SOURCES[:1], constraints=[["w"]], max_len=MOST)
    assert "w" in forced.text and len(forced.text) == MOST


def test_five_best_of_bart(bart):
    model, there = bart
    # lengths differ by the opening symbol, which transformers counts where it writes it itself
    found = ours(unitk.load(there, format="hf"), lenpen=0)
    # transformers bans nothing of itself
    suppressed = {"suppress_tokens": [0, 1], "decoder_input_ids": torch.tensor([[2, 0]])}
    suppressed["length_penalty"] = 0.0
    for source, outputs in zip(SOURCES, found, strict=True):
        prompt = [0, *ids(BART, source), 2]
        assert outputs == theirs(model, BART, prompt, 2, **suppressed)


@torch.no_grad()
def end_of(model, prompt):
    """Their log-probability that a text ends here."""
    return float(model(torch.tensor([prompt])).logits[0, -1].log_softmax(0)[0])


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_in_every_precision_and_in_ensembles(gpt2, kit, tmp_path, precision):
    model, there = gpt2
    dest = kit.to_unitk("hf", there, tmp_path / "ours")
    wanted = end_of(model, [0, *ids(GPT2, "abc")])
    for path in (dest, [dest, dest]):
        generator = unitk.load(path, precision=precision)
        [found] = generator.score(["abc"], [""])
        error = {"fp32": 1e-5, "bf16": 0.1, "int8": 0.2}[precision]
        assert found.hypothesis.log_prob == pytest.approx(wanted, abs=error)
        states = torch.randn(3, 32 if path is dest else 64).to(next(generator.model.parameters()))
        probability = generator.model.head(states).softmax(1)
        assert probability.shape[1] > len(GPT2) and not probability[:, len(GPT2) :].any()


def test_until_they_are_trained(gpt2, kit, tmp_path, caplog, capsys):
    model, there = gpt2
    dest = kit.to_unitk("hf", there, tmp_path / "ours")
    table = load(dest).model.decoder.embed.tokens.weight
    spread = (table[: len(GPT2)] - table[0]).norm(dim=1)[1:].min()
    assert (table[len(GPT2) :] - table[0]).norm(dim=1).min() > spread / 4  # none is the end's copy
    text = tmp_path / "text"
    text.write_text("".join(f"{source}\n\n" for source in SOURCES))
    preprocess.run(["--input", str(text), "--vocab", str(dest), "--dest", str(tmp_path / "c")])
    # all texts as one pass of theirs each
    losses = []
    for source in SOURCES:
        row = torch.tensor([[0, *ids(GPT2, source), 0]])
        with torch.no_grad():
            log_probs = model(row[:, :-1]).logits[0].log_softmax(1)
        losses += (-log_probs.gather(1, row[0, 1:, None])[:, 0]).tolist()
    places = ["--data", str(tmp_path / "c" / "train"), "--checkpoint"]
    mean = tmp_path / "mean"
    average.run(["--checkpoint", str(dest), str(dest), "--dest", str(mean)])
    for path in (dest, mean):
        capsys.readouterr()
        evaluate.run([*places, str(path), "--output-format", "json"])
        found = json.loads(capsys.readouterr().out)
        assert_near(found["loss"], np.mean(losses))
    with caplog.at_level(logging.INFO):
        options = "--task lm --task.opening sep --max-steps 1 --block-size 16 --blocks doc".split()
        run = ["--init-from", dest, "--data", tmp_path / "c", "--save-dir", tmp_path / "run"]
        train.run([*options, *map(str, run), "--device", "cpu"])
    assert caplog.text.count(f"have a probability: {len(table) - len(GPT2)}") == 1
    logits = load(tmp_path / "run").model.head(torch.randn(1, 32))
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    ("task", "pieces"),
    [
        ("seq2seq", "[SEP]"),
        ("unilm", "[SEP], [MASK]"),
        ("glm_infill", "<|endofpiece|>, <|startofpiece|>"),
    ],
)
def test_a_task_that_needs_them_is_refused(gpt, task, pieces):
    wanted = re.escape(f"needs {pieces} to generate, which the imported model lacks: train it")
    with pytest.raises(UsageError, match=wanted):
        unitk.load(gpt[1], format="hf", task=task)


def test_evaluate_refuses_texts_whose_ends_are_not_trained(gpt, kit, tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"{source}\n\n" for source in SOURCES))
    for ends in ("off", "on"):
        dest = kit.to_unitk("hf", gpt[1], tmp_path / ends, "--task.ends", ends)
        words = ["--checkpoint", str(dest), "--data", str(text)]
        if ends == "off":
            evaluate.run(words)
            continue
        with pytest.raises(DataError, match=r"asks for \[SEP\], .*imported model .*lacks"):
            evaluate.run(words)


def test_a_module_trains_them_when_asked(gpt):
    module = unitk.load_module(gpt[1], format="hf", options={"task.ends": "on"})
    table, added = module.model.decoder.embed.tokens.weight, slice(len(GPT), None)
    assert module.loss(SOURCES).isposinf()  # the end of each text
    without = module.logits(SOURCES)[0]
    module.train_added_rows()
    logits = module.logits(SOURCES)[0]
    assert without[:, added].isneginf().all() and logits.isfinite().all()
    assert torch.equal(without[:, : len(GPT)], logits[:, : len(GPT)])
    module.loss(SOURCES).backward()
    assert (table.grad[added].abs().sum(1) > 0).all()


def test_a_task_that_reads_a_row_which_the_file_lacks_is_refused(hf, bart, tmp_path):
    """A language without an id, or a pseudo token: nothing could be looked up for it."""
    model, folder = bart
    mbart = hf.MBartForConditionalGeneration(hf.MBartConfig(**model.config.to_diff_dict()))
    saved(mbart, BART, tmp_path)
    with pytest.raises(UsageError, match="--task mbart.*en_XX"):
        unitk.load(tmp_path, format="hf")
    found = unitk.load(tmp_path, format="hf", task="bart")  # its network is a BART's
    assert found.generate(["a b"], max_len=3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = hf.BertConfig(vocab_size=len(BART), intermediate_size=48, **sizes)
    saved(hf.BertForMaskedLM(config), BART, tmp_path / "bert")
    with pytest.raises(UsageError, match=r"--task pmlm.*\[P\]"):
        unitk.load(tmp_path / "bert", format="hf", task="pmlm")
