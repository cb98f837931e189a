"""Recipes delete nothing that they did not make, and work in paths with blanks, quotes and `$`."""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from unitk.options.config import parse
from unitk.training.config import COMPONENTS, TrainConfig

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
NAMES = ["toy_copy", "vae_toy", "vae_captions", "vae_grid", "compare", "qg_squad", "summarize"]
NAMES += [
    "ablation",
    "distill",
    "domain",
    "babylm",
    "glue",
    "lowdata",
    "mini",
    "ner",
    "retrieval",
    "squad",
    "translate",
    "mass_translation",
    "ernie2",
    "thu_ernie",
    "ulmfit",
    "zero_shot",
]
FEW = {"compare": {"ROWS": "lm-1 scratch.lm-1 hybrid-1"}}  # rows of a recipe that has many
PROGRAM = f"""#!{sys.executable} -IS
import json, os, sys
from pathlib import Path
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
for option, value in zip(sys.argv, sys.argv[1:]):
    if option in ("--save-dir", "--dest") and "copies.py" not in sys.argv[1]:
        Path(value).mkdir(parents=True, exist_ok=True)
    if option == "--output":
        Path(value).touch()
"""


def start(name, folder, recipes=RECIPES, **env):
    """A recipe with programs in place of unitk and python3 that note their arguments."""
    program = folder / "programs"
    program.mkdir(exist_ok=True)
    for command in ("unitk", "python3"):
        (program / command).write_text(PROGRAM)
        (program / command).chmod(0o755)
    path = f"{program}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CALLS": str(folder / "calls"), **env}
    words = ["bash", str(recipes / name / "run.sh")]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_somebody_else_is_refused_and_kept(name, tmp_path):
    for thesis in ("thesis.txt", "data/thesis.txt"):
        path = tmp_path / "keep" / thesis
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    before = sorted((tmp_path / "keep").rglob("*"))
    done = start(name, tmp_path, RUN=str(tmp_path / "keep"))
    assert done.returncode == 2 and "holds files that no recipe made" in done.stderr
    assert sorted((tmp_path / "keep").rglob("*")) == before
    assert not (tmp_path / "calls").exists()


@pytest.mark.slow
def test_the_published_grid_has_a_model_for_each_setting(tmp_path):
    done = start("vae_grid", tmp_path, SETTING="published", RUN="run")
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    trained = [dict(zip(call, call[1:], strict=False)) for call in calls if call[0] == "train"]
    found = Counter(
        (one["--criterion.beta"].partition("value=")[2], one["--criterion.kl-threshold"])
        for one in trained
    )
    grid = product(("0.25", "0.5", "1"), ("0.05", "0.1", "0.25", "0.5", "1"))
    # the last setting has a second model, with a tokenizer of the encoder's own
    assert found == Counter([*grid, ("1", "1")])
    assert {one["--arch"] for one in trained} == {"optimus_small"}
    assert start("vae_grid", tmp_path).returncode == 0
    (tmp_path / "calls").unlink()
    # the tiny models of the other setting are not part of it
    assert start("vae_grid", tmp_path, SETTING="published").returncode == 0
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call for call in calls if call[0] == "train" and "optimus_small" not in call] == []
    assert sum(call[0] == "train" for call in calls) == 16
    done = start("vae_grid", tmp_path, SETTING="huge", RUN="run")
    assert done.returncode == 2 and "tiny or published, got huge" in done.stderr


@pytest.mark.every(5)
@pytest.mark.parametrize("name", NAMES)
def test_any_path_and_a_second_run(name, tmp_path):
    checkout = tmp_path / """a b'c"d$(touch INJ);e"""
    shutil.copytree(RECIPES, checkout, ignore=shutil.ignore_patterns("*.md"))
    for _ in range(2):
        done = start(name, tmp_path, checkout, RUN=str(checkout / "my run"), **FEW.get(name, {}))
        assert done.returncode == 0, done.stderr
        assert "kept as it was made" not in done.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    words = [word for call in calls for word in call]
    assert not list(tmp_path.rglob("INJ"))
    assert not {"a", "run"} & set(words) and not any(word.startswith("b'c") for word in words)
    # what is read from the checkout is there, each file by its whole name
    read = [word.partition("=")[2] if word.startswith("--input=") else word for word in words]
    own = [word for word in read if word.startswith(str(checkout)) and "/my run" not in word]
    assert own and [word for word in own if not Path(word).exists()] == []


