"""The files that a user names, as blocks of text or pairs."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from unitk.data.corpus.columns import FORMS
from unitk.data.corpus.folders import is_corpus
from unitk.data.files.documents import Documents, Sentences, Separators, parse_block, texts_of
from unitk.data.files.lines import (
    STDIN,
    Block,
    blocks,
    lines_of,
    read_lines,
    size_of,
    split_in_groups,
    strip_packing,
)
from unitk.data.files.pairs import Fields, PairBlock, PairText, record_blocks
from unitk.data.files.readers import Format, format_of, reader, readers
from unitk.data.files.squad import SQUAD_SOURCE, check_form, read_squad
from unitk.errors import DataError, UsageError, amount, require
from unitk.files import RemotePath
from unitk.foreign import check_name, read_json
from unitk.options.fields import Checked, Positive, flag
from unitk.options.settings import Settings
from unitk.pretrained import from_hub, locate

ADDRESS = re.compile(r"[a-z][a-z0-9+]+:(/|[\w-]+/)", re.IGNORECASE)
"""How https:// and hf:name/ begin; a path object has dropped one of two strokes."""


def expand(patterns: Sequence[str], option: str) -> list[Path]:
    """The files that a user named, in order; wildcards and folders are expanded."""
    ends = [bool(Path(name).suffix) for name in patterns]  # a name such as Oslo,Norway.txt was cut
    cut = not any([*ends[:-1], *map(os.path.exists, patterns)]) and ends[1:][-1:] == [True]
    apart = "; commas part names" if cut else ""
    paths_found = [path for pattern in patterns for path in _match_files(pattern, option, apart)]
    for path, times in Counter(paths_found).items():
        check_name(str(path))
        require(times == 1, f"{option} names {path} twice")
    return paths_found


def _match_files(pattern: str, option: str, hint: str) -> list[Path]:
    """The files that a path, a folder or a pattern with wildcards names."""
    path = locate(Path(pattern), "file")
    if path.is_dir():
        return _find_files(path, option)
    if path == STDIN or path.exists():
        return [path]
    if isinstance(path, RemotePath):
        files = path.match_files()
        require(files, f"{option} {path}: there is no such file")
        return files
    if ADDRESS.match(str(path)):
        raise DataError(f"{option} {pattern} is an address; download it and name the file")
    if not glob.has_magic(pattern):
        raise DataError(f"{option} {path}: no such file{hint or from_hub(path, 'data set')}")
    # a hub has put what its pattern matches into its cache
    names = [*map(Path, sorted(glob.glob(str(path), recursive=True)))] or _match_marked_folder(path)
    if not (files := [name for name in names if name.is_file()]):
        raise DataError(f"{option} {pattern}: no file has such a name")
    return files


def _match_marked_folder(pattern: Path) -> list[Path]:
    """The files that a pattern names if its folder has wildcards in its own name, such as a[1]."""
    root = next((folder for folder in pattern.parents if folder.exists()), Path())
    rest = pattern.relative_to(root)
    return [root / name for name in sorted(glob.glob(str(rest), root_dir=root, recursive=True))]


def _find_files(folder: Path, option: str) -> list[Path]:
    """The files of a folder whose extension names a format."""
    if is_corpus(folder):
        raise DataError(f"{option} {folder} is a corpus already; it needs files of text")
    if saved := saved_files(folder, option):
        return saved
    known = sorted({ending for kind in readers().values() for ending in kind.endings})
    fits = (path for path in folder.iterdir() if strip_packing(path).suffix.lower() in known)
    matching = sorted(path for path in fits if path.is_file())
    if not matching:
        raise DataError(
            f"{option} {folder}: the folder has no file that ends in {', '.join(known)}; "
            f"'{folder}/*' reads files with any ending, as text if it is unknown"
        )
    return matching


def saved_files(folder: Path, option: str) -> list[Path]:
    """The files of a folder of `save_to_disk`, in order; none if it is another folder.

    Raises DataError naming the splits of a `DatasetDict`.
    """
    if (folder / "dataset_dict.json").exists():
        splits = read_json(folder / "dataset_dict.json").get("splits", [])
        paths = ", ".join(str(folder / str(split)) for split in splits)
        raise DataError(f"{option} {folder} has several splits: name one of {paths}")
    if not (folder / "state.json").exists() or not any(folder.glob("*.arrow")):
        return []
    listed = read_json(folder / "state.json").get("_data_files", [])
    names = [entry.get("filename") for entry in listed if isinstance(entry, dict)]
    return [folder / Path(str(name)).name for name in names] or sorted(folder.glob("*.arrow"))


