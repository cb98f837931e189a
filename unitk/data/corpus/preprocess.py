"""Text -> vocabulary and binary corpus, in one streaming pass.

The parent process reads blocks of lines and writes the results; workers parse, split and encode.
Blocks come back in order, so the corpus does not depend on the number of workers.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from unitk import registry
from unitk.data.corpus.columns import FORMS, NOTES, WORDS, Counts
from unitk.data.corpus.corpus import manifest_of
from unitk.data.corpus.encode import Encode, PartTally, encoders, num_workers, select_shard
from unitk.data.corpus.folders import CORPORA, build_folder
from unitk.data.corpus.workers import Worker
from unitk.data.corpus.writer import (
    CorpusWriter,
    LabelWriter,
    announce,
    announce_counts,
    close_corpus,
)
from unitk.data.files.documents import Separators
from unitk.data.files.files import Files, ReadingOptions, expand
from unitk.data.files.lines import name_file
from unitk.data.files.pairs import PairBlock
from unitk.data.files.squad import SENTENCE
from unitk.errors import DataError, UsageError, amount, require, say
from unitk.options.config import ConfigFile, Parsed, UserDir
from unitk.options.fields import Bound, Count, Place, Positive, flag
from unitk.progress import progress
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab
from unitk.vocab.train import fit_pieces, train_vocab

MANY_UNKNOWN = 0.01
"""Share of tokens above which a corpus is hardly what the vocabulary was made for."""

WORTH_A_PROCESS = 1 << 20  # characters on which sentencepiece trains for some seconds
PASSED = 100_000  # lines that are passed to it at a time
MANY_LINES = 1000  # sentences of a document above which its lines may be documents
TRAINING = (
    "vocab_size vocab_kind byte_fallback vocab_normalization vocab_coverage vocab_sample "
    "vocab_only vocab_threshold seed"
).split()
"""Options of a vocabulary that is trained."""
FAIRSEQ = ("source_lang", "target_lang", "vocab_threshold")
"""Options of `--format fairseq` only."""
UNITK = (
    "documents document_mark sentences vocab_kind byte_fallback workers seed vocab_normalization "
    "vocab_coverage vocab_sample shard annotate languages"
).split()
"""Options that it leaves nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions):
    """Make a vocabulary and a binary corpus of text, pairs of lines, or SQuAD questions.

    unitk preprocess --input 'docs/*.txt' --vocab-size 8000 --dest data/docs
    unitk preprocess --input squad.json --vocab data/docs --dest data/qa
    """

    dest: Path
    """Folder to write, with train/, valid/ and test/ for the parts that are given. Each has the
    vocabulary."""
    input: tuple[Place, ...] = ()
    """Files to train on: text, json, csv, tsv, parquet or arrow, also compressed (.gz, .bz2, .xz,
    .zst). A folder stands for its files, `-` for standard input. Quoted wildcards are expanded:
    'docs/*.jsonl.gz'."""
    valid: tuple[Place, ...] = ()
    """Files to validate on."""
    test: tuple[Place, ...] = ()
    """Files to test on."""
    source_file: tuple[Place, ...] = ()
    """File of sources, one a line, instead of --input."""
    target_file: tuple[Place, ...] = ()
    """File of targets. Line i is the target of line i of --source-file."""
    valid_source_file: tuple[Place, ...] = ()
    """File of sources to validate on."""
    valid_target_file: tuple[Place, ...] = ()
    """File of targets to validate on."""
    test_source_file: tuple[Place, ...] = ()
    """File of sources to test on."""
    test_target_file: tuple[Place, ...] = ()
    """File of targets to test on."""
    vocab: Path | None = None
    """Vocabulary to use: a folder of unitk (vocabulary, corpus, checkpoint, run), *.model, a
    tokenizers *.json, WordPiece vocab.txt, or a folder with tokenizer.json, vocab.txt, or GPT-2's
    vocab.json and merges.txt."""
    vocab_size: Positive | None = None
    """Size of the vocabulary to train when there is no --vocab."""
    vocab_kind: Literal["unigram", "bpe"] = "unigram"
    """Algorithm of sentencepiece that trains the vocabulary."""
    byte_fallback: bool = False
    """Encode unknown characters as bytes (256 ids), so that no token is unknown."""
    vocab_normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = (
        "nmt_nfkc"
    )
    """Unicode normalization of the vocabulary. cf folds to lower case. nmt makes zero-width
    characters blanks. Characters that it changes are logged when a vocabulary is trained."""
    vocab_coverage: Annotated[float, Bound(0.98, 1)] | None = None
    """Share of the text whose characters get a piece of their own. The rarest characters are
    unknown. Default: all characters if they are few; with thousands 0.9995 and all letters and
    digits."""
    vocab_sample: Positive = 10_000_000
    """Maximum lines to train the vocabulary on, drawn at random."""
    vocab_threshold: Count = 0
    """--format fairseq: minimum count of a word in the dictionary. Rarer words are unknown."""
    vocab_only: bool = False
    """Write only the vocabulary to --dest."""
    extra_labels: bool = False
    """Take labels of --valid and --test that train lacks as labels, which no text of train has.
    Without it they are refused."""
    annotate: tuple[Place, ...] = ()
    """Store a byte for each token of a text: NAME=FILE, or several with commas between them.
    phrases, entities: where a text of FILE (one a line) begins and where it continues. jieba: the
    same of Chinese words. roles: turns that begin with a text of FILE. Objectives read these
    bytes."""
    languages: tuple[int, ...] = ()
    """Number of the language of the texts, or those of sources and targets: 0 or 0,1. Tasks of
    translation read them."""
    seed: int = 1
    """Seed of --vocab-sample."""
    workers: int | None = None
    """Processes that encode. Default: one for each core. Their number changes no corpus."""
    format: str = "unitk"
    """Format to write. fairseq: dict.txt, .idx and .bin, as fairseq-preprocess --joined-dictionary
    writes them for lines of words. The dictionary is --vocab, or has all words."""
    source_lang: str = "source"
    """--format fairseq: source language in file names."""
    target_lang: str = "target"
    """--format fairseq: target language in file names."""
    shard: str | None = None
    """Encode only part i (from 0) of n contiguous ones: i/n. Needs --vocab; `unitk merge` joins."""
    overwrite: bool = False
    """Replace a corpus in --dest."""
    config: ConfigFile = None
    user_dir: UserDir = None


