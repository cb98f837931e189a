"""Encodes blocks of text, in this process or in several, in the order of the blocks."""

from __future__ import annotations

import gc
import os
import queue
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk import registry
from unitk.data.corpus.annotate import Annotator, Notes, open_annotator
from unitk.data.corpus.columns import stored_dtype
from unitk.data.corpus.workers import Worker
from unitk.data.corpus.writer import announce
from unitk.data.files.documents import Separators, parse_block
from unitk.data.files.labels import NO_SPAN, spaced_words
from unitk.data.files.lines import Block
from unitk.data.files.pairs import PairBlock, PairText
from unitk.data.files.squad import arrange
from unitk.data.files.window import cut_window
from unitk.errors import UsageError
from unitk.slots import Ids
from unitk.vocab.base import Vocab

WORTH_A_PROCESS = 8 << 20
"""Bytes of input that take about as long to encode as a process takes to start."""
SYMBOL = re.compile(
    r"(<\|\w+\|>|</?(s|doc)>|<(eo[sdt]|bos|sep|pad|unk|mask)>|\[(EO[SDT]|BOS|SEP|CLS|PAD|UNK|\w*MASK)\])$"
)
"""How vocabularies spell their symbols, at the end of a text."""


@dataclass(frozen=True)
class Side:
    """The sentences of a block: their ids, joined, and the number of sentences of each document."""

    ids: npt.NDArray[Any]
    lengths: Ids
    sizes: Ids
    words: Ids  # of each sentence
    unknown: int
    num_bytes: int
    notes: Notes | None = None  # the annotation byte of each id, with `--annotate`


@dataclass(frozen=True)
class EncodedBlock:
    """An encoded block: one side, or source and target."""

    path: Path
    at: int  # how far into all files it begins, as `Block.at`
    sides: list[Side]
    goes_on: bool
    labels: list[tuple[Any, str]] = field(default_factory=list)
    """The label of each record, spans in tokens, and the place of the record for errors."""
    skipped: int = 0  # empty records
    moved: int = 0  # answers that are elsewhere than the file says
    symbols: Counter[str] = field(default_factory=Counter)
    """Spellings of symbols that sentences end in, and how often the mark occurs."""


@dataclass
class PartTally:
    """What was read of a part, besides the counts of its sides."""

    sentences: Counter[Path] = field(default_factory=Counter)  # of each file
    symbols: Counter[str] = field(default_factory=Counter)
    num_bytes: int = 0
    skipped: int = 0  # empty records
    moved: int = 0  # answers

    def add(self, encoded: EncodedBlock) -> None:
        """Count a block."""
        for side in encoded.sides:
            self.sentences[encoded.path] += len(side.lengths)
            self.num_bytes += side.num_bytes
        self.skipped += encoded.skipped
        self.moved += encoded.moved
        self.symbols += encoded.symbols

    def report(self, name: str, seconds: float) -> None:
        """Print how much there was, and what was left out or corrected."""
        unit, scale = ("MB", 1e6) if self.num_bytes >= 1e6 else ("kB", 1e3)
        size = self.num_bytes / scale
        announce(f"{name}: {size:,.1f} {unit} of text, {size / seconds:,.1f} {unit}/s")
        if self.skipped:
            announce(f"  empty records skipped: {self.skipped:,}")
        if self.moved:
            announce(f"  answers corrected: {self.moved:,} did not match their answer_start")


def encode_block(
    vocab: Vocab,
    block: Block | PairBlock,
    reading: Separators | None,
    annotate: Annotator | None = None,
) -> EncodedBlock:
    """Encode a block of text, which is split as `reading` says, or of pairs."""
    if isinstance(block, PairBlock):
        return _encode_pairs(vocab, block)
    assert reading is not None
    parsed = parse_block(block, reading)
    side = _encode(vocab, parsed.sentences, parsed.sizes)
    if annotate:
        ids_of_sentences = np.split(side.ids, side.lengths.cumsum()[:-1])
        pairs = zip(parsed.sentences, ids_of_sentences, strict=False)  # of none, there is one part
        notes = [annotate(sentence, ids.tolist(), vocab) for sentence, ids in pairs]
        side = replace(side, notes=np.concatenate([np.empty(0, np.uint8), *notes]))
    if not side.lengths.all():  # sentences without a token are dropped
        kept = side.lengths > 0
        count = len(side.sizes)
        sizes = np.bincount(np.arange(count).repeat(side.sizes)[kept], minlength=count)
        side = replace(side, lengths=side.lengths[kept], sizes=sizes, words=side.words[kept])
    symbols = Counter(
        found[0]
        for sentence in parsed.sentences
        if sentence[-1] in ">]" and (found := SYMBOL.search(sentence))
    )
    mark = reading.document_mark
    symbols[mark] += parsed.text.count(mark.encode())
    return EncodedBlock(block.path, block.at, [side], parsed.goes_on, symbols=symbols)


def _encode_pairs(vocab: Vocab, block: PairBlock) -> EncodedBlock:
    """Encode pairs of texts, or texts with labels; a side without a token is kept."""
    pairs = block.pairs
    moved = sum(pair.moved for pair in pairs)
    if block.form:
        pairs = [cut_window(pair, block.window, vocab, block.form) for pair in pairs]
        pairs = [replace(pair, source=arrange(pair.source, block.form)) for pair in pairs]
    # with tags, each part is a word
    parts = spaced_words if block.labels == "tags" else list
    sources = [part for pair in pairs for part in parts(pair.source)]
    sizes = np.fromiter((len(pair.source) for pair in pairs), np.int64)
    sides = [_encode(vocab, sources, sizes, least=block.labels == "tags")]
    labels_found = list[tuple[Any, str]]()
    if block.labels:
        labels = [pair.label for pair in pairs]
        if block.labels in ("span", "links"):
            labels = _convert_to_tokens(vocab, pairs)
        labels_found = [(label, pair.where) for label, pair in zip(labels, pairs, strict=True)]
    else:
        sides.append(_encode(vocab, [pair.target for pair in pairs], np.ones_like(sizes)))
    return EncodedBlock(block.path, block.at, sides, False, labels_found, block.skipped, moved)


