"""MASS' models for translation, in XLM's format: encoder, decoder, params and dictionary.

Each tower has its own token embeddings, and an embedding for each language, which is a segment in
unitk. The decoder's cross-attention has an output map for each language. Positions are counted from
0, and </s> is at both ends of a sentence. The encoder's output layer is not read, as MASS never
uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError, DataError, UsageError
from unitk.families.translation.languages import PRESET, Translation, TranslationConfig
from unitk.formats import settings
from unitk.formats.archive import find_file, read_pickle, save_pickle, tensors_of
from unitk.formats.base import Format, StoredModel
from unitk.formats.dictionary import XLM_FIRST, XLMDictionary
from unitk.formats.names import Layout, StoredNames, cross_layer, equal_tensors, layer, prefix_names
from unitk.models.attention import CrossAttention, Fused, Source
from unitk.registry import register
from unitk.slots import SEG
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import SYMBOLS, Vocab
from unitk.vocab.open import open_vocab

WEIGHTS = "mass.pth"
SIDES = ("encoder", "decoder")
WORDS, OUTPUT = "decoder.embeddings.weight", "decoder.pred_layer.proj.weight"
LANGUAGES = "decoder.lang_embeddings.weight"
INDEX = {"sep": "eos_index", "pad": "pad_index", "unk": "unk_index", "mask": "mask_index"}
"""Our symbols under XLM's names of their ids."""
KEYS = settings.keys("num_heads=n_heads dropout=dropout attention_dropout=attention_dropout")
WRITTEN = KEYS | settings.keys(
    "width=emb_dim num_layers=n_layers decoder_layers=n_dec_layers tied=share_inout_emb"
)
SIZES = {
    "width": (WORDS, 1),
    "ffn_width": ("decoder.ffns.0.lin1.weight", 0),
    "max_positions": ("decoder.position_embeddings.weight", 0),
}
FIXED = {"asm": False, "attention_setting": "v1"}


class CrossBySegment(CrossAttention):
    """Cross-attention with one output map for each segment; the reading slot's segment chooses.

    The maps are stored one below the other.
    """

    def __init__(self, config: TranslationConfig):
        super().__init__(config)
        self.maps = config.cross_maps
        inner, bias = config.heads_width, config.biased_heads
        self.out = Fused(inner, config.width, self.maps, bias)

    def forward(self, x_BTD: Tensor, source: Source) -> Tensor:
        each_BTsD = super().forward(x_BTD, source).unflatten(2, (self.maps, -1))
        # without languages there is a single map
        own_BT11 = source.view.queries[SEG, ..., None, None].clamp(max=self.maps - 1)
        return each_BTsD.take_along_dim(own_BT11, 2).squeeze(2)


def layout(config: TranslationConfig) -> Layout:
    """The table of names; those of the output maps of cross-attention end in their language."""
    out: StoredNames = "encoder_attn.#.out_lin"
    if config.cross_by_segment:
        out = tuple(f"{out}.{language}" for language in range(config.num_segments))
    kv = ("encoder_attn.#.k_lin", "encoder_attn.#.v_lin")
    attends = cross_layer("encoder_attn.#.q_lin", kv, out, "layer_norm15.#")
    names = tower("decoder.", "") | prefix_names("decoder.", "layers.#.", attends)
    return Layout(
        names | tower("encoder.", "encoder.") | {"heads.lm": "decoder.pred_layer.proj"},
        copies={OUTPUT: WORDS},
        ignored=(r"encoder\.pred_layer\..*",),
    )


def tower(root: str, prefix: str) -> dict[str, Any]:
    """The names of one tower; XLM's begin with `root`, unitk's with `prefix`."""
    parts = layer(
        tuple(f"attentions.#.{part}_lin" for part in "qkv"),
        *("attentions.#.out_lin", "layer_norm1.#", "ffns.#.lin1", "ffns.#.lin2", "layer_norm2.#"),
    )
    return {
        f"{prefix}embed.tokens": f"{root}embeddings",
        f"{prefix}embed.positions": f"{root}position_embeddings",
        f"{prefix}embed.segments": f"{root}lang_embeddings",
        f"{prefix}embed.norm": f"{root}layer_norm_emb",
        **prefix_names(root, f"{prefix}layers.#.", parts),
    }


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a file of XLM, or a folder with one; the dictionary is in it or given as `vocab`."""
    path = find_file(path, (WEIGHTS, "*.pth"), "checkpoint")
    stored = read_pickle(path)
    sides = [stored.get(side) for side in SIDES] if isinstance(stored, dict) else []
    if not sides or not all(isinstance(side, dict) for side in sides):
        raise CheckpointError(f"{path} has no encoder and decoder")
    tensors = {
        f"{side}.{name}": tensor
        for side in SIDES
        for name, tensor in tensors_of(stored[side], path).items()
    }
    params = stored.get("params")
    if not isinstance(params, dict):
        raise CheckpointError(f"{path} has no params of its model")
    settings.refuse(params, FIXED, path)
    config = config_of(tensors, params, path)
    languages = {"languages": "0,1"} if config.num_segments > 1 else {}
    kept = settings.read_kept(path, PRESET, languages)
    notes = []
    if config.num_segments > 1 and kept["options"] is languages:
        names = params.get("id2lang")
        numbered = [f"{i} {name}" for i, name in names.items()] if isinstance(names, dict) else []
        known = ", ".join(numbered) or f"0 to {config.num_segments - 1}"
        notes.append(f"from language 0 into language 1, unless --task.languages is given ({known})")
    return StoredModel(
        path,
        tensors,
        layout(config),
        (PRESET,),
        config,
        vocab=open_vocab(vocab) if vocab else vocab_of(stored, params, path),
        **kept,
        notes=notes,
        check=partial(check_languages, max(config.num_segments, 1), path),
    )


def check_languages(number: int, path: Path, task: Task) -> None:
    """Raise `UsageError` if a task has a language beyond the model's `number` of languages."""
    if isinstance(task, Translation) and (last := max(task.config.languages)) >= number:
        raise UsageError(f"--task.languages: {path} has no embedding of language {last}")


