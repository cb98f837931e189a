"""Bits of a text by models of any task: identities, enumerations and counts by hand."""

import math
from dataclasses import replace
from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.conftest import toy_lines
from unitk import registry
from unitk.comparison.estimators import estimator_of
from unitk.comparison.likelihood import CODE_POINT, How, error_of_ratio, measure
from unitk.comparison.texts import Document
from unitk.decoding.forced import score
from unitk.decoding.likelihood import likelihoods
from unitk.errors import DataError, UsageError
from unitk.evaluation.estimators import Estimation
from unitk.families.diffusion.bd3lm import layout as blocks
from unitk.families.diffusion.mdlm import layout as masked
from unitk.models.archs import tiny
from unitk.slots import Example, lm, stay

NONE = np.zeros(0, np.int64)
TEXT, BEFORE = np.array([40, 51, 33, 47]), np.array([60, 61, 62, 63, 64])
EXACT = 1e-6  # of double precision


@pytest.fixture
def task(toy_vocab):
    def make(name, **options):
        cls = registry.get("task", name)
        return cls(cls.Config(**options), toy_vocab).with_trained(pairs=False)

    return make


@pytest.fixture
def model(toy_vocab):
    """A network in double precision, so that equal is equal to the sixth digit."""

    def make(arch, size=0, **changes):
        torch.manual_seed(1)
        config = tiny(registry.get("arch", arch)())
        config = replace(config, **({} if config.fan_in_init else {"init_std": 0.2}), **changes)
        return config.build(size or len(toy_vocab)).eval().double()

    return make


def cost(network, task, before=BEFORE, text=TEXT, **how):
    [found] = estimator_of(task).costs(network, task, [(before, text)], Estimation(**how))
    return found


def test_blocks_of_one_token_are_a_causal_model(task, model):
    network = model("bert_small")
    one = task("bd3lm", block_length=1, shift=True, ends=False)
    two = task("lm", ends=False)
    for before in (BEFORE, NONE):
        found, wanted = cost(network, one, before, draws=1), cost(network, two, before)
        assert found.tokens == pytest.approx(wanted.tokens, rel=EXACT)
        assert found.rest == 0


def test_one_block_is_masked_diffusion(task, model):
    network = model("bert_small")
    one, two = task("bd3lm", block_length=100), task("mdlm")
    found, wanted = cost(network, one, draws=5), cost(network, two, draws=5)
    assert found.tokens == pytest.approx(wanted.tokens, rel=EXACT)
    assert found.rest == pytest.approx(wanted.rest, rel=EXACT) and found.rest > 0  # the end


def test_one_span_over_all_is_a_causal_model_of_the_opening_and_the_text(task, model, toy_vocab):
    """Two tables of positions, of which a text needs one row each, are one table."""
    network, glm, v = model("glm_small"), task("glm_infill"), toy_vocab
    opening = np.array([v.cls, v.mask, v.sep, v.sop])
    tokens = np.concatenate([opening, TEXT[:-1]])
    at = np.maximum(np.arange(len(tokens)) - 2, 0)
    pos = np.concatenate([[0, 1, 2], np.ones(len(TEXT), np.int64)])
    slots = stay(tokens, pos=pos, pos2=at, at=at)
    causal = Example({"x": slots}, [lm(np.arange(3, len(tokens)), TEXT)])
    [(gain, _)] = score(network, [causal], 100)
    assert cost(network, glm, NONE).tokens == pytest.approx(-gain, rel=EXACT)


def chain(network, orders, layout):
    """The cost of each order of tokens, each after those before it in this order."""
    found = []
    for order in orders:
        asked = [layout(order[: i + 1]) for i in range(len(order))]
        found.append(-sum(float(gain[0, -1]) for gain in score(network, asked, 1000)))
    return np.array(found)


