"""The recipes run as a new user would run them: toy_copy in full, quickstart in a few steps."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {**os.environ, "PYTHONPATH": f"{ROOT / 'recipes'}{os.pathsep}{ROOT}"}
"""The environment of a recipe's scripts, as stages.sh sets it."""


def recipe(name, folder, script="run.sh", **env):
    program = folder / "bin"
    program.mkdir(exist_ok=True)
    for command, words in (
        ("unitk", f'"{sys.executable}" -m unitk_cli'),
        ("python3", sys.executable),
    ):
        (program / command).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (program / command).chmod(0o755)
    path = f"{program}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(ROOT / "recipes" / name / script)],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.slow
def test_toy_copy_is_learnt(tmp_path):
    printed = recipe("toy_copy", tmp_path, OMP_NUM_THREADS="1")
    share = float(printed.split("exact match ")[1].split()[0])
    assert share >= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["copy", "reverse", "sort"])
@pytest.mark.parametrize("task", ["glm_infill", "unilm", "pmlm", "lm", "mass", "seq2seq"])
def test_every_task_learns_the_toys(task, rule, tmp_path):
    printed = recipe(f"toy_{rule}", tmp_path, TASK=task, OMP_NUM_THREADS="1")
    assert float(printed.split("exact match ")[1].split()[0]) >= 0.98


def few_questions(folder):
    """The bundled sample with the questions of two articles a file."""
    data = ROOT / "recipes" / "quickstart" / "data"
    (folder / "squad-v1.1-nqg-split").mkdir(parents=True)
    (folder / "openstax-ccby").symlink_to(data / "openstax-ccby")
    for path in (data / "squad-v1.1-nqg-split").glob("*.json.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            squad = json.load(file)
        squad["data"] = squad["data"][:2]
        with gzip.open(folder / "squad-v1.1-nqg-split" / path.name, "wt") as file:
            json.dump(squad, file)


def test_quickstart_goes_through_every_stage(tmp_path):
    few_questions(tmp_path / "few")
    printed = recipe("quickstart", tmp_path, DATA=str(tmp_path / "few"), STEPS="2")
    assert "BLEU-4" in printed and "ROUGE-L" in printed and printed.count("reference  ") == 10
    _, analogy = printed.split("--checkpoint unitk-vae-en\n")
    assert printed.count("\n$ unitk ") == 8
    assert analogy.splitlines() == ["she played the piano ."]
    run = tmp_path / "runs" / "quickstart"
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    lines = [(run / name).read_text().splitlines() for name in ("written.txt", "wanted.txt")]
    assert len(lines[0]) == len(lines[1]) >= 5


@pytest.mark.slow
def test_retrieval_beside_search_by_words(tmp_path):
    few_questions(tmp_path / "few")
    printed = recipe("retrieval", tmp_path, DATA=str(tmp_path / "few"), STEPS="2", PAIRS="4")
    cells = [line.split(" | ") for line in printed.splitlines() if line.startswith("| `")]
    assert [row[0] for row in cells] == ["| `tfidf`", "| `bm25`", "| `learnt`"]
    assert all(float(row[3]) > 50 for row in cells[:2])  # words tell most paragraphs


TINY = {"SIZE": "tiny", "VOCAB": "2000", "MAX_TOKENS": "600"}
TINY |= {
    "PRETRAIN_TOKENS": "600",
    "FINETUNE_TOKENS": "600",
    "PRETRAIN_STEPS": "2",
    "FINETUNE_STEPS": "2",
    "TARGET": "8",
}


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "copy", "none"])
def test_questions_are_scored_and_shown(objective, tmp_path):
    few_questions(tmp_path / "few")
    printed = recipe("qg_squad", tmp_path, DATA=str(tmp_path / "few"), OBJECTIVE=objective, **TINY)
    assert "| passage and answer | " in printed and "| sentence of the answer | " in printed
    run = tmp_path / "runs" / f"qg_squad-{objective}-tiny"
    assert (run / "report.md").read_text().count("| **written** | ") == 10
    assert (run / "pretrain").is_dir() == (objective != "none")


