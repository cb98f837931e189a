"""The words of the documentation and of help pages: no riddles, no sentence over 30 words.

Pages are README.md, CONTRIBUTING.md, docs/, READMEs of recipes and of bundled models. Help texts
are the docstrings of verbs and of options. Code, addresses and comments are no prose.
"""

import re
from pathlib import Path

import pytest

from unitk import registry
from unitk.api.verb import Verb, VerbGroup, find_verb
from unitk.options.fields import options
from unitk_cli.main import describe_verb, verb_names

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs/**/*.md", "recipes/**/README.md", "unitk/pretrained/*/README.md")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted(page for folder in FOLDERS for page in ROOT.glob(folder))
LONGEST = 30
BANNED = {  # a pattern of words, and what to write instead
    r"(is|are|was|were) told": "is reported, logs, warns",
    r"(is|are|was|were) said|said aloud|aloud": "is reported, logs, warns",
    r"as (said|told)": "as described in ...",
    r"asked for twice": "listing it twice has no further effect",
    r"what is there stays": "existing files are kept",
    r"so many": "this many, N",
    r"likeliest": "most probable",
    r"goes? out|comes? along|brings? along": "is written, is included",
    r"whoever|who (still|wants|needs)": "if you ...",
    r"is rid of|rid": "removes, lifts",
    r"dear(er|est)?": "expensive",
    r"is nothing it knows|deaf|quietly is": "say what does not work",
    r"last is first|nothing but": "only",
    r"previously|no longer needed": "history belongs in CHANGELOG.md",
}
ABBREVIATIONS = re.compile(r"\b(al|e\.g|i\.e|vs|cf|no|fig|sec|eq|[A-Z])\.$")


def sentences(text: str) -> list[str]:
    """The sentences of a page in Markdown; the cells of a table are sentences of their own."""
    text = re.sub(r"^( *)```.*?^ *```|<!--.*?-->", "\n\n", text, flags=re.M | re.S)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?= *(?:[-*#|]|\d+\.)[ #-]*)", text):
        for part in block.split("|") if block.lstrip().startswith("|") else [block]:
            sentence: list[str] = []
            for word in part.split():
                sentence.append(word.strip("*_"))
                ends = re.search(r"[.!?][)\"']?$", sentence[-1])
                if ends and not ABBREVIATIONS.search(sentence[-1].rstrip(")\"'")):
                    found.append(" ".join(sentence))
                    sentence = []
            found.append(" ".join(sentence))
    return [one for one in found if one]


def faults(text: str) -> list[str]:
    """What is wrong with the sentences of a text."""
    found = []
    for one in sentences(text):
        words = [word for word in one.split() if re.search(r"\w", word)]
        if len(words) > LONGEST:
            found.append(f"{len(words)} words: {one}")
        for pattern, better in BANNED.items():
            if match := re.search(rf"\b({pattern})\b", one, re.IGNORECASE):
                found.append(f"{match[0]!r} ({better}): {one}")
    return found


def helps() -> dict[str, str]:
    """Every help text by verb or component."""
    found = {verb: describe_verb(verb) for verb in verb_names()}
    classes = dict[str, type]()
    for verb in verb_names():
        one = find_verb(verb)
        inner = one.verbs.items() if isinstance(one, VerbGroup) else ()
        classes |= {f"{verb} {name}": own.options for name, own in inner}
        classes |= {verb: one.options} if isinstance(one, Verb) else {}
    for kind in ("task", "arch", "criterion", "optimizer", "schedule", "evaluation"):
        for name in registry.names(kind):
            made = registry.get(kind, name)
            made = type(made()) if kind == "arch" else made.Config if kind == "task" else made
            classes[f"--{kind} {name}"] = made
    for owner, made in classes.items():
        for option in options(made):
            found[f"{owner} {option.flag}"] = option.help
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain_english(page):
    found = faults(page.read_text())
    assert not found, "\n".join(found)


def test_help_is_plain_english():
    found = [f"{where}: {fault}" for where, text in helps().items() for fault in faults(text)]
    assert len(helps()) > 300
    assert not found, "\n".join(found)


def test_what_is_found():
    assert sentences("# A b\n\nOne `x. y`. Two\nlines (Su et al. 2021).\n- Item\n| a | b. C |") == [
        *("# A b", "One CODE.", "Two lines (Su et al. 2021).", "- Item", "a", "b.", "C")
    ]
    assert sentences("A.\n```bash\nrm -rf. B\n```\n<!-- run -->\n[Be](c.md). D") == [
        "A.",
        "Be.",
        "D",
    ]
    assert not faults(" ".join(["word"] * LONGEST) + ". Short.")
    assert faults(" ".join(["word"] * (LONGEST + 1)) + ".")
    assert faults("The disk is told.") and faults("So many texts.") and not faults("It tolds.")
