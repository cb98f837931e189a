"""ELECTRA's two networks as folders of transformers: each alone (hf), and both (electra_pair).

A discriminator is `ElectraForPreTraining`, a generator `ElectraForMaskedLM`. Alone, either comes in
as a model without a generator (`--arch.generator-divisor 0`). `electra_pair` reads and writes the
folders discriminator/ and generator/, whose embeddings must be the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from unitk.errors import CheckpointError, UsageError, require
from unitk.families.electra.config import DETECT, ElectraConfig
from unitk.formats.base import Format, StoredModel
from unitk.formats.hf import folder as hf
from unitk.formats.hf.families import BARE, CHOICES, TEXTS, Changes, Checkpoint, Family
from unitk.formats.hf.tables.bert import (
    ABSOLUTE,
    BERT_KEYS,
    BERT_LAYER,
    bert_embeddings,
    bert_heads,
    draw_word_output,
    segment_rows,
    with_missing,
)
from unitk.formats.names import Layout, prefix_names
from unitk.formats.settings import keys
from unitk.models.config import ModelConfig
from unitk.models.model import build
from unitk.registry import get, register
from unitk.training.saving.checkpoint import Loaded

PRESETS = ("electra_base", "electra_small", "electra_large")
SIDES = ("discriminator", "generator")
ENCODER = (
    bert_embeddings("electra")
    | {"embed.map": "electra.embeddings_project"}
    | prefix_names("electra.encoder.layer.#.", "layers.#.", BERT_LAYER)
)
WORDS = {
    "heads.lm.transform.dense": "generator_predictions.dense",
    "heads.lm.transform.norm": "generator_predictions.LayerNorm",
    "heads.lm.weight": "generator_lm_head.weight",
    "heads.lm.bias": "generator_lm_head.bias",
}
TOLD = {
    f"heads.{DETECT}.dense": "discriminator_predictions.dense",
    f"heads.{DETECT}.out": "discriminator_predictions.dense_prediction",
}
TABLE = "electra.embeddings.word_embeddings.weight"
IGNORED = (r"(\w+\.)?electra\.embeddings\.(position|token_type)_ids",)
ELECTRA = Layout(
    ENCODER | WORDS | TOLD,
    copies={"generator_lm_head.weight": TABLE, "generator_lm_head.bias": WORDS["heads.lm.bias"]},
    ignored=IGNORED,
)
SHARED = [name for name in ENCODER if name.startswith("embed.") and name != "embed.map"]
"""Modules that both networks have in common."""
BOTH = Layout(
    prefix_names("discriminator.", "", ENCODER | TOLD)
    | prefix_names(
        "generator.", "generator.", {k: v for k, v in ENCODER.items() if k not in SHARED}
    )
    | prefix_names("generator.", "", WORDS),
    copies={
        f"generator.{ENCODER[module]}.{leaf}": f"discriminator.{ENCODER[module]}.{leaf}"
        for module in SHARED
        for leaf in ("weight", "bias")
    }
    | {"generator.generator_lm_head.weight": f"discriminator.{TABLE}"},
    ignored=IGNORED,
)


def _complete(checkpoint: Checkpoint) -> Changes:
    config, tensors = checkpoint.config, checkpoint.tensors
    apart = any(name.startswith(("generator_", "discriminator_")) for name in tensors)
    if not apart and config.embedding_width != config.width:
        draw_word_output(checkpoint, WORDS, TABLE)
    words = "generator_predictions.dense.weight" in tensors
    tells = "discriminator_predictions.dense.weight" in tensors
    return {
        "generator_divisor": 0,
        "head_transform": words,
        "output_bias": words,
        "heads": (DETECT,) if tells else (),
        # a table as wide as the model has no map after it
        "embedding_width": 0 if config.embedding_width == config.width else config.embedding_width,
    }


def _entries(config: ModelConfig) -> Changes:
    sizes = {"embedding_size": config.table_width, "summary_activation": "gelu"}
    return segment_rows(config) | sizes


def _check(config: ModelConfig) -> None:
    require(
        config.embedding_width != config.width,
        f"--to hf: an electra model whose embeddings are {config.width} wide has no map of them "
        "(--arch.embedding-width)",
    )


def of_discriminator(name: str, config: ModelConfig) -> bool:
    """Whether a tensor belongs to the discriminator and its heads rather than to the generator."""
    beside = isinstance(config, ElectraConfig) and config.generator_divisor > 0
    return not (beside and name.startswith(("generator.", "heads.lm.")))


register("model_type", "electra")(
    Family(
        about="ELECTRA, one of its two networks",
        name="Electra",
        root="electra.",
        presets=PRESETS,
        task="mlm",
        layout=ELECTRA,
        keys={**BERT_KEYS, **keys("embedding_width=embedding_size")},
        fixed={
            **ABSOLUTE,
            "is_decoder": False,
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
        },
        complete=_complete,
        entries=_entries,
        join=with_missing,
        check=_check,
        free=(*BARE, "generator_divisor", "generator_layers"),
        keeps=of_discriminator,
        outputs=("generator_predictions.", "generator_lm_head.", "discriminator_predictions."),
        heads=bert_heads("")
        | {
            TEXTS: ("classifier.dense", "classifier.out_proj"),
            CHOICES: ("sequence_summary.summary", "classifier"),
        },
        head_dense="gelu",
        gelu_output=True,
    )
)


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a folder that holds discriminator/ and generator/."""
    for side in SIDES:
        if not (path / side).is_dir():
            raise CheckpointError(
                f"{path}: an ELECTRA has the folders discriminator and generator, got no {side}; "
                "--from hf reads one network"
            )
    discriminator, generator = (hf.find(path / side, vocab) for side in SIDES)
    for side, network in zip(SIDES, (discriminator, generator), strict=True):
        require(type(network.config) is ElectraConfig, f"{path / side} is not an ELECTRA")
    config = with_generator(discriminator.config, generator.config)
    drawn_settings = generator.config
    derived = config.generator
    sizes = ("width", "num_heads", "ffn_width")
    if derived is None or any(
        getattr(derived, size) != getattr(drawn_settings, size) for size in sizes
    ):
        generator_sizes = " ".join(str(getattr(drawn_settings, size)) for size in sizes)
        discriminator_sizes = " ".join(str(getattr(discriminator.config, size)) for size in sizes)
        raise CheckpointError(
            f"{path}: the generator's width, heads and feed-forward width must be one part of the "
            f"discriminator's {discriminator_sizes}, got {generator_sizes}"
        )
    sides = zip(SIDES, (discriminator, generator), strict=True)
    tensors = {
        f"{side}.{name}": t for side, network in sides for name, t in network.tensors.items()
    }
    options = discriminator.options if discriminator.task == "electra" else {}
    return StoredModel(
        path,
        tensors,
        BOTH,
        PRESETS,
        config,
        "electra",
        discriminator.vocab,
        options,
        discriminator.trained,
    )


