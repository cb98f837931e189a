"""Limits on what a tokenizer.json of unknown origin may ask for.

The tokenizers library does what a file says. A file may repeat a character a million times, match
for hours, or claim four billion ids. Such files are refused here, with the field that says so.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from unitk.errors import DataError

MOST_GROWTH = 500  # how many times longer a text may become
MOST_GAPS = 1000  # ids without a piece, beside as many as there are pieces
LONGEST_WORD = 10_000  # WordPiece takes the square of it
PROBED, PROBE_SECONDS = 64, 1.0  # characters that a pattern is tried on, and the time it may take
STEPS = ("normalizer", "pre_tokenizer", "decoder")
SEQUENCES = {"normalizers", "pretokenizers", "decoders"}
QUANTIFIER = re.compile(r"[*+]|\{\d*,?(\d*)\}")
ESCAPE = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)


def check(spec: Any) -> None:
    """Raise a `DataError` for a field of a tokenizer.json that is missing, or asks for too much."""
    model = spec.get("model") if isinstance(spec, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise DataError("is not a tokenizer of the tokenizers library (it has no model.vocab)")
    _check_ids(spec, model)
    _check_unknown(model)
    _check_merges(model)
    longest = model.get("max_input_chars_per_word") or 0
    if not isinstance(longest, int) or longest > LONGEST_WORD:
        raise DataError(
            f"has model.max_input_chars_per_word {longest!r}, but it "
            f"must be a whole number up to {LONGEST_WORD:,}"
        )
    times = {name: 1.0 for name in STEPS}
    for name, where, step in _steps(spec):
        times[name] *= _growth(where, step)
        if times[name] > MOST_GROWTH:
            raise DataError(f"has a {where} that makes a text {times[name]:,.0f} times as long")
        pattern = step.get("pattern")
        if isinstance(pattern, dict) and has_nested_repeats(str(pattern.get("Regex", ""))):
            raise DataError(
                f"has a {where}.pattern that is refused: "
                f"{pattern['Regex']!r} repeats a repetition, which may match for hours"
            )


def _check_ids(spec: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    vocab = model["vocab"]
    added = spec.get("added_tokens") or []
    if not isinstance(added, list):
        raise DataError(f"must have a list as added_tokens, got {added!r}")
    entries = len(vocab) + len(added)
    named: list[tuple[str, Any]] = []
    if isinstance(vocab, dict):
        named += [("model.vocab", index) for index in vocab.values()]
    for number, piece in enumerate(vocab if isinstance(vocab, list) else ()):
        text, score = piece if isinstance(piece, list) and len(piece) == 2 else (None, None)
        if not isinstance(text, str) or not isinstance(score, float | int):
            raise DataError(f"must have a piece and its score as model.vocab[{number}]")
    for number, token in enumerate(added):
        where = f"added_tokens[{number}]"
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise DataError(f"must have an object with content as {where}, got {token!r}")
        named.append((f"{where}.id", token.get("id")))
    for where, index in named:
        if type(index) is not int or not 0 <= index < 2 * entries + MOST_GAPS:
            raise DataError(f"has the id {index!r} in {where}, but {entries:,} pieces")


def kind_of(model: Mapping[str, Any]) -> str:
    """The type of a tokenizer.json's model, which old files do not name."""
    marks = {"unk_id": "Unigram", "merges": "BPE", "continuing_subword_prefix": "WordPiece"}
    guess = next((kind for mark, kind in marks.items() if mark in model), "WordLevel")
    return str(model.get("type") or guess)


def has_byte_level(spec: Mapping[str, Any]) -> bool:
    """Whether a tokenizer.json reads texts as bytes, each of which is a letter of its pieces."""
    steps = (step for name, _, step in _steps(spec) if name != "normalizer")
    return any(step.get("type") == "ByteLevel" for step in steps)


def _check_unknown(model: Mapping[str, Any]) -> None:
    """Refuse a model that could not say that it does not know a character."""
    kind = kind_of(model)
    vocab = model["vocab"]
    if kind == "Unigram":
        index = model.get("unk_id")
        known = isinstance(index, int) and 0 <= index < len(vocab)
        if not known and not (index is None and model.get("byte_fallback")):
            raise DataError(f"has model.unk_id {index!r}, but must name one of its pieces")
        return
    unk = model.get("unk_token")
    if not ((unk is None and kind == "BPE") or (isinstance(unk, str) and unk in vocab)):
        raise DataError(f"has model.unk_token {unk!r}, which is not in model.vocab")


def _check_merges(model: Mapping[str, Any]) -> None:
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if not isinstance(model.get(name) or "", str):
            raise DataError(f"must have a text as model.{name}, got {model[name]!r}")
    merges = model.get("merges") or []
    prefix = model.get("continuing_subword_prefix") or ""
    if not isinstance(merges, list):
        raise DataError(f"must have a list as model.merges, got {merges!r}")
    for number, pair in enumerate(merges):
        parts = pair.split(" ", 1) if isinstance(pair, str) else pair
        if not isinstance(parts, list) or [*map(type, parts)] != [str, str]:
            raise DataError(f"must have two pieces as model.merges[{number}], got {pair!r}")
        if not parts[1].startswith(prefix):  # the library would end the process
            raise DataError(
                f"has {parts[1]!r} in model.merges[{number}], which lacks the prefix {prefix!r} of "
                "model.continuing_subword_prefix"
            )


