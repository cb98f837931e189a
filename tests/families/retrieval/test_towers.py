"""Two towers by truths: what each reads, the loss of one tower twice, both sides of a search."""

import numpy as np
import pytest
import torch
from exact_options import EXACT
from rounding import assert_near

import unitk
from unitk.errors import UsageError
from unitk.families.retrieval.config import ContrastiveConfig
from unitk.families.retrieval.task import Contrastive
from unitk.registry import get
from unitk.slots import collate
from unitk.training import loop
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train, prepare
from unitk.verbs import convert

RNG = np.random.default_rng(0)
FIXED = f"--precision fp32 {EXACT} --valid none --writers none --threads 1"
TWO = (
    "--task contrastive --task.towers two --arch two_towers_tiny --batch-texts 8 --max-tokens 2048"
)


def train(text):
    loop.train(prepare(parse_train(f"{text} {FIXED}".split())))


def words(*sizes):
    return [RNG.integers(20, 60, n) for n in sizes]


@pytest.fixture
def pairs():
    """Four sources with a hard negative each, and their targets."""
    return [(words(n, 3), *words(n + 1)) for n in (4, 7, 2, 5)]


def packed(towers, pairs, vocab):
    task = Contrastive(Contrastive.Config(negatives=1, towers=towers), vocab)
    first, second, *rest = (task.finetune(*pair, RNG) for pair in pairs)
    return collate([[first, second], *([one] for one in rest)]).to("cpu")


def test_sources_have_a_tower_of_their_own(pairs, toy_vocab):
    task = Contrastive(Contrastive.Config(negatives=1, towers="two"), toy_vocab)
    a, b, c, d, e = (np.array([n]) for n in range(30, 35))
    towers = task.finetune([np.r_[a, b], e], np.r_[c, d], RNG).towers
    C, S = toy_vocab.cls, toy_vocab.sep
    assert towers["source"].token.tolist() == [C, 30, 31, S]
    assert towers["target"].token.tolist() == [C, 32, 33, S, C, 34, S]
    assert towers["target"].doc.tolist() == [0] * 4 + [1] * 3


def test_equal_towers_have_the_loss_of_one(pairs, toy_vocab):
    """And other towers another loss; both get gradients."""
    torch.manual_seed(0)
    two = get("arch", "two_towers_tiny")().build(len(toy_vocab)).eval()
    one = get("arch", "bert_tiny")().build(len(toy_vocab)).eval()
    tensors = one.state_dict()
    two.load_state_dict(
        tensors | {f"source.{name}": x for name, x in tensors.items()}, strict=False
    )
    criterion = ContrastiveConfig(symmetric=True).build(toy_vocab)
    batches = {name: packed(name, pairs, toy_vocab) for name in ("one", "two")}
    assert criterion.counts(batches["two"]) == criterion.counts(batches["one"]) == {"pairs": 4.0}
    losses = [
        criterion(model, batch, 0, None).sums["pairs"]
        for model, batch in zip((one, two), batches.values(), strict=True)
    ]
    assert_near(losses[0], losses[1])
    losses[1].backward()
    for tower in two.towers.values():
        assert tower.layers[0].attention.qkv.weight.grad.abs().sum() > 0
    with torch.no_grad():
        two.towers["source"].layers[0].attention.qkv.weight.mul_(2)
        changed = criterion(two, batches["two"], 0, None).sums["pairs"]
    assert abs(float(changed - losses[0].detach())) > 1e-4


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_data):
    folder = tmp_path_factory.mktemp("towers") / "run"
    train(f"{TWO} --data {toy_data / 'pairs'} --max-steps 4 --lr 1e-3 --save-dir {folder}")
    return folder


def test_each_side_is_embedded_by_its_tower(run, tmp_path):
    text, other = "the baba kelo mipu.", "the lala."
    model = unitk.load(run)
    source, target = (model.embed([text], side=side)[0] for side in ("source", "target"))
    assert not np.allclose(source, target, atol=1e-3)
    (tmp_path / "texts.txt").write_text(f"{other}\n{text}\n")
    [found] = unitk.search([text], checkpoint=run, documents=[tmp_path / "texts.txt"], top=2)
    scores = {one["text"]: one["score"] for one in found["found"]}
    cosine = source @ target / np.linalg.norm(source) / np.linalg.norm(target)
    assert scores[text] == pytest.approx(cosine, abs=1e-5)
    with pytest.raises(UsageError, match="--side .*queries"):
        unitk.search([text], checkpoint=run, documents=[tmp_path / "texts.txt"], side="target")


def test_both_begin_as_a_model_of_one_tower(tmp_path, toy_data):
    one = f"--task mlm --arch bert_tiny --data {toy_data / 'text'} --max-steps 1 --lr 1e-3"
    train(f"{one} --max-tokens 512 --save-dir {tmp_path / 'one'}")
    begun = f"{TWO} --init-from {tmp_path / 'one'} --data {toy_data / 'pairs'} --max-steps 1"
    train(f"{begun} --lr 1e-12 --save-dir {tmp_path / 'two'}")
    before, after = (load(tmp_path / name / "last").tensors() for name in ("one", "two"))
    for name in ("embed.tokens.weight", "layers.1.attention.qkv.weight"):
        assert_near(after[name], before[name])
        assert_near(after[f"source.{name}"], before[name])


def test_what_two_towers_cannot_is_refused(run, tmp_path, toy_data):
    with pytest.raises(UsageError, match="--arch bert_tiny"):
        wrong = TWO.replace("two_towers_tiny", "bert_tiny")
        train(f"{wrong} --data {toy_data / 'pairs'} --max-steps 1 --save-dir {tmp_path}/x")
    for kind in ("hf", "sentence-transformers"):
        with pytest.raises(UsageError, match=f"--to {kind}: no class"):
            convert.run(f"--from unitk {run} --to {kind} {tmp_path / kind}".split())
