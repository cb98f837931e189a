"""Drivers write outputs for prompts; a task names the one that it needs (`Task.driver`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from typing import Protocol as Interface

from unitk import registry
from unitk.data.texts import shorten
from unitk.decoding.config import GenerateConfig, RulesConfig, slope
from unitk.decoding.constraints.base import Constraint, spellings
from unitk.decoding.constraints.searches import OnStep
from unitk.decoding.fit import check_length, check_places, lay_out_to_fit, measure_overrun
from unitk.decoding.search import Hypothesis
from unitk.errors import DataError, UsageError, amount, require, show_value
from unitk.models.base import Decoder
from unitk.options.fields import options
from unitk.progress import Report, no_report
from unitk.slots import Example, Ids, Protocol
from unitk.tasks.base import Task

DIFFUSION = "steps", "order", "block_length"
"""Options that only diffusion reads."""
RULES = [option.name for option in options(RulesConfig) if option.name != "max_len"]
SEARCH = ["search", "diverse_beam_groups", "diverse_beam_strength", "capture", *RULES]
"""Options that only drivers which write word by word read."""


@dataclass(frozen=True)
class Prompt:
    """A source laid out for a model, and the constraint on its outputs."""

    number: int
    """The number of the source among all inputs, which seeds the draws."""
    source: list[Ids]  # shortened where necessary
    example: Example
    constraint: Constraint
    seed: int | None = None
    """Seed of its draws in place of the options' `seed`, in a search that is run step by step."""

    def seeds(self, seed: int) -> tuple[int, int]:
        """The seeds of its draws; `seed` is that of the options."""
        return (seed if self.seed is None else self.seed), self.number


@dataclass(frozen=True)
class Watcher:
    """Callbacks that follow the decoding of prompts."""

    report: Report = no_report
    """Called with the number of prompts that have just been finished."""
    on_step: OnStep | None = None
    """Called after each step of a search, and each pass of diffusion."""


class Running(Interface):
    """A search over a batch of prompts, which its caller runs step by step."""

    rows: Any
    """The numbers of the prompts that it holds: a tensor, empty at the end."""

    def step(self, on_step: Any = None) -> list[tuple[int, list[Hypothesis]]]:
        """Write a word of every hypothesis; returns the prompts that finish, each as its number
        with its n best outputs."""

    def drop(self, numbers: Sequence[int]) -> None:
        """Stop decoding the prompts with these numbers."""

    def partial_output(self, number: int) -> Hypothesis:
        """The best open hypothesis of a prompt that has not finished."""


@dataclass(frozen=True)
class Driver(ABC):
    """Writes outputs of a model for the prompts of a task; subclasses are registered."""

    model: Decoder
    task: Task
    protocol: Protocol | None
    """That of the task, endless if the model has no trained end symbol (`search_protocol`)."""
    shortens: ClassVar[bool] = True  # whether `truncate` shortens a source to the positions
    steps: ClassVar[bool] = False  # whether it can `begin`

    def prompt(
        self,
        number: int,
        source: list[Ids],
        constraint: Constraint,
        config: GenerateConfig,
        truncate: bool,
    ) -> Prompt:
        """The prompt of a source, which is shortened to the limit of the options.

        One that is too long for the model raises DataError, or is shortened if `truncate` is set.
        """
        name = f"input {number + 1}"
        limits = self.model.config
        if config.avoid_part:
            constraint = self.avoid_part(source, constraint, config.avoid_part, name)

        def lay_out(source: list[Ids]) -> Prompt:
            exactly = self.task.length(source)
            words = sum(map(len, source))
            sized = constraint.with_lengths(config, words, exactly=exactly, name=name)
            return Prompt(number, source, self.lay_out(source, sized, name), sized)

        def overrun(prompt: Prompt) -> int:
            max_len = prompt.constraint.max_len
            return measure_overrun(prompt.example, self.protocol, max_len, limits)[0]

        prompt, fits = lay_out_to_fit(
            shorten(source, config.max_source_len),
            lay_out,
            overrun,
            truncate and self.shortens,
            slope(config.max_len),  # the longest output may become shorter with the source
        )
        max_len = prompt.constraint.max_len
        check_length(prompt.source, max_len, overrun(prompt), limits)
        check_places(prompt.example, self.protocol, max_len, limits, name, fits)
        if config.extract:
            extract = registry.get("constraint", "extract")
            prompt = replace(prompt, constraint=extract(prompt, self.task, self.protocol))
        return prompt

    def avoid_part(
        self, source: list[Ids], constraint: Constraint, number: int, name: str
    ) -> Constraint:
        """The constraint that also forbids the words of a part of the source, counted from 1."""
        if number > len(source):
            has = amount(len(source), "parts")
            raise DataError(f"{name} has {has}, but --avoid-part is {number}")
        phrase = self.task.vocab.decode(source[number - 1])
        return replace(constraint, avoid=tuple(sorted(spellings(phrase, self.task.vocab))))

    def lay_out(self, source: list[Ids], constraint: Constraint, name: str) -> Example:
        """Lay out a source as the model reads it."""
        return self.task.prompt(source)

    def check_from_nothing(self, asked: str = "--num-samples") -> None:
        """Raise UsageError unless the model can write where nothing is given.

        asked: the option or the input that asks for it, as the message names it.
        """
        task = self.task
        able = [name for name in registry.names("task") if registry.get("task", name).from_nothing]
        fault = f"{asked}: task {task.name} does not write from nothing"
        cure = f"{', '.join(able)} do"
        if self.model.config.latent:
            cure = "unitk latent sample draws from its latent"
        require(task.from_nothing, f"{fault}; {cure}")
        cure = "give it a source"
        require(not task.trained.pairs, f"{fault}, as its model was trained on pairs: {cure}")
        prompt = self.lay_out([], Constraint(), "")
        read = prompt.towers[prompt.decoded].token
        lacking = task.vocab.pieces(read[(read >= self.model.trained) & (read < len(task.vocab))])
        require(not lacking, f"{fault}: the imported model lacks {', '.join(lacking)}; {cure}")

    @abstractmethod
    def outputs(
        self, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
    ) -> list[list[Hypothesis]]:
        """The n best outputs for each prompt; UsageError for options that have no effect."""

    def begin(self, prompts: Sequence[Prompt], config: GenerateConfig) -> Running:
        """Begin a search over prompts in one batch, which the caller runs step by step."""
        raise NotImplementedError


def drive(
    driver: Driver, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
) -> list[list[Hypothesis]]:
    """The n best outputs for each prompt; a plug-in's driver may return anything."""
    outputs: Any = driver.outputs(prompts, config, watch)
    if isinstance(outputs, list) and len(outputs) == len(prompts):
        return outputs
    name = driver.task.driver
    raise UsageError(
        f"driver {name!r} of {registry.sources('driver')[name]} must return a list of Hypotheses "
        f"for each of {len(prompts)} prompts, got {show_value(outputs)}"
    )
