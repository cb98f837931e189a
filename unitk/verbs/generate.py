"""`unitk generate`: generate outputs or fill blanks."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from unitk.api import answering
from unitk.api.verb import verb
from unitk.data.corpus.corpus import Pairs
from unitk.data.corpus.folders import is_corpus
from unitk.data.files.pairs import Fields
from unitk.data.files.readers import Format
from unitk.data.files.squad import SQUAD_SOURCE
from unitk.decoding.config import BLANKS_ONLY, GenerateConfig
from unitk.decoding.files import inputs
from unitk.decoding.files.defaults import find_defaults, naming_defaults
from unitk.decoding.files.inputs import Blanks, Input, Inputs, Item
from unitk.decoding.files.outputs import STDOUT, Alignment, Formatter, Tally, format_to
from unitk.decoding.files.sink import is_finished
from unitk.errors import QUIET, DataError, UsageError, require, say
from unitk.files import reserve
from unitk.options import config
from unitk.options.config import ConfigFile, Device, UserDir, With
from unitk.options.fields import Positive, render
from unitk.options.settings import Origin, Settings, read_options
from unitk.progress import Report, progress
from unitk.registry import register

if TYPE_CHECKING:
    from unitk.decoding.constraints.base import Constraint
    from unitk.decoding.generator import Generator
    from unitk.decoding.texts.outputs import Output, OutputTable

EXAMPLE = '(["The cat sat on"], checkpoint="runs/lm", beam=5)'
CURE = "lower --max-tokens, --beam or --buffer-size"


@dataclass(frozen=True, kw_only=True)
class Options(GenerateConfig):
    """Generate outputs with a trained model: beam search, greedy search (--beam 1) or --sampling.

    unitk generate --checkpoint runs/qa --input in.txt --output out.txt
    unitk generate --checkpoint runs/lm "It was a cold night"
    unitk generate --checkpoint runs/glm --infill "The [MASK] sat on the [MASK]."
    unitk generate --checkpoint runs/lm --num-samples 5 --sampling-topp 0.9
    """

    HELP: ClassVar = {
        "Model and input": "checkpoint texts input infill interactive num_samples"
        "| max_source_len key_phrases task input_format source_field target_field squad_source"
        " truncate",
        "Output": "output output_format resume | overwrite buffer_size score references"
        " print_alignment alignment_layer",
        "Search": "beam nbest lenpen | search diverse_beam_groups diverse_beam_strength rerank"
        " contrast avoid_part unkpen",
        "Sampling": "sampling temperature sampling_topk sampling_topp best_of seed"
        "| repeat_cost sampling_minp",
        "Diffusion": "| steps order block_length",
        "Limits and constraints": "max_len min_len sentences extract no_repeat_ngram_size"
        " prefix_file constraints | max_words begin_word end_symbols no_repeat_ngram_ignore"
        " bad_words allow_symbols",
        "Batches and devices": "device precision max_tokens | capture config user_dir",
    }

    checkpoint: tuple[Path, ...]
    """Run folder (its best checkpoint), checkpoint or bundled model (`unitk list model`). Several
    form an ensemble, which decodes with the mean of their probabilities."""
    task: str | None = None
    """Task to decode with, if the model was trained with several."""
    texts: tuple[str, ...] = ()
    """Sources, each in quotes, instead of --input. A tab separates the parts of a source."""
    input: Path | None = None
    """Sources: text lines, a table (json, csv, tsv, parquet), SQuAD json, a corpus folder of pairs,
    or `-`. In text a tab separates the parts of a source. `-` (standard input) and named pipes are
    answered line by line."""
    infill: str | None = None
    """Text with blanks to fill in, each a [MASK] or ___, or a file of such lines (`-`: standard
    input). They are filled one after the other."""
    num_samples: Positive | None = None
    """Number of texts to write where nothing is given, drawn with the options of --sampling."""
    prefix_file: Path | None = None
    """File of forced beginnings, one a line. Line i is how the outputs of input i begin."""
    constraints: Path | None = None
    """File of phrases, separated by tabs. Outputs of input i contain those of line i."""
    output: Path = STDOUT
    """Output file. `-`: standard output."""
    overwrite: bool = False
    """Replace an --output that exists."""
    input_format: Format = "auto"
    """Format of --input. auto: by the file name; standard input is text, or json-lines with
    --source-field."""
    squad_source: str = SQUAD_SOURCE
    """SQuAD json: how {answer}, and {passage} or {sentence}, form a source, as in `unitk
    preprocess`."""
    source_field: tuple[str, ...] = ()
    """Field of a table that holds the source, as in `unitk preprocess`. Several are its parts.
    Default: source, a text or a list of parts."""
    target_field: tuple[str, ...] = ()
    """Field of the target, beside --source-field."""
    output_format: Literal["auto", "text", "jsonl", "csv", "fairseq"] = "auto"
    """auto: jsonl or csv if --output ends in it, else text. text has one output a line, with its
    score if --nbest is above 1. jsonl has one object a source. csv has the columns id, output and
    score. fairseq has the S-, T-, H-, D- and P- lines of fairseq-generate."""
    truncate: bool = False
    """Truncate the last part of a source that is too long, instead of refusing it. Default: on for
    a model that was fine-tuned on pairs."""
    score: bool = False
    """Score given outputs instead of searching: score, log-probability and those of the tokens. The
    sum and the perplexity go to standard error."""
    references: Path | None = None
    """File of the outputs to score, line by line, if the input has no targets."""
    print_alignment: Alignment = "off"
    """Add alignments from cross-attention, the mean over the heads of a decoder layer. hard: the
    source token with the highest weight; soft: all weights."""
    alignment_layer: Annotated[int, With("print_alignment")] = 0
    """Decoder layer for alignments, counted from 1. 0: the last."""
    interactive: bool = False
    """Read sources from the terminal, one by one. [MASK]s are filled in."""
    buffer_size: Positive = 1024
    """Inputs that are decoded and written together."""
    resume: bool = False
    """Continue an interrupted --output."""
    device: Device = "auto"
    """Device to decode on. auto: CUDA if there is a GPU."""
    precision: Literal["fp32", "bf16", "fp16", "int8"] = "fp32"
    """Number format of weights and cache. int8 is for matrices only, on a CPU."""
    config: ConfigFile = None
    user_dir: UserDir = None


def value(argv: Sequence[str]) -> OutputTable:
    """The n best outputs for each input; with `score`, the targets."""
    from unitk.decoding.texts.outputs import OutputTable  # imports torch

    parsed, _ = parse_generate(argv)
    work = open_generation(parsed)
    table = OutputTable([], [], work.generator.vocab)
    for items, outputs in work.outputs():
        table.add([item.text.parts for item in items], outputs)
    return table


@register("verb", "generate")
@verb(Options, words="texts", parses=True, cure=CURE, value=value, none=list, example=EXAMPLE)
def run(argv: Sequence[str]) -> None:
    """Read the inputs, decode or score them, and write the outputs."""
    parsed, defaults = parse_generate(argv)
    options: Options = parsed.main
    if defaults and QUIET not in os.environ:
        say(defaults)
    if options.resume and not options.overwrite and is_finished(options.output):
        return
    with nullcontext() if options.output == STDOUT else reserve(options.output, "--output"):
        work = open_generation(parsed)
        depends = {"device": work.generator.model.device.type}
        sink = answering.sink_of(options, parsed.settings.texts | parsed.aside.texts | depends)
        nbest = 1 if options.score else work.options(options.infill is not None).nbest
        form = format_to(options.output_format, options.output)
        formatter = Formatter(
            form, work.generator.vocab, nbest, options.score, options.print_alignment
        )
        for group in work.outputs(sink.done):
            sink.add(formatter.lines(*group), len(group[0]))
        sink.close()


def parse_generate(argv: Sequence[str]) -> tuple[config.Parsed, str]:
    """The options, and those that the checkpoint brings as words of a command line."""
    settings = read_options(argv, Options, "texts")
    sampled = {"sampling": "on"} if "num_samples" in settings else {}
    draws = Settings.of_texts(sampled, Origin.FLAG, "--num-samples")
    path, of_checkpoint = find_defaults(draws.under(settings))
    if sampled:
        of_checkpoint.pop("nbest", None)
    texts = {name: render(value) for name, value in of_checkpoint.items()}
    defaults = Settings.of_texts(texts, Origin.CHECKPOINT, f"checkpoint {path}")
    below = defaults.under(draws)
    with naming_defaults(of_checkpoint):
        parsed = config.parse("generate", Options, argv, (), "texts", ("task", "arch"), below)
    flags = [word for name, text in texts.items() for word in (config.flag(name), text)]
    shown = f"{shlex.join(flags)}  # checkpoint {path}" if of_checkpoint else ""
    check_generate(parsed)
    options = infill_as_input(parsed.main)
    answering.check_output(options)
    return replace(parsed, main=options), shown


@dataclass(frozen=True)
class Generation:
    """The inputs of a command, and how its model answers them."""

    chosen: Options
    settings: Settings  # the same options, with the origin of each
    generator: Generator
    inputs: Inputs
    constraints: Sequence[Constraint]  # one for each input, or none

    @cached_property
    def for_sources(self) -> Options:
        """The options for sources, which are shortened to the length that training had."""
        if (longest := self.generator.task.trained.max_source) is None:
            return self.chosen
        limited = self.settings.given("max_source_len", Origin.CHECKPOINT)
        cuts = self.chosen.truncate or not self.settings.given("truncate", Origin.CHECKPOINT)
        tokens = self.chosen.max_source_len if limited else longest
        return replace(self.chosen, max_source_len=tokens, truncate=cuts)

    @cached_property
    def for_blanks(self) -> Options:
        """The options for texts with blanks, which have none of the checkpoint's generate.yaml."""
        own = [name for name, it in self.settings.items() if it.origin == Origin.CHECKPOINT]
        plain = {name: getattr(GenerateConfig, name) for name in own}
        if not self.settings.given("lenpen"):
            plain["lenpen"] = GenerateConfig.INFILL_LENPEN
        return replace(self.chosen, **plain)

    def options(self, fills: bool) -> Options:
        """The options in effect for inputs whose blanks are filled, or for sources."""
        return self.for_blanks if fills else self.for_sources

    def groups(self, first: int) -> Iterator[list[Item]]:
        """The encoded inputs from number `first` on."""
        limit = self.chosen.max_source_len
        if limit is None and self.settings.given("max_source_len", Origin.CHECKPOINT):
            limit = sys.maxsize  # none: a passage is read whole
        return inputs.groups(
            self.generator,
            self.inputs,
            self.chosen.buffer_size,
            first,
            constraints=self.constraints,
            blanks=blanks_of(self.chosen, self.generator),
            limit=limit,
        )

    def outputs(self, first: int = 0) -> Iterator[tuple[list[Item], list[list[Output]]]]:
        """Yield the inputs from number `first` on with their outputs, group by group.

        With --score, the outputs are the targets, and their totals are printed at the end.
        """
        total = None if isinstance(self.inputs, Iterator) else len(self.inputs)
        arriving = self.groups(first)
        tally = Tally()
        if not self.chosen.score:
            if total is None:
                arriving = inputs.warn_of_blanks(self.generator, arriving)
            else:
                self.check_inputs(first)
        filled = total is not None or self.chosen.rerank != "on"
        self.generator.tally.together = not self.chosen.interactive
        with progress(total, first, not self.chosen.interactive) as report:
            for items in arriving:
                filled = filled or any(item.fills for item in items)
                answer = partial(self.answer, report=report)
                if total is None:
                    items, outputs = answering.answer_each(items, answer, self.chosen.interactive)
                else:
                    outputs = answer(items)
                tally.add(outputs)
                yield items, outputs
                # empty inputs reach no model, which would have counted them
                report(sum(bool(item.source) and not any(map(len, item.source)) for item in items))
        self.generator.tally.warn(self.for_sources)
        if not filled:
            say("warning: --rerank on had no effect: no input had blanks")
        if self.chosen.score:
            say(tally)
        blocked = self.chosen.no_repeat_ngram_size or self.generator.task.driver != "steps"
        if tally.repeats > max(9, tally.outputs / 10) and not (self.chosen.score or blocked):
            repeats = f"{tally.repeats:,} of {tally.outputs:,} outputs repeat three words"
            say(f"warning: {repeats}; --no-repeat-ngram-size 3 blocks that")

    def check_inputs(self, first: int) -> None:
        """Lay out all inputs, so that a mistake in one is reported before any is decoded."""
        fills = False
        for items in inputs.warn_of_blanks(self.generator, self.groups(first)):
            fills = fills or any(item.fills for item in items)
            for filled, sources in inputs.split(items):
                options = self.options(filled)
                self.generator.prompts(replace(sources, truncate=options.truncate), options)
        if not fills and not first:
            self.chosen.idle("has no effect without blanks", *BLANKS_ONLY)

    def answer(self, items: Sequence[Item], report: Report) -> list[list[Output]]:
        """The outputs for some inputs; with --score, their targets with scores."""
        from unitk.decoding.drivers import Watcher  # imports torch

        answering.check_read(item.text for item in items)
        best: list[list[Output]] = [[] for _ in items]
        for fills, sources in inputs.split(items):
            options = self.options(fills)
            layer = None if options.print_alignment == "off" else options.alignment_layer
            sources = replace(sources, truncate=options.truncate)
            how = options, layer, Watcher(report)
            if options.score:
                return self.generator.scores(sources, inputs.need_targets(items), *how)
            if fills:
                texts = ["\t".join(item.text.parts) for item in items]
                outputs = self.generator.fill(texts, sources, *how)
            else:
                outputs = self.generator.outputs(sources, *how)
            best = [new or old for new, old in zip(outputs, best, strict=True)]
        return best


