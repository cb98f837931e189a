"""The bar of progress: what it counts is what it is told to count."""

import re

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
