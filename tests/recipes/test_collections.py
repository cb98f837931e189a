"""Users' own copies of data sets become what the recipes read; the second bundled sample."""

import gzip
import hashlib
import importlib.util
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from unitk.data.files.pairs import PairText
from unitk.data.files.squad import read_squad

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SAMPLE = RECIPES / "summarize" / "data"


def run(script, *words):
    line = [sys.executable, str(RECIPES / script), *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True)


def read(path):
    return gzip.decompress(path.read_bytes()).decode()


def squad(*titles):
    entry = {"question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraph = {"context": "Ann won.", "qas": [entry, entry]}
    return json.dumps({"data": [{"title": title, "paragraphs": [paragraph]} for title in titles]})


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "squad").mkdir(), (tmp_path / "lists").mkdir()
    (tmp_path / "squad" / "train-v1.1.json").write_text(
        squad("Warsaw_Pact", "Beyonc%C3%A9", "Left")
    )
    path = tmp_path / "squad" / "dev-v1.1.json.gz"
    path.write_bytes(gzip.compress(squad("Super_Bowl_50").encode()))
    for name, titles in (("train", "Warsaw_Pact"), ("test", "Beyoncé"), ("dev", "Super_Bowl_50")):
        (tmp_path / "lists" / f"doclist-{name}.txt").write_text(titles + "\n")
    return tmp_path


def split(folder):
    words = ["--squad", folder / "squad", "--lists", folder / "lists", "--dest", folder / "out"]
    return run("qg_squad/split.py", *words)


def test_articles_go_where_the_lists_say(folders):
    done = split(folders)
    assert "train: 1 articles, 1 paragraphs, 2 questions" in done.stdout, done.stderr
    found = {
        name: [
            one["title"] for one in json.loads(read(folders / "out" / f"{name}.json.gz"))["data"]
        ]
        for name in ("train", "dev", "test")
    }
    assert found == {"train": ["Warsaw_Pact"], "dev": ["Super_Bowl_50"], "test": ["Beyonc%C3%A9"]}


@pytest.mark.parametrize(
    ("titles", "message"),
    [
        ("Warsaw_Pact\nMars", "1 articles of --lists are not in --squad: Mars"),
        ("Beyoncé", "1 articles of --lists are named twice: Beyoncé"),
    ],
)
def test_lists_that_do_not_fit_are_refused(folders, titles, message):
    (folders / "lists" / "doclist-train.txt").write_text(titles)
    done = split(folders)
    assert done.returncode == 1 and message in done.stderr


def test_stories_are_found_by_the_hash_of_their_address(tmp_path):
    (tmp_path / "stories").mkdir(), (tmp_path / "lists").mkdir()
    for name in ("train", "val", "test"):
        address = f"http://x/{name}"
        (tmp_path / "lists" / f"all_{name}.txt").write_text(address + "\n")
        story = tmp_path / "stories" / f"{hashlib.sha1(address.encode()).hexdigest()}.story"
        story.write_text(f"About {name}.\n\n@highlight\n\nOne\n\n@highlight\n\nTwo\n")
    words = ["--stories", tmp_path / "stories", "--lists", tmp_path / "lists", "--dest", tmp_path]
    done = run("summarize/collect.py", *words)
    assert done.returncode == 0, done.stderr
    record = json.loads(read(tmp_path / "valid.jsonl.gz"))
    assert (record["source"], record["target"]) == ("About val.", "One\nTwo")
    story.unlink()
    assert f"there is no {story.name}" in run("summarize/collect.py", *words).stderr


def test_pages_are_found_by_their_id(tmp_path):
    ids = {"train": ["1", "2"], "validation": ["3"], "test": ["4"]}
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    for name in "1234":
        page = f"[SN]URL[SN]\nx\n[SN]FIRST-SENTENCE[SN]\nSay {name}.\n[SN]RESTBODY[SN]\nMore.\n"
        (tmp_path / f"{name}.summary").write_text(page)
    words = ["--pages", tmp_path, "--ids", tmp_path / "ids.json", "--dest", tmp_path / "xsum"]
    done = run("summarize/collect.py", *words)
    assert done.stdout.split() == ["train:", "2", "valid:", "1", "test:", "1"], done.stderr
    record = json.loads(read(tmp_path / "xsum" / "test.jsonl.gz"))
    assert record == {"id": "4", "source": "More.", "target": "Say 4."}


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def example(article, abstract):
    """A short tf.train.Example with its size before it."""
    values = (b"article", article), (b"abstract", abstract)
    entries = [field(1, field(1, a) + field(2, field(1, field(1, b)))) for a, b in values]
    record = field(1, b"".join(entries))
    return struct.pack("<q", len(record)) + record


