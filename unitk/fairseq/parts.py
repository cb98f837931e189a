"""What fairseq's checkpoints hold: names, options, positions. MASS' are of the same make."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError, UsageError
from unitk.interop.layout import Layout, same
from unitk.interop.names import BART_LAYER, CROSS, within
from unitk.interop.settings import Keys, checked, layers_of, read_settings, refuse, shape_of
from unitk.models.config import EncoderDecoderConfig, ModelConfig

FIRST = 2
"""Row of position 0: positions are counted from the pad's id, which is 1."""
IGNORED = (
    r"(en|de)coder\.version",
    r".*\.embed_positions\._float_tensor",
    # 0.12.2 keeps second copies for a fast path
    r".*layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
)


def tower(root: str, ours: str, layer: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    """The names of a tower's tensors, which begin with `root` there."""
    return {
        f"{ours}embed.tokens": f"{root}embed_tokens",
        f"{ours}embed.positions": f"{root}embed_positions",
        f"{ours}embed.norm": f"{root}layernorm_embedding",
        f"{ours}norm": f"{root}layer_norm",
        **within(f"{root}layers.#.", f"{ours}layers.#.", layer),
    }


DECODER = tower("decoder.", "", BART_LAYER | CROSS)
OUTPUT = "decoder.output_projection.weight"
SEQ2SEQ = Layout(
    {**DECODER, **tower("encoder.", "encoder.", BART_LAYER), "heads.lm.weight": OUTPUT},
    copies={
        "encoder.embed_tokens.weight": "decoder.embed_tokens.weight",
        OUTPUT: "decoder.embed_tokens.weight",
    },
    ignored=IGNORED,
)
LM = Layout(
    {**tower("decoder.", "", BART_LAYER), "heads.lm.weight": OUTPUT},
    copies={OUTPUT: "decoder.embed_tokens.weight"},
    ignored=IGNORED,
)
ROBERTA = Layout(
    {
        **tower("encoder.sentence_encoder.", "", BART_LAYER),
        "heads.lm.transform.dense": "encoder.lm_head.dense",
        "heads.lm.transform.norm": "encoder.lm_head.layer_norm",
        "heads.lm.weight": "encoder.lm_head.weight",
        "heads.lm.bias": "encoder.lm_head.bias",
    },
    copies={"encoder.lm_head.weight": "encoder.sentence_encoder.embed_tokens.weight"},
    ignored=IGNORED,
)
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
}


@dataclass(frozen=True)
class Kind:
    """A kind of model there."""

    arch: str
    """Theirs, of which settings are written in full."""
    presets: tuple[str, ...]
    task: str
    layout: Layout
    side: str
    """Which tower's options its settings are."""
    root: str
    """How the names of that tower begin."""

    @property
    def keys(self) -> Keys:
        """Our fields under the names of fairseq's options."""
        return {
            "num_heads": (f"{self.side}_attention_heads",),
            "norm_first": (f"{self.side}_normalize_before",),
            "activation": ("activation_fn",),
            "dropout": ("dropout",),
            "attention_dropout": ("attention_dropout",),
            "activation_dropout": ("activation_dropout", "relu_dropout"),
        }


ROBERTA_KIND = Kind(
    "roberta",
    ("roberta_base", "roberta_large"),
    "mlm",
    ROBERTA,
    "encoder",
    "encoder.sentence_encoder.",
)
SEQ2SEQ_KIND = Kind(
    "transformer", ("bart_base", "bart_large"), "seq2seq", SEQ2SEQ, "decoder", "decoder."
)
LM_KIND = Kind("transformer_lm", ("gpt2_small", "gpt2_medium"), "lm", LM, "decoder", "decoder.")
FIXED = {
    "no_token_positional_embeddings": False,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "adaptive_input": False,
    "character_embeddings": False,
    "adaptive_softmax_cutoff": None,
}


