"""unitk's objectives in fairseq's trainer, for the folder that `unitk fairseq-plugin` writes.

unitk makes the examples, the model and the loss. Optimizer, learning rate, batches, precision and
checkpoints are fairseq's. Importing this module needs fairseq (`unitk[fairseq]`).
"""

# no `from __future__ import annotations`: fairseq wants the types of options, not their names

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import FairseqDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II
from torch import Tensor, nn

from unitk import registry
from unitk.criterions.base import Criterion, Loss
from unitk.data.batching import Examples, draw, make_batch
from unitk.data.examples import Data, open_data
from unitk.errors import UnitkError, UsageError, require
from unitk.formats.fairseq_own import MODEL, TASK
from unitk.models.model import build
from unitk.options.config import Parsed, parse
from unitk.slots import Batch, Example, Ids
from unitk.training.checks.data import check_data
from unitk.training.config import TrainConfig
from unitk.training.saving.checkpoint import load_weights
from unitk.training.saving.folder import find_checkpoint
from unitk.training.saving.state import read_state
from unitk.training.start import add_heads

UnitkError.with_flags = True  # fairseq-train is a command line
NAME = "unitk"
GIVEN = ("task", "arch", "criterion")
OWN = ("criterion", "init_from", "blocks", "block_size", "max_source_len", "max_target_len")
"""Options of `unitk train` that --unitk-options takes, beside those of the components."""


@dataclass
class TaskOptions(FairseqDataclass):
    data: str = field(
        default="", metadata={"help": "folder that `unitk preprocess` made, or a data-bin"}
    )
    unitk_options: str = field(
        default="",
        metadata={
            "help": "options of `unitk train` without dashes, such as 'block-size=128"
            f" task.mean-span=5 arch.dropout=0': {', '.join(OWN)}, and of {', '.join(GIVEN)}"
        },
    )
    seed: int = II("common.seed")


@dataclass
class ModelOptions(FairseqDataclass):
    unitk_arch: str = field(
        default="", metadata={"help": "architecture of unitk; default: that of the task"}
    )


@dataclass
class CriterionOptions(FairseqDataclass):
    max_update: int = II("optimization.max_update")