def open_generation(parsed: config.Parsed) -> Generation:
    """Read the inputs, then load the model."""
    options: Options = parsed.main
    texts = read(options)
    generator = answering.open_generator(options, parsed.aside.texts)
    on_gpu = generator.model.device.type == "cuda"  # loading has resolved auto
    require(on_gpu or options.capture != "on", "--capture on has an effect on a GPU only")
    if isinstance(texts, Path):
        texts = inputs.open_pairs(texts, generator.vocab)
    texts, constraints = add_files(options, texts, generator)
    return Generation(options, parsed.settings, generator, texts, constraints)


def check_generate(parsed: config.Parsed) -> None:
    """Refuse options that contradict each other or have no effect."""
    options: Options = parsed.main
    if options.sampling:
        parsed.idle("where outputs are drawn", "beam")
    answering.check_words(options.texts)
    instead = f"with {find_way(options)}"
    if options.num_samples is not None:
        require(options.sampling, "--num-samples draws texts, so --sampling cannot be off")
        parsed.idle("with --num-samples", "nbest", "truncate", "max_source_len", "rerank")
    if options.input is None:
        parsed.idle(instead, "input_format", "squad_source", "source_field", "target_field")
    if options.infill is not None:
        parsed.idle("with --infill", "truncate", "max_source_len", "score", "references")
    elif options.input is None and not options.texts:
        # these need inputs that are known before the first is answered
        parsed.idle(instead, "prefix_file", "constraints", "references", "score")
    require(not options.interactive or options.output == STDOUT, "--interactive has no --output")
    if options.score:
        scored = options.scored(options.search)
        searching = [o.name for o in config.options(GenerateConfig) if o.name not in scored]
        parsed.idle("with --score", *searching, "prefix_file", "constraints", "resume")
    require(
        options.score or options.references is None, "--references has no effect without --score"
    )
    csv = format_to(options.output_format, options.output) == "csv"
    require(not csv or options.print_alignment == "off", "--print-alignment has no column in csv")
    require(
        bool(options.source_field) or not options.target_field,
        "--target-field needs --source-field",
    )


