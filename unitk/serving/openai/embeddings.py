"""`/v1/embeddings`: a vector for each text."""

from __future__ import annotations

import base64
from functools import cached_property
from typing import Any

import numpy as np

from unitk.decoding.config import EmbedConfig
from unitk.decoding.files.outputs import list_numbers
from unitk.decoding.texts.sources import as_strings, split_parts
from unitk.errors import require
from unitk.registry import register
from unitk.serving.batching import Job
from unitk.serving.openai.fields import check_fields, error_body, read_integer
from unitk.serving.openai.prompts import read_ids
from unitk.serving.route import Route, count_tokens, model_of
from unitk.serving.routes import embed_sources
from unitk.slots import Ids

FORMATS = "float", "base64"


@register("route", "v1/embeddings")
class Embeddings(Route):
    """A vector for each text, as numbers or as base64 of 32-bit floats."""

    Options = EmbedConfig
    takes = ("input", "encoding_format", "dimensions")
    listed = False

    @classmethod
    def translate(cls, body: dict[str, Any]) -> dict[str, Any]:
        return check_fields(body, ["model", "task", *cls.takes, *cls.options()], {})

    @classmethod
    def refuse(cls, status: int, message: str, error: BaseException | None) -> tuple[int, Any]:
        return error_body(status, message, error)

    @cached_property
    def sources(self) -> list[list[Ids]]:
        """The ids of each text."""
        if (ids := read_ids(self, "input")) is not None:
            return self.check_lengths([ids_of_text] for ids_of_text in ids)
        return self.encode(split_parts(self.read_texts("input", as_strings)))

    def job(self) -> Job:
        form = self.body.get("encoding_format", "float")
        require(form in FORMATS, f"encoding_format must be {' or '.join(FORMATS)}, got {form!r}")
        width = model_of(self.generator).reader.config.width
        size = read_integer(self.body, "dimensions", 1, width)
        require(size == width, f"dimensions must be {width}, the width of this model, got {size}")
        require(self.config.pool != "none", "pool must be one that makes a vector of a text")
        for number, source in enumerate(self.sources, 1):
            require(count_tokens([source]) > 0, f"input: text {number} is empty")

        def answer(vectors: list[Any]) -> Any:
            data = [
                {"object": "embedding", "index": index, "embedding": vector_as(vector, form)}
                for index, vector in enumerate(vectors)
            ]
            used = count_tokens(self.sources)
            usage = {"prompt_tokens": used, "total_tokens": used}
            return {"object": "list", "data": data, "model": self.body["model"], "usage": usage}

        return embed_sources(self, self.sources, answer)


def vector_as(vector: Any, form: str) -> Any:
    """A vector as json has it."""
    if form == "float":
        return list_numbers(vector)
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
