"""The bar of progress: what it counts is what it is told to count."""

import re
from itertools import count

import pytest

from unitk import progress


@pytest.mark.parametrize("unit", ["sentences", "heads"])
def test_the_bar_names_what_it_counts(unit, monkeypatch, capsys):
    monkeypatch.setattr(progress, "shows_progress", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.progress(4, unit=unit) as report:
        report(3)
        report(1)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(rf"4/4 [\d.]+ {unit}/s", shown)


@pytest.mark.parametrize(("total", "shown"), [(400, "200 of 400 heads"), (None, "200 heads")])
def test_a_file_gets_a_line_a_minute(total, shown, monkeypatch, capsys):
    """Reports come at every second for 200 seconds; the output of tests is no terminal."""
    clock = count()
    monkeypatch.setattr(progress, "perf_counter", lambda: float(next(clock)))
    with progress.progress(total, unit="heads") as report:
        for _ in range(200):
            report(1)
    assert len(capsys.readouterr().err.splitlines()) == 200 // 61
    monkeypatch.setattr(progress, "LINE", 100.0)
    with progress.progress(total, done=99, unit="heads") as report:
        report(1)
        *_, _ = (next(clock) for _ in range(100))
        report(100)
    assert capsys.readouterr().err == f"{shown} after 2 min\n"


@pytest.mark.parametrize(("shown", "quiet"), [(False, ""), (True, "1")])
def test_neither_a_file_nor_a_terminal_gets_any_if_asked(shown, quiet, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE", -1.0)
    if quiet:
        monkeypatch.setenv("UNITK_QUIET", quiet)
    with progress.progress(4, shown=shown) as report:
        report(1)
    assert not capsys.readouterr().err
