"""What holds for every registered task that pre-trains: leaks, keys, seeds, bounds, restoration."""

from contextlib import suppress
from dataclasses import fields, replace
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from paper_archs import arch_of

from unitk import registry
from unitk.data.cuts import Text
from unitk.data.limits import measure_extent
from unitk.errors import UsageError
from unitk.masks import dense
from unitk.models.config import ModelConfig
from unitk.options.fields import options
from unitk.slots import CROSS, collate
from unitk.tasks.base import Task
from unitk.tasks.understanding.base import Understanding
from unitk.vocab.words import word_vocab

VARIANTS = {
    "ernie dialogue": {"dialogue": True},
    "glm_infill in three modes": {"mixture": (1.0, 1.0, 1.0)},
    "mlm shifted": {"shift": True, "max_span": 3},
    "pmlm of whole texts": {"pairs": False},
    "ul2 in one tower": {"towers": "one"},
    "unilm of whole texts": {"nsp": False},
}
"""Further settings of a task for which all of this holds."""


def understands(name):
    return issubclass(registry.get("task", name), Understanding)


TASKS = [*(name for name in registry.names("task") if not understands(name)), *VARIANTS]
LAID = [*TASKS, "contrastive"]
"""With those that ask for nothing, but compare what is made of states."""
LENGTHS = (1, 2, 5, 17, 60)
REWRITES = ("bart", "mbart")
"""Tasks whose decoder writes all of the text; what the encoder shows is no secret."""
CORRUPTED = "mask_keep_random"
"""The option of tasks whose hidden tokens are not always masked."""


def build(name, vocab, plain=False):
    """The task with its defaults; `plain`: hidden tokens read MASK, none is kept or random."""
    name, options = name.split()[0], VARIANTS.get(name, {})
    config = registry.get("task", name).Config(**options)
    if plain and CORRUPTED in {field.name for field in fields(config)}:
        config = replace(config, **{CORRUPTED: (1.0, 0.0, 0.0)})
    return registry.get("task", name)(config, vocab)


def distinct_text(vocab, n, rng):
    """No word twice, so that seeing a token is seeing the answer."""
    words = np.setdiff1d(np.arange(len(vocab)), list(vocab.symbols.values()))
    assert len(words) >= n
    return Text([rng.permutation(words)[:n]], np.zeros(1, int))


def two_parts(text, rng):
    """The same text as a pair, as a task's own cut makes it."""
    n = len(text.ids)
    split = int(rng.integers(1, n)) if n > 1 else n
    parts = [part for part in np.split(text.ids, [split]) if len(part)]
    flag = int(rng.integers(2)) if len(parts) > 1 else 0
    return Text(parts, np.array([0, split][: len(parts)]), flag=flag)


def lay_out(task, text, rng):
    """Pre-training, or fine-tuning on the text in two for tasks without."""
    if pretrains(task):
        return task.pretrain(text, rng)
    half = len(text.ids) // 2
    return task.finetune([text.ids[:half]], text.ids[half:], rng)


def draws(task, vocab, count=25):
    for n in LENGTHS:
        for seed in range(count):
            rng = np.random.default_rng([n, seed])
            text = distinct_text(vocab, n, rng)
            if task.cut is not None and seed % 2:
                text = two_parts(text, rng)
            yield text, lay_out(task, text, rng)


def pretrains(task):
    return type(task).pretrain is not Task.pretrain


def sight(example):
    """Who looks at whom in one layer, over all towers [T, T], towers one after the other.

    Decoder slots look at the encoder slots of their doc that have `cross` set.
    """
    towers = list(example.towers.values())
    first = np.cumsum([0] + [len(slots) for slots in towers])
    seen = np.eye(first[-1], dtype=bool)
    for slots, at in zip(towers, first, strict=False):
        seen[at : at + len(slots), at : at + len(slots)] |= dense(slots.table, slots.table)
    if set(example.towers) == {"enc", "dec"}:
        enc, dec = example.towers["enc"], example.towers["dec"]
        may = (dec.doc[:, None] == enc.doc[None]) & (enc.cross[None] > 0)
        a, b = list(example.towers).index("dec"), list(example.towers).index("enc")
        seen[first[a] : first[a] + len(dec), first[b] : first[b] + len(enc)] |= may
    else:
        assert set(example.towers) in ({"x"}, {"bwd", "fwd"}), "other towers: extend this"
    return seen, dict(zip(example.towers, first, strict=False))


