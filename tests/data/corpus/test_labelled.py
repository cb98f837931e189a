"""Labelled texts, answers in passages and links to entities: from files to a corpus and back."""

import json

import numpy as np
import pytest

from unitk.data.corpus.columns import LABELS
from unitk.data.corpus.corpus import MANIFEST
from unitk.data.corpus.folders import open_corpus
from unitk.data.corpus.merge import Options as Merge
from unitk.data.corpus.merge import merge
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.errors import DataError, UsageError

from ...conftest import toy_lines


@pytest.fixture
def make(tmp_path, toy_vocab):
    """A corpus of records: `make(records, "sentence,label", labels="class")`."""
    toy_vocab.save(tmp_path / "vocab")

    def made(records, fields, name="x.jsonl", **options):
        *source, label = fields.split(",")
        path = tmp_path / name
        if name.endswith(".jsonl"):
            text = "".join(json.dumps(record) + "\n" for record in records)
        else:
            mark = "\t" if name.endswith(".tsv") else ","
            rows = [records[0].keys(), *(record.values() for record in records)]
            text = "".join(mark.join(map(str, row)) + "\n" for row in rows)
        path.write_text(text)
        given = {"dest": tmp_path / "out", "vocab": tmp_path / "vocab", "workers": 1, **options}
        if "overwrite" not in options:
            given["overwrite"] = True
        labelled = {"source_field": tuple(source), "label_field": label}
        preprocess(Options(input=(str(path),), **labelled, **given))
        return open_corpus(given["dest"])

    return made


def texts_of(corpus, vocab):
    return [[vocab.decode(part) for part in corpus.record(i)[0]] for i in range(len(corpus))]


@pytest.mark.parametrize("name", ["x.jsonl", "x.tsv", "x.csv"])
def test_classes_of_one_text_or_two(make, toy_vocab, name):
    lines = toy_lines(6)
    records = [{"a": a, "b": b, "y": y} for a, b, y in zip(lines, lines[1:], "badab", strict=False)]
    corpus = make(records, "a,b,y", name)
    assert (corpus.kind, corpus.form, corpus.labels) == ("labelled", "class", ["a", "b", "d"])
    assert [corpus.record(i)[1].tolist() for i in range(5)] == [[1], [0], [2], [0], [1]]
    assert texts_of(corpus, toy_vocab) == [[one["a"], one["b"]] for one in records]
    assert corpus.source_parts.tolist() == [2] * 5 and not corpus.target_lengths.any()
    corpus.verify()


@pytest.mark.parametrize("name", ["x.jsonl", "x.tsv", "x.csv"])
@pytest.mark.parametrize("value", [1.0, 1, "1.0", "1", " 1.00", "+1.0"])
def test_a_whole_number_is_one_label_however_it_is_written(make, name, value):
    if name != "x.jsonl" and value == " 1.00":
        value = "1.00"
    records = [{"a": "x", "y": one} for one in (0, value, 0.0, "-0.0", "1.5", "v1.0")]
    corpus = make(records, "a,y", name)
    found = [corpus.labels[corpus.record(i)[1].item()] for i in range(6)]
    assert found == ["0", "1", "0", "0", "1.5", "v1.0"]


def test_whole_numbers_among_tags_choices_and_places(make, toy_vocab):
    corpus = make([{"a": "x y z", "y": [1.0, "1", "1.0"]}], "a,y", labels="tags")
    assert corpus.labels == ["1"]
    records = [{"a": "x", "b": ["p", "q"], "y": one} for one in (1.0, "1.0", 1, "B", "q")]
    corpus = make(records, "a,b,y", labels="choice")
    assert [corpus.record(i)[1].item() for i in range(5)] == [1] * 5
    corpus = make([{"a": "x", "b": ["1.0", "2.0"], "y": "1.0"}], "a,b,y", labels="choice")
    assert corpus.record(0)[1].item() == 0, "the text comes before the number"
    spans = [make([{"a": "the cat", "y": y}], "a,y", labels="span") for y in ([4.0, 7], [4, 7])]
    assert spans[0].record(0)[1].tolist() == spans[1].record(0)[1].tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, None])
def test_what_is_no_number_is_no_place(make, value):
    with pytest.raises(DataError, match="x.jsonl, line 1: field 'y' must be"):
        make([{"a": "x", "y": [value, 1]}], "a,y", labels="span")


