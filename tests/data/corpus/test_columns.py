"""Columns are read as they were written, in however many pieces; labels of every form are, too."""

from dataclasses import replace

import numpy as np
import pytest

from unitk.data.corpus.columns import ALWAYS, FORMS, OPTIONAL, Counts
from unitk.data.corpus.writer import ColumnFile
from unitk.data.files.labels import LABEL_READERS, label_of
from unitk.errors import DataError

SIZES = np.random.default_rng(0).integers(0, 200, 50)


@pytest.mark.parametrize("pieces", [1, 3, 50])
@pytest.mark.parametrize("column", [*ALWAYS, *OPTIONAL], ids=lambda column: column.file)
def test_a_column_is_what_was_appended(tmp_path, column, pieces):
    written = ColumnFile(tmp_path, column, "<u2")
    for piece in np.array_split(SIZES, pieces):
        written.append(piece)
    written.close()
    counts = replace(Counts(), **{column.unit: 50})
    if column.within:
        counts = replace(counts, **{column.within: int(SIZES.sum())})
    found = column.read(tmp_path, counts, "<u2")
    assert (np.diff(found) if column.within else found).tolist() == SIZES.tolist()
    assert not column.within or np.load(tmp_path / column.file).tolist() == found.tolist()
    for name in filter(None, (column.unit, column.within)):
        other = replace(counts, **{name: getattr(counts, name) + 1})
        with pytest.raises(DataError, match=column.file):
            column.read(tmp_path, other, "<u2")


@pytest.mark.parametrize("name", FORMS)
def test_made_up_labels_have_the_shape_of_labels(name):
    """They stand for labels where layouts are measured."""
    form, parts = FORMS[name], [np.arange(3), np.arange(4)]
    label = {"class": ["b"], "choice": [1], "number": [0.5], "tags": ["a", "b"], "span": [1, 2]}
    label["classes"] = ["a", "b"]
    label["links"] = [(0, 1, "a"), (2, 3, "b")]
    numbers = form.rows(label[name], 0, "ab".index)
    rows = np.array(numbers, form.dtype).reshape(-1, form.width)
    found, made_up = form.of(rows, np.array([0, 2]), 0), form.placeholder(parts)
    assert found.ndim == made_up.ndim and found.shape[1:] == made_up.shape[1:]
    assert bool(form.names(label[name])) == form.named and {*form.names(label[name])} <= {"a", "b"}


def test_every_form_is_read_from_fields():
    assert LABEL_READERS.keys() == FORMS.keys()
    for name in FORMS:
        with pytest.raises(DataError, match="here"):
            label_of({"no": "label"}, name, "here")


def test_a_whole_number_beyond_all_floats_is_no_number():
    with pytest.raises(DataError, match="here"):
        label_of(10**400, "number", "here")
