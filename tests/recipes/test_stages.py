"""What `recipes/stages.sh` hands to unitk, which here only writes down its options."""

import os
import subprocess
from pathlib import Path

import pytest

STAGES = Path(__file__).resolve().parents[2] / "recipes" / "stages.sh"
CALLER = f"""set -euo pipefail
. {STAGES}
settings
mine "$RUN"
SEED=1 TEXTS=a HELDOUT=b copies=answers SOURCE=460 WINDOW=460 TARGET=48 text=() pairs=() search=()
stages
"""


@pytest.fixture
def shell(tmp_path):
    """Runs a script that reads `stages.sh`, with RUN in the folder of the test."""
    program = tmp_path / "bin" / "unitk"
    program.parent.mkdir()
    program.touch(mode=0o755)

    def run(script):
        env = {"RUN": str(tmp_path), "PATH": f"{program.parent}{os.pathsep}{os.defpath}"}
        text = f"set -euo pipefail\n. {STAGES}\n{script}"
        return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True)

    return run


@pytest.fixture
def told(tmp_path):
    """The options of every `unitk train` of OBJECTIVE and SIZE."""
    stub = tmp_path / "bin" / "unitk"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    stub.chmod(0o755)

    def run(**env):
        env |= {"RUN": str(tmp_path / "run"), "PATH": f"{stub.parent}{os.pathsep}{os.defpath}"}
        subprocess.run(["bash", "-c", CALLER], env=env, check=True, capture_output=True)
        lines = map(str.split, (tmp_path / "told").read_text().splitlines())
        calls = [line for line in lines if line[0] == "train"]
        return [dict(zip(line[1:], line[2:], strict=False)) for line in calls]

    return run


@pytest.mark.parametrize(
    ("objective", "published"),
    [("mass", 5e-4), ("glm_infill", 3e-5), ("mlm", 7e-5), ("pmlm", 7e-5), ("lm", 6.25e-5)],
)
def test_a_released_model_is_fine_tuned_with_a_published_rate(told, objective, published):
    (tune,) = told(OBJECTIVE=objective, SIZE="base", INIT="downloads/model")
    assert float(tune["--lr"]) == published
    assert tune["--init-from"] == "downloads/model" and "--arch" not in tune


def test_own_models_keep_their_rates(told):
    first, tune = told(OBJECTIVE="unilm", SIZE="base")
    assert (first["--lr"], tune["--lr"], tune["--arch"]) == ("2e-4", "7e-5", "unilm_base")


@pytest.mark.parametrize(
    ("env", "rates"),
    [
        ({"OBJECTIVE": "unilm", "SIZE": "small"}, ["3e-3", "3e-3"]),
        ({"OBJECTIVE": "none", "SIZE": "base"}, ["2e-4"]),
        (
            {"OBJECTIVE": "pmlm", "SIZE": "base", "LR": "6e-4", "FINETUNE_LR": "1e-4"},
            ["6e-4", "1e-4"],
        ),
    ],
)
def test_small_models_and_those_from_scratch_have_one_rate(told, env, rates):
    assert [call["--lr"] for call in told(**env)] == rates


@pytest.mark.parametrize(
    ("env", "init", "arch"),
    [
        ({"OBJECTIVE": "glm_infill"}, "unitk-base-en", None),
        ({"OBJECTIVE": "glm_infill", "INIT": "runs/x"}, "runs/x", None),
        ({"OBJECTIVE": "none"}, None, "qwen3_15m"),
    ],
)
def test_a_model_that_comes_with_unitk_is_fine_tuned_or_its_stack_from_scratch(
    told, env, init, arch
):
    (tune,) = told(SIZE="mini", **env)
    assert (tune.get("--init-from"), tune.get("--arch")) == (init, arch)
    assert (tune.get("--adapter"), tune.get("--optimizer")) == (
        (None, "muon") if init is None else ("lora:rank=32", None)
    )


ONE = """once "$RUN/.a" printf '%s.' {0}; said "$RUN/b" printf '%s.' {0}"""


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("x --seed 1 --dest $RUN/y", ""),
        ("x --dest $RUN/./../${RUN##*/}/y --seed 1", "--dest y, not with --dest ./../"),
        ("x --seed 2 --dest $RUN/y", "--seed 1, not with --seed 2;"),
        ("x --dest $RUN/y", "--seed 1;"),
        ("x --seed 1 --dest $RUN/y --more 'a b'", "not with --more a b;"),
        ("z --seed 1 --dest $RUN/y", "printf %s. x, not with printf %s. z;"),
    ],
)
def test_what_is_finished_is_kept_and_its_other_options_are_named(words, other, shell, tmp_path):
    first = shell(ONE.format("x --seed 1 --dest $RUN/y"))
    assert first.stdout == (tmp_path / "b").read_text() != "" and first.stderr == ""
    again = shell(ONE.format(words))
    assert again.stdout == "" and (tmp_path / "b").read_text() == first.stdout
    lines = again.stderr.splitlines()
    assert len(lines) == 2 * bool(other)
    for line, name in zip(lines, (".a", ".b"), strict=False):
        assert line.startswith(f"{tmp_path}/{name}: kept as it was made, ") and other in line


def test_a_mark_without_options_is_kept(shell, tmp_path):
    (tmp_path / ".a").touch()
    done = shell('once "$RUN/.a" echo --seed 2')
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("after", ["", " && true", " || true"])
def test_what_fails_is_not_finished(after, shell, tmp_path):
    """Also where bash goes on after errors: in a list of commands."""
    shell(f'both() {{ once "$RUN/.a" false; }}; both{after}')
    shell(f'both() {{ said "$RUN/b" ls "$RUN/nowhere"; }}; both{after}')
    assert {path.name for path in tmp_path.iterdir()} <= {"bin", "b.part"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("FINETUNE_STEPS=1k", "FINETUNE_STEPS must be a whole number above 0, got 1k"),
        ("FINETUNE_TOKENS=0", "FINETUNE_TOKENS must be a whole number above 0, got 0"),
        ("FINETUNE_LR=3e-3x", "FINETUNE_LR must be a number such as 1e-3, got 3e-3x"),
        ("LR=1e", "LR must be a number such as 1e-3, got 1e"),
        ("FINETUNE_STEPS=7 FINETUNE_LR=.5 LR=1.5E-3", ""),
        ("FINETUNE_LR=2. LR=10e-05", ""),
    ],
)
def test_numbers_of_later_stages_are_refused_at_once(shell, given, said):
    done = shell(f"{given}; OBJECTIVE=mlm SIZE=small; settings")
    assert (done.returncode, done.stderr.strip()) == (2 if said else 0, said)


@pytest.mark.parametrize(("given", "refused"), [("1 10 100", ""), ("1 ten", "ten"), ("0", "0")])
def test_each_number_of_a_list_is_looked_at(shell, given, refused):
    done = shell(f"LABELS='{given}'; whole LABELS SEEDS")
    assert refused in done.stderr and bool(done.returncode) == bool(refused)
