"""Sources that come and outputs that go: streams, questions, scores, alignments, resumption."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import unitk
from unitk.data.files.readers import line_reader
from unitk.decoding.files.inputs import read_stream
from unitk.decoding.files.sink import OutputFile
from unitk.errors import DataError, UsageError
from unitk.files import seal
from unitk.verbs.generate import run

LINES = ["the cat sat on the mat.", "", "a dog\tthe dog sees a bird.", "big red tree.", "babe."]
QUICK = "--beam 2 --max-len 4"


@pytest.fixture(scope="session")
def trained(make_checkpoint):
    return make_checkpoint("seq2seq", "mass_tiny")


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# streams


def test_whatever_is_there_is_taken_at_once(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    inputs = read_stream(line_reader("text"), 3)

    def write(data):
        os.write(writing, data)

    def sources():
        return ["|".join(one.parts) for one in next(inputs)]

    write(b"one\ntwo\tparts\n\nfo")
    assert sources() == ["one", "two|parts", ""]
    write(b"ur\nfive")
    assert sources() == ["four"]
    write(b"\n1\n2\n3\n4\n")
    assert sources() == ["five", "1", "2"]
    assert sources() == ["3", "4"]
    write(b"last")
    os.close(writing)
    assert sources() == ["last"]
    with pytest.raises(StopIteration):
        next(inputs)


def test_a_line_is_answered_before_the_next_one_comes(decode, monkeypatch, capsys):
    decode(f"--input in.txt {QUICK}")
    expected = capsys.readouterr().out.split("\n")[:-1]
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    answers = []

    def talk():
        with os.fdopen(read_out) as out:
            for line in LINES:
                os.write(write_in, (line + "\n").encode())
                answers.append(out.readline().rstrip("\n"))
            os.close(write_in)

    monkeypatch.setattr(sys, "stdin", os.fdopen(read_in))
    with os.fdopen(write_out, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        thread = threading.Thread(target=talk)
        thread.start()
        decode(f"--input - {QUICK}")
        thread.join()
    assert answers == expected


def test_a_named_pipe_is_a_stream_too(decode, files, capsys):
    """One pipe for the questions, another one for the answers: each is there before the next."""
    decode(f"--input in.txt {QUICK}")
    expected = capsys.readouterr().out.split("\n")[:-1]
    pipes = files / "questions", files / "answers"
    for pipe in pipes:
        os.mkfifo(pipe)
    answers = []

    def talk():
        with pipes[1].open() as read, pipes[0].open("w", buffering=1) as ask:
            for line in LINES:
                ask.write(line + "\n")
                answers.append(read.readline().rstrip("\n"))

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        with pipes[1].open("w") as out, redirect_stdout(out):
            decode(f"--input questions {QUICK}")
    finally:
        thread.join()
    assert answers == expected


def test_a_pipe_beside_other_files_is_read_whole(decode, files, capsys):
    (files / "begin.txt").write_text("the\n" * 5)
    decode(f"--input in.txt --prefix-file begin.txt {QUICK}")
    expected = capsys.readouterr().out
    os.mkfifo(files / "pipe")
    thread = threading.Thread(target=(files / "pipe").write_text, args=("\n".join(LINES),))
    thread.start()
    decode(f"--input pipe --prefix-file begin.txt --output out.txt {QUICK}")
    thread.join()
    assert (files / "out.txt").read_text() == expected


def test_bad_lines_of_a_stream(decode, monkeypatch, capsys):
    stdin(monkeypatch, b"")
    with pytest.raises(DataError, match="standard input .*empty"):
        decode(f"--input - {QUICK}")
    long = " ".join(["the cat"] * 80)
    lines = ["the cat.", "a dog.", "", "the bird."]
    stdin(monkeypatch, "".join(line + "\n" for line in lines).encode())
    decode(f"--input - {QUICK}")
    good = capsys.readouterr().out.splitlines()
    for size in (1, 1024):  # whatever arrives together: only the bad ones are not answered
        some = f"{lines[0]}\n{long}\n{lines[1]}\n\n".encode() + b"\xff\n" + lines[3].encode()
        stdin(monkeypatch, some)
        decode(f"--input - --buffer-size {size} {QUICK}")
        shown = capsys.readouterr()
        assert shown.out.splitlines() == [good[0], "", good[1], good[2], "", good[3]]
        assert "unitk generate: input 2 is too long" in shown.err
        assert "unitk generate: standard input, line 5: not UTF-8 (byte 0xff)" in shown.err
    records = [{"dialogue": "the cat."}, {"talk": "a"}, {"dialogue": "a dog."}]
    some = "\n".join(map(json.dumps, records)) + "\n[[[\n"
    stdin(monkeypatch, some.encode())
    decode(f"--input - --source-field dialogue --output-format jsonl {QUICK}")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["outputs"][0]["text"] for one in found[::2]] == good[:2]
    where = "standard input, line"
    wanted = f"{where} 2: no field 'dialogue', see --source-field; there are talk"
    assert found[1] == {"id": 1, "error": wanted}
    assert found[3]["id"] == 3 and found[3]["error"].startswith(f"{where} 4: not JSON")


def test_any_table_is_an_input(decode, files, capsys):
    texts = ["the cat.", "a dog.", "the bird."]
    (files / "in.txt").write_text("\n".join(texts))
    (files / "in.md").write_text("\n".join(texts))
    (files / "in.csv").write_text("id,talk\n" + "".join(f"{i},{t}\n" for i, t in enumerate(texts)))
    (files / "in.json").write_text(json.dumps([{"talk": text} for text in texts]))
    decode(f"--input in.txt {QUICK}")
    expected = capsys.readouterr().out
    for line in ("in.csv --source-field talk", "in.json --source-field talk", "in.md"):
        decode(f"--input {line} {QUICK}")
        assert capsys.readouterr().out == expected
    with pytest.raises(DataError, match="line 2: no field 'source'.*talk"):
        decode("--input in.csv")
    with pytest.raises(DataError, match="id, talk; .*talk"):
        decode("--input in.csv --source-field Talk")
    with pytest.raises(UsageError, match="--source-field .*no effect.* in.txt, .*text"):
        decode("--input in.txt --source-field talk")


def test_a_closed_pipe(decode, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(BrokenPipeError):  # the program ends quietly: unitk_cli.main
            decode(f"--input in.txt {QUICK}")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            out.close()


@pytest.mark.parametrize("more", ["", "--sampling --nbest 2 --seed 3"])
def test_buffers_change_nothing(decode, files, more):
    line = f"--input in.txt --max-len 4 {more}"
    decode(f"{line} --output whole.txt")
    for size in (1, 2, 3):
        decode(f"{line} --output parts.txt --buffer-size {size} --overwrite")
        assert (files / "parts.txt").read_text() == (files / "whole.txt").read_text()


def test_interactive(decode, monkeypatch, capsys, make_checkpoint):
    decode(f"--input in.txt {QUICK}")
    expected = capsys.readouterr().out
    stdin(monkeypatch, ("\n".join(LINES)).encode())
    decode(f"--interactive {QUICK}")
    shown = capsys.readouterr()
    assert shown.out == expected
    assert shown.err == "> " * 6 + "\n"
    long = " ".join(["the cat"] * 80)
    stdin(monkeypatch, f"{LINES[0]}\n{long}\n{LINES[0]}\n".encode())
    decode(f"--interactive {QUICK}")
    shown = capsys.readouterr()
    first = expected.split("\n")[0]
    assert shown.out == f"{first}\n\n{first}\n"  # an answer a line
    assert "unitk generate: input 2 is too long" in shown.err


@pytest.mark.parametrize("more", ["", "--lenpen 1 --max-len 6"])
def test_blanks_that_are_typed_have_the_options_of_infill(
    files, monkeypatch, capsys, make_checkpoint, more
):
    path = make_checkpoint("glm_infill", "glm_tiny", "--arch.max-positions2 128")
    shutil.copytree(path, "meant")
    Path("meant/generate.yaml").write_text("beam: 2\nmin-len: 4\nlenpen: 2\n")
    blanks, source = "the [MASK] sat on [MASK].", "big red tree."
    given = ["--checkpoint", "meant", *more.split()]
    stdin(monkeypatch, f"{blanks}\n{source}\n".encode())
    run([*given, "--interactive"])
    filled, written, end = capsys.readouterr().out.split("\n")
    run([*given, "--infill", blanks])
    assert capsys.readouterr().out == f"{filled}\n" and not end
    Path("one").write_text(source)
    run([*given, "--input", "one"])
    assert capsys.readouterr().out == f"{written}\n"


def test_masks_that_are_typed_are_filled(decode, monkeypatch, capsys, make_checkpoint):
    mlm = make_checkpoint("mlm", "bert_tiny")
    stdin(monkeypatch, b"the [MASK] sat.\nno blank\n")
    decode("--interactive", path=mlm)
    shown = capsys.readouterr()
    filled, none = shown.out.split("\n")[:2]
    assert filled == unitk.load(mlm).infill(["the [MASK] sat."])[0][0].text
    assert none == "" and "task mlm fills [MASK]s" in shown.err


# scores


def test_scores_of_references(decode, files, capsys, trained):
    references = ["the babe.", "", "", "mat", "the"]
    (files / "ref.txt").write_text("\n".join(references) + "\n")
    decode("--input in.txt --score --references ref.txt --lenpen 0.5 --output out.txt")
    shown = capsys.readouterr()
    lines = [line.split("\t") for line in (files / "out.txt").read_text().split("\n")[:-1]]
    assert len(lines) == 5 and lines[1] == [""]
    generator = unitk.load(trained)
    kept = [0, 2, 3, 4]
    sources = [LINES[i].split("\t") for i in kept]
    found = generator.score(sources, [references[i] for i in kept], lenpen=0.5)
    for i, one in zip(kept, found, strict=True):
        score, log_prob, gains = lines[i]
        assert float(score) == pytest.approx(one.hypothesis.score, rel=1.5e-5, abs=1.5e-5)
        assert float(log_prob) == pytest.approx(one.hypothesis.log_prob, rel=1.5e-5, abs=1.5e-5)
        each = [float(gain) for gain in gains.split(" ")]
        assert np.allclose(each, one.hypothesis.token_log_probs, atol=1e-5)
    words = sum(len(one.hypothesis.ids) for one in found)
    total = sum(one.hypothesis.log_prob for one in found)
    perplexity = np.exp(-total / words)
    summary = f"targets 4, tokens {words}: log-probability {total:.3f}"
    assert summary in shown.err and f"perplexity {perplexity:.2f}"[:14] in shown.err


def test_scores_of_targets_equal_those_of_the_search(decode, files, capsys, trained):
    """What was decoded, given back as targets."""
    found = unitk.load(trained).generate([LINES[0], LINES[3]], beam=2, max_len=4)
    records = [
        {"source": source, "target": one.text}
        for source, (one,) in zip([LINES[0], LINES[3]], found, strict=True)
    ]
    (files / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    decode("--input in.jsonl --score --output-format jsonl")
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    again = unitk.load(trained).vocab
    for record, (one,) in zip(shown, found, strict=True):
        (output,) = record["outputs"]
        assert output["text"] == one.text
        if again.encode(one.text) == one.hypothesis.ids[:-1].tolist():  # spelt alike
            assert output["score"] == pytest.approx(one.hypothesis.score, rel=1.5e-5, abs=1.5e-5)
    decode("--input in.jsonl --score --output-format fairseq")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines[:5]] == ["S-0", "T-0", "H-0", "D-0", "P-0"]
    gains = [float(gain) for gain in lines[4].split("\t")[1].split(" ")]
    score = float(lines[2].split("\t")[1])
    assert score == pytest.approx(sum(gains) / len(gains), abs=1e-3)


# alignments


def test_alignments(decode, files, capsys, trained):
    decode(f"--input in.txt --print-alignment hard {QUICK}")
    lines = [line.split("\t") for line in capsys.readouterr().out.split("\n")[:-1]]
    decode(f"--input in.txt --print-alignment soft --output-format jsonl {QUICK}")
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    decode(f"--input in.txt --print-alignment soft {QUICK}")
    soft = [line.split("\t") for line in capsys.readouterr().out.split("\n")[:-1]]
    generator = unitk.load(trained)
    assert lines[1] == [""] and records[1]["outputs"] == []
    for i in (0, 2, 3, 4):
        (output,) = records[i]["outputs"]
        table = np.array(output["alignment"])
        sizes = [len(ids) for ids in generator.encode([LINES[i].split("\t")])[0]]
        assert table.shape == (len(output["tokens"]) - 1, sum(sizes) + len(sizes) - 1)
        hard = " ".join(f"{source}-{word}" for word, source in enumerate(table.argmax(1)))
        assert lines[i] == [output["text"], hard]
        assert soft[i][1].count(",") == table.size - len(table)
    decode(f"--input in.txt --print-alignment hard --output-format fairseq {QUICK}")
    kinds = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [words[1] for words in kinds if words[0] == "A-0"] == [lines[0][1]]
    decode(f"--input in.txt --print-alignment hard --output-format jsonl {QUICK}")
    record = json.loads(capsys.readouterr().out.splitlines()[0])
    pairs = record["outputs"][0]["alignment"]
    assert " ".join(f"{source}-{word}" for source, word in pairs) == lines[0][1]


# resumption


def test_an_interrupted_output_is_continued(decode, files, monkeypatch):
    line = f"--input in.txt --output out.txt --buffer-size 2 {QUICK}"
    decode(line)
    whole = (files / "out.txt").read_text()
    (files / "out.txt").unlink()

    class Kill(BaseException):
        """No `except` stops it."""

    for groups in (0, 1, 2):
        add = OutputFile.add

        def dying(self, lines, inputs, left=[groups], add=add):  # noqa: B006
            if not left[0]:
                raise Kill
            left[0] -= 1
            add(self, lines, inputs)

        with monkeypatch.context() as patch, pytest.raises(Kill):
            patch.setattr(OutputFile, "add", dying)
            decode(line)
        assert not (files / "out.txt").exists()
        if groups:
            with pytest.raises(UsageError, match="begun with --beam 2, not 3; without --resume"):
                decode(line.replace("--beam 2", "--beam 3") + " --resume")
            (files / "in.txt").write_text("other\n" * 5)
            with pytest.raises(UsageError, match="begun with --input in.txt .*, not in.txt"):
                decode(line + " --resume")
            (files / "in.txt").write_text("\n".join(LINES) + "\n")
        done = []
        with monkeypatch.context() as patch:
            patch.setattr(
                OutputFile,
                "add",
                lambda *args, add=add, done=done: (done.append(args[2]), add(*args)),
            )
            decode(line + " --resume")
        assert sum(done) == 5 - 2 * groups
        assert (files / "out.txt").read_text() == whole
        (files / "out.txt").unlink()
    assert [path.name for path in files.iterdir()] == ["in.txt"]


def test_mistakes_are_told_before_anything_is_decoded(decode, files, monkeypatch):
    (files / "long.txt").write_text("the cat.\n" * 3 + " ".join(["the cat"] * 80) + "\n")
    with pytest.raises(DataError, match="input 4 .*too long"):
        decode(f"--input long.txt --output out.txt --buffer-size 1 {QUICK}")
    assert sorted(path.name for path in files.iterdir()) == ["in.txt", "long.txt"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--input in.txt --interactive", "give texts, .*, got --input and --interactive"),
        ("--interactive --output out.txt", "--interactive has no --output"),
        ("--interactive --prefix-file in.txt", "--prefix-file has no effect with --interactive"),
        ("--interactive --score", "--score has no effect with --interactive"),
        ("--input in.txt --resume", "--resume needs an --output, and an --input that is a file"),
        ("--input - --output x --resume", "--resume needs an --output, and an --input that is"),
        ("--input /dev/null --output x --resume", "--resume needs an --output, and an --input"),
        ("--input in.txt --output .", "--output . is not a file but a folder; `-` is"),
        ("--input in.txt --output /dev/null", "--output /dev/null is not a file"),
        ("--input in.txt --score --beam 2", "--beam has no effect with --score"),
        ("--input in.txt --score --max-len 9", "--max-len has no effect with --score"),
        ("--input in.txt --score --constraints in.txt", "--constraints has no effect with --score"),
        ("--input in.txt --references in.txt", "--references has no effect without --score"),
        ("--input in.txt --alignment-layer 1", "--alignment-layer has no effect without"),
        (
            "--input in.txt --max-len 4 --print-alignment soft --alignment-layer 9",
            "be 0 to 2, got 9",
        ),
        ("--interactive --input-format squad", "--input-format has no effect with --interactive"),
    ],
)
def test_what_cannot_be_meant(decode, line, message):
    with pytest.raises(UsageError, match=message):
        decode(line)


def test_targets_that_are_missing(decode, files):
    with pytest.raises(DataError, match="--score: input 1 .*no target; --references FILE"):
        decode("--input in.txt --score")
    (files / "ref.txt").write_text("a\n")
    with pytest.raises(DataError, match="ref.txt has 1 line for 5 inputs"):
        decode("--input in.txt --score --references ref.txt")


# the program itself


def start(words, **more):
    root = str(Path(unitk.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    return subprocess.Popen([sys.executable, "-m", "unitk_cli", *words], env=env, **more)


@pytest.mark.slow
def test_a_process_that_is_killed_and_resumed(trained, decode, files):
    text = "".join(f"{LINES[i % 5]}\n" for i in range(400))
    (files / "in.txt").write_text(text)
    line = f"--input in.txt --buffer-size 5 {QUICK} --output"
    decode(f"{line} whole.txt")
    process = start(["generate", "--checkpoint", str(trained), *line.split(), "out.txt"])
    while process.poll() is None and not (files / ".out.txt.progress").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (files / "out.txt").exists(), "it was done before it could be killed"
    decode(f"{line} out.txt --resume")
    assert (files / "out.txt").read_bytes() == (files / "whole.txt").read_bytes()
    made = (files / "out.txt").stat().st_mtime_ns
    decode(f"{line} out.txt --resume")  # as a queue starts it again
    assert (files / "out.txt").stat().st_mtime_ns == made


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(trained, files):
    words = ["generate", "--checkpoint", str(trained), "--input", "in.txt", *QUICK.split()]
    words += ["--buffer-size", "1"]
    process = start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().strip()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--input -", "--interactive", "--input pipe"])
def test_a_program_that_waits_for_each_answer(trained, files, decode, capsys, way):
    decode(f"--input in.txt {QUICK}")
    expected = capsys.readouterr().out.split("\n")[:-1]
    os.mkfifo(files / "pipe")
    words = ["generate", "--checkpoint", str(trained), *way.split(), *QUICK.split()]
    process = start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process, (files / "pipe").open("w") if "pipe" in way else process.stdin as ask:
        for line, answer in zip(LINES, expected, strict=True):
            print(line, file=ask, flush=True)
            assert process.stdout.readline() == answer + "\n"
        ask.close()
        assert process.wait() == 0


def test_sources_are_shortened_as_in_training(trained, files, capsys, caplog):
    folder = files / "run"
    shutil.copytree(trained, folder)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"lengths": [9, 5]}))
    (folder / "manifest.json").unlink()
    seal(folder)
    long = " ".join(["the cat"] * 80)
    (files / "in.txt").write_text(f"{long}\nthe cat.\n")

    def out(path, more=""):
        run(f"--checkpoint {path} --input in.txt {QUICK} {more}".split())
        return capsys.readouterr().out

    expected = out(trained, "--max-source-len 9")
    caplog.clear()
    assert out(folder) == expected
    assert "fewer (--max-source-len)" in caplog.text
    (files / "in.txt").write_text(f"{long}\nthe cat.\n" * 3)
    caplog.clear()
    out(folder, "--buffer-size 2")
    assert caplog.text.count("shortened") == caplog.text.count("shortened 3 of 6") == 1
    with pytest.raises(DataError, match="input 1 .*too long") as caught:
        out(folder, "--max-source-len none --truncate off")
    (most,) = re.findall(r"--max-source-len (\d+) shortens", str(caught.value))
    assert out(folder, f"--max-source-len {most} --truncate off")
    with pytest.raises(DataError, match="input 1 .*too long"):
        out(folder, f"--max-source-len {int(most) + 1} --truncate off")
