"""What `unitk evaluate` measures: registered evaluations, whose fields are options.

    @register("evaluation", "first_word")
    @dataclass(frozen=True, kw_only=True)
    class FirstWord(TextEvaluation): ...

`--first-word FILE` chooses it, and its docstring is the help of that option. Its fields are further
options: those that have an effect with it. No module of an evaluation imports torch at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from unitk.options.fields import Checked, Positive, options
from unitk.progress import Report

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator
    from unitk.evaluation.objective import Setup
    from unitk.options.config import Parsed
    from unitk.slots import Floats, Ids

Progress = Callable[..., AbstractContextManager[Report]]
"""`progress(total, unit="sentences")` shows a bar; what it yields is told how many are done."""


@dataclass(frozen=True)
class Judged:
    """Figures by name, lines that show them, and a json record for each text."""

    figures: dict[str, Any]
    lines: list[str]
    each: Iterable[dict[str, Any]] = ()


def figure_lines(figures: dict[str, Any]) -> list[str]:
    """A line for each figure."""
    return [
        f"{name + '  ':<24}{value:,}" if isinstance(value, int) else f"{name + '  ':<24}{value:.4f}"
        for name, value in figures.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Checked):
    """The base of all evaluations; their fields are options of `unitk evaluate`."""

    max_tokens: Positive = 8192
    """Maximum slots of a forward pass. It changes the figures of a latent by rounding only."""

    @classmethod
    def of(cls, chosen: Any) -> Self:
        """An evaluation with those of the given options that are its own."""
        return cls(**{option.name: getattr(chosen, option.name) for option in options(cls)})


@dataclass(frozen=True, kw_only=True)
class CorpusEvaluation(Evaluation):
    """Measures of a model on --data, laid out by its task. Of those that fit it, the first is used,
    and `objective` where no other does."""

    draws: Positive | None = None
    """Draws for a bound. Optimus: of each latent, for the importance-weighted bound; default 100.
    Diffusion: of the hidden tokens of each text, whose mean is the bound; default 8."""

    @classmethod
    def fits(cls, setup: Setup) -> bool:
        """Whether the evaluation applies to such a model."""
        raise NotImplementedError

    def judge(self, setup: Setup, progress: Progress) -> Judged:
        """Measure the model on all texts."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TextEvaluation(Evaluation):
    """Measures of what a model makes of texts. They are in the files that the option with the
    evaluation's name gives. With `on_corpus` they are those of --data, and that option is a field
    of the class."""

    on_corpus: ClassVar[bool] = False

    def read(self, paths: Sequence[Path]) -> Sequence[Any]:
        """The texts of files, or of a corpus; `DataError` names file and line."""
        raise NotImplementedError

    def judge(self, generator: Generator, texts: Sequence[Any], progress: Progress) -> Judged:
        """Measure what the model makes of the texts."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RawEvaluation(Evaluation):
    """Measures of a model on the text of --data before a vocabulary encodes it."""

    def measure(self, parsed: Parsed, progress: Progress) -> tuple[dict[str, Any], Judged]:
        """Measure a model on a text; returns the names of both (a record), and the result."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Writing(TextEvaluation):
    """Texts with a record for each of them."""

    output: Path | None = None
    """File of json-lines to write: scores or texts of pairs, last words, choices and infilling."""
    overwrite: bool = False
    """Replace an --output that exists."""


@dataclass(frozen=True, kw_only=True)
class Scoring(TextEvaluation):
    """Texts with the log-probabilities of their tokens."""

    whole_words: bool = False
    """Pseudo-log-likelihood: hide the later pieces of a token's word together with the token."""

    def likelihoods(
        self,
        generator: Generator,
        texts: Sequence[tuple[Ids, Ids]],
        name: Callable[[int], str],
        progress: Progress,
        truncate: bool = False,
        unit: str = "sentences",
    ) -> list[Floats]:
        """The scores of each text after its context, with a bar (`decoding.likelihood`)."""
        from unitk.decoding.likelihood import likelihoods  # imports torch

        with progress(len(texts), unit=unit) as report:
            return likelihoods(
                generator.model,
                generator.task,
                texts,
                whole_words=self.whole_words,
                truncate=truncate,
                max_tokens=self.max_tokens,
                name=name,
                report=report,
            )
