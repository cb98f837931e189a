"""`unitk serve`: serve a model over HTTP, with a page to try it."""

from __future__ import annotations

import logging
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from logging.handlers import WatchedFileHandler
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal, Self

from unitk.api.loading import load
from unitk.api.verb import verb
from unitk.errors import UnitkError, UsageError, check_option, require
from unitk.files import MANIFEST, digest
from unitk.options.config import ConfigFile, Device, Parsed, UserDir
from unitk.pretrained import locate
from unitk.registry import register
from unitk.serving.config import Limits
from unitk.training.saving.folder import find_checkpoint
from unitk.training.saving.state import read_state

if TYPE_CHECKING:
    from unitk.serving.connections import Listener
    from unitk.serving.requests import Service

log = logging.getLogger(__name__)

HOST = re.compile(r"[a-z0-9_.*-]+|(\[)?[a-f0-9]*:[a-f0-9]*:[a-f0-9:.]*(?(1)\])", re.IGNORECASE)
"""A name, in which * stands for any letters, or an address."""
PATH = re.compile(r"(/[\w.~-]+)*/?", re.ASCII)
EXAMPLE = '(checkpoint="runs/lm", port=0).url'


@dataclass(frozen=True, kw_only=True)
class Options(Limits):
    """Serve a trained model: json over HTTP, and a page to try it in a browser.

    unitk serve
    unitk serve --checkpoint runs/qg --port 9000
    unitk serve --checkpoint unitk-base-en --checkpoint unitk-base-en-questions
    """

    checkpoint: tuple[Path, ...] = (Path("unitk-base-en"),)
    """Run folder (its best checkpoint), checkpoint or bundled model. Of several, a request chooses
    one by its `model`, and the page has a list; the first is the default."""
    host: str = "127.0.0.1"
    """Address to listen at. 127.0.0.1 is this machine only; 0.0.0.0 is open to the network."""
    allow_host: tuple[str, ...] = ()
    """Further name of the server in the addresses of its clients, such as that of a proxy.
    Repeatable; *.example.org is all names that end so. Other names are refused with status 421."""
    root_path: str = ""
    """Path below which a proxy shows the server, such as /unitk. Addresses may have it or not."""
    api_key: Path | None = None
    """File of keys, one a line. Requests need one: `Authorization: Bearer KEY`, or as the password
    that a browser asks for. Only /health is open."""
    access_log: Path | None = None
    """File for a line of json of each request, without texts. It may be moved away."""
    port: int = 8000
    """Port to listen at. 0: any free one."""
    device: Device = "auto"
    precision: Literal["fp32", "bf16", "fp16", "int8"] = "fp32"
    """Number format of weights and cache. int8 is for matrices only, on a CPU."""
    config: ConfigFile = None
    user_dir: UserDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.allow_host:
            require(
                HOST.fullmatch(name) is not None,
                f"--allow-host must be a host without its port, got {name!r}",
            )
        root = PATH.fullmatch(self.root_path) is not None
        require(root, f"--root-path must be a path such as /unitk, got {self.root_path!r}")


class Served:
    """Models that a thread of this process serves, until `stop` or the end of a `with` block."""

    def __init__(self, server: Listener, listening: socket.socket) -> None:
        self.url = address_of(listening)
        self._server = server
        self._socket = listening
        self._thread = Thread(target=server.run, args=([listening],), daemon=True)
        self._thread.start()
        # the caller may send requests at once
        while self._thread.is_alive() and not server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        """Finish the answers that are computed, and give up the port."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<unitk serves at {self.url}>"


def value(parsed: Parsed) -> Served:
    """Load the models, and serve them in a thread."""
    return Served(*open_server(parsed.main))


@register("verb", "serve")
@verb(Options, cure="lower --max-texts, --max-output or --max-beam", value=value, example=EXAMPLE)
def run(parsed: Parsed) -> None:
    """Load the models, and serve them until a signal comes."""
    from unitk.serving.connections import OnceAMinute

    options: Options = parsed.main
    handler = logging.StreamHandler()
    handler.addFilter(OnceAMinute())
    logging.basicConfig(format="%(asctime)s %(message)s", handlers=[handler])
    server, listening = open_server(options)
    print(address_of(listening), file=sys.stderr, flush=True)
    if not ip_address(listening.getsockname()[0]).is_loopback:
        who = "without encryption" if options.api_key else "without passwords"
        open_to = f"--host {options.host}: the server is open to the network, {who}"
        print(open_to, file=sys.stderr, flush=True)
    UnitkError.with_flags = False  # clients know arguments
    server.run(sockets=[listening])


def open_server(options: Options) -> tuple[Listener, socket.socket]:
    """A server with its models, and the socket that its `run` is given."""
    check_option(options, "port", 0 <= options.port <= 65535, "in 0 to 65535")
    from unitk.serving.app import Server
    from unitk.serving.connections import limit_connections, listener
    from unitk.serving.hosts import Guard
    from unitk.serving.keys import read_keys

    options = replace(options, max_connections=limit_connections(options.max_connections))
    keys = read_keys(options.api_key) if options.api_key else []
    write = access_log(options.access_log) if options.access_log else None
    listening = bind(options.host, options.port)
    require(options.checkpoint, "--checkpoint needs a model")
    names = [path.name or str(path) for path in options.checkpoint]
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"--checkpoint: two models have the name {twice}")
    watchers = [watch_checkpoint(path) for path in options.checkpoint]
    services = [open_service(path, options) for path in options.checkpoint]

    def replaced() -> bool:
        return any([watcher() for watcher in watchers])  # each is looked at, and says so

    app = Server(*services, replaced=replaced, keys=keys, write=write).app()
    everywhere = ip_address(listening.getsockname()[0]).is_unspecified
    hosts = [*options.allow_host, socket.gethostname() if everywhere else options.host]
    guard = Guard(app, hosts, everywhere, options.root_path.rstrip("/"))
    return listener(guard, options), listening


class AccessLog(WatchedFileHandler):
    """Appends lines to a file, which it opens anew after a log rotation."""

    def write(self, line: str) -> None:
        record = logging.makeLogRecord({"msg": line})
        try:
            self.emit(record)
        except OSError:  # the file cannot be opened anew
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        log.warning("--access-log %s: %s", self.baseFilename, sys.exception())


def access_log(path: Path) -> Callable[[str], None]:
    """A function that appends lines to a file; of one that cannot be written, it warns."""
    try:
        return AccessLog(path, encoding="utf-8").write
    except OSError as error:
        raise UsageError(f"--access-log {path}: {error.strerror}") from error


def address_of(listening: socket.socket) -> str:
    """The address of what listens at a socket, for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, made before the model is loaded, so that an error is reported at once."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror}") from error
    bound = socket.socket(family, kind)
    # a port that was left a moment ago can be taken again
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(1024)
    except OSError as error:
        bound.close()
        raise UsageError(
            f"--port {port} at --host {host}: {error.strerror}; --port 0 takes any free port"
        ) from error
    return bound


