"""Columns of words as people's files have them: comments, numbers, blanks inside words."""

import gzip

import pytest

from unitk.data.files.labels import label_of, split_words
from unitk.data.files.readers import records
from unitk.errors import DataError

UNIVERSAL = """# newpar
# sent_id = 1
# text = Vamonos a 10\u00a0000
0.1\te\te\tX\t_\t_\t_\t_\t_\t_
1-2\tVamonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnos\tPRON\t_\t_\t1\tobj\t_\t_
2.1\te\te\tX\t_\t_\t_\t_\t_\t_
3\t10 000\t_\tNUM\t_\t_\t1\tx\t_\tSpaceAfter=No

# newdoc
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_
2\t# x\t#\tNOUN\t_\t_\t1\tx\t_\t_

"""


def read(path, text, end="\n"):
    data = text.replace("\n", end).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    found = [*records(path)]
    return [[*zip(one.texts("words"), one.texts("tags"), strict=True)] for one in found], found


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["x.conllu", "x.conll", "x.conllu.gz"])
def test_words_of_universal_dependencies(tmp_path, name, end):
    found, (record, _) = read(tmp_path / name, UNIVERSAL, end)
    assert found[0] == [("Vamos", "VERB"), ("nos", "PRON"), ("10 000", "NUM")]
    assert found[1] == [("#", "SYM"), ("# x", "NOUN")]
    assert record.get("head") == record.get("6") == ["0", "1", "1"]
    assert record.place == f"{tmp_path / name}, line 4"


@pytest.mark.parametrize("mark", ["\t", " ", "  ", "\t\t"])
def test_only_the_separators_of_the_format_end_a_column(tmp_path, mark):
    words = ["10\u00a0000", "\u3000", "a\u2009b", "\u200b", "\u2028", "\x85"]
    lines = "".join(f"{word}{mark}O\n" for word in words)
    [found], _ = read(tmp_path / "x.conll", lines)
    assert found == [(word, "O") for word in words]


def test_tabs_alone_end_columns_where_there_are_some(tmp_path):
    [found], _ = read(tmp_path / "x.bio", "New York\tB-LOC\nis\tO\n")
    assert found == [("New York", "B-LOC"), ("is", "O")]


@pytest.mark.parametrize("comment", ["# id 7f2\tdomain=en", "# text = a b c d e", "#", "# a = b"])
def test_comments_come_before_the_first_word(tmp_path, comment):
    text = (
        f"{comment}\n# _ _ O\nRob _ _ B-PER\n# _ _ O\n\n{comment}\n\n-DOCSTART- -X- O O\n\nx y z O"
    )
    found, _ = read(tmp_path / "x.conll", text)
    assert found == [[("#", "O"), ("Rob", "B-PER"), ("#", "O")], [("x", "O")]]
    with pytest.raises(DataError, match="x.conll, line 2: 4 columns, but 2 before"):
        read(tmp_path / "x.conll", "a O\n# b c O\n")


@pytest.mark.parametrize(
    "words", [["1", "2-1"], ["1"], ["1-2"], ["2", "3"], ["1", "2-3", "x"], ["1", "2."]]
)
def test_numbers_in_a_text_are_words(tmp_path, words):
    [found], _ = read(tmp_path / "x.conll", "".join(f"{word} O\n" for word in words))
    assert [word for word, _ in found] == words


def test_words_of_a_text_end_at_blanks_only():
    text = " 10\u00a0000\u3000x \t y\r\nz "
    assert split_words(text) == ["10\u00a0000\u3000x", "y", "z"]
    assert label_of("A\u00a0B C", "tags", "") == ["A\u00a0B", "C"]