def config_of(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any], path: Path
) -> TranslationConfig:
    """The configuration, from the shapes of tensors and from params."""
    sizes = settings.sizes_of(tensors, SIZES, path)
    words = tensors[WORDS]
    gelu = settings.check_value(params.get("gelu_activation", False), bool, "gelu_activation", path)
    config: TranslationConfig = settings.with_values(
        settings.config_of_preset(PRESET),
        path,
        **sizes,
        num_layers=settings.layers_of(tensors, "encoder.attentions."),
        decoder_layers=settings.layers_of(tensors, "decoder.attentions."),
        num_heads=settings.check_value(params.get("n_heads", 8), int, "n_heads", path),
        num_segments=settings.shape_of(tensors, LANGUAGES, path)[0] if LANGUAGES in tensors else 0,
        cross_by_segment="decoder.encoder_attn.0.out_lin.0.weight" in tensors,
        activation="gelu" if gelu else "relu",
        tied=equal_tensors(tensors.get(OUTPUT, words), words),
    )
    return settings.read(config, KEYS, params, path)


def vocab_of(stored: Mapping[str, Any], params: Mapping[str, Any], path: Path) -> Vocab:
    """The dictionary in a file, with the symbol ids that its params give."""
    by_id, counts = stored.get("dico_id2word"), stored.get("dico_counts")
    if not isinstance(by_id, dict) or not isinstance(counts, dict):
        raise CheckpointError(f"{path} has no dictionary: --vocab is needed")
    words = [str(by_id.get(i)) for i in range(len(by_id))]
    if tuple(words[: len(XLM_FIRST)]) != XLM_FIRST:
        raise CheckpointError(f"{path}: the dictionary does not begin as one of XLM")
    lines = (f"{word} {counts.get(word, 0)}\n" for word in words[len(XLM_FIRST) :])
    try:
        model = XLMDictionary("".join(lines).encode())
    except (DataError, UnicodeEncodeError) as error:
        raise DataError(f"{path}: the dictionary {error}") from error
    if model.size != len(words):
        raise DataError(f"{path}: the dictionary has symbols that a line cannot hold")
    symbols = {name: params[key] for name, key in INDEX.items() if isinstance(params.get(key), int)}
    symbols = {"sep": 1, "pad": 2, "unk": 3, "mask": 5} | symbols
    rest = [name for name in SYMBOLS if name not in symbols]
    symbols |= {name: model.size + i for i, name in enumerate(rest)}
    return Vocab(model, symbols, [SYMBOLS[name] for name in rest])


def write(parts: Loaded, folder: Path) -> None:
    """Write mass.pth, which `translate.py` opens; the languages' names are their numbers."""
    config, vocab = parts.model.config, parts.task.vocab
    tensors = parts.tensors()
    free = ("num_segments", "cross_by_segment", "activation", "tied")
    settings.check_family(config, PRESET, free, "--to mass: a MASS for translation")
    assert isinstance(config, TranslationConfig)
    if not isinstance(vocab.model, XLMDictionary):
        kind = vocab.model.kind
        raise UsageError(f"--to mass: a MASS for translation has XLM's dictionary, not {kind}")
    stored = layout(config).to_stored(tensors, config, copies=True)
    rows = len(stored[WORDS])
    stored["encoder.pred_layer.proj.weight"] = stored["encoder.embeddings.weight"]
    stored["encoder.pred_layer.proj.bias"] = torch.zeros(rows)
    whole: dict[str, Any] = {"encoder": {}, "decoder": {}}
    for name, tensor in stored.items():
        side, _, rest = name.partition(".")
        whole[side][rest] = tensor
    ids = {key: vocab.symbols[name] for name, key in INDEX.items()}
    params = params_of(config) | {"n_words": rows, "bos_index": 0, **ids}
    save_pickle(whole | {"params": params} | dictionary(vocab.model, rows), folder / WEIGHTS)
    settings.write_kept(parts.task, folder)


def params_of(config: TranslationConfig) -> dict[str, Any]:
    """The configuration as XLM's params."""
    languages = {i: str(i) for i in range(max(config.num_segments, 1))}
    return {
        **settings.write(config, WRITTEN),
        "gelu_activation": config.activation == "gelu",
        "sinusoidal_embeddings": False,
        **FIXED,
        "english_only": config.num_segments == 0,
        "n_langs": len(languages),
        "id2lang": languages,
        "lang2id": {name: i for i, name in languages.items()},
    }


def dictionary(model: XLMDictionary, rows: int) -> dict[str, Any]:
    """The dictionary's entries in a file of `rows` words; rows without a word get count 0."""
    words = [model.piece(i) if i < model.size else f"<row{i}>" for i in range(rows)]
    lines = model.data.decode().removesuffix("\n").split("\n")
    counts = [0] * len(XLM_FIRST) + [int(line.rpartition(" ")[2]) for line in lines]
    counts += [0] * (rows - len(counts))
    return {
        "dico_id2word": dict(enumerate(words)),
        "dico_word2id": {word: i for i, word in enumerate(words)},
        "dico_counts": dict(zip(words, counts, strict=True)),
    }


register("format", "mass_xlm")(
    Format(about="MASS for translation: a file of XLM's code.", find=find, write=write)
)
