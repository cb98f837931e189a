"""Which optimizer trains each parameter, at which rate, and from when on.

Every parameter has a distance from the output: 0 for heads and the last norm, 1 for the top layer
of its tower, ..., and one more than its lowest layer for the embeddings. `layer_decay` multiplies
the rate once for each unit of it; `thaw` begins with the smallest and lets in one more at a time
(Howard and Ruder 2018, arXiv 1801.06146, sections 3.2 and 3.3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from unitk.errors import UsageError, require
from unitk.optim.config import GroupRule, Groups, OptimizerConfig
from unitk.optim.muon import Muon
from unitk.registry import name_of, nearest, sources


class Treatment(NamedTuple):
    """What the parameters of a group have in common."""

    config: OptimizerConfig
    decays: bool
    """Whether the optimizer's weight decay applies."""
    factor: float
    """The rate of the group over that of the run."""
    schedule: Any
    """The schedule of a `--group`; None: that of the run."""


class OptimPlan:
    """The optimizers of a run; each group of parameters has a factor of the learning rate."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: OptimizerConfig,
        lr: float,
        schedule: Any,
        rules: Sequence[GroupRule] = (),
        thaw: str | None = None,
        fused: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`rules`: the first one whose pattern matches counts; `thaw`: "epoch", or updates;
        `fused`: how many matrices are stacked in a parameter, where not one."""
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        require(named, "--freeze leaves nothing to train")
        self.lr = lr
        self.schedule = schedule
        self.thaw = thaw
        distance = distances(named)
        last = GroupRule("", optimizer, given=("optimizer",))
        treatment_of = choose_treatments(model, named, [*rules, last], distance)
        groups = group_parameters(named, treatment_of, fused, lr)
        self.optimizers = [_build(config, of_config) for config, of_config in groups.items()]
        depths = sorted({*distance.values()})
        require(
            thaw is None or len(depths) > 1,
            "--thaw has no effect: all that is trained is at one depth",
        )
        turn = {named[name]: depths.index(distance[name]) for name in named}
        self._turns = [(p, turn[p]) for group in self.groups for p in group["params"]]
        self.rate = 0.0  # of the last update
        self.parameters = [p for p, _ in self._turns]
        self.idle = list[nn.Parameter]()  # that --thaw trains later

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups of all optimizers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def begin(self, step: int, total: int | None, epoch: int) -> None:
        """Set the rates of the update after `step` updates, and the parameters that it changes."""
        factor = self.schedule(step + 1, total)
        require(isinstance(factor, float | int), f"--lr-schedule must be a number, got {factor!r}")
        self.rate = self.lr * factor
        for group in self.groups:
            schedule = group["schedule"]
            rate = self.rate if schedule is None else self.lr * schedule(step + 1, total)
            require(
                0 <= rate < math.inf, f"--lr-schedule: the rate of update {step + 1} is {rate:g}"
            )
            group["lr"] = rate * group["factor"]
        stage = len(self._turns)
        if self.thaw is not None:
            stage = epoch if self.thaw == "epoch" else step // int(self.thaw)
        self.parameters = [parameter for parameter, turn in self._turns if turn <= stage]
        self.idle = [parameter for parameter, turn in self._turns if turn > stage]

    @property
    def skips(self) -> bool:
        """Whether all optimizers can leave out an update that the device finds to be bad."""
        return all(
            # not with momenta in bf16, whose rounding the host seeds
            type(optimizer) is Muon
            or (isinstance(optimizer, AdamW) and optimizer.defaults["fused"])
            for optimizer in self.optimizers
        )

    def step(self, bad: Tensor | None = None) -> None:
        """Make the update; frozen parameters keep their values and have no state.

        `bad`, on the device, is 1 if there is to be none, else 0; asked of optimizers with `skips`.
        """
        for parameter in self.idle:
            parameter.grad = None
        for optimizer in self.optimizers:
            optimizer.found_inf = bad  # type: ignore[attr-defined]  # as torch's GradScaler does
            optimizer.step()

    def zero_grad(self) -> None:
        """Discard the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def _build(config: OptimizerConfig, groups: Groups) -> Optimizer:
    """The optimizer of some groups; a plug-in may return anything."""
    built = config.build(groups)
    file = sources("optimizer")[name_of("optimizer", type(config))]
    what = f"--optimizer of {file}: build must return an Optimizer of torch"
    require(isinstance(built, Optimizer), f"{what}, got {built!r}")
    return built


def choose_treatments(
    model: nn.Module,
    named: dict[str, nn.Parameter],
    rules: Sequence[GroupRule],
    distance: dict[str, int],
) -> dict[str, Treatment]:
    """The treatment of each trained parameter, by the first rule that matches its name.

    Raises UsageError for a rule, or an option of one, that has no effect.
    """
    chosen: dict[str, Treatment] = {}
    for rule, of_rule in divide(named, dict(model.named_parameters()), rules):
        decays = find_decaying(of_rule, rule)
        configs = {name: rule.optimizer.of(name, p.dim()) for name, p in of_rule.items()}
        check_groups(rule, configs, decays, distance)
        for name, config in configs.items():
            factor = rate_factor(model, name, rule, distance[name])
            chosen[name] = Treatment(config, name in decays, factor, rule.lr_schedule)
    return chosen


def group_parameters(
    named: dict[str, nn.Parameter],
    treatment_of: Mapping[str, Treatment],
    fused: Mapping[str, int],
    lr: float,
) -> dict[OptimizerConfig, Groups]:
    """The groups of each optimizer: parameters that are treated alike, those that decay first."""
    members: dict[Treatment, list[str]] = {}
    for name in named:
        members.setdefault(treatment_of[name], []).append(name)
    groups: dict[OptimizerConfig, Groups] = {}
    for treatment in sorted(members, key=lambda one: not one.decays):
        names = members[treatment]
        group = {
            "params": [(name, named[name]) for name in names],
            "lr": lr,
            "factor": treatment.factor,
            "schedule": treatment.schedule,
            "weight_decay": treatment.config.weight_decay if treatment.decays else 0.0,
            "matrices": [fused.get(name, 1) for name in names],
        }
        groups.setdefault(treatment.config, []).append(group)
    return groups


def rate_factor(model: nn.Module, name: str, rule: GroupRule, distance: int) -> float:
    """The factor of the learning rate of a parameter at this distance from the output."""
    factor = rule.lr_factor * rule.optimizer.layer_decay**distance
    if rule.optimizer.base_width:
        width: int = cast(Any, model).config.width
        factor *= rule.optimizer.width_factor(name, model.get_parameter(name).dim(), width)
    return factor


def divide(
    named: dict[str, nn.Parameter], all_names: Collection[str], rules: Sequence[GroupRule]
) -> list[tuple[GroupRule, dict[str, nn.Parameter]]]:
    """The parameters that each rule is the first one to match; the last one has what is left.

    `named` are those that are trained, among `all_names` of the model.
    """
    divided = []
    left = dict(named)
    for rule in rules[:-1]:
        names = [name for name in match_names(rule.pattern, all_names, "--group") if name in named]
        where = f"--group {rule.pattern}"
        require(names, f"{where}: --freeze or --adapter keeps all of its parameters frozen")
        matched = {name: left.pop(name) for name in names if name in left}
        require(
            matched,
            f"{where}: a group before it has all of its parameters; write the exception first",
        )
        divided.append((rule, matched))
    return [*divided, (rules[-1], left)] if left else divided


def find_decaying(named: dict[str, nn.Parameter], rule: GroupRule) -> set[str]:
    """The parameters of a rule that decay: matrices that are no biases. Where it has none of these,
    all of them if it says so."""
    matrices = {n for n, p in named.items() if p.dim() >= 2 and not n.endswith("bias")}
    return {*named} if not matrices and "weight_decay" in rule.given else matrices


def check_groups(
    rule: GroupRule,
    configs: Mapping[str, OptimizerConfig],
    decays: set[str],
    distance: dict[str, int],
) -> None:
    """Raise a `UsageError` for an option of a rule that none of its parameters reads.

    `configs` are the optimizers of its parameters.
    """
    where = f"--group {rule.pattern}" if rule.pattern else "--optimizer"
    kind = rule.optimizer
    for option in rule.given:
        if option == "optimizer":
            require(
                any(type(config) is type(kind) for config in configs.values()),
                f"{where}: {name_of('optimizer', type(kind))} has no effect: it would train "
                "nothing here",
            )
            continue
        used = any(
            config.uses(option, config.weight_decay if name in decays else 0.0, distance[name])
            for name, config in configs.items()
        )
        require(
            used,
            f"{where} {option.replace('_', '-')} has no effect on the parameters of the group",
        )


def distances(names: Iterable[str]) -> dict[str, int]:
    """The distance of each parameter from the output, in layers of its tower."""
    layers = {name: re.match(r"(.*?)(?:layers\.(\d+)|embed|relative)\.", name) for name in names}
    height: dict[str, int] = {}  # layers by what is before "layers": the tower
    for match in layers.values():
        if match and match[2]:
            height[match[1]] = max(height.get(match[1], 0), int(match[2]) + 1)
    # embeddings, and a bias that all layers share, are layer -1
    return {
        name: height.get(match[1], 0) - int(match[2] or -1) if match else 0
        for name, match in layers.items()
    }


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters whose names match."""
    named = dict(model.named_parameters())
    for pattern in patterns:
        for name in match_names(pattern, named, "--freeze"):
            named[name].requires_grad_(False)


def match_names(pattern: str, named: Collection[str], option: str) -> list[str]:
    """The names that match a pattern such as `layers.0.*`; `UsageError` if none does."""
    names = [name for name in named if fnmatchcase(name, pattern)]
    if not names:
        first = sorted({name.partition(".")[0] for name in named})
        hint = nearest(pattern, named) or f" (they begin with {', '.join(first)})"
        raise UsageError(f"{option}: no parameter has a name like {pattern!r}{hint}")
    return names
