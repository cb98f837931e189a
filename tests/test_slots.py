"""Slots, collate and unroll: each property by hand or by a second way of computing it."""

import numpy as np
import pytest

from unitk.masks import dense
from unitk.slots import (
    BORN,
    DOC,
    NEVER,
    NOW,
    TOKEN,
    Example,
    Protocol,
    collate,
    lm,
    probe,
    query,
    stay,
    unroll,
)


def sequence(tokens, doc=0):
    n = len(tokens)
    slots = stay(tokens, np.arange(n), at=np.arange(n), doc=doc)
    return Example({"x": slots}, [lm(np.arange(n - 1), tokens[1:])])


def test_constructors_set_the_three_times():
    assert stay([7], [0], at=3).table[:, 0].tolist() == [7, 0, 0, 0, 3, 3, NEVER, 0, 1]
    assert probe([7], [1], at=3).table[:, 0].tolist() == [7, 1, 0, 0, 3, 3, 3, 0, 0]
    assert query([7], [2], at=3).table[:, 0].tolist() == [7, 2, 0, 0, 3, NEVER, NEVER, 0, 0]


def test_the_rule_for_stay_probe_and_query():
    slots = stay([1, 2], [0, 1], at=[0, 1]) + probe([3], [1], at=2) + query([4], [1], at=2)
    assert dense(slots.table, slots.table).tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],  # the probe sees itself
        [True, True, True, False],  # the query sees the probe of its time, nobody sees the query
    ]


def test_collate_packs_pads_and_renumbers():
    a, b, c = sequence([5, 6, 7]), sequence([8, 9]), sequence([4, 3, 2, 1])
    batch = collate([[a, b], [c]])
    x = batch.towers["x"]
    assert x.shape == (9, 2, 16)
    assert x[TOKEN, 0, :6].tolist() == [5, 6, 7, 8, 9, 0]
    assert x[DOC, 0].tolist() == [0, 0, 0, 1, 1] + [0] * 11
    assert x[DOC, 1].tolist() == [2] * 16
    assert (x[BORN, 0, 5:] == NEVER).all() and (x[NOW, 0, 5:] == 0).all()
    ask = batch.asks["lm"]
    assert ask.rows.tolist() == [[0], [1], [3], [16], [17], [18]]
    assert ask.label.tolist() == [6, 7, 9, 3, 2, 1]
    assert batch.count == {"lm": 6.0}
    assert batch.docs.tolist() == [[0, 1], [2, -1]] and batch.owner.tolist() == [0, 1, 2]
    assert batch.last.tolist() == [4, 3]
    assert batch.num_keys == {"x": 5} and batch.num_real == 9 and batch.num_slots == 32


def test_no_row_of_a_mask_is_empty_and_nobody_sees_a_pad():
    batch = collate([[sequence([5, 6, 7]), sequence([8, 9])], [sequence([1])]])
    x = batch.towers["x"]
    seen = dense(x, x)
    assert seen.any(axis=-1).all()
    assert not seen[0, :, 5:].any() and not seen[1, :, 1:].any()
    assert not seen[0, :3, 3:5].any(), "documents of a row do not see each other"


def test_slots_that_are_never_born_move_to_the_end_and_are_still_asked():
    ask = Example(
        {"x": query([9], [0], at=1) + stay([5, 6], [0, 1])}, [lm(np.array([0, 2]), [1, 2])]
    )
    batch = collate([[ask, sequence([7, 8])]])
    assert batch.towers["x"][TOKEN, 0, :5].tolist() == [5, 6, 7, 8, 9]
    assert batch.num_keys["x"] == 4
    assert batch.asks["lm"].rows[:, 0].tolist() == [4, 1, 2]


@pytest.mark.parametrize(
    ("rows", "sight"),
    [
        ([[sequence(range(1, 17))]], "causal"),
        ([[sequence(range(1, 17))], [sequence([3, 4])]], "causal"),
        ([[sequence([1, 2]), sequence([3])]], "rule"),
        ([[Example({"x": stay(range(16), range(16))})]], "full"),
        ([[Example({"x": stay(range(15), range(15))})]], "rule"),
        ([[Example({"x": probe(range(16), range(16), at=1)})]], "full"),
    ],
)
def test_sight_names_a_rendering_that_equals_the_rule(rows, sight):
    batch = collate(rows)
    assert batch.sight["x"] == sight
    x = batch.towers["x"]
    seen = dense(x, x)
    real = x[BORN] < NEVER
    if sight == "full":
        assert seen.all()
    if sight == "causal":
        triangle = np.tri(16, dtype=bool)
        assert (seen == triangle)[real].all()


def test_an_ask_cannot_read_the_slots_of_the_next_example():
    with pytest.raises(ValueError, match="ask 'lm' has 3 rows and 2 labels"):
        lm(np.arange(3), [6, 7])
    for rows in [[1, 2], [-1, 0]]:
        x = stay([5, 6], np.arange(2), at=np.arange(2))
        wrong = Example({"x": x}, [lm(np.array(rows), [6, 7])])
        with pytest.raises(ValueError, match="ask 'lm' reads.*example"):
            collate([[wrong, sequence([8, 9])]])


