"""MASS' checkpoints, written by a reference in plain torch under the original names."""

import argparse
import math
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

import unitk
from tests.conftest import toy_lines
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.formats import mass
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded, load

V, D, H, L, FFN, P = 60, 64, 1, 2, 48, 40
CLS, SEP, BANNED = 2, 3, [0, 2, 4]


def original(seed=0):
    """A bare dictionary as MASS' summarization code releases it."""
    torch.manual_seed(seed)
    found = {}

    def linear(name, *shape):
        found[f"{name}weight"] = 0.2 * torch.randn(shape)
        found[f"{name}bias"] = 0.1 * torch.randn(shape[:1])

    def norm(name):
        found[f"{name}.weight"] = 1 + 0.2 * torch.randn(D)
        found[f"{name}.bias"] = 0.1 * torch.randn(D)

    words = 0.1 * torch.randn(V, D)
    for side in ("encoder", "decoder"):
        found[f"{side}.version"] = torch.tensor([3.0])
        found[f"{side}.embed_tokens.weight"] = words
        found[f"{side}.embed_positions.weight"] = 0.3 * torch.randn(P + 1, D)
        norm(f"{side}.emb_layer_norm")
        for i in range(L):
            layer = f"{side}.layers.{i}."
            for part in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                linear(f"{layer}{part}.in_proj_", 3 * D, D)
                linear(f"{layer}{part}.out_proj.", D, D)
                norm(f"{layer}{part}_layer_norm")
            linear(f"{layer}fc1.", FFN, D)
            linear(f"{layer}fc2.", D, FFN)
            norm(f"{layer}final_layer_norm")
    return found