def test_the_bound_of_diffusion_is_the_mean_over_orders(task, model, toy_vocab):
    """All shares and sets of hidden tokens, weighted, cost what all orders do in the mean, which is
    at least what their mixture costs: the bound is never better than the exact value."""
    network, mdlm = model("bert_small"), task("mdlm", ends=False)
    tokens, places = np.append(toy_vocab.cls, TEXT[:3]), range(1, 4)

    def last(seen):  # the tokens of an order but the last are shown, and the last is asked
        hidden = np.array([i for i in places if i not in seen[:-1]])
        one = masked(tokens, hidden, np.ones(len(hidden), np.float32), mask=toy_vocab.mask)
        row = np.array([seen[-1]])
        return Example(one.towers, [lm(row, tokens[row])])

    orders = chain(network, list(permutations(places)), last)
    bound = 0.0
    for count in places:
        sets = list(combinations(places, count))
        for hidden in sets:
            weight = np.full(count, 3 / count, np.float32)
            one = masked(tokens, np.array(hidden), weight, mask=toy_vocab.mask)
            [(gain, _)] = score(network, [one], 1000)
            bound -= float(3 / count * gain.sum()) / len(sets) / 3
    assert bound == pytest.approx(orders.mean(), rel=EXACT)
    mixture = -np.log(np.mean(np.exp(-orders)))
    assert mixture < bound
    drawn = [cost(network, mdlm, NONE, TEXT[:3], draws=1).total]
    many = cost(network, mdlm, NONE, TEXT[:3], draws=100)
    assert many.total == pytest.approx(bound, rel=0.05)
    assert drawn[0] == cost(network, mdlm, NONE, TEXT[:3], draws=1).total


def test_the_bound_of_blocks_is_the_mean_over_orders_of_each(task, model, toy_vocab):
    network, bd3lm = model("bert_small"), task("bd3lm", block_length=2, ends=False)
    tokens = np.append(toy_vocab.cls, TEXT)
    block, bound, exact = bd3lm.blocks(tokens), 0.0, 0.0
    for number in range(3):
        costs = []
        for order in permutations(np.flatnonzero((block == number) & (np.arange(5) > 0))):
            hides = [np.sort(order[i:]) for i in range(len(order))]
            each = [
                blocks(tokens, block, one, np.ones(len(one), np.float32), mask=toy_vocab.mask)
                for one in hides
            ]
            gains = [gain for gain, _ in score(network, each, 1000)]
            asked = zip(gains, hides, order, strict=True)
            costs.append(-sum(gain[one.tolist().index(at)] for gain, one, at in asked))
        bound += np.mean(costs)
        exact -= np.log(np.mean(np.exp(-np.array(costs))))
    assert exact < bound
    many = cost(network, bd3lm, NONE, draws=100).total
    assert many == pytest.approx(bound, rel=0.02)


def test_factorizations_in_order_are_the_causal_value_and_their_mean_is_a_bound(task, model):
    network, pmlm = model("unilm2_small"), task("pmlm", blockwise=False)
    ones = np.ones(3, np.int64)
    orders = [
        pmlm.factorize(BEFORE, TEXT[:3], np.array(order), ones) for order in permutations(range(3))
    ]
    costs = np.array([-gain[0].sum() for gain in score(network, orders, 1000)])
    [(gain, _)] = likelihoods(network, pmlm, [(BEFORE, TEXT[:3])])
    assert costs[0] == pytest.approx(-gain.sum(), rel=EXACT)
    mixture = -np.log(np.mean(np.exp(-costs)))
    many = cost(network, pmlm, text=TEXT[:3], draws=60).total
    assert mixture < costs.mean() == pytest.approx(many, rel=0.02)


def test_a_latent_costs_what_its_importance_weighted_bound_says(task, model):
    network = model("optimus_small", latent=4)
    optimus = task("optimus", encoder_drop=0.5)
    texts = [(NONE, TEXT), (NONE, TEXT[:2]), (NONE, NONE), (NONE, np.tile(TEXT, 3))]
    few, many = (
        estimator_of(optimus).costs(network, optimus, texts, Estimation(draws=n)) for n in (1, 50)
    )
    alone = cost(network, optimus, NONE, draws=50)
    # draws are those of a text's number, and the first has the first number in both
    assert [len(one.tokens) for one in many] == [4, 2, 0, 12] and many[2].total == 0
    assert sum(one.total for one in many) < sum(one.total for one in few)
    assert alone.tokens == pytest.approx(many[0].tokens, rel=1e-5)


