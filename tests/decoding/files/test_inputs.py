"""Inputs of files know where they are."""

import pytest

from unitk.decoding.files.inputs import read_inputs


@pytest.mark.parametrize(
    ("name", "data", "places"),
    [
        ("x.txt", "a\n\nb\n", ["line 1", "line 2", "line 3"]),
        ("x.jsonl", '{"source": "a"}\n\n{"source": "b"}\n', ["line 1", "line 2", "line 3"]),
        ("x.csv", 'source\na\n"b\nc"\nd\n', ["line 2", "line 3", "line 5"]),
        ("x.json", '[{"source": "a"}, {"source": "b"}]', ["[0]", "[1]"]),
    ],
)
def test_inputs_name_their_places(tmp_path, name, data, places):
    path = tmp_path / name
    path.write_text(data)
    found = [one.where for one in read_inputs(path)]
    assert all(place.startswith(str(path)) for place in found)
    assert [place[len(str(path)) :].strip(",: ") for place in found] == places
