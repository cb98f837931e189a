"""How fast `unitk preprocess` is: against the tokenizer alone, and against fairseq's way.

    python recipes/benchmarks/preprocess.py --data novels.txt [--vocab-kind bpe] [--megabytes 50]

The data is a text or json-lines file (.gz too). A vocabulary is trained on it, then all ways take
turns over the same text, and medians are printed:

    raw         sentencepiece alone, lists of ids that are thrown away
    tokenizers  the same model in the `tokenizers` library, whose ids are compared
    unitk       end to end: read, split, encode, count, write, hash (a vocabulary being given)
    fairseq     as spm_encode and fairseq-preprocess do it: pieces are written as text, which is
                read, split, looked up word by word and stored in a tensor element by element

The last one and `tokenizers` have a twentieth of the text.

A second figure is the text for each second of processor time, of all processes and threads: it
says the same on a machine that is busy with other things. The corpora of 1 and of several workers
are compared byte by byte.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece

from unitk.data.files.files import ReadingOptions
from unitk.verbs import preprocess
from unitk.vocab.base import Vocab
from unitk.vocab.subwords import fields
from unitk.vocab.train import train_vocab

BATCH = 1000
SHARE = 20  # of the text has what would take most of the time

Way = tuple[list[str], Callable[[], object]]
"""The lines that a way reads, and the way."""
Figures = dict[str, list[float]]
"""Way -> a figure of each turn."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="text or json-lines, .gz too")
    parser.add_argument("--vocab-kind", choices=["unigram", "bpe"], default="unigram")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--megabytes", type=float, default=50, help="how much of the text")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="the N of 1 and N")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(args, Path(folder))


def measure(args: argparse.Namespace, folder: Path) -> None:
    """Take turns and print medians in MB of text a second."""
    lines = first_lines(args.data, args.megabytes * 1e6)
    text = folder / "text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    vocab = train_vocab(lines[:20_000], args.vocab_size, args.vocab_kind)
    vocab.save(folder / "vocab")
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocab.model.data)

    def unitk(workers: int) -> None:
        words = ["--input", text, "--documents", "line", "--vocab", folder / "vocab", "--overwrite"]
        words += ["--dest", folder / f"corpus-{workers}", "--workers", workers]
        with contextlib.redirect_stdout(io.StringIO()):
            preprocess.run([str(word) for word in words])

    n = args.workers
    some = lines[::SHARE]
    twin = in_tokenizers(vocab, processor)
    ways: dict[str, Way] = {
        "raw, 1 thread": (lines, lambda: raw(processor, lines, 1)),
        "unitk, 1 worker": (lines, lambda: unitk(1)),
        "tokenizers, 1 thread": (some, lambda: twin.encode_batch_fast(some)),
        f"raw, {n} threads": (lines, lambda: raw(processor, lines, n)),
        f"unitk, {n} workers": (lines, lambda: unitk(n)),
        "fairseq, 1 worker": (some, lambda: fairseq(processor, vocab, some, folder)),
    }
    speed, thrift = take_turns(ways, args.repeats)
    print(
        f"{num_bytes(lines) / 1e6:.1f} MB, {len(lines):,} lines, {len(vocab):,} {args.vocab_kind}"
        f" ids, sentencepiece {sentencepiece.__version__}, median of {args.repeats}"
    )
    print_table(speed, thrift, n)
    both = zip(twin.encode_batch_fast(some), processor.encode(some), strict=True)
    other = sum(one.ids != ids for one, ids in both)
    print(f"{'tokenizers':<20} {other:,} of {len(some):,} texts have other ids")
    same = content(folder / "corpus-1") == content(folder / f"corpus-{n}")
    print(f"{f'1 and {n} workers':<20} {'byte-identical' if same else 'DIFFERENT'}")


def take_turns(ways: Mapping[str, Way], repeats: int) -> tuple[Figures, Figures]:
    """The MB a second and a processor second of each way, of every turn."""
    speed: Figures = {name: [] for name in ways}
    thrift: Figures = {name: [] for name in ways}
    for _ in range(repeats):  # in turns, so that other load on the machine meets all
        for name, (work, way) in ways.items():
            start, before = time.perf_counter(), processor_time()
            way()
            megabytes = num_bytes(work) / 1e6
            speed[name].append(megabytes / (time.perf_counter() - start))
            thrift[name].append(megabytes / (processor_time() - before))
    return speed, thrift


