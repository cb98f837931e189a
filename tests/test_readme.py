"""The commands in README.md, CONTRIBUTING.md, docs/, the recipes and the cards of models work.

Every ```bash block is read. Its `unitk` lines are parsed by the verb's own options, from the root
of the repository; `make` targets and scripts must exist; other programs must be in `OTHERS`.
A block under a line `<!-- run -->` (`<!-- run slow -->`: only by `make test-slow`) is executed, of
```bash and of ```python;
those of a page run one after the other in one empty folder that has the repository's `recipes`
and `docs`; the slow ones in a fresh clone, as a newcomer has it. A comment line of such a block is
a line that a command prints. Links lead to files and headings.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from unitk import registry
from unitk.api.verb import find_verb
from unitk.errors import UsageError
from unitk.options import config
from unitk.training import start
from unitk_cli.main import verb_names

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("*.md", "docs/**/*.md", "recipes/**/README.md", "unitk/pretrained/*/README.md")
PAGES = sorted(page for pattern in FOLDERS for page in ROOT.glob(pattern))
OTHERS = set("cd echo printf git pip ls cat head tail zcat gzip mkdir cp source curl tar".split())
OTHERS |= {"pre-commit", ".venv/bin/pip", ".venv/bin/pre-commit", "fairseq-train", "llama-cli"}
INTERPRETERS = {"bash", "sh", "python", "python3", ".venv/bin/python"}
BLOCK = re.compile(
    r"(?:^<!-- (run(?: slow)?) -->\n+)?^ *```(bash|python)\n(.*?)^ *```", re.M | re.S
)


class Block(NamedTuple):
    page: str
    run: str
    language: str
    text: str

    @property
    def script(self) -> str:
        """What a shell runs."""
        python = self.language == "python"
        return f"python - <<'END'\n{self.text}END\n" if python else self.text


def blocks(text: str, page: str = "") -> list[Block]:
    return [Block(page, found[1] or "", found[2], found[3]) for found in BLOCK.finditer(text)]


def commands(text: str) -> list[list[str]]:
    """The simple commands of a block: words up to the next operator, redirections dropped."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if word and set(word) <= set("<>"):
                redirected = True
            elif word and set(word) <= set("|&;"):
                found += [words] if words else []
                words = []
            elif redirected:
                redirected = False
            elif words or not re.fullmatch(r"\w+=.*", word):  # settings before a command
                words.append(word)
    return found


class Accepted(BaseException):
    """The options were good; the verb stops here."""


@pytest.fixture
def only_parse(monkeypatch, own_registry):  # a documented --user-dir registers names
    resolve = config.resolve

    def stop(options, *args, **kwargs):
        resolved = resolve(options, *args, **kwargs)
        if options is config.NoOptions:  # some components of a run, to know the defaults of others
            return resolved
        raise Accepted

    for module in (config, start):
        monkeypatch.setattr(module, "resolve", stop)
    # a checkpoint that a page names
    monkeypatch.setattr(start, "find_checkpoint", lambda path: None)
    # a model of the hub, which tests do not fetch
    registry.get("hub", "hf")
    monkeypatch.setitem(registry._entries["hub"], "hf", lambda name, part: ROOT / name)
    monkeypatch.chdir(ROOT)


def check(words: list[str]) -> None:
    """Raise when a command cannot work."""
    program, *rest = words
    if program == "torchrun":  # torchrun [options] -m unitk_cli VERB ...
        program, rest = "unitk", rest[rest.index("unitk_cli") + 1 :]
    if program == "sbatch":  # a script that hands its options to unitk train
        assert (ROOT / rest[0]).is_file(), f"there is no {rest[0]}"
        program, rest = "unitk", ["train", *rest[1:]]
    if program == "unitk":
        check_unitk(rest)
    elif program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        unknown = {word for word in rest if "=" not in word} - targets
        assert not unknown, f"the Makefile has no target {unknown}"
    elif program in INTERPRETERS:
        if rest and not rest[0].startswith("-"):
            assert (ROOT / rest[0]).is_file(), f"there is no {rest[0]}"
    else:
        assert program in OTHERS, f"what is {program!r}? (OTHERS in this test)"


def check_unitk(words: list[str]) -> None:
    verb, *rest = words
    if verb in ("--help", "--version"):
        return
    assert verb in verb_names(), f"there is no verb {verb}"
    if "--help" in rest or "--help-all" in rest:
        return
    if verb == "train" and "--resume" in rest:  # the rest is in the run's config.yaml
        rest = ["--task=lm", "--data=x", "--max-steps=1", *rest]
    with pytest.raises(Accepted):
        find_verb(verb)(rest)
    if "--" in rest and (job := rest[rest.index("--") + 1 :]):
        check_unitk(job if verb == "launch" else ["train", *job, *ADDED[verb]])


