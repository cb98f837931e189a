"""Optimizers by name, their options, and rules for groups of parameters; torch is not needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from unitk.errors import UsageError, require
from unitk.options.fields import (
    Above,
    Checked,
    Count,
    Part,
    Rate,
    Schedule,
    Weight,
    options,
    parse_value,
)
from unitk.registry import get, import_object, nearest, register

if TYPE_CHECKING:
    from torch.optim import Optimizer

LAYER_MATRIX = re.compile(r"(^|\.)layers\.\d+\..*weight$")
LAST_NORM = re.compile(r"^norm\.weight$")
Groups = list[dict[str, Any]]
"""As torch's optimizers take them: "params" are (name, parameter), "lr" and "weight_decay" set."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Checked):
    """The options that every optimizer has."""

    KIND = "optimizer"

    built_by: ClassVar[str]
    """`module:name` of what is called with the options and the groups to build the optimizer."""

    weight_decay: Weight = 0.0
    """Weight decay of matrices. Biases, norms and other vectors decay only where a --group of such
    alone has this option."""
    layer_decay: Part = 1.0
    """Layer-wise decay: factor on the learning rate from each layer to the one below it. The output
    layers have 1, the embeddings the smallest rate."""

    base_width: Count = 0
    """Width for which --lr is meant: in wider models, matrices of the layers and the last norm have
    smaller rates, so that one --lr fits all widths. 0: all widths have the same rates."""

    def width_factor(self, name: str, dims: int, width: int) -> float:
        """The factor by which `base_width` scales the rate of a parameter in a model of this width.

        Steps of Adam add up in a product with as many inputs: the ratio of widths.
        """
        # embeddings and vectors add, and multiply nothing over the width
        scaled = LAYER_MATRIX.search(name) if dims == 2 else LAST_NORM.search(name)
        return self.base_width / width if self.base_width and scaled else 1.0

    def build(self, groups: Groups) -> Optimizer:
        """Build the optimizer of these groups; it reads each group's "lr" and "weight_decay"."""
        return import_object(self.built_by)(self, groups)

    @property
    def state_bytes(self) -> int:
        """The most bytes that it keeps for each weight: two means in fp32."""
        return 8

    def of(self, name: str, dims: int) -> OptimizerConfig:
        """The optimizer that trains a parameter with this name and number of dimensions."""
        return self

    def uses(self, option: str, decay: float, distance: int) -> bool:
        """Whether an option of these has an effect on a parameter.

        decay: its weight decay; distance: how many layers it is away from the output.
        """
        known = option in {field.name for field in fields(self)}
        return known and (option != "layer_decay" or distance > 0)


@dataclass(frozen=True, kw_only=True)
class AdamConfig(OptimizerConfig):
    """The options that all kinds of Adam have."""

    betas: tuple[Rate, Rate] = (0.9, 0.98)
    """Decay rates of the running means of the gradient and of its square."""
    eps: Above = 1e-6
    """Epsilon, added to the root of the second mean."""
    weight_decay: Weight = 0.1


@register("optimizer", "adamw")
@dataclass(frozen=True, kw_only=True)
class AdamWConfig(AdamConfig):
    """Adam with decoupled weight decay; the defaults are GLM's."""

    built_by = "unitk.optim.optimizers:adamw"
    state: Literal["fp32", "bf16"] = "fp32"
    """Precision of AdamW's two means and of Muon's momentum. bf16 takes 4 bytes a weight instead of
    8, and 2 instead of 4. Its values are rounded up or down at random, so that they are right on
    average; AdamW's step takes two to three times as long."""

    @property
    def state_bytes(self) -> int:
        return 4 if self.state == "bf16" else super().state_bytes


@register("optimizer", "bert_adam")
@dataclass(frozen=True, kw_only=True)
class BertAdamConfig(AdamConfig):
    """BertAdam of BERT's and UniLM's official code: Adam without bias correction."""

    built_by = "unitk.optim.optimizers:BertAdam"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    weight_decay: Weight = 0.01
    clip_norm: Weight = 1.0
    """Clip the gradient of each tensor to this norm, as BERT's code does. 0: no clipping.
    --clip-norm, which is for the whole gradient, comes first."""


@register("optimizer", "lamb")
@dataclass(frozen=True, kw_only=True)
class LambConfig(AdamConfig):
    """LAMB: Adam whose update of each tensor is scaled to the norm of its weights."""

    built_by = "unitk.optim.optimizers:Lamb"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    weight_decay: Weight = 0.01
    always_adapt: bool = True
    """Also scale the updates of biases and norms, as in the paper. GPT-BERT's code does not."""

    def uses(self, option: str, decay: float, distance: int) -> bool:
        return super().uses(option, decay, distance) and not (option == "always_adapt" and decay)


