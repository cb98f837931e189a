"""Drawings of laid-out texts: the slots and the mask of each tower, as text, picture or page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from unitk import masks, notebook, pictures
from unitk.data.cuts import Text
from unitk.slots import Example, Slots
from unitk.tasks.base import Task
from unitk.tasks.understanding.base import Understanding

PAGE = Path(__file__).parent / "page"
"""mask.js, mask.css: the interactive mask, of a file and of the server's page."""


@dataclass(frozen=True)
class Drawing:
    """One tower of an example: its slots, and what is predicted at which of them."""

    title: str
    tower: str
    slots: Slots
    names: list[str]
    labels: dict[int, str]
    """Slot -> what is predicted there."""
    masked: frozenset[int]
    """Ids of the symbols that hide words."""
    inputs: dict[str, Any]
    """Numbers beside the slots, such as those of entities."""

    def __repr__(self) -> str:
        return f"Drawing({self.title}, tower {self.tower}, {len(self.slots)} slots)"

    def _repr_html_(self) -> str:
        return Drawings([self])._repr_html_()

    def table(self) -> str:
        """The slots, one aligned row a field."""
        return pictures.slot_table(
            self.slots, self.names, self.labels, cross=self.tower == "enc", inputs=self.inputs
        )

    def text_picture(self) -> str:
        """The mask in characters."""
        return pictures.text_picture(self.slots, self.names)

    def figure(self) -> Any:
        """The mask as a matplotlib figure."""
        return pictures.picture(self.slots, self.names, self.masked, self.title)

    def record(self) -> dict[str, Any]:
        """The drawing as json, for `mask.js`."""
        slots = self.slots
        seen = masks.dense(slots.table, slots.table)
        what = pictures.kinds(slots, self.masked)
        fields = {name: getattr(slots, name) for name in ("pos", "pos2", "seg", "now")}
        fields |= self.inputs
        # a row of numbers that are all 0 says nothing
        kept = {name: row.tolist() for name, row in fields.items() if name == "pos" or row.any()}
        if self.tower == "enc" and not slots.cross.all():
            kept["cross"] = slots.cross.tolist()
        # of each row the columns that it sees: fewer numbers than flags for all
        return {
            "title": self.title,
            "tower": self.tower,
            "names": self.names,
            "kinds": what,
            "labels": [self.labels.get(i, "") for i in range(len(slots))],
            "fields": kept,
            "sees": [row.nonzero()[0].tolist() for row in seen],
        }


class Drawings(list[Drawing]):
    """The drawings of an example's towers; a notebook shows their masks, which can be explored."""

    def __repr__(self) -> str:
        return "\n\n".join(drawing.table() for drawing in self)

    def _repr_html_(self) -> str:
        # a frame does not grow with its page: a row of a mask has about 24 pixels
        rows = sum(len(drawing.slots) + len(drawing.record()["fields"]) for drawing in self)
        return notebook.frame(page(self), 200 + 24 * rows)


def lay_out_text(
    task: Task, texts: Sequence[str], target: str | None, rng: np.random.Generator
) -> Example:
    """Lay out a text for pre-training or, with a `target`, for fine-tuning.

    Tasks of understanding take the parts of a text, such as two sentences; one that tags words
    takes words. Other tasks take one text, in which symbols such as [MASK] may be written.
    """
    vocab = task.vocab
    if task.predicts:
        # a tagger reads words, each with the blank before it as in running text
        words = [f" {word}" for text in texts for word in text.split()]
        parts = words if task.form == "tags" else texts
        return cast(Understanding, task).lay_out([np.array(vocab.encode(part)) for part in parts])
    (text,) = texts
    ids = np.array(vocab.encode_marked(text))
    if target is None:
        return task.pretrain(Text([ids], np.zeros(1, int)), rng)
    return task.finetune([ids], np.array(vocab.encode(target)), rng)


def drawings(title: str, task: Task, example: Example, order: str = "memory") -> Drawings:
    """Draw each tower; `order` is that of the task (memory), or that of positions (pos)."""
    every = Drawings()
    vocab = task.vocab
    symbols = ("mask", "gmask", "smask")
    masked = frozenset(vocab.symbols[name] for name in symbols if name in vocab.symbols)
    for tower, slots in example.towers.items():
        labels = _predicted(task, tower, example)
        beside = {
            name.rpartition(".")[2]: own
            for name, own in example.inputs.items()
            if name.startswith(f"{tower}.") and own.ndim == 1
        }
        if order == "pos":
            # stable: slots of one position stay as the task has written them
            places = np.argsort(slots.pos, kind="stable")
            slots = slots.take(places)
            labels = {i: labels[row] for i, row in enumerate(places.tolist()) if row in labels}
            beside = {name: own[places] for name, own in beside.items()}
        every.append(
            Drawing(title, tower, slots, _token_names(task, slots.token), labels, masked, beside)
        )
    return every


def page(parts: Sequence[Drawing]) -> str:
    """One HTML file with interactive masks, which needs no other file."""
    return html_page(
        parts[0].title, PAGE / "mask", "drawMask", [drawing.record() for drawing in parts]
    )


def html_page(title: str, parts: Path, draw: str, data: Sequence[Any]) -> str:
    """One HTML file that needs no other: what the function `draw` makes of each of the data.

    `parts` is the path of style and script without their endings .css and .js.
    """
    style, script = (parts.with_suffix(ending).read_text("utf-8") for ending in (".css", ".js"))
    # "</script" would end the script element; after "<!--<script", its own end would be none
    value = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>unitk: {title}</title>
<style>
{style}</style>
</head>
<body>
<main></main>
<script>
{script}
document.querySelector("main").append(...{value}.map(one => {draw}(one)));
</script>
</body>
</html>
"""


def _predicted(task: Task, tower: str, example: Example) -> dict[int, str]:
    """Slot -> what is predicted there."""
    labels: dict[int, str] = {}
    for ask in example.asks:
        kind = ask.head.partition(":")[0]
        words = kind in ("lm", "sbo") and ask.among is None
        if kind == task.head and ask.tower == tower:
            # the label of a text that is only shown is not known
            labels |= dict.fromkeys(ask.rows.ravel().tolist(), ask.name)
            continue
        for row, label in zip(ask.first.tolist(), ask.label, strict=True):
            if ask.tower == tower:  # questions that begin at one slot share its column
                label = ask.among[label] if kind == "candidates" else label
                text = _token_names(task, [label])[0] if words else f"{label}"
                text = text if kind == "lm" else f"{ask.name}={text}"
                labels[row] = f"{labels[row]},{text}" if row in labels else text
    return labels


def _token_names(task: Task, ids: Iterable[int]) -> list[str]:
    """The tokens by name; the symbols around a blank as in GLM's figure."""
    vocab = task.vocab
    short = {vocab.sop: "[S]", vocab.eop: "[E]"}
    short |= {len(vocab) + number: name for number, name in enumerate(task.virtual)}
    return [short.get(int(index)) or vocab.pieces([index])[0] for index in ids]
