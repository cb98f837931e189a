"""Translates generation_config.json of transformers to options of `unitk generate`, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from unitk.decoding.config import GenerateConfig, make_config
from unitk.decoding.constraints.base import word_rules
from unitk.decoding.files.defaults import NAME, read_defaults
from unitk.errors import CheckpointError, UsageError
from unitk.formats.archive import read_json
from unitk.formats.hf.families import ModelFolder
from unitk.formats.hf.vocabularies.fairseq import CODE
from unitk.formats.settings import check_value
from unitk.options.config import flag
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.open import open_vocab
from unitk.vocab.tokenizer_files import SETTINGS

FILE = "generation_config.json"

log = logging.getLogger(__name__)

BEAM, MAX_LEN = 5, 64  # what `unitk generate` does by default
SEARCH = {"num_beams": "beam", "length_penalty": "lenpen"}
DRAWS = {"temperature": "temperature", "top_k": "sampling_topk", "top_p": "sampling_topp"}
DRAWS |= {"min_p": "sampling_minp"}
BOTH = {"num_return_sequences": "nbest", "no_repeat_ngram_size": "no_repeat_ngram_size"}
"""Setting -> option, of a search, of sampling and of both."""
FLOATS = {"lenpen", "temperature", "sampling_topp", "sampling_minp"}
PLAIN = {
    "search": "likely",
    "nbest": 1,
    "lenpen": 1,
    "no_repeat_ngram_size": 0,
    "min_len": 0,
    "end_symbols": "",
    "temperature": 1,
    "sampling_topk": 0,
    "sampling_topp": 1,
    "sampling_minp": 0,
}
"""Values that are the default of both transformers and unitk."""
STOPS: dict[Any, str] = {False: "likely", "never": "exact", True: "fairseq"}
"""`early_stopping` -> `--search`."""
KNOWN = {"bos_token_id", "pad_token_id", "eos_token_id", "forced_eos_token_id", "bad_words_ids"}
KNOWN |= {"decoder_start_token_id", "forced_bos_token_id", "early_stopping", "do_sample"}
KNOWN |= {"transformers_version", "_from_model_config", "use_cache", *SEARCH, *DRAWS, *BOTH}
KNOWN |= {"max_length", "max_new_tokens", "min_length", "min_new_tokens"}
KNOWN |= {"cache_implementation", "cache_config", "compile_config", "disable_compile"}
KNOWN |= {"return_dict_in_generate", "prefill_chunk_size", "trust_remote_code", "low_memory"}
KNOWN |= {f"output_{what}" for what in ("attentions", "hidden_states", "scores", "logits")}
"""Settings that are read here, or that change no output."""
OTHERS = {"repetition_penalty", "encoder_repetition_penalty", "encoder_no_repeat_ngram_size"}
OTHERS |= {"suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids", "num_beam_groups"}
OTHERS |= {"diversity_penalty", "typical_p", "epsilon_cutoff", "eta_cutoff", "penalty_alpha"}
OTHERS |= {"exponential_decay_length_penalty", "renormalize_logits", "sequence_bias"}
OTHERS |= {"token_healing", "remove_invalid_values", "guidance_scale", "stop_strings"}
"""Settings that change outputs, and that no option expresses."""
COUNTS = {"encoder_no_repeat_ngram_size", "penalty_alpha", "diversity_penalty"}
"""Those of them that 0 turns off, but not 1."""


def read_generation(file: Path, task: Task) -> tuple[dict[str, Any], list[str]]:
    """The options of a generation_config.json, and its settings that no option expresses exactly.

    Settings that it lacks have transformers' defaults, except the length limit of 20 tokens. A
    config.json of older versions has such settings among others; without any, nothing is found.
    """
    stated = read_json(file)
    declared = {k: v for k, v in stated.items() if v is not None and v is not False}
    endless = _is_endless(stated, task, file)
    if file.name != FILE:
        declared = {k: v for k, v in declared.items() if k in KNOWN | OTHERS}
        if all(name.endswith(("_id", "use_cache", "_version")) for name in declared):
            return {}, endless
    beams = check_value(declared.get("num_beams", 1), int, "num_beams", file)
    draws = check_value(declared.get("do_sample", False), bool, "do_sample", file) and beams == 1
    options: dict[str, Any] = {"sampling": True, "sampling_topk": 50} if draws else {"beam": beams}
    options |= _rename(declared, BOTH | (DRAWS if draws else SEARCH), file)
    stop = declared.get("early_stopping", False)
    several = options.get("nbest", 1) > 1
    # with True, the search of fairseq finds the same best output, but not the same others
    if beams > 1 and isinstance(stop, bool | str) and not (stop is True and several):
        options["search"] = STOPS.get(stop, "")
    options |= _limits(declared, opening(task), file)
    options["end_symbols"] = _end_symbols(declared, task, file)
    left = _without_option(declared, options, task, draws, beams)
    for name in left:
        options.pop({**BOTH, "early_stopping": "search"}.get(name, ""), None)
    options = {k: v for k, v in options.items() if k not in PLAIN or PLAIN[k] != v}
    try:
        make_config(GenerateConfig, options)
    except UsageError as error:  # transformers has no such values either
        raise CheckpointError(f"{file}: {error}") from error
    return options, left + endless


def _rename(declared: Mapping[str, Any], used: Mapping[str, str], file: Path) -> dict[str, Any]:
    """The numbers that a kind of decoding has `used`, by unitk's names.

    Those that only the other kind would read are checked, too.
    """
    renamed = {}
    for key, option in (BOTH | SEARCH | DRAWS).items():
        if key in declared:
            value = check_value(declared[key], float if option in FLOATS else int, key, file)
            if key in used:
                renamed[option] = value
    return renamed


def _without_option(
    declared: Mapping[str, Any], options: Mapping[str, Any], task: Task, draws: bool, beams: int
) -> list[str]:
    """The settings that the options do not express exactly."""
    start = opening(task)
    end = task.protocol and task.protocol.end
    wrong = {
        "do_sample": "do_sample" in declared and not draws,
        "early_stopping": beams > 1 and not options.get("search"),
        "num_return_sequences": not draws and options.get("nbest", 1) > beams,
        # of a decoder alone, transformers counts the n-grams of the prompt as well
        "no_repeat_ngram_size": start is None,
        "max_length": "max_length" in declared and "max_len" not in options,
        "min_length": "min_length" in declared and "min_len" not in options,
        "min_new_tokens": "min_new_tokens" in declared and "min_len" not in options,
        "forced_eos_token_id": declared.get("forced_eos_token_id", end) not in (end, [end]),
        "eos_token_id": end not in _ends(declared, end),
        "bad_words_ids": not _bans_only_symbols(declared, task),
    }
    first, second, *_ = [*(start or []), None, None]
    for name, index in {"decoder_start_token_id": first, "forced_bos_token_id": second}.items():
        wrong[name] = declared.get(name, index) != index
    # 0, 1 and none are how a rule is turned off, but true is not 1
    for name in declared.keys() - KNOWN:
        off: tuple[Any, ...] = (0, []) if name in COUNTS else (0, 1, [])
        wrong[name] = declared[name] is True or declared[name] not in off
    return [name for name in declared if wrong.get(name)]


def decoding_of(config_file: Path, task: Task) -> dict[str, Any]:
    """The options of generation_config.json, or of config.json (`config_file`) if that has them.

    A warning names settings that have no counterpart. A generate.yaml says more than either: unitk
    wrote it where transformers could not say all.
    """
    if task.protocol is None:
        return {}
    if (config_file.parent / NAME).is_file():
        return read_defaults(config_file.parent)
    beside = config_file.with_name(FILE)
    file = beside if beside.exists() else config_file
    options, lost = read_generation(file, task)
    if lost:
        log.warning("%s: no option says exactly the same as %s", file, ", ".join(lost))
    return options


def opening(task: Task) -> list[int] | None:
    """The first ids that the decoder of an encoder-decoder reads; None for a single tower."""
    towers = task.prompt([np.zeros(1, np.int64)]).towers
    return towers["dec"].token.tolist() if "dec" in towers else None


def bart_opening(config: Mapping[str, Any], folder: Path) -> str:
    """The `--task.opening` of a BART, from the first symbols of its decoder.

    Where the model itself writes the second symbol, it has learned the one with which texts begin:
    [CLS], unless there is a tokenizer.json that adds [SEP] only. Of symbols that no
    `--task.opening` has, `read_generation` tells.
    """
    declared = {**config}
    if (folder / FILE).exists():
        declared |= read_json(folder / FILE)
    cls, end = config.get("bos_token_id", 0), config.get("eos_token_id", 2)
    first = declared.get("decoder_start_token_id", end), declared.get("forced_bos_token_id")
    file = folder / "tokenizer.json"
    if first == (end, None) and file.exists():
        from tokenizers import Tokenizer

        data = open_vocab(file).model.data  # it names a damaged file
        ids = Tokenizer.from_buffer(data).encode("a").ids
        return "sep" if ids[0] != cls and ids[-1] == end else "both"
    return "cls" if first == (cls, None) else "both"


def mbart_options(model_folder: ModelFolder) -> dict[str, str]:
    """The languages of an mBART, and the place of their codes.

    mBART-50 says so by the class of its tokenizer. A model that writes one language has it in
    config.json or generation_config.json, and the tokenizer has others.
    """

    def read_if_there(name: str) -> dict[str, Any]:
        return read_json(model_folder.path / name) if (model_folder.path / name).exists() else {}

    tokenizer = read_if_there(SETTINGS)
    decoding = read_if_there(FILE)
    declared = {**model_folder.declared, **decoding}
    named = str(tokenizer.get("tokenizer_class") or declared.get("tokenizer_class") or "")
    opening = "both" if named.startswith("MBart50") else "cls"
    # the first symbol that is written, or that opens what is written
    written = declared.get("forced_bos_token_id" if opening == "both" else "decoder_start_token_id")
    source = tokenizer.get("src_lang") or "en_XX"
    target = tokenizer.get("tgt_lang") or source
    if (
        model_folder.vocab is not None
        and type(written) is int
        and 0 <= written < model_folder.vocab.model.size
    ):
        piece = model_folder.vocab.model.piece(written)
        target = piece if CODE.fullmatch(piece) else target
    return {"opening": opening, "languages": f"{source},{target}"}


ALONE = {"opening": "none", "delimiter": "off"}
"""How texts are laid out for GPT's heads: no symbols are added, and the last word is read."""
UNDELIMITED = {"delimiter": "off"}
"""How a decoder's heads read texts: nothing comes after the last word."""


