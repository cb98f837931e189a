"""Questions and named entities come from the files of their sets, are learnt and are judged."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unitk.options.config import flag
from unitk.training.loop import train
from unitk.training.start import parse_train, prepare

from .test_recipes import SCRIPTS, few_questions, recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SAMPLES = RECIPES / "ner" / "data"
FEW = {"PRETRAIN_STEPS": "2", "FINETUNE_STEPS": "4", "PRETRAIN_TOKENS": "512", "ROWS": "60"}


def collected(name, folder, *words):
    command = [sys.executable, RECIPES / name / "collect.py", folder, folder / "made", *words]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, env=SCRIPTS)


def question(number, **more):
    answer = {"text": "ab", "answer_start": 0, **more}
    return {"id": str(number), "question": f"q{number}?", "answers": [answer]}


def test_questions_are_taken_from_everywhere_and_have_one_place(tmp_path):
    asked = [question(i, **{"occurrences": 2} if i % 5 == 0 else {}) for i in range(20)]
    paragraphs = [{"context": "ab", "qas": asked[:7]}, {"context": "ab", "qas": asked[7:]}]
    squad = json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]})
    (tmp_path / "train-v1.1.json").write_text(squad)
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(squad.encode()))

    def numbers(part):
        tree = json.loads((tmp_path / "made" / f"{part}.json").read_text())
        [article] = tree["data"]
        return [int(one["id"]) for where in article["paragraphs"] for one in where["qas"]]

    assert collected("squad", tmp_path).returncode == 0
    assert numbers("train") == [i for i in range(20) if i % 5] and numbers("dev") == [*range(20)]
    assert collected("squad", tmp_path, "--rows", "4").returncode == 0
    assert numbers("train") == [1, 6, 11, 16] and numbers("dev") == [*range(20)]
    (tmp_path / "dev.json.gz").unlink()
    assert f"has none of {tmp_path}/dev.json, " in collected("squad", tmp_path).stderr


def test_a_set_in_one_file_is_divided(tmp_path):
    (tmp_path / "one").mkdir()
    sentences = "".join(f"w{i} O\nx B-y\n\n" for i in range(10))
    (tmp_path / "one" / "all.conll").write_text(f"-DOCSTART- O\n\n{sentences}")

    def words(part):
        lines = (tmp_path / "made" / f"one.{part}.jsonl").read_text().splitlines()
        assert {tuple(json.loads(line)["tags"]) for line in lines} == {("O", "B-y")}
        return [json.loads(line)["words"][0] for line in lines]

    assert collected("ner", tmp_path, "one").returncode == 0
    assert words("train") == [f"w{i}" for i in range(7)]
    assert words("dev") == ["w7"] and words("test") == ["w8", "w9"]
    assert collected("ner", tmp_path, "one", "--rows", "3").returncode == 0
    assert words("train") == ["w0", "w1", "w2"]
    assert words("dev") == ["w7"] and words("test") == ["w8", "w9"]
    assert "two has neither train.conll and test.conll" in collected("ner", tmp_path, "two").stderr


def test_the_samples_are_what_their_page_says():
    page = (SAMPLES / "README.md").read_text()
    samples = list(SAMPLES.glob("*/*.gz"))
    assert len(samples) == 3
    for path in samples:
        text = gzip.decompress(path.read_bytes()).decode()
        [row] = re.findall(rf"\| `{path.name}` \| ([\d,]+) \| ([\d,]+) \|", page)
        blocks = [block for block in text.split("\n\n") if block.strip()]
        words = [line for line in text.splitlines() if line and not line.startswith("-DOCSTART-")]
        assert [int(one.replace(",", "")) for one in row] == [len(blocks), len(words)]


def test_a_model_from_scratch_is_as_the_checkpoint(toy_data, tmp_path):
    words = "--task lm --task.opening none --arch gpt2_tiny --arch.dropout 0.3 --lr 1e-3"
    words += f" --data {toy_data / 'text'} --save-dir {tmp_path} --max-steps 1 --max-tokens 300"
    start = prepare(parse_train(words.split()))
    train(start)
    done = subprocess.run(
        [sys.executable, str(RECIPES / "scratch.py"), str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    options = done.stdout.splitlines()
    values = start.parsed.settings.texts
    wanted = {f"{flag(key)}={text}" for key, text in values.items() if key.startswith("arch")}
    wanted = {one for one in wanted if not one.startswith("--arch.heads")}
    assert {*options} == {*wanted, "--task.layout=lm:opening=none"}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["small", "mini"])
def test_every_row_of_questions_is_printed(tmp_path, size):
    few_questions(tmp_path / "few")
    data = str(tmp_path / "few" / "squad-v1.1-nqg-split")
    run = tmp_path / "run"
    printed = recipe("squad", tmp_path, DATA=data, RUN=str(run), SIZE=size, **FEW)
    rows = re.findall(r"^\| (\w[\w ]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|$", printed, re.M)
    assert [name for name, _ in rows][-2:] == ["scratch", "pretrained"] and len(rows) == 4
    assert {none for _, none in rows} == {"0.0"}  # every question has an answer
    if size == "mini":  # which was pre-trained before
        assert not (run / "pretrain").exists()
        return
    # another recipe begins with its model
    again = tmp_path / "again"
    again.mkdir()
    few = {**FEW, "SETS": "wikigold", "INIT": str(run / "pretrain")}
    printed = recipe("ner", again, RUN=str(again / "run"), **few)
    assert printed.count("| wikigold | ") == 4 and "| wikigold | always O | 0.0 |" in printed
    assert not (again / "run" / "pretrain").exists()
