"""fairseq's checkpoints, written by a reference in plain torch under its names of several times."""

import argparse
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

import unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.formats.dictionary import FairseqDictionary
from unitk.formats.fairseq import find, vocab_of, write
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded, load
from unitk.vocab.base import adopt
from unitk.vocab.open import open_vocab

V, D, H, L, FFN, P = 60, 64, 2, 2, 48, 40


class Reference:
    """A model there: its tensors, made as they are asked for, and its forward pass."""

    def __init__(self, *, learned, scale, first, embed_norm, act, seed=0):
        torch.manual_seed(seed)
        self.tensors = {}
        self.learned, self.scale, self.first = learned, scale, first
        self.embed_norm, self.act = embed_norm, act

    def get(self, name, *shape, about=0.0, std=0.2):
        if name not in self.tensors:
            self.tensors[name] = about + std * torch.randn(shape)
        return self.tensors[name]

    def linear(self, x, name, outputs):
        return x @ self.get(
            f"{name}.weight", outputs, D if "fc2" not in name else FFN
        ).T + self.get(f"{name}.bias", outputs, std=0.1)

    def norm(self, x, name):
        weight, bias = (
            self.get(f"{name}.weight", D, about=1.0),
            self.get(f"{name}.bias", D, std=0.1),
        )
        return F.layer_norm(x, (D,), weight, bias, 1e-5)

    def positions(self, root, count):
        if self.learned:
            return self.get(f"{root}embed_positions.weight", P + 2, D)[2 : 2 + count]
        rate = torch.exp(torch.arange(D // 2) * -(math.log(10000) / (D // 2 - 1)))
        angle = torch.arange(2, 2 + count)[:, None] * rate
        return torch.cat([angle.sin(), angle.cos()], dim=1)

    def attend(self, x, memory, name, causal):
        q = self.linear(x, f"{name}.q_proj", D)
        k, v = (self.linear(memory, f"{name}.{part}_proj", D) for part in "kv")
        q, k, v = (z.view(-1, H, D // H).transpose(0, 1) for z in (q, k, v))
        score = q @ k.mT / math.sqrt(D // H)
        if causal:
            score = score.masked_fill(torch.ones_like(score[0]).triu(1).bool(), -1e9)
        mixed = (score.softmax(-1) @ v).transpose(0, 1).reshape(-1, D)
        return self.linear(mixed, f"{name}.out_proj", D)

    def add(self, x, part, norm):
        if self.first:
            return x + part(self.norm(x, norm))
        return self.norm(x + part(x), norm)

    def tower(self, root, tokens, causal=False, memory=None):
        words = self.get(f"{root}embed_tokens.weight", V, D)
        x = words[torch.as_tensor(tokens)] * (math.sqrt(D) if self.scale else 1)
        x = x + self.positions(root, len(tokens))
        if self.embed_norm:
            x = self.norm(x, f"{root}{self.embed_norm}")
        for i in range(L):
            a = f"{root}layers.{i}."
            x = self.add(
                x,
                lambda x, a=a: self.attend(x, x, f"{a}self_attn", causal),
                f"{a}self_attn_layer_norm",
            )
            if memory is not None:
                x = self.add(
                    x,
                    lambda x, a=a: self.attend(x, memory, f"{a}encoder_attn", False),
                    f"{a}encoder_attn_layer_norm",
                )
            x = self.add(
                x,
                lambda x, a=a: self.linear(self.act(self.linear(x, f"{a}fc1", FFN)), f"{a}fc2", D),
                f"{a}final_layer_norm",
            )
        if not self.first:
            return x
        self.tensors[f"{root}version"] = torch.tensor([3.0])  # from which on there is a last norm
        return self.norm(x, f"{root}layer_norm")


def roberta(tokens, embed_norm="layernorm_embedding"):
    r = Reference(learned=True, scale=False, first=False, embed_norm=embed_norm, act=F.gelu)
    root = "encoder.sentence_encoder."
    x = r.tower(root, tokens)
    x = r.norm(F.gelu(r.linear(x, "encoder.lm_head.dense", D)), "encoder.lm_head.layer_norm")
    logits = x @ r.get(f"{root}embed_tokens.weight").T + r.get("encoder.lm_head.bias", V)
    r.tensors["encoder.lm_head.weight"] = r.tensors[f"{root}embed_tokens.weight"]
    return r.tensors, logits


def seq2seq(source, fed, bart, shared=True, first=False):
    act = F.gelu if bart else torch.relu
    norm = "layernorm_embedding" if bart else ""
    r = Reference(learned=bart, scale=not bart, first=first, embed_norm=norm, act=act)
    if shared:
        words = r.get("encoder.embed_tokens.weight", V, D)
        r.tensors["decoder.embed_tokens.weight"] = words
        r.tensors["decoder.output_projection.weight"] = words
    memory = r.tower("encoder.", source)
    x = r.tower("decoder.", fed, causal=True, memory=memory)
    return r.tensors, x @ r.get("decoder.output_projection.weight", V, D).T


def language_model(tokens, first):
    r = Reference(learned=False, scale=True, first=first, embed_norm="", act=torch.relu)
    x = r.tower("decoder.", tokens, causal=True)
    return r.tensors, x @ r.get("decoder.output_projection.weight", V, D).T


OPTIONS = {
    "encoder_attention_heads": H,
    "decoder_attention_heads": H,
    "max_source_positions": P,
    "max_target_positions": P,
    "activation_fn": "relu",
    "no_scale_embedding": False,
}


def packed(tensors):
    """0.8's one matrix for queries, keys and values."""
    found = {}
    for name, tensor in tensors.items():
        if "q_proj" in name:
            three = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            found[name.replace("q_proj.", "in_proj_")] = torch.cat(three)
        elif not any(f"{part}_proj" in name for part in "kv"):
            found[name] = tensor
    return found


@pytest.fixture
def store(tmp_path):
    """Writes a checkpoint, and a vocabulary with fairseq's first four symbols."""

    def stored(found):
        folder = tmp_path / "there"
        folder.mkdir()
        torch.save(found, folder / "checkpoint_best.pt")
        words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(V - 5)), "<mask>"]
        model = {
            "type": "WordPiece",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: i for i, word in enumerate(words)},
            "unk_token": "<unk>",
        }
        special = [
            {"id": i, "content": words[i], "special": True, "single_word": False}
            | {"lstrip": False, "rstrip": False, "normalized": False}
            for i in (0, 1, 2, 3, V - 1)
        ]
        spec = {"version": "1.0", "added_tokens": special, "model": model}
        spec |= {"pre_tokenizer": {"type": "BertPreTokenizer"}, "normalizer": None}
        (folder / "tokenizer.json").write_text(json.dumps(spec))
        return folder

    return stored


def both_ways(kit, tmp_path, there, tensors, example, wanted):
    loaded = load(kit.to_unitk("fairseq", there, tmp_path / "ours"))
    found = kit.logits(loaded.model, example, V)
    assert_near(found, wanted)
    back = kit.goes_back(
        tmp_path / "ours", "fairseq", tmp_path / "back", "checkpoint_best.pt", tensors
    )
    # what was written is read again
    again = load(kit.to_unitk("fairseq", back, tmp_path / "again"))
    assert torch.equal(kit.logits(again.model, example, V), found)
    return loaded


@pytest.mark.parametrize("old", [False, True])
def test_logits_of_roberta_are_theirs(kit, store, tmp_path, old):
    tokens = kit.ids(np.random.default_rng(0), 14)
    tensors, wanted = roberta(tokens)
    heads = {
        "classification_heads.mnli.dense.weight": torch.randn(D, D),
        "classification_heads.mnli.dense.bias": torch.randn(D),
        "classification_heads.mnli.out_proj.weight": torch.randn(3, D),
        "classification_heads.mnli.out_proj.bias": torch.randn(3),
    }
    args = {**OPTIONS, "activation_fn": "gelu", "encoder_normalize_before": True}
    saved = tensors
    if old:  # another prefix, another name of the norm, one matrix
        saved = {}
        for name, tensor in packed(tensors).items():
            name = name.replace("encoder.sentence", "decoder.sentence")
            name = name.replace("encoder.lm_head", "decoder.lm_head")
            saved[name.replace("layernorm_embedding", "emb_layer_norm")] = tensor
        there = store({"args": argparse.Namespace(**args), "model": saved})
    else:
        tensors = saved = tensors | heads
        junk = {"encoder.sentence_encoder.version": torch.full((1,), 3.0)}  # of 0.10 and later
        there = store({"args": None, "cfg": {"model": args}, "model": saved | junk})
    loaded = both_ways(kit, tmp_path, there, tensors, kit.single(tokens), wanted)
    assert loaded.model.config.head_sizes == ({} if old else {"class:mnli": 3})
    assert type(loaded.task).__name__ == "MLM" and loaded.vocab.mask == V - 1


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", ["bart", "transformer", "untied", "prenorm"])
def test_logits_of_an_encoder_decoder_are_theirs(kit, store, tmp_path, kind):
    rng = np.random.default_rng(1)
    source, fed = kit.ids(rng, 13, V - 1), kit.ids(rng, 9, V - 1)
    shape = {"bart": kind == "bart", "shared": kind != "untied", "first": kind == "prenorm"}
    tensors, wanted = seq2seq(source, fed, **shape)
    args = dict(OPTIONS)
    if kind == "bart":
        args |= {"activation_fn": "gelu", "no_scale_embedding": True}
    junk = {
        "encoder.version": torch.ones(1),
        "decoder.embed_positions._float_tensor": torch.ones(1),
        "encoder.layers.0.in_proj_weight": torch.ones(2, 2),
        "encoder.layers.0.fc1_bias": torch.ones(2),
    }
    cfg = {"model": argparse.Namespace(**args)}
    there = store({"args": None, "cfg": cfg, "model": tensors | junk, "optimizer_history": []})
    both_ways(kit, tmp_path, there, tensors, kit.pair(source, fed), wanted)
    # greedy decoding, from the end symbol (BART: and the begin symbol, which it would write itself)
    generator = unitk.load(there, format="fairseq")
    [[best]] = generator.outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=5))
    given = [0, *source, 2] if kind == "bart" else [*source, 2]
    words = [2, 0] if kind == "bart" else [2]
    first = len(words)
    while len(words) < first + 5 and words[first:][-1:] != [2]:
        # the reference makes the same tensors from the same seed
        said = seq2seq(given, words, **shape)[1][-1]
        said[[0, 1, V - 1]] = -1e9
        words.append(int(said.argmax()))
    assert best.hypothesis.ids.tolist()[: len(words) - first] == words[first:]