def test_numbers(make):
    records = [{"a": line, "y": i / 4} for i, line in enumerate(toy_lines(5))]
    corpus = make(records, "a,y", "x.tsv", labels="number")
    assert [corpus.record(i)[1].item() for i in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert corpus.values.dtype == np.float32 and corpus.labels == []


def test_tags_are_at_their_words(make, toy_vocab):
    words = [line.split() for line in toy_lines(4)]
    records = [{"w": some, "t": [f"T{len(word) % 3}" for word in some]} for some in words]
    corpus = make(records, "w,t", labels="tags")
    for i, some in enumerate(words):
        parts, tags = corpus.record(i)
        assert toy_vocab.decode(np.concatenate(parts)) == " ".join(some)
        assert [toy_vocab.decode(part) for part in parts] == some
        assert [corpus.labels[tag] for tag in tags] == records[i]["t"]
    short = corpus.record(0)
    cut, tags = corpus.shorten(short[1], [*short[0][:2], *(p[:0] for p in short[0][2:])], 0)
    assert len(cut) == len(tags) == 2


def test_words_without_tokens_are_unknown_words_with_tags(make, toy_vocab):
    one, two = toy_lines(1)[0].split()[:2]
    texts = [["\u200b"], [one, "\u200b", "\ufeff", two], [two, "\u200b"], [one]]
    records = [{"w": text, "t": [f"{i}{word}" for word in text]} for i, text in enumerate(texts)]
    corpus = make(records, "w,t", labels="tags")
    for i, text in enumerate(texts):
        parts, tags = corpus.record(i)
        parts, tags = corpus.shorten(tags, parts, 0)  # as a run that cuts nothing
        shown = [toy_vocab.decode(part) for part in parts if part.tolist() != [toy_vocab.unk]]
        assert shown == [word for word in text if word.isalpha()]
        assert [corpus.labels[tag] for tag in tags] == records[i]["t"]
    assert corpus.counts.unknown == 4


def test_answers_are_the_fewest_tokens_that_hold_them(make, toy_vocab):
    records = []
    for i, line in enumerate(toy_lines(20)):
        first = line.split()[1 + i % 3]
        start = line.index(first)
        stop = start + len(first) - (i % 2)  # some end within a word
        records.append({"q": "who?", "p": f"  {line}", "s": [start + 2, stop + 2]})
    records.append({"q": "why?", "p": "Nothing.", "s": None})
    corpus = make(records, "q,p,s", labels="span")
    assert corpus.kind == "spans"
    for i, one in enumerate(records[:-1]):
        (_, passage), (start, stop) = corpus.record(i)
        answer = one["p"][slice(*one["s"])]
        assert answer in toy_vocab.decode(passage[start:stop])
        for narrower in (passage[start + 1 : stop], passage[start : stop - 1]):
            assert answer not in toy_vocab.decode(narrower)
    parts, span = corpus.record(20)
    assert span.tolist() == [-1, -1]
    parts, span = corpus.record(0)
    cut = corpus.shorten(span, [parts[0], parts[1][: span[1] - 1]], 0)
    assert cut[1].tolist() == [-1, -1] and corpus.shorten(span, parts, 0)[1] is span


def test_spans_of_squad(tmp_path, toy_vocab):
    toy_vocab.save(tmp_path / "vocab")
    passage = toy_lines(2)[1]
    word = passage.split()[2]
    asked = {
        "answers": [{"text": word, "answer_start": passage.index(word)}],
        "question": toy_lines(1)[0],
    }
    none = {"answers": [], "is_impossible": True, "question": "why?"}
    tree = {"data": [{"paragraphs": [{"context": passage, "qas": [asked, none]}]}]}
    (tmp_path / "q.json").write_text(json.dumps(tree))
    files = {"dest": tmp_path / "out", "vocab": tmp_path / "vocab"}
    preprocess(Options(input=(str(tmp_path / "q.json"),), labels="span", **files))
    corpus = open_corpus(tmp_path / "out")
    (question, text), (start, stop) = corpus.record(0)
    assert toy_vocab.decode(question) == toy_lines(1)[0]
    assert toy_vocab.decode(text[start:stop]) == word
    assert corpus.record(1)[1].tolist() == [-1, -1]


@pytest.mark.parametrize("objects", [False, True])
def test_spans_as_datasets_has_them(make, toy_vocab, capsys, objects):
    """An object of two lists, or a list of objects."""
    passage = f" {toy_lines(2)[1]}"
    word = passage.split()[2]
    start = passage.index(word)
    said = [{"text": [word, "x"], "answer_start": [at, 0]} for at in (start, start + 1)]
    records = [{"q": "who?", "p": passage, "s": one} for one in said]
    records.append({"q": "why?", "p": passage, "s": {"text": [], "answer_start": []}})
    for one in records if objects else ():
        texts = zip(*one["s"].values(), strict=True)
        one["s"] = [dict(zip(one["s"], text, strict=True)) for text in texts]
    corpus = make(records, "q,p,s", labels="span")
    (_, text), (first, stop) = corpus.record(0)
    assert toy_vocab.decode(text[first:stop]) == word
    assert corpus.record(1)[1].tolist() == [first, stop]
    assert corpus.record(2)[1].tolist() == [-1, -1]
    assert "\n  answers corrected: 1 did" in capsys.readouterr().out


def test_links_to_entities(make, toy_vocab):
    lines = toy_lines(5)
    records = []
    for i, line in enumerate(lines):
        words = line.split()[1 : 1 + i % 3]
        links = [
            [line.index(word), line.index(word) + len(word), f"Q{len(word)}"] for word in words
        ]
        records.append({"text": line, "e": links[::-1]})
    corpus = make(records, "text,e", labels="links")
    assert corpus.kind == "linked"
    for i, one in enumerate(records):
        (text,), links = corpus.record(i)
        found = [(toy_vocab.decode(text[a:b]), corpus.labels[name]) for a, b, name in links]
        given = sorted((a, lines[i][a:b], name) for a, b, name in one["e"])
        assert found == [(word, name) for _, word, name in given]
    parts, links = corpus.record(2)
    last = parts[0][: links[-1][1] - 1]
    assert len(corpus.shorten(links, [last], 0)[1]) == len(links) - 1


def test_a_token_across_the_border_belongs_to_the_span(toy_vocab):
    text = toy_lines(1)[0]
    ids = toy_vocab.encode(text)
    for start in range(len(text)):
        for stop in range(start + 1, len(text) + 1):
            if text[start:stop].strip():
                [(a, b)] = toy_vocab.token_spans(text, [(start, stop)])
                assert 0 <= a < b <= len(ids)
                assert text[start:stop].strip() in toy_vocab.decode(ids[a:b])


@pytest.mark.parametrize("form", ["class", "tags", "links", "span"])
def test_shards_joined_are_the_corpus_made_at_once(make, tmp_path, form, monkeypatch):
    monkeypatch.setattr("unitk.data.files.lines.RECORDS_IN_BLOCK", 3)
    label = {
        "class": lambda i: f"c{7 * i % 5}",
        "tags": lambda i: [f"t{(i + j) % 4}" for j in range(len(toy_lines(20)[i].split()))],
        "links": lambda i: [[0, 3, f"e{7 * i % 5}"]] * (i % 2),
        "span": lambda i: [0, 3],
    }[form]
    records = [{"a": line, "y": label(i)} for i, line in enumerate(toy_lines(20))]
    make(records, "a,y", labels=form, dest=tmp_path / "whole")
    for i in range(3):
        make(records, "a,y", labels=form, dest=tmp_path / f"part{i}", shard=f"{i}/3")
    merge(Merge(parts=tuple(tmp_path / f"part{i}" for i in range(3)), dest=tmp_path / "joined"))
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.*")]
    assert any(name.name == LABELS for name in names)
    for name in names:
        one, other = (tmp_path / kind / name for kind in ("whole", "joined"))
        assert one.read_bytes() == other.read_bytes(), name


@pytest.mark.parametrize(
    ("record", "labels", "message"),
    [
        ({"a": "x"}, "class", "line 2: no field 'y', see --label-field; there are a"),
        ({"y": "x"}, "class", "line 2: no field 'a', see --source-field; there are y"),
        ({"y": ["A"]}, "tags", "line 2: no field 'a', see --source-field; there are y"),
        ({"a": " ", "y": "x"}, "class", "line 2: field 'a' is empty; --skip-empty leaves"),
        ({"a": "x", "y": None}, "class", "'y' is empty; --skip"),
        ({"a": "x", "y": " "}, "class", "'y' is empty; --skip"),
        ({"a": "x", "y": ""}, "number", "'y' is empty; --skip"),
        ({"a": "x", "y": ["A", "B"]}, "class", r"field 'y' must be one label, got \['A', 'B'\]"),
        ({"a": "x", "y": 1.5}, "class", "must be one label, got 1.5; .*--labels number"),
        ({"a": "x", "y": ["b"]}, "class", "must be one label, .*--labels classes"),
        ({"a": "x", "y": "much"}, "number", "line 2: field 'y' must be a number, got 'much'"),
        ({"a": "x y", "y": ["A"]}, "tags", "line 2: 'y' needs 2 tags, one a word, not 1"),
        ({"a": "x", "y": 3}, "tags", "line 2: field 'y' must be a list of tags, got 3"),
        ({"a": "x", "y": [0, 2]}, "span", "characters 0 to 2 of 'y' are not within the 1 char"),
        ({"a": "x", "y": "ab"}, "span", r"'y' must be \[start, stop\] .* or null, got 'ab'"),
        ({"a": "x", "y": "{}"}, "links", r"'y' must be a list of \[start, .*, got '{}'"),
        ({"a": "x", "y": "[0, "}, "span", r"'y': not JSON \("),
        ({"a": "x", "y": {"text": ["x"]}}, "span", "no lists text and answer_start"),
        ({"a": "x", "y": {"text": ["b"], "answer_start": [0]}}, "span", "'b' is not in its pass"),
        ({"a": "x", "y": [[0, 1]]}, "links", r"must be a list of \[start, stop, entity\] in char"),
    ],
)
def test_what_a_record_lacks_is_named_with_its_line(make, record, labels, message):
    good = {
        "class": "x",
        "number": 1,
        "tags": ["A"],
        "span": [0, 1],
        "links": [[0, 1, "e"]],
    }[labels]
    with pytest.raises(DataError, match=f"x.jsonl.*{message}"):
        make([{"a": "x", "y": good}, record], "a,y", labels=labels)


@pytest.mark.parametrize("lacking", [None, "", " "])
def test_records_without_a_label_may_be_left_out(make, lacking):
    """As those of SNLI on which its readers did not agree, and empty cells of a table."""
    records = [{"a": "x", "y": name} for name in ("no", lacking, "yes")]
    corpus = make(records, "a,y", labels="class", skip_empty=True)
    assert len(corpus) == 2 and corpus.manifest["labels"] == ["no", "yes"]


def test_labels_of_valid_are_those_of_train(make, tmp_path):
    other = tmp_path / "v.jsonl"
    other.write_text(json.dumps({"a": "x", "y": "c"}) + "\n" + json.dumps({"a": "x", "y": "z"}))
    records = [{"a": "x", "y": name} for name in "cab"]
    with pytest.raises(DataError, match="v.jsonl, line 2: 'z' .*label.*c; .* --ex"):
        make(records, "a,y", valid=(str(other),))
    many = [{"a": "x", "y": f"name {number}"} for number in range(1000)]
    with pytest.raises(DataError, match=r"'c' .*label.*name 0, name 1, .*\.\.\.;"):
        make(many, "a,y", valid=(str(other),))
    other.write_text(json.dumps({"a": "x", "y": "c"}) + "\n")
    make(records, "a,y", valid=(str(other),))
    valid = open_corpus(tmp_path / "out" / "valid")
    assert valid.labels == ["a", "b", "c"] and valid.record(0)[1] == [2]
    with pytest.raises(UsageError, match="--target-field and --label-field exclude"):
        make(records, "a,y", target_field=("a",))
    with pytest.raises(UsageError, match="--labels tags.*words.*, got a,b"):
        make(records, "a,b,y", labels="tags")


@pytest.mark.parametrize("form", ["class", "tags", "links"])
def test_extra_labels_are_those_that_train_lacks(make, tmp_path, form):
    def label(name):
        return {"class": name, "tags": [name], "links": [[0, 1, name]]}[form]

    for part, name in (("v", "aa"), ("t", "z")):
        rows = [{"a": "x", "y": label(one)} for one in (name, "c")]
        (tmp_path / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    others = {one: (str(tmp_path / f"{one[0]}.jsonl"),) for one in ("valid", "test")}
    records = [{"a": "x", "y": label(name)} for name in "cab"]
    given = {"labels": form, "extra_labels": True, **others}
    make(records, "a,y", **given)
    every = ["a", "aa", "b", "c", "z"]
    each = {part: open_corpus(tmp_path / "out" / part) for part in ("train", "valid", "test")}
    assert [one.labels for one in each.values()] == [every] * 3
    found = [[every[i] for i in one.values[:, -1]] for one in each.values()]
    assert found == [["c", "a", "b"], ["aa", "c"], ["z", "c"]]
    for i in range(2):
        make(records, "a,y", dest=tmp_path / f"part{i}", shard=f"{i}/2", **given)
    merge(Merge(parts=(tmp_path / "part0", tmp_path / "part1"), dest=tmp_path / "joined"))
    for part, one in each.items():
        joined = open_corpus(tmp_path / "joined" / part)
        assert joined.labels == every and (joined.values == one.values).all()


@pytest.mark.parametrize("given", [{"labels": "number"}, {"valid": ()}])
def test_extra_labels_need_names_of_another_part(make, tmp_path, given):
    (tmp_path / "v.jsonl").write_text('{"a": "x", "y": 1}')
    files = {"valid": (str(tmp_path / "v.jsonl"),), **given}
    with pytest.raises(UsageError, match="--extra-labels .*no effect"):
        make([{"a": "x", "y": 1}], "a,y", extra_labels=True, **files)


def test_damaged_labels_are_named(make, tmp_path):
    make([{"a": "x", "y": "b"}, {"a": "x", "y": "a"}], "a,y")
    path = tmp_path / "out" / "train" / LABELS
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    with pytest.raises(DataError, match=f"{LABELS}"):
        open_corpus(tmp_path / "out").record(0)
    text = (tmp_path / "out" / "train" / MANIFEST).read_text()
    (tmp_path / "out" / "train" / MANIFEST).write_text(text.replace('"class"', '"clazz"'))
    with pytest.raises(DataError, match=MANIFEST):
        open_corpus(tmp_path / "out")