@dataclass(frozen=True)
class Files:
    """The files of one part of a corpus (train, valid or test)."""

    paths: list[Path]
    targets: list[Path]  # for parallel files, the other side of each of `paths`
    reading: Separators | None  # None: the files hold pairs
    fields: Fields | None = None
    """The fields of pairs in records; None: pairs are in SQuAD's json, or in parallel files."""
    window: Positive | None = None
    form: str = ""  # of SQuAD's pairs, as `window`: see `PairBlock`
    formats: Sequence[str] = ()
    """The format of each of `paths`; none: they are plain text."""
    labels: str = ""  # the form of the labels; "": they lead to texts

    @property
    def kind(self) -> str:
        """The kind of corpus that the files make."""
        if self.reading:
            return "text"
        return FORMS[self.labels].kind if self.labels else "pairs"

    @property
    def size(self) -> int:
        """Bytes on disk, for progress and shards."""
        return sum(map(size_of, self.paths))

    def blocks(self) -> Iterator[Block | PairBlock]:
        """The blocks of all files."""
        base = 0
        for i, path in enumerate(self.paths):
            name = self.formats[i] if self.formats else "text"
            if self.reading:
                yield from text_blocks(path, replace(self.reading, format=name), base)
            else:
                for block in self._pairs(i, path, base):
                    yield replace(block, window=self.window, form=self.form, labels=self.labels)
            base += size_of(path)

    def _pairs(self, number: int, path: Path, base: int) -> Iterator[PairBlock]:
        if self.targets:
            yield from pair_blocks(path, self.targets[number], base)
        elif self.fields:
            yield from record_blocks(path, self.fields, base, self.formats[number])
        else:
            # read whole; its pairs are taken to be spread evenly over the file
            pairs = list(read_squad(path, spans=self.labels == "span"))
            step = size_of(path) / max(len(pairs), 1)
            first = 0
            for some in split_in_groups(pairs):
                yield PairBlock(path, base + int(first * step), some)
                first += len(some)

    def lines(self) -> Iterator[str]:
        """Every sentence, or every part of a source and every target."""
        for block in self.blocks():
            if isinstance(block, PairBlock):
                for pair in block.pairs:
                    yield from [" ".join(pair.source)] if self.labels == "tags" else pair.source
                    yield from [] if self.labels else [pair.target]
            else:
                assert self.reading is not None
                yield from parse_block(block, self.reading).sentences


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Checked):
    """How files are read."""

    input_format: Format = "auto"
    """Format of the files. auto: by the file name. A .json file is a list of records, columns, or
    SQuAD, whose answer and passage become the source of the question. An unknown ending means
    text."""
    documents: Documents = "blank"
    """Where a document of plain text ends: at a blank line (blank), or with every line (line)."""
    document_mark: str = ""
    """A mark that ends a document of plain text instead of a blank line: '<|endoftext|>'. It is no
    part of the text."""
    sentences: Sentences = "lines"
    """What a sentence is: a line (lines), or text up to a full stop (punct: .?! before a capital or
    a letter of a script without capitals, and the stops of other scripts, such as 。 ؟ । ።)."""
    field: tuple[str, ...] = ("text",)
    """Field of a record (json, csv, tsv, parquet) that holds the text. Each of several fields is a
    document. A newline in a field ends a line."""
    source_field: tuple[str, ...] = ()
    """Pairs from records (json, csv, tsv, parquet): field of the source. Several fields are its
    parts. A list of sentences is joined by blanks."""
    target_field: tuple[str, ...] = ()
    """Field of the target. Of several fields, and of a list, the first one that is present is
    learned."""
    label_field: str = ""
    """Labelled records: field of the label, beside --source-field for one or two texts."""
    labels: Literal["class", "classes", "number", "tags", "span", "choice", "links"] = "class"
    """Content of the label field. classes: a list of any number of them. tags: one for each word.
    choice: the right text after the first --source-field, as a number from 0, a letter or the
    text. span: [start, stop] of the answer in the last --source-field (characters), or null.
    links: a list of [start, stop, entity]. With span, SQuAD's questions and passages lead to the
    place of the answer."""
    sentence_mark: str = ""
    """Mark between the sentences of a target of several lines, for `unitk score --separator`."""
    skip_empty: bool = False
    """Skip records with an empty source or target instead of refusing them."""
    window: Positive | None = None
    """SQuAD: maximum tokens of a source. Longer passages keep a window around the answer."""
    squad_source: str = SQUAD_SOURCE
    """SQuAD: how {answer} and {passage} form the source. [SEP] ends a part. {sentence} is the part
    of the passage that has the answer: its sentence, or several."""

    def check(self) -> None:
        """Refuse values that make no sense."""
        check_form(self.squad_source)
        require(
            bool(self.source_field) == bool(self.target_field or self.label_field),
            "--source-field and --target-field "
            "belong together: give both, or --label-field instead of the second",
        )
        mark = self.document_mark
        require(
            not mark or (bool(mark.strip()) and "\n" not in mark),
            f"--document-mark must be a text of one line, got {mark!r}",
        )
        require(
            not mark or self.documents == "blank",
            "--document-mark and --documents line exclude each other",
        )
        require(
            not (self.target_field and self.label_field),
            "--target-field and --label-field exclude each other",
        )
        require(
            self.labels != "tags" or len(self.source_field) < 2,
            "--labels tags are of the words of one --source-field, "
            f"got {','.join(self.source_field)}",
        )

    def check_files(self, paths: Sequence[Path], option: str, settings: Settings) -> list[str]:
        """What the files of an option contain; an option without effect on it is an error."""
        held = sorted({format_of(path, self.input_format, option) for path in paths})
        holds: set[str] = {reader(name).holds for name in held}
        if held and self.source_field:
            holds = {"labelled records" if self.label_field else "pairs of records"}
            held = [*holds]
        for name, kinds in CONCERNS.items():
            if settings.given(name) and holds.isdisjoint(kinds):
                about = ", ".join(held or ["pairs of lines"])
                hint = LACKING.get(name, "") if held and not self.source_field else ""
                raise UsageError(f"{flag(name)} has no effect on {about}{hint}")
        return held

    def source(self, paths: Sequence[Path], option: str) -> Files:
        """The source that an option names: texts, SQuAD, or records."""
        formats = [format_of(path, self.input_format, option) for path in paths]
        if self.source_field:
            if "text" in formats:
                what = f"{paths[formats.index('text')]} is text"
                tables = [name for name, kind in readers().items() if kind.holds == "records"]
                raise UsageError(
                    f"{option}: {what}, --source-field is of {', '.join(tables)}; "
                    "--input-format says if it is one of these"
                )
            form = self.labels if self.label_field else ""
            names = self.source_field, self.target_field
            fields = Fields(*names, self.sentence_mark, self.skip_empty, self.label_field, form)
            return Files([*paths], [], None, fields, formats=formats, labels=form)
        if "squad" not in formats:
            reading = Separators(
                documents=self.documents,
                document_mark=self.document_mark.strip(),
                sentences=self.sentences,
                field=self.field,
            )
            return Files([*paths], [], reading, formats=formats)
        if other := next((name for name in formats if name != "squad"), ""):
            first, second = (paths[formats.index(name)] for name in (other, "squad"))
            raise UsageError(f"{option}: {first} is {other}, but {second} is squad")
        if self.labels == "span":
            return Files([*paths], [], None, formats=formats, labels="span")
        window, asked = self.window, self.squad_source
        return Files([*paths], [], None, window=window, form=asked, formats=formats)


