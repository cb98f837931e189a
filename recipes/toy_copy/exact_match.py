"""The share of lines that are equal in two files; exit code 1 below 0.98."""

import sys
from pathlib import Path

written, wanted = (Path(name).read_text().splitlines() for name in sys.argv[1:3])
assert len(written) == len(wanted), f"{len(written)} lines against {len(wanted)}"
share = sum(a == b for a, b in zip(written, wanted, strict=True)) / len(wanted)
print(f"exact match {share:.3f} of {len(wanted)}")
sys.exit(share < 0.98)
