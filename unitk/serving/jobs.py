"""Jobs: what a request of each kind reads, what the model computes for it, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import numpy as np

from unitk.api.drawing import drawings, laid_out
from unitk.decoding.blanks import refill
from unitk.decoding.config import GenerateConfig, length
from unitk.decoding.drivers import Prompt, Watcher
from unitk.decoding.files.outputs import numbers
from unitk.decoding.forced import check_layer
from unitk.decoding.generator import NO_WORDS, Generator, parted, strings
from unitk.decoding.search import Output
from unitk.decoding.understand.embed import embed
from unitk.decoding.understand.predict import predict
from unitk.errors import UsageError, require
from unitk.families.latent import geometry
from unitk.families.latent.space import LatentSpace
from unitk.foreign import JSON_NAMES
from unitk.serving.batching import Abandoned, Job
from unitk.serving.config import Limits
from unitk.serving.verbs import Aligning, model_of
from unitk.slots import Ids
from unitk.tasks.understanding.base import Understanding

Gone = Callable[[], bool]
Report = Callable[[int], None]
Kind = TypeVar("Kind")

WEIGHTS = 1_000_000
"""The most weights of alignments, or numbers of vectors, in an answer."""
NUMBERS_A_TOKEN = 10
"""Numbers of an answer that need as much memory as a token of a request."""
SHOWN = 100
"""The most slots of a mask that is shown."""
LARGEST = 1e9
"""Coordinates of a latent are smaller, so that sums of their squares fit into 32 bits."""


@dataclass(frozen=True)
class Wanted:
    """What is decoded for a text of a request, in a batch with those of other requests."""

    prompt: Prompt
    """It has the text's number within the request, whatever is computed beside it."""
    on_text: Callable[[str], None] | None = None
    """Receives the text so far, of a stream."""


