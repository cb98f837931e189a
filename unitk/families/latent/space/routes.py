"""The addresses of a server at which an autoencoder answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from unitk.decoding.config import GenerateConfig, length
from unitk.decoding.files.outputs import list_numbers
from unitk.decoding.texts.sources import as_strings
from unitk.errors import require
from unitk.families.latent.model import LatentModel
from unitk.families.latent.space import geometry
from unitk.families.latent.space.points import LatentSpace
from unitk.progress import Report
from unitk.registry import register
from unitk.serving.batching import Job
from unitk.serving.route import Route, count_written
from unitk.slots import Ids

LARGEST = 1e9
"""Coordinates of a latent are smaller, so that sums of their squares fit into 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Encoding of texts as latents."""

    truncate: bool = False
    """Truncate a text that is too long for the encoder, instead of refusing it."""


@dataclass(frozen=True, kw_only=True)
class Walking(GenerateConfig):
    """Texts along a path between two texts."""

    steps: int = 9
    """Points on the path, both ends included."""
    path: geometry.Curve = "lerp"
    """A straight line, or an arc around the origin."""


class LatentRoute(Route):
    """A request to a model with a latent space."""

    fits = staticmethod(
        lambda generator: (
            generator.protocol is not None and isinstance(generator.model, LatentModel)
        )
    )

    @cached_property
    def space(self) -> LatentSpace:
        """The latent space of the model."""
        return LatentSpace(self.generator.model, self.generator.task)

    def walk(self, points: Callable[[], geometry.Points], steps: int) -> Job:
        """The job of decoding points, which are found when it is computed."""

        def decode(walks: list[Any], report: Report) -> list[Any]:
            def on_step(at: int, ids: Ids) -> None:
                report(0)

            return [self.space.decode(walk(), self.config, on_step=on_step) for walk in walks]

        cost = steps * self.config.width * max(1, length(self.config.max_len, 0))
        job = self.batch_job([points], decode, lambda walks: self.records(walks[0]), cost)
        job.read = 0  # points are no texts
        return count_written(job, chain.from_iterable)

    def count(self, texts: list[str]) -> int:
        """The tokens of texts."""
        return sum(len(self.generator.vocab.encode(text)) for text in self.while_awaited(texts))


@register("route", "latent/encode")
class EncodeRoute(LatentRoute):
    """The most likely latent of each text."""

    Options = Encoding

    def job(self) -> Job:
        texts = self.read_texts("texts", as_strings)
        few = 8

        def encode(texts: list[Any], report: Report) -> list[Any]:
            latents: list[Any] = []
            how = {"truncate": self.config.truncate, "max_tokens": self.limits.max_tokens}
            # texts are read here, too: a few at a time, so that this ends when nobody waits
            for start in range(0, len(texts), few):
                report(0)
                latents += list(self.space.encode(texts[start : start + few], **how).mean)
            return latents

        def answer(latents: list[Any]) -> Any:
            return {"points": [*map(list_numbers, latents)]}

        return self.batch_job(texts, encode, answer, self.count(texts))


@register("route", "latent/decode")
class DecodeRoute(LatentRoute):
    """The n best texts for each point."""

    Options = GenerateConfig
    takes = ("points",)

    def job(self) -> Job:
        points = self.read_field("points", list)
        size = self.space.dimensions
        fits = all(isinstance(point, list) and len(point) == size for point in points)
        numbered = (type(x) in (int, float) and abs(x) < LARGEST for p in points for x in p)
        fits = fits and all(numbered)
        require(
            fits and points != [],
            f"points must be a list of lists of {size} numbers below {LARGEST:g}",
        )
        self.check_count("points", len(points))
        return self.walk(lambda: np.array(points, np.float32), len(points))


@register("route", "latent/interpolate")
class InterpolateRoute(LatentRoute):
    """The texts on a path between two texts."""

    Options = Walking

    def job(self) -> Job:
        pair = self.read_texts("texts", as_strings)
        require(len(pair) == 2, f"texts must be two strings, got {len(pair)}")
        require(self.config.steps >= 2, f"steps must be at least 2, got {self.config.steps}")
        self.check_count("steps", self.config.steps)

        # encoded when it is computed: the model works in one thread
        def points() -> geometry.Points:
            begin, end = self.space.encode(pair).mean
            return geometry.path(begin, end, self.config.steps, self.config.path)[1]

        job = self.walk(points, self.config.steps)
        job.read = self.count(pair)
        return job
