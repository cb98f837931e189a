"""Records of every format: the same rows, places that name the file, and one reader for a file."""

import csv
import io
import json
import os
import threading

import pytest
from packed_files import write

from unitk import registry
from unitk.data.files.documents import PlainText
from unitk.data.files.files import ReadingOptions
from unitk.data.files.lines import BLOCK, blocks
from unitk.data.files.readers import LineReader, Reader, Record, format_of, reader, readers, records
from unitk.decoding.files.inputs import read_inputs
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
def test_one_reader_recognizes_a_beginning(start):
    for ending in {ending for one in readers().values() for ending in one.endings}:
        own = [one for one in readers().values() if ending in one.endings]
        assert len(own) == 1 or sum(one.recognizes(ending, start) for one in own) == 1


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
    path.write_text("a\n\nb\n")
    assert [record.text("text") for record in records(path, plain="text")] == ["a", "b"]


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
    with pytest.raises(UsageError, match=r"x.csv .*csv.*; --input-format"):
        (tmp_path / "x.csv").write_text("a\n")
        format_of(tmp_path / "x.csv")
    assert format_of(tmp_path / "x.csv", "other") == "other"


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": {"b": {"c": None}}}, "a.b.c", None),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
        ({"a.b": {"c": 1}, "a": {"b": {"c": 2}}}, "a.b.c", 1),
        ({"a": {"b.c": 1}}, "a.b.c", 1),
        ({"a": [{"b": 1}, {"b": 2}]}, "a.b", [1, 2]),
        ({"a": [{"b": 1}, {"b": 2}]}, "a.1.b", 2),
        ({"a": {"b": ["x", ["y", "z"]]}}, "a.b.0", "x"),
        ({"a": {"b": ["x", ["y", "z"]]}}, "a.b.1.1", "z"),
        ({"a": '{"b": {"c": 1}}'}, "a.b.c", 1),
        ({"a": '[{"b": 1}, {"b": 2}]'}, "a.b", [1, 2]),
        ({"a": '{"b": "x"}', "a.b": "y"}, "a.b", "y"),
        ({"a": [{"b": 1}, {}]}, "a.0.b", 1),
        ({"a": {"0": 1}}, "a.0", 1),
        ({"a.0": 1, "a": [2]}, "a.0", 1),
        ({"a": [None]}, "a.0", None),
    ],
)
def test_a_dot_goes_into_an_object(record, field, value):
    assert Record(record, "").get(field) == value and field in Record(record, "")


@pytest.mark.parametrize("record", [{"a": 1}, {"a": {}}, {"a": []}, {"a": [{"b": 1}, {}]}, {}])
def test_what_is_not_in_an_object_is_not_found(record):
    assert Record(record, "").get("a.b") is None and "a.b" not in Record(record, "")


@pytest.mark.parametrize("field", ["a.2", "a.-1", "a.0.b", "a.", "a.x"])
def test_what_a_list_does_not_hold_is_not_found(field):
    assert field not in Record({"a": ["x", "y"]}, "")


def test_names_of_fields_in_an_error_are_short():
    def named(names):
        return Record(dict.fromkeys(names, ""), "").names()

    assert named(["id", "body"]) == "id, body"
    assert named(["x" * 31, "y" * 30]) == f"{'x' * 30}..., {'y' * 30}"
    assert named("abcdefghijklmnop") == "a, b, c, d, e, f, g, h, i, j, k, l, ..."
    nested = {"id": 1, "pair": {"de": "ja", "en": {"text": "yes"}}, "turns": [{"says": "a"}, {}]}
    assert Record(nested, "").names() == "id, pair.de, pair.en.text, turns.says"


