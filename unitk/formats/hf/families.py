"""Model types of transformers: tables of tensor names and settings, for import and export.

    register("model_type", "gpt2")(Family(about="GPT-2", layout=..., keys=..., ...))

A table says all that tells one model type from another: its name is `model_type` in config.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError, UsageError, require
from unitk.formats.names import Layout, class_head, equal_tensors, prefix_names
from unitk.formats.settings import Keys, check_family, config_of_preset
from unitk.models.config import ModelConfig
from unitk.vocab.base import Vocab

Changes = dict[str, Any]
CAUSAL = "is_causal"
"""The entry of config.json that lets most classes see both sides of a token, if it is false."""


class Checkpoint(NamedTuple):
    """A checkpoint whose settings are not complete yet."""

    config: ModelConfig  # so far
    tensors: dict[str, Tensor]
    declared: Mapping[str, Any]
    """The settings of config.json."""
    where: Path  # config.json, for errors


class ModelFolder(NamedTuple):
    """The settings and the vocabulary in a folder, from which the options of its task follow."""

    declared: Mapping[str, Any]  # config.json
    path: Path
    vocab: Vocab | None


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model type of transformers: tensor names, settings, and what settings cannot say."""

    about: str  # for `unitk list model_type`
    name: str  # prefix of its classes
    root: str  # prefix of tensor names that a bare model lacks
    presets: tuple[str, ...]
    """unitk's architectures of that family; the first one gives the defaults."""
    task: str
    layout: Layout
    of_model: Callable[[ModelConfig], Layout] | None = None
    """The table of names of a model with these settings, where that differs from `layout`."""
    of_checkpoint: Callable[[Layout, Mapping[str, Any]], Layout] = lambda layout, declared: layout
    """For reading: the table of a model with these settings of config.json, from that of others."""
    keys: Keys
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of which unitk computes one value only."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """For reading: what transformers takes for settings that a file leaves out, where the first of
    `presets` has another value."""
    complete: Callable[[Checkpoint], Changes] = lambda checkpoint: {}
    """For reading: settings that `keys` cannot express, from tensors and config.json."""
    entries: Callable[[ModelConfig], Changes] = lambda config: {}
    """For writing: entries of config.json that `keys` cannot express."""
    options: Mapping[str, str] = field(default_factory=dict)  # of the task
    free: tuple[str, ...] = ()  # fields beside `keys` that may differ from the preset's
    heads: Mapping[str, tuple[str, str]]
    """Suffix of a fine-tuned class -> names of its pooler ("" without one) and of its map."""
    head_dense: str = "tanh"
    """`--arch.head-dense` of fine-tuned classes that have a pooler."""
    gelu_output: bool = False
    """Whether the layer before the output over words has GELU, whatever `hidden_act` says."""
    poolings: Mapping[str, str] = field(default_factory=dict)
    """`classifier_pooling` in config.json -> `--task.pooling`; the class's default comes first."""
    outputs: tuple[str, ...] = ()  # what the names of output layers begin with, beside `OUTPUTS`
    unpack: Callable[[Changes, Path], Changes] = lambda declared, where: declared
    """For reading: all settings of config.json side by side."""
    pack: Callable[[Changes], Changes] = lambda entries: entries
    """For writing: the inverse of `unpack`."""
    separators: int = 1  # between two texts
    whole: str = ""  # suffix of the class with an output over words, where `WRITES` has another
    released: bool = False
    """Whether transformers lacks its classes, so that a folder needs the code of its release."""
    both_ways: bool = False
    """Whether the class sees both sides of a token if config.json says so."""
    opens: Callable[[ModelConfig], Changes] = lambda config: {CAUSAL: False}
    """For writing: the entries of config.json that say so, the one that shows it first."""
    is_open: Callable[[Mapping[str, Any]], bool] = lambda declared: declared.get(CAUSAL) is False
    """For reading: whether config.json says so."""
    tokenizer: str = ""
    """The class that AutoTokenizer takes for it, whatever a folder says."""
    roots: Mapping[str, str] = field(default_factory=dict)
    """Suffix of a fine-tuned class -> what its names have in place of `root`."""
    laid: Mapping[str, str] = field(default_factory=dict)
    """Options of the layout of texts in fine-tuned models, beside `options`."""
    spelled: Callable[[Vocab], Mapping[int, str]] = lambda vocab: {}
    """For reading: names of ids that have no piece."""
    folder_options: Callable[[ModelFolder], Mapping[str, str]] = lambda model_folder: {}
    """For reading: options of the task that the files of a folder say."""
    buffers: Callable[[int], dict[str, Tensor]] = lambda rows: {}
    """For writing: tensors of the model over words that are stored without being weights."""
    offset: Callable[[int], int] = lambda pad: 0
    """For writing: rows of the table of positions before that of position 0."""
    join: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors
    """For writing: transformers' tensors that are stored as one."""
    ends: bool = False
    """Whether the symbol that stands for a text comes last, as a segment of its own."""
    check: Callable[[ModelConfig], None] = lambda config: None
    """For writing: raises a `UsageError` for settings in `free` that the class does not have."""
    keeps: Callable[[str, ModelConfig], bool] = lambda name, config: True
    """For writing: whether the class has a part of unitk's model, by the name of a tensor."""
    fits: Callable[[ModelConfig, str], bool] = lambda config, arch: True
    """For writing: whether a model of the presets' class is nearest to this model type, by its
    settings and the name of its architecture."""

    def settings_in(self, declared: Mapping[str, Any], where: Path) -> Changes:
        """All settings of config.json side by side, also those that it leaves out.

        Those under a common name have their own. Raises `CheckpointError` for two numbers of heads.
        """
        settings = self.unpack(dict(declared), where)
        synonyms = {key: keys for keys in self.keys.values() for key in keys}
        for common, several in COMMON.items():
            specific = next((name for name in several if name in synonyms), common)
            known = common not in synonyms and specific in synonyms
            if known and settings.get(common) is not None:
                value = settings.pop(common)
                if settings.get(specific) is None:
                    settings[specific] = value
                # tensors show other sizes, and older versions wrote layers of another model
                if common.endswith("heads") and settings[specific] != value:
                    raise CheckpointError(
                        f"{where}: {specific} is {settings[specific]!r}, but {common} is {value!r}"
                    )
        lacking = (
            key
            for key in self.usual
            if all(settings.get(name) is None for name in synonyms.get(key, (key,)))
        )
        return settings | {key: self.usual[key] for key in lacking}

    @property
    def sights(self) -> tuple[str, ...]:
        """The directions from which its models may read a text."""
        single = {"lm": (ONE_WAY,), "mlm": (BOTH,), "xlnet": (BOTH,)}.get(self.task)
        return (BOTH, ONE_WAY) if self.both_ways or single is None else single