def decoder_opening(model_folder: ModelFolder) -> dict[str, str]:
    """The `--task.opening` of a decoder, by what its tokenizer.json puts before a text.

    With the [SEP] that it puts after one, `--task.delimiter` for the heads of its classes, which
    read the last token that does not pad.
    """
    file = model_folder.path / "tokenizer.json"
    vocab = model_folder.vocab
    if vocab is None or not file.exists():
        return {}
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(open_vocab(file).model.data)  # it names a damaged file
    words = tokenizer.encode("a", add_special_tokens=False).ids
    ids = tokenizer.encode("a", add_special_tokens=True).ids
    front = tuple(takewhile(lambda index: index not in words, ids))
    known = {(): "none", (vocab.cls,): "cls", (vocab.sep,): "sep"}
    known[vocab.gmask, vocab.sop] = "gmask"
    if front not in known:
        symbols = " ".join(vocab.pieces(front))
        log.warning("%s puts %s before a text, which no --task.opening has", file, symbols)
    ends = ids[-1] == vocab.sep != model_folder.declared.get("pad_token_id")
    return {"opening": known.get(front, "none")} | ({"delimiter": "on"} if ends else {})


def _is_endless(stated: Mapping[str, Any], task: Task, file: Path) -> list[str]:
    """What to name where transformers ends no output, but unitk does: at an end that has a piece.

    A generation_config.json has no default for it; in config.json, the class has one.
    """
    end = task.protocol.end if task.protocol else task.vocab.model.size
    default = end if file.name != FILE else None
    never = stated.get("eos_token_id", default) is None and end < task.vocab.model.size
    return ["eos_token_id null"] if never else []


