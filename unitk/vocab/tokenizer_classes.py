"""Tokenizer classes of transformers 5: what each makes of a list of pieces.

A class has its own normalizer and pre-tokenizer, also where a tokenizer.json has others.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unitk import registry
from unitk.errors import DataError
from unitk.foreign import require_file
from unitk.vocab.subwords import SentencePiece, fields
from unitk.vocab.untrusted import failures, kind_of

CONTROL, USER = 3, 4  # types of sentencepiece's pieces
Flag = Callable[[str, bool | None], Any]
"""Reads a setting of tokenizer_config.json that is true or false, given its default."""


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The pieces of a tokenizer's model, from whichever file has them."""

    ids: Mapping[str, int]
    scores: tuple[float, ...] = ()  # unigram
    unk: int | None = None
    has_bytes: bool = False
    merges: tuple[tuple[str, str], ...] = ()  # BPE
    charsmap: bytes = b""
    """sentencepiece's table of characters."""
    symbols: Mapping[str, bool] = field(default_factory=dict)
    """Pieces of a sentencepiece model that are found in a text first -> whether special."""


def pieces_of_spec(spec: Mapping[str, Any]) -> Pieces:
    """The pieces of a tokenizer.json that has been checked."""
    model = spec["model"]
    if isinstance(model["vocab"], dict):
        merges = model.get("merges") or []
        pairs = [one.split(" ", 1) if isinstance(one, str) else one for one in merges]
        return Pieces(ids=model["vocab"], merges=tuple((a, b) for a, b in pairs))
    table, steps = b"", [spec.get("normalizer") or {}]
    for step in steps:
        steps += step.get("normalizers", [])
        if step.get("type") == "Precompiled":
            table = table or base64.b64decode(step["precompiled_charsmap"])
    return Pieces(
        ids={piece: index for index, (piece, _) in enumerate(model["vocab"])},
        scores=tuple(float(score) for _, score in model["vocab"]),
        unk=model.get("unk_id"),
        has_bytes=bool(model.get("byte_fallback")),
        charsmap=table,
    )


def pieces_of_file(file: Path) -> Pieces:
    """The pieces of vocab.txt, of merges.txt with vocab.json, or of a sentencepiece model."""
    from tokenizers import models

    beside = [file.with_name("vocab.json")] * (file.name == "merges.txt")
    for one in (file, *beside):
        require_file(one)
    if file.suffix == ".model":
        return _sentencepiece(file.read_bytes())
    if file.name == "merges.txt":
        with failures("and vocab.json are no BPE"):
            ids, merges = models.BPE.read_file(str(file.with_name("vocab.json")), str(file))
        return Pieces(ids=ids, merges=tuple(merges))
    file.read_text(encoding="utf-8")  # the library says nothing of the file
    with failures("is no list of pieces"):
        return Pieces(ids=models.WordPiece.read_file(str(file)))


def _sentencepiece(data: bytes) -> Pieces:
    model = SentencePiece(data)
    found: dict[int, list[dict[int, Any]]] = {1: [], 2: [], 3: []}
    for number, one in fields(data):
        if number in found:
            found[number].append(dict(fields(one)))
    trainer = found[2][0] if found[2] else {}
    kinds = {one.get(1, b"").decode(): int(one.get(3, 1)) for one in found[1]}
    return Pieces(
        ids={model.piece(index): index for index in range(model.size)},
        # TrainerSpec.model_type: 1 is unigram, the default
        scores=tuple(
            struct.unpack("<f", one.get(2, bytes(4)))[0]
            for one in found[1]
            if trainer.get(3, 1) == 1
        ),
        unk=model.unk,
        has_bytes=bool(trainer.get(35)),
        charsmap=found[3][0].get(2, b"") if found[3] else b"",
        symbols={one: kind == CONTROL for one, kind in kinds.items() if kind in (CONTROL, USER)},
    )


@dataclass(frozen=True, kw_only=True)
class TokenizerClass:
    """A tokenizer class: how it uses pieces, the file that has them, and its symbols."""

    about: str = ""  # for `unitk list tokenizer`
    slow: str  # pattern of its file beside tokenizer.json
    model: str
    build: Callable[[Pieces, Flag, str], Any]
    """Makes a tokenizer of pieces; the last argument is the unknown token."""
    roles: Mapping[str, str]
    extra: tuple[str, ...] = ()
    """Special tokens without a role, unless a file names others."""
    arrange: Callable[[Pieces, Mapping[str, str]], Pieces] = lambda pieces, roles: pieces
    """Makes the pieces of its file those of the model; `roles` are the tokens of the folder."""


def _bert(pieces: Pieces, flag: Flag, unk: str) -> Any:
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