KINDS = {
    "exact": ["lm", "unilm", "glm_infill", "xlnet", "mass", "bart", "t5", "seq2seq"],
    "bound": ["mdlm", "bd3lm", "pmlm", "optimus"],
    "pseudo": ["mlm"],
}


def lines(network, task):
    return SimpleNamespace(model=network, task=task, vocab=task.vocab)


@pytest.mark.parametrize("name", [name for names in KINDS.values() for name in names])
def test_every_task_has_a_kind_and_each_byte_is_paid_for(name, task, model):
    """The windows together predict every token once, whatever their lengths."""
    made = task(name)
    generator = lines(model(made.arch, len(made.vocab)).float(), made)
    documents = [Document(toy_lines(6)[:4]), Document(toy_lines(6)[4:])]
    found = measure(generator, documents, How(stride=9, max_tokens=500))
    assert name in KINDS[found.kind]
    figures = found.figures()
    size = sum(len(" ".join(one.sentences).encode()) for one in documents)
    tokens = sum(map(len, made.vocab.encode_batch(toy_lines(6))))
    assert (figures["bytes"], figures["tokens"]) == (size, tokens)
    assert figures["bits_per_byte"] == pytest.approx(found.nats.sum() / math.log(2) / size)
    assert np.isfinite(found.nats).all() and (found.nats > 0).all()


def test_a_character_that_no_vocabulary_has_costs_a_code_point(task, model, toy_vocab):
    generator = lines(model("gpt2_small"), task("lm"))
    plain, strange = "The dog ran.", "The dog ran ☃☃."
    one, two = (measure(generator, [Document([text])], How()) for text in (plain, strange))
    assert (one.unknown, one.altered) == (0, 0)
    assert two.unknown >= 2 and two.altered == 1
    ids = np.array(toy_vocab.encode(strange))
    [(gain, _)] = likelihoods(generator.model, generator.task, [(NONE, ids)])
    spelled = two.unknown * CODE_POINT
    assert two.nats[0] == pytest.approx(-gain.sum() + spelled, rel=EXACT)


def test_the_error_over_documents_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    size = rng.integers(50, 150, 400).astype(float)
    bits = size * rng.normal(2, 0.3, 400)
    left_out = [(bits.sum() - one) / (size.sum() - n) for one, n in zip(bits, size, strict=True)]
    jackknife = math.sqrt(399 / 400 * np.sum((left_out - np.mean(left_out)) ** 2))
    assert error_of_ratio(bits, size) == pytest.approx(jackknife, rel=0.01)
    assert error_of_ratio(2 * size, size) == 0
    assert math.isnan(error_of_ratio(bits[:1], size[:1]))


def test_windows_fit_the_positions_of_a_model():
    assert How().fit(64, True) == (28, 28)
    assert How().fit(64, False) == (56, 0)
    assert How().fit(0, True) == (512, 512)
    assert How(stride=7).fit(64, True) == (7, 7)
    assert How(stride=7, context=0).fit(64, True) == (7, 0)
    with pytest.raises(UsageError, match="--context"):
        How(context=3).fit(64, False)


def test_what_has_no_likelihood_is_refused(task, model):
    generator = lines(model("gpt2_small"), task("lm"))
    documents = [Document(toy_lines(90))]
    with pytest.raises(UsageError, match="--draws"):
        measure(generator, documents, How(draws=3))
    with pytest.raises(UsageError, match="--whole-words"):
        measure(generator, documents, How(whole_words=True))
    with pytest.raises(DataError, match="--data: window 1 "):
        measure(generator, documents, How(stride=2000))
    diffusing = lines(model("bert_small"), task("mdlm"))
    with pytest.raises(DataError, match="--data: window 1 "):
        measure(diffusing, documents, How(stride=2000))
    with pytest.raises(UsageError, match="classify"):
        measure(lines(model("bert_small"), task("classify")), documents, How())
