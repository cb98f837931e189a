"""Tokenizer classes with word pieces or byte-pair encoding: those of BERT, GPT-2, Llama and others.

Schuster and Nakajima 2012 (word pieces); Sennrich et al. 2016, arXiv 1508.07909 (merges); Radford
et al. 2019 (merges of bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unitk.registry import register
from unitk.vocab.tokenizer_classes import Flag, Pieces, TokenizerClass

END = "<|endoftext|>"
FAIRSEQ = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
"""Role -> the symbol that has it in fairseq's models."""


def build_bert(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """WordPiece on words, signs and Chinese characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(dict(pieces.ids), unk_token=unk))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=flag("tokenize_chinese_chars", True),
        strip_accents=flag("strip_accents", None),
        lowercase=flag("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def build_gpt2(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Merges of bytes within words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(dict(pieces.ids), list(pieces.merges)))
    begins = flag("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=begins)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What becomes a word: endings, letters, single digits, signs, line ends and blanks."""


def build_qwen2(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """The same on normalized texts, which `QWEN` cuts into words."""
    from tokenizers import Regex, pre_tokenizers

    tokenizer = build_gpt_neox(pieces, flag, unk)
    # the pattern finds the words, so the bytes are not searched for them again
    begins = flag("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=begins, use_regex=False),
        ]
    )
    return tokenizer


def build_gpt_neox(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """The same on normalized texts."""
    from tokenizers import normalizers

    tokenizer = build_gpt2(pieces, flag, unk)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def byte_fallback(pieces: Pieces, begins: bool, **options: Any) -> Any:
    """BPE of characters; those that no piece has are bytes."""
    from tokenizers import Tokenizer, decoders, models

    options |= {"fuse_unk": True, "byte_fallback": True}
    tokenizer = Tokenizer(models.BPE(dict(pieces.ids), list(pieces.merges), **options))
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if begins:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def build_llama(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Merges of characters on whole texts, which begin with a blank."""
    from tokenizers import pre_tokenizers

    begins = flag("add_prefix_space", True)
    tokenizer = byte_fallback(pieces, begins)
    # "legacy" puts a blank after added tokens, too
    scheme = "always" if flag("legacy", False) else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme if begins else "never", split=False
    )
    return tokenizer


def build_gemma(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Merges of characters on whole texts, as they are."""
    from tokenizers import normalizers, pre_tokenizers

    tokenizer = byte_fallback(pieces, begins=False, unk_token=unk)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    # no blank is left after normalizing, so that a text is one word
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def build_gpt(pieces: Pieces, flag: Flag, unk: str) -> Any:
    """Merges of lower-case characters within words, whose last piece is marked."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    end = {"end_of_word_suffix": "</w>", "unk_token": unk}
    tokenizer = Tokenizer(models.BPE(dict(pieces.ids), list(pieces.merges), **end))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def find_merges(pieces: Pieces, roles: Mapping[str, str]) -> Pieces:
    """The pieces with their merges: of all pairs that make a piece, in the order of its id."""
    ids = pieces.ids
    merges = []
    for piece, index in ids.items():
        cuts = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        merges += [
            (index, len(left), ids[left], ids[right], left, right)
            for left, right in cuts
            if left in ids and right in ids
        ]
    return replace(pieces, scores=(), merges=tuple(merge[4:] for merge in sorted(merges)))


WORD_PIECES: dict[str, Any] = {"slow": "vocab.txt", "model": "WordPiece", "build": build_bert}
MERGES: dict[str, Any] = {"slow": "merges.txt", "model": "BPE"}
SENTENCEPIECE: dict[str, Any] = {"slow": "*.model", "model": "BPE", "arrange": find_merges}

register("tokenizer", "BertTokenizer")(
    TokenizerClass(
        **WORD_PIECES,
        about="BERT, ERNIE, DistilBERT, ELECTRA",
        roles={"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"},
    )
)
register("tokenizer", "MPNetTokenizer")(
    TokenizerClass(**WORD_PIECES, about="MPNet", roles={**FAIRSEQ, "unk": "[UNK]"})
)
register("tokenizer", "RobertaTokenizer")(
    TokenizerClass(**MERGES, about="RoBERTa, BART", build=build_gpt2, roles=FAIRSEQ)
)
register("tokenizer", "GPT2Tokenizer")(
    TokenizerClass(
        **MERGES,
        about="GPT-2, OPT, GPT-Neo",
        build=build_gpt2,
        roles={"bos": END, "eos": END, "unk": END},
    )
)
register("tokenizer", "Qwen2Tokenizer")(
    TokenizerClass(
        **MERGES,
        about="Qwen2, Qwen3",
        build=build_qwen2,
        roles={"unk": END, "eos": END, "pad": END},
    )
)
register("tokenizer", "GPTNeoXTokenizer")(
    TokenizerClass(
        **MERGES,
        about="GPT-NeoX, Pythia",
        build=build_gpt_neox,
        roles={"bos": END, "eos": END, "unk": END, "pad": "<|padding|>"},
    )
)
register("tokenizer", "OpenAIGPTTokenizer")(
    TokenizerClass(**MERGES, about="GPT", build=build_gpt, roles={"unk": "<unk>"})
)
register("tokenizer", "LlamaTokenizer")(
    TokenizerClass(
        **SENTENCEPIECE,
        about="Llama, Mistral",
        build=build_llama,
        roles={"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
    )
)
register("tokenizer", "GemmaTokenizer")(
    TokenizerClass(
        **SENTENCEPIECE,
        about="Gemma",
        build=build_gemma,
        roles={"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
    )
)
