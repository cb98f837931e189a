"""A trained model with its task, for texts: generate, fill in, predict, score and embed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from unitk import notebook, registry
from unitk.decoding.blanks import fill, fit_blanks
from unitk.decoding.config import EmbedConfig, GenerateConfig, PredictConfig, make_config
from unitk.decoding.constraints.base import Constraint
from unitk.decoding.drivers import Driver, Prompt, Watcher, drive
from unitk.decoding.files.defaults import naming_defaults, select_defaults, select_scored
from unitk.decoding.fit import SourceTally, search_protocol
from unitk.decoding.forced import TargetScorer, add_attention, ask_all_tokens, check_layer, logits
from unitk.decoding.likelihood import likelihoods
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.contrast import contrast
from unitk.decoding.texts.outputs import NO_WORDS, Output, OutputTable
from unitk.decoding.texts.sentences import choose_outputs, stable_part
from unitk.decoding.texts.sources import Parted, SourceEncoder, Sources, as_strings, split_parts
from unitk.decoding.texts.stream import pieces
from unitk.decoding.understand.embed import embed
from unitk.decoding.understand.predict import predict
from unitk.errors import DataError, UsageError, require
from unitk.progress import Report, no_report
from unitk.slots import Floats, Ids

if TYPE_CHECKING:
    from unitk.keywords import EmbedOptions, GenerateOptions, PredictOptions
    from unitk.models.base import Decoder
    from unitk.tasks.base import Task
    from unitk.tasks.understanding.base import Understanding


class Generator(SourceEncoder):
    """A model or an ensemble with its task: sources to texts; texts to scores, vectors and labels.

    `defaults` are the values of GenerateConfig that `generate` and `score` use unless they are
    given, from the `generate.yaml` of the checkpoint. `reader` is the same model with a task of a
    language model, if it was trained as one: it ranks what `infill` writes. `about` describes the
    model to people: its name and its size.
    """

    def __init__(
        self,
        model: Decoder,
        task: Task,
        defaults: Mapping[str, Any] | None = None,
        reader: Generator | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self.model = model
        self.task = task
        self.vocab = task.vocab
        self.reader = reader
        self.protocol = search_protocol(task, model.trained)
        self.defaults = dict(defaults or {})
        self.warned = False
        self.tally = SourceTally()
        self.about = dict(about or {})

    def __repr__(self) -> str:
        facts = [*self.about.values(), *(f"{key} {self.facts[key]}" for key in ("task", "can"))]
        return f"Generator({', '.join(facts)})"

    def _repr_html_(self) -> str:
        rows = self.facts
        if self.defaults:
            rows["options"] = ", ".join(f"{name}={value}" for name, value in self.defaults.items())
        return notebook.table((f"<b>{name}</b>", escape(text)) for name, text in rows.items())

    @property
    def facts(self) -> dict[str, str]:
        """A description of the model, with the methods that its task supports under "can"."""
        able = {
            "generate": self.task.generates,
            "infill": self.task.infills,
            "score": self.protocol is not None,
            "predict": self.task.predicts,
            "embed": True,
        }
        methods = " ".join(name for name, can in able.items() if can)
        return {**self.about, "task": self.task.name, "can": methods}

    def generate(
        self,
        texts: str | Sequence[str | Sequence[str]],
        *,
        prefixes: str | Sequence[str] = (),
        constraints: Sequence[Sequence[str]] = (),
        truncate: bool | None = None,
        alignment_layer: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Output]]:
        """The n best outputs for each source, a text or its parts; `options` are GenerateConfig's.

        Unless `max_source_len` is given, longer sources are truncated as in the training on pairs,
        or read around the answer if the model learnt this; see `sources`. None lifts the limit.
        With `truncate` (default: for a model that was fine-tuned on pairs), what does not fit the
        model's positions is truncated, too. `prefixes` gives the beginning of each source's
        outputs, `constraints` the phrases that they must contain. With `alignment_layer`, a layer
        of a decoder with cross-attention (0: the last one), each output has its `attention`. A
        string is a single source. The output for an empty source is empty.
        """
        parts = split_parts(texts)
        ids, config = self.read(parts, self._build_config(options), {**self.defaults, **options})
        config.idle("has no effect without blanks", "rerank")
        sources = Sources(ids, self.constraints(prefixes, constraints), truncate)
        outputs = self.outputs(sources, config, alignment_layer)
        rows = [
            best if sum(map(len, source)) else [NO_WORDS]
            for source, best in zip(ids, outputs, strict=True)
        ]
        return OutputTable(rows, parts, self.vocab)

    def stream(
        self,
        text: str | Sequence[str],
        *,
        prefix: str = "",
        truncate: bool | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[str]:
        """The pieces of one output for a source, a text or its parts, as they are written.

            for piece in model.stream("It was a cold night", sampling=True):
                print(piece, end="", flush=True)

        `options` are GenerateConfig's. They are greedy search unless `sampling` is on, as a wider
        beam takes words back. The pieces make up the text that `generate` finds with them. Leaving
        the loop ends the work.
        """
        # the checkpoint's own sampling is kept, its beam is not
        drawn = {**self.defaults, **options}.get("sampling")
        options = {**({} if drawn else {"beam": 1}), "nbest": 1, "best_of": 1, **options}
        config = self._build_config(options)
        require(
            config.width == 1,
            "stream writes one output: "
            "--nbest and --best-of must be 1, and --beam 1 or --sampling on",
        )
        ids, config = self.read(split_parts([text]), config, {**self.defaults, **options})
        sources = Sources(ids, self.constraints([prefix] if prefix else []), truncate)

        def work(tell: Callable[[str], None]) -> str:
            def on_step(_: int, written: Ids) -> None:
                tell(stable_part(self.task.text(ids[0], written), config))

            [outputs] = self.outputs(sources, config, watch=Watcher(on_step=on_step))
            return outputs[0].text if outputs else ""

        return pieces(work)

    def sample(self, count: int = 1, **options: Unpack[GenerateOptions]) -> list[Output]:
        """Draw texts that the model writes where nothing is given; `options` are GenerateConfig's.

        Text i is drawn with numbers that depend on `seed` and i alone, so that more texts begin
        with the same ones.
        """
        number = isinstance(count, int | np.integer) and count >= 1
        require(number, f"count must be a whole number of at least 1, got {count!r}")
        config = self._build_config({"sampling": True, "nbest": 1, **options})
        once = config.sampling and config.nbest == 1
        require(once, "sample draws each text once: nbest must be 1, and sampling on")
        return [(best or [NO_WORDS])[0] for best in self.outputs(Sources([[]] * count), config)]

    def _build_config(self, options: Mapping[str, Any], scores: bool = False) -> GenerateConfig:
        select = select_scored if scores else select_defaults
        used = select(self.defaults, options)
        with naming_defaults(used):
            return make_config(GenerateConfig, {**used, **options})

    def infill(
        self, texts: str | Sequence[str], **options: Unpack[GenerateOptions]
    ) -> list[list[Output]]:
        """The n best ways to fill every [MASK], [sMASK], [gMASK] and ___ of each text.

        `options` are GenerateConfig's, but `lenpen` is `GenerateConfig.INFILL_LENPEN` unless given.
        """
        select_defaults({}, options)  # raises UsageError: a checkpoint's are not for blanks
        config = make_config(GenerateConfig, {"lenpen": GenerateConfig.INFILL_LENPEN, **options})
        texts = as_strings(texts)
        sources = Sources([self.encode_blanks(text) for text in texts])
        return OutputTable(self.fill(texts, sources, config), split_parts(texts), self.vocab)

    def fill(
        self,
        texts: Sequence[str],
        sources: Sources,
        config: GenerateConfig,
        layer: int | None = None,
        watch: Watcher = Watcher(),  # noqa: B008  (frozen)
    ) -> list[list[Output]]:
        """The n best ways to fill the blanks of texts; other arguments are those of `outputs`."""
        config = fit_blanks(config, sources.constraints)

        def search(config: GenerateConfig, last: bool) -> list[list[Output]]:
            report = watch.report if last else lambda done: watch.report(0)
            return self.outputs(sources, config, layer, replace(watch, report=report))

        judge = None
        if self.reader is not None:
            judge = partial(
                self.reader.likelihood,
                truncate=True,
                max_tokens=config.max_tokens,
                report=lambda done: watch.report(0),
            )
        return fill(self.task, texts, sources.ids, config, search, judge)

    def embed(
        self, texts: str | Sequence[str | Sequence[str]], **options: Unpack[EmbedOptions]
    ) -> Floats | list[Floats]:
        """A vector for each text, [N, D]; `options` are EmbedConfig's.

        With pool="none", the result is a list of the states of each text, [T, D].
        """
        config = make_config(EmbedConfig, options)
        # an empty text more: there is a width where there are no others
        vectors = embed(self.model, self.task, [*self.encode(split_parts(texts)), []], config)
        return vectors[:-1] if config.pool == "none" else np.array(vectors)[:-1]

    def predict(
        self, texts: str | Sequence[str | Sequence[str]], **options: Unpack[PredictOptions]
    ) -> list[dict[str, Any]]:
        """The prediction of a fine-tuned model for each text; `options` are PredictConfig's.

        By task, a prediction is a label and its probability, a value, tags, or an answer and its
        probability; an empty text has one, too. A text is a string or its parts: two texts, a
        question and a passage, a text and its choices, or words.
        """
        return self.predictions(split_parts(texts), make_config(PredictConfig, options))

    def predictions(
        self, texts: Parted, config: PredictConfig, first: int = 0, report: Report = no_report
    ) -> list[dict[str, Any]]:
        """`predict` for texts as parts; `first` is the number of the first text among all."""
        require(
            self.task.predicts,
            f"task {self.task.name} predicts no labels; train it with --task classify, "
            "multi_label, mtdnn, regress, tag, span or choice, or ask with --task cloze",
        )
        task = cast("Understanding", self.task)
        sources = self.encode([task.texts(parts) for parts in texts])
        self.warned = self.warned or (task.counts_parts and self.check_parts(sources, first))
        predictions = predict(self.model, task, sources, config, first=first, report=report)
        return [task.in_words(*pair) for pair in zip(texts, predictions, strict=True)]

    def score(
        self,
        texts: str | Sequence[str | Sequence[str]],
        targets: str | Sequence[str],
        alignment_layer: int | None = None,
        truncate: bool | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Output]:
        """The scores of given outputs, one for each source, as a search would report them.

        `options` are GenerateConfig's; `alignment_layer` and `truncate` are those of `generate`.
        A target without a source is scored as a text that `sample` writes.
        """
        given = {**self.defaults, **options}
        ids, config = self.read(split_parts(texts), self._build_config(options, scores=True), given)
        config.idle("has no effect with targets", *options.keys() - config.scored(config.search))
        sources = Sources(ids, truncate=truncate)
        scored = self.scores(sources, self._ids(targets, "targets"), config, alignment_layer)
        return [(outputs or [NO_WORDS])[0] for outputs in scored]

    def logits(
        self,
        texts: str | Sequence[str],
        targets: str | Sequence[str] | None = None,
        *,
        max_tokens: int = 16384,
    ) -> list[Floats]:
        """Logits over the vocabulary at every slot that reads a text, [T, V] of each text.

        With `targets`, one for each text, the slots are those that predict the words of the target
        and its end. A model with an encoder needs them. Symbols that an import added have -inf.
        """
        sources = self._ids(texts)
        labels = [None] * len(sources) if targets is None else self._ids(targets, "targets")
        require(len(labels) == len(sources), "there must be a target for each text")
        examples = [ask_all_tokens(self.task, *pair) for pair in zip(sources, labels, strict=True)]
        return logits(self.model, examples, max_tokens)

    def likelihood(
        self,
        texts: str | Sequence[str],
        before: str | Sequence[str] = (),
        *,
        whole_words: bool = False,
        truncate: bool = False,
        max_tokens: int = 16384,
        report: Report = no_report,
    ) -> list[Floats]:
        """The log-probability of each token of each text; `before` is what is before each text.

        A masked model hides each token in turn; with `whole_words`, it also hides the later pieces
        of the same word. The sum is then a pseudo-log-likelihood. The end is not counted. If
        `truncate` is set, what is before a text that is too long loses its beginning.
        """
        ids = self._ids(texts)
        first = self._ids(before, "before") or self._ids([""] * len(ids))
        require(len(first) == len(ids), "before: one for each text, or none at all")
        scored = likelihoods(
            self.model,
            self.task,
            list(zip(first, ids, strict=True)),
            whole_words=whole_words,
            truncate=truncate,
            max_tokens=max_tokens,
            report=report,
        )
        return [gains for gains, _ in scored]

    def prompts(
        self, sources: Sources, config: GenerateConfig, driver: Driver | None = None
    ) -> list[Prompt]:
        """The prompts of the sources, in their order; an empty source has none.

        A source without parts has that of a text from nothing. Raises DataError, as `outputs`
        does, for a source that cannot be decoded.
        """
        ids = self.key_sentences(sources.ids, config)
        driver = driver or self.driver
        if not all(ids):
            driver.check_from_nothing()
        constraints = sources.constraints or [Constraint()] * len(ids)
        cut = sources.truncate
        if cut is None:
            cut = bool(self.task.trained.max_source)
        require(len(constraints) == len(ids), "prefixes and constraints: one for each source")
        pairs = zip(ids, constraints, strict=True)
        return [
            driver.prompt(number, source, constraint, config, cut)
            for number, (source, constraint) in enumerate(pairs, sources.first)
            if sum(map(len, source)) or not source
        ]

    def outputs(
        self,
        sources: Sources,
        config: GenerateConfig,
        layer: int | None = None,
        watch: Watcher = Watcher(),  # noqa: B008  (frozen)
        driver: Driver | None = None,
    ) -> list[list[Output]]:
        """The n best outputs for each source; an empty source has none.

        The outputs for nothing are texts written unconditionally. With `layer`, a layer of the
        decoder as in `forced.attention`, each output has its attention. `watch` follows the search.
        """
        ids = self.key_sentences(sources.ids, config)
        config = replace(config, key_phrases=())
        check_layer(self.model, layer)
        prompts = self.prompts(replace(sources, ids=ids), config, driver)
        self.warned = self.warned or self.check_parts(ids, sources.first)
        outputs: list[list[Output]] = [[] for _ in ids]
        tally = SourceTally(len(prompts))
        decoded = self.decode(prompts, config, watch, layer, driver)
        for prompt, best in zip(prompts, decoded, strict=True):
            index = prompt.number - sources.first
            outputs[index] = best
            tally.shortened += prompt.source is not ids[index]
            tally.without_output += [prompt.number + 1] * (not best)
        self.tally.add(tally, config)
        return outputs

    def decode(
        self,
        prompts: Sequence[Prompt],
        config: GenerateConfig,
        watch: Watcher,
        layer: int | None = None,
        driver: Driver | None = None,
    ) -> list[list[Output]]:
        """The n best outputs for each prompt; the other arguments are those of `outputs`."""
        hypotheses = drive(driver or self.driver, prompts, config.searching, watch)
        outputs = [self.texts(*pair, config) for pair in zip(prompts, hypotheses, strict=True)]
        if layer is None:
            return outputs
        scorer = self._scorer("--print-alignment")
        return add_attention(scorer, prompts, outputs, layer, config.max_tokens)

    def texts(
        self, prompt: Prompt, best: Sequence[Hypothesis], config: GenerateConfig
    ) -> list[Output]:
        """The n best outputs for a prompt as texts, of those that a search has found."""
        if config.contrast and len(best) > 1:
            scorer = self._scorer("--contrast")
            best = contrast(scorer, prompt, best, config)
        spell = partial(self.task.text, prompt.source)
        vocab = self.task.source_vocab
        words = (vocab.decode(ids[ids < len(vocab)]) for ids in prompt.source)  # without fillers
        source = " ".join(words) if config.repeat_cost else ""
        return choose_outputs(spell, best, config, self.protocol, prompt.constraint.max_len, source)

    def scores(
        self,
        sources: Sources,
        targets: Sequence[Ids],
        config: GenerateConfig,
        layer: int | None = None,
        watch: Watcher = Watcher(),  # noqa: B008  (frozen)
    ) -> list[list[Output]]:
        """The scores of the target of each source, in the form of a search result.

        A target may hold the words of several blanks, with an end symbol after each; the last end
        symbol is optional. It may have an empty source if the model writes from nothing; two empty
        texts have no score. The other arguments are those of `outputs`.
        """
        driver = self._scorer("--score")
        require(len(targets) == len(sources.ids), "there must be a target for each source")
        pairs = zip(sources.ids, targets, strict=True)
        ids = [source if any(map(len, source)) or not len(to) else [] for source, to in pairs]
        if [] in ids:
            try:
                driver.check_from_nothing(f"input {sources.first + ids.index([]) + 1}")
            except UsageError as error:  # of this input alone, in a stream
                raise DataError(*error.args) from error
        begins = [Constraint(tuple(target.tolist())) for target in targets]
        sources = replace(sources, ids=ids, constraints=begins)
        return self.outputs(sources, replace(config, sentences=0), layer, watch, driver)

    @property
    def driver(self) -> Driver:
        """The driver that writes outputs; `UsageError` if the task has none."""
        require(self.task.driver, f"--checkpoint: task {self.task.name} does not generate")
        kind: type[Driver] = registry.get("driver", self.task.driver, f"task {self.task.name}")
        return kind(self.model, self.task, self.protocol)

    def _scorer(self, flag: str) -> TargetScorer:
        """Scores what a task writes word by word; `UsageError` for a task that does not."""
        if self.protocol is None:
            cure = "; `unitk evaluate` scores texts by hiding each token (--pairs, --choices)"
            more = cure if flag == "--score" and self.task.infills else ""
            raise UsageError(f"{flag}: task {self.task.name} does not write word by word{more}")
        return TargetScorer(self.model, self.task, self.protocol)
