"""`unitk show`: draw the slots and the mask of an objective."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unitk.api.drawing import Drawing, drawings, lay_out_text, page
from unitk.api.verb import verb
from unitk.decoding.files.outputs import check_spelling
from unitk.errors import print_note, require
from unitk.files import create, new_file
from unitk.options.config import Parsed, UserDir
from unitk.options.fields import Checked, Count
from unitk.pictures import check_picture, save
from unitk.registry import register
from unitk.vocab.open import open_vocab
from unitk.vocab.words import word_vocab

EXAMPLE = '("The cat sat on the mat.", task="glm_infill")'


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Draw the slots, labels and mask that an objective lays out for a text.

    unitk show --task pmlm "a b c d e f" --output mask.png
    """

    text: tuple[str, ...] = ()
    """The text. Without --vocab every word is a token. Tasks of labelled texts, such as classify,
    span and choice, take several, each in quotes."""
    target: str | None = None
    """Show the fine-tuning layout of text -> target instead of pre-training."""
    output: Path | None = None
    """Also draw the mask to this .png, .svg or .pdf file. In an .html file, a click or a key on a
    slot shows what it sees."""
    vocab: Path | None = None
    """Tokenize with the vocabulary of a corpus, a checkpoint or a tokenizer file."""
    seed: Count = 0
    """Seed of the random draws."""
    order: Literal["memory", "pos"] = "memory"
    """Order of the slots in the picture: as the task writes them (memory), or by position (pos).
    The model computes the same for both."""
    user_dir: UserDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_picture(self.output, "--output", ".html")


def value(parsed: Parsed) -> list[Drawing]:
    """A drawing for each tower."""
    options = parsed.main
    task_choice = parsed.components["task"]
    require(not parsed.mixture, "--task: one task is drawn at a time")
    text = " ".join(options.text)
    require(text.strip(), 'a text is needed: unitk show --task NAME "a b c d e f"')
    is_path = len(options.text) == 1 and os.path.exists(text)
    require(not is_path, f"{text!r} is a file or folder: unitk show takes the text itself")
    vocab = open_vocab(options.vocab) if options.vocab else word_vocab(text, options.target or "")
    task = task_choice.made_from(task_choice.config, vocab)
    rng = np.random.default_rng([options.seed, 0, 0])
    if task.predicts:
        parsed.idle(f"with --task {task_choice.name}: each text in quotes is a part", "target")
    texts = options.text if task.predicts else [text]
    example = lay_out_text(task, texts, options.target, rng)
    return drawings(task_choice.name, task, example, options.order)


@register("verb", "show")
@verb(Options, words="text", kinds=("task",), value=value, example=EXAMPLE)
def run(parsed: Parsed) -> None:
    """Print the table and the mask; write a picture if requested."""
    output = parsed.main.output
    pictures = value(parsed)
    several = len(pictures) > 1
    written = list[Path]()  # before anything is printed, as nobody may read it
    if output and output.suffix == ".html":
        with new_file(output, "--output") as part:
            create(part, page(pictures))
        written = [output]
    elif output:
        for drawn in pictures:
            path = output.with_stem(output.stem + f"-{drawn.tower}" * several)
            with new_file(path, "--output") as part:
                save(drawn.figure(), part)
            written.append(path)
    shown = "\n".join(
        f"{drawn.tower}:\n" * several + f"{drawn.table()}\n\n{drawn.text_picture()}"
        for drawn in pictures
    )
    if written:
        print_note(*shown.split("\n"), "", *written)
    else:
        print(check_spelling(shown))
