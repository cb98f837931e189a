"""Tokenizers written for AutoTokenizer, which has unitk's ids for any text."""

from __future__ import annotations

import json
import logging
import re
import struct
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unitk.files import create
from unitk.formats.hf.families import Family
from unitk.formats.hf.vocabularies.byt5 import Bytes, write_byte_vocab
from unitk.formats.hf.vocabularies.marian import Marian, write_marian
from unitk.formats.vocabs import extra_ids
from unitk.slots import NEVER, SEG, TOKEN, Ids, Slots
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import Vocab
from unitk.vocab.subwords import SentencePiece, Unaccented, fields
from unitk.vocab.tokenizer_json import SPLITS, Tokenizers
from unitk.vocab.words import WordList

GLUE, TILDE = "\ufff0", "\ufff1"
"""Unassigned code points: a mark between characters, and a stand-in for the fullwidth tilde."""
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # types of sentencepiece's pieces
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""The characters that Python's `split` splits at; the library's white space has fewer."""

log = logging.getLogger(__name__)


def tokenizer_settings(parts: Loaded, family: Family, fills: bool) -> dict[str, Any]:
    """The entries of tokenizer_config.json for a model; `fills`: it fills [MASK]s."""
    config = parts.model.config
    reads: dict[str, Any] = {
        # only a model that fills [MASK]s reads symbols in a text
        "split_special_tokens": not fills,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
    }
    if family.ends or (family.task == "lm" and not (parts.task.head or fills)):
        reads["padding_side"] = "left"
    if family.ends or config.num_segments > 1:
        reads["model_input_names"] += ["token_type_ids"]
    if config.max_positions:
        reads["model_max_length"] = config.max_positions
    return reads


def write_tokenizer(
    task: Task,
    folder: Path,
    rows: int,
    entries: dict[str, Any],
    embeds: bool = False,
    alone: bool = False,
) -> int | None:
    """Write tokenizer.json and tokenizer_config.json, the latter with further `entries`.

    Returns the id that pads, if the model's own one is none of the tokenizer. That of a decoder
    `alone` pads with what begins a text then, as Qwen's does. Where it continues texts, pieces of
    sentencepiece keep the blank before the first one.

    `rows` is the number of ids that the exported model has. Texts are laid out as prompts, or as
    `unitk embed` reads them (`embeds`), whatever tokenizer.json the vocabulary came with.

    Special tokens that a text may have, such as T5's sentinels, are found in it only if all special
    tokens are; then symbols that no prompt has are left out, which a text may spell.
    """
    vocab = task.vocab
    model = task.vocab.model
    if isinstance(model, Marian):
        write_marian(model, folder)
        return None
    if isinstance(model, Bytes):
        write_byte_vocab(folder)
        return None
    if (spec := _spec_of(model)) is None:
        vocab.save(folder / "vocab")
        log.warning("%s: AutoTokenizer cannot open a vocabulary of kind %s", folder, model.kind)
        return None
    if isinstance(model, SentencePiece):
        create(folder / model.file, model.data)
    if isinstance(model, Unaccented):
        entries = {**entries, "keep_accents": False, "do_lower_case": model.lowercase}
    if alone and task.continues and not (task.trained.pairs or isinstance(model, Tokenizers)):
        # pipelines of transformers put what is written behind the prompt, with its own blank
        steps = [step for step in spec["decoder"]["decoders"] if step["type"] != "Strip"]
        spec["decoder"] |= {"decoders": steps}
    # whether a text may have special tokens that are found in it
    finds = isinstance(model, Tokenizers) and bool(model.special - {*vocab.symbols.values()})
    finds = finds and not spec.pop(SPLITS, False)
    pieces = vocab.pieces(range(min(rows, len(vocab))))
    if finds and entries.get("split_special_tokens"):
        entries = {**entries, "split_special_tokens": False}
        used = [symbol["ids"] for symbol in _frame(task, pieces, embeds)["special_tokens"].values()]
        pieces = pieces[: max(model.size, *(index + 1 for [index] in used))]
    spec["added_tokens"] = _added_entries(vocab, pieces, spec.get("added_tokens") or [])
    processor = spec.get("post_processor")
    # what answers a text reads a delimiter after it
    if processor is None or task.head or embeds or (task.continues and task.trained.pairs):
        spec["post_processor"] = _append_frame(processor, _frame(task, pieces, embeds))
    roles = _roles(vocab, len(pieces), alone)
    tokens = {f"{role}_token": pieces[index] for role, index in roles.items()}
    entries = {"tokenizer_class": "PreTrainedTokenizerFast", **entries, **tokens}
    for name, content in {"tokenizer.json": spec, "tokenizer_config.json": entries}.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        create(folder / name, text + "\n")
    return roles["pad"] if roles.get("pad") == vocab.cls else None


def _append_frame(processor: Mapping[str, Any] | None, frame: dict[str, Any]) -> dict[str, Any]:
    """A frame, after the post-processor of a vocabulary where both have something to do."""
    # that of pieces of bytes cuts the blanks off what a token covers
    if processor is not None and processor["type"] == "ByteLevel":
        return {"type": "Sequence", "processors": [processor, frame]}
    return frame


def _roles(vocab: Vocab, size: int, alone: bool) -> dict[str, int]:
    """The ids of special tokens by their roles in transformers, of a tokenizer of this size."""
    roles = {"bos": vocab.cls, "eos": vocab.sep}
    roles |= {name: vocab.symbols[name] for name in ("pad", "unk", "cls", "sep", "mask")}
    there = {role: index for role, index in roles.items() if index < size}
    if alone and "bos" not in there and "eos" in there:  # as GPT-2's
        there["bos"] = vocab.sep
    if alone and "pad" not in there and "cls" in there:
        there["pad"] = vocab.cls
    return there


def _spec_of(model: Any) -> dict[str, Any] | None:
    """The tokenizer.json of a vocabulary's pieces; None if there is none."""
    if isinstance(model, SentencePiece):
        return _sentencepiece(model)
    if isinstance(model, WordList):
        return _words(model)
    if not isinstance(model, Tokenizers):
        return None
    spec: dict[str, Any] = json.loads(model.data)
    spec["model"].pop("dropout", None)  # unitk's ids of a text are always the same
    return spec