def check_preprocess(parsed: Parsed) -> None:
    """Refuse options that have no effect."""
    options: Options = parsed.main
    if options.vocab is not None:
        parsed.idle(f"with --vocab {options.vocab}", *TRAINING)
    name = next((part for part in ("input", "valid", "test") if getattr(options, part)), "input")
    files = expand(getattr(options, name), flag(name))
    kinds = options.check_files(files, flag(name), parsed.settings) or ["pairs of lines"]
    parsed.idle(
        f"with --format {options.format}", *(UNITK if options.format == "fairseq" else FAIRSEQ)
    )
    if options.format == "fairseq" and not {*kinds} <= {"text", "pairs of lines"}:
        raise UsageError(f"--format fairseq takes text or pairs of lines, not {', '.join(kinds)}")


def preprocess(options: Options) -> dict[str, dict[str, Counts]]:
    """Make the corpora; prints and returns the counts of each part and side."""
    parts = open_parts(options)
    shard = parse_shard(options.shard)
    if options.format != "unitk":
        counts = registry.get("corpus", options.format, "--format").write(options, parts)
        return cast(dict[str, dict[str, Counts]], counts)
    counts = {}
    with build_folder(options.dest, options.overwrite) as folder:
        vocab = _vocabulary(options, parts)
        if options.vocab_only:
            vocab.save(folder)
            return {}
        workers = num_workers(options.workers, sum(source.size for source in parts.values()))
        with encoders(vocab, workers, options.user_dir, options.annotate) as encode:
            known: list[str] | None = None
            extra = _labels_beyond_train(parts) if options.extra_labels else set()
            for name, source in parts.items():
                counts[name] = write_part(
                    source,
                    folder / name,
                    vocab,
                    encode,
                    shard=shard,
                    known=known,
                    extra=extra,
                    noted=bool(options.annotate),
                    languages=options.languages,
                )
                if name == "train" and not shard:  # the only labels that others may have
                    known = manifest_of(folder / name).get("labels")
    return counts


def open_parts(options: Options) -> dict[str, Files]:
    """The files of train, valid and test, as far as they are given; all are of one kind."""
    options.check()
    opened = {name: _open_part(options, name) for name in ("train", "valid", "test")}
    parts = {name: files for name, files in opened.items() if files is not None}
    require(parts, "--input FILES is needed, or --source-file and --target-file")
    kinds = {name: source.kind for name, source in parts.items()}
    held = ", ".join(f"{name} holds {kind}" for name, kind in kinds.items())
    require(len({*kinds.values()}) == 1, f"all parts must be of one kind, but {held}")
    require(
        not options.annotate or "text" in kinds.values(),
        f"--annotate has no effect: {held}, not text",
    )
    _check_languages(options.languages, *{*kinds.values()})
    form = FORMS.get(parts[next(iter(parts))].labels)
    if options.extra_labels and not (form and form.named and len(parts) > 1 and "train" in parts):
        raise UsageError(
            "--extra-labels has no effect without "
            "labels with names, of --input and of --valid or --test"
        )
    return parts