def reach(example):
    """Through any number of layers: who can be influenced by whom."""
    seen, first = sight(example)
    while True:
        further = (seen.astype(np.float32) @ seen.astype(np.float32)) > 0
        if (further == seen).all():
            return seen, first
        seen = further


@pytest.mark.parametrize("name", registry.names("task"))
def test_no_attribute_of_a_task_hides_an_option(name, toy_vocab):
    made_from = registry.get("task", name)
    for field in options(made_from.Config):
        named = get_args(field.type) if get_origin(field.type) is Literal else ()
        for value in (True, False) if field.type is bool else named:
            with suppress(UsageError):  # it needs another option beside it
                task = made_from(made_from.Config(**{field.name: value}), toy_vocab)
                shown = getattr(task, field.name, value)
                assert callable(shown) or shown == value, field.name


@pytest.mark.parametrize("name", TASKS)
def test_no_asked_slot_can_reach_its_answer(name, toy_vocab):
    """With MASK at every hidden place, no slot that shows the answer is within reach.

    That 80/10/10 changes nothing else is the next test.
    """
    task = build(name, toy_vocab, plain=True)
    symbols = {*toy_vocab.symbols.values(), *task.vocab.sentinels}
    asked = 0
    for _, example in draws(task, toy_vocab):
        seen, first = reach(example)
        token = np.concatenate([slots.token for slots in example.towers.values()])
        for ask in words_asked(example):
            shown = example.towers["enc"].token if name in REWRITES else ()
            for rows, label in zip(ask.rows + first[ask.tower], ask.label, strict=True):
                if int(label) not in symbols and label not in shown:
                    asked += 1
                    assert label not in token[seen[rows].any(axis=0)]
    assert asked


@pytest.mark.parametrize("name", TASKS)
def test_the_slot_that_stands_for_texts_has_read_them_all(name, toy_vocab):
    """Fine-tuning for understanding reads one slot: every token of every part reaches it."""
    task = build(name, toy_vocab)
    for sizes in ((1,), (7,), (3, 5), (2, 1, 4)):
        parts = [distinct_text(toy_vocab, n, np.random.default_rng(n)).ids for n in sizes]
        encoded = task.lay_out_parts(parts)
        seen, first = reach(encoded.example)
        token = np.concatenate([slots.token for slots in encoded.example.towers.values()])
        at = first[encoded.tower] + encoded.whole
        assert set(np.concatenate(parts)) <= set(token[seen[at]])
        assert [len(places) for places in encoded.parts] == [*sizes]


def words_asked(example):
    return [ask for ask in example.asks if ask.head.partition(":")[0] in ("lm", "sbo")]


@pytest.mark.parametrize("name", TASKS)
def test_kept_and_random_tokens_are_only_where_a_mask_would_be(name, toy_vocab):
    """The one way to see an answer is 80/10/10: a place that stands for a hidden token reads the
    token itself. With the same seed and no such tokens, exactly these places read a mask."""
    task, plain = build(name, toy_vocab), build(name, toy_vocab, plain=True)
    masks = {toy_vocab.mask, toy_vocab.gmask, toy_vocab.smask}
    masks |= set(range(len(task.vocab), len(task.vocab) + len(task.virtual)))
    differ = hidden = 0
    for (_, one), (_, two) in zip(draws(task, toy_vocab), draws(plain, toy_vocab), strict=True):
        assert [(a.name, a.tower) for a in one.asks] == [(a.name, a.tower) for a in two.asks]
        for a, b in zip(one.asks, two.asks, strict=True):
            assert (a.rows == b.rows).all() and (a.label == b.label).all()
        for tower, slots in one.towers.items():
            other = two.towers[tower]
            changed = slots.token != other.token
            assert set(other.token[changed].tolist()) <= masks
            # besides the token, only what the decoder may look at depends on it
            assert (slots.table[1:CROSS] == other.table[1:CROSS]).all()
            assert (slots.cross[~changed] == other.cross[~changed]).all()
            differ += changed.sum()
            hidden += np.isin(other.token, list(masks)).sum()
    if task.config != plain.config:
        assert differ / hidden == pytest.approx(0.2, abs=0.05)
    else:
        assert not differ


