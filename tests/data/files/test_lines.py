"""Files as lines: packed, damaged, too long, or no text."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from pathlib import Path

import pytest
from packed_files import write

from unitk.data.files.lines import BLOCK, head, read_lines, read_pieces, read_text
from unitk.errors import DataError, UnitkError
from unitk.formats.archive import read_tensors
from unitk.vocab.open import open_vocab


def test_gzip_of_several_members_with_padding(tmp_path):
    data = gzip.compress(b"one\n") + gzip.compress(b"two\n") + bytes(8)
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    assert list(read_lines(path)) == ["one", "two"]
    for size in (16, 16 * 24, 16 * 25):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unitk.data.files.lines.BLOCK", size)
            assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.json.bz2", "x.json.xz"])
def test_what_is_read_as_a_whole_is_unpacked_up_to_a_bound(name, tmp_path, monkeypatch):
    """No more of a packed file is in memory, whatever it would become; a plain one has a size."""
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    pack_of_name = pack.get((path := tmp_path / name).suffix, bytes)
    monkeypatch.setattr("unitk.data.files.lines.WHOLE", 3 * BLOCK)
    for size in (3 * BLOCK, 20 * BLOCK):
        path.write_bytes(pack_of_name(b"[" + b" " * (size - 2) + b"]"))
        if size > 3 * BLOCK and path.suffix in pack:
            with pytest.raises(DataError, match=f"{name}: more than 3,145,728 bytes unpacked"):
                read_text(path)
        else:
            assert len(read_text(path)) == size


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_a_small_file_does_not_fill_the_memory(ending, tmp_path, monkeypatch):
    """A file of lines is read in pieces, which must not grow to any size, either."""
    if ending == ".zst":
        pack = pytest.importorskip("zstandard").compress
    else:
        pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[ending]
    path = tmp_path / f"x{ending}"
    monkeypatch.setattr("unitk.data.files.lines.MOST_AT_ONCE", 8 * BLOCK)
    for size in (8 * BLOCK - 2, 40 * BLOCK):
        path.write_bytes(pack(b"\n" * size))
        if size < 8 * BLOCK:
            assert sum(len(piece) for piece, _ in read_pieces(path)) == size
        else:
            with pytest.raises(DataError, match=f"x{ending}: .* 8,388,608"):
                list(read_pieces(path))


@pytest.mark.parametrize("name", ["x.txt", "x.csv", "x.jsonl.gz", "x.model", "x.json", "x.bin"])
def test_a_pointer_of_git_lfs_is_told(name, tmp_path):
    """A clone without it has one in place of a large file: as text, as a vocabulary, as weights."""
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    read = {".model": open_vocab, ".json": open_vocab, ".bin": read_tensors}.get(path.suffix, head)
    with pytest.raises(UnitkError, match=f"{name}.*git lfs pull"):
        read(path)


def test_a_crafted_zstd_gives_little_at_once(tmp_path):
    """The densest that the format has: blocks of 4 bytes, each a letter 128 kB times."""
    pytest.importorskip("zstandard")
    block = (1 << 1 | 1 << 17 << 3).to_bytes(3, "little") + b"a"
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + block * 3000  # a window of 2 MB, and no size
    (tmp_path / "x.zst").write_bytes(frame)
    sizes = []
    with pytest.raises(DataError, match="cut off"):
        for piece, _ in read_pieces(tmp_path / "x.zst"):
            sizes.append(len(piece))
    assert sum(sizes) > 1 << 27 and max(sizes) <= 1 << 26


@pytest.mark.parametrize("name", ["x.txt", "x.gz"])
def test_a_byte_order_mark_is_no_line(tmp_path, name):
    mark = b"\xef\xbb\xbf"
    assert list(read_lines(write(tmp_path / name, mark))) == []
    assert list(read_lines(write(tmp_path / name, mark + b"\n"))) == [""]
    assert list(read_lines(write(tmp_path / name, mark + b"a"))) == ["a"]


def test_damaged_gzip_is_named(tmp_path):
    whole = gzip.compress(b"some text\n" * 100)
    for data, message in [
        (whole[:-9], "cut off"),
        (b"plain text", "no gzip data, or damaged"),
        (whole[:20] + b"\0\0\0\0" + whole[24:], "no gzip data, or damaged"),
        (whole[:-8] + b"abcd" + whole[-4:], "no gzip data, or damaged"),
    ]:
        (tmp_path / "x.gz").write_bytes(data)
        with pytest.raises(DataError, match=f"x.gz: {message}"):
            list(read_pieces(tmp_path / "x.gz"))
    with pytest.raises(zlib.error):
        zlib.decompress(b"plain text", 31)


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path):
    path = write(tmp_path / "x.txt", "some words\n" * BLOCK)
    pieces = read_pieces(path)
    next(pieces)
    os.truncate(path, BLOCK)
    with pytest.raises(DataError, match="x.txt: cut short"):
        list(pieces)
    assert sum(len(piece) for piece, _ in read_pieces(path)) == BLOCK


def tarred(form):
    packed = io.BytesIO()
    with tarfile.open(mode="w", fileobj=packed, format=form) as archive:
        archive.addfile(tarfile.TarInfo("texts.jsonl"))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("h\u00e4".encode("utf-16"), "x.txt is UTF-16, not UTF-8 text; `iconv -f UTF-16"),
        ("hello".encode("utf-16-be"), "x.txt is UTF-16BE, .*iconv -f UTF-16BE"),
        (b"\0" * 5000, "x.txt is binary data, not UTF-8 text$"),  # a disk without power
        (b"PAR1 and so on", "x.txt is parquet, not UTF-8 text"),
        (gzip.compress(b"a", mtime=0), "x.txt is gzip, .* in .gz it is unpacked"),
        (lzma.compress(b"a"), "x.txt is xz, .* in .xz it is unpacked"),
        (tarred(tarfile.GNU_FORMAT), "x.txt is tar, .*unpack it$"),
        (tarred(tarfile.PAX_FORMAT), "x.txt is tar, .*unpack it$"),
        (
            tarred(tarfile.GNU_FORMAT).replace(b"ustar", b"\0" * 5),
            "is binary data, not UTF-8 text$",
        ),
        (b"PK\3\4, as .xlsx and .ods begin", "x.txt is zip, .* CSV UTF-8"),
    ],
)
def test_what_is_no_text_is_named(tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        list(read_lines(write(tmp_path / "x.txt", data)))


def test_too_long_a_line_is_refused_where_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr("unitk.data.files.lines.LONGEST", 3 * BLOCK)
    fits = "a" * 2 * BLOCK
    path = write(tmp_path / "x.txt", f"one\n{fits}\nthree\n")
    assert list(read_lines(path)) == ["one", fits, "three"]
    write(path, f"one\n{fits}\nthree\n" + "a" * 5 * BLOCK + "\nfive\n")
    with pytest.raises(DataError, match="x.txt, line 4: longer than 3 MB; break it"):
        list(read_lines(path))


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(DataError, match="none.txt: No such file or directory"):
        list(read_pieces(tmp_path / "none.txt"))


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_an_end_is_refused(device):
    """It would be copied until the disk is full."""
    with pytest.raises(DataError, match=device):
        list(read_lines(Path(device)))


def test_the_empty_device_has_no_lines():
    assert not [*read_lines(Path("/dev/null"))]
