"""Resolves paths: a corpus, a part of preprocessed data, or data in another system's format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from unitk import files, registry
from unitk.data.corpus.corpus import SIDES, VOCAB, Corpus, Labelled, Pairs, manifest_of
from unitk.errors import DataError, UsageError, require
from unitk.files import MANIFEST
from unitk.pretrained import from_hub, locate
from unitk.vocab.base import Vocab


@dataclass(frozen=True)
class CorpusKind:
    """A kind of corpus: how it is stored and described, and the task's method that lays it out."""

    about: str  # what training on it is called
    noun: str  # what its examples are called
    opens: Callable[[Path], Any]  # folder -> the corpus
    sides: tuple[str, ...]  # the folders of its token files; "" is the corpus folder itself
    method: str  # of tasks, which lays out its examples


CORPORA = {
    "text": CorpusKind("pre-training on text", "texts", Corpus, ("",), "pretrain"),
    "pairs": CorpusKind("fine-tuning on pairs", "pairs", Pairs, SIDES, "finetune"),
    "labelled": CorpusKind(
        "fine-tuning on labelled texts", "labelled texts", Labelled, ("",), "classify"
    ),
    "spans": CorpusKind(
        "fine-tuning on answers in passages", "questions", Labelled, ("",), "answer"
    ),
    "linked": CorpusKind(
        "training on texts with entities", "texts with entities", Labelled, ("",), "link"
    ),
}
"""The kind that a manifest names -> all that depends on it."""


class Split(Protocol):
    """A part of the data in another format."""

    def open(self) -> Corpus | Pairs: ...
    def vocab(self) -> Vocab: ...


class CorpusFormat(Protocol):
    """Another system's format of corpora, registered as kind `corpus`.

    It may also have `write(options, parts)`, which does what `unitk preprocess --format` asks for.
    """

    def find(self, path: Path) -> Split | None:
        """The corpus that a path names."""

    def splits(self, folder: Path) -> list[str]:
        """The names of the corpora in a folder."""

    def shards(self, folder: Path) -> list[Path]:
        """The corpora in a folder that are for training."""

    def explain_mismatch(self, path: Path) -> str:
        """Why a path is no corpus of this format, as a message; "" if it is of another format."""


def formats() -> list[CorpusFormat]:
    """All registered formats other than unitk's own."""
    return [registry.get("corpus", name) for name in registry.names("corpus")]


def find_foreign(path: Path) -> Split | None:
    """The corpus in another format that a path names."""
    return next(filter(None, (corpus_format.find(path) for corpus_format in formats())), None)


def open_corpus(path: Path) -> Corpus | Pairs:
    """Open a corpus, or the train/ in what `unitk preprocess` or another system made."""
    if split := find_foreign(path) or find_foreign(path / "train"):
        return split.open()
    folder = locate(_folder(path), "corpus")
    kind = str(manifest_of(folder)["kind"])
    if kind not in CORPORA:
        raise DataError(
            f"{folder / MANIFEST}: the corpus holds {kind!r}, but "
            f"this unitk reads {', '.join(CORPORA)}"
        )
    return CORPORA[kind].opens(folder)


def corpus_vocab(path: Path) -> Vocab:
    """The vocabulary that a corpus was made with."""
    if split := find_foreign(path) or find_foreign(path / "train"):
        return split.vocab()
    folder = locate(_folder(path), "corpus")
    vocab = Vocab.load(folder / VOCAB)
    if vocab.hash != manifest_of(folder).get("vocab"):
        raise DataError(f"{folder / VOCAB} is not the vocabulary that the corpus was made with")
    return vocab


def is_corpus(path: Path) -> bool:
    """Whether a path is a corpus itself, not a folder of several."""
    return (path / MANIFEST).is_file() or find_foreign(path) is not None


def parts(folder: Path) -> list[str]:
    """The names of the corpora in a folder."""
    own = [entry.parent.name for entry in folder.glob(f"*/{MANIFEST}")]
    return sorted(own) or [name for foreign in formats() for name in foreign.splits(folder)]


def part(folder: Path, name: str) -> Path | None:
    """The corpus of this name in a folder with several; None if there is none."""
    path = folder / name
    return path if path.is_dir() or (folder.is_dir() and find_foreign(path)) else None


def _folder(path: Path) -> Path:
    for folder in (path, path / "train"):
        if (folder / MANIFEST).is_file():
            return folder
    train_folder = path / "train" if path.is_dir() else path
    mismatches = (foreign.explain_mismatch(train_folder) for foreign in formats())
    mismatch = next(filter(None, mismatches), "")
    lacks = f"it has no {MANIFEST}, nor has a folder train/ in it"
    if not path.exists():
        lacks = f"not found{from_hub(path, 'data set')}"
    if path.is_file():
        lacks = "it is a file, of which `unitk preprocess` makes one"
    raise DataError(mismatch or f"{path} is not a corpus: {lacks}")


def describe(corpus: Any) -> dict[str, Any]:
    """The manifest of a corpus and its name, that of the folder that `unitk preprocess` made."""
    path = corpus.path.absolute()
    folder = path.parent if path.name in ("train", "valid", "test") else path
    return {**corpus.manifest, "name": folder.name}


def check_alike(opened: Sequence[Corpus | Pairs], forms: bool = True) -> None:
    """Refuse corpora that differ in kind or vocabulary, or in the form of their labels."""
    first = opened[0]
    form = first.manifest.get("form")
    for corpus in opened:
        path = corpus.path
        if corpus.kind != first.kind:
            raise UsageError(f"{first.path} holds {first.kind}, but {path} holds {corpus.kind}")
        if forms and (other := corpus.manifest.get("form")) != form:
            raise DataError(f"{first.path} has labels of {form}, but {path} of {other}")
        # files of one vocabulary may differ: what counts is what the ids mean
        if corpus.vocab_hash != first.vocab_hash and not registry.get("measure", "same_vocab")(
            corpus_vocab(path), corpus_vocab(first.path)
        ):
            raise DataError(f"{path} was made with another vocabulary than {first.path}")


@contextmanager
def build_folder(dest: Path, overwrite: bool = False) -> Iterator[Path]:
    """A context with a folder to fill, which becomes `dest` on success and is removed otherwise."""
    _check_free(dest, overwrite)
    with files.new_folder(dest, "--dest", replace=overwrite) as folder:
        yield folder


def _check_free(dest: Path, overwrite: bool) -> None:
    if files.is_vacant(dest):
        return
    # whatever `unitk preprocess` writes, in any format
    marks = (MANIFEST, f"train/{MANIFEST}", "vocab.json", "*.idx", "dict*.txt")
    if not any(any(dest.glob(name)) for name in marks):
        raise UsageError(f"--dest {dest} exists, and is not a corpus that could be replaced")
    require(overwrite, f"--dest {dest} holds a corpus already; --overwrite replaces it")
    own = "train|valid|test|source|target|(vocab|tokenizer|manifest|dict).*|[.].*"
    own += "|.*[.](bin|idx|npy|sha256|model|log)"
    if other := next((file for file in dest.iterdir() if not re.fullmatch(own, file.name)), None):
        raise UsageError(f"--dest {dest} also holds {other.name}, which --overwrite would remove")
