"""Opens vocabularies: those that unitk wrote, files of other systems, and folders of transformers.

The last are read as transformers 5 reads them. Such a folder has the pieces in tokenizer.json, in
the files of its tokenizer's class (spiece.model, vocab.txt, or vocab.json with merges.txt), or in
both. tokenizer_config.json, special_tokens_map.json and added_tokens.json say what is added, how a
text is prepared and which tokens are symbols. config.json has the ids that the model itself uses.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unitk import pretrained, registry
from unitk.errors import DataError
from unitk.vocab.base import ALIASES, FILE, Vocab, adopt
from unitk.vocab.subwords import Lowercased, SentencePiece, Unaccented, VocabModel
from unitk.vocab.tokenizer_classes import KIND, Pieces, check_model
from unitk.vocab.tokenizer_files import (
    ADDED,
    AS_IT_IS,
    CONFIG,
    FAST,
    FLAGS,
    MAP,
    SETTINGS,
    TokenizerFiles,
    token_text,
)
from unitk.vocab.tokenizer_json import SPLITS, Tokenizers
from unitk.vocab.untrusted import failures, load_tokenizer, name_errors

WRITERS = (
    "gpt2 openai-gpt t5 bart llama mistral qwen2 qwen3 smollm3 olmo2 gemma3_text gpt_neox opt "
    "gpt_neo pegasus mbart ernie4_5 glm glm4 granite phi3 stablelm starcoder2"
).split()
"""Kinds of model that write texts, which end with eos_token_id."""
FURTHER = "mask gmask smask sop eop".split()
"""Symbols of which transformers has no role, or no file names it."""
TRIED = ("The Caf\u00e9, 1,234.5", " a  b\n c", "don't \u4e2d\u6587 \u00c4 '' Ab")
"""Texts that tell whether a tokenizer.json prepares texts as its class does."""

log = logging.getLogger(__name__)


def open_vocab(path: Path) -> Vocab:
    """Open the vocabulary of a corpus, checkpoint or run folder, or one from another system.

    Other systems: sentencepiece *.model, tokenizers *.json, WordPiece vocab.txt, a word list
    *.words, fairseq's dict.txt, a folder with tokenizer.json, vocab.txt or GPT-2's vocab.json and
    merges.txt. Symbols that these lack are appended, see `Vocab.added`. The name of a model that
    comes with unitk means its vocabulary.
    """
    path = pretrained.locate(path, "vocab")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder{pretrained.hint(path)}")
    if path.is_dir() and is_released(path):
        return open_beside(path)
    for name in registry.names("vocab"):
        model_type: type[VocabModel] = registry.get("vocab", name)
        if model_type.opens(path):
            with name_errors(f"vocabulary {path}"):
                return adopt(model_type.open(path))
    for folder in (".", "vocab", "train/vocab", "best/vocab", "last/vocab"):
        if (path / folder / FILE).is_file():
            return Vocab.load(path / folder)
    for name in ("tokenizer.json", "vocab.txt"):
        if (path / name).is_file():
            return open_vocab(path / name)
    raise DataError(
        f"{path} is not a vocabulary: possible are a folder that unitk wrote (vocabulary, corpus,"
        " checkpoint, run), *.model (sentencepiece), *.json (tokenizers), *.txt (WordPiece),"
        " *.words (words), dict.txt (fairseq) and a folder with tokenizer.json, vocab.txt or"
        " GPT-2's vocab.json and merges.txt"
    )


def open_beside(folder: Path, file: Path | None = None, kind: str = "") -> Vocab:
    """Open the vocabulary of a folder of transformers, as all of its files say.

    With `file`, the pieces are those of a file elsewhere. `kind` is the model type, if config.json
    has none.
    """
    return adopt(*open_released(folder, file, kind))


def is_released(path: Path) -> bool:
    """Whether a folder has a tokenizer, and files of transformers about it."""
    about = any((path / name).exists() for name in (CONFIG, SETTINGS, MAP, ADDED))
    names = (FAST, "vocab.txt", "merges.txt", "*.model")
    return about and any(next(path.glob(name), None) for name in names)


def open_released(
    folder: Path, file: Path | None, kind: str
) -> tuple[VocabModel, dict[str, int] | None]:
    """The model of a folder's vocabulary, and the ids of its symbols by unitk's names.

    The arguments are those of `open_beside`. The ids are None if the model itself knows its
    symbols. Raises a `DataError` that names file and field where files disagree.
    """
    files = TokenizerFiles(folder, file, kind)
    if files.is_ours:
        return _open_ours(files), None
    if files.merged is not None:
        return _open_merged(files, files.merged), None
    tokenizer = _assemble(files)
    with name_errors(files.fast_file if files.fast else folder):
        spec = tokenizer.to_str()
        if files.flag(SPLITS, False):
            spec = json.dumps({**json.loads(spec), SPLITS: True})
        model = Tokenizers(spec.encode())
    symbols = _symbols(files, model)
    if file is None:
        _check_rows(files, model, symbols)
    return model, symbols


def _open_ours(files: TokenizerFiles) -> SentencePiece:
    """The sentencepiece model that unitk wrote beside tokenizer.json."""
    model = SentencePiece(files.slow["*.model"].read_bytes())
    if files.setting("keep_accents", True):
        return model
    kind = Lowercased if files.setting("do_lower_case", False) else Unaccented
    return kind(model.data)


def _open_merged(files: TokenizerFiles, merged: Path) -> SentencePiece:
    """A sentencepiece model of the kind BPE, which cannot be given further pieces."""
    model = SentencePiece(merged.read_bytes())
    lacks = f"{merged.name}, whose pieces are merged (BPE), has no place for it"
    for token in files.added:
        if model.find(token.content) != token.index:
            raise DataError(f"{token.where}: {token.content!r}, but {lacks}")
    for content in map(token_text, (*files.own_roles, *files.extra[0])):
        if model.find(content) is None:
            raise DataError(f"{files.folder / SETTINGS} names {content!r}, but {lacks}")
    return model


def _assemble(files: TokenizerFiles) -> Any:
    """The library's tokenizer with the pieces and all added tokens, as transformers makes it."""
    tokenizer = _vocab_of_pieces(files)
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in files.added:
        if token.content not in known:
            _add(tokenizer, token.content, token.flags)
            known.add(token.content)
        index = tokenizer.token_to_id(token.content)
        if index != token.index:
            raise DataError(
                f"{token.where} gives "
                f"{token.content!r} the id {token.index:,}, but transformers gives it {index:,}"
            )
    for item, is_named, is_role in _list_special(files):
        content = token_text(item)
        beyond = files.rows is not None and tokenizer.get_vocab_size() >= files.rows
        # a token that no file names, and that the model has no row for, is none
        if content in known or (not is_named and beyond and tokenizer.token_to_id(content) is None):
            continue
        flags = {key: item[key] for key in FLAGS if key in item} if isinstance(item, dict) else {}
        _add(tokenizer, content, flags | {"special": is_role or flags.get("special", True)})
        known.add(content)
    if files.fast and files.class_name != AS_IT_IS:
        _compare(files, tokenizer)
    return tokenizer


