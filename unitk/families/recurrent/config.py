"""The settings of LSTM stacks and their presets; torch is imported when a model is built.

AWD-LSTM, with which ULMFiT is pre-trained: Merity et al. 2018, arXiv 1708.02182; Howard and Ruder
2018, arXiv 1801.06146. ELMo: Peters et al. 2018, arXiv 1802.05365. SiATL:
Chronopoulou et al. 2019, arXiv 1902.10547.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from unitk.errors import require
from unitk.models.archs import TESTS
from unitk.models.base import ArchConfig, Preset
from unitk.models.config import ModelConfig
from unitk.options.fields import Above, Count, Positive, Rate, Weight, flag
from unitk.registry import register

Config = TypeVar("Config", bound="RecurrentConfig")
Narrowing = Literal["layer", "projection", "map"]


DROPOUTS = ("dropout", "input_dropout", "hidden_dropout", "embedding_dropout", "weight_dropout")
CHARACTERS = 262
"""Ids of characters: 256 bytes, five symbols, and 0 for no word."""
FILTERS = ("1:32", "2:32", "3:64", "4:128", "5:256", "6:512", "7:1024")
"""ELMo's."""


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ArchConfig):
    """LSTM layers that read texts from one end to the other."""

    network = "unitk.families.recurrent.stack:RecurrentModel"
    num_layers: Positive = 3
    """LSTM layers."""
    width: Positive = 400
    """Width of the embeddings, and of the states that output layers read."""
    cell_width: Positive = 1152
    """Width of the cells of a layer."""
    narrowing: Narrowing = "layer"
    """How cells become states of the width of the embeddings. layer: the last layer has cells of
    that width (AWD-LSTM). projection: each layer projects its output, which recurs, to that width
    (ELMo; Sak et al. 2014, arXiv 1402.1128). map: a linear map after the last layer (SiATL)."""
    residual: bool = False
    """Add the input of each layer but the first to its output (ELMo)."""
    cell_clip: Weight = 0.0
    """Bound on the values of the cells, which are cut at plus and minus this value (ELMo: 3). 0: no
    bound."""
    projection_clip: Weight = 0.0
    """The same bound on projected outputs (ELMo: 3)."""
    forget_bias: float = 0.0
    """Bias that the forget gates begin with (ELMo: 1)."""
    tied: bool = True
    """Use the token embedding as the output matrix."""
    output_bias: bool = True
    """Add a bias to the logit of each token of the vocabulary."""
    heads: tuple[str, ...] = ()
    """Output layers beside that over the vocabulary: KIND:NAME or KIND:NAME:SIZE. `unitk list head`
    names the kinds."""
    head_layers: tuple[int, ...] = ()
    """Layers whose states the heads read, mixed by learned weights (Peters et al. 2018, arXiv
    1802.05365, equation 1). 0 are the embeddings, -1 is the last layer. Default: the last layer."""
    head_pooler: bool = True
    """Heads over classes, numbers and choices have a dense layer, tanh and a linear map (BERT).
    off: a linear map without a bias (GPT)."""
    dropout: Rate = 0.1
    """Dropout of the states that output layers read."""
    input_dropout: Rate = 0.25
    """Dropout of the input of the first layer."""
    hidden_dropout: Rate = 0.15
    """Dropout of the inputs of the other layers."""
    embedding_dropout: Rate = 0.02
    """Dropout of whole rows of the embedding: a word is dropped wherever it occurs."""
    weight_dropout: Rate = 0.2
    """Dropout of the recurrent weights (DropConnect), the same in all steps and rows."""
    locked_dropout: bool = True
    """Drop the same values of inputs and states in all steps of a text (variational dropout; Gal
    and Ghahramani 2016, arXiv 1512.05287). off: other values in each step."""
    init_range: Above = 0.1
    """Embeddings begin uniformly between minus and plus this value; so does an output matrix."""
    head_layer_norm: bool = False
    """Normalize the states of each layer before they are mixed, without weights (Peters et al.
    2018, section 3.2)."""
    head_dropout: Rate = 0.0
    """Dropout of the states that heads read, but not the output layer over the vocabulary."""
    char_width: Count = 0
    """Width of the embeddings of characters, of which words are made by convolutions (ELMo: 16). 0:
    words have a table of embeddings."""
    char_filters: tuple[str, ...] = FILTERS
    """Convolutions over the characters of a word: WIDTH:COUNT,..."""
    highways: Count = 2
    """Highway layers after the convolutions."""
    sampled_words: Count = 0
    """Words that the softmax of training is over beside the right one, drawn by Zipf's law of their
    ids (bilm-tf: 8192). Evaluation has the full softmax. 0: training has, too."""
    bptt: Count = 0
    """Steps after which gradients through the states end, while the states go on (BPTT for text
    classification; Howard and Ruder 2018, arXiv 1801.06146, section 3.3: 70). 0: gradients reach
    the beginning of a text."""
    bptt_chunks: Count = 0
    """Chunks of --arch.bptt steps at the end of a text that gradients reach, and whose states
    concat pooling reads, in models of one direction. The steps before them need no memory for
    gradients. 0: all."""
    carries, sequential, static_steps = True, True, False
    max_positions = max_positions2 = num_segments = num_virtual = num_tasks = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        projects = self.narrowing == "projection"
        for name in ("residual", "projection_clip"):
            require(
                projects or not getattr(self, name),
                f"{flag('arch.' + name)} needs --arch.narrowing projection",
            )
        require(
            projects or not self.head_layers,
            "--arch.head-layers mixes states of one width: it needs --arch.narrowing projection",
        )
        require(self.bptt > 0 or not self.bptt_chunks, "--arch.bptt-chunks needs --arch.bptt")
        require(
            len(self.towers) == 1 or not self.bptt_chunks,
            "--arch.bptt-chunks ends at one end of a text, but this --arch reads it from both ends",
        )
        filters = [re.fullmatch(r"[1-9]\d*:[1-9]\d*", text) for text in self.char_filters]
        self._require("char_filters", all(filters) and bool(filters), "WIDTH:COUNT,...")
        used = self.char_width > 0 or self.highways == RecurrentConfig.highways
        self._require("highways", used, "left out without --arch.char-width")
        spells = "--arch.char-width makes words of characters: it needs"
        if self.char_width:
            require(not self.tied, f"{spells} --arch.tied off")
            require(not self.embedding_dropout, f"{spells} --arch.embedding-dropout 0")
        assert self.head_config  # it checks the options of heads

    @property
    def depth(self) -> int:
        return self.num_layers

    @property
    def ffn_width(self) -> int:
        """Outputs of most products: the gates of all cells."""
        return 4 * self.cell_width

    @property
    def cells(self) -> list[int]:
        """The width of the cells of each layer."""
        last = self.width if self.narrowing == "layer" else self.cell_width
        return [self.cell_width] * (self.num_layers - 1) + [last]

    @property
    def outputs(self) -> list[int]:
        """The width of what each layer gives to the next one, and to itself in the next step."""
        projects = self.narrowing == "projection"
        return [self.width] * self.num_layers if projects else self.cells

    @property
    def word_config(self) -> ModelConfig:
        """What the embedding and the output layer over the vocabulary are made from."""
        return ModelConfig(
            width=self.width,
            num_heads=1,
            num_layers=self.num_layers,
            max_positions=0,
            tied=self.tied,
            output_bias=self.output_bias,
            heads=self.heads,
            head_layers=self.head_layers,
            head_layer_norm=self.head_layer_norm,
            head_pooler=self.head_pooler,
            dropout=0.0,
        )

    @property
    def head_config(self) -> ModelConfig:
        # heads read all directions side by side
        return replace(self.word_config, width=len(self.towers) * self.width)

    def num_weights(self, vocab_size: int) -> int:
        inputs = self.width
        layers = 0
        for cells, outputs in zip(self.cells, self.outputs, strict=True):
            projection = cells * outputs if self.narrowing == "projection" else 0
            layers += 4 * cells * (inputs + outputs) + projection
            inputs = outputs
        if self.narrowing == "map":
            layers += self.cell_width * self.width
        embedding = vocab_size * self.width
        if self.char_width:
            sizes = [tuple(map(int, text.split(":"))) for text in self.char_filters]
            total = sum(count for _, count in sizes)
            embedding = self.char_width * (CHARACTERS + sum(wide * n for wide, n in sizes))
            embedding += total * (2 * self.highways * total + self.width)
        output = vocab_size * self.width * (not self.tied)
        return len(self.towers) * layers + embedding + output


