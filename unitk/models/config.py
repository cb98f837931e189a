"""The settings of the one Transformer; torch is imported when a model is built."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from unitk.errors import require
from unitk.models.base import ArchConfig
from unitk.options.fields import Above, Count, Part, Positive, Rate, Weight, render

Activation = Literal["gelu", "gelu_tanh", "relu", "relu2", "silu"]
Norm = Literal["layer", "rms"]
Positions = Literal["learned", "rotary"]
Share = Literal["layer", "attention", "ffn"]

UNSHAPED = (
    "num_heads", "positions", "rotary_base", "rotary_share", "rotary_factor",
    "rotary_wavelengths", "layer_rotary_bases", "layer_windows", "position_offset",
    "relative_distance", "embedding_scale", "norm_first", "norm", "norm_eps", "norm_inside",
    "parallel_residual", "score_scale", "activation", "output_scale", "logit_cap", "encoder",
)  # fmt: skip
"""Settings that change what weights compute, but not their shapes."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ArchConfig):
    """A Transformer with one tower; BERT, GPT-2, UniLM and GLM are settings of it."""

    network = "unitk.models.model:Model"
    attention_type: ClassVar[str] = "unitk.models.attention:Attention"
    cross_attention_type: ClassVar[str] = "unitk.models.attention:CrossAttention"
    """The modules of a layer; a family that computes otherwise names others."""

    num_layers: Positive = 12
    """Transformer layers."""
    width: Positive = 768
    """Width of the hidden states."""
    num_heads: Positive = 12
    """Attention heads of a layer. They divide the width unless --arch.head-width is given."""
    head_width: Count = 0
    """Width of the queries, keys and values of a head (T5: 64 in every size). 0: the width divided
    by the heads."""
    layer_heads: tuple[int, ...] = ()
    """Heads of each layer where some are pruned, such as 4,2,3,4 (`unitk analyse heads --dest`).
    Default: --arch.num-heads in each."""
    num_kv_heads: Count = 0
    """Heads of keys and values, each of which serves as many heads of queries (Ainslie et al. 2023,
    arXiv 2305.13245). 0: every head has its own."""
    layer_windows: tuple[int, ...] = ()
    """How many positions away each layer sees other slots, 0 for any number. Further layers repeat
    the list: 0,64,64 (ModernBERT) is full attention in every third layer. Default: 0."""
    ffn_width: Positive = 3072
    """Inner width of the feed-forward part."""
    ffn_gate: bool = False
    """Gated feed-forward part: the activation of a second linear map multiplies the inner values
    (T5 1.1; Shazeer 2020, arXiv 2002.05202)."""
    positions: Positions = "learned"
    """learned: a row of a table is added to the embedding. rotary: queries and keys turn by angles
    that grow with the position, so that attention depends on differences of positions (Su et al.
    2021, arXiv 2104.09864)."""
    rotary_base: Above = 10000.0
    """Base of the angles of rotary positions: the last pair of channels turns this many times
    slower than the first."""
    layer_rotary_bases: tuple[float, ...] = ()
    """The base of each layer, 0 for a layer without positions. Further layers repeat the list, such
    as 160000,10000,10000 (ModernBERT). Default: --arch.rotary-base in each."""
    rotary_share: Part = 1.0
    """Share of the channels of a head that turn, from the first one on (GPT-NeoX: 0.25)."""
    rotary_factor: Above = 1.0
    """Divide the angles of rotary positions, for longer texts than a model was trained on (Chen et
    al. 2023, arXiv 2306.15595)."""
    rotary_wavelengths: tuple[float, ...] = ()
    """Two numbers of positions (Llama 3: 2048,8192). Pairs of channels that turn once within fewer
    than the first keep their angles. --arch.rotary-factor divides those of pairs that need more
    than the second, and less in between. Default: all are divided."""
    max_positions: Count = 512
    """Number of positions, which are the rows of the table of learned positions. 0: no table, and
    no limit."""
    max_positions2: Count = 0
    """Number of second positions (GLM: the place within a blank). Rotary ones turn the second half
    of every head (ChatGLM-6B). 0: there is no table of them, and rotary positions are the sum of
    both."""
    position_offset: Count = 0
    """Rows of the position table before the row of position 0 (RoBERTa: 2)."""
    num_segments: Count = 0
    """Segment (token type) embeddings. 0: none."""
    num_tasks: Count = 0
    """Task embeddings, one for each number that a task gives its examples (ERNIE 2.0: one for each
    objective). Examples without a number have that of 0. 0: none."""
    num_virtual: Count = 0
    """Input ids beyond the vocabulary, which are never predicted (UniLMv2: a pseudo token)."""
    relative_buckets: Count = 0
    """Buckets of relative positions, each with a learned bias on the attention scores of every
    head, the same in all layers (UniLMv2, T5: 32). In a decoder with an encoder, all buckets are
    for tokens before the slot. 0: no bias."""
    relative_distance: int = 128
    """Distances from this one on share a bucket."""
    embedding_width: Count = 0
    """Width of the embedding tables. A linear map takes it to the width of the hidden states
    (ALBERT: 128). 0: the same width, no map."""
    layer_groups: Count = 0
    """Groups of layers that share their weights (ALBERT: 1). 0: every layer has its own."""
    layer_share: Share = "layer"
    """Weights that the layers of a group share: all, those of the attention, or those of the
    feed-forward part, each with its norm (Lan et al. 2020, section 4.5)."""
    embedding_scale: bool = False
    """Multiply token embeddings by the square root of the width (MASS)."""
    norm_first: bool = True
    """Pre-norm: normalize the inputs of attention and feed-forward part (GPT, GLM). off: post-norm,
    of their sums (BERT)."""
    embedding_norm: bool = False
    """Normalize the sum of the embeddings (BERT)."""
    final_norm: bool = True
    """Normalize the output of the last layer (GPT, GLM)."""
    norm_after: bool = False
    """Normalize what a part of a layer makes before it is added. With --arch.norm-first, its input
    is normalized, too (Gemma). Otherwise it replaces the norm of the sum (OLMo 2)."""
    first_norm: bool = True
    """Normalize the input of the first layer's attention, too (ModernBERT: off)."""
    parallel_residual: bool = False
    """Give the feed-forward part the input of attention, instead of the sum with what attention
    makes of it (GPT-J, GPT-NeoX)."""
    norm: Norm = "layer"
    """layer: LayerNorm, with a weight and a bias. rms: RMSNorm, with a weight (T5; Zhang 2019,
    arXiv 1910.07467)."""
    norm_bias: bool = True
    """Biases in LayerNorms (ModernBERT: off)."""
    norm_eps: Above = 1e-5
    """Epsilon of every norm, added to the variance or mean square."""
    norm_inside: bool = False
    """Also normalize the inputs of the output maps of attention and feed-forward part, without
    weights (LTG-BERT; Samuel et al. 2023, arXiv 2303.09859)."""
    qk_norm: bool = False
    """Divide each query and key by its root mean square. The queries of a head have a learned
    factor (Henry et al. 2020, arXiv 2010.04245)."""
    qk_norm_weights: bool = False
    """With --arch.qk-norm: a learned weight for each channel of queries and of keys, instead of the
    factor of a head. All heads of a layer have the same (Qwen3; arXiv 2505.09388)."""
    qk_norm_joint: bool = False
    """With --arch.qk-norm-weights: one norm over all heads together, with weights of their own
    (OLMo 2; arXiv 2501.00656)."""
    head_gate: bool = False
    """Multiply the output of each head by a learned gate from 0 to 2 that depends on the slot. It
    is 1 at first (Qiu et al. 2025, arXiv 2505.06708)."""
    embedding_skip: bool = False
    """The input of a layer is the sum of the states and the embedding, each with a learned factor,
    at first 1 and 0."""
    score_scale: bool = True
    """Divide attention scores by the square root of the width of a head (T5: off)."""
    activation: Activation = "gelu_tanh"
    """Activation of the feed-forward part and of the output transform: gelu (exact), gelu_tanh,
    relu, relu2, its square (So et al. 2021, arXiv 2109.08668), or silu."""
    bias: bool = True
    """Biases in the linear maps of the layers and of the output transform."""
    attention_bias: bool = True
    """Biases in the linear maps of attention, too. off: where --arch.bias is on, in the others
    alone (DiT, the network of MDLM)."""
    qkv_bias: bool = False
    """Biases of queries, keys and values where --arch.bias is off (Qwen2)."""
    out_bias: bool = False
    """A bias of attention's output map where --arch.attention-bias is off (GPT-Neo)."""
    tied: bool = True
    """Use the token embedding as the output matrix."""
    output_scale: bool = False
    """Divide the input of the output matrix by the square root of the width (T5)."""
    logit_cap: Weight = 0.0
    """Bound the logits over the vocabulary smoothly: cap * tanh(logit / cap). 0: no bound."""
    output_bias: bool = False
    """Add a bias to the logit of each token of the vocabulary (BERT)."""
    head_transform: bool = False
    """Dense layer, activation and layer norm before the output matrix (BERT)."""
    heads: tuple[str, ...] = ()
    """Output layers beside that over the vocabulary: KIND:NAME or KIND:NAME:SIZE (BERT:
    class:nsp:2, the next sentence). `unitk list head` names the kinds."""
    head_layers: tuple[int, ...] = ()
    """Layers whose states the heads read, mixed by learned weights (Peters et al. 2018, arXiv
    1802.05365, equation 1). 0 are the embeddings, -1 is the last layer, 0,1,...,12 are all states
    of 12 layers. Default: the last layer."""
    head_layer_norm: bool = False
    """Normalize the states of each layer before they are mixed, without weights (Peters et al.
    2018, section 3.2)."""
    head_pooler: bool = True
    """Heads over classes, numbers and choices have a dense layer, tanh and a linear map (BERT).
    off: a linear map without a bias (GPT)."""
    head_dense: Literal["tanh", "gelu", "relu", "transform"] = "tanh"
    """With --arch.head-pooler: the activation of the dense layer, tanh, gelu (EuroBERT) or relu
    (DistilBERT). transform: dense, activation and norm as of --arch.head-transform, in heads over
    tags and spans, too (ModernBERT)."""
    dropout: Rate = 0.1
    """Dropout of the embeddings and of the outputs of attention and feed-forward part."""
    attention_dropout: Rate = 0.1
    """Dropout of the attention weights. The papers use 0.1. On a CPU, 0 is 2 to 3 times faster."""
    activation_dropout: Rate = 0.0
    """Dropout of the inner values of the feed-forward part, after the activation (MASS: 0.1)."""
    init_std: Above = 0.02
    """Standard deviation of the normal law that weights are drawn from."""
    base_width: Count = 0
    """Width for which --arch.init-std is meant: maps in layers begin smaller in wider models, by
    the root of the ratio, and the last norm by the ratio. 0: every width begins alike."""
    scaled_init: bool = True
    """Divide --arch.init-std by sqrt(2 * layers) for the two maps of a layer that add to the hidden
    states. They are zero with --arch.zero-init."""
    zero_init: bool = False
    """Start the maps of a layer that add to the hidden states at zero, so that a layer changes
    nothing at first."""
    fan_in_init: bool = False
    """Divide --arch.init-std by the square root of the inputs of a map, for queries also by that of
    the width of a head if scores are not scaled (T5)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._need("qk_norm_weights", self.qk_norm, "without --arch.qk-norm")
        self._need("qk_norm_joint", self.qk_norm_weights, "without --arch.qk-norm-weights")
        divides = self.head_width > 0 or self.width % self.num_heads == 0
        self._require("num_heads", divides, f"a divisor of --arch.width {self.width}")
        self._check_layer_heads()
        self._check_layers()
        self._check_positions()
        groups = not self.layer_groups or self.num_layers % self.layer_groups == 0
        self._require("layer_groups", groups, "a divisor of the layers")
        self._need("attention_bias", self.bias, "without --arch.bias")
        self._need("qkv_bias", not self.bias, "with --arch.bias")
        biased = self.bias and self.attention_bias
        self._need("out_bias", not biased, "with --arch.attention-bias")
        self._need("layer_share", self.layer_groups, "without --arch.layer-groups")
        reached = self.head_transform or self.heads
        self._need("embedding_width", reached, "without --arch.head-transform")
        # half of the buckets for either direction, half of those for one distance each
        self._require("relative_buckets", self.relative_buckets % 4 == 0, "a multiple of 4")
        fits = self.relative_distance > max(1, self.relative_buckets // 4)
        self._require("relative_distance", fits, "above a quarter of --arch.relative-buckets")
        used = self.relative_buckets or self.attention_type != ModelConfig.attention_type
        self._need("relative_distance", used, "without --arch.relative-buckets")
        depth = self.head_depth
        exist = all(-1 - depth <= layer <= depth for layer in self.head_layers)
        self._require("head_layers", exist, f"of {-1 - depth} to {depth}")
        pools = self.head_pooler or self.head_dense in ("tanh", "transform")
        self._require("head_dense", pools, "tanh or transform without --arch.head-pooler")
        self._need("head_layer_norm", self.head_layers, "without --arch.head-layers")
        for head in self.heads:
            known = re.fullmatch(r"\w+:\w+(:[1-9]\d*)?", head) is not None
            require(known, f"--arch.heads must be KIND:NAME[:SIZE],..., got {head!r}")
        differ = len({*self.head_sizes}) == len(self.heads)
        self._require("heads", differ, "heads of different names")

    def _need(self, name: str, used: object, where: str) -> None:
        """Refuse a value of an option that is not `used`, unless it is the default."""
        usual = getattr(type(self), name)
        holds = bool(used) or getattr(self, name) == usual
        self._require(name, holds, f"{render(usual) or 'left out'} {where}")

    def _check_positions(self) -> None:
        rotary = self.positions == "rotary"
        for name in UNSHAPED:
            if "rotary" in name:
                self._need(name, rotary, "where positions are learned")
        bases = self.layer_rotary_bases
        self._require("layer_rotary_bases", min(bases, default=0) >= 0, "numbers of at least 0")
        used = not bases or self.rotary_base in bases
        self._need("rotary_base", used, "with --arch.layer-rotary-bases")
        if waves := self.rotary_wavelengths:
            rise = len(waves) == 2 and 0 < waves[0] < waves[1]
            self._require("rotary_wavelengths", rise, "two rising numbers above 0")
            require(self.rotary_factor != 1, "--arch.rotary-wavelengths needs --arch.rotary-factor")
        table = self.max_positions and not rotary
        self._need("position_offset", table, "where there is no table of positions")
        step = 4 if self.max_positions2 else 2  # a pair of channels for each position
        turning = self.key_width * self.rotary_share
        even = not rotary or turning % step == 0
        what = f"heads of {step} channels or a multiple, got {turning:g}"
        require(even, f"--arch.positions rotary needs {what}")

    def _check_layers(self) -> None:
        usual = self.attention_type == ModelConfig.attention_type
        grouped = not self.num_kv_heads or self.num_heads % self.num_kv_heads == 0
        self._require("num_kv_heads", grouped, f"a divisor of --arch.num-heads {self.num_heads}")
        self._need("num_kv_heads", usual, "with attention of its own")
        windows = min(self.layer_windows, default=0) >= 0
        self._require("layer_windows", windows, "numbers of at least 0")
        self._need("parallel_residual", self.norm_first, "without --arch.norm-first")
        self._need("norm_bias", self.norm == "layer", "with --arch.norm rms, which has none")
        alone = self.norm_first and not self.layer_groups
        self._need("first_norm", alone, "without --arch.norm-first, and in shared layers")

    def _check_layer_heads(self) -> None:
        if not (left := self.layer_heads):
            return
        single = len(self.towers) == 1 and not self.latent
        reasons = {
            "two towers or a latent": not single,
            "attention of its own": self.attention_type != ModelConfig.attention_type,
            "grouped heads, or a norm of all together": self.grouped or self.qk_norm_joint,
            "layers of the same weights": self.layer_groups > 0,
            "a bias of relative positions, which layers share": self.relative_buckets > 0,
            "a LayerNorm inside": self.norm_inside and self.norm != "rms",
        }
        for reason, holds in reasons.items():
            require(not holds, f"--arch.layer-heads excludes an architecture with {reason}")
        fits = len(left) == self.num_layers and 1 <= min(left) <= max(left) <= self.num_heads
        what = f"a number from 1 to {self.num_heads} for each of {self.num_layers} layers"
        self._require("layer_heads", fits, what)

    def of_layer(self, number: int) -> ModelConfig:
        """The settings of one layer, which differ if heads are pruned."""
        if not self.layer_heads:
            return self
        left = self.layer_heads[number]
        return replace(self, num_heads=left, head_width=self.key_width, layer_heads=())

    @property
    def spared(self) -> tuple[str, ...]:  # type: ignore[override]
        """Rotary positions are the sum of both positions, so the second ones need no table."""
        return ("max_positions2",) if self.positions == "rotary" else ()

    @property
    def table_width(self) -> int:
        """Width of the embedding tables and of the output matrix."""
        return self.embedding_width or self.width

    @property
    def key_width(self) -> int:
        """Width of a head's queries, keys and values."""
        return self.head_width or self.width // self.num_heads

    @property
    def layer_kinds(self) -> list[tuple[int, float]]:
        """For each layer, how many positions away it sees (0: any number), and the base of its
        rotary positions (0: it has none)."""
        windows = self.layer_windows or (0,)
        bases = self.layer_rotary_bases or (self.rotary_base,)
        bases = bases if self.positions == "rotary" else (0.0,)
        return [(windows[n % len(windows)], bases[n % len(bases)]) for n in range(self.num_layers)]

    @property
    def biased_out(self) -> bool:
        """Whether attention's output map has a bias."""
        return (self.bias and self.attention_bias) or self.out_bias

    @property
    def biased_heads(self) -> bool:
        """Whether queries, keys and values have biases."""
        return (self.bias and self.attention_bias) or self.qkv_bias

    @property
    def heads_width(self) -> int:
        """The width of all heads together."""
        return self.num_heads * self.key_width

    @property
    def grouped(self) -> bool:
        """Whether several heads have the same keys and values."""
        return self.kv_heads < self.num_heads

    @property
    def kv_heads(self) -> int:
        """The number of heads that keys and values have."""
        return self.num_kv_heads or self.num_heads

    @property
    def kv_width(self) -> int:
        """The width of the keys, or values, of all heads together."""
        return self.kv_heads * self.key_width

    @property
    def head_sizes(self) -> dict[str, int]:
        """Size of each further head by KIND:NAME; 0 where none is given."""
        parts = (head.split(":") for head in self.heads)
        return {":".join(part[:2]): int(part[2]) if part[2:] else 0 for part in parts}

    def tower(self, name: str) -> ModelConfig:
        return self

    @property
    def depth(self) -> int:
        return self.num_layers

    @property
    def head_depth(self) -> int:
        """The number of layers below the states that heads read."""
        return self.num_layers

    @property
    def head_config(self) -> ModelConfig:
        """The settings of heads beside that over the vocabulary; `width` is their input's."""
        return self

    def num_weights(self, vocab_size: int) -> int:
        return self._weights(vocab_size, self.num_layers)

    def _weights(
        self, vocab_size: int, layers: int, cross: bool = False, output: bool = True
    ) -> int:
        """The weights of one tower; `cross`: its layers have cross-attention."""
        groups = self.layer_groups or layers
        num_attentions = groups if self.layer_share in ("layer", "attention") else layers
        num_ffns = groups if self.layer_share in ("layer", "ffn") else layers
        num_heads = sum(self.layer_heads) or num_attentions * self.num_heads
        shares = 2 + 2 * self.kv_heads / self.num_heads  # queries and outputs, keys and values
        matrices = round(shares * self.width * num_heads * self.key_width)
        matrices += num_ffns * (2 + self.ffn_gate) * self.width * self.ffn_width
        if cross:
            distinct = groups if self.layer_share == "layer" else layers
            matrices += round(distinct * shares * self.width * self.heads_width)
        tables = 2 if output and not self.tied else 1
        rows = tables * vocab_size + self.num_virtual + self.num_segments + self.num_tasks
        if self.positions == "learned":
            rows += self.max_positions + self.max_positions2 + self.position_offset
        squares = sum(3 if head.startswith("sbo:") else 1 for head in self.heads) if output else 0
        heads = squares * self.width**2 + 2 * self.width * self.embedding_width
        return matrices + rows * self.table_width + heads


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """Two towers with the same settings; the decoder reads the encoder (MASS, BART, T5)."""

    num_layers: Positive = 6
    """Layers of the encoder."""
    decoder_layers: Count = 0
    """Layers of the decoder. 0: as many as the encoder."""
    shared_embeddings: bool = True
    """Share one token embedding between encoder and decoder."""
    cross_rotary: bool = True
    """Rotary positions turn queries and keys of cross-attention, too (T5Gemma: off)."""
    towers = ("enc", "dec")
    cross_attention = True
    network = "unitk.models.model:EncoderDecoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._need("cross_rotary", self.positions == "rotary", "where positions are learned")
        # in the decoder, half of the buckets have one distance each
        fits = self.relative_distance > self.relative_buckets // 2
        self._require("relative_distance", fits, "above half of --arch.relative-buckets")

    @property
    def depth(self) -> int:
        return max(self.num_layers, self.decoder_layers)

    @property
    def head_depth(self) -> int:
        return self.decoder_layers or self.num_layers

    def num_weights(self, vocab_size: int) -> int:
        encoder = self._weights(vocab_size, self.num_layers, output=False)
        decoder = self._weights(vocab_size, self.decoder_layers or self.num_layers, cross=True)
        return encoder + decoder - self.shared_embeddings * vocab_size * self.table_width
