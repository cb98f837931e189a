"""Measures of a latent on a corpus: bound, divergence, mutual information, collapse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unitk.data.batching import single_batches
from unitk.decoding.config import GenerateConfig
from unitk.evaluation.base import Judged, Progress
from unitk.evaluation.objective import TEXT, Setup, units_of
from unitk.families.latent.elbo import ELBO, Autoencoder
from unitk.families.latent.measures.evidence import Evidence, gather_evidence, nll_of, z_gap
from unitk.families.latent.measures.panel import IGNORED, bars
from unitk.families.latent.space.points import KL, LatentSpace
from unitk.metrics.bleu import bleu
from unitk.metrics.language import Units, perplexities
from unitk.progress import Report
from unitk.slots import DOC, Batch, Ids
from unitk.training.saving.checkpoint import check_finite

if TYPE_CHECKING:
    from unitk.families.latent.measures.evaluation import LatentMeasures


def has_latent(setup: Setup) -> bool:
    """Whether a model is an autoencoder with a latent."""
    return isinstance(setup.model, Autoencoder) and isinstance(setup.criterion, ELBO)


@dataclass(frozen=True)
class Measures:
    """The evaluation of an autoencoder on M texts."""

    figures: dict[str, float]  # by name, see docs/latent-measures.md
    each: list[float]  # nats of divergence of each dimension
    means: np.ndarray  # [M, Z]: the most likely latents
    texts: list[Ids]  # the words of each text, in the same order
    notes: list[str]  # what is absurd, and why


def judge(options: LatentMeasures, setup: Setup, progress: Progress) -> Judged:
    """The measures of `unitk evaluate`. With beam 0, no text is reconstructed."""
    draws = options.draws or 100
    with progress(setup.num_texts * draws) as report:
        measures = measure_latent(setup, draws, options.max_tokens, report)
    texts = measures.texts
    figures: dict[str, Any] = {"texts": len(texts), "draws": draws, **measures.figures}
    figures["kl_each"] = measures.each
    if options.beam:
        # no longer than the longest text: what goes on is wrong already
        longest = options.max_len or max(1, *map(len, texts))
        config = GenerateConfig(beam=options.beam, max_len=longest, max_tokens=options.max_tokens)
        with progress(len(texts)) as report, setup.autocast():
            figures |= reconstruction(setup, measures, config, report)
    figures["notes"] = measures.notes
    return Judged(figures, _lines(figures))


def reconstruction(
    setup: Setup, measures: Measures, config: GenerateConfig, report: Report
) -> dict[str, float]:
    """How well texts are reconstructed from the means of their latents: exact (%) and BLEU."""
    space = LatentSpace(setup.model, setup.data.task)
    outputs = space.decode(measures.means, config, report=report)
    texts = [best.text for best, *_ in outputs]
    truth = [setup.data.vocab.decode(text) for text in measures.texts]
    same = sum(a == b for a, b in zip(texts, truth, strict=True))
    score = bleu(texts, [[text] for text in truth])
    return {"exact": 100 * same / len(truth), "bleu": score.figures["bleu"]}


@torch.no_grad()
def measure_latent(setup: Setup, draws: int, max_tokens: int, report: Report) -> Measures:
    """All measures of the latent; `report` is called for every text in every draw."""
    texts: list[Ids] = []

    def batches(keep: bool = False) -> Iterator[Batch]:
        ids = np.arange(len(setup.data.train.bounds(0)))
        for batch in single_batches(setup.data.train, ids, max_tokens):
            if keep:
                texts.extend(text[:-1] for text in _asked_words(batch))  # without the end
            yield batch.to(setup.device)

    with setup.autocast():
        evidence = gather_evidence(setup.model, batches(keep=True), draws, report)
        check_finite(evidence.kl, KL)
        check_finite(evidence.bound, "the bound of the texts")
        gap = math.nan
        if len(texts) > 1:
            own_nll = nll_of(setup.model, batches(), evidence.z)
            gap = z_gap(setup.model, batches(), evidence.z, own_nll)
    tokens = sum(map(len, texts))
    units = units_of(setup, tokens, len(texts))
    units = units or Units.of(([text] for text in texts), setup.data.vocab.decode)
    figures = _figures(evidence, setup.criterion.objective, gap, units)
    notes = list(_notes(setup, figures, units.tokens / len(texts)))
    nats = evidence.kl.mean(0).tolist()
    return Measures(figures, nats, evidence.mean.numpy(), texts, notes)


def _figures(
    evidence: Evidence, objective: Callable[[Tensor], Tensor], gap: float, units: Units
) -> dict[str, float]:
    shared = evidence.figures(objective)
    return {
        "bound": -float(evidence.bound.mean()),
        "elbo": shared["reconstruction"] + shared["kl"],
        **shared,
        "dimensions": evidence.kl.shape[1],
        "z_gap": gap,
        **perplexities(-float(evidence.bound.sum()), units),
    }


def _asked_words(batch: Batch) -> list[Ids]:
    """The words that each doc is asked for."""
    ask = batch.asks[TEXT]
    doc = batch.towers[ask.tower][DOC].ravel()[ask.first]
    return np.split(ask.label, np.flatnonzero(np.diff(doc)) + 1)


def _notes(setup: Setup, figures: dict[str, float], length: float) -> Iterator[str]:
    beta = setup.criterion.config.beta
    step = setup.state["step"]
    steps = setup.state["config"].get("max_steps", "none")
    uniform = length * math.log(len(setup.data.vocab))
    words = "reconstruction means something, but bound, kl and perplexities are no VAE's"
    if beta.value == 0:
        yield f"trained with beta = 0: an autoencoder, whose divergence was left free; {words}"
    elif steps != "none" and step and not setup.criterion.beta(step - 1, int(steps)):
        yield f"saved at update {step:,}, while beta was 0: the divergence was free; {words}"
    elif figures["elbo"] > uniform:
        yield (
            f"a kl of {figures['kl']:.4g} nats a text is beyond sense: equal chances for all words"
            f" cost {uniform:.4g}, and ln M = {figures['mi_ceiling']:.2f} tell the texts apart;"
            " trained with too small a beta, or on other texts"
        )
    if figures["z_gap"] < IGNORED:
        yield "the decoder ignores the latent (posterior collapse): this is a language model"


def _lines(figures: dict[str, Any]) -> list[str]:
    gap = "-" if math.isnan(figures["z_gap"]) else f"{figures['z_gap']:.3f}"
    lines = [
        f"texts                   {figures['texts']:,}, with their ends {figures['tokens']:,}"
        f" tokens, {figures['words']:,} words, {figures['bytes']:,} bytes",
        f"bound                   {figures['bound']:.3f} nats a text (importance-weighted,"
        f" {figures['draws']} draws); ELBO {figures['elbo']:.3f}",
        f"  reconstruction        {figures['reconstruction']:.3f}",
        f"  kl                    {figures['kl']:.3f} (objective {figures['kl_objective']:.3f})",
        f"  kl, sorted            {bars(figures['kl_each'])}",
        f"perplexity at most      {figures['ppl_word']:.4g} a word, {figures['ppl_token']:.4g} a"
        f" token; {figures['bits_per_byte']:.4f} bits a byte",
        f"mutual information      {figures['mi']:.3f} of at most {figures['mi_ceiling']:.3f}"
        f" (ln {figures['texts']:,})",
        f"active units            {figures['active']} of {figures['dimensions']}",
        f"z-gap                   {gap} nats a text",
    ]
    if "exact" in figures:
        lines.append(
            f"written again           {figures['exact']:.2f} % exactly, BLEU {figures['bleu']:.2f}"
            " (from the mean of the latent)"
        )
    return [*lines, *(f"note: {note}" for note in figures["notes"])]
