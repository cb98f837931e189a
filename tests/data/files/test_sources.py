import gzip
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unitk.data.files.columns import read_labels
from unitk.data.files.documents import Reading, read_documents, split_sentences
from unitk.data.files.files import ReadingOptions, Source, expand
from unitk.data.files.labels import find_answer
from unitk.data.files.lines import BLOCK, blocks, pieces, read_lines
from unitk.data.files.pairs import PairText, pair_blocks
from unitk.data.files.readers import Record, format_of
from unitk.data.files.squad import read_answers, read_questions, read_squad
from unitk.errors import DataError, UsageError

LINE = Reading(documents="line")
BLANK = Reading()
PUNCT = Reading(sentences="punct")
MARK = Reading(document_mark="<|end|>")


def write(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def sentences(path, reading):
    return list(read_documents(path, reading))


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
def test_documents_of_plain_text(tmp_path, name):
    path = write(tmp_path / name, "\ufeff\n one\r\ntwo \n \t\r\n\n\nthree\n\n")
    assert sentences(path, BLANK) == [["one", "two"], ["three"]]
    assert sentences(path, LINE) == [["one"], ["two"], ["three"]]


def test_other_separators_of_unicode_end_no_line(tmp_path):
    path = write(tmp_path / "x.txt", "a\u2028b\x0bc\x1cd\n")
    assert sentences(path, LINE) == [["a\u2028b\x0bc\x1cd"]]


def test_json_lines(tmp_path):
    lines = [{"text": "one\ntwo\n\nthree"}, {"text": ""}, {"text": "four. Five", "id": 3}]
    path = write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    reading = Reading(format="jsonl")
    assert sentences(path, reading) == [["one", "two", "three"], ["four. Five"]]
    reading = Reading(format="jsonl", sentences="punct")
    assert sentences(path, reading)[1] == ["four.", "Five"]
    assert sentences(write(path, '{"body": "a"}'), Reading(format="jsonl", field=("body",))) == [
        ["a"]
    ]


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": {"b": {"c": None}}}, "a.b.c", None),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
        ({"a.b": {"c": 1}, "a": {"b": {"c": 2}}}, "a.b.c", 1),
        ({"a": {"b.c": 1}}, "a.b.c", 1),
        ({"a": [{"b": 1}, {"b": 2}]}, "a.b", [1, 2]),
    ],
)
def test_a_dot_goes_into_an_object(record, field, value):
    assert Record(record, "").get(field) == value and field in Record(record, "")


@pytest.mark.parametrize("record", [{"a": 1}, {"a": {}}, {"a": []}, {"a": [{"b": 1}, {}]}, {}])
def test_what_is_not_in_an_object_is_not_found(record):
    assert Record(record, "").get("a.b") is None and "a.b" not in Record(record, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three! four", ["One.", "Two?", "Three! four"]),
        ('He: "No." She left. (It was.) End', ['He: "No."', "She left.", "(It was.)", "End"]),
        ("It costs 3. 5 or so. e.g. this", ["It costs 3. 5 or so. e.g. this"]),
        ("Mr. Smith met Dr. A. Jones. They left.", ["Mr. Smith met Dr. A. Jones.", "They left."]),
        ("Über. Ärger. Ёлка. Če. Ж", ["Über.", "Ärger.", "Ёлка.", "Če.", "Ж"]),
        ("他说：“好。”我走了！真的？是", ["他说：“好。”", "我走了！", "真的？", "是"]),
        ("One.\nTwo. Three\n\nfour", ["One.", "Two.", "Three", "four"]),
        (" . \n", ["."]),
        ("", []),
    ],
)
def test_sentences_end_at_stops_before_capitals(text, expected):
    assert split_sentences(text, "punct") == expected


@given(text=st.text(alphabet="aB.?!。 \n\"'”(", max_size=60))
def test_splitting_loses_nothing_but_blanks(text):
    for how in ("lines", "punct"):
        found = split_sentences(text, how)
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(one == one.strip() != "" and "\n" not in one for one in found)


