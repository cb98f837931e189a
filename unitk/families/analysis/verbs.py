"""`unitk analyse VERB`: how contextual states are, static vectors, which attention heads matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from unitk.api.answering import Answering, check_read, inputs_of, open_generator
from unitk.api.verb import VerbGroup, verb
from unitk.decoding.config import EmbedConfig
from unitk.decoding.files.inputs import Input
from unitk.decoding.files.outputs import STDOUT, check_writable, list_numbers, write
from unitk.errors import CheckpointError, require
from unitk.files import new_folder
from unitk.options import config
from unitk.options.config import Checkpoint, Device, UserDir
from unitk.options.fields import Bound, Checked, Count, Part, Positive
from unitk.pictures import check_picture
from unitk.progress import progress
from unitk.registry import register
from unitk.slots import Floats
from unitk.training.saving.folder import RunFolder

COLUMNS = {
    "random_cosine": "random",
    "self_similarity": "self-sim",
    "self_similarity/adjusted": "adjusted",
    "intra_sentence": "intra-sim",
    "intra_sentence/adjusted": "adjusted",
    "explained": "MEV",
    "random_explained": "random",
    "explained/adjusted": "adjusted",
}


@dataclass(frozen=True, kw_only=True)
class Contextuality(Answering):
    """How contextual the states of each layer are: the similarity of a word's states in different
    places, the similarity of a text's words, and the variance that one direction explains. Each is
    also corrected for what any two words have in common (Ethayarajh 2019).

    unitk analyse contextuality --checkpoint runs/bert --input texts.txt
    """

    checkpoint: Checkpoint  # first on its help page
    source_field: tuple[str, ...] = ()
    """Field of a table that holds the text. Several are its parts."""
    min_count: Annotated[int, Bound(2)] = 5
    """Occurrences that a word needs to count. A word is a token of the vocabulary."""
    max_count: Annotated[int, Bound(2)] = 1000
    """Occurrences of a word that are read. Of more, this many are drawn."""
    seed: Count = 1
    """Seed of the draws. The baselines read one word of each text."""
    plot: Path | None = None
    """Also draw the measures to this .png, .svg or .pdf file."""
    output_format: Literal["text", "json"] = "text"
    """text: a table; json: one object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_picture(self.plot, "--plot")


@dataclass(frozen=True, kw_only=True)
class VectorOptions(Answering):
    """Write a static vector for each word: what its states in many texts have in common, in the
    text format of word2vec (Ethayarajh 2019). `unitk score --metric similarity` and others measure
    such files.

    unitk analyse vectors --checkpoint runs/bert --input texts.txt --layer 1
    """

    checkpoint: Checkpoint  # first on its help page
    source_field: tuple[str, ...] = ()
    """Field of a table that holds the text. Several are its parts."""
    layer: int = -1
    """Layer whose states are read. 0 is the input of the first layer, -1 the output of the last
    one."""
    reduce: Literal["component", "mean"] = "component"
    """component: the first principal component of a word's states, of length 1; mean: their
    mean."""
    lowercase: bool = False
    """Count the spellings of a word in upper and lower case as one."""
    min_count: Positive = 5
    """Occurrences that a word needs to have a vector. A word is a run of letters and digits."""
    max_count: Positive = 100
    """Occurrences of a word that are read. Of more, this many are drawn."""
    seed: Count = 1
    """Seed of the draws."""
    output: Path = STDOUT
    """File of the vectors, the most frequent word first. `-`: standard output."""


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Checked):
    """Which attention heads matter: their importance, the loss while the least important ones are
    removed, and a checkpoint without them (Michel et al. 2019).

    unitk analyse heads --checkpoint runs/lm --data corpus
    unitk analyse heads --checkpoint runs/lm --data corpus --until 0.3 --dest less
    unitk analyse heads --checkpoint runs/lm --data corpus --over-run --plot x.svg
    """

    checkpoint: Checkpoint
    data: Path
    """Corpus folder that was made with the vocabulary of the checkpoint, or a folder with valid/ in
    it."""
    over_run: bool = False
    """Report the importance at every checkpoint of the run, and remove no heads. --plot draws
    all of them."""
    each: bool = False
    """Also report the loss without each head, and with each head alone in its layer."""
    step: Part = 0.1
    """Share of the heads to remove at a time. Importance is measured anew before each step."""
    until: Part = 1.0
    """Share of the heads that are removed at last. One head of each layer always stays."""
    dest: Path | None = None
    """Folder of the checkpoint to write without the removed heads, empty or absent."""
    task: str | None = None
    """Task to measure the loss of, if the model was trained with one at a time."""
    plot: Path | None = None
    """Also draw importance and loss to this .png, .svg or .pdf file."""
    output_format: Literal["text", "json"] = "text"
    """text: tables; json: one object."""
    device: Device = "auto"
    max_tokens: Positive = 8192
    """Maximum slots of a forward pass."""
    user_dir: UserDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_picture(self.plot, "--plot")
        removing = {"--each": self.each, "--dest": self.dest}
        removing |= {"--step": self.step != 0.1, "--until": self.until != 1.0}
        for name, chosen in removing.items():
            require(not (self.over_run and chosen), f"{name} has no effect with --over-run")


