"""Adaptive masking by truths: what stays hidden, its law, what weights learn, how runs go on."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from ranks import run_ranks
from rounding import assert_near
from safetensors.torch import load_file
from scipy.stats import chisquare

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.batching import zero_weights
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.adaptive.config import COUNT, DIFFICULTY, DRAW
from unitk.families.adaptive.criterion import hide_by_weight
from unitk.slots import TOKEN, Example, collate, lm, stay

RUN = "--task adaptive_mlm --arch bert_tiny --arch.heads difficulty:tokens --task.mask-ratio 0.2"
RUN += " --arch.dropout 0.1 --criterion.every 3 --lr 1e-2 --lr-schedule constant"


def task(vocab, **options):
    found = registry.get("task", "adaptive_mlm")
    return found(found.Config(mask_keep_random=(1.0, 0.0, 0.0), **options), vocab)


def batch_of(made, vocab, lengths=(9, 14, 5), seed=0):
    """The texts, and a batch of them with two in its first row."""
    rng = np.random.default_rng(seed)
    words = np.flatnonzero(vocab.starts)
    texts = [rng.choice(words, n) for n in lengths]
    examples = [made.pretrain(Text([ids], np.zeros(1, int)), rng) for ids in texts]
    return texts, collate([examples[:2], examples[2:]]).to("cpu")


@pytest.mark.parametrize("shift", [False, True])
def test_as_many_tokens_stay_hidden_as_mlm_hides(toy_vocab, shift):
    made = task(toy_vocab, shift=shift, mask_ratio=0.3)
    texts, batch = batch_of(made, toy_vocab)
    read = hide_by_weight(batch, torch.ones(len(toy_vocab)))
    masked = (read.towers["x"][TOKEN] == toy_vocab.mask).flatten()
    assert masked.sum() == sum(round(0.3 * (len(ids) + 2)) for ids in texts)
    [ask] = read.asks.values()
    # what is asked is what is hidden, at its slot or the one before; all else reads the text
    places = ask.rows[:, 0] + shift
    assert places.tolist() == masked.nonzero()[:, 0].tolist()
    whole = read.towers["x"][TOKEN].flatten().clone()
    whole[places] = ask.label
    v = toy_vocab
    rows = [[v.cls, *ids, v.sep] for ids in texts]
    width = batch.towers["x"].shape[2]
    assert whole[: len(rows[0] + rows[1])].tolist() == rows[0] + rows[1]
    assert whole[width : width + len(rows[2])].tolist() == rows[2]


def test_tokens_are_drawn_in_proportion_to_their_weights():
    """Of four tokens, two: the law of each pair is a sum over the orders in which it is drawn."""
    weight, many = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.2, 0.1, 0.8]), 4000
    tokens, rng = np.array([3, 4, 5, 6]), np.random.default_rng(0)
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    law = dict.fromkeys(pairs, 0.0)
    own = weight[tokens].double().numpy()
    for a, b in permutations(range(4), 2):
        law[min(a, b), max(a, b)] += own[a] / own.sum() * own[b] / (own.sum() - own[a])
    inputs = {COUNT: np.array([2])}
    examples = [
        Example({"x": stay(np.full(4, 2), np.arange(4))}, [lm(np.arange(4), tokens, name="mlm")],
                inputs={DRAW: (1 - rng.random(4, np.float32)), **inputs})
        for _ in range(many)
    ]  # fmt: skip
    read = hide_by_weight(collate([examples]).to("cpu"), weight)
    found = read.asks["mlm"].rows[:, 0].view(many, 2) % 4
    counted = [int(((found[:, 0] == a) & (found[:, 1] == b)).sum()) for a, b in pairs]
    assert sum(counted) == many
    assert chisquare(counted, [many * law[pair] for pair in pairs]).pvalue > 1e-3


def model_of(vocab, **changes):
    torch.manual_seed(0)
    config = replace(registry.get("arch", "bert_tiny")(), heads=(DIFFICULTY,), **changes)
    return config.build(len(vocab))


def criterion(**options):
    return registry.get("criterion", "adaptive")(**options).build(None)


def test_the_loss_is_that_of_the_tokens_that_stay_hidden(toy_vocab):
    _, batch = batch_of(task(toy_vocab), toy_vocab)
    model, own = model_of(toy_vocab, dropout=0.0).train(), criterion()
    model.heads[DIFFICULTY].weight.uniform_(0.1, 1)
    found = own(model, batch, 0, 1)
    read = hide_by_weight(batch, model.heads[DIFFICULTY].weight)
    wanted = CrossEntropy()(model, read, 0, 1)
    assert_near(found.sums["mlm"], wanted.sums["mlm"])
    assert_near(found.parts["mlm/nll"], wanted.parts["mlm/nll"])
    assert own.counts(batch) == {"mlm": len(read.asks["mlm"].label)}
    # a model that is judged has all tokens hidden alike
    alike = hide_by_weight(batch, torch.ones(len(toy_vocab)))
    assert_near(
        own(model.eval(), batch, 0, 1).sums["mlm"], CrossEntropy()(model, alike, 0, 1).sums["mlm"]
    )


def test_weights_follow_what_is_predicted_wrongly(toy_vocab):
    """By hand: after `every` updates 0.2 of a weight stays, and 0.8 (1 - score) is added."""
    model, own = model_of(toy_vocab), criterion(every=2, kept=0.2)
    head = model.heads[DIFFICULTY]
    label, correct = torch.tensor([7, 7, 7, 9]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    for _ in range(2):
        own.note(head, label, correct)
        assert head.weight.eq(1).all()
        own.learn(model, lambda found: found)
    assert head.seen.eq(0).all()
    six, two, none = (1 - (r + 0.5) / (n + 1) for r, n in ((4, 6), (0, 2), (0, 0)))
    assert head.weight[7].item() == pytest.approx(0.2 + 0.8 * six)
    assert head.weight[9].item() == pytest.approx(0.2 + 0.8 * two)
    assert head.weight[11].item() == pytest.approx(0.2 + 0.8 * none)


def test_a_rank_without_texts_learns_nothing_of_those_that_it_reads(toy_vocab):
    _, batch = batch_of(task(toy_vocab), toy_vocab)
    own = criterion()
    own(model_of(toy_vocab).train(), zero_weights(batch), 0, 1)
    assert own.pending is None


def test_a_run_goes_on_as_if_it_had_not_stopped(train, curve, tmp_path):
    train(f"{RUN} --max-steps 8", run="whole")
    # within a period, so that what was seen must be there again
    train(f"{RUN} --max-steps 4", run="parts")
    train(f"{RUN} --max-steps 8 --resume", run="parts")
    assert curve("parts") == curve("whole")
    found = [load_file(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "parts")]
    names = [name for name in found[0] if DIFFICULTY in name]
    assert len(names) == 3
    for name in names:
        assert torch.equal(found[0][name], found[1][name])
    weight = found[0][f"heads.{DIFFICULTY}.weight"]
    assert weight.min() < weight.max() and 0 < weight.min()


@pytest.mark.slow
def test_the_weights_of_two_ranks_are_those_of_one(toy_data, tmp_path):
    more = " --blocks line --block-size 64 --max-tokens 270 --batch-tokens 1000 --precision fp32"
    more += (
        f" --log-every 1 --writers none --rank-timeout 30 --threads 1 --data {toy_data / 'text'}"
    )
    more += " --max-steps 7"
    words = RUN.replace("dropout 0.1", "dropout 0")
    for ranks in (1, 2):
        assert {*run_ranks(f"{words}{more} --save-dir {tmp_path / str(ranks)}", ranks)} == {0}
    one, two = (load_file(tmp_path / n / "last" / "model.safetensors") for n in ("1", "2"))
    for part in ("weight", "seen"):
        own, other = (found[f"heads.{DIFFICULTY}.{part}"] for found in (one, two))
        assert (own - other).abs().max() < 1e-3


@pytest.mark.parametrize("options", [{"whole_words": True}, {"max_span": 3}])
def test_tokens_that_are_hidden_together_are_refused(toy_vocab, options):
    with pytest.raises(UsageError, match=r"--task\.max-span"):
        task(toy_vocab, **options)


def test_texts_without_draws_are_refused(toy_vocab):
    slots = stay(np.full(4, 2), np.arange(4))
    batch = collate([[Example({"x": slots}, [lm([1], [3])])]]).to("cpu")
    with pytest.raises(UsageError, match="--criterion adaptive"):
        criterion().counts(batch)
