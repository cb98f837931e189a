"""Capsules: what makes the figures of the pages again, and whether the pages still say them.

    python docs/capsules.py              check all; a line for each fault
    python docs/capsules.py --list       names and commands
    python docs/capsules.py NAME         run the command of a capsule, then say what to compare

recipes/*/capsule.yaml holds capsules by name:

    made_by      the command, which reads and writes what its README says
    data         file of the repository -> SHA-256, or data that are not in it -> where from
    seed, versions, hardware, date
    figures      PAGE -> first cell of a row -> its other cells, as the page has them: "a | b",
                 or a list of what its sentences say, in which there may be such rows
    tolerance    how far a figure may be from that of another machine, by its name or for all

A figure of a page is a cell of a table that begins with decimals or has a unit, or a number with
decimals or per cent in a sentence about what is measured (MEASURES). Each has one of these:

    a capsule
    "Measured: DATE, MACHINE." on a line in front of it in its section or below a heading that it
    belongs to, or "(measured DATE, MACHINE)" in its paragraph; "Estimated: FROM WHAT." likewise
    a link in its table or paragraph to a page that has the same number
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
KEYS = {"made_by", "data", "seed", "versions", "hardware", "date", "figures", "tolerance"}
UNIT = r" ?(?:%|s|ms|min|h|kB|MB|GB|points|nats|tokens/s|times)"
COUNT = r"(?! ?(?:M|B|million|billion)\b)"
FIGURE = re.compile(rf"[-+*<~]*(?:BLEU |BLiMP )?\d[\d,]*(?:\.\d+(?!\d){COUNT}|{UNIT}(?:\b|$)).*")
"""A cell that begins with a number with decimals or a unit: what is measured, not counted."""
NUMBER = re.compile(rf"(?<![\w.,-])\d[\d,]*(?:\.\d+| %)(?!\w|\.\d){COUNT}")
NUMBERS = re.compile(rf"(?<![\w.,])\d[\d,]*(?:\.\d+|(?<=,\d\d\d)|(?={UNIT}))(?!\w|\.\d){COUNT}")
"""Numbers of a row: with decimals, thousands or a unit."""
MEASURES = re.compile(
    r"\b(BLEU|ROUGE|BLiMP|perplexit(y|ies)|nats|bits a byte|accuracy|loss(es)? (of|is|was|were)|"
    r"right in|takes?|took|seconds|minutes|processor|tokens/s|tokens a second|[Mm]easured|"
    r"test (set|questions))\b"
)
NO_FIGURES = re.compile(
    r"`[^`]*`|\]\([^)]*\)|arXiv:? \S+|\d+\.\d+\.\d+\S*|\b(?:below|at most|exceed) [\d.]+\d|"
    r"\b(?:[Ss]ections?|[Ee]quations?|[Tt]ables?|[Ff]igures?|[Aa]ppendix|Python|PyTorch|[Tt]orch|CUDA|"
    r"fairseq|transformers|numpy|SQuAD|ERNIE|Apache|CC BY(?:-SA)?) [\d.]+\d"
)
"""Numbers in code, targets of links, bounds, sections and versions."""
LINK = re.compile(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)")
MARK = re.compile(r"(?:<!-- )?(?:Measured: 20\d\d-\d\d(?:-\d\d)?, .+|Estimated: .+)\.(?: -->)?")
HEADING = re.compile(r"(#+) ")
INLINE = re.compile(r"[Mm]easured:? 20\d\d-\d\d(?:-\d\d)?, \w")
ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
DATE = re.compile(r"20\d\d-\d\d(?:-\d\d)?")
HASH = re.compile(r"[0-9a-f]{64}")


@dataclass
class Part:
    """A table or a paragraph of a page."""

    page: str
    line: int
    marked: bool
    """Whether a line says when and where it was measured."""
    lines: list[str] = field(default_factory=list)

    @property
    def is_table(self) -> bool:
        return self.lines[0].startswith("|")

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Of a table: the first cell of each row, and the others, as "a | b"."""
        split = ([cell.strip() for cell in one.strip()[1:-1].split("|")] for one in self.lines)
        return [(first, " | ".join(others)) for first, *others in split]

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Of a table: the rows with a figure; those of options have defaults."""
        return [
            (first, cells)
            for first, cells in self.rows
            if not first.startswith("`--")
            and any(FIGURE.fullmatch(cell) for cell in cells.split(" | "))
        ]

    def linked(self) -> list[str]:
        """The pages that it links to."""
        here = (ROOT / self.page).parent
        paths = {here / one for one in LINK.findall(" ".join(self.lines))}
        return [one.read_text(encoding="utf-8") for one in sorted(paths) if one.is_file()]

    @property
    def sentences(self) -> list[tuple[str, list[str]]]:
        """Of a paragraph: its sentences about what is measured, with their numbers."""
        text = " ".join(" ".join(self.lines).split())
        each = re.split(r"(?<=[.!?:])\)? (?=[A-Z`\[*(])", text)
        plain = [(one, NO_FIGURES.sub(" ", one)) for one in each]
        found = [(one, NUMBER.findall(words)) for one, words in plain if MEASURES.search(words)]
        return [(one, numbers) for one, numbers in found if numbers]


def pages() -> list[Path]:
    """README.md, the pages of docs/ and of recipes, and the cards of bundled models."""
    patterns = "README.md", "docs/*.md", "docs/benchmarks/*.md", "unitk/pretrained/*/README.md"
    patterns += ("recipes/*/README.md",)
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def parts(path: Path) -> Iterator[Part]:
    """The tables and paragraphs of a page, code aside; each item of a list is a paragraph."""
    marks: dict[int, bool] = {}  # of the headings above, by their level
    part, level, code = None, 0, False
    page = path.relative_to(ROOT).as_posix()
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        fence = line.startswith("```")
        heading, mark = (None if code else one.match(line) for one in (HEADING, MARK))
        row = line.startswith("|")
        ends = fence or code or heading or mark or ITEM.match(line) or not line.strip()
        if part and (ends or row != part.is_table):
            yield part
            part = None
        code ^= fence
        if heading:
            level = len(heading[1])
            marks = {one: known for one, known in marks.items() if one < level}
        elif mark:
            marks[level] = True
        elif not (code or fence) and line.strip():
            part = part or Part(page, number, any(marks.values()))
            part.lines.append(line)
            part.marked |= not row and bool(INLINE.search(" ".join(part.lines[-2:])))


def capsules() -> dict[str, dict[str, Any]]:
    """All capsules, as RECIPE/NAME."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(ROOT.glob("recipes/*/capsule.yaml")):
        try:
            own = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise SystemExit(f"{path}: {' '.join(str(error).split())}") from error
        if not isinstance(own, dict):
            raise SystemExit(f"{path}: there must be capsules by name")
        for name, one in own.items():
            found[f"{path.parent.name}/{name}"] = one
    return found


def faults() -> list[str]:
    """What does not agree, a line for each fault."""
    found, covered = list[str](), set[tuple[str, str, str]]()
    said: dict[str, str] = {}  # page -> what capsules have of its sentences
    known = {path.relative_to(ROOT).as_posix(): [*parts(path)] for path in pages()}
    rows = {
        page: {row for part in all_ if part.is_table for row in part.rows}
        for page, all_ in known.items()
    }
    for name, one in capsules().items():
        own = [*form_faults(one)]
        if own:
            found += [f"{name}: {fault}" for fault in own]
            continue
        own = [*data_faults(one["data"]), *command_faults(one["made_by"])]
        for page, figures in one["figures"].items():
            if page not in known:
                own.append(f"there is no page {page}")
                continue
            words, asked = split_figures(figures)
            own += lacking_words(page, words)
            said[page] = " ".join([said.get(page, ""), *words])
            covered |= {(page, *row) for row in asked}
            for first, cells in asked:
                if (first, cells) not in rows[page]:
                    others = "; ".join(sorted(one for row, one in rows[page] if row == first))
                    own.append(f"{page} has no row {first} | {cells}{others and f', but {others}'}")
        found += [f"{name}: {fault}" for fault in sorted(own)]
    for all_ in known.values():
        for part in all_:
            if not part.marked:
                left = table_faults(part, covered) if part.is_table else text_faults(part, said)
                where = f"{part.page}:{part.line}"
                found += [f"{where}: no capsule, mark or link has {one}" for one in left]
    return found


def split_figures(figures: Any) -> tuple[list[str], list[tuple[str, str]]]:
    """What a capsule has of a page: what its sentences say, and rows of its tables."""
    each = figures if isinstance(figures, list) else [figures]
    rows = [row for one in each if isinstance(one, dict) for row in one.items()]
    words = [str(one) for one in each if not isinstance(one, dict)]
    return words, [(str(first), str(cells)) for first, cells in rows]


def form_faults(one: Any) -> Iterator[str]:
    """Keys that a capsule lacks or should not have, and values of no use."""
    if not isinstance(one, dict):
        yield f"it must have {', '.join(sorted(KEYS))}"
        return
    if odd := KEYS ^ {*one}:
        yield f"{', '.join(sorted(map(str, odd)))} missing or unknown"
    for key in sorted(KEYS & {*one}):
        if key in ("data", "figures"):
            if not isinstance(one[key], dict) or not one[key]:
                yield f"{key} must map names to values, got {one[key]!r}"
        elif one[key] is None or not str(one[key]).strip():
            yield f"{key} is empty"
    if "date" in one and not DATE.fullmatch(str(one["date"])):
        yield f"date must be 2026-11 or 2026-11-22, got {one['date']}"


def table_faults(table: Part, covered: set[tuple[str, str, str]]) -> list[str]:
    """Rows with figures that no capsule has, and no page that the table links to."""
    texts = table.linked()
    left = [
        first
        for first, cells in table.figures
        if (table.page, first, cells) not in covered
        and not all(stands_in(one, texts) for one in NUMBERS.findall(NO_FIGURES.sub(" ", cells)))
    ]
    more = f" and {len(left) - 3} more" * (len(left) > 3)
    return [f"rows {', '.join(left[:3])}{more}"] if left else []


def text_faults(part: Part, said: dict[str, str]) -> list[str]:
    """Sentences about what is measured whose numbers no capsule has, and no linked page."""
    places = [said.get(part.page, ""), *part.linked()]
    found = list[str]()
    for sentence, numbers in part.sentences:
        left = [one for one in numbers if not stands_in(one, places)]
        short = sentence if len(sentence) <= 70 else f"{sentence[:70]}..."
        found += [f"{', '.join(left)} in {short!r}"] if left else []
    return found


def stands_in(number: str, texts: list[str]) -> bool:
    """Whether one of the texts has a number, as it is written."""
    whole = re.compile(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)")
    return any(whole.search(text) for text in texts)


def lacking_words(page: str, figures: list[str]) -> list[str]:
    """The figures in sentences that a page does not have, wherever its lines end."""
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    return [f"{page} does not say {one!r}" for one in figures if one not in words]


def data_faults(data: dict[str, str]) -> Iterator[str]:
    """Files of the repository that are not what they were; others are named only."""
    for name, given in data.items():
        path = ROOT / name
        if not HASH.fullmatch(str(given)):
            if path.is_file() or " " not in str(given):  # a hash that was cut is no source
                yield f"{name} must have a SHA-256, or words for where it is from, got {given}"
            continue  # it is not in the repository, and its source is said
        if not path.is_file():
            yield f"there is no {name}"
        elif (here := hashlib.sha256(path.read_bytes()).hexdigest()) != given:
            yield f"{name} has the SHA-256 {here}, not {given}"


def command_faults(command: str) -> Iterator[str]:
    """Files that a command names and that are not there."""
    for word in re.findall(r"(?:recipes|docs)/[\w./-]+\.(?:sh|py)", command):
        if not (ROOT / word).is_file():
            yield f"made_by: there is no {word}"


def summary(count: int) -> str:
    """What was compared, or how a fault is mended."""
    if count:
        return (
            f"{count} fault{'s' * (count > 1)}. A figure needs a capsule (recipes/*/capsule.yaml),"
            ' a line "Measured: DATE, MACHINE." in front of it, or a link to a page that has it.'
        )
    each = [one["figures"] for one in capsules().values()]
    names = {page for one in each for page in one}
    marks = sum(bool(MARK.match(line)) for path in pages() for line in path.open(encoding="utf-8"))
    return (
        f"{len(each)} capsules agree with {len(names)} pages, and {marks} sections say"
        f" when and where they were measured; {len(pages())} pages were read"
    )


def main(words: list[str]) -> int:
    """Check all capsules, or make one."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("capsules.py", description=__doc__, formatter_class=raw)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(words)
    if given.name is None and not given.list:
        found = faults()
        print("\n".join([*found, summary(len(found))]))
        return bool(found)
    if given.list:
        for name, one in capsules().items():
            print(f"{name}: {one['date']}, {one['hardware']}\n    {one['made_by']}")
        return 0
    one = capsules().get(given.name)
    if one is None:
        print(f"no capsule {given.name}: there are {', '.join(capsules())}", file=sys.stderr)
        return 2
    how = f"measured on {one['hardware']}, {one['versions']}, seed {one['seed']}"
    print(f"{one['made_by']}\n{how}", flush=True)
    status = subprocess.run(["bash", "-c", one["made_by"]], cwd=ROOT).returncode
    print(f"of {one['date']}, within {one['tolerance']}:")
    for page, figures in one["figures"].items():
        words, rows = split_figures(figures)
        lines = [*words, *(" | ".join(row) for row in rows)]
        print("\n".join(f"  {page}: {line}" for line in lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
