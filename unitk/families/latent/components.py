"""The registered components of a variational autoencoder: architectures and criterion.

Optimus: Li et al. 2020, arXiv 2004.04092. Torch is imported when one of them is built.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from unitk.criterions.config import OfTask
from unitk.errors import UsageError, require
from unitk.models.archs import for_cpu, preset, tiny
from unitk.models.base import Preset
from unitk.models.config import ModelConfig
from unitk.options.fields import Checked, Count, Part, Positive, Schedule, Weight, parse_schedule
from unitk.registry import get, import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.models.base import Network
    from unitk.vocab.base import Vocab

Inject = Literal["both", "memory", "embedding"]


@dataclass(frozen=True, kw_only=True)
class LatentConfig(ModelConfig):
    """The architecture of a variational autoencoder; these settings are the decoder's (Optimus)."""

    encoder: str = "bert_base"
    """Registered architecture of the encoder. It gets the dropouts given here."""
    latent: Positive = 32
    """Dimensions of the latent (section 5.1: 32; 768 to manipulate sentences)."""
    inject: Inject = "both"
    """How the latent enters the decoder (section 4.2): memory, a key and value in every layer;
    embedding, added to every token; or both."""
    unit_variance: bool = False
    """Give latents variance 1 around their means, whatever the text (the autoencoder of the
    official code, --use_deterministic_connect). Use it with --criterion.kl-mode sum."""
    head_latent: bool = False
    """Let heads read the most likely latent of a text instead of the states of the encoder."""
    towers = ("enc", "dec")

    def __post_init__(self) -> None:
        plain = type(get("arch", self.encoder, "--arch.encoder")()) is ModelConfig
        self._require("encoder", plain, "an architecture of a single tower")
        super().__post_init__()  # which looks at the towers
        for name in ("embedding_width", "num_tasks"):
            self._require(name, not getattr(self, name), "0 with a latent")
        alone = not (self.head_latent and self.head_layers)
        self._require("head_layers", alone, "left out with --arch.head-latent")

    @property
    def memory(self) -> bool:
        """Whether every layer has a key and a value computed from the latent."""
        return self.inject != "embedding"

    @property
    def decoder(self) -> ModelConfig:
        """The decoder's settings; with a memory, its positions begin at 1."""
        shared = {field.name: getattr(self, field.name) for field in fields(ModelConfig)}
        table = self.max_positions > 0 and self.positions == "learned"
        shared["position_offset"] += self.memory and table
        return ModelConfig(**shared)

    def tower(self, name: str) -> ModelConfig:
        if name != "enc":
            return self
        names = ("dropout", "attention_dropout", "activation_dropout")
        return replace(preset(self.encoder), **{name: getattr(self, name) for name in names})

    @property
    def head_depth(self) -> int:
        return self.tower("enc").num_layers

    @property
    def head_config(self) -> ModelConfig:
        of_heads = ("heads", "head_pooler", "head_dense", "head_layers", "head_layer_norm")
        names = (*of_heads, "activation", "bias", "norm", "norm_eps")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        width = self.latent if self.head_latent else self.tower("enc").width
        # one attention head, as a head of this model has none: any width is a multiple of one
        return ModelConfig(width=width, num_heads=1, num_layers=self.head_depth, **values)

    def num_weights(self, vocab_size: int) -> int:
        bridge = self.memory * self.latent * self.num_layers * self.kv_width
        return super().num_weights(vocab_size) + self.tower("enc").num_weights(vocab_size) + bridge

    @property
    def position_limit(self) -> int:
        tables = (self.max_positions, self.tower("enc").max_positions)
        return min((size for size in tables if size), default=0)

    def build(self, vocab_size: int, source_vocab_size: int | None = None) -> Network:
        build = import_object("unitk.families.latent.model:LatentModel")
        return build(self, vocab_size, source_vocab_size or vocab_size)


