"""Records in memory for options that name files: dicts, and tables of other libraries."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from glob import glob
from pathlib import Path
from typing import Any

from unitk.api.arguments import option_words
from unitk.api.verb import Verb, find_verb
from unitk.data.corpus.writer import called_from_python
from unitk.data.files.lines import RECORDS, filling_temporary
from unitk.errors import UnitkError, UsageError, require, show_value
from unitk.files import MANIFEST, open_plain
from unitk.options.settings import plain
from unitk.training.config import TrainConfig
from unitk.training.saving.folder import RunFolder

CORPUS = "corpus"
"""Folder within a run's that holds the corpus of the records that it is trained on."""


def are_records(value: object, texts: bool = False) -> bool:
    """Whether a value is records in memory, and not the names of files.

    With `texts`, the strings in a list are texts; otherwise they are names of files.
    """
    if isinstance(value, str | bytes | os.PathLike):
        return False
    if isinstance(value, Mapping):  # such as the splits of a data set, which are refused later
        return any(map(are_records, value.values()))
    if isinstance(value, list | tuple):
        first = next(iter(value), None if texts else "")
        return not isinstance(first, os.PathLike if texts else os.PathLike | str)
    return isinstance(value, Iterable) or hasattr(type(value), "columns")  # a table of Arrow


