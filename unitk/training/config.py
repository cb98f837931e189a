"""The options of `unitk train`; torch is not needed to read, check or explain them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unitk.config import flag
from unitk.errors import at_least, require
from unitk.optim.schedules import Linear
from unitk.values import Schedule, local

KINDS = ("task", "arch", "criterion", "optimizer")  # components a run is made of
CUT = ("blocks", "block_size", "max_source_len", "max_target_len")
"""Options that say what an example is."""
FROZEN = ("seed", "per_label", "stateful_rows", "freeze", "thaw", "group", *CUT)
"""Options that a resumed run cannot change, beside its data and the components' own."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a model: pre-train where the data are text, fine-tune where they are pairs.

    unitk train --task lm --data docs --save-dir lm --max-steps 9000
    unitk train --task lm --data qa --init-from lm --save-dir lm-qa --max-epochs 5
    """

    data: tuple[str, ...]
    """Corpus folder, or a folder with train/ in it; DIR=2.5 shows each text 2.5 times an epoch."""
    valid: tuple[str, ...] = ()
    """[NAME=]DIR of a validation corpus, the first one decides what is best; none: no validation;
    default: valid/ of the first --data."""
    save_dir: Path
    """Run folder for the configuration, the log and the checkpoints."""
    resume: bool = False
    """Continue from the newest good checkpoint of --save-dir, or start if there is none. Options
    that are not given keep the run's values."""
    new_data: bool = False
    """With --resume: --data, --blocks, --block-size and the lengths of pairs may have changed; a
    new epoch then begins, on them."""
    init_from: Path | None = None
    """Run or checkpoint, or name of a model that comes with unitk (`unitk list model`), to take the
    weights from, its architecture unless --arch is given, and the options of the same task."""
    init_encoder: Path | None = None
    """Run or checkpoint to take the encoder's weights from: its tower, or of two the encoder."""
    init_decoder: Path | None = None
    """The same for the decoder and its output layer; cross-attention begins anew."""
    config: Path | None = None
    """YAML file with options; flags win over it."""
    user_dir: Path | None = None
    """Folder of plug-ins: every .py in it is imported."""
    seeds: int | None = None
    """Make so many runs, with --seed, --seed + 1, ..., each in a folder of its own in --save-dir.
    seeds.json there has the mean and the standard deviation of their best validations."""
    per_label: int | None = None
    """Train on so many texts of each class, drawn with --seed; fewer ones are a part of more."""

    max_steps: int | None = None
    """Stop after so many updates."""
    max_epochs: int | None = None
    """Stop after so many passes over the data."""
    max_words: int | None = None
    """Stop after reading so many words of text, repetitions counted, such as 100M."""
    max_hours: float | None = None
    """Stop after so many hours of training, those before a --resume counted."""
    patience: int | None = None
    """Stop after so many validations in a row without a better --best-metric."""

    lr: float = 4e-4
    """Peak learning rate."""
    lr_schedule: Schedule = Linear(warmup=0.06)
    """Course of the learning rate, which --lr is multiplied by."""
    freeze: tuple[str, ...] = ()
    """Parameters that keep their values: patterns of their names, such as 'embed.*,layers.0.*'."""
    thaw: str | None = None
    """Train the output layers first, and one more layer below them each epoch (epoch), or each so
    many updates (a number)."""
    group: tuple[str, ...] = ()
    """Other settings for parameters whose names match: 'PATTERN NAME=VALUE ...' with lr-factor,
    lr-schedule, optimizer and that optimizer's options. May repeat; the first match counts."""
    ema: float | None = None
    """Keep a moving average of the weights with this decay, such as 0.999: validation uses it, and
    so does who loads the model."""
    average_last: float | None = None
    """Average the weights of this last share of the updates, such as 0.2: used as with --ema."""
    clip_norm: float = 1.0
    """Scale gradients of a larger norm down to it; 0: never."""

    max_tokens: int = 8192
    """Most slots of one forward pass on one device."""
    batch_tokens: int | None = None
    """Slots of one update over all devices; default: --max-tokens times devices."""
    batch_texts: int | None = None
    """Texts or pairs of one update, instead of --batch-tokens."""
    stateful_rows: int = 0
    """Rows of an update, each of which reads its own part of the texts in order; what the model
    carries (memory, recurrent state) goes on from update to update. 0: texts are shuffled."""
    blocks: Literal["doc", "full", "stream", "line"] = "doc"
    """Cut texts within documents, across them, at fixed windows, or one a line."""
    block_size: int | Schedule = 512
    """Most tokens of a text, the special symbols around it counted; a schedule counts epochs, and
    cuts each epoch anew: constant:value=512,warmup=4 gives 128, 256, 384 and 512 from then on."""
    max_source_len: int | None = None
    """Shorten longer sources; default: what the architecture's positions allow."""
    max_target_len: int | None = None
    """Shorten longer targets; default: half of the architecture's positions."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """bf16: autocast over fp32 weights; auto: bf16 where the processor computes in it; fp16: for
    GPUs without bf16, the loss scaled so that small gradients survive (not yet run on a GPU)."""
    products: Literal["auto", "torch", "onednn"] = "auto"
    """Library for fp32 matrix products on CPU; auto: oneDNN where 50 ms of measurement find it
    faster, which a resumed run keeps. Name one where other runs must be equal in every bit."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a GPU."""
    attention: Literal["auto", "dense", "flex"] = "auto"
    """How slots see each other. auto: no mask or the causal one where that is exact, else a dense
    mask, on CUDA from 1,024 slots on FlexAttention; dense and flex: always that (flex: CUDA)."""
    recompute: bool = False
    """Keep what enters a layer only, and run the layer again in backward: about a third more work
    for a fraction of the memory."""
    compile: bool = False
    """Compile the layers with torch.compile: faster on CUDA after a minute, rarely on a CPU."""
    profile: bool = False
    """Profile a few updates: a trace in --save-dir, and the ten most expensive operations."""
    detect_anomaly: bool = False
    """Let PyTorch name the operation whose gradient is NaN; slow."""
    deterministic: bool = False
    """Use deterministic CUDA kernels, so that a resumed run is bit-identical (slower)."""
    threads: int | None = None
    """Processor threads; default: PyTorch's choice."""
    nproc: int = 1
    """Processes to start on this machine, each with a GPU of its own where there are some; by
    torchrun, which also starts those of several machines."""
    shard: bool = False
    """Each process holds only its part of weights, gradients and optimizer (FSDP2), for models that
    do not fit on one device."""
    rank_timeout: float = 600.0
    """Seconds after which a process that does not answer counts as gone."""
    seed: int = 1
    """Fixes the weights at the start, the order of examples, their draws and dropout."""
    on_nonfinite: str = "skip:10"
    """Updates with NaN or infinity are never made. stop: the first one ends the run; skip:N: N in a
    row do."""
    oom_retry: bool = False
    """Where a micro-batch does not fit into memory, try again with half of it."""

    log_every: int | None = None
    """Updates between log lines; default: a 40th of the run, but at most 50."""
    valid_every: int = 500
    """Updates between validations; there is one at the end too."""
    valid_texts: int | None = None
    """Texts or pairs of each validation set that are used, at equal distances; default: all."""
    panel_every: int = 500
    """Updates between looks at what the criterion shows beside its loss (elbo: whether the latent
    is used); there is one at the end too. 0: none."""
    panel_texts: int = 256
    """Texts of the first validation set that are looked at."""
    save_every: int = 500
    """Updates between checkpoints; there is one at the end too."""
    save_at_words: tuple[int, ...] = ()
    """Words read at which a checkpoint is kept beside all others: 1M,2M,...,10M,20M,...,100M makes
    --save-dir/words_1M and so on, of the first update that reaches them. The optimizer's state
    is removed from those that are neither among the newest nor the best."""
    keep_last: int = 2
    """Newest checkpoints that are kept."""
    keep_best: int = 1
    """Best checkpoints that are kept beside them."""
    writers: tuple[str, ...] = ("auto",)
    """Where values go beside log.jsonl: csv, tensorboard, wandb, none; auto: TensorBoard where it
    is installed."""
    best_metric: str | None = None
    """Metric that selects the best checkpoint: the lowest one, of shares that are correct (such as
    valid/label/correct) the highest; default: valid/loss (with the first set's name)."""

    def __post_init__(self) -> None:
        require(len(self.data) > 0, "--data needs a corpus folder")
        scheduled = () if isinstance(self.block_size, int) else ("block_size",)
        at_least(self, **{name: 1 for name in COUNTS if name not in scheduled})
        at_least(self, seed=0, clip_norm=0, panel_every=0, stateful_rows=0)
        least = min(self.save_at_words, default=1)
        require(least >= 1, f"--save-at-words must be at least 1, got {least}")
        for name in ("lr", "max_hours", "rank_timeout"):
            value = getattr(self, name)
            good = value is None or 0 < value < float("inf")
            require(good, f"{flag(name)} must be above 0 and finite, got {value}")
        most = 64 * (os.cpu_count() or 1)
        require(
            (self.threads or 1) <= most, f"--threads must be at most {most}, got {self.threads}"
        )
        for name in ("ema", "average_last"):
            value = getattr(self, name)
            good = value is None or 0 < value < 1
            require(good, f"{flag(name)} must be in (0, 1), got {value}")
        require(not (self.ema and self.average_last), "--ema and --average-last exclude each other")
        require(
            not self.average_last or bool(self.max_steps or self.max_epochs),
            "--average-last needs the number of updates: give --max-steps or --max-epochs",
        )
        require(
            self.batch_tokens is None or self.batch_texts is None,
            "--batch-tokens and --batch-texts exclude each other",
        )
        alone = self.nproc == 1 and not launched()
        require(
            alone or not self.seeds,
            "--seeds excludes several processes: its runs follow each other in one",
        )
        require(self.resume or not self.new_data, "--new-data has no effect without --resume")
        towers = self.init_encoder or self.init_decoder
        require(
            not (self.init_from and towers),
            "--init-from excludes --init-encoder and --init-decoder: it has both towers' weights",
        )
        good = self.thaw in (None, "epoch") or (self.thaw or "").isdecimal() and self.thaw != "0"
        require(good, f"--thaw must be epoch or a number of updates, got {self.thaw!r}")
        bad_steps(self.on_nonfinite)
        require(
            bool(self.max_steps or self.max_epochs or self.max_words or self.max_hours),
            "one of --max-steps, --max-epochs, --max-words and --max-hours is needed",
        )
        for text in self.data:
            weighted(text)
        names = [name for name, _ in self.named_valid]
        twice = next((name for name in names if names.count(name) > 1), None)
        require(twice is None, f"--valid: two sets are called {twice!r}; write NAME=DIR")

    @property
    def bad_steps(self) -> int:
        """How many updates in a row with NaN or infinity end the run."""
        return bad_steps(self.on_nonfinite)

    @property
    def counts_words(self) -> bool:
        """Whether the words that are read matter."""
        return bool(self.max_words or self.save_at_words)

    @property
    def weighted_data(self) -> list[tuple[Path, float]]:
        """The folders of `--data` and their weights."""
        return [weighted(text) for text in self.data]

    @property
    def named_valid(self) -> list[tuple[str, Path]]:
        """The sets of `--valid`."""
        return [] if self.valid == ("none",) else [named(text) for text in self.valid]


