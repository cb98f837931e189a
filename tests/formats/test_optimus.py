"""Optimus' folders, written by a reference in plain torch under the original names."""

import argparse
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Joined
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

import unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, UsageError
from unitk.families.latent.space.points import LatentSpace
from unitk.training.saving.checkpoint import load
from unitk.verbs import preprocess, train

V, VE, D, H, L, P, Z = 63, 60, 64, 4, 2, 40, 8
PLACES = 512


def original(inject="both"):
    torch.manual_seed(0)
    found = {}

    def linear(name, *shape):
        found[f"{name}.weight"] = 0.2 * torch.randn(shape)
        found[f"{name}.bias"] = 0.1 * torch.randn(shape[1 if "decoder" in name else 0])

    def norm(name):
        found[f"{name}.weight"] = 1 + 0.2 * torch.randn(D)
        found[f"{name}.bias"] = 0.1 * torch.randn(D)

    for kind, rows in (("word", VE), ("position", PLACES), ("token_type", 2)):
        found[f"encoder.embeddings.{kind}_embeddings.weight"] = 0.3 * torch.randn(rows, D)
    norm("encoder.embeddings.LayerNorm")
    for i in range(L):
        a = f"encoder.encoder.layer.{i}."
        for part in ("query", "key", "value"):
            linear(f"{a}attention.self.{part}", D, D)
        linear(f"{a}attention.output.dense", D, D)
        norm(f"{a}attention.output.LayerNorm")
        linear(f"{a}intermediate.dense", 4 * D, D)
        linear(f"{a}output.dense", D, 4 * D)
        norm(f"{a}output.LayerNorm")
    linear("encoder.pooler.dense", D, D)
    found["encoder.linear.weight"] = 0.2 * torch.randn(2 * Z, D)
    t = "decoder.transformer."
    found[f"{t}wte.weight"] = 0.2 * torch.randn(V, D)
    found[f"{t}wpe.weight"] = 0.2 * torch.randn(P, D)
    for i in range(L):
        a = f"{t}h.{i}."
        found[f"{a}attn.bias"] = torch.ones(1, 1, P, P).tril()
        linear(f"{a}attn.c_attn", D, 3 * D)
        linear(f"{a}attn.c_proj", D, D)
        linear(f"{a}mlp.c_fc", D, 4 * D)
        linear(f"{a}mlp.c_proj", 4 * D, D)
        norm(f"{a}ln_1")
        norm(f"{a}ln_2")
    norm(f"{t}ln_f")
    if inject != "embedding":
        found[f"{t}linear.weight"] = 0.3 * torch.randn(L * D, Z)
    if inject != "memory":
        found[f"{t}linear_emb.weight"] = 0.3 * torch.randn(D, Z)
    found["decoder.lm_head.weight"] = found[f"{t}wte.weight"]
    return found


