"""A Hugging Face hub in this process: it keeps uploads, and serves the files of folders."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's interface that is used: repositories, branches, uploads, commits."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        store: Any = self.server
        path = urlsplit(self.path).path.strip("/")
        # a revision such as refs/pr/1 is one word
        words = [unquote(word) for word in path.split("/")]
        path = unquote(path)
        store.asked.append(path)
        if path in ("api/models", "api/datasets"):
            kind = words[1]
            self.answer([{"id": name, "_id": "0"} for name in store.given.get(kind, {})])
        elif words[0] == "api" and not store.given:
            info = {"siblings": [], "sha": "0" * 40, "id": "me/small", "private": not store.public}
            self.answer(info)
        elif words[0] == "api":
            self.describe(words[1], "/".join(words[2:4]), words[4:])
        else:
            kind = "datasets" if words[0] == "datasets" else "models"
            repo, rest = words[kind == "datasets" :][:2], words[kind == "datasets" :][3:]
            self.give(kind, "/".join(repo), rest[0], "/".join(rest[1:]))

    def folder(self, kind: str, repo: str, revision: str) -> Path | None:
        """The files of a revision; None, after the error, without it."""
        store: Any = self.server
        known = store.given.get(kind, {}).get(repo)
        if known is None:
            self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif revision not in (*known, COMMIT):
            self.answer({"error": "Invalid rev"}, 404, {"X-Error-Code": "RevisionNotFound"})
        else:
            return known.get(revision, next(iter(known.values())))
        return None

    def describe(self, kind: str, repo: str, rest: list[str]) -> None:
        what, revision = rest[0] if rest else "", "/".join(rest[1:]) or "main"
        if what == "refs":
            store: Any = self.server
            names = store.given[kind][repo]
            refs = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": COMMIT} for n in names]
            self.answer({"branches": refs, "tags": [], "converts": []})
        elif (folder := self.folder(kind, repo, revision)) is not None:
            files = {one.relative_to(folder).as_posix(): one for one in folder.rglob("*")}
            files = {name: one for name, one in files.items() if one.is_file()}
            if what == "tree":
                sizes = {name: one.stat().st_size for name, one in files.items()}
                entry = {"type": "file", "oid": "0" * 40}
                self.answer([{**entry, "path": name, "size": n} for name, n in sizes.items()])
            else:
                siblings = [{"rfilename": name} for name in files]
                self.answer({"id": repo, "sha": COMMIT, "siblings": siblings, "private": False})

    def give(self, kind: str, repo: str, revision: str, name: str) -> None:
        if (folder := self.folder(kind, repo, revision)) is None:
            return
        if not (folder / name).is_file():
            self.answer({"error": "no file"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        content = (folder / name).read_bytes()
        about = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        self.send(content, 200, about)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        store: Any = self.server
        if self.headers.get("Authorization") != "Bearer secret":
            said = store.says.format(self.headers.get("Authorization"))
            self.answer({"error": said}, 401)
        elif self.path == "/api/repos/create":
            store.repos.append(json.loads(body))
            self.answer({"url": f"http://{self.headers['Host']}/me/small"})
        elif "/branch/" in self.path:
            store.branches.append(self.path.rpartition("/")[2])
            self.answer({})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            told = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files
            ]
            self.answer({"files": told})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    key = self.path.rpartition("/")[2], value["path"]
                    store.files[key] = base64.b64decode(value["content"])
            url = f"http://{self.headers['Host']}/me/small/commit/{'0' * 40}"
            self.answer({"commitUrl": url, "commitOid": "0" * 40, "success": True})
        else:
            self.answer({"error": self.path}, 404)

    def answer(self, content: Any, code: int = 200, more: dict[str, str] | None = None) -> None:
        kind = {"Content-Type": "application/json"}
        self.send(json.dumps(content).encode(), code, kind | (more or {}))

    def send(self, content: bytes, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def run_hub() -> Iterator[Any]:
    """Run an empty hub; set `given` to what it serves.

    `given`: "models" or "datasets" -> name of the repository -> revision -> folder.
    """
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.repos, server.branches, server.files = [], [], {}
    server.says, server.public, server.given, server.asked = "who are you?", False, {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def environment(server: Any, home: Path, token: str = "secret") -> dict[str, str]:
    """The variables with which a process knows this hub only."""
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": token}
    own |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(home)}
    return own