def families() -> dict[str, Family]:
    """The table of each model type."""
    return {name: registry.get(MODEL_TYPE, name) for name in registry.names(MODEL_TYPE)}


COMMON = {
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "encoder_layers"),
    "hidden_size": ("n_embd", "dim", "d_model"),
    "max_position_embeddings": ("n_positions",),
    "head_dim": ("d_kv",),
}
"""Names that transformers reads in any config.json -> the names of some families for them."""
MODEL_TYPE = "model_type"
BARE = ("head_transform", "output_bias", "heads")
"""Fields that a model without output layers over words does not use."""
OUTPUTS = (
    "cls. lm_head. final_logits_bias predictions. sop_classifier. lm_loss. sequence_summary. "
    "logits_proj. embed_out. classifier. qa_outputs. score. classification_head. "
    "multiple_choice_head."
).split()
"""Prefixes of output layers, whose names have no root before them."""
WRITES = {"mlm": "ForMaskedLM", "seq2seq": "ForConditionalGeneration"}
WRITES |= dict.fromkeys(("lm", "xlnet"), "LMHeadModel")
"""Task -> suffix of transformers' class."""
TEXTS, CHOICES = "ForSequenceClassification", "ForMultipleChoice"
WORDS, PLACES = "ForTokenClassification", "ForQuestionAnswering"
BOTH, ONE_WAY = "both sides", "left to right"
"""From where a model reads a text."""
DOUBLE = "DoubleHeadsModel"
"""GPT's class for choices, which also has the output layer over words."""
SIMPLE = f"{PLACES}Simple"
"""XLNet's class for spans; the one without "Simple" searches with a beam."""
GEMMA_TEXTS = f"Text{TEXTS}"
"""Gemma 3's class for texts; the one without "Text" reads pictures as well."""
POOLED = tuple(f"{kind}_{pool}" for kind in ("class", "regress") for pool in ("mean", "late"))
CLASSES = {TEXTS: ("class", "regress", "classes", *POOLED)}
CLASSES |= {GEMMA_TEXTS: ("class", "regress", "classes")}
CLASSES |= {WORDS: ("tag",), PLACES: ("span",), SIMPLE: ("span",)}
CLASSES |= {CHOICES: ("choice",), DOUBLE: ("choice",)}
"""Suffix of a fine-tuned class -> the kinds of its head."""
SLOTS = {WORDS: ("", "classifier"), PLACES: ("", "qa_outputs")}
CLASSIFIER = ("classification_head.dense", "classification_head.out_proj")


