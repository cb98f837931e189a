"""Presets of today's models compute what transformers' classes compute, at random weights."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.models import archs
from unitk.slots import Example, collate, stay

VOCAB, N = 40, 29


def halves(rows: torch.Tensor, width: int, turning: int = 0) -> torch.Tensor:
    """Rows of queries or keys whose pairs are channels i and i + K / 2, from neighbours.

    Of the `width` rows of each head, the first `turning` ones are in pairs; 0: all.
    """
    each = rows.unflatten(0, (-1, width))
    first, rest = each.split([turning or width, width - (turning or width)], 1)
    first = first.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)
    return torch.cat([first, rest], 1).flatten(0, 1)


def llama(model, config, head="lm_head.weight"):
    """Our weights under the names of Llama and of all that descends from it."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    found = {"model.embed_tokens.weight": own["embed.tokens.weight"]}
    found["model.norm.weight"] = own["norm.weight"]
    found[head] = own["embed.tokens.weight" if config.tied else "heads.lm.weight"]
    names = {
        "attention.out": "self_attn.o_proj",
        "ffn.down": "mlp.down_proj",
        "attention_norm": "input_layernorm",
        "ffn_norm": "pre_feedforward_layernorm"
        if config.norm_after
        else "post_attention_layernorm",
        "attention_after": "post_attention_layernorm",
        "ffn_after": "post_feedforward_layernorm",
    }
    for i in range(config.num_layers):
        there = f"model.layers.{i}."
        for name in [name for name in own if name.startswith(f"layers.{i}.")]:
            part, _, leaf = name.removeprefix(f"layers.{i}.").rpartition(".")
            if part in names:
                found[f"{there}{names[part]}.{leaf}"] = own[name]
            elif part == "ffn.up":
                gate, up = own[name].chunk(2)
                found |= {f"{there}mlp.gate_proj.{leaf}": gate, f"{there}mlp.up_proj.{leaf}": up}
            elif part.endswith(("query_norm", "key_norm")):
                turned = halves(own[name], config.key_width)
                found[f"{there}self_attn.{part[10]}_norm.{leaf}"] = turned
        for leaf in ("weight", "bias"):
            found |= {f"{there}self_attn.{k}": v for k, v in projected(own, i, leaf, config)}
    return found


def projected(own, i, leaf, config):
    """Queries, keys and values of a layer by the names that Llama has."""
    name = f"layers.{i}.attention."
    if f"{name}qkv.{leaf}" in own:
        parts = own[f"{name}qkv.{leaf}"].chunk(3)
    elif f"{name}query.{leaf}" in own:
        parts = own[f"{name}query.{leaf}"], *own[f"{name}kv.{leaf}"].chunk(2)
    else:
        return
    for letter, part in zip("qkv", parts, strict=True):
        yield f"{letter}_proj.{leaf}", part if letter == "v" else halves(part, config.key_width)


def gemma(model, config):
    """Llama's names; the weights of norms are added to 1 there."""
    found = llama(model, config)
    return {name: x - 1 if "norm" in name else x for name, x in found.items()}


def neox(model, config):
    """GPT-NeoX's names; the rows of queries, keys and values alternate head by head."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    found = {
        "gpt_neox.embed_in.weight": own["embed.tokens.weight"],
        "lm_head.weight": own["heads.lm.weight"],
        "gpt_neox.final_layer_norm.weight": own["norm.weight"],
        "gpt_neox.final_layer_norm.bias": own["norm.bias"],
    }
    names = {
        "attention.out": "attention.dense",
        "ffn.up": "mlp.dense_h_to_4h",
        "ffn.down": "mlp.dense_4h_to_h",
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    width, turning = config.key_width, int(config.key_width * config.rotary_share)
    for i in range(config.num_layers):
        there = f"gpt_neox.layers.{i}."
        for leaf in ("weight", "bias"):
            for ours, theirs in names.items():
                found[f"{there}{theirs}.{leaf}"] = own[f"layers.{i}.{ours}.{leaf}"]
            q, k, v = own[f"layers.{i}.attention.qkv.{leaf}"].chunk(3)
            each = [halves(q, width, turning), halves(k, width, turning), v]
            joined = torch.stack([part.unflatten(0, (-1, width)) for part in each], 1)
            found[f"{there}attention.query_key_value.{leaf}"] = joined.flatten(0, 2)
    return found


def modernbert(model, config):
    """ModernBERT's names; queries, keys and values are one matrix."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    found = {
        "model.embeddings.tok_embeddings.weight": own["embed.tokens.weight"],
        "model.embeddings.norm.weight": own["embed.norm.weight"],
        "model.final_norm.weight": own["norm.weight"],
        "head.dense.weight": own["heads.lm.transform.dense.weight"],
        "head.norm.weight": own["heads.lm.transform.norm.weight"],
        "decoder.weight": own["embed.tokens.weight"],
        "decoder.bias": own["heads.lm.bias"],
    }
    names = {
        "attention.out": "attn.Wo",
        "ffn.up": "mlp.Wi",
        "ffn.down": "mlp.Wo",
        "attention_norm": "attn_norm",
        "ffn_norm": "mlp_norm",
    }
    for i in range(config.num_layers):
        there = f"model.layers.{i}."
        for ours, theirs in names.items():
            if f"layers.{i}.{ours}.weight" in own:
                found[f"{there}{theirs}.weight"] = own[f"layers.{i}.{ours}.weight"]
        parts = [part for _, part in projected(own, i, "weight", config)]
        found[f"{there}attn.Wqkv.weight"] = torch.cat(parts)
    return found


