"""The addresses that every model may answer at; families of models register more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from unitk.api.drawing import drawings, lay_out_text
from unitk.decoding.blanks import is_ranked, refill, searches
from unitk.decoding.config import LOCAL, EmbedConfig, GenerateConfig, PredictConfig
from unitk.decoding.drivers import Prompt, Running, Watcher
from unitk.decoding.files.defaults import select_defaults, select_scored
from unitk.decoding.files.outputs import list_numbers
from unitk.decoding.fit import round_up
from unitk.decoding.forced import check_layer
from unitk.decoding.generator import Generator
from unitk.decoding.search import Hypothesis, longest
from unitk.decoding.texts.outputs import NO_WORDS, Output
from unitk.decoding.texts.sentences import stable_part
from unitk.decoding.texts.sources import Sources, as_strings
from unitk.decoding.understand.embed import embed
from unitk.errors import require
from unitk.options.fields import Checked, Count
from unitk.progress import Report
from unitk.registry import register
from unitk.serving import route
from unitk.serving.batching import Abandoned, Job, Stream
from unitk.slots import Ids

SHOWN = 100
"""The most slots of a mask that is shown."""


@dataclass(frozen=True, kw_only=True)
class Aligning(GenerateConfig):
    """Options of outputs with alignments to the words of the source."""

    alignment_layer: int | None = None
    """Decoder layer for alignments, counted from 1. 0: the last."""


@dataclass(frozen=True, kw_only=True)
class Filling(GenerateConfig):
    """Options of filling blanks."""

    lenpen: float = GenerateConfig.INFILL_LENPEN


@dataclass(frozen=True, kw_only=True)
class Showing(Checked):
    """Options of showing a text laid out as in training."""

    seed: Count = 0
    """Seed of the random draws."""


@dataclass(frozen=True)
class RequestedPrompt:
    """A prompt of a request, which is decoded in a batch with those of other requests."""

    prompt: Prompt
    """It has the text's number within the request, whatever is computed beside it."""
    on_ids: Callable[[Ids], bool | None] | None = None
    """Receives the words so far, and says whether they are all that is needed."""


@dataclass(frozen=True)
class DecodingSteps:
    """Decodes prompts step by step."""

    generator: Generator
    config: GenerateConfig

    def begin(self, items: Sequence[RequestedPrompt]) -> Running:
        return self.generator.driver.begin([item.prompt for item in items], self.config.searching)

    def columns(self, items: Sequence[RequestedPrompt]) -> int:
        examples = [item.prompt.example for item in items]
        slots = max(len(tower) for example in examples for tower in example.towers.values())
        blanks = max(len(example.blanks) for example in examples)
        words = longest(blanks, max(item.prompt.constraint.max_len for item in items))
        return round_up(slots) + self.config.width * words

    def result(self, item: RequestedPrompt, best: list[Hypothesis]) -> list[Output]:
        return self.generator.texts(item.prompt, best, self.config)

    def follower(self, item: RequestedPrompt) -> Callable[[Ids], bool | None] | None:
        return item.on_ids


@dataclass(frozen=True)
class DecodingRoute(route.Route):
    """A request for outputs."""

    fill_defaults = staticmethod(select_defaults)

    def read(self) -> tuple[list[list[Ids]], GenerateConfig]:
        """The ids of the sources, and the options with the limit on their length."""
        ids_of_sources = list[list[Ids]]()
        config = self.config
        chosen = {*self.body, *self.generator.defaults}
        for parts in self.while_awaited(self.texts):
            [ids], config = self.generator.read([parts], self.config, chosen)
            ids_of_sources += self.check_lengths([ids], len(ids_of_sources))
        return ids_of_sources, config

    def prompts(self, sources: Sources, config: GenerateConfig) -> tuple[list[Prompt], int]:
        """The prompts of sources, and what their outputs cost."""
        prompts = self.generator.prompts(sources, config)
        cost = 0
        for prompt in prompts:
            words = prompt.constraint.max_len * (1 + len(prompt.example.blanks))
            limit = self.limits.max_output
            require(
                words <= limit,
                f"text {prompt.number + 1}: {words} tokens of output; the server allows {limit}",
            )
            cost += sum(map(len, prompt.example.towers.values())) + config.width * words
        return prompts, cost

    def decoding_job(
        self,
        sources: Sources,
        config: GenerateConfig,
        layer: int | None = None,
        finish: Callable[[list[list[Ids]], list[list[Output]]], Any] | None = None,
    ) -> Job:
        """The job of decoding sources; `finish` replaces their outputs."""
        prompts, cost = self.prompts(sources, config)
        if layer is not None:
            check_layer(self.generator.model, layer)  # before a search that would be in vain
            longest = [
                prompt.constraint.max_len * len(prompt.example.towers["enc"]) for prompt in prompts
            ]
            weights = config.nbest * sum(longest)
            require(
                weights <= route.WEIGHTS,
                f"alignment_layer: {weights:,} weights, but an answer may have {route.WEIGHTS:,}: "
                "ask for fewer or shorter outputs",
            )
            cost += weights // route.NUMBERS_A_TOKEN

        def answer(results: list[list[Output]]) -> Any:
            ids = list(sources.ids)
            outputs = [[NO_WORDS] for _ in sources.ids]
            for prompt, best in zip(prompts, results, strict=True):
                ids[prompt.number] = prompt.source
                outputs[prompt.number] = best
            return self.records(finish(ids, outputs) if finish else outputs)

        if layer is None and self.generator.driver.steps:
            # whatever their seeds are, requests are drawn together
            prompts = [replace(prompt, seed=config.seed) for prompt in prompts]
            config = replace(config, seed=GenerateConfig.seed)
        job = self.decode_prompts(
            [RequestedPrompt(prompt) for prompt in prompts], config, answer, cost, layer
        )
        job.read = route.count_tokens(sources.ids)
        return job

    def decode_prompts(
        self,
        items: list[RequestedPrompt],
        config: GenerateConfig,
        answer: Callable[[list[list[Output]]], Any],
        cost: int,
        layer: int | None = None,
    ) -> Job:
        """The job of decoding prompts, which counts the tokens that are written."""
        act = partial(decode_prompts, self.generator, config, layer)
        key = "decode", self.generator, config, layer
        job = route.count_written(Job(key, items, act, answer, cost))
        # alignments are made of whole outputs
        if layer is None and self.generator.driver.steps:
            job.steps = DecodingSteps(self.generator, config)
        return job


