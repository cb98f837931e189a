"""Pictures of texts as points of the latent space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unitk.errors import UsageError
from unitk.families.latent.space.geometry import Points, principal
from unitk.files import new_file
from unitk.pictures import save

COLOURS = 20  # the most frequent labels have a colour of their own, the others are grey


def plane(points: Points, method: str, seed: int) -> tuple[Points, tuple[str, str]]:
    """Project points [N, Z] into a plane [N, 2]; returns the labels of its axes too."""
    if method == "pca":
        flat, share = principal(points, 2)
        return flat, (f"axis 1 ({share[0]:.0%} of the variance)", f"axis 2 ({share[1]:.0%})")
    try:
        if method == "tsne":
            from sklearn.manifold import TSNE

            # the library wants fewer neighbours than points
            perplexity = min(30.0, (len(points) - 1) / 3)
            embed: Any = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
        else:
            from umap import UMAP

            embed = UMAP(min(15, len(points) - 1), random_state=seed, n_jobs=1)
    except ImportError as error:
        package = {"tsne": "scikit-learn", "umap": "umap-learn"}[method]
        raise UsageError(
            f"--method {method} needs {package}: pip install 'unitk[latent]'; pca needs nothing"
        ) from error
    return embed.fit_transform(points), (f"{method} 1", f"{method} 2")


def draw(
    flat: Points,
    axes: tuple[str, str],
    labels: Sequence[str | None],
    names: Sequence[str],
    output: Path,
    replace: bool,
) -> None:
    """Draw points [N, 2] in the colours of their labels, the first ones with names."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.5), layout="constrained")
    axis = figure.subplots()
    shown = [label for label, _ in Counter(filter(None, labels)).most_common(COLOURS)]
    label_of = np.array([label if label in shown else "" for label in labels])
    colours = colormaps["tab10" if len(shown) <= 10 else "tab20"]
    size = float(np.clip(2000 / len(flat), 4, 40))
    # grey points first, so that they hide no other
    for label in ["", *sorted(shown)]:
        x, y = flat[label_of == label].T
        if not len(x):
            continue
        rest = "others" if shown else "_"  # a name that no legend shows
        named = f" {label}" if label.startswith("_") else label
        color = colours(sorted(shown).index(label)) if label else "0.6"
        axis.scatter(x, y, size, color=color, label=named or rest, alpha=0.7, linewidth=0)
    for name, at in zip(names, flat, strict=False):
        short = name if len(name) <= 40 else name[:39] + "…"
        axis.annotate(short, at, xytext=(3, 3), textcoords="offset points", fontsize=7)
    axis.set_xlabel(axes[0])
    axis.set_ylabel(axes[1])
    if shown:
        axis.legend(fontsize=8)
    with new_file(output, "--output", replace=replace) as part:
        save(figure, part, 150)