@contextmanager
def store_records(
    arguments: Mapping[str, object], names: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """Write records among the arguments to temporary files; yields the arguments that name these.

    `names` are the options that may be records, each with the fields for which a text stands. A
    list of strings is texts if the first of these options takes texts and is in memory. Errors and
    manifests refer to a temporary file by its option.
    """
    files = dict(arguments)
    first = next(iter(names), "")
    texts = bool(names.get(first)) and are_records(files.get(first), texts=True)
    given = [
        name
        for name in names
        if isinstance(files.get(name), Mapping) or are_records(files.get(name), texts)
    ]
    for name in sorted(names.keys() - given):
        _check_names(name, files.get(name))
    if not given:  # no temporary folder
        yield files
        return
    with tempfile.TemporaryDirectory(prefix=RECORDS) as folder:
        with filling_temporary():
            for name in given:
                files[name] = _write(files[name], Path(folder) / name, name, names[name])
        yield files


def _check_names(option: str, value: object) -> None:
    """Refuse texts in a list of names of files or corpora."""
    for item in value if isinstance(value, list | tuple) else ():
        text = isinstance(item, str) and len(item.split()) > 1 and "://" not in item
        require(
            not text or bool(glob(item)),
            f"--{option}: there is no file {show_value(item)}; "
            'a text in memory is a record: {"text": ...}',
        )


def _write(records: Any, path: Path, name: str, fields: Sequence[str]) -> Path:
    """Write records to `path` with the extension of a format, and return that path.

    An item that is not a dict becomes the value of each of the `fields`.
    """
    library = type(records).__module__.partition(".")[0]
    if library == "unitk":  # what unitk.generate returned: the n best outputs of each text
        records = [outputs[0].text if outputs else "" for outputs in records]
    require(
        not isinstance(records, Mapping),
        f"--{name}: a dict is not a list of records; name one split of it, or put it in a list",
    )
    if library == "datasets" and hasattr(records, "to_parquet"):
        path = path.with_suffix(".parquet")  # with the names of class labels
        records.to_parquet(path)
        return path
    path = path.with_suffix(".jsonl")
    number = 0
    with open_plain(path, "x") as file:
        for number, record in enumerate(_rows(records, name), 1):
            if fields and not isinstance(record, Mapping):
                record = dict.fromkeys(fields, record)
            if not isinstance(record, Mapping):
                raise UsageError(
                    f"--{name}: "
                    f"record {number} must be a dict, got {show_value(record)}; "
                    'a text is a record, too: {"text": ...}'
                )
            try:
                line = json.dumps({**record}, ensure_ascii=False, default=_plain)
                if "NaN" in line:  # a missing value, of which json knows null alone
                    known = json.loads(
                        line, parse_constant=lambda text: None if text == "NaN" else float(text)
                    )
                    line = json.dumps(known, ensure_ascii=False)
                file.write(line + "\n")
            except (TypeError, ValueError) as error:
                raise UsageError(f"--{name}: record {number}: {error}") from None
    require(number > 0, f"--{name}: there are no records")
    return path


def _rows(table: Any, name: str) -> Any:
    """The rows of a table or an array of numpy, pandas, Arrow or polars, or records as they are."""
    if hasattr(table, "collect"):  # a LazyFrame
        table = table.collect()
    if hasattr(table, "columns"):
        # the columns of Arrow are their cells
        names = [*getattr(table, "column_names", table.columns)]
        require(len({*names}) == len(names), f"--{name}: columns of the table have the same name")
    if hasattr(table, "iterrows"):
        return table.to_dict("records")
    rows = plain(table)
    fields = getattr(getattr(table, "dtype", None), "names", None)  # of a structured array
    return [dict(zip(fields, row, strict=True)) for row in rows] if fields else rows


def _plain(value: object) -> object:
    """A value of another library as one that json has; what stands for no value is None."""
    if str(value) in ("NaT", "<NA>"):  # of pandas
        return None
    own = str(value) if isinstance(value, date | time | timedelta | Decimal) else plain(value)
    if own is value or hasattr(value, "columns"):
        raise TypeError(f"{show_value(value)} cannot be a field")
    return own


def take_corpus(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace `data` and `valid` that are records by the corpus that `make_corpus` will write.

    Returns the options of the run, whose corpus is in its own folder, and those of `preprocess` for
    this corpus; the latter are empty if there are no records.
    """
    given = dict(arguments)
    how = given.pop("preprocess", None) or {}
    held = {name: given.pop(name) for name in ("data", "valid") if are_records(given.get(name))}
    for name in {"data", "valid"} - held.keys():
        _check_names(name, given.get(name))
    require(not how or bool(held), "--preprocess has no effect: --data names a corpus")
    if not held:
        return given, {}
    require(isinstance(how, Mapping), f"--preprocess must be a dict, got {how!r}")
    require("save_dir" in given, "--save-dir is needed")
    folder = Path(given["save_dir"]) / CORPUS
    if "data" in held:
        given["data"] = folder  # whose valid/ is the validation, if there is one
    else:
        given["valid"] = folder / "valid"
    parts = {{"data": "input"}.get(name, name): records for name, records in held.items()}
    return given, {**how, **parts, "dest": folder}


@contextmanager
def _named_data() -> Iterator[None]:
    """Call the input of a corpus by the name that it has in training."""
    try:
        yield
    except UnitkError as error:
        error.args = tuple(re.sub(r"^(--)?input\b", r"\1data", str(line)) for line in error.args)
        raise


def make_corpus(how: dict[str, Any], config: TrainConfig) -> None:
    """Write the corpus of a run's records; a resumed run must have the same records as before."""
    RunFolder(config.save_dir).check(config.resume)
    # a model that is fine-tuned reads its own vocabulary
    if not {"vocab", "vocab_size", "config"} & how.keys():
        source = config.init_from or (None if "input" in how else config.weighted_data[0][0])
        require(
            source is not None, '--data: records need --init-from, or preprocess={"vocab_size": N}'
        )
        how = {**how, "vocab": source}
    verb = find_verb("preprocess")
    assert isinstance(verb, Verb) and verb.value is not None
    dest: Path = how["dest"]
    with _named_data(), called_from_python(), store_records(how, verb.records) as given:
        # without a run beside it, a corpus is left of a call that failed, or was not iterated over
        known = config.resume and dest.exists()
        # the records are encoded again to compare them with those that the run began with
        with tempfile.TemporaryDirectory(prefix=RECORDS) as folder:
            new = Path(folder) / CORPUS if known else dest
            verb.value(
                verb.parsed(option_words({**given, "dest": new, "overwrite": True}), "preprocess")
            )
            for part in sorted(new.iterdir()):
                file = dest / part.name / MANIFEST
                same = file.exists() and file.read_bytes() == (part / MANIFEST).read_bytes()
                require(same, f"--data: other records than those of {dest / part.name}")
