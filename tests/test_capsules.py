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
        ("README.md", README.replace("68.1", "68.2"), "no row `lm` | 68.1 | 79.3, but 68.2 | 79.3"),
        ("README.md", f"{README}| `mlm` | 60.5 | |\n", "README.md:3: no capsule, mark or link has"),
        ("README.md", f"{README}| `lm` | 60.5 | |\n", "link has rows `lm`"),
        ("README.md", f"{README}| `mlm` | 60 % | |\n", "link has rows `mlm`"),
        ("README.md", f"{README}\nIts BLEU is 12.1 there.\n", "12.1 in 'Its BLEU is 12.1 there.'"),
        ("README.md", f"{README}\nIt has an accuracy of 91 %.\n", "91 % in"),
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
    (root / "docs/page.md").write_text("")
    write(root, figures={"docs/page.md": []})
    table = README.partition("# It\n")[2]
    (root / "README.md").write_text(f"# It\n\n## One\n\n{mark}\n\n### Within\n{table}")
    assert (capsules.faults() == []) == good
    (root / "README.md").write_text(f"# It\n\n## One\n\n{mark}\n\n## Two\n{table}")
    assert len(capsules.faults()) == 1


def test_options_and_code_are_no_figures(root):
    write(root, figures={"docs/page.md": ["a loss of 3.14 nats"]})
    (root / "README.md").write_text(
        "```\n| a | 1.5 |\n```\n\n| `--lr` | 0.1 |\n\n| `lm` | 1.5 M |\n"
    )
    sentence = (
        "Losses are of 1.5 million words (arXiv 1812.06162, section 4.1, `--lr 0.5`, Python 3.11)"
    )
    with (root / "README.md").open("a") as file:
        file.write(f"\n{sentence}; it warns below 0.1 nats, and the loss was low.\n")
    assert capsules.faults() == []


def test_a_capsule_is_run(root, capfd):
    (root / "recipes/it/run.sh").write_text("echo 68.0\n")
    assert capsules.main(["it/all"]) == 0
    said = capfd.readouterr().out
    assert "68.0" in said and "`lm` | 68.1 | 79.3" in said
    assert capsules.main(["it/none"]) == 2
    write(root, extra=1)
    assert capsules.main([]) == 1 and "extra" in capfd.readouterr().out


def test_a_paragraph_may_say_when_it_was_measured_or_link_to_the_page_that_has_it(root):
    """A number with a link must be on the linked page."""
    page, all_ = root / "docs/page.md", "It has a loss of 3.14 nats.\n\n"
    good = f"{all_}Its BLEU is 12.1 (measured 2026-11-22, one core).\n\n"
    good += "BLiMP is [68.1](../README.md).\n"
    page.write_text(good)
    assert capsules.faults() == []
    page.write_text(good.replace("68.1", "68.2").replace("measured ", ""))
    assert [one.partition(" in ")[0].rpartition(" ")[2] for one in capsules.faults()] == [
        "12.1",
        "68.2",
    ]
    page.write_text(f"{all_}Estimated: from sizes.\n\n| a | 1.5 |\n")
    assert capsules.faults() == []


def test_a_capsule_has_sentences_and_rows_of_one_page(root):
    (root / "README.md").write_text(f"{README}\nIts loss is 3.1.\n")
    words = ["loss is 3.1", {"`lm`": "68.1 | 79.3"}]
    write(root, figures=CAPSULE["figures"] | {"README.md": words})
    assert capsules.faults() == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"date": "today"}, "date must be 2026-11 or 2026-11-22, got today"),
        ({"hardware": ""}, "hardware is empty"),
        ({"data": {"data.txt": "6ce"}}, "data.txt must have a SHA-256"),
        ({"data": {"gone.txt": "6ce"}}, "gone.txt must have a SHA-256"),
        ({"figures": {}}, "figures must map names to values"),
        ({"figures": {"docs/none.md": []}}, "there is no page docs/none.md"),
    ],
)
def test_a_capsule_that_says_nothing_is_named(root, changes, named):
    write(root, **changes)
    assert any(one.startswith(f"it/all: {named}") for one in capsules.faults())


def test_a_file_that_is_no_yaml_is_named(root):
    for text in ("a: [", "- a", "all: 3"):
        (root / "recipes/it/capsule.yaml").write_text(text)
        if text == "all: 3":
            assert capsules.faults()[0].startswith("it/all: it must have data")
            continue
        with pytest.raises(SystemExit, match=r"recipes/it/capsule\.yaml: \S.*$"):
            capsules.faults()


def test_the_report_ends_with_what_was_compared(root, capsys):
    assert capsules.main([]) == 0
    assert capsys.readouterr().out.startswith("1 capsules agree with 2 pages")
    (root / "data.txt").write_text("texts")
    assert capsules.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 fault. A figure needs")
