"""Tokenizers of llama.cpp: what its file says of a vocabulary, so that a text has unitk's ids.

    t5       unigram pieces of sentencepiece, with its table of characters
    llama    merged pieces of sentencepiece (BPE), whose other characters are bytes
    gpt2     merged pieces of bytes, after a pattern has cut the text into words

Each is a class of `llama-vocab.cpp`. Where it reads some texts otherwise, a warning says so; what
it cannot read is refused.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from unitk.errors import UsageError, require
from unitk.formats.hf.tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, USER
from unitk.slots import Protocol
from unitk.vocab.base import Vocab
from unitk.vocab.subwords import SentencePiece, Unaccented, fields
from unitk.vocab.tokenizer_json import Tokenizers

UNUSED = 5
Entries = dict[str, Any]
log = logging.getLogger(__name__)

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = (
    _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
    r"|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    _WORDS % r"\p{N}": ("qwen2", ""),
    _WORDS % r"\p{N}{1,3}": ("smaug-bpe", "llama-bpe"),
    _CASED % ("", "", r"\p{N}"): ("", "tekken"),
    _CASED % (f"{_ENDINGS}?", f"{_ENDINGS}?", r"\p{N}{1,3}"): ("gpt-4o", ""),
}
"""Pattern of a text's words -> llama.cpp's name of it: without `ignore_merges`, and with it."""


class Framing(NamedTuple):
    """The symbols that a task puts around a prompt."""

    opening: int | None  # a symbol before it
    closed: bool  # whether the end symbol follows it
    protocol: Protocol


def tokenizer_entries(vocab: Vocab, rows: int, prompt: Framing) -> Entries:
    """The entries tokenizer.ggml.* for a vocabulary, of which the model has `rows` ids.

    Raises `UsageError` for a vocabulary that llama.cpp cannot read.
    """
    end = prompt.protocol.end
    require(end < rows, "--to gguf: the end symbol has no row in this model")
    model = vocab.model
    if isinstance(model, SentencePiece) and not isinstance(model, Unaccented):
        entries = _sentencepiece(model)
    elif isinstance(model, Tokenizers):
        entries = _tokenizers(model)
    else:
        raise UsageError(f"--to gguf: llama.cpp has no tokenizer for --vocab of kind {model.kind}")
    pieces = vocab.pieces(range(min(rows, len(vocab))))
    pieces += [""] * (rows - len(pieces))
    kinds: list[int] = [*entries["token_type"], *[CONTROL] * rows][:rows]
    # a text that spells a symbol is a text, as in unitk
    for index in vocab.symbols.values():
        if index < rows and kinds[index] != UNKNOWN:
            kinds[index] = CONTROL
    known: set[str] = set()
    for index, piece in enumerate(pieces):
        if not piece or piece in known:  # each needs a spelling of its own
            pieces[index] = f"[row {index}]"
            kinds[index] = UNUSED
        known.add(pieces[index])
    entries |= {"tokens": pieces, "token_type": kinds}
    if "scores" in entries:
        entries["scores"] = [*entries["scores"], *[0.0] * rows][:rows]
    # without these, llama.cpp takes the ids of Llama 2, BERT or GPT-2 for symbols
    ids = {"eos": end, "bos": end if prompt.opening is None else prompt.opening}
    ids |= {"unknown": vocab.unk, "padding": vocab.pad, "mask": vocab.mask}
    entries |= {f"{name}_token_id": index for name, index in ids.items() if index < rows}
    entries |= {"add_bos_token": prompt.opening is not None, "add_eos_token": prompt.closed}
    entries["suppress_tokens"] = [index for index in prompt.protocol.banned if index < rows]
    return {f"tokenizer.ggml.{name}": value for name, value in entries.items()}


def _sentencepiece(model: SentencePiece) -> Entries:
    """A sentencepiece model; the numbers of fields are those in sentencepiece_model.proto."""
    proto = dict(fields(model.data))
    pieces = [dict(fields(piece)) for number, piece in fields(model.data) if number == 1]
    kinds = [int(piece.get(3, NORMAL)) for piece in pieces]
    trainer, rules = dict(fields(proto.get(2, b""))), dict(fields(proto.get(3, b"")))
    table = bytes(rules.get(2, b""))
    merges = bool(rules.get(4, 1))
    suffix = bool(trainer.get(24, 0))
    require(
        not suffix, "--to gguf: llama.cpp has blanks before words, not after them as this --vocab"
    )
    entries: Entries = {
        "model": "t5",
        "token_type": kinds,
        "scores": [struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces],
        "add_space_prefix": bool(rules.get(3, 1)),
        "remove_extra_whitespaces": merges,
    }
    if trainer.get(3, 1) != 2:  # model_type: unigram
        if BYTE in kinds:
            log.warning("llama.cpp reads characters without a piece as [UNK], not as bytes")
        return entries | ({"precompiled_charsmap": table} if table else {})
    require(
        BYTE in kinds,
        "--to gguf: llama.cpp needs a piece for each byte beside merged pieces (BPE): preprocess "
        "with --byte-fallback on, or unigram pieces",
    )
    if table or merges:
        name = bytes(rules.get(1, b"")).decode() or "its blanks"
        log.warning("llama.cpp reads texts as they are written, not normalized (%s)", name)
    return entries | {"model": "llama"}


def _tokenizers(model: Tokenizers) -> Entries:
    """A model of the tokenizers library that merges pieces of bytes, or of characters."""
    spec = json.loads(model.data)
    model_spec = spec["model"]
    added = spec.get("added_tokens") or []
    merged = model_spec.get("type", "BPE") == "BPE" and not model_spec.get("end_of_word_suffix")
    refusal = "--to gguf: llama.cpp has no tokenizer for --vocab"
    require(merged, f"{refusal} with pieces of type {model_spec.get('type')}")
    kinds = [NORMAL] * model.size
    for index in range(model.size):
        if not model.piece(index):
            kinds[index] = UNUSED
    for token in added:
        kinds[token["id"]] = CONTROL if token.get("special") else USER
    merges = [
        pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model_spec["merges"]
    ]
    if '"ByteLevel"' in json.dumps(spec.get("pre_tokenizer")):
        name = _pattern(spec["pre_tokenizer"], bool(model_spec.get("ignore_merges")))
        require(name, f"{refusal} that cuts texts so (pre_tokenizer of tokenizer.json)")
        if spec.get("normalizer"):
            log.warning("llama.cpp reads texts as they are written, not normalized")
        pairs = [f"{first} {second}" for first, second in merges]
        return {"model": "gpt2", "pre": name, "token_type": kinds, "merges": pairs}
    require(model_spec.get("byte_fallback"), f"{refusal} without a piece for each byte")
    for byte in range(256):
        kinds[model_spec["vocab"][f"<0x{byte:02X}>"]] = BYTE
    return {
        "model": "llama",
        "token_type": kinds,
        "scores": _scores(model, merges),
        "add_space_prefix": _prepends_blank(spec),
    }


def _scores(model: Tokenizers, merges: Sequence[Sequence[str]]) -> list[float]:
    """A score for each piece, of which the highest is merged first: its first merge's place."""
    first: dict[str, int] = {}
    for place, (left, right) in enumerate(merges):
        first.setdefault(left + right, place)
    return [-float(first.get(model.piece(index), len(merges))) for index in range(model.size)]