@given(
    lines=st.lists(
        st.sampled_from(["", " ", "\u3000", "\xa0\r", "word", "two words", "x" * 30, "A. B\r"])
        | st.sampled_from(["<|end|>", "a<|end|>b", "<|end|>c", "d<|end|>\r", "<|end|>\u3000"]),
        max_size=30,
    ),
    size=st.integers(1, 60),
    end=st.sampled_from(["", "\n"]),
)
@settings(max_examples=150)
@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
def test_the_size_of_a_block_changes_nothing(tmp_path_factory, name, lines, size, end):
    path = write(tmp_path_factory.mktemp("x") / name, "\n".join(lines) + end)
    whole = [sentences(path, reading) for reading in (BLANK, LINE, PUNCT, MARK)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unitk.data.files.lines.BLOCK", size * 16)
        found = list(blocks(path, ""))
        assert [sentences(path, reading) for reading in (BLANK, LINE, PUNCT, MARK)] == whole
    assert b"".join(block.data for block in found).decode() == "\n".join(lines) + end
    texts = ("\n".join(lines) + end).split("<|end|>")
    each = [[line.strip() for line in text.split("\n") if line.strip()] for text in texts]
    assert whole[3] == [document for document in each if document]
    assert [block.at for block in found] == sorted(block.at for block in found)
    numbers = [1 + sum(b.data.count(b"\n") for b in found[:i]) for i in range(len(found))]
    assert [block.line for block in found] == numbers


def test_gzip_of_several_members_with_padding(tmp_path):
    data = gzip.compress(b"one\n") + gzip.compress(b"two\n") + bytes(8)
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    assert list(read_lines(path)) == ["one", "two"]
    for size in (16, 16 * 24, 16 * 25):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unitk.data.files.lines.BLOCK", size)
            assert list(read_lines(path)) == ["one", "two"]


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
            list(pieces(tmp_path / "x.gz"))
    with pytest.raises(zlib.error):
        zlib.decompress(b"plain text", 31)


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.json", "x.txt.gz"])
def test_what_is_not_utf8_is_named_with_its_line(tmp_path, name):
    path = write(tmp_path / name, b'{"text":\n "good"}\nb\xe4d\n')
    with pytest.raises(DataError, match=f"{name}, line 3: not UTF-8"):
        list(read_squad(path) if name == "x.json" else read_documents(path, BLANK))


def test_the_line_is_right_beyond_the_first_block(tmp_path):
    path = write(tmp_path / "x.txt", b"some words\n" * 300_000 + b"\xff\n")
    with pytest.raises(DataError, match="line 300001: not UTF-8"):
        list(read_documents(path, LINE))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"x.jsonl, line 2: not JSON \("),
        (
            '{"body": "a", "id": 1}',
            "line 2: no field 'text', see --field, or .*; there are body, id",
        ),
        ("[1]", "line 2: not a JSON object"),
        ('{"text": null}', "line 2: field 'text' must be a text"),
        ('{"text": "a \\ud800 b"}', r"line 2: .*a .ud800' ends in half a surrogate pair"),
    ],
)
def test_bad_json_lines(tmp_path, line, message):
    path = write(tmp_path / "x.jsonl", '{"text": "\\ud83d\\ude00"}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        sentences(path, Reading(format="jsonl"))


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
    with pytest.raises(DataError, match="t, line 2: empty.*files"):
        list(pair_blocks(tmp_path / "s", tmp_path / "t"))


QUESTION = {"question": " Who? ", "answers": [{"text": "Ann"}, {"text": "Bob"}]}


def squad(**paragraph):
    entry = {"context": "Ann met Bob.", "qas": [QUESTION], **paragraph}
    return {"data": [{"title": "x", "paragraphs": [entry]}]}


def test_squad_asks_for_the_first_answer(tmp_path):
    impossible = {"question": "Why?", "answers": [], "is_impossible": True}
    tree = squad(qas=[QUESTION, impossible, {**QUESTION, "question": "What?"}])
    path = write(tmp_path / "x.json.gz", json.dumps(tree))
    assert list(read_squad(path)) == [
        PairText(["Ann", "Ann met Bob."], "Who?", focus=(0, 3)),
        PairText(["Ann", "Ann met Bob."], "What?", focus=(0, 3)),
    ]


@pytest.mark.parametrize(
    ("start", "focus"),
    [(11, (9, 12)), (2, (0, 3)), (None, (0, 3)), (3, (0, 3)), (-5, (0, 3))],
)
def test_an_answer_stands_where_it_is_said_to_or_near_it(tmp_path, start, focus):
    question = {"question": "Who?", "answers": [{"text": "Ann", "answer_start": start}]}
    tree = squad(context="  Ann, not Annie", qas=[question])
    (found,) = read_squad(write(tmp_path / "x.json", json.dumps(tree)))
    assert found.focus == focus and found.source[1][slice(*focus)] == "Ann"


MOVES = "😀 Köln war alt. Ann zog nach Köln 😀, dann weg von Köln."


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "count",
    [
        len,
        lambda text: len(text.encode("utf-16-le")) // 2,  # as JavaScript counts
        lambda text: len(text.encode()),
        lambda text: len(text) + 3,
        lambda text: len(text) - 2,
        lambda text: len(text) + 1,
    ],
)
def test_a_start_in_other_units_or_off_by_few_means_the_same_answer(tmp_path, number, count):
    start = [at for at in range(len(MOVES)) if MOVES.startswith("Köln", at)][number]
    said = count(MOVES[:start])
    question = {"question": "Wo?", "answers": [{"text": "Köln", "answer_start": said}]}
    path = write(tmp_path / "x.json", json.dumps(squad(context=MOVES, qas=[question])))
    (found,), (span,) = read_squad(path), read_squad(path, spans=True)
    assert found.focus == (*span.label,) == (start, start + 4)
    assert found.moved == span.moved == (said != start)


