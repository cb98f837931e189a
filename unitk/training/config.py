"""The options of `unitk train`, which can be read, checked and explained without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from unitk.errors import check_option, require
from unitk.optim.schedules import Linear
from unitk.options import fields
from unitk.options.config import Device, UserDir

COMPONENTS = ("task", "arch", "criterion", "optimizer")  # components a run is made of
CUT = ("blocks", "block_size", "max_source_len", "max_target_len")
"""Options that say what an example is."""
BEGINS = "init_from", "init_encoder", "init_decoder"
"""Options that have their effect when a run begins."""
FROZEN = (*"seed per_label stateful_rows data_exponent freeze thaw group adapter".split(), *CUT)
FROZEN += BEGINS
"""Options that a resumed run cannot change, beside its data and the components' own."""

EXCLUSIVE = (
    *(("static", other) for other in ("oom_retry", "shard", "stateful_rows")),
    *(("init_from", tower) for tower in ("init_encoder", "init_decoder")),
    ("ema", "average_last"),
    ("batch_tokens", "batch_texts"),
)
"""Options of which a run has one."""
SCORES = {
    "rouge": ("rouge1", "rouge2", "rougeL", "rougeLsum"),
    "bleu": ("bleu",),
    "qg": ("bleu4", "qg_rougeL", "bleu4_single"),
    "chrf": ("chrf", "chrf++"),
    "meteor": ("meteor", "meteor_exact_stem"),
    "stats": (),
}
"""Metric of written texts -> its figures that rank models; of all of them, more is better."""
RANKING = {figure: metric for metric, figures in SCORES.items() for figure in figures}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(fields.Checked):
    """Train a model: pre-train where the data are text, fine-tune where they are pairs.

    unitk train --task lm --data docs --save-dir lm --max-steps 9000
    unitk train --task lm --data qa --init-from lm --save-dir lm-qa --max-epochs 5
    """

    HELP: ClassVar = {
        "Data": "data valid blocks block_size max_source_len max_target_len"
        "| data_exponent new_data per_label stateful_rows valid_texts",
        "Run": "save_dir resume init_from config seed dry_run"
        "| user_dir init_encoder init_decoder seeds deterministic",
        "Length of the run": "max_steps max_epochs max_hours patience | max_words",
        "Optimization": "lr lr_schedule adapter| clip_norm freeze thaw group ema average_last"
        " on_nonfinite",
        "Batches, memory and devices": "max_tokens batch_tokens device precision nproc"
        "| batch_texts recompute shard oom_retry rank_timeout threads products attention residual"
        " compile static capture",
        "Validation, checkpoints and logging": "valid_every valid_generate save_every best_metric"
        " log_every| valid_metric valid_beam"
        " keep_last keep_best save_at_words save_shards writers panel_every panel_texts profile"
        " detect_anomaly",
    }

    data: tuple[fields.Place, ...]
    """Corpus folder, or a folder with train/. DIR=2.5 shows each text 2.5 times an epoch."""
    valid: tuple[fields.Place, ...] = ()
    """Validation corpus, if you like with a name: [NAME=]DIR. The first one selects the best
    checkpoint. none: no validation. Default: valid/ of the first --data."""
    data_exponent: fields.Weight | fields.Schedule = 1.0
    """Corpora of --data have shares of an epoch in proportion to their sizes to this power. 1: each
    text is shown once. 0: equal shares. linear:floor=0.2 falls to 0.2 in the last epoch."""
    save_dir: Path
    """Run folder for configuration, log, checkpoints. --dry-run of a new run needs none."""
    resume: bool = False
    """Continue from the newest intact checkpoint. Without one, the run starts. Options that are not
    given keep the values of the run."""
    new_data: bool = False
    """With --resume: accept other --data, --blocks, --block-size and lengths of pairs. A new epoch
    of them begins."""
    init_from: Path | None = None
    """Start from the weights of a run or a model. The model may be a checkpoint or a bundled model
    (`unitk list model`). Its architecture is used unless --arch is given. If the task is the same,
    it keeps its options."""
    init_encoder: Path | None = None
    """Run or checkpoint that initializes the encoder. A single tower becomes the encoder."""
    init_decoder: Path | None = None
    """Run or checkpoint that initializes the decoder and its output layer. Cross-attention is drawn
    at random."""
    config: Path | None = None
    """YAML file with options, or a configuration that comes with unitk (`unitk list config`). Flags
    override it."""
    dry_run: bool = False
    """Check all options, make a few updates, print the plan, memory and time of the run, and write
    nothing."""
    user_dir: UserDir = None
    seeds: fields.Positive | None = None
    """Number of runs, with --seed, --seed + 1, and so on, each in its own folder of --save-dir.
    seeds.json has the mean and the standard deviation of their best validations."""
    per_label: fields.Positive | None = None
    """Train on this many texts of each class, drawn with --seed. A smaller number draws a subset of
    a larger one."""

    max_steps: fields.Positive | None = None
    """Stop after this many updates."""
    max_epochs: fields.Positive | None = None
    """Stop after this many passes over the data."""
    max_words: fields.Positive | None = None
    """Stop after reading this many words of text, such as 100M. Repetitions count."""
    max_hours: fields.Above | None = None
    """Stop after this many hours of training. Hours before a --resume count."""
    patience: fields.Positive | None = None
    """Stop after this many validations without a better --best-metric. They count in a row."""

    lr: fields.Above = 4e-4
    """Peak learning rate. auto: the measured rate of muon or adamw, carried over to the width of
    the model. Default: auto for new models of qwen3_mini and its kin, else 4e-4."""
    lr_schedule: fields.Schedule = Linear(warmup=0.06)
    """Schedule that multiplies --lr. `unitk list schedule` names the schedules, `linear:warmup=0.1`
    sets an option of one."""
    adapter: str | None = None
    """Train small matrices beside the weights of --init-from, which stay as they are. lora adds
    low-rank ones to the matrices of attention and feed-forward parts: lora:rank=8,on=attention.
    Checkpoints hold these alone, and are used as any other."""
    freeze: tuple[str, ...] = ()
    """Parameters that are not trained: patterns of their names, such as 'embed.*,layers.0.*'."""
    thaw: str | None = None
    """Gradual unfreezing: train the output layers first, then one more layer below them every epoch
    (epoch) or every N updates (a number)."""
    group: tuple[str, ...] = ()
    """Other settings for the parameters whose names match: 'PATTERN NAME=VALUE ...'. Names are
    lr-factor, lr-schedule, optimizer and the options of that optimizer. May be repeated; the first
    match counts."""
    ema: fields.Fraction | None = None
    """Keep an exponential moving average of the weights with this decay, such as 0.999. Validation
    and later use of the model read the average."""
    average_last: fields.Fraction | None = None
    """Average the weights over this last share of the updates, such as 0.2. The average is used
    like that of --ema."""
    clip_norm: fields.Weight = 1.0
    """Clip gradients to this norm. 0: no clipping."""

    max_tokens: fields.Positive = 8192
    """Maximum slots of one forward pass on one device. A slot is a position of the input. An
    encoder and a decoder count as the longer of both."""
    batch_tokens: fields.Positive | None = None
    """Slots of one update over all devices. Default: --max-tokens times devices."""
    batch_texts: fields.Positive | None = None
    """Texts or pairs of one update, instead of --batch-tokens."""
    stateful_rows: fields.Count = 0
    """Rows of an update that each read their own part of the texts in order. The model carries its
    state (memory, recurrence) from update to update. 0: texts are shuffled."""
    blocks: Literal["doc", "full", "stream", "line"] = "doc"
    """How documents become training texts. doc: texts end with their document. full: texts may span
    documents. stream: windows of fixed size over all documents. line: one text a line. full and
    stream have a [SEP] between documents (stream: not with --task.ends off)."""
    block_size: Annotated[int, fields.Bound(1, below=True)] | fields.Schedule = 512
    """Maximum tokens of a text, with its special symbols. A schedule counts epochs:
    constant:value=512,warmup=4 gives 128, 256, 384, then 512."""
    max_source_len: fields.Positive | None = None
    """Truncate longer sources. Default: what the positions of the architecture allow."""
    max_target_len: fields.Positive | None = None
    """Truncate longer targets. Default: half of the positions of the architecture."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """fp32, bf16, fp16 or auto. bf16: autocast over fp32 weights. auto: bf16 where the processor
    computes in it. fp16: with a loss scale, for GPUs without bf16."""
    products: Literal["auto", "torch", "onednn"] = "auto"
    """Library for fp32 matrix products on a CPU. auto: oneDNN if a measurement of 50 ms finds it
    faster. A resumed run keeps the choice. Name a library if runs must be bit-identical."""
    device: Device = "auto"
    """Device to train on. auto: CUDA if there is a GPU."""
    attention: Literal["auto", "dense", "flex"] = "auto"
    """How attention masks are computed. auto: no mask or the causal one where that is exact, else a
    dense mask, and FlexAttention on CUDA from 1,024 slots. flex needs CUDA."""
    residual: Literal["full", "half"] = "full"
    """Precision of the states that pass from layer to layer in bf16 or fp16. full: 32 bits. half:
    16 bits, in which the sums of layers are rounded; faster and smaller with --compile on CUDA."""
    recompute: bool = False
    """Activation checkpointing: keep only the input of each layer and run the layer again in
    backward. Computes about a third more and needs far less memory."""
    compile: bool = False
    """Compile the layers with torch.compile. Faster on CUDA after a minute, rarely on a CPU."""
    static: bool = False
    """Pad all micro-batches to one shape, or to few where several tasks are mixed. With --compile,
    the layers of a tower are then one graph, which takes longer to compile. For tasks of one tower.
    """
    capture: bool = False
    """Record whole updates as CUDA graphs, with --static: for small models, which otherwise wait
    for Python. Updates of several micro-batches are not recorded."""
    profile: bool = False
    """Profile a few updates: write a trace to --save-dir, log the ten slowest operations."""
    detect_anomaly: bool = False
    """Let PyTorch name the operation whose gradient is NaN. Slow."""
    deterministic: bool = False
    """Use deterministic CUDA kernels, so that a resumed run is bit-identical. Slower."""
    threads: fields.Positive | None = None
    """Processor threads. Default: PyTorch's choice."""
    nproc: fields.Positive = 1
    """Processes (GPUs) to use on this machine. For several machines use torchrun."""
    shard: bool = False
    """Shard weights, gradients and optimizer state over the processes (FSDP2), for models that do
    not fit on one device."""
    save_shards: bool = False
    """With --shard: each process writes its own part of a checkpoint, which nothing gathers. Any
    number of processes reads it, and `unitk convert --from unitk RUN --to unitk DIR` joins it."""
    rank_timeout: Annotated[float, fields.Bound(0.1, 604_800)] = 600.0
    """Seconds without an answer after which a process counts as lost."""
    seed: fields.Count = 1
    """Seed of weights, order, draws and dropout. Order is that of the examples, and each example
    has its own draws."""
    on_nonfinite: str = "skip:10"
    """What to do about NaN or infinity; such updates are always skipped. stop: end the run at the
    first one. skip:N: end it after N in a row."""
    oom_retry: bool = False
    """If a micro-batch does not fit into memory, try again with half of it."""

    log_every: fields.Positive | None = None
    """Updates between log lines. Default: a 40th of the run, at most 50."""
    valid_every: fields.Positive = 500
    """Updates between validations. One more follows at the end."""
    valid_texts: fields.Positive | None = None
    """Texts or pairs to use of each validation set, at equal distances. Default: all."""
    valid_generate: fields.Positive | None = None
    """Sources of each validation set for which the model writes outputs, which are scored. Needs
    pairs. --best-metric valid/rouge1 selects the best checkpoint by them."""
    valid_metric: tuple[str, ...] = ("auto",)
    """Metrics of these outputs, as in `unitk score`. auto: rouge, bleu and the metric that
    --best-metric needs."""
    valid_beam: fields.Positive = 1
    """Beam size of these outputs. 1: greedy decoding."""
    panel_every: fields.Count = 500
    """Updates between diagnostics of the criterion (elbo: whether the latent is used). One more
    follows at the end. 0: none."""
    panel_texts: fields.Positive = 256
    """Texts of the first validation set that the diagnostics read."""
    save_every: fields.Positive = 500
    """Updates between checkpoints. One more follows at the end."""
    save_at_words: tuple[fields.Positive, ...] = ()
    """Word counts at which a permanent checkpoint is saved: 1M,2M,...,10M,20M,...,100M makes
    --save-dir/words_1M and so on. Older ones lose their optimizer state."""
    keep_last: fields.Positive = 2
    """Number of newest checkpoints to keep."""
    keep_best: fields.Positive = 1
    """Number of best checkpoints to keep beside them."""
    writers: tuple[str, ...] = ("auto",)
    """Loggers beside log.jsonl: csv, tensorboard, wandb, mlflow, trackio, none. auto: TensorBoard
    if it is installed."""
    best_metric: str | None = None
    """Metric that selects the best checkpoint. Losses: lower is better. Shares of right answers
    (valid/class/correct), F1 of tagged spans (valid/spans/f1) and, with --valid-generate, scores of
    outputs (valid/rouge1, valid/bleu): higher is better. Default: valid/loss of the first set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = 64 * (os.cpu_count() or 1)
        check_option(self, "threads", (self.threads or 1) <= limit, f"at most {limit}")
        for option, other in EXCLUSIVE:
            excluded = getattr(self, option) and getattr(self, other)
            require(not excluded, f"{fields.flag(option)} excludes {fields.flag(other)}")
        counted = bool(self.max_steps or self.max_epochs)
        require(
            counted or not self.average_last,
            "--average-last needs the number of updates: give --max-steps or --max-epochs",
        )
        alone = self.nproc == 1 and not is_launched()
        require(
            alone or not self.seeds,
            "--seeds excludes several processes: its runs follow each other in one",
        )
        require(self.resume or not self.new_data, "--new-data has no effect without --resume")
        towers = self.init_encoder or self.init_decoder
        if self.adapter is not None:
            fields.parse_named("adapter", self.adapter, "--adapter")
            need = "--adapter needs the weights of a model beside which it is trained: --init-from"
            new = "; a run that began without an adapter goes on without one" if self.resume else ""
            require(self.init_from or towers, need + new)
        good = self.thaw in (None, "epoch") or ((self.thaw or "").isdecimal() and self.thaw != "0")
        require(good, f"--thaw must be epoch or a number of updates, got {self.thaw!r}")
        parse_on_nonfinite(self.on_nonfinite)
        known = self.valid_metric == ("auto",) or {*self.valid_metric} <= {*SCORES}
        check_option(self, "valid_metric", known, f"auto or some of {', '.join(SCORES)}")
        require(
            counted or bool(self.max_words or self.max_hours),
            "one of --max-steps, --max-epochs, --max-words and --max-hours is needed",
        )
        for text in self.data:
            parse_weighted(text)
        names = [name for name, _ in self.named_valid]
        twice = next((name for name in names if names.count(name) > 1), None)
        require(twice is None, f"--valid: two sets are called {twice!r}; write NAME=DIR")

    @property
    def scores(self) -> list[str]:
        """The metrics of `--valid-metric`, auto being resolved."""
        if self.valid_metric != ("auto",):
            return [*self.valid_metric]
        best = figure(self.best_metric or "")
        return [score for score, own in SCORES.items() if score in ("rouge", "bleu") or best in own]

    @property
    def max_bad_row(self) -> int:
        """How many updates in a row with NaN or infinity end the run."""
        return parse_on_nonfinite(self.on_nonfinite)

    @property
    def counts_words(self) -> bool:
        """Whether the run needs to count the words it reads."""
        return bool(self.max_words or self.save_at_words)

    @property
    def weighted_data(self) -> list[tuple[Path, float]]:
        """The folders of `--data` and their weights."""
        return [parse_weighted(text) for text in self.data]

    @property
    def named_valid(self) -> list[tuple[str, Path]]:
        """The sets of `--valid`."""
        return [] if self.valid == ("none",) else [parse_named_set(text) for text in self.valid]


def figure(metric: str) -> str:
    """The figure that the name of a validation's value ends with, such as `rouge1`."""
    return metric.rpartition("/")[2]


