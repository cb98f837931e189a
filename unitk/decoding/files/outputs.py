"""The formats of `unitk generate --output`; torch-free."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from unitk.data.files.lines import PACKED
from unitk.decoding.files.inputs import Item
from unitk.errors import printable, require
from unitk.files import RemotePath, check_folder, check_free, check_plain, new_file, open_plain
from unitk.options.fields import flag, options
from unitk.slots import Floats
from unitk.vocab.base import Vocab

if TYPE_CHECKING:
    from unitk.decoding.texts.outputs import Output

STDOUT = Path("-")
NO_TEXT = {*PACKED, ".zip", ".parquet", ".arrow", ".npy", ".npz", ".pt", ".safetensors"}
"""Endings of files that are no plain text."""
Alignment = Literal["off", "hard", "soft"]


def check_writable(chosen: Any, goes_on: bool = False, own: str = "") -> None:
    """Refuse an --output that cannot be written, is read, or is kept unless it `goes_on`.

    Text is written, or what the ending `own` says.
    """
    output = chosen.output
    ending = output.suffix.lower()
    other = f", or {own}" if own else ""
    fits = ending not in NO_TEXT or ending == own
    require(fits, f"--output {output}: text is written{other}, but no {ending}")
    replace = chosen.overwrite or goes_on
    if output != STDOUT:
        check_folder(output, "--output")
        check_plain(output, f"--output {output}", "; `-` is standard output")
        check_free(output, "--output", replace)
    require(output != STDOUT or not replace, "--overwrite has no effect without --output")
    check_apart(chosen)


def check_apart(chosen: Any, name: str = "output") -> None:
    """Refuse an output that is a file which another option reads."""
    output = getattr(chosen, name)
    if output in (None, STDOUT) or isinstance(output, RemotePath) or not output.exists():
        return
    for option in options(type(chosen)):
        value = getattr(chosen, option.name)
        for path in value if isinstance(value, tuple) else (value,):
            local = isinstance(path, Path) and not isinstance(path, RemotePath)
            same = option.name != name and local and path.exists() and path.samefile(output)
            said = f"{flag(name)} {output} is what {option.flag} reads: name another file"
            require(not same, said)


def format_to(form: str, output: Path) -> str:
    """The format of an output; `auto` is decided by the ending of its name."""
    return {".jsonl": "jsonl", ".csv": "csv"}.get(output.suffix, "text") if form == "auto" else form


@dataclass(frozen=True)
class Formatter:
    """Formats outputs as lines, in the order of the inputs."""

    format: str
    vocab: Vocab
    nbest: int = 1
    scores: bool = False  # the outputs were given: their lines are scores
    alignment: Alignment = "off"

    def lines(self, items: Sequence[Item], results: Sequence[Sequence[Output]]) -> Iterator[str]:
        """The lines of a group of inputs."""
        for item, outputs in zip(items, results, strict=True):
            if self.format == "text":
                yield from self.text(outputs)
            elif self.format == "jsonl":
                yield json.dumps(self.record(item, outputs), ensure_ascii=False)
            elif self.format == "csv":
                yield from self.table(item, outputs)
            else:
                yield from self.fairseq(item, outputs)

    def text(self, outputs: Sequence[Output]) -> Iterator[str]:
        """`nbest` lines for an input; a missing output is an empty line: line numbers stay
        right.
        """
        for output in outputs:
            hypothesis = output.hypothesis
            columns = [f"{hypothesis.score:.4f}"] if self.nbest > 1 else []
            columns.append(one_line(output.text))
            if self.scores:
                gains = " ".join(f"{gain:.6f}" for gain in hypothesis.token_log_probs)
                columns = [f"{hypothesis.score:.6f}", f"{hypothesis.log_prob:.6f}", gains]
            if output.attention is not None:
                columns.append(self.render_alignment(output.attention))
            yield "\t".join(columns)
        yield from [""] * (self.nbest - len(outputs))

    def table(self, item: Item, outputs: Sequence[Output]) -> Iterator[str]:
        """A row for each output; an input without one has an empty row. Columns are named first."""
        rows: list[list[Any]] = [["id", "output", "score"]] if item.number == 0 else []
        rows += [
            [item.number, output.text, f"{output.hypothesis.score:.6f}"] for output in outputs
        ] or [[item.number, "", ""]]
        for row in rows:
            text = io.StringIO()
            # it quotes the characters that end a row: with "\n" alone, no "\r" in a text
            csv.writer(text, lineterminator="\r\n").writerow(row)
            yield text.getvalue()[:-2]

    def record(self, item: Item, outputs: Sequence[Output]) -> dict[str, Any]:
        """A json object for an input."""
        number, text = item.number, item.text
        if text.error:
            return {"id": number, "error": text.error}
        target = {} if text.target is None else {"target": text.target}
        parts = text.parts  # none where nothing was given
        source = {"source": parts[0] if len(parts) == 1 else parts} if parts else {}
        return {"id": number, **source, **target, "outputs": [*map(self.output, outputs)]}

    def output(self, output: Output) -> dict[str, Any]:
        """A json object for an output."""
        hypothesis, table = output.hypothesis, output.attention
        align: dict[str, Any] = {}
        if table is not None and self.alignment == "hard":
            align = {"alignment": [[source, i] for i, source in enumerate(strongest(table))]}
        elif table is not None:
            align = {"alignment": [[round(float(weight), 6) for weight in row] for row in table]}
        return {
            "text": output.text,
            "score": round(hypothesis.score, 6),
            "log_prob": round(hypothesis.log_prob, 6),
            "tokens": self.vocab.pieces(hypothesis.ids),
            "token_log_probs": [round(float(gain), 6) for gain in hypothesis.token_log_probs],
            **align,
        }

    def fairseq(self, item: Item, outputs: Sequence[Output]) -> Iterator[str]:
        """fairseq's lines: the source's pieces; each output's pieces, text and word scores.

        Scores are to the base 2. Unknown words of a target are marked, so that they equal no
        output.
        """
        number = item.number
        separator = f" {self.pieces([self.vocab.sep])} "  # between the parts of a source
        yield f"S-{number}\t{separator.join(map(self.pieces, item.source))}"
        if item.target is not None:
            pairs = zip(self.vocab.pieces(item.target), item.target, strict=True)
            marked = [f"<{piece}>" if i == self.vocab.unk else piece for piece, i in pairs]
            yield f"T-{number}\t{one_line(' '.join(marked))}"
        for output in outputs:
            score = f"{output.hypothesis.score / math.log(2):.6f}"  # fairseq prints base 2
            yield f"H-{number}\t{score}\t{self.pieces(output.hypothesis.ids[:-1])}"
            yield f"D-{number}\t{score}\t{one_line(output.text)}"
            gains = output.hypothesis.token_log_probs / math.log(2)
            yield f"P-{number}\t{' '.join(f'{gain:.4f}' for gain in gains)}"
            if output.attention is not None:
                yield f"A-{number}\t{self.render_alignment(output.attention)}"
        if not outputs:
            yield from (f"H-{number}\t0\t", f"D-{number}\t0\t", f"P-{number}\t")

    def render_alignment(self, table: Floats) -> str:
        """Alignments. hard: SOURCE-OUTPUT for each word; soft: all its weights, with commas."""
        if self.alignment == "hard":
            return " ".join(f"{source}-{i}" for i, source in enumerate(strongest(table)))
        return " ".join(",".join(f"{weight:.4f}" for weight in row) for row in table)

    def pieces(self, ids: Iterable[int]) -> str:
        """Pieces, separated by blanks."""
        return one_line(" ".join(self.vocab.pieces(ids)))


@dataclass
class Tally:
    """Totals of outputs: their number, their words including ends, and the sum of scores."""

    outputs: int = 0
    words: int = 0
    log_prob: float = 0.0
    repeats: int = 0
    """Outputs in which the same three words stand twice."""

    def add(self, results: Sequence[Sequence[Output]]) -> None:
        """Add some outputs."""
        for outputs in results:
            self.outputs += len(outputs)
            self.words += sum(len(output.hypothesis.ids) for output in outputs)
            self.log_prob += sum(output.hypothesis.log_prob for output in outputs)
            for words in (output.text.split() for output in outputs):
                threes = [*zip(words, words[1:], words[2:], strict=False)]
                self.repeats += len({*threes}) < len(threes)

    def __str__(self) -> str:
        perplexity = math.exp(min(-self.log_prob / max(self.words, 1), 700))
        scored = f"targets {self.outputs:,}, tokens {self.words:,}"
        return f"{scored}: log-probability {self.log_prob:.4f}, perplexity {perplexity:.4f}"


def strongest(table: Floats) -> list[int]:
    """The source word with the largest weight, for each output word."""
    return np.argmax(table, axis=1).tolist() if table.size else []


def one_line(text: str) -> str:
    """A text without line breaks and tabs, so that it stays in its line and column."""
    return text.replace("\n", " ").replace("\t", " ")


def check_spelling(text: str) -> str:
    """The same text; UnicodeEncodeError for a character that standard output would escape.

    Messages are escaped where a terminal lacks characters, answers are written whole or not at all.
    """
    text.encode(sys.stdout.encoding or "utf-8")
    return text


def escape_controls(line: str) -> str:
    """A line of outputs as standard output gets it: a terminal obeys nothing in it."""
    return check_spelling(
        "\t".join(map(printable, line.split("\t"))) if sys.stdout.isatty() else line
    )


def list_numbers(table: npt.NDArray[np.float32]) -> list[Any]:
    """The numbers of an array as lists, each with the fewest digits that identify it in 32 bits."""
    return np.array(table.astype(str), object).astype(float).tolist()


def write(lines: Iterable[str], path: Path, replace: bool) -> None:
    """Print each line at once, or write them to a file that is complete or absent.

    What another process wrote there meanwhile is refused, unless it is to `replace` it.
    """
    if path == STDOUT:
        for line in lines:
            print(escape_controls(line), flush=True)
        return
    with new_file(path, "--output", replace=replace) as part:
        with open_plain(part, "w", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