@pytest.mark.parametrize("name", LAID)
def test_every_slot_sees_a_key(name, toy_vocab):
    for _, example in draws(build(name, toy_vocab), toy_vocab):
        for slots in example.towers.values():
            assert dense(slots.table, slots.table).any(axis=1).all()
        # in cross-attention too, where there is any
        if "enc" in example.towers and example.towers["enc"].cross.any():
            assert example.towers["enc"].cross[example.towers["enc"].doc == 0].any()


@pytest.mark.parametrize("name", LAID)
def test_same_seed_same_slots_and_another_seed_other_ones(name, toy_vocab):
    task = build(name, toy_vocab)
    text = distinct_text(toy_vocab, 60, np.random.default_rng(0))

    def table(seed):
        rng = np.random.default_rng(seed)
        made = lay_out(task, text, rng)
        tables = {name: slots.table.tolist() for name, slots in made.towers.items()}
        untouched = rng.bit_generator.state == np.random.default_rng(seed).bit_generator.state
        return tables, untouched

    assert table(3) == table(3)
    _, draws_nothing = table(3)
    others = [table(seed)[0] == table(3)[0] for seed in range(4, 8)]
    assert all(others) if draws_nothing else not all(others)


@pytest.mark.parametrize("name", TASKS)
def test_labels_and_visible_words_restore_the_text(name, toy_vocab):
    task = build(name, toy_vocab, plain=True)
    symbols = {*toy_vocab.symbols.values(), *task.vocab.sentinels}
    symbols |= set(range(len(task.vocab), len(task.vocab) + len(task.virtual)))
    for text, example in draws(task, toy_vocab):
        if not words_asked(example):
            continue  # an objective of ERNIE 2.0 that asks for no words, and may show other ones
        labels = {int(y) for ask in words_asked(example) for y in ask.label}
        shown = {int(t) for slots in example.towers.values() for t in slots.token}
        assert (labels | shown) - symbols == set(text.ids.tolist())


def with_separators(text, separator, rng):
    """The same text with separators before some of its words, as `--blocks full` has them."""
    n = len(text.ids)
    places = np.flatnonzero(rng.random(n) < 0.3)[n < 2 :]
    sentences = np.unique([0, *places])
    return Text([np.insert(text.ids, places, separator)], sentences + np.arange(len(sentences)))


def reads_blocks(task):
    """Whether `--blocks` cuts the texts that a task pre-trains on."""
    return pretrains(task) and task.cut is None


@pytest.mark.parametrize("name", [n for n in TASKS if reads_blocks(build(n, word_vocab("a")))])
def test_texts_with_separators_inside_are_laid_out_and_restored(name, toy_vocab):
    """`--blocks full`: a separator is a token like any other, also where a target is unrolled."""
    task = build(name, toy_vocab, plain=True)
    symbols = {*toy_vocab.symbols.values(), *task.vocab.sentinels}
    symbols |= set(range(len(task.vocab), len(task.vocab) + len(task.virtual)))
    seen = 0
    for n in LENGTHS:
        for seed in range(40):
            rng = np.random.default_rng([n, seed])
            text = with_separators(distinct_text(toy_vocab, n, rng), toy_vocab.sep, rng)
            example = task.pretrain(text, rng)
            longest = max(len(slots) for slots in example.towers.values())
            assert longest <= task.slots(np.array(len(text.ids)))
            labels = [ask.label for ask in words_asked(example)]
            if not labels:
                continue
            found = np.concatenate([*labels, *(s.token for s in example.towers.values())])
            assert set(found.tolist()) - symbols == set(text.ids.tolist()) - {toy_vocab.sep}
            inside = (text.ids == toy_vocab.sep).sum()
            assert (found == toy_vocab.sep).sum() >= inside
            seen += inside
            if name in (*REWRITES, "optimus"):
                assert labels[0].tolist() == [*text.ids, toy_vocab.sep]
    assert seen


