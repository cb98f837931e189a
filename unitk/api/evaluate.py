"""`unitk.evaluate`: measure a trained model on a corpus or on texts."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from unitk.api.arguments import settle, takes, words
from unitk.api.loading import load
from unitk.api.progress import progress
from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.encode import encoders, num_workers
from unitk.data.corpus.folders import corpus_vocab, is_corpus, open_corpus
from unitk.data.corpus.preprocess import write_part
from unitk.data.files.files import ReadingOptions, expand
from unitk.decoding.files.outputs import check_writable
from unitk.errors import DataError, UsageError, at_least, require, say
from unitk.files import create, new_file
from unitk.options import config
from unitk.options.config import flag
from unitk.options.values import render
from unitk.training.saving.folder import find
from unitk.vocab.base import open_vocab

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator
    from unitk.keywords import EvaluateOptions

Found = tuple[dict[str, Any], list[str]]  # figures, and lines about them for a person

ASIDE = ("task", "arch")  # kinds of components whose options the checkpoint resolves
LATENT_ONLY = ("draws", "beam", "max_len")  # options for models with a latent
FILES = ("pairs", "last_word", "choices", "infill")  # options that take the place of --data
SCORES_ONLY = ("whole_words", "output", "overwrite")  # options of texts with scores


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions):
    """Evaluate a model: losses and perplexities on a corpus, minimal pairs, last words, choices,
    infilling, or perplexities in windows. With a latent, also measure how it is used.

    unitk evaluate --checkpoint runs/lm --data data/docs/valid
    unitk evaluate --checkpoint runs/lm --data dev.csv --field text
    unitk evaluate --checkpoint runs/lm --pairs blimp
    unitk evaluate --checkpoint runs/lm --data wiki.txt --stride 256
    """

    checkpoint: Path
    """Run folder (its best checkpoint), checkpoint or bundled model."""
    data: Path | None = None
    """Corpus folder that was made with the vocabulary of the checkpoint, a folder with valid/ in
    it, or a file that `unitk preprocess` reads. The checkpoint's vocabulary encodes a file."""
    pairs: Path | None = None
    """Minimal pairs, instead of --data: json-lines with the fields sentence_good and sentence_bad,
    or a folder of such files. As in BLiMP, UID names the set and linguistics_term its
    phenomenon."""
    last_word: Path | None = None
    """Texts whose last word the model should predict (LAMBADA): json-lines with the field text, or
    lines."""
    choices: Path | None = None
    """Questions whose right answer should be the most probable one: json-lines with the fields
    context, choices (a list) and label (a number from 0)."""
    delimiter: str | None = None
    """With --choices: what stands between a context and a choice. Default: a blank, or nothing
    where one of them has it or the script has no blanks between words (Chinese, Japanese, Thai)."""
    infill: Path | None = None
    """Texts whose words are hidden and filled in again: json-lines with the field text, or lines.
    Reports BLEU of the filled texts."""
    mask_ratio: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """With --infill: shares of the words to hide, each tried in turn."""
    stride: int | None = None
    """With --data: compute the perplexity of its documents in windows that each predict this many
    tokens."""
    stateful_rows: int = 0
    """With --data: rows that read the texts in order, as in training, so that the model has its
    memory. 0: each text is read alone."""
    context: int = 256
    """With --stride: tokens before a window that the model also reads. There are fewer at the start
    of a text."""
    whole_words: bool = False
    """Pseudo-log-likelihood: hide the later pieces of a token's word together with the token."""
    output: Path | None = None
    """File of json-lines to write for pairs, last words, choices and infilling, with the scores or
    the text of each."""
    overwrite: bool = False
    """Replace an --output that exists."""
    task: str | None = None
    """Task to score with, if the model was trained with several. With --data: cloze, for a model
    that was not trained for it; its options follow (--task.patterns rte)."""
    draws: int | None = None
    """Draws for a bound. Optimus: of each latent, for the importance-weighted bound; default 100.
    Diffusion: of the hidden tokens of each text, whose mean is the bound; default 8."""
    beam: int = 1
    """Optimus: beam size when a text is decoded from the mean of its latent. 1: greedy. 0: nothing
    is decoded."""
    max_len: int | None = None
    """Optimus: maximum tokens of a decoded text. Default: the length of the longest text."""
    max_tokens: int = 8192
    """Maximum slots of a forward pass. It changes the figures of a latent by rounding only."""
    output_format: Literal["text", "json"] = "text"
    """text: lines to read; json: one object."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to compute on. auto: CUDA if there is a GPU."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32 or bf16. bf16: autocast over fp32 weights; scores of texts have bf16 weights too. Sums
    are fp32."""
    user_dir: Path | None = None
    """Folder of plug-ins. Every .py file in it is imported."""

    def __post_init__(self) -> None:
        fair = all(0 < share < 1 for share in self.mask_ratio) and self.mask_ratio
        require(bool(fair), f"--mask-ratio must be in (0, 1), got {render(self.mask_ratio)}")
        at_least(self, stateful_rows=0)
        at_least(self, stride=1, context=0, draws=1, beam=0, max_tokens=1, max_len=1)
        require(self.beam > 0 or self.max_len is None, "--max-len has no effect with --beam 0")


