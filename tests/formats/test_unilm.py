"""UniLM's files, written by a reference in plain torch under the original names."""

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
from unitk.errors import CheckpointError
from unitk.formats.unilm import write
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded, load
from unitk.vocab.open import open_vocab

V, D, H, L, FFN, P = 60, 32, 4, 2, 48, 40
MASK, SEP, BANNED = 4, 3, [0, 2, 4]
BOUNDS = [*range(1, 8), 8, 12, 16, 23, 32, 46, 64, 91]
"""Distances at which a bucket of relative positions begins (32 buckets, at most 128)."""


def shapes(types, fast):
    layer = {
        "attention.output.dense": (D, D),
        "attention.output.LayerNorm": (D,),
        "intermediate.dense": (FFN, D),
        "output.dense": (D, FFN),
        "output.LayerNorm": (D,),
    }
    if not fast:
        layer |= {f"attention.self.{part}": (D, D) for part in ("query", "key", "value")}
    modules = {
        "bert.embeddings.LayerNorm": (D,),
        **{f"bert.encoder.layer.{i}.{n}": s for i in range(L) for n, s in layer.items()},
        "cls.predictions.transform.dense": (D, D),
        "cls.predictions.transform.LayerNorm": (D,),
    }
    found = {f"{name}.weight": shape for name, shape in modules.items()}
    found |= {f"{name}.bias": shape[:1] for name, shape in modules.items()}
    found |= {
        "bert.embeddings.word_embeddings.weight": (V, D),
        "bert.embeddings.position_embeddings.weight": (P, D),
        "bert.embeddings.token_type_embeddings.weight": (types, D),
        "cls.predictions.bias": (V,),
    }
    if fast:
        found["bert.encoder.rel_pos_bias.weight"] = (H, 32)
        for i in range(L):
            own = f"bert.encoder.layer.{i}.attention.self."
            found[f"{own}qkv_linear.weight"] = (3 * D, D)
            found |= {f"{own}{part}_bias": (1, 1, D) for part in "qv"}
    elif types == 6:
        found |= {"bert.pooler.dense.weight": (D, D), "bert.pooler.dense.bias": (D,)}
        found |= {"cls.seq_relationship.weight": (2, D), "cls.seq_relationship.bias": (2,)}
    return found


def original(types=6, fast=False):
    """A checkpoint with the tied copy that the original writes."""
    torch.manual_seed(0)
    found = {}
    for name, shape in shapes(types, fast).items():
        found[name] = 0.3 * torch.randn(shape)
        if "LayerNorm.weight" in name:
            found[name] += 1
        elif name.endswith("bias"):
            found[name] *= 0.3
    found["cls.predictions.decoder.weight"] = found["bert.embeddings.word_embeddings.weight"]
    return found


def buckets(pos):
    distance = pos[None] - pos[:, None]  # key - query
    size = torch.bucketize(distance.abs(), torch.tensor(BOUNDS), right=True)
    return size + 16 * (distance > 0)


