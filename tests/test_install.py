"""What is installed: pyproject.toml, constraints.txt, locked requirements, Makefile, Dockerfile."""

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)((?:.*\\\n)*.*)", re.M)


def name_of(requirement):
    return re.match(r"[\w-]+", requirement)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def declared():
    """What pyproject.toml asks for: name of an extra, or "" -> names of packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = project["optional-dependencies"] | {"": project["dependencies"]}
    return {extra: {*map(name_of, some)} for extra, some in groups.items()}


def locked(file):
    """Name -> versions and hashes of a file of requirements."""
    found = {}
    for name, version, rest in LOCKED.findall((ROOT / file).read_text()):
        versions, hashes = found.setdefault(name, (set(), []))
        versions.add(version)
        hashes += re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)
    return found


def test_the_requirements_are_those_of_the_project_and_constraints(declared):
    """`make lock` writes them. PyTorch is not in them: its builds differ in their hashes."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    wanted = {"requirements.txt": declared[""]}
    wanted["requirements-dev.txt"] = declared[""] | declared["dev"] | declared["docs"]
    for file, names in wanted.items():
        found = locked(file)
        assert names - found.keys() == {"torch"}, f"{file}: run make lock"
        for name in names - {"torch"}:
            assert found[name][0] == {tested[name]}, f"{file}: run make lock"
        assert all(hashes for _, hashes in found.values())
        text = (ROOT / file).read_text()
        assert "://" not in text and not re.search(r"^--|nvidia", text, re.M)
    core, dev = map(locked, wanted)
    assert core.items() <= dev.items()


def test_packages_come_from_one_index():
    """With a second index pip takes the highest version of any package from either."""
    files = ["Makefile", "Dockerfile", "README.md", *map(str, ROOT.glob("docs/**/*.md"))]
    assert not [file for file in files if "extra-index-url" in (ROOT / file).read_text()]
    makefile = (ROOT / "Makefile").read_text()
    assert makefile.count("--require-hashes -r requirements") == 2


def test_the_dockerfile_copies_what_there_is():
    """It was not built by a test: what a wheel is made of is there, and docker gets it."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    needed = {"setup.py", "unitk", "unitk_cli", "recipes/quickstart", "requirements.txt"}
    assert needed <= {*copied} and all((ROOT / name).exists() for name in copied)
    sent = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    assert sorted(sent) == sorted(copied)
    assert any(fnmatch(line, "FROM python:3.*.*-*") for line in lines)
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users and users[-1] != "root"


@pytest.mark.slow
def test_an_editable_install_is_a_path(tmp_path):
    """Type checkers and editors follow the line of a .pth file; they run no finder of modules."""
    program = "from setuptools import build_meta; build_meta.build_editable('DEST')"
    source = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    command = [sys.executable, "-c", program.replace("DEST", str(tmp_path))]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, installed], check=True)
    assert {path.suffix for path in installed.iterdir()} == {".pth", ".dist-info"}
    [path] = installed.glob("*.pth")
    assert path.read_text().strip() == str(source)
