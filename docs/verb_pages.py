"""The pages `reference/`: a page for each verb of the command line, made of its help."""

from __future__ import annotations

import contextlib
import io

from unitk.api.verb import VerbGroup, find_verb
from unitk_cli.main import describe_verb, verb_names

GUIDES = {
    "quickstart": {"Quickstart": "quickstart.md"},
    "preprocess": {"Text and pairs": "data.md"},
    "merge": {"Text and pairs": "data.md"},
    "train": {"Training guide": "training.md", "Systems": "systems.md"},
    "sweep": {"Sweeps": "training.md#sweeps"},
    "scale": {"Scaling laws": "comparing.md#scaling-laws"},
    "mix": {"Mixtures": "comparing.md#mixtures"},
    "generate": {"Generating": "generate.md"},
    "score": {"Understanding: scores": "understanding.md#scores", "Tutorial": "tutorial.md"},
    "embed": {"States and vectors": "generate.md#states-and-vectors"},
    "search": {"Vectors for retrieval": "retrieval.md#search"},
    "predict": {"Understanding: predictions": "understanding.md#predictions"},
    "serve": {"A server and a page": "serving.md"},
    "evaluate": {"Evaluation without training": "evaluation.md"},
    "analyse": {"Looking inside": "analysis.md"},
    "show": {"Concepts": "concepts.md", "Gallery of masks": "masks.md"},
    "latent": {"The latent space": "latent.md"},
    "convert": {"Checkpoints of other systems": "interop.md"},
    "push": {"Upload to the hub": "interop.md#upload-to-the-hugging-face-hub"},
    "fairseq-plugin": {"Objectives inside fairseq": "interop.md#unitks-objectives-inside-fairseq"},
    "average": {"Training guide": "training.md"},
    "plot": {"Training guide": "training.md#what-to-watch"},
    "check": {"Comparing models": "comparing.md"},
    "compare": {"Comparing models": "comparing.md"},
}
"""Verb -> pages that explain it."""


def uris() -> list[str]:
    """The pages, in the order of `unitk --help`."""
    return ["reference/index.md", *(f"reference/{verb}.md" for verb in verb_names())]


def pages() -> dict[str, str]:
    """Address -> Markdown of each page."""
    found = {f"reference/{verb}.md": page(verb) for verb in verb_names()}
    rows = [f"| [`unitk {verb}`]({verb}.md) | {describe_verb(verb)} |" for verb in verb_names()]
    head = [
        "# Commands",
        "",
        "The verbs of the command line. `unitk VERB --help` prints the same.",
        "",
    ]
    found["reference/index.md"] = "\n".join([*head, "| command | |", "| --- | --- |", *rows, ""])
    return found


def page(verb: str) -> str:
    """A verb's page: where it is explained, and what `--help-all` prints."""
    does, found = describe_verb(verb), find_verb(verb)
    lines = [f"# unitk {verb}", "", f"{does[0].upper()}{does[1:]}.", ""]
    guides = [f"[{name}](../{place})" for name, place in GUIDES.get(verb, {}).items()]
    lines += [f"Explained in {' and '.join(guides)}.", ""] if guides else []
    words = ["--task", "glm_infill"] if verb in ("train", "show") else []
    if words:
        lines += ["With the options of `--task glm_infill`; another task has others.", ""]
    lines += ["```text", help_page(verb, words).rstrip(), "```", ""]
    for name in found.verbs if isinstance(found, VerbGroup) else ():
        text = help_page(verb, [name]).rstrip()
        lines += [f"## unitk {verb} {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def help_page(verb: str, words: list[str]) -> str:
    """The text of `unitk VERB ... --help-all`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        find_verb(verb)([*words, "--help-all"])
    return printed.getvalue()
