"""Back-translation on the fly: the criterion that translates texts before it learns to write them.

Lample et al. 2018, arXiv 1711.00043, section 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from unitk.criterions.base import Loss, Trainable
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.batching import make_batch
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints
from unitk.decoding.decode import generate
from unitk.errors import require
from unitk.families.translation.languages import INTO, longest_translation
from unitk.models.model import Model
from unitk.slots import BORN, CROSS, DOC, NEVER, SEG, Batch, Example, Ids, Slots, stay
from unitk.tasks.seq2seq import Seq2Seq
from unitk.vocab.base import Vocab


@dataclass(frozen=True, kw_only=True)
class BackTranslating(CrossEntropy):
    """Cross-entropy of texts given translations of them by the model as it is (no gradient).

    Translations are greedy, or drawn at a `temperature` above 0. Other examples, such as pairs, are
    compared as they are.
    """

    temperature: float
    vocab: Vocab

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        if INTO in batch.inputs:
            assert isinstance(model, Model)
            batch = self.translate(model, batch)
        return super().__call__(model, batch, step, total)

    def translate(self, model: Model, batch: Batch) -> Batch:
        """The batch whose encoder reads translations of what it read, with the same asks."""
        examples = unpack(batch)
        device = batch.last.device
        languages = batch.inputs[INTO].tolist()
        size = model.config.num_segments
        # data are checked as they are laid out; the language of a translation is not among them
        fits = size == 0 or max(languages) < size
        require(fits, f"--task.languages: {max(languages)} is beyond --arch.num-segments {size}")
        seed = int(torch.randint(1 << 31, (), device=device))  # the loop seeds each micro-batch
        translated = self.translations(model, examples, languages, seed)
        for number, (example, words) in enumerate(zip(examples, translated, strict=True)):
            tokens = example.towers["enc"].token
            frame = frame_of(example)
            # the symbols around the text stay
            read = np.concatenate([tokens[: frame - 1], words, tokens[-1:]])
            source = stay(read, np.arange(len(read)), seg=languages[number])
            examples[number] = replace(example, towers={**example.towers, "enc": source})
        return make_batch(examples).to(device)

    def translations(
        self, model: Model, examples: Sequence[Example], languages: Sequence[int], seed: int
    ) -> list[Ids]:
        """The tokens of the translation of each text into a language."""
        protocol = Seq2Seq(Seq2Seq.Config(), self.vocab).protocol
        position_limit = model.config.position_limit or NEVER
        prompts, limits = [], []
        for example, language in zip(examples, languages, strict=True):
            source, written = (example.towers[name].table.copy() for name in ("enc", "dec"))
            # in training the decoder does not look at the text, which it now translates
            source[CROSS] = 1
            written[SEG] = language
            start = written[:, : int(example.asks[0].first[0]) + 1]
            prompts.append(Example({"enc": Slots(source), "dec": Slots(start)}))
            # the encoder must have places for the translation and what is around it
            frame = frame_of(example)
            most = min(int(longest_translation(source.shape[1] - frame)), position_limit - frame)
            limits.append(Constraint(max_len=most))
        drawn: dict[str, Any] = {"sampling": True, "temperature": self.temperature, "seed": seed}
        # all at once: a micro-batch has room for gradients, which the search does not need
        search = GenerateConfig(beam=1, max_tokens=NEVER, **drawn if self.temperature else {})
        searched = generate(model, prompts, protocol, search, constraints=Constraints(limits))
        # in older versions of torch, autocast would use the weights that it converted here again,
        # which then have no gradients
        torch.clear_autocast_cache()
        return [best.ids[best.ids != protocol.end] for best, *_ in searched]


def frame_of(example: Example) -> int:
    """How many symbols are around a text in the encoder; one of them is after it."""
    # the last label is the end symbol
    return len(example.towers["enc"]) - len(example.asks[0].label) + 1


def unpack(batch: Batch) -> list[Example]:
    """The examples of a batch, of one doc each."""
    flat = {name: table.flatten(1).cpu().numpy() for name, table in batch.towers.items()}
    arrays = ("rows", "label", "weight")
    batch_asks = [
        replace(ask, **{name: getattr(ask, name).cpu().numpy() for name in arrays})
        for ask in batch.asks.values()
    ]
    examples = []
    for doc in range(len(batch.owner)):
        places = {
            name: np.flatnonzero((table[DOC] == doc) & (table[BORN] < NEVER))
            for name, table in flat.items()
        }
        towers = {name: Slots(flat[name][:, place]) for name, place in places.items()}
        for slots in towers.values():
            slots.doc[:] = 0
        asks = []
        for ask in batch_asks:
            of_doc = flat[ask.tower][DOC, ask.first] == doc
            # all slots of these tasks stay, so that those of a doc lie one after the other
            rows = ask.rows[of_doc] - places[ask.tower][0]
            label, weight = ask.label[of_doc], ask.weight[of_doc]
            asks.append(replace(ask, rows=rows, label=label, weight=weight))
        examples.append(Example(towers, asks))
    return examples