def _added_entries(
    vocab: Vocab, pieces: Sequence[str], present: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The entries for symbols and for ids beyond the model's own pieces, in the order of ids."""
    ids = {*vocab.symbols.values(), *range(vocab.model.size, len(pieces))}
    ids -= {token["id"] for token in present}
    sentinels = extra_ids(vocab)  # of T5: read in any text
    flags = {"single_word": False, "rstrip": False, "normalized": False}
    return present + [
        {
            "id": i,
            "content": pieces[i],
            "lstrip": i == vocab.mask,
            "special": pieces[i] != sentinels.get(i),
        }
        | flags
        for i in sorted(ids)
        if i < len(pieces)
    ]


def _frame(task: Task, pieces: Sequence[str], embeds: bool) -> dict[str, Any]:
    """The post-processor that adds a task's special symbols around one text and around two.

    Only symbols with exported ids are added.
    """
    word = task.vocab.mask  # a placeholder for a part
    if task.protocol:  # any word but those that the frame has itself, such as the modes of UL2
        any_word = [task.words[-1:]]
        word = int(np.setdiff1d(task.words, _prompt(task, any_word, embeds).token)[0])
    templates: list[list[dict[str, Any]]] = []
    special = {}
    for names in ("A", "AB"):
        slots = _prompt(task, [np.array([word]) for _ in names], embeds)
        letters = iter(names)
        template = []
        # a slot that dies or is never born asks in a search, and is no part of the prompt
        stays = (slots.dies == NEVER) & (slots.born < NEVER)
        for index, seg in slots.table[:, stays][[TOKEN, SEG]].T.tolist():
            if index == word:
                template.append({"Sequence": {"id": next(letters), "type_id": seg}})
            elif index < len(pieces):
                piece = pieces[index]
                template.append({"SpecialToken": {"id": piece, "type_id": seg}})
                special[piece] = {"id": piece, "ids": [index], "tokens": [piece]}
        templates.append(template)
    by_count = dict(zip(("single", "pair"), templates, strict=True))
    return {"type": "TemplateProcessing", **by_count, "special_tokens": special}


def _prompt(task: Task, parts: list[Ids], embeds: bool) -> Slots:
    """The slots that a task makes of the parts of a source: the encoder's, if there is one."""
    if embeds:
        read = task.to_embed(parts)
    elif task.head:
        read = task.lay_out_parts(parts).example
    elif task.generates or task.infills:
        read = task.prompt(parts)
    else:
        read = task.to_embed(parts)  # of a task that has vectors alone
    return read.towers["enc" if "enc" in read.towers else "x"]


@dataclass(frozen=True)
class ModelProto:
    """A sentencepiece model as the numbered fields of sentencepiece_model.proto."""

    names: list[str]
    scores: list[float]
    kinds: list[int]
    trainer: dict[int, Any]
    rules: dict[int, Any]  # of the normalizer

    @classmethod
    def of(cls, model: SentencePiece) -> ModelProto:
        """Read the fields of a model."""
        proto = dict(fields(model.data))
        pieces = [dict(fields(piece)) for number, piece in fields(model.data) if number == 1]
        return cls(
            names=[model.piece(i) for i in range(model.size)],
            scores=[struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces],
            kinds=[int(piece.get(3, NORMAL)) for piece in pieces],
            trainer=dict(fields(proto[2])),
            rules=dict(fields(proto[3])),
        )

    @property
    def has_bytes(self) -> bool:
        """Whether it has a piece for each byte."""
        return BYTE in self.kinds

    @property
    def is_bpe(self) -> bool:
        """Whether its pieces are merged; otherwise it is a unigram model."""
        return bool(self.trainer.get(3, 1) == 2)  # model_type

    @property
    def ends_words(self) -> bool:
        """Whether a blank belongs to the word before it (treat_whitespace_as_suffix)."""
        return bool(self.trainer.get(24))

    def of_kinds(self, *kinds: int) -> dict[str, float]:
        """The pieces of these kinds, with their scores."""
        rows = zip(self.names, self.scores, self.kinds, strict=True)
        return {name: score for name, score, kind in rows if kind in kinds}


def _sentencepiece(model: SentencePiece) -> dict[str, Any]:
    """The tokenizer.json of a sentencepiece model."""
    from tokenizers import Regex as R
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    proto = ModelProto.of(model)
    plain = proto.of_kinds(NORMAL)
    unk = proto.kinds.index(UNKNOWN)
    lost = list[str]()
    if proto.is_bpe:
        ids = {name: i for i, name in enumerate(proto.names)}
        # scores of 0 make the unigram model prefer those of the user anyway
        users = sorted(proto.of_kinds(USER), key=len, reverse=True)
        options = {"unk_token": proto.names[unk], "fuse_unk": True, "ignore_merges": bool(users)}
        merges = models.BPE(ids, _merges(plain), byte_fallback=proto.has_bytes, **options)
        tokenizer = Tokenizer(merges)
        if users:
            pattern = R("|".join(re.escape(name) for name in users))
            tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    else:
        pieces = list(zip(proto.names, proto.scores, strict=True))
        tokenizer = Tokenizer(models.Unigram(pieces, unk, proto.has_bytes))
        # no text becomes these in sentencepiece; the library's unigram model would find them
        apart = [*proto.of_kinds(UNKNOWN, CONTROL)]
        if proto.has_bytes:
            apart.append("<0xFF>")
        cuts, lost = _cuts(apart, set(plain), proto.has_bytes)
        if cuts:
            pattern = R("|".join(cuts))
            tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "merged_with_previous")
    steps = _normalizers(model, proto.rules, lost)
    joined = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if proto.rules.get(3, 1):  # add_dummy_prefix
        if proto.ends_words:
            steps.append(normalizers.Replace(R(r"(?<=[\s\S])\z"), "▁"))
        else:
            steps.append(normalizers.Prepend("▁"))
            joined.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(joined)
    return dict(json.loads(tokenizer.to_str()))