def _byte_level(pieces: Pieces, flag: Flag, unk: str) -> Any:
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


def _qwen(pieces: Pieces, flag: Flag, unk: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    tokenizer = _neox(pieces, flag, unk)
    # the pattern finds the words, so the bytes are not searched for them again
    begins = flag("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=begins, use_regex=False),
        ]
    )
    return tokenizer


def _neox(pieces: Pieces, flag: Flag, unk: str) -> Any:
    from tokenizers import normalizers

    tokenizer = _byte_level(pieces, flag, unk)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _byte_fallback(pieces: Pieces, begins: bool, **options: Any) -> Any:
    """BPE of characters; those that no piece has are bytes."""
    from tokenizers import Tokenizer, decoders, models

    options |= {"fuse_unk": True, "byte_fallback": True}
    tokenizer = Tokenizer(models.BPE(dict(pieces.ids), list(pieces.merges), **options))
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * begins)
    return tokenizer


def _llama(pieces: Pieces, flag: Flag, unk: str) -> Any:
    from tokenizers import pre_tokenizers

    begins = flag("add_prefix_space", True)
    tokenizer = _byte_fallback(pieces, begins)
    # "legacy" puts a blank behind added tokens, too
    scheme = "always" if flag("legacy", False) else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme if begins else "never", split=False
    )
    return tokenizer


def _gemma(pieces: Pieces, flag: Flag, unk: str) -> Any:
    from tokenizers import normalizers, pre_tokenizers

    tokenizer = _byte_fallback(pieces, begins=False, unk_token=unk)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    # no blank is left after normalizing, so that a text is one word
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def _gpt(pieces: Pieces, flag: Flag, unk: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    end = {"end_of_word_suffix": "</w>", "unk_token": unk}
    tokenizer = Tokenizer(models.BPE(dict(pieces.ids), list(pieces.merges), **end))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def unigram(pieces: Pieces, steps: list[Any], begins: bool = True) -> Any:
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


def _t5(pieces: Pieces, flag: Flag, unk: str) -> Any:
    return unigram(pieces, [])


def metaspace(pieces: Pieces, flag: Flag, unk: str) -> Any:
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


def _deberta(pieces: Pieces, flag: Flag, unk: str) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.Unigram([*zip(pieces.ids, pieces.scores, strict=True)], pieces.unk)
    )
    steps: list[Any] = [normalizers.Lowercase()] * flag("do_lower_case", False)
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    begins = "always" if flag("add_prefix_space", True) else "first"
    where: dict[str, Any] = {"replacement": "▁", "prepend_scheme": begins}
    marks = [pre_tokenizers.Punctuation("isolated")] * flag("split_by_punct", False)
    words = pre_tokenizers.Metaspace(**where)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*marks, words])
    tokenizer.decoder = decoders.Metaspace(**where)
    return tokenizer


PEGASUS = ("<mask_2>", "<mask_1>", *(f"<unk_{number}>" for number in range(2, 103)))
"""Symbols of Pegasus' pre-training, which its file of pieces lacks: ids 3, 2, 4, 5, ..."""


def _behind_symbols(pieces: Pieces, roles: Mapping[str, str]) -> Pieces:
    """Pegasus' pieces: pad, end and 103 symbols, then the pieces but the first two."""
    pad, end, *rest = pieces.ids
    names = (pad, end, PEGASUS[1], PEGASUS[0], *PEGASUS[2:], *rest)
    scores = (0.0,) * 4 + (-100.0,) * (len(PEGASUS) - 2) + pieces.scores[2:]
    ids = {name: index for index, name in enumerate(names)}
    unk = None if pieces.unk is None else pieces.unk + len(PEGASUS)
    return replace(pieces, ids=ids, scores=scores, unk=unk, symbols={})


def _plain_letters(flag: Flag, *, keeps: bool, lowercase: bool) -> list[Any]:
    from tokenizers import normalizers

    steps: list[Any] = [normalizers.Replace(two, '"') for two in ("``", "''")]
    if not keeps:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    return steps + [normalizers.Lowercase()] * flag("do_lower_case", lowercase)


def _albert(pieces: Pieces, flag: Flag, unk: str) -> Any:
    keeps = flag("keep_accents", False)
    steps = _plain_letters(flag, keeps=keeps, lowercase=True)
    return unigram(pieces, steps, flag("add_prefix_space", True))


def _xlnet(pieces: Pieces, flag: Flag, unk: str) -> Any:
    # transformers 5 reads keep_accents, and removes them anyway
    return unigram(pieces, _plain_letters(flag, keeps=False, lowercase=False))


