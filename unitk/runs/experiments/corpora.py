"""Parts of corpora, for runs that read as many epochs of fewer texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unitk.data.corpus.columns import NOTES, OPTIONAL, WORDS
from unitk.data.corpus.corpus import VOCAB, Corpus
from unitk.data.corpus.folders import build_folder, open_corpus
from unitk.data.corpus.writer import CorpusWriter, close_corpus
from unitk.vocab.base import Vocab


def cut_corpus(source: Path, dest: Path, divide: int, seed: int) -> None:
    """Write a part of a text corpus: documents that are drawn until 1 / `divide` of its tokens."""
    corpus = open_corpus(source)
    assert isinstance(corpus, Corpus)
    lengths = corpus.document_lengths()
    order = np.random.default_rng([seed, divide]).permutation(len(lengths))
    total = lengths[order].cumsum()
    # the number of documents whose tokens are nearest to the share
    count = 1 + int(np.abs(total - total[-1] / divide).argmin())
    columns = [column for column in OPTIONAL if corpus.has(column)]
    vocab = Vocab.load(source / VOCAB)
    with build_folder(dest) as folder:
        writer = CorpusWriter(folder, len(vocab), columns)
        for index in np.sort(order[:count]):
            add_document(writer, corpus, int(index))
        notes = {key: corpus.manifest[key] for key in ("languages",) if key in corpus.manifest}
        close_corpus(folder, {"": writer}, vocab, {"sources": [str(source)], **notes})


def add_document(writer: CorpusWriter, corpus: Corpus, index: int) -> None:
    """Append a document of a corpus to another one."""
    first, last = corpus.documents[index : index + 2]
    edges = corpus.sentences[first : last + 1]
    run = int(edges[0]), int(edges[-1])
    notes = corpus.notes(run) if corpus.has(NOTES) else None
    words = np.diff(corpus.words[first : last + 1]) if corpus.has(WORDS) else None
    ids = corpus.tokens(*run)
    writer.add(ids, np.diff(edges), np.array([last - first]), notes=notes, words=words)
