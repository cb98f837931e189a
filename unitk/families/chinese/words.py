"""Words of Chinese, which has no blanks between them; the package jieba finds them."""

from __future__ import annotations

from pathlib import Path

import regex

from unitk.data.corpus.annotate import FIRST, INSIDE, Notes, mark_tokens
from unitk.data.files.lines import read_lines
from unitk.errors import UsageError
from unitk.registry import register
from unitk.vocab.base import Vocab

CHINESE = regex.compile(r"\p{Han}+")


@register("annotator", "jieba")
class Jieba:
    """Mark words of several Chinese characters as phrases; a file has words of the user's own."""

    def __init__(self, path: Path | None) -> None:
        try:
            import jieba
        except ImportError as error:
            raise UsageError(
                "--annotate jieba needs the package jieba: pip install 'unitk[chinese]'"
            ) from error
        jieba.setLogLevel("WARNING")  # it would print how its dictionary is loaded
        self.tokenizer = jieba.Tokenizer()
        if path is not None:
            for line in read_lines(path):
                self.tokenizer.add_word(line)

    def __call__(self, text: str, ids: list[int], vocab: Vocab) -> Notes:
        words = self.tokenizer.tokenize(text)
        places = [(a, b) for word, a, b in words if b > a + 1 and CHINESE.fullmatch(word)]
        return mark_tokens(text, ids, vocab, places, (FIRST, INSIDE))
