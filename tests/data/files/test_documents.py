"""Documents of sentences, from plain text and records."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import write

from unitk.comparison.texts import read_documents
from unitk.data.files.documents import Separators, split_sentences
from unitk.data.files.lines import blocks
from unitk.data.files.squad import read_squad
from unitk.errors import DataError

LINE = Separators(documents="line")
BLANK = Separators()
PUNCT = Separators(sentences="punct")
MARK = Separators(document_mark="<|end|>")


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
    reading = Separators(format="jsonl")
    assert sentences(path, reading) == [["one", "two", "three"], ["four. Five"]]
    reading = Separators(format="jsonl", sentences="punct")
    assert sentences(path, reading)[1] == ["four.", "Five"]
    assert sentences(write(path, '{"body": "a"}'), Separators(format="jsonl", field=("body",))) == [
        ["a"]
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three! four", ["One.", "Two?", "Three! four"]),
        ('He: "No." She left. (It was.) End', ['He: "No."', "She left.", "(It was.)", "End"]),
        ("It costs 3. 5 or so. e.g. this", ["It costs 3. 5 or so. e.g. this"]),
        ("Mr. Smith met Dr. A. Jones. They left.", ["Mr. Smith met Dr. A. Jones.", "They left."]),
        ("Über. Ärger. Ёлка. Če. Ж", ["Über.", "Ärger.", "Ёлка.", "Če.", "Ж"]),
        ("他说：“好。”我走了！真的？是", ["他说：“好。”", "我走了！", "真的？", "是"]),
        ("Il part. « Oui. » Elle rit.", ["Il part.", "« Oui. »", "Elle rit."]),
        ("« Oui. » dit-il. Puis rien.", ["« Oui. » dit-il.", "Puis rien."]),
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
def test_bad_json_lines_are_refused(tmp_path, line, message):
    path = write(tmp_path / "x.jsonl", '{"text": "\\ud83d\\ude00"}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        sentences(path, Separators(format="jsonl"))
