"""mBART.  Liu et al. 2020, arXiv 2001.08210, section 2; mBART-50: Tang et al. 2020, 2008.00401.

BART whose texts say their language: the code L of the source's language and the code T of the
target's is where BART has [CLS]. In mBART-25 the code comes after the source instead.

               enc                     dec
    mBART-50   L  a  M  c  S           S  T  a  b  c
    mBART-25   a  M  c  S  L           T  a  b  c
    label      .  .  .  .  .           .  a  b  c  S      of mBART-25 from the first slot on

Pre-training texts and what is written of them have one language, L.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.formats.hf.vocabularies.fairseq import CODE
from unitk.registry import register
from unitk.slots import Example, Ids, Slots, stay
from unitk.tasks.bart import BART
from unitk.vocab.base import Vocab


@register("task", "mbart")
class MBART(BART):
    """Write texts, given them with masks, or translations: BART with languages (mBART)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BART.Config):
        """The languages, and where their codes are."""

        languages: tuple[str, str] = ("en_XX", "en_XX")
        """Languages of source and target, as the vocabulary spells them (en_XX, ro_RO, ...).
        Pre-training texts are in the first."""
        opening: Literal["both", "cls"] = "both"
        """Place of the languages' codes. both: before the source, and after [SEP] before the
        target (mBART-50). cls: after the source, and before the target (mBART)."""

    config: Config
    arch = "mbart_mini"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        ids = {code: vocab.model.find(code) for code in dict.fromkeys(config.languages)}
        # a vocabulary without languages gets an id for each that is named
        self.virtual = tuple(code for code, index in ids.items() if index is None)
        have = [piece for piece in codes_of(vocab) if self.virtual]
        require(
            not have,
            f"--task.languages: the vocabulary has no language {', '.join(self.virtual)}; it has "
            f"{' '.join(have)}",
        )
        beyond = {code: len(vocab) + place for place, code in enumerate(self.virtual)}
        source_code, target_code = (beyond.get(code, ids[code]) for code in config.languages)
        assert source_code is not None and target_code is not None
        self.codes = source_code, target_code

    @property
    def code_is_last(self) -> bool:
        """Whether the code comes after the source."""
        return self.config.opening == "cls"

    @cached_property
    def start(self) -> list[int]:
        return [self.codes[1]] if self.code_is_last else [self.vocab.sep, self.codes[1]]

    def reading(self, source: list[Ids]) -> Slots:
        sep = self.vocab.sep
        code = self.codes[0]
        before, after = ([], [sep, code]) if self.code_is_last else ([code], [sep])
        tokens = np.concatenate([before, self.join(source), after]).astype(np.int64)
        return stay(tokens, pos=np.arange(len(tokens)))

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        source_code, target_code = self.codes
        # what is written is the text itself
        if source_code == target_code:
            return super().pretrain(text, rng)
        return self.with_attributes(codes=(source_code, source_code)).pretrain(text, rng)


def codes_of(vocab: Vocab) -> list[str]:
    """The languages that a vocabulary has."""
    return list(filter(CODE.fullmatch, vocab.pieces(range(vocab.model.size))))
