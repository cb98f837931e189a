"""Tables that a json has column by column, and records that look alike."""

import gzip
import json

import pytest

from unitk.data.files.readers import records
from unitk.errors import DataError

ROWS = [{"text": "a b", "y": 1}, {"text": "c", "y": 2}]
LISTS = {"text": ["a b", "c"], "y": [1, 2]}
NAMED = {"text": {"0": "a b", "1": "c"}, "y": {"0": 1, "1": 2}}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.txt"])
@pytest.mark.parametrize("tree", [LISTS, NAMED, ROWS])
def test_a_json_of_columns_is_a_table(tmp_path, tree, name, indent):
    """`DataFrame.to_json` writes columns by default, `to_dict("list")` makes lists."""
    path, text = tmp_path / name, json.dumps(tree, indent=indent)
    with gzip.open(path, "wt") if name.endswith("gz") else path.open("w") as file:
        file.write(text)
    if name != "x.txt" or indent is None:
        assert [record.values for record in records(path)] == ROWS


def test_a_long_json_of_columns_is_a_table(tmp_path):
    """Longer than what is looked at to tell the formats apart."""
    many = {name: column * 100_000 for name, column in LISTS.items()}
    (tmp_path / "x.json").write_text(json.dumps(many))
    assert sum(1 for _ in records(tmp_path / "x.json")) == 200_000


def test_records_that_have_lists_are_no_columns(tmp_path):
    for text in (
        json.dumps({"text": ["a", "b"], "y": "c"}),
        json.dumps({"text": ["a"], "y": ["c"]}),
        json.dumps(LISTS) + "\n" + json.dumps(LISTS),
    ):
        (tmp_path / "x.json").write_text(text + "\n")
        found = [record.values for record in records(tmp_path / "x.json")]
        assert found == [*map(json.loads, text.split("\n"))]
    (tmp_path / "x.jsonl").write_text(json.dumps(LISTS))
    assert [record.values for record in records(tmp_path / "x.jsonl")] == [LISTS]
    for tree in (LISTS | {"z": [1]}, NAMED | {"z": {"0": 1}}, LISTS | {"z": 1}):
        (tmp_path / "x.json").write_text(json.dumps(tree, indent=1))
        with pytest.raises(DataError, match=r"^\S*x\.json: .*columns"):
            list(records(tmp_path / "x.json"))
