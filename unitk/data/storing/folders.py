"""What a path means: a corpus, a part of what was preprocessed, a split of fairseq's data."""

from __future__ import annotations

from pathlib import Path

from unitk.data.storing.corpus import VOCAB, Corpus, Pairs, manifest_of
from unitk.errors import DataError
from unitk.fairseq import corpus as fairseq
from unitk.files import MANIFEST
from unitk.vocab.base import Vocab


def open_corpus(path: Path) -> Corpus | Pairs:
    """Open a corpus folder, the train/ of what `unitk preprocess` made, or a split of fairseq's."""
    if split := fairseq.find(path) or fairseq.find(path / "train"):
        return fairseq.open_split(split)
    folder = _folder(path)
    return Pairs(folder) if manifest_of(folder).get("kind") == "pairs" else Corpus(folder)


def corpus_vocab(path: Path) -> Vocab:
    """The vocabulary a corpus was made with."""
    if split := fairseq.find(path) or fairseq.find(path / "train"):
        return split.vocab()
    folder = _folder(path)
    vocab = Vocab.load(folder / VOCAB)
    if vocab.hash != manifest_of(folder).get("vocab"):
        raise DataError(f"{folder / VOCAB} is not the vocabulary that the corpus was made with")
    return vocab


def is_corpus(path: Path) -> bool:
    """Whether a path is a corpus itself, not a folder of several."""
    return (path / MANIFEST).is_file() or fairseq.find(path) is not None


def parts(folder: Path) -> list[str]:
    """The names of the corpora in a folder."""
    made = [entry.parent.name for entry in folder.glob(f"*/{MANIFEST}")]
    return sorted(made) or fairseq.splits(folder)


def part(place: Path, name: str) -> Path | None:
    """That part of a folder of several corpora."""
    found = (place / name).is_dir() or (place.is_dir() and fairseq.find(place / name))
    return place / name if found else None


def train_parts(place: Path) -> list[Path]:
    """A corpus itself, or what a folder has to train on: one, or fairseq's train, train1, ..."""
    if fairseq.find(place / "train"):
        return fairseq.shards(place)
    return [part(place, "train") or place]


def _folder(path: Path) -> Path:
    for folder in (path, path / "train"):
        if (folder / MANIFEST).is_file():
            return folder
    said = fairseq.lacking(path / "train" if path.is_dir() else path)
    lacks = f"{path} is no corpus: there is no {MANIFEST} in it, nor in a train/ of it"
    raise DataError(said or lacks)
