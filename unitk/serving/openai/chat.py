"""`/v1/chat/completions`: a message is the source of a model that was trained on pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.errors import UsageError, require
from unitk.registry import register
from unitk.serving.openai.fields import read_flag, read_integer
from unitk.serving.openai.writing import Alternatives, Reply, WritingRoute
from unitk.slots import Ids

MOST = 20
"""The most alternatives of a token."""
SHAPE = '[{"role": "user", "content": "..."}]'


@register("route", "v1/chat/completions")
class Chat(WritingRoute):
    """Outputs for the message of a user, each of whose parts is one of the source."""

    takes = (
        *("messages", "max_completion_tokens", "n", "best_of", "seed", "stop"),
        *("logprobs", "top_logprobs", "stream", "stream_options"),
    )
    fixed = WritingRoute.fixed | {
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "response_format": ({"type": "text"},),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "reasoning_effort": ("none",),
        "web_search_options": (),
        "parallel_tool_calls": (True, False),
    }
    needs = "models that were trained on pairs; /v1/completions is for others"
    name, event, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    @staticmethod
    def fits(generator: Generator) -> bool:
        return generator.task.generates and generator.task.trained.pairs

    @classmethod
    def translate(cls, body: dict[str, Any]) -> dict[str, Any]:
        body = {name: value for name, value in body.items() if value is not None}
        if "max_completion_tokens" in body:  # the newer name of the same
            require(
                "max_tokens" not in body,
                "max_tokens must be left out beside max_completion_tokens",
            )
            body["max_tokens"] = body.pop("max_completion_tokens")
        if "max_tokens" in body:
            read_integer(body, "max_tokens", 1, 1)
        return super().translate(body)

    @cached_property
    def alternatives(self) -> int | None:
        reports = read_flag(self.body, "logprobs")
        count = read_integer(self.body, "top_logprobs", 0, 0)
        require(count <= MOST, f"top_logprobs must be at most {MOST}, got {count}")
        require(reports or not count, "top_logprobs must be left out without logprobs")
        return count if reports else None

    @cached_property
    def texts(self) -> list[Sequence[str]]:
        require(self.body.get("messages"), f"messages must be {SHAPE}")
        return self.read_texts("messages", lambda messages, name: [parts_of(messages)])

    def sources(self) -> tuple[list[list[Ids]], GenerateConfig]:
        return self.read()

    def shape(self, choice: Reply) -> dict[str, Any]:
        content = None
        if self.alternatives is not None:
            tokens = zip(choice.pieces, choice.gains, choice.tops, strict=True)
            content = [
                token(piece, gain, tops[: self.alternatives]) for piece, gain, tops in tokens
            ]
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        logprobs = None if content is None else {"content": content, "refusal": None}
        entry = {"index": choice.index, "message": message, "logprobs": logprobs}
        return entry | {"finish_reason": choice.finish}

    def delta(self, index: int, text: str, first: bool, done: Any = None) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        entry = {"index": index, "delta": role | {"content": text}}
        done = done or {}
        entry |= {"logprobs": done.get("logprobs")}
        return entry | {"finish_reason": done.get("finish_reason")}

    def text_in(self, choice: dict[str, Any]) -> str:
        return str(choice["message"]["content"])


def token(piece: str, gain: float | None, tops: Alternatives) -> dict[str, Any]:
    """A token with its log-probability, and the most probable ones in its place."""
    entry: dict[str, Any] = {"token": piece, "logprob": gain, "bytes": [*piece.encode()]}
    others = [{"token": t, "logprob": p, "bytes": [*t.encode()]} for t, p in tops]
    return entry | {"top_logprobs": others}


def parts_of(messages: Any) -> list[str]:
    """The parts of the source that the only message is: its text parts, or what tabs separate."""
    right = isinstance(messages, list) and all(isinstance(message, dict) for message in messages)
    require(right, f"messages must be {SHAPE}")
    for message in messages:
        role = message.get("role")
        require(
            role == "user",
            f"messages: a message of role {role!r}; models here read one of role 'user'",
        )
    require(len(messages) == 1, f"messages: {len(messages)} given; models here read one")
    content = messages[0].get("content")
    if isinstance(content, str):
        return content.split("\t")
    require(isinstance(content, list) and len(content) > 0, f"messages must be {SHAPE}")
    texts = list[str]()
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise UsageError(f"messages: a part of type {kind!r}; models here read 'text'")
        texts.append(part["text"])
    return texts
