"""`unitk show --task NAME "a b c d e f"`: the slots and the mask of an objective for a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unitk import config, masks
from unitk.data.cuts import Text
from unitk.errors import UsageError, require
from unitk.files import new_file
from unitk.slots import Example
from unitk.tasks.base import Task
from unitk.tasks.understanding.base import Headed, Understanding
from unitk.vocab.base import open_vocab
from unitk.vocab.words import word_vocab


@dataclass(frozen=True, kw_only=True)
class Options:
    """Draw the slots, labels and mask that an objective lays out for a text.

    unitk show --task pmlm "a b c d e f" --output mask.png
    """

    text: tuple[str, ...] = ()
    """The text. Without --vocab every word is a token. --task classify, regress, span and choice
    take several texts, each in quotes."""
    target: str | None = None
    """Show the fine-tuning layout of text -> target instead of pre-training."""
    output: Path | None = None
    """Also draw the mask to this .png, .svg or .pdf file."""
    vocab: Path | None = None
    """Tokenize with the vocabulary of a corpus, a checkpoint or a tokenizer file."""
    seed: int = 0
    """Seed of the random draws."""
    order: Literal["memory", "pos"] = "memory"
    """Order of the slots in the picture: as the task writes them (memory), or by position (pos).
    The model computes the same for both."""
    user_dir: Path | None = None
    """Folder of plug-ins. Every .py file in it is imported."""


def run(argv: Sequence[str]) -> None:
    """Print the table and the mask; write a picture if requested."""
    parsed = config.parse("show", Options, argv, kinds=("task",), positional="text")
    options, task_choice = parsed.main, parsed.components["task"]
    require(not parsed.mixture, "--task: one task is drawn at a time")
    text = " ".join(options.text)
    require(bool(text.strip()), 'a text is needed: unitk show --task NAME "a b c d e f"')
    suffix = options.output.suffix if options.output else ".png"
    if suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--output must end in .png, .svg or .pdf, got {options.output}")
    vocab = open_vocab(options.vocab) if options.vocab else word_vocab(text, options.target or "")
    task = task_choice.made_from(task_choice.config, vocab)
    rng = np.random.default_rng([options.seed, 0, 0])
    ids = np.array(vocab.encode_marked(text))
    if isinstance(task, Understanding):
        parsed.idle(f"with --task {task_choice.name}: each text in quotes is a part", "target")
        parts = [f" {word}" for word in text.split()] if task.form == "tags" else options.text
        example = task.asking([np.array(vocab.encode(part)) for part in parts])
    elif options.target is None:
        example = task.pretrain(Text([ids], np.zeros(1, int)), rng)
    else:
        example = task.finetune([ids], np.array(vocab.encode(options.target)), rng)
    for tower in example.towers:
        _draw(task_choice.name, task, tower, example, options)


def _draw(title: str, task: Task, tower: str, example: Example, options: Options) -> None:
    slots, vocab, output = example.towers[tower], task.vocab, options.output
    # slot -> what is asked there
    labels: dict[int, str] = {}
    for ask in example.asks:
        kind = ask.head.partition(":")[0]
        words = kind in ("lm", "sbo") and ask.among is None
        if isinstance(task, Headed) and kind == task.head and ask.tower == tower:
            # what is read there; nobody has said what is right
            labels |= dict.fromkeys(ask.rows.ravel().tolist(), ask.name)
            continue
        for row, label in zip(ask.first.tolist(), ask.label, strict=True):
            if ask.tower == tower:  # questions that begin at one slot share its column
                text = _names(task, [label])[0] if words else f"{label}"
                text = text if kind == "lm" else f"{ask.name}={text}"
                labels[row] = f"{labels[row]},{text}" if row in labels else text
    if options.order == "pos":
        # stable: slots of one position stay as the task has written them
        order = np.argsort(slots.pos, kind="stable")
        slots = slots.take(order)
        labels = {i: labels[row] for i, row in enumerate(order.tolist()) if row in labels}
    names = _names(task, slots.token)
    if len(example.towers) > 1:
        print(f"{tower}:")
    print(masks.table(slots, names, labels, cross=tower == "enc"))
    print("", masks.text_picture(slots, names), sep="\n")
    if output is not None:
        hidden = {vocab.symbols[s] for s in ("mask", "gmask", "smask") if s in vocab.symbols}
        path = output if len(example.towers) == 1 else output.with_stem(f"{output.stem}-{tower}")
        with new_file(path, "--output") as part:
            masks.save(masks.picture(slots, names, hidden, title), part)
        print(f"\n{path}")


def _names(task: Task, ids: Iterable[int]) -> list[str]:
    """The tokens by name; the symbols around a blank as in GLM's figure."""
    vocab = task.vocab
    short = {vocab.sop: "[S]", vocab.eop: "[E]"}
    short |= {len(vocab) + number: name for number, name in enumerate(task.virtual)}
    return [short.get(int(index)) or vocab.pieces([index])[0] for index in ids]
