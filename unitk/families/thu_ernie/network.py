"""The K-encoder: layers with a stream of entities beside that of tokens.

Zhang et al. 2019, arXiv 1905.07129, section 3.3. E is the width of the stream of entities. A slot
that names no entity has none there, and its tokens are computed exactly as in BERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from unitk.families.thu_ernie.candidates import Candidates
from unitk.families.thu_ernie.config import CANDIDATES, THUERNIEConfig
from unitk.kernels.lean import map_normed, norm
from unitk.kernels.products import recompute
from unitk.models.attention import Attention, View, compute_dtype, render_mask, take_asked
from unitk.models.layers import Context, Layer
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.models.state import Condition, Reading
from unitk.slots import DOC, Batch


@dataclass(frozen=True)
class Linked(Condition):
    """A condition that also has the entities that slots are linked to."""

    vectors: Tensor | None = None  # [B, T, E], 0 where there is none
    linked: Tensor | None = None  # [B, T, 1]: whether there is one


class EntityFusion(nn.Module):
    """What the stream of entities adds to a layer. x are tokens, e entities, W maps, A attention:

        w = norm(x + A x)       e' = norm(e + A' e)
        h = activation(W1 w + b + W2 e')
        x = norm(w + W3 h)      e = norm(e' + W4 h)

    (equations 2 to 5). The last layer has no e after it, as nothing reads it. The first one may
    have e' = e.
    """

    def __init__(self, config: THUERNIEConfig, number: int):
        super().__init__()
        entity_config, inner = config.entity_config, config.ffn_width
        last = number == config.num_fusions - 1
        attends = number > 0 or not config.entities_mix_first
        self.attention = Attention(entity_config) if attends else None
        self.attention_norm = norm(entity_config) if attends else nn.Identity()
        # the bias of W1 w is that of the sum: a slot without entity has BERT's
        self.up = nn.Linear(config.entity_width, inner * (1 + config.ffn_gate), bias=False)
        self.down = None if last else nn.Linear(inner, config.entity_width, bias=config.bias)
        self.norm = nn.Identity() if last else norm(entity_config)

    def forward(
        self,
        layer: Layer,
        x_BTD: Tensor,
        e_BTE: Tensor,
        view: View,
        between: View,
        linked_BT1: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The states of tokens and of entities that follow a layer; `between` is how entities see
        each other."""
        w_BTD = layer.add(x_BTD, layer.attention_norm, partial(layer.attention, view=view))
        if self.attention is not None:
            attend = partial(self.attention, view=between)
            e_BTE = layer.add(e_BTE, self.attention_norm, attend) * linked_BT1
        ffn = layer.ffn
        # both streams are made of the same inner values
        h_BTF = ffn.dropout(ffn.activate(ffn.up(w_BTD) + self.up(e_BTE)))
        x_BTD = layer.add(w_BTD, layer.ffn_norm, lambda _: map_normed(ffn.norm, ffn.down, h_BTF))
        if self.down is not None:
            down = self.down
            e_BTE = layer.add(e_BTE, self.norm, lambda _: down(h_BTF)) * linked_BT1
        return x_BTD, e_BTE


class KnowledgeStack(Stack):
    """A tower whose last layers read entities, where a condition has some."""

    def __init__(self, config: THUERNIEConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        count = config.num_fusions
        self.fusions = nn.ModuleList(EntityFusion(config, n) for n in range(count))
        for layer in self.layers[-count:]:
            assert isinstance(layer, Layer)
            layer.alone = False  # fusions run the parts of it

    def pass_through(
        self,
        embedded_BTD: Tensor,
        contexts: Sequence[Context],
        condition: Condition,
        asked: Tensor | None = None,
        depths: list[Tensor] | None = None,
    ) -> Tensor:
        """The T-encoder, then the K-encoder, whose layers fuse tokens and entities."""
        if not isinstance(condition, Linked):
            return super().pass_through(embedded_BTD, contexts, condition, asked, depths)
        assert condition.vectors is not None and condition.linked is not None
        e_BTE, linked_BT1 = condition.vectors, condition.linked
        between = self.entities(contexts[-1].view, linked_BT1)
        x_BTD = embedded_BTD
        plain = len(self.layers) - len(self.fusions)
        again = self.recompute and self.training
        for number, (layer, context) in enumerate(zip(self.layers, contexts, strict=True)):
            if depths is not None:
                depths.append(x_BTD)
            if number < plain:
                x_BTD = recompute(layer, x_BTD, context) if again else layer(x_BTD, context)
                continue
            fusion = self.fusions[number - plain]
            arguments = layer, x_BTD, e_BTE, context.view, between, linked_BT1
            x_BTD, e_BTE = recompute(fusion, *arguments) if again else fusion(*arguments)
        states_BTD: Tensor = self.norm(x_BTD)
        return states_BTD if asked is None else take_asked(states_BTD, asked)

    def entities(self, view: View, linked_BT1: Tensor) -> View:
        """How entities see each other: those of a doc by the rule, all other slots not at all."""
        apart = view.queries.clone()
        apart[DOC] = torch.where(linked_BT1[..., 0], apart[DOC], -1)
        dropout = self.config.attention_dropout if self.training else 0.0
        dtype = compute_dtype(self.embed.tokens.weight)
        reading = Reading(apart, "rule", view.num_keys)
        return render_mask(reading, dtype, dropout, choice=self.attention)


class THUERNIENetwork(Model):
    """BERT with entities: the input "x.entity" [B, T] has their numbers, from 1; 0 is none."""

    additions = ("fusions",)

    def __init__(self, config: THUERNIEConfig, vocab_size: int):
        super().__init__(config, vocab_size, KnowledgeStack(config, vocab_size))

    def condition(self, batch: Batch) -> Condition:
        """The embeddings of the docs' tasks, and the vectors of linked entities."""
        bias = super().condition(batch).bias
        number_BT = batch.inputs.get("x.entity")
        assert isinstance(self.config, THUERNIEConfig)
        if number_BT is None and not self.config.first_linked:
            return Condition(bias=bias)
        docs_BT = batch.towers["x"][DOC]
        width = self.config.entity_width
        if number_BT is None:
            linked_BT1 = torch.zeros_like(docs_BT, dtype=torch.bool)[..., None]
            vectors_BTE = linked_BT1.expand(-1, -1, width).float()
        else:
            head = self.heads.get(CANDIDATES)
            linked_BT1 = (number_BT > 0)[..., None]
            assert isinstance(head, Candidates)
            vectors_BTE = head.table(number_BT) * linked_BT1
        if self.config.first_linked:
            # a pad's doc is that of its row's first text, so none comes first
            first_BT = docs_BT.diff(dim=1, prepend=docs_BT[:, :1] - 1) > 0
            linked_BT1 = linked_BT1 | first_BT[..., None]
        return Linked(bias=bias, vectors=vectors_BTE, linked=linked_BT1)
