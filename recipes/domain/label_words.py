"""How likely the words of each label are after each prompt.

    python3 label_words.py INPUTS CHECKPOINT WORDS DEST

WORDS is such as "0: bad poor|1: good great". INPUTS has prompt1.txt and so on, a text and its
prompt a line. DEST gets [P, N, K], for each prompt, text and label the mean log-probability of the
label's words (Schick and Schütze 2021, arXiv 2001.07676, section 3.1, has one word for a label).
Words that the vocabulary of CHECKPOINT writes in several tokens are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shared import parse_arguments

import unitk

TEXTS = 256
"""So many texts have their logits in memory at a time."""


def split_words(given: str) -> dict[str, list[str]]:
    """The words of each label."""
    pairs = [part.partition(":") for part in given.split("|")]
    words = {label.strip(): listed.split() for label, _, listed in pairs}
    if len(pairs) < 2 or len(words) < len(pairs) or not all(words.values()):
        raise SystemExit(f'WORDS: write "LABEL: word word|LABEL: word word", got {given!r}')
    return words


def find_tokens(model: unitk.Generator, label: str, words: Sequence[str]) -> list[int]:
    """The token of each word that is one token after another word."""
    before = len(model.vocab.encode("It is"))
    tokens = {word: list(model.vocab.encode(f"It is {word}")[before:]) for word in words}
    found = [ids[0] for ids in tokens.values() if len(ids) == 1]
    if not found:
        raise SystemExit(f"WORDS: each word of {label} is several tokens: {' '.join(words)}")
    if several := [word for word, ids in tokens.items() if len(ids) > 1]:
        print(f"left out as words of several tokens: {' '.join(several)}", file=sys.stderr)
    return found


def main(inputs: Path, checkpoint: str, given: str, dest: Path) -> None:
    """Write the log-probabilities."""
    model = unitk.load(checkpoint, task="lm")
    tokens = [find_tokens(model, *pair) for pair in split_words(given).items()]
    prompts = []
    for number in range(1, len([*inputs.glob("prompt*.txt")]) + 1):
        texts = (inputs / f"prompt{number}.txt").read_text(encoding="utf-8").splitlines()
        rows = []
        for start in range(0, len(texts), TEXTS):
            for logits in model.logits(texts[start : start + TEXTS]):
                log_probs = logits[-1] - np.logaddexp.reduce(logits[-1])
                rows.append([log_probs[ids].mean() for ids in tokens])
        prompts.append(rows)
    np.save(dest, np.array(prompts, np.float32))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, inputs=Path, checkpoint=str, words=str, dest=Path))