def _add(tokenizer: Any, content: str, flags: Mapping[str, bool]) -> None:
    from tokenizers import AddedToken

    tokenizer.add_tokens([AddedToken(content, **flags)])


def _list_special(files: TokenizerFiles) -> Iterator[tuple[Any, bool, bool]]:
    """Special tokens, whether a file names them, and whether they have a role."""
    for role, token in files.roles.items():
        yield token, files.declares(role), True
    for token in files.own_roles:
        yield token, True, True
    for named, tokens in zip((True, False), files.extra, strict=True):
        for token in tokens:
            yield token, named, False


def _vocab_of_pieces(files: TokenizerFiles) -> Any:
    """The library's tokenizer without the added tokens."""
    name = files.class_name
    if name == AS_IT_IS:
        with name_errors(files.fast_file):
            return load_tokenizer(json.dumps(files.fast))
    source = files.fast_file if files.fast else files.slow_file
    assert source is not None
    pieces = files.pieces
    with name_errors(source), failures("has pieces that are refused"):
        if files.fast:
            check_model(name, files.fast)
        if name == "T5Tokenizer" and not files.fast:
            pieces = _with_sentinels(files, pieces)
        unk = token_text(files.roles.get("unk", "<unk>"))
        return registry.get(KIND, name).build(pieces, files.flag, unk)


