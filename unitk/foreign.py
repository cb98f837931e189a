"""Text that others wrote in json or YAML, as Python's objects; a mistake in it is one line."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unitk.errors import DataError, UnitkError, UsageError

ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape sequence of half a surrogate pair, which is a character only beside the other half."""
HALF = re.compile(".{0,20}[\ud800-\udfff]")
HALF_MESSAGE = "{!r} ends in half a surrogate pair"
"""Half a character with what precedes it, and the message about it."""
JSON_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
"""What errors call a value of a json."""


def check_name(name: str) -> None:
    """Refuse a word or the name of a file whose bytes Python could not read as text."""
    if HALF.search(name):
        raise UsageError(
            f"{name!r} is not {sys.getfilesystemencoding()}, as which Python reads names here: "
            "rename it, or set PYTHONUTF8=1"
        )


def parse_json(
    text: str | bytes,
    where: str,
    error: type[UnitkError] = DataError,
    hooks: Mapping[str, Any] | None = None,
) -> Any:
    """Parse JSON; an `error` that begins with `where` is raised if it is none.

    Half a character in a text and a key that an object has twice are errors, too. `hooks` are those
    of `json.loads`, which make objects and numbers.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            raise error(f"{where}: an object has the key {twice!r} twice")
        return fields

    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(text, **{"object_pairs_hook": unique, **(hooks or {})})
        if ESCAPE.search(text) and (half := HALF.search(json.dumps(value, ensure_ascii=False))):
            raise error(f"{where}: {HALF_MESSAGE.format(half[0])}")
        return value
    except RecursionError as cause:  # brackets within brackets, a thousand deep
        raise error(f"{where}: not JSON (nested too deeply)") from cause
    except ValueError as cause:
        raise error(f"{where}: not JSON ({_mistake(cause)})") from cause


def _mistake(cause: ValueError) -> str:
    """Why a text is no JSON, by the place at which it cannot go on."""
    if isinstance(cause, UnicodeDecodeError):
        return f"not UTF-8 either, byte 0x{cause.object[cause.start]:02x}"
    if not isinstance(cause, json.JSONDecodeError):
        return "a number has too many digits"
    if not (rest := cause.doc[cause.pos :].strip()):
        return "it ends too early" if cause.doc.strip() else "it is empty"
    line = f"line {cause.lineno}, " if cause.lineno > 1 else ""
    cure = "; json has double quotes" * (rest[0] == "'")
    return f"{line}character {cause.colno}: {rest[:20]!r}{cure}"


def require_file(path: Path) -> None:
    """Raise an `OSError` for a pipe or a device (a link to one, too), which may never end.

    Also for a pointer of Git LFS, which a clone without it has in place of a large file.
    """
    if path.is_file():
        with path.open("rb") as file:
            wrong = file.read(99).startswith(b"version https://git-lfs")
        fault = "it is a pointer of Git LFS; `git lfs pull` fetches the file itself"
    else:
        wrong = path.exists() and not path.is_dir()
        fault = "it is a pipe or a device, not a file"
    if wrong:
        raise OSError(errno.ENODEV, fault, str(path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a file; an `OSError` for a pipe or a device, see `require_file`."""
    require_file(path)
    return path.read_bytes()


def read_json(path: Path, error: type[UnitkError] = DataError) -> dict[str, Any]:
    """The object in a file, or an error that names it."""
    try:
        data = read_bytes(path)
    except OSError as cause:
        raise error(f"{path}: {cause.strerror}") from cause
    value = parse_json(data, str(path), error)
    if not isinstance(value, dict):
        raise error(f"{path}: not a JSON object")
    return value


class YamlText(str):
    """A text of a YAML file; `line` counts from 1."""

    line: int


def parse_yaml(path: Path, named: str) -> Any:
    """The mappings, lists and texts of a YAML file; `named` is how errors name it.

    Every scalar is a `YamlText`: nothing becomes a number or true or false (YAML 1.1: No is false).
    """
    import yaml

    class Plain(yaml.BaseLoader):
        """Refuses aliases, of which a few lines can make a tree without end, and keys twice."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has aliases (*name); write their values out")
            node = super().compose_node(parent, index)
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            keys = [str(key.value) for key, _ in pairs]
            if len({*keys}) < len(keys):
                raise yaml.YAMLError(f"it has {max(keys, key=keys.count)!r} twice")
            return node

        def construct_scalar(self, node: Any) -> YamlText:
            text = YamlText(super().construct_scalar(node))
            text.line = node.start_mark.line + 1
            return text

    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=Plain)
    except OSError as cause:
        raise UsageError(f"{named} cannot be read: {cause.strerror}") from cause
    except RecursionError as cause:
        raise UsageError(f"{named} is nested too deeply") from cause
    except (yaml.YAMLError, UnicodeDecodeError) as cause:
        why = "it is not UTF-8" if isinstance(cause, ValueError) else " ".join(str(cause).split())
        raise UsageError(f"{named} is not YAML: {why}") from cause