@pytest.mark.parametrize("name", [n for n in TASKS if pretrains(build(n, word_vocab("a")))])
def test_the_bound_holds_with_every_symbol_before_a_text(name, toy_vocab):
    """`--task.opening`, where a task has it: some values put one symbol more before a text."""
    config = build(name, toy_vocab).config
    kinds = [option.type for option in options(type(config)) if option.name == "opening"]
    for opening in (value for kind in kinds for value in get_args(kind)):
        task = registry.get("task", name.split()[0])(replace(config, opening=opening), toy_vocab)
        for text, example in draws(task, toy_vocab, count=12):
            longest = max(len(slots) for slots in example.towers.values())
            assert longest <= task.slots(np.array(len(text.ids))), opening


@pytest.mark.every(3)
@pytest.mark.parametrize("name", LAID)
def test_no_draw_exceeds_the_declared_bound_and_each_asks_something(name, toy_vocab):
    task = build(name, toy_vocab)
    for text, example in draws(task, toy_vocab, count=100):
        longest = max(len(slots) for slots in example.towers.values())
        if pretrains(task):
            assert longest <= task.slots(np.array(len(text.ids)))
        assert sum(ask.weight.sum() for ask in example.asks) > 0 or name not in TASKS


def finetunes(task):
    return type(task).finetune is not Task.finetune


@pytest.mark.parametrize("name", [n for n in LAID if finetunes(build(n, word_vocab("a")))])
@pytest.mark.parametrize("drops", [False, True])
def test_pairs_are_as_long_as_the_measured_bound_and_the_longest_source_fits(
    name, toy_vocab, drops
):
    task = build(name, toy_vocab)
    drawing = [f.name for f in fields(task.config) if f.name in ("encoder_drop", "word_drop")]
    if drops:
        task = type(task)(replace(task.config, **dict.fromkeys(drawing, 0.5)), toy_vocab)
    extent = measure_extent(name, task.finetune, toy_vocab.unk, task.pair_slots)

    def laid(source, target, parts, seed=0):
        words = np.full(source, toy_vocab.unk)
        rng = np.random.default_rng(seed)
        return task.finetune(np.array_split(words, parts), np.full(target, 20), rng).towers

    for seed in range(60):
        rng = np.random.default_rng(seed)
        source, target = rng.integers(1, 300, 2)
        parts = int(rng.integers(1, 5))
        bound = extent.bound(source, target, parts)
        longest = max(len(slots) for slots in laid(source, target, parts, seed).values())
        assert longest <= bound
        if task.pair_slots(source, target, parts) is None:
            assert longest == bound
        if task.shortens:
            continue  # it fits any source to the positions itself
        table = int(rng.integers(target + 20, 700))
        most = extent.max_source(table, int(target), parts)
        ends = [
            max(slots.pos.max() for slots in laid(most + more, target, parts).values())
            for more in (0, 1)
        ]
        assert ends[0] < table and (drops or ends[1] >= table)


@pytest.mark.parametrize("name", LAID)
def test_position_tables_of_the_default_arch_reach(name, toy_vocab):
    task = build(name, toy_vocab)
    config = registry.get("arch", arch_of(type(task)))()
    text = Text([np.resize(np.arange(30, 60), 512 - task.frame)], np.zeros(1, int))
    for seed in range(20):
        batch = collate([[lay_out(task, text, np.random.default_rng(seed))]])
        for table in batch.towers.values():
            assert table[1].max() < (config.max_positions or np.inf)
            assert table[2].max() < max(config.max_positions2, 1)


@pytest.mark.parametrize("name", LAID)
def test_segments_and_virtual_tokens_of_the_default_arch_reach(name, toy_vocab):
    task = build(name, toy_vocab)
    config = registry.get("arch", arch_of(type(task)))()
    assert len(task.virtual) <= config.num_virtual
    heads = set()
    for _, example in draws(task, toy_vocab):
        heads |= {ask.head for ask in example.asks}
        for slots in example.towers.values():
            # an attention of its own may compare segments, of which there is no table then
            if config.sequential or config.attention_type == ModelConfig.attention_type:
                assert slots.seg.max() < max(config.num_segments, 1)
            assert slots.token.max() < len(task.vocab) + len(task.virtual)
    assert heads <= {"lm", *config.head_config.head_sizes}