def pair_blocks(source: Path, target: Path, base: int = 0) -> Iterator[PairBlock]:
    """Pair line i of one file with line i of the other; an empty line is an error."""
    numbered = ((line.strip(), block.at) for block in blocks(source) for line in lines_of(block))
    for rows in split_in_groups(enumerate(zip_longest(numbered, read_lines(target)), 1)):
        pairs = []
        for number, (first, other) in rows:
            if first is None or other is None:
                counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
                raise DataError(
                    f"{source} has {amount(counts[0], 'lines')}, but {target} has {counts[1]:,}"
                )
            if not first[0] or not other:
                raise DataError(
                    f"{target if first[0] else source}, line {number}: empty; "
                    "remove the line from both files"
                )
            pairs.append(PairText([first[0]], other))
        _, ((_, at), _) = rows[0]
        yield PairBlock(source, base + at, pairs)


def text_blocks(path: Path, reading: Separators, base: int = 0) -> Iterator[Block]:
    """The texts of a file: its lines, or the texts of records."""
    own = reader(reading.format)
    if own.by_line(path):
        by_mark = own.holds == "text" and reading.documents != "line"
        for block in blocks(path, reading.document_mark if by_mark else None, base):
            yield replace(block, format=reading.format)
        return
    for some in split_in_groups(own.read(path, reading.field)):
        texts = [text for record in some for text in texts_of(record, reading.field)]
        yield Block(path, 1, base + some[0].at, True, b"", reading.format, tuple(texts))


CONCERNS: dict[str, tuple[str, ...]] = {
    "input_format": ("text", "records", "questions", "pairs of records", "labelled records"),
    "documents": ("text",),
    "document_mark": ("text",),
    "sentences": ("text", "records"),
    "field": ("records",),
    "window": ("questions",),
    "squad_source": ("questions",),
    "source_field": ("pairs of records", "labelled records"),
    "label_field": ("labelled records",),
    "labels": ("labelled records", "questions"),
    "target_field": ("pairs of records",),
    "sentence_mark": ("pairs of records",),
    "skip_empty": ("pairs of records", "labelled records"),
}
"""Options of some formats only."""
LACKING = {
    "labels": "; of records, --source-field and --label-field name texts and labels",
    "label_field": " without --source-field, which names the text",
    "target_field": " without --source-field, which names the source",
}
"""What makes an option have an effect on records."""
