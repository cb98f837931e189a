"""HTML views of unitk's objects for notebooks: without scripts, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

END = "\u220e"
"""How a table shows the end of an output, or of what fills a blank."""
GREEN = "46, 160, 67"
CELL = "vertical-align:top;text-align:start;unicode-bidi:plaintext;overflow-wrap:anywhere"
"""Style of a cell: texts from right to left begin on the right, and words without an end break."""
COLOURS = ("#4c78a8", "#f28e2b", "#59a14f", "#b07aa1", "#e15759")
WIDTH, HEIGHT, EDGE = 560, 240, 44
"""Pixels of a plot, and of the room for its numbers."""


class OutputRow(NamedTuple):
    """An output as a table shows it."""

    text: str
    score: float
    tokens: Sequence[str]
    log_probs: Sequence[float]
    """The log-probability of each token, and of the end symbols after them."""


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of cells that are HTML already."""
    named = "".join(f"<th style='text-align:left'>{cell}</th>" for cell in head)
    lines = [f"<tr>{named}</tr>"] if head else []
    for row in rows:
        cells = (f"<td style='{CELL};min-width:5em'>{cell}</td>" for cell in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def colour_tokens(tokens: Sequence[str], log_probs: Sequence[float]) -> str:
    """Tokens on a ground that is the greener the more probable they are; a pointer shows it."""
    spans = []
    # an end that was never written has a probability and no token
    for token, gain in zip(tokens, log_probs, strict=False):
        share = math.exp(min(gain, 0.0)) if math.isfinite(gain) else 0.0
        style = f"background:rgba({GREEN},{0.6 * share:.2f});border-radius:3px;padding:0 1px"
        title = f"{share:.1%}"
        # a line may end between two tokens, before a word
        blank = " " if token.startswith(("\u2581", " ")) else ""
        text = escape(token.lstrip("\u2581 ")) or "&nbsp;"
        spans.append(f"{blank}<span style='{style}' title='{title}'>{text}</span>")
    return "".join(spans)


def outputs(outputs_of: Iterable[tuple[str, Sequence[OutputRow]]]) -> str:
    """The outputs of each source, best first, with the probability of each token as colour."""
    rows = []
    for source, written in outputs_of:
        for rank, row in enumerate(written):
            # the source is beside its best output only
            shown = "" if rank else source if len(source) <= 160 else f"{source[:160]}..."
            tokens = colour_tokens(row.tokens, row.log_probs)
            if "".join(row.tokens).strip(f" {END}") != row.text.strip():  # what fills its blanks
                tokens = f"{escape(row.text)}<br/>{tokens}"
            rows.append((escape(shown), tokens, f"{row.score:.3f}"))
    about = "The greener a token, the more probable it was; point at it to read how much."
    return table(rows, ("source", "output", "score")) + f"<small>{about}</small>"


def frame(html: str, height: int) -> str:
    """A whole page of HTML within a cell; its scripts see nothing of the notebook."""
    # a sandbox without allow-same-origin: the page reads nothing of the notebook's
    style = f"width:100%;height:{height}px;border:0"
    return f"<iframe sandbox='allow-scripts' style='{style}' srcdoc='{escape(html)}'></iframe>"


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], title: str) -> str:
    """Curves over the updates of a run, as a picture in SVG; each line has a name."""
    # matplotlib would be a second to import, and a picture of its own colours on a dark page
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    # y grows downwards in SVG
    (left, right), (low, high) = (span([point[i] for point in points]) for i in (0, 1))

    def place(x: float, y: float) -> str:
        across = EDGE + (x - left) / (right - left) * (WIDTH - EDGE - 8)
        down = 24 + (high - y) / (high - low) * (HEIGHT - 48)
        return f"{across:.1f},{down:.1f}"

    parts = [f"<text x='{EDGE}' y='14' fill='currentColor'>{escape(title)}</text>"]
    for share in (0.0, 0.5, 1.0):  # lines at the least, middle and largest value
        y, x = low + share * (high - low), left + share * (right - left)
        at = float(place(left, y).split(",")[1])
        line = f"x1='{EDGE}' x2='{WIDTH - 8}' y1='{at}' y2='{at}' stroke='currentColor'"
        parts.append(f"<line {line} stroke-opacity='.2'/>")
        parts.append(f"<text x='0' y='{at + 4}' fill='currentColor'>{y:.3g}</text>")
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
        where = f"x='{place(x, low).split(',')[0]}' y='{HEIGHT - 6}' text-anchor='{anchor}'"
        parts.append(f"<text {where} fill='currentColor'>{x:,.0f}</text>")
    for number, (name, line_points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(*point) for point in line_points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        where = f"x='{WIDTH - 8}' y='{40 + 16 * number}' text-anchor='end' fill='{colour}'"
        parts.append(f"<text {where}>{escape(name)}</text>")
    size = f"width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}'"
    style = "font:12px sans-serif;max-width:100%"
    return f"<svg {size} style='{style}' role='img'>{''.join(parts)}</svg>"


def span(values: Sequence[float]) -> tuple[float, float]:
    """The least and the largest value, apart where all are equal."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