def infill_as_input(options: Options) -> Options:
    """The options with --infill as the --input, if it is a file and no text."""
    file = options.infill or ""
    return replace(options, input=Path(file)) if file == "-" or os.path.exists(file) else options


def find_way(options: Options) -> str:
    """The one way in which inputs are given, for messages; UsageError for none or several."""
    ways = {
        f"the text {options.texts[0]!r}" if options.texts else "": options.texts,
        "--input": options.input is not None,
        "--infill": options.infill is not None,
        "--interactive": options.interactive,
        "--num-samples": options.num_samples is not None,
    }
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    ask = "give texts, --input FILE, --infill TEXT|FILE, --interactive or --num-samples N"
    require(len(chosen) == 1, f"{ask}, got {' and '.join(chosen) or 'none'}")
    return chosen[0]


def read(options: Options) -> Inputs | Path:
    """Read the inputs before the model is loaded, so that errors in them are reported at once.

    A corpus is opened once the model is there: its path is returned.
    """
    path = options.input
    if options.num_samples is not None:
        return [Input([])] * options.num_samples
    if options.texts:
        return [Input(text.split("\t")) for text in options.texts]
    if path is None:
        return inputs.read_typed() if options.infill is None else [Input([options.infill])]
    if path.is_dir() or is_corpus(path):
        idle = options.input_format != "auto" or options.source_field
        require(not idle, "--input-format and --source-field have no effect on a corpus as --input")
        require(options.squad_source == SQUAD_SOURCE, "--squad-source has no effect on a corpus")
        require(options.infill is None, f"--infill {path} is no text and no file of texts")
        return path
    return read_file(options, path)


