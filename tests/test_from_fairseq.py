"""docs/from-fairseq.md names every option of fairseq's, and only options of unitk's that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_programs import needs_fairseq

from unitk import registry
from unitk.errors import UsageError
from unitk.evaluation.options import with_evaluations
from unitk.fairseq import flags as fairseq_flags
from unitk.options import config
from unitk.training.config import TrainConfig
from unitk.training.start import parse_train
from unitk.verbs import average, convert, evaluate, generate, preprocess, score

PAGE = Path(__file__).resolve().parents[1] / "docs" / "from-fairseq.md"
FLAG = re.compile(r"--[a-z][\w.-]*\w")
KINDS = ("task", "arch", "criterion", "optimizer")
DOUBTFUL = re.compile(r"none|always|`unitk ")


def rows():
    """fairseq's cell and unitk's of every row of a table with fairseq's names."""
    tables = PAGE.read_text(encoding="utf-8").split("\n\n")
    lines = [
        line for table in tables if table.startswith("| fairseq |") for line in table.split("\n")
    ]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert all(len(row) == 2 for row in cells)
    return [row for row in cells if row[0] not in ("fairseq", "---")]


def flags_of(text):
    """The options within backticks."""
    return {flag for code in re.findall(r"`([^`]*)`", text) for flag in FLAG.findall(code)}


def known():
    """Every option of unitk's."""
    verbs = [TrainConfig, with_evaluations(evaluate.Options)]
    verbs += [verb.Options for verb in (average, convert, generate, preprocess, score)]
    found = {option.flag for verb in verbs for option in config.options(verb)}
    found.add("--quiet")  # of every verb
    for kind in KINDS:
        found.add(f"--{kind}")
        for name in registry.names(kind):
            part = registry.get(kind, name)
            cls = type(part()) if kind == "arch" else part.Config if kind == "task" else part
            found |= {f"--{kind}.{option.flag[2:]}" for option in config.options(cls)}
    return found


def test_the_page_names_options_that_exist():
    there = known()
    assert len(rows()) > 90
    for theirs, ours in rows():
        assert not (wrong := flags_of(ours) - there), (theirs, wrong)
        assert flags_of(ours) or DOUBTFUL.search(ours), (theirs, ours)


def test_hints_are_those_of_the_page():
    there = known()
    found = {theirs: ours for cell, ours in rows() for theirs in flags_of(cell)}
    tables = fairseq_flags.NAMES, fairseq_flags.TRANSFORMERS, fairseq_flags.OTHERS
    for key, names in (pair for table in tables for pair in table.items()):
        for name in names:
            assert name.split()[0] in there, key
        theirs = f"--{key.replace('_', '-')}"
        both = {flag for name in names for flag in FLAG.findall(name)}
        assert theirs not in found or both & flags_of(found[theirs]), (theirs, found[theirs])


def test_an_option_of_fairseq_is_answered_with_ours():
    words = "--task seq2seq --data x --save-dir y --max-steps 1".split()
    for given, message in [
        ("--max-update", "no such option; fairseq's --max-update is --max-steps here"),
        ("--label-smoothing", "is --criterion.label-smoothing here"),
        ("--update-freq", "is --batch-tokens here"),
        ("--max-stebs", "no such option; did you mean --max-steps"),
        ("--curriculum", "no such option; --help-all lists what applies"),
    ]:
        with pytest.raises(UsageError, match=re.escape(f"{given}: ") + f".*{message}"):
            parse_train([*words, given, "1"])
    with pytest.raises(UsageError, match="fairseq's --batch-size is --max-tokens here"):
        generate.run("--checkpoint x --input y --batch-size 3".split())
    with pytest.raises(UsageError, match="fairseq's --trainpref is --input here"):
        preprocess.run("--trainpref x".split())
    with pytest.raises(UsageError, match="--model is --checkpoint here"):
        generate.run("--model x --input y".split())
    with pytest.raises(UsageError, match="^--in: .*--in is --input here"):  # a word of Python's
        generate.run("--checkpoint x --in y".split())
    with pytest.raises(UsageError, match="--model is --init-from here"):
        parse_train([*words, "--model", "x"])


def faults(call, words):
    """The lines of an error."""
    with pytest.raises(UsageError) as error:
        call(words.split())
    return str(error.value).split("\n")


def test_all_mistakes_of_an_old_command_are_told_at_once():
    old = "db --task translation --criterion label_smoothed_cross_entropy --update-freq 4 --lr 1"
    word, task, criterion, factor = sorted(faults(parse_train, f"{old} --fp17"), key=len)[1:]
    assert word.endswith("did you mean --data db?")
    assert task.endswith("fairseq's translation is seq2seq here")
    assert criterion.endswith("is cross_entropy here")
    assert "--batch-tokens here" in factor
    old = "--trainpref a --joined-dictionary -s de -t en --destdir x"
    pairs, one, source, target, folder = faults(preprocess.run, old)
    assert "names: --source-file" in pairs and "one vocabulary" in one
    assert source == "-s: no such option; fairseq's -s is --source-lang here"
    assert "--target-lang" in target and "--dest here" in folder


def test_names_of_transformers_are_known():
    beam, top = faults(generate.run, "--num-beams 4 --top-p 0.9")
    assert beam == "--num-beams: no such option; transformers' --num-beams is --beam here"
    assert "--sampling-topp here" in top
    (epochs,) = faults(parse_train, "--task lm --num-train-epochs 3")
    assert "--max-epochs here" in epochs


def test_words_of_users_lead_to_names_that_exist():
    tasks = registry.names("task")
    known = {one for kind in (*KINDS, "verb") for one in registry.names(kind)}
    for word, here in {**fairseq_flags.CHOICES, **fairseq_flags.WORDS}.items():
        assert known.issuperset(here), word
        if own := [name for name in here if name in tasks and word not in tasks]:
            with pytest.raises(UsageError, match=f"{word} is {' or '.join(own)} here"):
                registry.get("task", word)
    words = [sys.executable, "-m", "unitk_cli", "fine-tune", "--lr", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.endswith("is train here\n")


ALL = """
from fairseq import options as o
for make in (o.get_preprocessing_parser, o.get_training_parser, o.get_generation_parser):
    for action in make()._actions:
        print(*action.option_strings)
"""


@pytest.mark.slow
@needs_fairseq
def test_the_page_names_every_option_of_fairseq():
    done = subprocess.run([sys.executable, "-c", ALL], capture_output=True, text=True, check=True)
    theirs = {flag for flag in done.stdout.split() if flag.startswith("--")} - {"--help"}
    assert len(theirs) > 200
    assert not (missing := theirs - {flag for cell, _ in rows() for flag in flags_of(cell)}), (
        missing
    )