def t5gemma(model, config):
    """T5Gemma's names; the towers have the same embedding, and nothing turns in cross-attention."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    found = {"lm_head.out_proj.weight": own["embed.tokens.weight"]}
    names = {"attention": "self_attn", "cross_attention": "cross_attn"}
    norms = {"attention": "self_attn", "cross": "cross_attn", "ffn": "feedforward"}
    for side, prefix in (("encoder", "encoder."), ("decoder", "")):
        root = f"model.{side}."
        found[f"{root}embed_tokens.weight"] = own["embed.tokens.weight"]
        found[f"{root}norm.weight"] = own[f"{prefix}norm.weight"] - 1
        for i in range(config.num_layers):
            ours, there = f"{prefix}layers.{i}.", f"{root}layers.{i}."
            for part, theirs in names.items() if side == "decoder" else [*names.items()][:1]:
                query, kv, out = (own[f"{ours}{part}.{x}.weight"] for x in ("query", "kv", "out"))
                key, value = kv.chunk(2)
                if part == "attention":
                    query, key = (halves(one, config.key_width) for one in (query, key))
                four = zip("qkvo", (query, key, value, out), strict=True)
                found |= {f"{there}{theirs}.{letter}_proj.weight": one for letter, one in four}
            gate, up = own[f"{ours}ffn.up.weight"].chunk(2)
            down = own[f"{ours}ffn.down.weight"]
            for name, matrix in (("gate", gate), ("up", up), ("down", down)):
                found[f"{there}mlp.{name}_proj.weight"] = matrix
            for part, theirs in norms.items():
                for where, place in (("norm", "pre"), ("after", "post")):
                    if (weight := own.get(f"{ours}{part}_{where}.weight")) is not None:
                        found[f"{there}{place}_{theirs}_layernorm.weight"] = weight - 1
    return found


PLAIN = {"rope_type": "default"}
TYPES = ["sliding_attention", "full_attention"]


def sizes(config, **more):
    """The fields that all of transformers' configurations have."""
    return {
        "vocab_size": VOCAB,
        "hidden_size": config.width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.ffn_width,
        "tie_word_embeddings": config.tied,
        "pad_token_id": 0,
    } | more


def grouped(config, **more):
    """Those of Llama and its descendants."""
    rope = PLAIN | {"rope_theta": config.rotary_base}
    own = {"num_key_value_heads": config.kv_heads, "rms_norm_eps": config.norm_eps}
    own["head_dim"] = config.key_width
    return sizes(config, **own, **{"rope_parameters": rope} | more)


def both(theta):
    """Rotary positions of layers with a window and of those without, by our bases."""
    return {kind: PLAIN | {"rope_theta": base} for kind, base in zip(TYPES, theta, strict=True)}


def small(name, **more):
    """A preset with 4 layers of 32 and two heads of keys and values, if it has groups."""
    config = archs.preset(name)
    own = {"num_layers": 4, "width": 32, "num_heads": 4, "ffn_width": 40}
    own["num_kv_heads"] = config.num_kv_heads and 2
    return replace(config, **own | more)


SCALED = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED |= {"rope_type": "llama3", "rope_theta": 50.0, "original_max_position_embeddings": 24}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

