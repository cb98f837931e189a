"""Every head in fewer bits, on several ranks and in shards: the numbers of fp32 on one rank."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from ranks import run_ranks
from safetensors.torch import load_file

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.kernels.products import has_onednn
from unitk.kernels.weights import prepare_weights
from unitk.models import archs
from unitk.slots import Ask, Example, collate, stay
from unitk.tasks.mlm import MLM

V, DOCS = 40, 2
SIZE = {"class": 2, "tag": 3, "candidates": 30, "sbo": 6, "attend": 3}
SIZE |= {"class_mean": 2, "class_late": 2, "classes": 3, "project": 3}
# batch normalization depends on the texts that a rank reads together
HEADS = [kind for kind in registry.names("head") if kind not in ("lm", "concat", "difficulty")]
GIVEN = tuple(f"{kind}:x:{SIZE[kind]}" if kind in SIZE else f"{kind}:x" for kind in HEADS)


def asks(kind, ids, starts):
    """An ask of this head, whose labels are functions of the words."""
    head, one = "lm" if kind == "lm" else f"{kind}:x", np.ones(1, np.float32)
    rows, label, among = starts[:1, None], ids[1:2] % SIZE.get(kind, V), None
    match kind:
        case "regress" | "regress_mean" | "regress_late":
            rows = rows if kind == "regress" else np.arange(4)[None]
            label = (ids[1:2] % 7).astype(np.float32)
        case "project":
            label = (ids[None, 1:4] % 7).astype(np.float32)
        case "classes":
            label = (ids[None, 1:4] % 2).astype(np.float32)
        case "detect":
            label = ids[1:2] % 2
        case "class_mean" | "class_late":
            rows = np.arange(4)[None]
        case "choice":
            rows, label = starts[None], ids[1:2] % DOCS
        case "span":
            rows, label = np.arange(4)[None], np.array([[ids[1] % 4, ids[2] % 4]])
        case "sbo":
            rows, label = np.array([[0, 3, 2]]), ids[2:3] % V
        case "candidates":
            among = np.arange(30)[::-1]  # those of all examples: a batch has no others
            label = 29 - ids[1:2] % 30
    return Ask(kind, head, "x", rows, label, one, among)


def example(ids):
    """Two docs of the same words, forwards and backwards, and an ask of every head."""
    ids = np.resize(ids, max(len(ids), 4))
    places = np.arange(len(ids))
    slots = stay(ids, places) + stay(ids[::-1], places, doc=1)
    starts = np.array([0, len(ids)])
    return Example({"x": slots}, [asks(kind, ids, starts) for kind in ("lm", *HEADS)])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return replace(archs.preset("thu_ernie_tiny"), heads=GIVEN, init_std=0.1).build(V).eval()


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    made = [example(rng.integers(V, size=n)) for n in (5, 9, 4, 12, 7, 8)]
    return collate([made[:3], made[3:]]).to("cpu")


@torch.no_grad()
def losses(model, batch):
    states, _ = model(batch)
    return {name: model.answer(states, batch, [ask]).loss for name, ask in batch.asks.items()}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", *["int8"] * has_onednn()])
def test_heads_of_weights_that_are_ready_for_decoding(model, batch, precision):
    exact, rough = (
        losses(model, batch),
        losses(prepare_weights(copy.deepcopy(model), precision), batch),
    )
    for kind, wanted in exact.items():
        assert rough[kind].dtype == torch.float32
        near = 1e-5 if precision == "fp32" else 0.03
        assert torch.allclose(rough[kind], wanted, rtol=near, atol=near), kind


# PyTorch does not see that oneDNN's LSTM has no bf16 then
@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="oneDNN may lack bf16")
def test_heads_in_training_with_16_bits(model, batch):
    """Losses are sums in fp32; no gradient is further off than its bits."""
    found = []
    for kind in (torch.float32, torch.bfloat16):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind is torch.bfloat16):
            loss = CrossEntropy()(model, batch, 0, 1)
        assert all(one.dtype == torch.float32 for one in loss.sums.values())
        sum(loss.sums.values()).backward()
        grads = [p.grad.flatten() for p in model.heads.parameters() if p.requires_grad]
        found.append((loss.sums, torch.cat(grads)))
    (exact, right), (rough, close) = found
    for name, wanted in exact.items():
        assert rough[name].item() == pytest.approx(wanted.item(), rel=0.02), name
    assert (close - right).norm() < 0.03 * right.norm()


def test_words_of_long_spans_share_the_last_place(model):
    """SpanBERT's code leaves them out: there is no place of their own in its table."""
    slots, label = stay(np.arange(20), np.arange(20)), np.array([5, 6])
    far = [Ask("ask", "sbo:x", "x", np.array([[0, 19, at]] * 2), label, np.ones(2, "f"))
           for at in (SIZE["sbo"], SIZE["sbo"] + 1, 18, 3)]  # fmt: skip
    found = [losses(model, collate([[Example({"x": slots}, [a])]]).to("cpu"))["ask"] for a in far]
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[3])


class EveryHead(MLM):
    """Asks every head about a text."""

    def __init__(self, config, vocab):
        super().__init__(config, vocab)
        self.heads = GIVEN

    def slots(self, n):
        return 2 * np.maximum(n, 4)

    def pretrain(self, text, rng):
        return example(text.ids % V)


@pytest.mark.slow
def test_ranks_and_shards_are_one_run(toy_data, tmp_path, monkeypatch):
    monkeypatch.setitem(registry._entries["task"], "every_head", EveryHead)
    monkeypatch.setitem(registry._places, ("task", "every_head"), "tests:1")
    runs = {"one": (1, ""), "ranks": (2, ""), "shards": (2, "--shard")}
    tensors, curves = [], []
    for name, (world, more) in runs.items():
        words = f"--task every_head --arch thu_ernie_tiny --arch.heads {','.join(GIVEN)}"
        words += f" --data {toy_data / 'text'} --save-dir {tmp_path / name} --blocks line"
        words += " --max-tokens 160 --batch-texts 12 --lr 1e-3 --precision fp32 --valid none"
        words += " --products torch --threads 1 --log-every 1 --max-steps 4 --writers none"
        assert run_ranks(f"{words} {more}", world) == [0] * world
        log = map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines())
        curves.append([event["train/loss"] for event in log if "train/loss" in event])
        tensors.append(load_file(tmp_path / name / "last" / "model.safetensors"))
    first = tensors[0]
    for curve, other in zip(curves[1:], tensors[1:], strict=True):
        assert curve == pytest.approx(curves[0], rel=1.5e-5)
        assert other.keys() == first.keys()
        assert max(float((first[name] - other[name]).abs().max()) for name in first) < 1e-3