def open_service(path: Path, options: Options) -> Service:
    """A model with each of the tasks it was trained with, the default one first."""
    from unitk.decoding.generator import Generator
    from unitk.kernels.products import keep_memory
    from unitk.serving.requests import Service
    from unitk.training.device import choose_device
    from unitk.training.saving.checkpoint import components
    from unitk.training.saving.weights import weights_of

    folder = find_checkpoint(path)
    state = read_state(folder)
    parsed = components(state, folder)
    names = list(parsed.mixture) or [parsed.components["task"].name]
    names.sort(key=lambda name: name != state.get("default_task"))  # stable
    keep_memory()
    device = choose_device(options.device)
    precision = options.precision
    first, *others = [load(path, device, task=name, precision=precision) for name in names]
    # the weights are those of all tasks: they are kept once
    model = first.model
    generators = [first]
    for other in others:
        reader = other.reader and Generator(model, other.reader.task)
        generators.append(Generator(model, other.task, first.defaults, reader))
    weights = sum(weight.numel() for weight in weights_of(folder, False).values())
    about = {"parameters": weights, "vocabulary": len(first.vocab), **read_card(path)}
    created = int((folder / MANIFEST).stat().st_mtime)
    tasks = dict(zip(names, generators, strict=True))
    return Service(path.name or str(path), tasks, options, about, created)


def read_card(path: Path) -> dict[str, str]:
    """The title, first paragraph, limits and licence in the card of a model."""
    card = locate(path) / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    match = re.match(r"# [^\n:]+: (?P<title>.+)\n+(?P<summary>(?:.+\n)+)", text)
    plain = {"title": match["title"], "summary": match["summary"]} if match else {}
    for name in ("limits", "licence"):
        if line := re.search(rf"^{name.title()}: (.+)$", text, re.MULTILINE):
            plain[name] = line[1]
    for name, value in plain.items():
        without_links = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", value)
        plain[name] = " ".join(re.sub("[`*]", "", without_links).split())
    return plain


def watch_checkpoint(path: Path) -> Callable[[], bool]:
    """Whether `path` now names another checkpoint; the first time, this is logged."""

    def identity() -> tuple[Path, str] | None:
        try:
            folder = find_checkpoint(path).resolve()
            return folder, digest(folder / MANIFEST)
        except (UnitkError, OSError):  # gone, or being written
            return None

    def stamps() -> list[tuple[int, int] | None]:
        """What changes with the checkpoint; cheap, as identity reads all weights."""
        stats: list[tuple[int, int] | None] = []
        for name in ("", MANIFEST, f"best/{MANIFEST}", "checkpoints"):
            try:
                stat = (locate(path) / name).stat()
                stats.append((stat.st_ino, stat.st_mtime_ns))
            except OSError:
                stats.append(None)
        return stats

    seen = stamps()
    loaded = identity()
    other = False
    logged = False

    def replaced() -> bool:
        nonlocal seen, other, logged
        if (now := stamps()) != seen:
            seen = now
            other = identity() != loaded
        if other and not logged:
            log.warning("checkpoint %s was replaced; the loaded one goes on serving", path)
        logged = logged or other
        return other

    return replaced