def print_table(speed: Figures, thrift: Figures, n: int) -> None:
    """Print the medians of all ways, and their ratios; `n` is the number of workers."""
    print(f"{'':<20} {'MB/s':>6} {'lowest to highest':>18} {'MB/processor s':>16}")
    for name, speeds in speed.items():
        span = f"{min(speeds):.1f} to {max(speeds):.1f}"
        middle, saved = statistics.median(speeds), statistics.median(thrift[name])
        print(f"{name:<20} {middle:6.1f} {span:>18} {saved:16.1f}")
    for label, first, other in [
        ("unitk / raw, 1", "unitk, 1 worker", "raw, 1 thread"),
        (f"unitk / raw, {n}", f"unitk, {n} workers", f"raw, {n} threads"),
        ("unitk / tokenizers", "unitk, 1 worker", "tokenizers, 1 thread"),
        ("unitk / fairseq, 1", "unitk, 1 worker", "fairseq, 1 worker"),
    ]:
        ratios = [
            statistics.median(all_[first]) / statistics.median(all_[other])
            for all_ in (speed, thrift)
        ]
        print(f"{label:<20} {ratios[0]:6.2f} {'':>18} {ratios[1]:16.2f}")


def processor_time() -> float:
    """Seconds of processor time of this process and of the children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in usage)


def first_lines(path: Path, size: float) -> list[str]:
    """Lines of a file until they have about `size` bytes."""
    source = ReadingOptions().source([path], "--data")
    lines, total = [], 0
    for line in source.lines():
        lines.append(line)
        total += len(line.encode()) + 1
        if total > size:
            break
    return lines


def num_bytes(lines: list[str]) -> int:
    """Size of a text."""
    return sum(len(line.encode()) + 1 for line in lines)


def raw(processor: sentencepiece.SentencePieceProcessor, lines: list[str], threads: int) -> None:
    """The tokenizer alone."""
    stream = iter(lines)
    while batch := list(islice(stream, BATCH)):
        processor.encode(batch, num_threads=threads)


def in_tokenizers(vocab: Vocab, processor: sentencepiece.SentencePieceProcessor) -> Any:
    """A model of sentencepiece in the `tokenizers` library, with its ids."""
    # here, as worker processes import this file too
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    index = {piece: i for i, piece in enumerate(pieces)}
    parts = dict(fields(vocab.model.data))  # 2 are options of the training, 3 of the normalization
    if dict(fields(parts[2])).get(3) == 2:  # BPE: a piece may be merged of any two others
        halves = [(one[:i], one[i:]) for one in pieces for i in range(1, len(one))]
        merges = [both for both in halves if index.keys() >= {*both}]
        twin = Tokenizer(models.BPE(index, merges, unk_token=pieces[vocab.unk], fuse_unk=True))
    else:
        scores = map(processor.get_score, range(len(processor)))
        twin = Tokenizer(models.Unigram([*zip(pieces, scores, strict=True)], unk_id=vocab.unk))
    rules = normalizers.Precompiled(dict(fields(parts[3]))[2])
    twin.normalizer = normalizers.Sequence([rules, normalizers.Replace(Regex(" {2,}"), " ")])
    twin.pre_tokenizer = pre_tokenizers.Metaspace()
    return twin


def fairseq(
    processor: sentencepiece.SentencePieceProcessor, vocab: Vocab, lines: list[str], folder: Path
) -> None:
    """Pieces as text, then ids one by one (fairseq 0.12, Dictionary.encode_line)."""
    import torch  # here, for the same reason

    with (folder / "pieces.txt").open("w", encoding="utf-8") as out:
        for line in lines:
            print(" ".join(processor.encode(line, out_type=str)), file=out)
    index = {piece: i for i, piece in enumerate(vocab.pieces(range(len(vocab))))}
    with (
        (folder / "pieces.txt").open(encoding="utf-8") as pieces,
        (folder / "fairseq.bin").open("wb") as out,
    ):
        for line in pieces:
            words = line.split()
            ids = torch.IntTensor(len(words) + 1)
            for i, word in enumerate(words):
                ids[i] = index.get(word, vocab.unk)
            ids[len(words)] = vocab.sep
            out.write(ids.numpy().astype("uint16").tobytes())


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


if __name__ == "__main__":
    main()
