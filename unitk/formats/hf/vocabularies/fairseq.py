"""Tokenizer classes of fairseq's models: XLM-R, CamemBERT, mBART and mBART-50.

Their files of pieces are sentencepiece's. fairseq's symbols are before the pieces, in the places
of sentencepiece's three and one more, and a mask comes after them; mBART has languages there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from unitk.formats.hf.vocabularies.bpe import FAIRSEQ
from unitk.formats.hf.vocabularies.unigram import UNIGRAM, metaspace, unigram
from unitk.registry import register
from unitk.vocab.tokenizer_classes import Flag, Pieces, TokenizerClass

LANGUAGES = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
    my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID
    ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA
    ur_PK xh_ZA gl_ES sl_SI
""".split()
"""The languages of mBART-50; the first 25 are those of mBART."""
CODE = re.compile(r"[a-z]{2}_[A-Z]{2}")
"""How mBART spells a language."""
Roles = Mapping[str, str]


def arrange_pieces(
    pieces: Pieces, first: Mapping[str, float], skipped: int, last: Mapping[str, float]
) -> Pieces:
    """The pieces without the `skipped` ones, after and before others with their scores."""
    # a piece may be twice: once among sentencepiece's own, once among fairseq's
    rest = dict([*zip(pieces.ids, pieces.scores, strict=False)][skipped:])
    scores = {**first, **{piece: rest[piece] for piece in rest if piece not in first}, **last}
    ids = {piece: index for index, piece in enumerate(scores)}
    return replace(pieces, ids=ids, scores=tuple(scores.values()))


def arrange_xlm_roberta(pieces: Pieces, roles: Roles, languages: tuple[str, ...] = ()) -> Pieces:
    """fairseq's four symbols, the pieces, the languages and a mask."""
    first = dict.fromkeys((roles[role] for role in ("bos", "pad", "eos", "unk")), 0.0)
    # a text may spell a language, which is found first
    arranged = arrange_pieces(pieces, first, 3, dict.fromkeys((*languages, roles["mask"]), 0.0))
    return replace(arranged, symbols=dict.fromkeys(languages, True)) if languages else arranged


def arrange_camembert(pieces: Pieces, roles: Roles) -> Pieces:
    """CamemBERT's symbols, of which some are never used."""
    first = {"<s>NOTUSED": 0.0, roles["pad"]: 0.0, "</s>NOTUSED": 0.0, roles["unk"]: 0.0}
    return arrange_pieces(pieces, {**first, "<unk>NOTUSED": -100.0}, 1, {roles["mask"]: 0.0})


def build_camembert(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Words between blanks."""
    pieces = replace(pieces, unk=pieces.ids.get(unk, 0), has_bytes=False)
    return unigram(pieces, [], flag("add_prefix_space", True))


def build_xlm_roberta(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """The same; whatever the unknown token is called, it is the fourth."""
    pieces = replace(pieces, unk=3, has_bytes=False)
    return unigram(pieces, [], flag("add_prefix_space", True))


def build_mbart(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """The same, without the table of characters."""
    return unigram(replace(pieces, unk=3, has_bytes=False, charsmap=b""), [])


def build_mbart50(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Build the tokenizer of mBART-50, which reads several blanks as one."""
    return metaspace(replace(pieces, unk=3), flag, unk)


ALIKE: dict[str, Any] = {**UNIGRAM, "roles": FAIRSEQ}
register("tokenizer", "XLMRobertaTokenizer")(
    TokenizerClass(**ALIKE, about="XLM-R", build=build_xlm_roberta, arrange=arrange_xlm_roberta)
)
register("tokenizer", "CamembertTokenizer")(
    TokenizerClass(
        **ALIKE,
        about="CamemBERT",
        build=build_camembert,
        arrange=arrange_camembert,
        extra=("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
    )
)
register("tokenizer", "MBartTokenizer")(
    TokenizerClass(
        **ALIKE,
        about="mBART",
        build=build_mbart,
        arrange=partial(arrange_xlm_roberta, languages=tuple(LANGUAGES[:25])),
        extra=tuple(LANGUAGES[:25]),
    )
)
register("tokenizer", "MBart50Tokenizer")(
    TokenizerClass(
        **ALIKE,
        about="mBART-50",
        build=build_mbart50,
        arrange=partial(arrange_xlm_roberta, languages=tuple(LANGUAGES)),
        extra=tuple(LANGUAGES),
    )
)
