"""A file format: the lines of fastText, `__label__good A fine film.`"""

from __future__ import annotations

from typing import Any

from unitk.data.files.readers import LineReader
from unitk.errors import DataError
from unitk.registry import register


@register("reader", "fasttext")
class FastText(LineReader):
    """A label and a text on each line."""

    endings = (".ft", ".fasttext")

    def values(self, line: str, place: str) -> dict[str, Any]:
        label, _, text = line.partition(" ")
        if not label.startswith("__label__"):
            raise DataError(f"{place}: no __label__ at its beginning")
        return {"label": label.removeprefix("__label__"), "text": text}