def layer_figures(parsed: config.Parsed) -> list[dict[str, float]]:
    """The measures of each layer by name."""
    options: Contextuality = parsed.main
    inputs = inputs_of(parsed)
    require(isinstance(inputs, list), "--input must be a file: all texts are read at once")
    check_writable(options)
    from unitk.families.analysis import contextuality as analysis
    from unitk.models.model import Model

    generator = open_generator(options)
    assert isinstance(generator.model, Model)
    sources = generator.encode([text.parts for text in inputs if isinstance(text, Input)])
    how = EmbedConfig(truncate=options.truncate, max_tokens=options.max_tokens, pool="none")
    counts = {"least": options.min_count, "most": options.max_count, "seed": options.seed}
    with progress(None) as report:
        layers = analysis.measure_contextuality(
            generator.model, generator.task, sources, how, **counts, report=report
        )
    if options.plot is not None:
        analysis.draw(layers, options.plot)
    return [layer.figures() for layer in layers]


@verb(
    Contextuality,
    words="texts",
    value=layer_figures,
    example='(checkpoint="runs/bert", input="texts.txt")',
)
def contextuality(parsed: config.Parsed) -> None:
    """`contextuality`: write the measures of each layer."""
    options = parsed.main
    figures = layer_figures(parsed)
    lines = ["layer" + "".join(f"{title:>11}" for title in COLUMNS.values())]
    for number, layer in enumerate(figures):
        lines.append(f"{number:<5}" + "".join(f"{layer[name]:11.4f}" for name in COLUMNS))
    if options.output_format == "json":
        lines = [json.dumps({"checkpoint": str(options.checkpoint), "layers": figures})]
    write(lines, options.output, options.overwrite)


def word_vectors(parsed: config.Parsed) -> dict[str, Floats]:
    """The vector of each word."""
    options: VectorOptions = parsed.main
    inputs = inputs_of(parsed)
    require(isinstance(inputs, list), "--input must be a file: all texts are read at once")
    check_writable(options)
    check_read(text for text in inputs if isinstance(text, Input))
    from unitk.families.analysis.static import Occurrences, find_vectors
    from unitk.models.model import Model

    generator = open_generator(options)
    assert isinstance(generator.model, Model)
    how = EmbedConfig(layer=options.layer, truncate=options.truncate, max_tokens=options.max_tokens)
    places = Occurrences(
        least=options.min_count,
        most=options.max_count,
        lowercase=options.lowercase,
        seed=options.seed,
        reduce=options.reduce,
    )
    texts = [text.parts for text in inputs if isinstance(text, Input)]
    with progress(None) as report:
        return find_vectors(generator.model, generator.task, texts, how, places, report)


@verb(
    VectorOptions,
    words="texts",
    value=word_vectors,
    example='(checkpoint="runs/bert", input="texts.txt", layer=1)["bank"]',
)
def vectors(parsed: config.Parsed) -> None:
    """`vectors`: write a vector for each word."""
    options = parsed.main
    table = word_vectors(parsed)
    first = f"{len(table)} {len(next(iter(table.values())))}"
    lines = (f"{word} {' '.join(map(str, list_numbers(vector)))}" for word, vector in table.items())
    write(chain([first], lines), options.output, options.overwrite)


