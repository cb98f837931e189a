"""Options of `unitk latent`, by verb; torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from unitk.api.answering import Answering
from unitk.decoding.config import GenerateConfig
from unitk.errors import require
from unitk.families.latent.space.geometry import Curve, Metric
from unitk.options.config import With
from unitk.options.fields import Above, Bound, Count, Positive, Weight
from unitk.pictures import check_picture

Feature = Literal["mean", "std", "kl", "pooled"]


@dataclass(frozen=True, kw_only=True)
class Written(Answering):
    """Format of the output."""

    output_format: Literal["text", "jsonl"] = "text"
    """text: an output a line; jsonl: an object a text, with scores."""


@dataclass(frozen=True, kw_only=True)
class Decoding(Written, GenerateConfig):
    """Decode latents."""


@dataclass(frozen=True, kw_only=True)
class Encode(Written):
    """Write the latents of texts, a row of numbers for each.

    unitk latent encode --input texts.txt --output latents.tsv --checkpoint vae
    """

    feature: Feature = "mean"
    """mean: the most likely latent; std: its uncertainty; kl: nats that each dimension holds about
    the text; pooled: the encoder state that the latent is made from."""


@dataclass(frozen=True, kw_only=True)
class Sample(Decoding):
    """Write random texts: from the prior, from the posteriors of given texts, or from the latents
    of the texts of a label.

    unitk latent sample --count 20 --spread 0.8 --checkpoint vae
    unitk latent sample --among labelled.txt --label question --checkpoint vae
    """

    count: Annotated[int, Bound(1, 100_000)] = 10
    """Latents to draw, for each text if texts are given."""
    spread: Weight = 1.0
    """Factor on the standard deviation. Below 1 the texts are more typical, above 1 more
    unusual."""
    among: Path | None = None
    """Labelled texts, one a line with a tab before the label, or json-lines (fields source and
    target). Draws are from the normal law that fits the latents of those with the --label."""
    label: Annotated[str, With("among")] = ""
    """With --among: label of the texts to write."""


@dataclass(frozen=True, kw_only=True)
class Reconstruct(Decoding):
    """Encode texts and decode their most likely latents: as `unitk generate` does.

    unitk latent reconstruct "she lives next door ." --checkpoint vae
    """


@dataclass(frozen=True, kw_only=True)
class Interpolate(Decoding):
    """Write the texts on a path between two texts. A file has the two texts of a path on a line,
    with a tab between them.

    unitk latent interpolate "he is ill ." "who are you ?" --checkpoint vae
    """

    steps: Annotated[int, Bound(2, 10_000)] = 9
    """Points on the path, both ends included."""
    path: Curve = "lerp"
    """lerp: a straight line; slerp: an arc around the origin, at the distance where most latents
    lie."""


@dataclass(frozen=True, kw_only=True)
class Moved(Decoding):
    """Decode latents that move by a difference."""

    degree: tuple[float, ...] = (1.0,)
    """Factor on the difference. Each of several values, separated by commas, gives an answer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.degree) > 0, "--degree needs a number")

    @property
    def at(self) -> list[dict[str, float]]:
        """The fields that describe each answer: the degree, if there are several."""
        return [{"degree": degree} if len(self.degree) > 1 else {} for degree in self.degree]


@dataclass(frozen=True, kw_only=True)
class Analogy(Moved):
    """Write what is to C as B is to A: decode the latent of C + degree (B - A). A line of a file
    has the texts A, B and C, with tabs between them.

    unitk latent analogy "he ran ." "he runs ." "she ate ." --checkpoint vae
    """


@dataclass(frozen=True, kw_only=True)
class Restyle(Moved):
    """Write a text in the style of another label: decode its latent + degree (TO - FROM), the mean
    latents of the texts of two labels.

    unitk latent restyle "hi ." --among l.txt --from a --to b --checkpoint vae
    """

    among: Path
    """Labelled texts, one a line with a tab before the label, or json-lines (fields source and
    target)."""
    from_: str
    """Label whose style the texts have."""
    to: str
    """Label whose style they are to have."""


@dataclass(frozen=True, kw_only=True)
class Traverse(Decoding):
    """Move one dimension of the latent of a text. Each value is decoded.

    unitk latent traverse "he is a teacher ." --active 2 --checkpoint vae
    """

    dimension: tuple[int, ...] = ()
    """Dimensions to move, counted from 0. Default: the --active ones."""
    active: Positive = 3
    """Number of dimensions: those that hold most about the texts, in nats."""
    reach: Above = 3.0
    """A dimension moves from minus this value to this value, in standard deviations of the
    prior."""
    steps: Annotated[int, Bound(2, 10_000)] = 7
    """Values of a dimension."""


@dataclass(frozen=True, kw_only=True)
class Neighbors(Written):
    """Find the texts of a file that are nearest to given texts: by their latents.

    unitk latent neighbors "he is ill ." --among texts.txt --checkpoint vae
    """

    among: Path
    """File of texts to search, one a line, or json-lines (field source)."""
    count: Positive = 5
    """Neighbours of each text."""
    metric: Metric = "euclidean"
    """Distance between two latents: euclidean, or one minus the cosine of their angle."""


@dataclass(frozen=True, kw_only=True)
class Plot(Answering):
    """Draw the latents of texts. In a file, labels may follow the texts, after a tab or as field
    target. Labels are drawn as colours.

    unitk latent plot --input labelled.txt --output latent.png --checkpoint vae
    """

    output: Path = Path("latent.png")
    """Image file: .png, .svg or .pdf."""
    overwrite: bool = True
    """Replace an image that exists."""
    method: Literal["pca", "tsne", "umap"] = "pca"
    """pca: the two axes of greatest variance; tsne, umap: keep neighbours together. tsne and umap
    need scikit-learn or umap-learn (pip install 'unitk[latent]')."""
    feature: Literal["mean", "pooled"] = "mean"
    """mean: the most likely latents; pooled: the encoder's states."""
    names: Count = 0
    """Number of texts to write beside their points, counted from the first."""
    seed: Count = 1
    """Seed of tsne and umap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_picture(self.output, "--output")


@dataclass(frozen=True, kw_only=True)
class Probe(Written):
    """Measure a linear classifier on features of few labelled texts: its accuracy. In the files a
    label follows each text, after a tab or as field target.

    unitk latent probe --input labelled.txt --test test.txt --checkpoint vae
    """

    test: Path
    """Labelled texts to measure accuracy on. --input holds the texts to learn from."""
    per_class: tuple[int, ...] = (1, 10, 100)
    """Labelled texts of each class to learn from. 0: all of them."""
    seeds: Annotated[int, Bound(2)] = 10
    """Draws of the labelled texts, for the mean and the standard deviation."""
    feature: Literal["pooled", "mean"] = "pooled"
    """pooled: the encoder's pooled state, as in Optimus' section 5.3; mean: the most likely
    latents."""
    penalty: Above = 1.0
    """L2 penalty: half of it times the squared weights is added to the summed negative
    log-likelihood."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plausible = len(self.per_class) > 0 and min(self.per_class) >= 0
        require(plausible, "--per-class needs numbers of at least 0, such as 1,10,100")
