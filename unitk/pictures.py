"""Tables and pictures of slots and of who sees whom; figures as files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from unitk.errors import require
from unitk.files import check_folder, create
from unitk.masks import dense
from unitk.slots import BORN, DIES, NEVER, NOW, TOKEN, Slots

log = logging.getLogger(__name__)

COLOURS = {
    "context": "#4c78a8",
    "target": "#59a14f",
    "mask": "#9d9da1",
    "probe": "#f28e2b",
    "query": "#b07aa1",
}
"""What a slot is in a picture; the colours differ in lightness too, for print and for any eye."""


def kinds(slots: Slots, masks: Collection[int]) -> list[str]:
    """The kind of each slot: a mask symbol, a probe, a query, context (time 0) or a target."""
    kind_of = []
    for token, now, born, dies in slots.table[[TOKEN, NOW, BORN, DIES]].T.tolist():
        if born == NEVER:
            kind_of.append("query")
        elif dies != NEVER:
            kind_of.append("probe")
        elif token in masks:
            kind_of.append("mask")
        else:
            kind_of.append("context" if now == 0 else "target")
    return kind_of


def slot_table(
    slots: Slots,
    names: list[str],
    labels: dict[int, str],
    cross: bool = False,
    inputs: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The slots as the docstrings draw them: one aligned row a field.

    `cross`: a decoder looks at these slots; a row says at which, where it is not all. `inputs` are
    numbers beside the slots, by name, 0 being none.
    """
    rows = {
        "token": names,
        "pos": [str(p) for p in slots.pos],
        "pos2": [str(p) for p in slots.pos2],
        "seg": [str(s) for s in slots.seg],
        "at": [str(t) for t in slots.now],
        "cross": [str(c) for c in slots.cross] if cross else ["1"] * len(slots),
        **{
            name: [f"{number:.3g}" if number else "." for number in numbers.tolist()]
            for name, numbers in inputs.items()
        },
        "label": [labels.get(i, ".") for i in range(len(slots))],
    }
    usual = {"pos2": {"0"}, "seg": {"0"}, "cross": {"1"}}
    shown = {name: row for name, row in rows.items() if set(row) != usual.get(name)}
    widths = [max(map(len, column)) for column in zip(*shown.values(), strict=True)]
    return "\n".join(
        f"{name:<6} " + " ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
        for name, row in shown.items()
    )


def text_picture(slots: Slots, names: list[str]) -> str:
    """The mask in characters: row q looks at column k where there is a block."""
    sight = dense(slots.table, slots.table)
    width = max(map(len, names))
    head = [" " * (width + 1) + " ".join(n.rjust(width)[i] for n in names) for i in range(width)]
    rows = [
        f"{name.rjust(width)} " + " ".join("█" if look else "·" for look in row)
        for name, row in zip(names, sight, strict=True)
    ]
    return "\n".join(head + rows)


def picture(slots: Slots, names: list[str], masks: Collection[int], title: str) -> Any:
    """The mask as a matplotlib figure: a filled square where the row's slot sees the column's.

    Squares have the colour of the key's kind; readable from 12 to 60 slots.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    sight = dense(slots.table, slots.table)
    kind_of = kinds(slots, masks)
    side = max(4.0, 0.24 * len(names) + 1.6)
    figure = Figure(figsize=(side + 1.4, side), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    image = np.ones((len(names), len(names), 3))
    for key, kind in enumerate(kind_of):
        image[sight[:, key], key] = to_rgb(COLOURS[kind])  # the column's squares
    axes.imshow(image)
    size = 9 if len(names) <= 30 else 7
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0, labelsize=size)
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(len(names) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(names) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white" if len(names) > 40 else "#dddddd", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel(f"{title}: a row looks at the coloured columns")
    patches = [Patch(color=COLOURS[kind], label=kind) for kind in COLOURS if kind in kind_of]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    return figure


def check_picture(output: Path | None, option: str, *more: str) -> None:
    """Raise a `UsageError` unless a file ends like a picture that `save` writes, or like `more`,
    and its folder can be written into.

    For use before anything is computed; without an output nothing is wrong.
    """
    if output is None:
        return
    *others, last = (".png", ".svg", ".pdf", *more)
    require(
        output.suffix in (*others, last),
        f"{option} must end in {', '.join(others)} or {last}, got {output}",
    )
    check_folder(output, option)


def save(figure: Any, output: Path, dpi: float | str = "figure") -> None:
    """Write a matplotlib figure in the format that the ending of the file names.

    Its texts are written in fonts that have their characters, if there are such; else it is logged.
    """
    find_fonts(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # already told
        figure.savefig(create(output), dpi=dpi)


def find_fonts(figure: Any) -> None:
    """Add installed fonts to a figure's texts until they have all characters; $ is one of them."""
    from matplotlib import font_manager
    from matplotlib.text import Text

    def characters(path: str) -> set[int]:
        try:
            return {*font_manager.get_font(path).get_charmap()}
        except (RuntimeError, OSError):  # one of coloured pictures, or damaged
            return set()

    texts = figure.findobj(Text)
    needed = {ord(char) for text in texts for char in text.get_text() if not char.isspace()}
    plain = font_manager.FontProperties()
    lacking = needed - characters(font_manager.findfont(plain))
    upright = [font for font in font_manager.fontManager.ttflist if font.style == "normal"]
    known = {
        font.name: characters(font.fname)
        for font in (upright if lacking else [])
        if font.weight in (400, 500) and "Last Resort" not in font.name  # which draws boxes
    }
    families = list(plain.get_family())
    # the font that has most of what is lacking, again and again
    while known and (best := max(known, key=lambda name: len(known[name] & lacking))):
        if not known[best] & lacking:
            break
        families.append(best)
        lacking -= known[best]
    for text in texts:
        text.set_fontfamily(families)
        text.set_parse_math(False)  # of a text with two $, matplotlib would set a formula
    if lacking:
        first = "".join(map(chr, sorted(lacking)[:20]))
        log.warning("no installed font has %s: the picture shows boxes instead", first)
