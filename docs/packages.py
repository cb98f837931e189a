"""Draws docs/packages.svg from the imports: which package of unitk uses which.

A test compares the picture with the code.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import shape  # noqa: E402  (beside the tests, which are no package)

PICTURE = Path(__file__).with_name("packages.svg")
ROWS = (
    ("unitk_cli",),
    ("verbs",),
    ("families", "fairseq", "comparison"),
    ("formats", "serving", "runs", "remote"),
    ("api", "evaluation"),
    ("training", "decoding"),
    ("tasks",),
    ("data", "models", "kernels", "criterions", "optim", "metrics"),
    ("vocab", "options"),
    ("pretrained", "unitk"),
)
"""Packages from the top layer down; "unitk": the modules of the package itself."""
ABOUT = {
    "unitk_cli": "words to verbs",
    "verbs": "a file a verb",
    "serving": "HTTP and a page",
    "api": "verbs as functions",
    "families": "a folder a family",
    "fairseq": "its data and trainer",
    "comparison": "models side by side",
    "formats": "checkpoints of others",
    "runs": "beside training",
    "remote": "stores of objects",
    "evaluation": "figures of a model",
    "training": "the loop, saving, ranks",
    "decoding": "search and sampling",
    "tasks": "a file an objective",
    "data": "corpora, cuts, plans",
    "models": "the one Transformer",
    "kernels": "who multiplies",
    "criterions": "losses",
    "optim": "optimizers",
    "metrics": "BLEU, ROUGE",
    "vocab": "ids of text",
    "options": "text to values",
    "pretrained": "models that come along",
    "unitk": "slots, masks, registry",
}
WIDE, HIGH, STEP = 180, 44, 104


def package(name: str) -> str:
    """The package that a file belongs to."""
    first, second, *_ = *Path(name).parts, ""
    return first if first == "unitk_cli" else second if second in ABOUT else "unitk"


def uses() -> set[tuple[str, str]]:
    """Pairs of packages of which the first imports the second; all import `unitk` itself."""
    pairs = {
        (package(name), package(target))
        for name, targets in shape.edges().items()
        if name != "unitk/__init__.py"  # what users import leads everywhere
        for target in targets
    }
    return {(a, b) for a, b in pairs if a != b and b != "unitk"}


def direct(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs that no way down over a third package implies."""
    row = {name: y for y, names in enumerate(ROWS) for name in names}
    down = {(a, b) for a, b in pairs if row[a] < row[b]}
    reach = set(down)
    for _ in ROWS:
        reach |= {(a, d) for a, b in reach for c, d in down if b == c}
    implied = {(a, c) for a, b in reach for b2, c in reach if b == b2}
    return pairs - implied


def picture() -> str:
    """The drawing; arrows that others imply are left out."""
    centre = {
        name: (500 + (i - (len(row) - 1) / 2) * (WIDE + 32), 40 + STEP * y)
        for y, row in enumerate(ROWS)
        for i, name in enumerate(row)
    }
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-140 0 1280 1020"'
        ' font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>',
    ]
    for a, b in sorted(direct(uses())):
        (x, y), (to, below) = centre[a], centre[b]
        side = 0 if y != below else (WIDE / 2 if to > x else -WIDE / 2)
        start, end = (x + side, y if side else y + HIGH / 2), (to - side, below - HIGH / 2)
        end = (to - side, below) if side else end
        lines.append(
            f'<path d="M{start[0]:g},{start[1]:g} L{end[0]:g},{end[1]:g}" stroke="#666"'
            ' fill="none" marker-end="url(#tip)"/>'
        )
    for name, (x, y) in centre.items():
        lines += [
            f'<rect x="{x - WIDE / 2:g}" y="{y - HIGH / 2:g}" width="{WIDE}" height="{HIGH}"'
            ' rx="6" fill="#e8eaf6" stroke="#3f51b5"/>',
            f'<text x="{x:g}" y="{y - 3:g}" text-anchor="middle" font-size="15">{name}</text>',
            f'<text x="{x:g}" y="{y + 14:g}" text-anchor="middle" font-size="11"'
            f' fill="#444">{ABOUT[name]}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PICTURE.write_text(picture(), encoding="utf-8")