@pytest.mark.parametrize(
    ("name", "paper"), [("qg_squad", "unilm-squad_qg"), ("summarize", "unilm-gigaword-10k")]
)
def test_one_command_runs_a_paper_and_a_dry_one_prints_it(name, paper, tmp_path):
    (tmp_path / "gigaword").mkdir()
    given = {"DATA": str(tmp_path)} if name == "summarize" else {}
    given |= {"PAPER": paper, "INIT": "its/model", "RUN": "run"}
    dry = start(name, tmp_path, DRY="1", **given)
    assert dry.returncode == 0, dry.stderr
    first = (RECIPES / "papers" / paper / "train.yaml").read_text().splitlines()[0]
    assert dry.stdout.startswith(first.removeprefix("# "))
    planned = [shlex.split(line)[2:] for line in dry.stdout.splitlines() if line[0] == "$"]
    assert not (tmp_path / "run").exists()
    (tmp_path / "calls").unlink()
    assert start(name, tmp_path, **given).returncode == 0
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    done = [call for call in calls if not call[0].endswith(".py")]
    assert done == planned and [call[0] for call in done] == ["preprocess", "train", "generate"]
    for call in done[1:]:
        config = RECIPES / "papers" / paper / f"{call[0]}.yaml"
        assert call[1:3] == ["--config", str(config)] and config.is_file()
    done = start(name, tmp_path, **{**given, "INIT": "", "RUN": "other"})
    assert done.returncode == 2 and f"INIT: PAPER={paper} begins" in done.stderr
    done = start(name, tmp_path, **{**given, "PAPER": f"bert{paper[5:]}"})
    assert done.returncode == 2 and f"{paper}" in done.stderr


@pytest.mark.parametrize("name", [*NAMES, "toy_sort", "read", "quickstart"])
def test_a_dry_recipe_prints_what_it_would_run(name, tmp_path):
    dry = start(name, tmp_path, DRY="1", RUN=str(tmp_path / "run"), **FEW.get(name, {}))
    assert dry.returncode == 0, dry.stderr
    calls = tmp_path / "calls"
    started = (
        [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
    )
    computes = ("rules.py", "scratch.py", "-c")  # options of what it prints
    assert not [call for call in started if not call[0].endswith(computes)]
    assert re.search(r"^\$ .*unitk (train|latent|generate|evaluate|quickstart)", dry.stdout, re.M)


@pytest.mark.parametrize(("name", "paper"), [("glue", "roberta"), ("squad", "spanbert")])
def test_labels_are_learnt_with_the_settings_of_a_paper(name, paper, tmp_path):
    given = {"PAPER": paper, "INIT": "its/model", "RUN": "run"}
    given |= {"SETS": "rte", "DATA": str(tmp_path)} if name == "glue" else {}
    dry = start(name, tmp_path, DRY="1", **given)
    assert dry.returncode == 0, dry.stderr
    first = (RECIPES / "papers" / paper / "finetune.yaml").read_text().splitlines()[0]
    assert dry.stdout.startswith(first.removeprefix("# "))
    planned = [shlex.split(line)[1:] for line in dry.stdout.splitlines() if line[0] == "$"]
    verbs = [words[1:] for words in planned if words[0] == "unitk"]
    assert [words[0] for words in verbs] == ["preprocess", "train", "predict", "score"]
    config = RECIPES / "papers" / paper / "finetune.yaml"
    assert verbs[1][verbs[1].index("--config") + 1] == str(config)
    assert not (tmp_path / "run").exists()
    done = start(name, tmp_path, **{**given, "INIT": "", "RUN": "other"})
    assert done.returncode == 2 and f"INIT: PAPER={paper} begins" in done.stderr
    done = start(name, tmp_path, DRY="1", **{**given, "SETS": "wnli", "PAPER": "electra"})
    assert done.returncode == 2 and ("no wnli" if name == "glue" else "no electra") in done.stderr


@pytest.mark.parametrize("paper", ["roberta", "albert"])
def test_settings_of_glue_are_those_of_unitk(paper):
    titles, *rows = csv.reader((RECIPES / "papers" / paper / "glue.tsv").open(), delimiter="\t")
    assert titles == ["set", "rate", "texts", "updates", "warm-up", "figure"]
    assert [row[0] for row in rows] == [
        "mnli",
        "qnli",
        "qqp",
        "rte",
        "sst2",
        "mrpc",
        "cola",
        "stsb",
    ]
    for _, rate, texts, updates, warm, _ in rows:
        own = f"--lr {rate} --batch-texts {texts} --max-epochs none --max-steps {updates}"
        own += f" --lr-schedule linear:warmup={warm} --data d --save-dir s --arch bert_tiny"
        config = RECIPES / "papers" / paper / "finetune.yaml"
        words = ["--config", str(config), "--task.layout", "mlm", *own.split()]
        run = parse("train", TrainConfig, words, COMPONENTS).main
        assert (run.lr, run.max_steps, run.max_epochs) == (float(rate), int(updates), None)


def test_several_texts(tmp_path):
    done = start("ablation", tmp_path, TEXTS="one.jsonl two.jsonl")
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "calls").read_text().splitlines()[0])
    assert first[:3] == ["preprocess", "--input=one.jsonl", "--input=two.jsonl"]


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["glue", "ner", "superglue_cloze", "ulmfit", "compare"])
def test_sets_may_be_added(name, tmp_path):
    sets = {"ner": "wnut17 wikigold", "superglue_cloze": "rte cb", "ulmfit": "trec imdb"}
    both = sets.get(name, "sst2 cola").split()
    env = {"RUN": "run", "DATA": str(tmp_path), **FEW.get(name, {})}
    for given in (both[0], " ".join(both)):
        done = start(name, tmp_path, SETS=given, **env)
        assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    collected = [call for call in calls if call[0].endswith("/collect.py")]
    assert [[one for one in both if one in call] for call in collected] == [[one] for one in both]


