"""fairseq's checkpoints, from 0.8 to main: RoBERTa, BART, Transformer, Transformer language models.

Tensors stand under `model`, settings under `args` or `cfg`. Old files have queries, keys and values
in one matrix and some other names; what is written has the names of 0.10 and later, which all of
them read. Positions from sines and cosines become a table, and a table of these leaves as none.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError
from unitk.fairseq.dictionary import FairseqDictionary, open_dictionary
from unitk.fairseq.parts import (
    ACTIVATIONS,
    FIRST,
    LM_KIND,
    ROBERTA,
    ROBERTA_KIND,
    SEQ2SEQ_KIND,
    Kind,
    config_of,
    kind_of,
    modern,
    options_of,
    waves,
)
from unitk.fairseq.plugin import is_ours, read_ours
from unitk.interop.convert import Found, Parts
from unitk.interop.files import find_file, read_pickle, save_pickle, tensors_of
from unitk.interop.layout import Layout, moved, same
from unitk.interop.settings import check_family, preset_of, write_settings
from unitk.interop.vocabs import vocab_beside, write_vocab
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.vocab.base import Vocab

FILE = "checkpoint_best.pt"


def read(path: Path, vocab: Path | None) -> Found:
    """A checkpoint, or a folder with checkpoint_best.pt or checkpoint_last.pt."""
    weights = find_file(path, (FILE, "checkpoint_last.pt", "model.pt"), "checkpoint")
    found = read_pickle(weights)
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise CheckpointError(f"{weights} is no checkpoint of fairseq: it has no model")
    if is_ours(found.get("cfg")):
        return read_ours(found["cfg"], tensors_of(found["model"], weights), weights, vocab)
    tensors = modern(tensors_of(found["model"], weights))
    given = options_of(found, weights)
    kind = kind_of(tensors, weights)
    config = config_of(kind, tensors, given, weights, first=FIRST)
    # what BART reads and writes has both ends marked
    bart = config.embedding_norm and not config.embedding_scale
    layout, heads = with_classes(kind.layout, tensors)
    return Found(
        weights,
        tensors,
        layout,
        preset_of(kind.presets, config),
        replace(config, heads=heads),
        kind.task,
        vocab_of(vocab or weights.parent),
        # an end opens the texts of a language model, and those of a Transformer that are written
        options={} if kind is ROBERTA_KIND else {"opening": "both" if bart else "sep"},
    )


def vocab_of(path: Path) -> Vocab | None:
    """A vocabulary, or that of a checkpoint's folder."""
    if path.is_dir() and (path / "dict.txt").exists() and not (path / "tokenizer.json").exists():
        path = path / "dict.txt"
    return vocab_beside(path) if path.is_dir() else open_dictionary(path)


def with_classes(layout: Layout, tensors: Mapping[str, Tensor]) -> tuple[Layout, tuple[str, ...]]:
    """RoBERTa's classification heads: the layout with them, and our names of them."""
    names, heads = dict(layout.names), []
    for name, tensor in tensors.items():
        found = re.fullmatch(r"classification_heads\.(\w+)\.out_proj\.weight", name)
        if found and layout is ROBERTA and tensor.dim() == 2 and len(tensor):
            heads.append(f"class:{found[1]}:{len(tensor)}")
            names |= class_names(found[1])
    return replace(layout, names=names), tuple(heads)


def class_names(name: str) -> dict[str, str]:
    """Where a head over classes stands."""
    root = f"classification_heads.{name}."
    return {
        f"heads.class:{name}.dense": f"{root}dense",
        f"heads.class:{name}.out": f"{root}out_proj",
    }


def write(parts: Parts, folder: Path) -> None:
    """checkpoint_best.pt with the names of 0.10 and later, dict.txt and the tokenizer."""
    config, tensors = parts.model.config, parts.tensors()
    kind = _kind_of(config)
    names = dict(kind.layout.names)
    for name in config.head_sizes:
        names |= class_names(name.removeprefix("class:"))
    for name in ("embed.positions.weight", "encoder.embed.positions.weight"):
        if name in tensors:
            tensors[name] = moved(tensors[name], config.position_offset, FIRST).clone()
    if config.num_segments == 1:  # the one row is added to every slot, as that of its position is
        tensors["embed.positions.weight"] += tensors.pop("embed.segments.weight")
    theirs = replace(kind.layout, names=names).to_theirs(tensors, copies=True)
    given = write_options(kind, config)
    for root in ("encoder.", "decoder."):
        place = f"{root}embed_positions.weight"
        table = theirs.get(place)
        learned = table is None or not same(table, waves(*table.shape))
        given[f"{root[:-1]}_learned_pos"] = learned
        if not learned:
            del theirs[place]
    about = {
        "args": argparse.Namespace(**given),
        "model": theirs,
        "optimizer_history": [
            {
                "criterion_name": "CrossEntropyCriterion",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {},
                "num_updates": 0,
            }
        ],
        "extra_state": {"epoch": 0},
        "last_optimizer_state": None,
    }
    save_pickle(about, folder / FILE)
    vocab, rows = parts.task.vocab, len(tensors["embed.tokens.weight"])
    write_dict(vocab, folder / "dict.txt", rows)
    write_vocab(vocab, folder, rows)


def write_options(kind: Kind, config: ModelConfig) -> dict[str, Any]:
    """The configuration as fairseq's options."""
    ours = {b: a for a, b in reversed(ACTIVATIONS.items())}
    given = {
        "arch": kind.arch,
        "no_scale_embedding": not config.embedding_scale,
        "layernorm_embedding": config.embedding_norm,
        "share_decoder_input_output_embed": config.tied,
        "max_source_positions": config.max_positions,
        "max_target_positions": config.max_positions,
        "max_positions": config.max_positions,
        "tokens_per_sample": config.max_positions,
    }
    for side in ("encoder", "decoder"):
        given |= write_settings(
            config, {k: v for k, v in replace(kind, side=side).keys.items() if k != "activation"}
        )
        given |= {
            f"{side}_layers": config.num_layers,
            f"{side}_embed_dim": config.width,
            f"{side}_ffn_embed_dim": config.ffn_width,
        }
    if isinstance(config, EncoderDecoderConfig):
        given["decoder_layers"] = config.decoder_layers or config.num_layers
        given["share_all_embeddings"] = config.shared_embeddings and config.tied
    return given | {"activation_fn": ours[config.activation]}


def write_dict(vocab: Vocab, path: Path, rows: int) -> None:
    """A line for each symbol but the first four, which fairseq puts there itself."""
    if isinstance(vocab.model, FairseqDictionary):
        path.write_bytes(vocab.model.data)
        return
    pieces = vocab.pieces(range(4, min(rows, len(vocab))))
    path.write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")


def _kind_of(config: ModelConfig) -> Kind:
    if isinstance(config, EncoderDecoderConfig):
        kind, free = SEQ2SEQ_KIND, {"decoder_layers", "shared_embeddings", "embedding_scale"}
        free |= {"norm_first", "final_norm", "embedding_norm"}
    elif config.head_transform:
        kind, free = ROBERTA_KIND, {"heads", "num_segments"}
    else:
        kind, free = LM_KIND, {"embedding_scale", "final_norm"}
    preset = registry.get("arch", kind.presets[0])()
    same_there = {"num_layers", "width", "num_heads", "ffn_width", "activation", "tied"}
    places = {"max_positions", "position_offset"}
    check_family(config, preset, free | same_there | places, f"--to fairseq: a {kind.arch}")
    return kind
