"""Files that are made from the code are up to date: docs/packages.svg and unitk/keywords.pyi."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def packages():
    return script("packages")


def test_the_keywords_of_the_python_api_are_its_options():
    """In a process of its own: options of plug-ins that other tests load are none of unitk's."""
    code = "import keywords; print(keywords.stub(), end='')"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT / "docs", capture_output=True, text=True, check=True)
    stub = (ROOT / "unitk" / "keywords.pyi").read_text()
    assert stub == done.stdout, "run python docs/keywords.py"


def test_the_picture_is_what_the_imports_say(packages):
    assert packages.PICTURE.read_text() == packages.picture(), "run python docs/packages.py"


def test_every_package_is_in_it(packages):
    folders = {path.parent.name for path in ROOT.glob("unitk/*/__init__.py")}
    drawn = {name for row in packages.ROWS for name in row}
    assert drawn == packages.ABOUT.keys() == folders | {"unitk", "unitk_cli"}


def test_arrows_imply_all_imports(packages):
    pairs, reach = packages.uses(), packages.direct(packages.uses())
    for _ in packages.ROWS:
        reach = reach | {(a, d) for a, b in reach for c, d in reach if b == c}
    assert pairs <= reach
