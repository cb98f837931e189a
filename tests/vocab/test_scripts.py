"""Borders of words and sentences in scripts that are written as people write them."""

import pytest

from unitk.vocab.scripts import CHARACTER, STOP, UNIT


def sentences(text):
    return [one for one in STOP.sub(lambda end: end[0].rstrip() + "\n", text).split("\n") if one]


@pytest.mark.parametrize(
    "each",
    [
        ["تقع القاهرة على النيل.", "هي عاصمة مصر.", "هل تعرف الأهرامات؟", "نعم."],
        ["یہ گھر ہے۔", "وہ آیا۔"],
        ["वह आया।", "फिर वह गया॥", "अच्छा।"],
        ["ကောင်းသည်။", "မြန်မာ။"],
        ["ភាសា។", "ប្រទេស។"],
        ["ሰላም።", "እንዴት ነህ?", "ደህና።"],
        ["Բարեւ։", "Ինչպես ես։"],
        ["בוקר טוב.", "מה שלומך?", "טוב."],
        ["აქ არის.", "ის მოვიდა!", "ეს"],
        ["그는 갔다.", "나는 왔다."],
        ["བོད་སྐད།", "འདི་ནི།"],
        ["Он пришёл.", "«Да!»", "Ёлка"],
        ["Er kam.", "„Gut.“", "Dann ging er."],
        ["He paused…", "Then he left…", "“Why…”", "Nobody knows."],
        ["Τι κάνεις;", "Καλά.", "Και εσύ;", "Ναι."],
        ["ሰላም፡ነው፡፡", "እንዴት ነህ፡፡"],
        ["It is one of a type.", "He met Dr. Ada B. Cole of Fig. A then.", "No.", "So it goes."],
    ],
)
def test_sentences_end_in_every_script(each):
    found = [one.strip() for one in sentences(" ".join(each))]
    assert found == each


@pytest.mark.parametrize(
    "text",
    [
        "قال د. أحمد",  # Dr. Ahmed
        "А. С. Пушкин",
        "ए. पी. जे. अब्दुल कलाम",
        "3. 5 or e.g. this",
        "３．５です",
        "真的？！",
        "क्या।।",
        "what! he cried",
        "Roe v. Wade, Cats vs. Dogs",
        "with e.g. BERT, i. e. Google's (cf. Devlin)",
        "Prof. Dr.  Müller bzw. Gen. Blume, z. B. Das",
        "Mme. Curie et Mlle. Durand",
        "one; Two",
    ],
)
def test_initials_numbers_and_runs_of_stops_are_one_sentence(text):
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("don't, well-known", ["don't,", "well-known"]),
        ("今天 is 好", ["今", "天", "is", "好"]),
        ("タワー々", ["タ", "ワ", "ー", "々"]),
        ("ที่นี่ ไทย", ["ที่", "นี่", "ไ", "ท", "ย"]),  # a vowel above stays with its letter
        ("བོད་སྐད།", ["བོད་", "སྐད།"]),
        ("ሰላም፡ነው", ["ሰላም፡", "ነው"]),
        ("그는 갔다", ["그는", "갔다"]),
    ],
)
def test_units_are_words_syllables_or_characters(text, units):
    assert UNIT.findall(text) == units


def test_a_character_has_its_accents():
    assert CHARACTER.findall("e\u0301 👩‍🚀") == ["e\u0301", "👩‍🚀"]