@pytest.mark.parametrize("said", [15, 15.0, "15"])
def test_a_start_is_a_number_however_it_is_written(said):
    assert find_answer("Ann", "Ann was not an Ann", said) == ((15, 18), False)
    assert find_answer("Ann", "Ann was not an Ann", -3) == ((0, 3), False)


@pytest.mark.parametrize("answer", ["New  York", "new york", "New\u00a0York", "NEW\nYORK"])
def test_blanks_and_case_of_an_answer_may_differ(answer):
    passage = " In York, New \n York and New York."
    assert find_answer(answer, passage, 25) == ((24, 32), False)
    assert find_answer(answer, passage, 23) == ((24, 32), True)
    assert find_answer(answer, passage, None) == ((9, 19), False)
    assert find_answer("New York", passage, 0) == ((24, 32), True), "the same spelling comes first"


def test_occurrences_may_overlap():
    assert find_answer("aa", "baaab", 2) == ((2, 4), False)
    assert find_answer("aa", "baaab", 3) == ((2, 4), True)


def test_a_blank_before_an_answer_is_counted(tmp_path):
    question = {"question": "Who?", "answers": [{"text": " Ann ", "answer_start": 14}]}
    tree = squad(context="Ann was not an Ann .", qas=[question])
    (found,) = read_squad(write(tmp_path / "x.json", json.dumps(tree)))
    assert found.focus == (15, 18) and not found.moved


def test_questions_need_no_answers(tmp_path):
    asked = [{"question": " a "}, {"question": "b", "answers": []}, QUESTION]
    asked.append({"question": "c", "answers": [{"text": "nowhere"}]})
    path = write(tmp_path / "x.json", json.dumps(squad(qas=asked)))
    found = [[question, "Ann met Bob."] for question in ("a", "b", "Who?", "c")]
    assert [parts for _, parts in read_questions(path)] == found


def test_right_answers_need_no_place(tmp_path):
    asked = [QUESTION, {"question": "a", "answers": [{"text": " nowhere "}]}]
    asked.append({"question": "b", "is_impossible": True})
    path = write(tmp_path / "x.json", json.dumps(squad(qas=asked)))
    assert [right for _, right in read_answers(path)] == [["Ann", "Bob"], ["nowhere"], []]
    found = read_labels(path, "span", "answer", "--label-field")
    assert [one.label for one in found] == [["Ann", "Bob"], ["nowhere"], []]


def test_an_answer_may_stand_nowhere(tmp_path):
    question = {"question": "Who?", "answers": [{"text": "Carl"}]}
    (found,) = read_squad(write(tmp_path / "x.json", json.dumps(squad(qas=[question]))))
    assert found.focus is None


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "x.json has no list 'data', so this is not a SQuAD json"),
        ({"data": [{"title": "x"}]}, r"x.json: data\[0\] has no list 'paragraphs'"),
        (squad(context=3), r"data\[0\].paragraphs\[0\] has no text 'context'"),
        (squad(qas=[{"answers": []}]), r"qas\[0\] has no text 'question'"),
        (squad(qas=[{"question": "a"}]), r"qas\[0\] has no answer, and is not"),
        (squad(qas=[{"question": "a", "answers": 3}]), r"qas\[0\] has no list 'answers'"),
        (squad(qas=[{"question": "a", "answers": []}]), r"qas\[0\] has no answer, and is not"),
        (squad(qas=[{"question": "a", "answers": ["b"]}]), r"answers\[0\] has no text 'text'"),
    ],
)
def test_what_is_no_squad(tmp_path, tree, message):
    with pytest.raises(DataError, match=message):
        list(read_squad(write(tmp_path / "x.json", json.dumps(tree))))
    with pytest.raises(DataError, match="x.json: not JSON"):
        list(read_squad(write(tmp_path / "x.json", "{")))


