"""Models and data sets of the Hugging Face hub by name, wherever a path of one is possible.

    hf:ORG/NAME@REVISION                  a checkpoint, a vocabulary, what `unitk convert` reads
    hf://datasets/ORG/NAME@REVISION/FILE  an input of `unitk preprocess` and others, with wildcards

Files stay in the hub's own cache ($HF_HOME/hub), and a model as a checkpoint of unitk beside it
($HF_HOME/unitk). Nothing is fetched that runs code when it is opened: no pickles, no modules.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from textwrap import shorten
from typing import Any

from unitk import pretrained, registry
from unitk.errors import CheckpointError, DataError, UsageError, require, shows_progress
from unitk.files import MANIFEST, VERSION, below, copy, digest, new_folder
from unitk.foreign import read_json
from unitk.registry import nearest, register

MODEL = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
DATA = re.compile(
    r"/*datasets/(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|~?[\w.-]+))?/(?P<file>.+)"
)
TOKENIZER = (
    "config.json tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json "
    "vocab.json vocab.txt merges.txt *.model"
).split()
FILES = [*TOKENIZER, MANIFEST]
FILES += (
    "generation_config.json model*.safetensors model.safetensors.index*.json state.json "
    "imported.json generate.yaml vocab/* source_vocab/* chat_template.jinja chat_template.json "
    "additional_chat_templates/*.jinja"
).split()
"""Patterns of the files of a model: of transformers, and of a checkpoint of unitk."""
SHOWN = 5  # names in a message
log = logging.getLogger(__name__)


@functools.cache
def fetch(name: str, part: str) -> Path:
    """Models and data sets of the Hugging Face hub.

    `part` says what is wanted of `name`: a checkpoint of unitk, the vocab, or the files as they
    are. Raises `DataError` or `CheckpointError` in one line, if the hub does not have it or does
    not answer and its cache lacks it.
    """
    is_data = name.lstrip("/").startswith("datasets/")
    # a path object has dropped one of two strokes
    full = f"hf://{name.lstrip('/')}" if is_data else f"hf:{name}"
    repository = (DATA if is_data else MODEL).fullmatch(name)
    if repository is None:
        raise UsageError(
            f"{full} is no name on the Hugging Face hub: hf:ORG/NAME@REVISION, or "
            "hf://datasets/ORG/NAME/FILE"
        )
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UsageError(f"{full} needs the package huggingface_hub: pip install 'unitk[hub]'")
    if is_data:
        # the branch of parquet files that the hub makes, by its short name
        revision = re.sub("^~", "refs/convert/", repository["revision"] or "main")
        return _files(full, repository["repo"], revision, repository["file"])
    require(part != "file", f"{full} is a model; a data set is hf://datasets/ORG/NAME/FILE")
    folder = _snapshot(full, repository["repo"], repository["revision"], list(FILES))
    weights = any(folder.glob("model*.safetensors"))
    # a model's vocabulary has an id for each row of its table, which the tokenizer's files lack
    if part == "vocab" and not (weights and _is_read(folder)):
        return folder
    if not weights:
        raise CheckpointError(
            f"{full} has no file model*.safetensors{_weights(repository)}; "
            "unitk fetches no pickles, which may run code"
        )
    return folder if part == "files" else _checkpoint(full, repository["repo"], folder)


register("hub", "hf")(fetch)


def _is_read(folder: Path) -> bool:
    """Whether a folder is a model that unitk reads."""
    config = folder / "config.json"
    kind = read_json(config).get("model_type", "") if config.exists() else ""
    return (folder / MANIFEST).exists() or registry.has("model_type", str(kind))


def _snapshot(full: str, repo: str, revision: str | None, patterns: list[str]) -> Path:
    """The folder of a revision in the hub's cache, with the files of these patterns."""
    from huggingface_hub import snapshot_download

    with _explain(full, repo, "model"):
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
    _record(full, folder.name, below(folder))
    return folder


def _files(full: str, repo: str, revision: str, pattern: str) -> Path:
    """The path in the hub's cache of a file of a data set, or of those that wildcards match.

    A wildcard stands for any characters but a stroke.
    """
    from huggingface_hub import HfApi, hf_hub_download

    names = [pattern]
    with _explain(full, repo, "dataset", pattern):
        if glob.has_magic(pattern):
            # of a hub that does not answer, nobody knows whether the cache has all of them
            info = HfApi().dataset_info(repo, revision=revision)
            revision = info.sha or revision
            every = [sibling.rfilename for sibling in info.siblings or ()]
            fits = [name for name in every if PurePosixPath("/", name).match(f"/{pattern}")]
            names = names if pattern in every else fits
        if not names:
            hint = _near_names("dataset", repo, pattern)
            raise DataError(f"{full}: no file has such a name{hint}")
        files = {
            name: Path(hf_hub_download(repo, name, repo_type="dataset", revision=revision))
            for name in names
        }
    # .../snapshots/COMMIT/FILE, where the file may be in folders
    folder = files[names[0]].parents[pattern.count("/")]
    _record(full, folder.name, files)
    return folder / pattern


