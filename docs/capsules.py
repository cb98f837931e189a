"""Capsules: what makes the figures of the pages again, and whether the pages still say them.

    python docs/capsules.py              check all; a line for each fault
    python docs/capsules.py --list       names and commands
    python docs/capsules.py NAME         run the command of a capsule, then say what to compare

recipes/*/capsule.yaml holds capsules by name:

    made_by      the command, which reads and writes what its README says
    data         file of the repository -> SHA-256, or data that are not in it -> where from
    seed, versions, hardware, date
    figures      PAGE -> first cell of a row -> its other cells, as the page has them: "a | b",
                 or a list of what its sentences say
    tolerance    how far a figure may be from that of another machine, by its name or for all

A table with figures that no capsule has stands in a section with a line "Measured: DATE, MACHINE."
or below a heading that has one.
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
FIGURE = re.compile(r"[-+*]*\d[\d,]*\.\d+\*{0,2}( %| s| ms)?( \(.*\))?")
"""A cell with decimals: what is measured, whereas counts are whole."""
MARK = re.compile(r"^(?:<!-- )?Measured: 20\d\d-\d\d(?:-\d\d)?, .+\.(?: -->)?$", re.M)
HEADING = re.compile(r"(#+) ")


@dataclass
class Table:
    """A table of a page."""

    page: str
    line: int
    marked: bool
    """Whether a line says when and where it was measured."""
    rows: dict[str, list[str]] = field(default_factory=dict)
    """First cell -> the other cells of each row that begins with it, as "a | b"."""

    @property
    def figures(self) -> set[str]:
        """The first cells of the rows with a figure; those of options have defaults."""
        return {
            first
            for first, rows in self.rows.items()
            if not first.startswith("`--")
            and any(FIGURE.fullmatch(cell) for row in rows for cell in row.split(" | "))
        }


def pages() -> list[Path]:
    """README.md, the pages of docs/ and the cards of bundled models."""
    patterns = "README.md", "docs/*.md", "docs/benchmarks/*.md", "unitk/pretrained/*/README.md"
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def tables(path: Path) -> Iterator[Table]:
    """The tables of a page, code aside."""
    marks: dict[int, bool] = {}  # of the headings above, by their level
    table, level, code = None, 0, False
    lines = path.read_text(encoding="utf-8").splitlines()
    page = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(lines, 1):
        code ^= line.startswith("```")
        if not code and (heading := HEADING.match(line)):
            level = len(heading[1])
            marks = {one: mark for one, mark in marks.items() if one < level}
        if MARK.match(line):
            marks[level] = True
        if not code and line.startswith("|"):
            table = table or Table(page, number, any(marks.values()))
            first, *others = (cell.strip() for cell in line.strip()[1:-1].split("|"))
            table.rows.setdefault(first, []).append(" | ".join(others))
        elif table:
            yield table
            table = None
    if table:
        yield table


def capsules() -> dict[str, dict[str, Any]]:
    """All capsules, as RECIPE/NAME."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(ROOT.glob("recipes/*/capsule.yaml")):
        for name, one in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            found[f"{path.parent.name}/{name}"] = one
    return found


def faults() -> list[str]:
    """What does not agree, a line for each fault."""
    found, covered = list[str](), set[tuple[str, int, str]]()
    known = {path.relative_to(ROOT).as_posix(): [*tables(path)] for path in pages()}
    for name, one in capsules().items():
        if odd := KEYS ^ {*one}:
            found.append(f"{name}: {', '.join(sorted(odd))} missing or unknown")
            continue
        own = [*data_faults(one["data"]), *command_faults(one["made_by"])]
        for page, figures in one["figures"].items():
            if page not in known:
                own.append(f"there is no page {page}")
            elif isinstance(figures, list):
                own += lacking_words(page, figures)
            else:
                for first, cells in figures.items():
                    there = [one for one in known[page] if cells in one.rows.get(first, [])]
                    covered |= {(page, table.line, first) for table in there}
                    if not there:
                        own.append(f"{page} has no row {first} | {cells}")
        found += [f"{name}: {fault}" for fault in own]
    for page, all_ in known.items():
        for table in all_:
            left = {one for one in table.figures if (page, table.line, one) not in covered}
            if left and not table.marked:
                what = f"no capsule has {', '.join(sorted(left)[:3])}, and no line says Measured:"
                found.append(f"{page}:{table.line}: {what}")
    return found


def lacking_words(page: str, figures: list[str]) -> list[str]:
    """The figures in sentences that a page does not have, wherever its lines end."""
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    return [f"{page} does not say {one!r}" for one in figures if one not in words]


def data_faults(data: dict[str, str]) -> Iterator[str]:
    """Files of the repository that are not what they were; others are named only."""
    for name, given in data.items():
        path = ROOT / name
        if not re.fullmatch(r"[0-9a-f]{64}", given):
            continue  # it is not in the repository, and its source is said
        if not path.is_file():
            yield f"there is no {name}"
        elif (here := hashlib.sha256(path.read_bytes()).hexdigest()) != given:
            yield f"{name} has the SHA-256 {here}"


def command_faults(command: str) -> Iterator[str]:
    """Files that a command names and that are not there."""
    for word in re.findall(r"(?:recipes|docs)/[\w./-]+\.(?:sh|py)", command):
        if not (ROOT / word).is_file():
            yield f"made_by: there is no {word}"


def main(words: list[str]) -> int:
    """Check all capsules, or make one."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("capsules.py", description=__doc__, formatter_class=raw)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(words)
    if given.name is None and not given.list:
        found = faults()
        print("\n".join(found) or f"{len(capsules())} capsules agree with the pages")
        return bool(found)
    if given.list:
        print("\n".join(f"{name}: {one['made_by']}" for name, one in capsules().items()))
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
        pairs = figures.items() if isinstance(figures, dict) else []
        rows = [f"{first} | {cells}" for first, cells in pairs] or figures
        print("\n".join(f"  {page}: {row}" for row in rows))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
