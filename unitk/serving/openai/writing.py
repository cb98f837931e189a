"""What all addresses that write have in common: draws and beams, log-probabilities, streams."""

from __future__ import annotations

import json
import secrets
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from unitk.decoding.config import BLANKS_ONLY, LOCAL, GenerateConfig
from unitk.decoding.drivers import Prompt
from unitk.decoding.forced import logits
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.outputs import Output
from unitk.decoding.texts.sentences import sentence_ends, stable_part
from unitk.decoding.texts.sources import Sources
from unitk.errors import require
from unitk.serving.batching import Job, Stream
from unitk.serving.openai.fields import (
    HERE,
    check_fields,
    error_body,
    read_flag,
    read_float,
    read_integer,
    read_stops,
)
from unitk.serving.openai.spelling import Speller, find_stop, withhold_stops, without_ends
from unitk.serving.route import abilities, count_tokens
from unitk.serving.routes import DecodingRoute, RequestedPrompt
from unitk.slots import Example, Floats, Ids, unroll

Alternatives = list[tuple[str, float]]


def has_sentences(text: str, config: GenerateConfig) -> bool:
    """Whether a text that is being written has all `--sentences`, and begins another one."""
    return 0 < config.sentences <= len(sentence_ends(text, grows=True))


@dataclass(frozen=True)
class Reply:
    """An output as clients get it."""

    index: int
    text: str
    finish: str
    """stop: it ended by itself, or before a stop string; length: it reached the limit."""
    words: int
    """Tokens that were written."""
    pieces: list[str] = field(default_factory=list)
    """The string of each token whose log-probability is asked for."""
    gains: list[float | None] = field(default_factory=list)
    tops: list[Alternatives] = field(default_factory=list)
    """The most probable tokens in the place of each one; empty where there is none."""


