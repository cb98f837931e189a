"""`unitk score`: figures of texts and labels, from files and from memory."""

import gzip
import json

import pytest

from unitk.errors import DataError, UsageError
from unitk.verbs import preprocess
from unitk.verbs.score import run


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hyp").write_text("the cat sat on it\nwho was it ?\n")
    (tmp_path / "ref").write_text("the cat sat on it\nwho is it ?\n")
    (tmp_path / "ref2").write_text("it sat there\nwho was it ?\n")
    (tmp_path / "src").write_text("a cat\na man\n")
    (tmp_path / "short").write_text("one line\n")
    return tmp_path


def words(line):
    run(line.split())


def test_text(files, capsys):
    words("--metric bleu,rouge,qg --hypotheses hyp --references ref --sources src")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[::2]] == [
        ["bleu", "bleu"],
        ["rouge", "rouge1"],
        ["qg", "bleu4"],
    ]
    assert "sources 2" in lines[4]


def test_each_text_has_its_rouge_and_the_worst_comes_first(files, capsys):
    words("--metric rouge --hypotheses hyp --references ref --output-format json --output each")
    whole = json.loads(capsys.readouterr().out)["rouge"]
    each = [json.loads(line) for line in (files / "each").read_text().splitlines()]
    assert [one["id"] for one in each] == [1, 0]
    assert [(one["output"][:3], one["target"][0][:3]) for one in each] == [
        ("who",) * 2,
        ("the",) * 2,
    ]
    for name in ("rouge1", "rouge2", "rougeL"):
        assert sum(one[name] for one in each) / 2 == pytest.approx(whole[name])
    with pytest.raises(UsageError, match="--overwrite"):
        words("--metric rouge --hypotheses hyp --references ref --output each")
    with pytest.raises(UsageError, match="--output .* --metric rouge"):
        words("--metric bleu --hypotheses hyp --references ref --output each")


def test_json_and_several_references(files, capsys):
    words("--metric bleu --hypotheses hyp --references ref,ref2 --output-format json")
    together = json.loads(capsys.readouterr().out)
    assert together["bleu"]["bleu"] == pytest.approx(100)
    words("--metric bleu --hypotheses hyp --references ref --references ref2 --output-format json")
    assert json.loads(capsys.readouterr().out) == together


def test_any_file_may_lack_a_reference(files, capsys):
    """An empty line is no reference of no words, whose length BLEU would compare."""
    (files / "some").write_text("\nwho was it now ?\n")
    (files / "others").write_text("the dog ate and sat on it for an hour\n\n")
    (files / "all").write_text("the dog ate and sat on it for an hour\nwho was it now ?\n")
    found = []
    for references in ("some,others", "others,some", "all"):
        words(
            "--metric bleu,rouge,meteor,chrf,stats --hypotheses hyp --sources src"
            f" --references {references} --output-format json"
        )
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] == found[2]


