"""`unitk evaluate`: what a trained model is worth on a corpus."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import unitk
from unitk import config
from unitk.config import flag
from unitk.data.reading.files import ReadingOptions, expand
from unitk.data.storing.encode import encoders, num_workers
from unitk.data.storing.folders import is_corpus
from unitk.data.storing.preprocess import write_part
from unitk.errors import UsageError, at_least, require
from unitk.files import new_file
from unitk.vocab.base import open_vocab

LATENT_ONLY = ("draws", "beam", "max_len")  # options for models with a latent
PAIRS_ONLY = ("whole_words", "output", "task")  # options of minimal pairs


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions):
    """Compute a model's losses and perplexities on a corpus; with a latent, all about its use. Or
    compare the sentences of minimal pairs.

    unitk evaluate --checkpoint runs/lm --data data/docs/valid
    unitk evaluate --checkpoint runs/lm --data dev.csv --field text
    unitk evaluate --checkpoint runs/lm --pairs blimp
    """

    checkpoint: Path
    """A run folder (its best checkpoint is taken) or a checkpoint."""
    data: Path | None = None
    """Corpus folder, made with the checkpoint's vocabulary, or a folder with valid/ in it; or a
    file that `unitk preprocess` reads, which the checkpoint's vocabulary encodes."""
    pairs: Path | None = None
    """Minimal pairs instead of --data: json-lines with the fields sentence_good and sentence_bad,
    and as in BLiMP UID (a set) and linguistics_term (its phenomenon); or a folder of such files."""
    whole_words: bool = False
    """Pairs, models of hidden tokens: a token is asked for with the later pieces of its word hidden
    too, instead of alone."""
    output: Path | None = None
    """Pairs: json-lines to write, with the scores of each pair."""
    task: str | None = None
    """Pairs: judge as this task, where the model was trained with several."""
    draws: int = 100
    """Optimus: draws of each latent for the importance-weighted bound."""
    beam: int = 1
    """Optimus: hypotheses when a text is written again from the mean of its latent; 1: greedy, 0:
    no text is written."""
    max_len: int | None = None
    """Optimus: most words of a text that is written; default: those of the longest text."""
    max_tokens: int = 8192
    """Most slots of a forward pass; it changes nothing of a latent's figures but rounding."""
    output_format: Literal["text", "json"] = "text"
    """Lines to read, or one JSON object."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a GPU."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: autocast over fp32 weights."""
    user_dir: Path | None = None
    """Folder of plug-ins."""

    def __post_init__(self) -> None:
        at_least(self, draws=1, beam=0, max_tokens=1, max_len=1)
        require(self.beam > 0 or self.max_len is None, "--max-len has no effect with --beam 0")


def run(argv: Sequence[str]) -> None:
    """Measure and print."""
    parsed = config.parse("evaluate", Options, argv, aside=("task", "arch"))
    given: Options = parsed.main
    require((given.data is None) != (given.pairs is None), "give either --data or --pairs")
    if given.pairs is not None:
        reading = (option.name for option in config.options(ReadingOptions))
        parsed.idle("with --pairs", *reading, *LATENT_ONLY)
        _pairs(given, given.pairs, {item.key: item.text or "on" for item in parsed.aside})
        return
    parsed.idle("without --pairs", *PAIRS_ONLY)
    for item in parsed.aside:
        raise UsageError(f"{flag(item.key)} has no effect without --pairs")
    from unitk.latent.evaluate import has_latent, judge
    from unitk.training.device import choose_device
    from unitk.training.evaluate import objective, open_evaluation
    from unitk_cli.progress import progress

    device = choose_device(given.device)
    with _corpus(parsed) as corpus:
        evaluation = open_evaluation(given.checkpoint, corpus, device, given.precision == "bf16")
        if evaluation.data.train.shortened:
            print(f"unitk evaluate: {evaluation.data.train.shortened}", file=sys.stderr)
        # a file's own name, not that of the folder it is encoded into
        data = evaluation.corpus if corpus == given.data else given.data
        about: dict[str, Any] = {"checkpoint": str(evaluation.path), "data": str(data)}
        if has_latent(evaluation):
            how = {name: getattr(given, name) for name in (*LATENT_ONLY, "max_tokens")}
            figures, lines = judge(evaluation, progress, **how)
        else:
            for name in LATENT_ONLY:
                if name in parsed.origins:
                    raise UsageError(f"{flag(name)} has no effect: the checkpoint has no latent")
            with progress(evaluation.num_texts) as report:
                figures = objective(evaluation, given.max_tokens, report)
            lines = [
                f"{name:<24}{value:,}" if isinstance(value, int) else f"{name:<24}{value:.4f}"
                for name, value in figures.items()
            ]
            about["texts"] = evaluation.num_texts
    if given.output_format == "json":
        # NaN is no JSON
        finite = {k: None if v != v else v for k, v in figures.items()}
        print(json.dumps(about | finite))
        return
    print(*(f"{name:<24}{value}" for name, value in about.items()), *lines, sep="\n")


def _pairs(given: Options, path: Path, of_model: dict[str, str]) -> None:
    """Score minimal pairs, and print."""
    from unitk.decoding.likelihood.pairs import figures, judge, read_pairs, table
    from unitk.training.device import choose_device
    from unitk_cli.progress import progress

    pairs = read_pairs(expand((str(path),), "--pairs"))
    generator = unitk.load(
        given.checkpoint,
        choose_device(given.device),
        task=given.task,
        precision=given.precision,
        options=of_model,
        user_dir=given.user_dir,
    )
    with nullcontext() if given.output is None else new_file(given.output, "--output") as part:
        how: dict[str, Any] = {"whole_words": given.whole_words, "max_tokens": given.max_tokens}
        with progress(2 * len(pairs)) as report:
            scored = judge(generator, pairs, **how, report=report)
        if part is not None:
            part.write_text("".join(f"{json.dumps(one)}\n" for one in scored.lines()), "utf-8")
    found = figures(scored)
    about = {"checkpoint": str(given.checkpoint), "data": str(path)}
    if given.output_format == "json":
        print(json.dumps(about | found))
        return
    print(*(f"{name:<24}{value}" for name, value in about.items()), *table(found), sep="\n")


@contextmanager
def _corpus(parsed: config.Parsed) -> Iterator[Path]:
    """The corpus of --data; of a file, one that is removed afterwards."""
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
    vocab = open_vocab(given.checkpoint)
    source = given.source(files, "--data")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the folder is removed then, too
    with tempfile.TemporaryDirectory(prefix="unitk-") as place:
        folder = Path(place, path.stem)
        workers = num_workers(None, source.size)
        with redirect_stdout(sys.stderr), encoders(vocab, workers, given.user_dir) as encode:
            write_part(source, folder, vocab, encode, None)
        yield folder