def reference(t, source, fed, first=1, scale=True, act=F.gelu):
    """The logits of every decoder slot; positions are counted from row `first`."""

    def norm(x, name):
        return F.layer_norm(x, (D,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    def attend(x, memory, name, causal):
        weight, bias = t[f"{name}.in_proj_weight"], t[f"{name}.in_proj_bias"]
        q = x @ weight[:D].T + bias[:D]
        k, v = (memory @ weight[D:].T + bias[D:]).chunk(2, dim=-1)
        q, k, v = (z.view(-1, H, D // H).transpose(0, 1) for z in (q, k, v))
        score = q @ k.mT / math.sqrt(D // H)
        if causal:
            score = score.masked_fill(torch.ones_like(score[0]).triu(1).bool(), -1e9)
        mixed = (score.softmax(-1) @ v).transpose(0, 1).reshape(-1, D)
        return mixed @ t[f"{name}.out_proj.weight"].T + t[f"{name}.out_proj.bias"]

    def tower(side, tokens, memory=None):
        tokens = torch.as_tensor(np.array(tokens))
        x = t[f"{side}.embed_tokens.weight"][tokens] * (math.sqrt(D) if scale else 1)
        x = x + t[f"{side}.embed_positions.weight"][first : first + len(tokens)]
        if f"{side}.emb_layer_norm.weight" in t:
            x = norm(x, f"{side}.emb_layer_norm")
        for i in range(L):
            a = f"{side}.layers.{i}."
            x = norm(
                x + attend(x, x, f"{a}self_attn", memory is not None), f"{a}self_attn_layer_norm"
            )
            if memory is not None:
                read = attend(x, memory, f"{a}encoder_attn", False)
                x = norm(x + read, f"{a}encoder_attn_layer_norm")
            inner = act(x @ t[f"{a}fc1.weight"].T + t[f"{a}fc1.bias"])
            x = norm(x + inner @ t[f"{a}fc2.weight"].T + t[f"{a}fc2.bias"], f"{a}final_layer_norm")
        return x

    memory = tower("encoder", source)
    return tower("decoder", fed, memory) @ t["decoder.embed_tokens.weight"].T


def decode(t, source, steps):
    """Greedy, from the end symbol, as fine-tuned models write."""
    words = [SEP]
    for _ in range(steps):
        said = reference(t, [*source, SEP], words)[-1]
        said[BANNED] = -1e9
        words.append(int(said.argmax()))
        if words[-1] == SEP:
            break
    return words[1:]


@pytest.fixture
def store(tmp_path, vocab_txt):
    def stored(found, name="mass-base-uncased.pt"):
        folder = tmp_path / "there"
        folder.mkdir()
        torch.save(found, folder / name, _use_new_zipfile_serialization=False)
        lines = vocab_txt.read_text().splitlines()
        (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in lines))
        return folder

    return stored


@pytest.mark.parametrize("tuned", [False, True])
def test_logits_outputs_and_the_export_are_theirs(kit, store, tmp_path, tuned):
    tensors = original()
    there = store(tensors)
    if tuned:  # what fairseq saves of it
        args = argparse.Namespace(
            encoder_attention_heads=H, decoder_attention_heads=H, activation_fn="gelu", dropout=0.1
        )
        torch.save({"args": args, "model": tensors}, there / "checkpoint_best.pt")
        (there / "mass-base-uncased.pt").unlink()
    loaded = load(kit.to_unitk("mass", there, tmp_path / "ours"))
    assert loaded.model.config.max_positions == P
    rng = np.random.default_rng(0)
    source, fed = kit.ids(rng, 13), kit.ids(rng, 9)
    wanted = reference(tensors, source, fed)
    found = kit.logits(loaded.model, kit.pair(source, fed), V)
    assert_near(found, wanted)
    generator = unitk.load(there, format="mass")
    [[best]] = generator.outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=6))
    words = decode(tensors, source, 6)
    assert best.hypothesis.ids.tolist()[: len(words)] == words and len(set(words)) > 1
    back = kit.goes_back(tmp_path / "ours", "mass", tmp_path / "back", "mass.pt", tensors)
    assert (back / "dict.txt").read_text() == (there / "dict.txt").read_text()


def test_a_dictionary_of_something_else_is_refused(kit, store, tmp_path):
    there = store(original())
    (there / "dict.txt").write_text("the 10\nof 9\n")
    with pytest.raises(DataError, match=r"dict\.txt .*no line \[UNK\]"):
        kit.to_unitk("mass", there, tmp_path / "ours")


def test_another_dictionary_of_tensors_is_refused(kit, store, tmp_path):
    there = store({"a": torch.ones(2)})
    with pytest.raises(CheckpointError, match="is not MASS"):
        kit.to_unitk("mass", there, tmp_path / "ours")


def test_heads_that_a_file_does_not_tell(kit, store, tmp_path, caplog, monkeypatch):
    """Another number of heads would make another function of the same weights, in silence."""
    found = original()
    there = store(found)
    kit.to_unitk("mass", there, tmp_path / "ours")
    assert "many heads" in caplog.text
    caplog.clear()
    kit.to_unitk("mass", there, tmp_path / "told", "--arch.num-heads", H)
    assert "heads" not in caplog.text
    monkeypatch.setattr(sys.modules[__name__], "D", D // 2)
    torch.save(original(), there / "mass.pt")
    with pytest.raises(UsageError, match="--arch.num-heads is needed: "):
        kit.to_unitk("mass", there, tmp_path / "narrow")


def made_here(toy_vocab, answers, **options):
    config = get("arch", "mass_tiny")()
    kind = get("task", "mass")
    task = kind(kind.Config(**options), toy_vocab)
    task = task.with_trained(pairs=answers)
    return Loaded(config.build(len(toy_vocab)).eval(), task, {"arch": "mass_tiny"}, {})


def test_pieces_that_are_not_berts_bring_their_tokenizer(toy_vocab, tmp_path, caplog):
    """dict.txt alone would be read as BERT's pieces, by which other texts are cut otherwise."""
    parts = made_here(toy_vocab, answers=False)
    mass.write(parts, tmp_path)
    assert f"--arch.num-heads {parts.model.config.num_heads} is needed" in caplog.text
    back = unitk.load(tmp_path, format="mass", options={"arch.num_heads": 4})
    for line in [*toy_lines(5), "  two  blanks", "[MASK]"]:
        assert back.task.vocab.encode(line) == toy_vocab.encode(line)
    assert len(back.task.vocab) == len(toy_vocab)


def test_pairs_that_begin_otherwise_are_refused(toy_vocab, tmp_path):
    with pytest.raises(UsageError, match="--to mass: .*without --task.opening sep"):
        mass.write(made_here(toy_vocab, answers=True), tmp_path)
    assert not any(tmp_path.iterdir())
    mass.write(made_here(toy_vocab, answers=True, opening="sep"), tmp_path)