@takes(Options)
def evaluate(**arguments: Unpack[EvaluateOptions]) -> dict[str, Any]:
    """The figures of a model on a corpus or on texts, as `unitk evaluate --output-format json`.

        unitk.evaluate(checkpoint="runs/lm", data="data/docs")["lm/ppl"]

    Options have the names and the values of the command line (`unitk evaluate --help`), with `_`
    for `-`; those of a task are in `options`. Raises the errors of `unitk.errors` for options that
    cannot be meant, and for files and checkpoints that cannot be read.
    """
    settle()
    parsed = config.parse("evaluate", Options, words(arguments), aside=ASIDE)
    parsed.idle("in Python", "output_format")
    about, figures, _ = measured(parsed)
    return about | figures


def measured(parsed: config.Parsed) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The measurements by name, a title, and lines to print."""
    given: Options = parsed.main
    several = ("data", *FILES)
    kinds = [name for name in several if getattr(given, name) is not None]
    require(len(kinds) == 1, f"give one of {', '.join(map(flag, several))}")
    if kinds != ["choices"]:
        parsed.idle("without --choices", "delimiter")
    if kinds != ["data"] or given.stride is not None:
        return _scored(parsed, kinds[0])
    parsed.idle("without --pairs, --last-word, --choices or --stride", *SCORES_ONLY)
    parsed.idle("without --stride", "context")
    parsed.idle("without --infill", "mask_ratio")
    from unitk.families.latent.evaluate import has_latent, judge
    from unitk.training.device import choose_device
    from unitk.training.evaluate import objective, open_evaluation

    device = choose_device(given.device)
    with _corpus(parsed) as corpus:
        evaluation = open_evaluation(
            given.checkpoint,
            corpus,
            device,
            given.precision == "bf16",
            given.task,
            parsed.aside,
            given.stateful_rows,
        )
        if evaluation.data.train.shortened:
            say(f"unitk evaluate: {evaluation.data.train.shortened}")
        # a file's own name, not that of the folder it is encoded into
        data = evaluation.corpus if corpus == given.data else given.data
        about: dict[str, Any] = {"checkpoint": str(evaluation.path), "data": str(data)}
        if has_latent(evaluation):
            latent = {name: getattr(given, name) for name in (*LATENT_ONLY, "max_tokens")}
            latent["draws"] = given.draws or 100
            figures, lines = judge(evaluation, progress, **latent)
        else:
            for name in LATENT_ONLY[evaluation.bounds :]:
                if name in parsed.origins:
                    raise UsageError(f"{flag(name)} has no effect: the checkpoint has no latent")
            draws = (given.draws or 8) if evaluation.bounds else 1
            with progress(evaluation.num_texts * draws) as report:
                figures = objective(evaluation, given.max_tokens, report, draws)
            lines = _lines(figures)
            about["texts"] = evaluation.num_texts
    # JSON has no NaN
    return about, {k: None if v != v else v for k, v in figures.items()}, lines


def _scored(parsed: config.Parsed, kind: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Texts and their scores."""
    given: Options = parsed.main
    from unitk.training.device import choose_device

    parsed.idle("on scores of texts", *LATENT_ONLY, "stateful_rows")
    if kind == "infill":
        parsed.idle("with --infill", "whole_words")
    else:
        parsed.idle("without --infill", "mask_ratio")
    if kind == "data":
        parsed.idle("with --stride", "output", "overwrite")
    else:
        reading = (option.name for option in config.options(ReadingOptions))
        parsed.idle(f"with {flag(kind)}", *reading, "stride", "context")

    if given.output is not None:
        check_writable(given.output, given.overwrite)

    def model() -> Generator:
        return load(
            given.checkpoint,
            choose_device(given.device),
            task=given.task,
            precision=given.precision,
            options=parsed.overrides,
            user_dir=given.user_dir,
        )

    figures, lines = _windows(parsed, model) if kind == "data" else _texts(given, kind, model)
    about = {"checkpoint": str(given.checkpoint), "data": str(getattr(given, kind))}
    return about, figures, lines