def reference(t, tokens, seg, pos, sees, eps):
    """The logits of every slot; `sees` [T, T]: may query i look at key j?"""
    tokens, seg, pos = (torch.as_tensor(np.array(x)) for x in (tokens, seg, pos))

    def norm(x, name):
        return F.layer_norm(x, (D,), t[f"{name}.weight"], t[f"{name}.bias"], eps)

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    e = "bert.embeddings."
    x = t[f"{e}word_embeddings.weight"][tokens] + t[f"{e}position_embeddings.weight"][pos]
    x = norm(x + t[f"{e}token_type_embeddings.weight"][seg], f"{e}LayerNorm")
    bias = torch.zeros(H, len(tokens), len(tokens))
    if "bert.encoder.rel_pos_bias.weight" in t:
        bias = t["bert.encoder.rel_pos_bias.weight"][:, buckets(pos)]
    bias = bias.masked_fill(~torch.as_tensor(sees), -1e9)
    for i in range(L):
        a = f"bert.encoder.layer.{i}."
        own = f"{a}attention.self."
        if f"{own}qkv_linear.weight" in t:
            q, k, v = (x @ t[f"{own}qkv_linear.weight"].T).chunk(3, dim=-1)
            q, v = q + t[f"{own}q_bias"][0, 0], v + t[f"{own}v_bias"][0, 0]
        else:
            q, k, v = (linear(x, f"{own}{part}") for part in ("query", "key", "value"))
        q, k, v = (z.view(-1, H, D // H).transpose(0, 1) for z in (q, k, v))
        weights = (q @ k.mT / math.sqrt(D // H) + bias).softmax(-1)
        mixed = (weights @ v).transpose(0, 1).reshape(-1, D)
        x = norm(x + linear(mixed, f"{a}attention.output.dense"), f"{a}attention.output.LayerNorm")
        inner = linear(F.gelu(linear(x, f"{a}intermediate.dense")), f"{a}output.dense")
        x = norm(x + inner, f"{a}output.LayerNorm")
    h = norm(
        F.gelu(linear(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm"
    )
    return h @ t["cls.predictions.decoder.weight"].T + t["cls.predictions.bias"]


def decode(t, source, steps, types, eps, shift=False):
    """Greedy decoding as the original: append [MASK], read it, put the word in its place.

    With s2s-ft's `pos_shift` [SEP] is the target's first word, and the last word is read.
    """
    words = [2, *source, SEP]
    first = len(words) - shift
    for _ in range(steps):
        row = words if shift else [*words, MASK]
        place = np.arange(len(row))
        sees = (place[None] < first) | (place[None] <= place[:, None])
        sees[:first, first:] = False
        seg = (4 if types == 6 else 0) + (place >= first)
        said = reference(t, row, seg, place, sees, eps)[-1]
        said[BANNED] = -1e9
        words.append(int(said.argmax()))
        if words[-1] == SEP:
            break
    return words[first + shift :]


CONFIG = {
    "hidden_size": D,
    "num_hidden_layers": L,
    "num_attention_heads": H,
    "intermediate_size": FFN,
    "max_position_embeddings": P,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "vocab_size": V,
}


@pytest.fixture
def store(tmp_path, vocab_txt):
    def stored(tensors, name="pytorch_model.bin", config=None, **more):
        folder = tmp_path / "there"
        folder.mkdir()
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=False)
        (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {}), **more}))
        (folder / "vocab.txt").write_text(vocab_txt.read_text())
        return folder

    return stored


@pytest.mark.parametrize("types,fast", [(6, False), (2, False), (2, True)])
def test_logits_outputs_and_the_export_are_theirs(kit, store, tmp_path, types, fast):
    tensors = original(types, fast)
    more = {"rel_pos_bins": 32, "max_rel_pos": 128} if fast else {}
    there = store(tensors, type_vocab_size=types, **more)
    loaded = load(kit.to_unitk("unilm", there, tmp_path / "ours"))
    rng = np.random.default_rng(2)
    tokens, seg = kit.ids(rng, 30), np.arange(30) % types
    at = rng.integers(0, 3, 30)
    pos = np.minimum(np.arange(30) * (1 + fast), P - 1)
    wanted = reference(tensors, tokens, seg, pos, at[None] <= at[:, None], 1e-12)
    found = kit.logits(loaded.model, kit.single(tokens, seg=seg, at=at, pos=pos), V)
    assert_near(found, wanted)
    # the words that the original writes
    generator = unitk.load(tmp_path / "ours")
    source = kit.ids(rng, 6)
    [[best]] = generator.outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=8))
    words = decode(tensors, source, 8, types, 1e-12)
    assert best.hypothesis.ids.tolist()[:8] == words and len(set(words)) > 1
    # and the way back
    back = kit.goes_back(
        tmp_path / "ours", "unilm", tmp_path / "back", "pytorch_model.bin", tensors
    )
    config = json.loads((back / "config.json").read_text())
    assert {key: config[key] for key in CONFIG} == CONFIG and config["type_vocab_size"] == types
    assert (back / "vocab.txt").read_text() == (there / "vocab.txt").read_text()


def test_decoding_with_a_position_shift(kit, store, tmp_path):
    tensors, rng, seen = original(), np.random.default_rng(3), set()
    there = store(tensors, type_vocab_size=6)
    kit.to_unitk("unilm", there, tmp_path / "ours", "--task.position-shift", "on")
    generator = unitk.load(tmp_path / "ours")
    for size in (6, 1, 11):
        source = kit.ids(rng, size)
        [[best]] = generator.outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=8))
        words = decode(tensors, source, 8, 6, 1e-12, shift=True)
        assert best.hypothesis.ids.tolist()[:8] == words
        seen |= set(words)
    assert len(seen) > 3


def test_what_s2s_ft_saves(kit, store, tmp_path):
    """Fine-tuned files have UniLMv2's parts apart, another name for the output, and a buffer."""
    fast = original(2, fast=True)
    apart = {"crit_mask_lm_smoothed.one_hot": torch.zeros(1, V)}
    for name, tensor in fast.items():
        if name.endswith("qkv_linear.weight"):
            for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                apart[name.replace("qkv_linear", part)] = third
        elif name.endswith("_bias") and ".self." in name:
            part = {"q_bias": "query.bias", "v_bias": "value.bias"}[name.rpartition(".")[2]]
            apart[f"{name.rpartition('.')[0]}.{part}"] = tensor.flatten()
            apart[f"{name.rpartition('.')[0]}.key.bias"] = torch.zeros(D)
        else:
            name = name.replace("encoder.rel_pos_bias", "rel_pos_bias")
            apart[name.replace("decoder.weight", "decoder_weight")] = tensor
    kit.to_unitk("unilm", store(apart, type_vocab_size=2), tmp_path / "ours")
    kit.goes_back(tmp_path / "ours", "unilm", tmp_path / "back", "pytorch_model.bin", fast)


