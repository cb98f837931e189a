"""Addresses of the server: what a request to each may say, what is computed for it, and answered.

    @register("route", "embed")
    class EmbedRoute(Route):
        Options, takes = EmbedConfig, ("texts",)

        def job(self) -> Job: ...

An instance is one request. What it reads is checked before it enters the queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from unitk import registry
from unitk.decoding.config import BLANKS_ONLY, LOCAL
from unitk.decoding.generator import Generator
from unitk.decoding.texts.outputs import Output
from unitk.decoding.texts.sources import Parted, split_parts
from unitk.errors import UsageError, require
from unitk.foreign import JSON_NAMES
from unitk.models.model import Model
from unitk.progress import Report
from unitk.serving.batching import Abandoned, Job
from unitk.serving.config import Limits
from unitk.slots import Ids

Gone = Callable[[], bool]
Kind = TypeVar("Kind")

WEIGHTS = 1_000_000
"""The most weights of alignments, or numbers of vectors, in an answer."""
NUMBERS_A_TOKEN = 10
"""Numbers of an answer that need as much memory as a token of a request."""


@dataclass(frozen=True)
class Route(ABC):
    """A request to one task of a model."""

    Options: ClassVar[type]
    """The class of its options."""
    bars: ClassVar[tuple[str, ...]] = (*LOCAL, *BLANKS_ONLY)
    """Options that requests do not have."""
    takes: ClassVar[tuple[str, ...]] = ("texts",)
    """The fields of a request beside its options."""
    needs: ClassVar[str] = ""  # the models that it is for, in the error of others
    listed: ClassVar[bool] = True  # whether `/model` names it among what a model can do

    generator: Generator
    body: dict[str, Any]
    config: Any
    limits: Limits
    gone: Gone
    """Whether nobody waits for the answer any more, so that it need not be read to its end."""
    on_text: Callable[[Any], None] | None = None
    """Receives the text so far, of a stream."""

    @staticmethod
    def fill_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Of the options of a checkpoint, those of a request that does not give them."""
        return {}

    @classmethod
    def translate(cls, body: dict[str, Any]) -> dict[str, Any]:
        """The fields of a request under their names here; raises UsageError."""
        return body

    @classmethod
    def refuse(cls, status: int, message: str, error: BaseException | None) -> tuple[int, Any]:
        """Status and body of a refusal; `error` is what it is for, if that is known."""
        return status, {"error": message}

    @staticmethod
    def fits(generator: Generator) -> bool:
        """Whether a model with this task can answer."""
        return True

    @staticmethod
    def preferred(generator: Generator) -> bool:
        """Whether this task is to answer rather than others that can."""
        return True

    @abstractmethod
    def job(self) -> Job:
        """Read the request, and make its job; raises UsageError and DataError."""

    @classmethod
    def options(cls) -> list[str]:
        """The names of the options that a request may have."""
        return [option.name for option in fields(cls.Options) if option.name not in cls.bars]

    @cached_property
    def texts(self) -> list[Sequence[str]]:
        """The parts of each text."""
        return self.read_texts("texts", split_parts)

    def while_awaited(self, values: Iterable[Kind]) -> Iterator[Kind]:
        """Yield values one after the other while the client waits."""
        for value in values:
            if self.gone():
                raise Abandoned
            yield value

    def check_lengths(self, encoded: Iterable[list[Ids]], first: int = 0) -> list[list[Ids]]:
        """Texts none of which is a batch too large, since within one nothing can be given up."""
        texts = list[list[Ids]]()
        limit = self.limits.max_tokens
        for number, ids in enumerate(encoded, first + 1):
            tokens = count_tokens([ids])
            require(
                tokens <= limit,
                f"text {number} has {tokens:,} tokens; the server reads {limit:,} at a time",
            )
            texts.append(ids)
        return texts

    def encode(self, texts: Parted) -> list[list[Ids]]:
        """The ids of the parts of each text."""
        return self.check_lengths(
            self.generator.encode([parts])[0] for parts in self.while_awaited(texts)
        )

    def batch_job(
        self,
        items: list[Any],
        compute: Callable[[list[Any], Report], list[Any]],
        answer: Callable[[list[Any]], Any],
        cost: int,
        config: Any = None,
    ) -> Job:
        """A job whose computation reports after each batch, and ends there if nobody waits."""

        def act(items: list[Any], gone: Gone) -> list[Any]:
            def report(done: int) -> None:
                if gone():
                    raise Abandoned

            return compute(items, report)

        key = type(self), self.generator, config or self.config
        return Job(key, items, act, answer, cost, read=cost)

    def records(self, outputs: list[list[Output]]) -> dict[str, Any]:
        """The answer with the n best outputs of each text."""
        return {"outputs": [[self.record(output) for output in best] for best in outputs]}

    def record(self, output: Output) -> dict[str, Any]:
        """An output as json."""
        hypothesis = output.hypothesis
        vocab = self.generator.task.source_vocab
        aligned = {}
        if output.attention is not None and output.source is not None:
            table = output.attention.astype(float).round(6).tolist()
            aligned = {"attention": table, "source_tokens": vocab.pieces(output.source)}
        return {
            "text": output.text,
            "score": hypothesis.score,
            "log_prob": hypothesis.log_prob,
            "tokens": self.generator.vocab.pieces(hypothesis.ids),
            "token_log_probs": hypothesis.token_log_probs.tolist(),
            **aligned,
        }

    def read_texts(self, name: str, read: Callable[[Any, str], list[Any]]) -> list[Any]:
        """The texts of a field, which is a string or a list, within the limits."""
        value = self.body.get(name)
        is_filled = isinstance(value, str | list) and value != []
        require(is_filled, f"{name} must be a string or a list of one or more")
        self.check_count(name, len(value) if isinstance(value, list) else 1)
        texts = read(value, name)
        for number, parts in enumerate(split_parts(texts, name), 1):
            chars = sum(map(len, parts))
            limit = self.limits.max_chars
            require(
                chars <= limit,
                f"{name}: text {number} has {chars} characters; the server allows {limit}",
            )
            require(
                len(parts) <= limit,
                f"{name}: text {number} has {len(parts)} parts; the server allows {limit}",
            )
        return texts

    def check_count(self, name: str, count: int) -> None:
        """Refuse more of something than a request may have."""
        limit = self.limits.max_texts
        require(count <= limit, f"{name}: {count} given; the server allows {limit} in a request")

    def read_field(self, name: str, kind: type[Kind], default: Kind | None = None) -> Kind:
        """The value of a field, which has a type of json."""
        value = self.body.get(name, default)
        if not isinstance(value, kind):
            raise UsageError(f"{name} must be {JSON_NAMES[kind]}, got {value!r}")
        return value


