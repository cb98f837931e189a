"""Checkpoints of fairseq 0.8 to main: RoBERTa, BART, Transformer, Transformer language models.

Tensors are under `model`, settings under `args` or `cfg`. Old files have queries, keys and values
in one matrix, and a few other names. Files are written with the names of 0.10 and later, which all
versions read. Sinusoidal positions become a table on import; a table that equals them is not
written. MASS' checkpoints have the same format. What fairseq's trainer saved for a task of
`unitk fairseq-plugin` is read in own.py.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.errors import CheckpointError, UsageError
from unitk.files import create
from unitk.formats import settings
from unitk.formats.archive import find_file, read_pickle, save_pickle, tensors_of, without_prefix
from unitk.formats.base import Format, StoredModel
from unitk.formats.dictionary import FIRST as SYMBOLS
from unitk.formats.dictionary import FairseqDictionary, open_dictionary
from unitk.formats.fairseq_own import is_ours, read_ours
from unitk.formats.hf.tables.bart import BART_LAYER, CROSS
from unitk.formats.names import Layout, Names, class_head, count_from, equal_tensors, prefix_names
from unitk.formats.vocabs import vocab_beside, write_vocab
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.registry import register
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab

CHECKPOINT = "checkpoint_best.pt"
ROOTS = ("encoder", "decoder", "classification_heads")
FIRST = 2  # row of position 0: positions are counted from the pad's id, which is 1
IGNORED = (
    r"(en|de)coder\.(sentence_encoder\.)?version",
    r".*\.embed_positions\._float_tensor",
    # 0.12.2 keeps second copies for a fast path
    r".*layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
)


def tower(root: str, prefix: str, layer: Names) -> dict[str, Any]:
    """The names of a tower's tensors; fairseq's begin with `root`, unitk's with `prefix`."""
    return {
        f"{prefix}embed.tokens": f"{root}embed_tokens",
        f"{prefix}embed.positions": f"{root}embed_positions",
        f"{prefix}embed.norm": f"{root}layernorm_embedding",
        f"{prefix}norm": f"{root}layer_norm",
        **prefix_names(f"{root}layers.#.", f"{prefix}layers.#.", layer),
    }


OUTPUT = "decoder.output_projection.weight"
SEQ2SEQ = Layout(
    tower("decoder.", "", BART_LAYER | CROSS)
    | tower("encoder.", "encoder.", BART_LAYER)
    | {"heads.lm.weight": OUTPUT},
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
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}
ACTIVATIONS |= {"gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh"}


@dataclass(frozen=True)
class FairseqKind:
    """A kind of fairseq model: its task, names and settings in unitk."""

    arch: str  # fairseq's, whose settings are written in full
    presets: tuple[str, ...]
    task: str
    layout: Layout
    side: str  # the tower whose options are read
    root: str  # prefix of that tower's tensors

    @property
    def keys(self) -> settings.Keys:
        """The fields of unitk's configuration under the names of fairseq's options."""
        return settings.keys(f"""
            num_heads={self.side}_attention_heads norm_first={self.side}_normalize_before
            activation=activation_fn dropout=dropout attention_dropout=attention_dropout
            activation_dropout=activation_dropout|relu_dropout
        """)


ENCODER, DECODER = ("encoder", "encoder.sentence_encoder."), ("decoder", "decoder.")
ROBERTA_KIND = FairseqKind("roberta", ("roberta_base", "roberta_large"), "mlm", ROBERTA, *ENCODER)
SEQ2SEQ_KIND = FairseqKind("transformer", ("bart_base", "bart_large"), "seq2seq", SEQ2SEQ, *DECODER)
LM_KIND = FairseqKind("transformer_lm", ("gpt2_small", "gpt2_medium"), "lm", LM, *DECODER)
OPENING = "unitk_opening"
"""How texts begin (`--task.opening`), in models that unitk wrote; fairseq does not read it."""
FIXED: dict[str, Any] = {"adaptive_softmax_cutoff": None, "no_token_positional_embeddings": False}
FIXED |= {"no_cross_attention": False, "cross_self_attention": False}
FIXED |= {"adaptive_input": False, "character_embeddings": False}


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a checkpoint, or a folder with checkpoint_best.pt or checkpoint_last.pt."""
    weights = find_file(path, (CHECKPOINT, "checkpoint_last.pt", "model.pt"), "checkpoint")
    checkpoint = read_pickle(weights)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise CheckpointError(f"{weights} is not a checkpoint of fairseq: it has no model")
    if "encoder.emb_layer_norm.weight" in checkpoint["model"]:
        raise CheckpointError(f"{weights} is a MASS, which --from mass reads")
    if is_ours(checkpoint.get("cfg")):
        return read_ours(
            checkpoint["cfg"], tensors_of(checkpoint["model"], weights), weights, vocab
        )
    stored = without_prefix(tensors_of(checkpoint["model"], weights), ROOTS, weights)
    tensors = current_names(stored)
    options = options_of(checkpoint, weights)
    kind = kind_of_tensors(tensors, weights)
    config = config_of(kind, tensors, options, weights, first=FIRST)
    # what BART reads and writes has both ends marked; a model of unitk says how its texts begin
    bart = config.embedding_norm and not config.embedding_scale
    opening = str(options.get(OPENING, "both" if bart else "sep"))
    layout, heads = with_classes(kind.layout, tensors)
    return StoredModel(
        weights,
        tensors,
        layout,
        kind.presets,
        replace(config, heads=heads),
        vocab=vocab_of(vocab or weights.parent),
        # an end opens the texts of a language model, and those of a Transformer that are written
        **settings.read_kept(
            weights, kind.task, {} if kind is ROBERTA_KIND else {"opening": opening}
        ),
    )


def vocab_of(path: Path) -> Vocab | None:
    """Open a vocabulary, or the one in a checkpoint's folder; None if the folder has none."""
    if (path / "vocab").is_dir():  # what `write` leaves beside dict.txt
        return open_vocab(path / "vocab")
    if path.is_dir() and (path / "dict.txt").exists() and not (path / "tokenizer.json").exists():
        path = path / "dict.txt"
    return vocab_beside(path) if path.is_dir() else open_dictionary(path)


