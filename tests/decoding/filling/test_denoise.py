"""Diffusion fills masks: what is known exactly, of passes, orders, blocks, draws and ends."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.drivers import Watcher
from unitk.decoding.ensemble import join
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import DataError, NonFiniteError, UsageError
from unitk.families.diffusion.bd3lm import BD3LM
from unitk.families.diffusion.bd3lm import layout as blocks_of
from unitk.families.diffusion.denoise import Canvas
from unitk.families.diffusion.mdlm import MDLM
from unitk.slots import collate
from unitk.tasks.lm import LM

SOURCES = ["The bade kelo", "Mipu", "The tosa lebi ruko nade filo bagu", "Ruko sa"]
TASKS = {
    "mdlm": (MDLM, {}),
    "mdlm shifted": (MDLM, {"shift": True}),
    "bd3lm": (BD3LM, {}),
    "bd3lm shifted": (BD3LM, {"shift": True}),
}


def build(vocab, cls, seed=0, arch="mdlm_tiny", end=0.0, **options):
    """A model with random weights; the logit of the end is raised by so much."""
    torch.manual_seed(seed)
    config = replace(registry.get("arch", arch)(), init_std=0.4, zero_init=False)
    model = config.build(len(vocab)).eval()
    if end:
        head, raised = model.head, torch.zeros(len(vocab))
        raised[vocab.sep] = end
        model.head = lambda states_KD: head(states_KD) + raised
    return Generator(model, cls(cls.Config(**options), vocab))


@pytest.fixture(params=TASKS)
def made(request, toy_vocab):
    cls, options = TASKS[request.param]
    return build(toy_vocab, cls, **options)


def ids_of(outputs):
    return [[one.hypothesis.ids.tolist() for one in some] for some in outputs]


@torch.no_grad()
def gains_of(generator, example):
    """Log-probabilities [K, V] at the asked slots in one pass, without symbols."""
    batch = collate([[example]]).to("cpu")
    states, _ = generator.model(batch, None)
    logits = generator.model.head(states["x"].flatten(0, 1)[batch.asks["bound"].first])
    symbols, end = generator.vocab.symbols.values(), generator.vocab.sep
    ends = generator.task.config.ends
    logits[:, [id_ for id_ in symbols if id_ != end or not ends]] = -torch.inf
    return logits.log_softmax(1)


def test_one_pass_writes_what_is_likeliest_in_one_pass(toy_vocab):
    for shift in (False, True):
        generator = build(toy_vocab, MDLM, shift=shift)
        for order in ("confident", "random", "ancestral"):
            found = generator.generate(SOURCES, max_len=7, steps=1, order=order)
            for (source,), [one] in zip(
                generator.encode([[s] for s in SOURCES]), found, strict=True
            ):
                example = generator.task.canvas([source], np.full(7, toy_vocab.mask))
                best = gains_of(generator, example).max(1)
                count = len(one.hypothesis.ids)
                assert one.hypothesis.ids.tolist() == best.indices.tolist()[:count]
                assert_near(one.hypothesis.token_log_probs, best.values[:count])


@pytest.mark.parametrize("shift", [False, True])
def test_cached_blocks_equal_one_pass_of_training(toy_vocab, shift):
    """With one pass a block all of it is hidden, as in a layout that hides the output."""
    generator = build(toy_vocab, BD3LM, block_length=3, shift=shift, ends=False)
    found = generator.generate(SOURCES, max_len=10, steps=1)
    for (source,), [one] in zip(generator.encode([[s] for s in SOURCES]), found, strict=True):
        tokens = np.concatenate([[toy_vocab.cls], source, one.hypothesis.ids])
        hidden = np.arange(1 + len(source), len(tokens))
        block = np.arange(len(tokens)) // 3
        weight = np.ones(len(hidden), np.float32)
        example = blocks_of(tokens, block, hidden, weight, mask=toy_vocab.mask, shift=shift)
        expected = gains_of(generator, example)
        assert_near(one.hypothesis.token_log_probs, expected.max(1).values)
        assert expected.argmax(1).tolist() == one.hypothesis.ids.tolist()


def test_each_pass_sees_what_was_kept(made):
    """Word by word, the most confident one first, in plain Python."""
    task, vocab, size = made.task, made.vocab, 6
    block = getattr(task.config, "block_length", 10**6)
    found = made.generate(SOURCES, max_len=size)
    for (source,), [one] in zip(made.encode([[s] for s in SOURCES]), found, strict=True):
        tokens = np.concatenate([[vocab.cls], source, np.full(size, vocab.mask)])
        first = 1 + len(source)
        for at in range(0, len(tokens), block):
            while (left := np.flatnonzero(tokens[: at + block] == vocab.mask)).size:
                # nothing after the block is read
                shown = task.lay_out_asked(tokens[: at + block], left)
                best = gains_of(made, shown).max(1)
                chosen = int(best.values.argmax())
                tokens[left[chosen]] = int(best.indices[chosen])
        written = tokens[first:].tolist()
        ends = [*(i for i, w in enumerate(written) if w == vocab.sep), size - 1]
        assert one.hypothesis.ids.tolist() == written[: ends[0] + 1]


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_one_token_write_what_lm_writes(toy_vocab, seed):
    """Greedily; symbols, which `lm` may write, have no probability in diffusion."""
    generator = build(toy_vocab, BD3LM, seed, block_length=1, shift=True)
    head, change = generator.model.head, torch.zeros(len(toy_vocab))
    change[list(toy_vocab.symbols.values())] = -50
    change[toy_vocab.sep] = 3  # some outputs end before their limit
    generator.model.head = lambda states_KD: head(states_KD) + change
    lm = Generator(generator.model, LM(LM.Config(delimiter="off"), toy_vocab))
    found = generator.generate(SOURCES, max_len=20)
    others = lm.generate(SOURCES, max_len=20, beam=1)
    for [one], [other] in zip(found, others, strict=True):
        # `lm` closes an output at its limit with an end more
        ids = other.hypothesis.ids.tolist()[:20]
        assert one.hypothesis.ids.tolist() == ids and one.text == other.text


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "how",
    [{}, {"order": "random", "steps": 3}, {"order": "ancestral", "steps": 12}, {"block_length": 4}],
)
def test_a_batch_is_its_sources_alone(made, how):
    """Also with draws, whose numbers depend on the seed and the number of the input."""
    options = {"max_len": 9, "sampling": True, "nbest": 3, "seed": 5, **how}
    together = made.generate(SOURCES, **options)
    sources, config = made.encode([[s] for s in SOURCES]), GenerateConfig(**options)
    alone = [made.outputs(Sources([one], first=i), config)[0] for i, one in enumerate(sources)]
    assert ids_of(together) == ids_of(alone)
    small = made.generate(SOURCES, **options, max_tokens=16)
    assert ids_of(together) == ids_of(small)
    assert ids_of(together) != ids_of(made.generate(SOURCES, **options | {"seed": 6}))
    for some in together:
        scores = [one.hypothesis.score for one in some]
        assert scores == sorted(scores, reverse=True)
        assert all(len(one.hypothesis.ids) <= 9 for one in some)


def test_a_pass_keeps_as_many_as_the_order_says(made, monkeypatch):
    """confident, random: a share, rounded up first; ancestral: in the mean the same."""
    counts, plain = [], Canvas.keep

    def keep(canvas, *args):
        kept = plain(canvas, *args)
        counts.append(kept.sum(1).tolist())
        return kept

    monkeypatch.setattr(Canvas, "keep", keep)
    if isinstance(made.task, BD3LM):
        made = Generator(made.model, BD3LM(BD3LM.Config(block_length=32), made.vocab))
    for order in ("confident", "random"):
        counts.clear()
        made.generate(["mipu"], max_len=11, steps=4, order=order, sampling=True)
        assert counts == [[3], [3], [3], [2]]
    counts.clear()
    made.generate(["mipu"], max_len=11, steps=11)
    assert counts == [[1]] * 11
    counts.clear()
    made.generate(["mipu"] * 300, max_len=12, steps=4, order="ancestral", sampling=True)
    total = np.array([sum(each) for each in counts])
    assert total.sum() == 300 * 12
    assert total / total.sum() == pytest.approx([0.25] * 4, abs=0.03)


def test_random_order_chooses_any_place(toy_vocab, monkeypatch):
    first, plain = np.zeros(5), Canvas.keep

    def keep(canvas, a, b, left, *args):
        kept = plain(canvas, a, b, left, *args)
        if int(left.sum(1).max()) == 5:
            first[:] += kept[:, -5:].sum(0).numpy()
        return kept

    monkeypatch.setattr(Canvas, "keep", keep)
    generator = build(toy_vocab, MDLM)
    generator.generate(["mipu"] * 2000, max_len=5, order="random", sampling=True)
    assert first / first.sum() == pytest.approx([0.2] * 5, abs=0.03)


def test_words_are_drawn_from_the_model(toy_vocab):
    generator = build(toy_vocab, MDLM)
    options = {"max_len": 1, "sampling": True, "nbest": 4000, "temperature": 2.0}
    [outputs] = generator.generate(["mipu"], **options, max_tokens=10**6)
    [source] = generator.encode([["mipu"]])
    gain = gains_of(generator, generator.task.canvas(source, np.array([toy_vocab.mask])))
    share = np.bincount([one.hypothesis.ids[0] for one in outputs], minlength=len(toy_vocab)) / 4000
    assert share == pytest.approx((gain[0] / 2).softmax(0).numpy(), abs=0.03)
    only = generator.generate(["mipu"], max_len=1, sampling=True, nbest=200, sampling_topk=2)
    assert {one.hypothesis.ids[0] for one in only[0]} == set(gain[0].topk(2).indices.tolist())


def test_blocks_are_written_from_left_to_right(toy_vocab, monkeypatch):
    written, plain = [], Canvas.keep

    def keep(canvas, a, b, *args):
        kept = plain(canvas, a, b, *args)
        written.extend((a + kept[0].nonzero()[:, 0]).tolist())
        return kept

    monkeypatch.setattr(Canvas, "keep", keep)
    generator = build(toy_vocab, MDLM)
    generator.generate(["mipu"], max_len=8, block_length=3)
    start = min(written)
    places = [(one - start) // 3 for one in written]
    assert places == [0, 0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("how", [{}, {"sampling": True, "nbest": 2, "order": "ancestral"}])
def test_who_follows_the_passes_hears_how_an_output_begins(made, how):
    config = GenerateConfig(max_len=9, steps=5, **how)
    prompts = made.prompts(Sources(made.encode([[s] for s in SOURCES])), config)
    heard = [[] for _ in prompts]
    watch = Watcher(on_step=lambda i, ids: heard[i].append(ids))
    found = made.decode(prompts, config, watch)
    plain = made.decode(prompts, config, Watcher())
    for number, (best, same) in enumerate(zip(found, plain, strict=True)):
        whole = [one.hypothesis.ids.tolist() for one in best]
        assert whole == [one.hypothesis.ids.tolist() for one in same]
        end = made.vocab.sep
        words = [ids[: ids.index(end)] if end in ids else ids for ids in whole]
        grown = [ids.tolist() for ids in heard[number]]
        assert grown[-1] in words and len(grown) >= 1
        assert all(b[: len(a)] == a for a, b in pairwise(grown))


def test_given_words_stay(made):
    """Forced beginnings, and the words around the blanks of a text."""
    prefixes = ["the bade", "", "kelo", "mipu ruko sa"]
    for some, prefix in zip(
        made.generate(SOURCES, max_len=9, prefixes=prefixes), prefixes, strict=True
    ):
        assert some[0].text.startswith(prefix)
        given = len(made.vocab.encode(prefix)) if prefix else 0
        assert (some[0].hypothesis.token_log_probs[:given] == 0).all()
        assert (some[0].hypothesis.token_log_probs[given:] < 0).all()
    text = "The [MASK][MASK] of [MASK] bade."
    [[one]] = made.infill([text])
    [source] = made.encode_blanks(text)
    filled = source.copy()
    filled[source == made.vocab.mask] = one.hypothesis.ids
    assert one.text == made.vocab.decode(filled) and len(one.hypothesis.ids) == 3
    assert not {*one.hypothesis.ids} & {*made.vocab.symbols.values()}


def test_an_end_closes_an_output_and_later_blocks_stay(toy_vocab, monkeypatch):
    passes, plain = [], Canvas.keep
    monkeypatch.setattr(Canvas, "keep", lambda *args: passes.append(1) or plain(*args))
    for ends in (True, False):
        passes.clear()
        model = build(toy_vocab, BD3LM, end=1e3).model
        generator = Generator(model, BD3LM(BD3LM.Config(ends=ends), toy_vocab))
        [[one]] = generator.generate(["mipu"], max_len=12)
        if ends:
            assert one.hypothesis.ids.tolist() == [toy_vocab.sep] and one.text == ""
            assert len(passes) <= 4
        else:
            assert len(one.hypothesis.ids) == 12 and toy_vocab.sep not in one.hypothesis.ids
        assert toy_vocab.sep not in generator.infill(["mipu [MASK]"])[0][0].hypothesis.ids


def test_an_ensemble_of_a_model_and_itself_writes_the_same(toy_vocab):
    one = build(toy_vocab, BD3LM)
    both = Generator(join([("a", one.model, one.task), ("b", one.model, one.task)]), one.task)
    how = {"max_len": 8, "steps": 3}
    assert ids_of(both.generate(SOURCES, **how)) == ids_of(one.generate(SOURCES, **how))


def test_too_long_a_source_is_refused_or_shortened(toy_vocab):
    generator = build(toy_vocab, MDLM, arch="bert_tiny")
    long = "mipu " * 600
    with pytest.raises(DataError, match="input 1 .*too long.*of 512"):
        generator.generate([long], max_len=8)
    [[one]] = generator.generate([long], max_len=8, truncate=True, steps=1)
    assert len(one.hypothesis.ids) <= 8


def test_mistakes_are_refused(made, toy_vocab):
    for option, value in {"min_len": 2, "no_repeat_ngram_size": 2, "unkpen": 1.0}.items():
        name = "--" + option.replace("_", "-")
        with pytest.raises(UsageError, match=f"{name} .*no effect.*diffusion"):
            made.generate(["mipu"], **{option: value})
    with pytest.raises(UsageError, match="--beam 3 .*no effect.*diffusion"):
        made.generate(["mipu"], beam=3)
    for option, value in {"nbest": 2, "temperature": 0.5}.items():
        with pytest.raises(UsageError, match=f"--{option} .*no effect.*diffusion"):
            made.generate(["mipu"], **{option: value})
    with pytest.raises(UsageError, match="--constraints .*tasks.*word"):
        made.generate(["mipu"], constraints=[["bade"]])
    with pytest.raises(UsageError, match="input 1 has .MASK.s: .*outputs.* --prefix-file"):
        source = made.encode_blanks("mipu [MASK]")
        made.outputs(Sources([source], constraints=made.constraints(["bade"])), GenerateConfig())
    with pytest.raises(UsageError, match="--steps .*at least 1, got 0"):
        made.generate(["mipu"], steps=0)
    lm = Generator(build(toy_vocab, LM, arch="gpt2_tiny").model, LM(LM.Config(), toy_vocab))
    for option, value in {"steps": 2, "order": "random", "block_length": 2}.items():
        name = "--" + option.replace("_", "-")
        with pytest.raises(UsageError, match=f"{name} .*no effect: task lm.*diffuse"):
            lm.generate(["mipu"], **{option: value})


def test_a_broken_model_says_so(toy_vocab):
    generator = build(toy_vocab, MDLM)
    generator.model.head = lambda states: torch.full((len(states), len(toy_vocab)), torch.nan)
    with pytest.raises(NonFiniteError, match="nothing is written"):
        generator.generate(["mipu"])


def test_reports_count_prompts(toy_vocab):
    generator, done = build(toy_vocab, MDLM), []
    config = GenerateConfig(max_tokens=32, max_len=3)
    prompts = generator.prompts(Sources([[np.array([40])]] * 5), config)
    generator.decode(prompts, config, Watcher(done.append))
    assert sum(done) == 5 and len(done) > 1
