"""The latent space of a trained autoencoder: texts become points, points become texts.

    loaded = unitk.load("runs/vae")
    space = LatentSpace(loaded.model, loaded.task)
    a, b = space.encode(["a man sleeps .", "two dogs run ."]).mean
    space.decode(path(a, b, 9, "lerp")[1], beam=1)

N texts, Z dimensions of the latent, D of the encoder's states.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unitk.decoding.config import GenerateConfig, make_config, slope
from unitk.decoding.constraints.base import Constraint, Constraints, word_rules
from unitk.decoding.constraints.searches import OnStep
from unitk.decoding.decode import generate
from unitk.decoding.drivers import DIFFUSION
from unitk.decoding.fit import batch_prompts, lay_out_to_fit, measure_overrun, search_protocol
from unitk.decoding.texts.outputs import Output
from unitk.decoding.texts.sentences import choose_outputs
from unitk.decoding.texts.sources import as_strings
from unitk.errors import DataError, UsageError, require
from unitk.families.latent.model import LatentModel
from unitk.families.latent.space.geometry import Points
from unitk.models.base import Decoder
from unitk.models.state import Condition
from unitk.options.fields import flag
from unitk.progress import Report, no_report
from unitk.slots import Batch, Example, collate
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import check_finite

KL = "the divergence of the latents"
LITTLE = 0.1  # nats of divergence a text below which a decoder cannot be told much

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Latents:
    """The posteriors of texts, as arrays with one row a text."""

    mean: Points  # [N, Z]: the most likely latents
    std: Points  # [N, Z]: how exactly the encoder knows them
    kl: Points  # [N, Z]: nats that each dimension tells of a text
    pooled: Points  # [N, D]: the encoder's feature, of which the latent is made

    def draw(self, rng: np.random.Generator, spread: float = 1.0) -> Points:
        """One latent of each text [N, Z]; `spread` scales the deviation from the mean."""
        noise = rng.standard_normal(self.mean.shape, np.float32)
        return self.mean + spread * self.std * noise


class LatentSpace:
    """A model with a latent, and its task: both ways between texts and points."""

    def __init__(self, model: Decoder, task: Task) -> None:
        protocol = search_protocol(task, model.trained)
        if not isinstance(model, LatentModel) or protocol is None:
            raise UsageError(f"--checkpoint: task {task.name} has no latent space; optimus has one")
        self.model = model.eval()
        self.task = task
        self.protocol = protocol
        self.weight = model.bridge.weight

    @property
    def dimensions(self) -> int:
        """Z, the dimensions of a latent."""
        return self.model.config.latent

    @torch.inference_mode()
    def encode(
        self,
        texts: str | Sequence[str],
        *,
        truncate: bool = False,
        max_tokens: int = 16384,
        report: Report = no_report,
    ) -> Latents:
        """The posteriors of texts; equal texts have equal ones, whatever is encoded with them.

        A string is a single text. A text that is too long raises DataError, or is shortened if
        `truncate` is set. A model whose latents are infinite raises NonFiniteError.
        """
        texts = as_strings(texts)
        # equal texts are encoded once
        row_of = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        encoded = self.task.vocab.encode_batch(list(row_of))
        prompts = [
            self._prompt(text, ids, truncate) for text, ids in zip(row_of, encoded, strict=True)
        ]
        rows: list[tuple[Tensor, ...]] = [()] * len(prompts)
        for numbers in batch_prompts(prompts, max_tokens):
            batch = collate([[prompts[i]] for i in numbers])
            feature = self.model.feature(batch.to(self.weight.device))
            posterior = self.model.posterior_of(feature)
            parts = posterior.mean, (posterior.logvar / 2).exp(), posterior.kl(), feature
            for i, *row in zip(numbers, *(part.float().cpu() for part in parts), strict=True):
                rows[i] = tuple(row)
            report(len(numbers))
        if not texts:
            none = np.empty((0, self.dimensions), np.float32)
            return Latents(none, none, none, np.empty((0, self.weight.shape[1]), np.float32))
        tables = [torch.stack(column) for column in zip(*rows, strict=True)]
        mean, std, kl, pooled = (table.numpy() for table in tables)
        check_finite(tables[2], KL)
        if (nats := kl.sum(1).mean()) < LITTLE:
            log.warning(
                "the latents tell %.3f nats a text: the decoder writes the same whatever they are "
                "(posterior collapse, see docs/latent.md)",
                nats,
            )
        places = [row_of[text] for text in texts]
        return Latents(mean[places], std[places], kl[places], pooled[places])

    def decode(
        self,
        points: Points,
        config: GenerateConfig | None = None,
        *,
        report: Report = no_report,
        on_step: OnStep | None = None,
        **options: object,
    ) -> list[list[Output]]:
        """The n best texts for each point [N, Z]; `options` are those of GenerateConfig.

        `on_step` follows the steps of the search.
        """
        config = make_config(GenerateConfig, options) if config is None else config
        _check_options(config, self.weight.device)
        whole = self.task.prompt([np.empty(0, np.int64)])
        prompt = replace(whole, towers={"dec": whole.towers["dec"]})
        sized = Constraint().with_lengths(config, 0)
        over, _ = measure_overrun(prompt, self.protocol, sized.max_len, self.model.config)
        at_most = sized.max_len - over
        require(over <= 0, f"--max-len must be at most {at_most}, got {sized.max_len}")
        table = torch.as_tensor(points).to(self.weight)
        fits = table.dim() == 2 and table.shape[1] == self.dimensions
        require(fits, f"points must be [N, {self.dimensions}], got {list(table.shape)}")

        def conditions(batch: Batch, numbers: Sequence[int]) -> Condition:
            return self.model.latent(table[list(numbers)], batch)

        constraints = Constraints([sized] * len(points), word_rules(config, self.task.vocab))
        searched = generate(
            self.model,
            [prompt] * len(points),
            self.protocol,
            config.searching,
            report,
            conditions,
            constraints=constraints,
            on_step=on_step,
        )
        spell = partial(self.task.text, [])
        protocol, limit = self.protocol, sized.max_len
        return [choose_outputs(spell, best, config, protocol, limit) for best in searched]

    def prior(self, count: int, seed: int, spread: float = 1.0) -> Points:
        """Draw points of N(0, spread) [count, Z]; a larger count begins with the same points."""
        rng = np.random.default_rng(seed)
        return spread * rng.standard_normal((count, self.dimensions), np.float32)

    def _prompt(self, text: str, ids: npt.NDArray[np.integer[Any]], truncate: bool) -> Example:
        def excess(prompt: Example) -> int:
            return measure_overrun(prompt, self.protocol, 1, self.model.config)[0]

        prompt, _ = lay_out_to_fit([ids.astype(np.int64)], self.task.prompt, excess, truncate)
        if excess(prompt) > 0:
            raise DataError(
                f"{text[:40]!r}... is too long for the encoder by {excess(prompt)} tokens; "
                "--truncate shortens it"
            )
        return prompt


def _check_options(config: GenerateConfig, device: torch.device) -> None:
    """Refuse options of generation that do nothing where a point is written as a text."""
    sourced = "key_phrases", "extract", "avoid_part", "max_source_len"
    config.idle("has no effect: a point has no source", *sourced)
    for name in ("min_len", "max_len"):
        follows = slope(getattr(config, name)) > 0
        require(not follows, f"{flag(name)} must be a number: a point has no source to follow")
    own = type(config).steps != GenerateConfig.steps  # those of `interpolate` and `traverse`
    names = [name for name in DIFFUSION if not (own and name == "steps")]
    config.idle("has no effect: an autoencoder does not diffuse", *names)
    config.idle("has no effect without blanks", "rerank")
    on_gpu = device.type == "cuda"
    require(on_gpu or config.capture != "on", "--capture on has an effect on a GPU only")
