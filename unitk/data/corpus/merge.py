"""Joins the shards of a corpus, or any corpora with the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unitk.data.corpus.columns import NOTES, OPTIONAL, Counts
from unitk.data.corpus.corpus import Labelled, manifest_of
from unitk.data.corpus.folders import CORPORA, build_folder, check_alike, corpus_vocab, open_corpus
from unitk.data.corpus.writer import (
    CorpusWriter,
    LabelWriter,
    announce,
    announce_counts,
    close_corpus,
)
from unitk.errors import DataError, UsageError, printable
from unitk.files import MANIFEST

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Join the shards of a corpus, in their order: the result equals the corpus made at once.

    unitk merge shards/0 shards/1 shards/2 --dest data/docs
    """

    parts: tuple[Path, ...]
    """Folders that `unitk preprocess --shard i/n` wrote, in the order i = 0, 1, and so on."""
    dest: Path
    """Folder to write."""
    overwrite: bool = False
    """Replace a corpus in --dest."""


def merge(options: Options) -> dict[str, dict[str, Counts]]:
    """Join the corpora, or the train/, valid/ and test/ in them; returns what each part holds."""
    if not options.parts:
        raise UsageError("name the corpora to join: unitk merge --dest DIR PART PART ...")
    names = [_find_splits(part) for part in options.parts]
    for part, held in zip(options.parts, names, strict=True):
        if held != names[0]:
            raise DataError(
                f"{options.parts[0]} holds {', '.join(names[0])}, but {part} {', '.join(held)}"
            )
    with build_folder(options.dest, options.overwrite) as folder:
        known: list[str] | None = None
        counts = dict[str, dict[str, Counts]]()
        for name in names[0]:
            announce(printable(f"{options.dest / name}:"))
            counts[name] = _join_split(
                [part / name for part in options.parts], folder / name, known
            )
            if name == "train":
                known = manifest_of(folder / name).get("labels")
    return counts


def _find_splits(part: Path) -> list[str]:
    """The splits (`SPLITS`) in a folder of `unitk preprocess`; "." for a corpus folder itself."""
    names = [name for name in (".", *SPLITS) if (part / name / MANIFEST).is_file()]
    if not names:
        raise DataError(f"{part} is not a corpus, nor a folder with train/ in it")
    return names


def _join_split(folders: Sequence[Path], dest: Path, known: list[str] | None) -> dict[str, Counts]:
    """Join corpora into a new one; returns what each of its sides holds.

    known: the names that labels may have, which are those of train; None: any names.
    """
    opened = [open_corpus(folder) for folder in folders]
    first = opened[0]
    check_alike(opened)
    for corpus in opened:
        corpus.verify()  # what is damaged must not get a good hash
    about = _describe_sources(folders, [corpus.manifest for corpus in opened])
    vocab = corpus_vocab(folders[0])
    noted = [corpus.sides[0].has(NOTES) for corpus in opened]
    if len({*noted}) > 1:
        raise DataError(f"{folders[noted.index(False)]} has no annotations, but others have")
    sides = [*zip(*(corpus.sides for corpus in opened), strict=True)]
    columns = [
        column for column in OPTIONAL if all(part.has(column) for side in sides for part in side)
    ]
    names = CORPORA[first.kind].sides
    writers = {name: CorpusWriter(dest / name, len(vocab), columns) for name in names}
    for writer, side in zip(writers.values(), sides, strict=True):
        for part in side:
            writer.join(part)
    if not any(writer.counts.tokens for writer in writers.values()):
        raise DataError(f"{folders[0]}: there is no text in it, nor in the other parts")
    form = ""
    if labelled := [corpus for corpus in opened if isinstance(corpus, Labelled)]:
        form = labelled[0].form
        labels = LabelWriter(form, known)
        for corpus in labelled:
            labels.join(corpus)
        about = {"kind": first.kind, **labels.save(dest), **about}
    close_corpus(dest, writers, vocab, about)
    for name, writer in writers.items():
        announce_counts(name, writer.counts, first.kind, form)
    return {name: writer.counts for name, writer in writers.items()}


def _describe_sources(folders: Sequence[Path], manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The sources of the result; shards must be complete and in order."""
    first = manifests[0]
    keys: list[str] = [key for key in ("sources", "source_bytes", "targets") if key in first]
    same: dict[str, Any] = {key: first[key] for key in ("languages", "window") if key in first}
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.get("languages") != first.get("languages"):
            raise DataError(f"{folder} has other languages than {folders[0]}")
    if not any("shard" in manifest for manifest in manifests):
        # lists of names are joined, numbers are added
        added = {
            key: sum((manifest[key] for manifest in manifests), type(first[key])()) for key in keys
        }
        return added | same
    for i, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
        expected = f"{i}/{len(folders)}"
        if manifest.get("shard") != expected:
            held = f"shard {manifest['shard']}" if "shard" in manifest else "no shard"
            raise DataError(f"{folder} is {held}, but {expected} is expected at this place")
        if any(manifest[key] != first[key] for key in keys):
            raise DataError(f"{folder} is a shard of other files than {folders[0]}")
    return {key: first[key] for key in keys} | same
