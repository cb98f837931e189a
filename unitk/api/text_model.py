"""A trained model as a plain torch module: logits, losses and gradients, under foreign names too.

model = unitk.load_module("downloads/bert-base-uncased", format="hf", dtype="fp64")
model.loss(["a text", "another"]).backward()
model.tensors(gradients=True)["bert.embeddings.word_embeddings.weight"]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from unitk import registry
from unitk.data.cuts import Text
from unitk.decoding.forced import ask_all_tokens
from unitk.errors import require
from unitk.models.heads.base import gather
from unitk.models.heads.words import WordHead
from unitk.slots import Batch, Example, Ids, collate
from unitk.training.saving.checkpoint import Loaded


class TextModel(nn.Module):
    """A trained model as a torch module; `model` is the network, first in evaluation mode."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__()
        self.loaded = loaded
        self.model = loaded.model.eval()
        self.task = loaded.task

    def train_added_rows(self) -> None:
        """Let the symbols that an import added to the vocabulary be predicted and trained.

        Before, their logits are -inf, so that the model computes what the original one does. Their
        rows of the output layer then receive no gradient.
        """
        head = self.model.heads["lm"]
        assert isinstance(head, WordHead)
        head.trained = len(self.task.vocab)

    def logits(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Tensor]:
        """Logits over the vocabulary for each text, [slots, V], at every slot that reads it.

        With `targets`, at every slot that predicts a word of the target, its end included, as in
        scoring. A model with an encoder needs targets. `ids` gives the ids at these slots.
        """
        examples = self._lay_out(texts, targets)
        batch = self._batch(examples)
        states, _ = self.model(batch, self.model.condition(batch))
        ask = batch.asks["lm"]
        sizes = [len(example.asks[0].label) for example in examples]
        return list(self.model.head(gather(states, batch, [ask])).split(sizes))

    def ids(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Ids]:
        """The ids that the slots of `logits` read, or with `targets` predict, for each text."""
        return [example.asks[0].label for example in self._lay_out(texts, targets)]

    def loss(
        self, texts: Sequence[str], targets: Sequence[str] | None = None, *, seed: int = 1
    ) -> Tensor:
        """The training loss of these texts or pairs as one batch, a scalar.

        The task's draws, such as which words are hidden, depend on `seed` and the text's number.
        """
        examples = []
        for number, (source, target) in enumerate(self._pairs(texts, targets)):
            rng = np.random.default_rng((seed, number))
            if target is None:
                examples.append(self.task.pretrain(Text([source], np.zeros(1, np.int64)), rng))
            else:
                examples.append(self.task.finetune([source], target, rng))
        batch = self._batch(examples)
        criterion = registry.get("criterion", self.task.criterion)().build(self.task.vocab)
        sums = criterion(self.model, batch, 0, None).sums
        counts = criterion.counts(batch)
        weights = self.task.asks if targets is None else self.task.record_asks
        means = [weights.get(name, 1) * sums[name] / counts[name] for name in sums]
        return torch.stack(means).sum()

    def tensors(self, *, gradients: bool = False) -> dict[str, Tensor]:
        """The weights, or their gradients, under the names and in the shapes of transformers.

        A weight without a gradient has zeros. Raises `UsageError` if no family of transformers fits
        the model.
        """
        tensors: dict[str, Tensor] = {}
        for name, weight in self.model.named_parameters():
            none = torch.zeros_like(weight) if weight.grad is None else weight.grad
            tensors[name] = (none if gradients else weight.detach())[: self.loaded.rows.get(name)]
        stored: dict[str, Tensor] = registry.get("format", "hf").translate(self.loaded, tensors)
        return stored

    def _pairs(
        self, texts: Sequence[str], targets: Sequence[str] | None
    ) -> list[tuple[Ids, Ids | None]]:
        def encoded(texts: Sequence[str]) -> list[Ids]:
            texts = [texts] if isinstance(texts, str) else texts  # a string is a sequence, too
            return [np.array(self.task.vocab.encode(text), np.int64) for text in texts]

        sources = encoded(texts)
        ids_of_targets = [None] * len(sources) if targets is None else encoded(targets)
        require(sources, "texts: none is given")
        require(len(ids_of_targets) == len(sources), "there must be a target for each text")
        return list(zip(sources, ids_of_targets, strict=True))

    def _lay_out(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[Example]:
        several = len(self.model.towers) > 1
        require(targets is not None or not several, "targets are needed: the model has an encoder")
        return [ask_all_tokens(self.task, *pair) for pair in self._pairs(texts, targets)]

    def _batch(self, examples: Sequence[Example]) -> Batch:
        return collate([[example] for example in examples]).to(self.model.device)
