"""How prompts share batches changes nothing; what does not fit is refused before decoding."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from searching import begin_search

from unitk.decoding import decode as module
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.decode import PromptReader, RunningSearch, decode, generate
from unitk.decoding.fit import batch_prompts, measure_overrun
from unitk.errors import DataError, UsageError
from unitk.registry import get
from unitk.slots import DOC, NEVER, Example, Protocol, collate, stay, unroll

CONFIG = GenerateConfig(beam=3, nbest=3, max_len=6, lenpen=0.6, search="exact")
CLEAR = 1e-5
"""Words are equal by right and not by luck where rounding, which is less, bridges no gap."""


def assert_same(found, expected):
    assert len(found) == len(expected)
    for some, others in zip(found, expected, strict=True):
        assert [one.ids.tolist() for one in some] == [one.ids.tolist() for one in others]
        assert_near([one.score for one in some], [o.score for o in others])


@pytest.mark.every(2)
def test_batches_change_nothing(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(9)
    alone = [generate(case.model, [prompt], case.protocol, CONFIG)[0] for prompt in prompts]
    for max_tokens in (1, 150, 300, 10**6):
        config = replace(CONFIG, max_tokens=max_tokens)
        assert_same(generate(case.model, prompts, case.protocol, config), alone)
    assert_same(generate(case.model, prompts[::-1], case.protocol, CONFIG), alone[::-1])
    assert toy.least_gap(case, prompts, CONFIG) > CLEAR


@pytest.mark.every(2)
def test_compaction_changes_nothing(toy, kind, monkeypatch):
    # settings with which inputs are done at different steps
    scale, likely = (0.3, 2.0) if kind == "cross" else (1.0, 0.0)
    case = toy.Case(kind, words=8, scale=scale)
    prompts = case.prompts(9)
    found, sizes = {}, {}
    config = replace(CONFIG, search="fairseq", max_len=12)
    head, more = case.model.head, torch.zeros(case.words + 3)
    more[case.end] = likely
    for look in (1, 3, 10**6):
        monkeypatch.setattr(module, "CHECK_EVERY", {"cpu": look})
        seen = sizes[look] = set()
        monkeypatch.setattr(
            case.model, "head", lambda s, seen=seen: (seen.add(len(s)), head(s) + more)[1]
        )
        found[look] = generate(case.model, prompts, case.protocol, config)
    assert len(sizes[1]) > 2 and sizes[10**6] == {9, 27}
    assert_same(found[3], found[1])
    assert_same(found[10**6], found[1])
    assert toy.least_gap(case, prompts, config) > CLEAR


@pytest.mark.usefixtures("one_thread")
def test_permuted_rows_are_equal_bit_for_bit(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(6)
    order = [3, 0, 5, 1, 4, 2]
    batch = collate([[prompt] for prompt in prompts]).to("cpu")
    mixed = collate([[prompts[i]] for i in order]).to("cpu")
    found = decode(case.model, batch, case.protocol, CONFIG)
    for i, outputs in zip(order, decode(case.model, mixed, case.protocol, CONFIG), strict=True):
        assert [one.ids.tolist() for one in outputs] == [one.ids.tolist() for one in found[i]]
        assert [one.score for one in outputs] == [one.score for one in found[i]]


def test_rows_that_are_dropped_change_no_others(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(6)
    batch = collate([[one] for one in prompts]).to("cpu")
    expected = decode(case.model, batch, case.protocol, CONFIG)
    with torch.inference_mode():
        reader = PromptReader(case.model, batch, case.protocol, CONFIG)
        plain = Constraints.plain(CONFIG, len(prompts))
        running, found = RunningSearch(reader, reader.request(plain, range(6))), {}
        running.step()
        running.drop([1, 4])
        while len(running.rows):
            found |= running.step()
    assert found.keys() == {0, 2, 3, 5}
    assert_same(list(found.values()), [expected[i] for i in found])


def test_pads_change_nothing(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(5)
    batch = collate([[prompt] for prompt in prompts])
    towers = {}
    for name, tower in batch.towers.items():
        pads = np.zeros((9, 5, 32), np.int64)
        pads[0], pads[5:7], pads[7] = 3, NEVER, tower[7, :, :1]
        towers[name] = np.concatenate([tower, pads], axis=2)
    wider = replace(batch, towers=towers, sight=dict.fromkeys(towers, "rule"))
    found = decode(case.model, batch.to("cpu"), case.protocol, CONFIG)
    assert_same(decode(case.model, wider.to("cpu"), case.protocol, CONFIG), found)


@torch.inference_mode()
def test_what_is_read_is_what_unroll_lays_out(toy, kind):
    """Greedy decoding feeds the very slots of `unroll`, in all their fields."""
    case = toy.Case(kind, words=8)
    prompts = case.prompts(5)
    config = GenerateConfig(beam=1, min_len=3, max_len=4)
    reader, search = begin_search(case, prompts, config)
    logits, columns = case.model.head(reader.read_prompt()), []
    for _ in range(1, search.max_steps):
        logits = case.model.head(reader.read(reader.next_window(), *search.extend(logits)))
        columns.append(reader.columns.clone())
    search.extend(logits)
    fed = torch.cat(columns, 2).numpy()
    for b, (prompt, (one,)) in enumerate(zip(prompts, search.results(), strict=True)):
        whole = unroll(prompt, case.protocol, one.ids).towers[case.tower].table
        expected = whole[:, len(prompt.towers[case.tower]) :]
        expected[DOC] += b  # collate numbers the docs of a batch
        assert np.array_equal(fed[:, b, : expected.shape[1]], expected)
    kept = torch.tensor([3, 1])
    reader.select(kept)
    assert torch.equal(reader.columns, columns[-1][:, kept])


def test_logits_are_computed_for_hypotheses_only(toy, kind, monkeypatch):
    case = toy.Case(kind, words=8)
    head, rows = case.model.head, []
    monkeypatch.setattr(
        case.model, "head", lambda states: (rows.append(len(states)), head(states))[1]
    )
    generate(case.model, [case.prompts(3)[2]] * 4, case.protocol, CONFIG)
    assert rows[:3] == [4, 12, 12]


def test_training_mode_is_kept_and_dropout_is_off(toy):
    case = toy.Case("shift", words=8)
    for layer in case.model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.5
    prompts = case.prompts(3)
    expected = generate(case.model, prompts, case.protocol, CONFIG)
    case.model.train()
    assert_same(generate(case.model, prompts, case.protocol, CONFIG), expected)
    assert case.model.training


def test_who_listens_hears_the_words_of_every_draw_and_changes_none(toy):
    case = toy.Case("shift", words=4)
    how = case.model, case.prompts(7), case.protocol
    config = GenerateConfig(sampling=True, max_len=6)
    heard: dict[int, list[list[int]]] = {}

    def hear(number, ids):
        heard.setdefault(number, []).append(ids.tolist())

    found = generate(*how, config, on_step=hear)
    plain = generate(*how, config)
    for number, ([one], [same]) in enumerate(zip(found, plain, strict=True)):
        words = one.ids.tolist()
        assert words == same.ids.tolist()
        # every step but the one that ends it
        assert heard.get(number, []) == [words[:i] for i in range(1, len(words))]


def first_of(heard):
    return lambda number, ids: heard.setdefault(number, ids.tolist())


def test_who_listens_to_groups_hears_the_first_one(toy):
    case = toy.Case("shift", words=4)
    how = case.model, case.prompts(7), case.protocol
    firsts = []
    for options in ({"beam": 4, "diverse_beam_groups": 2}, {"beam": 2}):
        config, heard = GenerateConfig(min_len=1, max_len=4, **options), {}
        listened = generate(*how, config, on_step=first_of(heard))
        plain = generate(*how, config)
        assert_same(listened, plain)
        firsts.append(heard)
    assert firsts[0] == firsts[1] and firsts[0].keys() == set(range(7))


def test_progress_is_reported(toy):
    case = toy.Case("shift", words=4)
    done = []
    generate(
        case.model, case.prompts(7), case.protocol, replace(CONFIG, max_tokens=100), done.append
    )
    assert sum(done) == 7 and len(done) > 1
    assert generate(case.model, [], case.protocol, CONFIG) == []


def test_batches_hold_prompts_of_like_length_within_the_limit(toy):
    case = toy.Case("blanks", words=4)
    rng = np.random.default_rng(0)
    prompts = [
        case.prompt(rng.integers(4, size=rng.integers(1, 40)), blanks=int(rng.integers(1, 4)))
        for _ in range(60)
    ]
    config = replace(CONFIG, max_tokens=1200)
    cut = list(batch_prompts(prompts, config.max_tokens, [6] * len(prompts), config.width))
    assert sorted(i for numbers in cut for i in numbers) == list(range(60))
    for numbers in cut:
        width = collate([[prompts[i]] for i in numbers]).towers["x"].shape[2]
        blanks = max(len(prompts[i].blanks) for i in numbers)
        assert len(numbers) * (width + 3 * (blanks + 1) * 7) <= 1200
    assert len(cut) < 12


def test_overrun_is_what_unroll_needs(toy, kind):
    case = toy.Case(kind, words=4)
    for prompt in case.prompts(6):
        written = ([0] * 5 + [case.end]) * (1 + len(prompt.blanks))
        towers = unroll(prompt, case.protocol, written).towers.values()
        config = case.model.config
        assert measure_overrun(prompt, case.protocol, 5, config) == (
            max(slots.pos.max() for slots in towers) + 1 - config.max_positions,
            max(slots.pos2.max() for slots in towers) + 1 - config.max_positions2,
        )
        no_tables = replace(config, max_positions=0, max_positions2=0)
        assert measure_overrun(prompt, case.protocol, 5, no_tables) == (0, 0)


def test_what_does_not_fit_is_refused(toy):
    case = toy.Case("blanks", words=4)  # 64 and 16 positions
    short, long = case.prompt(np.zeros(5, int), blanks=1), case.prompt(np.zeros(70, int), blanks=1)
    generate(case.model, [short], case.protocol, replace(CONFIG, max_len=14))
    with pytest.raises(UsageError, match="--max-len 15 .*16 second positions .*at most 14"):
        generate(case.model, [short], case.protocol, replace(CONFIG, max_len=15))
    with pytest.raises(DataError, match="prompt 2 .*too long.* 7 for the 64 positions .*--trunc"):
        generate(case.model, [short, long], case.protocol, CONFIG)
    case = toy.Case("shift", words=4)
    with pytest.raises(DataError, match="prompt 1 .*too long.* --max-len 60 by 1 for the 64"):
        generate(
            case.model, [case.prompt(np.zeros(5, int))], case.protocol, replace(CONFIG, max_len=60)
        )


@pytest.mark.parametrize("arch", ["awd_lstm_tiny", "siatl_tiny"])
@pytest.mark.parametrize("beam", [3, 200])
def test_a_recurrent_network_decodes_with_its_state_as_cache(beam, arch):
    """Every hypothesis has the probabilities of one pass; a beam that holds all finds the best."""
    torch.manual_seed(2)
    model, words, end = replace(get("arch", arch)(), init_range=2.0).build(6).eval(), range(2, 6), 1
    prompts = [
        Example({"x": stay(ids, np.arange(len(ids)), at=np.arange(len(ids)))})
        for ids in ([2, 3, 4], [5], [4, 4, 2, 3, 5])
    ]
    protocol = Protocol(end=end, banned=(0,))

    def log_probs(prompt, written):
        batch = collate([[unroll(prompt, protocol, written)]]).to("cpu")
        with torch.no_grad():
            return model.log_probs(batch, batch.asks["lm"])

    config = GenerateConfig(beam=beam, nbest=3, max_len=4, lenpen=0.0)
    for prompt, found in zip(prompts, generate(model, prompts, protocol, config), strict=True):
        for one in found:
            assert_near(one.token_log_probs, log_probs(prompt, one.ids))
        if beam > 3:
            every = [[*some, end] for n in range(4) for some in itertools.product(words, repeat=n)]
            best = max(float(log_probs(prompt, written).sum()) for written in every)
            closed = [one.log_prob for one in found if len(one.ids) <= 4]
            assert max(closed) == pytest.approx(best, rel=1e-5)