@register("route", "generate")
class GenerateRoute(DecodingRoute):
    """The n best outputs for each text."""

    Options = Aligning
    takes = ("texts", "prefixes", "constraints", "truncate", "stream")

    @classmethod
    def translate(cls, body: dict[str, Any]) -> dict[str, Any]:
        # of several draws, nobody knows which one stays until all have ended
        return {"best_of": 1, **body} if body.get("stream") is True else body

    @staticmethod
    def fits(generator: Generator) -> bool:
        return generator.task.generates

    def job(self) -> Job:
        ids, config = self.read()
        phrases = self.read_field("constraints", list, [])
        for words in phrases:
            self.check_count("constraints", len(words) if isinstance(words, list) else 1)
        prefixes = self.read_texts("prefixes", as_strings) if self.body.get("prefixes") else []
        truncate = self.read_field("truncate", bool, self.generator.task.trained.pairs)
        sources = Sources(ids, self.generator.constraints(prefixes, phrases), truncate)
        job = self.decoding_job(sources, config, self.config.alignment_layer)
        if self.read_field("stream", bool, False):
            alone = self.config.sampling and self.config.width == 1 and len(job.items) == 1
            require(alone, "stream needs one text, and sampling with nbest and best_of 1")
            # it alone tells of its words; the job may be joined with others that do not
            job.items[0] = replace(job.items[0], on_ids=self.tell(job.items[0].prompt))
            job.stream = Stream()
        return job

    def tell(self, prompt: Prompt) -> Callable[[Ids], None] | None:
        """A callback that sends the text of the words so far."""
        if (on_text := self.on_text) is None:
            return None
        sent = ""

        def tell(ids: Ids) -> None:
            nonlocal sent
            text = stable_part(self.generator.task.text(prompt.source, ids), self.config)
            if text != sent:
                sent = text
                on_text(text)

        return tell


@register("route", "infill")
class InfillRoute(DecodingRoute):
    """The n best ways to fill the blanks of each text."""

    Options = Filling
    bars = LOCAL

    @staticmethod
    def fill_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        return select_defaults({}, given)  # those of a checkpoint are not for blanks

    @staticmethod
    def fits(generator: Generator) -> bool:
        return generator.task.infills

    def job(self) -> Job:
        generator, config = self.generator, self.config
        texts = list(self.while_awaited(self.read_texts("texts", as_strings)))
        sources = Sources(self.check_lengths(generator.encode_blanks(text) for text in texts))
        if not is_ranked(generator.task, config, generator.reader is not None):
            return self.decoding_job(sources, config, finish=partial(refill, generator.task, texts))
        _, cost = self.prompts(sources, config)

        def fill(pairs: list[Any], report: Report) -> list[list[Output]]:
            report(0)
            blanked, ids = zip(*pairs, strict=True)
            watch = Watcher(report, lambda at, ids: report(0))
            return generator.fill(blanked, Sources(ids), config, watch=watch)

        pairs = list(zip(texts, sources.ids, strict=True))
        job = self.batch_job(pairs, fill, self.records, cost * len(searches(config)))
        job.read = route.count_tokens(sources.ids)
        return route.count_written(job)