def _convert_to_tokens(vocab: Vocab, pairs: Sequence[PairText]) -> list[Any]:
    """Convert the spans or links of records from characters to tokens of the last part."""
    labels: list[Any] = []
    for pair in pairs:
        text = pair.source[-1]
        if pair.label == NO_SPAN:
            labels.append(pair.label)
        elif pair.label and isinstance(pair.label[0], int):
            labels += map(list, vocab.token_spans(text, [pair.label]))
        else:
            places = vocab.token_spans(text, [link[:2] for link in pair.label])
            linked = zip(places, pair.label, strict=True)
            labels.append(sorted((*at, link[-1]) for at, link in linked))
    return labels


def _encode(vocab: Vocab, sentences: list[str], sizes: Ids, least: bool = False) -> Side:
    """Encode sentences, `sizes` of which make up each document; with `least`, one without tokens is
    the unknown symbol, so that each has a token."""
    ids, lengths = vocab.encode_packed(sentences)
    if least:
        ids = np.insert(ids, lengths.cumsum()[lengths == 0], vocab.unk)
        lengths = np.maximum(lengths, 1)
    lines = "".join([sentence.replace("\n", " ") + "\n" for sentence in sentences]).encode()
    unknown = int(np.count_nonzero(ids == vocab.unk))
    ids = ids.astype(stored_dtype(len(vocab)))
    return Side(ids, lengths, sizes, count_words(lines), unknown, len(lines))


def count_words(lines: bytes) -> Ids:
    """The words of each line: runs of bytes between blanks and control characters."""
    text = np.frombuffer(b"\n" + lines, np.uint8)
    blank = text <= 32  # bytes of UTF-8's other characters are above
    first = np.flatnonzero(blank[:-1] > blank[1:])  # a word begins after each of these bytes
    return np.diff(first.searchsorted(np.flatnonzero(text == 10)))


def num_workers(given: int | None, size: int) -> int:
    """The number of worker processes for an input of `size` bytes, at most `given`."""
    if given is not None and given < 1:
        raise UsageError(f"--workers must be at least 1, got {given}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(given or cores or 1, 1 + size // WORTH_A_PROCESS)


Encode = Callable[[Iterator[Block | PairBlock], Separators | None], Iterator[EncodedBlock]]


@contextmanager
def encoders(
    vocab: Vocab,
    workers: int,
    user_dir: Path | None = None,
    annotate: Sequence[str] = (),
    cure: str = "try fewer --workers",
) -> Iterator[Encode]:
    """A function that encodes blocks in order, in this process or in several.

    Processes build the vocabulary themselves. `annotate` is the value of that option; `cure` is
    what helps if memory is too short for the processes.
    """
    annotator = open_annotator(annotate) if annotate else None
    if workers == 1:
        yield lambda blocks, reading: (
            encode_block(vocab, block, reading, annotator) for block in blocks
        )
        return
    # processes, not threads: lines, sentences and lists are Python's work
    state = vocab.model.kind, vocab.model.data, vocab.symbols, vocab.added
    idle = queue.SimpleQueue[Worker]()

    def ask(block: Block | PairBlock, reading: Separators | None) -> EncodedBlock:
        worker = idle.get()  # there are as many as threads
        try:
            encoded: EncodedBlock = worker(block, reading)
        finally:
            idle.put(worker)
        return encoded

    def encode(
        blocks: Iterator[Block | PairBlock], reading: Separators | None
    ) -> Iterator[EncodedBlock]:
        waiting: deque[Future[EncodedBlock]] = deque()
        for block in blocks:
            waiting.append(pool.submit(ask, block, reading))
            if len(waiting) > 2 * workers:  # enough for all, and memory stays bounded
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    with ThreadPoolExecutor(workers) as pool, ExitStack() as stack:
        for _ in range(workers):
            worker = Worker(cure, _begin, user_dir, annotate, *state)
            stack.callback(worker.close)
            idle.put(worker)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        yield encode


def _begin(
    user_dir: Path | None,
    annotate: Sequence[str],
    kind: str,
    data: bytes,
    symbols: dict[str, int],
    added: tuple[str, ...],
) -> Callable[[Block | PairBlock, Separators | None], EncodedBlock]:
    """The function of a worker process."""
    registry.load_plugins(user_dir)
    vocab = Vocab(registry.get("vocab", kind)(data), symbols, added)
    annotator = open_annotator(annotate) if annotate else None
    gc.freeze()  # what was imported need not be searched for garbage time and again
    return lambda block, reading: encode_block(vocab, block, reading, annotator)


def select_shard(
    blocks: Iterator[Block | PairBlock], size: int, shard: tuple[int, int] | None
) -> Iterator[Block | PairBlock]:
    """The blocks of one of n contiguous shards; a document belongs to the shard it begins in."""
    owner = 0
    for block in blocks:
        if shard and block.fresh:
            # by its place in all files; what goes on stays with its beginning
            owner = min(block.at * shard[1] // max(size, 1), shard[1] - 1)
        if not shard or owner == shard[0]:
            yield block