def _prepends_blank(spec: Mapping[str, Any]) -> bool:
    """Whether a text gets a blank in front."""
    steps = [spec.get("normalizer"), spec.get("pre_tokenizer")]
    steps += [inner for step in steps if step for inner in step.get("normalizers", [])]
    steps += [inner for step in steps if step for inner in step.get("pretokenizers", [])]
    return any(
        step and (step["type"] == "Prepend" or step.get("prepend_scheme", "never") != "never")
        for step in steps
    )


def _pattern(pre: Mapping[str, Any], ignores: bool) -> str:
    """llama.cpp's name for how texts are cut into words; "" without one."""
    steps = pre["pretokenizers"] if pre["type"] == "Sequence" else [pre]
    last = steps[-1]
    if last["type"] != "ByteLevel" or last.get("add_prefix_space", True):
        return ""
    rest = steps[:-1]
    cuts = last.get("use_regex", True)
    if not rest and cuts and not ignores:
        return "gpt-2"
    if len(rest) == 1 and cuts and not ignores:
        digits = rest[0]["type"] == "Digits" and rest[0].get("individual_digits")
        return "smollm" if digits else ""
    if len(rest) != 1 or cuts or rest[0]["type"] != "Split":
        return ""
    pattern = rest[0].get("pattern", {}).get("Regex", "")
    return PATTERNS.get(pattern, ("", ""))[ignores]
