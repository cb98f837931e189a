"""Output layers, and how a model answers the asks of a batch with them.

K asked rows with a slots each; C is the number of choices of a row: words, classes, slots,
candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.errors import UsageError, require
from unitk.kernels.products import recompute
from unitk.models.heads import compare as fused
from unitk.registry import get, nearest
from unitk.slots import Ask, Batch

if TYPE_CHECKING:
    from unitk.models.config import ModelConfig

LM = "lm"
"""The output layer over the vocabulary, which every model has."""


@dataclass(frozen=True)
class Asked:
    """The input of a head: the states [K, a, D] of the slots that each row reads.

    Before a `LayerMix`, they are those of several layers, [K, a, L, D]. In a step of decoding, the
    other fields have their defaults.
    """

    states: Tensor
    rows: Tensor | None = None
    """[K, a] flat slot numbers; -1 where a row reads fewer slots than others."""
    batch: Batch | None = None
    tower: str = "x"
    among: Tensor | None = None
    """[C] ids of the candidates, where an ask names them."""

    @property
    def slots(self) -> Tensor:
        """The slots themselves, [9, K, a]: positions, segments, docs."""
        assert self.batch is not None and self.rows is not None
        table: Tensor = self.batch.towers[self.tower]
        return table.flatten(1)[:, self.rows]

    @property
    def real(self) -> Tensor:
        """Which of the slots a row reads, [K, a]."""
        assert self.rows is not None
        return self.rows >= 0

    def chunk(self, chosen: slice) -> Asked:
        """The same input for some of the rows only."""
        # `batch` stays whole: rows are numbers of its slots
        rows = None if self.rows is None else self.rows[chosen]
        return replace(self, states=self.states[chosen], rows=rows)


@dataclass(frozen=True)
class Terms:
    """Weighted losses [K] of asked rows, negative log-likelihoods, and which rows are right.

    A head without probabilities has the loss only.
    """

    loss: Tensor
    nll: Tensor | None = None
    correct: Tensor | None = None


class LayerMix(nn.Module):
    """A learned factor times the states of layers, weighted by a softmax (`--arch.head-layers`).

    Peters et al. 2018, arXiv 1802.05365, equation 1. At first it is the mean of the layers.
    """

    def __init__(self, layers: int, norm: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))  # FSDP divides no scalars
        self.norm = norm

    def forward(self, states_KaLD: Tensor) -> Tensor:
        if self.norm:
            states_KaLD = F.layer_norm(states_KaLD, states_KaLD.shape[-1:])
        mixed_KaD: Tensor = self.weight.softmax(0).to(states_KaLD.dtype) @ states_KaLD
        return self.scale * mixed_KaD


class Head(nn.Module):
    """An output layer. `forward` gives scores or values of asked rows, `terms` their loss."""

    needs_size = False
    """Whether `--arch.heads` must name a size: KIND:NAME:SIZE."""
    words = False
    """Whether labels are words: their losses may be smoothed, and a perplexity is logged."""

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__()
        self.mix: LayerMix | None = None  # makes one state of those of several layers

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        """Logits [K, C] or values [K]; `tokens_VD` is the model's token embedding."""
        raise NotImplementedError

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        """Loss terms of an output, which may be overwritten.

        `smoothed` are label smoothing, pad and z-loss as `compare` has them; those of words only.
        """
        raise NotImplementedError

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        """The mean of the outputs of several models."""
        raise NotImplementedError


class Categorical(Head):
    """A head with logits [K, C] as output, of which the label's should be the largest."""

    compiled = False  # whether a compiled kernel compares logits and labels, as --compile on a GPU

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        own = smoothed if self.words else ()
        return Terms(*fused.compare(output, label, price_K, *own, compiled=self.compiled))

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        """The logarithm of the mean of the models' probabilities."""
        log_probs = [logits.log_softmax(-1, dtype=torch.float32) for logits in outputs]
        return torch.stack(log_probs).logsumexp(0) - math.log(len(outputs))


class Heads(nn.ModuleDict):
    """The output layers of a model: "lm", and those of `--arch.heads` by KIND:NAME.

    `further` are the settings of all but "lm".
    """

    def __init__(self, config: ModelConfig, vocab_size: int, further: ModelConfig) -> None:
        super().__init__()
        for spec in (LM, *config.heads):
            kind, name, size = (*spec.split(":"), "", "")[:3]
            # finding heads imports their modules, so that a typo in `--arch.heads` is refused here
            head_class = get("head", kind, "--arch.heads")
            require(
                bool(size) or not head_class.needs_size,
                f"--arch.heads {spec}: a head of kind {kind} needs a size, {spec}:2",
            )
            key = f"{kind}:{name}" if name else kind
            settings = config if spec == LM else further
            self[key] = head = head_class(settings, vocab_size, int(size) if size else None)
            if settings.head_layers and spec != LM:
                head.mix = LayerMix(len(settings.head_layers), settings.head_layer_norm)

    def get(self, name: str) -> Head:
        """The output layer with the name that an ask gives."""
        if name not in self:
            hint = nearest(name, [*self]) or f" (it has: {', '.join(self)})"
            if ":" in name:
                hint += f"; --arch.heads {name} adds one, with :SIZE if it needs one"
            raise UsageError(f"--arch has no output layer {name!r}{hint}")
        head = self[name]
        assert isinstance(head, Head)
        return head