# with the row for the memory, the decoder's position table is GPT-2's
OPTIMUS = LatentConfig(max_positions=1023)
SENTENCE = preset("modern_sentence")
PRESETS: dict[str, tuple[ModelConfig, str]] = {
    "optimus_tiny": (
        replace(tiny(OPTIMUS), encoder="bert_tiny", latent=16),
        "bert_tiny, a latent of 16, gpt2_tiny; no dropout: for tests.",
    ),
    "optimus_small": (
        replace(for_cpu(OPTIMUS), num_layers=4, encoder="bert_small"),
        "bert_small, a latent of 32, gpt2_mini: for a CPU; without attention dropout.",
    ),
    "optimus_sentence": (
        LatentConfig(**asdict(SENTENCE) | {"num_layers": 3}, encoder="modern_sentence", latent=64),
        "modern_sentence, a latent of 64, a decoder of 3 such layers: for a CPU.",
    ),
    "optimus_base": (OPTIMUS, "BERT-base, a latent of 32, GPT-2 small: 233 M parameters."),
}
for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about))

KLMode = Literal["mask", "hinge", "mean-hinge", "sum"]


@register("criterion", "elbo")
@dataclass(frozen=True, kw_only=True)
class ELBOConfig(OfTask):
    """Reconstruction and KL divergence of a variational autoencoder, in nats a text.

    Validation uses the final beta of the schedule, so that losses are comparable.
    """

    beta: Schedule = field(default_factory=lambda: parse_schedule("cyclical", "--criterion.beta"))
    """Weight of the KL divergence. cyclical: Optimus' cycles, half of each at 0, a quarter rising.
    A number is constant, and constant:warmup=0.5 rises over half of the run."""
    kl_mode: KLMode = "mask"
    """How dimensions below the threshold count. mask: as zero (Optimus' code). hinge: as the
    threshold, which has the same gradient (its equation 9). mean-hinge: hinge of the mean over the
    batch, which must be one micro-batch (Kingma et al. 2016, arXiv 1606.04934). sum: no
    threshold."""
    kl_threshold: Weight = 0.5
    """KL threshold: nats of each dimension that are free (Optimus' lambda)."""
    length_weighted: bool = False
    """Divide the reconstruction of a text, but not its divergence, by its length with begin and
    end."""
    aggressive_steps: Count = 0
    """Updates of the encoder alone before each update of both (He et al. 2019, arXiv
    1901.05534)."""
    aggressive_share: Part = 0.2
    """Share of the run in which --criterion.aggressive-steps applies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = self.kl_mode != "sum" or self.kl_threshold == ELBOConfig.kl_threshold
        require(usual, "--criterion.kl-threshold has no effect with --criterion.kl-mode sum")
        usual = self.aggressive_steps > 0 or self.aggressive_share == ELBOConfig.aggressive_share
        require(usual, "--criterion.aggressive-share needs --criterion.aggressive-steps")
        # at the end of a run of a million updates
        name = type(self.beta).__name__.lower()
        end = self.beta(1 << 20, 1 << 20)
        if end < self.beta.value:
            raise UsageError(
                f"--criterion.beta {name} falls to {end:g}, which leaves the divergence free; "
                "constant:warmup=0.5 rises over half of the run"
            )

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.latent.elbo:ELBO")(self)


@register("criterion", "fusion")
@dataclass(frozen=True, kw_only=True)
class FusionConfig(Checked):
    """Reconstruction of responses, and latents of contexts near those of their responses.

    SpaceFusion: Gao et al. 2019, arXiv 1902.11205, as Optimus fine-tunes for dialogue. Latents are
    not drawn; an update is one micro-batch. For --task optimus --task.fusion on.
    """

    KIND = "criterion"

    beta: Weight = 2.0
    """Weight of the distances: from a context to its response, less those from a context to the
    nearest other context and from a response to the nearest other response."""
    noise: Weight = 0.1
    """Standard deviation of the normal noise added to the latent between context and response."""

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.latent.elbo:Fusion")(self)
