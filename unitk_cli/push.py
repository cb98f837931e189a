"""`unitk push`: an exported model becomes a repository of the Hugging Face hub."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unitk import config
from unitk.errors import DataError, UsageError, require

MAIN = "main"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Upload a folder that `unitk convert --to hf` wrote to the Hugging Face hub. A folder with
    revisions becomes a repository with a branch for each. The environment variable HF_TOKEN or
    `hf auth login` gives the token, HF_ENDPOINT another hub.

    unitk push --model exported/bert --repo me/bert
    """

    model: Path
    """Folder to upload."""
    repo: str
    """Repository, such as USER/MODEL. It is created if there is none."""
    private: bool = False
    """Create a private repository."""
    message: str = "Upload from unitk"
    """Commit message."""


def run(argv: Sequence[str]) -> None:
    """Check the folder, then upload it."""
    given: Options = config.parse("push", Options, argv).main
    revisions = folders(given.model)
    require(given.repo.count("/") == 1, f"--repo must be USER/MODEL, got {given.repo!r}")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UsageError("unitk push needs the package huggingface_hub: pip install 'unitk[hub]'")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    # errors of the library beneath it: no connection, no token
    refused: Any = (*HfHubHTTPError.__bases__, OSError)
    hub = HfApi()
    try:
        hub.create_repo(given.repo, private=given.private, exist_ok=True)
        for name, folder in revisions.items():
            if name != MAIN:
                hub.create_branch(given.repo, branch=name, exist_ok=True)
            hub.upload_folder(
                repo_id=given.repo,
                folder_path=folder,
                revision=name,
                commit_message=given.message,
            )
            print(f"{given.repo}@{name}: {folder}")
    except refused as error:
        said = str(getattr(error, "server_message", None) or error)
        raise DataError(f"--repo {given.repo}: {' '.join(said.split())}") from error


def folders(model: Path) -> dict[str, Path]:
    """Revision -> folder; the main one comes first."""
    if (model / "config.json").is_file():
        return {MAIN: model}
    found = {path.parent.name: path.parent for path in sorted(model.glob("*/config.json"))}
    if MAIN not in found:
        raise DataError(f"--model {model}: there is no config.json in it, nor in {model / MAIN}")
    return {MAIN: found.pop(MAIN), **found}