def test_two_towers_are_packed_jointly():
    def pair(n, m):
        enc, dec = stay(range(n), range(n)), stay(range(m), range(m), at=range(m))
        return Example({"enc": enc, "dec": dec}, [lm(np.arange(m), range(m), tower="dec")])

    batch = collate([[pair(3, 2), pair(4, 5)], [pair(2, 1)]])
    for doc in range(3):
        rows = [np.unique((batch.towers[t][DOC] == doc).nonzero()[0]) for t in ("enc", "dec")]
        assert rows[0].tolist() == rows[1].tolist()
    assert batch.asks["lm"].rows[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 16]


def test_unroll_in_shift_reads_each_word_at_the_slot_before():
    prompt = Example({"x": stay([5, 6], [0, 1], at=[0, 1])})
    made = unroll(prompt, Protocol(end=2), [7, 8, 2])
    x = made.towers["x"]
    assert x.token.tolist() == [5, 6, 7, 8]
    assert x.pos.tolist() == [0, 1, 2, 3] and x.now.tolist() == [0, 1, 2, 3]
    assert made.asks[0].rows[:, 0].tolist() == [1, 2, 3]
    assert made.asks[0].label.tolist() == [7, 8, 2]


def test_unroll_reads_an_end_within_an_output_as_a_word_where_there_are_no_blanks():
    prompt = Example({"x": stay([5], pos=[0]) + stay([1], pos=[3], at=1)})
    x = unroll(prompt, Protocol(end=2), [7, 2, 8, 2]).towers["x"]
    assert x.token.tolist() == [5, 1, 7, 2, 8]
    assert x.pos.tolist() == [0, 3, 4, 5, 6]
    x = unroll(prompt, Protocol(end=2, probe=9), [7, 2, 8]).towers["x"]
    assert x.token[x.born == x.dies].tolist() == [9, 9]
    assert x.token[x.born < x.dies].tolist() == [5, 1, 7, 2]


def test_unroll_opens_the_next_blank_where_it_is():
    start = stay([1, 1], [0, 1]) + stay([9], [0], pos2=1, at=1)
    prompt = Example({"x": start}, blanks=np.array([[1, 1]]))
    glm = Protocol(end=2, dpos=0, dpos2=1, begin=9)
    x = unroll(prompt, glm, [7, 8, 2, 6, 2]).towers["x"]
    assert x.token.tolist() == [1, 1, 9, 7, 8, 9, 6]
    assert x.pos.tolist() == [0, 1, 0, 0, 0, 1, 1]
    assert x.pos2.tolist() == [0, 0, 1, 2, 3, 1, 2]
    assert x.now.tolist() == [0, 0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="2 blanks"):
        unroll(prompt, glm, [7, 2, 2, 5])


def test_unroll_by_slot_reads_probes_that_leave_no_trace():
    prompt = Example({"x": stay([5], [0]) + probe([4], [1], at=1)})
    made = unroll(prompt, Protocol(end=2, probe=4), [7, 8, 2])
    x = made.towers["x"]
    assert x.token.tolist() == [5, 4, 7, 4, 8, 4]
    assert x.pos.tolist() == [0, 1, 1, 2, 2, 3]
    assert made.asks[0].rows[:, 0].tolist() == [1, 3, 5]
    seen = dense(x.table, x.table)[[1, 3, 5]]
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0, 1], [0, 2, 3], [0, 2, 4, 5]]


def test_an_open_hypothesis_of_one_word_feeds_nothing():
    for protocol in (Protocol(end=2), Protocol(end=2, probe=4)):
        prompt = Example({"x": stay([5], [0])})
        made = unroll(prompt, protocol, [7])
        assert len(made.towers["x"]) == 1 and made.asks[0].label.tolist() == [7]


def test_batches_become_tensors_without_change():
    torch = pytest.importorskip("torch")
    batch = collate([[sequence([5, 6, 7])]])
    moved = batch.to("cpu")
    assert torch.equal(moved.towers["x"], torch.from_numpy(batch.towers["x"]))
    assert moved.asks["lm"].rows.dtype == torch.int64 and moved.count == batch.count


def test_inputs_stay_beside_their_slots_and_docs_through_packing():
    """The characters of a slot's token, and a number of each doc, wherever collate puts them."""

    def spelled(tokens, task, unborn=0):
        slots = stay(tokens, np.arange(len(tokens)))
        slots += query(tokens[:unborn], np.arange(unborn), at=1)
        ids = slots.token
        characters = np.arange(1, ids.max() + 1)[None] * (np.arange(ids.max()) < ids[:, None])
        inputs = {"x.characters": characters, "task": np.array([task])}
        return Example({"x": slots}, inputs=inputs)

    a, b, c = spelled([3, 1], 7, unborn=2), spelled([2, 5, 4], 8), spelled([6], 9)
    for rows in ([[a, b], [c]], [[c, a, b]], [[b], [a], [c]]):
        batch = collate(rows)
        x, characters = batch.towers["x"], batch.inputs["x.characters"]
        assert characters.shape == (*x.shape[1:], 6)
        assert (characters == np.arange(1, 7) * (np.arange(6) < x[TOKEN][..., None])).all()
        born = (x[TOKEN] > 0) & (x[BORN] < NEVER)
        task_of = {3: 7, 1: 7, 2: 8, 5: 8, 4: 8, 6: 9}
        found = batch.inputs["task"][x[DOC]]
        assert all(found[at] == task_of[x[TOKEN][at]] for at in zip(*born.nonzero(), strict=True))
    moved = collate([[a]]).to("cpu")
    assert moved.inputs["task"].tolist() == [7] and moved.decoded == "x"