def _ends(declared: Mapping[str, Any], end: Any) -> list[Any]:
    """All ids that end an output."""
    ends = declared.get("eos_token_id", end)
    return ends if isinstance(ends, list) else [ends]


def _end_symbols(declared: Mapping[str, Any], task: Task, file: Path) -> str:
    """The names of the tokens that end an output besides the task's own end."""
    end = task.protocol and task.protocol.end
    ends = _ends(declared, end)
    if end not in ends:
        return ""
    others = [check_value(index, int, "eos_token_id", file) for index in ends if index != end]
    if lacking := [index for index in others if not 0 <= index < len(task.vocab)]:
        raise CheckpointError(f"{file}: eos_token_id {lacking[0]} is not in the vocabulary")
    return " ".join(task.vocab.pieces(others))


def _bans_only_symbols(declared: Mapping[str, Any], task: Task) -> bool:
    """Whether all words that a setting bans are those that the task never writes."""
    never = [[index] for index in task.protocol.banned] if task.protocol else []
    banned = declared.get("bad_words_ids") or []
    return isinstance(banned, list) and all(words in never for words in banned)


def _limits(declared: Mapping[str, Any], start: list[int] | None, file: Path) -> dict[str, int]:
    """The least and the greatest length, without the end and the symbols that open an output.

    A decoder alone has no counterpart of max_length and min_length, which count the prompt.
    """
    limits = {}
    for side, end in (("max", "forced_eos_token_id" in declared), ("min", False)):
        names = [f"{side}_new_tokens", f"{side}_length"][: 1 if start is None else 2]
        name = next((name for name in names if name in declared), None)
        if name is not None:
            length = check_value(declared[name], int, name, file)
            if length < (side == "max"):
                raise CheckpointError(f"{file}: {name} cannot be {length}")
            prompt = len(start or [0]) - (not name.endswith("length"))
            limits[f"{side}_len"] = max(length - prompt - end, int(side == "max"))
    return {
        n: v for n, v in limits.items() if n == "max_len" or v <= limits.get("max_len", MAX_LEN)
    }