def read_file(options: Options, path: Path) -> Inputs:
    """Read the inputs of a file, or the groups of a stream as they arrive."""
    kind = options.input_format
    fields = Fields(options.source_field, options.target_field) if options.source_field else None
    beside = (options.prefix_file, options.constraints, options.references)
    if (by_line := inputs.stream_reader(path, kind, fields)) and beside == (None, None, None):
        stream = inputs.read_stream(by_line, options.buffer_size, path, fields)
        return stream if options.infill is None else map(inputs.with_blanks, stream)
    if options.infill is not None:
        texts = inputs.with_blanks(inputs.read_inputs(path))
        if wrong := next((text for text in texts if text.error), None):
            raise DataError(f"{wrong.where}: {wrong.error}")
        return texts
    return inputs.read_inputs(path, kind, fields, options.squad_source)


def add_files(
    options: Options, texts: Inputs, generator: Generator
) -> tuple[Inputs, list[Constraint]]:
    """The inputs with the targets of --references, and the constraint of each, if any."""
    if isinstance(texts, Iterator):
        return texts, []
    if options.references is not None:
        if isinstance(texts, Pairs):
            raise UsageError("--references: the corpus of --input has targets")
        pairs = zip(texts, inputs.read_beside(options.references, len(texts)), strict=True)
        texts = [replace(text, target=line) for text, line in pairs]
    prefixes = inputs.read_beside(options.prefix_file, len(texts))
    lines = inputs.read_beside(options.constraints, len(texts))
    names = (
        f"--prefix-file {options.prefix_file}, line",
        f"--constraints {options.constraints}, line",
    )
    return texts, generator.constraints(prefixes, [line.split("\t") for line in lines], names)


def blanks_of(options: Options, generator: Generator) -> Blanks:
    """Which inputs are filled where they have blanks, instead of being read as plain text."""
    if options.infill is not None:
        return "all"
    # a source of a model that was trained on pairs may be a text about [MASK]s
    some = options.interactive or bool(options.texts) or not generator.task.trained.pairs
    return "some" if some and not options.score else "none"