class Answers(nn.Module):
    """Answers the asks of a batch by a model's heads; models and ensembles inherit it."""

    heads: Heads
    tasks: Sequence[Any] = ()  # of the members, where there are several

    @property
    def members(self) -> Sequence[Any]:
        """The models whose answers are averaged: this one."""
        return [self]

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return self.members[0].decoder.embed.tokens.weight.device

    def condition(self, batch: Batch) -> Any:
        """The inputs beside the slots."""
        raise NotImplementedError

    def head(self, asked: Tensor | Asked, name: str = LM) -> Tensor:
        """The output of a head at asked rows; states [K, D] are of rows that read one slot."""
        raise NotImplementedError

    def answer(
        self,
        states: Mapping[str, Tensor],
        batch: Batch,
        asks: Sequence[Ask],
        price_K: Tensor | None = None,
        *smoothed: Any,
    ) -> Terms:
        """The terms of the rows of asks of one tower and one head, one ask after the other.

        The losses are multiplied by the asks' weights, or by `price_K`; `smoothed`: `Head.terms`.
        """
        label = torch.cat([ask.label for ask in asks])
        price_K = torch.cat([ask.weight for ask in asks]) if price_K is None else price_K
        name = asks[0].head

        def chunk(asked: Asked, label: Tensor, price_K: Tensor) -> Terms:
            return self.heads.get(name).terms(self.head(asked, name), label, price_K, *smoothed)

        asked = gather(states, batch, asks)
        rows = fused.rows_at_once(asked.states, self.members[0])
        return _in_chunks(chunk, asked, label, price_K, rows)

    def log_probs(self, batch: Batch, ask: Ask, condition: Any = None) -> Tensor:
        """Log-probabilities [K] of the labels; a condition that is not given is the batch's."""
        return self.score_labels(batch, ask, condition)[0]

    def score_labels(self, batch: Batch, ask: Ask, condition: Any = None) -> Tensor:
        """Log-probabilities of the labels, and 1 where a label is the most probable: [2, K]."""
        condition = self.condition(batch) if condition is None else condition
        states, _ = self(replace(batch, only_asked=True), condition)
        terms = self.answer(states, batch, [ask])
        complete = terms.nll is not None and terms.correct is not None
        require(complete, f"{ask.name}: the head {ask.head} gives no probabilities")
        assert terms.nll is not None and terms.correct is not None
        return torch.stack([-terms.nll, terms.correct])

    def output(self, batch: Batch, ask: Ask) -> Tensor:
        """The output of an ask's head for its rows [K, ...]."""
        states, _ = self(replace(batch, only_asked=True), self.condition(batch))
        return self.head(gather(states, batch, [ask]), ask.head)


def layers_key(tower: str) -> str:
    """The key under which a tower's states of several layers [B, T, L, D] are returned."""
    return f"{tower}/layers"


def gather(states: Mapping[str, Tensor], batch: Batch, asks: Sequence[Ask]) -> Asked:
    """The states that the rows of a tower's and a head's asks read."""
    states_BTD = states[asks[0].tower]
    if asks[0].head != LM:
        states_BTD = states.get(layers_key(asks[0].tower), states_BTD)
    widest = max(ask.rows.shape[1] for ask in asks)
    # rows that read fewer slots end with -1; its state is any one, and is never used
    row_Ka = torch.cat([F.pad(ask.rows, (0, widest - ask.rows.shape[1]), value=-1) for ask in asks])
    index = row_Ka.flatten() if widest == 1 else row_Ka.flatten().clamp(min=0)
    states_KaD = states_BTD.flatten(0, 1).index_select(0, index).unflatten(0, row_Ka.shape)
    return Asked(states_KaD, row_Ka, batch, asks[0].tower, asks[0].among)


def asked_slots(batch: Batch, name: str) -> Tensor | None:
    """The slots [B, a] of a tower that asks read, and some more; None if most slots are read."""
    _, rows, length = batch.towers[name].shape
    read = [ask.rows.flatten() for ask in batch.asks.values() if ask.tower == name]
    if not read:
        return None
    flat = torch.cat(read)
    asked_BT = flat.new_zeros(rows, length)
    asked_BT.view(-1)[flat[flat >= 0]] = 1
    widest = int(asked_BT.sum(1).max())
    if 2 * widest > length:
        return None
    # those that are read come first; others fill up the rows that have fewer: none comes twice
    return asked_BT.argsort(dim=1, descending=True, stable=True)[:, :widest]


def _in_chunks(
    chunk: Callable[..., Terms], asked: Asked, label: Tensor, price_K: Tensor, rows: int
) -> Terms:
    """The terms of all rows, in chunks of `rows`, which bounds the memory of logits."""
    if len(price_K) <= rows:
        return chunk(asked, label, price_K)
    again = partial(recompute, chunk)  # a chunk's logits are made again in backward
    chunks = [slice(start, start + rows) for start in range(0, len(price_K), rows)]
    terms = [again(asked.chunk(chosen), label[chosen], price_K[chosen]) for chosen in chunks]

    def joined(name: str) -> Any:
        columns = [getattr(of_chunk, name) for of_chunk in terms]
        return None if columns[0] is None else torch.cat(columns)

    return Terms(joined("loss"), joined("nll"), joined("correct"))
