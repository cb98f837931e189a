"""The training loop, in plain sight.

An update is fetched with all its micro-batches; the count of each ask is known before the first
backward, so that every ask has its exact mean over the update. All randomness is a function of
(seed, epoch, example) in the data and of (seed, step, micro-batch) in dropout, so a run that is
stopped and continued computes what it would have computed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from unitk import registry
from unitk.criterions.base import Learning, Loss, check_loss
from unitk.data.batching import FixedBatches, Update, prefetch
from unitk.errors import NonFiniteError, UsageError, refusal, require
from unitk.kernels.products import compute_in
from unitk.registry import nearest
from unitk.slots import Batch
from unitk.training import guard, measures
from unitk.training.checks.data import first_batches
from unitk.training.config import RANKING, figure
from unitk.training.device import derive_seed, frozen_objects, reseed
from unitk.training.reporting import report
from unitk.training.reporting.log import Journal
from unitk.training.reporting.sinks import Event, Sink, choose_loggers, open_sinks
from unitk.training.reporting.watch import Watch
from unitk.training.saving import snapshot
from unitk.training.saving.saver import Saver
from unitk.training.saving.state import Progress
from unitk.training.signals import EXIT, Signals
from unitk.training.start import Start
from unitk.training.updates.late import Late, Passed, UpdatingRun, can_defer

log = logging.getLogger(__name__)


class Trainer(UpdatingRun):
    """Trains a run: makes its updates, and logs, validates and saves between them."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.watch = Watch(self)
        self.saver = Saver(start.run, self.config.keep_last)
        self.saved = self.logged = self.progress.step
        self.late = Late(self) if can_defer(self) else None
        require(
            self.late is not None or not self.config.capture,
            "--capture needs CUDA, and an optimizer that can skip an update there: adamw or muon",
        )
        self.signals = Signals()
        self.began = time.perf_counter()
        generates = self.config.valid_generate
        self.written = registry.get("measure", "written")(self) if generates else None

    def run(self, journal: Journal) -> Generator[Event, None, None]:
        """Train until the end, a signal, or until the caller stops asking for events."""
        config, at = self.config, self.progress
        at.judge_by(self.start.judged_by)
        updates = prefetch(self.updates())
        self.began = time.perf_counter() - at.seconds
        self.model.train()
        traced = self.start.run.path if config.profile and self.ranks.leads else None
        with (
            self.saver,
            self.signals,
            journal as self.journal,
            closing(updates),
            frozen_objects(self.device),
            measures.start_profile(traced) as profiler,
            torch.autograd.set_detect_anomaly(config.detect_anomaly),
        ):
            while True:
                over = self.do_what_is_due()
                try:
                    yield from journal.take_events()
                except GeneratorExit:
                    self.stop()
                    raise
                if over:
                    break
                with self.speed.time("busy"):
                    with self.speed.time("waited"):
                        update, tokens, words = next(updates)
                    self.update(update)
                self.speed.count(update, tokens)
                at.step += 1
                at.epoch, at.cursor = update.epoch, update.cursor  # where a resumed run goes on
                at.tokens += tokens
                at.texts += len(update.ids)
                at.count_words(words, config.save_at_words)
                self.journal.advance(at.step, self.early_lines)
                profiler()
        if self.signals.received:  # perhaps while the last checkpoint was written
            raise SystemExit(EXIT[self.signals.received])

    def update(self, update: Update) -> None:
        """One update; on a GPU the host does not wait for it where `late.can_defer` holds."""
        if self.late is None:
            self.update_waiting(update)
        else:
            self.late.update(update)

    def update_waiting(self, update: Update) -> None:
        """One update: forward and backward passes, and a step if loss and norm are finite.

        An update with NaN or infinity is skipped and reported.
        """
        config, at, plan = self.config, self.progress, self.plan
        computed = self.compute(update)
        # the one wait for the device in an update
        self.norm, loss = torch.stack([computed.norm.double(), computed.total]).tolist()
        if math.isfinite(self.norm) and math.isfinite(loss):
            if 0 < config.clip_norm < self.norm:
                self.ranks.clip(plan.parameters, config.clip_norm, computed.norm)
            plan.step()
            self.stateful.advance()
            if self.average is not None:
                self.average.update(at.step + 1, self.total)
            self.record(computed, self.norm, update)
        elif at.loss_scale(self.precision) > 1 and math.isfinite(loss):
            guard.adapt_loss_scale(at, self.precision, overflow=True)
        else:
            guard.skip(self, self.loss, update, loss)
        plan.zero_grad()

    def begin(self, update: Update) -> dict[str, float]:
        """Set the rates of an update; returns the counts of its asks, of all ranks."""
        at = self.progress
        self.plan.begin(at.step, self.total, at.epoch)
        if update.begins:
            self.stateful.tables = {}
        return self.ranks.total(measures.count_asks(self.criterion, update.batches))

    def compute(self, update: Update) -> Passed:
        """Forward and backward of each micro-batch, and the gradients' norm."""
        # before the first backward pass: an ask's loss is divided by its count in the update
        counts = self.begin(update)
        sums, norm = self.all_ranks(guard.run_fitting(self, self.passes, update, counts))
        mean = Loss(sums, {}).weigh(update.weight, counts)
        # where nothing is asked, the norm is 0, too
        return Passed(sums, counts, norm.double() if mean is None else mean, norm)

    def record(self, computed: Passed, norm: float, update: Update) -> None:
        """Record the losses and the gradient norm of an update."""
        self.noise.add(computed.sums, norm, len(update.ids))
        self.means.weigh(computed.sums, update)
        self.means.add(computed.sums, computed.counts)
        self.progress.bad_row = 0
        guard.adapt_loss_scale(self.progress, self.precision)

    def finish_updates(self) -> None:
        """Wait until the host has read the results of all updates."""
        if self.late is not None:
            self.late.read_pending()

    def passes(self, update: Update, counts: Mapping[str, float]) -> dict[str, Tensor]:
        """Forward and backward of this rank's micro-batches; returns the sums of their losses."""
        means = measures.Means()
        at = self.progress
        parameters = self.plan.parameters
        scale = at.loss_scale(self.precision)
        for number, batch in update.numbered():
            if batch.num_real or self.ranks.sharded:
                loss = self.loss(batch, derive_seed(self.config.seed, at.step, number))
                self.stateful.keep(batch, loss.carry)
                if (total := loss.weigh(update.weight, counts)) is not None:
                    # shards wait for each other: one without texts computes too, and adds nothing
                    self.ranks.backward(self.model, scale * total if batch.num_real else 0 * total)
                means.add(loss.logged if batch.num_real else {}, {})
            if number == update.numbers[0]:
                means.add(self.noise.look(update, at.step, parameters, self.ranks, scale), {})
        return means.sums

    def loss(self, batch: Batch, seed: int) -> Loss:
        """The criterion's sums for a micro-batch; `seed` fixes dropout and the latent's noise."""
        reseed(self.device, seed)
        with compute_in(self.device, self.precision, self.progress.products):
            at = self.progress.step
            batch = self.stateful.attach(batch)
            loss: Loss = self.criterion(self.model, batch, at, self.total)
        return loss

    def early_lines(self) -> tuple[str, str]:
        """The lines to show between two events (`report.early_lines`)."""
        self.finish_updates()
        return report.early_lines(self)

    def do_what_is_due(self) -> bool:
        """Log, validate and save as is due between updates; returns whether the run is over."""
        config, at = self.config, self.progress
        signal = self.agreed_signal()
        end = at.end_reason(config)
        if at.due(self.log_every, self.logged, bool(end)):
            self.log_train()
        if self.data.valid and not signal and at.due(config.valid_every, at.validated, bool(end)):
            self.validate()
            signal = self.agreed_signal()
            end = at.end_reason(config)  # patience may have ended
        if at.due(self.watch.every, self.watch.done, bool(end)):
            self.watch.look(self.model, at.step, self.total, self.plan.rate, self.journal)
        named = [*at.best_steps(config.keep_best), *at.kept.values()]
        if end or signal:
            self.stop()
        elif at.due(config.save_every, self.saved, at.step in named):
            self.save()
        if signal:
            self.signals.received = signal  # of any rank; the run ends with it
            log.info("stopped by a signal after %s; --resume continues", report.summary(at))
        elif end:
            log.info("%s: %s", end, report.summary(at))
            if at.step and at.bad_steps == at.step:
                raise NonFiniteError("nothing was trained: each update had NaN or infinity")
            if at.seconds >= report.LONG and self.ranks.leads and not self.ranks.sharded:
                registry.get("measure", "samples")(self)
        return bool(signal or end)

    def stop(self) -> None:
        """Save the last checkpoint if it is not saved yet; raises if it cannot be written."""
        if self.saved != self.progress.step:
            self.save()
        self.saver.finish()

    def agreed_signal(self, wait: bool = False) -> int:
        """Agree with all ranks on time spent and failed checkpoints; returns a signal, or 0."""
        own = self.signals.received, time.perf_counter() - self.began, self.saver.failed(wait)
        number, self.progress.seconds, failed = self.ranks.all_reduce_max(*own)
        self.progress.forget(int(failed))  # training goes on without the checkpoint of that step
        if failed and failed == self.saved:
            self.saved = -1
        return int(number)

    def interrupted(self) -> bool:
        """Whether a rank has received a signal; all ranks ask at once."""
        return bool(self.ranks.all_reduce_max(self.signals.received)[0])

    def updates(self) -> Iterator[tuple[Update, int, int]]:
        """Yield the further updates on the device, each with its numbers of tokens and words."""
        at = self.progress
        for update, tokens, words in self.data.updates(
            self.feed, at.epoch, at.cursor, at.step, self.total
        ):
            moved = [batch.to(self.device) for batch in update.batches]
            yield replace(update, batches=moved), tokens, words

    def all_ranks(self, sums: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Sum gradients and losses over all ranks; returns the losses and the gradients' norm."""
        parameters = self.plan.parameters
        scale = self.progress.loss_scale(self.precision)
        self.ranks.add_gradients(parameters)
        if scale != 1:
            guard.unscale(parameters, scale)
        if isinstance(self.criterion, Learning):
            self.criterion.learn(self.model, self.ranks.total_tensors)
        return self.ranks.total_tensors(sums), self.ranks.norm(parameters)

    @torch.no_grad()
    def validate(self) -> None:
        """Compute means over each validation set; the first set's loss or --best-metric decides."""
        at = self.progress
        began = time.perf_counter()
        self.finish_updates()
        self.agreed_signal(wait=True)  # what is best depends on which checkpoints there are
        self.model.eval()
        with self.average.apply() if self.average is not None else nullcontext():
            values = self.measure(self.journal.show)
        self.model.train()
        if values is None:  # a signal came: the resumed run validates again
            return
        at.validated = at.step
        self.validation_seconds = time.perf_counter() - began
        metric = self.start.metric
        if metric not in values:
            hint = nearest(metric, values) or f" (known: {', '.join(values)})"
            raise UsageError(f"--best-metric: validation gives no {metric}{hint}")
        best = at.best
        higher = figure(metric) in (*measures.HIGHER, *RANKING)
        at.rank(values[metric], self.config.keep_best, higher=higher)
        at.stale = 0 if at.best != best else at.stale + 1
        shown = measures.valid_line(self.data.valid, values, metric)
        self.journal.event("valid", at.step, values, f"{shown}  ({report.best_so_far(at)})")

    @torch.no_grad()
    def try_out(self) -> None:
        """Compute the loss of an example of each task and set, which refuses what does not fit."""
        self.data.train.loss_weights(self.progress.step + 1, self.total)
        name = self.start.parsed.components["criterion"].name
        name = f"--criterion {name} of {registry.sources('criterion')[name]}"
        require(callable(self.criterion), f"{name}: build returns {self.criterion!r}")
        # computed as in evaluation, but criterions check what they need in training
        self.model.eval()
        self.model.training = True
        eager = torch.compiler.set_stance("force_eager")  # other shapes than those of the run
        with eager, compute_in(self.device, self.precision, self.progress.products):
            for batch in first_batches(self.data, self.config.seed):
                batch = batch.to(self.device)
                loss = self.criterion(self.model, batch, self.progress.step, self.total)
                check_loss(loss, self.criterion.counts(batch), name)
        self.model.train()

    def measure(self, show: Callable[[str], None] = lambda text: None) -> dict[str, float] | None:
        """The values of each validation set, means over its examples; None after a signal."""
        ranks = self.ranks
        values = dict[str, float]()
        config = self.config
        for name, source in self.data.valid.items():
            means = measures.Means()
            batches = FixedBatches(
                source, config.max_tokens, config.valid_texts, ranks.rank, ranks.world
            )
            for done, (number, batch) in enumerate(batches):
                if self.interrupted():
                    return None
                show(f"validating {name} {done}/{len(batches)}")
                if batch.num_real or ranks.sharded:
                    loss = self.loss(batch := batch.to(self.device), number)  # of any run the same
                    means.add(*self.data.task.measure(self.model, batch))
                    if batch.num_real:
                        means.add(loss.logged, self.criterion.counts(batch))
            sums, counts = ranks.total_tensors(means.sums), ranks.total(means.counts)
            weights = source.loss_weights(self.progress.step, self.total)
            values |= measures.Means(sums, counts).values(name, weights)
            if self.written is not None:
                scores = self.written.values(name, source, self.interrupted, show)
                if scores is None:
                    return None
                values |= scores
        return values

    def log_train(self) -> None:
        """Log an event with the means since the last one."""
        self.finish_updates()
        at = self.progress
        self.logged = at.step  # a resumed run logs no step twice
        self.speed.all_ranks(self.ranks.total)
        values = self.means.values("train", self.means.weights) | self.speed.values()
        values |= {"lr": self.plan.rate, "epoch": at.epoch, "tokens": at.tokens, "texts": at.texts}
        if at.words:
            values["words"] = at.words
        values |= {"seconds": at.seconds, "bad_steps": at.bad_steps}
        if math.isfinite(self.norm):
            values["gnorm"] = self.norm
        if (scale := at.loss_scale(self.precision)) != 1:
            values["loss_scale"] = scale
        if noise := self.noise.scale:
            values["noise_scale"] = noise
        self.last = measures.values_line("train", values)
        self.journal.event("train", at.step, values, report.train_line(self, values))
        self.spent.add(self.speed)
        self.means = measures.Means()
        self.speed = measures.Speed()

    def save(self) -> None:
        """Copy the state of the run; a thread writes the checkpoint while training continues."""
        self.finish_updates()
        at = self.progress
        self.saved = at.step
        at.means = self.means.state()
        at.total = self.total
        self.ranks.reshard(self.model)
        carry = {name: self.ranks.gather_rows(own) for name, own in self.stateful.tables.items()}
        if not (self.ranks.leads or self.ranks.sharded):
            return
        taken = snapshot.take_snapshot(
            self.model,
            self.plan.optimizers,
            at,
            self.start.identity,
            self.data.task,
            copy=self.ranks.copy_to_host,
            averages=self.average.tensors if self.average is not None else None,
            carry=carry,
            base=self.base,
        )
        if self.ranks.apart:
            taken = registry.get("measure", "shards")(taken, self.ranks)
        if self.ranks.leads or self.ranks.apart:
            self.saver.save(taken, at.best_steps(self.config.keep_best), dict(at.kept))


def train(start: Start) -> Progress:
    """Train as the options say; returns the progress at the end."""
    trainer = Trainer(start)
    for _ in events(trainer):
        pass
    return trainer.progress


def events(trainer: Trainer) -> Generator[Event, None, None]:
    """Train, and yield the events of log.jsonl."""
    at, ranks = trainer.progress, trainer.ranks
    with ExitStack() as stack:
        stack.callback(ranks.leave)
        if trainer.start.beginning.resumed is None:
            trainer.plan.begin(at.step, trainer.total, at.epoch)  # refuses rates that are none
            trainer.try_out()  # before there is a folder
        sinks = _open_folder(trainer, stack) if ranks.leads else []
        for line in (*report.first_lines(trainer), *report.faster(trainer)):
            log.info("%s", line)
        for line in report.warnings(trainer):
            log.warning("%s", line)
        try:
            journal = Journal(sinks, step=at.step, total=trainer.total, shown=ranks.leads)
            yield from trainer.run(journal)
        finally:
            if ranks.leads:
                trainer.start.run.describe(report.readme(trainer))
                if not trainer.saver.not_mirrored:
                    trainer.saver.mirror(at.step)
                for line in report.last_lines(trainer):
                    log.info("%s", line)


def _open_folder(trainer: Trainer, stack: ExitStack) -> list[Sink]:
    """Lock the run folder until the stack ends, and make it ready; returns what logs into it."""
    start = trainer.start
    at = trainer.progress
    folder = start.run
    try:
        stack.enter_context(folder.lock())
        folder.check(start.config.resume)  # another process may have trained there meanwhile
        folder.create(start.parsed.settings.yaml())
        if start.beginning.resumed is not None:
            folder.rewind(at.step)
            for name, step in {"last": at.step, "best": at.best_step, **at.kept}.items():
                folder.link(name, step)
        sinks = open_sinks(folder.path, choose_loggers(start.config.writers), at.step)
        folder.describe(report.readme(trainer))
        folder.mirror()
    except OSError as error:
        raise UsageError(
            f"--save-dir {start.config.save_dir} cannot be written to: {refusal(error)}"
        ) from error
    return sinks
