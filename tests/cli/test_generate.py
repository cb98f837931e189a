"""`unitk generate`: lines in, lines out, in every format of input and output."""

import csv
import io
import json
import os
import shutil
import sys
import threading

import numpy as np
import pytest

import unitk
from tests.conftest import toy_lines
from unitk.api.answering import inputs_of
from unitk.data.corpus.writer import CorpusWriter, write_manifest
from unitk.data.files.columns import read_column
from unitk.data.files.documents import PlainText
from unitk.data.files.pairs import Fields
from unitk.decoding.files import outputs as outputs_module
from unitk.decoding.files.inputs import read_inputs, read_stream
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.options import config
from unitk.training.saving import checkpoint
from unitk.verbs import generate, predict
from unitk.verbs.generate import run

LINES = ["the cat sat on the mat.", "", "a dog\tthe dog sees a small bird.", "big red tree."]
QUICK = "--beam 3 --max-len 5"


@pytest.fixture(scope="module")
def trained(make_checkpoint):
    return make_checkpoint("glm_infill", "glm_tiny", "--arch.max-positions2 64")


@pytest.fixture
def generator(trained):
    loaded = checkpoint.load(trained)
    return Generator(loaded.model, loaded.task)


def texts(found):
    return [some[0].text if some else "" for some in found]


def test_lines_in_lines_out(decode, files, generator):
    decode(f"--input in.txt --output out.txt {QUICK}")
    lines = (files / "out.txt").read_text().split("\n")
    sources = [line.split("\t") for line in LINES]
    assert lines == [*texts(generator.generate(sources, beam=3, max_len=5)), ""]
    assert lines[1] == "" and all(lines[i] for i in (0, 2, 3))
    assert sorted(path.name for path in files.iterdir()) == ["in.txt", "out.txt"]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("in.csv", "source\nthe cat\n"),
        ("in.txt", '{"source":\t"the cat"}\n{"source": "a dog"}\n'),
        ("in.out", '[{"source": "the cat"},\n{"source": "a dog"}]\n'),
    ],
)
def test_records_are_read_whatever_the_file_is_called(decode, files, capsys, name, table):
    (files / name).write_text(table)
    decode(f"--input {name} --input-format text --output lines {QUICK}")
    decode(f"--input {name} --output rows {QUICK}")
    assert "warning" not in capsys.readouterr().err
    texts = 1 if name == "in.csv" else 2
    assert [(files / out).read_text().count("\n") for out in ("lines", "rows")] == [2, texts]


def test_many_outputs_that_repeat_themselves_are_counted(decode, files, capsys):
    (files / "many.txt").write_text("".join(f"{line}\n" for line in toy_lines(30)))
    for blocks in (0, 3):
        how = f"--beam 1 --min-len 24 --max-len 24 --no-repeat-ngram-size {blocks} --overwrite"
        decode(f"--input many.txt --output out.txt {how}")
        words = [line.split() for line in (files / "out.txt").read_text().splitlines()]
        threes = [[*zip(line, line[1:], line[2:], strict=False)] for line in words]
        repeats = sum(len(set(some)) < len(some) for some in threes)
        told = f"warning: {repeats} of 30 outputs" in capsys.readouterr().err
        assert told == (blocks == 0) and (blocks or repeats > 9)


def test_an_ensemble_of_a_model_with_itself(decode, trained, files, generator):
    decode(f"--input in.txt --output out.txt {QUICK} --checkpoint {trained}")
    sources = [line.split("\t") for line in LINES]
    expected = texts(generator.generate(sources, beam=3, max_len=5))
    assert (files / "out.txt").read_text().split("\n") == [*expected, ""]
    both = unitk.load([trained, trained])
    assert len(both.model.models) == 2
    assert texts(both.generate(sources, beam=3, max_len=5)) == expected


