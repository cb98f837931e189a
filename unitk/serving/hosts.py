"""Which hosts and origins a server answers to: pages of other sites must not use it.

A browser on this machine reaches 127.0.0.1 for any page. A site whose name is pointed there (DNS
rebinding) counts as the server's own page, but its name is in the header Host.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any

from starlette.responses import JSONResponse, RedirectResponse

from unitk.serving.route import Route, routes

LOCAL = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(\[[\da-f:.%a-z]+\]|[\w.-]+?)\.?(?::(\d{0,5}))?", re.ASCII)
"""A host in lower case, with its port; an address of IPv6 has brackets."""
ORIGIN = re.compile(r"(https?)://(.+)")
PORTS = {"http": "80", "https": "443"}
Message = MutableMapping[str, Any]
Application = Callable[[Message, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class Guard:
    """An application that answers to some hosts only, and to pages of its own."""

    app: Application
    named: Sequence[str]
    """Hosts that are allowed beside the local ones; `*` stands for any letters."""
    open: bool = False
    """Whether the server listens at all addresses: each is then a host, as no name hides in it."""
    root: str = ""
    """Path below which a proxy shows the server; addresses may have it or not."""

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Answer, or refuse with the status 400, 403 or 421."""
        if scope["type"] == "http" and self.root:
            if scope["path"] == self.root:  # the page's files are beside it
                moved = RedirectResponse(f"{self.root}/", 307)
                await moved(scope, receive, send)
                return
            if scope["path"].startswith(f"{self.root}/"):
                scope = {**scope, "path": scope["path"].removeprefix(self.root)}
        if scope["type"] == "http" and (wrong := self.refusal(scope)) is not None:
            status, message = wrong
            headers = {"connection": "close"} if status == 400 else {}
            await shape_refusal(scope["path"], status, message, headers)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Message) -> tuple[int, str] | None:
        """Status and message for a request that is not answered."""
        header: dict[bytes, str] = {k: v.decode("latin-1") for k, v in scope["headers"]}
        if b"transfer-encoding" in header:
            # a proxy before this server may have read another length than it does
            if b"content-length" in header or scope["http_version"] == "1.0":
                return 400, "a request has content-length or transfer-encoding (HTTP/1.1), not both"
        host, origin = header.get(b"host", "").lower(), header.get(b"origin", "").lower()
        if not host:
            return 400, "a request must have the header Host"
        if (name := parse_host(host, "http")) is None or not self.allows(name[0]):
            known = ", ".join(dict.fromkeys([*LOCAL, *self.named, *["an IP address"] * self.open]))
            return 421, f"Host is {host[:99]!r}, but must be {known} (--allow-host adds one)"
        if origin and not self.owns(origin, host):
            return 403, f"Origin is {origin[:99]!r}: pages of other sites are not answered"
        # a link of another site may open the page
        opened = scope["path"] == "/" and header.get(b"sec-fetch-mode") == "navigate"
        if header.get(b"sec-fetch-site") == "cross-site" and not opened:
            return 403, "Sec-Fetch-Site is cross-site: pages of other sites are not answered"
        return None

    def allows(self, name: str) -> bool:
        """Whether a host is one of this server's."""
        if name in LOCAL or self.names(name):
            return True
        try:
            return self.open and bool(ip_address(name))
        except ValueError:
            return False

    def names(self, host: str) -> bool:
        """Whether an option names a host."""
        return any(fnmatchcase(host, pattern.lower().strip("[]")) for pattern in self.named)

    def owns(self, origin: str, host: str) -> bool:
        """Whether a page is this server's, or that of a host which an option names."""
        if (match := ORIGIN.fullmatch(origin)) is None:
            return False
        scheme, rest = match.groups()
        owner = parse_host(rest, scheme)
        return owner is not None and (owner == parse_host(host, scheme) or self.names(owner[0]))


def parse_host(text: str, scheme: str) -> tuple[str, str] | None:
    """Host and port of a text in lower case, without brackets; None if it is no host."""
    match = HOST.fullmatch(text)
    return match and (match[1].strip("[]"), match[2] or PORTS[scheme])


def shape_refusal(
    path: str,
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
    error: BaseException | None = None,
) -> JSONResponse:
    """A refusal at an address, in the form that clients of its folder know."""
    folder = path.strip("/").partition("/")[0] + "/"
    folder_routes = [route for name, route in routes().items() if name.startswith(folder)]
    status, body = (folder_routes[0] if folder_routes else Route).refuse(status, message, error)
    return JSONResponse(body, status, headers)
