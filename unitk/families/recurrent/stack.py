"""Stacks of LSTM layers, and the models made of one or of two directions.

N docs, L steps, B rows, T slots, K hypotheses. A stack reads the slots of a doc in the order of
their times, whatever their places in the row: rising positions are the forward direction, falling
ones the backward direction. What it knows of a text is its state, which stateful rows carry on and
which is all that decoding keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.errors import require
from unitk.families.recurrent.characters import CharacterEmbedding, Highway
from unitk.families.recurrent.config import RecurrentConfig
from unitk.families.recurrent.heads import Concat
from unitk.families.recurrent.lstm import LSTM, State
from unitk.models.heads.base import LM, Terms, gather, layers_key
from unitk.models.layers import Embedding, Tower
from unitk.models.model import Model
from unitk.models.state import Carry, Condition, Reading, read_to_depth
from unitk.slots import BORN, DOC, NEVER, NOW, TOKEN, Ask, Batch, reads_one_by_one

SEQUENTIAL = "--arch reads words one after the other, but this task lays them out otherwise"


@dataclass(frozen=True)
class Order:
    """The slots of each doc in the order of their times."""

    place_NL: Tensor
    """Their flat places b * T + t; any after the end of a doc."""
    length_N: Tensor  # on the host
    slots: int  # of all rows

    @property
    def real_NL(self) -> Tensor:
        """Which steps a doc has."""
        steps = torch.arange(self.place_NL.shape[1])
        return (steps < self.length_N[:, None]).to(self.place_NL.device)

    def to_sequences(self, x_BTD: Tensor) -> Tensor:
        """States of slots as sequences [N, L, D]."""
        x_ND: Tensor = x_BTD.flatten(0, 1).index_select(0, self.place_NL.flatten())
        return x_ND.unflatten(0, self.place_NL.shape)

    def back(self, x_NLD: Tensor, rows: int) -> Tensor:
        """Sequences as states of the slots of that many rows [B, T, D]; pads have 0."""
        real_NL = self.real_NL
        flat = x_NLD.new_zeros(self.slots, x_NLD.shape[2])
        flat = flat.index_put((self.place_NL[real_NL],), x_NLD[real_NL])
        return flat.unflatten(0, (rows, -1))


def reading_order(slots: Tensor, sight: str) -> Order:
    """The order in which a recurrent stack reads slots [9, B, T].

    Raises UsageError unless those of a doc come one after the other, all forward or all backward.
    """
    real_BT = slots[BORN] < NEVER
    if sight == "causal":  # one doc a row, in order: it was looked at when the batch was made
        length_B = real_BT.sum(1).cpu()
        place_BT = torch.arange(real_BT.numel(), device=slots.device).view(real_BT.shape)
        return Order(place_BT[:, : int(length_B.max())], length_B, real_BT.numel())
    place_R = real_BT.flatten().nonzero()[:, 0]  # pads are never born
    of_row = slots.flatten(1)[:, place_R]
    by_time = of_row[NOW].argsort(stable=True)
    by_doc = by_time[of_row[DOC, by_time].argsort(stable=True)]  # docs, and times within a doc
    of_row = of_row[:, by_doc]
    place_R = place_R[by_doc]
    require(reads_one_by_one(of_row.cpu().numpy()), SEQUENTIAL)
    _, doc_R, length_N = of_row[DOC].unique_consecutive(return_inverse=True, return_counts=True)
    begin_N = length_N.cumsum(0) - length_N
    # a slot's step is its number among all, less that of the first slot of its doc
    place_NL = place_R.new_zeros(len(length_N), int(length_N.max()))
    place_NL[doc_R, torch.arange(len(doc_R), device=slots.device) - begin_N[doc_R]] = place_R
    return Order(place_NL, length_N.cpu(), real_BT.numel())


class RecurrentStack(Tower):
    """One direction of LSTM layers above an embedding."""

    def __init__(self, config: RecurrentConfig, vocab_size: int, embed: Embedding | None = None):
        super().__init__()
        self.config = config.word_config
        self.settings = config
        self.embed = build_reader(config, vocab_size) if embed is None else embed
        inputs = [config.width, *config.outputs[:-1]]
        self.layers = nn.ModuleList(
            LSTM(
                *sizes,
                cell_clip=config.cell_clip,
                projection_clip=config.projection_clip,
                weight_dropout=config.weight_dropout,
                forget_bias=config.forget_bias,
                projects=config.narrowing == "projection",
                bptt=config.bptt,
                bptt_chunks=config.bptt_chunks,
            )
            for sizes in zip(inputs, config.cells, config.outputs, strict=True)
        )
        self.map: nn.Module = nn.Identity()
        if config.narrowing == "map":
            self.map = nn.Linear(config.cell_width, config.width)

    def encode(self, reading: Reading) -> Tensor:
        """The states [B, T, D], as `Stack.encode` has them, of a model of one direction."""
        slots = reading.slots
        memory = reading.condition.memory
        return self.read(self.embed(slots), slots, reading.sight, memory, reading.depths)[0]

    def read(
        self,
        embedded_BTD: Tensor,
        slots: Tensor,
        sight: str,
        memory: Carry,
        layers: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The states [B, T, D] after and before dropout, and what the docs carry on, by name.

        `memory` is of all rows; with one doc a row docs are rows.
        """
        order = reading_order(slots, sight)
        rows = slots.shape[1]
        x_NLD = self.drop(order.to_sequences(embedded_BTD), self.settings.input_dropout)
        if layers is not None:
            layers.append(order.back(x_NLD, rows))
        states = self.initial_states(x_NLD)
        if memory:
            assert len(states[0][0]) == rows, "stateful rows have one doc each"
            states = [(memory[f"output.{n}"], memory[f"cell.{n}"]) for n in range(len(states))]
        found_NLD, after = self.pass_through(x_NLD, order, states, rows, layers)
        raw_BTD = order.back(found_NLD, rows)
        dropped_NLD = self.drop(found_NLD, self.settings.dropout)
        states_BTD = raw_BTD if dropped_NLD is found_NLD else order.back(dropped_NLD, rows)
        carried = {}
        for number, (output_NP, cell_NC) in enumerate(after):
            # detached: gradients end at the edge of the text; the precision of a run may change
            carried[f"output.{number}"] = output_NP.detach().float()
            carried[f"cell.{number}"] = cell_NC.detach().float()
        return states_BTD, raw_BTD, carried

    def drop(self, x_NLD: Tensor, chance: float) -> Tensor:
        """Dropout, of the same values in all steps where it is locked."""
        if not (self.training and chance):
            return x_NLD
        if not self.settings.locked_dropout:
            return F.dropout(x_NLD, chance)
        return x_NLD * F.dropout(x_NLD.new_ones(len(x_NLD), 1, x_NLD.shape[2]), chance)

    def initial_states(self, x_NLD: Tensor) -> list[State]:
        """The state of each layer before a text."""
        states = []
        for layer in self.layers:
            assert isinstance(layer, LSTM)
            output_NP, cell_NC = (x_NLD.new_zeros(len(x_NLD), width) for width in layer.widths)
            states.append((output_NP, cell_NC))
        return states

    def pass_through(
        self,
        x_NLD: Tensor,
        order: Order,
        states: list[State],
        rows: int,
        layers: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[State]]:
        """Apply the layers to embeddings; returns outputs, and states at the end of each doc."""
        after = []
        for number, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if number:
                x_NLD = self.drop(x_NLD, self.settings.hidden_dropout)
            made_NLP, ended = layer(x_NLD, order.length_N, state)
            x_NLD = made_NLP + x_NLD if number and self.settings.residual else made_NLP
            after.append(ended)
            if layers is not None:
                layers.append(order.back(x_NLD, rows))
        x_NLD = self.map(x_NLD)
        return x_NLD, after

    def new_cache(
        self, batch_size: int, columns: int, condition: Condition | None = None
    ) -> LastStates:
        """A cache without states: the prompt has not been read."""
        return LastStates([])

    def extend(
        self,
        columns: Tensor,
        sight_BqS: Tensor,
        cache: LastStates,
        at: int | Tensor,
        condition: Condition | None = None,
        asked: Tensor | None = None,
    ) -> Tensor:
        """The states [B, q, D] of the prompts, or of a word of every hypothesis."""
        rows = columns.shape[1]
        prompt = not cache.states
        if prompt:
            order = reading_order(columns, "rule")
        else:  # each word is a text of its own, which goes on from the state of its hypothesis
            words = columns[0].numel()
            place_N1 = torch.arange(words, device=columns.device)[:, None]
            order = Order(place_N1, torch.ones(words, dtype=torch.int64), words)
        x_NLD = order.to_sequences(self.embed(columns))
        before = [(output.flatten(0, 1), cell.flatten(0, 1)) for output, cell in cache.states]
        found_NLD, after = self.pass_through(
            x_NLD, order, before or self.initial_states(x_NLD), rows
        )
        cache.states = [
            (output.unflatten(0, (rows, -1)), cell.unflatten(0, (rows, -1)))
            for output, cell in after
        ]
        states_BqD = order.back(found_NLD, rows)
        return states_BqD if asked is None else states_BqD.take_along_dim(asked[..., None], 1)


