"""What the site makes from the code: the references of commands and of Python."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from unitk.api.verb import VerbGroup, find
from unitk_cli.main import describe, verb_names

sys.path.insert(0, str(Path(__file__).parent))
import api_reference  # noqa: E402  (beside this file, which is no package)


def on_files(files: Files, config: Any) -> Files:
    """Add reference.md and api.md to the pages of docs/."""
    os.environ["COLUMNS"] = "100"
    for name, text in {"reference.md": reference(), "api.md": api_reference.page()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def reference() -> str:
    """Every verb's help page, as the program prints it."""
    lines = ["# Command reference", "", "Made from the code: what `--help-all` prints.", ""]
    for verb in verb_names():
        does, found = describe(verb), find(verb)
        lines += [f"## unitk {verb}", "", f"{does[0].upper()}{does[1:]}.", ""]
        words = ["--task", "glm_infill"] if verb in ("train", "show") else []
        lines += ["```text", help_page(verb, words).rstrip(), "```", ""]
        for name in found.verbs if isinstance(found, VerbGroup) else ():
            page = help_page(verb, [name]).rstrip()
            lines += [f"### unitk {verb} {name}", "", "```text", page, "```", ""]
    return "\n".join(lines)


def help_page(verb: str, words: list[str]) -> str:
    """The text of `unitk VERB ... --help-all`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        find(verb)([*words, "--help-all"])
    return printed.getvalue()