def _normalizers(model: SentencePiece, rules: Mapping[int, Any], lost: Sequence[str]) -> list[Any]:
    """What a model does to a text before it is cut into pieces.

    `lost` symbols are replaced by their first character.
    """
    from tokenizers import Regex, normalizers

    steps = _characters(rules[2], rules[1]) if rules.get(2) else []
    if isinstance(model, Unaccented):
        quotes = [normalizers.Replace(two, '"') for two in ("``", "''")]
        lower = [normalizers.Lowercase()] if model.lowercase else []
        steps = [*quotes, normalizers.NFKD(), normalizers.StripAccents(), *lower, *steps]
    blanks: list[tuple[Any, str]] = [(" ", "▁")]
    if rules.get(4, 1):  # remove_extra_whitespaces
        blanks = [(Regex(r"\A +"), ""), (Regex(" +"), "▁"), (Regex(r"▁+\z"), "")]
    pairs = [*blanks, *((symbol, symbol[0]) for symbol in lost)]
    return steps + [normalizers.Replace(*pair) for pair in pairs]


def _merges(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """The merges of a sentencepiece model, which keeps the scores of pieces instead.

    Each cut of a piece into two pieces is one, and those of the best pieces come first.
    """
    return [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda name: -scores[name])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]


def _characters(table: bytes, name: bytes) -> list[Any]:
    """Normalizers that apply sentencepiece's table of characters as sentencepiece does.

    The tokenizers library matches the table against whole graphemes and loses what follows a match.
    Therefore each code point is separated from the next, and sequences are composed before, as the
    named tables compose them.
    """
    from tokenizers import Regex, normalizers

    steps = [
        normalizers.Replace(Regex(r"(?<=[\s\S])(?=[\s\S])"), GLUE),
        normalizers.Precompiled(table),
        normalizers.Replace(GLUE, ""),
    ]
    if name not in (b"nmt_nfkc", b"nmt_nfkc_cf", b"nfkc", b"nfkc_cf"):
        return [normalizers.Precompiled(table)]
    marks: dict[int, str] = defaultdict(str)
    for mark in map(chr, range(0x300, 0x370)):
        marks[unicodedata.combining(mark)] += mark
    # the table leaves accents in their order, which composing would change
    order = "|".join(
        f"(?<=[{marks[high]}])(?=[{''.join(marks[low] for low in marks if 0 < low < high)}])"
        for high in sorted(marks)[2:]
    )
    compose = [normalizers.Replace(Regex(order), GLUE), normalizers.NFKC()]
    if not name.startswith(b"nmt"):
        return [*compose, *steps]
    hide = normalizers.Replace("\uff5e", TILDE)
    back = normalizers.Replace(TILDE, "\uff5e")
    return [hide, *compose, *steps, back]