CASES = {
    "qwen3": (archs.preset("qwen3_tiny"), "Qwen3ForCausalLM", llama, grouped, {}),
    "qwen3 of public sizes": (
        small("qwen3_0.6b", head_width=24),
        "Qwen3ForCausalLM",
        llama,
        grouped,
        {},
    ),
    "qwen2": (small("qwen2_0.5b"), "Qwen2ForCausalLM", llama, grouped, {}),
    "llama": (archs.preset("llama_tiny"), "LlamaForCausalLM", llama, grouped, {}),
    "llama with longer texts": (
        small("llama_1b", rotary_base=50.0, rotary_wavelengths=(6.0, 24.0)),
        "LlamaForCausalLM",
        llama,
        grouped,
        {"rope_parameters": SCALED},
    ),
    "llama with linear scaling": (
        small("llama_135m", rotary_base=10000.0, rotary_factor=4.0),
        "LlamaForCausalLM",
        llama,
        grouped,
        {"rope_parameters": LINEAR},
    ),
    "mistral": (
        small("mistral_7b", layer_windows=(6,)),
        "MistralForCausalLM",
        llama,
        grouped,
        {"sliding_window": 7},
    ),
    "smollm3": (
        small("smollm3_3b"),
        "SmolLM3ForCausalLM",
        llama,
        grouped,
        {"rope_parameters": PLAIN | {"rope_theta": 5e6}},
    ),
    "olmo2": (small("olmo2_1b"), "Olmo2ForCausalLM", llama, grouped, {}),
    "gemma3": (
        archs.preset("gemma3_tiny"),
        "Gemma3ForCausalLM",
        gemma,
        grouped,
        {
            "query_pre_attn_scalar": 24,
            "sliding_window": 8,
            "layer_types": TYPES,
            "rope_parameters": both([1e4, 1e6]),
        },
    ),
    "pythia": (
        archs.preset("pythia_tiny"),
        "GPTNeoXForCausalLM",
        neox,
        sizes,
        {"rope_parameters": PLAIN | {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
    ),
    "modernbert": (
        small("modernbert_tiny", layer_windows=(0, 5, 5)),
        "ModernBertForMaskedLM",
        modernbert,
        sizes,
        {"local_attention": 10, "rope_parameters": both([10000.0, 160000.0])},
    ),
    "eurobert": (small("eurobert_210m"), "EuroBertForMaskedLM", llama, grouped, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name):
    config, cls, rename, settings, more = CASES[name]
    compare(config, cls, rename, settings(config, **more), causal="Causal" in cls)


def test_one_class_serves_models_that_see_both_ways():
    config, cls, rename, settings, _ = CASES["qwen3"]
    compare(config, cls, rename, settings(config, is_causal=False), causal=False)


def test_two_towers_are_transformers_too():
    from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration

    config = archs.preset("t5gemma_tiny")
    model = random(config.build(VOCAB))
    tower = grouped(config, query_pre_attn_scalar=config.key_width, layer_types=TYPES[1:] * 2)
    tower |= {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    both = T5GemmaConfig(encoder=tower, decoder=tower, vocab_size=VOCAB, dropout_rate=0.0)
    other = T5GemmaForConditionalGeneration(both).eval()
    other.load_state_dict(t5gemma(model, config))
    source, target = np.random.default_rng(0).integers(1, VOCAB, (2, N))
    dec = stay(target, np.arange(N), at=np.arange(N))
    batch = collate([[Example({"enc": stay(source, np.arange(N)), "dec": dec})]]).to("cpu")
    given = {"input_ids": source, "decoder_input_ids": target}
    with torch.no_grad():
        wanted = other(**{name: torch.as_tensor(one)[None] for name, one in given.items()}).logits
        assert_near(model.head(model(batch)[0]["dec"][0, :N]), wanted[0])


def random(model):
    """The model with numbers where norms of ones and maps of zeros would show nothing."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.2 * (parameter.dim() == 1), std=0.3)
    return model.eval()


def compare(config, cls, rename, settings, causal):
    """The logits of both for the same weights and tokens."""
    model = random(replace(config, num_virtual=0).build(VOCAB))
    library = importlib.import_module("transformers")
    kind = getattr(library, cls)
    other = kind(kind.config_class(**settings)).eval()
    other.load_state_dict(rename(model, config))
    tokens = np.random.default_rng(0).integers(1, VOCAB, N)
    slots = stay(tokens, np.arange(N), at=np.arange(N) * causal)
    batch = collate([[Example({"x": slots})]]).to("cpu")
    with torch.no_grad():
        states = model(batch)[0]["x"][0, :N]
        wanted = other(torch.as_tensor(tokens)[None]).logits[0]
        assert_near(model.head(states), wanted)
