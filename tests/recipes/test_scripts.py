"""Every script of recipes/ and docs/ has a --help, which does nothing else."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "recipes/shared.py",
    "recipes/rules.py",
    "recipes/summarize/published.py",
    "docs/hooks.py",
}
MODULES |= {"recipes/benchmarks/fairseq_peer.py", "docs/api_reference.py"}
MODULES |= {"docs/lines.py", "docs/verb_pages.py"}
"""Files that others import."""
SCRIPTS = {
    str(path.relative_to(ROOT))
    for folder in ("recipes", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if "plugin" not in path.parts
}


@pytest.mark.parametrize("name", sorted(SCRIPTS - MODULES))
def test_help_does_nothing_else(name, tmp_path, monkeypatch, capsys):
    if name.endswith("benchmarks/serve.py"):
        pytest.importorskip("httpx")
    monkeypatch.chdir(tmp_path)
    for folder in ("recipes", str(Path(name).parent)):
        monkeypatch.syspath_prepend(ROOT / folder)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    loaded = set(sys.modules)
    with pytest.raises(SystemExit) as exit:
        runpy.run_path(str(ROOT / name), run_name="__main__")
    own = tuple(str(ROOT / folder) for folder in ("recipes", "docs"))
    for module in set(sys.modules) - loaded:  # several folders have a module of one name
        if str(getattr(sys.modules[module], "__file__", "")).startswith(own):
            del sys.modules[module]
    assert exit.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: {Path(name).name} ") and said.count("\n") > 3
    assert not [*tmp_path.iterdir()]


def test_the_list_of_modules_is_right():
    assert MODULES <= SCRIPTS