def news(name, folder):
    """Twelve pairs of a set as users have it."""
    folder.mkdir()
    texts = [(f"Source {i} tells a story.", f"Story {i}.") for i in range(12)]
    if name == "gigaword":
        for files in (
            "train.article.txt train.title.txt",
            "valid.article.filter.txt valid.title.filter.txt",
            "input.txt task1_ref0.txt",
        ):
            for file, lines in zip(files.split(), zip(*texts, strict=True), strict=True):
                (folder / file).write_text("".join(line + "\n" for line in lines))
    elif name == "samsum":
        records = [{"id": "1", "dialogue": one, "summary": other} for one, other in texts]
        for part in ("train", "val", "test"):
            (folder / f"{part}.json").write_text(
                json.dumps([*records, {**records[0], "dialogue": ""}])
            )
    else:
        for part in ("train", "valid", "test"):
            with gzip.open(folder / f"{part}.jsonl.gz", "wt") as file:
                for one, other in texts:
                    file.write(json.dumps({"source": one, "target": f"{other}\nIt ends."}) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scitldr-a", "samsum", "cnndm", "gigaword"])
def test_summaries_are_scored(name, tmp_path):
    objective = "copy" if name == "samsum" else "none"
    env = {**TINY, "OBJECTIVE": objective, "DATASET": name, "TARGET": "40"}
    if name != "scitldr-a":
        news(name, tmp_path / name)
        env["DATA"] = str(tmp_path)
    printed = recipe("summarize", tmp_path, **env)
    assert "| written | " in printed and "| first sentence | " in printed
    run = tmp_path / "runs" / f"summarize-{name}-{objective}-tiny"
    count = 150 if name == "scitldr-a" else 12
    assert len((run / "written.txt").read_text().splitlines()) == count
    wanted = (run / "wanted1.txt").read_text().splitlines()
    assert len(wanted) == count and (wanted[0] == "Story 0. | It ends.") == (name == "cnndm")


ROWS = ("reconstruction", "kl", "mi", "active", "z-gap")


def regimes(printed):
    """Regime -> measure -> number, of the table that vae_toy prints."""
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:2] == "| "]
    head, _, *rows = lines
    assert tuple(head[1:6]) == ROWS
    return {name: dict(zip(ROWS, map(float, cells), strict=False)) for name, *cells in rows}


@pytest.mark.slow
def test_the_regimes_of_the_toy_separate(tmp_path):
    found = regimes(recipe("vae_toy", tmp_path, OMP_NUM_THREADS="1"))
    names = ("constant", "constant_threshold", "cyclical_threshold")
    constant, threshold, cyclical = (found[name] for name in names)
    assert constant["kl"] < 0.05 and constant["active"] == 0
    for one in (threshold, cyclical):
        assert 0.6 < one["kl"] / (0.5 * 16) < 1.2 and one["active"] == 16
    assert cyclical["mi"] > threshold["mi"]


@pytest.mark.slow
def test_vae_captions_goes_through_every_stage(tmp_path):
    few = tmp_path / "few"
    few.mkdir()
    for split in ("train", "valid", "test"):
        lines = [f"{who} likes the {what} ." for who in ("he", "i", "you") for what in "abcdefgh"]
        text = "\n".join([*lines, "where is the a ?", "the a is here ."] * 5)
        with gzip.open(few / f"{split}.txt.gz", "wt") as file:
            file.write(text + "\n")
    steps = {"DATA": str(few), "VOCAB": "60", "STEPS": "4", "PER_CLASS": "1"}
    printed = recipe("vae_captions", tmp_path, OMP_NUM_THREADS="1", **steps)
    assert "bits a byte" in printed and "written again" in printed and "commonest label" in printed
    assert printed.count("\n-- ") == 7
    run = tmp_path / "runs" / "vae_captions"
    assert (run / "latent.png").read_bytes().startswith(b"\x89PNG")
    assert len((run / "written.txt").read_text().splitlines()) == 8


@pytest.mark.slow
def test_questions_begin_with_a_released_unilm2(tmp_path, toy_data):
    """Whose pseudo tokens are [MASK]s, without an embedding of their own."""
    words = "--task pmlm --task.pseudo mask --arch unilm2_tiny --arch.num-virtual 0 --max-steps 1"
    paths = ["--data", str(toy_data / "text"), "--save-dir", str(tmp_path / "released")]
    subprocess.run([sys.executable, "-m", "unitk_cli", "train", *words.split(), *paths], check=True)
    few_questions(tmp_path / "few")
    env = {**TINY, "OBJECTIVE": "pmlm", "INIT": str(tmp_path / "released")}
    recipe("qg_squad", tmp_path, DATA=str(tmp_path / "few"), **env)
    state = (tmp_path / "runs" / "qg_squad-pmlm-tiny" / "finetune" / "config.yaml").read_text()
    assert "task.pseudo: mask" in state and "arch.num_virtual: '0'" in state