@register("route", "score")
class ScoreRoute(DecodingRoute):
    """The scores of given outputs, one for each text."""

    Options = GenerateConfig
    takes = ("texts", "targets")
    fill_defaults = staticmethod(select_scored)

    @staticmethod
    def fits(generator: Generator) -> bool:
        return generator.protocol is not None

    def job(self) -> Job:
        targets = self.read_texts("targets", as_strings)
        idle = {*self.body} & {*self.options()} - {*self.config.scored(self.config.search)}
        self.config.idle("has no effect with targets", *idle)
        require(
            len(targets) == len(self.texts), f"targets: {len(targets)} for {len(self.texts)} texts"
        )
        sources, config = self.read()
        ids_of_targets = [ids for (ids,) in self.encode([[target] for target in targets])]

        def score(pairs: list[Any], report: Report) -> list[list[Output]]:
            ids, outputs = zip(*pairs, strict=True)
            scored = Sources(ids, truncate=None)
            return self.generator.scores(scored, outputs, config, watch=Watcher(report))

        def answer(results: list[list[Output]]) -> Any:
            return {"outputs": [self.record((best or [NO_WORDS])[0]) for best in results]}

        pairs = list(zip(sources, ids_of_targets, strict=True))
        cost = sum(map(len, ids_of_targets)) + route.count_tokens(sources)
        return self.batch_job(pairs, score, answer, cost, config)


@register("route", "predict")
class PredictRoute(route.Route):
    """The prediction of a fine-tuned model for each text."""

    Options = PredictConfig

    @staticmethod
    def fits(generator: Generator) -> bool:
        return generator.task.predicts

    def job(self) -> Job:
        task: Any = self.generator.task
        cost = route.count_tokens(self.encode([task.texts(parts) for parts in self.texts]))

        def compute(texts: list[Any], report: Report) -> list[Any]:
            return self.generator.predictions(texts, self.config, report=report)

        return self.batch_job(
            self.texts, compute, lambda predictions: {"predictions": predictions}, cost
        )


@register("route", "embed")
class EmbedRoute(route.Route):
    """A vector for each text."""

    Options = EmbedConfig

    def job(self) -> Job:
        sources = self.encode(self.texts)
        return embed_sources(
            self, sources, lambda vectors: {"vectors": [*map(list_numbers, vectors)]}
        )


def embed_sources(
    request: route.Route, sources: list[list[Ids]], answer: Callable[[list[Any]], Any]
) -> Job:
    """The job of vectors for sources, with the options of `EmbedConfig`."""
    generator, config = request.generator, request.config
    model, cost = route.model_of(generator), route.count_tokens(sources)
    size = model.reader.config.width * (cost if config.pool == "none" else len(sources))
    require(
        size <= route.WEIGHTS,
        f"pool {config.pool}: {size:,} numbers, but an answer may have {route.WEIGHTS:,}: "
        "ask for fewer or shorter texts",
    )

    def compute(items: list[Any], report: Report) -> list[Any]:
        return embed(model, generator.task, items, config, report=report)

    job = request.batch_job(sources, compute, answer, cost + size // route.NUMBERS_A_TOKEN)
    job.read = cost
    return job


@register("route", "show")
class ShowRoute(route.Route):
    """The slots and the mask of a text, as a task lays it out."""

    Options = Showing
    takes = ("texts", "target")

    def job(self) -> Job:
        require(len(self.texts) == 1, f"texts must have one text, got {len(self.texts)}")
        (parts,) = self.texts
        task = self.generator.task
        alone = len(parts) == 1 or task.predicts
        require(alone, "texts must be a list of one string; its target is the field target")
        require(any(part.strip() for part in parts), "texts: the text has no words")
        has_target = self.body.get("target")
        target, *more = self.read_texts("target", as_strings) if has_target else [None]
        require(not more, f"target must be one string, got {1 + len(more)}")
        rng = np.random.default_rng([self.config.seed, 0, 0])
        # laid out at once: that needs no model, so no request has to wait for it
        pictures = drawings(task.name, task, lay_out_text(task, parts, target, rng))
        slots = max(len(picture.slots) for picture in pictures)
        require(slots <= SHOWN, f"texts: text 1 has {slots} slots; {SHOWN} can be shown")
        towers = [picture.record() for picture in pictures]
        return self.batch_job(
            [towers], lambda items, _: items, lambda towers: {"towers": towers[0]}, 0
        )


def decode_prompts(
    generator: Generator,
    config: GenerateConfig,
    layer: int | None,
    items: list[RequestedPrompt],
    gone: route.Gone,
) -> list[list[Output]]:
    """The n best outputs for prompts of several requests; batching does not change draws."""

    def report(done: int) -> None:
        if gone():
            raise Abandoned

    def on_step(at: int, ids: Ids) -> None:
        report(0)  # after each token, so that a long output ends soon
        if (on_ids := items[at].on_ids) is not None:
            on_ids(ids)

    prompts = [item.prompt for item in items]
    return generator.decode(prompts, config, Watcher(report, on_step), layer)