def with_classes(layout: Layout, tensors: Mapping[str, Tensor]) -> tuple[Layout, tuple[str, ...]]:
    """The layout extended by RoBERTa's classification heads, and the heads in unitk's spelling."""
    names = dict(layout.names)
    heads = []
    for name, tensor in tensors.items():
        match = re.fullmatch(r"classification_heads\.(\w+)\.out_proj\.weight", name)
        if match and layout is ROBERTA and tensor.dim() == 2 and len(tensor):
            heads.append(f"class:{match[1]}:{len(tensor)}")
            names |= class_names(match[1])
    return replace(layout, names=names), tuple(heads)


def class_names(name: str) -> dict[str, str]:
    """The names of the classification head `name`."""
    root = f"classification_heads.{name}."
    return class_head(f"class:{name}", f"{root}dense", f"{root}out_proj")


def options_of(checkpoint: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The model's options, from `cfg` or, in older checkpoints, `args`."""
    cfg = checkpoint.get("cfg")
    options = (cfg or {}).get("model") if isinstance(cfg, dict | None) else None
    options = checkpoint.get("args") if options is None else options
    if isinstance(options, argparse.Namespace):
        options = vars(options)
    if not isinstance(options, dict):
        raise CheckpointError(f"{path} has no options of its model: neither args nor cfg")
    return dict(options)


def current_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to the names of 0.10 and later, and split joint projections."""
    renamed = {}
    for name, tensor in tensors.items():
        # names of 0.8
        name = re.sub(r"^decoder\.(sentence_encoder|lm_head)\.", r"encoder.\1.", name)
        name = name.replace(".emb_layer_norm.", ".layernorm_embedding.")
        name = OUTPUT if name == "decoder.embed_out" else name
        packed = re.fullmatch(r"(.*_attn)\.in_proj_(weight|bias)", name)
        if packed and tensor.dim() and len(tensor) % 3 == 0:
            # queries above keys above values
            for part, third in zip("qkv", tensor.chunk(3), strict=True):
                renamed[f"{packed[1]}.{part}_proj.{packed[2]}"] = third
        else:
            renamed[name] = tensor
    return renamed


def kind_of_tensors(tensors: Mapping[str, Tensor], path: Path) -> FairseqKind:
    """The kind of model, found from the names of its tensors."""
    two = "encoder.embed_tokens.weight" in tensors
    for kind in (ROBERTA_KIND, SEQ2SEQ_KIND if two else LM_KIND):
        if f"{kind.root}embed_tokens.weight" in tensors:
            return kind
    raise CheckpointError(f"{path} is not a RoBERTa, encoder-decoder or language model of fairseq")


def config_of(
    kind: FairseqKind,
    tensors: dict[str, Tensor],
    options: Mapping[str, Any],
    path: Path,
    first: int,
) -> ModelConfig:
    """The configuration, from shapes and options; position 0 is row `first` of a table."""
    settings.refuse(options, FIXED, path)
    root = kind.root
    _, width = settings.shape_of(tensors, f"{root}embed_tokens.weight", path)
    inner, _ = settings.shape_of(tensors, f"{root}layers.0.fc1.weight", path)
    config: ModelConfig = settings.config_of_preset(kind.presets[0])
    # only towers with pre-norm layers have a norm after the last layer
    last = f"{root}layer_norm.weight" in tensors
    changes: dict[str, Any] = {
        "width": width,
        "ffn_width": inner,
        "num_heads": max(width // 64, 1),
        "num_layers": settings.layers_of(tensors, f"{root}layers."),
        "embedding_norm": f"{root}layernorm_embedding.weight" in tensors,
        "final_norm": last,
        "norm_first": last,
        "position_offset": first,
        "max_positions": count_positions(tensors, root, options, path, first),
    }
    output = str(kind.layout.names["heads.lm.weight"])
    words = tensors[f"{root}embed_tokens.weight"]
    # untied matrices that are equal compute the same as one
    changes["tied"] = equal_tensors(tensors.get(output, words), words)
    if kind is ROBERTA_KIND:
        changes |= {"num_segments": 0, "embedding_scale": False}
        whole = "encoder.lm_head.dense.weight" in tensors
        changes |= {"head_transform": whole, "output_bias": whole}
    else:
        changes["embedding_scale"] = not options.get("no_scale_embedding", False)
    if isinstance(config, EncoderDecoderConfig):
        rows = count_positions(tensors, "encoder.", options, path, first)
        _check_towers(rows, changes["max_positions"], options, path)
        shared = equal_tensors(tensors["encoder.embed_tokens.weight"], words)
        changes |= {"shared_embeddings": shared, "decoder_layers": changes["num_layers"]}
        changes["num_layers"] = settings.layers_of(tensors, "encoder.layers.")
    config = settings.with_values(config, path, **changes)
    known = dict(kind.keys)
    if kind is ROBERTA_KIND:  # before 0.10, its option of that name was about the embeddings
        del known["norm_first"]
    return settings.read(config, known, options, path, ACTIVATIONS)


def _check_towers(source: int, target: int, options: Mapping[str, Any], path: Path) -> None:
    """Refuse towers with different numbers of positions or heads, which are one setting here."""
    if source != target:
        raise CheckpointError(
            f"{path}: the towers have {source} and {target} positions, not the same"
        )
    if options.get("encoder_attention_heads") != options.get("decoder_attention_heads"):
        raise CheckpointError(f"{path}: both towers need the same number of heads")


def count_positions(
    tensors: dict[str, Tensor], root: str, options: Mapping[str, Any], path: Path, first: int
) -> int:
    """The number of positions of a tower.

    A tower without a table gets that of sinusoidal positions, in `tensors`.
    """
    name = f"{root}embed_positions.weight"
    if name not in tensors:
        learned = f"{root.partition('.')[0]}_learned_pos"
        if options.get(learned):
            raise CheckpointError(f"{path} has no {name}, but {learned} is true")
        side = "source" if root == "encoder." else "target"
        size = options.get(f"max_{side}_positions") or options.get("tokens_per_sample") or 1024
        count = settings.check_value(size, int, f"max_{side}_positions", path, settings.LONGEST)
        _, width = settings.shape_of(tensors, f"{root}embed_tokens.weight", path)
        tensors[name] = waves(count + first, width)
    return max(settings.shape_of(tensors, name, path)[0] - first, 0)


def waves(rows: int, width: int) -> Tensor:
    """fairseq's table of sinusoidal positions [rows, width]; the padding's row is zero."""
    # as tensor2tensor has them: all sines before all cosines, rates from 1 down to 1/10000
    half = width // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / max(half - 1, 1)))
    angle = torch.arange(rows, dtype=torch.float)[:, None] * rate
    table = torch.cat([angle.sin(), angle.cos(), torch.zeros(rows, width % 2)], dim=1)
    table[FIRST - 1] = 0
    return table


def write(parts: Loaded, folder: Path) -> None:
    """Write checkpoint_best.pt with the names of 0.10 and later, dict.txt and the tokenizer."""
    config = parts.model.config
    tensors = parts.tensors()
    kind = kind_of_config(config)
    opening = check_symbols(parts.task, opened=kind is not ROBERTA_KIND)
    names = dict(kind.layout.names)
    for name in config.head_sizes:
        names |= class_names(name.removeprefix("class:"))
    count_from(tensors, config.position_offset, FIRST)
    if config.num_segments == 1:  # the one row is added to every slot, as that of its position is
        segment = tensors.pop("embed.segments.weight")
        tensors["embed.positions.weight"] = tensors["embed.positions.weight"] + segment
    stored = replace(kind.layout, names=names).to_stored(tensors, config, copies=True)
    options = write_options(kind, config) | {OPENING: opening}
    for root in ("encoder.", "decoder."):
        place = f"{root}embed_positions.weight"
        table = stored.get(place)
        learned = table is None or not equal_tensors(table, waves(*table.shape))
        # fairseq computes what is not learned, and refuses a stored table
        options[f"{root[:-1]}_learned_pos"] = learned
        if not learned:
            del stored[place]
    if config.final_norm:  # which fairseq drops from towers of a lower version
        roots = {name.partition(".")[0] for name in stored}
        stored |= {f"{root}.version": torch.tensor([3.0]) for root in roots}
    # fairseq stumbles over a checkpoint without the history of an optimizer, even to decode
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    checkpoint = {
        "args": argparse.Namespace(**options),
        "model": stored,
        "optimizer_history": [history | {"lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"epoch": 0},
        "last_optimizer_state": None,
    }
    save_pickle(checkpoint, folder / CHECKPOINT)
    vocab = parts.task.vocab
    rows = len(tensors["embed.tokens.weight"])
    write_dict(vocab, folder / "dict.txt", rows)
    write_vocab(vocab, folder, rows)
    settings.write_kept(parts.task, folder)


def write_options(kind: FairseqKind, config: ModelConfig) -> dict[str, Any]:
    """The configuration as fairseq's options."""
    limits = ("max_source_positions", "max_target_positions", "max_positions", "tokens_per_sample")
    options = dict.fromkeys(limits, config.max_positions) | {
        "arch": kind.arch,
        "no_scale_embedding": not config.embedding_scale,
        "layernorm_embedding": config.embedding_norm,
        "share_decoder_input_output_embed": config.tied,
        # by default, a language model maps embeddings of 512 to its width and back
        **dict.fromkeys(("decoder_input_dim", "decoder_output_dim"), config.width),
    }
    for side in ("encoder", "decoder"):
        options |= settings.write(config, replace(kind, side=side).keys, ACTIVATIONS)
        sizes = {"layers": config.num_layers, "embed_dim": config.width}
        sizes |= {"ffn_embed_dim": config.ffn_width}
        options |= {f"{side}_{name}": size for name, size in sizes.items()}
    if isinstance(config, EncoderDecoderConfig):
        options |= settings.write(config, settings.keys("decoder_layers=decoder_layers"))
        options["share_all_embeddings"] = config.shared_embeddings and config.tied
    return options


def check_symbols(task: Task, opened: bool) -> str:
    """Refuse ids that mean something else in fairseq, and texts that begin in another way.

    Returns how they begin, by the name of `--task.opening`.
    """
    vocab = task.vocab
    expected = range(len(SYMBOLS))
    if [vocab.cls, vocab.pad, vocab.sep, vocab.unk] != [*expected]:
        raise UsageError(
            f"--to fairseq: its dictionaries begin with {' '.join(SYMBOLS)}, and this model's with"
            f" {' '.join(vocab.pieces(expected))}: train on data of unitk preprocess --format"
            " fairseq"
        )
    towers = task.prompt([np.array([vocab.unk])]).towers.values() if opened else ()
    *source, target = [slots.token[0] for slots in towers] or [vocab.sep]
    if target != vocab.sep or vocab.sep in source:
        raise UsageError(
            "--to fairseq: it reads </s> before a target and none before a source, and this model"
            " was trained otherwise: train it with --task.opening sep"
        )
    return "both" if vocab.cls in source else "sep"


def write_dict(vocab: Vocab, path: Path, rows: int) -> None:
    """Write dict.txt: a line for each symbol but the first four, which fairseq adds itself."""
    lines = b""
    first = len(SYMBOLS)
    if isinstance(vocab.model, FairseqDictionary):
        lines = vocab.model.data.rstrip(b"\n") + b"\n"
        first = vocab.model.size
    ids = range(first, min(rows, len(vocab)))
    # fairseq's masked tasks add <mask> if it is not there
    names = (
        "<mask>" if i == vocab.mask else piece
        for i, piece in zip(ids, vocab.pieces(ids), strict=True)
    )
    create(path, lines + "".join(f"{name} 1\n" for name in names).encode())


def kind_of_config(config: ModelConfig) -> FairseqKind:
    """The kind of model that a configuration fits; otherwise `UsageError` names the option."""
    if isinstance(config, EncoderDecoderConfig):
        kind = SEQ2SEQ_KIND
        free = {"shared_embeddings", "embedding_scale"}
        free |= {"norm_first", "final_norm", "embedding_norm"}
    elif config.head_transform:
        kind = ROBERTA_KIND
        free = {"heads", "num_segments"}
    else:
        kind = LM_KIND
        free = {"embedding_scale", "final_norm", "norm_first"}
    free |= {"activation", "tied", "position_offset"}
    settings.check_family(config, kind.presets[0], free, f"--to fairseq: a {kind.arch}")
    return kind


register("format", "fairseq")(
    Format(
        about="fairseq 0.8 to main: RoBERTa, BART, Transformer, language models.",
        find=find,
        write=write,
    )
)
