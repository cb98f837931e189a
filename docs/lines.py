"""Long commands of a page, broken before their options."""

from __future__ import annotations

import re

WIDTH = 78
WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")


def broken(block: str) -> str:
    """A fenced block; commands of one of bash are broken where they are longer than a line."""
    if not block.lstrip().startswith("```bash") or "<<" in block:
        return block
    return "\n".join(map(command, block.split("\n")))


def command(line: str) -> str:
    """A command, broken before options and pipes so that its lines are short where they can be."""
    words = WORD.findall(line)
    indent = line[: len(line) - len(line.lstrip())]
    # a comment, or a quotation over several lines, is left as it is
    if len(line) <= WIDTH or indent + " ".join(words) != line or line.lstrip().startswith("#"):
        return line
    groups = list[str]()
    for word in words:
        if word.startswith("#") or (
            groups and not word.startswith("--") and word not in ("|", "&&")
        ):
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    found, current = list[str](), indent + groups[0]
    for group in groups[1:]:
        if len(current) + len(group) + 3 > WIDTH:
            found.append(f"{current} \\")
            current = f"{indent}    {group}"
        else:
            current += f" {group}"
    return "\n".join([*found, current])
