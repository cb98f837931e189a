"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from unitk import registry
from unitk.data.corpus.columns import WORDS
from unitk.data.corpus.writer import CorpusWriter, write_manifest
from unitk.errors import UnitkError
from unitk.registry import load_plugins
from unitk.tasks.base import Task
from unitk.vocab.base import Vocab
from unitk.vocab.train import train_vocab

# before torch is imported: another number of threads rounds otherwise in the last bit
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what --deterministic needs
settings.register_profile("unitk", deadline=None)  # a busy machine fails no test
settings.load_profile("unitk")
os.fsync = lambda descriptor: None  # no test is about a power cut, and waiting takes its time
UnitkError.with_flags = True  # messages as the command line shows them


def guarded(task: Task, name: str, value: Any) -> None:
    """Set an attribute of a task, which only a method of the task itself may do."""
    assert sys._getframe(1).f_locals.get("self") is task, f"{name} of a task is set from outside"
    object.__setattr__(task, name, value)


Task.__setattr__ = guarded  # type: ignore[method-assign, assignment]
if "UNITK_USER_DIR" in os.environ:  # the property tests then cover a plug-in's tasks too
    load_plugins(Path(os.environ["UNITK_USER_DIR"]))


def pytest_sessionstart() -> None:
    """UNITK_ROUNDING=N (`make test-cpus`): compute as another processor would."""
    if seed := os.environ.get("UNITK_ROUNDING"):
        from rounding import Rounding

        Rounding(int(seed)).__enter__()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `every(n)` only each n-th set of parameters is fast."""
    seen: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("every")) is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                item.add_marker("slow")
            seen[test] += 1


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """A folder of real data beside the checkout; where it is missing the test is skipped."""

    def find(name: str) -> Path:
        path = Path(__file__).resolve().parents[2] / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"no {name} beside the checkout")
        return path

    return find


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    for kind in registry.KINDS:
        registry.discover(kind)
    entries = {kind: dict(found) for kind, found in registry._entries.items()}
    monkeypatch.setattr(registry, "_entries", entries)
    monkeypatch.setattr(registry, "_places", dict(registry._places))
    monkeypatch.setattr(registry, "_loaded", set(registry._loaded))


@pytest.fixture(autouse=True)
def all_kernels() -> Iterator[None]:
    """`--deterministic` of a run is for the whole process: not beyond its test."""
    yield
    torch = sys.modules.get("torch")
    if torch and torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["another processor", "no such product", "other arguments"])
def no_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """oneDNN's own products, which PyTorch keeps private, cannot be called."""
    from unitk.kernels import products

    errors = {"no such product": AttributeError, "other arguments": RuntimeError}

    def refuse(*given: Any) -> None:
        raise errors[request.param]

    if request.param in errors:
        monkeypatch.setattr(products, "product", refuse)
    else:
        monkeypatch.setattr("platform.machine", lambda: "aarch64")
    products.has_onednn.cache_clear()
    yield
    products.has_onednn.cache_clear()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, as playwright drives it."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def toy_vocab() -> Vocab:
    """A small vocabulary with every special symbol, trained on `toy_lines`."""
    return train_vocab(toy_lines(400), 300)


def toy_lines(count: int) -> list[str]:
    """Sentences of made-up words; every line is a function of its number."""
    return [toy_line(i) for i in range(count)]


@cache
def toy_line(i: int) -> str:
    """One of `toy_lines`."""
    stems = [a + b for a in "b d f g k l m n p r s t".split() for b in "a e i o u".split()]
    words = [
        stems[(i * 31 + j * 17) % 60] + stems[(i * 7 + j * j * 13) % 60] for j in range(4 + i % 7)
    ]
    return " ".join(["the", *words]).capitalize() + "."


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory, toy_vocab: Vocab) -> Path:
    """Folders text/ and pairs/ with train/ and valid/ corpora of `toy_lines`; read only."""
    folder = tmp_path_factory.mktemp("toy_data")
    lines = toy_lines(260)
    for name, some in {"train": lines[:200], "valid": lines[200:]}.items():
        write_text(folder / "text" / name, toy_vocab, some)
        targets = [" ".join(line.split()[1:4]) for line in some]
        write_pairs(folder / "pairs" / name, toy_vocab, some, targets)
    return folder


def write_text(folder: Path, vocab: Vocab, lines: list[str], in_document: int = 5) -> None:
    """A corpus of sentences, so many to a document."""
    ids = [vocab.encode(line) for line in lines]
    sizes = [len(ids[i : i + in_document]) for i in range(0, len(ids), in_document)]
    writer = CorpusWriter(folder, len(vocab), [WORDS])
    vocab.save(folder / "vocab")
    lengths, words = (np.array([*map(len, some)]) for some in (ids, map(str.split, lines)))
    writer.add(np.concatenate(ids), lengths, np.array(sizes), words=words)
    writer.close({"vocab": vocab.hash})


def write_pairs(folder: Path, vocab: Vocab, sources: list[str], targets: list[str]) -> None:
    """A corpus of pairs of one part each."""
    for side, lines in {"source": sources, "target": targets}.items():
        write_text(folder / side, vocab, lines, in_document=1)
    vocab.save(folder / "vocab")
    write_manifest(folder, {"kind": "pairs", "vocab": vocab.hash})