def _open_part(options: Options, name: str) -> Files | None:
    """The files of a part, or its sources and targets; None if it is not given."""
    option = "input" if name == "train" else name
    prefix = "" if name == "train" else f"{name}_"
    pair = f"{prefix}source_file", f"{prefix}target_file"
    texts, sources, targets = (getattr(options, field) for field in (option, *pair))
    given = bool(sources or targets)
    require(not (texts and given), f"{flag(option)} and {flag(pair[0])} exclude each other")
    if texts:
        return options.source(expand(texts, flag(option)), flag(option))
    if not given:
        return None
    sources, targets = (expand(getattr(options, side), flag(side)) for side in pair)
    require(
        len(sources) == len(targets),
        f"{flag(pair[0])} and {flag(pair[1])} must name as many files, "
        f"got {len(sources)} and {len(targets)}",
    )
    return Files(sources, targets, None)


def _labels_beyond_train(parts: dict[str, Files]) -> set[str]:
    """The names of labels in all parts but train."""
    others = (source for name, source in parts.items() if name != "train")
    blocks = (block for source in others for block in source.blocks())
    pairs = (pair for block in blocks if isinstance(block, PairBlock) for pair in block.pairs)
    return {name for pair in pairs for name in FORMS[parts["train"].labels].names(pair.label)}


def _check_languages(languages: tuple[int, ...], kind: str) -> None:
    if languages:
        sides = {"text": 1, "pairs": 2}.get(kind)
        require(sides is not None, f"--languages has no effect: the files hold {kind}")
        require(
            len(languages) == sides and min(languages) >= 0,
            f"--languages must be {sides} of 0 or more for {kind}, "
            f"got {','.join(map(str, languages))}",
        )


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """Parse i/n, a shard and the number of shards; None if no text is given."""
    if text is None:
        return None
    i, _, n = text.partition("/")
    require(
        i.isdecimal() and n.isdecimal() and int(i) < int(n),
        f"--shard must be i/n with i from 0 to n - 1, got {text!r}",
    )
    return int(i), int(n)


def _vocabulary(options: Options, parts: dict[str, Files]) -> Vocab:
    if options.vocab is not None:
        vocab = open_vocab(options.vocab)
        added = "".join(f" {piece}" for piece in vocab.added)
        beyond = f"; appended beyond the last one of {options.vocab}:{added}" if added else ""
        announce(f"vocabulary: {len(vocab):,} ids{vocab.about_normalization}{beyond}")
        return vocab
    size = options.vocab_size
    if size is None:
        raise UsageError("--vocab-size N is needed to train a vocabulary, or --vocab to reuse one")
    require(
        options.shard is None,
        "--shard needs --vocab, the same for all shards; --vocab-only makes one first",
    )
    require(
        "train" in parts, "a vocabulary is trained on --input or --source-file; give one or --vocab"
    )
    start = time.perf_counter()
    if sys.stderr.isatty():
        say(f"training a vocabulary of {size:,} ids ...")
    vocab = train_vocab(
        parts["train"].lines(),
        size,
        options.vocab_kind,
        byte_fallback=options.byte_fallback,
        normalization=options.vocab_normalization,
        coverage=options.vocab_coverage,
        sample=options.vocab_sample,
        seed=options.seed,
        fit=fit_in_process,
    )
    announce(
        f"vocabulary: {len(vocab):,} {options.vocab_kind} ids, "
        f"trained in {time.perf_counter() - start:.1f} s"
    )
    return vocab


def fit_in_process(lines: list[str], settings: dict[str, Any]) -> bytes:
    """Train a sentencepiece model of many lines in a process of its own, which Ctrl-C ends.

    The library itself heeds no signal. The lines are removed as they are passed on.
    """
    if sum(map(len, lines)) < WORTH_A_PROCESS:
        return fit_pieces(lines, settings)
    worker = Worker("lower --vocab-sample", _begin_fit)
    try:
        for i in range(0, len(lines), PASSED):
            worker(lines[i : i + PASSED])
            lines[i : i + PASSED] = [""] * PASSED
        trained: bytes = worker([], settings)
    finally:
        worker.close()
    return trained


def _begin_fit() -> Callable[..., bytes]:
    all_lines: list[str] = []

    def take(lines: list[str], settings: dict[str, Any] | None = None) -> bytes:
        all_lines.extend(lines)
        return fit_pieces(all_lines, settings) if settings else b""

    return take


