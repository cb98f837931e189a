"""What a checkpoint is worth on a corpus: its objective, and all that can be said of a latent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unitk.config import Parsed
from unitk.criterions.cross_entropy import HEAD
from unitk.data.batching import FixedBatches, single_batches
from unitk.data.examples import Data, open_data
from unitk.data.storing.folders import is_corpus, parts
from unitk.errors import DataError
from unitk.latent.elbo import ELBO, Autoencoder
from unitk.latent.evidence import TEXT, gather, nll_of, partners
from unitk.latent.panel import IGNORED
from unitk.score.language import Units, perplexities, total
from unitk.slots import DOC, Batch, Ids
from unitk.training.config import CUT, TrainConfig
from unitk.training.means import Means
from unitk.training.saving import checkpoint
from unitk.training.saving.folder import reading
from unitk.training.saving.state import read_state
from unitk.training.start import check_vocab

NOISE = ("task.encoder_drop", "task.decoder_drop")
"""Options of the run that hide words: an autoencoder is judged on whole texts."""

Report = Callable[[int], None]


@dataclass(frozen=True)
class Judged:
    """A trained model, and texts laid out as its task does."""

    path: Path
    corpus: Path
    model: Any
    criterion: Any
    data: Data
    parsed: Parsed
    state: dict[str, Any]
    device: torch.device
    bf16: bool

    @property
    def has_latent(self) -> bool:
        """Whether it is an autoencoder."""
        return isinstance(self.model, Autoencoder) and isinstance(self.criterion, ELBO)

    @property
    def num_texts(self) -> int:
        """How many texts there are, each as often as there are tasks."""
        return len(self.data.train.examples.bounds(0)) * max(len(self.parsed.mixture), 1)

    @property
    def when(self) -> tuple[int, int]:
        """The step of the checkpoint and the last one of its run, as far as that was known."""
        step, last = self.state["step"], self.state["config"].get("max_steps", "none")
        return step, step if last == "none" else int(last)

    def autocast(self) -> AbstractContextManager[None]:
        """The precision to compute in."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)


def open_judged(path: Path, corpus: Path, device: torch.device, bf16: bool = False) -> Judged:
    """A run or checkpoint, and a corpus (or the valid/ of what `unitk preprocess` made)."""
    corpus = _corpus(corpus)
    return reading(path, lambda folder: _open_judged(folder, corpus, device, bf16))


def _open_judged(folder: Path, corpus: Path, device: torch.device, bf16: bool) -> Judged:
    state = read_state(folder)
    options = {key: state["config"][key] for key in CUT if key in state["config"]}
    most = state.get("lengths") or ()
    options |= {key: str(tokens) for key, tokens in zip(CUT[2:], most, strict=False)}
    options |= {key: "0.0" for key in NOISE if key in state["config"]}
    place = {"data": f"{corpus}=1", "valid": "none", "save_dir": str(folder), "max_steps": "1"}
    wanted = ("task", "arch", "criterion")
    parsed = checkpoint.components(state, folder, wanted, TrainConfig, options | place)
    data = open_data(parsed)
    check_vocab(state, data.vocab, folder)
    loaded = checkpoint.load(folder, device, next(iter(parsed.mixture), None))
    criterion = parsed.components["criterion"].config.build(data.vocab)
    return Judged(folder, corpus, loaded.model, criterion, data, parsed, state, device, bf16)


def _corpus(path: Path) -> Path:
    if is_corpus(path) or not path.is_dir():
        return path
    if "valid" in (found := parts(path)):
        return path / "valid"
    there = f"; it holds {', '.join(found)}: name one of them" if found else ""
    raise DataError(f"--data {path} is no corpus, and there is no valid/ in it{there}")


@torch.no_grad()
def objective(judged: Judged, max_tokens: int, report: Report) -> dict[str, float]:
    """Means of the objective by name, "loss", "lm", "lm/ppl", as validation computes them.

    The losses of mixed tasks are weighted by their shares when the checkpoint was saved.
    Where every word of the texts and their ends are predicted, perplexities in all units.
    """
    means, texts = Means(), list[Ids]()
    for number, batch in FixedBatches(judged.data.train.examples, max_tokens):
        texts += _texts(batch) if TEXT in batch.asks else []
        for ask in batch.asks.values():
            if ask.head == HEAD and (ask.label >= judged.model.trained).any():
                lacking = judged.data.vocab.pieces([int(ask.label.max())])[0]
                raise DataError(
                    f"--data: {ask.name} asks for {lacking}, which the imported model"
                    f" {judged.path} lacks: train it with --init-from first"
                )
        torch.manual_seed(number)  # for models that draw noise
        with judged.autocast():
            loss = judged.criterion(judged.model, batch.to(judged.device), 0, None)
        means.add({**loss.sums, **loss.parts}, judged.criterion.counts(batch))
        report(len(batch.owner))
    weights = judged.data.train.examples.loss_weights(*judged.when)
    found = {name[2:]: value for name, value in means.values("x", weights).items()}
    tokens = int(judged.data.train.lengths().sum()) + judged.num_texts
    labels = sum(len(text) + 1 for text in texts)
    if judged.data.kind == "text" and labels == means.counts.get(TEXT) == tokens:
        found |= _in_units(found[f"{TEXT}/nll"] * tokens, _units(judged, texts))
    return found