def with_generator(config: ModelConfig, drawn: ModelConfig) -> ElectraConfig:
    """The settings of a discriminator, with a generator of the settings `drawn`."""
    assert isinstance(config, ElectraConfig)
    same_depth = drawn.num_layers == config.num_layers
    return replace(
        config,
        generator_divisor=config.width // drawn.width,
        generator_layers=0 if same_depth else drawn.num_layers,
        # of these the discriminator has none
        head_transform=drawn.head_transform,
        output_bias=drawn.output_bias,
    )


def write(parts: Loaded, folder: Path) -> None:
    """Write discriminator/ and generator/ into an empty folder."""
    config = parts.model.config
    if not (isinstance(config, ElectraConfig) and config.generator is not None):
        raise UsageError("--to electra_pair: the model has no generator, so it is not an ELECTRA")
    for side in SIDES:
        (folder / side).mkdir()
    discriminator, generator = (extract_network(parts, side) for side in SIDES)
    hf.write(discriminator, folder / SIDES[0])
    hf.write(generator, folder / SIDES[1])


def extract_network(parts: Loaded, side: str) -> Loaded:
    """One of the two networks as a model without the other."""
    config = parts.model.config
    tensors = parts.tensors()
    rows = len(tensors["embed.tokens.weight"])
    task = parts.task
    if side == "generator":
        settings = ElectraConfig(**vars(replace(config.generator, heads=())), generator_divisor=0)
        shared = {name: t for name, t in tensors.items() if name.rpartition(".")[0] in SHARED}
        inner = {
            name.removeprefix("generator."): t
            for name, t in tensors.items()
            if name.startswith(("generator.", "heads.lm."))
        }
        tensors = shared | inner
        kind = get("task", "mlm")
        # the same options of hidden tokens; what a model was fine-tuned with says nothing of them
        names = vars(kind.Config()) if isinstance(task.config, kind.Config) else ()
        task = kind(kind.Config(**{n: getattr(task.config, n) for n in names}), task.vocab)
    else:
        settings = replace(config, generator_divisor=0, generator_layers=0)
        settings = replace(settings, head_transform=False, output_bias=False)
        tensors = {name: t for name, t in tensors.items() if of_discriminator(name, config)}
    with torch.device("meta"):
        model = build(settings, rows)
    model.load_state_dict(tensors, strict=False, assign=True)
    kept = {name: count for name, count in parts.rows.items() if name in tensors}
    return replace(parts, model=model, task=task, rows=kept)


register("format", "electra_pair")(
    Format(about="ELECTRA: folders of discriminator and generator.", find=find, write=write)
)