def test_load_in_python(trained, generator, toy_vocab):
    loaded = unitk.load(str(trained))
    assert loaded.vocab.hash == toy_vocab.hash
    (found,) = loaded.generate([LINES[0]], beam=3, max_len=5)
    assert found[0].text == generator.generate([LINES[0]], beam=3, max_len=5)[0][0].text
    assert not loaded.model.training
    with pytest.raises(CheckpointError, match="runs/none: .*checkpoint"):
        unitk.load("runs/none")
    with pytest.raises(UsageError, match="--task lm: .*trained.* glm_infill"):
        unitk.load(trained, task="lm")


@pytest.fixture
def meant(trained, files):
    """A checkpoint of the same weights that brings options."""
    shutil.copytree(trained, files / "meant")
    (files / "meant" / "generate.yaml").write_text("beam: 2\nmax-len: 6\nmin-len: 4\n")
    return "meant"


@pytest.mark.parametrize(
    ("more", "options", "told"),
    [
        ("", {"beam": 2, "max_len": 6, "min_len": 4}, "--beam 2 --min-len 4 --max-len 6"),
        ("--beam 3", {"beam": 3, "max_len": 6, "min_len": 4}, "--min-len 4 --max-len 6"),
        ("--config c.yaml", {"beam": 2, "max_len": 7, "min_len": 2}, "--beam 2"),
        ("--config c.yaml --min-len 1", {"beam": 2, "max_len": 7, "min_len": 1}, "--beam 2"),
        ("--sampling", {"sampling": True, "max_len": 6, "min_len": 4}, "--min-len 4 --max-len 6"),
    ],
)
def test_a_checkpoint_brings_options_that_others_override(
    meant, files, generator, capsys, more, options, told
):
    (files / "c.yaml").write_text("max-len: 7\nmin-len: 2\n")
    run(f"--checkpoint {meant} --input in.txt {more}".split())
    out, err = capsys.readouterr()
    assert set(err.splitlines()[0].split()) == {*told.split(), "#", "checkpoint", meant}
    sources = [line.split("\t") for line in LINES]
    expected = texts(generator.generate(sources, **options))
    assert out.split("\n") == [*expected, ""]
    own = {name: value for name, value in options.items() if flagged(name) not in told}
    assert texts(unitk.load(meant).generate(sources, **own)) == expected


def flagged(name):
    return "--" + name.replace("_", "-")


def test_what_a_checkpoint_brings_is_for_generating_from_sources(meant, trained, capsys, files):
    """Blanks are filled as ever; scores are those of its search, and read nothing else of it."""
    text = "the [MASK] sat on [MASK]."
    found = []
    for path in (meant, trained):
        run(["--checkpoint", str(path), "--infill", text, "--max-len", "5"])
        found.append(capsys.readouterr())
    assert found[0] == found[1] and not found[0].err
    one, other = (unitk.load(path).infill(text, max_len=5)[0][0] for path in (meant, trained))
    assert one.text == other.text == found[0].out.strip()
    (files / meant / "generate.yaml").write_text("lenpen: 0.5\nbeam: 2\nmin-len: 4\n")
    (files / "wanted").write_text("a dog\n" * 3)
    (files / "three").write_text("the cat\n" * 3)
    run(f"--checkpoint {meant} --input three --references wanted --score".split())
    by_default, told = capsys.readouterr()
    assert told.startswith("--lenpen 0.5  #")  # what counts here, and nothing else
    line = f"--checkpoint {trained} --input three --references wanted --score --lenpen"
    run(f"{line} 0.5".split())
    assert capsys.readouterr().out == by_default
    run(f"{line} 1".split())
    assert capsys.readouterr().out != by_default
    scores = [
        unitk.load(meant).score("the cat", "a dog"),
        unitk.load(trained).score("the cat", "a dog", lenpen=0.5),
    ]
    assert scores[0][0].hypothesis.score == scores[1][0].hypothesis.score


def test_an_option_may_need_one_that_the_checkpoint_brings(meant, capsys, files):
    """A source meets it, whatever texts with blanks would say, which none of these is."""
    for own, given in {"beam: 7": "--nbest 6", "sampling: on": "--sampling-topk 3"}.items():
        (files / meant / "generate.yaml").write_text(f"{own}\nmax-len: 4\n")
        run(f"--checkpoint {meant} --input in.txt {given}".split())
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == (6 if own == "beam: 7" else 1) * len(LINES)