def test_tables_and_corpora_hold_the_same_texts(files, capsys):
    wanted = ["the cat sat on it", "who is it ?"]
    outputs = [{"outputs": [{"text": "the cat sat on it"}]}, {"outputs": []}, {"error": "x"}]
    (files / "hyp").write_text("the cat sat on it\n\n\n")
    (files / "ref").write_text("\n".join([*wanted, "no"]))
    (files / "hyp.jsonl").write_text("\n".join(map(json.dumps, outputs)))
    rows = [{"a": wanted[0], "b": ""}, {"a": wanted[1]}, {"b": "no"}]
    (files / "ref.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (files / "ref.csv").write_text("a,b\n" + "\n".join([*wanted, "no"]).replace("\n", ",\n") + ",")
    found = []
    for given in (
        "--hypotheses hyp --references ref",
        "--hypotheses hyp.jsonl --references ref",
        "--hypotheses hyp --references ref.jsonl --target-field a,b",
        "--hypotheses hyp --references ref.csv --target-field a",
    ):
        words(f"--metric bleu,rouge --output-format json {given}")
        found.append(json.loads(capsys.readouterr().out))
    assert all(one == found[0] for one in found[1:])
    with pytest.raises(DataError, match="ref.csv, line 2: no field 'target', .*; .*b"):
        words("--metric bleu --hypotheses hyp --references ref.csv")


def test_the_sides_of_a_corpus(files, capsys):
    (files / "src").write_text("the cat sat\nwho was it\n" * 9)
    (files / "tgt").write_text("it sat\nit was\n" * 9)
    pairs = "--source-file src --target-file tgt --vocab-size 23 --dest d --workers 1"
    preprocess.run(pairs.split())
    capsys.readouterr()
    words("--metric stats --hypotheses tgt --references d/train --sources d/train")
    words("--metric stats --hypotheses tgt --references tgt --sources src")
    one, other = capsys.readouterr().out.split("stats")[1:]
    assert one == other


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--metric cider --hypotheses hyp --references ref",
            "--metric must be one of bleu, rouge",
        ),
        ("--metric bleu --references ref", "--hypotheses is needed"),
        ("--metric qg --hypotheses hyp --references ref", "--metric qg needs --sources"),
        (
            "--metric qg --hypotheses hyp --references ref,ref2 --sources src",
            "takes one --references",
        ),
        (
            "--metric bleu --hypotheses hyp --references ref --sources src",
            "--sources has no effect without --metric qg or stats",
        ),
        ("--metric stats --hypotheses hyp --references ref", "--metric stats needs --sources"),
        (
            "--metric stats --hypotheses hyp --references ref --sources src --treebank hypotheses",
            "--treebank has no effect without --metric qg",
        ),
        (
            "--metric rouge --hypotheses hyp --references ref --lowercase",
            "--lowercase has no effect without --metric bleu",
        ),
        (
            "--metric class,bleu --hypotheses hyp --references ref",
            "--metric class is of labels, and bleu of texts",
        ),
        (
            "--metric class --hypotheses hyp --references ref,ref2",
            "--metric class takes one --references file",
        ),
        (
            "--metric bleu --hypotheses hyp --references ref --label-field y",
            "--label-field has no effect without --metric class",
        ),
        (
            "--metric class --hypotheses hyp --references ref --target-field y",
            "--target-field has no effect without --metric bleu",
        ),
    ],
)
def test_usage(files, line, message):
    with pytest.raises(UsageError, match=message):
        words(line)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("absent/each", r"--output absent/each: cannot write into .*absent"),
        ("short", "--output short exists already"),
        ("ref --overwrite", "--output ref is what --references reads"),
    ],
)
def test_an_output_is_refused_before_anything_is_scored(files, monkeypatch, output, message):
    monkeypatch.setattr("unitk.verbs.score.score_texts", None)
    before = (files / "ref").read_text()
    with pytest.raises(UsageError, match=message):
        words(f"--metric rouge --hypotheses hyp --references ref2,ref --output {output}")
    assert (files / "ref").read_text() == before


def test_files_of_different_length(files):
    message = "short has 1 line, but hyp has 2"
    with pytest.raises(DataError, match=message):
        words("--metric bleu --hypotheses hyp --references short")
    with pytest.raises(DataError, match="short has 1 line, but"):
        words("--metric qg --hypotheses hyp --references ref --sources short")


def test_a_text_may_have_fewer_references(files, capsys):
    (files / "ref3").write_text("\nwho was it ?\n")
    words("--metric rouge --hypotheses hyp --references ref,ref3 --output-format json")
    assert json.loads(capsys.readouterr().out)["rouge"]["rouge1"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("hyp", "ref", "said"),
    [
        (
            "a\n\nb\n",
            "a\n\nb\n",
            ["outputs without a word: 1 of 3", "references without a word: 1 of 3"],
        ),
        ("a\n \nb\n", "a\nb\nc\n", ["outputs without a word: 1 of 3"]),
        ("a\nb\n", "a\nb\n", []),
    ],
)
def test_texts_without_a_word_are_told(files, caplog, hyp, ref, said):
    """With a blank line in it, a file that is scored against itself has less than 100."""
    (files / "a").write_text(hyp)
    (files / "b").write_text(ref)
    words("--metric rouge --hypotheses a --references b")
    assert [one.message for one in caplog.records] == said


