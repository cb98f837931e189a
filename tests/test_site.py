"""The documentation's site: what `make docs` adds to docs/, and no dead link in what it builds."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from test_readme import ALL, commands

ROOT = Path(__file__).resolve().parents[1]


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_broken_commands_are_the_same_commands():
    lines = module("lines")
    width = 0
    for block in ALL:
        text = f"```bash\n{block.text}```"
        new = lines.broken(text)
        if block.language == "bash" and "<<" not in block.text:
            assert commands(new) == commands(text), block.page
            width = max(width, *(len(line) for line in new.splitlines()))
    assert width < 200
    long = (
        "unitk train --task lm --data data-bin/text/train --save-dir runs/a --max-steps 9000 | cat"
    )
    assert lines.command(long).splitlines() == [
        "unitk train --task lm --data data-bin/text/train --save-dir runs/a \\",
        "    --max-steps 9000 | cat",
    ]
    assert lines.command("printf 'a\nb'" + "x" * 80) == "printf 'a\nb'" + "x" * 80


def test_every_verb_has_a_page():
    pages = module("verb_pages")
    assert pages.GUIDES.keys() <= set(pages.verb_names())
    found = pages.pages()
    assert all("--help-all" not in found[f"reference/{verb}.md"] for verb in pages.verb_names())
    assert "--max-steps" in found["reference/train.md"]
    assert found["reference/latent.md"].count("## unitk latent") > 5


class Page(HTMLParser):
    """Links and names of a page of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.names = list[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" or (tag == "a" and name == "name"):
                self.names.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_no_link_of_the_site_is_dead(site):
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 70
    dead = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the address of the site
            continue
        here = f"/{path.relative_to(site).as_posix()}"
        for link in page.links:
            parts = urlsplit(urljoin(here, link))
            if urlsplit(link).scheme or urlsplit(link).netloc:
                continue
            there = site / unquote(parts.path).lstrip("/")
            there = there / "index.html" if there.is_dir() else there
            known = pages[there].names if there in pages else set()
            if not there.exists() or (parts.fragment and unquote(parts.fragment) not in known):
                dead.append(f"{here}: {link}")
    assert not dead, "\n".join(dead)


@pytest.mark.slow
def test_no_page_asks_a_foreign_server(site):
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', path.read_text()
        )
        assert not [one for one in loaded if "canonical" not in one], path


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["summarization", "LoRA", "early stopping", "sweep", "out of memory", "translation"]
)
def test_search_finds(site, word):
    """A heading has the words, which weighs more than a text does."""
    docs = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert any(word.lower() in one["title"].lower() for one in docs)


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b"),
        ("git@gitlab.com:a/b/c.git", "https://gitlab.com/a/b/c"),
        ("https://me:token@github.com/a/b", "https://github.com/a/b"),
        ("/some/folder", None),
        ("", None),
    ],
)
def test_the_repository_of_a_remote(remote, page):
    pytest.importorskip("mkdocs")
    assert module("hooks").repository(remote) == page
