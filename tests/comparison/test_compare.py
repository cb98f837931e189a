"""`unitk compare`: the table ranks no two kinds, and words cost what their tokens do."""

import csv
import gzip
import json
import math
import re

import numpy as np
import pytest

from tests.conftest import toy_lines
from unitk.comparison.compare import run as compare
from unitk.comparison.compare import seeds_of
from unitk.comparison.likelihood import Likelihood
from unitk.comparison.side_by_side import csv_of, lines_of_rows, page_of, rows_of, word_costs
from unitk.comparison.texts import Document
from unitk.errors import CheckpointError, DataError, UsageError

TEXTS = [Document(["The cats sleep."]), Document(["It rained all day", "in (Rome)."])]


def likelihood(kind, *nats):
    tokens = [np.array([one]) for one in nats]
    return Likelihood(kind, TEXTS, tokens, np.array(nats), 0, 0, 2, 0)


def test_the_table_ranks_within_a_kind_only():
    found = {
        "worse": likelihood("exact", 30.0, 50.0),
        "bound": likelihood("bound", 5.0, 5.0),
        "better": likelihood("exact", 20.0, 45.0),
        "pseudo": likelihood("pseudo", 1.0, 1.0),
    }
    rows = rows_of(found)
    assert [(row["model"], row["rank"]) for row in rows] == [
        ("better", 1),
        ("worse", 2),
        ("bound", 1),
        ("pseudo", 1),
    ]
    size = np.array([15, 28.0])
    assert [one.size for one in TEXTS] == size.tolist()
    bits = np.array([10, 5]) / math.log(2)
    mean = bits.sum() / size.sum()
    error = math.sqrt(2 * ((bits - mean * size) ** 2).sum()) / size.sum()
    assert rows[1]["behind"] == pytest.approx(mean)
    assert rows[1]["behind_error"] == pytest.approx(error)
    lines = lines_of_rows(rows)
    assert sum(line.count("[") == 2 for line in lines) == 1 and "kinds" in lines[-1]
    assert len(lines_of_rows(rows[:2])) == 3
    table = list(csv.DictReader(csv_of(rows).splitlines()))
    assert [row["model"] for row in table] == ["better", "worse", "bound", "pseudo"]
    assert table[0]["behind_error"] == "" and float(table[1]["behind"]) == pytest.approx(
        mean, abs=1e-6
    )


def test_one_document_has_no_interval():
    one = Likelihood("exact", TEXTS[:1], [np.array([3.0])], np.array([3.0]), 0, 0, 1, 0)
    other = Likelihood("exact", TEXTS[:1], [np.array([4.0])], np.array([4.0]), 0, 0, 1, 0)
    assert "standard_error" not in one.figures()
    rows = rows_of({"a": one, "b": other})
    lines = lines_of_rows(rows)
    assert "nan" not in csv_of(rows)
    assert "nan" not in "".join(lines) and lines[2].endswith(f"{1 / math.log(2) / 15:.4f}")
    assert lines[-1].startswith("One document has no interval: --documents")


def test_words_cost_what_their_tokens_do(toy_vocab):
    for document in TEXTS:
        count = sum(len(toy_vocab.encode(one)) for one in document.sentences)
        tokens = np.random.default_rng(0).random(count)
        found = word_costs(toy_vocab, document, tokens)
        assert [word for word, _ in found] == " ".join(document.sentences).split()
        assert sum(cost for _, cost in found) == pytest.approx(tokens.sum())


