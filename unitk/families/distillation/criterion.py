"""The loss of distillation: labels, and a teacher's outputs, states and attention.

K asked rows of C choices each. States and attention are those of the tower that is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk import registry
from unitk.criterions.base import Loss, Trainable, totals
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.limits import describe_towers
from unitk.errors import UsageError, require
from unitk.families.distillation.config import DistillConfig
from unitk.kernels.products import recompute
from unitk.models.attention import Attention, Rendering, View
from unitk.models.heads import compare
from unitk.models.heads.base import Asked, Categorical, Terms, gather
from unitk.models.layers import Layer
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.slots import BORN, DOC, NEVER, Ask, Batch
from unitk.training.saving.checkpoint import load
from unitk.vocab.base import Vocab

PROJECT = "project:states"
"""The head that makes states as wide as the teacher's, where they differ."""


@dataclass(frozen=True)
class Seen:
    """The outputs, states and attention that a model computes of a batch."""

    states: dict[str, Tensor]
    depths: list[Tensor]
    """The states [B, T, D] of each depth, 0 being the embeddings; empty unless they are needed."""
    attention: list[Tensor]
    """The scores of each layer's attention, [B, H, T, S]; empty unless they are needed."""


@dataclass
class Distillation:
    """Sums over the asked rows, each under its ask's name, of the losses of labels and outputs.

    The sums "states" and "attention" are means over the compared depths, and over the heads, of
    what is added for each real slot. Parts: NAME/nll and NAME/correct as those of cross-entropy,
    and NAME/teacher, the divergence from the teacher's outputs without its weight. A model that
    does not train is judged by its labels alone, without a teacher.
    """

    config: DistillConfig
    vocab: Vocab  # of what is asked
    teacher: Model | None = field(default=None, init=False)

    def counts(self, batch: Batch) -> dict[str, float]:
        c = self.config
        slots = {"states": 0.0, "attention": 0.0}
        if c.states_weight:
            slots["states"] = float(self.compared_slots(batch).sum())
        if c.attention_weight:
            slots["attention"] = float(_real(batch).sum())
        return {**batch.count, **slots}

    def compared_slots(self, batch: Batch) -> Tensor:
        """The slots whose states are compared, [B, T]."""
        return _first(batch) if self.config.states_of == "first" else _real(batch)

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        if not model.training:
            return CrossEntropy()(model, batch, step, total)
        if not batch.asks:
            raise UsageError("--criterion distill: this task has nothing to predict")
        assert isinstance(model, Model)
        teacher = self.load_teacher(model)
        c = self.config
        with torch.no_grad():
            targets = observe(teacher, batch, c)
        seen = observe(model, batch, c)
        loss = Loss({}, {})
        for name, ask in batch.asks.items():
            outputs = _outputs(model, seen, batch, ask), _outputs(teacher, targets, batch, ask)
            hard, soft, nll, correct = self.compare(model, teacher, *outputs, ask)
            loss.sums[name] = c.labels_weight * hard + c.logits_weight * soft
            loss.parts[f"{name}/teacher"] = soft.detach()
            if nll is not None and model.heads.get(ask.head).words:
                loss.parts[f"{name}/nll"] = nll
            if correct is not None:
                loss.parts[f"{name}/correct"] = correct
        pairs = self.match_depths(model, teacher)
        if c.states_weight:
            slots_BT = self.compared_slots(batch)
            apart = self.states_distance(model, seen, targets, pairs, slots_BT)
            loss.sums["states"] = c.states_weight * apart
        if c.attention_weight:
            layers = [(a - 1, b - 1) for a, b in pairs if a and b]
            real_BT = _real(batch)
            apart = attention_distance(seen, targets, layers, real_BT, c.attention_loss)
            loss.sums["attention"] = c.attention_weight * apart
        return loss

    def load_teacher(self, model: Model) -> Model:
        """The teacher on the model's device, loaded before the first update, and checked."""
        if self.teacher is None:
            if (path := self.config.teacher) is None:
                raise UsageError("--criterion distill needs --criterion.teacher CHECKPOINT")
            # not when the criterion is made: an evaluation needs no teacher
            loaded = load(path, model.device)
            option = f"--criterion.teacher {path}"
            name = "--arch.max-positions"
            same = registry.get("measure", "same_vocab")
            require(
                same(loaded.task.vocab, self.vocab), f"{option} has another vocabulary than --data"
            )
            teacher = loaded.model.config
            config = model.config
            taught, has = (describe_towers(one.towers)[0] for one in (teacher, config))
            require(
                teacher.towers == config.towers, f"{option} has {taught}, but the model has {has}"
            )
            limit = teacher.position_limit
            longer = not limit or 0 < config.position_limit <= limit
            require(longer, f"{option} has {limit} positions: give {name} {limit}")
            # rows that a teacher lacks would be read all the same
            for table in ("num_segments", "num_virtual"):
                covered = getattr(config, table) <= max(getattr(teacher, table), 1)
                require(
                    covered,
                    f"{option} has --arch.{table.replace('_', '-')} {getattr(teacher, table)}, and "
                    f"the model {getattr(config, table)}",
                )
            self.teacher = loaded.model.requires_grad_(False)
        return self.teacher

    def compare(
        self, model: Model, teacher: Model, asked: Asked, teacher_asked: Asked, ask: Ask
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Sums over an ask's rows: the loss of the labels, the divergence from the teacher's
        outputs, the nll and how many are right."""
        if ask.head not in teacher.heads:
            raise UsageError(
                f"--criterion.teacher {self.config.teacher} has no output layer {ask.head}, which "
                "the task asks"
            )

        def chunk(asked: Asked, teacher_asked: Asked, label: Tensor, price_K: Tensor) -> list[Any]:
            output = model.head(asked, ask.head)
            with torch.no_grad():
                target = teacher.head(teacher_asked, ask.head)
            if target.shape != output.shape:
                output_shape, target_shape = (list(x.shape[1:]) for x in (output, target))
                raise UsageError(
                    f"{ask.head} has outputs {output_shape}, but --criterion.teacher's has "
                    f"{target_shape}"
                )
            head = model.heads.get(ask.head)
            # numbers have no distribution, nor have the logits of several classes one
            if isinstance(head, Categorical):
                soft_K = teacher_divergence(output, target, self.config.temperature)
            else:
                soft = (output - target).float().square()
                soft_K = soft if soft.dim() == 1 else soft.mean(1)
            # after the divergence, as the terms may overwrite the output
            terms = head.terms(output.clone(), label, price_K)
            return [terms.loss, price_K * soft_K, terms.nll, terms.correct]

        # logits of many rows are made again in backward, which bounds their memory
        count = len(ask.label)
        size = compare.CHUNK
        run = chunk if count <= size else partial(recompute, chunk)
        # one at least, as a batch of texts of one token asks for nothing
        chunks = [slice(i, i + size) for i in range(0, max(count, 1), size)]
        terms_of_chunks = [
            run(asked.chunk(i), teacher_asked.chunk(i), ask.label[i], ask.weight[i]) for i in chunks
        ]
        loss_K, soft_K, nll_K, correct_K = (
            None if values[0] is None else torch.cat(values)
            for values in zip(*terms_of_chunks, strict=True)
        )
        assert loss_K is not None and soft_K is not None
        [(hard, nll, correct)] = totals(Terms(loss_K, nll_K, correct_K), [ask])
        return hard, soft_K.sum(), nll, correct

    def match_depths(self, model: Model, teacher: Model) -> list[tuple[int, int]]:
        """The depths that are compared, the model's and the teacher's."""
        layers, depths = (len(network.decoder.layers) for network in (model, teacher))
        pairs = self.config.pairs
        for a, b in pairs:
            fits = a <= layers and b <= depths
            require(
                fits,
                f"--criterion.layers {a}={b}: the model has {layers} layers, the teacher {depths}",
            )
        # 3 of 6 layers: 0=0, 1=2, 2=4, 3=6
        return pairs or [(n, round(n * depths / layers)) for n in range(layers + 1)]

    def states_distance(
        self,
        model: Model,
        seen: Seen,
        targets: Seen,
        pairs: Sequence[tuple[int, int]],
        slots_BT: Tensor,
    ) -> Tensor:
        """The distance of the states of these slots, as a mean over the pairs of depths."""
        sums = []
        for depth, teacher_depth in pairs:
            a_BTD, b_BTD = seen.depths[depth], targets.depths[teacher_depth]
            wide = b_BTD.shape[-1]
            if PROJECT in model.heads:
                # past `Model.head`, which mixes layers where heads are to read several
                flat = Asked(a_BTD.flatten(0, 1)[:, None])
                a_BTD = model.heads.get(PROJECT)(flat, flat.states).unflatten(0, b_BTD.shape[:2])
            if (width := a_BTD.shape[-1]) != wide:
                raise UsageError(
                    f"--criterion.states-weight: the model's states are {width} wide and the "
                    f"teacher's {wide}: add --arch.heads {PROJECT}:{wide}"
                )
            sums.append((distance(a_BTD, b_BTD, self.config.states_loss) * slots_BT).sum())
        return torch.stack(sums).mean()


def observe(model: Model, batch: Batch, config: DistillConfig) -> Seen:
    """Run a model on a batch and keep the states and attention scores that the losses compare."""
    deep, inside = config.states_weight > 0, config.attention_weight > 0
    if not (deep or inside):
        # to count the slots that are read, the host would have to wait for a GPU
        lean = replace(batch, only_asked=batch.docs.device.type == "cpu")
        return Seen(model(lean, model.condition(lean))[0], [], [])
    name = batch.decoded
    depths = list[Tensor]()
    model.check_tower(name, batch)
    condition = model.condition(batch)
    with _record_inputs(model.tower(name), inside) as calls:
        states = model.read(name, batch, condition, depths)
        attention = [attention_scores(*call) for call in calls]
    if condition.cross is not None:
        states = {model.config.towers[0]: condition.cross, **states}
    return Seen(states, depths, attention)


def _outputs(model: Model, seen: Seen, batch: Batch, ask: Ask) -> Asked:
    return gather(seen.states, batch, [ask])


def _real(batch: Batch) -> Tensor:
    """Which slots of the decoded tower are not pads, [B, T]."""
    real_BT: Tensor = batch.towers[batch.decoded][BORN] < NEVER
    return real_BT


def _first(batch: Batch) -> Tensor:
    """Which slots are the first ones of a text, [B, T]."""
    docs_BT = batch.towers[batch.decoded][DOC]
    # no text has the number -1
    before_BT = F.pad(docs_BT[:, :-1], (1, 0), value=-1)
    return _real(batch) & (docs_BT != before_BT)


@contextmanager
def _record_inputs(
    tower: nn.Module, recording: bool
) -> Iterator[list[tuple[Attention, Tensor, View]]]:
    """A context that lists the inputs of each attention of a tower, layer by layer."""
    calls: list[tuple[Attention, Tensor, View]] = []
    if not recording:
        yield calls
        return
    require(isinstance(tower, Stack), "--criterion.attention-weight: a tower has no attention")
    assert isinstance(tower, Stack)

    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(module, Attention)
        # the view is that of the layer, with its window and rotary positions
        calls.append((module, arguments[0], arguments[1]))

    # layers that are one module several times over are noted at each of their calls
    parts = {layer.attention for layer in tower.layers if isinstance(layer, Layer)}
    hooks = [attention.register_forward_pre_hook(note) for attention in parts]
    kept: Rendering = tower.attention
    tower.attention = "dense"  # fast kernels have no table of who sees whom
    try:
        yield calls
    finally:
        tower.attention = kept
        for hook in hooks:
            hook.remove()


def attention_scores(attention: Attention, x_BTD: Tensor, view: View) -> Tensor:
    """What each slot scores each key before the softmax, [B, H, T, S]; -inf: it is not seen."""
    query, key, _ = attention.project(x_BTD, view.num_keys, view.rotation)
    # of grouped heads, several queries have one key
    queries_per_key = query.shape[1] // key.shape[1]
    score_BHTS = (query * attention.scale) @ key.repeat_interleave(queries_per_key, dim=1).mT
    assert view.bias_BHTS is not None
    score_BHTS = score_BHTS + view.bias_BHTS
    if attention.biased:
        score_BHTS = score_BHTS + attention.score_bias(query, key, view)
    return score_BHTS.float()


def attention_distance(
    seen: Seen,
    targets: Seen,
    layers: Sequence[tuple[int, int]],
    real_BT: Tensor,
    kind: str = "divergence",
) -> Tensor:
    """The distance of attention, summed over real slots, a mean over layers and heads."""
    require(len(layers) > 0, "--criterion.layers names no layer, whose attention could be compared")
    sums = []
    for layer, teacher_layer in layers:
        a_BHTS, b_BHTS = seen.attention[layer], targets.attention[teacher_layer]
        heads, others = a_BHTS.shape[1], b_BHTS.shape[1]
        require(
            heads == others,
            f"--criterion.attention-weight: the model has {heads} heads, the teacher {others}",
        )
        sums.append((score_distance(a_BHTS, b_BHTS, kind).mean(1) * real_BT).sum())
    return torch.stack(sums).mean()


def score_distance(a_BHTS: Tensor, b_BHTS: Tensor, kind: str) -> Tensor:
    """The distance [B, H, T] of scores (`--criterion.attention-loss`)."""
    if kind == "divergence":
        return _divergence(a_BHTS.log_softmax(-1), b_BHTS.log_softmax(-1))
    # -inf - -inf has no gradient, so what is not seen is made equal before
    seen_BHTS = b_BHTS > -torch.inf
    a_BHTS, b_BHTS = (torch.where(seen_BHTS, scores, 0.0) for scores in (a_BHTS, b_BHTS))
    return (a_BHTS - b_BHTS).square().sum(-1) / seen_BHTS.sum(-1).clamp(min=1)


def teacher_divergence(output: Tensor, target: Tensor, temperature: float) -> Tensor:
    """The divergence [K] of outputs from the teacher's, times the square of the temperature.

    Outputs of several softmaxes (the borders of an answer) have the mean of theirs.
    """
    log_probs = (output.float() / temperature).log_softmax(-1)
    target_log_probs = (target.float() / temperature).log_softmax(-1)
    soft = temperature**2 * _divergence(log_probs, target_log_probs)
    return soft if soft.dim() == 1 else soft.flatten(1).mean(1)


def _divergence(log_probs: Tensor, target_log_probs: Tensor) -> Tensor:
    """KL(target || output) of log-probabilities along the last axis; what is -inf in both is 0."""
    share = target_log_probs.exp()
    # -inf - -inf is nan, whose gradient is 0 all the same, as its share is
    return torch.where(share > 0, share * (target_log_probs - log_probs), 0.0).sum(-1)


def distance(a_BTD: Tensor, b_BTD: Tensor, kind: str) -> Tensor:
    """The distance [B, T] of states (`--criterion.states-loss`)."""
    a_BTD, b_BTD = a_BTD.float(), b_BTD.float()
    if kind == "cosine":
        return 1 - F.cosine_similarity(a_BTD, b_BTD, dim=-1)
    if kind == "normed":
        a_BTD, b_BTD = F.normalize(a_BTD, dim=-1), F.normalize(b_BTD, dim=-1)
        return (a_BTD - b_BTD).square().sum(-1)
    return (a_BTD - b_BTD).square().mean(-1)