ADDED = {
    "sweep": ["--save-dir=x"],
    "scale": ["--save-dir=x", "--max-steps=1"],
    "mix": ["--save-dir=x", "--task=lm"],
}
"""The options that a verb adds to the training that follows --."""
GROUPS = "analyse", "latent"
"""The verbs whose first word names one of their own."""
ALL = [block for page in PAGES for block in blocks(page.read_text(), str(page.relative_to(ROOT)))]


@pytest.mark.parametrize("page", sorted({block.page for block in ALL}))
def test_commands_exist(page, only_parse):
    for block in ALL:
        if block.page == page and block.language == "bash":
            for words in commands(block.text):
                try:
                    check(words)
                except (Exception, pytest.fail.Exception) as error:
                    pytest.fail(f"{page}: {shlex.join(words)}: {error}")


@pytest.mark.parametrize(
    "verb",
    [
        *(verb for verb in verb_names() if verb not in GROUPS),
        *(f"{group} {verb}" for group in GROUPS for verb in find_verb(group).verbs),
    ],
)
def test_every_help_page_has_examples_that_work(verb, only_parse, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    name, *rest = verb.split()
    with suppress(SystemExit):
        find_verb(name)([*rest, "--help"])
    page = capsys.readouterr().out
    assert not [line for line in page.splitlines() if len(line) > 80]
    page = page.replace("\\\n", "")
    lines = re.findall(rf"^ +(unitk {verb}(?: .*)?)$", page, re.M)
    assert lines
    for line in lines:
        check(shlex.split(line))


@pytest.mark.parametrize(
    ("page", "run"),
    [
        pytest.param(page, run, marks=[pytest.mark.slow] if run == "run slow" else [])
        for page, run in sorted({(block.page, block.run) for block in ALL if block.run})
    ],
)
def test_marked_blocks_run(page, run, tmp_path):
    folder, root = tmp_path, ROOT
    if run == "run slow":
        folder = root = tmp_path / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
    else:
        for name in ("recipes", "docs"):
            (folder / name).symlink_to(ROOT / name)
    program = tmp_path / ".bin" / "unitk"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m unitk_cli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(root)}
    marked = [block for block in ALL if (block.page, block.run) == (page, run)]
    script = "\n".join(block.script for block in marked)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{page}:\n{done.stdout[-3000:]}"
    shell = [block.text for block in marked if block.language == "bash"]
    outputs = {line[2:] for text in shell for line in text.splitlines() if line.startswith("# ")}
    assert outputs <= set(done.stdout.splitlines())


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = link.partition("#")
        there = (page.parent / name).resolve() if name else page
        if ":" in name:
            continue
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


SHOWN = [
    (page, file, code)
    for page in PAGES
    for file, code in re.findall(
        r"^<!-- (\S+\.\S+) -->\n```\w+\n(.*?)^```", page.read_text(), re.M | re.S
    )
]
"""Files that a page shows under their name."""


@pytest.mark.parametrize(("page", "file", "code"), SHOWN, ids=[file for _, file, _ in SHOWN])
def test_a_page_shows_the_file_that_it_names(page, file, code):
    assert code == (ROOT / file).read_text(), f"put {file} into {page} as it is"


def test_pages_show_files():
    assert len(SHOWN) >= 4


def test_git_ignores_what_documented_commands_write():
    pages = [page for page in PAGES if page.parent in (ROOT, ROOT / "docs")]
    wanted = {str(page.relative_to(ROOT)) for page in pages}
    written = {
        value
        for block in ALL
        if block.page in wanted and block.language == "bash"
        for words in commands(block.text)
        for option, value in zip(words, words[1:], strict=False)
        if words[0] == "unitk" and option in ("--output", "--dest", "--save-dir")
    }
    assert "vectors.npy" in written and len(written) > 30
    kept = [name for name in written if not ignored(name)]
    assert not kept, f".gitignore lacks {kept}"
    assert not ignored("constraints.txt") and not ignored("requirements-dev.txt")


def ignored(name: str) -> bool:
    """Whether git ignores a new file of this name in the root folder."""
    done = subprocess.run(["git", "check-ignore", "-q", "--no-index", name], cwd=ROOT, check=False)
    return done.returncode == 0


def test_what_is_read(only_parse):
    text = (
        "<!-- run -->\n```bash\nA=1 unitk list \\\n  task  # all\ncat < x | unitk list > y\n```\n"
    )
    (block,) = blocks(text)
    assert block.run == "run"
    assert commands(block.text) == [["unitk", "list", "task"], ["cat"], ["unitk", "list"]]
    check(["unitk", "list", "task"])


@pytest.mark.parametrize(
    "line",
    ["unitk lst", "unitk list --kin task", "make tset", "bash recipes/none/run.sh", "uintk list"],
)
def test_what_is_refused(line, only_parse):
    with pytest.raises((AssertionError, UsageError)):
        check(line.split())
