"""Fills [MASK]s in several passes, which is how diffusion generates.

MDLM: Sahoo et al. 2024, arXiv 2406.07524, section 3. LLaDA: Nie et al. 2025, arXiv 2502.09992,
section 2. BD3-LM: Arriola et al. 2025, arXiv 2503.09573, section 3. A text is written block by
block, as its slots come at rising times: keys and values of earlier blocks are computed once. The
numbers that an output is drawn with depend on (seed, number of the input, number of the output)
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint
from unitk.decoding.drivers import SEARCH, Driver, Prompt, Watcher
from unitk.decoding.fit import batch_prompts
from unitk.decoding.search import Hypothesis, draw
from unitk.errors import NonFiniteError, require
from unitk.families.diffusion.mdlm import Diffusion
from unitk.masks import dense
from unitk.models.base import Decoder
from unitk.registry import register
from unitk.slots import BORN, DIES, NEVER, NOW, TOKEN, Example, Ids, collate, exact_sum

CHUNK = 1024  # words whose logits are held at a time


@register("driver", "passes")
class Passes(Driver):
    """Several passes over a canvas of [MASK]s, each of which fixes some of them."""

    task: Diffusion

    def lay_out(self, source: list[Ids], constraint: Constraint, name: str) -> Example:
        if any((part == self.task.blank).any() for part in source):
            require(not constraint.prefix, f"{name} has [MASK]s: its outputs have no --prefix-file")
            return self.task.prompt(source)
        output = np.full(constraint.max_len, self.task.blank)
        output[: len(constraint.prefix)] = constraint.prefix
        return self.task.canvas(source, output)

    @torch.inference_mode()
    def outputs(
        self, prompts: Sequence[Prompt], config: GenerateConfig, watch: Watcher
    ) -> list[list[Hypothesis]]:
        """The `nbest` outputs for each prompt, best first: the final tokens of its asked slots.

        An output ends at its first end symbol, if its last slot is one to be filled. Words that the
        prompt gives have log-probability 0. The numbers of the prompts seed the draws. After each
        pass, `watch.on_step` has the place of a prompt and how its first output begins.
        """
        self.check(config, prompts)
        hypotheses: list[list[Hypothesis]] = [[] for _ in prompts]
        examples = [prompt.example for prompt in prompts]
        self.model.eval()
        for numbers in batch_prompts(examples, max(1, config.max_tokens // config.nbest)):
            rows = [(i, n) for i in numbers for n in range(config.nbest)]
            seeds = [[config.seed, prompts[i].number, n] for i, n in rows]
            laid_out = [examples[i] for i, _ in rows]
            canvas = Canvas(self.model, laid_out, seeds, self.task, config)
            for _ in canvas.fill():
                if watch.on_step is not None:
                    for i, ids in zip(numbers, canvas.openings(), strict=True):
                        watch.on_step(i, ids)
            outputs = iter(canvas.outputs())
            for i in numbers:
                drawn = [next(outputs) for _ in range(config.nbest)]
                hypotheses[i] = sorted(drawn, key=lambda hypothesis: hypothesis.score, reverse=True)
            watch.report(len(numbers))
        return hypotheses

    def check(self, config: GenerateConfig, prompts: Sequence[Prompt]) -> None:
        """Raise UsageError for options that have no effect."""
        config.idle("has no effect on diffusion", *SEARCH)
        known = config.beam in (1, GenerateConfig.beam)
        require(known, f"--beam {config.beam} has no effect on diffusion, which is not a search")
        if not config.sampling:
            config.idle("has no effect on diffusion without --sampling", "nbest", "temperature")
        phrases = any(prompt.constraint.phrases for prompt in prompts)
        require(not phrases, "--constraints are for tasks that write word by word")


class Canvas:
    """B texts [B, T] in their current state."""

    def __init__(
        self,
        model: Decoder,
        prompts: Sequence[Example],
        seeds: Sequence[list[int]],
        task: Diffusion,
        config: GenerateConfig,
    ) -> None:
        self.model = model
        self.task = task
        self.config = config
        batch = collate([[prompt] for prompt in prompts]).to(model.device)
        slots = batch.towers[batch.decoded]
        [ask] = batch.asks.values()
        asked = torch.zeros_like(slots[TOKEN], dtype=torch.bool)
        asked.view(-1)[ask.first + task.shift] = True
        real = slots[BORN] < NEVER
        length = int(real.sum(1).max())
        self.slots = slots[:, :, :length]
        self.asked = asked[:, :length]
        self.real = real[:, :length]
        self.slots[NOW].masked_fill_(~self.real, NEVER - 1)  # a pad looks at anything
        self.token = self.slots[TOKEN]
        self.gain = torch.zeros_like(self.token, dtype=torch.float32)
        self.condition = model.condition(batch)
        self.cache = model.new_cache(len(prompts), length, condition=self.condition)
        self.generators = [np.random.default_rng(seed) for seed in seeds]
        last = self.real.sum(1, keepdim=True) - 1
        self.open = self.asked.gather(1, last)[:, 0] & task.config.ends  # [B] an end may be written
        symbols = [id_ for id_ in task.vocab.symbols.values() if id_ != task.vocab.sep]
        self.banned = torch.tensor(symbols, device=slots.device)

    def fill(self) -> Iterator[None]:
        """Write the blocks from left to right, until every row has its end; yields each pass."""
        now = self.slots[NOW, self.real.sum(1).argmax()]  # of the longest row
        starts = (now[1:] != now[:-1]).nonzero()[:, 0] + 1
        read, before = 0, None
        for a, b in pairwise([0, *starts.tolist(), len(now)]):
            if not self.masked_slots(a, b).any():
                continue
            if read < a:  # what was written, and cannot change
                clean = self.slots[:, :, read:a]
                states = self.step(clean, dense(clean, self.slots[:, :, :a]), read)
                read = a
                before = states[:, -1:]
            yield from self.write(a, b, int(now[a]) - 1, before)

    def masked_slots(self, a: int, b: int) -> Tensor:
        """Which slots of columns [a, b) are still to be filled; none in a row that has its end."""
        ended = self.open & (self.asked & (self.token == self.task.vocab.sep)).any(1)
        masked = self.token == self.task.vocab.mask
        return (self.asked & masked & ~ended[:, None])[:, a:b]

    def write(self, a: int, b: int, time: int, before: Tensor | None) -> Iterator[None]:
        """Fill columns [a, b), which see each other and all earlier columns; yields each pass.

        `before` are the states [B, 1, D] of column a - 1, for models that predict a token at the
        slot before its own.
        """
        noised = self.slots[:, :, a:b].clone()
        noised[[NOW, DIES]] = time
        noised[BORN].masked_fill_(self.real[:, a:b], time)
        sight = dense(noised, torch.cat([self.slots[:, :, :a], noised], 2))
        size = self.config.block_length or b - a
        group = (self.masked_slots(a, b).cumsum(1) - 1) // size
        for number in range(int(group.max()) + 1):
            left = self.masked_slots(a, b) & (group == number)
            passes = left.sum(1)  # of each row: what it shares a batch with changes nothing
            if self.config.steps is not None:
                passes = torch.full_like(passes, self.config.steps)
            while left.any():
                noised[TOKEN] = self.token[:, a:b]
                states = self.step(noised, sight, a)
                if self.task.shift:
                    before = torch.zeros_like(states[:, :1]) if before is None else before
                    states = torch.cat([before, states[:, :-1]], 1)
                left = left & ~self.keep(a, b, left, states, passes.clamp(min=1))
                passes = passes - 1
                yield

    def keep(self, a: int, b: int, left: Tensor, states: Tensor, passes: Tensor) -> Tensor:
        """Write some of the slots `left` in columns [a, b); returns which ones.

        `passes` [B] counts the passes that remain, including this one; the last one writes all
        slots.
        """
        order = self.config.order
        numbers = zip(self.generators, left.sum(1).tolist(), strict=True)
        chance = np.concatenate([generator.random((2, n)) for generator, n in numbers], 1)
        which, word = torch.from_numpy(chance).to(states.device)
        value = torch.full_like(left, -torch.inf, dtype=torch.float64)
        value[left] = which
        if order == "confident":
            words, gains = self.words(states, left, word)
            value[left] = gains.double()
        if order == "ancestral":  # of the time that is left, one pass takes 1 / passes
            kept = left & (value < 1 / passes[:, None])
        else:  # as many in each pass, and one more in the first ones (LLaDA)
            rank = value.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            kept = left & (rank < -(-left.sum(1) // passes)[:, None])
        chosen = kept[left]
        if order == "confident":
            words, gains = words[chosen], gains[chosen]
        else:  # only these need words
            words, gains = self.words(states, kept, word[chosen])
        self.token[:, a:b][kept] = words
        self.gain[:, a:b][kept] = gains
        return kept

    def words(self, states: Tensor, where: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """A word for each of the slots [B, q], most probable or drawn, and its log-probability.

        Of all symbols, only the end has a probability (MDLM, section 3.2.3).
        """
        config = self.config
        drawn = list[tuple[Tensor, Tensor]]()
        end = self.open[where.nonzero()[:, 0]]
        parts = zip(states[where].split(CHUNK), chance.split(CHUNK), end.split(CHUNK), strict=True)
        for states_KD, chance_K, end_K in parts:
            logits_KV = self.model.head(states_KD).float()
            logits_KV[:, self.banned] = -torch.inf
            logits_KV[~end_K, self.task.vocab.sep] = -torch.inf
            gain_KV = logits_KV.log_softmax(1)
            if config.sampling:
                # float32 would make rare words rarer (Zheng et al. 2024, arXiv 2409.02908)
                score_KV = gain_KV.double() / config.temperature
                word_K = draw(
                    score_KV,
                    chance_K,
                    config.sampling_topk,
                    config.sampling_topp,
                    config.sampling_minp,
                )
            else:
                word_K = gain_KV.argmax(1)
            drawn.append((word_K, gain_KV.gather(1, word_K[:, None])[:, 0]))
        words, gains = (torch.cat(column) for column in zip(*drawn, strict=True))
        if not gains.isfinite().all():
            raise NonFiniteError("the model gives logits that are not finite: nothing is written")
        return words, gains

    def step(self, columns: Tensor, sight: Tensor, at: int) -> Tensor:
        """The states [B, q, D] of columns, read as the columns from `at` on."""
        return self.model.step(columns, sight, self.condition, self.cache, at)

    def openings(self) -> Iterator[Ids]:
        """The words before the first blank or end of each input's first output."""
        known = self.token != self.task.vocab.mask
        known &= self.token != self.task.vocab.sep
        for row in range(0, len(known), self.config.nbest):
            asked = self.asked[row]
            before = known[row][asked].byte().cummin(0).values.bool()
            yield self.token[row][asked][before].cpu().numpy()

    def outputs(self) -> list[Hypothesis]:
        """The final tokens of each row's asked slots, up to the end."""
        hypotheses = []
        end = self.task.vocab.sep
        tables = (table.cpu().numpy() for table in (self.token, self.gain, self.asked, self.open))
        for token, gain, asked, open_ in zip(*tables, strict=True):
            ids, gains = token[asked], gain[asked]
            ends = np.flatnonzero(ids == end)[: int(open_)]
            size = int(np.append(ends + 1, len(ids))[0])
            total = exact_sum(gains[:size])
            score = total / size**self.config.lenpen
            hypotheses.append(Hypothesis(ids[:size], score, total, gains[:size]))
        return hypotheses
