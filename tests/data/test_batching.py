"""Batches: the same examples for any ranks, prefetched or not, packed or padded."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from unitk.data.batching import Examples, Feed, FixedBatches, draw, make_batch, prefetch
from unitk.errors import DataError, UsageError
from unitk.slots import BORN, NEVER, TOKEN, Example, collate, lm, stay

BOUND = np.random.default_rng(0).integers(3, 40, 60)


class Toy(Examples):
    """Examples whose tokens all read the example's number; up to 2 slots shorter than the bound."""

    def __init__(self, bound=BOUND, copies=0):
        self.bound, self.copies = bound, copies

    def bounds(self, epoch):
        return self.bound

    def draw(self, epoch, index, rng, when):
        n = int(self.bound[index] - rng.integers(0, 3))
        slots = stay(np.full(n, index), np.arange(n), at=np.arange(n))
        return Example({"x": slots}, [lm(np.arange(n), np.full(n, index))])


def feed(**changes):
    base = {"examples": Toy(), "seed": 1, "max_tokens": 120, "batch_tokens": 300}
    return Feed(**{**base, **changes})


def tokens(batch):
    table = batch.towers["x"]
    return sorted(table[TOKEN][table[BORN] < NEVER].tolist())


def first(updates, count):
    return [next(updates) for _ in range(count)]


def test_an_epoch_has_every_example_once_and_then_the_next_begins():
    one = feed()
    updates = first(one.updates(), one.updates_per_epoch(0) + 1)
    whole = np.concatenate([update.ids for update in updates[:-1]])
    assert sorted(whole) == list(range(60))
    assert [u.cursor == 0 for u in updates[:-1]] == [False] * (len(updates) - 2) + [True]
    assert updates[-2].epoch == 1 and updates[-1].epoch == 1 and updates[-1].cursor > 0


def test_updates_may_count_texts_instead_of_slots():
    one = feed(examples=Toy(np.full(100, 25)), batch_texts=16)
    sizes = [len(update.ids) for update in first(one.updates(), 6)]
    assert sizes == [16] * 5 + [20]  # a rest of less than half an update joins the last one
    assert replace(one, undivided=True).plan(0).stops(16) == [16, 32, 48, 64, 80, 96, 100]
    assert replace(one, batch_texts=None).plan(0).stops(16 * 25) == [16, 32, 48, 64, 80, 100]


def test_the_updates_of_many_texts_are_counted_at_once():
    one = feed(examples=Toy(np.full(1_000_000, 25)), batch_texts=32)
    today = one.plan(0)
    tracemalloc.start()
    today.stop(0, one.size)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < len(today)  # bytes: nothing is made for each example, as a run has many updates


def test_copies_make_the_draws_of_an_epoch_come_again():
    static = Toy(copies=2)
    drawn = [[len(draw(static, 1, e, i).towers["x"]) for i in range(60)] for e in range(5)]
    assert drawn[0] == drawn[2] == drawn[4] != drawn[1] == drawn[3]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_same_updates(world):
    alone = first(feed(batch_tokens=500).updates(), 3)
    ranks = [feed(batch_tokens=500, world=world, rank=r) for r in range(world)]
    for number, parts in enumerate(zip(*[first(f.updates(), 3) for f in ranks], strict=True)):
        assert all((part.ids == alone[number].ids).all() for part in parts)
        seen = [tokens(b) for part in parts for b in part.batches if sum(b.count.values())]
        assert sorted(sum(seen, [])) == sorted(sum([tokens(b) for b in alone[number].batches], []))
        numbers = sorted(n for part in parts for n in part.numbers)
        assert numbers == list(range(len(numbers))) and len(numbers) % world == 0


def test_resuming_at_a_cursor_continues_with_the_same_batches():
    one = feed()
    whole = first(one.updates(), 8)
    for stop in range(1, 7):
        update = whole[stop - 1]
        again = first(one.updates(update.epoch, update.cursor), 8 - stop)
        for ours, theirs in zip(again, whole[stop:], strict=True):
            assert (ours.ids == theirs.ids).all()
            for a, b in zip(ours.batches, theirs.batches, strict=True):
                assert (a.towers["x"] == b.towers["x"]).all()