def test_mistakes_in_what_a_checkpoint_brings(meant, files, monkeypatch):
    line = f"--checkpoint {meant} --input in.txt"
    with pytest.raises(UsageError, match=r"got 4 \(--min-len 4: the checkpoint's generate.yaml\)"):
        run(f"{line} --max-len 3".split())
    with pytest.raises(UsageError, match=r"got 4 \(--min-len 4: the checkpoint's generate.yaml\)"):
        unitk.load(meant).generate("the cat", max_len=3)
    (files / meant / "generate.yaml").write_text("min-leng: 4\n")
    for start in (lambda: run(line.split()), lambda: unitk.load(meant)):
        with pytest.raises(CheckpointError, match="generate.yaml: --min-leng .*mean --min-len"):
            start()


def test_an_ensemble_has_the_options_of_its_first_model(meant, trained, files, capsys, caplog):
    outputs = []
    for paths in ([meant, trained], [trained, meant], [meant, meant]):
        run(f"--checkpoint {paths[0]},{paths[1]} --input in.txt --max-len 6".split())
        outputs.append(capsys.readouterr())
        assert ("--min-len 4  # checkpoint" in outputs[-1].err) == (paths[0] == meant)
        told = f"the models differ in generate.yaml: that of {paths[0]} is used"
        assert (told in caplog.text) == (paths[0] != paths[1])
        caplog.clear()
    assert outputs[0].out == outputs[2].out != outputs[1].out


def test_options_of_task_and_architecture(make_checkpoint, decode, trained, files, generator):
    """They hold where the weights stay as they are; what would change a shape is named."""
    decode(f"--input in.txt --output out.txt {QUICK} --task.mask-place last --arch.norm-eps 0.5")
    more = "--arch.max-positions2 64 --task.mask-place last --arch.norm-eps 0.5"
    there = checkpoint.load(make_checkpoint("glm_infill", "glm_tiny", more))  # the same weights
    sources = [line.split("\t") for line in LINES]
    expected = Generator(there.model, there.task).generate(sources, beam=3, max_len=5)
    assert (files / "out.txt").read_text().split("\n") == [*texts(expected), ""]
    options = {"task.mask-place": "last", "arch.norm-eps": "0.5"}
    loaded = unitk.load(trained, options=options)
    assert texts(loaded.generate(sources, beam=3, max_len=5)) == texts(expected)
    assert texts(expected) != texts(generator.generate(sources, beam=3, max_len=5))
    for option, value in (("--arch.width", "64"), ("--arch.max-positions", "128")):
        with pytest.raises(UsageError, match=f"{option} changes .*embed"):
            decode(f"--input in.txt {option} {value}")
    with pytest.raises(UsageError, match=r"--task\.mask-plaze: .*mean"):
        decode("--input in.txt --task.mask-plaze last")
    with pytest.raises(UsageError, match="--beam: options.* and arch"):
        unitk.load(trained, options={"beam": "3"})