@dataclass(frozen=True)
class Latent:
    """An autoencoder on M texts."""

    figures: dict[str, float]
    """By name, see docs/latent-measures.md."""
    each: list[float]
    """Nats of divergence of each dimension."""
    means: np.ndarray
    """[M, Z]: the most likely latents."""
    texts: list[Ids]
    """The words of each text, in the same order."""
    notes: list[str]
    """What is absurd, and why."""


@torch.no_grad()
def latent(judged: Judged, draws: int, max_tokens: int, report: Report) -> Latent:
    """Everything about the latent; `report` hears of every text in every draw."""
    examples = judged.data.train.examples
    texts: list[Ids] = []

    def batches(keep: bool = False) -> Iterator[Batch]:
        ids = np.arange(len(examples.bounds(0)))
        for batch in single_batches(examples, ids, max_tokens):
            if keep:
                texts.extend(_texts(batch))
            yield batch.to(judged.device)

    with judged.autocast():
        seen = gather(judged.model, batches(keep=True), draws, report)
        count = len(texts)
        gap = math.nan
        if count > 1:
            other = nll_of(judged.model, batches(), seen.z[partners(count)])
            own = nll_of(judged.model, batches(), seen.z)
            gap = float((other - own).mean())
    units = _units(judged, texts)
    each = seen.kl.mean(0).tolist()
    reconstruction = float(seen.nll.mean())
    figures = {
        "bound": -float(seen.bound.mean()),
        "elbo": reconstruction + sum(each),
        "reconstruction": reconstruction,
        "kl": sum(each),
        "kl_objective": float(judged.criterion.objective(seen.kl)) / count,
        "mi": seen.mutual_information,
        "mi_ceiling": math.log(count),
        "active": seen.active,
        "dimensions": len(each),
        "z_gap": gap,
        **_in_units(-float(seen.bound.sum()), units),
    }
    notes = list(_notes(judged, figures, units))
    return Latent(figures, each, seen.mean.numpy(), texts, notes)


def _texts(batch: Batch) -> list[Ids]:
    """The labels of each doc; the last one, an end symbol, is left out."""
    ask = batch.asks[TEXT]
    doc = batch.towers[ask.tower][DOC].ravel()[ask.rows[:, 0]]
    return [part[:-1] for part in np.split(ask.label, np.flatnonzero(np.diff(doc)) + 1)]


def _units(judged: Judged, texts: list[Ids]) -> Units:
    decode = judged.data.vocab.decode
    return total(Units.of(decode(text), len(text)) for text in texts)


def _in_units(nats: float, units: Units) -> dict[str, float]:
    counts = {"tokens": units.tokens, "words": units.words, "bytes": units.size}
    return {**counts, **perplexities(nats, units)}


def _notes(judged: Judged, figures: dict[str, float], units: Units) -> Iterator[str]:
    beta, step = judged.criterion.config.beta, judged.state["step"]
    steps = judged.state["config"].get("max_steps", "none")
    uniform = units.tokens / units.texts * math.log(len(judged.data.vocab))
    words = "reconstruction means something, but bound, kl and perplexities are no VAE's"
    if beta.value == 0:
        yield f"trained with beta = 0: an autoencoder, whose divergence was left free; {words}"
    elif steps != "none" and step and not judged.criterion.beta(step - 1, int(steps)):
        yield f"saved at update {step:,}, while beta was 0: the divergence was free; {words}"
    elif figures["elbo"] > uniform:
        yield (
            f"a kl of {figures['kl']:.4g} nats a text is beyond sense: equal chances for all words"
            f" cost {uniform:.4g}, and ln M = {figures['mi_ceiling']:.2f} tell the texts apart;"
            " trained with too small a beta, or on other texts"
        )
    if figures["z_gap"] < IGNORED:
        yield "the decoder ignores the latent (posterior collapse): this is a language model"