def _record(full: str, commit: str, paths: dict[str, Path]) -> None:
    """Note revision and hashes, which a run, a corpus or a checkpoint records as its sources."""
    hashes = {name: digest(path) for name, path in sorted(paths.items())}
    pretrained.fetched[full] = {"revision": commit, "sha256": hashes}
    log.info("%s is revision %s", full, commit)


def _checkpoint(full: str, repo: str, folder: Path) -> Path:
    """The checkpoint of unitk that a snapshot is, or becomes; it is made once."""
    from huggingface_hub.constants import HF_HOME

    dest = Path(HF_HOME, "unitk", repo.replace("/", "--"), f"{folder.name}-{VERSION}")
    if dest.exists():
        return dest
    dest.parent.mkdir(parents=True, exist_ok=True)
    # whole or absent, as any checkpoint: what is there, was made of the same commit
    with new_folder(dest, full, CheckpointError) as checkpoint:
        if (folder / MANIFEST).exists():
            # files of their own: a checkpoint has no links in it
            for name in (*below(folder), MANIFEST):
                (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
                copy(folder / name, checkpoint / name)
        else:
            form = registry.get("format", "hf")
            form.save(form.read(folder), checkpoint, ("hf", full), pretrained.fetched[full])
    return dest


@contextmanager
def _explain(full: str, repo: str, kind: str, file: str = "") -> Iterator[None]:
    """Turn what the library raises into one line that says what there is instead."""
    from huggingface_hub import errors, get_token
    from huggingface_hub.utils.tqdm import disable_progress_bars

    # what the library says of a network follows in one line
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if not shows_progress():
        disable_progress_bars()
    unanswered: Any = (OSError, *errors.HfHubHTTPError.__bases__)
    fault = DataError if kind == "dataset" else CheckpointError
    try:
        yield
    except errors.HFValidationError:
        raise UsageError(f"{full}: {repo} is no name on the Hugging Face hub") from None
    except errors.GatedRepoError:
        raise fault(f"{full}: accept its terms on the hub, then run `hf auth login`") from None
    except errors.RepositoryNotFoundError:
        hint = _near_names(kind, repo, "")
        raise fault(f"{full}: the hub has no {kind} {repo}, or hides it{hint}") from None
    except errors.RevisionNotFoundError:
        hint = _near_names(kind, repo, full.partition("@")[2].partition("/")[0])
        raise fault(f"{full}: there is no such revision{hint}") from None
    except unanswered as error:
        # what the cache lacks is of the same kind
        lacks = isinstance(error, errors.EntryNotFoundError)
        if lacks and not isinstance(error, errors.LocalEntryNotFoundError):
            raise fault(f"{full}: there is no such file{_near_names(kind, repo, file)}") from None
        reply = " ".join(str(getattr(error, "server_message", None) or error).split())
        # a hub may answer with what it was sent
        token = get_token()
        reply = reply.replace(token, "(the token)") if token else reply
        raise fault(
            f"{full}: the hub does not answer, and its cache on this machine lacks it "
            f"({shorten(reply, 200)})"
        ) from None


def _weights(repository: re.Match[str]) -> str:
    """`; there is ...`: the files of weights that a model has on the hub."""
    from huggingface_hub import HfApi, errors

    from unitk.formats.archive import there_are

    hub: Any = HfApi()
    failures: Any = (OSError, ValueError, *errors.HfHubHTTPError.__bases__)
    try:
        return there_are(hub.list_repo_files(repository["repo"], revision=repository["revision"]))
    except failures:
        return ""  # what the cache has can be told without the hub


def _near_names(kind: str, repo: str, name: str) -> str:
    """The nearest names on the hub: of the owner's repositories, of revisions or of files."""
    from huggingface_hub import HfApi, errors

    # further requests, which may fail for the same reason
    hub: Any = HfApi()
    failures: Any = (OSError, ValueError, *errors.HfHubHTTPError.__bases__)
    try:
        if not name:
            owner = repo.partition("/")[0]
            name = repo
            listing = hub.list_models if kind == "model" else hub.list_datasets
            names = [repository.id for repository in listing(author=owner, limit=500)]
        elif "." in name and kind == "dataset":
            names = hub.list_repo_files(repo, repo_type=kind)
        else:
            refs = hub.list_repo_refs(repo, repo_type=kind)
            names = [ref.name for ref in (*refs.branches, *refs.tags)]
    except failures:
        return ""  # the error is about what was asked for
    examples = ", ".join(names[:SHOWN])
    return nearest(name, names) or (f" (there are: {examples})" if examples else "")
