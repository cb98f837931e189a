"""The files about a tokenizer in a released folder: what they declare, and where they disagree."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unitk import registry
from unitk.errors import DataError
from unitk.foreign import JSON_NAMES, read_json
from unitk.vocab import tokenizer_classes, untrusted
from unitk.vocab.subwords import SentencePiece
from unitk.vocab.untrusted import name_errors

CONFIG, SETTINGS = "config.json", "tokenizer_config.json"
MAP, ADDED, FAST = "special_tokens_map.json", "added_tokens.json", "tokenizer.json"
OWN = "sentencepiece.model"  # which unitk writes beside tokenizer.json
EXTRA, MOST_EXTRA = 100, 10_000  # sentinels of T5
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
EXTRA_TOKENS = ("extra_special_tokens", "additional_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
USUAL = {
    **dict.fromkeys(("bert", "ernie", "distilbert", "electra"), "BertTokenizer"),
    **dict.fromkeys(("roberta", "bart"), "RobertaTokenizer"),
    "albert": "AlbertTokenizer",
    **dict.fromkeys(("gpt2", "opt", "gpt_neo", "starcoder2"), "GPT2Tokenizer"),
    "openai-gpt": "OpenAIGPTTokenizer",
    "mpnet": "MPNetTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    **dict.fromkeys(("t5", "mt5"), "T5Tokenizer"),
    "xlnet": "XLNetTokenizer",
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen2Tokenizer"),
    **dict.fromkeys(("gemma3_text", "t5gemma"), "GemmaTokenizer"),
    "gpt_neox": "GPTNeoXTokenizer",
    "pegasus": "PegasusTokenizer",
    "mbart": "MBartTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}
"""`model_type` in config.json -> the class of its tokenizer, if no file names one."""
AS_IT_IS = "TokenizersBackend"
"""The class that takes a tokenizer.json as it is; others replace normalizer and pre-tokenizer."""
FIXED = dict.fromkeys(
    "mistral olmo2 modernbert modernbert-decoder ernie4_5 glm glm4 granite phi3 stablelm".split(),
    AS_IT_IS,
) | {"qwen2": "Qwen2Tokenizer"}
"""`model_type` -> the class that AutoTokenizer takes, whatever the files name."""
SAME = {
    **dict.fromkeys(("PreTrainedTokenizer", "PythonBackend"), AS_IT_IS),
    **dict.fromkeys(("ErnieTokenizer", "ElectraTokenizer", "DistilBertTokenizer"), "BertTokenizer"),
    "MT5Tokenizer": "T5Tokenizer",
    **dict.fromkeys(("BartTokenizer", "LongformerTokenizer"), "RobertaTokenizer"),
}
"""Other names of classes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token:
    """An added token; `where` is the file and the field that declare it."""

    index: int
    content: str
    flags: Mapping[str, bool]
    where: str


