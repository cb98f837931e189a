"""Mixed requests to a server, each of whose texts is compared with what `unitk generate` writes.

    python recipes/benchmarks/serve_mixed.py --seconds 120 --clients 24

Clients ask two models for greedy outputs, beams, draws with seeds, streams, outputs up to a stop
string, and vectors; every sixth request is a long one whose client hangs up. An output that differs
from that of the command is printed and counted, with the difference of the log-probabilities if it
has some. Searches may differ where two outputs are equally probable but for rounding.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from serve import BUNDLED, QUESTIONS, answers, beginnings, command, memory_of

LINES = 24
"""Texts of each kind; a request for draws has GROUP of them."""
GROUP, SEEDS = 8, range(3)
STOP = " the"
LM = {"task": "lm", "no_repeat_ngram_size": 0}
ASKED = {"model": BUNDLED, **LM}


def written(texts: list[str], checkpoint: str, **options: object) -> list[list[Any]]:
    """The outputs of `unitk generate` for each text."""
    with tempfile.TemporaryDirectory() as folder:
        source, dest = (Path(folder) / name for name in ("in.txt", "out.jsonl"))
        source.write_text("".join(f"{text}\n" for text in texts))
        flags_of = ((name.replace("_", "-"), str(value).lower()) for name, value in options.items())
        flags = [f"--{name} {value}" for name, value in flags_of]
        line = f"generate --checkpoint {checkpoint} --input {source} --output {dest}"
        command(" ".join([line, *flags]))
        return [json.loads(line)["outputs"] for line in dest.read_text().splitlines()]


@dataclass(frozen=True)
class Case:
    """A request whose texts are known."""

    name: str
    path: str
    body: dict[str, Any]
    texts: list[str]
    """Of all outputs in turn."""
    log_probs: list[float]

    async def check(self, client: httpx.AsyncClient) -> list[str]:
        """What is wrong with the answer of a server."""
        answer = await client.post(self.path, json=self.body)
        if answer.status_code != 200:
            return [f"{self.name}: status {answer.status_code}, {answer.text[:200]}"]
        outputs = read(self.path, answer.text, bool(self.body.get("stream")))
        texts = [
            output["text"].strip() for output in outputs
        ]  # a stream has the blanks around a text
        if texts == self.texts:
            return []
        gaps = [
            f"{abs(output['log_prob'] - known):.1e}"
            for output, known in zip(outputs, self.log_probs, strict=False)
            if "log_prob" in output
        ]
        return [f"{self.name}: {texts} instead of {self.texts}; log-probabilities differ by {gaps}"]


def read(path: str, text: str, streams: bool) -> list[dict[str, Any]]:
    """The outputs in an answer."""
    if not path.startswith("/v1/"):
        return [output for best in json.loads(text.splitlines()[-1])["outputs"] for output in best]
    if not streams:
        return list(json.loads(text)["choices"])
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line)["choices"][0] for line in lines]
    assert [event["finish_reason"] is None for event in events] == [True] * (len(events) - 1) + [
        False
    ]
    return [{"text": "".join(event["text"] for event in events)}]


def cases() -> list[Case]:
    """Requests of all kinds, with the texts that `unitk generate` writes for them."""
    texts, made = beginnings(LINES), list[Case]()

    def add(name: str, path: str, body: dict[str, Any], *outputs: list[Any]) -> None:
        best_outputs = [output for best in outputs for output in best]
        known, log_probs = (
            [output["text"].strip() for output in best_outputs],
            [output["log_prob"] for output in best_outputs],
        )
        made.append(Case(name, path, body, known, log_probs))

    how = {"beam": 1, "max_len": 24}
    for text, best in zip(texts, written(texts, BUNDLED, **LM, **how), strict=True):
        add("greedy", "/generate", {**ASKED, **how, "texts": [text]}, best)
        own = {"model": BUNDLED, "no_repeat_ngram_size": 0, "temperature": 0, "max_tokens": 24}
        own |= {"prompt": text}
        add("events", "/v1/completions", {**own, "stream": True}, best)
        ended = [output | {"text": f" {output['text']}".split(STOP)[0]} for output in best]
        add("stop", "/v1/completions", {**own, "stop": STOP}, ended)
    how = {"beam": 5, "nbest": 2, "max_len": 32}
    for text, best in zip(texts, written(texts, BUNDLED, **LM, **how), strict=True):
        add("beam", "/generate", {**ASKED, **how, "texts": [text]}, best)
    pairs = answers(LINES)
    for pair, best in zip(pairs, written(pairs, QUESTIONS), strict=True):
        add("questions", "/generate", {"model": QUESTIONS, "texts": [pair.split("\t")]}, best)
    for seed in SEEDS:  # a draw depends on the seed and the number of its text
        some, drawn = texts[seed * GROUP :][:GROUP], {"sampling": True, "seed": seed, "max_len": 24}
        expected = written(some, BUNDLED, **LM, **drawn)
        add("draws", "/generate", {**ASKED, **drawn, "texts": some}, *expected)
        first = {**ASKED, **drawn, "texts": some[:1], "stream": True}
        add("lines", "/generate", first, expected[0])
    return made


async def embed(client: httpx.AsyncClient) -> list[str]:
    """Ask for vectors, which are computed at once."""
    body = {"model": BUNDLED, "texts": beginnings(LINES)}
    answer = await client.post("/embed", json=body)
    right = answer.status_code == 200 and len(answer.json()["vectors"]) == LINES
    return [] if right else [f"embed: {answer.text[:200]}"]


async def hang_up(client: httpx.AsyncClient, seconds: float) -> list[str]:
    """Ask for a long output, and leave."""
    long = {**ASKED, "texts": ["The"], "beam": 5, "max_len": 400, "min_len": 399}
    try:
        await client.post("/generate", json=long, timeout=seconds)
    except httpx.TimeoutException:
        return []
    return ["a long output was answered at once"]


async def load(address: str, known: list[Case], given: argparse.Namespace, process: int) -> int:
    """Send requests until the time is over, and print what was wrong; returns how many were."""
    counts, wrong = collections.Counter[str](), list[str]()
    memory, end = [memory_of(process)], time.monotonic() + given.seconds

    async def one(client: httpx.AsyncClient, number: int) -> None:
        draws = random.Random(number)
        while time.monotonic() < end:
            kind = draws.randrange(6)
            case = draws.choice(known)
            if kind == 0:
                wrong.extend(await hang_up(client, 0.05 + draws.random()))
            elif draws.randrange(12) == 0:
                wrong.extend(await embed(client))
            else:
                wrong.extend(await case.check(client))
            counts["hang up" if kind == 0 else case.name] += 1

    async def watch() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(given.seconds / 8)
            memory.append(memory_of(process))

    limits = httpx.Limits(max_connections=2 * given.clients)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        await asyncio.gather(watch(), *(one(client, number) for number in range(given.clients)))
        figures = (await client.get("/metrics")).text
    print(f"{sum(counts.values())} requests: {dict(counts)}")
    print("memory, MB, at the start and in eight turns:", *memory)
    print(*(line for line in figures.splitlines() if line.startswith("unitk_w")), sep="\n")
    print(f"{len(wrong)} wrong", *wrong, sep="\n")
    return len(wrong)


def main() -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=24)
    args = parser.parse_args()
    known = cases()
    words = [sys.executable, "-m", "unitk_cli", "serve", "--port", "0", "--timeout", "600"]
    words += ["--checkpoint", BUNDLED, "--checkpoint", QUESTIONS]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().split()[-1]
        return int(asyncio.run(load(address, known, args, server.pid)) > 0)
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    sys.exit(main())