def kind_of(config: ModelConfig, arch: str = "", head: str = "", sight: str = "") -> str:
    """The model type that a model fits; `sight` and `arch` decide between those of one shape.

    Raises `UsageError` with the first setting that no family has. A model that is fine-tuned with a
    `head` has no other output layers in transformers.
    """
    require(
        not config.latent,
        "--to hf: no class of transformers has the latent that this autoencoder writes from",
    )
    known = families()
    of_type = {name: type(config_of_preset(family.presets[0])) for name, family in known.items()}
    # an architecture may extend another one's settings: the closest of those that are known
    nearest = next((base for base in type(config).__mro__ if base in of_type.values()), None)
    fitting = [
        name
        for name in known
        if of_type[name] is nearest
        and config_of_preset(known[name].presets[0]).towers == config.towers
        and known[name].fits(config, arch)
    ]
    require(len(fitting) > 0, "--to hf: no class of transformers fits this model")
    refused = []

    def distance(name: str) -> tuple[bool, bool]:
        # a decoder may have the layers of an encoder
        other = sight not in ("", *known[name].sights)
        return other, arch not in known[name].presets

    # of several, the one that has the architecture, or the first that computes the same
    for name in sorted(fitting, key=distance):
        try:
            check_kind(name, known[name], config, head)
        except UsageError as error:
            refused.append(error)
        else:
            return name
    raise refused[0]


def check_kind(name: str, family: Family, config: ModelConfig, head: str) -> None:
    """Raise `UsageError` unless a model type computes what a model with these settings does."""
    free = {*family.keys, *family.free, "tied", "position_offset", "head_pooler", "head_dense"}
    target = f"--to hf: no class of transformers fits: a {name} model"
    check_family(config, family.presets[0], free | {*BARE} if head else free, target)
    family.check(config)
    places = config.max_positions > 0 or "max_positions" not in family.keys
    require(places, f"{target} has a table of positions, but --arch.max-positions is 0")
    transforms = config.head_transform and not head
    require(
        not family.gelu_output or config.activation == "gelu" or not transforms,
        f"{target} has GELU in its output layer, but --arch.activation is {config.activation}",
    )
    of_pairs = any("class:" in entry for entry in config.heads)
    require(
        config.head_pooler or head or not of_pairs,
        f"--to hf: {family.about} reads classes of pairs with --arch.head-pooler on",
    )


def layout_of(family: Family, config: ModelConfig, head: str = "") -> Layout:
    """The family's table of names for a model with these settings, with those of `head`."""
    layout = family.of_model(config) if family.of_model else family.layout
    if not head:
        return layout
    ending = ending_of(family, head)
    name = f"{family.name}{ending}"
    require(ending in family.heads, f"--to hf: transformers has no {name} that unitk can match")
    name = f"{head}:label"
    pooler, out = family.heads[ending]
    of_head = class_head(name, pooler, out)
    if pooler and family.head_dense == "transform":
        layers = {"dense": f"{pooler}.dense", "norm": f"{pooler}.norm"}
        of_head = class_head(name, "", out) | prefix_names("", f"heads.{name}.transform.", layers)
    # its bias adds the same to every choice
    ignored = (*layout.ignored, r"multiple_choice_head\.summary\.bias")
    return replace(layout, names={**layout.names, **of_head}, ignored=ignored)


def ending_of(family: Family, head: str) -> str:
    """The suffix of the family's class with this kind of head, such as ForTokenClassification."""
    endings = [ending for ending, kinds in CLASSES.items() if head in kinds]
    require(
        len(endings) > 0,
        f"--to hf: transformers has no class with head {head}; use --task.pooling slot",
    )
    return next((ending for ending in endings if ending in family.heads), endings[0])


def class_of(family: Family, config: ModelConfig) -> str:
    """The class of transformers that a model fits, for `architectures` in config.json."""
    bare = config_of_preset(family.presets[0]).head_transform and not config.head_transform
    apart = {"detect:replaced"} if bare else {"class:nsp", "class:sop", "detect:replaced"}
    pre_training = config.head_sizes.keys() & apart
    if any(f"heads.{head}" in name for head in pre_training for name in family.layout.names):
        return f"{family.name}ForPreTraining"
    return family.name + ("Model" if bare else family.whole or WRITES[family.task])


def is_tied(layout: Layout, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a checkpoint's output matrix is its token embedding."""
    output = layout.names["heads.lm.weight"]
    first = layout.copies[str(output)]
    return output not in tensors or (
        first in tensors and equal_tensors(tensors[str(output)], tensors[first])
    )
