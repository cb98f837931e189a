"""Small tasks of every protocol with random-weight models, and the references for the decoder.

The references encode every hypothesis anew, alone, in one pass of `unroll`, and search in plain
Python: nothing of `unitk.decoding` is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.slots import Example, Protocol, collate, probe, stay, unroll

NO = -float("inf")


@dataclass
class Case:
    """A model and prompts for it; ids 0 .. words - 1 are words, then end, MASK and begin."""

    name: str
    words: int
    scale: float = 0.3
    """Standard deviation of the weights: more makes the distributions sharper."""
    seed: int = 0

    def __post_init__(self):
        self.end, self.mask, self.begin = self.words, self.words + 1, self.words + 2
        banned = (self.mask, self.begin)
        shift = Protocol(end=self.end, banned=banned)
        slot = Protocol(end=self.end, probe=self.mask, banned=banned)
        self.protocol = {
            "shift": shift,
            "blanks": Protocol(end=self.end, dpos=0, dpos2=1, begin=self.begin, banned=banned),
            "slot": slot,
            "relative": slot,
            "cross": shift,
        }[self.name]
        self.tower = "dec" if self.name == "cross" else "x"
        torch.manual_seed(self.seed)
        cls = EncoderDecoderConfig if self.name == "cross" else ModelConfig
        config = cls(
            num_layers=2,
            width=16,
            num_heads=2,
            ffn_width=32,
            max_positions=64,
            max_positions2=16,
            dropout=0.0,
            attention_dropout=0.0,
            init_std=self.scale,
            **({"relative_buckets": 8, "relative_distance": 10} if self.name == "relative" else {}),
        )
        self.model = config.build(self.words + 3).eval()

    def prompts(self, count, longest=12):
        rng = np.random.default_rng(self.seed)
        return [
            self.prompt(rng.integers(self.words, size=1 + (5 * i) % longest)) for i in range(count)
        ]

    def prompt(self, words, blanks=None):
        n = len(words)
        if self.name == "shift":
            return Example({"x": stay(words, np.arange(n), at=np.arange(n))})
        if self.name == "cross":
            may = (np.arange(n) % 3 != 1) * 1  # some of the source is hidden
            first = stay([self.begin], [2])
            return Example({"enc": stay(words, np.arange(n), cross=may), "dec": first})
        if self.name in ("slot", "relative"):
            asked = probe([self.mask], [n], at=1)
            return Example({"x": stay(words, np.arange(n)) + asked})
        # 1 to 3 blanks; as in GLM, part A and the first begin symbol
        rng = np.random.default_rng(n)
        homes = np.sort(rng.choice(n + 3, 1 + n % 3 if blanks is None else blanks, replace=False))
        shown = np.insert(words, np.minimum(homes, n), self.mask)
        homes = np.stack([homes, np.ones(len(homes), int)], 1)
        part_a = stay(shown, np.arange(len(shown)))
        first = stay([self.begin], homes[:1, 0], pos2=1, at=1)
        return Example({"x": part_a + first}, blanks=homes[1:])

    @torch.no_grad()
    def log_probs(self, prompt, written):
        """Log-probabilities [len(written), V] of what is at each word."""
        full = unroll(prompt, self.protocol, written)
        batch = collate([[full]]).to("cpu")
        states, _ = self.model(batch, self.model.condition(batch))
        asked = states[self.tower].flatten(0, 1)[batch.asks["lm"].rows[:, 0]]
        return self.model.head(asked).log_softmax(-1).double().numpy()

    def next(self, prompt, written):
        """Log-probabilities [V] of the word after the written ones."""
        return self.log_probs(prompt, [*written, 0])[-1]

    def score(self, prompt, written):
        """The log-probability of written words."""
        table = self.log_probs(prompt, written)
        return sum(table[j, word] for j, word in enumerate(written))

    def blanks_of(self, written):
        """The blanks of written words, without their ends; the last one is open or empty."""
        found = [[]]
        for word in written:
            if word == self.end:
                found.append([])
            else:
                found[-1].append(word)
        return found

    def allowed(self, written, word, config):
        """May this word be written next? Plain loops."""
        blank = self.blanks_of(written)[-1]
        if len(blank) >= config.max_len:
            return word == self.end
        if word == self.end:
            return len(blank) >= config.min_len
        if word in self.protocol.banned:
            return False
        n = config.no_repeat_ngram_size
        grams = [tuple(blank[i : i + n]) for i in range(len(blank) - n + 1)]
        return not n or tuple((blank + [word])[-n:]) not in grams or len(blank) + 1 < n

    def finished(self, prompt, written):
        return list(written).count(self.end) > len(prompt.blanks)


def gain(case, written, word, table, config):
    """What writing a word adds; GLM and UniLM close an output at the limit for nothing."""
    full = len(case.blanks_of(written)[-1]) >= config.max_len
    return 0.0 if full and config.search in ("glm", "unilm") else table[word]


def ranked(case, words, raw, config):
    """The score of a finished output, as the programs' own code has it."""
    blanks = case.blanks_of(words)[:-1]
    if config.search == "glm":
        return raw / max(sum(map(len, blanks)), 1) ** config.lenpen
    if config.search == "unilm":
        length = sum(min(len(blank) + 1, config.max_len) for blank in blanks)
        return raw / ((5 + length) / 6) ** config.lenpen
    return raw / len(words) ** config.lenpen


