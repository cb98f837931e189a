"""Keys without which a server does not answer."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from unitk.data.files.lines import numbered_lines
from unitk.errors import require
from unitk.serving.hosts import Application, Message, shape_refusal

KEY = re.compile(r"[!-~]{8,}")
"""What a header can hold, and nobody guesses at once."""
OPEN = ("/health",)
"""Addresses that need no key."""


@dataclass(frozen=True)
class Keys:
    """An application that answers those who have a key.

    It is sent as `Authorization: Bearer KEY`, or as the password of any user name, which a browser
    asks for.
    """

    app: Application
    keys: Sequence[str]

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or self.allows(scope):
            await self.app(scope, receive, send)
            return
        message = "the header Authorization must be Bearer and a key of the server"
        headers = {"WWW-Authenticate": 'Basic realm="unitk", charset="UTF-8"'}
        await shape_refusal(scope["path"], 401, message, headers)(scope, receive, send)

    def allows(self, scope: Message) -> bool:
        """Whether a request has a key; the time does not depend on how much of one is right."""
        authorization = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, secret = authorization.partition(b" ")
        if kind.lower() == b"basic":
            try:  # the name of the user does not matter
                secret = base64.b64decode(secret.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                secret = b""
        elif kind.lower() != b"bearer":
            secret = b""
        # hashes have one length, and every key is compared
        digest = sha256(secret.strip()).digest()
        matches = [hmac.compare_digest(digest, sha256(key.encode()).digest()) for key in self.keys]
        return any(matches)


def read_keys(path: Path) -> list[str]:
    """The keys of a file, one a line; empty lines and those that begin with # are none."""
    keys = list[str]()
    for line, where in numbered_lines(path):
        if (key := line.strip()) and not key.startswith("#"):
            require(
                KEY.fullmatch(key) is not None,
                f"{where}: a key is 8 or more of ASCII's letters, digits and signs, without blanks",
            )
            keys.append(key)
    require(keys, f"{path} has no key: write one a line")
    return keys