class UnitkDataset(FairseqDataset):
    """The examples of a split: drawn anew for each epoch in training, otherwise always the same."""

    # draws change with the epoch, and with them the lengths that batches are made of
    can_reuse_epoch_itr_across_epochs = False

    def __init__(self, source: Examples, seed: int | None) -> None:
        self.source = source
        self.seed = seed
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        # fairseq counts epochs from 1; validation has the draws of epoch 0 for ever
        self.epoch = epoch - 1 if self.seed is not None else 0
        self.sizes = self.source.bounds(self.epoch)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Example:
        return draw(self.source, self.seed or 0, self.epoch, int(index))

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    size = num_tokens

    def num_tokens_vec(self, indices: Ids) -> Ids:
        return self.sizes[indices]

    def ordered_indices(self) -> Ids:
        """The examples sorted by length; equal lengths are in an order that fairseq has seeded."""
        # stable, so that equal lengths keep the shuffled order
        order = np.random.permutation(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    def batch_by_size(self, indices: Ids, *limits: Any, **named: Any) -> list[Ids]:
        """The batches of all examples. fairseq-fixed leaves out a last one that is no multiple of
        `--required-batch-size-multiple`, also in validation.
        """
        batches: list[Ids] = super().batch_by_size(indices, *limits, **named)
        rest = indices[sum(map(len, batches)) :]
        return [*batches, rest] if len(rest) else batches

    def collater(self, samples: Sequence[Example]) -> dict[str, Any]:
        """Collate examples to a batch, with the counts that fairseq expects."""
        batch = make_batch(samples)
        return {"batch": batch, "nsentences": len(samples), "ntokens": batch.num_real}


class UnitkTask(FairseqTask):
    """A task of unitk. Data are opened with the model, because they depend on the architecture."""

    objective: ClassVar[str]
    source_dictionary = target_dictionary = None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        known = hasattr(cfg, "unitk_arch")
        require(known, f"--task {TASK}{self.objective} needs --arch {NAME} or {NAME}_NAME")
        self.parsed = parse_options(self.objective, cfg.unitk_arch, self.cfg)
        self.opened = self.open_split("train")
        self.parsed = add_heads(self.parsed, self.opened.heads)
        return super().build_model(cfg, from_checkpoint)

    def build_criterion(self, cfg: Any) -> FairseqCriterion:
        require(cfg._name == NAME, f"--task {TASK}{self.objective} needs --criterion {NAME}")
        return super().build_criterion(cfg)

    def open_split(self, split: str) -> Data:
        # fairseq asks for its splits one by one
        main = replace(self.parsed.main, valid=("none",))
        if split != "train":
            main = replace(main, valid=(f"{split}={Path(self.cfg.data) / split}",))
        return open_data(replace(self.parsed, main=main))

    def load_dataset(self, split: str, combine: bool = False, **options: Any) -> None:
        if split == "train":
            self.datasets[split] = UnitkDataset(self.opened.train, self.cfg.seed)
        else:
            self.datasets[split] = UnitkDataset(self.open_split(split).valid[split], None)

    def max_positions(self) -> None:
        """No limit: a layout never exceeds the positions of the architecture."""


class UnitkModel(BaseFairseqModel):
    """A model of unitk. Its forward pass computes the loss, as fairseq's engines expect."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.step = 0

    @classmethod
    def build_model(cls, cfg: Any, task: UnitkTask) -> "UnitkModel":
        data = task.opened
        main = task.parsed.main
        sizes = len(data.vocab), len(data.task.source_vocab)
        network = build(task.parsed.components["arch"].config, *sizes)
        if main.init_from is not None:
            folder = find_checkpoint(main.init_from)
            check_data(read_state(folder), data, folder)
            load_weights(network, folder, averages=True)
        return cls(network)

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Tensors by the names that unitk stores, which `convert --from fairseq` reads."""
        return {MODEL + name: tensor for name, tensor in self.network.state_dict().items()}

    def upgrade_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in list(state_dict):
            inner = self.network.inner(name.removeprefix(MODEL))
            state_dict[MODEL + inner] = state_dict.pop(name)

    def set_num_updates(self, num_updates: int) -> None:
        self.step = num_updates

    def forward(self, criterion: Criterion, batch: Batch, total: int | None) -> Loss:
        device = next(self.parameters()).device
        return criterion(self.network, batch.to(device), self.step, total)

    def max_positions(self) -> None:
        """No limit, as in the task."""


class UnitkLoss(FairseqCriterion):
    """The task's criterion; the weight of a batch is its number of predictions, as in fairseq's."""

    def __init__(self, cfg: Any, task: UnitkTask) -> None:
        super().__init__(task)
        require(isinstance(task, UnitkTask), f"--criterion {NAME} needs a task of unitk")
        self.total = cfg.max_update or None
        self.criterion = task.parsed.components["criterion"].config.build(task.opened.vocab)
        self.weights = task.opened.train.asks

    def forward(
        self, model: nn.Module, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, float, dict[str, Any]]:
        """The loss times the number of predictions, that number, and the values to log.

        The loss is the weighted sum of the asks' means.
        """
        batch = sample["batch"]
        sums = model(self.criterion, batch, self.total).sums
        counts = self.criterion.counts(batch)
        asked = sum(counts[name] for name in sums)
        means = {name: total / (counts[name] or 1) for name, total in sums.items()}
        whole = asked * sum(self.weights.get(name, 1.0) * mean for name, mean in means.items())
        logged = {name: (total.item(), counts[name]) for name, total in sums.items()}
        numbers = {name: sample[name] for name in ("ntokens", "nsentences")}
        return whole, asked, {"loss": whole.item(), "asked": asked, "asks": logged, **numbers}

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """Log the loss and the mean of each ask, in bits."""
        asked = sum(log.get("asked", 0) for log in logging_outputs)
        total = sum(log.get("loss", 0.0) for log in logging_outputs)
        metrics.log_scalar("loss", total / (asked or 1) / math.log(2), asked, round=4)
        for name in dict.fromkeys(name for log in logging_outputs for name in log.get("asks", {})):
            pairs = [log["asks"][name] for log in logging_outputs if name in log.get("asks", {})]
            total, count = map(sum, zip(*pairs, strict=True))
            metrics.log_scalar(name, total / (count or 1) / math.log(2), count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return False


def parse_options(task: str, arch: str, cfg: Any) -> Parsed:
    """The options of a run as `unitk train` parses them."""
    words = cfg.unitk_options.split()
    for word in words:
        key = word.partition("=")[0].replace("-", "_")
        if "." not in key and key not in OWN:
            hint = registry.nearest(key, OWN) or f" (known: {', '.join(OWN)}, task.*, arch.*)"
            raise UsageError(f"--unitk-options has no {key!r}{hint}")
    given = [f"--task={task}"]
    if arch:
        given.append(f"--arch={arch}")
    given += [f"--{word}" for word in words]
    # options that unitk requires, but that fairseq decides
    given += [f"--data={cfg.data}", f"--seed={cfg.seed}", "--max-steps=1", "--save-dir=unused"]
    parsed = parse("train", TrainConfig, given, GIVEN)
    for key, (_, value) in parsed.fields().items():
        fixed = not (callable(value) and key.startswith("task."))
        require(fixed, f"--unitk-options: {key} cannot be a schedule: fairseq counts the updates")
    return parsed


def register(user_dir: str | None = None) -> None:
    """Register unitk's components and those of `user_dir` with fairseq, as `unitk_NAME`."""
    registry.load_plugins(Path(user_dir) if user_dir else None)
    register_model(NAME, dataclass=ModelOptions)(UnitkModel)
    register_criterion(NAME, dataclass=CriterionOptions)(UnitkLoss)
    for arch in registry.names("arch"):

        def choose(args: Any, arch: str = arch) -> None:
            args.unitk_arch = arch

        register_model_architecture(NAME, f"{NAME}_{arch}")(choose)
    for task in registry.names("task"):
        task_class = type(f"Unitk_{task}", (UnitkTask,), {"objective": task})
        register_task(TASK + task, dataclass=TaskOptions)(task_class)