@dataclass(frozen=True, kw_only=True)
class BidirectionalConfig(RecurrentConfig):
    """Two stacks of LSTM layers that read texts forward and backward (ELMo)."""

    towers = ("bwd", "fwd")
    shared_embeddings = True


def without_dropout(config: Config) -> Config:
    """The same settings, for tests."""
    zero: dict[str, Any] = dict.fromkeys(DROPOUTS, 0.0)
    return replace(config, **zero)


AWD_LSTM = RecurrentConfig()
SIATL = RecurrentConfig(
    num_layers=2,
    cell_width=1000,
    narrowing="map",
    input_dropout=0.1,
    hidden_dropout=0.1,
    embedding_dropout=0.0,
    weight_dropout=0.0,
    locked_dropout=False,
)
ELMO = BidirectionalConfig(
    num_layers=2,
    width=512,
    cell_width=4096,
    narrowing="projection",
    residual=True,
    cell_clip=3.0,
    projection_clip=3.0,
    forget_bias=1.0,
    tied=False,
    input_dropout=0.1,
    hidden_dropout=0.1,
    embedding_dropout=0.0,
    weight_dropout=0.0,
    locked_dropout=False,
    char_width=16,
    sampled_words=8192,
)
PRESETS: dict[str, tuple[RecurrentConfig, str]] = {
    "elmo_tiny": (
        replace(
            without_dropout(ELMO),
            width=32,
            cell_width=64,
            char_filters=("1:8", "2:8", "3:16"),
            sampled_words=0,
        ),
        "2 + 2 layers of 64 cells, projected to 32, no dropout: for tests.",
    ),
    "elmo_small": (
        replace(
            ELMO,
            width=128,
            cell_width=512,
            char_filters=("1:32", "2:32", "3:64", "4:128"),
            sampled_words=0,
        ),
        "2 + 2 layers of 512 cells, projected to 128, for a CPU; full softmax.",
    ),
    "elmo": (
        ELMO,
        "ELMo: 2 + 2 layers of 4096 cells, projected to 512, 93.6 M without the softmax.",
    ),
    "awd_lstm_tiny": (
        replace(without_dropout(AWD_LSTM), num_layers=2, width=64, cell_width=96),
        TESTS,
    ),
    "awd_lstm_small": (
        replace(AWD_LSTM, width=256, cell_width=640),
        "3 LSTM layers of 640, 640 and 256 cells, for a CPU.",
    ),
    "awd_lstm": (AWD_LSTM, "AWD-LSTM of ULMFiT: 3 layers, 20 M parameters beside the embedding."),
    "siatl_tiny": (
        replace(without_dropout(SIATL), width=64, cell_width=96),
        TESTS,
    ),
    "siatl_small": (
        replace(SIATL, width=256, cell_width=512),
        "2 LSTM layers of 512 cells, mapped to 256, for a CPU.",
    ),
    "siatl": (SIATL, "SiATL: 2 LSTM layers of 1000 cells, mapped to 400."),
}
for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about))