def brute_force(case, prompt, config, accept=lambda words: True, penalty=None):
    """Every output that the rules allow and `accept`, best first: (words, score).

    `penalty` is taken from the log-probabilities of some words.
    """
    assert not len(prompt.blanks)
    found = []
    for n in range(config.max_len + 1):
        for words in product(range(case.words), repeat=n):
            words = [*words, case.end]
            if all(case.allowed(words[:j], word, config) for j, word in enumerate(words)):
                table = case.log_probs(prompt, words)
                gains = [gain(case, words[:j], v, table[j], config) for j, v in enumerate(words)]
                gains += [-(penalty or {}).get(word, 0) for word in words]
                if accept(words):
                    found.append((words, ranked(case, words, sum(gains), config)))
    return sorted(found, key=lambda one: -one[1])


def naive_beam(case, prompt, config, gaps=None):
    """After each step: finished best first, open best first, each (words, score); best sum.

    Until nothing is open: there is no stopping rule. `gaps` takes what lies between the sums of
    continuations that were looked at, the next one included, and between the scores of outputs.
    """
    beam, pool, opened = config.beam, [], [([], 0.0)]
    wide = beam if config.search == "unilm" else 2 * beam
    while opened:
        following = []
        for words, raw in opened:
            table = case.next(prompt, words)
            following += [
                ([*words, v], raw + gain(case, words, v, table, config))
                for v in range(len(table))
                if case.allowed(words, v, config)
            ]
        following = sorted(following, key=lambda one: -one[1])
        if gaps is not None:
            gaps += [one[1] - other[1] for one, other in pairwise(following[: wide + 1])]
        following = following[:wide]
        ended = [case.finished(prompt, words) for words, _ in following]
        more = [
            (words, ranked(case, words, raw, config))
            for (words, raw), end in zip(following[:beam], ended, strict=False)
            if end
        ]
        if config.search == "fairseq":
            more = more[: beam - len(pool)]
        pool = sorted(pool + more, key=lambda one: -one[1])[:beam]
        opened = [one for one, end in zip(following, ended, strict=True) if not end][:beam]
        yield pool, opened, following[0][1] if following else NO
    if gaps is not None:
        gaps += [one[1] - other[1] for one, other in pairwise(pool)]


def least_gap(case, prompts, config):
    """By how much less a step or an output would have to score for another one to be chosen."""
    gaps = []
    for prompt in prompts:
        list(naive_beam(case, prompt, config, gaps))
    assert len(gaps) > 10 * len(prompts)
    return min(gaps)


@pytest.fixture
def toy():
    return SimpleNamespace(
        Case=Case, brute_force=brute_force, naive_beam=naive_beam, least_gap=least_gap
    )


@pytest.fixture(params=["shift", "blanks", "slot", "relative", "cross"])
def kind(request):
    return request.param


@pytest.fixture
def one_thread():
    """Several threads part a product's rows, and its sums then depend on where a row is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