def test_standard_input_and_output(decode, files, monkeypatch, capsys):
    decode(f"--input in.txt --output out.txt {QUICK}")
    data = (files / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    capsys.readouterr()
    decode(f"--input - {QUICK}")
    shown = capsys.readouterr()
    assert shown.out == (files / "out.txt").read_text()
    assert shown.err == ""


def test_nbest_has_scores_and_as_many_lines_for_every_input(decode, capsys, generator):
    decode(f"--input in.txt {QUICK} --nbest 2")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[2:4] == ["", ""]
    found = generator.generate([LINES[0]], beam=3, max_len=5, nbest=2)[0]
    assert lines[:2] == [f"{one.hypothesis.score:.4f}\t{one.text}" for one in found]


def test_beginnings(decode, files, capsys, generator):
    (files / "begin.txt").write_text("The bade\n\n\nThe\n")
    decode("--input in.txt --prefix-file begin.txt --beam 3 --max-len 0.5x+3")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("The bade") and lines[1] == "" and lines[3].startswith("The")
    sources = [line.split("\t") for line in LINES]
    asked = ["The bade", "", "", "The"]
    assert lines == texts(generator.generate(sources, prefixes=asked, beam=3, max_len="0.5x+3"))


def test_phrases(decode, files, capsys, generator):
    (files / "need.txt").write_text("bade\tfido tata\n\n\nthe bade\n")
    decode("--input in.txt --constraints need.txt --beam 4 --max-len 12")
    lines = capsys.readouterr().out.splitlines()
    assert "bade" in lines[0] and "fido tata" in lines[0] and "the bade" in lines[3]
    asked = [["bade", "fido tata"], [], [""], ["the bade"]]
    sources = [line.split("\t") for line in LINES]
    found = generator.generate(sources, constraints=asked, beam=4, max_len=12)
    assert lines == texts(found)
    (files / "need.txt").write_text("\n\n\nbade\tx\u4e00y\n")
    with pytest.raises(DataError, match="--constraints need.txt, line 4: .*spell 'x\u4e00y'"):
        decode(f"--input in.txt --constraints need.txt {QUICK}")


def test_rules_that_leave_nothing_are_told(decode, files, capsys, caplog):
    (files / "need.txt").write_text("bade\n\n\n\n")
    (files / "bad.txt").write_text("bade\n")
    decode("--input in.txt --constraints need.txt --bad-words bad.txt --beam 2 --max-len 8")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "" and lines[2]
    assert "rules allow: 1, first" in caplog.text
    with pytest.raises(UsageError, match="--diverse-beam-strength .*no effect"):
        decode("--input in.txt --diverse-beam-strength 0.1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("The\n", "begin.txt has 1 line for 4 inputs"),
        ("\nThe \u4e00\n\n\n", "--prefix-file begin.txt, line 2: .* cannot spell '\u4e00'"),
        ("The bade fido bade fido\n\n\n\n", "input 1 begins with .* tokens, and --max-len is 5"),
    ],
)
def test_beginnings_that_cannot_be(decode, files, text, message):
    (files / "begin.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        decode(f"--input in.txt --prefix-file begin.txt {QUICK}")


def test_json_lines(decode, files, capsys, generator):
    parts = LINES[2].split("\t")
    records = [{"source": LINES[0], "target": "who?"}, {"source": parts}]
    lines = [*map(json.dumps, records), ""]
    (files / "in.jsonl").write_text("\n".join(lines) + "\n")
    decode(f"--input in.jsonl --output-format jsonl --nbest 2 {QUICK}")
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["id"] for one in shown] == [0, 1, 2]
    assert [one["source"] for one in shown] == [LINES[0], parts, ""]
    assert [one.get("target") for one in shown] == ["who?", None, None]
    assert [len(one["outputs"]) for one in shown] == [2, 2, 0]
    expected = generator.generate([LINES[0]], beam=3, max_len=5, nbest=2)[0][0]
    best = shown[0]["outputs"][0]
    assert best["text"] == expected.text
    assert best["score"] == pytest.approx(expected.hypothesis.score, rel=1.5e-5, abs=1.5e-5)
    assert best["log_prob"] == pytest.approx(sum(best["token_log_probs"]), abs=1e-4)
    assert len(best["tokens"]) == len(expected.hypothesis.ids)


