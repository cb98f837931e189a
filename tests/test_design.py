"""docs/design.md, the glossary and CONTRIBUTING.md name files, kinds and layers that there are."""

import re
from pathlib import Path

import pytest
import test_architecture as architecture

from unitk import registry

ROOT = Path(__file__).resolve().parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text()
NAMED = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|md|yaml|svg|json)|(?:[\w-]+/)+)`")
PLACES = ("", "unitk", "unitk/training/saving", "unitk/models", "docs")
MADE = {"config.yaml", "generate.yaml", "words.npy", "checkpoints/step-N/"}
"""What runs and corpora hold."""


@pytest.mark.parametrize("page", ["docs/design.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_are_there(page):
    text = re.sub(r"[`\w/]*NAME[\w./`]*", "", (ROOT / page).read_text())
    found = set(NAMED.findall(text)) - MADE
    there = {name for name in found for place in PLACES if (ROOT / place / name).exists()}
    assert found and not found - there


def test_code_and_tests_that_pages_name_are_there():
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/*/README.md"), ROOT / "README.md"]
    path = re.compile(r"`((?:tests|unitk|unitk_cli|docs|recipes)/[\w./-]+\.(?:py|sh|md|yaml))`")
    found = {name for page in pages for name in path.findall(page.read_text())}
    assert len(found) > 20 and not [one for one in found if not (ROOT / one).exists()]


def test_the_tree_has_every_file_that_it_names():
    """A name comes after its folder; what is said of names that are no files has no dot."""
    tree = DESIGN.split("```")[1]
    parents, folders = dict[int, str](), set[str]()
    for line in tree.splitlines()[1:]:
        if not (found := re.match(r"( *)([\w/.{}-]+/|[\w.]+\.py)(?: |$)", line)):
            continue
        depth, name = len(found[1]), found[2]
        parents = {one: folder for one, folder in parents.items() if one < depth}
        inside = [*parents.values()]
        if name.endswith("/"):
            parents[depth] = name
            inside = [*parents.values()]
            folders.add("".join(inside))
        parts = re.split(r"([\w/]+/): ", line[found.end() :])
        for prefix, part in zip(["", *parts[1::2]], parts[0::2], strict=True):
            for file in re.findall(r"[\w/]+\.py", line[: found.end()] * (not prefix) + part):
                near = ["".join([*inside, prefix, file]), "".join([*inside, file])]
                assert any((ROOT / one).exists() for one in near), f"{''.join(inside)}: {file}"
    packages = {f"unitk/{one.parent.name}/" for one in ROOT.glob("unitk/*/__init__.py")}
    families = {
        f"unitk/families/{one.parent.name}/" for one in ROOT.glob("unitk/families/*/__init__.py")
    }
    assert not (packages | families) - folders


def test_the_kinds_are_those_of_the_registry():
    said = DESIGN.partition("Registry kinds are")[2].partition("The latter")[0]
    parts = said.split("Further ones need torch")
    plain, torch = (set(re.findall(r"`(\w+)`", part)) for part in parts)
    assert torch == set(registry.MODULES)
    assert plain | torch == set(registry.KINDS)


def test_the_layers_are_those_that_are_tested():
    rows = re.findall(r"^\| (\d) \| (.*) \|$", DESIGN, re.M)
    shown = dict[str, int]()
    for layer, text in rows:
        for package in re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))):
            shown.setdefault(package, int(layer))
    for one, lower in architecture.LAYER.items():
        for other, higher in architecture.LAYER.items():
            assert (lower < higher) == (shown[one] < shown[other]), (one, other)


def test_an_example_of_each_component_registers_one():
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("kind of the registry")[2]
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \| `([\w/.]+)` \|$", table, re.M)
    assert len(rows) >= 13
    for kinds, example in rows:
        for kind in re.findall(r"`(\w+)`", kinds):
            registers = rf"register\(\s*\"{kind}\""
            assert kind in registry.KINDS and re.search(registers, (ROOT / example).read_text())
