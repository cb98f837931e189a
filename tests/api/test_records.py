"""Records in memory make the corpora and the runs that files of them make."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import numpy as np
import pytest

import unitk
from tests.api.test_corpora import content
from tests.conftest import toy_lines
from unitk.api.records import store_records
from unitk.data.corpus.folders import open_corpus
from unitk.errors import DataError, UsageError

RECORDS = [
    {"id": np.int64(i), "long": line, "short": line.split()[0]}
    for i, line in enumerate(toy_lines(40))
]
FIELDS = {"source_field": "long", "target_field": "short", "vocab_size": 120}


@pytest.fixture
def wanted(tmp_path):
    """The content of the corpus of a file of RECORDS."""
    lines = [json.dumps({**one, "id": int(one["id"])}, ensure_ascii=False) for one in RECORDS]
    (tmp_path / "input.jsonl").write_text("".join(f"{line}\n" for line in lines))
    unitk.preprocess(input=tmp_path / "input.jsonl", dest=tmp_path / "file", **FIELDS)
    return tokens(tmp_path / "file")


def tokens(folder):
    return {name: data for name, data in content(folder).items() if "manifest" not in name}


@pytest.mark.parametrize("made", [list, tuple, iter])
def test_a_corpus_of_dicts_is_that_of_their_file(made, wanted, tmp_path, capsys, caplog):
    caplog.set_level("INFO", "unitk")
    capsys.readouterr()
    found = unitk.preprocess(input=made(RECORDS), dest=tmp_path / "a", **FIELDS)
    assert found["train"]["source"].documents == len(RECORDS)
    assert tokens(tmp_path / "a") == wanted
    manifest = json.loads((tmp_path / "a" / "train" / "manifest.json").read_text())
    assert manifest["sources"] == ["input"]  # no path of this machine
    # what is returned is not printed, too
    assert not capsys.readouterr().out and "vocabulary: 120" in caplog.text


TABLES = {
    "frame": ("pandas", lambda pandas: pandas.DataFrame(RECORDS)),
    "index": ("pandas", lambda pandas: pandas.DataFrame(RECORDS).shift(0).set_axis([7] * 40)),
    "category": ("pandas", lambda pandas: pandas.DataFrame(RECORDS).astype("category")),
    "object": ("pandas", lambda pandas: pandas.DataFrame(RECORDS, dtype=object)),
    "datasets": ("datasets", lambda datasets: datasets.Dataset.from_list(PLAIN)),
    "Arrow": ("pyarrow", lambda arrow: arrow.Table.from_pylist(PLAIN)),
    "batch": ("pyarrow", lambda arrow: arrow.RecordBatch.from_pylist(PLAIN)),
    "structs": ("pyarrow", lambda arrow: arrow.array(PLAIN)),
    "stream": ("datasets", lambda datasets: datasets.IterableDataset.from_generator(lambda: PLAIN)),
    "polars": ("polars", lambda polars: polars.DataFrame(PLAIN)),
    "lazy": ("polars", lambda polars: polars.LazyFrame(PLAIN)),
    "series": ("polars", lambda polars: polars.Series(PLAIN)),
    "structured": (
        "numpy",
        lambda numpy: numpy.array(
            [tuple(one.values()) for one in PLAIN], [("id", int), ("long", "U99"), ("short", "U9")]
        ),
    ),
}
PLAIN = [{**one, "id": int(one["id"])} for one in RECORDS]


@pytest.mark.parametrize("name", TABLES)
def test_a_corpus_of_a_table_is_that_of_its_file(name, wanted, tmp_path):
    library, make = TABLES[name]
    unitk.preprocess(input=make(pytest.importorskip(library)), dest=tmp_path / "a", **FIELDS)
    assert tokens(tmp_path / "a") == wanted


def test_the_cells_of_a_table_are_the_values_of_its_file(tmp_path):
    pandas, arrow = map(pytest.importorskip, ("pandas", "pyarrow"))
    numbers = [0.1 + 0.2, 1 / 3, 1e-17, 2.0**60, -7.0]  # a double has up to 17 digits
    when = datetime.datetime(2020, 1, 2, 3)
    frame = {"text": list("abcde"), "label": numbers}
    aside = {"when": when, "hour": when.time(), "long": when - when, "sum": Decimal("1.5")}
    tables = [pandas.DataFrame({**frame, **aside}), arrow.table(frame)]
    tables.append([{"text": text, "label": n} for text, n in zip(*frame.values(), strict=True)])
    fields = {"source_field": "text", "label_field": "label", "labels": "number"}
    for number, table in enumerate(tables):
        folder = tmp_path / str(number)
        unitk.preprocess(input=table, dest=folder, vocab="unitk-base-en", **fields)
        found = open_corpus(folder / "train").values[:, 0]
        assert found.tolist() == np.array(numbers, found.dtype).tolist()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda table: table.iloc[:0], UsageError, "input: there are no records"),
        (
            lambda table: table[["long", "short", "long"]],
            UsageError,
            "input: columns .* same",
        ),
        (lambda table: table.set_index("long"), DataError, "input, line 1: .*'long'"),
        (lambda table: table.where(table.id != 1), DataError, "input, line 2: .* is empty"),
        (lambda table: table.assign(long=b"a"), UsageError, "input: record 1: b'a' cannot be"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line(change, error, message, tmp_path):
    table = change(pytest.importorskip("pandas").DataFrame(RECORDS).astype({"long": object}))
    with pytest.raises(error, match=message):
        unitk.preprocess(input=table, dest=tmp_path / "a", **FIELDS)
    assert not (tmp_path / "a").exists()


def test_class_labels_of_a_table_keep_their_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    table = datasets.Dataset.from_dict({"text": ["a b", "b c"], "label": [1, 0]}, features=features)
    fields = {"source_field": "text", "label_field": "label", "vocab": "unitk-base-en"}
    unitk.preprocess(input=table, dest=tmp_path / "a", **fields)
    assert json.loads((tmp_path / "a/train/manifest.json").read_text())["labels"] == ["no", "yes"]


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        ([*RECORDS, "x"], UsageError, "input: record 41 .* 'x'"),
        (iter([]), UsageError, "input: .* no records"),
        (["a b", "c"], UsageError, "input: .*'a b'.*text"),
        ([{"long": "a", "short": object()}], UsageError, "input: record 1: <object .* field"),
        ([{"long": "a", "short": "\ud800"}], UsageError, "input: record 1: .* surrogates"),
        ([*RECORDS, {"long": 3}], DataError, "input, line 41: field 'long'"),
    ],
)
def test_bad_records_are_named_by_option_and_number(records, error, message, tmp_path):
    with pytest.raises(error, match=message):
        unitk.preprocess(input=records, dest=tmp_path / "a", **FIELDS)
    assert not (tmp_path / "a").exists()


def test_a_run_on_records_is_that_on_their_corpus(tmp_path):
    run = {"task": "lm", "arch": "gpt2_tiny", "precision": "fp32", "max_steps": 2}
    records = {"data": RECORDS, "valid": RECORDS[:4]}
    unitk.preprocess(input=RECORDS, valid=RECORDS[:4], dest=tmp_path / "data", **FIELDS)
    wanted = list(unitk.train(**run, data=tmp_path / "data", save_dir=tmp_path / "a"))
    given = {**run, **records, "preprocess": FIELDS, "save_dir": tmp_path / "b"}
    found = list(unitk.train(**given))
    assert [one["train/loss"] for one in found if one["kind"] == "train"] == [
        one["train/loss"] for one in wanted if one["kind"] == "train"
    ]
    with pytest.raises(UsageError, match="holds a run"):
        unitk.train(**given)
    assert len(list(unitk.train(**{**given, "resume": True, "max_steps": 3}))) > 0
    with pytest.raises(UsageError, match="other records"):
        unitk.train(**{**given, "data": RECORDS[1:], "resume": True, "max_steps": 4})


def test_a_call_that_made_no_run_may_be_repeated(tmp_path):
    run = {"arch": "gpt2_tiny", "max_steps": 1, "valid": "none", "save_dir": tmp_path / "r"}
    run |= {"data": RECORDS[1:], "preprocess": FIELDS}
    with pytest.raises(UsageError, match="classify cannot"):
        list(unitk.train(**run, task="classify"))
    assert (tmp_path / "r/corpus/train").exists()
    unitk.train(**run, task="lm")  # not iterated over
    [event] = unitk.train(**{**run, "data": RECORDS}, task="lm")
    assert event["step"] == 1
    assert len(open_corpus(tmp_path / "r/corpus/train")) == len(RECORDS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": RECORDS, "max_steps": 1}, "records .*init.from, or preprocess="),
        ({"data": "x", "preprocess": FIELDS}, "preprocess .*effect"),
        ({"data": RECORDS, "preprocess": FIELDS, "max_step": 1}, "max.step.*max.steps"),
    ],
)
def test_what_a_run_on_records_needs(given, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        unitk.train(task="lm", arch="gpt2_tiny", save_dir=tmp_path / "r", **given)
    assert not (tmp_path / "r").exists()


def test_scores_of_texts_in_memory_are_those_of_files(tmp_path):
    said, wanted = ["a cat sat there", "no\nend"], ["a cat sat here", ["no end", "an end"]]
    found, right = ([{name: one} for one in some] for name, some in (("o", said), ("r", wanted)))
    for name, some in {"found": found, "right": right}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in some))
    files = {"hypotheses": tmp_path / "found.jsonl", "references": tmp_path / "right.jsonl"}
    fields = {"hypothesis_field": "o", "target_field": "r"}
    of_files = unitk.score(metric="bleu,rouge", **files, **fields)
    assert unitk.score(metric="bleu,rouge", hypotheses=said, references=wanted) == of_files
    assert (
        unitk.score(metric="bleu,rouge", hypotheses=iter(said), references=right, target_field="r")
        == of_files
    )
    # a name of a file stays one; a list of names does beside another file
    mixed = {"metric": "rouge", "references": files["references"], "target_field": "r"}
    assert unitk.score(hypotheses=said, **mixed)["rouge"] == of_files["rouge"]
    (tmp_path / "plain.txt").write_text("a cat\n")
    names = [str(tmp_path / "plain.txt")] * 2
    assert (
        unitk.score(metric="rouge", hypotheses=names[0], references=names)["rouge"].figures[
            "rouge1"
        ]
        == 100
    )


@pytest.mark.parametrize(
    ("metric", "said", "right", "figure"),
    [
        ("class", ["a", "b", "b", "a"], ["a", "b", "b", "b"], ("accuracy", 75)),
        ("class", [{"label": "a"}], ["a"], ("accuracy", 100)),  # as unitk.predict returns them
        ("number", np.array([1.0, 2.0, 3.0]), (2, 4, 6), ("pearson", 100)),
        ("tags", [["B-X", "O"]], [["B-X", "O"]], ("f1", 100)),
        ("span", ["Oslo"], [["the Oslo", "x"]], ("em", 100)),
    ],
)
def test_labels_in_memory_are_scored(metric, said, right, figure):
    name, wanted = figure
    found = unitk.score(metric=metric, hypotheses=said, references=right)[metric].figures
    assert found[name] == pytest.approx(wanted)


def test_a_missing_value_is_no_text(tmp_path):
    """pandas writes it as NaN, also in the dicts that it makes of a table."""
    nan = float("nan")
    scores = [
        unitk.score(metric="rouge", hypotheses=["a cat", one], references=["a cat", "nan"])
        for one in (nan, "")
    ]
    assert scores[0] == scores[1]
    for records in ([nan], [{"target": nan}], [None]):
        with pytest.raises(DataError, match="references, line 1: .*target.* empty"):
            unitk.score(metric="rouge", hypotheses=["a"], references=records)
    for short in (nan, [nan], np.array(["b", nan], object), [{"deep": [nan]}]):
        records = [{"long": "a", "short": short, "other": float("inf")}]
        with pytest.raises(DataError, match="input, line 1: .*short") as error:
            unitk.preprocess(input=records, dest=tmp_path / "a", **FIELDS)
        assert "nan" not in str(error.value)
    records = [{"long": "a", "short": nan}]
    with pytest.raises(DataError, match="input, line 1: .*short.* empty"):
        unitk.preprocess(input=records, dest=tmp_path / "a", **FIELDS)


def test_texts_in_memory_that_cannot_be_scored_are_told_by_their_option():
    for found, wanted, said in (
        (["a", "b"], ["a"], "^(--)?references has 1 line, but (--)?hypotheses has 2$"),
        ([], [], "^(--)?hypotheses: there are no records$"),
        (["a"], [None], "^references, line 1: .*target"),
        ([{"text": "a"}], ["a"], "^hypotheses, line 1: .*hypothesis.field names it"),
    ):
        with pytest.raises((DataError, UsageError), match=said):
            unitk.score(metric="rouge", hypotheses=found, references=wanted)


def test_every_value_that_is_missing_is_null(tmp_path):
    """pandas, numpy and polars have a name for it each, which may be within a list, too."""
    pandas, polars = map(pytest.importorskip, ("pandas", "polars"))
    nan = float("nan")
    cells = [[nan, 1.0], {"deep": [nan]}, np.array([None, nan, np.float32("nan")], object)]
    frame = pandas.DataFrame({"text": ["a"] * 5, "cell": [*cells, [pandas.NA, pandas.NaT], nan]})
    names = {"input": ("text",)}
    for table, wanted in (
        (frame, [[None, 1.0], {"deep": [None]}, [None] * 3, [None] * 2, None]),
        (frame.to_dict("records"), [[None, 1.0], {"deep": [None]}, [None] * 3, [None] * 2, None]),
        (polars.DataFrame({"cell": [[nan, 1.0], None]}), [[None, 1.0], None]),
    ):
        with store_records({"input": table}, names) as given:
            lines = given["input"].read_text().splitlines()
        assert [json.loads(line, parse_constant=pytest.fail)["cell"] for line in lines] == wanted


def test_what_are_no_records_is_one_line(tmp_path):
    """A run names them by the option that its user gave."""
    datasets, pandas, polars = map(pytest.importorskip, ("datasets", "pandas", "polars"))
    one = datasets.Dataset.from_list(PLAIN)
    splits = datasets.DatasetDict(train=one)
    run = {"task": "lm", "arch": "gpt2_tiny", "save_dir": tmp_path / "run", "max_steps": 1}
    for records, message in (
        (splits, "a dict .* split"),
        ([pandas.DataFrame(RECORDS)] * 2, "record 1 .* dict"),
        ([polars.DataFrame(PLAIN)], "record 1 .* dict"),
        ([["a", "b"]], "record 1 .* dict"),
        (one["long"], "record 1 .* got 'The"),
        (np.array(["a"]), "record 1 .* got 'a'"),
    ):
        with pytest.raises(UsageError, match=f"^(--)?input: {message}"):
            unitk.preprocess(input=records, dest=tmp_path / "a", **FIELDS)
        with pytest.raises(UsageError, match=f"^(--)?data: {message}"):
            unitk.train(**run, data=records, preprocess=FIELDS)
    for records in (splits, {"output": ["a"]}):
        with pytest.raises(UsageError, match="^(--)?hypotheses: .* split"):
            unitk.score(metric="rouge", hypotheses=records, references=["a"])
    with pytest.raises(UsageError, match="texts: text 1 .* DatasetDict"):
        unitk.embed(splits, checkpoint="unitk-base-en")


@pytest.mark.parametrize("found", [[["a", 1]], [3], [{"outputs": ["a"]}], [("a", ["b"])]])
def test_hypotheses_that_are_no_texts_are_refused(found):
    with pytest.raises(DataError, match="^hypotheses, line 1: .*output"):
        unitk.score(metric="rouge", hypotheses=found, references=["a"])


def test_outputs_are_a_table_that_can_be_scored():
    outputs = unitk.generate(["It was", "a | b"], checkpoint="unitk-base-en", max_len=3, seed=1)
    html = outputs._repr_html_()
    assert "It was" in html and "a | b" in html and len(outputs) == 2
    texts = [best.text for best, *_ in outputs]
    [score] = unitk.score(metric="rouge", hypotheses=outputs, references=texts).values()
    assert score.figures["rougeL"] == 100


@pytest.mark.parametrize("option", ["data", "valid"])
def test_texts_in_place_of_corpora_are_told_to_be_records(option, tmp_path):
    given = {"data": tmp_path, option: ["the cat sat", "a dog"]}
    with pytest.raises(UsageError, match=f'{option}: .*the cat sat.*"text"'):
        next(iter(unitk.train(task="lm", save_dir=tmp_path / "run", max_steps=1, **given)))
