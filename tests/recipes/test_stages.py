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
        ({"OBJECTIVE": "glm_infill"}, "unitk-mini-en", None),
        ({"OBJECTIVE": "glm_infill", "INIT": "runs/x"}, "runs/x", None),
        ({"OBJECTIVE": "none"}, None, "modern_mini"),
    ],
)
def test_a_model_that_comes_with_unitk_is_fine_tuned_or_its_stack_from_scratch(
    told, env, init, arch
):
    (tune,) = told(SIZE="mini", **env)
    assert (tune.get("--init-from"), tune.get("--arch")) == (init, arch)
    assert tune["--optimizer"] == "muon"
