"""News sets as they are published; chunks are written here by the rules of protocol buffers."""

import gzip
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unitk.data.files.pairs import PairText
from unitk.errors import DataError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes" / "summarize"))
from published import features, read_bbc, read_chunk, read_story  # noqa: E402


def varint(value):
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(values, list_of=1):
    entries = [
        field(1, field(1, name.encode()) + field(2, field(list_of, field(1, value))))
        for name, value in values.items()
    ]
    return field(1, b"".join(entries))


def chunk(*records):
    return b"".join(struct.pack("<q", len(record)) + record for record in records)


def pair(article, abstract):
    return example({"abstract": abstract.encode(), "article": article.encode()})


def test_a_record_byte_by_byte():
    # Example { Features { entry { key "a", value { bytes_list { "hi" } } } } }
    record = bytes([10, 13, 10, 11, 10, 1, 97, 18, 6, 10, 4, 10, 2]) + b"hi"
    assert record == example({"a": b"hi"}) and features(record) == {"a": b"hi"}


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.binary(max_size=300), max_size=4))
def test_what_was_written_is_read(values):
    assert features(example(values)) == values


def test_lists_of_numbers_and_unknown_fields_are_passed_over():
    other = varint(3 << 3) + varint(300) + varint(4 << 3 | 1) + bytes(8) + varint(5 << 3 | 5)
    record = example({"article": b"x"}) + example({"n": b"\1"}, list_of=3) + other + bytes(4)
    assert features(record) == {"article": b"x", "n": b""}


@pytest.mark.parametrize("ending", ["bin", "bin.gz"])
def test_sentences_of_an_abstract_are_lines(tmp_path, ending):
    records = pair("café one . two .", "<s> a b . </s> <s> c . </s>"), pair("x" * 500, "plain")
    path = tmp_path / f"test_000.{ending}"
    path.write_bytes(gzip.compress(chunk(*records)) if ending == "bin.gz" else chunk(*records))
    found = [(one.source, one.target) for one in read_chunk(path)]
    assert found == [(["café one . two ."], "a b .\nc ."), (["x" * 500], "plain")]


def test_every_cut_is_an_error(tmp_path):
    whole = chunk(pair("one", "<s> two </s>"))
    for size in range(1, len(whole)):
        (tmp_path / "x.bin").write_bytes(whole + whole[:size])
        reader = read_chunk(tmp_path / "x.bin")
        assert next(reader).target == "two"
        with pytest.raises(DataError, match=f"x.bin, byte {len(whole)}: no tf.train.Example"):
            next(reader)


@pytest.mark.parametrize("data", [b"\xff" * 40, chunk(example({"article": b"x"})), b"text\n" * 9])
def test_what_is_none_is_refused(tmp_path, data):
    (tmp_path / "x.bin").write_bytes(data)
    with pytest.raises(DataError, match="x.bin, byte 0: no tf.train.Example of article"):
        list(read_chunk(tmp_path / "x.bin"))


def write(path, text):
    path.write_text(text)
    return path


def test_a_story_of_cnn(tmp_path):
    text = "(CNN) -- One line.\n\nAnother.\n\n"
    text += "@highlight\n\nFirst point\n\n@highlight\n\nSecond\npoint\n"
    assert read_story(write(tmp_path / "x.story", text)) == PairText(
        ["(CNN) -- One line. Another."], "First point\nSecond point"
    )
    assert read_story(write(tmp_path / "y.story", "no highlights")).target == ""


def test_a_page_of_xsum(tmp_path):
    text = (
        "[SN]URL[SN]\nhttp://x\n\n[SN]TITLE[SN]\nA title\n\n[SN]FIRST-SENTENCE[SN]\nIt rained.\n\n"
        "[SN]RESTBODY[SN]\nShare this with\nEmail\nIt rained all day.\nEmail me, he said.\n"
    )
    assert read_bbc(write(tmp_path / "1.summary", text)) == PairText(
        ["It rained all day. Email me, he said."], "It rained."
    )
    with pytest.raises(DataError, match=r"no section \[SN\]FIRST-SENTENCE\[SN\]"):
        read_bbc(write(tmp_path / "2.summary", "[SN]URL[SN]\nhttp://x\n"))
