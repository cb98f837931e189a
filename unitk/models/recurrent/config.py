"""The settings of LSTM stacks and their presets; torch is imported when a model is built.

AWD-LSTM, with which ULMFiT is pre-trained: Merity et al. 2018, arXiv 1708.02182; Howard and Ruder
2018, arXiv 1801.06146. SiATL: Chronopoulou et al. 2019, arXiv 1902.10547.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from unitk.errors import at_least, require
from unitk.models.archs import CPU, TESTS, Preset
from unitk.models.base import ArchConfig, Network
from unitk.models.config import ModelConfig
from unitk.registry import imported, register

Narrowing = Literal["layer", "projection", "map"]


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ArchConfig):
    """LSTM layers that read texts from one end to the other."""

    num_layers: int = 3
    """LSTM layers."""
    width: int = 400
    """Width of the embeddings, and of the states that output layers read."""
    cell_width: int = 1152
    """Width of the cells of a layer."""
    narrowing: Narrowing = "layer"
    """How cells become states of the width of the embeddings. layer: the last layer has cells of
    that width (AWD-LSTM). projection: each layer projects its output, which recurs, to that width
    (ELMo; Sak et al. 2014, arXiv 1402.1128). map: a linear map behind the last layer (SiATL)."""
    residual: bool = False
    """Add the input of each layer but the first to its output (ELMo)."""
    cell_clip: float = 0.0
    """Bound on the values of the cells, which are cut at plus and minus this value (ELMo: 3). 0: no
    bound."""
    projection_clip: float = 0.0
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
    dropout: float = 0.1
    """Dropout of the states that output layers read."""
    input_dropout: float = 0.25
    """Dropout of the input of the first layer."""
    hidden_dropout: float = 0.15
    """Dropout of the inputs of the other layers."""
    embedding_dropout: float = 0.02
    """Dropout of whole rows of the embedding: a word is dropped wherever it stands."""
    weight_dropout: float = 0.2
    """Dropout of the recurrent weights (DropConnect), the same in all steps and rows."""
    locked_dropout: bool = True
    """Drop the same values of inputs and states in all steps of a text (variational dropout; Gal
    and Ghahramani 2016, arXiv 1512.05287). off: other values in each step."""
    init_range: float = 0.1
    """Embeddings begin uniformly between minus and plus this value; so does an output matrix."""
    carries, sequential = True, True
    max_positions = max_positions2 = num_segments = num_virtual = num_tasks = 0

    def __post_init__(self) -> None:
        at_least(self, "arch.", num_layers=1, width=1, cell_width=1, cell_clip=0, projection_clip=0)
        for name in ("dropout", "input_dropout", "hidden_dropout"):
            self._require(name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        for name in ("embedding_dropout", "weight_dropout"):
            self._require(name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        self._require("init_range", self.init_range > 0, "above 0")
        known = get_args(Narrowing)
        self._require("narrowing", self.narrowing in known, f"one of {', '.join(known)}")
        projects = self.narrowing == "projection"
        for name in ("residual", "projection_clip"):
            needs = f"--arch.{name.replace('_', '-')} needs --arch.narrowing projection"
            require(projects or not getattr(self, name), needs)
        same = "--arch.head-layers mixes states of one width: it needs --arch.narrowing projection"
        require(projects or not self.head_layers, same)
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
            head_pooler=self.head_pooler,
            dropout=0.0,
        )

    @property
    def head_config(self) -> ModelConfig:
        return self.word_config

    def num_weights(self, vocab_size: int) -> int:
        inputs, sums = self.width, 0
        for cells, outputs in zip(self.cells, self.outputs, strict=True):
            projection = cells * outputs * (self.narrowing == "projection")
            sums += 4 * cells * (inputs + outputs) + projection
            inputs = outputs
        sums += (self.narrowing == "map") * self.cell_width * self.width
        return sums + vocab_size * self.width * (2 - self.tied)

    def build(self, vocab_size: int, source_vocab_size: int | None = None) -> Network:
        made: Network = imported("unitk.models.recurrent.stack:RecurrentModel")(self, vocab_size)
        return made

    def _require(self, name: str, holds: bool, what: str) -> None:
        option = f"--arch.{name.replace('_', '-')}"
        require(holds, f"{option} must be {what}, got {getattr(self, name)}")


def without_dropout(config: RecurrentConfig) -> RecurrentConfig:
    """The same settings, for tests."""
    kinds = ("dropout", "input_dropout", "hidden_dropout", "embedding_dropout", "weight_dropout")
    zero: dict[str, Any] = dict.fromkeys(kinds, 0.0)
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
PRESETS: dict[str, tuple[RecurrentConfig, str]] = {
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
    "siatl_small": (replace(SIATL, width=256, cell_width=512), CPU),
    "siatl": (SIATL, "SiATL: 2 LSTM layers of 1000 cells, mapped to 400."),
}
for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about))