def head_figures(parsed: config.Parsed) -> dict[str, Any]:
    """What was measured on what, a table for each measure, and the curve of removal."""
    options: HeadOptions = parsed.main
    from unitk.evaluation.objective import open_setup
    from unitk.families.analysis import heads as analysis
    from unitk.training.device import choose_device

    opened = partial(open_setup, corpus=options.data, device=choose_device(options.device))
    if options.over_run:
        return importance_over_run(options, partial(opened, task=options.task))
    evaluation = opened(options.checkpoint, task=options.task)
    max_tokens = options.max_tokens
    gates = analysis.open_gates(evaluation.model)
    total = sum(map(len, gates.values()))
    dest = options.dest
    passes = 2 * total * options.each + analysis.count_removable(gates, options.until)
    # opened at once, so that minutes are not spent before a folder is refused
    with nullcontext() if dest is None else new_folder(dest, "--dest", CheckpointError) as folder:
        if folder is not None:
            analysis.check_prunable(evaluation, gates)
        tables = {"importance": analysis.importance(evaluation, gates, max_tokens)}
        with progress(passes, unit="heads") as report:
            if options.each:
                without, alone = analysis.measure_each_head(evaluation, gates, max_tokens, report)
                tables |= {"loss without the head": without, "loss with the head alone": alone}
            steps = list(
                analysis.curve(evaluation, options.step, options.until, max_tokens, report)
            )
        if folder is not None:
            analysis.write(evaluation, steps[-1].gates, folder)
    if options.plot is not None:
        analysis.draw(tables["importance"], steps, options.plot)
    record: dict[str, Any] = {"checkpoint": str(options.checkpoint), "data": str(options.data)}
    if dest is not None:
        record |= analysis.compare_models(evaluation, opened(dest, task=options.task), max_tokens)
    rows = {
        title: {name: row.tolist() for name, row in table.items()}
        for title, table in tables.items()
    }
    curve = [{"removed": step.removed, "left": step.left} | step.figures for step in steps]
    return record | rows | {"curve": curve}


def importance_over_run(options: HeadOptions, opened: Callable[[Path], Any]) -> dict[str, Any]:
    """The importance of all heads at each checkpoint of a run, a table for each, oldest first."""
    from unitk.families.analysis import heads as analysis

    run = RunFolder.at(options.checkpoint, resume=True)
    steps = sorted(run.steps())
    require(
        len(steps) > 1,
        f"--over-run needs a run with several checkpoints, but {run.path} has {len(steps)} (unitk "
        "train --save-every 100 --keep-last 1000)",
    )
    importances = dict[int, analysis.Gates]()
    with progress(len(steps), unit="checkpoints") as report:
        for step in steps:
            setup = opened(run.step(step))
            importances[step] = analysis.importance(
                setup, analysis.open_gates(setup.model), options.max_tokens
            )
            report(1)
    if options.plot is not None:
        analysis.draw_over_run(importances, options.plot)
    record: dict[str, Any] = {"checkpoint": str(options.checkpoint), "data": str(options.data)}
    tables = {
        f"importance at step {step}": {name: row.tolist() for name, row in gates.items()}
        for step, gates in importances.items()
    }
    return record | tables


@verb(
    HeadOptions,
    value=head_figures,
    example='(checkpoint="runs/lm", data="data/docs")["importance"]',
)
def heads(parsed: config.Parsed) -> None:
    """`heads`: print importance and what removal costs; write a checkpoint with fewer heads."""
    figures = head_figures(parsed)
    if parsed.main.output_format == "json":
        print(json.dumps(figures))
        return
    curve = figures.pop("curve", [])
    # what is no table is about the model; it is printed first
    tables = {title: by_name for title, by_name in figures.items() if isinstance(by_name, dict)}
    for key, value in figures.items():
        if key not in tables:
            digits = "" if isinstance(value, str) else f",.{4 * isinstance(value, float)}f"
            print(f"{key:<24}{value:{digits}}")
    for title, by_name in tables.items():
        print(f"\n{title}")
        for name, values in by_name.items():
            print(f"{name:<24}" + "".join(f"{value:9.4f}" for value in values))
    if not curve:
        return
    print(f"\n{'removed':<12}{'loss':>9}   heads left")
    total = sum(map(len, tables["importance"].values()))
    for step in curve:
        left = " ".join(map(str, step["left"].values()))
        print(f"{step['removed']:>4} of {total:<4}{step['loss']:9.4f}   {left}")


VERBS = {"contextuality": contextuality, "vectors": vectors, "heads": heads}
run = VerbGroup(VERBS, cure="lower --max-tokens")
register("verb", "analyse")(run)