def test_the_name_of_the_output_chooses_its_format(decode, files, capsys, generator):
    odd = ['the "cat", sat', "", "fido\r"]
    with (files / "in.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([["ticket"], *([text] for text in odd)])
    decode(f"--input in.csv --source-field ticket --nbest 2 --output out.csv {QUICK}")
    with (files / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["0", "0", "1", "2", "2"]
    (first, second), (last, _) = generator.generate(odd[::2], beam=3, max_len=5, nbest=2)
    assert [row["output"] for row in rows[:3]] == [first.text, second.text, ""]
    score = pytest.approx(first.hypothesis.score, rel=1e-5)
    assert float(rows[0]["score"]) == score and rows[2]["score"] == ""
    decode(f"--input in.csv --source-field ticket --output out.jsonl {QUICK}")
    lines = (files / "out.jsonl").read_text().splitlines()
    assert json.loads(lines[2])["outputs"][0]["text"] == last.text
    decode(f"--input in.csv --source-field ticket --output one.csv {QUICK}")
    # `unitk score` reads both
    for name in ("out.jsonl", "one.csv"):
        found = read_column(files / name, "output", ())
        assert found == [[first.text], [""], [last.text]]
    with pytest.raises(UsageError, match="--print-alignment .*no column.*csv"):
        decode(f"--input in.csv --print-alignment hard --output a.csv {QUICK}")


def test_squad(decode, files, capsys, generator):
    question = {"question": "who sat?", "answers": [{"text": "the cat"}]}
    paragraph = {"context": "the cat sat on the mat.", "qas": [question]}
    (files / "in.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    decode(f"--input in.json {QUICK}")
    expected = generator.generate([["the cat", paragraph["context"]]], beam=3, max_len=5)
    assert capsys.readouterr().out.splitlines() == texts(expected)
    decode(f"--input in.json {QUICK}", "--squad-source", "{passage} [SEP] {answer}")
    expected = generator.generate([[paragraph["context"], "the cat"]], beam=3, max_len=5)
    assert capsys.readouterr().out.splitlines() == texts(expected)
    paragraph["context"] += " The dog sat on the cat."
    (files / "in.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    decode(f"--input in.json {QUICK}", "--squad-source", "{sentence} [SEP] {answer}")
    assert capsys.readouterr().out.splitlines() == texts(expected)


def test_a_window_around_the_answer_is_as_in_training(files, toy_vocab, capsys):
    lines = toy_lines(9)
    passage = " ".join([*lines[:4], "Bade.", *lines[4:8], "Bade.", lines[8]])
    answer = {"text": "Bade.", "answer_start": passage.rindex("Bade.")}
    paragraph = {"context": passage, "qas": [{"question": lines[0], "answers": [answer]}]}
    (files / "x.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    toy_vocab.save(files / "vocab")
    for limit in (20, 30):
        given = {"input": "x.json", "test": "x.json", "vocab": "vocab", "window": limit}
        unitk.preprocess(**given, dest=f"d{limit}")
    small = {"num_layers": 1, "width": 16, "num_heads": 2, "ffn_width": 32, "init_std": 0.3}
    options = {f"arch.{name}": value for name, value in small.items()}
    where = {"data": "d20", "save_dir": "run", "arch": "gpt2_tiny", "valid": "none"}
    for _ in unitk.train(task="lm", max_steps=1, batch_texts=1, options=options, **where):
        pass
    first_place = f"Bade.\t{passage[: passage.rindex('Bade.')]}"
    (files / "first.txt").write_text(first_place + "\n")
    capsys.readouterr()

    def decode(line):
        run(f"--checkpoint run --output-format jsonl --max-len 4 --beam 2 {line}".split())
        return [one["score"] for one in json.loads(capsys.readouterr().out)["outputs"]]

    found = decode("--input x.json")
    assert found == decode("--input d20/test")
    assert decode("--input x.json --max-source-len 30") == decode("--input d30/test")
    parts = ["Bade.", passage]
    model = unitk.load("run")
    in_python = [
        [round(one[0].hypothesis.score, 6) for one in model.generate([parts], beam=2, **more)]
        for more in ({"max_len": 4}, {"max_len": 4, "max_source_len": 1000})
    ]
    # a text does not say where its answer is: the first place is taken
    first = decode("--input first.txt")[:1]
    assert in_python[0] == pytest.approx(first, rel=1e-5)
    assert first != pytest.approx(found[:1], rel=1e-5)
    (files / "x.txt").write_text("\t".join(parts) + "\n")
    whole = decode("--input x.txt --max-source-len none")
    assert in_python[1] == pytest.approx(whole[:1], rel=1e-5)
    assert len({round(one, 4) for one in (*found, *whole, *in_python[0])}) == 3


@pytest.mark.parametrize("whole", [True, False])
def test_the_sentence_of_an_answer_is_read_as_in_training(files, toy_vocab, capsys, whole):
    first, second, third = ("The " + line.strip(".") + "." for line in toy_lines(3))
    window = None if whole else len(toy_vocab.encode(second)) - 3
    passage = f"{first} {second} {third}"
    answer = {"text": second.split()[2], "answer_start": passage.index(second.split()[2])}
    paragraph = {"context": passage, "qas": [{"question": first, "answers": [answer]}]}
    (files / "x.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    toy_vocab.save(files / "vocab")
    form = "{answer} [SEP] {sentence}"
    given = {"input": "x.json", "test": "x.json", "vocab": "vocab", "squad_source": form}
    unitk.preprocess(**given, **({"window": window} if window else {}), dest="d")
    small = {"num_layers": 1, "width": 16, "num_heads": 2, "ffn_width": 32, "init_std": 0.3}
    options = {f"arch.{name}": value for name, value in small.items()}
    where = {"data": "d", "save_dir": "run", "arch": "gpt2_tiny", "valid": "none"}
    for _ in unitk.train(task="lm", max_steps=1, batch_texts=1, options=options, **where):
        pass
    (files / "x.txt").write_text(f"{answer['text']}\t{passage}\n")
    (files / "sentence.txt").write_text(f"{answer['text']}\t{second}\n")
    capsys.readouterr()

    def scores(line):
        run([*f"--checkpoint run --output-format jsonl --max-len 4 --beam 2 {line}".split()])
        return [one["score"] for one in json.loads(capsys.readouterr().out)["outputs"]]

    found = [scores(f"--input {name}") for name in ("d/test", "x.json", "x.txt", "sentence.txt")]
    assert found[0] == found[1] == found[2] == found[3]
    source = unitk.data.corpus.folders.open_corpus(files / "d" / "test").record(0)[0]
    kept = toy_vocab.decode(source[1])
    assert kept == second if window is None else kept in second and len(kept) < len(second)


def pairs(folder, vocab, items):
    """A corpus of (parts, target)."""
    folder.mkdir()
    sides = {"source": [p for p, _ in items], "target": [[t] for _, t in items]}
    for side, documents in sides.items():
        writer = CorpusWriter(folder / side, len(vocab))
        ids = [vocab.encode(sentence) for document in documents for sentence in document]
        sizes = np.array([len(document) for document in documents])
        writer.add(np.concatenate(ids), np.array([*map(len, ids)]), sizes)
        writer.close({"vocab": vocab.hash})
    vocab.save(folder / "vocab")
    write_manifest(folder, {"kind": "pairs", "vocab": vocab.hash})


def test_a_corpus_and_fairseq_lines(decode, files, capsys, toy_vocab, generator):
    items = [(["the cat sat."], "who?"), (LINES[2].split("\t"), "what?")]
    pairs(files / "test", toy_vocab, items)
    decode(f"--input test --output-format fairseq --nbest 2 {QUICK}")
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    one = ["S", "T", "H", "D", "P", "H", "D", "P"]
    assert [line[0] for line in lines] == [f"{kind}-{i}" for i in range(2) for kind in one]
    found = generator.generate([parts for parts, _ in items], beam=3, max_len=5, nbest=2)
    for i, (parts, target) in enumerate(items):
        some = lines[8 * i : 8 * i + 8]
        spelt = [" ".join(toy_vocab.pieces(toy_vocab.encode(part))) for part in parts]
        assert some[0][1] == " [SEP] ".join(spelt)
        spelt = " ".join(toy_vocab.pieces(toy_vocab.encode(target)))
        assert some[1][1] == spelt.replace("[UNK]", "<[UNK]>")
        for (_, score, pieces), (_, again, text), (_, gains), output in zip(
            some[2::3], some[3::3], some[4::3], found[i], strict=True
        ):
            each = [float(gain) for gain in gains.split(" ")]
            wanted = output.hypothesis.token_log_probs / np.log(2)
            assert len(each) == len(output.hypothesis.ids)  # the end has one too
            assert each == pytest.approx(wanted, abs=1e-4)
            assert float(score) == pytest.approx(
                output.hypothesis.score / np.log(2), rel=1.5e-5, abs=1.5e-5
            )
            assert (again, text) == (score, output.text)
            assert pieces.split(" ") == toy_vocab.pieces(output.hypothesis.ids[:-1])


def test_fairseq_lines_of_an_empty_input(decode, capsys):
    decode(f"--input in.txt --output-format fairseq {QUICK}")
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:8] == ["S-1\t", "H-1\t0\t", "D-1\t0\t", "P-1\t"]
    assert [line.split("\t")[0] for line in lines if line[0] == "D"] == [f"D-{i}" for i in range(4)]


def test_infill(decode, capsys, generator, toy_vocab):
    decode(QUICK, "--infill", "the [MASK] sat on the [MASK].")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("the") and "MASK" not in line and line.endswith(".")
    decode(f"{QUICK} --nbest 3", "--infill", "the [MASK] sat on the [MASK].")
    lines = [one.split("\t") for one in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3 and lines[0][1] == line
    scores = [float(score) for score, _ in lines]
    assert scores == sorted(scores, reverse=True)
    (found,) = generator.infill(["the [MASK] sat on the [MASK]."], beam=3, max_len=5)
    assert found[0].text == line
    assert (found[0].hypothesis.ids == toy_vocab.eop).sum() == 2


def test_a_source_that_is_too_long(decode, files, capsys, caplog, generator, toy_vocab):
    passage = " ".join(["the cat sat on the mat"] * 12)
    (files / "long.txt").write_text(f"{LINES[0]}\na dog\t{passage}\n")
    with pytest.raises(DataError, match=r"input 2 .*too long.* \d+ for the 64 positions"):
        decode(f"--input long.txt {QUICK}")
    decode(f"--input long.txt --truncate {QUICK}")
    assert "shortened 1 of 2 sources" in caplog.text
    source = generator.encode([["a dog", passage]])[0]
    room = 64 - 4 - len(source[0])  # start, blank, separator, end
    short = generator.outputs(Sources([[source[0], source[1][:room]]]), generator_config())
    assert capsys.readouterr().out.splitlines()[1] == texts(short)[0]


def generator_config():
    from unitk.decoding.config import GenerateConfig

    return GenerateConfig(beam=3, max_len=5)


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        (
            "--max-len 5",
            UsageError,
            r"give texts, --input FILE, --infill TEXT\|FILE, .* got",
        ),
        (
            "--input in.txt --infill [MASK]",
            UsageError,
            r"give texts, --input FILE, --infill TEXT\|FILE, .* got",
        ),
        ("--infill [MASK] --truncate", UsageError, "--truncate .*with --infill"),
        ("--infill [MASK] --max-source-len 9", UsageError, "--max-source-len .*with --infill"),
        ("--infill [MASK] --input-format text", UsageError, "--input-format has no effect"),
        ("--input . --input-format text", UsageError, "--input-format and --source-field have"),
        ("--input in.txt --squad-source {answer}{passage}", UsageError, "no effect on text"),
        ("--infill nothing", UsageError, r"no blank in 'nothing'; write one as ___, \[MASK\]"),
        ("--input missing.txt", DataError, "missing.txt: No such file"),
        ("--input in.md --source-field a", UsageError, "--source-field has no effect on in.md"),
        ("--input in.txt --output no/out", UsageError, "--output no/out: cannot write into"),
        ("--input in.txt --max-len 99", UsageError, "--max-len 99 is more .* at most 62"),
    ],
)
def test_what_cannot_be_meant(decode, files, line, error, message):
    (files / "in.md").write_text("a\n")
    with pytest.raises(error, match=message):
        decode(line)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("in.txt", b"", "in.txt is empty"),
        ("in.txt", b"a\n\xff\n", "in.txt, line 2: not UTF-8"),
        (
            "in.jsonl",
            b'{"source": "a"}\n{"sauce": "b"}\n',
            "in.jsonl, line 2: no field 'source'.* there are sauce",
        ),
        ("in.jsonl", b'{"source": ["a", 1]}\n', "in.jsonl, line 1: .*'source' must be"),
        ("in.jsonl", b'{"source": "a", "target": 3}\n', "in.jsonl, line 1: .*'target' must be"),
        ("in.jsonl", b"a\n", "in.jsonl, line 1: not JSON"),
        ("in.json", b'{"data": [{}]}', "no list 'paragraphs'"),
    ],
)
def test_bad_input_is_refused(decode, files, name, data, message):
    (files / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        decode(f"--input {name} --output out.txt")
    assert not (files / "out.txt").exists()


@pytest.mark.parametrize("record", [{}, {"t": None}, {"t": []}, {"t": ["b", "c"]}, {"t": "b"}])
def test_targets_are_needed_to_score_only(tmp_path, record):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"s": "a", **record}))
    wanted = "b" if record.get("t") else None
    [found] = read_inputs(path, fields=Fields(("s",), ("t",)))
    assert (found.parts, found.target) == (["a"], wanted)
    renamed = {"target": record["t"]} if record.get("t") else {}
    path.write_text(json.dumps({"source": "a", **renamed}))
    [found] = read_inputs(path)
    assert (found.parts, found.target) == (["a"], wanted)


