"""Several labelled corpora at once, a head each.  Liu et al. 2019, arXiv 1901.11504, section 3.

The texts of a corpus are laid out by the task of its labels. All layers below the heads are shared.
Ask and head have the name of the corpus, which is that of its folder.

    corpus    labels     laid out by    head              ask
    cola      class      classify       class:cola:2      cola
    stsb      number     regress        regress:stsb      stsb
    conll     tags       tag            tag:conll:9       conll
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from unitk import registry
from unitk.errors import require
from unitk.families.mtdnn.config import TAKEN
from unitk.registry import register
from unitk.slots import Example, Floats, Ids
from unitk.tasks.understanding.base import Headed, Labelling

TASKS = {"class": "classify", "number": "regress", "tags": "tag"}
"""Form of labels -> the task that lays out their texts."""


@register("task", "mtdnn")
class MTDNN(Headed):
    """Learn several labelled corpora at once, with an output layer for each (MT-DNN)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Headed.Config):
        """The inputs' objective, auxiliary loss, separators, and the corpus to predict."""

        corpus: str = ""
        """Corpus of the training whose labels `unitk predict` predicts, by the name of its folder.
        Default: the only one."""

    config: Config
    joins = True
    criterion = needs_criterion = "mtdnn"

    @cached_property
    def corpus_tasks(self) -> Mapping[str, Labelling]:
        """The task of each corpus of the training, by name."""
        labellings = dict[str, Labelling]()
        for name, (form, *labels) in self.trained.corpora.items():
            word = name.replace("-", "_").isidentifier() and name not in TAKEN
            require(
                word,
                f"--data: {name!r} names no head; rename that folder, to letters and digits, and "
                f"not to {' or '.join(TAKEN)}",
            )
            require(
                form in TASKS,
                f"task mtdnn learns labels of the forms {', '.join(TASKS)}, but {name} has {form}",
            )
            trained = replace(self.trained, labels=tuple(labels), corpora={})
            labellings[name] = self.task_of_form(form).with_attributes(trained=trained)
        return labellings

    def task_of_form(self, form: str) -> Labelling:
        """The task that learns labels of a form, with the options of this one."""
        made_from = registry.get("task", TASKS[form])
        given = {option.name: getattr(self.config, option.name) for option in fields(Headed.Config)}
        task: Labelling = made_from(made_from.Config(**given), self.vocab)
        return task

    def for_corpus(self, manifest: Mapping[str, Any]) -> MTDNN:
        name = manifest["name"]
        chosen = self.config.corpus
        require(chosen in ("", name), f"--task.corpus {chosen} has no effect in training")
        return self.with_attributes(config=replace(self.config, corpus=name))

    @property
    def chosen_task(self) -> Labelling:
        """The task of the corpus that was chosen, or of the only one."""
        known = self.corpus_tasks
        name = self.config.corpus
        if not known:  # of nothing that was trained, to draw its slots
            return self.task_of_form("number")
        if name in known:
            return known[name]
        trained = f"the model learnt {', '.join(known)}"
        require(not name, f"--task.corpus {name}: {trained}")
        require(len(known) == 1, f"--task.corpus is needed: {trained}")
        return next(iter(known.values()))

    @property
    def form(self) -> str:  # type: ignore[override]
        # in training, each corpus has a form of its own
        return self.chosen_task.form if self.config.corpus or len(self.corpus_tasks) == 1 else ""

    @property
    def heads(self) -> tuple[str, ...]:  # type: ignore[override]
        named = (
            task.heads[0].replace(":label", f":{name}", 1)
            for name, task in self.corpus_tasks.items()
        )
        return *named, *self.layout.table_heads

    @property
    def labels(self) -> tuple[str, ...]:
        return self.chosen_task.labels

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        if self.config.corpus:
            return self.ask_for(self.config.corpus, self.chosen_task.classify(parts, labels, rng))
        # made up, to measure layouts: those of no other form have more slots
        return self.task_of_form("number").classify(parts, labels, rng)

    def lay_out(self, parts: list[Ids]) -> Example:
        task = self.chosen_task
        names = (name for name, known in self.corpus_tasks.items() if known is task)
        return self.ask_for(next(names, "label"), task.lay_out(parts))

    def ask_for(self, name: str, example: Example) -> Example:
        """The example with the ask and the head of a corpus."""
        first, *others = example.asks
        head = first.head.replace(":label", f":{name}")
        return replace(example, asks=[replace(first, name=name, head=head), *others])

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        return self.chosen_task.prediction(parts, output)

    def texts(self, parts: Sequence[str]) -> list[str]:
        return self.chosen_task.texts(parts)