def test_plain_questions_are_split_where_asked(files, capsys):
    (files / "plain").write_text("The cat sat on it\nWho is it?\n")
    line = "--metric qg --hypotheses plain --references ref --sources src --output-format json"
    found = {}
    for option in ("", " --treebank hypotheses", " --treebank hypotheses,references"):
        words(line + option)
        found[option] = json.loads(capsys.readouterr().out)["qg"]["bleu4"]
    assert found[""] < 99 < found[" --treebank hypotheses"] == pytest.approx(100)
    assert found[" --treebank hypotheses,references"] == pytest.approx(100)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_only_newlines_end_a_text(files, capsys, ending):
    texts = ["the cat\u2028sat on\x0cit", "", "who is it ?"]
    pack = gzip.compress if ending else bytes
    for name, mark, end in (("plain", "", "\n"), ("odd", "\ufeff", "\r\n")):
        data = mark + "".join(f"{text}{end}" for text in texts)
        (files / f"{name}{ending}").write_bytes(pack(data.encode()))
    found = []
    for name in ("plain", "odd"):
        given = f"--hypotheses plain{ending} --references {name}{ending}"
        words(f"--metric bleu,rouge --output-format json {given}")
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] and found[1]["bleu"]["bleu"] == pytest.approx(100)
    assert found[1]["rouge"]["rouge1"] == pytest.approx(200 / 3)  # an empty text has no words


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ref is empty"),
        (b"good\nbad \xff\n", "ref, line 2: not UTF-8"),
        (None, "ref: No such file"),
    ],
)
@pytest.mark.parametrize("option", ["hypotheses", "references"])
def test_a_bad_file_is_one_clear_line(files, data, message, option):
    (files / "ref").unlink() if data is None else (files / "ref").write_bytes(data)
    given = {"hypotheses": "hyp", "references": "hyp", option: "ref"}
    with pytest.raises(DataError, match=message):
        words("--metric bleu " + " ".join(f"--{name} {path}" for name, path in given.items()))


def test_labels_that_predict_wrote(files, capsys):
    said = [{"id": 0, "label": "yes", "probability": 0.9}, {"id": 1, "label": "no"}]
    (files / "out.jsonl").write_text("\n".join(map(json.dumps, said)))
    (files / "out.txt").write_text("yes\nno\n")
    (files / "dev.tsv").write_text("sentence\tlabel\nso\tyes\nit\tyes\n")
    (files / "dev.csv").write_text("gold\nyes\nyes\n")
    (files / "dev.json").write_text('[{"label": "yes"}, {"label": "yes"}]')
    (files / "dev.txt").write_text("yes\r\nyes\r\n")
    references = ("dev.tsv", "dev.csv --label-field gold", "dev.json", "dev.txt")
    for given in references:
        for out in ("out.jsonl", "out.txt"):
            words(f"--metric class --hypotheses {out} --references {given}")
            assert "accuracy 50.00" in capsys.readouterr().out
    with pytest.raises(DataError, match="dev.csv, line 2: no field 'label'.*--label-field.*gold"):
        words("--metric class --hypotheses out.txt --references dev.csv")
    with pytest.raises(DataError, match="line 1: no field 'tags', see --hypothesis-field"):
        words("--metric tags --hypotheses out.jsonl --references dev.txt")
    with pytest.raises(DataError, match="short has 1 line, but out.txt"):
        words("--metric class --hypotheses out.txt --references short")


def test_tags_and_numbers(files, capsys):
    (files / "out.jsonl").write_text(
        '{"value": 1.5, "tags": ["B-A", "O"]}\n{"value": 2, "tags": []}'
    )
    (files / "dev.conll").write_text("it B-A\nis O\n\n")
    (files / "dev.txt").write_text("B-A O\n\n")
    words("--metric tags --hypotheses out.jsonl --references dev.txt --output-format json")
    assert json.loads(capsys.readouterr().out)["tags"]["f1"] == 100
    one = "--hypotheses dev.conll --hypothesis-field tags --references dev.conll --label-field tags"
    words(f"--metric tags {one}")
    assert "f1 100.00" in capsys.readouterr().out
    (files / "values").write_text("3\n4\n")
    words("--metric number --hypotheses out.jsonl --references values")
    assert "pearson 100.00" in capsys.readouterr().out
    for wrong in ("much", "nan"):
        (files / "values").write_text(f"3\n{wrong}\n")
        with pytest.raises(DataError, match=f"values, line 2 must be.*got '{wrong}'"):
            words("--metric number --hypotheses out.jsonl --references values")


def test_tags_of_another_number_are_named_by_file_and_line(files):
    (files / "dev.conll").write_text("a O\n\nit B-A\nis O\nso O\n\n")
    line = "--metric tags --hypotheses out.jsonl --references dev.conll --label-field tags"
    (files / "out.jsonl").write_text('{"tags": ["O"]}\n{"tags": ["O", "O"]}\n')
    with pytest.raises(DataError, match="conll, line 3: .*3 tags, but 2 in out.jsonl, line 2: fie"):
        words(line)