def _cuts(apart: Sequence[str], plain: set[str], has_bytes: bool) -> tuple[list[str], list[str]]:
    """Patterns at which to cut texts that spell a symbol, and symbols to replace by one character.

    The library's unigram model would read such a text as the symbol. A cut is allowed only where no
    piece reaches over it and no two unknown characters meet, which would become one. Symbols that
    consist of unknown characters only are replaced by one of these.
    """
    pairs = {piece[i : i + 2] for piece in plain for i in range(len(piece) - 1)}
    cuts, lost = [], []
    for symbol in apart:
        free = [
            i
            for i in range(1, 3 if symbol == "<0xFF>" else len(symbol))
            if symbol[i - 1 : i + 1] not in pairs
            and (has_bytes or symbol[i - 1] in plain or symbol[i] in plain)
        ]
        if free:
            rest = re.escape(symbol[free[0] :]).replace("FF", "[0-9A-F]{2}" if has_bytes else "FF")
            cuts.append(f"{re.escape(symbol[: free[0]])}(?={rest})")
        elif not has_bytes and not plain & set(symbol):
            lost.append(symbol)
        else:
            log.warning("transformers reads %s in a text as the symbol", symbol)
    return cuts, lost


def _words(model: WordList) -> dict[str, Any]:
    """The tokenizer.json of a word list; words that no text produces become the unknown word."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    ids = {word: i for i, word in enumerate(model.symbols)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=model.piece(model.unk)))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"[{BLANKS}]+"), "removed")
    if model.special:
        known = "|".join(map(re.escape, sorted(model.special)))
        pattern = Regex(f"(?<![^{BLANKS}])(?:{known})(?![^{BLANKS}])")
        tokenizer.normalizer = normalizers.Replace(pattern, model.piece(model.unk))
    # two such words tell whether the vocabulary joins them
    joint = next((i for word, i in ids.items() if word.endswith("@@")), model.unk)
    steps: list[Any] = [decoders.WordPiece(prefix=GLUE, cleanup=False), decoders.Fuse()]
    if not model.text(model.unk).startswith(" "):  # pieces bring their blanks
        steps = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    elif "@@" not in model.decode([joint, joint]):
        steps.append(decoders.Replace("@@ ", ""))
    tokenizer.decoder = decoders.Sequence(steps)
    return dict(json.loads(tokenizer.to_str()))