def test_wildcards_are_expanded_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b1.txt", "b0.txt", "a.txt", "x[1].txt"):
        write(tmp_path / name, "x")
    (tmp_path / "b2.txt").mkdir()
    assert [str(path) for path in expand(["b*.txt", "a.txt"], "--input")] == [
        "b0.txt",
        "b1.txt",
        "a.txt",
    ]
    assert [str(path) for path in expand(["x[1].txt"], "--input")] == ["x[1].txt"]
    for pattern, message in [
        ("c*.txt", "--valid c\\*.txt: no file has such a name"),
        ("c.txt", "--valid c.txt: no such file"),
        ("b2.txt", "--valid b2.txt: the folder has no file that ends in .*.jsonl, .*.txt"),
        ("https://example.com/a.txt", "--valid https://example.com/a.txt is an address; download"),
        ("hf://datasets/a", "hf://datasets/a is an address"),
    ]:
        with pytest.raises(DataError, match=message):
            expand([pattern], "--valid")
    with pytest.raises(UsageError, match="--valid names a.txt twice"):
        expand(["a.txt", "*.txt"], "--valid")
    write(tmp_path / "b2.txt" / "a.train", "x")
    with pytest.raises(DataError, match="'b2.txt/\\*' .*ending"):
        expand(["b2.txt"], "--input")
    assert expand(["b2.txt/*"], "--input") == [Path("b2.txt/a.train")]
    write(tmp_path / "b2.txt" / "x.csv.gz", "x"), write(tmp_path / "b2.txt" / "notes.md", "x")
    assert expand(["b2.txt"], "--input") == [Path("b2.txt/x.csv.gz")]


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
        write(tmp_path / name, '{"text": "a"}')
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
    with pytest.raises(UsageError, match="--input: .*a.txt .*text.*a.b.json is squad"):
        write(tmp_path / "a.b.json", '{"data": []}')
        ReadingOptions().source([tmp_path / n for n in ("a.txt", "a.b.json")], "--input")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\tb\nc\td\ne\tf\n", "x.md looks like a table; give --input-format csv or tsv, or"),
        (b"a;1\nb;2\nc;3\nd", "x.md looks like a table"),
        (b"a\0b\0", "x.md looks like binary data"),
    ],
)
def test_an_unknown_ending_is_text_unless_it_looks_otherwise(tmp_path, data, message):
    path = write(tmp_path / "x.md", b"# Title\n\nSome text, and more.\nThe end.\n")
    assert format_of(path, "auto", "--input") == "text"
    with pytest.raises((UsageError, DataError), match=message):
        format_of(write(path, data), "auto", "--input")
    assert format_of(path) == "text"  # unitk generate takes it


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("h\u00e4".encode("utf-16"), "x.txt is UTF-16, not UTF-8 text; `iconv -f UTF-16"),
        (b"PAR1 and so on", "x.txt is parquet, not UTF-8 text"),
        (gzip.compress(b"a", mtime=0), "x.txt is gzip, not UTF-8 text"),
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
    with pytest.raises(DataError, match="none.txt: No such.*directory"):
        list(pieces(tmp_path / "none.txt"))


def test_lines_for_a_vocabulary_are_all_sides(tmp_path):
    source, target = write(tmp_path / "s", "a\nb\n"), write(tmp_path / "t", "c\nd\n")
    assert list(Source([source], [target], None).lines()) == ["a", "c", "b", "d"]
    path = write(tmp_path / "x.json", json.dumps(squad()))
    assert list(Source([path], [], None).lines()) == ["Ann", "Ann met Bob.", "Who?"]
    assert list(Source([source], [], BLANK).lines()) == ["a", "b"]


def test_names_of_fields_in_an_error_are_short():
    def named(names):
        return Record(dict.fromkeys(names, ""), "").names()

    assert named(["id", "body"]) == "id, body"
    assert named(["x" * 31, "y" * 30]) == f"{'x' * 30}..., {'y' * 30}"
    assert named("abcdefghijklmnop") == "a, b, c, d, e, f, g, h, i, j, k, l, ..."
    nested = {"id": 1, "pair": {"de": "ja", "en": {"text": "yes"}}, "turns": [{"says": "a"}, {}]}
    assert Record(nested, "").names() == "id, pair.de, pair.en.text, turns.says"