def heads(*tensors):
    return (x.view(-1, H, D // H).transpose(0, 1) for x in tensors)


def mean(t, source):
    """The mean of the latent: half of a map of the pooled first state."""

    def norm(x, name):
        return F.layer_norm(x, (D,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-12)

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    x = t["encoder.embeddings.word_embeddings.weight"][torch.as_tensor(source)]
    x = x + t["encoder.embeddings.position_embeddings.weight"][: len(source)]
    x = x + t["encoder.embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "encoder.embeddings.LayerNorm")
    for i in range(L):
        a = f"encoder.encoder.layer.{i}."
        parts = (linear(x, f"{a}attention.self.{part}") for part in ("query", "key", "value"))
        q, k, v = heads(*parts)
        mixed = ((q @ k.mT / math.sqrt(D // H)).softmax(-1) @ v).transpose(0, 1).reshape(-1, D)
        x = norm(x + linear(mixed, f"{a}attention.output.dense"), f"{a}attention.output.LayerNorm")
        inner = F.gelu(linear(x, f"{a}intermediate.dense"))
        x = norm(x + linear(inner, f"{a}output.dense"), f"{a}output.LayerNorm")
    pooled = torch.tanh(linear(x[0], "encoder.pooler.dense"))
    return (t["encoder.linear.weight"] @ pooled)[:Z]


def reference(t, source, fed):
    """The decoder's logits; the memory is one more key and value in front, in every layer."""
    z, root = mean(t, source), "decoder.transformer."
    memory, embedding = (t.get(f"{root}{name}.weight") for name in ("linear", "linear_emb"))

    def norm(x, name):
        return F.layer_norm(x, (D,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    def linear(x, name):
        return x @ t[f"{name}.weight"] + t[f"{name}.bias"]

    first = int(memory is not None)
    x = t[f"{root}wte.weight"][torch.as_tensor(fed)]
    x = x + t[f"{root}wpe.weight"][first : first + len(fed)]
    if embedding is not None:
        x = x + embedding @ z
    for i in range(L):
        a = f"{root}h.{i}."
        q, k, v = linear(norm(x, f"{a}ln_1"), f"{a}attn.c_attn").chunk(3, dim=-1)
        if memory is not None:
            slot = (memory @ z).chunk(L)[i][None]
            k, v = torch.cat([slot, k]), torch.cat([slot, v])
        q, k, v = heads(q, k, v)
        score = q @ k.mT / math.sqrt(D // H)
        score = score.masked_fill(torch.ones_like(score[0]).triu(1 + first).bool(), -1e4)
        mixed = (score.softmax(-1) @ v).transpose(0, 1).reshape(-1, D)
        x = x + linear(mixed, f"{a}attn.c_proj")
        inner = F.gelu(linear(norm(x, f"{a}ln_2"), f"{a}mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, f"{a}mlp.c_proj")
    return norm(x, f"{root}ln_f") @ t[f"{root}wte.weight"].T


CONFIG = {
    "encoder": {"num_attention_heads": H, "layer_norm_eps": 1e-12, "hidden_act": "gelu"},
    "decoder": {"n_head": H, "layer_norm_epsilon": 1e-5, "latent_size": Z},
}


@pytest.fixture
def store(tmp_path, vocab_txt):
    """Writes the folders that are named."""

    def stored(tensors, sides=("encoder", "decoder", "full")):
        folder = tmp_path / "there"
        for side in sides:
            inner = folder / f"checkpoint-{side}-7"
            inner.mkdir(parents=True)
            if side == "full":
                args = argparse.Namespace(latent_size=Z)
                whole = {"iter": 7, "model_state_dict": tensors, "beta": 1.0, "args": args}
                torch.save(whole, inner / "training.bin")
                continue
            own = {n.removeprefix(f"{side}."): x for n, x in tensors.items() if n.startswith(side)}
            torch.save(own, inner / "pytorch_model.bin", _use_new_zipfile_serialization=False)
            (inner / "config.json").write_text(json.dumps(CONFIG[side]))
            (inner / "vocab.txt").write_text(vocab_txt.read_text())
        return folder

    return stored


@pytest.mark.every(3)
@pytest.mark.parametrize("inject", ["both", "memory", "embedding"])
@pytest.mark.parametrize("sides", [("encoder", "decoder"), ("encoder", "decoder", "full")])
def test_models_come_and_go_alike(kit, store, tmp_path, inject, sides):
    tensors = original(inject)
    there = store(tensors, sides)
    loaded = load(kit.to_unitk("optimus", there, tmp_path / "ours"))
    config = loaded.model.config
    assert (config.encoder, config.latent, config.inject) == ("bert_tiny", Z, inject)
    assert config.max_positions == P - (inject != "embedding")
    rng = np.random.default_rng(0)
    source, fed = kit.ids(rng, 13), kit.ids(rng, 9)
    wanted = reference(tensors, source, fed)
    found = kit.logits(loaded.model, kit.pair(source, fed), V)
    assert_near(found, wanted)
    # greedily, from what opens a text; the words that the original's decoder would write
    prompt = loaded.task.prompt([source]).towers
    words, banned = prompt["dec"].token.tolist(), list(loaded.task.protocol.banned)
    for _ in range(6):
        said = reference(tensors, prompt["enc"].token, words)[-1]
        said[[index for index in banned if index < V]] = -1e9
        words.append(int(said.argmax()))
    config = GenerateConfig(beam=1, min_len=6, max_len=6)
    [[best]] = unitk.load(tmp_path / "ours").outputs(Sources([[source]]), config)
    ends = words.index(loaded.vocab.sep) if loaded.vocab.sep in words else len(words)
    assert best.hypothesis.ids.tolist()[: ends - 1] == words[1:ends]
    back = kit.from_unitk(tmp_path / "ours", "optimus", tmp_path / "back")
    full = torch.load(back / "checkpoint-full-0" / "training.bin", weights_only=False)
    kept = {name for name in tensors if not name.endswith(".attn.bias")}
    assert full["model_state_dict"].keys() == kept
    assert all(torch.equal(full["model_state_dict"][name], tensors[name]) for name in kept)
    again = load(kit.to_unitk("optimus", back, tmp_path / "again"))
    assert torch.equal(kit.logits(again.model, kit.pair(source, fed), V), found)


def test_latents_are_those_of_transformers_bert(hf, kit, store, tmp_path):
    """Mean above log variance: one map without a bias of the pooled [CLS], as `bert_for_vae`."""
    tensors = original()
    loaded = load(kit.to_unitk("optimus", store(tensors), tmp_path / "ours"))
    sizes = {"vocab_size": VE, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H}
    bert = hf.BertModel(hf.BertConfig(**sizes, intermediate_size=4 * D)).eval()
    own = {n.removeprefix("encoder."): x for n, x in tensors.items() if n.startswith("encoder.")}
    bridge = own.pop("linear.weight")
    bert.load_state_dict(own)
    texts = ["w3", "w7 w1 w54", "w2 w2 w9 w30 w11"]
    encoded = LatentSpace(loaded.model, loaded.task).encode(texts)
    for i, text in enumerate(texts):
        ids = [2, *(5 + int(word[1:]) for word in text.split()), 3]  # [CLS], the words, [SEP]
        with torch.no_grad():
            pooled = bert(torch.tensor([ids])).pooler_output[0]
        mean, logvar = (bridge @ pooled).chunk(2)
        assert_near(encoded.pooled[i], pooled)
        assert_near(encoded.mean[i], mean)
        assert_near(encoded.std[i], (logvar / 2).exp())
        assert_near(encoded.kl[i], (mean**2 + logvar.exp() - logvar - 1) / 2)


def test_the_parts_may_be_named(kit, store, tmp_path):
    there = store(original())
    for name in ("checkpoint-decoder-7", "checkpoint-full-7", "checkpoint-full-7/training.bin"):
        dest = kit.to_unitk("optimus", there / name, tmp_path / name.replace("/", "-"))
        assert load(dest).task.source_vocab.model.size == VE


def test_symbols_come_after_the_pieces(kit, store, tmp_path):
    """GPT-2's vocabulary lacks them; <PAD> <BOS> <EOS> are its next ids."""
    from unitk.families.latent.format import symbols_of
    from unitk.vocab.words import word_vocab

    vocab = word_vocab("a b c")
    pieces = vocab.model.size
    wanted = {"pad": pieces, "cls": pieces + 1, "sep": pieces + 2}
    assert symbols_of(vocab, pieces + 3) == wanted
    assert symbols_of(vocab, pieces) == {}


def test_what_is_missing_is_named(kit, store, tmp_path):
    there = store(original())
    for side in ("encoder", "decoder"):
        (there / f"checkpoint-{side}-7" / "vocab.txt").unlink()
    words = tmp_path / "words" / "vocab.txt"
    with pytest.raises(UsageError, match="--vocab is needed"):
        kit.to_unitk("optimus", there, tmp_path / "ours")
    with pytest.raises(UsageError, match=r"--task\.source-vocab is needed"):
        kit.to_unitk("optimus", there, tmp_path / "ours", "--vocab", words)
    more = ("--vocab", words, "--task.source-vocab", words)
    loaded = load(kit.to_unitk("optimus", there, tmp_path / "ours", *more))
    assert len(loaded.task.source_vocab) == VE + 4
    with pytest.raises(CheckpointError, match="is .*checkpoint.*Optimus"):
        kit.to_unitk("optimus", tmp_path, tmp_path / "none")
    (there / "checkpoint-encoder-7" / "config.json").write_text('{"hidden_act": "relu"}')
    with pytest.raises(CheckpointError, match="no registered.*encoder"):
        kit.to_unitk("optimus", there, tmp_path / "none")


def test_an_encoders_vocabulary_that_is_the_smaller_one(tmp_path):
    """As BERT's is beside GPT-2's: what fills rows up has a row in both towers."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = {piece: i for i, piece in enumerate([*letters, *letters.upper(), "Ġ"])}
    tokenizer = Tokenizer(BPE(pieces, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), Joined()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde"]))
    texts = ["a", "abc", "b cd e", "d" * 17]
    (tmp_path / "text").write_text("".join(f"{text}\n\n" for text in texts))
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    made = ("--input", tmp_path / "text", "--vocab", tmp_path / "tokenizer.json", "--dest", corpus)
    preprocess.run([str(word) for word in made])
    settings = f"--task optimus --arch optimus_tiny --blocks line --max-steps 2 --save-dir {run}"
    train.run(f"{settings} --data {corpus} --task.source-vocab {words} --device cpu".split())
    loaded = unitk.load(run)
    assert len(loaded.task.source_vocab) < loaded.task.vocab.pad < loaded.task.vocab.sep
    space = LatentSpace(loaded.model, loaded.task)
    together = space.encode(texts).mean
    alone = np.concatenate([space.encode([text]).mean for text in texts])
    assert np.allclose(together, alone, atol=1e-6)
    given = loaded.generate(texts, beam=2, max_len=4)
    scores = [loaded.generate([text], beam=2, max_len=4)[0][0].hypothesis.score for text in texts]
    assert [one[0].hypothesis.score for one in given] == pytest.approx(scores, abs=1e-4)
    drawn = loaded.generate(texts, sampling=True, best_of=2, repeat_cost=1.0, max_len=4)
    assert len(drawn) == len(texts)
