"""Pairs from records."""

import csv
import gzip
import json

import pytest

from unitk.data.files.files import ReadingOptions, pair_blocks
from unitk.data.files.pairs import Fields, PairText, record_blocks
from unitk.errors import DataError, UsageError

FIELDS = Fields(("body",), ("title",))
RECORDS = ReadingOptions(source_field=("body",), target_field=("title",))


def read_records(path, fields):
    return [pair for block in record_blocks(path, fields) for pair in block.pairs]


def write(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def lines(path, *records):
    return write(path, "".join(json.dumps(record) + "\n\n" for record in records))


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_json_lines(tmp_path, name):
    path = lines(
        tmp_path / name, {"body": " a b ", "title": "c\n", "id": 1}, {"title": "é", "body": "d"}
    )
    assert list(read_records(path, FIELDS)) == [PairText(["a b"], "c"), PairText(["d"], "é")]


def test_a_json_list(tmp_path):
    # SAMSum
    records = [{"id": "1", "summary": "They meet.", "dialogue": "A: hi\r\nB: hi"}]
    path = write(tmp_path / "train.json", "\ufeff " + json.dumps(records, indent=1))
    fields = Fields(("dialogue",), ("summary",))
    assert list(read_records(path, fields)) == [PairText(["A: hi\r\nB: hi"], "They meet.")]


def test_lists_are_sentences_of_a_source_and_alternatives_of_a_target(tmp_path):
    # SciTLDR
    path = lines(tmp_path / "x.jsonl", {"source": ["One.", "Two."], "target": ["Three.", "Four."]})
    (found,) = read_records(path, Fields(("source",), ("target",)))
    assert found == PairText(["One. Two."], "Three.", ("Four.",))


def test_the_first_field_that_is_there_is_learnt(tmp_path):
    # DialogSum: one summary to train on, three to be judged by
    one, two = (
        {"dialogue": "a", "summary": "b"},
        {"dialogue": "c", "summary1": "d", "summary2": "e"},
    )
    path = lines(tmp_path / "x.jsonl", one, two)
    fields = Fields(("dialogue",), ("summary", "summary1", "summary2"))
    assert list(read_records(path, fields)) == [PairText(["a"], "b"), PairText(["c"], "d", ("e",))]


def test_several_source_fields_are_parts(tmp_path):
    path = lines(tmp_path / "x.jsonl", {"q": "who?", "p": "Ann won.", "a": "Ann"})
    (found,) = read_records(path, Fields(("q", "p"), ("a",)))
    assert found.source == ["who?", "Ann won."]


def test_a_mark_between_sentences(tmp_path):
    path = lines(tmp_path / "x.jsonl", {"body": "a", "title": "One .\n\nTwo .\n"})
    assert [p.target for p in read_records(path, FIELDS)] == ["One . Two ."]
    marked = Fields(("body",), ("title",), mark="|")
    assert [p.target for p in read_records(path, marked)] == ["One . | Two ."]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"title": "a"}, "x.jsonl, line 3: no field 'body', see --source-field; there are title"),
        (
            {"body": "a", "id": 1},
            "line 3: no field 'title', see --target-field; there are body, id",
        ),
        ({"body": "", "title": "a"}, "line 3: field 'body' is empty; --skip-empty leaves"),
        ({"body": "a", "title": []}, "line 3: title is empty"),
        ({"body": "a", "title": 3}, "line 3: field 'title' must be a text or a list of texts"),
        ("text", "line 3: not a JSON object"),
    ],
)
def test_bad_records_are_refused(tmp_path, record, message):
    path = lines(tmp_path / "x.jsonl", {"body": "a", "title": "b"}, record)
    with pytest.raises(DataError, match=message):
        list(read_records(path, FIELDS))
    listed = write(tmp_path / "x.json", json.dumps([record]))
    with pytest.raises(DataError, match=r"x.json: \[0\]: "):
        list(read_records(listed, FIELDS))


@pytest.mark.parametrize(
    ("record", "form", "empty"),
    [
        ({"a": "x", "b": " "}, "", "b"),
        ({"a": "x", "b": ["", ""]}, "class", "b"),
        ({"a": " ", "b": ["x", "y"]}, "choice", "a"),
        ({"a": "x", "b": ["x", "y", ""]}, "choice", "b"),
        ({"a": "", "b": ""}, "tags", "a"),
    ],
)
def test_an_empty_part_is_named(tmp_path, record, form, empty):
    path = lines(tmp_path / "x.jsonl", record | {"y": "0"})
    fields = Fields(("a", "b"), () if form else ("y",), label="y" * bool(form), form=form)
    with pytest.raises(DataError, match=f"line 1: field '{empty}' is empty"):
        list(read_records(path, fields))


def test_empty_ones_are_left_out_if_asked(tmp_path):
    records = [{"body": "", "title": "a"}, {"body": "b", "title": "c"}, {"body": "d", "title": " "}]
    path = lines(tmp_path / "x.jsonl", *records)
    fields = Fields(("body",), ("title",), skip_empty=True)
    assert list(read_records(path, fields)) == [PairText(["b"], "c")]


def test_what_is_no_json(tmp_path):
    with pytest.raises(DataError, match="x.jsonl, line 1: not JSON"):
        list(read_records(write(tmp_path / "x.jsonl", "{"), FIELDS))
    with pytest.raises(DataError, match="x.json: not JSON"):
        list(read_records(write(tmp_path / "x.json", "[{},"), FIELDS))