@pytest.mark.slow
def test_an_ablation_is_a_table_and_goes_on(tmp_path):
    env = {"ROWS": "lm/gpt2_tiny/adamw/1e-3", "STEPS": "20", "VOCAB": "600", "MAX_TOKENS": "512"}
    first = recipe("ablation", tmp_path, VALID_TEXTS="8", **env)
    env["ROWS"] += " lm/gpt2_tiny/muon/1e-2 lm/gpt2_tiny/adamw/1e-3/init-std=0.02,tied=off"
    (tmp_path / "bin").rename(tmp_path / "before")
    second = recipe("ablation", tmp_path, VALID_TEXTS="8", **env)
    assert first.count("| `adamw` |") == 1 and second.count("| `adamw` |") == 2
    assert "step 20/20" not in second.partition("muon/1e-2")[0]  # what is finished is not repeated
    (line,) = [line for line in second.splitlines() if "| `muon` |" in line]
    *_, share, of, _ = (cell.strip() for cell in line.split("|"))
    assert 0 < float(share) < 1 and of.startswith("gpt2_tiny adamw 1e-3")
    (line,) = [line for line in second.splitlines() if "| init-std=0.02,tied=off |" in line]
    assert line.split("|")[-2].strip() == "gpt2_tiny adamw 1e-3"


@pytest.mark.slow
def test_mini_goes_on_after_a_stop(tmp_path):
    """Two rounds with few updates, continued; the second begins with the first."""
    few_questions(tmp_path / "few")
    for folder, name in {"stories": "stories", "eltec-eng": "eltec-eng"}.items():
        (tmp_path / "few" / folder).mkdir()
        for part in ("train", "valid"):
            there = ROOT / "recipes/quickstart/data/openstax-ccby" / f"openstax.{part}.jsonl.gz"
            shutil.copy(there, tmp_path / "few" / folder / f"{name}.{part}.jsonl.gz")
    more = {"DATA": str(tmp_path / "few"), "ARCH": "qwen3_tiny", "DEVICE": "cpu", "STEPS2": "2"}
    more["MORE"] = "--batch-tokens 512 --max-tokens 512"
    recipe("mini", tmp_path, **more, STEPS="2")
    (tmp_path / "runs" / "base" / ".base").unlink()
    recipe("mini", tmp_path, **more, STEPS="3")
    read = [json.loads(line) for line in (tmp_path / "runs/base/base/log.jsonl").open()]
    assert [event["step"] for event in read if event["kind"] == "train"][-1] == 3
    settings = (tmp_path / "runs" / "base" / "more" / "config.yaml").read_text()
    assert "\ninit_from: runs/base/base " in settings


@pytest.mark.slow
def test_the_recipe_of_the_autoencoder_scores_sentences_of_ten_words(tmp_path):
    printed = recipe("mini", tmp_path, script="vae.sh", STEPS="2", STEPS2="1", STEPS3="1")
    ten = (tmp_path / "runs" / "vae" / "ten.txt").read_text().splitlines()
    assert len(ten) > 20 and all(len(line.split()) == 10 for line in ten)
    assert f"reference_words {10 * len(ten)}" in printed


@pytest.mark.slow
def test_the_recipe_of_summaries_learns_titles_and_sentences_as_well(tmp_path):
    papers = tmp_path / "few" / "scitldr-a"
    papers.mkdir(parents=True)
    for split, count in (("train", 12), ("dev", 4), ("test", 4)):
        path = ROOT / "recipes" / "summarize" / "data" / "scitldr-a" / f"{split}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            few = [json.loads(line) for line in file][:count]
        with gzip.open(papers / path.name, "wt", encoding="utf-8") as file:
            for paper in few:  # the last sentence is the one that says most
                paper["source_labels"] = [0] * (len(paper["source"]) - 1) + [1]
                file.write(json.dumps(paper) + "\n")
        if split == "train":
            each = (paper[name] for paper in few for name in ("title", "source"))
            targets = {one if isinstance(one, str) else one[-1] for one in each}
    env = {"DATA": str(tmp_path / "few"), "STEPS": "2"}
    recipe("mini", tmp_path, script="summaries.sh", **env)
    run = tmp_path / "runs" / "base-summaries"
    pairs = [json.loads(line) for line in (run / "train.jsonl").open(encoding="utf-8")]
    assert len(pairs) == 24 and {pair["target"] for pair in pairs} == targets
    settings = (run / "finetune" / "config.yaml").read_text()
    assert "\nadapter: lora:rank=32" in settings and "/first/train" in settings
    assert len((run / "written.txt").read_text().splitlines()) == 4


@pytest.mark.slow
def test_a_distillation_is_a_table_of_its_rows(tmp_path):
    env = {"STEPS": "2", "TEACHER_STEPS": "2", "BATCH": "128", "BLOCK": "16"}
    printed = recipe("distill", tmp_path, **env)
    first, *rows = [line for line in printed.splitlines() if line.startswith("| `")]
    assert first.startswith("| `teacher` |")
    assert [row.split("`")[1] for row in rows] == ["alone", "attention", "logits", "states"]
    assert recipe("distill", tmp_path, **env).splitlines()[-5:] == printed.splitlines()[-5:]
