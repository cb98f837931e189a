"""Tables as spreadsheets and people write them: separators, line ends, lists in json-lines."""

import gzip
import json

import pytest

from unitk.comparison.texts import read_documents
from unitk.data.files.documents import Separators
from unitk.data.files.readers import format_of, records
from unitk.errors import DataError

ROWS = [{"text": "good, film", "label": "1"}, {"text": 'a "bad"; film', "label": "0"}]


def read(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return [(record.values, record.place) for record in records(path)]


def quoted(mark, end):
    lines = [mark.join(ROWS[0])]
    for row in ROWS:
        lines.append(mark.join('"{}"'.format(cell.replace('"', '""')) for cell in row.values()))
    return "".join(line + end for line in lines)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("first", ["", "\ufeff", "sep={}\r\n"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_cells_of_csv_end_as_the_first_row_shows(tmp_path, mark, first, end):
    found = read(tmp_path / "x.csv", first.format(mark) + quoted(mark, end))
    assert [record for record, _ in found] == ROWS
    skipped = 1 + first.startswith("sep")
    assert [where for _, where in found] == [
        f"{tmp_path / 'x.csv'}, line {skipped + i}" for i in (1, 2)
    ]


def test_one_column_and_marks_in_names(tmp_path):
    assert read(tmp_path / "x.csv", "text\na; b\n")[0][0] == {"text": "a; b"}
    found = read(tmp_path / "x.csv", '"text, all";label\n"a, b";1\n')
    assert found[0][0] == {"text, all": "a, b", "label": "1"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("cell", ["good\rfilm", 'a "b', "\u2028x", "a\x85b", "\x0c", '"'])
def test_only_tabs_and_newlines_end_cells_of_tsv(tmp_path, cell, end):
    text = f"text\tlabel{end}{cell}\t1{end}{end}bad\t0{end}"
    found = read(tmp_path / "x.tsv", text)
    assert [record for record, _ in found] == [
        {"text": cell, "label": "1"},
        {"text": "bad", "label": "0"},
    ]
    assert found[1][1] == f"{tmp_path / 'x.tsv'}, line 4"


@pytest.mark.parametrize("cell", ["a\rb", "a\nb", "\u2028", "a\x85b"])
def test_a_quoted_cell_of_csv_has_any_line_end(tmp_path, cell):
    [(record, _)] = read(tmp_path / "x.csv", f'text,label\n"{cell}",1\n')
    assert record["text"] == cell


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ('text,id\na,1\n"b,1\n', "line 3: no CSV (a quote is opened and not closed)"),
        ('text,id\n"a"b,1\n', "line 2: no CSV (a cell goes on after its closing quote;"),
        ("text,id\na\rb,1\n", "line 2: no CSV (a carriage return in a cell without quotes)"),
        ("text,id\ra,1\r", "lines end in carriage returns (\\r) alone, not in newlines; `tr"),
    ],
)
def test_mistakes_in_csv_are_told_in_own_words(tmp_path, data, told):
    with pytest.raises(DataError) as caught:
        read(tmp_path / "x.csv", data)
    assert told in str(caught.value) and "x.csv" in str(caught.value)


@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson", "x.jsonl.gz"])
@pytest.mark.parametrize("given", ["auto", "jsonl"])
def test_one_pretty_list_in_json_lines_is_read(tmp_path, name, given):
    path = tmp_path / name
    data = json.dumps(ROWS, indent=2).encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    reading = Separators(format=format_of(path, given))
    assert list(read_documents(path, reading)) == [[row["text"]] for row in ROWS]
    assert [record.values for record in records(path, given=given)] == ROWS


def test_a_pretty_record_in_json_lines_is_told(tmp_path):
    with pytest.raises(DataError, match="x.jsonl, line 1: not JSON .*jq -c"):
        read(tmp_path / "x.jsonl", json.dumps(ROWS[0], indent=2))


@pytest.mark.parametrize("name", ["x.txt", "x.csv", "x.tsv", "x.jsonl", "x.conll", "x.json"])
@pytest.mark.parametrize("kind", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_told_with_its_cure(tmp_path, name, kind):
    path = tmp_path / name
    path.write_bytes('[{"text": "good"}]\n'.encode(kind))
    with pytest.raises(DataError, match=f"{name} .*`iconv -f {kind[:6].upper()}"):
        list(read_documents(path, Separators(format=format_of(path))))


def test_carriage_returns_alone_are_told(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"The cat sat.\rThe dog ran.\r")
    with pytest.raises(DataError, match="x.txt: .*carriage"):
        list(read_documents(path, Separators()))
    path.write_bytes(b"one line\r")
    assert list(read_documents(path, Separators())) == [["one line"]]
