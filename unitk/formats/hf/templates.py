"""Chat templates, which are kept as they are: unitk neither reads nor fills them in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unitk.errors import CheckpointError
from unitk.files import create
from unitk.foreign import read_json

TEMPLATE, FOLDER, ENDING = "chat_template", "additional_chat_templates", ".jinja"
RECORD = "name", "template"
OWN = "default"
"""The name of the template that is used if none is asked for."""


def copy_templates(source: Path, folder: Path) -> None:
    """Write the chat templates of a model's folder into another, as files of their own.

    The first one is chat_template.jinja, others are in additional_chat_templates/. Files win over
    what older versions of transformers wrote into chat_template.json and tokenizer_config.json.
    Raises `CheckpointError` for a template that is no text.
    """
    if not source.is_dir():
        return
    copied: dict[str, str] = {}
    for name in ("tokenizer_config.json", f"{TEMPLATE}.json"):
        if (path := source / name).is_file():
            copied |= _templates(read_json(path, CheckpointError), path)
    files = {OWN: source / f"{TEMPLATE}{ENDING}"}
    files |= {path.stem: path for path in sorted((source / FOLDER).glob(f"*{ENDING}"))}
    for name, path in files.items():
        if path.is_file():
            # line ends are part of a template
            copied[name] = path.read_bytes().decode("utf-8", "surrogateescape")
    for name, text in copied.items():
        if name != OWN:
            (folder / FOLDER).mkdir(exist_ok=True)
        place = f"{TEMPLATE}{ENDING}" if name == OWN else f"{FOLDER}/{name}{ENDING}"
        create(folder / place, text.encode("utf-8", "surrogateescape"))


def _templates(tokenizer: Any, path: Path) -> Mapping[str, str]:
    """The templates of a json file by name: one text, or records with a name and a text each."""
    value = tokenizer.get(TEMPLATE) if isinstance(tokenizer, dict) else None
    if value is None:
        return {}
    records = value if isinstance(value, list) else [{"name": OWN, "template": value}]
    templates: dict[str, str] = {}
    for record in records:
        name, text = (record.get(key) if isinstance(record, dict) else None for key in RECORD)
        # a name becomes that of a file
        fits = isinstance(name, str) and re.fullmatch(r"[\w-]+", name)
        if not fits or not isinstance(text, str):
            raise CheckpointError(f"{path}: {TEMPLATE} must be a text, or names with texts")
        templates[str(name)] = text
    return templates