@pytest.mark.parametrize("norm_first", [False, True])
def test_logits_of_a_language_model_are_theirs(kit, store, tmp_path, norm_first):
    """Norms are in front of the layers in 0.9, and after them by default from 0.10 on."""
    tokens = kit.ids(np.random.default_rng(2), 14)
    tensors, wanted = language_model(tokens, norm_first)
    args = argparse.Namespace(**OPTIONS, decoder_normalize_before=norm_first)
    there = store({"args": args, "model": tensors})
    example = kit.single(tokens, at=np.arange(14))
    loaded = both_ways(kit, tmp_path, there, tensors, example, wanted)
    # greedily, from what the task's prompt is
    words = loaded.task.prompt([tokens]).towers["x"].token.tolist()
    assert words == [2, *tokens]
    first = len(words)
    while len(words) < first + 5 and words[first:][-1:] != [2]:
        said = language_model(words, norm_first)[1][-1]
        said[[index for index in loaded.task.protocol.banned if index < V]] = -1e9
        words.append(int(said.argmax()))
    [[best]] = unitk.load(there, format="fairseq").outputs(
        Sources([[tokens]]), GenerateConfig(beam=1, max_len=5)
    )
    assert best.hypothesis.ids.tolist()[: len(words) - first] == words[first:]