def generation(parts: Loaded, rows: int) -> tuple[dict[str, Any], list[str]]:
    """The generation_config.json with which transformers decodes as `unitk generate` does.

    Also returns the options of the checkpoint that transformers does not have.
    """
    options = parts.decoding
    start = opening(parts.task)
    draws = bool(options.get("sampling"))
    names = {option: key for key, option in (BOTH | (DRAWS if draws else SEARCH)).items()}
    if start is None:
        del names["no_repeat_ngram_size"]
    stops = {search: stop for stop, search in STOPS.items()}
    stop = stops.get(options.get("search", "likely"))
    numbers = {name: length for name, length in options.items() if isinstance(length, int)}
    opened = len(start or [0]) - 1  # symbols after the first one count as new tokens there
    entries: dict[str, Any] = {
        **_symbols(parts.task, options.get("end_symbols", ""), rows),
        **({"do_sample": True, "top_k": 0} if draws else {"num_beams": BEAM}),
        **{names[name]: value for name, value in options.items() if name in names},
        # transformers counts the end symbol; its search ends when no open hypothesis can win
        "max_new_tokens": numbers.get("max_len", MAX_LEN) + opened + 1,
        "early_stopping": stop or False,
    }
    if numbers.get("min_len"):
        entries["min_new_tokens"] = numbers["min_len"] + opened
    if start is not None:
        entries |= _opening_symbols(start)
    known = {"sampling", "end_symbols", *names, *numbers.keys() & {"min_len", "max_len"}}
    if stop is not None:
        known.add("search")
    return entries, [flag(name) for name in options if name not in known]


def _symbols(task: Task, end_symbols: str, rows: int) -> dict[str, Any]:
    """The entries for the symbols that frame outputs, and those that none has."""
    vocab = task.vocab
    protocol = task.protocol
    assert protocol is not None
    end = protocol.end if protocol.end < rows else None
    ends = word_rules(GenerateConfig(end_symbols=end_symbols), vocab).ends
    return {
        "bos_token_id": vocab.cls if vocab.cls < rows else None,
        "eos_token_id": [end, *ends] if ends else end,
        "forced_eos_token_id": end,
        "pad_token_id": vocab.pad if vocab.pad < rows else end,
        "bad_words_ids": [[index] for index in protocol.banned if index < rows] or None,
    }


def _opening_symbols(start: list[int]) -> dict[str, int | None]:
    """The entries for the symbols that a decoder's outputs begin with."""
    first, *rest = start
    if len(rest) > 1:
        raise UsageError(
            f"--to hf: transformers' decoders begin with 2 symbols at most, not {len(start)}"
        )
    return {"decoder_start_token_id": first, "forced_bos_token_id": rest[0] if rest else None}
