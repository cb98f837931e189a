"""GLM's files: mp_rank_00_model_states.pt, with the tensors under `module`.

The tokenizer that a model was trained with fixes the ids of special symbols. GLM ends a text with
its padding symbol; in unitk these are two symbols, and padding is never visible. A model that is
divided over several devices is not read.
"""

from __future__ import annotations

from pathlib import Path

from unitk.errors import CheckpointError, DataError, require
from unitk.formats import archive as files
from unitk.formats import settings
from unitk.formats.base import Format, StoredModel
from unitk.formats.names import Layout, layer, prefix_names
from unitk.formats.vocabs import vocab_beside, write_vocab
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import ALIASES, Vocab

CHECKPOINT = "mp_rank_00_model_states.pt"
ADDED = "added_tokens.json"
HEADS = "num_attention_heads"
"""A setting of config.json; without that file, heads of 64 are assumed, as in all of GLM's."""
LAYER = layer(
    *("attention.query_key_value", "attention.dense", "input_layernorm"),
    *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "post_attention_layernorm"),
)
GLM = Layout(
    {
        "embed.tokens": "word_embeddings",
        "embed.positions": "transformer.position_embeddings",
        "embed.positions2": "transformer.block_position_embeddings",
        "norm": "transformer.final_layernorm",
        **prefix_names("transformer.layers.#.", "layers.#.", LAYER),
    }
)
ROOTS = ("word_embeddings", "transformer", "output_predict")
SIZES = {
    "width": ("word_embeddings.weight", 1),
    "ffn_width": ("transformer.layers.0.mlp.dense_h_to_4h.weight", 0),
    "max_positions": ("transformer.position_embeddings.weight", 0),
    "max_positions2": ("transformer.block_position_embeddings.weight", 0),
}
PRESETS = ("glm_large", "glm_base", "glm_410m", "glm_515m", "glm_roberta", "glm_2b", "glm_10b")
# GLM ends a text with its pad, 0, which is our sep; our pad is BERT's [SEP], 102
WORDPIECE = {"sep": 0, "pad": 102, "sop": 30522, "eop": 30523, "gmask": 30524, "smask": 30525}
GPT2 = {
    "sep": 50256,
    "sop": 50257,
    "eop": 50258,
    "cls": 50259,
    "mask": 50260,
    "pad": 50261,  # [SEP], which GLM does not write
    "unk": 50262,
    "gmask": 50263,
    "smask": 50264,
}
ROBERTA = {"cls": 0, "pad": 1, "sep": 2, "unk": 3, "mask": 50264, "sop": 50265, "eop": 50266}
TOKENIZERS = {30522: WORDPIECE, 50257: GPT2, 50265: ROBERTA}
"""Pieces of a tokenizer -> the ids of its symbols."""


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read the file, or a folder that holds it; the tokenizer is beside it or given as `vocab`."""
    weights = files.find_file(
        path, (CHECKPOINT, f"*/{CHECKPOINT}", "pytorch_model.bin"), CHECKPOINT
    )
    if (weights.parent / "mp_rank_01_model_states.pt").exists():
        raise CheckpointError(f"{weights.parent} is of a model divided over several devices")
    stored = files.read_pickle(weights)
    inner = stored.get("module", stored) if isinstance(stored, dict) else stored
    tensors = files.without_prefix(files.tensors_of(inner, weights), ROOTS, weights)
    where = weights.parent / "config.json"
    declared = files.read_json(where) if where.exists() else {}
    sizes = settings.sizes_of(tensors, SIZES, weights)
    heads = settings.check_value(
        declared.get(HEADS, max(sizes["width"] // 64, 1)), int, HEADS, where
    )
    # with at least one layer, the table of names tells what a file lacks
    layers = max(settings.layers_of(tensors, "transformer.layers."), 1)
    config = settings.with_values(
        settings.config_of_preset(PRESETS[0]), weights, num_layers=layers, num_heads=heads, **sizes
    )
    # added_tokens.json is read here; the classes of GLM's tokenizers are its own
    opened = vocab_beside(weights, vocab, described=False)
    # a folder of that tokenizer, or of the port that GLM's authors made
    added = (vocab if vocab and vocab.is_dir() else weights.parent) / ADDED
    return StoredModel(
        weights,
        tensors,
        GLM,
        PRESETS,
        config,
        vocab=opened,
        **settings.read_task(declared, where, "glm_infill"),
        symbols={} if opened is None else symbols_of(opened, added),
        says_heads=HEADS in declared,
    )


def symbols_of(vocab: Vocab, added: Path) -> dict[str, int]:
    """The ids of GLM's symbols: those of added_tokens.json, else those of a known tokenizer."""
    # a vocabulary that was trained here has all symbols among its pieces
    fixed = dict(TOKENIZERS.get(vocab.model.size, {})) if vocab.added else {}
    if added.exists():
        ids = files.read_json(added)
        for name, spellings in ALIASES.items():
            for spelling in [spelling for spelling in spellings if spelling in ids]:
                if not isinstance(ids[spelling], int):
                    raise DataError(f"{added}: {spelling} must be an id, got {ids[spelling]!r}")
                fixed[name] = ids[spelling]
    return fixed


def write(parts: Loaded, folder: Path) -> None:
    """Write the file that GLM's code loads, config.json and the tokenizer."""
    config = parts.model.config
    tensors = parts.tensors()
    settings.check_family(config, PRESETS[0], SIZES, "--to glm: a GLM")
    require(
        config.max_positions2 > 0,
        "--to glm: a GLM has --arch.max-positions2 above 0, but this model has 0",
    )
    files.save_pickle({"module": GLM.to_stored(tensors, config)}, folder / CHECKPOINT)
    rows = len(tensors["embed.tokens.weight"])
    entries = {
        "num_layers": config.num_layers,
        "hidden_size": config.width,
        HEADS: config.num_heads,
        "vocab_size": rows,
        "max_sequence_length": config.max_positions - 1,
        settings.KEPT: settings.describe_task(parts.task),
    }
    files.write_json(entries, folder / "config.json")
    write_vocab(parts.task.vocab, folder, rows, plain=True)


register("format", "glm")(
    Format(about="GLM: mp_rank_00_model_states.pt and its tokenizer.", find=find, write=write)
)
