"""Trains vocabularies on text, with the characters that the text chooses.

If they are few, all have pieces. Of thousands (Chinese, Japanese), those have some that make up
`COVERAGE` of the text, and all letters and digits that occur. Alphabets are completed if there is
room.
"""

from __future__ import annotations

import io
import logging
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import numpy as np

from unitk.errors import DataError, UsageError
from unitk.vocab.base import SYMBOLS, Vocab, adopt
from unitk.vocab.subwords import SentencePiece

COVERAGE = 0.9995  # share of a text of thousands of characters that gets pieces
FEW = 8  # all characters are in where they take at most this fraction of the ids
ALPHABETS = (
    "0123456789",
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
)
"""Completed where half of one occurs."""
LARGE = 10**6
"""Characters of a text that is worth completing them; a small one may not fill the ids."""
USED = 1e-4  # share of the text from which on a script counts as used
IDEOGRAPHS = ("CJK", "HANGUL", "TANGUT", "YI", "NUSHU", "EGYPTIAN", "CUNEIFORM")
SHOWN = 40
LONG = 1 << 16
PART = re.compile(rf"\S.{{0,{LONG}}}(?:\s|$)|\S.{{0,{LONG}}}", re.DOTALL)
"""Parts of a line that sentencepiece is trained on; its time and memory grow with lines."""

FIXED = {
    "max_sentence_length": 1 << 30,
    "num_threads": 16,
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "pad_piece": SYMBOLS["pad"],
    "unk_piece": SYMBOLS["unk"],
    "control_symbols": list(SYMBOLS.values())[2:],
    "minloglevel": 2,
}
"""Settings of sentencepiece that are the same for all vocabularies."""

log = logging.getLogger(__name__)


def fit_pieces(lines: list[str], settings: dict[str, Any]) -> bytes:
    """Train a sentencepiece model; `RuntimeError` says what it refuses."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, **settings
    )
    return model.getvalue()


def train_vocab(
    lines: Iterable[str],
    size: int,
    kind: Literal["unigram", "bpe"] = "unigram",
    *,
    byte_fallback: bool = False,
    normalization: str = "nmt_nfkc",
    coverage: float | None = None,
    sample: int = 10_000_000,
    seed: int = 1,
    fit: Callable[[list[str], dict[str, Any]], bytes] = fit_pieces,
) -> Vocab:
    """Train a sentencepiece vocabulary of `size` ids on a seeded sample of the lines.

    Symbols are control symbols with the first ids, which no text produces. The thread count is
    fixed, because the pieces depend on it. Without a `coverage`, the text decides which characters
    have pieces (`alphabet`). Characters without one are logged, and those that are changed. `fit`
    may consume its lines.
    """
    chosen = [part for line in sample_lines(lines, sample, seed) for part in _short(line)]
    raw = characters(chosen)
    required = ""
    counts = normalize(raw, normalization)
    if not counts:
        raise DataError("there is no text to train a vocabulary on")
    if coverage is None:
        coverage, required = choose_coverage(counts, size, normalization)
    settings = {
        "model_type": kind,
        "vocab_size": size,
        "byte_fallback": byte_fallback,
        "normalization_rule_name": normalization,
        "character_coverage": coverage,
        "required_chars": required,
        # 64-bit offsets, which take twice the memory
        "train_extremely_large_corpus": sum(map(len, chosen)) > 1 << 29,
        **FIXED,
    }
    try:
        trained = SentencePiece(fit(chosen, settings))
    except RuntimeError as error:
        raise _explain(str(error), size) from error
    report_unknown(counts, trained.find)
    report_changes(raw, normalization)
    return adopt(trained)


def _short(line: str) -> list[str]:
    """A line; a very long one in parts, divided at blanks where it has some."""
    return [line] if len(line) <= LONG else [part.strip() for part in PART.findall(line)]


def _explain(message: str, size: int) -> UsageError | DataError:
    """Translate sentencepiece's message about a size into the options of the command line."""
    if match := re.search(r"too high .* value <= (\d+)", message):
        return UsageError(
            f"--vocab-size {size} is too large for this text; the largest possible is {match[1]}"
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UsageError(
            f"--vocab-size {size} is too small: "
            f"the symbols and characters alone take {least[1]} ids"
        )
    return DataError(f"sentencepiece cannot train a vocabulary on this text: {message}")


def sample_lines(lines: Iterable[str], count: int, seed: int) -> list[str]:
    """At most `count` lines, each with equal probability, in one pass (Li 1994, algorithm L)."""
    stream: Iterator[str] = iter(lines)
    # the sample is the lines with the `count` smallest of uniform draws; `weight` is the largest of
    # these, and a line enters below it: how many do not is a geometric draw, and they are skipped
    chosen = list(islice(stream, count))
    rng = random.Random(seed)
    weight = 1.0
    while chosen:
        weight *= math.exp(math.log(1 - rng.random()) / count)
        skip = int(math.log(1 - rng.random()) / math.log1p(-weight))
        line = next(islice(stream, skip, None), None)
        if line is None:
            break
        chosen[rng.randrange(count)] = line
    return chosen


def characters(lines: Iterable[str]) -> Counter[str]:
    """Count the characters of a text as they are."""
    stream = iter(lines)
    raw = np.zeros(0x110000, np.int64)
    while batch := list(islice(stream, 100_000)):
        codes = np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32)
        raw += np.bincount(codes, minlength=len(raw))
    return Counter({chr(code): int(raw[code]) for code in np.flatnonzero(raw).tolist()})


