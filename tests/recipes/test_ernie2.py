"""recipes/ernie2: each way of learning on a few texts, and a table of what it learnt."""

import pytest

from .test_recipes import recipe


@pytest.mark.slow
def test_ways_of_learning_are_compared(tmp_path):
    env = {"RUN": "run", "STEPS": "3", "OBJECTIVES": "knowledge,capital,distance", "BLOCK": "48"}
    env |= {"SETTING": "cpu", "BATCH": "4"}
    env |= {"ROWS": "multitask continual distance", "OMP_NUM_THREADS": "1", "PRECISION": "fp32"}
    printed = recipe("ernie2", tmp_path, **env)
    rows = {
        line.split(" | ")[0][2:]: line for line in printed.splitlines() if line.startswith("| ")
    }
    assert {"multitask", "continual", "distance", "most frequent class"} <= rows.keys()
    cells = {name: [cell.strip() for cell in line.split("|")[2:-1]] for name, line in rows.items()}
    assert [cells[name][0] for name in ("multitask", "continual", "distance")] == ["3", "3", "1"]
    # no connective is asked for, and what learns distances alone is asked for nothing else
    assert not cells["multitask"][-1]
    assert [bool(cell) for cell in cells["distance"][1:]] == [False] * 4 + [True, False]
    # of three classes, one has a third of the answers or more
    assert 33 < float(cells["most frequent class"][5].rstrip(" %")) < 100
    before = (tmp_path / "run/multitask/config.yaml").stat().st_mtime_ns
    assert recipe("ernie2", tmp_path, **env).splitlines()[-6:] == printed.splitlines()[-6:]
    assert (tmp_path / "run/multitask/config.yaml").stat().st_mtime_ns == before
    # what learns words alone comes first: the last two rows are still of all objectives
    more = recipe("ernie2", tmp_path, **{**env, "ROWS": "knowledge multitask"})
    assert more.splitlines()[-2:] == printed.splitlines()[-2:]
