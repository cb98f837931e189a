"""What a request may ask of a model, and which of it a model can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unitk.decoding.config import EmbedConfig, GenerateConfig, PredictConfig
from unitk.decoding.generator import Generator
from unitk.families.latent import geometry
from unitk.families.latent.model import LatentModel
from unitk.models.model import Model
from unitk.options.fields import Checked, Count


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Encoding of texts as latents."""

    truncate: bool = False
    """Truncate a text that is too long for the encoder, instead of refusing it."""


@dataclass(frozen=True, kw_only=True)
class Aligning(GenerateConfig):
    """Outputs, and which words of the source each of their words looks at."""

    alignment_layer: int | None = None
    """Decoder layer for alignments, counted from 1. 0: the last."""


@dataclass(frozen=True, kw_only=True)
class Walking(GenerateConfig):
    """Texts along a path between two texts."""

    steps: int = 9
    """Points on the path, both ends included."""
    path: geometry.Curve = "lerp"
    """A straight line, or an arc around the origin."""


@dataclass(frozen=True, kw_only=True)
class Showing(Checked):
    """Slots and mask of a text, laid out as in training."""

    seed: Count = 0
    """Seed of the random draws."""


@dataclass(frozen=True)
class Verb:
    """A function of a trained model: the class of its options, and its further fields."""

    config: type
    fields: tuple[str, ...]


VERBS = {
    "generate": Verb(Aligning, ("texts", "prefixes", "constraints", "truncate", "stream")),
    "infill": Verb(GenerateConfig, ("texts",)),
    "score": Verb(GenerateConfig, ("texts", "targets")),
    "predict": Verb(PredictConfig, ("texts",)),
    "embed": Verb(EmbedConfig, ("texts",)),
    "show": Verb(Showing, ("texts", "target")),
    "latent/encode": Verb(Encoding, ("texts",)),
    "latent/decode": Verb(GenerateConfig, ("points",)),
    "latent/interpolate": Verb(Walking, ("texts",)),
}


def abilities(generator: Generator) -> dict[str, Any]:
    """What a model can do with this task, for the page and other clients."""
    task, can, pairs = generator.task, verbs(generator), generator.task.trained.pairs
    writes = "generate" in can
    # where a tower of its own reads the source, an output is no continuation of it
    encodes, repeats = len(model_of(generator).config.towers) > 1, has_latent(generator)
    return {
        "verbs": can,
        # one that was not trained on pairs goes on with its prompt
        "continues": writes and not (pairs or encodes),
        "pairs": writes and pairs,
        "writes": writes and (pairs or (encodes and not repeats)),
        "parts": task.trained.parts,
        "max_source": task.trained.max_source,
        "searches": generator.protocol is not None,
        "alignment_layers": alignment_layers(generator),
        "blank": generator.vocab.pieces([task.blank])[0] if task.infills else None,
        "form": task.form,
        "labels": list(task.trained.labels),
        "defaults": generator.defaults,
    }


def verbs(generator: Generator) -> list[str]:
    """The verbs that a model supports with this task."""
    task, ordered = generator.task, generator.protocol is not None
    can = {
        "generate": task.generates,
        "infill": task.infills,
        "score": ordered,
        "predict": task.predicts,
        "embed": True,
        "show": True,
    }
    return [verb for verb in VERBS if can.get(verb, ordered and has_latent(generator))]


def alignment_layers(generator: Generator) -> int:
    """Layers in which an output's words have an attention to those of the source."""
    model = model_of(generator)
    attends = generator.protocol is not None and model.config.cross_attention
    return len(model.decoder.layers) if attends else 0


def model_of(generator: Generator) -> Model:
    """The only model of a generator: the server has no ensembles."""
    assert isinstance(generator.model, Model)
    return generator.model


def has_latent(generator: Generator) -> bool:
    """Whether a model is an autoencoder with a latent space."""
    return isinstance(generator.model, LatentModel)
