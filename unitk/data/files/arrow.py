"""Tables of columns: parquet files, and Arrow files as the `datasets` library saves them.

A folder of `Dataset.save_to_disk` has Arrow files, and state.json names their order. A column of
class labels holds numbers; the names stand in the schema, and are read in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unitk.data.files import sources
from unitk.data.files.lines import opened, size_of
from unitk.errors import DataError
from unitk.foreign import parse_json, read_json


def rows(path: Path, name: str, fields: tuple[str, ...]) -> Iterator[tuple[Any, str, int]]:
    """The records of a file, with their places; all columns if one of the fields is missing."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError as error:
        raise DataError(f"{path}: needs the package pyarrow: pip install unitk[parquet]") from error
    number, at = 0, 0.0
    try:
        with opened(path) as raw:
            if name == "parquet":
                file = parquet.ParquetFile(raw)
                schema, count = file.schema_arrow, file.metadata.num_rows
            else:
                # `datasets` writes streams; other programs also write files, which have an index
                indexed = raw.read(6) == b"ARROW1"
                raw.seek(0)
                reader = ipc.open_file(raw) if indexed else ipc.open_stream(raw)
                schema, count = reader.schema, 0
            # all of them where one is missing: the error names what there is
            held = [column_of(field, schema.names) for field in fields]
            columns = [*dict.fromkeys(held)] if all(held) else schema.names
            classes = classes_of(schema)
            if name == "parquet":
                batches = file.iter_batches(sources.PAIRS_IN_BLOCK, columns=columns)
            elif indexed:
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = reader
            for batch in batches:
                # a parquet file is smaller than its columns, an Arrow file is as large
                step = size_of(path) / count if count else batch.nbytes / max(len(batch), 1)
                for record in batch.select(columns).to_pylist():
                    for column in classes.keys() & record.keys():
                        record[column] = _named(record[column], classes[column])
                    yield record, f"{path}, row {number}", int(at)
                    number, at = number + 1, at + step
    except pyarrow.ArrowNotImplementedError as error:
        how = "compression or type of a column"
        raise DataError(f"{path}: this pyarrow cannot read the {how} of this {name}") from error
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: no {name}, or damaged") from error


def column_of(field: str, columns: Sequence[str]) -> str:
    """The column that holds a field, which may be nested in it; "" if there is none."""
    within = [name for name in columns if field == name or field.startswith(f"{name}.")]
    return max(within, key=len, default="")


def classes_of(schema: Any) -> dict[str, Any]:
    """What the schema that `datasets` writes says of the columns that have class labels in them."""
    info = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"), "the schema")
    features: dict[str, Any] = info.get("info", {}).get("features", {})
    return {name: one for name, one in features.items() if "ClassLabel" in repr(one)}


def _named(value: Any, feature: Any) -> Any:
    """A value with its classes by name, wherever they stand in it; -1 and None are no class."""
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):  # of a list
        feature = feature["feature"]
    if isinstance(value, list):
        inner = feature[0] if isinstance(feature, list) else feature
        return [_named(one, inner) for one in value]
    if not isinstance(feature, dict):
        return value
    if isinstance(value, dict):
        return {name: _named(one, feature.get(name)) for name, one in value.items()}
    names = feature.get("names", []) if feature.get("_type") == "ClassLabel" else []
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


def saved_files(folder: Path, option: str) -> list[Path]:
    """The files of a folder of `save_to_disk`, in order; none if it is another folder.

    Raises DataError naming the splits of a `DatasetDict`.
    """
    if (folder / "dataset_dict.json").exists():
        splits = read_json(folder / "dataset_dict.json").get("splits", [])
        some = ", ".join(str(folder / str(one)) for one in splits)
        raise DataError(f"{option} {folder} has several splits: name one of {some}")
    if not (folder / "state.json").exists() or not any(folder.glob("*.arrow")):
        return []
    listed = read_json(folder / "state.json").get("_data_files", [])
    names = [one.get("filename") for one in listed if isinstance(one, dict)]
    return [folder / Path(str(name)).name for name in names] or sorted(folder.glob("*.arrow"))
