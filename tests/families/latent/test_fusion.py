"""SpaceFusion: three reconstructions and the distances of latents, against a loop over pairs."""

import json
import math

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.latent.components import FusionConfig
from unitk.families.latent.task import Optimus
from unitk.slots import collate
from unitk.training.loop import train
from unitk.training.start import parse_train, prepare

SIZES = [(3, 2), (5, 6), (1, 4), (2, 2)]
CONTEXT, OWN, BETWEEN = range(3)


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(5)
    return [tuple(rng.integers(30, 60, n) for n in sizes) for sizes in SIZES]


@pytest.fixture(scope="module")
def model(toy_vocab):
    torch.manual_seed(2)
    model = registry.get("arch", "optimus_tiny")().build(len(toy_vocab)).double().eval()
    for parameter in model.parameters():
        parameter.data *= 3
    return model


def tasks(vocab):
    return (Optimus(Optimus.Config(fusion=on), vocab) for on in (True, False))


def test_a_pair_is_three_docs(toy_vocab, pairs):
    fused, plain = tasks(toy_vocab)
    for source, target in pairs:
        example = fused.finetune([source], target, np.random.default_rng(0))
        assert [slots.doc.max() for slots in example.towers.values()] == [2, 2]
        expected = [plain.finetune([text], target, None) for text in (source, target, target)]
        for doc, one in enumerate(expected):
            for tower in ("enc", "dec"):
                slots = example.towers[tower]
                found = slots.take(np.flatnonzero(slots.doc == doc))
                found.doc[:] = 0
                wanted = one.towers[tower].table
                wanted = wanted[:, :1] if (doc, tower) == (BETWEEN, "enc") else wanted
                assert (found.table == wanted).all()
        labels = np.concatenate([ask.label for ask in example.asks])
        assert labels.tolist() == [*target, toy_vocab.sep] * 3


def test_texts_are_no_pairs(toy_vocab, pairs):
    fused, _ = tasks(toy_vocab)
    with pytest.raises(UsageError, match="--task.fusion"):
        fused.pretrain(Text([pairs[0][0]], np.zeros(1, int)), np.random.default_rng(0))


def nll(model, task, z, target):
    """What a response costs, given one latent."""
    batch = collate([[task.finetune([target], target, None)]]).to("cpu")
    states, _ = model(batch, model.latent(z[None], batch))
    return model.answer(states, batch, [batch.asks["lm"]]).loss.sum()


@pytest.mark.parametrize("packed", [True, False])
def test_the_loss_is_that_of_a_loop_over_pairs(toy_vocab, pairs, model, packed):
    fused, plain = tasks(toy_vocab)
    examples = [fused.finetune([source], target, None) for source, target in pairs]
    batch = collate([examples] if packed else [[one] for one in examples]).to("cpu")
    criterion = FusionConfig(beta=1.5, noise=0.2).build(toy_vocab)
    torch.manual_seed(4)
    loss = criterion(model, batch, 0, 1)
    width = model.config.latent
    torch.manual_seed(4)
    part = torch.rand(len(pairs), 1, dtype=torch.double)
    noise = torch.randn(len(pairs), width, dtype=torch.double)
    latents = [
        [model.posterior(collate([[plain.finetune([x], x, None)]]).to("cpu")).mean[0] for x in pair]
        for pair in pairs
    ]
    rec = 0.0
    for (_, target), (said, own), u, e in zip(pairs, latents, part, noise, strict=True):
        for z in (said, own, u * own + (1 - u) * said + 0.2 * e):
            rec += nll(model, plain, z, target)

    def distance(a, b):
        return float((a - b).detach().square().sum().sqrt()) / math.sqrt(width)

    pull = sum(distance(*pair) for pair in latents)
    push = sum(
        min(distance(one[side], other[side]) for other in latents if other is not one)
        for side in (CONTEXT, OWN)
        for one in latents
    )
    assert push > 0.1
    assert_near(float(loss.sums["rec"].detach()), float(rec.detach()))
    assert_near(float(loss.sums["fusion"]), 1.5 * (pull - push))
    assert_near(float(loss.parts["fusion/pull"]), pull)
    assert_near(float(loss.parts["fusion/push"]), push)
    counts = criterion.counts(batch)
    assert counts["rec"] == 3 * len(pairs) and counts["fusion"] == len(pairs)


def test_one_pair_has_no_neighbour(toy_vocab, pairs, model):
    fused, _ = tasks(toy_vocab)
    batch = collate([[fused.finetune([pairs[0][0]], pairs[0][1], None)]]).to("cpu")
    loss = FusionConfig().build(toy_vocab)(model, batch, 0, 1)
    assert loss.parts["fusion/push"] == 0 < loss.parts["fusion/pull"]
    loss.sums["fusion"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    model.zero_grad()


@pytest.fixture
def start(tmp_path, toy_data):
    def make(words, run="run"):
        flags = f"--arch optimus_tiny --data {toy_data / 'pairs'} --save-dir {tmp_path / run}"
        flags += " --max-source-len 24 --max-target-len 12 --precision fp32 --lr 3e-3"
        flags += " --lr-schedule constant --log-every 1 --valid none --seed 2"
        return prepare(parse_train(f"--task optimus {flags} {words}".split()))

    return make


FUSION = "--task.fusion on --criterion fusion --batch-texts 16 --max-tokens 4096"


@pytest.mark.slow
def test_training_draws_contexts_to_their_responses(start, tmp_path):
    train(start(f"{FUSION} --max-steps 80"))
    lines = map(json.loads, (tmp_path / "run/log.jsonl").read_text().splitlines())
    found = [one for one in lines if "train/fusion/pull" in one]
    ratio = [one["train/fusion/pull"] / one["train/fusion/push"] for one in found]
    assert sum(ratio[-10:]) < 0.8 * sum(ratio[:10])
    assert found[-1]["train/rec"] < found[0]["train/rec"]


def test_what_does_not_fit_is_refused(start):
    with pytest.raises(UsageError, match="cannot learn what --task optimus asks; .*fusion can"):
        start("--task.fusion on --max-steps 1")
    with pytest.raises(UsageError, match=r"--criterion fusion.*micro-batch"):
        train(start(f"{FUSION} --max-tokens 80 --max-steps 1".replace("--max-tokens 4096", "")))
    with pytest.raises(UsageError, match="is for --task optimus --task.fusion on"):
        train(start("--criterion fusion --batch-texts 4 --max-tokens 4096 --max-steps 1", "plain"))
    with pytest.raises(UsageError, match="--criterion.beta .*at least 0"):
        start(f"{FUSION} --criterion.beta -1 --max-steps 1")
