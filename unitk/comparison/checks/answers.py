"""Answers that occur in their own inputs: targets in sources, and words that give classes away.

Layouts hide what they ask for; this looks for the same in what the user's records say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unitk.comparison.checks.base import DataSplit, Finding, Findings, Status, Subjects
from unitk.comparison.checks.shared import SHOWN
from unitk.comparison.checks.words import HashedTexts, folded_words, hash_corpus, join_texts
from unitk.data.corpus.corpus import Corpus, Labelled, Pairs
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.registry import register
from unitk.vocab.base import Vocab

WORDS = 4  # of a target: shorter ones may occur in a source by chance
MOST = 0.5  # share of targets in their sources beyond which they are given away
SURE = 0.95  # share of a class that has a word, and share of a word that is in the class
FEW = 20  # records of a class that a word must be in
RECORDS = 20_000  # of a corpus that are looked at, the first ones


@register("check", "answers")
def check_answers(subjects: Subjects) -> Findings:
    """Whether targets occur in their sources, or a word gives away the class of a text."""
    for split in subjects.all_splits():
        for name, place in split_corpora(split):
            corpus = open_corpus(place)
            subject = f"{split.name} {name}".strip()
            if isinstance(corpus, Pairs):
                yield judge_targets(subject, corpus, corpus_vocab(place))
            elif isinstance(corpus, Labelled) and corpus.form == "class":
                yield judge_classes(subject, corpus, corpus_vocab(place))


def split_corpora(split: DataSplit) -> Iterator[tuple[str, Path]]:
    """The corpora of a split by name."""
    for place in split.train:
        yield "train", place
    yield from split.held_out.items()


def first_texts(corpus: Corpus, vocab: Vocab) -> HashedTexts:
    """The first texts of a corpus, about `RECORDS`."""
    parts = list[HashedTexts]()
    count = 0
    for part in hash_corpus(corpus, vocab):
        parts.append(part)
        count += len(part.lengths)
        if count >= RECORDS:
            break
    return join_texts(parts)


def judge_targets(subject: str, corpus: Pairs, vocab: Vocab) -> Finding:
    """How many targets occur word for word in their sources, among other words."""
    sources, targets = (first_texts(side, vocab) for side in corpus.sides)
    inside = copies = asked = 0
    example = ""
    for number in range(min(len(sources.lengths), len(targets.lengths))):
        source, target = sources.text(number), targets.text(number)
        if len(target) < WORDS:
            continue
        asked += 1
        stands = stands_in(target.tobytes(), source.tobytes())
        # a task of copying is meant as one
        copies += stands and len(source) == len(target)
        inside += stands and len(source) > len(target)
        example = example or f" (pair {number + 1})" * (stands and len(source) > len(target))
    text = f"{inside} of {asked} targets occur in their sources{example}"
    text += f", beside {copies} that are their sources" if copies else ""
    status: Status = "FAULT" if inside > MOST * max(asked, 1) else "ok"
    return Finding(status, "answers", subject, text, {"targets": asked, "inside": inside})


def stands_in(part: bytes, whole: bytes) -> bool:
    """Whether hashes of 8 bytes occur in others, one after the other."""
    at = whole.find(part)
    while at >= 0 and at % 8:
        at = whole.find(part, at + 1)
    return at >= 0


def judge_classes(subject: str, corpus: Labelled, vocab: Vocab) -> Finding:
    """Classes almost all of whose texts have a word that almost no other text has."""
    texts = first_texts(corpus, vocab)
    count = len(texts.lengths)
    label = np.asarray(corpus.values)[:count, 0].astype(np.int64)
    number = np.repeat(np.arange(count), texts.lengths)
    words, word = np.unique(texts.words, return_inverse=True)
    # each word once for each text
    pairs = np.unique(word * count + number)
    word, number = np.divmod(pairs, max(count, 1))
    every = np.bincount(word, minlength=len(words))
    giveaways = list[str]()
    sizes = np.bincount(label, minlength=len(corpus.labels))
    for label_number in np.flatnonzero(sizes >= FEW).tolist():
        counts_here = np.bincount(word[label[number] == label_number], minlength=len(words))
        tells = (counts_here >= SURE * sizes[label_number]) & (counts_here >= SURE * every)
        if tells.any():
            first = int(np.argmax(texts.words == words[int(np.argmax(tells))]))
            at = int(np.searchsorted(texts.bounds, first, "right")) - 1
            spelled = folded_words(" ".join(map(vocab.decode, corpus.document(at))))
            place = first - int(texts.bounds[at])
            name = repr(spelled[place]) if place < len(spelled) else "a word"
            giveaways.append(f"{name} tells {corpus.labels[label_number]}")
    kinds = int((sizes > 0).sum())
    text = f"{len(giveaways)} of {kinds} classes are told by a word"
    text += f" ({', '.join(giveaways[:SHOWN])})" if giveaways else ""
    status: Status = "note" if giveaways else "ok"
    # of two classes, one tells the other
    if giveaways and len(giveaways) >= kinds - 1 > 0:
        status = "FAULT"
    return Finding(status, "answers", subject, text, {"told": len(giveaways), "classes": kinds})
