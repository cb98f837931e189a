"""Arrow and parquet files of `datasets`: their records, class names, folders and mistakes."""

import json

import pytest

from unitk.data.files.files import expand, saved_files
from unitk.data.files.readers import records
from unitk.errors import DataError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
    "tags": {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "Sequence"},
}
ROWS = [
    {"text": "a good film", "label": 1, "tags": [0, 1, 0]},
    {"text": "a bad one", "label": 0, "tags": [0, 0, 1]},
    {"text": "who knows", "label": -1, "tags": [0, 0]},
]
READ = [
    {"text": "a good film", "label": "pos", "tags": ["O", "B-X", "O"]},
    {"text": "a bad one", "label": "neg", "tags": ["O", "O", "B-X"]},
    {"text": "who knows", "label": None, "tags": ["O", "O"]},
]


def write(path, rows=ROWS, kind="stream", features=FEATURES):
    """A file as `datasets` writes it, with the features in the metadata of the schema."""
    told = json.dumps({"info": {"features": features}})
    table = pyarrow.Table.from_pylist(rows).replace_schema_metadata({"huggingface": told})
    if kind == "parquet":
        return parquet.write_table(table, path)
    made = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
    with made(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("kind", ["stream", "file", "parquet"])
def test_classes_are_read_by_name(tmp_path, kind):
    path = tmp_path / f"x.{'parquet' if kind == 'parquet' else 'arrow'}"
    write(path, kind=kind)
    found = list(records(path, ("text", "label", "tags")))
    assert [record.values for record in found] == READ
    assert [record.place for record in found] == [f"{path}, row {i}" for i in (1, 2, 3)]
    at = [record.at for record in found]
    assert at == sorted(at) and at[0] == 0
    some = [record.values for record in records(path, ("label",))]
    assert some == [{"label": row["label"]} for row in READ], "other columns are not read"
    assert [record.values for record in records(path)] == READ


@pytest.mark.parametrize("kind", ["stream", "file", "parquet"])
def test_fields_and_classes_are_read_from_structs(tmp_path, kind):
    path = tmp_path / f"x.{'parquet' if kind == 'parquet' else 'arrow'}"
    inner = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    rows = [
        {
            "pair": {"de": {"text": "ja"}, "en": "yes"},
            "about.label": 3,
            "about": {"label": 1, "each": [0, 1]},
            "turns": [{"says": "a"}, {"says": "b"}],
        }
    ]
    features = {"about": {"label": inner, "each": {"feature": inner, "_type": "Sequence"}}}
    write(path, rows, kind, features)
    names = ("pair.de.text", "about.each", "turns.says")
    [record] = records(path, names)
    assert [record.get(name) for name in names] == ["ja", ["neg", "pos"], ["a", "b"]]
    assert "about.label" not in record.values, "other columns are not read"
    [record] = records(path, ("about.label",))
    assert record.get("about.label") == 3, "a field of that very name comes first"


def test_a_saved_folder_has_its_files_in_order(tmp_path):
    names = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]
    for name in names:
        write(tmp_path / name)
    (tmp_path / "dataset_info.json").write_text("{}")
    assert expand([str(tmp_path)], "--input") != [tmp_path / name for name in names]
    state = {"_data_files": [{"filename": name} for name in names]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert expand([str(tmp_path)], "--input") == [tmp_path / name for name in names]


def test_splits_and_damage_are_said(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DataError, match="several splits: name.*train, .*test"):
        saved_files(tmp_path, "--input")
    (tmp_path / "x.arrow").write_bytes(b"nothing")
    with pytest.raises(DataError, match="x.arrow: .*arrow.*damaged"):
        list(records(tmp_path / "x.arrow"))


@pytest.mark.parametrize("kind", ["stream", "file", "parquet"])
def test_two_columns_of_one_name_are_told(tmp_path, kind):
    """Where one of them is asked for; others may have any name."""
    path = tmp_path / f"x.{'parquet' if kind == 'parquet' else 'arrow'}"
    one = pyarrow.array(["a"])
    table = pyarrow.Table.from_arrays([one, one, one], names=["z", "z", "text"])
    if kind == "parquet":
        parquet.write_table(table, path)
    else:
        with getattr(pyarrow.ipc, f"new_{kind}")(path, table.schema) as writer:
            writer.write_table(table)
    assert [record.values for record in records(path, ("text",))] == [{"text": "a"}]
    with pytest.raises(DataError, match=f"^{path}: .*z.* 2 times"):
        list(records(path, ("z",)))
