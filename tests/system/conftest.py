"""`runs`: tiny runs of every registered task in this process; an update costs milliseconds."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entity_files
import pytest
from exact_options import DETERMINISTIC
from labelled_corpora import FORMS, write_corpora
from paper_archs import arch_of

from unitk import registry
from unitk.tasks.base import Task
from unitk.training import loop
from unitk.training.start import parse_train, prepare
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab

PATTERNS = 'fields: [a]\nanswers: {"no": ba, "yes": na ba}\npatterns: ["{a} The [M]"]\n'


@dataclass
class Runs:
    """What trains, and stops, runs of a few thousand weights."""

    data: Path
    labelled: Path

    def words(self, task: str) -> str:
        """The options that a run of this task needs; it has dropout."""
        kind = registry.get("task", task)
        arch = arch_of(kind).rpartition("_")[0]
        text = kind.pretrain is not Task.pretrain
        data = self.data / ("text" if text else "pairs")
        data = self.labelled / FORMS[task] if task in FORMS else data
        pairs = task in (
            "unilm",
            "pmlm",
            "albert",
            "ernie",
            "ernie2",
            "thu_ernie",
        )  # which cut texts themselves
        cut = " --blocks line" if text and not pairs else ""
        more = ""
        if task == "cloze":
            (self.labelled / "own.yaml").write_text(PATTERNS)
            data = self.labelled / "class"
            more = f" --task.patterns {self.labelled / 'own.yaml'} --task.multi-token on"
        if task == "multi_label":
            data = self.labelled / "classes"
        if task == "mtdnn":
            data = f"{self.labelled / 'class'} --data {self.labelled / 'number'}"
        if task == "thu_ernie":
            linked = entity_files.write_entities(self.labelled, open_vocab(data / "train"))
            more = "".join(f" --task.{key} {path}" for key, path in linked.items())
        sizes = "--arch.width 16 --arch.num-layers 1 --arch.num-heads 2 --arch.ffn-width 32"
        if registry.get("arch", f"{arch}_tiny")().sequential:
            sizes = "--arch.width 16 --arch.cell-width 32"
        return (
            f"--task {task}{more} --arch {arch}_tiny --arch.dropout 0.1 {sizes}"
            f" --data {data} --block-size 64{cut}"
            f" --lr 1e-2 --writers none {DETERMINISTIC}"
        )

    def train(self, words: str, folder: Path, stop: int = 0) -> list[Any]:
        """Train, or go on; SIGTERM comes in the midst of update `stop`. What the updates were."""
        seen: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            update = loop.Trainer.update

            def watched(trainer: loop.Trainer, one: Any) -> None:
                seen.append(one)
                if trainer.progress.step + 1 == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
                update(trainer, one)

            patch.setattr(loop.Trainer, "update", watched)
            try:
                loop.train(
                    prepare(parse_train([*words.split(), "--resume", f"--save-dir={folder}"]))
                )
                assert not stop, f"the run ended before update {stop}"
            except SystemExit as exit:
                assert (stop > 0, exit.code) == (True, 143)
        return seen


@pytest.fixture(scope="session")
def runs(toy_data: Path, toy_vocab: Vocab, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The tiny runs on the toy data."""
    return Runs(toy_data, write_corpora(tmp_path_factory.mktemp("labelled"), toy_vocab))
