"""Makes the table of docs/systems.md from the registry: what is done with each objective.

A test compares the table with the code.
"""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path

import numpy as np

from unitk import registry
from unitk.errors import UsageError
from unitk.formats.hf.families import families, kind_of
from unitk.tasks.base import Task
from unitk.tasks.understanding.base import Understanding
from unitk.vocab.words import word_vocab

PAGE = Path(__file__).with_name("systems.md")
TABLE = re.compile(r"(?<=<!-- made by docs/systems.py -->\n\n).*?(?=\n\n)", re.S)
OTHERS = {
    "unilm": ("unilm",),
    "pmlm": ("unilm",),
    "glm_infill": ("glm",),
    "mass": ("mass", "fairseq"),
    "optimus": ("optimus",),
    "electra": ("electra_pair",),
    "bilm": ("elmo",),
    "thu_ernie": ("thu_ernie",),
    "mdlm": ("diffusion",),
    "bd3lm": ("diffusion",),
    "lm": ("fairseq", "ulmfit"),
    **dict.fromkeys(("mlm", "bart", "seq2seq"), ("fairseq",)),
}
"""Objective -> formats beside transformers' that are read and written."""
PAPERS = {
    **{"bart": "bart_small", "mass": "mass_small", "t5": "t5_mini", "ul2": "t5_mini"},
    **{"unilm": "unilm_small", "bd3lm": "mdlm_small", "mdlm": "mdlm_small"},
}
"""Objective -> an architecture of its paper, where new models have another one."""
READ = {name for name in registry.names("format") if registry.get("format", name).find}
assert {one for some in OTHERS.values() for one in some} | {"hf", "mass_xlm", "peft"} == READ


def names() -> list[str]:
    """The objectives that come with unitk."""
    own = [
        name
        for name in registry.names("task")
        if re.search("unitk/(tasks/|families/(?!translation))", registry._places["task", name])
    ]
    return [name for name in own if not issubclass(registry.get("task", name), Understanding)]


def kinds(name: str) -> list[str]:
    """The kinds of transformers' model that are read as an objective, and written of its models."""
    found = [kind for kind, family in families().items() if family.task == name]
    own = registry.get("task", name).arch
    for arch in (PAPERS.get(name, own), own):
        config = registry.get("arch", arch)()
        if config.sequential or config.latent:
            continue
        try:
            found.append(kind_of(config, arch))
        except UsageError:
            pass  # none there computes the same
    found = list(dict.fromkeys(found))
    return [*found, *OTHERS.get(name, ())]


def row(name: str) -> list[str]:
    """The cells of an objective."""
    cls = registry.get("task", name)
    task = cls(cls.Config(), word_vocab("a b c"))
    about = (inspect.getdoc(cls) or "").split("\n")[0]
    systems = re.search(r"\(([^()]*)\)\.$", about)
    ids = np.array(word_vocab("a b c").encode("a b"))
    try:
        task.likelihood(ids[:1], ids) if task.protocol else task.prompt(
            [np.array([task.vocab.mask])]
        )
        judged = "log-probability" if task.protocol else "pseudo-log-likelihood"
    except UsageError:
        judged = "bound" if task.protocol else "perplexity"
    judged = "bound, " * cls.bounds + judged
    does = ["words"] * task.generates + ["fills"] * cls.infills
    formats = ", ".join(kinds(name))
    return [
        systems[1] if systems else "",
        f"`{name}`",
        "yes" if cls.pretrain is not Task.pretrain else "",
        "pairs, labels" if cls.finetune is not Task.finetune else "labels",
        ", ".join(does),
        judged,
        formats,
    ]


def table() -> str:
    """The table, made anew."""
    head = ["system", "`--task`", "pre-train", "fine-tune on", "generate", "evaluate"]
    rows = [[*head, "import and export"], ["---"] * 7, *map(row, names())]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(TABLE.sub(table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