def test_what_is_not_a_checkpoint_is_refused(kit, store, tmp_path):
    there = store({"args": argparse.Namespace(**OPTIONS), "model": {"a": torch.ones(1)}})
    with pytest.raises(CheckpointError, match="not a RoBERTa, encoder-decoder .*language model"):
        kit.to_unitk("fairseq", there, tmp_path / "ours")
    torch.save({"model": {"a": torch.ones(1)}}, there / "checkpoint_best.pt")
    with pytest.raises(CheckpointError, match="neither args.*cfg"):
        kit.to_unitk("fairseq", there, tmp_path / "ours")
    mass = {"model": {"encoder.emb_layer_norm.weight": torch.ones(1)}}
    torch.save(mass, there / "checkpoint_best.pt")
    with pytest.raises(CheckpointError, match="is a MASS, which --from mass reads"):
        kit.to_unitk("fairseq", there, tmp_path / "ours")
    torch.save({"a": torch.ones(1)}, there / "checkpoint_best.pt")
    with pytest.raises(CheckpointError, match="it .*no model"):
        kit.to_unitk("fairseq", there, tmp_path / "ours")


def test_dictionaries_are_read(kit, tmp_path):
    """Words have the ids of their lines; numbers stand for GPT-2's pieces, after the symbols."""
    path = tmp_path / "dict.txt"
    path.write_text("the 9\ncat 5\nsat 2\n")
    vocab = open_vocab(path)
    assert vocab.encode("the cat <pad> dog sat") == [4, 5, 3, 3, 6]
    assert [vocab.cls, vocab.pad, vocab.sep, vocab.unk] == [0, 1, 2, 3] and vocab.mask == 7
    assert vocab.decode([0, 4, 5, 2]) == "the cat"
    vocab.save(tmp_path / "saved")
    assert open_vocab(tmp_path / "saved").hash == vocab.hash
    path.write_text("the 9\nthe 5\n")
    with pytest.raises(DataError, match="line 2 repeats.* 'the'"):
        open_vocab(path)
    path.write_text("2 9\n0 5\n1 5\nmadeupword0000 0\n")
    with pytest.raises(DataError, match="put encoder.json and vocab.bpe beside it"):
        vocab_of(path)
    (tmp_path / "encoder.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2}))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b\n")
    vocab = vocab_of(tmp_path)
    assert vocab.encode("abba") == [4, 6, 5] and vocab.pieces([7]) == ["madeupword0000"]
    assert [vocab.cls, vocab.pad, vocab.sep, vocab.unk] == [0, 1, 2, 3]
    path.write_text("2 9\n0 5\n")
    with pytest.raises(DataError, match="lacks 1 numbers"):
        vocab_of(path)


