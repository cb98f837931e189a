"""How contextual the states of each layer are.  Ethayarajh 2019, arXiv 1909.00512, section 3.

A word is an id of the vocabulary that is no symbol. N states of words, D their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed, fit_text, slots_to_embed
from unitk.errors import DataError
from unitk.files import new_file
from unitk.models.model import Model
from unitk.pictures import save
from unitk.progress import Report, no_report
from unitk.slots import Doubles, Ids
from unitk.tasks.base import Task


@dataclass(frozen=True)
class LayerMeasures:
    """The measures of a layer."""

    random_cosine: float
    """Mean cosine of the states of words of different texts: the layer's anisotropy."""
    self_similarity: float
    """Mean cosine of two states of a word, averaged over the words."""
    intra_sentence: float
    """Mean cosine of the state of a word and the mean of its text, averaged over the texts."""
    explained: float
    """Share of the first principal component in the states of a word (maximum explainable
    variance), averaged over the words."""
    random_explained: float
    """Share of the first principal component in the states of words of different texts."""

    def figures(self) -> dict[str, float]:
        """All measures by name, and those corrected for anisotropy."""
        return asdict(self) | {
            "self_similarity/adjusted": self.self_similarity - self.random_cosine,
            "intra_sentence/adjusted": self.intra_sentence - self.random_cosine,
            "explained/adjusted": self.explained - self.random_explained,
        }


def measure_contextuality(
    model: Model,
    task: Task,
    sources: Sequence[list[Ids]],
    config: EmbedConfig,
    *,
    least: int = 5,
    most: int = 1000,
    seed: int = 1,
    report: Report = no_report,
) -> list[LayerMeasures]:
    """The measures of every layer; the first ones are of the input of the first layer.

    Words that occur `least` times count, with at most `most` occurrences, which `seed` draws.
    Raises DataError where the texts have no such word, only one text has words, or each has one.
    """
    symbols = [index for name, index in task.source_vocab.symbols.items() if name != "unk"]
    tokens = [
        slots_to_embed(fit_text(task, source, model, i, config.truncate).towers).token
        for i, source in enumerate(sources)
        if sum(map(len, source))
    ]
    is_word = [~np.isin(ids, symbols) for ids in tokens]
    words_of_texts = [ids[kept] for ids, kept in zip(tokens, is_word, strict=True)]
    rows = draw_rows(words_of_texts, least, most, np.random.default_rng(seed))
    layers = []
    # a layer at a time: the states of all of them would take much more memory than time is lost
    for depth in range(len(model.reader.layers) + 1):
        of_layer = replace(config, layer=depth, pool="none")
        states = [x for x in embed(model, task, sources, of_layer, report=report) if len(x)]
        table = np.concatenate([x[kept] for x, kept in zip(states, is_word, strict=True)])
        layers.append(measures(table.astype(np.float64), *rows))
    return layers


def draw_rows(
    texts: Sequence[Ids], least: int, most: int, rng: np.random.Generator
) -> tuple[list[Ids], Ids, Ids]:
    """The rows that `measures` reads, of a table with a row for each word of each text.

    They are the rows of each word that occurs `least` times, `most` of them at most; the row at
    which each text begins that has words; and a drawn row of each of these texts. Raises DataError
    where a measure would have none.
    """
    ids = np.concatenate([*texts, []])
    # rows of a word side by side, in a drawn order, of which the first ones are taken
    order = rng.permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    _, first = np.unique(ids[order], return_index=True)
    groups = [rows[:most] for rows in np.split(order, first[1:]) if len(rows) >= least]
    sizes = np.array([len(text) for text in texts if len(text)], np.int64)
    starts = np.cumsum(sizes) - sizes
    lacks = {
        "words in one text only": len(starts) < 2,
        f"no word that occurs {least} times": not groups,
        "no text of two words": sizes.max(initial=0) < 2,
    }
    for lack, holds in lacks.items():
        if holds:
            raise DataError(f"--input has {lack}: give more texts")
    return groups, starts, starts + rng.integers(0, sizes)


def measures(states_ND: Doubles, words: Sequence[Ids], starts: Ids, drawn: Ids) -> LayerMeasures:
    """The measures of states.

    `words` are the rows of each word that counts. A text begins at each of the `starts`. `drawn`
    are rows of different texts, for the baselines.
    """
    unit_ND = states_ND / np.maximum(np.linalg.norm(states_ND, axis=1, keepdims=True), 1e-30)
    texts = np.split(np.arange(len(states_ND)), starts[1:])
    inside = [_cosine_to_mean(states_ND[rows], unit_ND[rows]) for rows in texts if len(rows) > 1]
    return LayerMeasures(
        random_cosine=similarity(unit_ND[drawn]),
        self_similarity=float(np.mean([similarity(unit_ND[rows]) for rows in words])),
        intra_sentence=float(np.mean(inside)),
        explained=float(np.mean([explained_variance(states_ND[rows]) for rows in words])),
        random_explained=explained_variance(states_ND[drawn]),
    )


def similarity(unit_ND: Doubles) -> float:
    """The mean of unit vectors' cosines, over all pairs of two different ones (definition 1)."""
    count = len(unit_ND)
    total = unit_ND.sum(axis=0)
    return float((total @ total - count) / (count * (count - 1)))


def explained_variance(states_ND: Doubles) -> float:
    """The square of the first singular value over the sum of all squares (definition 3).

    Nothing is subtracted from the states, so states that are all equal have 1.
    """
    # the smaller of the two products has the same eigenvalues
    wide = states_ND if len(states_ND) < states_ND.shape[1] else states_ND.T
    squares = wide @ wide.T
    return float(np.linalg.eigvalsh(squares)[-1] / np.trace(squares))


def _cosine_to_mean(states_ND: Doubles, unit_ND: Doubles) -> float:
    """The mean cosine of states to their mean (definition 2)."""
    mean = states_ND.mean(axis=0)
    return float((unit_ND @ mean).mean() / max(np.linalg.norm(mean), 1e-30))


def draw(layers: Sequence[LayerMeasures], output: Path) -> None:
    """Draw the measures of the layers, with their baselines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = {
        "self-similarity": ("self_similarity", "random_cosine"),
        "intra-sentence similarity": ("intra_sentence", "random_cosine"),
        "maximum explainable variance": ("explained", "random_explained"),
    }
    for axis, (title, (name, base)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        figures = [layer.figures() for layer in layers]
        curves = {name: ("--", "measured"), base: (":", "random words")}
        for key, (style, label) in (curves | {f"{name}/adjusted": ("-", "difference")}).items():
            values = [of_layer[key] for of_layer in figures]
            axis.plot(values, style, marker=".", label=label)
        axis.set_title(title)
        axis.set_xlabel("layer")
        axis.set_xticks(range(len(layers)))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    with new_file(output, "--plot") as path:
        save(figure, path, 120)
