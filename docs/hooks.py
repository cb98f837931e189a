"""What the site makes from the code: the command reference and the pictures of masks."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from unitk_cli.main import VERBS, module

sys.path.insert(0, str(Path(__file__).parent))
import api_reference  # noqa: E402  (beside this file, which is no package)
import gallery  # noqa: E402

PICTURES = {one.name: [*shlex.split(one.words), one.text] for one in gallery.PICTURES}
PICTURES["prefix_lm"] = f"--user-dir recipes/plugin --task prefix_lm --seed 2 {gallery.FOX}".split()


def on_files(files: Files, config: Any) -> Files:
    """Add reference.md, api.md and the pictures to the pages of docs/."""
    os.environ["COLUMNS"] = "100"
    for name, text in {"reference.md": reference(), "api.md": api_reference.page()}.items():
        files.append(File.generated(config, name, content=text))
    folder = Path(config.site_dir).parent / "build" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in PICTURES.items():
        path = folder / f"{name}.svg"
        command = [sys.executable, "-m", "unitk_cli", "show", *words, "--output", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        if not path.exists():
            continue  # two towers are two pictures, which no page shows
        source = File.generated(config, f"pictures/{name}.svg", abs_src_path=str(path))
        files.append(source)
    return files


def reference() -> str:
    """Every verb's help page, as the program prints it."""
    lines = ["# Command reference", "", "Made from the code: what `--help-all` prints.", ""]
    for verb, about in VERBS.items():
        lines += [f"## unitk {verb}", "", f"{about[0].upper()}{about[1:]}.", ""]
        words = ["--task", "glm_infill"] if verb in ("train", "show") else []
        lines += ["```text", help_page(verb, words).rstrip(), "```", ""]
        for name in getattr(module(verb), "VERBS", ()):
            page = help_page(verb, [name]).rstrip()
            lines += [f"### unitk {verb} {name}", "", "```text", page, "```", ""]
    return "\n".join(lines)


def help_page(verb: str, words: list[str]) -> str:
    """The text of `unitk VERB ... --help-all`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        module(verb).run([*words, "--help-all"])
    return printed.getvalue()