@dataclass
class LastStates:
    """What decoding keeps of a recurrent stack: each layer's state [B, K, ...] of hypotheses."""

    states: list[State]

    def follow(self, back: Tensor) -> None:
        """Hypothesis k of row b goes on from hypothesis back[b, k] of the step before."""

        def reorder(table: Tensor) -> Tensor:
            return table.take_along_dim(back[..., None], 1)

        self.states = [(reorder(output), reorder(cell)) for output, cell in self.states]

    def select(self, rows: Tensor) -> LastStates:
        """The cache of these batch rows, copied."""
        return LastStates([(output[rows], cell[rows]) for output, cell in self.states])


class RecurrentModel(Model):
    """LSTM stacks and output layers; two directions share the embedding and the output layers."""

    def __init__(self, config: RecurrentConfig, vocab_size: int):
        super().__init__(config, vocab_size, RecurrentStack(config, vocab_size))
        self.settings = config
        embed = self.decoder.embed
        for name in config.towers[:-1]:
            self.towers[name] = RecurrentStack(config, vocab_size, embed)
        # `Model` has drawn what Transformers begin with; LSTM layers draw their own weights
        for part in self.towers.modules():
            if isinstance(part, nn.Linear | nn.Conv1d):
                part.reset_parameters()
        for part in self.towers.modules():
            if isinstance(part, CharacterEmbedding | Highway):
                part.begin()
        for head in self.heads.values():
            if isinstance(head, Concat):
                head.bptt = config.bptt
                head.bptt_chunks = config.bptt_chunks
        for table in (embed.tokens.weight, self.words.weight):
            if table is not None:
                nn.init.uniform_(table, -config.init_range, config.init_range)

    def condition(self, batch: Batch) -> Condition:
        """The states that stateful rows carried out of their previous text."""
        return Condition(memory=batch.carry)

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states [B, T, D] of each tower, and what the rows carry on.

        Heads read the states of all towers side by side, the decoded one's first. The state of the
        backward direction comes from the end of the text, which no other text follows.
        """
        condition = self.condition(batch) if condition is None else condition
        for name in self.config.towers:
            self.check_tower(name, batch)
        embedded_BTD = self.embed_words(batch)
        last = self.config.towers[-1]
        states: dict[str, Tensor] = {}
        carry: Mapping[str, Tensor] = {}
        read = any(ask.head != LM for ask in batch.asks.values())
        every: dict[str, list[Tensor]] = {}
        for name in reversed(self.config.towers):
            stack = self.tower(name)
            every[name] = []
            assert isinstance(stack, RecurrentStack)
            memory = condition.memory if name == last else {}
            layers = every[name] if read else None
            states[name], raw_BTD, left = stack.read(
                embedded_BTD, batch.towers[name], batch.sight[name], memory, layers
            )
            carry = carry or left
        if read:
            states[layers_key(last)] = self.for_heads(states, every)
        if self.training:
            states[f"{last}/raw"] = raw_BTD
        return states, carry

    def embed(self, batch: Batch, depth: int) -> Tensor:
        """`Model.embed`; states of two directions are side by side, the forward ones first."""
        if len(self.config.towers) == 1:
            return super().embed(batch, depth)
        embedded_BTD = self.embed_words(batch)

        def states_of(name: str) -> Tensor:
            stack = self.tower(name)
            assert isinstance(stack, RecurrentStack)
            words = embedded_BTD, batch.towers[name], batch.sight[name]
            return read_to_depth(
                lambda depths: stack.read(*words, {}, depths)[0], depth, len(stack.layers)
            )

        return torch.cat([states_of(name) for name in reversed(self.config.towers)], -1)

    def for_heads(self, states: dict[str, Tensor], every: dict[str, list[Tensor]]) -> Tensor:
        """The states that heads read: [B, T, 2 D], or those of several layers, [B, T, L, 2 D]."""
        side_by_side = torch.cat(list(states.values()), -1)
        if numbers := self.settings.head_layers:
            by_number = [
                torch.cat([layers[number] for layers in every.values()], -1) for number in numbers
            ]
            side_by_side = torch.stack(by_number, dim=2)
        return F.dropout(side_by_side, self.settings.head_dropout, self.training)

    def embed_words(self, batch: Batch) -> Tensor:
        """The embeddings [B, T, D] of the words that dropout leaves, the same in all towers."""
        name = self.config.towers[-1]
        embed = self.decoder.embed
        slots = batch.towers[name]
        chars = batch.inputs.get(f"{name}.chars")
        if isinstance(embed, CharacterEmbedding):
            require(chars is not None, "--arch reads characters, which this task does not lay out")
            return embed(chars)
        x_BTD: Tensor = embed(slots)
        chance = self.settings.embedding_dropout
        if self.training and chance:
            # a factor for each word of the vocabulary, not for each slot
            kept_V1 = F.dropout(x_BTD.new_ones(embed.tokens.num_embeddings, 1), chance)
            x_BTD = x_BTD * kept_V1[slots[TOKEN]]
        return x_BTD

    def answer(
        self,
        states: Mapping[str, Tensor],
        batch: Batch,
        asks: Sequence[Ask],
        price_K: Tensor | None = None,
        *smoothed: Any,
    ) -> Terms:
        """`Answers.answer`; in training the words may be compared with some others only."""
        if not (self.training and self.settings.sampled_words and asks[0].head == LM):
            return super().answer(states, batch, asks, price_K, *smoothed)
        require(
            not any(smoothed[:1]),
            "--criterion.label-smoothing spreads over all words: it excludes --arch.sampled-words",
        )
        label_K = torch.cat([ask.label for ask in asks])
        price_K = torch.cat([ask.weight for ask in asks]) if price_K is None else price_K
        logits_KC = self.sample_logits(gather(states, batch, asks).states[:, 0], label_K)
        return self.words.terms(logits_KC, torch.zeros_like(label_K), price_K, *smoothed)

    def sample_logits(self, states_KD: Tensor, label_K: Tensor) -> Tensor:
        """Logits [K, 1 + S] of each label and of S sampled words, these less log(S q).

        Their softmax estimates that over all words (Bengio and Senecal 2008; Jean et al. 2015,
        arXiv 1412.2007, section 3.1). Zipf's law q of a word whose id is r, as in bilm-tf, is
        log((r + 2) / (r + 1)) / log(V + 1).
        """
        head = self.words
        count = self.settings.sampled_words
        weight = self.decoder.embed.tokens.weight if head.weight is None else head.weight
        size = math.log(len(weight) + 1)
        uniform_S = torch.rand(count, device=label_K.device, dtype=torch.float64)
        word_S = ((uniform_S * size).exp() - 1).long().clamp(max=len(weight) - 1)
        expected_S = count * torch.log1p(1 / (word_S + 1)) / size  # how often each is drawn
        own_K = (states_KD * weight[label_K]).sum(-1)
        others_KS = F.linear(states_KD, weight[word_S]) - expected_S.log()
        if head.bias is not None:
            own_K, others_KS = own_K + head.bias[label_K], others_KS + head.bias[word_S]
        # a label that is drawn is no wrong answer
        others_KS = others_KS.masked_fill(word_S == label_K[:, None], -torch.inf)
        return torch.cat([own_K[:, None], others_KS], 1)


def build_reader(config: RecurrentConfig, vocab_size: int) -> Embedding:
    """What a stack reads: a table of words, or words made of their characters."""
    if not config.char_width:
        return Embedding(config.word_config, vocab_size)
    return cast(
        Embedding,
        CharacterEmbedding(config.char_width, config.char_filters, config.highways, config.width),
    )  # it has what is asked of a tower's
