"""Every figure of README, docs and cards has a capsule or a date and machine; faults are found."""

import hashlib
import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

PLACE = Path(__file__).resolve().parents[1] / "docs/capsules.py"
spec = importlib.util.spec_from_file_location("capsules", PLACE)
sys.modules["capsules"] = capsules = importlib.util.module_from_spec(spec)
spec.loader.exec_module(capsules)

CAPSULE = {
    "made_by": "bash recipes/it/run.sh",
    "data": {"data.txt": hashlib.sha256(b"text").hexdigest(), "SQuAD": "where it is from"},
    "seed": 1,
    "versions": "torch 2.13",
    "hardware": "a core",
    "date": "2026-11",
    "figures": {"README.md": {"`lm`": "68.1 | 79.3"}, "docs/page.md": ["a loss of 3.14 nats"]},
    "tolerance": "0.5",
}
README = "# It\n\n| | BLiMP | SST-2 |\n| --- | --- | --- |\n| `lm` | 68.1 | 79.3 |\n"


def test_figures_of_the_pages_are_those_of_their_capsules():
    assert capsules.faults() == []


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(capsules, "ROOT", tmp_path)
    (tmp_path / "recipes/it").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    files = {"recipes/it/run.sh": "", "data.txt": "text", "README.md": README}
    files["docs/page.md"] = "It has a loss\nof 3.14 nats.\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    write(tmp_path)
    return tmp_path


def write(root, **changes):
    text = yaml.safe_dump({"all": CAPSULE | changes})
    (root / "recipes/it/capsule.yaml").write_text(text)


def test_what_agrees_has_no_fault(root):
    assert capsules.faults() == []


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("README.md", README.replace("68.1", "68.2"), "no row `lm` | 68.1 | 79.3"),
        ("README.md", f"{README}| `mlm` | 60.5 | |\n", "README.md:3: no capsule has `mlm`"),
        ("docs/page.md", "It has a loss of 3.15 nats.", "'a loss of 3.14 nats'"),
        ("data.txt", "texts", "data.txt has the SHA-256"),
    ],
)
def test_what_was_changed_is_named(root, file, text, named):
    (root / file).write_text(text)
    assert named in "\n".join(capsules.faults())


def test_files_that_are_gone_are_named(root):
    for name in ("recipes/it/run.sh", "data.txt"):
        (root / name).unlink()
    text = "\n".join(capsules.faults())
    assert "no recipes/it/run.sh" in text and "no data.txt" in text


@pytest.mark.parametrize(("mark", "good"), [("Measured: 2026-11-22, one core.", True), ("", False)])
def test_a_date_and_a_machine_stand_for_a_capsule(root, mark, good):
    """Those of a section hold for the sections in it, and for no other."""
    write(root, figures={})
    table = README.partition("# It\n")[2]
    (root / "README.md").write_text(f"# It\n\n## One\n\n{mark}\n\n### Within\n{table}")
    assert (capsules.faults() == []) == good
    (root / "README.md").write_text(f"# It\n\n## One\n\n{mark}\n\n## Two\n{table}")
    assert len(capsules.faults()) == 1


def test_options_and_code_are_no_figures(root):
    write(root, figures={})
    (root / "README.md").write_text("```\n| a | 1.5 |\n```\n\n| `--lr` | 0.1 |\n")
    assert capsules.faults() == []


def test_a_capsule_is_run(root, capfd):
    (root / "recipes/it/run.sh").write_text("echo 68.0\n")
    assert capsules.main(["it/all"]) == 0
    said = capfd.readouterr().out
    assert "68.0" in said and "`lm` | 68.1 | 79.3" in said
    assert capsules.main(["it/none"]) == 2
    write(root, extra=1)
    assert capsules.main([]) == 1 and "extra" in capfd.readouterr().out