def _texts(given: Options, kind: str, model: Callable[[], Generator]) -> Found:
    """Score minimal pairs, last words or choices, and write the scores if requested."""
    from unitk.evaluation import continuations, pairs

    path: Path = getattr(given, kind)
    paths = expand((str(path),), flag(kind))
    how: dict[str, Any] = {"whole_words": given.whole_words, "max_tokens": given.max_tokens}
    records: Iterable[dict[str, Any]]
    with (
        nullcontext()
        if given.output is None
        else new_file(given.output, "--output", replace=given.overwrite) as part
    ):
        if kind == "pairs":
            read = pairs.read_pairs(paths)
            with progress(2 * len(read)) as report:
                scored = pairs.judge(model(), read, **how, report=report)
            figures, records = pairs.figures(scored), scored.lines()
            lines = pairs.table(figures)
        elif kind == "infill":
            figures, lines, records = _infilled(given, paths, model)
        else:
            read_file, measure = continuations.read_last_words, continuations.last_words
            if kind == "choices":
                read_file = partial(continuations.read_choices, delimiter=given.delimiter)
                measure = continuations.ranked
            asked = read_file(paths)
            if not asked:
                raise DataError(f"{flag(kind)} {path} is empty")
            with progress(sum(len(one.choices) for one in asked)) as report:
                found = continuations.judged(model(), asked, **how, report=report)
            figures = measure(asked, found)
            records = continuations.lines_about(asked, found, kind == "choices")
            lines = _lines(figures)
        if part is not None:
            create(part, "".join(f"{json.dumps(one)}\n" for one in records))
    return figures, lines


def _infilled(
    given: Options, paths: Sequence[Path], model: Callable[[], Generator]
) -> tuple[dict[str, Any], list[str], Iterable[dict[str, Any]]]:
    """BLEU of filled-in texts, for each share of hidden words."""
    from unitk.evaluation.continuations import rows_of
    from unitk.evaluation.infilling import infill

    texts = list[str]()
    for record, place in rows_of(paths):
        if not isinstance(record.get("text"), str) or not record["text"].strip():
            raise DataError(f"{place}: no text in the field text")
        texts.append(record["text"])
    if not texts:
        raise DataError(f"--infill {given.infill} is empty")
    generator = model()
    with progress(len(texts) * len(given.mask_ratio)) as report:
        found = infill(generator, texts, given.mask_ratio, given.max_tokens, report)
    each = [one.figures() for one in found]
    lines = [f"{'mask ratio':<24}{'bleu':>8}{'unfilled':>10}{'blanks':>10}"]
    lines += [
        f"{one['mask_ratio']:<24}{one['bleu']:8.2f}{one['bleu_unfilled']:10.2f}{one['blanks']:10,}"
        for one in each
    ]
    return {"texts": len(texts), "infill": each}, lines, (r for one in found for r in one.lines())


def _windows(parsed: config.Parsed, model: Callable[[], Generator]) -> Found:
    """Perplexities of the documents of --data."""
    from unitk.evaluation.windows import rolled, windows
    from unitk.training.evaluate import corpus_of

    given: Options = parsed.main
    assert given.stride is not None
    with _corpus(parsed) as place:
        path = corpus_of(place)
        corpus, generator = open_corpus(path), model()
        if not isinstance(corpus, Corpus):
            raise DataError(f"--data {given.data} holds pairs; --stride is for texts")
        if corpus_vocab(path).hash != generator.vocab.hash:
            raise DataError(f"--data {given.data} was made with another vocabulary")
        texts = [np.concatenate(corpus.document(i)) for i in range(corpus.num_documents)]
        cut = given.stride, given.context
        total = sum(len(windows(text, *cut)) for text in texts)
        with progress(total, unit="windows") as report:
            figures = rolled(generator, texts, *cut, given.whole_words, given.max_tokens, report)
    return figures, _lines(figures)


def _lines(figures: dict[str, Any]) -> list[str]:
    return [
        f"{name:<24}{value:,}" if isinstance(value, int) else f"{name:<24}{value:.4f}"
        for name, value in figures.items()
    ]


@contextmanager
def _corpus(parsed: config.Parsed) -> Iterator[Path]:
    """The corpus of --data; for a file, a temporary corpus."""
    given: Options = parsed.main
    path = given.data
    assert path is not None
    if path.is_dir() or is_corpus(path):
        parsed.idle("on a corpus", *(option.name for option in config.options(ReadingOptions)))
        yield path
        return
    given.check()
    files = expand((str(path),), "--data")
    given.held(files, "--data", parsed.origins)
    vocab = open_vocab(find(given.checkpoint))
    source = given.source(files, "--data")
    with tempfile.TemporaryDirectory(prefix="unitk-") as place:
        folder = Path(place, path.stem)
        workers = num_workers(None, source.size)
        cure = "preprocess the text first"
        opened = encoders(vocab, workers, given.user_dir, cure=cure)
        with redirect_stdout(sys.stderr), opened as encode:
            write_part(source, folder, vocab, encode, None)
        yield folder
