"""Files that tests write, packed where their name ends in .gz."""

from __future__ import annotations

import gzip
from pathlib import Path


def write(path: Path, text: str | bytes) -> Path:
    """Write a file, which is packed if its name ends in .gz; returns its path."""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
