"""Contrastive learning by truths: layouts, pooling, the loss by hand, what is no negative."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.data.cuts import Text
from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed
from unitk.errors import DataError, UsageError
from unitk.families.retrieval.config import ContrastiveConfig
from unitk.families.retrieval.criterion import warn_alone
from unitk.families.retrieval.task import Contrastive
from unitk.registry import get
from unitk.slots import collate

RNG = np.random.default_rng(0)


def words(*sizes):
    return [RNG.integers(20, 60, n) for n in sizes]


@pytest.fixture
def task(toy_vocab):
    return Contrastive(Contrastive.Config(negatives=1), toy_vocab)


@pytest.fixture
def pairs():
    """Four sources with a hard negative each, and their targets."""
    return [(words(n, 3), *words(n + 1)) for n in (4, 7, 2, 5)]


def packed(task, pairs):
    first, second, *rest = (task.finetune(*pair, RNG) for pair in pairs)
    return collate([[first, second], *([one] for one in rest)]).to("cpu")


@pytest.fixture
def batch(task, pairs):
    return packed(task, pairs)


@pytest.fixture
def model(toy_vocab):
    torch.manual_seed(0)
    return get("arch", "bert_tiny")().build(len(toy_vocab)).eval()


def test_each_text_is_a_doc_of_its_own(task, toy_vocab):
    a, b, c, d, e = (np.array([n]) for n in range(30, 35))
    x = task.finetune([np.r_[a, b], e], np.r_[c, d], RNG).towers["x"]
    C, S = toy_vocab.cls, toy_vocab.sep
    assert x.token.tolist() == [C, 30, 31, S, C, 32, 33, S, C, 34, S]
    assert x.doc.tolist() == [0] * 4 + [1] * 4 + [2] * 3
    assert x.pos.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert not x.now.any()


@pytest.mark.parametrize(
    ("pool", "weight"),
    [
        ("mean", [0, 0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0, 1, 0]),
        ("first", [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]),
        ("last", [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1]),
    ],
)
def test_weights_make_the_vector_of_each_text(toy_vocab, pool, weight):
    task = Contrastive(Contrastive.Config(negatives=1, pool=pool), toy_vocab)
    a, b, c, d, e = (np.array([n]) for n in range(30, 35))
    inputs = task.finetune([np.r_[a, b], e], np.r_[c, d], RNG).inputs
    assert inputs["x.weight"].tolist() == weight
    assert (inputs["key"] == inputs["key"][0]).all() and len({*inputs["key"][0], 0}) == 4


def test_a_sentence_belongs_to_the_text_around_it(task, toy_vocab):
    text, sentences = np.arange(30, 39), np.array([0, 2, 5])
    kept = 0
    for seed in range(200):
        x = task.pretrain(Text([text], sentences), np.random.default_rng(seed)).towers["x"]
        source, target = (x.token[x.doc == n][1:-1].tolist() for n in (0, 1))
        assert source in ([30, 31], [32, 33, 34], [35, 36, 37, 38])
        kept += target == text.tolist()
        assert target in ([n for n in text if n not in source], text.tolist())
    assert 5 < kept < 40  # a share of 0.1
    alone = task.pretrain(Text([text], sentences[:1]), RNG)
    assert alone.towers["x"].token.tolist() == [toy_vocab.cls, *text, toy_vocab.sep] * 2
    assert len({*alone.inputs["key"][0]}) == 1


def test_each_text_is_cut_to_the_positions_by_itself(toy_vocab):
    task = Contrastive(Contrastive.Config(negatives=2), toy_vocab).with_trained(position_limit=10)
    source, target = words(4, 30, 8), *words(9)
    x = task.finetune(source, target, RNG).towers["x"]
    assert [(x.doc == n).sum() for n in range(4)] == [6, 10, 10, 10]
    assert x.token[x.doc == 2].tolist() == [toy_vocab.cls, *source[1][:8], toy_vocab.sep]
    joined = Contrastive(Contrastive.Config(), toy_vocab).with_trained(position_limit=10)
    x = joined.finetune([source[0], source[1]], target, RNG).towers["x"]
    assert x.token[x.doc == 0].tolist()[:6] == [toy_vocab.cls, *source[0], toy_vocab.sep]
    assert [(x.doc == n).sum() for n in range(2)] == [10, 10]


@pytest.mark.parametrize("pool", ["mean", "first", "last"])
def test_vectors_are_those_of_unitk_embed(pairs, model, toy_vocab, pool):
    task = Contrastive(Contrastive.Config(negatives=1, pool=pool), toy_vocab)
    pairs = [*pairs, ([words(3)[0], np.zeros(0, int)], words(5)[0])]
    batch = packed(task, pairs)
    states, _ = model(batch)
    found = ContrastiveConfig().build(toy_vocab).vectors(states, batch).flatten(0, 1)
    texts = [[text] for source, target in pairs for text in (source[0], target, source[1])]
    for config in (EmbedConfig(), EmbedConfig(pool=pool)):
        assert_near(found, np.array(embed(model, task, texts, config)))


def test_the_loss_is_that_of_each_source_by_hand(batch, model, toy_vocab):
    criterion = ContrastiveConfig(temperature=0.1, symmetric=True, widths=(16, 64)).build(toy_vocab)
    loss = criterion(model, batch, 0, 1)
    states, _ = model(batch)
    vectors = criterion.vectors(states, batch)
    total = 0.0
    for width in (16, 64):
        unit = F.normalize(vectors[..., :width], dim=-1)
        for i in range(4):
            scores = [unit[i, 0] @ unit[j, k] / 0.1 for j in range(4) for k in (1, 2)]
            there = torch.stack(scores).logsumexp(0) - scores[2 * i]
            back = [unit[j, 0] @ unit[i, 1] / 0.1 for j in range(4)]
            total += (there + torch.stack(back).logsumexp(0) - back[i]) / 2
    assert_near(loss.sums["pairs"], total / 2)
    assert criterion.counts(batch) == {"pairs": 4.0}


def test_a_text_that_equals_the_target_is_no_negative(task, model, toy_vocab):
    [one, two, same] = words(4, 5, 6)
    [hard] = words(3)
    made = [task.finetune([source, hard], same, RNG) for source in (one, two)]
    batch = collate([made]).to("cpu")
    criterion = ContrastiveConfig().build(toy_vocab)
    states, _ = model(batch)
    each = criterion.vectors(states, batch)
    scores = criterion.scores(each, batch.inputs["key"][::3])
    assert scores.isinf().tolist() == [[False, False, True, False], [True, False, False, False]]
    made = [task.finetune([one, hard[:0]], same, RNG), task.finetune([two, hard], hard, RNG)]
    scores = criterion.scores(each, collate([made]).to("cpu").inputs["key"][::3])
    assert scores.isinf().tolist() == [[False, True, False, False], [False, True, False, True]]


def test_a_source_that_comes_twice_is_not_told_from_itself(task, model, toy_vocab):
    [same, one, two] = words(4, 5, 6)
    task = Contrastive(Contrastive.Config(), toy_vocab)
    batch = packed(task, [([same], one), ([same], two)])
    [there, both] = (
        ContrastiveConfig(symmetric=way).build(toy_vocab)(model, batch, 0, 1).sums["pairs"]
        for way in (False, True)
    )
    assert_near(both, there / 2)  # the other direction has nothing to tell


def test_an_empty_source_is_no_negative(model, toy_vocab):
    task = Contrastive(Contrastive.Config(), toy_vocab)
    [a, b, one, two, three] = words(4, 3, 5, 6, 2)
    empty = packed(task, [([a], one), ([b], two), ([a[:0]], three)])
    criterion = ContrastiveConfig(symmetric=True).build(toy_vocab)
    key = empty.inputs["key"][::2]
    scores = criterion.scores(criterion.vectors(model(empty)[0], empty), key)
    there = F.cross_entropy(scores, torch.arange(3), reduction="sum")
    # in the other direction the first two targets have two sources, and the third has three
    back = F.cross_entropy(scores.mT[:2, :2], torch.arange(2), reduction="sum")
    back += F.cross_entropy(scores.mT[2:], torch.tensor([2]))
    assert_near(criterion(model, empty, 0, 1).sums["pairs"], (there + back) / 2)


def test_texts_that_say_nothing_of_each_other_have_the_loss_of_a_guess(batch, model, toy_vocab):
    loss = ContrastiveConfig(temperature=1e6).build(toy_vocab)(model, batch, 0, 1)
    assert loss.sums["pairs"].item() == pytest.approx(4 * math.log(8), rel=1e-5)


def test_a_model_learns_which_texts_belong_together(train, curve):
    words = "--task contrastive --arch bert_tiny --arch.dropout 0 --batch-texts 8 --max-steps 30"
    words += " --max-tokens 2000 --batch-tokens none --lr 3e-3 --block-size 512 --blocks doc"
    train(words, data="pairs")
    right = [value for _, value in curve(value="train/pairs/correct")]
    assert sum(right[-5:]) > sum(right[:5])


def test_an_update_that_no_micro_batch_holds_is_refused_before_the_first(train, tmp_path):
    words = "--task contrastive --arch bert_tiny --batch-texts 8 --max-steps 2 --batch-tokens none"
    with pytest.raises(UsageError, match=r"--batch-texts 8 .*\d+ slots") as told:
        train(f"{words} --max-tokens 50", data="pairs")
    need = int(str(told.value).split("give --max-tokens ")[1].split()[0])
    with pytest.raises(UsageError, match="give --max-tokens"):
        train(f"{words} --max-tokens {need - 1}", data="pairs")
    train(f"{words} --max-tokens {need}", data="pairs")


def test_what_does_not_fit_is_named(task, toy_vocab, batch, model):
    with pytest.raises(UsageError, match=r"--task\.layout seq2seq"):
        Contrastive(Contrastive.Config(layout="seq2seq"), toy_vocab)
    with pytest.raises(UsageError, match="--criterion contrastive .*--task"):
        ContrastiveConfig().build(toy_vocab).counts(replace(batch, inputs={}))
    with pytest.raises(DataError, match="^1 positions"):
        task.with_trained(position_limit=1).finetune(words(4), *words(3), RNG)
    with pytest.raises(UsageError, match=r"--criterion\.widths must rise"):
        ContrastiveConfig(widths=(64, 16))
    with pytest.raises(UsageError, match=r"--criterion\.widths: .* 64 .* 65"):
        ContrastiveConfig(widths=(65,)).build(toy_vocab)(model, batch, 0, 1)


def test_a_pair_alone_is_told(toy_vocab, model, caplog):
    """It has no negatives: its loss is 0, whatever the model says. Only an update tells it."""
    warn_alone.cache_clear()
    made = Contrastive(Contrastive.Config(), toy_vocab)
    for pairs, training, said in ((1, False, 0), (2, True, 0), (1, True, 1), (1, True, 0)):
        model.train(training)
        given = [made.finetune(words(4), *words(5), RNG) for _ in range(pairs)]
        loss = ContrastiveConfig().build(toy_vocab)(model, collate([given]).to("cpu"), 1, None)
        assert (float(loss.sums["pairs"].detach()) == 0) == (pairs == 1)
        assert len(caplog.records) == said
        caplog.clear()
