"""Folders of MDLM, BD3-LM and LLaDA, written under the names of the releases by references in plain
torch."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near
from safetensors.torch import load_file, save_file

from unitk.errors import CheckpointError, UsageError
from unitk.training.saving.checkpoint import load
from unitk.verbs import train

D, H, L, V, C = 64, 4, 2, 61, 24
WAVES = 256
PIECES = {f"w{i}": i for i in range(59)} | {"<|endoftext|>": 59}
MDLM = {"model_type": "mdlm", "hidden_dim": D, "cond_dim": C, "n_blocks": L, "n_heads": H}
MDLM |= {"dropout": 0.1, "vocab_size": V, "model_length": 32, "time_conditioning": False}
BD3LM = MDLM | {"model_type": "bd3lm", "block_size": 4, "cross_attn": True, "causal": False}
BD3LM |= {"attn_backend": "flex", "var_min": True, "adaln": False}
LLADA = {"model_type": "llada", "d_model": D, "n_heads": H, "n_kv_heads": H, "n_layers": L}
LLADA |= {"mlp_hidden_size": 96, "vocab_size": V, "embedding_size": V, "rope_theta": 500000.0}
LLADA |= {"rms_norm_eps": 1e-5, "max_sequence_length": 64, "weight_tying": False, "rope": True}
LLADA |= {"block_type": "llama", "layer_norm_type": "rms", "activation_type": "silu"}
LLADA |= {"mask_token_id": 60, "eos_token_id": 59, "pad_token_id": 59, "include_bias": False}
LLADA |= {"attention_dropout": 0.0, "residual_dropout": 0.0, "multi_query_attention": None}


def dit(adaptive=True):
    """Weights of a DiT; those of its adaptive norms are as large as others."""
    shapes = {"vocab_embed.embedding": (V, D), "rotary_emb.inv_freq": (D // H // 2,)}
    for i in range(L):
        block = {"norm1": (D,), "norm2": (D,), "attn_qkv": (3 * D, D), "attn_out": (D, D)}
        block |= {"mlp.0": (4 * D, D), "mlp.2": (D, 4 * D), "adaLN_modulation": (6 * D, C)}
        shapes |= {f"blocks.{i}.{name}.weight": shape for name, shape in block.items()}
    shapes |= {"output_layer.norm_final.weight": (D,), "output_layer.linear.weight": (V, D)}
    shapes |= {"output_layer.adaLN_modulation.weight": (2 * D, C)}
    shapes |= {"sigma_map.mlp.0.weight": (C, WAVES), "sigma_map.mlp.2.weight": (C, C)}
    biased = ("mlp.0", "mlp.2", "adaLN_modulation", "linear")
    for name in [name for name in shapes if name.removesuffix(".weight").endswith(biased)]:
        shapes[name.replace("weight", "bias")] = shapes[name][:1]
    found = {f"backbone.{name}": 0.2 * torch.randn(shape) for name, shape in shapes.items()}
    for name in found:
        found[name] += "norm" in name
    if not adaptive:
        found = {n: t for n, t in found.items() if "adaLN" not in n and "sigma" not in n}
        found |= {"sampling_eps_min": torch.tensor(1e-3), "sampling_eps_max": torch.tensor(1.0)}
    return found


def llama():
    shapes = {"wte": (V, D), "ln_f": (D,), "ff_out": (V, D)}
    for i in range(L):
        names = ("q_proj", "k_proj", "v_proj", "attn_out")
        shapes |= {f"blocks.{i}.{name}": (D, D) for name in names}
        shapes |= {f"blocks.{i}.{name}": (96, D) for name in ("ff_proj", "up_proj")}
        shapes |= {f"blocks.{i}.{name}": (D,) for name in ("attn_norm", "ff_norm")}
        shapes[f"blocks.{i}.ff_out"] = (D, 96)
    found = {f"model.transformer.{n}.weight": 0.2 * torch.randn(s) for n, s in shapes.items()}
    for name in found:
        found[name] += "norm" in name or "ln_f" in name
    return found


def halves(x, base):
    """The two halves of each head turned against each other; x: [H, T, K]."""
    n = x.shape[-1] // 2
    angle = torch.arange(x.shape[1])[:, None] * base ** (-torch.arange(n) / n)
    one, two = x[..., :n], x[..., n:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


def attend(q, k, v, sees, base):
    q, k, v = (x.view(len(x), H, -1).transpose(0, 1) for x in (q, k, v))
    score = halves(q, base) @ halves(k, base).mT / math.sqrt(D / H)
    return (score.masked_fill(~sees, -1e9).softmax(-1) @ v).transpose(0, 1).flatten(1)


def of_dit(t, tokens, sees, time=0.0):
    """The logits of a DiT that reads tokens [T] and a time of the noise."""

    def linear(x, name):
        y = x @ t[f"backbone.{name}.weight"].T
        return y + t.get(f"backbone.{name}.bias", 0)

    wave = time * torch.exp(-math.log(10000) * torch.arange(WAVES // 2) / (WAVES // 2))
    adaptive = "backbone.sigma_map.mlp.0.weight" in t
    if adaptive:
        state = torch.cat([wave.cos(), wave.sin()])
        state = F.silu(linear(F.silu(linear(state, "sigma_map.mlp.0")), "sigma_map.mlp.2"))

    def modulated(x, norm, shift, scale):
        x = F.layer_norm(x, (D,)) * t[f"backbone.{norm}.weight"]
        return x * (1 + scale) + shift

    x = t["backbone.vocab_embed.embedding"][torch.as_tensor(tokens)]
    for i in range(L):
        b = f"blocks.{i}."
        made = [0.0, 0.0, 1.0] * 2
        if adaptive:
            made = linear(state, f"{b}adaLN_modulation").chunk(6)
        y = modulated(x, f"{b}norm1", *made[:2])
        y = attend(*linear(y, f"{b}attn_qkv").chunk(3, -1), sees, 10000.0)
        x = x + made[2] * linear(y, f"{b}attn_out")
        y = linear(modulated(x, f"{b}norm2", *made[3:5]), f"{b}mlp.0")
        x = x + made[5] * linear(F.gelu(y, approximate="tanh"), f"{b}mlp.2")
    last = linear(state, "output_layer.adaLN_modulation").chunk(2) if adaptive else (0.0, 0.0)
    return linear(modulated(x, "output_layer.norm_final", *last), "output_layer.linear")


def of_llama(t, tokens, sees):
    def linear(x, name):
        return x @ t[f"model.transformer.{name}.weight"].T

    def norm(x, name):
        unit = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return unit * t[f"model.transformer.{name}.weight"]

    x = t["model.transformer.wte.weight"][torch.as_tensor(tokens)]
    for i in range(L):
        b = f"blocks.{i}."
        y = norm(x, f"{b}attn_norm")
        qkv = (linear(y, f"{b}{part}_proj") for part in "qkv")
        x = x + linear(attend(*qkv, sees, 500000.0), f"{b}attn_out")
        y = norm(x, f"{b}ff_norm")
        x = x + linear(F.silu(linear(y, f"{b}ff_proj")) * linear(y, f"{b}up_proj"), f"{b}ff_out")
    return linear(norm(x, "ln_f"), "ff_out")


@pytest.fixture
def store(tmp_path):
    """Writes a folder as released, with a tokenizer of 60 pieces whose last one parts texts."""

    def stored(tensors, about):
        torch.manual_seed(0)
        folder = tmp_path / "there"
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(about))
        model = {"type": "WordLevel", "vocab": PIECES, "unk_token": "w0"}
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        end = {"id": 59, "content": "<|endoftext|>", "special": True, **flags}
        spec = {"version": "1.0", "added_tokens": [end], "model": model, "normalizer": None}
        spec |= {"pre_tokenizer": {"type": "Whitespace"}}
        (folder / "tokenizer.json").write_text(json.dumps(spec))
        return folder

    return stored


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


TOKENS = np.random.default_rng(0).integers(0, V, 12)
ALL = torch.ones(12, 12, dtype=torch.bool)
BLOCK = torch.arange(12) // 4
BEFORE = BLOCK[:, None] >= BLOCK[None]
CASES = {
    "mdlm": (dit, MDLM, of_dit, ALL, "mdlm", {"opening": "sep"}),
    "bd3lm": (
        *(lambda: dit(adaptive=False), BD3LM, of_dit, BEFORE, "bd3lm"),
        {"opening": "sep", "block_length": 4},
    ),
    "llada": (llama, LLADA, of_llama, ALL, "mdlm", {"opening": "cls"}),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_equal_both_ways(kit, store, tmp_path, name):
    made, about, reference, sees, task, options = CASES[name]
    tensors = made()
    loaded = load(kit.to_unitk("diffusion", store(tensors, about), tmp_path / "ours"))
    assert loaded.config["task"] == task
    assert {key: getattr(loaded.task.config, key) for key in options} == options
    assert (loaded.vocab.mask, loaded.vocab.sep) == (60, 59)
    at = 2 * BLOCK.numpy() + 1 if name == "bd3lm" else 0
    shown = kit.single(TOKENS, at=at)
    wanted = reference(tensors, TOKENS, sees)
    assert_near(kit.logits(loaded.model, shown, V), wanted)
    back = kit.from_unitk(tmp_path / "ours", "diffusion", tmp_path / "back")
    written = load_file(back / "model.safetensors")
    assert tensors.keys() - written.keys() <= {"sampling_eps_min", "sampling_eps_max"}
    if name == "llada":
        assert all(torch.equal(written[one], tensors[one]) for one in tensors)
        assert written.keys() == tensors.keys()
    else:
        # what is written says the same at any time
        assert_near(reference(written, TOKENS, sees, 0.7), wanted)
        assert_near(written["backbone.rotary_emb.inv_freq"], 10000.0 ** (-np.arange(8) / 8))
    settled = json.loads((back / "config.json").read_text())
    changed = {key for key in about if settled.get(key) != about[key]}
    assert changed <= {"cond_dim", "adaln", "attn_backend", "var_min"}
    again = load(kit.to_unitk("diffusion", back, tmp_path / "again"))
    assert_near(kit.logits(again.model, shown, V), wanted)


def test_the_symbol_before_a_text_of_llada(kit, store, tmp_path):
    """Its tokenizer has one of its own; with it, no symbol of a text is doubled."""
    there = store(llama(), LLADA)
    spec = json.loads((there / "tokenizer.json").read_text())
    spec["model"]["vocab"] = {f"w{i}": i for i in range(58)} | {"<|startoftext|>": 58}
    spec["model"]["vocab"] |= {"<|endoftext|>": 59}
    spec["added_tokens"].append({**spec["added_tokens"][0], "id": 58, "content": "<|startoftext|>"})
    (there / "tokenizer.json").write_text(json.dumps(spec))
    task = load(kit.to_unitk("diffusion", there, tmp_path / "ours")).task
    assert task.canvas([np.array([7])], np.array([60])).towers["x"].token.tolist() == [58, 7, 60]


def test_mdlm_opens_a_text_with_its_end(kit, store, tmp_path):
    task = load(kit.to_unitk("diffusion", store(dit(), MDLM), tmp_path / "ours")).task
    assert task.canvas([np.array([7])], np.array([60])).towers["x"].token.tolist() == [59, 7, 60]


@pytest.mark.parametrize(
    ("made", "about", "message"),
    [
        (dit, MDLM | {"time_conditioning": True}, "reads only time_conditioning False, got True"),
        (dit, MDLM | {"model_type": "sedd"}, "must be one of mdlm, bd3lm, llada, got 'sedd'"),
        (llama, LLADA | {"n_kv_heads": 2}, "unitk reads only n_kv_heads 4, got 2"),
        (llama, LLADA | {"include_qkv_bias": True}, "reads only include_qkv_bias False"),
        (llama, LLADA | {"d_model": 96}, "another shape is needed"),
    ],
)
def test_what_is_computed_otherwise_is_refused(kit, store, tmp_path, made, about, message):
    with pytest.raises(CheckpointError, match=message):
        kit.to_unitk("diffusion", store(made(), about), tmp_path / "ours")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("backbone.blocks.1.norm2.weight", "has no backbone.blocks.1.norm2.weight, which the"),
        ("backbone.sigma_map.mlp.2.bias", "has no backbone.sigma_map.mlp.2.bias, which the model"),
        ("backbone.blocks.0.attn_qkv.weight", "has no backbone.blocks.0.attn_qkv.weight, which"),
    ],
)
def test_a_damaged_dit_is_refused(kit, store, tmp_path, name, message):
    tensors = dit()
    del tensors[name]
    with pytest.raises(CheckpointError, match=message):
        kit.to_unitk("diffusion", store(tensors, MDLM), tmp_path / "ours")


def test_adaptive_norms_of_another_width_are_refused(kit, store, tmp_path):
    tensors = dit() | {"backbone.blocks.0.adaLN_modulation.weight": torch.zeros(5, C)}
    with pytest.raises(CheckpointError, match="blocks.0.adaLN_modulation .*model"):
        kit.to_unitk("diffusion", store(tensors, MDLM), tmp_path / "ours")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task mdlm --arch mdlm_tiny", ""),
        ("--task bd3lm --arch mdlm_tiny", ""),
        ("--task mdlm --arch llada_tiny", ""),
        ("--task bd3lm --arch llada_tiny", "bd3lm with layer, not bd3lm with --arch.norm rms"),
        ("--task mlm --arch mdlm_tiny", "mdlm with layer or rms, .* not mlm with --arch.norm"),
        ("--task mdlm --arch mdlm_tiny --task.shift on", "--task.shift off, but this model has it"),
        ("--task mdlm --arch mdlm_tiny --arch.attention-bias on", "--arch.attention-bias off"),
        ("--task mdlm --arch mdlm_tiny --arch.ffn-width 32", "--arch.ffn-width 256, .* has 32"),
    ],
)
def test_models_trained_here(kit, tmp_path, toy_data, words, message):
    run = tmp_path / "run"
    options = f"--save-dir {run} --max-steps 1 --max-tokens 512 --lr 1e-2"
    train.run([*words.split(), "--data", str(toy_data / "text" / "train"), *options.split()])
    if message:
        with pytest.raises(UsageError, match=message):
            kit.from_unitk(run, "diffusion", tmp_path / "there")
        return
    there = kit.from_unitk(run, "diffusion", tmp_path / "there")
    loaded = load(kit.to_unitk("diffusion", there, tmp_path / "back"))
    mine = load(run)
    assert loaded.vocab.symbols == mine.vocab.symbols
    assert loaded.task.config == mine.task.config
    shown = kit.single(TOKENS % len(mine.vocab))
    assert_near(kit.logits(loaded.model, shown), kit.logits(mine.model, shown))


def test_another_format_names_this_one(kit, store, tmp_path):
    with pytest.raises(CheckpointError, match="got 'mdlm' .--from diffusion reads.*."):
        kit.to_unitk("hf", store(dit(), MDLM), tmp_path / "ours")