def test_old_names_of_several_devices(kit, store, tmp_path):
    tensors = original(6)
    old = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old["module." + name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    kit.to_unitk("unilm", store(old, type_vocab_size=6), tmp_path / "ours")
    kit.goes_back(tmp_path / "ours", "unilm", tmp_path / "back", "pytorch_model.bin", tensors)


def test_narrow_heads_and_another_source_type(kit, store, tmp_path):
    """MiniLM: heads of less than 64, said by config.json; UniLM 1.2 and what s2s-ft writes."""
    types = {"source_type_id": 0, "target_type_id": 1, "layer_norm_epsilon": 1e-5}
    there = store(original(2), type_vocab_size=2, num_attention_heads=8, **types)
    loaded = load(kit.to_unitk("unilm", there, tmp_path / "ours"))
    config = loaded.model.config
    assert (config.num_heads, config.num_segments, config.norm_eps) == (8, 2, 1e-12)
    assert type(loaded.task).__name__ == "PMLM" and loaded.task.p == loaded.vocab.mask
    (there / "config.json").write_text(json.dumps({**CONFIG, "source_type_id": 2}))
    with pytest.raises(CheckpointError, match="source_type_id and target_type_id are"):
        kit.to_unitk("unilm", there, tmp_path / "none")


def test_sizes_without_a_configuration(kit, store, tmp_path):
    """Epochs of UniLM 1 are files called model.N.bin; their configuration is elsewhere."""
    there = store(original(6), "model.3.bin")
    (there / "config.json").unlink()
    dest = kit.to_unitk("unilm", there, tmp_path / "ours", "--arch.num-heads", 4)
    config = load(dest).model.config
    assert (config.num_layers, config.width, config.ffn_width, config.num_heads) == (L, D, FFN, H)
    assert (config.max_positions, config.num_segments, config.norm_eps) == (P, 6, 1e-5)


def test_files_under_the_names_of_the_release(kit, tmp_path, vocab_txt):
    """NAME-config.json and NAME-vocab.txt belong to NAME.bin; config.json beside it does not."""
    torch.save(original(2, fast=True), tmp_path / "unilm2-base.bin")
    (tmp_path / "unilm2-base-config.json").write_text(json.dumps({**CONFIG, "type_vocab_size": 2}))
    (tmp_path / "unilm2-base-vocab.txt").write_text(vocab_txt.read_text())
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_attention_heads": 2}))
    loaded = load(kit.to_unitk("unilm", tmp_path / "unilm2-base.bin", tmp_path / "ours"))
    assert loaded.model.config.num_heads == H and loaded.vocab.pieces([7]) == ["w2"]


def test_longer_positions_are_copies(kit, store, tmp_path):
    tensors = original(6)
    there = store(tensors, type_vocab_size=6)
    dest = kit.to_unitk("unilm", there, tmp_path / "ours", "--arch.max-positions", 90)
    first = tensors["bert.embeddings.position_embeddings.weight"]
    table = load(dest).model.decoder.embed.positions.weight
    assert torch.equal(table, torch.cat([first, first, first[:10]]))


def test_switches_of_other_models_are_refused(kit, store, tmp_path):
    there = store(original(6), type_vocab_size=6, ffn_type=2)
    with pytest.raises(CheckpointError, match="unitk reads only ffn_type 0, got 2"):
        kit.to_unitk("unilm", there, tmp_path / "ours")


def test_the_files_of_a_tokenizer_say_together_what_it_is(kit, vocab_txt, tmp_path):
    """As s2s-ft leaves a cased model: without tokenizer_config.json, case would be lost."""
    task = get("task", "unilm")
    vocab_txt.write_text(vocab_txt.read_text() + "Upper\nupper\n")
    vocab = open_vocab(vocab_txt)
    model = get("arch", "unilm_tiny")().build(len(vocab))
    (there := tmp_path / "there").mkdir()
    write(Loaded(model, task(task.Config(), vocab), {}, {}), there)
    for cased in (True, False):
        about = {"do_lower_case": not cased}
        (there / "tokenizer_config.json").write_text(json.dumps(about))
        found = get("format", "unilm").read(there).task.vocab
        word = "Upper" if cased else "upper"
        assert found.pieces(found.encode("Upper")) == [word]
