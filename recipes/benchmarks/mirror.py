"""A run in object storage, killed again and again: is each resumed on an empty disk, bit for bit?

    pip install 'unitk[remote]' s3fs 'moto[server]' boto3
    python recipes/benchmarks/mirror.py [--kills 200] [--steps 120] [--faults 0.1]

moto's S3 server is started on the loopback interface. A small model trains with its data and its
run folder in it, once undisturbed. Then it trains with `--resume`, and is killed (SIGKILL) at a
random moment: three times of four when it has uploaded 1 to 4 further checkpoints, otherwise within
a second of its start. Each time it goes on with an empty cache, from what the store has. Where the
run ends before the last kill, another one is begun. With `--faults`, a proxy before the server
answers this share of all requests with 503 or by closing the connection.

Printed are the kills, those that left files of an incomplete checkpoint, the starts that did not go
on from the newest complete checkpoint that the store had when the run was killed, and whether the
weights equal the undisturbed ones. The exit code is 1 if they do not, or if a checkpoint was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from train import sample

from unitk.training import loop
from unitk.training.start import parse_train, prepare

BUCKET, EVERY = "bucket", 4
SECRET = "secret-of-the-benchmark"


def main() -> None:
    """Run both, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--steps", type=int, default=120, help="updates of a run")
    parser.add_argument("--faults", type=float, default=0.0, help="share of requests that fail")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and faults")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, server(args.faults, args.seed) as client:
        folder = Path(name)
        upload(client, sample(folder))
        assert wait(start(args.steps, "whole", folder)) == 0, said(folder)
        counts = disturbed(args, client, folder)
        equal = {weights(client, run, args.steps) for run in ("whole", *counts["runs"])}
        leaked = [file.name for file in folder.glob("*.txt") if SECRET in file.read_text()]
        leaked += [key for key in keys(client, "") if leaks(client, key)]
    print(f"{counts['kills']} kills in {len(counts['runs'])} runs of {args.steps} updates,")
    print(f"{counts['partial']} left files of an incomplete checkpoint")
    print(
        f"{counts['told']} starts said where they go on; {counts['lost']} not from the newest one"
    )
    print(f"weights after the last update: {'bit-equal' if len(equal) == 1 else 'DIFFERENT'}")
    print(f"credentials in logs or in the store: {', '.join(leaked) or 'none'}")
    sys.exit(len(equal) != 1 or counts["lost"] > 0 or bool(leaked))