@pytest.mark.parametrize("world", [1, 2])
def test_stateful_rows_read_their_parts_in_order_on_one_rank(world):
    """60 examples in 4 rows: update u has the example u of every part of 15."""
    for rank in range(world):
        one = feed(rows=4, batch_texts=4, world=world, rank=rank, max_tokens=80)
        assert one.updates_per_epoch() == 15
        for number, update in enumerate(first(one.updates(), 17)):
            assert update.ids.tolist() == [15 * row + number % 15 for row in range(4)]
            assert update.begins == (number in (0, 15))
            mine = np.concatenate([batch.stateful_rows for batch in update.batches])
            assert mine.tolist() == [*range(4)][rank * 4 // world : (rank + 1) * 4 // world]
            for batch in update.batches:
                read = batch.towers["x"][TOKEN, :, 0]
                assert read.tolist() == update.ids[batch.stateful_rows].tolist()
    with pytest.raises(UsageError, match="there are only 60 texts"):
        feed(rows=64, batch_texts=64).plan(0)


def test_prefetching_changes_nothing():
    ahead = first(prefetch(feed().updates()), 6)
    for ours, theirs in zip(ahead, first(feed().updates(), 6), strict=True):
        assert (ours.ids == theirs.ids).all() and ours.cursor == theirs.cursor
        for a, b in zip(ours.batches, theirs.batches, strict=True):
            assert (a.towers["x"] == b.towers["x"]).all()


def test_a_prefetched_error_reaches_the_reader():
    def broken():
        yield from first(feed().updates(), 1)
        raise DataError("torn")

    updates = prefetch(broken())
    next(updates)
    with pytest.raises(DataError, match="torn"):
        next(updates)


def test_a_failing_layout_names_its_example():
    class Full(Toy):
        def draw(self, epoch, index, rng, when):
            raise ValueError("no room")

    with pytest.raises(DataError, match="example 7 of epoch 2 .*no room"):
        draw(Full(), 0, 2, 7)


def test_an_empty_micro_batch_weighs_nothing():
    parts = [next(feed(world=16, rank=r).updates()) for r in range(16)]
    empty = [b for part in parts for b in part.batches if not sum(b.count.values())]
    assert empty and all((b.asks["lm"].weight == 0).all() for b in empty)
    filled = sum(b.count.get("lm", 0) for part in parts for b in part.batches)
    alone = sum(b.count["lm"] for b in next(feed().updates()).batches)
    assert filled == alone


def test_ranks_without_a_validation_batch_have_an_empty_one():
    alone = list(FixedBatches(Toy(), 10**6))
    (_, first), (_, rest) = (
        next(iter(FixedBatches(Toy(), 10**6, rank=rank, world=2))) for rank in (0, 1)
    )
    assert len(alone) == 1 and first.num_real == alone[0][1].num_real > 0
    assert rest.num_real == 0 and not any(rest.count.values())


def test_packing_wastes_less_than_padding():
    made = [draw(Toy(), 1, 0, i) for i in range(60)]
    packed, padded = make_batch(made), collate([[example] for example in made])
    assert tokens(packed) == tokens(padded)
    assert packed.num_real / packed.num_slots > 0.85 > padded.num_real / padded.num_slots


def test_validation_reads_each_example_once_whatever_the_seed():
    batches = [b for _, b in FixedBatches(Toy(), 100)]
    assert sorted(set(sum((tokens(b) for b in batches), []))) == list(range(60))
    again = [b for _, b in FixedBatches(Toy(), 100)]
    assert all((a.towers["x"] == b.towers["x"]).all() for a, b in zip(batches, again, strict=True))


def test_no_text_at_all_is_said():
    empty = Toy(np.empty(0, int))
    with pytest.raises(DataError, match="no text"):
        next(Feed(examples=empty, seed=0, max_tokens=8, batch_tokens=8).updates())
