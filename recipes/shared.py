"""Functions that scripts of several recipes share; stages.sh puts this folder on PYTHONPATH."""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from unitk.data.files.documents import split_sentences
from unitk.data.files.pairs import Fields, PairText, record_blocks
from unitk.metrics.labels import classes, numbers
from unitk.training.reporting.sinks import read_events

GLUE = {
    "cola": ["matthews"],
    "sst2": ["accuracy"],
    "rte": ["accuracy"],
    "mrpc": ["accuracy", "f1:1"],
    "stsb": ["pearson", "spearman"],
    "mnli": ["accuracy"],
    "qnli": ["accuracy"],
    "qqp": ["accuracy", "f1:1"],
}
"""Figures of each set, as GLUE reports them (Wang et al. 2019, arXiv 1804.07461, table 1)."""


def read_record_pairs(path: Path, fields: Fields) -> list[PairText]:
    """The pairs of a file of records."""
    return [pair for block in record_blocks(path, fields) for pair in block.pairs]


def parse_arguments(about: str | None, **kinds: Any) -> Iterable[Any]:
    """The arguments of a script, in order: name -> type, or [type] for any number of values."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=raw)
    for name, kind in kinds.items():
        many = isinstance(kind, list)
        parser.add_argument(
            name, metavar=name.upper(), type=kind[0] if many else kind, nargs="*" if many else None
        )
    return vars(parser.parse_args()).values()


def find_file(*paths: Path) -> Path:
    """The first of these files that is there, as it is or packed as .gz."""
    for path in paths:
        for found in (path, path.with_name(f"{path.name}.gz")):
            if found.exists():
                return found
    raise SystemExit(f"DATA has none of {', '.join(map(str, paths))} (or .gz)")


def open_packed(path: Path, mode: str = "rt", **how: Any) -> IO[Any]:
    """Open a file to read, which may be packed as .gz; `how` is for `open`, UTF-8 by default."""
    if "t" in mode:
        how = {"encoding": "utf-8", **how}
    return gzip.open(path, mode, **how) if path.suffix == ".gz" else path.open(mode, **how)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The records of a file of json lines, such as those of `unitk generate`."""
    with path.open(encoding="utf-8") as file:  # splitlines cuts at what is within a text, too
        return [json.loads(line) for line in file]


def read_outputs(run: Path) -> list[str]:
    """The best output for every source of RUN/written.jsonl."""
    return [record["outputs"][0]["text"] for record in read_jsonl(run / "written.jsonl")]


def save_texts(run: Path, **texts: Iterable[str]) -> None:
    """Write lists of texts as RUN/NAME.txt, a text a line."""
    for name, lines in texts.items():
        ended = [line.replace("\n", " ") + "\n" for line in lines]
        (run / f"{name}.txt").write_text("".join(ended), encoding="utf-8")


def read_stage_events(run: Path, kind: str) -> list[dict[str, Any]]:
    """The events of a kind in the log of a run or a stage."""
    return [event for event in read_events(run / "log.jsonl") if event["kind"] == kind]


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]
    return "\n".join(lines) + "\n"


def publish_table(run: Path, text: str) -> None:
    """Write a table as RUN/table.md, and print it."""
    (run / "table.md").write_text(text, encoding="utf-8")
    print("\n" + text, end="")


def scores_in(path: Path) -> dict[str, Any]:
    """The figures of the only metric in a file that `unitk score` printed as json."""
    [scores] = json.loads(path.read_text(encoding="utf-8")).values()
    return dict(scores)


def score_majority(run: Path, name: str = "") -> float:
    """The accuracy of the class that is most frequent in training, in per cent."""
    train, test = (
        [record["label"] for record in read_jsonl(run / "text" / f"{name}{part}.jsonl")]
        for part in ("train", "test")
    )
    [(commonest, _)] = Counter(train).most_common(1)
    return 100 * test.count(commonest) / len(test)


def show_examples(count: int, show: Callable[..., str], *columns: Sequence[Any]) -> list[str]:
    """`show(number, *row)` for `count` rows of the columns, at equal distances."""
    rows = list(zip(*columns, strict=True))
    some = rows[:: max(1, len(rows) // count)][:count]
    return [show(number, *row) for number, row in enumerate(some, start=1)]


def describe_stages(run: Path) -> str:
    """What each stage read and how long it took, in Markdown."""
    lines = []
    for stage in ("pretrain", "finetune"):
        if (run / stage).is_dir():
            train, valid = (read_stage_events(run / stage, kind)[-1] for kind in ("train", "valid"))
            lines.append(
                f"- {stage}: {train['step']:,} updates, {train['tokens']:,} tokens,"
                f" {train['seconds']:.0f} s; validation loss {valid['valid/loss']:.3f}\n"
            )
    return "".join(lines)


def score_trivial(run: Path, name: str) -> dict[str, Any]:
    """Scores of one label for every text: the class most frequent in training, or the mean."""
    train, dev = (
        [record["label"] for record in read_jsonl(run / "text" / f"{name}.{part}.jsonl")]
        for part in ("train", "dev")
    )
    if name == "stsb":
        mean = sum(map(float, train)) / len(train)
        return numbers([mean] * len(dev), [float(label) for label in dev]).figures
    [(commonest, _)] = Counter(train).most_common(1)
    return classes([commonest] * len(dev), dev).figures


def find_answer_sentence(pair: PairText) -> str:
    """The sentence of SQuAD's passage in which the answer begins."""
    passage = pair.source[-1]
    first, _ = pair.focus or (0, 0)
    at = 0
    for sentence in split_sentences(passage, "punct"):
        at = passage.index(sentence, at) + len(sentence)
        if first < at:
            return sentence
    return passage
