"""The training loop, in plain sight.

An update is fetched with all its micro-batches; the count of each ask is known before the first
backward, so that every ask has its exact mean over the update. All randomness is a function of
(seed, epoch, example) in the data and of (seed, step, micro-batch) in dropout, so a run that is
stopped and continued computes what it would have computed (DESIGN 6).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unitk.criterions.base import Loss
from unitk.data.batching import Feed, Update, fixed_batches, prefetch
from unitk.errors import CheckpointError, NonFiniteError, UsageError, require
from unitk.registry import nearest
from unitk.slots import Batch
from unitk.train import checkpoint
from unitk.train.device import choose_device, choose_precision
from unitk.train.log import Journal
from unitk.train.means import Means, Speed, told
from unitk.train.signals import EXIT, Signals
from unitk.train.start import Start
from unitk.train.state import Progress

log = logging.getLogger(__name__)


def mix(seed: int, *numbers: int) -> int:
    """A seed for torch from the run's seed and what it is for (step, micro-batch)."""
    sequence = np.random.SeedSequence(seed, spawn_key=numbers)
    return int(sequence.generate_state(1, np.uint64)[0])


class Trainer:
    """A run: model, criterion, optimizer, and how far they have come."""

    def __init__(self, start: Start) -> None:
        config, parts = start.config, start.parsed.components
        self.start, self.config, self.ranks, self.data = start, config, start.ranks, start.data
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.device = choose_device(config)
        self.precision = choose_precision(config, self.device)
        torch.manual_seed(mix(config.seed))
        sizes = len(self.data.vocab), len(self.data.task.source_vocab)
        self.model = parts["arch"].config.build(*sizes).to(self.device)
        if start.init_from is not None:
            checkpoint.load_weights(self.model, start.init_from)
        for tower, folder in start.init_towers.items():
            require(
                hasattr(self.model, "encoder"),
                f"--init-{tower}: --arch {parts['arch'].name} has no encoder beside a decoder;"
                " --init-from takes all of its weights",
            )
            checkpoint.load_tower(self.model, tower, folder)
        self.criterion = parts["criterion"].config.build(len(self.data.vocab))
        self.optimizer = parts["optimizer"].config.build(self.model, config.lr)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.progress = Progress()
        if start.resumed is not None:
            self.progress = checkpoint.restore(start.resumed, self.model, self.optimizer)
        self.saved = self.progress.step
        self.best_before = self.progress.best, self.progress.best_step
        self.means, self.speed = Means(**self.progress.means), Speed()
        self.rate, self.norm = 0.0, math.nan
        self.feed = Feed(
            examples=self.data.train.examples,
            seed=config.seed,
            max_tokens=config.max_tokens,
            batch_tokens=config.batch_tokens or config.max_tokens,
            batch_texts=config.batch_texts,
            rank=self.ranks.rank,
            world=self.ranks.world,
        )
        self.per_epoch = self.feed.updates_per_epoch()
        ends = [config.max_steps, config.max_epochs and config.max_epochs * self.per_epoch]
        self.total = min((end for end in ends if end), default=None)

    def run(self, journal: Journal) -> None:
        """Train until one of the ends is reached or a signal asks to stop."""
        config, at = self.config, self.progress
        updates = prefetch(self.updates())
        began = time.perf_counter() - at.seconds
        self.model.train()
        with Signals() as signals, journal as self.journal, closing(updates):
            while True:
                signal, end = self.ranks.agree(signals.received), self.end()
                if signal is None and self.due(config.valid_every, at.validated, bool(end)):
                    self.validate()
                    end = self.end()  # patience may have ended
                last, best = bool(end or signal), at.best_step == at.step
                if self.due(config.save_every, self.saved, last or best):
                    self.save(last)
                if signal is not None:
                    log.info("stopped by a signal after %s; --resume continues", self.so_far())
                    raise SystemExit(EXIT[signal])
                if end:
                    log.info("%s: %s", end, self.so_far())
                    return
                with self.speed.at_work():
                    with self.speed.waiting():
                        update, tokens = next(updates)
                    self.update(update)
                self.speed.count(update, tokens)
                at.step += 1
                at.epoch, at.cursor = update.epoch, update.cursor
                at.tokens, at.texts = at.tokens + tokens, at.texts + len(update.ids)
                at.seconds = time.perf_counter() - began
                self.journal.advance(at.step)
                if at.step % config.log_every == 0 or self.end():
                    self.log_train()

    def updates(self) -> Iterator[tuple[Update, int]]:
        """The updates to come, on the device, each with the number of its tokens."""
        at = self.progress
        place = at.epoch, at.cursor, at.step, self.total
        for update, tokens in self.data.updates(self.feed, *place):
            yield replace(update, batches=[b.to(self.device) for b in update.batches]), tokens

    def due(self, every: int, done: int, now: bool) -> bool:
        """Whether what was last done at step `done` is to be done at this one."""
        step = self.progress.step
        return step != done and (now or step % every == 0)

    def end(self) -> str:
        """Why the run is over, or nothing."""
        config, at = self.config, self.progress
        if config.max_steps and at.step >= config.max_steps:
            return "--max-steps reached"
        if config.max_epochs and at.epoch >= config.max_epochs:
            return "--max-epochs reached"
        if config.max_hours and at.seconds >= 3600 * config.max_hours:
            return "--max-hours reached"
        if config.patience and at.stale >= config.patience:
            return f"no better validation for {at.stale} times (--patience)"
        return ""

    def update(self, update: Update) -> None:
        """Forward and backward of all micro-batches, clip, step; NaN or infinity: no step."""
        config, step = self.config, self.progress.step
        self.rate = config.lr * config.lr_schedule(step + 1, self.total)
        counts: dict[str, float] = {}
        for batch in update.batches:
            for name, count in self.criterion.counts(batch).items():
                counts[name] = counts.get(name, 0.0) + count
        counts = self.ranks.total(counts)
        means = Means(counts=counts)
        for number, batch in zip(update.numbers, update.batches, strict=True):
            self.reseed(mix(config.seed, step, number))
            loss = self.loss(batch)
            # an ask that the whole update does not ask has no mean
            asks = [
                update.weight(name) * total / counts[name]
                for name, total in loss.sums.items()
                if counts[name]
            ]
            if asks:
                torch.autograd.backward(torch.stack(asks).sum())
            means.add({**loss.sums, **loss.parts}, {})
        means.sums = self.ranks.total_tensors(means.sums)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        total = torch.stack([means.sums[name] for name in counts if name in means.sums]).sum()
        # the one wait for the device in an update
        self.norm, value = torch.stack([norm.double(), total]).tolist()
        if math.isfinite(self.norm) and math.isfinite(value):
            if 0 < config.clip_norm < self.norm:
                torch.nn.utils.clip_grads_with_norm_(self.parameters, config.clip_norm, norm)
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate
            self.optimizer.step()
            self.means.add(means.sums, counts)
            self.progress.bad_row = 0
        else:
            self.skip(update, value)
        self.optimizer.zero_grad()

    def reseed(self, seed: int) -> None:
        """Seed the device's generator (`torch.manual_seed` seeds all, six times as slowly)."""
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    def loss(self, batch: Batch) -> Loss:
        """The criterion's sums for a micro-batch."""
        bf16 = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            loss: Loss = self.criterion(self.model, batch, self.progress.step, self.total)
        return loss

    def skip(self, update: Update, loss: float) -> None:
        """Count and report an update with NaN or infinity; too many in a row end the run."""
        config, at = self.config, self.progress
        at.bad_steps, at.bad_row = at.bad_steps + 1, at.bad_row + 1
        some = ", ".join(map(str, update.ids[:8])) + (", ..." if len(update.ids) > 8 else "")
        what = f"loss {loss:g}, gradient norm {self.norm:g}"
        log.warning(
            "step %d: %s: skipped (%d in a row, %d in all); examples %s",
            *(at.step + 1, what, at.bad_row, at.bad_steps, some),
        )
        if at.bad_row < config.max_bad_steps:
            return
        path = self.start.run.path / f"bad-step-{at.step + 1}.npz"
        try:
            save_batches(path, update)
            where = f"is in {path}"
        except OSError as error:
            where = f"could not be saved: {error}"
        raise NonFiniteError(
            f"{at.bad_row} updates in a row had NaN or infinity (--max-bad-steps), the last one"
            f" with {what}; its batch {where}; the checkpoints before it are good"
        )

    @torch.no_grad()
    def validate(self) -> None:
        """Means over each validation set; the first set's loss, or --best-metric, decides."""
        config, at = self.config, self.progress
        at.validated = at.step
        if not self.data.valid:
            return
        self.model.eval()
        values: dict[str, float] = {}
        for name, source in self.data.valid.items():
            means = Means()
            for number, batch in enumerate(fixed_batches(source.examples, config.max_tokens)):
                self.reseed(number)  # for models that draw noise; the same in every run
                loss = self.loss(batch.to(self.device))
                means.add({**loss.sums, **loss.parts}, self.criterion.counts(batch))
            values |= means.values(name)
        self.model.train()
        metric = config.best_metric or f"{next(iter(self.data.valid))}/loss"
        if metric not in values:
            hint = nearest(metric, values) or f" (known: {', '.join(values)})"
            raise UsageError(f"--best-metric: validation gives no {metric}{hint}")
        self.best_before = at.best, at.best_step
        at.stale += 1
        if math.isfinite(values[metric]) and (at.best is None or values[metric] < at.best):
            at.best, at.best_step, at.stale = values[metric], at.step, 0
        shown = "  ".join(f"{name} {told(name, values, 'ppl')}" for name in self.data.valid)
        self.journal.event("valid", at.step, values, f"{shown}  ({self.so_best()})")

    def log_train(self) -> None:
        """A log event over the updates since the last one."""
        at = self.progress
        seconds_each = self.speed.busy / self.speed.updates
        values = self.means.values("train") | self.speed.values()
        values |= {"lr": self.rate, "epoch": at.epoch, "tokens": at.tokens, "texts": at.texts}
        values |= {"seconds": at.seconds, "bad_steps": at.bad_steps}
        if math.isfinite(self.norm):
            values["gnorm"] = self.norm
        line = f"{told('train', values)}  lr {self.rate:.2e}  gnorm {self.norm:.3g}"
        line += f"  {values['tokens/s']:,.0f} tokens/s"
        left = f"  eta {clock(seconds_each * (self.total - at.step))}" if self.total else ""
        self.journal.event("train", at.step, values, line, left)
        self.means, self.speed = Means(), Speed()

    def save(self, last: bool) -> None:
        """Write a checkpoint; where the disk refuses, what is there stays and training goes on."""
        at, folder = self.progress, self.start.run
        at.means = self.means.state()
        try:
            folder.publish(
                at.step,
                lambda path: checkpoint.write(
                    path, self.model, self.optimizer, at, self.start.identity, self.data.task
                ),
            )
            self.saved = at.step
            folder.link("last", at.step)
            folder.link("best", at.best_step)
            folder.prune(self.config.keep_last, at.best_step)
        except OSError as error:
            message = (
                f"checkpoint of step {at.step} cannot be saved: {error}; earlier ones are kept"
            )
            if last:
                raise CheckpointError(message) from error
            log.warning("%s; training goes on", message)
            if self.saved != at.step and at.best_step == at.step:
                at.best, at.best_step = self.best_before  # the best one is one that exists

    def so_best(self) -> str:
        """The best validation yet, in words."""
        at = self.progress
        if at.best is None:
            return "none was finite"
        return "best yet" if at.stale == 0 else f"best {at.best:.4g} at step {at.best_step:,}"

    def so_far(self) -> str:
        """What was done, in words."""
        at = self.progress
        best = f"; best {at.best:.4g} at step {at.best_step:,}" if at.best is not None else ""
        bad = f", {at.bad_steps:,} skipped" if at.bad_steps else ""
        return (
            f"{at.step:,} updates{bad}, {at.tokens:,} tokens of {at.texts:,} texts"
            f" in {clock(at.seconds)}{best}"
        )

    def announce(self) -> None:
        """The first lines of a run: what is trained, on what, where."""
        start, data, feed = self.start, self.data, self.feed
        parts = start.parsed.components
        slots, texts = f"{feed.batch_tokens:,} slots", f"{feed.batch_texts or 0:,} texts"
        examples = len(data.train.examples.bounds(0))
        weights = sum(parameter.numel() for parameter in self.model.parameters())
        lines = [
            f"{data.about} with task {start.parsed.values()['task']}, {start.beginning}",
            f"train: {data.train.about}; an epoch is {examples:,} examples, {self.per_epoch:,}"
            f" updates of {texts if feed.batch_texts else slots}",
            *(f"{name}: {source.about}" for name, source in data.valid.items()),
            f"model: {parts['arch'].name}, {weights / 1e6:.1f} M parameters,"
            f" vocabulary of {len(data.vocab):,}",
            f"on {self.device.type} ({torch.get_num_threads()} threads), {self.precision}",
        ]
        for line in lines:
            log.info("%s", line)
        for name, source in {"train": data.train, **data.valid}.items():
            if source.shortened:
                log.warning("%s: %s", name, source.shortened)


def train(start: Start) -> Progress:
    """Train as the options say; returns how far the run came."""
    trainer, folder = Trainer(start), start.run
    at = trainer.progress
    try:
        folder.create(start.parsed.yaml())
        if start.resumed is not None:
            folder.rewind(at.step)
            folder.link("last", at.step)
            folder.link("best", at.best_step)
        journal = Journal(folder.path, step=at.step, total=trainer.total)
    except OSError as error:
        raise UsageError(f"--save-dir {folder.path} cannot be written to: {error}") from error
    trainer.announce()
    trainer.run(journal)
    return at


def save_batches(path: Path, update: Update) -> None:
    """The batches of an update as plain arrays: "0/x" are slots, "0/lm/rows" an ask's."""
    arrays: dict[str, Any] = {"ids": update.ids}
    for number, batch in zip(update.numbers, update.batches, strict=True):
        arrays |= {f"{number}/{tower}": table.cpu() for tower, table in batch.towers.items()}
        for name, ask in batch.asks.items():
            for part in ("rows", "label", "weight"):
                arrays[f"{number}/{name}/{part}"] = getattr(ask, part).cpu()
    np.savez(path, **arrays)


def clock(seconds: float) -> str:
    """`h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
