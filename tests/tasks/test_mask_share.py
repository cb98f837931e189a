"""A mask share that is a schedule: at each update what a constant share of its value draws."""

from dataclasses import replace

import numpy as np
import pytest

from unitk import registry
from unitk.data.batching import Feed, FixedBatches
from unitk.data.cuts import AT_THE_END
from unitk.errors import UsageError
from unitk.optim.schedules import Constant, Linear
from unitk.options.fields import Schedule, parse_value, render

FALLING = "linear:value=0.3,floor=0.5"
"""GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159): .30 - .15 step / steps."""
TASKS = [n for n in registry.names("task") if hasattr(registry.get("task", n).Config, "mask_ratio")]


def made(name, vocab, share):
    kind = registry.get("task", name)
    return kind(kind.Config(mask_ratio=share), vocab)


def assert_same(one, two):
    assert one.towers.keys() == two.towers.keys()
    for name, slots in one.towers.items():
        assert (slots.table == two.towers[name].table).all()
    for a, b in zip(one.asks, two.asks, strict=True):
        assert a.name == b.name and (a.rows == b.rows).all() and (a.label == b.label).all()


@pytest.mark.parametrize("name", TASKS)
def test_an_update_draws_what_a_constant_share_draws(name, toy_vocab, some_text):
    schedule = Linear(value=0.3, floor=0.5)
    scheduled = made(name, toy_vocab, schedule)
    for step in (1, 30, 70, 100):
        constant = made(name, toy_vocab, 0.3 - 0.15 * step / 100)
        for n in (1, 7, 60, 400):
            text = some_text(toy_vocab, n, np.random.default_rng(n))
            now = replace(text, when=(step, 100))
            one, two = (
                task.pretrain(each, np.random.default_rng([step, n]))
                for task, each in ((scheduled, now), (constant, now))
            )
            assert_same(one, two)
    # all but training: as at the end
    assert_same(
        scheduled.pretrain(text, np.random.default_rng(1)),
        constant.pretrain(text, np.random.default_rng(1)),
    )
    assert text.when == AT_THE_END


@pytest.mark.parametrize("name", TASKS)
def test_bounds_hold_for_the_largest_share_and_a_share_of_0_hides_a_token(
    name, toy_vocab, some_text
):
    schedule = Constant(value=0.4, warmup=100)
    task, most = made(name, toy_vocab, schedule), made(name, toy_vocab, 0.4)
    lengths = np.arange(1, 300)
    assert (task.slots(lengths) == most.slots(lengths)).all()
    for n in (1, 3, 20):
        text = replace(some_text(toy_vocab, n, np.random.default_rng(n)), when=(0, 100))
        assert sum(len(ask.label) for ask in task.pretrain(text, np.random.default_rng(n)).asks)


def test_hidden_tokens_have_the_frequency_of_the_schedule(start):
    """Through the whole road of the data; validation has the share at the end."""
    words = f"--task mlm --arch bert_tiny --max-steps 100 --task.mask-ratio {FALLING}"
    words += " --task.rounding random --blocks stream"
    examples = start(words).data.train
    feed = Feed(examples=examples, seed=1, max_tokens=4000, batch_tokens=4000)

    def share(batches):
        hidden = sum(batch.count["mlm"] for batch in batches)
        return hidden / sum(batch.num_real for batch in batches)

    for step in (1, 20, 50, 80, 100):
        found = share(next(feed.updates(0, 0, step - 1, 100)).batches)
        # of 60 texts of 64 tokens each count is less than one off its mean: a deviation of 0.001
        assert found == pytest.approx(0.3 - 0.15 * step / 100, abs=0.004)
    fixed = [batch for _, batch in FixedBatches(examples, 4000)]
    assert share(fixed) == pytest.approx(0.15, abs=0.004)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("share", [0.0, 1.5, Constant(value=1.5), Constant(value=0.0)])
def test_a_share_out_of_bounds_is_refused(name, share, toy_vocab):
    with pytest.raises(UsageError, match=r"--task.mask-ratio must be.* \(0, .*got"):
        made(name, toy_vocab, share)


def test_the_text_of_a_schedule_reads_back():
    schedule = parse_value(FALLING, float | Schedule, "--task.mask-ratio")
    assert schedule == Linear(value=0.3, floor=0.5)
    assert parse_value(render(schedule), float | Schedule, "x") == schedule
    assert parse_value("0.2", float | Schedule, "x") == 0.2
