"""Batches of one shape: the losses of other batches, and one graph of the layers."""

from itertools import islice

import pytest
import torch
from rounding import assert_near
from torch._dynamo.testing import CompileCounter

from unitk.errors import UsageError
from unitk.kernels import flash
from unitk.models import attention
from unitk.training import device
from unitk.training.loop import Trainer

WORDS = [
    "--task mlm --arch bert_tiny",
    "--task lm --arch gpt2_tiny",
    "--task lm --arch modern_tiny",
    "--task glm_infill --arch glm_tiny",
]
RUN = "--max-steps 9 --arch.dropout 0 --batch-tokens 1600 --max-tokens 1600"


@pytest.mark.every(2)
@pytest.mark.parametrize("words", WORDS)
def test_losses_and_gradients_are_those_of_fewer_pads(start, words):
    given = [Trainer(start(f"{RUN} {words} {more}", run=more)) for more in ("", "--static")]
    both = zip(*(islice(one.updates(), 3) for one in given), strict=True)
    shapes = set()
    for found in both:
        values = []
        for one, (update, *_) in zip(given, found, strict=True):
            computed = one.compute(update)
            values.append([*computed.sums.values(), computed.norm])
            one.plan.zero_grad()
        for plain, padded in zip(*values, strict=True):
            assert_near(padded, plain)
        for batch in found[1][0].batches:
            if found[1][0].cursor:  # the last update of an epoch has fewer rows
                shapes.add(batch.towers["x"].shape)
            assert all(len(ask.rows) % 256 == 0 for ask in batch.asks.values())
    assert len(shapes) == 1


def by_hand(line, packed, longest, dropout, scale):
    """A kernel that is no operation of attention: what a graph holds is counted here."""
    return line[0] + line[2]


@pytest.mark.every(2)
@pytest.mark.parametrize("words", WORDS[:3])
def test_batches_of_all_sizes_are_one_graph(start, words, monkeypatch):
    torch._dynamo.reset()
    counter = CompileCounter()
    real = torch.compile

    def counted(function, **options):
        assert options == {"dynamic": False}
        return real(function, backend=counter, fullgraph=True, **options)

    monkeypatch.setattr(device.torch, "compile", counted)
    monkeypatch.setattr(flash, "fits", lambda *given: True)
    monkeypatch.setattr(flash, "attend", by_hand)
    monkeypatch.setattr(attention, "scores_by_products", lambda *given: False)
    trainer = Trainer(start(f"{RUN} {words} --compile --static --device cpu"))
    trainer.model.train()
    for update, *_ in islice(trainer.updates(), 5):
        if update.cursor:  # the last one of an epoch has fewer rows
            trainer.update(update)
    assert counter.frame_count == 1


def test_what_static_batches_exclude(start):
    with pytest.raises(UsageError, match="oom-retry"):
        start("--max-steps 3 --static --oom-retry")
    trainer = Trainer(start("--max-steps 3 --task mass --arch mass_tiny --static"))
    with pytest.raises(UsageError, match="one tower"):
        next(trainer.updates())