class Listing(ABC):
    """An address at which a GET describes the models; registered as a route, too."""

    @staticmethod
    @abstractmethod
    def tell(services: Sequence[Any], name: str) -> Any:
        """The answer for a model, or for all if `name` is empty; UsageError for an unknown one."""


def routes() -> dict[str, type[Route]]:
    """The addresses that compute, by name."""
    return {name: kind for name, kind in registered_routes() if issubclass(kind, Route)}


def listings() -> dict[str, type[Listing]]:
    """The addresses that tell of models, by name."""
    return {name: kind for name, kind in registered_routes() if issubclass(kind, Listing)}


def registered_routes() -> list[tuple[str, type]]:
    """All addresses that are registered, and what they are."""
    return [(name, registry.get("route", name)) for name in registry.names("route")]


def abilities(generator: Generator) -> dict[str, Any]:
    """The abilities of a model with this task, for the page and other clients."""
    task = generator.task
    can = answering_routes(generator)
    pairs = task.trained.pairs
    model = model_of(generator)
    writes = "generate" in can
    # where a tower of its own reads the source, an output is no continuation of it
    encodes = len(model.config.towers) > 1
    repeats = model.config.latent > 0
    return {
        "verbs": can,
        # one that was not trained on pairs goes on with its prompt
        "continues": writes and not (pairs or encodes),
        "pairs": writes and pairs,
        "writes": writes and (pairs or (encodes and not repeats)),
        "parts": task.trained.parts,
        "max_source": task.trained.max_source,
        "searches": generator.protocol is not None,
        "alignment_layers": alignment_layers(generator),
        "blank": generator.blank if task.infills else None,
        "form": task.form,
        "labels": list(task.trained.labels),
        "defaults": generator.defaults,
    }


def answering_routes(generator: Generator) -> list[str]:
    """The addresses at which a model answers with this task."""
    return [name for name, route in routes().items() if route.listed and route.fits(generator)]


def alignment_layers(generator: Generator) -> int:
    """Layers in which an output's words have an attention to those of the source."""
    model = model_of(generator)
    attends = generator.protocol is not None and model.config.cross_attention
    return len(model.decoder.layers) if attends else 0


def model_of(generator: Generator) -> Model:
    """The only model of a generator: the server has no ensembles."""
    assert isinstance(generator.model, Model)
    return generator.model


def count_written(job: Job, outputs: Callable[[list[Any]], Any] = iter) -> Job:
    """The job, which counts tokens, too: `outputs` finds the n best ones of each in results."""
    answer = job.answer

    def count_and_answer(results: list[Any]) -> Any:
        job.written = sum(
            len(output.hypothesis.ids) for best in outputs(results) for output in best
        )
        return answer(results)

    job.answer = count_and_answer
    return job


def count_tokens(sources: Sequence[Sequence[Ids]]) -> int:
    """The tokens of sources."""
    return sum(len(part) for source in sources for part in source)
