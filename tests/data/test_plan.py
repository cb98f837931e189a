"""The planner: nothing lost, doubled or over budget, whatever the ranks or the cursor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unitk.data.plan import micro_batches, pack, plan

BOUNDS = st.lists(st.integers(1, 60), min_size=1, max_size=120).map(np.array)


def walk(today, size):
    """Every update of an epoch as an array of examples."""
    cursor = 0
    while cursor < len(today):
        stop = today.stop(cursor, size)
        yield today.order[cursor:stop]
        cursor = stop


@settings(max_examples=150)
@given(BOUNDS, st.integers(1, 400), st.integers(0, 3))
def test_each_example_once_an_epoch_and_updates_within_budget(bound, size, epoch):
    today = plan(bound, 1.0, 7, epoch)
    updates = list(walk(today, size))
    assert sorted(np.concatenate(updates)) == list(range(len(bound)))
    assert len(updates) == len(today.stops(size))
    for ids in updates[:-1]:
        cost = bound[ids].sum()
        assert cost <= size or len(ids) == 1
    assert bound[updates[-1]].sum() <= 1.5 * size or len(updates[-1]) == 1


@settings(max_examples=150)
@given(BOUNDS, st.integers(1, 200), st.integers(1, 3), st.booleans())
def test_micro_batches_hold_every_example_once_within_max_tokens(bound, cap, world, padded):
    ids = np.arange(len(bound))
    cut = micro_batches(ids, bound, cap, world, padded)
    assert len(cut) % world == 0
    assert sorted(np.concatenate(cut)) == list(ids)
    for part in cut:
        cost = bound[part].max(initial=0) * len(part) if padded else bound[part].sum()
        assert cost <= cap or len(part) == 1


@settings(max_examples=100)
@given(BOUNDS, st.integers(1, 100))
def test_best_fit_rows_hold_every_example_once(lengths, width):
    rows = pack(lengths.tolist(), width)
    assert sorted(np.concatenate(rows)) == list(range(len(lengths)))
    for row in rows:
        assert lengths[row].sum() <= width or len(row) == 1


def test_ranks_and_max_tokens_do_not_change_an_update():
    bound = np.random.default_rng(0).integers(5, 60, 500)
    today = plan(bound, 1.0, 3, 0)
    for ids in walk(today, 700):
        for world, cap in ((1, 120), (2, 90), (3, 300)):
            parts = micro_batches(ids, bound, cap, world, False)
            assert sorted(np.concatenate(parts)) == sorted(ids)


def test_any_cursor_resumes_in_the_same_order_even_with_another_update_size():
    bound = np.random.default_rng(0).integers(5, 60, 300)
    today, again = plan(bound, 1.0, 3, 2), plan(bound, 1.0, 3, 2)
    whole = np.concatenate(list(walk(today, 400)))
    cursor = 0
    for _ in range(4):
        cursor = today.stop(cursor, 400)
    rest = []
    while cursor < len(again):
        stop = again.stop(cursor, 800)
        rest.append(again.order[cursor:stop])
        cursor = stop
    done = len(whole) - sum(map(len, rest))
    assert np.concatenate(rest).tolist() == whole[done:].tolist()


def test_order_depends_on_seed_and_epoch_only():
    bound = np.full(50, 4)
    one = plan(bound, 1.0, 1, 0).order.tolist()
    assert one == plan(bound, 1.0, 1, 0).order.tolist()
    assert one != plan(bound, 1.0, 1, 1).order.tolist()
    assert one != plan(bound, 1.0, 2, 0).order.tolist()


def test_weights_repeat_examples():
    weight = np.concatenate([np.full(20000, 2.5), np.full(20000, 0.25)])
    order = plan(np.ones(40000, int), weight, 0, 0).order
    times = np.bincount(order, minlength=40000)
    assert set(times[:20000]) == {2, 3} and set(times[20000:]) == {0, 1}
    assert times[:20000].mean() == pytest.approx(2.5, abs=0.02)
    assert times[20000:].mean() == pytest.approx(0.25, abs=0.02)


def test_an_epoch_of_small_weights_has_one_example_drawn_by_its_weight():
    weight = np.array([0.0, 1e-9, 3e-9])
    orders = [plan(np.ones(3, int), weight, 0, epoch).order.tolist() for epoch in range(4000)]
    assert {len(order) for order in orders} == {1}
    shares = np.bincount(np.concatenate(orders), minlength=3) / 4000
    assert shares == pytest.approx([0, 0.25, 0.75], abs=0.03)
    assert [len(plan(np.ones(3, int), 1e-9, 0, epoch)) for epoch in range(9)] == [1] * 9