def test_tables_and_questions_are_read_from_a_stream(tmp_path):
    squad = {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]}

    def read(data, line, verb=generate):
        pipe = tmp_path / f"pipe{len(line)}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(data,))
        writer.start()
        argv = ["--checkpoint", "x", "--input", str(pipe), *line.split()]
        name = verb.__name__.rpartition(".")[2]
        parsed = config.parse(name, verb.Options, argv, positional="texts")
        try:
            given = generate.read(parsed.main) if verb is generate else inputs_of(parsed, True)
            return [one.parts for one in given]
        finally:
            writer.join()

    assert read("s\na\nb\n", "--input-format csv --source-field s") == [["a"], ["b"]]
    assert read("a O\n\nb O\n", "--input-format conll --source-field words") == [["a"], ["b"]]
    assert read(json.dumps(squad), "--input-format squad", predict) == [["b", "a"]]


def test_a_stream_of_carriage_returns_is_told(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"one\rtwo\r")
    with pytest.raises(DataError, match="x: lines.*returns"):
        next(read_stream(PlainText(), 8, path))
    path.write_bytes(b"one\r\ntwo\rthree")
    [texts] = read_stream(PlainText(), 8, path)
    assert [text.parts for text in texts] == [["one"], ["two\rthree"]]


def test_a_corpus_of_another_vocabulary(decode, files):
    from unitk.vocab.train import train_vocab

    other = train_vocab(["a b c d e f g h i j k l m n"] * 9, 24)
    (files / "bin").mkdir()
    pairs(files / "bin" / "test", other, [(["a b"], "c")])
    with pytest.raises(DataError, match="bin/test .*made.*check"):
        decode("--input bin/test")
    with pytest.raises(DataError, match="bin .*folder.*name bin/test"):
        decode("--input bin")


def test_a_full_disk_leaves_the_old_output(files):
    (files / "out.txt").write_text("old")

    def lines():
        yield "half"
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match="--output out.txt: No space.*device"):
        outputs_module.write(lines(), outputs_module.Path("out.txt"), replace=True)
    assert [path.name for path in files.glob("*out.txt*")] == ["out.txt"]
    assert (files / "out.txt").read_text() == "old"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_answers_every_input(decode, capsys, precision):
    decode(f"--input in.txt --precision {precision} {QUICK}")
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_part_that_a_source_lacks_and_blanks_that_none_has(decode, files):
    with pytest.raises(DataError, match="input 1 .*1 part, .*--avoid-part .*3"):
        decode("--input in.txt --avoid-part 3")
    with pytest.raises(UsageError, match="--rerank .*without blanks"):
        decode("--input in.txt --rerank on --max-len 9")
    with pytest.raises(UsageError, match="--rerank .*without blanks"):
        decode("--rerank on --max-len 9", LINES[0])
    (files / "folder").mkdir()
    with pytest.raises(UsageError, match="--infill folder "):
        decode("--infill folder")
