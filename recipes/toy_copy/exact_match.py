"""The share of lines that are equal in two files; exit code 1 below 0.98."""

import argparse
import sys
from pathlib import Path

LEAST = 0.98
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("files", type=Path, nargs=2)
written, expected = (path.read_text().splitlines() for path in parser.parse_args().files)
assert len(written) == len(expected), f"{len(written)} lines against {len(expected)}"
share = sum(a == b for a, b in zip(written, expected, strict=True)) / len(expected)
print(f"exact match {share:.3f} of {len(expected)}")
if share < LEAST:
    sys.exit(f"not learnt: at least {LEAST} is wanted")