def write_part(
    source: Files,
    folder: Path,
    vocab: Vocab,
    encode: Encode,
    *,
    shard: tuple[int, int] | None = None,
    known: list[str] | None = None,
    extra: Iterable[str] = (),
    noted: bool = False,
    languages: tuple[int, ...] = (),
) -> dict[str, Counts]:
    """Encode one part into a folder and print its counts; labels have `known` or `extra` names."""
    start = time.perf_counter()
    size = source.size  # before it is read: it may grow, or be gone afterwards
    tally = PartTally()
    columns = [WORDS, NOTES] if noted else [WORDS]
    writers = {
        side: CorpusWriter(folder / side, len(vocab), columns)
        for side in CORPORA[source.kind].sides
    }
    labels = LabelWriter(source.labels, known, extra) if source.labels else None
    with progress(size / 1e6, unit="MB") as tell:
        at = 0
        for encoded in encode(select_shard(source.blocks(), size, shard), source.reading):
            for writer, side in zip(writers.values(), encoded.sides, strict=True):
                writer.add(
                    side.ids, side.lengths, side.sizes, encoded.goes_on, side.notes, side.words
                )
                writer.counts.unknown += side.unknown
            if labels:
                labels.add(encoded.labels)
            tally.add(encoded)
            tell((encoded.at - at) / 1e6)
            at = encoded.at
    if not shard:
        _check_found(source.paths, tally.sentences)
    about = _describe(source, size, shard, languages)
    if labels:
        about = {"kind": source.kind, **labels.save(folder), **about}
    close_corpus(folder, writers, vocab, about)
    tally.report(folder.name, time.perf_counter() - start)
    counts = {side: writer.counts for side, writer in writers.items()}
    _report_counts(folder.name, counts, source)
    if labels and labels.uses:
        uses = (f"{name} ({count:,})" for name, count in labels.uses.most_common(20))
        announce(f"  {amount(len(labels.uses), 'labels')}: {', '.join(uses)}")
    if source.reading and "text" in source.formats and not shard:
        _warn_of_borders(folder.name, counts[""], source.reading, tally.symbols)
    return counts


def _describe(
    source: Files, size: int, shard: tuple[int, int] | None, languages: tuple[int, ...]
) -> dict[str, Any]:
    """The entries about the source of a part in its manifest."""
    about: dict[str, Any] = {"sources": [*map(name_file, source.paths)], "source_bytes": size}
    if source.targets:
        about["targets"] = [str(path) for path in source.targets]
    if languages:
        about["languages"] = [*languages]
    if source.window is not None or SENTENCE in source.form:
        about["window"] = [source.window, source.form]
    if shard:
        about["shard"] = "{}/{}".format(*shard)
    return about


def _report_counts(name: str, counts: dict[str, Counts], source: Files) -> None:
    """Print what the sides of a part hold, and warn if many of their tokens are unknown."""
    for side, of_side in counts.items():
        announce_counts(side, of_side, source.kind, source.labels)
        if of_side.unknown_rate > MANY_UNKNOWN:
            where = f"{name} ({side})" if side else name
            say(
                f"warning: {of_side.unknown_rate:.1%} of the tokens of {where} are unknown to the "
                "vocabulary; one trained with --byte-fallback knows everything"
            )


def _warn_of_borders(name: str, counts: Counts, reading: Separators, symbols: Counter[str]) -> None:
    """Warn of plain text whose documents probably end elsewhere than they were taken to end."""
    if reading.documents == "blank" and counts.sentences > MANY_LINES * counts.documents:
        say(
            f"warning: {name} is {amount(counts.documents, 'documents')} of {counts.sentences:,} "
            f"sentences, as only {reading.document_mark or 'a blank line'} ends one; "
            "if each line is a text, add --documents line"
        )
    if not symbols.pop(reading.document_mark, 0):  # that of no mark is everywhere
        say(f"warning: --document-mark {reading.document_mark!r} does not occur in {name}")
    for text, count in symbols.most_common(1):
        say(
            f"warning: {name} has {amount(count, 'lines')} with the end {text!r}, read as text "
            f"like any other; if it ends documents, add --document-mark {shlex.quote(text)}"
        )


def _check_found(paths: list[Path], counts: Counter[Path]) -> None:
    empty = [path for path in paths if not counts[path]]
    if len(empty) == len(paths):
        raise DataError(f"{name_file(empty[0])}: there is no text in it")
    for path in empty:
        say(f"warning: {path}: there is no text in it")