@contextlib.contextmanager
def server(faults: float, seed: int) -> Any:
    """moto's server with a bucket, and before it the proxy that fails; a client of it."""
    import boto3  # which --help does without

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **silent)
    os.environ |= {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": SECRET}
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1"}
    url = f"http://127.0.0.1:{port}"
    proxy = None
    try:
        client = boto3.client("s3", endpoint_url=url)
        for _ in range(300):
            with contextlib.suppress(Exception):
                client.create_bucket(Bucket=BUCKET)
                break
            time.sleep(0.1)
        if faults:
            # a process of its own: forks of this one must not have its threads
            other = free_port()
            proxy = os.fork()
            if not proxy:
                serve_faults(other, port, faults, seed)
            url = f"http://127.0.0.1:{other}"
        os.environ["AWS_ENDPOINT_URL"] = url
        yield client
    finally:
        process.kill()
        if proxy:
            os.kill(proxy, signal.SIGKILL)


def serve_faults(port: int, behind: int, faults: float, seed: int) -> None:
    """Pass requests on, some of which fail: before the server has them, or when it has answered."""
    chance, lock = random.Random(seed), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # clients wait for 100 Continue before they send a file

        def log_message(self, *_: object) -> None:
            pass

        def handle_one(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            with lock:
                kind = chance.random() / faults
            if kind < 0.5:
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            server = HTTPConnection("127.0.0.1", behind)
            server.request(self.command, self.path, body, dict(self.headers))
            answer = server.getresponse()
            data = answer.read()
            if kind < 1:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            head = self.command == "HEAD"
            length = answer.getheader("Content-Length") if head else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(b"" if head else data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815

    sys.stderr = open(os.devnull, "w")  # of connections that clients close
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def free_port() -> int:
    """A port of the loopback interface that nobody has."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def upload(client: Any, data: Path) -> None:
    """Put the corpus into the bucket."""
    for path in data.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), BUCKET, f"data/{path.relative_to(data)}")


def start(steps: int, run: str, folder: Path) -> int:
    """A process, which is a fork of this one, that begins or continues a run; its id."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    if child := os.fork():
        return child
    out = os.open(folder / f"{run}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ["UNITK_CACHE_DIR"] = str(cache)
    words = (
        f"--task glm_infill --arch glm_tiny --data s3://{BUCKET}/data --save-dir s3://{BUCKET}/{run}"
        f" --resume --valid none --device cpu --threads 1 --max-steps {steps} --save-every {EVERY}"
        " --log-every 1 --block-size 64 --writers none --max-tokens 256 --precision fp32 --seed 1"
    )
    try:
        from unitk.training.reporting.log import show_log

        show_log()
        loop.train(prepare(parse_train(words.split())))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def wait(process: int) -> int:
    """The exit code of a process; that of a signal is below 0."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def said(folder: Path) -> str:
    """The last lines of all logs."""
    return "\n".join(file.read_text()[-1500:] for file in folder.glob("*.txt"))


def disturbed(args: argparse.Namespace, client: Any, folder: Path) -> dict[str, Any]:
    """Kill runs at random moments; what was seen."""
    chance = random.Random(args.seed)
    counts: dict[str, Any] = {"kills": 0, "partial": 0, "lost": 0, "told": 0, "runs": []}
    while counts["kills"] < args.kills:
        run = f"run-{len(counts['runs'])}"
        counts["runs"].append(run)
        newest, code = 0, None
        while code is None:
            log = folder / f"{run}.txt"
            before = log.stat().st_size if log.exists() else 0
            process = start(args.steps, run, folder)
            if counts["kills"] < args.kills:
                code = kill(process, client, run, chance)
            else:
                code = wait(process)
            # of this start alone; one that was killed before it could tell is no evidence
            words = log.read_bytes()[before:].decode()
            if begun := re.search(r"resumed from \S+step-(\d+)\n|from scratch\n", words):
                counts["told"] += 1
                counts["lost"] += int(begun[1] or 0) != newest
            if code is None:
                counts["kills"] += 1
                complete, every = steps_of(client, run)
                newest = max(complete, default=0)
                counts["partial"] += bool(every - complete)
                line = f"kill {counts['kills']} of {run}: the store has step {newest}"
                print(line, file=sys.stderr, flush=True)
        assert code == 0, said(folder)
    return counts


def kill(process: int, client: Any, run: str, chance: random.Random) -> int | None:
    """Kill a process at a random moment; its exit code if it has ended before."""
    began, first = time.monotonic(), max(steps_of(client, run)[0], default=0)
    soon = chance.uniform(0, 1) if chance.random() < 0.25 else 1e6
    more = EVERY * chance.randint(1, 4)
    while time.monotonic() < began + soon:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if max(steps_of(client, run)[0], default=0) >= first + more:
            break
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 0.3))
    os.kill(process, signal.SIGKILL)
    return None if wait(process) == -signal.SIGKILL else 0


def keys(client: Any, prefix: str) -> list[str]:
    """The names in the bucket that begin so."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def steps_of(client: Any, run: str) -> tuple[set[int], set[int]]:
    """The steps of the checkpoints in the store that have a manifest, and of all."""
    names = keys(client, f"{run}/checkpoints/")
    every = {int(name.split("/")[2][5:]) for name in names}
    ends = (name.split("/") for name in names if name.endswith("/manifest.json"))
    return {int(one[2][5:]) for one in ends}, every


def weights(client: Any, run: str, steps: int) -> bytes:
    """The weights of the last checkpoint."""
    key = f"{run}/checkpoints/step-{steps}/model.safetensors"
    return bytes(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())


def leaks(client: Any, key: str) -> bool:
    """Whether a file of the store has the secret in it."""
    return SECRET.encode() in client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


if __name__ == "__main__":
    main()
