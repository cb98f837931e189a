"""Optimus' folders: checkpoint-encoder-N, checkpoint-decoder-N, checkpoint-full-N/training.bin.

The encoder is a BERT without output layers; its pooled first slot gives mean and log variance. The
decoder is a GPT-2 that reads the latent as a memory of every layer, as an embedding, or both. Its
vocabulary is GPT-2's followed by <PAD> <BOS> <EOS>; the encoder has BERT's.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError
from unitk.families.latent.components import LatentConfig
from unitk.formats import archive as files
from unitk.formats import settings
from unitk.formats.base import Format, StoredModel
from unitk.formats.hf.tables import bert, gpt
from unitk.formats.names import TURNED, Layout
from unitk.formats.vocabs import vocab_beside, write_vocab
from unitk.models.config import ModelConfig
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab

FULL = "training.bin"
SIDES = ("encoder", "decoder")
PRESETS = ("optimus_base", "optimus_small", "optimus_tiny")
OPTIMUS = Layout(
    {
        **{
            f"encoder.{own_name}": stored_name
            for own_name, stored_name in bert.bert("encoder").items()
        },
        "pool": "encoder.pooler.dense",
        "bridge": "encoder.linear",
        **{
            own_name: f"decoder.{stored_name}" if isinstance(stored_name, str) else stored_name
            for own_name, stored_name in gpt.GPT2.names.items()
        },
        "memory": "decoder.transformer.linear",
        "embedding": "decoder.transformer.linear_emb",
    },
    forms={rf"decoder\.{gpt.MAPS}": TURNED},
    copies={"decoder.lm_head.weight": "decoder.transformer.wte.weight"},
    ignored=(r"encoder\.embeddings\.position_ids", rf"decoder\.{gpt.GPT2_MASKS}"),
)
OUTPUTS = {"head_transform", "output_bias", "tied", "heads", "final_norm"}
"""Fields that an encoder without output layers does not use."""


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read the folder that holds the three, one of them, or the file training.bin."""
    folders = find_folders(path)
    where = folders.get("full", folders.get("decoder", path))
    if "full" in folders:
        stored = files.read_pickle(where / FULL)
        inner = stored.get("model_state_dict") if isinstance(stored, dict) else None
        tensors = files.without_prefix(files.tensors_of(inner, where / FULL), SIDES, where / FULL)
    else:
        tensors = {}
        for side in SIDES:
            stored_tensors = files.read_tensors(folders[side] / "pytorch_model.bin")
            tensors |= {f"{side}.{name}": tensor for name, tensor in stored_tensors.items()}
    side_folders = {side: inner_folder for side, inner_folder in folders.items() if side != "full"}
    configs = {side: inner_folder / "config.json" for side, inner_folder in side_folders.items()}
    declared = {side: files.read_json(file) for side, file in configs.items() if file.exists()}
    config = config_of(tensors, declared, where)
    beside = {side: vocab_beside(inner_folder) for side, inner_folder in side_folders.items()}
    given_vocab = open_vocab(vocab) if vocab else beside.get("decoder")
    rows = settings.shape_of(tensors, "decoder.transformer.wte.weight", where)[0]
    of_decoder = declared.get("decoder", {}), configs.get("decoder", where)
    return StoredModel(
        where,
        tensors,
        OPTIMUS,
        PRESETS,
        config,
        vocab=given_vocab,
        **settings.read_task(*of_decoder, "optimus"),
        symbols={} if given_vocab is None else symbols_of(given_vocab, rows),
        source_vocab=beside.get("encoder"),
    )


def find_folders(path: Path) -> dict[str, Path]:
    """The folders of a checkpoint by name: encoder and decoder, also full; or full alone."""
    inner = path.parent if path.name == FULL and path.is_file() else path
    kind = re.fullmatch(r"checkpoint-(encoder|decoder|full)-(\d+)", inner.name)
    parent, number = (inner.parent, kind[2]) if kind else (inner, "*")
    folders = {}
    for side in (*SIDES, "full"):
        matching = sorted(parent.glob(f"checkpoint-{side}-{number}"))
        if len(matching) > 1:
            raise CheckpointError(
                f"{path} holds several checkpoints; give one, such as {matching[0]} or "
                f"{matching[1]}"
            )
        if matching:
            folders[side] = matching[0]
    if (inner / FULL).exists():
        folders["full"] = inner
    elif "full" in folders and not (folders["full"] / FULL).exists():
        del folders["full"]
    if not path.exists() or ("full" not in folders and len(folders) < 2):
        raise CheckpointError(
            f"{path} is not a checkpoint of Optimus: looked for checkpoint-encoder-N and "
            f"checkpoint-decoder-N, or {FULL}"
        )
    return folders


