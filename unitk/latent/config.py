"""Options of `unitk latent`, by verb; torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unitk.data.reading.sources import Format
from unitk.decoding.config import GenerateConfig
from unitk.decoding.files.outputs import STDOUT
from unitk.errors import at_least, require
from unitk.latent.geometry import Curve, Metric

Feature = Literal["mean", "std", "kl", "pooled"]
LEAST = {"max_tokens": 1, "count": 1, "spread": 0, "steps": 2, "active": 1, "seeds": 2}
"""Options of any verb and the least that they may be."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """Texts in, answers out."""

    texts: tuple[str, ...] = ()
    """The texts, each in quotes; or --input."""
    checkpoint: Path
    """A run folder (its best checkpoint is taken) or a checkpoint, of a task with a latent."""
    task: str | None = None
    """Encode as this task, where the model was trained with several."""
    input: Path | None = None
    """Texts of a file, one a line or json-lines (field source); `-`: standard input."""
    input_format: Format = "auto"
    """auto: by the file's ending; standard input is text."""
    truncate: bool = False
    """Shorten a text that is too long for the encoder, instead of refusing it."""
    output: Path = STDOUT
    """Where the answers go; `-`: standard output."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a GPU."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of weights and cache."""
    max_tokens: int = 16384
    """Most slots of a batch."""
    config: Path | None = None
    """YAML file of options; flags win over it."""
    user_dir: Path | None = None
    """Folder of plug-ins."""

    def __post_init__(self) -> None:
        at_least(self, **{name: n for name, n in LEAST.items() if hasattr(self, name)})


@dataclass(frozen=True, kw_only=True)
class Written(Common):
    """The form of the answers."""

    output_format: Literal["text", "jsonl"] = "text"
    """text: a line an output; jsonl: an object a text, with scores."""


@dataclass(frozen=True, kw_only=True)
class Decoding(Written, GenerateConfig):
    """Decode latents."""

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        GenerateConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Encode(Written):
    """Print where texts lie in the latent space: a row of numbers for each."""

    feature: Feature = "mean"
    """mean: the most likely latent; std: its uncertainty; kl: nats that each dimension tells of the
    text; pooled: the encoder's state, of which the latent is made."""


@dataclass(frozen=True, kw_only=True)
class Sample(Decoding):
    """Write texts at random: from the prior, or around given texts, from their posteriors."""

    count: int = 10
    """Latents to draw, for each text if there are texts."""
    spread: float = 1.0
    """Scales the deviation from the mean: below 1 more usual texts, above 1 stranger ones."""


@dataclass(frozen=True, kw_only=True)
class Reconstruct(Decoding):
    """Encode texts and write what their most likely latents say, as `unitk generate` does."""


@dataclass(frozen=True, kw_only=True)
class Interpolate(Decoding):
    """Write the texts on the way from one text to another: two texts, or a file with a tab between
    the two of a line."""

    steps: int = 9
    """Points of the way, both ends among them."""
    path: Curve = "lerp"
    """lerp: straight; slerp: on the arc around the origin, at whose distance most texts lie."""


@dataclass(frozen=True, kw_only=True)
class Analogy(Decoding):
    """Write what is to C as B is to A: three texts A B C, or a file with tabs between the three of
    a line. The latent is that of C + degree (B - A)."""

    degree: tuple[float, ...] = (1.0,)
    """How far to go; several, with commas between them, are several answers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.degree) > 0, "--degree needs a number")


@dataclass(frozen=True, kw_only=True)
class Traverse(Decoding):
    """Write what texts become when one dimension of their latent moves."""

    dimension: tuple[int, ...] = ()
    """Numbers of the dimensions, from 0; default: the --active ones."""
    active: int = 3
    """How many dimensions: those that tell most of the texts, in nats."""
    reach: float = 3.0
    """A dimension goes from minus this to this, in standard deviations of the prior."""
    steps: int = 7
    """Values of a dimension."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.reach > 0, f"--reach must be above 0, got {self.reach:g}")


@dataclass(frozen=True, kw_only=True)
class Neighbors(Written):
    """Find the texts of a file whose latents are nearest to those of given texts."""

    among: Path
    """File of texts to search, one a line or json-lines (field source)."""
    count: int = 5
    """Neighbours of each text."""
    metric: Metric = "euclidean"
    """What is far: the distance of the most likely latents, or one minus the cosine of the angle
    between them."""


@dataclass(frozen=True, kw_only=True)
class Plot(Common):
    """Draw where texts lie. In a file a label may follow a text, after a tab or as field target:
    labels become colours."""

    output: Path = Path("latent.png")
    """Image file, its ending says the kind."""
    method: Literal["pca", "tsne", "umap"] = "pca"
    """pca: the two axes of greatest variance; tsne, umap: keep neighbours together, and need
    scikit-learn or umap-learn (pip install 'unitk[latent]')."""
    feature: Literal["mean", "pooled"] = "mean"
    """The most likely latents, or the encoder's states."""
    names: int = 0
    """Write so many of the texts beside their points, the first ones."""
    seed: int = 1
    """Of tsne and umap."""


@dataclass(frozen=True, kw_only=True)
class Probe(Written):
    """Measure what a linear classifier finds in the features of few labelled texts. In the files a
    label follows each text, after a tab or as field target."""

    test: Path
    """Labelled texts that accuracy is measured on; --input holds those that are learnt from."""
    per_class: tuple[int, ...] = (1, 10, 100)
    """Labelled texts of each class; 0: all of them."""
    seeds: int = 10
    """Draws of the labelled texts, for the mean and the deviation."""
    feature: Literal["pooled", "mean"] = "pooled"
    """The encoder's pooled state, as Optimus' section 5.3 has it, or the most likely latents."""
    penalty: float = 1.0
    """Half of it times the squared weights is added to the summed negative log-likelihood."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.penalty > 0, f"--penalty must be above 0, got {self.penalty:g}")
        some = len(self.per_class) > 0 and min(self.per_class) >= 0
        require(some, "--per-class needs numbers of at least 0, such as 1,10,100")
