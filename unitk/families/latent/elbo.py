"""The evidence lower bound of a variational autoencoder with KL thresholding and a weight beta.

Optimus: Li et al. 2020, arXiv 2004.04092, sections 3.2 and 4.3. N texts, Z dimensions.
For dialogue, the losses of SpaceFusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from unitk.criterions.base import Loss, Panel, Trainable, totals
from unitk.errors import UsageError, require
from unitk.families.latent.components import ELBOConfig, FusionConfig
from unitk.families.latent.measures.evidence import TEXT
from unitk.families.latent.measures.panel import collapse
from unitk.slots import DOC, Ask, Batch


@runtime_checkable
class Autoencoder(Protocol):
    """The interface of a model that this criterion needs beside `Trainable`."""

    def posterior(self, batch: Batch) -> Any:
        """The distributions of the latents, with `sample` and `kl` [N, Z]."""

    def latent(self, z_NZ: Tensor, batch: Batch) -> Any:
        """The decoder's condition for these latents."""

    def generator_parameters(self) -> Any:
        """The parameters of the decoder and of what feeds it the latent."""


@dataclass(frozen=True)
class ELBO:
    """Sums over texts of the reconstruction in nats (rec) and of beta times the divergence (kl).

    Parts: the divergence itself (kl/raw), as the threshold counts it (kl/objective), and beta
    (kl/beta); per token also lm/nll and lm/correct. All use one draw of each latent.
    """

    config: ELBOConfig
    decoder: list[nn.Parameter] = field(default_factory=list, init=False)
    """The weights that --criterion.aggressive-steps leaves alone, once a model trains."""

    def counts(self, batch: Batch) -> dict[str, float]:
        texts = float(len(batch.owner))
        return {"rec": texts, "kl": texts, TEXT: batch.count[TEXT]}

    def __call__(
        self,
        model: Trainable,
        batch: Batch,
        step: int,
        total: int | None,
        noise_NZ: Tensor | None = None,
    ) -> Loss:
        """The sums at update `step` of `total`; `noise` determines the draws of the latents."""
        check_latent(model, "elbo")
        assert isinstance(model, Autoencoder)
        if model.training and self.config.aggressive_steps:
            # a weight without a gradient is left as it is by the optimizer, decay included
            both = not self.is_encoder_step(step, total)
            if not self.decoder:  # frozen weights stay so
                self.decoder.extend(p for p in model.generator_parameters() if p.requires_grad)
            # a first try, which computes no gradients, leaves all as it is
            for parameter in self.decoder if torch.is_grad_enabled() else ():
                parameter.requires_grad_(both)
        posterior = model.posterior(batch)
        states, _ = model(batch, model.latent(posterior.sample(noise_NZ), batch))
        ask = batch.asks[TEXT]
        terms = model.answer(states, batch, [ask], self.price(batch, ask))
        [(rec, nll, correct)] = totals(terms, [ask])
        assert nll is not None and correct is not None
        kl_NZ = posterior.kl()
        objective = self.objective(kl_NZ)
        beta = self.beta(step, total) if model.training else float(self.config.beta.value)
        return Loss(
            {"rec": rec, "kl": beta * objective},
            {
                "kl/raw": kl_NZ.detach().sum(),
                "kl/objective": objective.detach(),
                "kl/beta": torch.full_like(objective, beta * len(kl_NZ)),
                "lm/nll": nll,
                "lm/correct": correct,
            },
        )

    def panel(
        self, model: Any, batches: Sequence[Batch], step: int, total: int | None
    ) -> Panel | None:
        """The panel: reconstruction, divergence, mutual information, and the z-gap."""
        when = step, total
        return collapse(model, batches, self.config, self.objective, self.beta(*when), when)

    def whole_update(self) -> str:
        """The option that requires whole updates: a part does not know the mean over all texts."""
        return "--criterion.kl-mode mean-hinge" if self.config.kl_mode == "mean-hinge" else ""

    def beta(self, step: int, total: int | None) -> float:
        """The weight of the divergence at update `step` (from 0)."""
        return float(self.config.beta(step + 1, total))

    def objective(self, kl_NZ: Tensor) -> Tensor:
        """The part of the loss that the divergences make, as a sum over texts."""
        limit = self.config.kl_threshold
        match self.config.kl_mode:
            case "sum":
                return kl_NZ.sum()
            case "mask":
                return torch.where(kl_NZ > limit, kl_NZ, 0).sum()
            case "hinge":
                return kl_NZ.clamp(min=limit).sum()
            case "mean-hinge":
                return len(kl_NZ) * kl_NZ.mean(0).clamp(min=limit).sum()

    def price(self, batch: Batch, ask: Ask) -> Tensor:
        """The weight of a nat of each word, which may be smaller in long texts."""
        weight_K: Tensor = ask.weight
        if not self.config.length_weighted:
            return weight_K
        doc_K = batch.towers[ask.tower][DOC].flatten()[ask.first]
        length_N = torch.bincount(doc_K, minlength=len(batch.owner)) + 1  # begin is not asked for
        return weight_K / length_N[doc_K]

    def is_encoder_step(self, step: int, total: int | None) -> bool:
        """Whether update `step` trains the encoder only."""
        cycle = self.config.aggressive_steps + 1
        if total is None:
            raise UsageError("--criterion.aggressive-steps needs the run's end: give --max-steps")
        return step < self.config.aggressive_share * total and (step + 1) % cycle != 0