MEETING = "UNITK_MEETING"
"""Environment variable: the private folder in which the processes of `--nproc` meet."""
LAUNCHER = "UNITK_LAUNCHER"
"""Environment variable: the number of the process that has started them."""


def is_launched() -> bool:
    """Whether `--nproc`, torchrun or another launcher with its variables started this process."""
    return "WORLD_SIZE" in os.environ


class ProcessRanks(NamedTuple):
    """The place of a process among those of its run."""

    rank: int = 0
    world: int = 1  # the number of processes
    local: int = 0  # the rank among those of this machine


def process_ranks() -> ProcessRanks:
    """The place of this process, as its launcher has set it in environment variables."""
    if (world := _read_variable("WORLD_SIZE", 1, 1 << 20) if is_launched() else 1) == 1:
        return ProcessRanks()
    meet = () if MEETING in os.environ else ("MASTER_ADDR", "MASTER_PORT")
    for name in ("RANK", "LOCAL_RANK", *meet):
        require(name in os.environ, f"WORLD_SIZE is {world}, but {name} is not set: use torchrun")
    if meet:
        _read_variable("MASTER_PORT", 1, 65535)
    rank = _read_variable("RANK", 0, world - 1)
    return ProcessRanks(rank, world, _read_variable("LOCAL_RANK", 0, world - 1))