def test_blocks_are_small_and_tell_how_far_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("unitk.data.files.lines.RECORDS_IN_BLOCK", 2)
    records = [{"body": f"a{i}", "title": "b"} for i in range(5)]
    for path in (
        lines(tmp_path / "x.jsonl", *records),
        write(tmp_path / "x.json", json.dumps(records)),
    ):
        source = RECORDS.source([path], "--input")
        found = list(source.blocks())
        assert [len(block.pairs) for block in found] == [2, 2, 1]
        assert [block.at for block in found] == sorted(block.at for block in found)
        assert source.kind == "pairs" and list(source.lines())[:3] == ["a0", "b", "a1"]


def test_fields_are_of_json(tmp_path):
    path = write(tmp_path / "x.txt", "a\tb\n")
    with pytest.raises(UsageError, match="x.txt is text, --source-field is of .*tsv; --input-for"):
        RECORDS.source([path], "--input")
    write(tmp_path / "x.json", '{"data": []}')
    assert ReadingOptions(window=9).source([tmp_path / "x.json"], "--input").window == 9


def test_pairs_of_lines(tmp_path):
    source, target = write(tmp_path / "s", "a b\n c \r\n"), write(tmp_path / "t.gz", "d\ne")
    [block] = pair_blocks(source, target)
    assert block.pairs == [PairText(["a b"], "d"), PairText(["c"], "e")]


def test_pairs_must_be_of_equal_number(tmp_path):
    many = write(tmp_path / "many", "a\n" * 5001)
    for short in (0, 3, 2000, 5000):
        few = write(tmp_path / "few", "b\n" * short)
        count = max(short, 1)  # an empty file has one empty line
        with pytest.raises(DataError, match="few.* lines, but .*many.*|many.* but .*few"):
            list(pair_blocks(many, few))
        if short:
            with pytest.raises(DataError, match=f"few has {count:,} lines, but .*many has 5,001"):
                list(pair_blocks(few, many))


def test_an_empty_side_is_an_error(tmp_path):
    write(tmp_path / "s", "a\nb\n"), write(tmp_path / "t", "c\n \n")
    with pytest.raises(DataError, match="t, line 2: empty; remove the line from both files"):
        list(pair_blocks(tmp_path / "s", tmp_path / "t"))


def test_null_is_an_empty_text(tmp_path):
    good = {"body": "a", "title": "b"}
    path = lines(tmp_path / "x.jsonl", good | {"body": None}, good | {"title": None}, good)
    with pytest.raises(DataError, match="line 1: .*'body' .*--skip-empty"):
        list(read_records(path, FIELDS))
    skipping = Fields(("body",), ("title",), skip_empty=True)
    assert list(read_records(path, skipping)) == [PairText(["a"], "b")]
    # a further target that is null is none
    more = lines(tmp_path / "y.jsonl", good | {"other": None})
    assert list(read_records(more, Fields(("body",), ("other", "title")))) == [PairText(["a"], "b")]


def table(path, spell, **columns):
    """A CSV file whose cells hold lists as `spell` writes them."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            out.writerow([cell if isinstance(cell, str) else spell(cell) for cell in row])
    return path


WORDS, TAGS = [["I", 'saw "x"', "Oslo"], ["yes"]], [["O", "O", "B-LOC"], ["O"]]


@pytest.mark.parametrize(("words", "tags"), [(WORDS, TAGS), (["I saw Oslo", "yes"], TAGS)])
def test_a_cell_with_a_list_of_words_or_tags_is_that_list(tmp_path, words, tags):
    path = table(tmp_path / "a.csv", json.dumps, words=words, tags=tags)
    read = read_records(path, Fields(("words",), (), label="tags", form="tags"))
    whole = [text if isinstance(text, list) else text.split() for text in words]
    assert [(pair.source, pair.label) for pair in read] == list(zip(whole, tags, strict=True))


@pytest.mark.parametrize(
    "columns", [{"words": WORDS}, {"tags": TAGS}, {"words": WORDS, "tags": TAGS}]
)
def test_a_list_as_python_prints_it_is_refused(tmp_path, columns):
    """It has as many blanks as a list of json, so that it passed for words and tags."""
    given = {"words": ["I saw Oslo", "yes"], "tags": ["O O B-LOC", "O"]} | columns
    path = table(tmp_path / "a.csv", repr, **given)
    with pytest.raises(DataError, match=r"line 2.*'(words|tags)'.*not JSON.*double quotes"):
        read_records(path, Fields(("words",), (), label="tags", form="tags"))


CHOSEN = Fields(("question", "choices.text"), (), label="answerKey", form="choice")


@pytest.mark.parametrize(
    ("names", "key", "number"),
    [
        (["1", "2", "3"], "1", 0),
        (["1", "2", "3"], "3", 2),
        ([1, 2, 3], 2, 1),
        (["A", "B", "C"], "C", 2),
        (["A", "B", "C"], 0, 0),  # no name of a choice: its number from 0
        (["1", "2"], "1", 1),  # not of these choices
        (None, "1", 1),
    ],
)
def test_choices_have_the_names_that_a_table_gives_them(tmp_path, names, key, number):
    """As ARC has them: most from A to D, some from 1 to 4."""
    choices = {"text": ["x", "y", "z"], "label": names}
    path = lines(tmp_path / "x.jsonl", {"question": "q", "choices": choices, "answerKey": key})
    [pair] = read_records(path, CHOSEN)
    assert pair.label == [number]
