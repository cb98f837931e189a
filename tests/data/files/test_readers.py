"""Records of every format: the same rows, places that name the file, and one reader for a file."""

import csv
import io
import json

import pytest

from unitk import registry
from unitk.data.files.lines import blocks
from unitk.data.files.readers import (
    LineReader,
    Reader,
    Record,
    format_of,
    reader,
    readers,
    records,
)
from unitk.errors import DataError, UsageError

ROWS = [{"text": "good, film", "label": "1"}, {"text": 'a "bad"; film', "label": "0"}]


def written(name):
    """The rows in a format, as bytes."""
    if name == "jsonl":
        return "".join(f"{json.dumps(row)}\n\n" for row in ROWS).encode()
    if name == "json":
        return json.dumps(ROWS).encode()
    if name == "tsv":
        return "".join(
            "\t".join(cells) + "\n" for cells in [ROWS[0], *map(dict.values, ROWS)]
        ).encode()
    if name == "csv":
        file = io.StringIO()
        table = csv.DictWriter(file, ROWS[0])
        table.writeheader()
        table.writerows(ROWS)
        return file.getvalue().encode()
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table, sink = pyarrow.Table.from_pylist(ROWS), io.BytesIO()
    if name == "parquet":
        parquet.write_table(table, sink)
    else:
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("name", ["jsonl", "json", "csv", "tsv", "parquet", "arrow"])
def test_all_tables_have_the_same_records(tmp_path, name):
    for ending in reader(name).endings:
        path = tmp_path / f"x{ending}"
        path.write_bytes(written(name))
        assert format_of(path) == name
        found = list(records(path))
        assert [record.values for record in found] == ROWS
        assert all(record.place.startswith(str(path)) for record in found)
        assert len({record.place for record in found}) == len(ROWS)
        some = [record.get("label") for record in records(path, ("label",))]
        assert some == [row["label"] for row in ROWS]


@pytest.mark.parametrize("start", [b"", b"{}", b"[1]", b'{"data": []}', b'{\n"a": 1}', b"{}\n{}"])
def test_one_reader_claims_a_beginning(start):
    for ending in {ending for one in readers().values() for ending in one.endings}:
        own = [one for one in readers().values() if ending in one.endings]
        assert len(own) == 1 or sum(one.claims(ending, start) for one in own) == 1


@pytest.mark.parametrize("name", registry.names("reader"))
def test_lines_are_records_by_themselves(tmp_path, name):
    if not isinstance(own := reader(name), LineReader):
        return
    path = tmp_path / "x"
    path.write_bytes(written("jsonl"))
    found = list(own.records(path))
    assert own.by_line(path) and len(found) == 2
    assert found == [record for block in blocks(path) for record in own.parse(block)]
    assert [own.values(line, "") for line in path.read_text().split("\n\n")[:2]] == [
        record.values for record in found
    ]


def test_text_is_read_as_lines_of_json_or_as_lines(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text('{"text": "a"}\n\n{"text": "b"}\n')
    assert [record.text("text") for record in records(path)] == ["a", "b"]
    lines = [record.text("text") for record in records(path, plain="text")]
    assert lines == ['{"text": "a"}', '{"text": "b"}']


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.text("b"), "x, line 3: no field 'b'; there are a, list"),
        (lambda one: one.text("b", "--field"), "line 3: no field 'b', see --field"),
        (lambda one: one.need("b", "c"), "line 3: no field 'b' or 'c'"),
        (lambda one: one.text("list"), "line 3: field 'list' must be a text"),
        (lambda one: one.text("a", blank=False), "line 3: field 'a' is empty"),
        (lambda one: one.texts("a", least=2), "field 'a' must be a list of 2 texts or more"),
        (lambda one: one.texts("list"), "field 'list' must be a text or a list of texts"),
        (lambda one: one.texts("a", blank=False), "field 'a' has an empty text"),
    ],
)
def test_errors_name_the_place_and_the_field(call, message):
    with pytest.raises(DataError, match=message):
        call(Record({"a": " ", "list": ["x", 1]}, "x, line 3"))


def test_a_format_that_two_readers_claim_is_asked_for(tmp_path, monkeypatch):
    class Other(Reader):
        endings = (".csv",)

        def records(self, path, fields=()):
            raise AssertionError

    registry.names("reader")
    monkeypatch.setitem(registry._entries["reader"], "other", Other)
    with pytest.raises(UsageError, match=r"x.csv may be csv or other; --input-format"):
        (tmp_path / "x.csv").write_text("a\n")
        format_of(tmp_path / "x.csv")
    assert format_of(tmp_path / "x.csv", "other") == "other"
