"""What a training run consists of, made from its options; `loop.py` trains with it."""

from __future__ import annotations

import logging
import math
from contextlib import nullcontext

import torch

from unitk.criterions.base import undivided
from unitk.data.batching import Feed
from unitk.kernels.products import choose_products
from unitk.models.attention import fused
from unitk.models.model import Model, build
from unitk.models.state import StatefulRows
from unitk.optim.config import parse_rules
from unitk.optim.plan import OptimPlan, freeze
from unitk.training.device import (
    check_room,
    choose_device,
    choose_precision,
    configure_torch,
    mix,
    prepare_model,
)
from unitk.training.ema import Average
from unitk.training.measures import Means, Noise, Speed
from unitk.training.parallel import Ranks, join
from unitk.training.saving import checkpoint
from unitk.training.saving.begin import begin
from unitk.training.saving.state import Progress, plugins_named, read_state
from unitk.training.start import Start

log = logging.getLogger(__name__)


class Run:
    """The model, criterion, optimizer, data, progress and measures of a training run."""

    def __init__(self, start: Start) -> None:
        config, parts = start.config, start.parsed.components
        self.start, self.config, self.data = start, config, start.data
        self.ranks = join(config.shard)
        self.device = choose_device(config.device, self.ranks.local)
        configure_torch(config, self.device)
        self.precision = choose_precision(config, self.device)
        self.ranks.connect(self.device, config.rank_timeout)
        self.ranks.check_same(f"{start.identity} {start.resumed} {start.beginning}")
        torch.manual_seed(mix(config.seed))  # of the weights; dropout has seeds of its own
        self.model = beginning(start, self.device, self.ranks)
        self.criterion = parts["criterion"].config.build(self.data.vocab)
        own = parts["optimizer"].config
        given = config.lr, config.lr_schedule, parse_rules(config.group, own), config.thaw
        self.plan = OptimPlan(self.model, own, *given, fused(self.model))
        self.ranks.prepare(self.plan.optimizers)
        averaged = config.ema, config.average_last
        self.average = Average(self.model, *averaged) if any(averaged) else None
        self.progress = Progress()
        if (resumed := start.resumed) is not None:
            optimizers, average = self.plan.optimizers, self.average
            self.progress = checkpoint.restore(resumed, self.model, optimizers, average, self.ranks)
            if start.new_epoch:
                self.progress.epoch, self.progress.cursor = self.progress.epoch + 1, 0
        carried = checkpoint.load_carry(resumed, self.device)
        self.stateful = StatefulRows(config.stateful_rows, carried)
        eager = self.device.type == "cpu" and self.precision == "fp32" and not config.compile
        arch, recorded = self.model.config, self.progress.products
        rows, widths = config.max_tokens, (arch.width, arch.ffn_width)
        found = choose_products(config.products, eager, recorded, rows, widths)
        if found is not None:  # all ranks compute as the first one does
            found = self.ranks.all_gather_texts(" ".join(found))[0].split()
        self.progress.products = found
        self.means, self.speed, self.spent = Means(**self.progress.means), Speed(), Speed()
        self.noise = Noise(self.progress.noise)
        # the norm of the last update, the last losses, and the seconds of the last validation
        self.norm, self.last, self.validation_seconds = math.nan, "", 0.0
        self.feed = Feed(
            examples=self.data.train.examples,
            seed=config.seed,
            max_tokens=config.max_tokens,
            batch_tokens=config.batch_tokens or config.max_tokens,
            batch_texts=config.stateful_rows or config.batch_texts,
            rows=config.stateful_rows,
            backward=self.data.task.backward,
            undivided=bool(undivided(self.criterion)),
            rank=self.ranks.rank,
            world=self.ranks.world,
        )
        self.per_epoch = self.feed.updates_per_epoch()
        epochs = config.max_epochs and config.max_epochs * self.per_epoch
        if config.max_epochs and not isinstance(config.block_size, int):
            epochs = sum(map(self.feed.updates_per_epoch, range(config.max_epochs)))
        words = config.max_words and self.data.updates_until(self.feed, config.max_words)
        self.total = min(filter(None, [config.max_steps, epochs, words]), default=None)
        self.log_every = config.log_every or max(1, min(50, (self.total or 2000) // 40))


def beginning(start: Start, device: torch.device, ranks: Ranks) -> Model:
    """The model of a run on the device, with its initial or restored weights."""
    config, data = start.config, start.data
    arch, vocabs = start.parsed.components["arch"].config, (data.vocab, data.task.source_vocab)
    parted = ranks.world if config.shard else 1
    # a weight, its gradient and two averages of AdamW, four bytes each
    check_room(arch, len(data.vocab), 16 / parted, device)
    folder = start.resumed or start.init_from
    with plugins_named(read_state(folder), folder) if folder else nullcontext():
        model = build(arch, *map(len, vocabs))
    if folder:
        fresh = start.resumed is None
        checkpoint.load_weights(model, folder, averages=fresh, task=data.task if fresh else None)
        rows = checkpoint.imported_rows(folder).get("embed.tokens.weight", len(data.vocab))
        if added := len(data.vocab) - rows:
            log.info("from now on the rows that the import added have a probability: %d", added)
    begin(model, data.task.tables if start.resumed is None else {}, start.init_towers)
    freeze(model, config.freeze)
    ranks.to_device(model, device)
    prepare_model(model, config)
    return model
