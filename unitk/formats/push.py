"""`unitk push`: upload an exported model to the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from unitk.api.verb import verb
from unitk.errors import DataError, UsageError, amount, print_note, require
from unitk.options.config import Parsed
from unitk.registry import register

MAIN, SCRIPT = "main", "push.sh"
REVISION = re.compile(r"main|chck_\d+[kM]?")
WRITTEN = (
    "README.md config.json generation_config.json generate.yaml model*.safetensors "
    "model.safetensors.index.json tokenizer.json tokenizer_config.json sentencepiece.model "
    "spiece.model vocab/* "
    # of sentence-transformers
    "modules.json *sentence_*.json [1-3]_*/config.json [1-3]_*/model.safetensors"
).split()
"""The files that `unitk convert` writes for a model."""
SHOWN = 5  # names in a message


@dataclass(frozen=True, kw_only=True)
class Options:
    """Upload a folder that `unitk convert --to hf` wrote to the Hugging Face hub. A folder with
    revisions becomes a repository with a branch for each. Only files that were written for the
    model are uploaded, and their names are printed first. The environment variable HF_TOKEN or `hf
    auth login` gives the token, HF_ENDPOINT another hub.

    unitk push --model exported/bert --repo me/bert
    """

    model: Path
    """Folder to upload."""
    repo: str
    """Repository, such as USER/MODEL. It is created if there is none."""
    public: bool = False
    """Create a repository that everybody can read. Default: a private one."""
    include: tuple[str, ...] = ()
    """Further files of the folder to upload, such as LICENSE,figures/loss.png."""
    message: str = "Upload from unitk"
    """Commit message."""


@register("verb", "push")
@verb(Options, example='(model="exported/lm", repo="me/lm")')
def run(parsed: Parsed) -> None:
    """Check the folder, print what is sent, and upload it."""
    options: Options = parsed.main
    revisions = folders(options.model)
    sent = {name: files_of(folder, options, name) for name, folder in revisions.items()}
    require(options.repo.count("/") == 1, f"--repo must be USER/MODEL, got {options.repo!r}")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UsageError("unitk push needs the package huggingface_hub: pip install 'unitk[hub]'")
    from huggingface_hub import get_token
    from huggingface_hub.errors import HfHubHTTPError

    kind = "public" if options.public else "private"
    for name, names in sent.items():
        print_note(f"{options.repo}@{name} ({kind}) gets from {revisions[name]}:")
        for file in names:
            size = (revisions[name] / file).stat().st_size
            print_note(f"  {file}  {size:,} bytes")
    # errors of the library beneath it: no connection, no token
    refused: Any = (*HfHubHTTPError.__bases__, OSError)
    try:
        upload(options, revisions, sent)
    except refused as error:
        message = " ".join(str(getattr(error, "server_message", None) or error).split())
        token = get_token()
        # a hub may answer with what it was sent
        message = message.replace(token, "(the token)") if token else message
        raise DataError(f"--repo {options.repo}: {message}") from None


def upload(options: Options, revisions: dict[str, Path], sent: dict[str, list[str]]) -> None:
    """Create the repository and its branches, and commit the files of each."""
    from huggingface_hub import CommitOperationAdd, HfApi

    hub = HfApi()
    hub.create_repo(options.repo, private=not options.public, exist_ok=True)
    if not options.public and hub.model_info(options.repo).private is False:
        raise UsageError(f"--repo {options.repo} is there already, and public: add --public")
    for name, folder in revisions.items():
        if name != MAIN:
            hub.create_branch(options.repo, branch=name, exist_ok=True)
        added = [CommitOperationAdd(file, str(folder / file)) for file in sent[name]]
        hub.create_commit(options.repo, added, commit_message=options.message, revision=name)
        print_note(f"{options.repo}@{name}: {amount(len(added), 'files')} uploaded")


def folders(model: Path) -> dict[str, Path]:
    """Revision -> folder; the main one comes first."""
    if (model / "config.json").is_file():
        return {MAIN: model}
    if not model.is_dir():
        raise DataError(f"--model {model}: there is no such folder")
    revisions = {path.parent.name: path.parent for path in sorted(model.glob("*/config.json"))}
    if MAIN not in revisions:
        of_unitk = (model / "manifest.json").exists() or (model / "checkpoints").exists()
        fault = "has no config.json of transformers"
        fault = "is a run or checkpoint of unitk" if of_unitk else fault
        raise DataError(
            f"--model {model} {fault}: run `unitk convert --from unitk {model} --to hf DIR` first"
        )
    _refuse(model, (path.name for path in model.iterdir() if not _revision(path)))
    return {MAIN: revisions.pop(MAIN), **revisions}


def files_of(folder: Path, options: Options, revision: str) -> list[str]:
    """The names of the files to upload; `UsageError` if the folder holds others, or links."""
    prefix = "" if folder == options.model else f"{revision}/"
    included = {name.removeprefix(prefix) for name in options.include if name.startswith(prefix)}
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    links = [prefix + name for name, path in names.items() if path.is_symlink()]
    require(not links, f"--model {options.model}: {_list(links)}: a link is not uploaded")
    files = [name for name, path in names.items() if path.is_file()]
    others = [name for name in files if not (_is_written(name) or name in included)]
    _refuse(options.model, (prefix + name for name in others))
    lacking = sorted(included - set(files))
    require(not lacking, f"--include {_list(lacking)}: there is no such file in {folder}")
    return files


def _is_written(name: str) -> bool:
    return any(
        fnmatchcase(name, pattern) and name.count("/") == pattern.count("/") for pattern in WRITTEN
    )


def _revision(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.name == SCRIPT:
        return path.is_file()
    return path.is_dir() and REVISION.fullmatch(path.name) is not None


def _refuse(model: Path, names: Iterator[str]) -> None:
    """Raise a `UsageError` if there are names of files that nobody meant to publish."""
    strangers = sorted(names)
    require(
        not strangers,
        f"--model {model}: `unitk convert --to hf` did not write {_list(strangers)}; move them "
        "elsewhere, or name them with --include",
    )


def _list(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
