"""What the site has beside docs/: the references, the recipes, the models' cards, the version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from unitk.files import VERSION

sys.path.insert(0, str(Path(__file__).parent))
import api_reference  # noqa: E402  (beside this file, which is no package)
import lines  # noqa: E402
import notebooks  # noqa: E402
import verb_pages  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
READMES = {"recipes": "recipes", "unitk/pretrained": "models"}
"""Folder of folders with a README -> folder of the site that has these pages."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Add the version, the repository that this clone is of, and the pages made here."""
    os.environ["COLUMNS"] = "78"
    config.site_name = f"unitk {VERSION}"
    config.copyright = "MIT licence"
    config.repo_url = repository(origin())
    config.repo_name = "repository" if config.repo_url else None
    made = {
        "RECIPES": [uri for uri in pages().values() if uri.startswith("recipes/")],
        "MODELS": [uri for uri in pages().values() if uri.startswith("models/")],
        "VERBS": verb_pages.uris(),
    }
    config.nav = filled(config.nav, made)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made: references, recipes, cards of models."""
    found = {**verb_pages.pages(), "api.md": api_reference.page()}
    found |= {f"notebooks/{name}.md": notebooks.page(name) for name in notebooks.names()}
    found |= {uri: (ROOT / source).read_text("utf-8") for source, uri in pages().items()}
    for uri, text in found.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to other files of the repository lead to their pages; long commands are broken."""
    sources = {uri: source for source, uri in pages().items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.M | re.S)
    for number, part in enumerate(parts):
        shown = number % 2 == 1
        parts[number] = lines.broken(part) if shown else linked(part, source, page, config)
    return "".join(parts)


def pages() -> dict[str, str]:
    """READMEs of recipes and models -> their pages."""
    return {
        readme.relative_to(ROOT).as_posix(): f"{place}/{readme.parent.name}.md"
        for folder, place in READMES.items()
        for readme in sorted((ROOT / folder).glob("*/README.md"))
    }


def linked(text: str, source: str, page: Any, config: Any) -> str:
    """The prose of a page made of the file `source`, with links of the site."""

    def link(found: re.Match[str]) -> str:
        picture, words, target, anchor = found.groups(default="")
        if ":" in target:
            return found[0]
        if target.endswith(".ipynb"):
            return f"[{words}]({target.removesuffix('.ipynb')}.md)"
        there = Path(os.path.normpath((ROOT / source).parent / target))
        name = there.relative_to(ROOT).as_posix()
        uri = pages().get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else "")
        if uri:
            start = Path(page.file.src_uri).parent
            return f"{picture}[{words}]({os.path.relpath(uri, start)}{anchor})"
        if config.repo_url:
            return f"{picture}[{words}]({config.repo_url}/blob/HEAD/{name}{anchor})"
        return words  # the site has no such page

    return LINK.sub(link, text)


def filled(nav: list[Any], made: dict[str, list[str]]) -> list[Any]:
    """The navigation, with the pages that its capitals stand for."""
    found = list[Any]()
    for entry in nav:
        if isinstance(entry, str) and entry in made:
            found += made[entry]
        elif isinstance(entry, dict):
            found.append(
                {k: filled(v, made) if isinstance(v, list) else v for k, v in entry.items()}
            )
        else:
            found.append(entry)
    return found


def origin() -> str:
    """Where git fetches this clone from; empty if it has no such place."""
    told = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        return subprocess.run(told, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git: a source archive
        return ""


def repository(remote: str) -> str | None:
    """The page of a repository, of what git calls it; None for a folder or none at all."""
    found = re.fullmatch(
        r"(?:https://|ssh://|git@)(?:[^@/]*@)?([\w.-]+)[:/](.+?)(?:\.git)?/?", remote
    )
    return f"https://{found[1]}/{found[2]}" if found else None