@dataclass(frozen=True)
class Fusion:
    """Sums over docs of the reconstruction in nats (rec) and over pairs of the distances (fusion).

    E pairs have three docs each: a response from the context's latent, from its own, and from one
    between them. Parts: the distances within pairs (fusion/pull) and to the nearest others, of
    contexts and of responses (fusion/push), in units of the root of Z; per token also lm/nll and
    lm/correct.
    """

    config: FusionConfig

    def counts(self, batch: Batch) -> dict[str, float]:
        docs = float(len(batch.owner))
        return {"rec": docs, "fusion": docs / 3, TEXT: batch.count[TEXT]}

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        check_latent(model, "fusion")
        assert isinstance(model, Autoencoder)
        three = len(batch.owner) == 3 * (int(batch.owner.max()) + 1)
        require(three, "--criterion fusion is for --task optimus --task.fusion on")
        # of each pair: the context, the response, and a place for what is between them
        said_EZ, own_EZ, _ = model.posterior(batch).mean.unflatten(0, (-1, 3)).unbind(1)
        part_E1 = torch.rand_like(own_EZ[:, :1])
        noise_EZ = torch.randn_like(own_EZ)
        between_EZ = said_EZ + part_E1 * (own_EZ - said_EZ) + self.config.noise * noise_EZ
        z_NZ = torch.stack([said_EZ, own_EZ, between_EZ], 1).flatten(0, 1)
        states, _ = model(batch, model.latent(z_NZ, batch))
        ask = batch.asks[TEXT]
        [(rec, nll, correct)] = totals(model.answer(states, batch, [ask]), [ask])
        assert nll is not None and correct is not None
        unit = said_EZ.shape[1] ** 0.5
        pull = (own_EZ - said_EZ).norm(dim=1).sum() / unit
        push = (nearest_distances(said_EZ) + nearest_distances(own_EZ)) / unit
        return Loss(
            {"rec": rec, "fusion": self.config.beta * (pull - push)},
            {
                "fusion/pull": pull.detach(),
                "fusion/push": push.detach(),
                "lm/nll": nll,
                "lm/correct": correct,
            },
        )

    def whole_update(self) -> str:
        """The option that requires whole updates: neighbours are those of the whole update."""
        return "--criterion fusion"


def nearest_distances(z_EZ: Tensor) -> Tensor:
    """The sum over latents of the distance to the nearest other one; 0 where there is none."""
    if len(z_EZ) < 2:
        return z_EZ.new_zeros(())
    # in the official code a latent is its own neighbour, so that nothing is pushed
    itself_EE = torch.eye(len(z_EZ), dtype=torch.bool, device=z_EZ.device)
    return torch.cdist(z_EZ, z_EZ).masked_fill(itself_EE, torch.inf).amin(1).sum()


def check_latent(model: Trainable, criterion: str) -> None:
    """`UsageError` unless the model has a latent."""
    has = isinstance(model, Autoencoder)
    require(has, f"--criterion {criterion} needs an --arch with a latent, such as optimus_small")