def options_of(found: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The model's options, of whichever time."""
    cfg = found.get("cfg")
    given = (cfg or {}).get("model") if isinstance(cfg, dict | None) else None
    given = found.get("args") if given is None else given
    if isinstance(given, argparse.Namespace):
        given = vars(given)
    if not isinstance(given, dict):
        raise CheckpointError(f"{path} has no options of its model: neither args nor cfg")
    return dict(given)


def modern(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the names of 0.10 and later."""
    found = {}
    for name, tensor in tensors.items():
        name = re.sub(r"^decoder\.(sentence_encoder|lm_head)\.", r"encoder.\1.", name)
        name = name.replace(".emb_layer_norm.", ".layernorm_embedding.")
        name = OUTPUT if name == "decoder.embed_out" else name
        packed = re.fullmatch(r"(.*_attn)\.in_proj_(weight|bias)", name)
        if packed and tensor.dim() and len(tensor) % 3 == 0:
            for part, third in zip("qkv", tensor.chunk(3), strict=True):
                found[f"{packed[1]}.{part}_proj.{packed[2]}"] = third
        else:
            found[name] = tensor
    return found


def kind_of(tensors: Mapping[str, Tensor], path: Path) -> Kind:
    """What the names of a checkpoint tell."""
    for kind in (ROBERTA_KIND, SEQ2SEQ_KIND, LM_KIND):
        other = "encoder.embed_tokens.weight" in tensors
        if f"{kind.root}embed_tokens.weight" in tensors and (kind is not LM_KIND or not other):
            if kind is not SEQ2SEQ_KIND or other:
                return kind
    raise CheckpointError(f"{path} is no RoBERTa, encoder-decoder or language model of fairseq")


def config_of(
    kind: Kind, tensors: dict[str, Tensor], given: Mapping[str, Any], path: Path, first: int
) -> ModelConfig:
    """The configuration, from shapes and options; `first` is the row of position 0."""
    refuse(given, FIXED, path)
    root = kind.root
    _, width = shape_of(tensors, f"{root}embed_tokens.weight", path)
    inner, _ = shape_of(tensors, f"{root}layers.0.fc1.weight", path)
    config: ModelConfig = registry.get("arch", kind.presets[0])()
    last = f"{root}layer_norm.weight" in tensors
    changes: dict[str, Any] = {
        "width": width,
        "ffn_width": inner,
        "num_heads": max(width // 64, 1),
        "num_layers": layers_of(tensors, f"{root}layers."),
        "embedding_norm": f"{root}layernorm_embedding.weight" in tensors,
        "final_norm": last,
        "norm_first": last,
        "position_offset": first,
        "max_positions": places(tensors, root, width, given, path, first),
    }
    output = str(kind.layout.names["heads.lm.weight"])
    words = tensors[f"{root}embed_tokens.weight"]
    changes["tied"] = same(tensors.get(output, words), words)
    scaled = not given.get("no_scale_embedding", False)
    if kind is ROBERTA_KIND:
        changes |= {"num_segments": 0, "embedding_scale": False}
        whole = "encoder.lm_head.dense.weight" in tensors
        changes |= {"head_transform": whole, "output_bias": whole}
    else:
        changes["embedding_scale"] = scaled
    if isinstance(config, EncoderDecoderConfig):
        rows = places(tensors, "encoder.", width, given, path, first)
        if rows != changes["max_positions"]:
            both = f"{rows} and {changes['max_positions']}"
            raise CheckpointError(f"{path}: the towers have {both} positions: unitk needs as many")
        if given.get("encoder_attention_heads") != given.get("decoder_attention_heads"):
            raise CheckpointError(f"{path}: encoder and decoder need the same attention heads")
        shared = same(tensors["encoder.embed_tokens.weight"], words)
        changes |= {"shared_embeddings": shared, "decoder_layers": changes["num_layers"]}
        changes["num_layers"] = layers_of(tensors, "encoder.layers.")
    try:
        config = replace(config, **changes)
    except UsageError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # before 0.10, RoBERTa's option of that name was about the embeddings
    known = dict(kind.keys)
    if kind is not SEQ2SEQ_KIND:
        del known["norm_first"]
        config = replace(config, norm_first=config.norm_first or kind is LM_KIND)
    return read_settings(config, known, given, path, ACTIVATIONS)


def places(
    tensors: dict[str, Tensor],
    root: str,
    width: int,
    given: Mapping[str, Any],
    path: Path,
    first: int,
) -> int:
    """How many positions a tower has; without a table, that of sines and cosines is put there."""
    name = f"{root}embed_positions.weight"
    if name not in tensors:
        side = "source" if root == "encoder." else "target"
        size = given.get(f"max_{side}_positions") or given.get("tokens_per_sample") or 1024
        count = checked(size, int, f"max_{side}_positions", path)
        tensors[name] = waves(count + first, width)
    return max(shape_of(tensors, name, path)[0] - first, 0)


def waves(rows: int, width: int) -> Tensor:
    """fairseq's positions of sines and cosines; the pad's row is zero."""
    half = width // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / max(half - 1, 1)))
    angle = torch.arange(rows, dtype=torch.float)[:, None] * rate
    table = torch.cat([angle.sin(), angle.cos(), torch.zeros(rows, width % 2)], dim=1)
    table[FIRST - 1] = 0
    return table
