"""`/v1/completions`: texts are continued, or written from sources by a model of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from unitk.decoding.config import GenerateConfig
from unitk.decoding.drivers import Prompt
from unitk.decoding.generator import Generator
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.sources import as_strings
from unitk.errors import require
from unitk.progress import Report
from unitk.registry import register
from unitk.serving.batching import Job
from unitk.serving.openai.fields import read_flag, read_integer
from unitk.serving.openai.prompts import read_ids
from unitk.serving.openai.spelling import Speller, pieces_of
from unitk.serving.openai.writing import Alternatives, Reply, WritingRoute
from unitk.serving.route import count_tokens
from unitk.slots import Ids

DEFAULT = 16
"""Tokens of an output whose limit is not given, as in OpenAI's API."""
MOST = 5
"""The most alternatives of a token."""


@register("route", "v1/completions")
class Completions(WritingRoute):
    """Texts that continue prompts."""

    takes = (
        *("prompt", "max_tokens", "n", "best_of", "seed", "stop", "echo", "logprobs"),
        *("stream", "stream_options"),
    )
    fixed = WritingRoute.fixed | {"suffix": ("",)}
    name = event = "text_completion"
    prefix = "cmpl"

    @staticmethod
    def fits(generator: Generator) -> bool:
        return generator.task.generates

    @staticmethod
    def preferred(generator: Generator) -> bool:
        return not generator.task.infills  # a language model rather than what fills blanks

    @classmethod
    def translate(cls, body: dict[str, Any]) -> dict[str, Any]:
        filled = {name: value for name, value in body.items() if value is not None}
        filled = {"temperature": 1, "max_tokens": DEFAULT, "prompt": ""} | filled
        if read_integer(filled, "max_tokens", 0 if read_flag(filled, "echo") else 1, DEFAULT) == 0:
            # no option of a search is 0; the field says that there is none
            return {**super().translate(filled | {"max_tokens": 1}), "max_tokens": 0}
        return super().translate(filled)

    @cached_property
    def alternatives(self) -> int | None:
        if "logprobs" not in self.body:
            return None
        count = read_integer(self.body, "logprobs", 0, 0)
        require(count <= MOST, f"logprobs must be at most {MOST}, got {count}")
        return count

    @cached_property
    def echoes(self) -> bool:
        """Whether answers begin with their prompts."""
        echo = read_flag(self.body, "echo")
        require(
            self.continues or not echo,
            "echo must be false: outputs of this model do not continue their prompts",
        )
        return echo

    @cached_property
    def ids(self) -> list[Ids] | None:
        """Prompts that are given as token ids."""
        return read_ids(self, "prompt")

    @cached_property
    def texts(self) -> list[Sequence[str]]:
        pairs = self.generator.task.trained.pairs

        def split(value: Any, name: str) -> list[Sequence[str]]:
            return [text.split("\t") if pairs else [text] for text in as_strings(value, name)]

        return self.read_texts("prompt", split)

    def sources(self) -> tuple[list[list[Ids]], GenerateConfig]:
        require(
            not (self.continues and self.config.key_phrases),
            "key_phrases must be left out: outputs of this model continue their prompts",
        )
        if self.ids is None:
            return self.read()
        max_source = self.generator.task.trained.max_source
        return self.check_lengths([ids] for ids in self.ids), replace(
            self.config, max_source_len=max_source
        )

    def job(self) -> Job:
        if not self.echoes or self.body.get("max_tokens") != 0:
            return super().job()
        # nothing is written: the prompts are read
        require(not read_flag(self.body, "stream"), "stream must be false where nothing is written")
        require(self.num_outputs == 1, "n must be 1 where nothing is written")
        sources, _ = self.sources()

        def read(items: list[Any], report: Report) -> list[Any]:
            shaped = []
            for route, number, source in items:
                report(0)
                shaped.append(route.shape(route.echo(Reply(number, "", "length", 0), source)))
            return shaped

        def answer(shaped: list[Any]) -> Any:
            usage = {"prompt_tokens": job.cost, "completion_tokens": 0}
            usage["total_tokens"] = job.cost
            return {**self.frame(self.name), "choices": shaped, "usage": usage}

        items = [(self, number, source) for number, source in enumerate(sources)]
        job = self.batch_job(items, read, answer, count_tokens(sources))
        return job

    def choice(self, index: int, prompt: Prompt, hypothesis: Hypothesis) -> Reply:
        reply = super().choice(index, prompt, hypothesis)
        return self.echo(reply, prompt.source) if self.echoes else reply

    def opening(self, index: int, source: list[Ids]) -> str:
        if not self.echoes:
            return ""
        if self.ids is None:  # the text as it was sent: its tokens may spell it otherwise
            [text] = self.texts[index // self.num_outputs]
            return text
        return self.speller_of(source).text

    def speller_of(self, source: list[Ids]) -> Speller:
        """What has spelt a prompt."""
        speller = Speller(self.generator.vocab.decode)
        speller.add(np.concatenate([*source, []]).astype(np.int64))
        speller.end()
        return speller

    def echo(self, choice: Reply, source: list[Ids]) -> Reply:
        """A choice after its prompt, whose tokens have log-probabilities if they are asked for."""
        ids = np.concatenate([*source, []]).astype(np.int64)
        text = self.opening(choice.index, source)
        pieces = self.speller_of(source).pieces
        if self.ids is None:
            pieces = pieces_of(text, self.generator.vocab.offsets(text)) or [text] * len(ids)
        echoed = replace(choice, text=text + choice.text)
        if self.alternatives is None or not len(ids):
            return echoed
        gains = np.empty(0, np.float32)
        tops = [Alternatives()] * (len(ids) - 1)
        if len(ids) > 1:
            # before the first one is nothing, or what the task puts there
            table = self.log_probs(self.generator.task.likelihood(ids[:0], ids))[1 - len(ids) :]
            gains = table[np.arange(len(table)), ids[1:]]
            tops = self.top_tokens(table, ids[1:], gains, pieces[1:]) if self.alternatives else tops
        return replace(
            echoed,
            pieces=[*pieces, *choice.pieces],
            gains=[None, *gains.tolist(), *choice.gains],
            tops=[Alternatives(), *tops, *choice.tops],
        )

    def shape(self, choice: Reply) -> dict[str, Any]:
        logprobs = None
        if self.alternatives is not None:
            starts = np.cumsum([0, *map(len, choice.pieces)])[:-1]
            tops = [dict(top) or None for top in choice.tops] if self.alternatives else None
            logprobs = {"tokens": choice.pieces, "token_logprobs": choice.gains}
            logprobs |= {"top_logprobs": tops, "text_offset": starts.tolist()}
        entry = {"index": choice.index, "text": choice.text, "logprobs": logprobs}
        return entry | {"finish_reason": choice.finish}

    def delta(self, index: int, text: str, first: bool, done: Any = None) -> dict[str, Any]:
        plain = {"logprobs": None, "finish_reason": None}
        return {**plain, **(done or {}), "index": index, "text": text}

    def text_in(self, choice: dict[str, Any]) -> str:
        return str(choice["text"])
