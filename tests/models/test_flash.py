"""FlashAttention by documents: when a batch has them, and that they are the rule."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.data.batching import make_batch
from unitk.kernels import flash
from unitk.masks import dense
from unitk.models import archs
from unitk.models.model import build
from unitk.models.state import Reading
from unitk.packed import PackedDocs, with_documents
from unitk.slots import BORN, NEVER, Example, collate, probe, query, stay


def words(length, at=0, doc=0):
    rng = np.random.default_rng(length)
    return stay(rng.integers(1, 40, length), np.arange(length), at=at, doc=doc)


def rows_of(*rows):
    return with_documents(collate([[Example({"x": one}) for one in row] for row in rows]))


def rising(length):
    return words(length, at=np.arange(length))


CASES = {
    "bidirectional, packed": (rows_of([words(9), words(5)], [words(13)]), False),
    "bidirectional, alone": (rows_of([words(16)], [words(12)]), False),
    "causal, packed": (rows_of([rising(9), rising(1), rising(5)], [rising(13)]), True),
    "causal, alone": (rows_of([rising(16)], [rising(7)]), True),
    "several docs of an example": (rows_of([words(9) + words(4, doc=1)], [words(3)]), False),
}


@pytest.mark.parametrize("name", CASES)
def test_documents_and_pads_in_a_line_are_the_rule(name):
    batch, causal = CASES[name]
    packed, table = batch.packed["x"], batch.towers["x"]
    assert packed.causal == causal
    assert packed.bounds.dtype == np.int32 and len(packed.bounds) == flash_size(packed)
    seen = np.zeros((table[0].size,) * 2, bool)
    for start, stop in zip(packed.bounds, packed.bounds[1:], strict=False):
        block = np.ones((stop - start,) * 2, bool)
        seen[start:stop, start:stop] = np.tril(block) if causal else block
    line = table.reshape(len(table), -1)
    real = line[BORN] < NEVER
    assert (seen == dense(line, line))[real].all()


def flash_size(packed):
    return 1 << (len(packed.bounds) - 1).bit_length()


@pytest.mark.parametrize(
    "example",
    [
        words(6, at=[0, 0, 0, 1, 2, 3]),  # a prefix
        words(6) + probe([1, 1], [3, 4], at=4),
        words(6) + query([1, 1], [3, 4], at=1),
        rising(5) + rising(5),  # times begin again within a document
    ],
)
def test_other_rules_have_no_documents(example):
    assert not rows_of([example, words(3)]).packed


def test_a_document_in_two_pieces_is_none():
    assert not rows_of([words(3) + words(3, doc=1) + words(3)]).packed


def by_hand(line, packed, longest, dropout, scale):
    """What the kernel computes, document by document."""
    assert not dropout
    bounds = packed.bounds.tolist()
    found = []
    for start, stop in zip(bounds, bounds[1:], strict=False):
        assert stop - start <= longest
        given = (one[start:stop].transpose(0, 1)[None] for one in line)
        own = F.scaled_dot_product_attention(
            *given, is_causal=packed.causal, scale=scale, enable_gqa=True
        )
        found.append(own[0].transpose(0, 1))
    return torch.cat(found)


@pytest.mark.parametrize("arch", ["bert_tiny", "gpt2_tiny", "qwen3_tiny"])
@pytest.mark.parametrize("name", CASES)
def test_states_and_gradients_are_those_of_the_mask(name, arch, monkeypatch):
    """The kernel itself is CUDA's: here its plain definition."""
    torch.manual_seed(0)
    model = build(archs.preset(arch), 50).eval()
    batch = CASES[name][0].to("cpu")
    table = batch.towers["x"]
    real = table[BORN] < NEVER
    monkeypatch.setattr(flash, "attend", by_hand)
    found = []
    for fits in (False, True):
        monkeypatch.setattr(flash, "fits", lambda *given, fits=fits: fits)
        model.zero_grad()
        states = model.decoder.encode(Reading.of(batch, "x"))[real]
        (states * torch.linspace(-1, 1, states.numel()).view(states.shape)).sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append([states.detach(), *grads])
    for one, other in zip(*found, strict=True):
        assert_near(one, other)


def test_batches_of_training_bring_their_documents():
    batch = make_batch([Example({"x": rising(n)}) for n in (9, 16, 3)])
    packed = batch.to("cpu").packed["x"]
    assert isinstance(packed, PackedDocs) and packed.causal and packed.bounds.dtype == torch.int32
