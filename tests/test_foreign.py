"""What others wrote in json is read, or refused in a line that names the place."""

import json

import pytest

from unitk.decoding.files.inputs import read_inputs
from unitk.errors import CheckpointError, DataError
from unitk.foreign import parse_json

SMILE = "a\U0001f600b"


def test_a_character_beyond_the_first_plane_is_one_however_it_is_written():
    for escaped in (True, False):
        text = json.dumps({SMILE: [SMILE]}, ensure_ascii=escaped)
        assert ("\\ud83d" in text) == escaped
        assert parse_json(text, "x") == parse_json(text.encode(), "x") == {SMILE: [SMILE]}
    # a backslash and five letters are a text
    assert parse_json(r'"\\ud800"', "x") == r"\ud800"


@pytest.mark.parametrize("half", ["\ud800", "\udc00", "\ude00\ud83d"])
def test_half_a_character_is_refused_wherever_it_is(half):
    for value in (half, [1, f"it is {half} here"], {half: 1}, {"a": {"b": [half]}}):
        with pytest.raises(CheckpointError, match=r"^x: '.*.ud[8c].*' ends.*pair"):
            parse_json(json.dumps(value), "x", CheckpointError)
    # as bytes that are no UTF-8, which Python's json would read
    with pytest.raises(DataError, match="^x: not JSON .not UTF-8 either, byte 0xed"):
        parse_json(json.dumps(half, ensure_ascii=False).encode("utf-8", "surrogatepass"), "x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, x]", "character 5: 'x]'"),
        ("[1,\n x]", "line 2, character 2: 'x]'"),
        ("[1, ", "it ends too early"),
        (" ", "it is empty"),
        ("1" * 5000, "a number has too many digits"),
        ("{'a': 1}", "character 2: \"'a': 1}\"; json has double quotes"),
    ],
)
def test_a_mistake_is_told_in_own_words(text, told):
    with pytest.raises(DataError) as caught:
        parse_json(text, "x")
    assert str(caught.value) == f"x: not JSON ({told})"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"c": 0, "a": 1, "\\u0061": 2}}]'])
def test_a_key_is_there_once(text, tmp_path):
    with pytest.raises(CheckpointError, match="^x: .*'a' twice$"):
        parse_json(text, "x", CheckpointError)
    # a key of one object may be that of another
    assert parse_json('{"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]}', "x")["a"] == {"a": 1}
    record = f'{{"source": "s"}}\n{{"source": "s", "more": {text}}}\n'
    (tmp_path / "x.jsonl").write_text(record)
    (tmp_path / "x.json").write_text(f"[{record.replace(chr(10), ',', 1)}]")
    for name, place in (("x.jsonl", "line 2"), ("x.json", "")):
        with pytest.raises(DataError, match=f"{name}.*{place}: .*'a' twice"):
            read_inputs(tmp_path / name)
