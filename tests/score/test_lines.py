import gzip
import io
import sys
from pathlib import Path

import pytest

from unitk.errors import DataError
from unitk.score.lines import read_lines

PACKED = gzip.compress(b"some text", mtime=0)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"\n", [""]),
        ("\ufeffa\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),
    ],
)
def test_only_newlines_end_a_line(tmp_path, data, lines):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert read_lines(path) == lines
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(data))
    assert read_lines(packed) == lines


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert read_lines(Path("-")) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt", b"good\nbad \xff\n", "a.txt, line 2: not UTF-8"),
        ("a.gz", b"plain text", "a.gz: no gzip file, or cut off"),
        ("a.gz", PACKED[:-9], "a.gz: no gzip file, or cut off"),
        ("a.gz", gzip.compress(b"\n\n\xff", mtime=0), "a.gz, line 3: not UTF-8"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt: No such file"):
        read_lines(tmp_path / "none.txt")