def _steps(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The steps of each of `STEPS`, those within sequences too, with the names of their fields."""
    for name in STEPS:
        open_steps = [(name, spec.get(name))] if spec.get(name) is not None else []
        while open_steps:
            where, step = open_steps.pop(0)
            if not isinstance(step, dict):
                raise DataError(f"must have an object as {where}, got {step!r}")
            yield name, where, step
            for key in SEQUENCES & step.keys():
                if not isinstance(step[key], list):
                    raise DataError(f"must have a list as {where}.{key}, got {step[key]!r}")
                open_steps += [(f"{where}.{key}[{i}]", inner) for i, inner in enumerate(step[key])]


def _growth(where: str, step: Mapping[str, Any]) -> float:
    """How many times longer a step can make a text, as far as a file can choose."""
    kind = step.get("type")
    if kind == "ByteLevel":
        return 2  # each byte becomes a letter of up to two
    if kind == "Prepend":
        return len(str(step.get("prepend", "")))
    if kind == "Precompiled":
        try:
            table = base64.b64decode(step["precompiled_charsmap"], validate=True)
        except (KeyError, TypeError, binascii.Error) as error:
            raise DataError(f"has no {where}.precompiled_charsmap in base64") from error
        first = 4 + int.from_bytes(table[:4], "little")  # a trie, then what its keys become
        return max(map(len, table[first:].split(b"\0")))  # 33 for NFKC
    if kind != "Replace":
        return 1
    pattern = step.get("pattern")
    content = str(step.get("content", ""))
    if isinstance(pattern, dict) and isinstance(pattern.get("String"), str):
        return max(1, len(content) / max(1, len(pattern["String"])))
    return 1 + len(content)  # an expression may match between all characters


def has_nested_repeats(pattern: str) -> bool:
    """Whether a regular expression repeats a group that repeats something itself.

    The time for such a pattern may double with each character of a text.
    """
    groups = [False]  # whether each open group contains a repetition
    closed = False  # whether the token before ends a group that contains one
    for token in _tokens(pattern):
        repeated = closed
        closed = False
        if token == "(":
            groups.append(False)
        elif token == ")" and len(groups) > 1:
            closed = groups.pop()
            groups[-1] |= closed
        elif _repeats_often(token):
            if repeated:
                return True
            groups[-1] = True
    return False


def _tokens(pattern: str) -> Iterator[str]:
    """The characters of a regular expression; an escape, a class or a quantifier is one token."""
    at = 0
    while at < len(pattern):
        match = ESCAPE.match(pattern, at) or QUANTIFIER.match(pattern, at)
        start = at
        at = _end_of_class(pattern, at) if pattern[at] == "[" else match.end() if match else at + 1
        yield pattern[start:at]


def _repeats_often(token: str) -> bool:
    """Whether a token repeats what is before it; {2,5} does not do so often enough to matter."""
    bounds = QUANTIFIER.fullmatch(token)
    if bounds is None or token in "*+":
        return bounds is not None
    return "," in token and (not bounds[1] or int(bounds[1]) > 9)


def _end_of_class(pattern: str, at: int) -> int:
    """Where a class of characters such as [^a[bc]] ends."""
    depth = 0
    while at < len(pattern):
        if match := ESCAPE.match(pattern, at):
            at = match.end()
            continue
        depth += {"[": 1, "]": -1}.get(pattern[at], 0)
        at += 1
        if not depth:
            break
    return at


def try_patterns(spec: Mapping[str, Any], encode: Callable[[str], object]) -> None:
    """Try the regular expressions of a tokenizer on runs of characters.

    Raises a `DataError` if one takes long, or if the library gives up.
    """
    for _, where, step in _steps(spec):
        pattern = step.get("pattern")
        if not isinstance(pattern, dict) or "Regex" not in pattern:
            continue
        letters = sorted({*re.findall(r"\w", pattern["Regex"])[:PROBED], *"a1 ._\u00e9\u4e2d\n"})
        rest = f"!{''.join(letters)}"  # a search ends at once without a letter that must be there
        for letter in letters:
            start = time.perf_counter()
            with failures(f"has a {where}.pattern that cannot be matched"), _without_stderr():
                encode(letter * PROBED + rest)
            if (took := time.perf_counter() - start) > PROBE_SECONDS:
                raise DataError(
                    f"has a {where}.pattern that takes {took:.1f} s for {PROBED} characters: "
                    f"{pattern['Regex']!r}"
                )


@contextmanager
def failures(what: str) -> Iterator[None]:
    """A context that turns what the tokenizers library raises into a `DataError`: `what` and why.

    The library raises `Exception` itself, and where it panics a class that has no other name.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{what} ({' '.join(str(error).split())})") from error


@contextmanager
def name_errors(what: object) -> Iterator[None]:
    """A context that turns errors about a file into errors that name it."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{what} is not UTF-8") from error
    except OSError as error:
        name = error.filename if error.filename and error.filename not in str(what) else what
        raise DataError(f"{name}: {error.strerror}") from error
    except DataError as error:
        raise DataError(f"{what} {error}") from error


def load_tokenizer(text: str) -> Any:
    """The library's tokenizer of a tokenizer.json."""
    from tokenizers import Tokenizer

    with failures("is not a tokenizer of the tokenizers library"), _without_stderr():
        return Tokenizer.from_str(text)


@contextmanager
def _without_stderr() -> Iterator[None]:
    """A context in which the process writes no errors: the library prints where it panics."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
