"""MASS' summarization models: a dictionary of tensors in fairseq 0.8's names, or a checkpoint.

Queries, keys and values are one matrix. Positions are counted from the padding id of BERT's
vocabulary, which is 0. The ids are the lines of BERT's vocabulary. The models for translation have
a format of their own, mass_xlm.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError, require
from unitk.files import create
from unitk.formats.archive import find_file, read_pickle, save_pickle, tensors_of, without_prefix
from unitk.formats.base import Format, StoredModel
from unitk.formats.dictionary import XLMDictionary, symbols_of
from unitk.formats.fairseq import SEQ2SEQ_KIND, config_of, current_names, options_of
from unitk.formats.hf.generation import opening
from unitk.formats.names import count_from
from unitk.formats.settings import check_family, read_kept, write_kept
from unitk.formats.vocabs import vocab_beside, write_vocab
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import Vocab, adopt
from unitk.vocab.open import open_vocab
from unitk.vocab.tokenizer_json import WordPiece
from unitk.vocab.untrusted import name_errors

FILE, DICT, TRANSLATION = "mass.pt", "dict.txt", "mass_xlm"
CUTTERS = ("spiece.model", "tokenizer.json")  # beside dict.txt if its pieces are not BERT's
SIDES = ("encoder", "decoder")
FIRST = 1
KIND = replace(SEQ2SEQ_KIND, presets=("mass_base", "mass_middle"), task="mass")
log = logging.getLogger(__name__)
DEFAULTS = {"activation_fn": "gelu", "no_scale_embedding": False}


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a file of tensors, or a folder with one; dict.txt is beside it or given as `vocab`."""
    weights = find_file(path, (FILE, "checkpoint_best.pt", "*.pt", "*.pth"), "checkpoint")
    stored = read_pickle(weights)
    if isinstance(stored, dict) and all(isinstance(stored.get(side), dict) for side in SIDES):
        return registry.get("format", TRANSLATION).find(weights, vocab)
    inner = stored.get("model", stored) if isinstance(stored, dict) else stored
    tensors = current_names(without_prefix(tensors_of(inner, weights), SIDES, weights))
    if "encoder.embed_tokens.weight" not in tensors:
        raise CheckpointError(f"{weights} is not MASS: it has no encoder.embed_tokens.weight")
    fairseq_options = DEFAULTS | (options_of(stored, weights) if inner is not stored else {})
    config = config_of(KIND, tensors, fairseq_options, weights, first=FIRST)
    # a dictionary is read here, any other vocabulary as it always is
    beside = (weights.parent / name for name in (*CUTTERS, DICT, "dict.src.txt"))
    vocab = vocab or next((file for file in beside if file.exists()), None)
    return StoredModel(
        weights,
        tensors,
        KIND.layout,
        KIND.presets,
        config,
        vocab=vocab_of(vocab) if vocab else vocab_beside(weights),
        **read_kept(weights, KIND.task, {"opening": "sep"}),
        says_heads="encoder_attention_heads" in fairseq_options,
    )


def vocab_of(path: Path) -> Vocab:
    """Open a vocabulary, or a fairseq dictionary whose lines are BERT's pieces with counts."""
    if not re.fullmatch(r"dict.*\.txt", path.name):
        return open_vocab(path)
    with name_errors(f"vocabulary {path}"):
        pieces = symbols_of(path.read_bytes())
        return adopt(WordPiece(WordPiece.to_json(pieces)))


def write(parts: Loaded, folder: Path) -> None:
    """Write mass.pt and dict.txt for `--load-from-pretrained-model`.

    A model with XLM's dictionary is written in the format of `mass_xlm`. A tokenizer other than
    BERT's is written beside dict.txt.
    """
    config = parts.model.config
    tensors = parts.tensors()
    vocab = parts.task.vocab
    if isinstance(vocab.model, XLMDictionary):
        return registry.get("format", TRANSLATION).write(parts, folder)
    check_family(config, KIND.presets[0], {"position_offset", "activation"}, "--to mass: a MASS")
    begins = opening(parts.task) == [vocab.sep]
    require(
        begins or not parts.task.trained.pairs,
        "--to mass: MASS reads [SEP] before a target and nothing before a source, and this model "
        "was trained without --task.opening sep",
    )
    if config.num_heads != config.width // 64:
        log.warning(
            "%s does not say how many heads a layer has: --arch.num-heads %d is needed to read it",
            FILE,
            config.num_heads,
        )
    count_from(tensors, config.position_offset, FIRST)
    stored = pack_qkv(KIND.layout.to_stored(tensors, config, copies=True))
    stored.pop("decoder.output_projection.weight")
    stored |= {f"{side}.version": torch.tensor([3.0]) for side in SIDES}
    save_pickle(stored, folder / FILE)
    rows = len(tensors["embed.tokens.weight"])
    pieces = vocab.pieces(range(rows))
    create(folder / DICT, "".join(f"{piece} 1\n" for piece in pieces))
    if not isinstance(vocab.model, WordPiece):
        write_vocab(vocab, folder, rows)
    write_kept(parts.task, folder)


def pack_qkv(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join queries, keys and values to one matrix, and use 0.8's name of the embeddings' norm."""
    packed = {}
    for name, tensor in tensors.items():
        part = re.fullmatch(r"(.*_attn)\.([qkv])_proj\.(weight|bias)", name)
        if part is None:
            packed[name.replace(".layernorm_embedding.", ".emb_layer_norm.")] = tensor
        elif part[2] == "q":
            three = [tensors[f"{part[1]}.{letter}_proj.{part[3]}"] for letter in "qkv"]
            packed[f"{part[1]}.in_proj_{part[3]}"] = torch.cat(three)
    return packed


register("format", "mass")(
    Format(about="MASS: mass.pt and dict.txt; also MASS for translation.", find=find, write=write)
)