COUNTS = (
    "max_steps", "max_epochs", "max_words", "patience", "max_tokens", "batch_tokens", "batch_texts",
    "block_size", "max_source_len", "max_target_len", "threads",
    "log_every", "valid_every", "save_every", "keep_last", "keep_best", "nproc",
    "panel_texts", "valid_texts", "seeds", "per_label",
)  # fmt: skip
"""Options that count something: 1 or more."""


def launched() -> bool:
    """Whether torchrun, or another launcher with its variables, started this process."""
    return "WORLD_SIZE" in os.environ


def place() -> tuple[int, int, int]:
    """This process's number in the run, how many there are, and its number on this machine."""
    world = int(os.environ.get("WORLD_SIZE", "1"))  # the names that torchrun sets
    if world == 1:
        return 0, 1, 0
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR"):
        there = name in os.environ
        require(there, f"WORLD_SIZE is {world}, but {name} is not set: use torchrun")
    return int(os.environ["RANK"]), world, int(os.environ["LOCAL_RANK"])


def bad_steps(text: str) -> int:
    """`stop` or `skip:N` as how many bad updates in a row end a run."""
    how, _, number = ("skip:1" if text == "stop" else text).partition(":")
    good = how == "skip" and number.isdecimal() and int(number) >= 1
    require(good, f"--on-nonfinite must be stop or skip:N, got {text!r}")
    return int(number)


def weighted(text: str) -> tuple[Path, float]:
    """`DIR=WEIGHT` or `DIR`."""
    path, equals, weight = text.rpartition("=")
    if not equals or Path(text).exists():  # a path may have a = itself
        return local(text, "--data"), 1.0
    try:
        number = float(weight)
    except ValueError:
        number = -1.0
    require(
        0 < number < float("inf"),
        f"--data {text}: what stands after = is a weight above 0, got {weight!r}",
    )
    return Path(path), number


def named(text: str) -> tuple[str, Path]:
    """`NAME=DIR`, or `DIR` for the set called valid."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return "valid", local(text, "--valid")
    require(
        name.replace("-", "_").isidentifier() and name != "train",
        f"--valid {text}: {name!r} is no name for a validation set",
    )
    return name, Path(path)