def test_choices_are_right_by_number_letter_or_text(files, capsys):
    said = [{"source": ["a", "b", "c"], "label": i, "probability": 0.9} for i in (1, 0, 1)]
    (files / "out.jsonl").write_text("\n".join(map(json.dumps, said)))
    for labels in ("1 0 0", "B A A", "c b b", "1 A b"):
        (files / "dev.txt").write_text("\n".join(labels.split()))
        words("--metric class --hypotheses out.jsonl --references dev.txt")
        assert "accuracy 66.67" in capsys.readouterr().out
    numeric = [one | {"source": ["a", "1", "0"]} for one in said]
    (files / "numeric.jsonl").write_text("\n".join(map(json.dumps, numeric)))
    (files / "dev.txt").write_text("1\n0\n0\n")  # a number, though other choices are spelled so
    words("--metric class --hypotheses numeric.jsonl --references dev.txt")
    assert "accuracy 66.67" in capsys.readouterr().out
    rows = ({"choices": {"text": ["b", "c"], "label": [1, 2]}, "label": n} for n in "211")
    (files / "arc.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words("--metric class --hypotheses out.jsonl --references arc.jsonl")
    assert "accuracy 66.67" in capsys.readouterr().out
    (files / "dev.txt").write_text("1\n0\nd\n")
    wrong = "dev.txt, line 3 must be 0 or A to 1 or B, or one of the choices, got 'd'"
    with pytest.raises(DataError, match=wrong):
        words("--metric class --hypotheses out.jsonl --references dev.txt")


def test_answers_of_squad(files, capsys):
    answers = [[{"text": "a cat", "answer_start": 5}, {"text": "cat", "answer_start": 7}], []]
    asked = [{"question": "q", "answers": one, "is_impossible": not one} for one in answers]
    tree = {"data": [{"paragraphs": [{"context": "It is a cat.", "qas": asked}]}]}
    (files / "dev.json").write_text(json.dumps(tree))
    (files / "dev.jsonl").write_text('{"right": ["a cat", "cat"]}\n{"right": []}')
    (files / "out.jsonl").write_text('{"answer": "Cat"}\n{"answer": ""}')
    for given in ("dev.json", "dev.jsonl --label-field right"):
        words(f"--metric span --hypotheses out.jsonl --references {given} --output-format json")
        figures = json.loads(capsys.readouterr().out)["span"]
        assert figures["em"] == figures["unanswerable_em"] == figures["f1"] == 100
    # as `preprocess --labels span` reads answers, of passages that predictions have with them
    sources = [["q", "It is a cat."], ["q", "It is."]]
    said = [{"source": of, "answer": one} for of, one in zip(sources, ("cat", ""), strict=True)]
    (files / "out.jsonl").write_text("\n".join(map(json.dumps, said)))
    table = {"text": ["dog", "cat"], "answer_start": [0, 8]}
    for right in ([8, 11], table):
        lines = [json.dumps({"label": one}) for one in (right, None)]
        (files / "dev.jsonl").write_text("\n".join(lines))
        words("--metric span --hypotheses out.jsonl --references dev.jsonl --output-format json")
        assert json.loads(capsys.readouterr().out)["span"]["em"] == 100
    (files / "dev.jsonl").write_text('{"label": [8, 11]}\n{"label": [8, 11]}')
    with pytest.raises(DataError, match=r"dev.jsonl, line 2.*\[8, 11\] "):
        words("--metric span --hypotheses out.jsonl --references dev.jsonl")
    (files / "dev.jsonl").write_text('{"label": 3}\n{"label": "x"}')
    with pytest.raises(DataError, match="'label' must be.*got 3"):
        words("--metric span --hypotheses out.jsonl --references dev.jsonl")


def test_line_ends_part_the_sentences_of_a_summary(files, capsys):
    """As rouge-score and transformers take them; other metrics see blanks."""
    (files / "h.jsonl").write_text(json.dumps({"output": "The cat sat.\nDogs ran home."}))
    (files / "r.jsonl").write_text(json.dumps({"target": "Dogs ran home.\nThe cat sat."}))
    (files / "h.txt").write_text("The cat sat. Dogs ran home.\n")
    (files / "r.txt").write_text("Dogs ran home. The cat sat.\n")
    found = []
    for ending in ("jsonl", "txt"):
        line = f"--metric rouge,bleu --hypotheses h.{ending} --references r.{ending}"
        words(f"{line} --output-format json")
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["rouge"]["rougeLsum"] == pytest.approx(100)
    assert found[1]["rouge"]["rougeLsum"] == found[0]["rouge"]["rougeL"] == pytest.approx(50)
    assert found[0]["bleu"] == found[1]["bleu"]


def squad(*answers):
    """A SQuAD json with a question for each answer, whose ids are q0, q1, ..."""
    context = " ".join(answers)
    asked = [
        {"id": f"q{n}", "question": "?", "answers": [{"text": one, "answer_start": 0}]}
        for n, one in enumerate(answers)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]})


