"""unitk's checkpoints as models of lm-evaluation-harness (the extra `lm-eval`).

import lm_eval
from unitk.evaluation.harness import UnitkLM

lm_eval.simple_evaluate(model=UnitkLM("runs/lm"), tasks=["lambada_openai", "piqa"])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lm_eval.api.model import LM

import unitk
from unitk.decoding.likelihood import likelihoods
from unitk.evaluation.windows import cut_windows
from unitk.slots import Floats, Ids, exact_sum

if TYPE_CHECKING:
    from unitk.kernels.weights import Precision

LONGEST = 1024
"""Tokens that a model without a table of positions reads at once."""
SYMBOLS = 4
"""Most symbols that a layout adds to a text."""


class UnitkLM(LM):
    """A run or checkpoint; the arguments are those of `unitk.load`, and of `unitk evaluate`."""

    def __init__(
        self,
        checkpoint: str | Path,
        device: str = "cpu",
        *,
        task: str | None = None,
        precision: Precision = "fp32",
        whole_words: bool = False,
        max_tokens: int = 16384,
    ) -> None:
        super().__init__()
        self.generator = unitk.load(checkpoint, device, task=task, precision=precision)
        self.generator.defaults = {}  # requests say how outputs are decoded
        self.whole_words = whole_words
        self.max_tokens = max_tokens

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """The log-probability of each continuation, and whether it is the greedy output."""
        vocab = self.generator.vocab
        pairs = list[tuple[Ids, Ids]]()
        for context, text in (request.args for request in requests):
            kept = context.rstrip()  # a blank at the end belongs to the word after it
            encode = vocab.encode_inside if kept else vocab.encode
            ids = encode(context[len(kept) :] + text)
            pairs.append((np.array(vocab.encode(kept), np.int64), np.array(ids, np.int64)))
        return [
            (exact_sum(gains), bool(greedy.all())) for gains, greedy in self._score_pairs(pairs)
        ]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """The log-probability of each text, in windows half of which is context."""
        texts = [text for (text,) in self.generator.encode([[r.args[0]] for r in requests])]
        half = ((self.generator.model.config.position_limit or LONGEST) - SYMBOLS) // 2
        cut = [cut_windows(text, half, half) for text in texts]
        scores = iter(self._score_pairs([window for some in cut for window in some]))
        return [sum(exact_sum(next(scores)[0]) for _ in some) for some in cut]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Generate after each context, up to the first of the strings that end it."""
        alike: dict[tuple[int, float], list[int]] = {}  # temperature 0: greedy
        for number, (_, arguments) in enumerate(request.args for request in requests):
            warm = float(arguments.get("temperature") or 1.0) if arguments.get("do_sample") else 0.0
            alike.setdefault((arguments.get("max_gen_toks", 256), warm), []).append(number)
        written = [""] * len(requests)
        for (max_len, warm), numbers in alike.items():
            how: dict[str, Any] = {"sampling": True, "temperature": warm} if warm else {"beam": 1}
            contexts = [requests[number].args[0] for number in numbers]
            outputs = self.generator.generate(contexts, truncate=True, max_len=max_len, **how)
            for number, [best] in zip(numbers, outputs, strict=True):
                stops = requests[number].args[1].get("until") or []
                written[number] = _cut_at(best.text, [stops] if isinstance(stops, str) else stops)
        return written

    def _score_pairs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Floats]:
        """Score each text, [2, tokens]; a context that is too long loses its beginning."""
        return likelihoods(
            self.generator.model,
            self.generator.task,
            pairs,
            whole_words=self.whole_words,
            truncate=True,
            max_tokens=self.max_tokens,
        )


def _cut_at(text: str, stops: Sequence[str]) -> str:
    """The part of a text before the first of these strings."""
    for stop in filter(None, stops):
        text = text.split(stop)[0]
    return text