@dataclass(frozen=True)
class Asked:
    """A request to one task."""

    verb: str
    task: str
    generator: Generator
    given: dict[str, Any]
    config: Any
    limits: Limits
    gone: Gone
    """Whether nobody waits for the answer any more, so that it need not be read to its end."""

    def job(self, on_text: Callable[[str], None] | None) -> Job:
        """Make the job of the request."""
        made: Job = getattr(self, "_" + self.verb.replace("/", "_"))()
        streamed = self._field("stream", bool, False) if self.verb == "generate" else False
        if streamed:
            alone = self.config.sampling and self.config.nbest == 1 and len(made.items) == 1
            require(alone, "stream needs one text, and sampling with nbest 1")
            # it alone tells of its words; the job may be joined with others that do not
            made.items[0] = replace(made.items[0], on_text=on_text)
        return made

    @cached_property
    def texts(self) -> list[Sequence[str]]:
        """The parts of each text."""
        return self._texts("texts", parted)

    @property
    def _named(self) -> set[str]:
        """The fields of the request, and the options of the checkpoint."""
        return {*self.given, *self.generator.defaults}

    def _each(self, values: Iterable[Kind]) -> Iterator[Kind]:
        """Values one after the other, as long as the client waits."""
        for value in values:
            if self.gone():
                raise Abandoned
            yield value

    def _short(self, encoded: Iterable[list[Ids]], first: int = 0) -> list[list[Ids]]:
        """Texts none of which is a batch too large, since within one nothing can be given up."""
        found, most = list[list[Ids]](), self.limits.max_tokens
        for number, one in enumerate(encoded, first + 1):
            over = f"text {number} has {count([one]):,} tokens; the server reads {most:,} at a time"
            require(count([one]) <= most, over)
            found.append(one)
        return found

    def _encode(self, texts: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """The ids of the parts of each text."""
        return self._short(self.generator.encode([parts])[0] for parts in self._each(texts))

    def _read(self) -> tuple[list[list[Ids]], GenerateConfig]:
        """The ids of the sources, and the options with the limit on their length."""
        found, config = list[list[Ids]](), self.config
        for parts in self._each(self.texts):
            [ids], config = self.generator.read([parts], self.config, self._named)
            found += self._short([ids], len(found))
        return found, config

    def _generate(self) -> Job:
        encoded, config = self._read()
        phrases = self._field("constraints", list, [])
        for some in phrases:
            self._few("constraints", len(some) if isinstance(some, list) else 1)
        prefixes = self._texts("prefixes", strings) if self.given.get("prefixes") else []
        each = self.generator.constraints(prefixes, phrases)
        truncate = self._field("truncate", bool, self.generator.task.trained.pairs)
        return self._decoding(encoded, config, constraints=each, truncate=truncate)

    def _infill(self) -> Job:
        texts = list(self._each(self._texts("texts", strings)))
        encoded = self._short(self.generator.encode_blanks(one) for one in texts)
        return self._decoding(encoded, self.config, texts)

    def _decoding(
        self, encoded: list[list[Ids]], config: Any, texts: Sequence[str] = (), **how: Any
    ) -> Job:
        """The job of decoding sources, or of filling the blanks of `texts`."""
        generator = self.generator
        prompts = generator.prompts(encoded, config, **how)
        cost = 0
        for one in prompts:
            words = one.constraint.max_len * (1 + len(one.example.blanks))
            most = self.limits.max_output
            over = f"text {one.number + 1}: {words} tokens of output; the server allows {most}"
            require(words <= most, over)
            cost += sum(map(len, one.example.towers.values())) + config.width * words
        layer = config.alignment_layer if isinstance(config, Aligning) else None
        check_layer(generator.model, layer)  # before a search that would be in vain
        if layer is not None:
            longest = [one.constraint.max_len * len(one.example.towers["enc"]) for one in prompts]
            weights = config.nbest * sum(longest)
            what = f"alignment_layer: {weights:,} weights, but an answer may have {WEIGHTS:,}"
            require(weights <= WEIGHTS, f"{what}: ask for fewer or shorter outputs")
            cost += weights // NUMBERS_A_TOKEN

        def answer(results: list[list[Output]]) -> Any:
            kept, outputs = list(encoded), [[NO_WORDS] for _ in encoded]
            for one, found in zip(prompts, results, strict=True):
                kept[one.number], outputs[one.number] = one.source, found
            return self.records(refill(generator.task, texts, kept, outputs) if texts else outputs)

        act = partial(decoded, generator, config, layer)
        return Job(("decode", self.task, config), list(map(Wanted, prompts)), act, answer, cost)

    def _score(self) -> Job:
        targets = self._texts("targets", strings)
        unequal = f"targets: {len(targets)} for {len(self.texts)} texts"
        require(len(targets) == len(self.texts), unequal)
        sources, config = self._read()
        for number, source in enumerate(sources, 1):
            require(any(map(len, source)), f"texts: text {number} is empty")
        wanted = [ids for (ids,) in self._encode([[one] for one in targets])]
        cut = bool(self.generator.task.trained.max_source)

        def score(pairs: list[Any], report: Report) -> list[list[Output]]:
            given, ids = zip(*pairs, strict=True)
            return self.generator.scores(given, ids, config, truncate=cut, report=report)

        def answer(found: list[list[Output]]) -> Any:
            return {"outputs": [self.record(output) for (output,) in found]}

        pairs = list(zip(sources, wanted, strict=True))
        cost = sum(map(len, wanted)) + count(sources)
        return self._plain(pairs, score, answer, cost, config)

    def _predict(self) -> Job:
        model, task = self.generator.model, cast(Understanding, self.generator.task)
        sources = self._encode([task.texts(parts) for parts in self.texts])

        def compute(pairs: list[Any], report: Report) -> list[Any]:
            texts, given = zip(*pairs, strict=True)
            said = predict(model, task, given, self.config, report=report)
            return [task.in_words(*one) for one in zip(texts, said, strict=True)]

        pairs = list(zip(self.texts, sources, strict=True))
        return self._plain(pairs, compute, lambda found: {"predictions": found}, count(sources))

    def _embed(self) -> Job:
        model, sources = model_of(self.generator), self._encode(self.texts)
        cost, width = count(sources), model.reader.config.width
        states = self.config.pool == "none"
        size = width * (cost if states else len(sources))
        what = f"pool {self.config.pool}: {size:,} numbers, but an answer may have {WEIGHTS:,}"
        require(size <= WEIGHTS, f"{what}: ask for fewer or shorter texts")

        def compute(given: list[Any], report: Report) -> list[Any]:
            return embed(model, self.generator.task, given, self.config, report=report)

        cost += size // NUMBERS_A_TOKEN
        return self._plain(
            sources, compute, lambda found: {"vectors": [*map(numbers, found)]}, cost
        )

    def _show(self) -> Job:
        require(len(self.texts) == 1, f"texts must have one text, got {len(self.texts)}")
        (parts,), task = self.texts, self.generator.task
        alone = len(parts) == 1 or task.predicts
        require(alone, "texts must be a list of one string; its target is the field target")
        require(any(part.strip() for part in parts), "texts: the text has no words")
        target, *more = self._texts("target", strings) if self.given.get("target") else [None]
        require(not more, f"target must be one string, got {1 + len(more)}")
        rng = np.random.default_rng([self.config.seed, 0, 0])
        # laid out at once: that needs no model, so no request has to wait for it
        found = drawings(self.task, task, laid_out(task, parts, target, rng))
        slots = max(len(one.slots) for one in found)
        require(slots <= SHOWN, f"texts: {slots} slots; {SHOWN} can be shown")
        towers = [one.record() for one in found]
        return self._plain([towers], lambda items, _: items, lambda each: {"towers": each[0]}, 0)

    def _latent_encode(self) -> Job:
        texts, few = self._texts("texts", strings), 8

        def encode(texts: list[Any], report: Report) -> list[Any]:
            found: list[Any] = []
            how = {"truncate": self.config.truncate, "max_tokens": self.limits.max_tokens}
            # texts are read here, too: a few at a time, so that this ends when nobody waits
            for start in range(0, len(texts), few):
                report(0)
                found += list(self.space.encode(texts[start : start + few], **how).mean)
            return found

        cost = sum(map(len, texts))  # a token has a character or more
        return self._plain(texts, encode, lambda found: {"points": [*map(numbers, found)]}, cost)

    def _latent_decode(self) -> Job:
        points, size = self._field("points", list), self.space.dimensions
        fits = all(isinstance(point, list) and len(point) == size for point in points)
        numbered = (type(x) in (int, float) and abs(x) < LARGEST for p in points for x in p)
        fits = fits and all(numbered)
        what = f"points must be a list of lists of {size} numbers below {LARGEST:g}"
        require(fits and points != [], what)
        self._few("points", len(points))
        return self._walk(lambda: np.array(points, np.float32), len(points))

    def _latent_interpolate(self) -> Job:
        pair = self._texts("texts", strings)
        require(len(pair) == 2, f"texts must be two strings, got {len(pair)}")
        require(self.config.steps >= 2, f"steps must be at least 2, got {self.config.steps}")
        self._few("steps", self.config.steps)

        # encoded when it is computed: the model works in one thread
        def points() -> geometry.Points:
            begin, end = self.space.encode(pair).mean
            return geometry.path(begin, end, self.config.steps, self.config.path)[1]

        return self._walk(points, self.config.steps)

    def _walk(self, points: Callable[[], geometry.Points], steps: int) -> Job:
        def decode(walks: list[Any], report: Report) -> list[Any]:
            def on_step(at: int, ids: Ids) -> None:
                report(0)

            return [self.space.decode(walk(), self.config, on_step=on_step) for walk in walks]

        cost = steps * self.config.width * max(1, length(self.config.max_len, 0))
        return self._plain([points], decode, lambda walks: self.records(walks[0]), cost)

    def _plain(
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

        return Job((self.verb, self.task, config or self.config), items, act, answer, cost)

    @cached_property
    def space(self) -> LatentSpace:
        """The latent space of the model."""
        return LatentSpace(self.generator.model, self.generator.task)

    def records(self, outputs: list[list[Output]]) -> dict[str, Any]:
        """The answer with the n best outputs of each text."""
        return {"outputs": [[self.record(output) for output in best] for best in outputs]}

    def record(self, output: Output) -> dict[str, Any]:
        """An output as json."""
        hypothesis, vocab = output.hypothesis, self.generator.task.source_vocab
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

    def _texts(self, name: str, read: Callable[[Any, str], list[Any]]) -> list[Any]:
        """The texts of a field, which is a string or a list, within the limits."""
        given = self.given.get(name)
        right = isinstance(given, str | list) and given != []
        require(right, f"{name} must be a string or a list of one or more")
        self._few(name, len(given) if isinstance(given, list) else 1)
        found = read(given, name)
        for number, one in enumerate(parted(found, name), 1):
            chars, most = sum(map(len, one)), self.limits.max_chars
            over = f"{name}: text {number} has {chars} characters; the server allows {most}"
            require(chars <= most, over)
            over = f"{name}: text {number} has {len(one)} parts; the server allows {most}"
            require(len(one) <= most, over)
        return found

    def _few(self, name: str, count: int) -> None:
        most = self.limits.max_texts
        require(count <= most, f"{name}: {count} given; the server allows {most} in a request")

    def _field(self, name: str, kind: type[Kind], default: Kind | None = None) -> Kind:
        value = self.given.get(name, default)
        if not isinstance(value, kind):
            raise UsageError(f"{name} must be {JSON_NAMES[kind]}, got {value!r}")
        return value


def decoded(
    generator: Generator, config: GenerateConfig, layer: int | None, items: list[Wanted], gone: Gone
) -> list[list[Output]]:
    """The n best outputs for prompts of several requests; batching does not change draws."""

    def report(done: int) -> None:
        if gone():
            raise Abandoned

    def on_step(at: int, ids: Ids) -> None:
        report(0)  # after each token, so that a long output ends soon
        if (on_text := items[at].on_text) is not None:
            on_text(generator.task.text(items[at].prompt.source, ids))

    return generator.decode(
        [item.prompt for item in items], config, Watcher(report, on_step), layer
    )


def count(sources: Sequence[Sequence[Ids]]) -> int:
    """The tokens of sources."""
    return sum(len(part) for source in sources for part in source)
