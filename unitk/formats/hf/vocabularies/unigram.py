"""Tokenizer classes with unigrams of sentencepiece: those of T5, ALBERT, DeBERTa, Pegasus, XLNet.

Kudo 2018, arXiv 1804.10959.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unitk.errors import DataError
from unitk.registry import register
from unitk.vocab.tokenizer_classes import Flag, Pieces, TokenizerClass

UNIGRAM: dict[str, Any] = {"slow": "*.model", "model": "Unigram"}


def unigram(pieces: Pieces, steps: list[Any], begins: bool = True) -> Any:
    """Unigrams of words between blanks, after these steps of normalizing.

    With `begins`, a blank is before the first word. Raises `DataError` for pieces that are
    twice.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    if len(pieces.ids) != len(pieces.scores):
        raise DataError("has a piece twice, which would have one of two ids")
    scored = list(zip(pieces.ids, pieces.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(scored, pieces.unk, pieces.has_bytes))
    if pieces.charsmap:
        steps.append(normalizers.Precompiled(pieces.charsmap))
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    where: dict[str, Any] = {"replacement": "▁", "prepend_scheme": "always" if begins else "never"}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**where)]
    )
    tokenizer.decoder = decoders.Metaspace(**where)
    return tokenizer


def build_t5(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Unigrams of words between blanks."""
    return unigram(pieces, [])


def metaspace(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Unigrams of words that keep their blanks, several of which are one."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.Unigram([*zip(pieces.ids, pieces.scores, strict=True)], pieces.unk)
    )
    table = pieces.charsmap
    first = normalizers.Precompiled(table) if table else normalizers.Replace("\n", " ")
    blanks = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([first, blanks])
    where: dict[str, Any] = {"replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**where)
    tokenizer.decoder = decoders.Metaspace(**where)
    return tokenizer


def build_deberta(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Unigrams of words that keep their blanks, at the beginning of a text too."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.Unigram([*zip(pieces.ids, pieces.scores, strict=True)], pieces.unk)
    )
    steps: list[Any] = [normalizers.Lowercase()] if flag("do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    begins = "always" if flag("add_prefix_space", True) else "first"
    where: dict[str, Any] = {"replacement": "▁", "prepend_scheme": begins}
    marks = [pre_tokenizers.Punctuation("isolated")] if flag("split_by_punct", False) else []
    words = pre_tokenizers.Metaspace(**where)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*marks, words])
    tokenizer.decoder = decoders.Metaspace(**where)
    return tokenizer


PEGASUS = ("<mask_2>", "<mask_1>", *(f"<unk_{number}>" for number in range(2, 103)))
"""Symbols of Pegasus' pre-training, which its file of pieces lacks: ids 3, 2, 4, 5, ..."""


def arrange_pegasus(pieces: Pieces, roles: Mapping[str, str]) -> Pieces:
    """Pegasus' pieces: pad, end and 103 symbols, then the pieces but the first two."""
    pad, end, *rest = pieces.ids
    names = (pad, end, PEGASUS[1], PEGASUS[0], *PEGASUS[2:], *rest)
    scores = (0.0,) * 4 + (-100.0,) * (len(PEGASUS) - 2) + pieces.scores[2:]
    ids = {name: index for index, name in enumerate(names)}
    unk = None if pieces.unk is None else pieces.unk + len(PEGASUS)
    return replace(pieces, ids=ids, scores=scores, unk=unk, symbols={})


def plain_letters(flag: Flag, *, keeps: bool, lowercase: bool) -> list[Any]:
    """The steps that make quotes alike, and take off accents unless it `keeps` them, and case."""
    from tokenizers import normalizers

    steps: list[Any] = [normalizers.Replace(two, '"') for two in ("``", "''")]
    if not keeps:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if flag("do_lower_case", lowercase):
        steps.append(normalizers.Lowercase())
    return steps


def build_albert(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Unigrams of letters without case and accents."""
    keeps = flag("keep_accents", False)
    steps = plain_letters(flag, keeps=keeps, lowercase=True)
    return unigram(pieces, steps, flag("add_prefix_space", True))


def build_xlnet(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Unigrams of letters without accents."""
    # transformers 5 reads keep_accents, and removes them anyway
    return unigram(pieces, plain_letters(flag, keeps=False, lowercase=False))


SEPARATED = {"sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"}
register("tokenizer", "T5Tokenizer")(
    TokenizerClass(
        **UNIGRAM,
        about="T5, mT5",
        build=build_t5,
        roles={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    )
)
register("tokenizer", "AlbertTokenizer")(
    TokenizerClass(
        **UNIGRAM,
        about="ALBERT",
        build=build_albert,
        roles={"bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "pad": "<pad>", **SEPARATED},
    )
)
register("tokenizer", "DebertaV2Tokenizer")(
    TokenizerClass(
        **UNIGRAM,
        about="DeBERTa v2 and v3",
        build=build_deberta,
        roles={"bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", **SEPARATED},
    )
)
register("tokenizer", "PegasusTokenizer")(
    TokenizerClass(
        **UNIGRAM,
        about="Pegasus",
        build=metaspace,
        roles={"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"},
        extra=PEGASUS[1:],
        arrange=arrange_pegasus,
    )
)
register("tokenizer", "XLNetTokenizer")(
    TokenizerClass(
        **UNIGRAM,
        about="XLNet",
        build=build_xlnet,
        roles={
            "bos": "<s>",
            "eos": "</s>",
            "unk": "<unk>",
            "pad": "<pad>",
            "sep": "<sep>",
            "cls": "<cls>",
            "mask": "<mask>",
        },
        extra=("<eop>", "<eod>"),
    )
)
