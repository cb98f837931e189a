"""A server under load, beside `unitk generate` on the same texts.

    python recipes/benchmarks/serve.py --seconds 60 --clients 64
    python recipes/benchmarks/serve.py --checkpoint unitk-base-en-questions --turns 3
    python recipes/benchmarks/serve.py --transformers

Clients send one text each, again and again. Printed are the answered and the lost requests, the
seconds that a client waits, and the texts in a second of processor time of the server and of `unitk
generate` without its start; these two are measured `--turns` times, one after the other. Then come
the seconds of a short output beside eight long ones, broken bodies, clients that hang up and
clients that read slowly; the server must answer afterwards, and its memory must not have grown.

With `--transformers`, the model is a new GPT-2 of five million parameters, and the same weights
also write with transformers' `generate`, which gets token ids in batches of 64 and has no server
around it.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gzip
import json
import os
import random
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

SAMPLE = Path(__file__).parent.parent / "quickstart/data/openstax-ccby/openstax.valid.jsonl.gz"
BUNDLED, QUESTIONS = "unitk-base-en", "unitk-base-en-questions"
OPTIONS = {"beam": 5, "max_len": 20}
BATCH = 64  # texts that transformers gets at once
JSON = {"content-type": "application/json"}
VERBS = "generate", "infill", "score", "embed", "predict", "latent/encode"


def processor_seconds(process: int) -> float:
    """What a process has used so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> int:
    """Megabytes of memory that a process uses (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def beginnings(count: int) -> list[str]:
    """The first five words of sentences."""
    text = " ".join(json.loads(line)["text"] for line in gzip.open(SAMPLE, "rt"))
    sentences = [
        " ".join(sentence.split()[:5]) for sentence in text.split(". ") if len(sentence.split()) > 5
    ]
    return sentences[:count]


def answers(count: int) -> list[str]:
    """Two words of a sentence, and a passage of it and the next one, with a tab between them."""
    text = " ".join(json.loads(line)["text"].replace("\t", " ") for line in gzip.open(SAMPLE, "rt"))
    sentences = [
        sentence
        for sentence in text.replace("\n", " ").split(". ")
        if 8 < len(sentence.split()) < 60
    ]
    pairs = zip(sentences, sentences[1:], strict=False)
    return [f"{' '.join(sentence.split()[2:4])}\t{sentence}. {more}." for sentence, more in pairs][
        :count
    ]


def request_of(checkpoint: str, text: str) -> dict[str, object]:
    """The body of a request for an output."""
    if checkpoint == QUESTIONS:  # with the options of the checkpoint
        return {"texts": [text.split("\t")]}
    return {"task": "lm", "texts": [text], **OPTIONS}


def command(line: str) -> None:
    """Run a command of unitk."""
    words = [sys.executable, "-m", "unitk_cli", *shlex.split(line)]
    subprocess.run(words, check=True, capture_output=True)


def generated(checkpoint: str, texts: list[str]) -> float:
    """Texts in a second of processor time of `unitk generate`, its start left out."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, len(texts)):
            path = Path(folder) / f"{count}.txt"
            path.write_text("\n".join(texts[:count]))
            flags = f"--checkpoint {checkpoint} --input {path}"
            if checkpoint == BUNDLED:
                flags += " --task lm --no-repeat-ngram-size 0"
            if checkpoint != QUESTIONS:
                flags += f" --beam {OPTIONS['beam']} --max-len {OPTIONS['max_len']}"
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command(f"generate {flags}")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (len(texts) - 1) / (spent[1] - spent[0])


def new_model(folder: Path) -> tuple[str, str]:
    """A GPT-2 after one update, as a run and as a folder for transformers."""
    data, run, exported = (folder / name for name in ("data", "run", "transformers"))
    command(f"preprocess --input {SAMPLE} --vocab {BUNDLED} --dest {data}")
    plain = "--task.delimiter off --max-steps 1 --valid none --batch-tokens 512"
    command(f"train --task lm --arch gpt2_mini --data {data} --save-dir {run} {plain}")
    command(f"convert --from unitk {run} --to hf {exported}")
    return str(run), str(exported)


def by_transformers(folder: str, texts: list[str]) -> float:
    """Texts in a second of processor time of transformers' `generate`, its start left out."""
    import torch
    from transformers import AutoModelForCausalLM

    import unitk

    vocab = unitk.load(BUNDLED).vocab
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = [vocab.encode(text) for text in texts]
    spent = time.process_time()
    for first in range(0, len(ids), BATCH):
        some = ids[first : first + BATCH]
        width = max(map(len, some))
        rows = torch.tensor([[vocab.pad] * (width - len(ids)) + list(ids) for ids in some])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in some])
        limits = {"num_beams": OPTIONS["beam"], "max_new_tokens": OPTIONS["max_len"]}
        with torch.inference_mode():
            model.generate(rows, attention_mask=mask, pad_token_id=vocab.pad, **limits)
    return len(ids) / (time.process_time() - spent)