def test_runs_are_compared_word_by_word(runs, toy_data, tmp_path, capsys):
    text = tmp_path / "x.txt"
    text.write_text("Thebaba bebe.\n\nThe </script> lala lolo.\n")
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    words = [str(runs / "one"), str(runs / "short"), "--data", str(text), "--device", "cpu"]
    capsys.readouterr()
    compare([*words, "--output", str(page), "--table", str(table)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith("exact") for line in lines[1:])
    [found] = json.loads(re.search(r"append\(\.\.\.(.*)\.map\(", page.read_text())[1])
    assert [one["name"] for one in found["models"]] == words[:2]
    assert [[word for word, _ in text["words"]] for text in found["texts"]] == [
        ["Thebaba", "bebe."],
        ["The", "</script>", "lala", "lolo."],
    ]
    assert page.read_text().count("</script>") == 1
    compare([*words, "--output-format", "json"])
    models = json.loads(capsys.readouterr().out)["models"]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    for one, row in zip(models, rows, strict=True):
        nats = one["bits_per_byte"] * one["bytes"] * math.log(2)
        index = words.index(one["model"])
        costs = [cost[index] for text in found["texts"] for _, cost in text["words"]]
        assert sum(costs) == pytest.approx(nats, rel=1e-3)
        assert float(row["bits_per_byte"]) == pytest.approx(one["bits_per_byte"], abs=1e-5)
    with pytest.raises(UsageError, match="--output"):
        compare([*words, "--output", str(page)])
    compare([*words, "--output", str(page), "--overwrite", "--page-documents", "1"])
    [found] = json.loads(re.search(r"append\(\.\.\.(.*)\.map\(", page.read_text())[1])
    assert len(found["texts"]) == 1


RIGHT_TO_LEFT = """() => {
    const [first, second] = document.querySelectorAll(".text:last-of-type .word");
    return first.getBoundingClientRect().left > second.getBoundingClientRect().left;
}"""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_the_page_is_as_wide_as_the_window(browser, tmp_path, width, scheme):
    """Words without an end, from right to left, and with HTML in them; long names of runs."""
    texts = ["x" * 500, "<b>&amp;</b> </script> <!--<script>", "שלום עולם"]
    models = [
        {"name": f"runs/a-model-with-a-long-name-{kind}-of-many-letters", "bits": 1.5, "kind": kind}
        | {"rank": 1, "seeds": 1, "low": None, "high": None, "behind": 0, "behind_low": None}
        for kind in ("exact", "bound")
    ]
    shown = [
        {"bits": [1, 2], "words": [[word, [1.0, 2.0]] for word in text.split()]} for text in texts
    ]
    record = {"data": "x.txt", "documents": 1, "bytes": 600, "models": models, "texts": shown}
    (tmp_path / "page.html").write_text(page_of(record), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    said = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"file://{tmp_path / 'page.html'}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(RIGHT_TO_LEFT)
    written = "all => all.map(one => one.textContent)"
    assert page.eval_on_selector_all(".word", written) == " ".join(texts).split()
    assert "1 document," in page.inner_text("p") and not said
    page.close()


def test_what_cannot_be_compared_is_refused(runs, toy_data, tmp_path):
    one, two = str(runs / "one"), str(runs / "two")
    data = ["--data", str(toy_data / "text")]
    for words, what in {
        (one,): "RUNS",
        (one, one): "RUNS .*twice",
        (one, f"{one}/last"): "RUNS: .* one checkpoint",
        (one, two, "--output", "x.txt"): "--output .*.html",
        (one, two, "--draws", "3", "--table", "x"): "--table .*.csv",
        (one, two, "--overwrite"): "--overwrite .*--output",
        (one, two, "--page-documents", "3"): "--page-documents .*--output",
    }.items():
        with pytest.raises(UsageError, match=what):
            compare([*words, *data])
    with pytest.raises(DataError, match="--data .*pairs"):
        compare([one, two, "--data", str(toy_data / "pairs")])
    output = tmp_path / "page.html"
    (tmp_path / "long.txt").write_text("\n".join(toy_lines(400)))
    data = ["--data", str(tmp_path / "long.txt")]
    with pytest.raises(DataError, match="window 1 "):
        compare([one, two, *data, "--stride", "4000", "--output", str(output)])
    assert not output.exists()


def test_the_last_run_is_refused_before_the_first_one_is_measured(
    runs, toy_data, tmp_path, monkeypatch
):
    from unitk.comparison import likelihood
    from unitk.verbs.train import run as train

    words = f"--task bilm --arch elmo_tiny --data {toy_data / 'text'} --save-dir {tmp_path / 'r'}"
    train(f"{words} --blocks line --max-steps 1 --batch-texts 4 --device cpu --valid none".split())
    monkeypatch.setattr(likelihood, "measure", lambda *_: pytest.fail("measured"))
    data = ["--data", str(toy_data / "text"), "--device", "cpu"]
    page = tmp_path / "x.html"
    with pytest.raises(UsageError, match=f"^{tmp_path / 'r'}: task bilm "):
        compare([str(runs / "one"), str(tmp_path / "r"), *data, "--output", str(page)])
    assert not page.exists()
    with pytest.raises(UsageError, match="^--draws "):
        compare([str(runs / "one"), str(runs / "two"), *data, "--draws", "3"])


def test_records_are_the_texts_of_their_field(tmp_path):
    from unitk.comparison.compare import CompareOptions
    from unitk.comparison.texts import open_documents
    from unitk.options.config import parse

    lines = toy_lines(6)
    text = tmp_path / "x.jsonl.gz"
    with gzip.open(text, "wt") as file:
        file.writelines(json.dumps({"body": line, "id": 3}) + "\n" for line in lines)
    words = ["a", "b", "--data", str(text), "--field"]
    found = open_documents(parse("compare", CompareOptions, [*words, "body"], positional="runs"))
    assert [one.sentences for one in found] == [[line] for line in lines]


@pytest.mark.parametrize("runs", [None, 3, [], [1], [{}], [{"seed": "1"}], {"seed": 1}])
def test_a_list_of_seeds_that_was_edited_is_named(tmp_path, runs):
    (tmp_path / "seeds.json").write_text(json.dumps({"runs": runs}))
    with pytest.raises(CheckpointError, match=f"^{tmp_path / 'seeds.json'} is damaged"):
        seeds_of(tmp_path)


def test_a_folder_of_seeds_is_one_row(runs, tmp_path, capsys):
    text, seeds = tmp_path / "x.txt", tmp_path / "seeds"
    text.write_text("The lala lolo.\n\nThebaba bebe.\n")
    seeds.mkdir()
    for number, name in ((1, "one"), (2, "short")):
        (seeds / f"seed-{number}").symlink_to(runs / name)
    (seeds / "seeds.json").write_text(json.dumps({"runs": [{"seed": 2}, {"seed": 1}]}))
    words = ["--data", str(text), "--device", "cpu", "--output-format", "json"]
    capsys.readouterr()
    compare([str(seeds), str(runs / "one"), str(runs / "short"), *words])
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    both = rows.pop(str(seeds))
    bits = [row["bits_per_byte"] for row in rows.values()]
    assert both["seeds"] == 2 and both["bits_per_byte"] == pytest.approx(np.mean(bits))
    assert both["low"] <= min(bits) and both["high"] >= max(bits)
    assert all(row["low"] <= row["bits_per_byte"] <= row["high"] for row in rows.values())