def _read_variable(name: str, low: int, high: int) -> int:
    """The whole number in an environment variable that launchers set."""
    text = os.environ[name]
    require(
        text.isdecimal() and low <= int(text) <= high,
        f"{name} must be a whole number in [{low}, {high}], got {text!r}",
    )
    return int(text)


def parse_on_nonfinite(text: str) -> int:
    """Parse `stop` or `skip:N`: how many bad updates in a row end a run."""
    how, _, number = ("skip:1" if text == "stop" else text).partition(":")
    require(
        how == "skip" and number.isdecimal() and int(number) >= 1,
        f"--on-nonfinite must be stop or skip:N, got {text!r}",
    )
    return int(number)


def parse_weighted(text: str) -> tuple[Path, float]:
    """`DIR=WEIGHT` or `DIR`."""
    path, equals, weight = text.rpartition("=")
    if not equals or Path(text).exists():  # a path may have a = itself
        return fields.local(text, "--data"), 1.0
    try:
        number = float(weight)
    except ValueError:
        number = -1.0
    require(
        0 < number < float("inf"),
        f"--data {text}: what follows = is a weight above 0, got {weight!r}",
    )
    return fields.local(path, "--data"), number


def parse_named_set(text: str) -> tuple[str, Path]:
    """`NAME=DIR`, or `DIR` for the set called valid."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return "valid", fields.local(text, "--valid")
    require(
        name.replace("-", "_").isidentifier() and name != "train",
        f"--valid {text}: {name!r} is not a name for a validation set",
    )
    return name, fields.local(path, "--valid")