@pytest.mark.parametrize("indent", [None, 1])
def test_predictions_by_id_need_no_order(files, capsys, caplog, indent):
    (files / "dev.json").write_text(squad("Oslo", "Bergen", "Hamar"))
    best = [{"text": "in Oslo", "probability": 0.6}, {"text": "Oslo"}]  # nbest_predictions.json
    own = {"q2": "Hamar", "other": ["x"], "q0": best if indent else "in Oslo"}
    (files / "predictions.json").write_text(json.dumps(own, indent=indent))
    words("--metric span --hypotheses predictions.json --references dev.json --output-format json")
    figures = json.loads(capsys.readouterr().out)["span"]
    assert figures["em"] == pytest.approx(100 / 3)
    assert figures["f1"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert "1 of 3 questions, such as q1" in caplog.text and "such as other" in caplog.text


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("first", [1, "q1"])
def test_labels_with_the_same_ids_need_no_order(files, capsys, kind, first):
    """Numbers are ids, too, but those of `unitk predict`, which are the lines."""
    ids = [first, 2 if first == 1 else "q2"]
    wanted = [{"id": one, "label": label} for one, label in zip(ids, "ab", strict=True)]
    if kind == "parquet":
        table = pytest.importorskip("pyarrow").Table.from_pylist(wanted)
        pytest.importorskip("pyarrow.parquet").write_table(table, files / "right.parquet")
    else:
        lines = map(json.dumps, wanted)
        rows = (f"{one['id']},{one['label']}" for one in wanted)
        text = "\n".join(lines if kind == "jsonl" else ["id,label", *rows])
        (files / f"right.{kind}").write_text(text)
    for said, accuracy in ((wanted[::-1], 100), ([{"id": n, "label": "a"} for n in (0, 1)], 50)):
        (files / "out.jsonl").write_text("\n".join(map(json.dumps, said)))
        words(
            f"--metric class --hypotheses out.jsonl --references right.{kind} --output-format json"
        )
        assert json.loads(capsys.readouterr().out)["class"]["accuracy"] == accuracy


def test_other_ids_are_told(files, caplog):
    """Of ids that are given twice, too: no answer is the answer to another question."""
    for said in (["q1", "q1"], ["q1", "x"]):
        (files / "dev.json").write_text(squad("Oslo", "Bergen"))
        lines = (json.dumps({"id": one, "answer": "Oslo"}) for one in said)
        (files / "out.jsonl").write_text("\n".join(lines))
        caplog.clear()
        words("--metric span --hypotheses out.jsonl --references dev.json")
        assert "(q1, q0)" in caplog.text


def test_records_with_the_ids_of_questions_need_no_order(files, capsys):
    (files / "dev.json").write_text(squad("Oslo", "Bergen"))
    said = [{"id": "q1", "answer": "Bergen"}, {"id": "q0", "answer": "Oslo"}]
    (files / "out.jsonl").write_text("\n".join(map(json.dumps, said)))
    words("--metric span --hypotheses out.jsonl --references dev.json --output-format json")
    assert json.loads(capsys.readouterr().out)["span"]["em"] == 100


def test_parts_of_speech_have_an_accuracy(files, capsys):
    (files / "h").write_text("NNP VBZ NN\n")
    (files / "r").write_text("NNP VBD NN\n")
    words("--metric tags --hypotheses h --references r --output-format json")
    figures = json.loads(capsys.readouterr().out)["tags"]
    assert figures["accuracy"] == pytest.approx(200 / 3) and "f1" not in figures
