"""Sentences and windows around answers: by hand, and what must hold for every one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unitk.data.files.pairs import PairText
from unitk.data.files.squad import SQUAD_SOURCE, arrange
from unitk.data.files.window import cut_window, sentences_of
from unitk.decoding.texts.sources import around_answer
from unitk.errors import DataError

SENTENCE_SOURCE = "{answer} [SEP] {sentence}"


class Words:
    """A vocabulary of words, or of characters."""

    def __init__(self, split=str.split):
        self.encode = split


def pair(answer, passage, first=None):
    first = passage.index(answer) if first is None else first
    return PairText([answer, passage], "?", focus=(first, first + len(answer)))


def cut(one, limit, vocab=None):
    return cut_window(one, limit, vocab or Words()).source[1]


def test_it_grows_on_both_sides_alike():
    one = pair("e", "a b c d e f g h")
    windows = {limit: cut(one, limit) for limit in range(2, 10)}
    assert windows == {
        2: "e",  # a word for the answer itself, one for its place
        3: "e f",
        4: "d e f",
        5: "d e f g",
        6: "c d e f g",
        7: "c d e f g h",
        8: "b c d e f g h",
        9: "a b c d e f g h",
    }


def test_at_a_border_the_other_side_gets_the_rest():
    assert cut(pair("a", "a b c d e f"), 4) == "a b c"
    assert cut(pair("f", "a b c d e f"), 4) == "d e f"
    assert cut(pair("b", "a b c d e f"), 5) == "a b c d"


def test_what_fits_is_whole():
    one = pair("a", " a  b ", first=1)
    assert cut_window(one, 3, Words()) is one


def test_of_several_occurrences_the_one_that_is_meant_is_kept():
    passage = "who won ? Ann lost and Ann won , they say"
    assert cut(pair("Ann", passage, passage.rindex("Ann")), 6) == "lost and Ann won ,"


def test_a_part_of_a_word_keeps_the_word():
    one = pair("Rome", "it was in ancient-Rome, they say")
    found = cut_window(one, 3, Words())
    assert found.source[1] == "ancient-Rome, they"
    first, stop = found.focus
    assert found.source[1][first:stop] == "Rome"


def test_an_answer_that_is_too_long_stays_whole():
    assert cut(pair("b c d", "a b c d e"), 3) == "b c d"


def test_scripts_without_blanks_are_cut_between_characters():
    one = pair("巴黎", "法国的首都是巴黎，人口很多。")
    assert cut(one, 7, Words(list)) == "是巴黎，人"
    assert len(cut(one, 9, Words(list))) == 7


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        ("กรุงเทพมหานครเป็นเมืองหลวง" * 9, "พระพุทธยอดฟ้า", "ประชากรส่วนใหญ่" * 9),
        ("ភ្នំពេញជារាជធានី" * 9, "ពញាយ៉ាត", "ប្រជាជនភាគច្រើន" * 9),
        ("ရန်ကုန်မြို့သည်" * 9, "အလောင်းဘုရား", "လူအများစု" * 9),
        ("ལྷ་ས་ནི་བོད་ཀྱི་" * 9, "སྲོང་བཙན་", "མི་མང་པོ་" * 9),
        ("thecatsat" * 9, "Rome", "onthemat" * 9),  # no blank where the script has some
    ],
)
def test_a_window_holds_its_limit_in_every_script(before, answer, after):
    one = pair(answer, before + answer + after)
    limit = 2 * len(answer) + 40  # the answer is a part of the source, too
    found = cut_window(one, limit, Words(list))
    assert limit - 10 < sum(map(len, found.source)) <= limit
    first, stop = found.focus
    assert found.source[1][first:stop] == answer


def test_an_answer_that_is_nowhere_is_an_error():
    one = PairText(["Bob", "Ann won the race"], "?")
    assert cut_window(one, 5, Words()) is one
    with pytest.raises(DataError, match="answer 'Bob' .*passage"):
        cut_window(one, 4, Words())


@pytest.mark.every(2)
@given(
    words=st.lists(st.sampled_from("a bb ccc 国 国国 d(e) ,".split()), min_size=1, max_size=40),
    ends=st.tuples(st.integers(0, 39), st.integers(0, 39)),
    limit=st.integers(1, 60),
)
@settings(max_examples=300)
@pytest.mark.parametrize("vocab", [Words(), Words(list)])
@pytest.mark.parametrize(
    "form",
    [SQUAD_SOURCE, "{passage} [SEP] {answer}", "a {passage} b {answer}", SENTENCE_SOURCE],
)
def test_the_answer_is_always_inside(vocab, form, words, ends, limit):
    passage = " ".join(words)
    low, high = sorted(end % len(words) for end in ends)
    answer = " ".join(words[low : high + 1])
    first = len(" ".join([*words[:low], ""]))
    one = pair(answer, passage, first)
    found = cut_window(one, limit, vocab, form)
    (same, kept), (start, stop) = found.source, found.focus
    assert same == answer and kept[start:stop] == answer and kept in passage

    def tokens(source):
        return sum(len(vocab.encode(part)) for part in arrange(source, form))

    assert tokens(found.source) <= limit or kept == answer
    if kept != passage:  # nothing more would have fitted on both sides
        assert tokens([answer, passage]) > limit


PASSAGE = "Dr. Ito won. Was he\nglad? He said: 'Yes.' Then the U.S. Army came."
SENTENCES = [
    *("Dr. Ito won.", "Was he", "glad?", "He said: 'Yes.'", "Then the U.S. Army came."),
    PASSAGE[:19],
    PASSAGE[13:],
]
"""Each one, and two that an answer may be in."""


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        *(("Ito", 0), ("won.", 0), ("Was", 1), ("he", 1), ("glad?", 2), ("Yes.'", 3)),
        *(("U.S. Army", 4), ("came.", 4), ("won. Was", 5), ("he\nglad? He said: 'Yes.' Then", 6)),
    ],
)
def test_the_sentences_of_an_answer(answer, number):
    found = sentences_of(pair(answer, PASSAGE), SENTENCE_SOURCE)
    first, stop = found.focus
    assert found.source == [answer, SENTENCES[number]]
    assert found.source[1][first:stop] == answer


def test_a_sentence_is_kept_only_where_the_form_asks_for_it():
    one = pair("won", PASSAGE)
    assert sentences_of(one, SQUAD_SOURCE) is one
    assert cut_window(one, None, Words()) is one
    assert cut_window(one, None, Words(), SENTENCE_SOURCE) == sentences_of(one, SENTENCE_SOURCE)


def test_a_sentence_that_is_too_long_has_a_window():
    one = pair("c", "x y z. A b c d e. X y z.")
    found = [cut_window(one, limit, Words(), SENTENCE_SOURCE).source[1] for limit in (6, 5, 2)]
    assert found == ["A b c d e.", "b c d e.", "c"]


@pytest.mark.parametrize("form", [SENTENCE_SOURCE, "{sentence} [SEP] {answer}"])
def test_a_passage_in_place_of_a_sentence(form):
    one = pair("won", PASSAGE)
    wanted = arrange(["won", "Dr. Ito won."], form)
    for made in (arrange(one.source, form), wanted):
        assert around_answer(made, None, Words(), form) == wanted
    assert around_answer(["Bob", PASSAGE], None, Words(), SENTENCE_SOURCE) == ["Bob", PASSAGE]


def test_an_answer_that_is_nowhere_has_no_sentence():
    with pytest.raises(DataError, match="answer 'Bob' .*passage"):
        sentences_of(PairText(["Bob", PASSAGE], "?"), SENTENCE_SOURCE)


@pytest.mark.parametrize("form", [SQUAD_SOURCE, "{passage} [SEP] {answer}"])
def test_a_source_that_has_its_form_already(form):
    passage = "e a b c d e f g h"
    for first in (0, 10):
        one = pair("e", passage, first)
        wanted = arrange(cut_window(one, 5, Words(), form).source, form)
        made = arrange(one.source, form)
        assert around_answer(made, 5, Words(), form, one.focus) == wanted != made
        assert around_answer(made, 10, Words(), form, one.focus) == made
    assert around_answer(made, 5, Words(), form) == arrange(["e", "e a b c"], form)


def test_a_focus_counts_more_than_the_spelling():
    passage = "a b c New  York d e f"
    found = around_answer(["new york", passage], 6, Words(), SQUAD_SOURCE, focus=(6, 15))
    assert found == ["new york", "c New  York d"]
    assert around_answer(["new york", passage], 6, Words(), SQUAD_SOURCE) == ["new york", passage]


@pytest.mark.parametrize(
    ("parts", "form"),
    [
        (["x", "a b c d e"], SQUAD_SOURCE),  # no such answer
        (["", "a b c d e"], SQUAD_SOURCE),
        (["a b c d e"], SQUAD_SOURCE),
        (["a", "a b c", "d e"], SQUAD_SOURCE),
        (["a", "a b c d e"], "{passage} answer: {answer}"),  # one text
        (["a", "a b c d e"], "{passage} [SEP] {answer} ?"),
    ],
)
def test_a_source_without_a_window(parts, form):
    assert around_answer(parts, 2, Words(), form) == parts
