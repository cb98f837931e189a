"""The stack that leaves: qwen3 presets compute what transformers' Qwen3 computes."""

import numpy as np
import pytest
import torch
from rounding import near

from unitk.models import archs
from unitk.slots import Example, collate, stay

VOCAB, N = 40, 11


def halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys whose pairs are channels i and i + K / 2, from neighbours."""
    return rows.view(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def theirs(model, config):
    """Its weights under the names that transformers' Qwen3 has."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    heads, found = config.num_heads, {"model.embed_tokens.weight": own["embed.tokens.weight"]}
    found |= {"model.norm.weight": own["norm.weight"], "lm_head.weight": own["embed.tokens.weight"]}
    for i in range(config.num_layers):
        ours, there = f"layers.{i}.", f"model.layers.{i}."
        query, key, value = own[f"{ours}attention.qkv.weight"].chunk(3)
        gate, up = own[f"{ours}ffn.up.weight"].chunk(2)
        parts = {
            "self_attn.q_proj": halves(query, heads),
            "self_attn.k_proj": halves(key, heads),
            "self_attn.v_proj": value,
            "self_attn.o_proj": own[f"{ours}attention.out.weight"],
            "self_attn.q_norm": halves(own[f"{ours}attention.query_norm.weight"], 1),
            "self_attn.k_norm": halves(own[f"{ours}attention.key_norm.weight"], 1),
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": own[f"{ours}ffn.down.weight"],
            "input_layernorm": own[f"{ours}attention_norm.weight"],
            "post_attention_layernorm": own[f"{ours}ffn_norm.weight"],
        }
        found |= {f"{there}{name}.weight": tensor for name, tensor in parts.items()}
    return found


@pytest.mark.parametrize("causal", [True, False])
def test_logits_are_those_of_transformers(causal):
    """The same class serves left-to-right models and, by `is_causal`, those that see both ways."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = archs.preset("qwen3_tiny")
    model = config.build(VOCAB).eval()
    for parameter in model.parameters():  # norms of ones and maps of zeros would show nothing
        torch.nn.init.normal_(parameter, mean=0.2 * (parameter.dim() == 1), std=0.3)
    other = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCAB,
            hidden_size=config.width,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            head_dim=config.key_width,
            intermediate_size=config.ffn_width,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rotary_base},
            tie_word_embeddings=True,
            is_causal=causal,
        )
    ).eval()
    other.load_state_dict(theirs(model, config))
    tokens = np.random.default_rng(0).integers(0, VOCAB, N)
    slots = stay(tokens, np.arange(N), at=np.arange(N) * causal)
    batch = collate([[Example({"x": slots})]]).to("cpu")
    with torch.no_grad():
        states = model(batch)[0]["x"][0, :N]
        wanted = other(torch.as_tensor(tokens)[None]).logits[0]
        near(model.head(states), wanted)
