"""Requests and answers: the functions of a trained model as json.

A request is an object with the names of the Python API, `{"texts": ["..."], "beam": 3}`. It is
checked completely before it enters the queue. It cannot name a file: options that are files are not
accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from unitk.api.drawing import drawings, laid_out
from unitk.config import Given, resolve
from unitk.decoding.config import INFILL_LENPEN, LOCAL, GenerateConfig, length
from unitk.decoding.constraints.base import Constraint
from unitk.decoding.files.defaults import beside, naming
from unitk.decoding.files.outputs import numbers
from unitk.decoding.forced import check_layer
from unitk.decoding.generator import NO_WORDS, Generator, parted, strings
from unitk.decoding.search import Output
from unitk.errors import UsageError, require
from unitk.foreign import JSON_NAMES
from unitk.latent import geometry
from unitk.latent.space import LatentSpace
from unitk.registry import nearest
from unitk.serving.batching import Abandoned, Job
from unitk.serving.config import Limits
from unitk.serving.verbs import VERBS, Aligning, abilities, verbs
from unitk.slots import Example, Ids
from unitk.tasks.understanding.base import Understanding
from unitk.values import given_text

Gone = Callable[[], bool]
Kind = TypeVar("Kind")

WEIGHTS = 1_000_000
"""The most weights of alignments in an answer."""
INPUTS = ("source", "sources", "input", "inputs", "prompt")
"""Names that other servers have for the first field."""
SHOWN = 100
"""The most slots of a mask that is shown."""
LARGEST = 1e9
"""Coordinates of a latent are smaller, so that sums of their squares fit into 32 bits."""


@dataclass(frozen=True)
class Service:
    """A model with each of its tasks, the default one first, under a `name`."""

    name: str
    tasks: Mapping[str, Generator]
    limits: Limits

    def about(self) -> dict[str, Any]:
        """What the model can do, for the page and other clients."""
        each = {name: abilities(one) for name, one in self.tasks.items()}
        limits = {one.name: getattr(self.limits, one.name) for one in fields(Limits)}
        return {"model": self.name, "tasks": each, "limits": limits}

    def job(self, verb: str, given: object, on_text: Callable[[str], None] | None = None) -> Job:
        """Check a request and make its job; `on_text` is called with the text so far of a stream.

        Raises UsageError and DataError, which name the field.
        """
        if not isinstance(given, dict):
            raise UsageError('the request must be an object such as {"texts": ["..."]}')
        known = VERBS[verb]
        options = [one.name for one in fields(known.config) if one.name not in LOCAL]
        for name in given:
            if name not in (names := ["task", *known.fields, *options]):
                near = f"; use {known.fields[0]}" if name in INPUTS else nearest(name, names)
                raise UsageError(f"/{verb} has no field {name!r}{near} (known: {', '.join(names)})")
        task = self._task(verb, given.get("task"))
        # through the grammar of the command line, which knows types and choices
        flags = [Given(key, given_text(given[key], key), key) for key in given if key in options]
        if verb == "infill" and "lenpen" not in given:
            flags.append(Given("lenpen", str(INFILL_LENPEN), "lenpen"))
        used = beside(self.tasks[task].defaults, given) if verb in ("generate", "score") else {}
        # of what a request leaves out, the server grants as much as it allows
        lowered = self._lowered(known.config, used)
        used = {key: value for key, value in used.items() if key not in lowered}
        left_out = {key: value for key, value in (used | lowered).items() if key not in given}
        flags += [Given(key, given_text(value, key), key) for key, value in left_out.items()]
        with naming(used):
            config = resolve(known.config, flags).main
            # before any text is read: what is asked for may not be affordable
            self._check(config)
        return Asked(verb, task, self.tasks[task], given, config, self.limits).job(on_text)

    def _task(self, verb: str, given: object) -> str:
        """The task that answers: the one requested, or the first that supports the verb."""
        able = [name for name, one in self.tasks.items() if verb in verbs(one)]
        if given is None and able:
            return able[0]
        if given is not None and (not isinstance(given, str) or given not in self.tasks):
            raise UsageError(f"task must be one of {', '.join(self.tasks)}, got {given!r}")
        name = str(given or next(iter(self.tasks)))
        if name in able:
            return name
        can = f"{self.name} with task {name} can {', '.join(verbs(self.tasks[name]))}"
        more = f"; task {', '.join(able)} can {verb}" if able else ""
        raise UsageError(f"/{verb}: {can}{more}")

    def _lowered(self, kind: type, own: Mapping[str, Any]) -> dict[str, Any]:
        """The options whose value, that of `own` or the default, is above a limit, at the limit."""
        most = {"beam": self.limits.max_beam, "max_len": self.limits.max_output}
        options = most.items() if issubclass(kind, GenerateConfig) else ()
        value = {name: own.get(name, getattr(GenerateConfig, name)) for name, _ in options}
        return {name: limit for name, limit in options if length(value[name], 0) > limit}

    def _check(self, config: Any) -> None:
        limits = self.limits
        for one in fields(config):
            value = getattr(config, one.name)
            # an integer of any size is one in JSON
            fits = not isinstance(value, int | float) or abs(value) <= 2**53
            require(fits, f"{one.name} must be a finite number up to 2**53, got {value}")
        if isinstance(config, GenerateConfig):
            for name in ("beam", "nbest"):
                most, value = limits.max_beam, getattr(config, name)
                require(value <= most, f"{name} must be at most {most}, got {value}")
            fits = length(config.max_len, 0) <= (most := limits.max_output)
            require(fits, f"max_len must be at most {most}, got {config.max_len}")


@dataclass(frozen=True)
class Wanted:
    """What is decoded for a text of a request, in a batch with those of other requests."""

    source: list[Ids]
    prompt: tuple[Example, Constraint]
    number: int
    """The text's number within the request, which seeds draws whatever is computed beside it."""
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

    def _generate(self) -> Job:
        encoded, config = self.generator.read(self.texts, self.config, self._named)
        phrases = self._field("constraints", list, [])
        prefixes = self._texts("prefixes", strings) if self.given.get("prefixes") else []
        each = self.generator.constraints(prefixes, phrases)
        truncate = self._field("truncate", bool, self.generator.task.answers)
        return self._decoding(encoded, config, constraints=each, truncate=truncate)

    def _infill(self) -> Job:
        blanks = [self.generator.encode_blanks(one) for one in self._texts("texts", strings)]
        return self._decoding(blanks, self.config)

    def _decoding(self, encoded: list[list[Ids]], config: Any, **how: Any) -> Job:
        generator = self.generator
        kept, prompts = generator.prompts(encoded, config, **how)
        for number, (prompt, one) in prompts.items():
            words = one.max_len * (1 + len(prompt.blanks))
            most = self.limits.max_output
            over = f"text {number + 1}: {words} tokens of output; the server allows {most}"
            require(words <= most, over)
        layer = config.alignment_layer if isinstance(config, Aligning) else None
        check_layer(generator.model, layer)  # before a search that would be in vain
        if layer is not None:
            longest = [one.max_len * len(prompt.towers["enc"]) for prompt, one in prompts.values()]
            weights = config.nbest * sum(longest)
            what = f"alignment_layer: {weights:,} weights, but an answer may have {WEIGHTS:,}"
            require(weights <= WEIGHTS, f"{what}: ask for fewer or shorter outputs")
        items = [Wanted(kept[number], prompt, number) for number, prompt in prompts.items()]

        def answer(results: list[list[Output]]) -> Any:
            by_number = dict(zip(prompts, results, strict=True))
            return self.records([by_number.get(number, [NO_WORDS]) for number in range(len(kept))])

        act = partial(decoded, generator, config, layer)
        return Job(("decode", self.task, config), items, act, answer)

    def _score(self) -> Job:
        targets = self._texts("targets", strings)
        unequal = f"targets: {len(targets)} for {len(self.texts)} texts"
        require(len(targets) == len(self.texts), unequal)
        options = dict(vars(self.config))
        if as_trained := "max_source_len" not in self._named:
            del options["max_source_len"]

        def score(pairs: list[Any]) -> list[Output]:
            texts, wanted = zip(*pairs, strict=True)
            return self.generator.score(texts, wanted, **options)

        pairs = list(zip(self.texts, targets, strict=True))
        job = self._plain(pairs, score, lambda found: {"outputs": list(map(self.record, found))})
        job.key = job.key, as_trained  # the config has None for no limit and for that of training
        return job

    def _predict(self) -> Job:
        def predict(texts: list[Any]) -> list[Any]:
            return self.generator.predictions(texts, self.config)

        return self._plain(self.texts, predict, lambda found: {"predictions": found})

    def _embed(self) -> Job:
        def embed(texts: list[Any]) -> list[Any]:
            return list(self.generator.embed(texts, **vars(self.config)))

        return self._plain(self.texts, embed, lambda found: {"vectors": [*map(numbers, found)]})

    def _show(self) -> Job:
        require(len(self.texts) == 1, f"texts must have one text, got {len(self.texts)}")
        (parts,), task = self.texts, self.generator.task
        alone = len(parts) == 1 or isinstance(task, Understanding)
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
        return self._plain([towers], list, lambda each: {"towers": each[0]})

    def _latent_encode(self) -> Job:
        def encode(texts: list[Any]) -> list[Any]:
            return list(self.space.encode(texts, truncate=self.config.truncate).mean)

        texts = self._texts("texts", strings)
        return self._plain(texts, encode, lambda found: {"points": [*map(numbers, found)]})

    def _latent_decode(self) -> Job:
        points, size = self._field("points", list), self.space.dimensions
        fits = all(isinstance(point, list) and len(point) == size for point in points)
        numbered = (isinstance(x, int | float) and abs(x) < LARGEST for p in points for x in p)
        fits = fits and all(numbered)
        what = f"points must be a list of lists of {size} numbers below {LARGEST:g}"
        require(fits and points != [], what)
        self._few("points", len(points))
        return self._walk(lambda: np.array(points, np.float32))

    def _latent_interpolate(self) -> Job:
        pair = self._texts("texts", strings)
        require(len(pair) == 2, f"texts must be two strings, got {len(pair)}")
        require(self.config.steps >= 2, f"steps must be at least 2, got {self.config.steps}")
        self._few("steps", self.config.steps)

        # encoded when it is computed: the model works in one thread
        def points() -> geometry.Points:
            begin, end = self.space.encode(pair).mean
            return geometry.path(begin, end, self.config.steps, self.config.path)[1]

        return self._walk(points)

    def _walk(self, points: Callable[[], geometry.Points]) -> Job:
        def decode(walks: list[Any]) -> list[Any]:
            return [self.space.decode(make_points(), self.config) for make_points in walks]

        return self._plain([points], decode, lambda walks: self.records(walks[0]))

    def _plain(self, items: list[Any], compute: Callable[[Any], list[Any]], answer: Any) -> Job:
        """A job whose computation does not ask whether the client is still there."""
        key = self.verb, self.task, self.config
        return Job(key, items, lambda items, gone: compute(items), answer)

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
        found = read(given, name)
        self._few(name, len(found))
        for number, one in enumerate(parted(found, name), 1):
            chars, most = sum(map(len, one)), self.limits.max_chars
            over = f"{name}: text {number} has {chars} characters; the server allows {most}"
            require(chars <= most, over)
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

    def on_step(at: int, ids: Ids) -> None:
        if gone():  # asked after each token, so that a long output ends soon
            raise Abandoned
        if (on_text := items[at].on_text) is not None:
            on_text(generator.task.text(items[at].source, ids))

    prompts, numbers = [item.prompt for item in items], [item.number for item in items]
    each = generator.decoded(prompts, config, numbers, on_step=on_step)
    outputs = [
        [Output(generator.task.text(item.source, one.ids), one) for one in best]
        for item, best in zip(items, each, strict=True)
    ]
    if layer is None:
        return outputs
    examples = {at: prompt for at, (prompt, _) in enumerate(prompts)}
    return generator.attended(examples, outputs, layer, config)