def normalize(raw: Counter[str], normalization: str) -> Counter[str]:
    """The normalized form of these characters, blanks excluded."""
    normal = _normalizer(normalization)
    counts: Counter[str] = Counter()
    for character, times in raw.items():
        for result in normal(character):
            counts[result] += times
    return Counter({result: times for result, times in counts.items() if result.strip()})


def choose_coverage(counts: Counter[str], size: int, normalization: str) -> tuple[float, str]:
    """The coverage for a vocabulary of this size, and the characters that are always included."""
    completed = set[str]()
    if counts.total() >= LARGE:
        normal = _normalizer(normalization)
        lower = {character.lower() for character in counts}
        for alphabet in ALPHABETS:
            if len(lower & {*alphabet}) * 2 >= len(alphabet):
                completed |= {*normal(alphabet + alphabet.upper())}
    if len(counts.keys() | completed) * FEW <= size:
        return 1.0, "".join(sorted(completed))
    return COVERAGE, "".join(sorted(_letters(counts)))


def report_unknown(counts: Counter[str], known: Callable[[str], object]) -> None:
    """Log the characters that are not `known`, most frequent first."""
    if lacking := {char: "" for char in counts if known(char) is None}:
        log.warning("the vocabulary leaves out %s", _part(lacking, counts))


def report_changes(raw: Counter[str], normalization: str) -> None:
    """Log the characters that the normalization changes, most frequent first.

    Blanks that become other blanks and letters that lose their case are none of them.
    """
    normal = _normalizer(normalization.removesuffix("_cf"))
    visible = Counter({char: times for char, times in raw.items() if not char.isspace()})
    changed = {char: _show_change(normal(char)) for char in visible if normal(char) != char}
    if changed:
        log.warning("--vocab-normalization %s changes %s", normalization, _part(changed, visible))


def _part(part: Mapping[str, str], whole: Counter[str]) -> str:
    """How many characters are a part of others, their share of the text, and a list of them.

    `part` has what is shown after each.
    """
    ranked = sorted(part, key=lambda char: -whole[char])
    listed = ", ".join(f"{_show(char)}{part[char]} {whole[char]:,}" for char in ranked[:SHOWN])
    if len(part) > SHOWN:
        listed += f", and {len(part) - SHOWN:,} more"
    share = 100 * sum(whole[char] for char in part) / whole.total()
    return f"{len(part):,} of {len(whole):,} characters ({share:.3f} % of the text): {listed}"


def _show_change(text: str) -> str:
    shown = "a blank" if text == " " else "".join(map(_show, text)) or "nothing"
    return f" \u2192 {shown}"


def _show(char: str) -> str:
    plain = char.isprintable() and unicodedata.category(char)[0] != "M"  # marks need a letter
    return char if plain else f"U+{ord(char):04X}"


def _normalizer(name: str) -> Callable[[str], str]:
    import sentencepiece

    normal = sentencepiece.SentencePieceNormalizer(
        rule_name=name,
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )
    return lambda text: str(normal.normalize(text))


def _letters(counts: Counter[str]) -> Iterator[str]:
    """The letters and digits of the scripts that occur."""
    # the first word of a character's name: LATIN, CYRILLIC, CJK of "CJK UNIFIED IDEOGRAPH-4E00"
    script = {char: unicodedata.name(char, "").split(" ")[0].split("-")[0] for char in counts}
    weight: Counter[str] = Counter()
    for char, times in counts.items():
        weight[script[char]] += times
    least = USED * counts.total()
    used = {name for name, times in weight.items() if times >= least and name not in IDEOGRAPHS}
    for char in counts:
        kind = unicodedata.category(char)
        if kind == "Nd" or (kind[0] in "LM" and script[char] in used):
            yield char
