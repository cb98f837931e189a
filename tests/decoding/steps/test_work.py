"""Recorded steps write the words of a search without them, and serve later batches."""

import gc
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cpu_graphs import Replayed
from rounding import assert_near

from unitk.decoding import decode
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints, WordRules
from unitk.decoding.decode import generate
from unitk.decoding.ensemble import Ensemble
from unitk.decoding.fit import fill_up, round_to_grid
from unitk.decoding.steps import reader
from unitk.errors import NonFiniteError, UsageError
from unitk.families.extraction.search import Clauses
from unitk.kernels import capture, products
from unitk.kernels.capture import LRUCache, Memory, Recorded
from unitk.models import stack
from unitk.slots import BORN, DOC, NEVER
from unitk.verbs.generate import Options

BEAM = GenerateConfig(capture="auto", beam=3, nbest=3, max_len=7, lenpen=0.6, search="exact")
PLAIN = {
    "beam": BEAM,
    "greedy": GenerateConfig(capture="auto", beam=1, max_len=9),
    "rules": GenerateConfig(
        capture="auto", beam=4, max_len=8, min_len=2, no_repeat_ngram_size=2, lenpen=2.0
    ),
}
SEARCHES = {
    "likely": replace(BEAM, search="likely", nbest=2),
    "fairseq": replace(BEAM, search="fairseq"),
    "glm": replace(BEAM, search="glm"),
    "unilm": replace(BEAM, search="unilm"),
    "temperature": replace(BEAM, search="likely", temperature=0.7),
    "groups": GenerateConfig(capture="auto", beam=4, nbest=2, max_len=6, diverse_beam_groups=2),
    "sampling": GenerateConfig(
        capture="auto", sampling=True, nbest=3, max_len=6, sampling_topp=0.9
    ),
}


@pytest.fixture
def recorder(monkeypatch):
    """Steps are recorded on this CPU, in windows of a few; gives the number of recordings."""
    monkeypatch.setattr(capture, "KEPT", type(capture.KEPT)())
    monkeypatch.setattr(reader, "STEPS", 4)
    monkeypatch.setattr(decode, "CHECK_EVERY", {"cpu": 3})
    monkeypatch.setattr(Recorded, "count", 0)
    for place in (products, stack):  # numpy's products are not recorded
        monkeypatch.setattr(place, "is_decoding_step", lambda slots: False)

    def switch(on):
        if on:
            monkeypatch.setitem(capture.RECORDERS, "cpu", Replayed)
        else:
            monkeypatch.delitem(capture.RECORDERS, "cpu")

    switch(True)
    return SimpleNamespace(switch=switch)


def write(case, prompts, config, how=None):
    case.model.requires_grad_(False)
    constraints = how and Constraints(*how)
    return generate(case.model, prompts, case.protocol, config, constraints=constraints)


def assert_recording_changes_nothing(recorder, case, prompts, config, how=None):
    """Equal words in three rounds, of which the last one records nothing."""
    recorder.switch(False)
    expected = write(case, prompts, config, how)
    recorder.switch(True)
    for _ in range(3):
        before = Recorded.count
        found = write(case, prompts, config, how)
        for some, others in zip(found, expected, strict=True):
            assert [one.ids.tolist() for one in some] == [one.ids.tolist() for one in others]
            assert_near([one.score for one in some], [one.score for one in others])
            assert_near(
                [*np.concatenate([one.token_log_probs for one in some])] if some else [],
                [*np.concatenate([one.token_log_probs for one in others])] if others else [],
            )
    assert Recorded.count == before > 0


@pytest.mark.every(3)
@pytest.mark.parametrize("name", PLAIN)
def test_recorded_steps_change_nothing(toy, kind, name, recorder):
    case = toy.Case(kind, words=8)
    assert_recording_changes_nothing(recorder, case, case.prompts(7), PLAIN[name])


@pytest.mark.every(3)
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_is_recorded(toy, name, recorder):
    case = toy.Case("shift", words=8)
    assert_recording_changes_nothing(recorder, case, case.prompts(5), SEARCHES[name])