@register("optimizer", "adafactor")
@dataclass(frozen=True, kw_only=True)
class AdafactorConfig(OptimizerConfig):
    """AdaFactor as in T5: squares are kept per row and column, and updates scale with the weights.

    At update t the rate is at most 1 / sqrt(t). A constant --lr 1e-2 is T5's pre-training.
    """

    def build(self, groups: Groups) -> Optimizer:
        return import_object("unitk.optim.optimizers:adafactor")(groups)


@register("optimizer", "adagrad")
@dataclass(frozen=True, kw_only=True)
class AdagradConfig(OptimizerConfig):
    """Adagrad: each weight's rate is divided by the root of the sum of its squared gradients.

    Duchi et al. 2011. Weight decay is added to the gradients.
    """

    accumulator: Weight = 0.0
    """Value that the sums begin with (ELMo: 1)."""
    eps: Above = 1e-10
    """Epsilon, added to the root of the sum."""

    def build(self, groups: Groups) -> Optimizer:
        adagrad = import_object("torch.optim:Adagrad")
        return adagrad(groups, initial_accumulator_value=self.accumulator, eps=self.eps)


@register("optimizer", "sgd")
@dataclass(frozen=True, kw_only=True)
class SGDConfig(OptimizerConfig):
    """Stochastic gradient descent. Weight decay is added to the gradients."""

    momentum: Rate = 0.0
    """Decay rate of the sum of past gradients, which is the update. 0: the gradient is."""

    def build(self, groups: Groups) -> Optimizer:
        return import_object("torch.optim:SGD")(groups, momentum=self.momentum)


@register("optimizer", "muon")
@dataclass(frozen=True, kw_only=True)
class MuonConfig(AdamWConfig):
    """Muon for the matrices of the layers, AdamW for embeddings, output layers, norms and biases.

    betas and eps are those of AdamW."""

    built_by = "unitk.optim.optimizers:muon"
    betas: tuple[Rate, Rate] = (0.9, 0.95)
    """AdamW's decay rates of the running means of the gradient and of its square."""
    momentum: Rate = 0.95
    """Muon's decay rate of the running mean of the gradient."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the orthogonalization. auto: bf16 where the processor computes in it."""

    def width_factor(self, name: str, dims: int, width: int) -> float:
        """Steps of Muon have entries of one size, so that their norm grows with the root."""
        return super().width_factor(name, dims, width) ** (0.5 if dims == 2 else 1)

    def of(self, name: str, dims: int) -> OptimizerConfig:
        if dims == 2 and LAYER_MATRIX.search(name):
            return self
        shared = {field.name: getattr(self, field.name) for field in fields(AdamWConfig)}
        return AdamWConfig(**shared)


@dataclass(frozen=True)
class GroupRule:
    """How the parameters whose names match a pattern are trained (`--group`)."""

    pattern: str
    optimizer: OptimizerConfig
    lr_factor: float = 1.0
    lr_schedule: Any = None  # None: that of the run
    given: tuple[str, ...] = ()  # "optimizer" and options of it, those that the rule names


def parse_rules(texts: Sequence[str], optimizer: OptimizerConfig) -> list[GroupRule]:
    """The rules of `--group`: each is `PATTERN NAME=VALUE ...`, where NAME is lr-factor,
    lr-schedule, optimizer or an option of that optimizer; other options are as in `optimizer`."""
    # the list was cut at every comma, those of a schedule or of betas too: only one before a
    # pattern and a space parts two rules
    rules = re.split(r",(?=[^\W\d][^,=\s]*\s|\*)", ",".join(texts))
    return [_rule(text, optimizer) for text in rules if text.strip()]


def _rule(text: str, optimizer: OptimizerConfig) -> GroupRule:
    pattern, *words = text.split()
    given = {k.replace("-", "_"): v for k, _, v in (word.partition("=") for word in words)}
    name = given.pop("optimizer", None)
    where = f"--group {pattern}"
    kind = get("optimizer", name, f"{where} optimizer") if name else type(optimizer)
    kinds = {option.name: option.type for option in options(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        known = kinds | {"lr_factor": float, "lr_schedule": Schedule}
        option = key.replace("_", "-")
        if key not in known:
            names = [field_name.replace("_", "-") for field_name in [*known, "optimizer"]]
            hint = nearest(option, names) or f" (known: {', '.join(names)})"
            raise UsageError(f"{where}: there is no {option!r}{hint}")
        values[key] = parse_value(value, known[key], f"{where} {option}")
    factor, schedule = values.pop("lr_factor", 1.0), values.pop("lr_schedule", None)
    require(0 < factor < float("inf"), f"{where} lr-factor must be above 0, got {factor:g}")
    try:
        chosen = kind(**values) if name else replace(optimizer, **values)
    except UsageError as error:  # an optimizer knows its options by their names as flags
        raise error.replace("--optimizer[.]", f"{where} ") from error
    named = ("optimizer", *values) if name else tuple(values)
    return GroupRule(pattern, chosen, factor, schedule, named)
