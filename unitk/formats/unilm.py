"""UniLM's files: unilm1, unilm1.2, unilm2 and minilm as released, and models that s2s-ft tuned.

The names are BERT's. UniLM 1 has six token types. UniLMv2 has one matrix for queries, keys and
values, no bias of keys, and a bias of relative positions. A bias of keys adds the same number to
all scores of a query, which the softmax cancels. Therefore it is zero in unitk and is not written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from unitk.errors import CheckpointError
from unitk.formats import settings
from unitk.formats.archive import (
    find_file,
    read_json,
    read_tensors,
    save_pickle,
    without_prefix,
    write_json,
)
from unitk.formats.base import Format, StoredModel
from unitk.formats.hf.families import BARE, is_tied
from unitk.formats.hf.tables.bert import BERT, BERT_KEYS, bert_sizes, masked_changes
from unitk.formats.names import TURNED, Layout, Stored, StoredNames, current_name
from unitk.formats.vocabs import vocab_beside, write_vocab
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded

SPLIT_BIAS, FAST_BIAS = "bert.rel_pos_bias", "bert.encoder.rel_pos_bias"
SELF = "bert.encoder.layer.#.attention.self."
IGNORED = (*BERT.ignored, r"crit_mask_lm_smoothed\.one_hot")
SPLIT = Layout(
    {**BERT.names, "relative.table": SPLIT_BIAS},
    forms={
        # a linear map of one-hot buckets: [heads, buckets]
        r"bert\.(encoder\.)?rel_pos_bias\.weight": TURNED,
        r".*\.self\.[qv]_bias": Stored(
            lambda bias, _: bias.flatten(), lambda row, _: row[None, None]
        ),
    },
    copies={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"},
    ignored=IGNORED,
)
FAST_NAMES: dict[str, StoredNames] = {
    "layers.#.attention.qkv.weight": f"{SELF}qkv_linear.weight",
    "layers.#.attention.qkv.bias": (f"{SELF}q_bias", "", f"{SELF}v_bias"),
    "relative.table": FAST_BIAS,
}
"""One matrix for queries, keys and values, whose name shadows that of the module."""
FAST = replace(SPLIT, names={**SPLIT.names, **FAST_NAMES})
KEYS = {**BERT_KEYS, **settings.keys("relative_buckets=rel_pos_bins relative_distance=max_rel_pos")}
OFF = {"relax_projection": 0, "new_pos_ids": False, "task_idx": None}
OFF |= {"ffn_type": 0, "num_qkv": 0, "seg_emb": False}  # switches that no released model has on
PRESETS = {6: ("unilm_base", "unilm_large"), 2: ("unilm2_base",)}
"""Number of token types -> the architectures that have as many."""
ROOTS = ("bert", "cls", "crit_mask_lm_smoothed")
RELEASED = ("config.json", "vocab.txt")


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a folder with weights and config.json, or the file of weights.

    Beside NAME.bin, as released, are NAME-config.json and NAME-vocab.txt. Without a configuration,
    sizes come from the shapes of the tensors.
    """
    weights = find_file(path, ("pytorch_model.bin", "*.bin", "model.safetensors"), "weights")
    tensors = unify_names(without_prefix(read_tensors(weights), ROOTS, weights))
    where, pieces = (weights.with_name(f"{weights.stem}-{name}") for name in RELEASED)
    where = where if where.exists() else weights.parent / "config.json"
    vocab = vocab or (pieces if pieces.exists() else None)
    declared = read_json(where) if where.exists() else {}
    settings.refuse(declared, OFF, where)
    types = declared.get("source_type_id", 0), declared.get("target_type_id", 1)
    if types not in ((0, 1), (4, 5)):
        raise CheckpointError(
            f"{where}: source_type_id and target_type_id are {types}, not 0 and 1"
        )
    says_heads = "num_attention_heads" in declared
    sizes = bert_sizes("bert.", tensors, weights)
    for name in (f"{SPLIT_BIAS}.weight", f"{FAST_BIAS}.weight"):
        if name in tensors:
            sizes["rel_pos_bins"] = settings.shape_of(tensors, name, weights)[1]
    declared = sizes | declared
    presets = PRESETS[6 if declared["type_vocab_size"] == 6 else 2]
    plain = replace(settings.config_of_preset(presets[0]), num_virtual=0, relative_buckets=0)
    config = settings.read(plain, KEYS, declared, where)
    config = settings.with_values(
        config, where, tied=is_tied(BERT, tensors), **masked_changes(tensors)
    )
    named = ("unilm", {}) if config.num_segments == 6 else ("pmlm", {"pseudo": "mask"})
    return StoredModel(
        weights,
        tensors,
        FAST if f"{SELF}qkv_linear.weight".replace("#", "0") in tensors else SPLIT,
        presets,
        config,
        vocab=vocab_beside(weights, vocab),
        **settings.read_task(declared, where, *named),
        says_heads=says_heads,
    )


def unify_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to one spelling, whichever release they come from."""
    fast = any(name.endswith("qkv_linear.weight") for name in tensors)
    renamed = {}
    for name, tensor in tensors.items():
        name = current_name(name)
        name = name.replace("cls.predictions.decoder_weight", "cls.predictions.decoder.weight")
        name = re.sub(r"^bert\.(encoder\.)?rel_pos_bias", FAST_BIAS if fast else SPLIT_BIAS, name)
        renamed[name] = tensor
    return renamed


def write(parts: Loaded, folder: Path) -> None:
    """Write pytorch_model.bin, config.json and vocab.txt; s2s-ft opens them as model_type unilm."""
    config = parts.model.config
    tensors = parts.tensors()
    free = {*KEYS, *BARE, "tied"}
    settings.check_family(config, "unilm_base", free, "--to unilm: a model of UniLM")
    fast = config.relative_buckets > 0
    stored = (FAST if fast else SPLIT).to_stored(tensors, config, copies=True)
    save_pickle(stored, folder / "pytorch_model.bin")
    rows = len(tensors["embed.tokens.weight"])
    # segments 4 and 5 are those of seq2seq
    first = 4 if config.num_segments == 6 else 0
    entries = settings.write(config, KEYS) | {"vocab_size": rows, "model_type": "unilm"}
    entries |= {"source_type_id": first, "target_type_id": first + 1}
    entries[settings.KEPT] = settings.describe_task(parts.task)
    if not fast:
        del entries["rel_pos_bins"], entries["max_rel_pos"]
    write_json(entries, folder / "config.json")
    write_vocab(parts.task.vocab, folder, rows, plain=True)


register("format", "unilm")(
    Format(about="UniLM, UniLMv2, MiniLM and models that s2s-ft tuned.", find=find, write=write)
)
