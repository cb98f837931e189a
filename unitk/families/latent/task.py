"""Optimus.  Li et al. 2020, arXiv 2004.04092, sections 3 and 4.

A text is encoded into a latent, from which the decoder writes the same text. The decoder looks at
no slot of the encoder: all it knows is the latent.

             enc                     dec
    token    C  a  b  c  S           C  a  b  c      text a b c
    pos      0  1  2  3  4           0  1  2  3
    at       0  0  0  0  0           0  1  2  3
    cross    0  0  0  0  0
    label    .  .  .  .  .           a  b  c  S

The latent is made of the state of the first slot. With `fusion`, a pair of a context and a response
has three docs: the response is written from the latent of the context, from its own latent, and
from one between the two, which the criterion makes (Gao et al. 2019, arXiv 1902.11205).

    enc      context | response | C        dec      response | response | response

Fine-tuning on pairs encodes the source and writes the target. Generating writes what the most
likely latent says. With a vocabulary of its own, the encoder reads the words that the text's tokens
spell, up to twice as many tokens, and no more than it has positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import UsageError, require
from unitk.options.fields import Chance, Copied
from unitk.registry import register
from unitk.slots import NEVER, Example, Ids, Slots, stay
from unitk.tasks.base import Encoded, Task, frame_parts, places_of
from unitk.tasks.seq2seq import Seq2Seq
from unitk.tasks.understanding.base import side_by_side
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab


@register("task", "optimus")
class Optimus(Seq2Seq):
    """Write a text from its latent, a variational autoencoder (Optimus)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """What the two towers read."""

        source_vocab: Annotated[Path, Copied("source_vocab/vocab.json")] | None = None
        """Vocabulary of the encoder (Optimus: BERT's WordPiece beside GPT-2's bytes). Default: that
        of the corpus. Checkpoints include it. The encoder reads at most twice as many tokens as the
        text has, and as many as it has positions; the log counts longer texts."""
        encoder_drop: Chance = 0.0
        """Probability that the encoder misses a word (denoising: Shen et al. 2020, arXiv
        1905.12777, drop 0.3)."""
        decoder_drop: Chance = 0.0
        """Probability that the decoder reads an unknown word instead of the last one (Bowman et al.
        2016, arXiv 1511.06349, section 3.1)."""

        fusion: bool = False
        """Learn dialogue: write a target from the latent of its source, from its own, and from one
        between them (SpaceFusion). Needs --criterion fusion."""

    config: Config
    symbols = ("pad", "unk", "cls", "sep", "mask")
    arch, estimator = "optimus_small", "importance"
    criterion = "elbo"
    hides = {"encoder_drop": "0.0", "decoder_drop": "0.0", "fusion": "off"}
    opening = "cls"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        if config.source_vocab is not None:
            self.source_vocab = open_vocab(config.source_vocab)
            self.source_vocab.require(("pad", "cls", "sep"), "--task.source-vocab")

    def slots(self, n: Ids) -> Ids:
        return n * (1 if self.source_vocab is self.vocab else 2) + self.frame

    @property
    def needs_criterion(self) -> str:  # type: ignore[override]
        return "fusion" if self.config.fusion else ""

    def pair_slots(self, source: Ids, target: Ids, parts: Ids) -> Ids | None:
        if self.config.fusion:
            return None
        return np.maximum(self.slots(source + parts - 1), target + 1)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        require(not self.config.fusion, "--task.fusion is for pairs: --data holds texts")
        return self.finetune([text.ids], text.ids, rng)

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        written = self.lay_out_reply(source, target, rng)
        if not self.config.fusion:
            return written
        from_own = self.lay_out_reply([target], target, rng)
        between = self.lay_out_reply([target], target, rng)
        # a doc has a latent; the criterion puts another in the place of this one
        between.towers["enc"] = between.towers["enc"].take(np.zeros(1, np.int64))
        replies = (written, from_own, between)
        return side_by_side([Encoded(reply, "dec", 0, []) for reply in replies])[0]

    def lay_out_reply(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        """A target that is written from the latent of a source."""
        example = super().finetune(source, target, rng)
        enc, dec = example.towers["enc"], example.towers["dec"]
        if self.config.decoder_drop:
            dropped = rng.random(len(dec)) < self.config.decoder_drop
            dec.token[1:][dropped[1:]] = self.vocab.unk  # never what opens the text
        if self.config.encoder_drop:
            kept = rng.random(len(enc)) >= self.config.encoder_drop
            kept[[0, -1]] = True  # C, whose state becomes the latent, and S
            # the words close up: positions stay 0, 1, 2, ...
            enc.token[: kept.sum()] = enc.token[kept]
            enc = enc.take(np.arange(kept.sum()))
        return Example({"enc": enc, "dec": dec}, example.asks)

    def likelihood(self, before: Ids, text: Ids) -> Example:
        raise UsageError(
            "--task optimus gives no log-probability of a text: an autoencoder bounds the "
            "likelihood of a text, which unitk evaluate --data measures"
        )

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """Lay out texts for heads over the encoder's first slot, from which the latent is made."""
        return Encoded(self.prompt(parts), "enc", 0, places_of(parts, 1))

    def reading(self, source: list[Ids]) -> Slots:
        """Frame a source as C, its tokens, S, for the encoder; the decoder looks at none of it."""
        tokens = self.join(source)
        vocab = self.source_vocab
        if vocab is not self.vocab:
            tokens = self.spell(tokens)[: self.longest(len(tokens))]
        tokens, _ = frame_parts([tokens], vocab.cls, vocab.sep)
        return stay(tokens, pos=np.arange(len(tokens)), cross=0)

    def spell(self, tokens: Ids) -> Ids:
        """What tokens spell, in the vocabulary of the encoder; separators stay."""
        parts = np.split(tokens, np.flatnonzero(tokens == self.vocab.sep))
        words = [self.source_vocab.encode(self.vocab.decode(part)) for part in parts]
        ids = [id_ for part_ids in words for id_ in (self.source_vocab.sep, *part_ids)]
        return np.array(ids[1:], np.int64)  # no separator before the first part

    def longest(self, tokens: int) -> int:
        """The most tokens of the encoder's own vocabulary that it reads of a source."""
        return min(2 * tokens, (self.trained.position_limit or NEVER) - self.frame)

    def truncates(self, source: list[Ids]) -> bool:
        tokens = self.join(source)
        return len(self.spell(tokens)) > self.longest(len(tokens))