def test_a_dictionary_beside_a_checkpoint(kit, store, tmp_path):
    """[MASK] is the row after the last word, as in fairseq's masked and denoising tasks."""
    tokens = kit.ids(np.random.default_rng(0), 14)
    tensors, _ = roberta(tokens)
    there = store({"args": argparse.Namespace(**OPTIONS), "model": tensors})
    (there / "tokenizer.json").unlink()
    (there / "dict.txt").write_text("".join(f"w{i} {90 - i}\n" for i in range(V - 5)))
    vocab = load(kit.to_unitk("fairseq", there, tmp_path / "ours")).vocab
    assert vocab.mask == V - 1 and vocab.encode("w0 w54") == [4, 58]
    back = kit.from_unitk(tmp_path / "ours", "fairseq", tmp_path / "back")
    # under this name fairseq's tasks find it, and do not add it
    assert (back / "dict.txt").read_text() == (there / "dict.txt").read_text() + "<mask> 1\n"


def own(name, arch, opening, vocab):
    """A model of unitk's that is to be written."""
    task = get("task", name)
    made = task(task.Config(opening=opening), vocab)
    return Loaded(get("arch", arch)().build(len(vocab)), made, {}, {})


@pytest.mark.parametrize(("name", "arch"), [("seq2seq", "bart_tiny"), ("lm", "gpt2_tiny")])
def test_a_dictionary_has_a_line_for_every_row(tmp_path, name, arch):
    """A model that was trained on a data-bin has rows for unitk's symbols, too."""
    data = b"the 9\ncat 5"
    vocab = adopt(FairseqDictionary(data))
    write(own(name, arch, "sep", vocab), tmp_path)
    lines = (tmp_path / "dict.txt").read_bytes().splitlines()
    assert lines[:3] == [*data.splitlines(), b"<mask> 1"] and len(lines) == len(vocab) - 4
    assert open_vocab(tmp_path / "dict.txt").mask == vocab.mask
    assert vocab_of(tmp_path).hash == vocab.hash  # read again, data of the old one fit it


@pytest.mark.parametrize("opening", ["sep", "both"])
def test_a_model_comes_back_with_its_opening(tmp_path, opening):
    """Also one with the tensors of a BART, whose texts begin as fairseq's translation has them."""
    parts = own("seq2seq", "bart_tiny", opening, adopt(FairseqDictionary(b"the 9\ncat 5")))
    write(parts, tmp_path)
    assert find(tmp_path, None).options == {"opening": opening}


@pytest.mark.parametrize(
    ("name", "arch", "opening"),
    [("seq2seq", "bart_tiny", "cls"), ("seq2seq", "bart_tiny", "seps"), ("lm", "gpt2_tiny", "cls")],
)
def test_texts_that_begin_otherwise_are_refused(tmp_path, name, arch, opening):
    parts = own(name, arch, opening, adopt(FairseqDictionary(b"the 9\n")))
    with pytest.raises(UsageError, match="train it with --task.opening sep"):
        write(parts, tmp_path)


def test_ids_that_mean_something_else_in_fairseq_are_refused(tmp_path, toy_vocab):
    with pytest.raises(UsageError, match=r"begin with <s> <pad> </s> <unk>.*with \[PAD\]"):
        write(own("seq2seq", "bart_tiny", "sep", toy_vocab), tmp_path)