def test_words_that_outputs_must_and_must_not_have(toy, recorder):
    case = toy.Case("cross", words=8)
    rules = WordRules(bad=((3,), (1, 2), (4, 4, 5)), free=(6,))
    plain = Constraint(min_len=1, max_len=8)
    begun, avoiding = replace(plain, prefix=(5, 2)), replace(plain, avoid=((0,), (7, 1)))
    prompts, config = case.prompts(4), replace(BEAM, no_repeat_ngram_size=3, max_len=8)
    assert_recording_changes_nothing(
        recorder, case, prompts, config, ([plain, begun, avoiding, plain], rules)
    )
    wanted = replace(plain, phrases=((2, 7), (0,)))
    assert_recording_changes_nothing(
        recorder, case, prompts, config, ([plain, wanted, begun, plain], rules)
    )


def test_extracts_are_recorded(toy, recorder):
    case, rng = toy.Case("cross", words=8), np.random.default_rng(1)
    plain = Constraint(min_len=2, max_len=8)
    each = []
    for size in (9, 5, 12, 7):
        follows = np.triu(rng.random((size + 1, size + 1)) < 0.4) | np.eye(size + 1, dtype=bool)
        ids = np.append(rng.integers(8, size=size), case.end)
        each.append(replace(plain, own=Clauses(ids, follows)))
    config = replace(BEAM, extract=True, max_len=8)
    how = each, WordRules()
    assert_recording_changes_nothing(recorder, case, case.prompts(4), config, how)


def test_an_ensemble_is_recorded(toy, recorder):
    case = toy.Case("cross", words=8)
    case.model = Ensemble([case.model, toy.Case("cross", words=8, seed=1).model]).eval()
    assert_recording_changes_nothing(recorder, case, case.prompts(3), BEAM)


def test_later_batches_are_written_into_the_same_tables(toy, recorder):
    """Other sources of these sizes, and new weights at the old place, need no recording."""
    case, config = toy.Case("cross", words=8), replace(BEAM, max_tokens=400)
    first, other = case.prompts(12), toy.Case("cross", words=8, seed=3).prompts(12)
    for _ in range(3):
        write(case, first, config)
    before = Recorded.count
    found = write(case, other, config)
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.mul_(1.1)
    trained = write(case, other, config)
    assert Recorded.count == before
    recorder.switch(False)
    again = write(case, other, config)
    assert [[one.ids.tolist() for one in some] for some in trained] == [
        [one.ids.tolist() for one in some] for some in again
    ]
    assert [one[0].score for one in trained] != [one[0].score for one in found]


def test_while_a_batch_is_decoded_a_thread_encodes_the_next_one(toy, recorder, monkeypatch):
    case, config, seen = toy.Case("cross", words=8), replace(BEAM, max_tokens=200), []
    prompts = case.prompts(12)
    plain, here, others = case.model.condition, threading.get_ident(), {*threading.enumerate()}

    def condition(batch):
        seen.append((threading.get_ident() == here, torch.is_inference_mode_enabled()))
        return plain(batch)

    monkeypatch.setattr(case.model, "condition", condition)
    found = write(case, prompts, config)
    assert len(seen) > 2 and {*seen} == {(False, True)}
    recorder.switch(False)
    expected = write(case, prompts, config)
    assert seen[-1][0] and [one[0].ids.tolist() for one in found] == [
        one[0].ids.tolist() for one in expected
    ]

    def failing(batch):
        raise NotImplementedError

    recorder.switch(True)
    monkeypatch.setattr(case.model, "condition", failing)
    with pytest.raises(NotImplementedError):
        write(case, prompts, config)
    assert {*threading.enumerate()} <= others


def test_rows_and_slots_have_few_sizes():
    sizes = [round_to_grid(n) for n in range(1, 200)]
    assert sorted(set(sizes)) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    assert all(n <= size <= 1.5 * n for n, size in enumerate(sizes, 1))
    assert [round_to_grid(n, 16) for n in (1, 17, 33, 100, 129)] == [16, 32, 48, 128, 192]