async def load(
    client: httpx.AsyncClient, bodies: list[dict[str, object]], clients: int, seconds: float
) -> tuple[list[float], list[int]]:
    """Send bodies from many clients; returns how long each waited, and the statuses of the lost."""
    waited, lost, end = [], [], time.monotonic() + seconds

    async def one(number: int) -> None:
        draws = random.Random(number)
        while time.monotonic() < end:
            begun = time.monotonic()
            body = draws.choice(bodies)
            answer = await client.post("/generate", json=body)
            if answer.status_code != 200:
                lost.append(answer.status_code)
            waited.append(time.monotonic() - begun)

    await asyncio.gather(*(one(number) for number in range(clients)))
    return sorted(waited), lost


async def beside(
    client: httpx.AsyncClient, body: dict[str, object], long: int, short: int
) -> list[float]:
    """The seconds that short outputs take, one after the other, beside `long` long ones."""

    async def write() -> None:
        while True:
            most = {"beam": 5, "max_len": 300, "min_len": 299}
            await client.post("/generate", json={**body, **most})

    tasks = [asyncio.create_task(write()) for _ in range(long)]
    await asyncio.sleep(1)
    found = []
    for _ in range(short):
        begun = time.monotonic()
        few = {"beam": 1, "min_len": 4, "max_len": 5}
        answer = await client.post("/generate", json={**body, **few})
        assert answer.status_code == 200, answer.text
        found.append(time.monotonic() - begun)
    for task in tasks:
        task.cancel()
    await asyncio.sleep(1)
    return sorted(found)


async def abuse(
    client: httpx.AsyncClient, port: int, body: dict[str, object]
) -> collections.Counter[int]:
    """Broken bodies, clients that hang up, and clients that read slowly; returns the statuses."""
    draws, said = random.Random(0), collections.Counter[int]()
    good = json.dumps({"texts": ["a"], "beam": 1, "max_len": 3}).encode()
    for number in range(1000):
        noise = bytes(draws.randrange(256) for _ in range(draws.randrange(60)))
        bad = noise if number % 2 else good[: draws.randrange(len(good) - 1)]
        answer = await client.post(f"/{draws.choice(VERBS)}", content=bad, headers=JSON)
        said[answer.status_code] += 1
    long = {**body, "beam": 5, "max_len": 500, "min_len": 499}
    for _ in range(20):
        try:
            await client.post("/generate", json=long, timeout=0.1)
        except httpx.TimeoutException:
            pass
    asked = json.dumps({**long, "beam": 1, "sampling": True, "stream": True}).encode()
    head = "POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(asked)}\r\n\r\n"
    for _ in range(8):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + asked)
        await reader.read(10)  # and no more
    await asyncio.sleep(1)
    return said


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default=BUNDLED)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--long", type=int, default=8)
    parser.add_argument("--short", type=int, default=10)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--transformers", action="store_true")
    given = parser.parse_args()
    texts = (answers if given.checkpoint == QUESTIONS else beginnings)(given.texts)
    with tempfile.TemporaryDirectory() as folder:
        peer = None
        if given.transformers:
            given.checkpoint, exported = new_model(Path(folder))
            peer = by_transformers(exported, texts)
        await measure(given, texts, peer)


async def measure(given: argparse.Namespace, texts: list[str], peer: float | None) -> None:
    """Measure the server, and print that beside the rate of the peer."""
    words = [sys.executable, "-m", "unitk_cli", "serve", "--port", "0", "--timeout", "600"]
    words += ["--checkpoint", given.checkpoint]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().split()[-1]
        process, port = server.pid, int(address.rpartition(":")[2])
        limits = httpx.Limits(max_connections=2 * given.clients)
        async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as client:
            bodies = [request_of(given.checkpoint, text) for text in texts]
            await load(client, bodies, given.clients, 3)  # the first batches allocate
            memory, rates = [memory_of(process)], list[tuple[float, float]]()
            waited, lost = list[float](), list[int]()
            for _ in range(given.turns):
                plain, spent = generated(given.checkpoint, texts), processor_seconds(process)
                some, refused = await load(client, bodies, given.clients, given.seconds)
                spent = processor_seconds(process) - spent
                waited, lost = sorted([*waited, *some]), [*lost, *refused]
                rates.append((len(some) / spent, plain))
            memory.append(memory_of(process))
            short = await beside(client, bodies[0], given.long, given.short)
            said = await abuse(client, port, bodies[0])
            after = (await client.post("/generate", json=bodies[0])).status_code
            memory.append(memory_of(process))
    finally:
        server.terminate()
        server.wait(60)
    served, plain = (statistics.median(each) for each in zip(*rates, strict=True))
    ratios = sorted(served / plain for served, plain in rates)
    print(f"{given.clients} clients: {len(waited)} answered, {len(lost)} lost {lost[:3]}")
    print(f"a client waits {waited[len(waited) // 2]:.2f} s (median), {waited[-1]:.2f} s at most")
    median = f"{statistics.median(short):.2f} s (median)"
    print(f"beside {given.long} long outputs, a short one takes {median}")
    print(f"texts a processor second: {served:.1f} served, {plain:.1f} by unitk generate")
    each = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"ratio {statistics.median(ratios):.2f} (median of {each})")
    if peer is not None:
        ratio = f"ratio {served / peer:.2f}"
        print(f"texts a processor second by transformers: {peer:.1f}, {ratio}")
    print(f"statuses of 1,000 broken bodies: {dict(said)}; of a request after all: {after}")
    print("memory, MB, before, after the load, at the end:", *memory)


if __name__ == "__main__":
    asyncio.run(main())