def test_the_ending_tells_the_format(tmp_path):
    for name, expected in [
        ("a.txt", "text"),
        ("a", "text"),
        ("a.jsonl.gz", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.csv.xz", "csv"),
        ("a.tsv.zst", "tsv"),
        ("a.parquet", "parquet"),
        ("a.en", "text"),
    ]:
        write(tmp_path / name, "a")
        assert format_of(tmp_path / name) == expected
    assert format_of(tmp_path / "a.en", "squad") == "squad"
    for text, expected in [
        ('{"data": []}', "squad"),
        ('{\n"version": 1, "data": []}', "squad"),
        (' [{"text": "a"}]', "json"),
        ('{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        ('{"text": "a", "of": {"data": 1}}', "jsonl"),
        # first lines of more than is looked at
        ('{"text": "\\"data\\": ' + "a " * BLOCK + '"}\n{"text": "b"}\n', "jsonl"),
        ('{"version": "2", "data": ["' + "a " * BLOCK + '"]}', "squad"),
    ]:
        assert format_of(write(tmp_path / "a.b.json", text)) == expected
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UsageError, match="--input: .*a.txt is text, but .*a.b.json is squad"):
        write(tmp_path / "a.b.json", '{"data": []}')
        ReadingOptions().source([tmp_path / n for n in ("a.txt", "a.b.json")], "--input")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\tb\nc\td\ne\tf\n", "x.md looks like csv or tsv; give --input-format csv or tsv, or"),
        (b"a;1\nb;2\nc;3\nd", "x.md looks like csv or tsv"),
        (b"some bytes and\0others", "x.md looks like binary data"),
    ],
)
def test_an_unknown_ending_is_text_unless_it_looks_otherwise(tmp_path, data, message):
    path = write(tmp_path / "x.md", b"# Title\n\nSome text, and more.\nThe end.\n")
    assert format_of(path, "auto", "--input") == "text"
    with pytest.raises((UsageError, DataError), match=message):
        format_of(write(path, data), "auto", "--input")
    assert format_of(path) == "text"  # unitk score takes it
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_bytes, args=[data])
    writer.start()
    with pytest.raises((UsageError, DataError), match=message.replace("x.md", "pipe")):
        format_of(pipe, "auto", "--input")
    writer.join()


@pytest.mark.parametrize("name", ["x.md", "x.txt", "x", "x.TXT.gz"])
def test_records_of_json_are_found_where_the_ending_says_text_or_nothing(tmp_path, name):
    for data, own in {
        '{"text": "a"}\n{"text": "b"}\n': "jsonl",
        ' {"text": "a"}': "jsonl",
        '[{"text": "a"},\n{"text": "b"}]': "json",
        '[\n  {\n    "text": "a"}]': "json",
    }.items():
        path = write(tmp_path / name, data)
        with pytest.raises(UsageError, match=f"{name} .*--input-format {own}, or text"):
            format_of(path, "auto", "--input")
        assert format_of(path, "text", "--input") == "text"
        assert format_of(path) == own  # where no --input-format is
        assert next(records(path)).values == {"text": "a"}
    for text in ("[Music] a song\n", "{a} is a set\n", "[1, 2]\n", '{"a" is no json\n', "", "[]"):
        write(tmp_path / name, text)
        assert [format_of(tmp_path / name, "auto", how) for how in ("--input", "")] == ["text"] * 2


@pytest.mark.parametrize("given", [{"text": "a"}, "a", None, Record(["a"], "x.odd")])
def test_a_reader_of_a_plug_in_that_gives_no_records_is_named(tmp_path, own_registry, given):
    @registry.register("reader", "odd")
    class Odd(Reader):
        endings = (".odd",)

        def records(self, path, fields=()):
            yield given

    @registry.register("reader", "odd_lines")
    class OddLines(LineReader):
        endings = (".odds",)

        def values(self, line, place):
            return getattr(given, "values", None) if given != {"text": "a"} else [given]

    for name in ("x.odd", "x.odds"):
        (tmp_path / name).write_text("a\n")
        for read in (records, read_inputs):
            with pytest.raises(UsageError, match="^reader 'odd.* must give .*, got "):
                list(read(tmp_path / name))


def test_what_a_reader_gives_is_not_written_out():
    """Only a message needs its text, which may be long."""

    class Silent(dict):
        def __repr__(self):
            raise AssertionError("written out")

    record = Record(Silent(text="a"), "x.jsonl, line 1")
    assert reader("jsonl").check(record) is record


@pytest.mark.parametrize("odd", [dict, type("Odd", (PlainText,), {"endings": ".odd"})])
def test_a_reader_is_one(own_registry, odd):
    registry.register("reader", "odd")(odd)
    with pytest.raises(
        UsageError, match="^reader .odd. of .*test_readers.py .*Reader .*endings, got "
    ):
        reader("odd")