def test_a_batch_is_filled_up(toy):
    case = toy.Case("cross", words=8)
    batch = fill_up([case.prompt(np.arange(n) % 8) for n in (3, 60, 70, 5, 9)])
    source = batch.towers["enc"]
    assert source.shape == (9, 6, 96) and batch.sight["enc"] == "rule"
    assert np.array_equal(source[1:DOC, 5], source[1:DOC, 4])  # the last one again, another doc
    assert (source[BORN, :, 80:] == NEVER).all() and (source[DOC] == batch.docs[:, :1]).all()


def test_what_is_kept_is_bounded_and_goes_with_the_model(toy, recorder, monkeypatch):
    cache = LRUCache[str](max_bytes=10)
    for name in "abc":
        cache.put(name, name, 4)
    assert [cache.take("a"), *cache.kept, cache.take("c")] == [None, "b", "c", "c"]
    cache.put("large", "large", 40)
    assert [*cache.kept] == ["large"]

    monkeypatch.setattr(capture, "memory_limit", lambda device: 1)
    case = toy.Case("shift", words=8)
    write(case, case.prompts(9), replace(BEAM, max_tokens=200))
    assert [len(kept.cache.kept) for kept in capture.KEPT.values()] == [1]
    del case
    gc.collect()
    assert not capture.KEPT


def test_moved_weights_are_recorded_anew(toy, recorder):
    case = toy.Case("shift", words=8)
    for _ in range(2):
        write(case, case.prompts(2), BEAM)
    before, [kept] = Recorded.count, capture.KEPT.values()
    case.model.double().float()
    write(case, case.prompts(2), BEAM)
    assert [*capture.KEPT.values()] != [kept] and before > 0


def test_what_went_wrong_leaves_nothing(toy, recorder):
    case = toy.Case("shift", words=8)
    write(case, case.prompts(2), BEAM)
    good = case.model.decoder.norm.weight.clone()
    [kept] = capture.KEPT.values()
    assert kept.cache.kept
    case.model.decoder.norm.weight.fill_(torch.nan)
    with pytest.raises(NonFiniteError):
        write(case, case.prompts(2), BEAM)
    assert not kept.cache.kept
    case.model.decoder.norm.weight.copy_(good)
    assert_recording_changes_nothing(recorder, case, case.prompts(2), BEAM)


def test_searches_that_go_on_in_turns_have_tables_of_their_own(toy, recorder):
    case, inner = toy.Case("shift", words=8), []
    case.model.requires_grad_(False)

    def again(number, ids):
        if len(inner) < 3:
            inner.append(write(case, case.prompts(2), BEAM))

    for _ in range(2):
        found = generate(case.model, case.prompts(2), case.protocol, BEAM, on_step=again)
        for mine, others in zip(found, inner[0], strict=True):
            assert [one.ids.tolist() for one in mine] == [one.ids.tolist() for one in others]


def test_what_trains_is_not_recorded_unless_asked_for(toy, recorder):
    case = toy.Case("shift", words=8)
    arguments = case.model, case.prompts(2), case.protocol
    generate(*arguments, BEAM)
    assert not capture.KEPT
    generate(*arguments, replace(BEAM, capture="on"))
    assert capture.KEPT
    write(case, case.prompts(2), replace(BEAM, capture="off"))
    case.model.config = replace(case.model.config)
    object.__setattr__(case.model.config, "static_steps", False)
    with pytest.raises(UsageError, match="--capture on excludes xlnet_"):
        generate(*arguments, replace(BEAM, capture="on"))


def test_options_of_the_command_line_name_a_recording():
    assert hash(Options(checkpoint="a")) == hash(Options(checkpoint="a"))


@torch.inference_mode()
def test_the_double_fails_where_a_graph_would():
    table = torch.ones(3)
    memory = Memory(torch.device("cpu"))
    waiting = Replayed(lambda: table.mul_(float(table.sum())), memory)
    waiting()
    with pytest.raises(AssertionError, match="would wait"):
        waiting()
    table.fill_(1)
    doubling = Replayed(lambda: table.add_(table), memory)
    for _ in range(3):
        doubling()
    assert table.tolist() == [8, 8, 8]
    table.set_(torch.ones(3))
    with pytest.raises(AssertionError, match="moved"):
        doubling()