@pytest.mark.parametrize(("steps", "mean"), [("12", "4"), ("100", "10")])
def test_no_more_checkpoints_are_averaged_than_were_saved(steps, mean, tmp_path):
    done = start("translate", tmp_path, STEPS=steps, SAVE_EVERY="3")
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    (averaged,) = [call for call in calls if call[0] == "average"]
    assert averaged[averaged.index("--last") + 1] == mean


def test_rows_of_an_ablation(tmp_path):
    """Rates may have a point, and rows updates of their own."""
    settings = ["lm/a_1/adamw/0.002", "lm/a_1/muon/2e-3@2", "lm/a_1/muon/0.02/init-std=0.05"]
    for number, row in enumerate(settings):
        mark = tmp_path / f".{row.replace('/', '.')}"
        mark.touch()
        os.utime(mark, (number, number))
        log = tmp_path / "rows" / mark.name[1:] / "log.jsonl"
        log.parent.mkdir(parents=True)
        losses = list(enumerate((4 - number, 3 - number, 2 - number), start=1))
        losses = losses[: int(row.partition("@")[2] or 3)]
        events = [{"kind": "valid", "step": at, "valid/loss": loss} for at, loss in losses]
        log.write_text("".join(json.dumps(event) + "\n" for event in events))
    command = [sys.executable, str(RECIPES / "ablation" / "report.py"), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{RECIPES}{os.pathsep}{RECIPES.parent}"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in done.stdout.split("\n")
    ]
    assert [row[:6] for row in rows[2:5]] == [
        ["lm", "a_1", "adamw", "0.002", "", "3"],
        ["lm", "a_1", "muon", "2e-3", "", "2"],
        ["lm", "a_1", "muon", "0.02", "init-std=0.05", "3"],
    ]
    # the second row has the last loss of the first one, 2, after two of its three updates
    assert [row[-2:] for row in rows[2:5]] == [
        ["", ""],
        ["0.67", "a_1 adamw 0.002"],
        ["0.33", "a_1 adamw 0.002"],
    ]


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("vae_toy", {"REGIMES": "constant cyclic"}, "there is no cyclic"),
        ("vae_captions", {"DATA": "nowhere"}, "nowhere lacks train.txt or train.txt.gz"),
        ("vae_grid", {"DATA": "nowhere"}, "nowhere lacks train.txt or train.txt.gz"),
        ("toy_copy", {"TASK": "mlm"}, "there is no mlm"),
        ("lowdata", {"MODELS": "mlm vea"}, "there is no vea"),
        ("ulmfit", {"ROWS": "scratch ful"}, "there is no ful"),
        ("mass_translation", {"ROWS": "mass bakc"}, "there is no bakc"),
        ("mass_translation", {"DATA": "nowhere"}, "there is no nowhere/train.en.gz"),
        ("ernie2", {"ROWS": "scratch distanc"}, "there is no distanc"),
        ("thu_ernie", {"WIKI": "nowhere"}, "WIKI: there is no nowhere"),
        ("zero_shot", {"QUESTIONS": "nowhere"}, "QUESTIONS: there is no nowhere"),
        ("summarize", {"DATASET": "aeslc"}, "data/aeslc"),
        ("mini", {"DATA": "nowhere"}, "there is no nowhere/squad-v1.1-nqg-split/train.json.gz"),
    ],
)
def test_a_wrong_variable_costs_no_finished_run(name, wrong, message, tmp_path):
    run = tmp_path / "run"
    assert start(name, tmp_path, RUN=str(run)).returncode == 0
    before = sorted(run.rglob("*"))
    (tmp_path / "calls").unlink()
    done = start(name, tmp_path, RUN=str(run), **wrong)
    assert done.returncode == 2 and message in done.stderr
    assert sorted(run.rglob("*")) == before and not (tmp_path / "calls").exists()


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["ernie2", "lowdata", "mini", "summarize", "ulmfit", "vae_toy"])
def test_what_is_kept_of_another_seed_is_named(name, tmp_path):
    assert start(name, tmp_path, RUN="run").returncode == 0
    before = (tmp_path / "calls").read_text().count('"train"')
    done = start(name, tmp_path, RUN="run", SEED="7")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().count('"train"') == before
    lines = [line for line in done.stderr.splitlines() if "--seed 1, not with --seed 7" in line]
    # the second round of mini has the next seed
    assert len(lines) == before - (name == "mini")
    assert done.stderr.count("kept as it was made") == before


def test_records_hold_any_character(tmp_path):
    """A line ends at a line feed: unitk writes what splitlines would cut as it is."""
    texts = [{"text": "one\u2028two\u0085three\x1c"}, {"text": "four"}]
    lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in texts]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    program = "import sys, json, pathlib, shared; "
    program += "print(json.dumps(shared.read_jsonl(pathlib.Path(sys.argv[1]))))"
    words = [sys.executable, "-c", program, str(tmp_path / "a.jsonl")]
    done = subprocess.run(words, cwd=RECIPES, capture_output=True, text=True)
    assert json.loads(done.stdout or "null") == texts, done.stderr