def config_of(
    tensors: Mapping[str, Tensor], config_files: Mapping[str, Mapping[str, Any]], path: Path
) -> LatentConfig:
    """The configuration, from shapes and both config.json; by default, heads have width 64."""
    declared: dict[str, Any] = bert.bert_sizes("encoder.", tensors, path)
    declared |= config_files.get("encoder", {})
    encoder: ModelConfig = settings.read(
        settings.config_of_preset("bert_base"), bert.BERT_KEYS, declared, path
    )
    size, width = settings.shape_of(tensors, "decoder.transformer.wpe.weight", path)
    memory = "decoder.transformer.linear.weight" in tensors
    embedding = "decoder.transformer.linear_emb.weight" in tensors
    if not (memory or embedding):
        raise CheckpointError(f"{path}: the decoder reads no latent (linear or linear_emb)")
    inject = "both"
    if not (memory and embedding):
        inject = "memory" if memory else "embedding"
    declared = {
        "n_layer": settings.layers_of(tensors, "decoder.transformer.h."),
        "n_embd": width,
        "n_head": max(width // 64, 1),
        "n_inner": 4 * width,
    }
    config: LatentConfig = settings.with_values(
        settings.config_of_preset(PRESETS[0]),
        path,
        encoder=find_arch(encoder, path),
        latent=settings.shape_of(tensors, "encoder.linear.weight", path)[0] // 2,
        inject=inject,
    )
    declared |= {
        k: value for k, value in config_files.get("decoder", {}).items() if value is not None
    }
    # with a memory, the first row is never used: positions begin at 1
    declared["n_positions"] = size - memory
    return settings.read(config, gpt.GPT2_KEYS, declared, path)


def find_arch(encoder: ModelConfig, path: Path) -> str:
    """The registered architecture that computes the same as an encoder."""
    compared = [field.name for field in fields(encoder)]
    compared = [name for name in compared if name not in settings.FREE | OUTPUTS]
    # BERT's presets first: they are the most probable
    for arch in sorted(registry.names("arch"), key=lambda name: not name.startswith("bert")):
        preset = settings.config_of_preset(arch)
        # other families have no such fields
        if type(preset) is ModelConfig and all(
            getattr(preset, name) == getattr(encoder, name) for name in compared
        ):
            return arch
    raise CheckpointError(
        f"{path}: no registered architecture equals the encoder ({encoder.num_layers} layers of "
        f"{encoder.width}, {encoder.num_heads} heads): register one in --user-dir"
    )


def symbols_of(vocab: Vocab, rows: int) -> dict[str, int]:
    """The ids of <PAD> <BOS> <EOS>, which follow GPT-2's pieces."""
    pieces = vocab.model.size
    if vocab.cls < pieces or rows < pieces + 3:
        return {}
    return {"pad": pieces, "cls": pieces + 1, "sep": pieces + 2}


def write(parts: Loaded, folder: Path) -> None:
    """Write the three folders as those of step 0."""
    config = parts.model.config
    tensors = parts.tensors()
    if not isinstance(config, LatentConfig):
        raise CheckpointError("--to optimus: the model has no latent, so it is not an Optimus")
    free = {*gpt.GPT2_KEYS, "encoder", "latent", "inject"}
    settings.check_family(config, PRESETS[0], free, "--to optimus: an Optimus")
    stored = OPTIMUS.to_stored(tensors, config, copies=True)
    vocabs = {"encoder": parts.task.source_vocab, "decoder": parts.task.vocab}
    configs = {
        "encoder": settings.write(config.tower("enc"), bert.BERT_KEYS),
        "decoder": settings.write(config, gpt.GPT2_KEYS)
        | {"n_positions": config.max_positions + config.memory, "latent_size": config.latent}
        | {settings.KEPT: settings.describe_task(parts.task)},
    }
    tables = {"encoder": "encoder.embed.tokens.weight", "decoder": "embed.tokens.weight"}
    for side in SIDES:
        inner = folder / f"checkpoint-{side}-0"
        inner.mkdir()
        tensors_of_side = {
            n.removeprefix(f"{side}."): t for n, t in stored.items() if n.startswith(side)
        }
        files.save_pickle(tensors_of_side, inner / "pytorch_model.bin")
        rows = len(tensors[tables[side]])
        entries = configs[side] | {"vocab_size": rows}
        files.write_json(entries, inner / "config.json")
        write_vocab(vocabs[side], inner, rows, plain=True)
    (folder / "checkpoint-full-0").mkdir()
    args = argparse.Namespace(
        latent_size=config.latent,
        latent_as_gpt_memory=int(config.memory),
        latent_as_gpt_emb=int(config.inject != "memory"),
    )
    whole = {"iter": 0, "model_state_dict": stored, "args": args}
    files.save_pickle(whole, folder / "checkpoint-full-0" / FULL)


register("format", "optimus")(
    Format(
        about="Optimus: folders of encoder, decoder and the whole model.", find=find, write=write
    )
)