def _with_merges(pieces: Pieces, roles: Mapping[str, str]) -> Pieces:
    """The pieces with their merges: of all pairs that make a piece, in the order of its id."""
    ids, found = pieces.ids, []
    for piece, index in ids.items():
        cuts = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        found += [
            (index, len(left), ids[left], ids[right], left, right)
            for left, right in cuts
            if left in ids and right in ids
        ]
    return replace(pieces, scores=(), merges=tuple(one[4:] for one in sorted(found)))


def _roles(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


BYTES: dict[str, Any] = {"slow": "merges.txt", "model": "BPE"}
MERGED: dict[str, Any] = {"slow": "*.model", "model": "BPE", "arrange": _with_merges}
UNIGRAM: dict[str, Any] = {"slow": "*.model", "model": "Unigram"}
WORDS: dict[str, Any] = {"slow": "vocab.txt", "model": "WordPiece", "build": _bert}
END = "<|endoftext|>"
FAIRSEQ = "bos=<s> eos=</s> unk=<unk> sep=</s> pad=<pad> cls=<s> mask=<mask>"
BUILT_IN = {
    "BertTokenizer": TokenizerClass(
        **WORDS, roles=_roles("unk=[UNK] sep=[SEP] pad=[PAD] cls=[CLS] mask=[MASK]")
    ),
    "MPNetTokenizer": TokenizerClass(**WORDS, roles={**_roles(FAIRSEQ), "unk": "[UNK]"}),
    "RobertaTokenizer": TokenizerClass(**BYTES, build=_byte_level, roles=_roles(FAIRSEQ)),
    "GPT2Tokenizer": TokenizerClass(
        **BYTES, build=_byte_level, roles=dict.fromkeys(("bos", "eos", "unk"), END)
    ),
    "Qwen2Tokenizer": TokenizerClass(
        **BYTES, build=_qwen, roles=dict.fromkeys(("unk", "eos", "pad"), END)
    ),
    "GPTNeoXTokenizer": TokenizerClass(
        **BYTES, build=_neox, roles=_roles(f"bos={END} eos={END} unk={END} pad=<|padding|>")
    ),
    "LlamaTokenizer": TokenizerClass(
        **MERGED, build=_llama, roles=_roles("bos=<s> eos=</s> unk=<unk>")
    ),
    "GemmaTokenizer": TokenizerClass(
        **MERGED, build=_gemma, roles=_roles("bos=<bos> eos=<eos> unk=<unk> pad=<pad> mask=<mask>")
    ),
    "OpenAIGPTTokenizer": TokenizerClass(**BYTES, build=_gpt, roles={"unk": "<unk>"}),
    "T5Tokenizer": TokenizerClass(
        **UNIGRAM, build=_t5, roles=_roles("eos=</s> unk=<unk> pad=<pad>")
    ),
    "AlbertTokenizer": TokenizerClass(
        **UNIGRAM,
        build=_albert,
        roles=_roles("bos=[CLS] eos=[SEP] unk=<unk> sep=[SEP] pad=<pad> cls=[CLS] mask=[MASK]"),
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        **UNIGRAM,
        build=_deberta,
        roles=_roles("bos=[CLS] eos=[SEP] unk=[UNK] sep=[SEP] pad=[PAD] cls=[CLS] mask=[MASK]"),
    ),
    "PegasusTokenizer": TokenizerClass(
        **UNIGRAM,
        build=metaspace,
        roles=_roles("eos=</s> unk=<unk> pad=<pad> mask=<mask_2>"),
        extra=PEGASUS[1:],
        arrange=_behind_symbols,
    ),
    "XLNetTokenizer": TokenizerClass(
        **UNIGRAM,
        build=_xlnet,
        roles=_roles("bos=<s> eos=</s> unk=<unk> sep=<sep> pad=<pad> cls=<cls> mask=<mask>"),
        extra=("<eop>", "<eod>"),
    ),
}
KIND = "tokenizer"


class ClassTable(Mapping[str, TokenizerClass]):
    """Name -> class: those of this file, and those that the registry knows."""

    def __getitem__(self, name: str) -> TokenizerClass:
        if name not in BUILT_IN and name in registry.names(KIND):
            found: TokenizerClass = registry.get(KIND, name)
            return found
        return BUILT_IN[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*BUILT_IN, *registry.names(KIND)))

    def __len__(self) -> int:
        return len(BUILT_IN) + len(registry.names(KIND))


CLASSES = ClassTable()


def check_model(name: str, spec: Mapping[str, Any]) -> None:
    """Refuse a tokenizer.json whose model is not that of its class."""
    needed, given = CLASSES[name].model, kind_of(spec["model"])
    if given != needed:
        what = f"has model.type {given}, but {name} needs {needed}"
        raise DataError(f"{what} (tokenizer_class PreTrainedTokenizerFast takes it as it is)")