class TokenizerFiles:
    """The files about a tokenizer in a folder. What is read is checked.

    `kind` is the `model_type` of a config.json that has none.
    """

    def __init__(self, folder: Path, file: Path | None, kind: str) -> None:
        self.folder = folder
        self.config, self.settings, self.map, self.listed = (
            read_json(folder / name) if (folder / name).exists() else {}
            for name in (CONFIG, SETTINGS, MAP, ADDED)
        )
        self.kind = str(self.config.get("model_type") or kind)
        if self.config and not self.kind:  # its class or its tensors may tell
            self.kind = registry.get("measure", "model_type")(folder)
        self.fast_file = folder / FAST
        self.slow: dict[str, Path] = {}
        if file is None:
            names = ("vocab.txt", "merges.txt", "*.model")
            self.slow = {
                pattern: paths[0] for pattern in names if len(paths := [*folder.glob(pattern)]) == 1
            }
        elif file.suffix == ".json" and not file.with_name("merges.txt").is_file():
            self.fast_file = file
        else:
            pattern = {".txt": "vocab.txt", ".model": "*.model"}.get(file.suffix, "merges.txt")
            self.fast_file = file / FAST
            self.slow = {pattern: file}
            if pattern == "merges.txt" or file.name == "merges.txt":
                self.slow = {"merges.txt": file.with_name("merges.txt")}
        self.fast: dict[str, Any] = {}
        if self.fast_file.is_file():
            self.fast = read_json(self.fast_file)
            with name_errors(self.fast_file):
                untrusted.check(self.fast)

    def setting(self, key: str, default: Any, kind: type | None = None) -> Any:
        """A setting of tokenizer_config.json, of the type of its default or of `kind`."""
        value = self.settings.get(key)
        kind = kind or type(default)
        if value is not None and type(value) is not kind:
            raise DataError(
                f"{self.folder / SETTINGS}: {key} must be {JSON_NAMES[kind]}, got {value!r}"
            )
        return default if value is None else value

    def flag(self, key: str, default: bool | None) -> Any:
        """A setting that is true or false."""
        return self.setting(key, default, bool)

    @property
    def rows(self) -> int | None:
        """The number of ids of the model, if config.json says it."""
        rows = self.config.get("vocab_size")
        return rows if type(rows) is int else None

    @property
    def num_sentinels(self) -> int:
        """The number of T5's sentinels."""
        count: int = self.setting("extra_ids", EXTRA)
        if not 0 <= count <= MOST_EXTRA:
            raise DataError(
                f"{self.folder / SETTINGS}: extra_ids "
                f"must be from 0 to {MOST_EXTRA:,}, got {count:,}"
            )
        return count

    @property
    def size(self) -> int:
        """The number of ids of pieces and tokens that files have."""
        pieces = self.fast["model"]["vocab"] if self.fast else self.pieces.ids
        return max(len(pieces), *(token.index + 1 for token in self.added), 0)

    @cached_property
    def class_name(self) -> str:
        """The class of the tokenizer, found as AutoTokenizer finds it."""
        named = self.setting("tokenizer_class", "") or self.config.get("tokenizer_class") or ""
        name = str(named).removesuffix("Fast")
        name = SAME.get(name, name) or USUAL.get(self.kind, AS_IT_IS)
        if self.kind in FIXED and "unitk" not in self.config:  # or unitk wrote it
            name = FIXED[self.kind]
            named = ""
        if self.fast:
            if name == "LlamaTokenizer" and untrusted.has_byte_level(self.fast):
                return AS_IT_IS  # as Llama 3 has it, whose files name Llama's class
            known = tokenizer_classes.find_class(name)
            if known is None and name != AS_IT_IS:
                log.warning(
                    "%s is taken as it is, as tokenizer_class %s is unknown",
                    self.fast_file,
                    named,
                )
            fits = known is not None and untrusted.kind_of(self.fast["model"]) == known.model
            return name if fits or (known is not None and named) else AS_IT_IS
        if tokenizer_classes.find_class(name) is None and name != AS_IT_IS:
            where = f"{self.folder / SETTINGS}: tokenizer_class"
            classes = ", ".join(registry.names(tokenizer_classes.KIND))
            raise DataError(f"{where} must be one of {classes}, got {named!r}")
        for candidate in (name, USUAL.get(self.kind, "")):
            known = tokenizer_classes.find_class(candidate)
            if known is not None and known.slow in self.slow:
                return candidate
        # the files that are there decide
        by_file = {"vocab.txt": "BertTokenizer", "merges.txt": "GPT2Tokenizer"}
        return next((by_file[file] for file in by_file if file in self.slow), "T5Tokenizer")

    @cached_property
    def its_class(self) -> tokenizer_classes.TokenizerClass | None:
        """The class of the tokenizer; None if its tokenizer.json is taken as it is."""
        return tokenizer_classes.find_class(self.class_name)

    @cached_property
    def slow_file(self) -> Path | None:
        """The class's own file of pieces."""
        return None if self.its_class is None else self.slow.get(self.its_class.slow)

    @cached_property
    def pieces(self) -> tokenizer_classes.Pieces:
        """The pieces, of tokenizer.json if there is one; other files must have the same."""
        slow = None
        known = self.its_class
        if self.slow_file is not None and known is not None:
            with name_errors(self.slow_file):
                slow = tokenizer_classes.pieces_of_file(self.slow_file)
                declared = {role: token_text(token) for role, token in self.roles.items()}
                slow = known.arrange(slow, {**known.roles, **declared})
        if not self.fast:
            assert slow is not None
            return slow
        fast = tokenizer_classes.pieces_of_spec(self.fast)
        if slow is None:
            return fast
        for piece, index in slow.ids.items():
            if fast.ids.get(piece, index) != index:
                raise DataError(
                    f"{self.fast_file}: {piece!r} has the id {fast.ids[piece]:,} in model.vocab, "
                    f"but {index:,} in {self.slow_file}"
                )
        return fast

    @property
    def merged(self) -> Path | None:
        """The sentencepiece model that has the pieces, if it is BPE, but its class is not."""
        file = None if self.fast else self.slow_file
        known = self.its_class
        if file is None or file.suffix != ".model" or known is None or known.model == "BPE":
            return None
        return None if self.pieces.scores else file

    @property
    def is_ours(self) -> bool:
        """Whether unitk wrote the folder of a sentencepiece model, and nothing was added since."""
        models = self.slow.get("*.model")
        if models is None or models.name != OWN or not self.fast:
            return False
        model = SentencePiece(models.read_bytes())
        return all(
            token.flags["special"]
            or token.content.startswith("<extra_id_")
            or model.find(token.content) == token.index
            for token in self.added
        )

    @cached_property
    def added(self) -> list[Token]:
        """The added tokens that the files declare, in the order of their ids.

        A token in several files has the flags of the first. Those of tokenizer.json alone count
        unless its class replaces what it says, and tokenizer_config.json has added tokens.
        """
        tokens: dict[str, Token] = {}
        at: dict[int, Token] = {}
        for token in (*self._decoder(), *self._fast_added(), *self._listed()):
            for twin in (tokens.get(token.content), at.get(token.index)):
                if twin and (twin.content, twin.index) != (token.content, token.index):
                    raise DataError(
                        f"{token.where} gives {token.content!r} the id {token.index:,}, "
                        f"but {twin.where} {twin.content!r} the id {twin.index:,}"
                    )
            tokens.setdefault(token.content, token)
            at.setdefault(token.index, token)
        listed = self.settings.get("added_tokens_decoder")
        if listed is not None and self.class_name != AS_IT_IS:
            tokens = {text: token for text, token in tokens.items() if str(token.index) in listed}
        return sorted(tokens.values(), key=lambda token: token.index)

    def _decoder(self) -> Iterator[Token]:
        where = f"{self.folder / SETTINGS}: added_tokens_decoder"
        special = {*map(token_text, (*self.roles.values(), *self.own_roles))}
        for index, token in self.setting("added_tokens_decoder", {}).items():
            if not index.isdecimal():
                raise DataError(f"{where} must have whole numbers as names, got {index!r}")
            if isinstance(token, dict) and token.get("content") in special:
                token = {**token, "special": True}
            yield _token(int(index), token, where)

    def _fast_added(self) -> Iterator[Token]:
        for number, token in enumerate(self.fast.get("added_tokens") or []):
            yield _token(token["id"], token, f"{self.fast_file}: added_tokens[{number}]")

    def _listed(self) -> Iterator[Token]:
        where = self.folder / ADDED
        special = {*map(token_text, (*self.roles.values(), *self.extra[0]))}
        for content, index in self.listed.items():
            if type(index) is not int or index < 0:
                raise DataError(f"{where}: {content!r} must be a whole number, got {index!r}")
            flags = dict.fromkeys(FLAGS, False)
            flags |= {"normalized": content not in special, "special": content in special}
            yield Token(index, content, flags, f"{where}: {content!r}")

    @property
    def _legacy(self) -> Mapping[str, Any]:
        """special_tokens_map.json, which counts if tokenizer_config.json has no added tokens."""
        return {} if "added_tokens_decoder" in self.settings else self.map

    @cached_property
    def roles(self) -> dict[str, Any]:
        """Role -> its token as the files or the class have it, text or object."""
        return {role: token for role in ROLES if (token := self._token_of(role)) is not None}

    def _token_of(self, role: str) -> Any:
        """The token of a role; None if it has none."""
        key = f"{role}_token"
        for file, entries in ((MAP, self._legacy), (SETTINGS, self.settings)):
            if key in entries:  # also as null, which says that there is none
                if entries[key] is not None:
                    token_text(entries[key], f"{self.folder / file}: {key}")
                return entries[key]
        known = self.its_class
        if known and role in known.roles:
            return known.roles[role]
        padding = self.fast.get("padding")
        # GPT-2's default is none
        has_padding = role == "pad" and self.class_name != "GPT2Tokenizer"
        return padding.get("pad_token") if has_padding and isinstance(padding, dict) else None

    def declares(self, role: str) -> bool:
        """Whether a file names the token of a role."""
        key = f"{role}_token"
        return bool(self._legacy.get(key) or self.settings.get(key))

    @cached_property
    def own_roles(self) -> list[Any]:
        """The tokens of further roles that this model has, such as `hl_token`."""
        tokens: list[Any] = []
        for file, entries in ((SETTINGS, self.settings), (MAP, self._legacy)):
            several = entries.get(EXTRA_TOKENS[0])
            if isinstance(several, dict):
                for key, value in several.items():
                    token_text(value, f"{self.folder / file}: {EXTRA_TOKENS[0]}: {key}")
                tokens += several.values()
            tokens += (
                value
                for key, value in entries.items()
                if key.endswith("_token") and key[:-6] not in ROLES and isinstance(value, str)
            )
        return tokens

    @cached_property
    def extra(self) -> tuple[list[Any], list[Any]]:
        """The special tokens without a role that the files name, and those of the class alone."""
        for file, entries in ((SETTINGS, self.settings), (MAP, self._legacy)):
            for key in EXTRA_TOKENS:
                if not isinstance(entries.get(key), list | dict | type(None)):
                    raise DataError(f"{self.folder / file}: {key} must be a list of tokens")
        extra, more = (self.settings.get(key) for key in EXTRA_TOKENS)
        is_said = EXTRA_TOKENS[0] in self.settings
        if not extra and EXTRA_TOKENS[1] in self.settings:
            extra = more
            more = None
            is_said = True
        elif isinstance(extra, dict):
            extra, is_said = None, False
        if isinstance(listed := self._legacy.get(EXTRA_TOKENS[0]), list) and listed:
            extra = [*(extra or []), *listed]
            is_said = True
        more = self._legacy.get(EXTRA_TOKENS[1], more)
        if not self.fast and self.slow_file and self.slow_file.suffix == ".model":
            kinds = self.pieces.symbols.items()
            more = [
                {"content": content, "normalized": False, "special": special}
                for content, special in kinds
            ]
        default = [] if is_said else self._extra_of_class(more)
        named = (extra if is_said else more) or []
        for content in named:
            token_text(content, f"{self.folder / SETTINGS}: {EXTRA_TOKENS[0]}")
        return named, default

    def _extra_of_class(self, more: list[Any] | None) -> list[Any]:
        known = self.its_class
        if self.class_name == "T5Tokenizer":
            if any("<extra_id_" in token_text(token) for token in more or []):
                return []
            return [f"<extra_id_{number}>" for number in range(self.num_sentinels)]
        return list(known.extra) if known and more is None else []


def token_text(token: Any, where: str = "") -> str:
    """The text of a token that is a text or an object with `content`."""
    fields = token if isinstance(token, dict) else {"content": token}
    content = fields.get("content")
    if not isinstance(content, str) or not content:
        raise DataError(f"{where} must be a text or an object with content, got {token!r}")
    for name in FLAGS:
        if type(fields.get(name, False)) is not bool:
            raise DataError(f"{where}: {name} must be true or false, got {token[name]!r}")
    return content


def _token(index: int, entry: Any, where: str) -> Token:
    content = token_text(entry if isinstance(entry, dict) else None, where)
    flags = {name: entry.get(name, name == "normalized") for name in FLAGS}
    if "normalized" not in entry:
        flags["normalized"] = not entry.get("special", False)
    return Token(index, content, flags, where)