def test_chunks_are_joined_in_order(tmp_path):
    (tmp_path / "chunked").mkdir()
    whole = example(b"in one file", b"<s> whole . </s>")
    for name in ("train.bin", "val.bin", "test.bin", "chunked/val_000.bin"):
        (tmp_path / name).write_bytes(whole)
    for i in (1, 0):
        record = example(b"story %d ." % i, b"<s> one . </s> <s> two . </s>")
        (tmp_path / "chunked" / f"train_00{i}.bin").write_bytes(record)
    done = run("summarize/collect.py", "--chunks", tmp_path, "--dest", tmp_path / "cnndm")
    assert done.stdout.split() == ["train:", "2", "valid:", "1", "test:", "1"], done.stderr
    found = [json.loads(line) for line in read(tmp_path / "cnndm/train.jsonl.gz").splitlines()]
    assert [one["source"] for one in found] == ["story 0 .", "story 1 ."]
    assert found[0]["target"] == "one .\ntwo ."
    (tmp_path / "test.bin").unlink()
    done = run("summarize/collect.py", "--chunks", tmp_path, "--dest", tmp_path / "cnndm")
    assert f"--chunks {tmp_path}: no test.bin or test_000.bin" in done.stderr


def test_what_is_to_be_copied_is_in_the_source(tmp_path):
    one = "One two three four five six. Short. A b c d e f g. "
    text = f"{one}{one.upper()}\n\nAn other  document has a sentence too.\n"
    (tmp_path / "a.txt").write_text(text)
    for kind, name in (("answers", "squad.json"), ("lead", "pairs.jsonl")):
        words = [kind, "--texts", tmp_path / "a.txt", "--dest", tmp_path / name]
        done = run("copies.py", *words)
        assert done.returncode == 0, done.stderr
    found = list(read_squad(tmp_path / "squad.json"))
    assert [pair.target for pair in found] == [
        "One two three four five six.",
        "A b c d e f g.",
        "ONE TWO THREE FOUR FIVE SIX.",
        "A B C D E F G.",
        "An other document has a sentence too.",
    ]
    for pair in found:
        answer, passage = pair.source
        at = passage.index(pair.target)
        first, stop = pair.focus
        assert passage[first:stop] == answer and at <= first < stop <= at + len(pair.target)
    leads = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert len(leads) == 2 and all(one["source"].startswith(one["target"]) for one in leads)


def test_the_sentence_of_an_answer(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    place = RECIPES / "qg_squad" / "report.py"
    spec = importlib.util.spec_from_file_location("qg_report", place)
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    passage = "Ann won. Then Bob lost.  Ann won. She slept"
    for first, expected in (
        (0, "Ann won."),
        (14, "Then Bob lost."),
        (25, "Ann won."),
        (40, "She slept"),
    ):
        pair = PairText(["x", passage], "?", focus=(first, first + 1))
        assert report.find_answer_sentence(pair) == expected


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_the_sample_is_what_its_page_says(split):
    records = [
        json.loads(line) for line in read(SAMPLE / "scitldr-a" / f"{split}.jsonl.gz").splitlines()
    ]
    papers, summaries = len(records), sum(len(record["target"]) for record in records)
    page = (SAMPLE / "README.md").read_text()
    assert re.search(rf"`{split}.jsonl.gz` \| {papers} \| {summaries} \|", page)
    assert all(" ".join(record["source"]).strip() for record in records)
    assert all(text.strip() for record in records for text in record["target"])


def test_the_script_makes_the_sample(shared_data, tmp_path):
    done = run(
        "summarize/make_sample.py", "--scitldr", shared_data("scitldr-a"), "--dest", tmp_path
    )
    assert done.returncode == 0, done.stderr
    for path in tmp_path.iterdir():
        assert read(path) == read(SAMPLE / "scitldr-a" / path.name)
