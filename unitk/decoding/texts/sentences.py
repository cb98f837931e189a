"""Which part of a source is read, and which outputs are chosen: `--key-phrases`, `--best-of`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

import regex

from unitk.data.files.documents import split_sentences
from unitk.decoding.config import SEARCH_PRESETS, GenerateConfig
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.outputs import Output
from unitk.slots import Ids, Protocol, exact_sum
from unitk.vocab.scripts import STOP

Spell = Callable[[Ids], str]
"""From the tokens of an output to its text."""
WORD = re.compile(r"\w{4,}")
"""A word that counts as repeated; shorter ones often occur twice in a sentence."""


def key_sentence(text: str, phrases: Sequence[str]) -> str:
    """The first sentence of a text that has one of the phrases, or its first one if none has.

    Letter case makes no difference, and neither do line breaks and the width of blanks. What comes
    before the phrase is left out if a comma parts it from the phrase: "To this end, we propose X."
    """
    sentences = split_sentences(" ".join(text.split()), "punct") or [""]
    key_phrases = sorted((" ".join(phrase.split()) for phrase in phrases), key=len, reverse=True)
    pattern = regex.compile("|".join(map(regex.escape, key_phrases)), regex.V1 | regex.IGNORECASE)
    for sentence in sentences:
        if found := pattern.search(sentence):
            before, rest = sentence[: found.start()], sentence[found.start() :]
            return rest[:1].upper() + rest[1:] if before.rstrip().endswith(",") else sentence
    return sentences[0]


def sentence_ends(text: str, *, grows: bool = False) -> list[int]:
    """The offsets at which the whole sentences of a text end.

    A stop at the very end of the text counts unless the text `grows`: more may belong to it then.
    """
    marks = STOP.finditer(text if grows else f"{text} A")
    return [len(text[: mark.end()].rstrip()) for mark in marks]


def stable_part(text: str, config: GenerateConfig) -> str:
    """The beginning of a text that is being written, as far as no further token changes it."""
    ends = [0, *sentence_ends(text, grows=True)][: config.sentences + 1]
    return text[: ends[-1]] if config.sentences else text


def choose_outputs(
    spell: Spell,
    best: Sequence[Hypothesis],
    config: GenerateConfig,
    protocol: Protocol | None,
    limit: int,
    source: str = "",
) -> list[Output]:
    """The n best outputs of those that a search has found for a source, as texts.

    With `--sentences`, each is cut after its last whole sentence, and ranked by what is left.
    Those that have no whole sentence come last. With `--repeat-cost`, the rank of an output falls
    with the share of its words that are repeated. Of outputs that are equal, one is kept as long as
    there are others. `limit` is the number of tokens at which the end is forced.
    """

    def ended(ids: Ids) -> bool:
        return protocol is not None and protocol.end in ids[-1:] and len(ids) <= limit

    def rank(output: Output) -> float:
        repeats = count_repeats(output.text, source)
        words = len(WORD.findall(output.text))
        return config.repeat_cost * repeats / max(1, words) - output.hypothesis.score

    outputs = [Output(spell(hypothesis.ids), hypothesis) for hypothesis in best]
    opened = protocol.opened if protocol else 0
    if config.repeat_cost:
        outputs.sort(key=rank)
    if config.sentences:
        whole, open_ = list[Output](), list[Output]()
        for output in outputs:
            ends = sentence_ends(output.text)[: config.sentences]
            if len(ends) < config.sentences and ended(output.hypothesis.ids):
                whole.append(output)  # a title, say, has no stop
            elif ends:
                whole.append(cut_output(spell, output, ends[-1], config, opened))
            else:
                open_.append(output)
        outputs = sorted(whole, key=rank) + open_
    if len(outputs) > config.nbest:
        first = {output.text: output for output in reversed(outputs)}
        outputs.sort(key=lambda output: first[output.text] is not output)  # stable
    return outputs[: config.nbest]


def count_repeats(text: str, before: str = "") -> int:
    """The number of words of four letters or more that repeat one of the text, or of `before`."""
    words = WORD.findall(text.casefold())
    return len(words) - len({*words} - {*WORD.findall(before.casefold())})


def cut_output(
    spell: Spell, output: Output, size: int, config: GenerateConfig, opened: int
) -> Output:
    """The first tokens of an output that have a text of at least `size` characters.

    Its score counts the symbols that are `opened` before an output, as that of a search does.
    """
    ids, gains = output.hypothesis.ids, output.hypothesis.token_log_probs
    count = bisect_left(range(len(ids)), size, key=lambda count: len(spell(ids[:count])))
    ids, gains = ids[:count], gains[:count]
    total = exact_sum(gains)
    score = total / SEARCH_PRESETS[config.search].divisor(count + opened, config.lenpen)
    return Output(output.text[:size], Hypothesis(ids, score, total, gains))
