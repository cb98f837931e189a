"""Inputs of `unitk generate` that are no file: words of the command line, blanks, nothing."""

import io
import json
import re
import sys

import pytest

import unitk
from unitk.decoding.files.inputs import groups, read_inputs
from unitk.decoding.texts.sources import SourceEncoder
from unitk.errors import DataError, UsageError
from unitk.verbs import embed, predict
from unitk.verbs.generate import run

SOURCES = ["the cat sat on the mat.", "a dog\tthe dog sees a small bird."]
MARKED = ["the [MASK] sat.", "", "[MASK] dog\tthe dog"]
QUICK = "--beam 3 --max-len 5"


@pytest.fixture(scope="module")
def glm(make_checkpoint):
    return make_checkpoint("glm_infill", "glm_tiny", "--arch.max-positions2 64")


@pytest.fixture(scope="module")
def lm(make_checkpoint):
    return make_checkpoint("lm", "gpt2_tiny")


@pytest.fixture
def lines(capsys, tmp_path, monkeypatch):
    """What a command prints, line by line; its standard error is `lines.err`."""
    monkeypatch.chdir(tmp_path)

    def go(path, line, *words):
        run(["--checkpoint", str(path), *line.split(), *words])
        shown = capsys.readouterr()
        go.err = shown.err
        return shown.out.splitlines()

    return go


def best(found):
    return [some[0].text for some in found]


def test_words_are_sources(glm, lines, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(SOURCES) + "\n")
    wanted = lines(glm, f"--input in.txt {QUICK} --output-format jsonl")
    assert lines(glm, f"{QUICK} --output-format jsonl", *SOURCES) == wanted
    assert lines(glm, "--output-format jsonl", *SOURCES, *QUICK.split()) == wanted
    (tmp_path / "begin.txt").write_text("The bade\nThe\n")
    found = lines(glm, "--prefix-file begin.txt --beam 3 --max-len 12", *SOURCES)
    assert [text.split()[0] for text in found] == ["The", "The"]


def test_texts_are_read_as_they_stand(lm, lines, tmp_path, monkeypatch):
    """By every door, with the blanks around them; a vocabulary may have tokens for these."""
    texts, outputs = ["  the cat ", "a dog\u00a0", " "], [" sat ", "", "x "]
    read = []
    encode = SourceEncoder.encode

    def watch(self, sources):
        read.extend(part for parts in sources for part in parts)
        return encode(self, sources)

    monkeypatch.setattr(SourceEncoder, "encode", watch)
    (tmp_path / "in.txt").write_bytes("\r\n".join([*texts, ""]).encode())
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"source": x}) + "\n" for x in texts))
    (tmp_path / "out.txt").write_text("\n".join(outputs) + "\n")
    model = unitk.load(lm)
    for ask in (
        lambda: model.generate(texts, beam=1, max_len=1),
        lambda: lines(lm, "--beam 1 --max-len 1", *texts),
        lambda: lines(lm, "--input in.txt --beam 1 --max-len 1"),
        lambda: lines(lm, "--input in.jsonl --beam 1 --max-len 1"),
        lambda: embed.run(["--checkpoint", str(lm), "--input", "in.txt"]),
    ):
        read.clear()
        ask()
        assert [one for one in read if one][:3] == texts
    read.clear()
    lines(lm, "--input in.txt --score --references out.txt")
    assert read == [*texts, *outputs]