def _with_sentinels(files: TokenizerFiles, pieces: Pieces) -> Pieces:
    """The pieces of a T5 and its sentinels, the last one first, if the model has rows for them."""
    count = files.num_sentinels
    size = len(pieces.ids)
    if files.rows is not None and size + count > files.rows:
        return pieces
    more = {f"<extra_id_{count - 1 - number}>": size + number for number in range(count)}
    ids = {**pieces.ids, **more}
    return replace(pieces, ids=ids, scores=pieces.scores + (0.0,) * (len(ids) - size))


def _compare(files: TokenizerFiles, tokenizer: Any) -> None:
    """Log a warning if a tokenizer.json prepares texts otherwise than its class."""
    with name_errors(files.fast_file), failures("cannot read a text"):
        own = load_tokenizer(json.dumps(files.fast))
        ids = [
            [tokens.encode(text, add_special_tokens=False).ids for text in TRIED]
            for tokens in (own, tokenizer)
        ]
    if ids[0] != ids[1]:
        log.warning(
            "%s: texts are prepared as %s does, not as its normalizer and pre_tokenizer say,"
            " as in transformers 5 (tokenizer_class PreTrainedTokenizerFast keeps them)",
            files.fast_file,
            files.class_name,
        )


def _symbols(files: TokenizerFiles, model: Tokenizers) -> dict[str, int]:
    """The ids of unitk's symbols: those of tokens that have a role, or those of config.json.

    An id that the model itself uses must be that of the token.
    """
    ids = _ids_of_roles(files, model)

    def find(roles: tuple[str, ...], used: str) -> int | None:
        """The id of the first of these roles that a token has, else that config.json has."""
        if (role := next((role for role in roles if role in ids), None)) is None:
            declared = (_declared_id(files, f"{name}_token_id", model.size) for name in roles)
            return next((index for index in declared if index is not None), None)
        index = ids[role]
        stated = _declared_id(files, f"{used}_token_id", model.size, index) if used else None
        if stated is not None and stated != index:
            raise DataError(
                f"{files.folder / CONFIG}: {used}_token_id is {stated:,} "
                f"({model.piece(stated)!r}), but the tokenizer's {role}_token "
                f"{model.piece(index)!r} is {index:,}"
            )
        return index

    writes = files.kind in WRITERS
    symbols = {} if model.unk is None else {"unk": model.unk}
    for name, roles, used in (
        ("sep", ("eos", "sep") if writes else ("sep", "eos"), "eos" if writes else "sep"),
        ("cls", ("cls", "bos"), "bos" if files.kind == "bart" else "cls"),
        ("mask", ("mask",), "mask"),
        ("pad", ("pad",), ""),
        ("unk", ("unk",), "unk"),
    ):
        index = find(roles, used)
        if name == "pad" and files.kind == "t5":
            start = _declared_id(files, "decoder_start_token_id", model.size)
            index = index if start is None or start in symbols.values() else start
        if index is not None and index not in symbols.values():
            symbols.setdefault(name, index)
    for name in FURTHER:
        for further in map(model.find, ALIASES[name]):
            if further is not None and model.declares(further) and further not in symbols.values():
                symbols.setdefault(name, further)
    return symbols


def _ids_of_roles(files: TokenizerFiles, model: Tokenizers) -> dict[str, int]:
    """Role, such as "eos" -> the id of the token that has it."""
    ids: dict[str, int] = {}
    for role, token in files.roles.items():
        index = model.find(token_text(token))
        # a token that only the class names says less than an id that the model uses
        is_new = index is not None and index >= files.size and not files.declares(role)
        if is_new and _declared_id(files, f"{role}_token_id", model.size) is not None:
            continue
        if index is not None:
            ids[role] = index
    return ids


def _declared_id(
    files: TokenizerFiles, key: str, size: int, preferred: int | None = None
) -> int | None:
    """An id that config.json has, if there is such an id; of several, `preferred` or the first."""
    value = files.config.get(key)
    several = value if isinstance(value, list) else [value]
    good = [index for index in several if type(index) is int and 0 <= index < size]
    return preferred if preferred in good else next(iter(good), None)


def _check_rows(files: TokenizerFiles, model: Tokenizers, symbols: Mapping[str, int]) -> None:
    """Refuse tokens of the text that the model has no row for."""
    for index in range(files.rows or model.size, model.size):
        if index not in symbols.values() and (piece := model.piece(index)):
            raise DataError(
                f"{files.folder / CONFIG}: "
                f"vocab_size is {files.rows:,}, but {piece!r} has the id {index:,}"
            )
