"""Texts as models with different vocabularies compare them: documents of sentences, not of ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.folders import corpus_vocab, is_corpus, open_corpus, parts
from unitk.data.files.documents import Separators, parse_block
from unitk.data.files.files import ReadingOptions, expand, text_blocks
from unitk.errors import DataError
from unitk.options.config import Parsed
from unitk.options.fields import options


@dataclass(frozen=True)
class Document:
    """The sentences of a text, which a blank or the end of a line joins."""

    sentences: list[str]

    @property
    def size(self) -> int:
        """Bytes in UTF-8, one for each place where two sentences meet."""
        return sum(len(sentence.encode()) for sentence in self.sentences) + len(self.sentences) - 1


def open_documents(parsed: Parsed) -> list[Document]:
    """The documents of --data: files of text or tables, or a corpus, which its vocabulary decodes.

    Raises `DataError` where there is no text, and `UsageError` for options that have no effect.
    """
    chosen = parsed.main
    path = parsed.main.data
    if path.is_dir() and not is_corpus(path) and "valid" in parts(path):
        path = path / "valid"
    if is_corpus(path):
        parsed.idle("on a corpus", *(option.name for option in options(ReadingOptions)))
        return [*decode_corpus(path)]
    chosen.check()
    files = expand((str(path),), "--data")
    chosen.check_files(files, "--data", parsed.settings)
    source = chosen.source(files, "--data")
    # parallel files, records and questions are no running text
    if source.reading is None:
        raise DataError(f"--data {path} holds pairs; bits per byte are of texts")
    documents = list[Document]()
    for file, name in zip(files, source.formats, strict=True):
        documents += map(Document, read_documents(file, replace(source.reading, format=name)))
    if not documents:
        raise DataError(f"--data {path} has no text")
    return documents


def decode_corpus(path: Path) -> Iterator[Document]:
    """The documents of a corpus as text; a corpus keeps no character that it did not know."""
    corpus = open_corpus(path)
    if not isinstance(corpus, Corpus) or corpus.kind != "text":
        raise DataError(f"--data {path} holds {corpus.kind}; bits per byte are of texts")
    if not len(corpus):
        raise DataError(f"--data {path} has no text")
    # its own vocabulary, whatever those of the models are
    vocab = corpus_vocab(path)
    for number in range(len(corpus)):
        yield Document([vocab.decode(ids) for ids in corpus.document(number)])


def read_documents(path: Path, reading: Separators) -> Iterator[list[str]]:
    """The sentences of each document of a text file or a table, separated as `reading` says."""
    waiting: list[str] = []
    for block in text_blocks(path, reading):
        parsed = parse_block(block, reading)
        stream = iter(parsed.sentences)
        for i, size in enumerate(parsed.sizes):
            if waiting and not (i == 0 and parsed.goes_on):
                yield waiting
                waiting = []
            waiting += islice(stream, int(size))
    if waiting:
        yield waiting