def test_a_word_that_is_a_file_is_no_text(glm, lines, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    for verb in (run, predict.run, embed.run):
        with pytest.raises(UsageError, match="'in.txt' .*file: --input takes it"):
            verb(["--checkpoint", str(glm), "in.txt"])
    with pytest.raises(UsageError, match="folder: --checkpoint .*--input"):
        run(["--checkpoint", str(glm), str(glm)])
    with pytest.raises(UsageError, match="got the text 'a b' and --input"):
        lines(glm, "--input in.txt", "a b")
    with pytest.raises(UsageError, match="--source-field .*no effect.*text"):
        lines(glm, "--source-field x", "a b")


def test_blanks_are_filled_in_words_and_files(glm, lines, tmp_path, monkeypatch):
    """By a model of texts, from --input too; other lines are continued as if they were alone."""
    model = unitk.load(glm)
    filled = [*best(model.infill(MARKED[:1], beam=3, max_len=5)), ""]
    [continued] = best(model.generate(SOURCES[:1], beam=3, max_len=5))
    assert lines(glm, QUICK, MARKED[0], SOURCES[0]) == [filled[0], continued]
    (tmp_path / "in.txt").write_text(f"{MARKED[0]}\n\n{SOURCES[0]}\n")
    assert lines(glm, f"--input in.txt {QUICK}") == [*filled, continued]
    assert "warning" not in lines.err
    data = (tmp_path / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert lines(glm, f"--input - {QUICK}") == [*filled, continued]


def test_infill_takes_a_file_of_lines(glm, lines, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("\n".join(MARKED) + "\n")
    each = [lines(glm, QUICK, text)[0] if text else "" for text in MARKED]
    assert lines(glm, f"--infill in.txt {QUICK}") == each and each[2].endswith("the dog")
    lines(glm, f"--infill in.txt {QUICK} --output out.txt --buffer-size 1")
    assert (tmp_path / "out.txt").read_text().splitlines() == each
    data = (tmp_path / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert lines(glm, f"--infill - {QUICK}") == each
    (tmp_path / "begin.txt").write_text("The bade\n\nThe\n")
    found = lines(glm, "--infill in.txt --prefix-file begin.txt --beam 3 --max-len 12")
    assert found[0].startswith("the The bade") and found[1] == ""


@pytest.mark.parametrize("blank", ["__", "_____", "[mask]", "[Mask]", "<mask>"])
def test_what_people_type_is_a_blank_where_blanks_are_filled(blank, glm, lines, tmp_path):
    """By every door; the other characters stay. Elsewhere, it is what the text says."""
    symbols, typed = MARKED[0], MARKED[0].replace("[MASK]", blank)
    both = f"{symbols}  {typed}"
    wanted = lines(glm, QUICK, "--infill", symbols) + lines(
        glm, QUICK, "--infill", f"{symbols}  {symbols}"
    )
    assert lines(glm, QUICK, "--infill", typed) + lines(glm, QUICK, "--infill", both) == wanted
    (tmp_path / f"in{blank[0]}__.txt").write_text(f"{typed}\n{both}\n")
    assert lines(glm, f"--infill in{blank[0]}__.txt {QUICK}") == wanted
    model = unitk.load(glm)
    assert best(model.infill([typed, both], beam=3, max_len=5)) == wanted
    assert "".join(lines(glm, f"--input in{blank[0]}__.txt {QUICK}")) != "".join(wanted)


def test_what_people_type_is_the_blank_of_the_task(make_checkpoint):
    options = "--arch.max-positions2 64 --task.mask-symbol gmask"
    model = unitk.load(make_checkpoint("glm_infill", "glm_tiny", options))
    texts = [f"the {blank} sat." for blank in ("___", "[gMASK]", "[MASK]")]
    typed, own, other = (model.encode_blanks(text)[0].tolist() for text in texts)
    assert typed == own != other


def test_a_line_without_a_blank_is_named(glm, lines, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text(f"{MARKED[0]}\nthe cat\n")
    with pytest.raises(DataError, match=r"in.txt, line 2: .*no blank.* 'the cat'; .*\[MASK\]"):
        lines(glm, f"--infill in.txt {QUICK}")
    with pytest.raises(UsageError, match="no blank in 'nosuch.txt'"):
        lines(glm, f"--infill nosuch.txt {QUICK}")
    data = (tmp_path / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = lines(glm, f"--infill - {QUICK} --output-format jsonl")
    assert [("outputs" in one, "error" in one) for one in map(json.loads, found)] == [
        (True, False),
        (False, True),
    ]


def test_a_stream_without_blanks_has_nothing_to_rank(lines, monkeypatch):
    for text, idle in ((SOURCES[0], True), (f"{SOURCES[0]}\n{MARKED[0]}", False)):
        data = f"{text}\n".encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        lines("unitk-base-en", f"--input - {QUICK} --rerank on")
        assert ("--rerank on" in lines.err) == idle


def test_a_blank_that_is_plain_text_is_warned_of(lm, lines, tmp_path):
    (tmp_path / "in.txt").write_text(f"{SOURCES[0]}\n{MARKED[0]}\n{MARKED[0]}\n")
    for words in ("--input in.txt", "--input in.txt --score --references in.txt"):
        lines(lm, f"{words} --max-len 3" if "score" not in words else words)
        told = "warning: input 2 has a blank, which is read as plain text: task lm does not fill"
        assert lines.err.count(told) == ("score" not in words)


def test_inputs_that_are_all_empty_lead_to_texts_from_nothing(lm, lines, caplog, tmp_path):
    for text, is_told in (("\n \n", True), (f"\n{SOURCES[0]}\n", False)):
        (tmp_path / "in.txt").write_text(text)
        caplog.clear()
        assert lines(lm, "--input in.txt --max-len 3")[0] == ""
        assert ("--num-samples" in caplog.text) == is_told


def test_texts_from_nothing(lm, glm, lines, tmp_path):
    for path in (lm, glm):
        model = unitk.load(path)
        wanted = [one.text for one in model.sample(4, max_len=6, sampling_topp=0.9)]
        assert lines(path, "--num-samples 4 --max-len 6 --sampling-topp 0.9") == wanted
        draw = "--max-len 6 --sampling --sampling-topp 0.9 --buffer-size 1"
        assert lines(path, f"--num-samples 3 {draw}") == wanted[:3]
        (record, _) = lines(path, "--num-samples 2 --max-len 6 --output-format jsonl")
        assert json.loads(record).keys() == {"id", "outputs"}
    # the options of a checkpoint hold, but for those of a search
    (lm / "generate.yaml").write_text("max-len: 4\nbeam: 3\nnbest: 2\n")
    try:
        assert lines(lm, "--num-samples 2") == [one.text for one in unitk.load(lm).sample(2)]
        assert "--max-len 4" in lines.err and "--beam" not in lines.err
    finally:
        (lm / "generate.yaml").unlink()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--num-samples 2 --beam 3", "--beam has no effect where outputs are drawn"),
        ("x --sampling --beam 5", "--beam has no effect where outputs are drawn"),
        ("--num-samples 2 --nbest 3", "--nbest has no effect with --num-samples"),
        ("--num-samples 2 --sampling off", "--num-samples draws texts"),
        ("--num-samples 2 --prefix-file x", "--prefix-file has no effect with --num-samples"),
        ("--num-samples 2 --input x", "got --input and --num-samples"),
        ("--num-samples 2 --max-len 64", "--max-len 64 is too long by 1"),
    ],
)
def test_what_cannot_be_meant(lm, lines, line, message):
    with pytest.raises(UsageError, match=message):
        lines(lm, line)


def test_the_bundled_model_continues_and_fills_by_default(lines):
    """Without a word about its tasks and options."""
    found = lines("unitk-base-en", "", "The old man opened", "The [MASK] sat on the bed.")
    assert found[0] and not found[0].endswith("?")
    assert found[1].startswith("The ") and found[1].endswith(" sat on the bed.")
    assert "--sampling on --best-of 8" in lines.err and "warning" not in lines.err


def test_other_parts_than_in_training_are_warned_of(glm, lm, caplog):
    for path in (glm, lm):
        model = unitk.load(path)
        model.task = model.task.with_trained(pairs=True)
        for trained, text, warns in (
            (2, ["the cat"], True),
            (2, [["the", "cat"]], False),
            (1, [["the", "cat"]], True),
            (0, [["the", "cat"]], False),
            (2, [""], False),
        ):
            caplog.clear()
            model.task, model.warned = model.task.with_trained(parts=trained), False
            for _ in range(2):  # once
                model.generate(text, beam=1, max_len=2)
            assert caplog.text.count("has another number of parts") == warns
    model.task = model.task.with_trained(parts=0, window=(80, "{answer} [SEP] {passage}"))
    wanted = "input 2 has 1 of 2 parts: this model reads {answer} and {passage}, with a tab"
    with pytest.raises(DataError, match=re.escape(wanted)):
        model.generate([["cat", "the cat"], "the cat"], beam=1, max_len=2)


def test_a_list_is_one_part_where_the_training_had_one(glm, tmp_path):
    """As `unitk preprocess` joins sentences; a tab in a line and parts of their own stay."""
    path = tmp_path / "x.jsonl"
    listed = {"source": ["the cat sat.", "a dog sat."]}
    path.write_text(json.dumps(listed) + '\n{"source": "the cat\\ta dog"}\n')
    joined = " ".join(listed["source"])
    model = unitk.load(glm)
    for trained, parts in ((1, [joined]), (2, listed["source"]), (0, listed["source"])):
        model.task = model.task.with_trained(pairs=True, parts=trained)
        [[first, second]] = groups(model, read_inputs(path), 2)
        [wanted] = model.encode([parts])
        assert [part.tolist() for part in first.source] == [part.tolist() for part in wanted]
        assert second.text.parts == ["the cat\ta dog"]


@pytest.mark.parametrize(
    ("text", "told"), [('{"source": "the cat"}\n', True), ("{a} cat\n", False)]
)
def test_records_of_a_stream_that_are_read_as_text_are_told(glm, lines, monkeypatch, text, told):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    lines(glm, f"--input - {QUICK}")
    assert ("--input-format jsonl" in lines.err) == told


@pytest.mark.parametrize("window", [(80, "{answer} [SEP] {passage}"), None])
@pytest.mark.parametrize("parts", [["", "the cat"], ["cat", " "]])
def test_an_empty_part_is_warned_of(glm, caplog, parts, window):
    model = unitk.load(glm)
    model.task = model.task.with_trained(pairs=True, parts=2, window=window)
    model.generate([["cat", "the cat"], parts], beam=1, max_len=2)
    assert re.search("input 2 .*empty", caplog.text)


def test_an_answer_that_is_not_in_its_passage_is_warned_of(glm, caplog):
    model = unitk.load(glm)
    model.task = model.task.with_trained(pairs=True, window=(80, "{answer} [SEP] {passage}"))
    model.generate([["cat", "the cat"], ["The", "the cat"], ["dog", "the cat"]], beam=1, max_len=2)
    assert caplog.text.count("is not in its passage") == 1
    assert "input 3: answer 'dog'" in caplog.text