@dataclass(frozen=True)
class WritingRoute(DecodingRoute):
    """A request for outputs, in the words of OpenAI's API."""

    Options = GenerateConfig
    bars = (*LOCAL, *BLANKS_ONLY, "seed", "sampling", "best_of", *HERE.values())
    takes: ClassVar[tuple[str, ...]] = ()
    listed = False
    fixed: ClassVar[dict[str, Sequence[Any]]] = {
        "presence_penalty": (0,),
        "frequency_penalty": (0,),
        "logit_bias": ({},),
    }
    """Fields that are known, and the only values that they may have."""
    name: ClassVar[str]
    """What an answer is called, `object` in it."""

    # what a request says

    @classmethod
    def options(cls) -> list[str]:
        return [*super().options(), "sampling", *HERE.values()]

    @classmethod
    def translate(cls, body: dict[str, Any]) -> dict[str, Any]:
        options = [*super().options(), *(name for name in HERE if name not in cls.takes)]
        # max_tokens and stop say where an output ends, whatever is usual for a checkpoint
        translated = {
            "sentences": 0,
            **check_fields(body, ["model", "task", *cls.takes, *options], cls.fixed),
        }
        outputs = read_integer(translated, "n", 1, 1)
        width = read_integer(translated, "best_of", outputs, outputs)
        heat = read_float(translated, "temperature")
        if heat is None and "top_p" in translated:  # which means nothing to a search
            heat = 1.0
        for name, option in HERE.items():
            # these two stay, as what they mean depends on the temperature
            if name in translated and name not in ("n", "best_of"):
                translated[option] = translated.pop(name)
        if heat == 0:
            for name in ("temperature", "sampling_topp"):
                translated.pop(name, None)  # of one token, all shares are the same
            return translated | {"sampling": False, "nbest": outputs, "beam": width}
        if heat is not None:
            translated |= {"sampling": True, "temperature": heat}
        elif "best_of" in translated:
            translated["beam"] = width
        return translated | {"nbest": outputs}

    @classmethod
    def refuse(cls, status: int, message: str, error: BaseException | None) -> tuple[int, Any]:
        return error_body(status, message, error)

    @abstractmethod
    def sources(self) -> tuple[list[list[Ids]], GenerateConfig]:
        """The ids of the sources, and the options with the limit on their length."""

    @cached_property
    def continues(self) -> bool:
        """Whether outputs continue their prompts."""
        return bool(abilities(self.generator)["continues"])

    @cached_property
    def stops(self) -> list[str]:
        return read_stops(self.body, self.limits.max_chars)

    @cached_property
    def num_outputs(self) -> int:
        """The outputs of each source that are answered."""
        return read_integer(self.body, "n", 1, 1)

    @cached_property
    def alternatives(self) -> int | None:
        """How many tokens have their log-probabilities, in each place; None: not even its own."""
        return None

    # what is computed

    def job(self) -> Job:
        streams, usage = self.read_stream()
        self.stops, self.alternatives  # noqa: B018  (refused before anything is read)
        sources, config = self.sources()
        task = self.generator.task
        self.check_empty(sources)
        self.generator.check_parts(sources, 0)
        sources = [source if count_tokens([source]) else [] for source in sources]
        draws = read_integer(self.body, "best_of", 1, self.num_outputs) if config.sampling else 1
        most = min(self.limits.max_texts // len(sources), self.limits.max_beam)
        name = "best_of" if "best_of" in self.body else "n"
        require(draws <= most, f"{name} must be at most {most}, got {draws}")
        if config.sampling:  # each output is a row of its own
            config = replace(config, nbest=1, best_of=1)
        prompts, cost = self.prompts(Sources(sources, truncate=task.trained.pairs), config)
        items = self.seed_prompts(prompt for prompt in prompts for _ in range(draws))
        # a beam changes its mind, and of draws that are compared nobody knows which one stays
        grows = draws == self.num_outputs if config.sampling else config.width == 1
        tells = streams and self.alternatives is None
        if grows and (tells or self.stops or config.sentences):
            items = [
                replace(item, on_ids=self.follow(number, item.prompt, tells))
                for number, item in enumerate(items)
            ]
        answer = partial(self.answer, sources, prompts, config)
        job = self.decode_prompts(items, config, answer, cost * draws)
        job.read = count_tokens(sources)
        job.stream = Events(self, usage) if streams else None
        return job

    def read_stream(self) -> tuple[bool, bool]:
        """Whether the client asks for a stream of events, and for the usage in the last one."""
        streams = read_flag(self.body, "stream")
        options = self.body.get("stream_options")
        options = {} if options is None else options
        known = isinstance(options, dict) and set(options) <= {"include_usage"}
        require(known, f"stream_options must have include_usage only, got {options!r}")
        require(streams or not options, "stream_options must be left out without stream")
        return streams, read_flag(options, "include_usage")

    def check_empty(self, sources: Sequence[list[Ids]]) -> None:
        """Refuse texts without tokens, unless the task writes from nothing."""
        task = self.generator.task
        for number, source in enumerate(sources, 1):
            require(
                count_tokens([source]) > 0 or (task.from_nothing and self.continues),
                f"text {number} is empty, and task {task.name} does not write from nothing",
            )

    def seed_prompts(self, prompts: Iterable[Prompt]) -> list[RequestedPrompt]:
        """The prompts, each with a number that seeds its draws, whatever its batch holds."""
        seed = self.body.get("seed")
        read_integer(self.body, "seed", -(2**63), 0)
        # numbers that seed draws are no less than 0; those of a request are neighbours
        first = secrets.randbits(62) if seed is None else seed + 2**63
        return [
            RequestedPrompt(replace(prompt, number=(first << 16) + number))
            for number, prompt in enumerate(prompts)
        ]

    def speller(self, prompt: Prompt) -> Speller:
        """What spells the outputs for a prompt."""
        before = (id_ for part in prompt.source for id_ in part.tolist() if self.continues)
        return Speller(self.generator.vocab.decode, before)

    def opening(self, index: int, source: list[Ids]) -> str:
        """What an answer has before the output of this number."""
        return ""

    @property
    def end(self) -> int | None:
        """The symbol that ends an output."""
        protocol = self.generator.protocol
        return protocol.end if protocol else None

    def follow(self, number: int, prompt: Prompt, tells: bool) -> Callable[[Ids], bool]:
        """A function of an output's ids so far, which returns whether the output is to stop.

        If `tells` is set, it also sends the text so far to the client.
        """
        speller = self.speller(prompt)
        seen = 0
        before = self.opening(number, prompt.source)

        def tell(ids: Ids) -> bool:
            nonlocal seen
            words = without_ends(ids, self.end)
            text = speller.add(words[seen:])
            seen = max(seen, len(words))  # what failed beside others is written anew
            if tells and self.on_text is not None:
                known = stable_part(withhold_stops(text, self.stops), self.config)
                self.on_text((number, before + known))
            over = find_stop(text, self.stops) is not None or has_sentences(text, self.config)
            return seen == len(words) and over

        return tell

    def answer(
        self,
        sources: list[list[Ids]],
        prompts: list[Prompt],
        config: GenerateConfig,
        results: list[list[Output]],
    ) -> dict[str, Any]:
        """What is sent for the outputs of each prompt, or of each draw."""
        # a draw is a row of its own; a beam is one row with all of its outputs
        draws = len(results) // len(prompts)
        choices = list[Reply]()
        for number, prompt in enumerate(prompts):
            of_prompt = results[number * draws : (number + 1) * draws]
            best = [output for of_draw in of_prompt for output in of_draw]
            if len(best) > self.num_outputs:  # draws, of which the best are asked for
                best.sort(
                    key=lambda output: -output.hypothesis.log_prob / len(output.hypothesis.ids)
                )
            for rank, output in enumerate(best[: self.num_outputs]):
                index = number * self.num_outputs + rank
                choices.append(self.choice(index, prompt, output.hypothesis))
        shaped = [self.shape(reply) for reply in choices]
        read = count_tokens(sources)
        written = sum(reply.words for reply in choices)
        usage = {"prompt_tokens": read, "completion_tokens": written}
        usage["total_tokens"] = read + written
        return {**self.frame(self.name), "choices": shaped, "usage": usage}

    def choice(self, index: int, prompt: Prompt, hypothesis: Hypothesis) -> Reply:
        """An output as clients get it."""
        speller = self.speller(prompt)
        words = without_ends(hypothesis.ids, self.end)
        speller.add(words)
        text = speller.end()
        if not self.continues:  # as a source has it, without the blank of a next word
            text = self.generator.task.text(prompt.source, hypothesis.ids)
        at = find_stop(text, self.stops)
        limit = prompt.constraint.max_len * (1 + len(prompt.example.blanks))
        finish = "length" if at is None and len(words) >= limit else "stop"
        reply = Reply(index, text[:at], finish, len(words))
        if self.alternatives is None:
            return reply
        gains = (
            hypothesis.token_log_probs
            if self.end is None
            else hypothesis.token_log_probs[hypothesis.ids != self.end]
        )
        kept = len(words)
        if at is not None:  # tokens that begin before the stop string
            starts = np.cumsum([0, *map(len, speller.pieces)])[:-1]
            kept = int((starts < at).sum())
        tops = [Alternatives()] * kept
        if self.alternatives and self.generator.protocol is not None and len(hypothesis.ids):
            # in one pass, as a search keeps the probabilities of its own words only
            laid = unroll(prompt.example, self.generator.protocol, hypothesis.ids)
            table = self.log_probs(laid)
            if self.end is not None:
                table = table[hypothesis.ids != self.end]
            tops = self.top_tokens(table[:kept], words, gains, speller.pieces)
        pieces = speller.pieces[:kept]
        return replace(reply, pieces=pieces, gains=gains[:kept].tolist(), tops=tops)

    def log_probs(self, example: Example) -> Floats:
        """[T, V] log-probabilities of all tokens at each place that an example asks for."""
        [table] = logits(self.generator.model, [example], self.config.max_tokens)
        high = table.max(1, keepdims=True)
        return np.asarray(table - high - np.log(np.exp(table - high).sum(1, keepdims=True)))

    def top_tokens(
        self, table: Floats, words: Ids, gains: Floats, pieces: list[str]
    ) -> list[Alternatives]:
        """The most probable tokens in each place, and the token that is there."""
        vocab = self.generator.vocab
        tops = list[Alternatives]()
        for row, word, gain, piece in zip(table, words, gains, pieces, strict=False):
            best = np.argsort(-row, kind="stable")[: self.alternatives]
            gain_of = {piece: float(gain)}  # the search's own number, so that equal ones are equal
            for other in best.tolist():
                if other != word and np.isfinite(row[other]):
                    size = vocab.model.size
                    name = vocab.model.text(other) if other < size else vocab.pieces([other])[0]
                    gain_of.setdefault(name, float(row[other]))
            tops.append(sorted(gain_of.items(), key=lambda entry: -entry[1]))
        return tops

    # what is answered

    @cached_property
    def _id(self) -> tuple[str, int]:
        return secrets.token_hex(12), int(time.time())

    def frame(self, name: str) -> dict[str, Any]:
        """The fields around the choices of an answer, or of an event."""
        identity, created = self._id
        head = {"id": f"{self.prefix}-{identity}", "object": name, "created": created}
        return head | {"model": self.body["model"]}

    prefix: ClassVar[str]
    """What the ids of answers begin with."""
    event: ClassVar[str]
    """What an event of a stream is called, `object` in it."""

    @abstractmethod
    def shape(self, choice: Reply) -> dict[str, Any]:
        """A choice in an answer."""

    @abstractmethod
    def delta(self, index: int, text: str, first: bool, done: Any = None) -> dict[str, Any]:
        """A choice in an event, with the `text` that was added since the event before it.

        `first` marks its first event. With the last one, `done` is the choice of the answer.
        """

    @abstractmethod
    def text_in(self, choice: dict[str, Any]) -> str:
        """The text of a choice of an answer."""


class Events(Stream):
    """Server-sent events: what each text has grown by, why it ended, `[DONE]`."""

    media_type = "text/event-stream"

    def __init__(self, route: WritingRoute, usage: bool) -> None:
        self.route = route
        self.usage = usage
        self.sent: defaultdict[int, str] = defaultdict(str)
        self.begun = set[int]()

    def text(self, event: tuple[int, str]) -> bytes:
        index, text = event
        if len(text) <= len(self.sent[index]):
            return b""
        added = text[len(self.sent[index]) :]
        self.sent[index] = text
        return self.write_chunk([self.text_delta(index, added)])

    def answer(self, value: Any) -> bytes:
        parts = list[bytes]()
        for choice in value["choices"]:
            index = choice["index"]
            whole = self.route.text_in(choice)
            added = whole[len(self.sent[index]) :]
            parts.append(self.write_chunk([self.text_delta(index, added, choice)]))
        if self.usage:
            parts.append(self.write_chunk([], usage=value["usage"]))
        return b"".join([*parts, b"data: [DONE]\n\n"])

    def error(self, status: int, message: str) -> bytes:
        return server_event(error_body(status, message, None)[1])

    def text_delta(self, index: int, added: str, done: Any = None) -> dict[str, Any]:
        """The delta of a choice whose text has grown."""
        first = index not in self.begun
        self.begun.add(index)
        return self.route.delta(index, added, first, done)

    def write_chunk(self, choices: list[Any], **fields: Any) -> bytes:
        """A chunk of the stream: an event with these choices and further fields."""
        return server_event({**self.route.frame(self.route.event), "choices": choices, **fields})


def server_event(value: Any) -> bytes:
    """An event whose data is json."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
