"""Several tasks in one run: one task to a micro-batch, shares, losses, what is refused."""

import json
from itertools import islice, product

import numpy as np
import pytest

from unitk.data.batching import Update
from unitk.errors import UsageError
from unitk.slots import NOW
from unitk.training.reporting.sinks import read_events
from unitk.training.start import parse_train, prepare

MIXED = "--task mlm=0.75 --task unilm=0.25 --task.unilm.nsp off --arch unilm_tiny"


@pytest.fixture
def begin(tmp_path, toy_data):
    """A checked start of a run: `begin(MIXED)`."""

    def make(words, run="run", data="text"):
        base = f"--data {toy_data / data} --save-dir {tmp_path / run} --precision fp32 --lr 1e-3"
        words = f"{base} --block-size 64 --max-tokens 400 --batch-tokens 1600 {words}"
        return prepare(parse_train(words.split()))

    return make


def feed_of(start):
    from unitk.training.loop import Trainer

    return Trainer(start).feed


def test_a_micro_batch_holds_one_task_and_an_update_all_examples(begin):
    feed = feed_of(begin(f"{MIXED} --max-steps 1"))
    updates, picked = feed.updates(), []
    for _ in range(6):
        update = next(updates)
        seen = 0
        for batch in update.batches:
            assert len({name.partition(".")[0] for name in batch.asks}) == 1
            picked += [next(iter(batch.asks))] * len(batch.owner)
            seen += len(batch.owner)
        assert seen == len(update.ids)
        assert update.weight("mlm.mlm") == pytest.approx(0.75)
        assert update.weight("unilm.mlm") == pytest.approx(0.25, abs=1e-3)
    share = np.mean([name.startswith("mlm.") for name in picked])
    assert len(picked) > 150 and share == pytest.approx(0.75, abs=0.1)


def test_the_pick_does_not_depend_on_ranks_and_resumption(begin):
    from dataclasses import replace

    feed = feed_of(begin(f"{MIXED} --max-steps 1"))
    whole = [next(u) for u in [feed.updates()] for _ in range(4)]
    again = next(feed.updates(whole[1].epoch, whole[1].cursor, step=2))
    for one, two in zip(again.batches, whole[2].batches, strict=True):
        assert (one.towers["x"] == two.towers["x"]).all() and list(one.asks) == list(two.asks)
    ranks = [next(replace(feed, world=2, rank=rank).updates()) for rank in range(2)]
    total = {name: 0.0 for b in whole[0].batches for name in b.count}
    for part in [whole[0], *ranks]:
        sign = -1 if part is whole[0] else 1
        for batch in part.batches:
            for name, count in batch.count.items():
                total[name] += sign * count
    assert not any(total.values())


def test_shares_may_be_schedules_of_the_step(begin):
    words = "--task mlm=linear:value=1 --task unilm=0.5 --task.unilm.nsp off --arch unilm_tiny"
    feed = feed_of(begin(f"{words} --max-steps 10"))
    updates = feed.updates(step=0, total=10)
    shares = [next(updates).shares for _ in range(10)]
    assert shares[4] == {"mlm": pytest.approx(0.5), "unilm": pytest.approx(0.5)}
    assert shares[9] == {"mlm": 0.0, "unilm": 1.0}
    words = words.replace("unilm=0.5", "unilm=0")
    with pytest.raises(UsageError, match="not all 0; step 10: mlm 0, unilm 0"):
        list(islice(feed_of(begin(f"{words} --max-steps 10")).updates(total=10), 10))


def test_what_is_best_is_judged_by_the_shares_of_the_step(begin, tmp_path):
    from unitk.training.loop import train

    words = "--task mlm=linear:value=1 --task unilm=0.5 --task.unilm.nsp off --arch unilm_tiny"
    train(begin(f"{words} --max-steps 10 --valid-every 5", run="run"))
    events = read_events(tmp_path / "run" / "log.jsonl")
    judged = {one["step"]: one for one in events if one["kind"] == "valid"}
    for step, mlm, unilm in ((5, 0.5, 0.5), (10, 0.0, 1.0)):
        expected = mlm * judged[step]["valid.mlm/loss"] + unilm * judged[step]["valid.unilm/loss"]
        assert judged[step]["valid/loss"] == pytest.approx(expected)


@pytest.mark.slow
def test_a_run_logs_and_validates_every_task_and_resumes(begin, tmp_path, toy_data):
    from unitk.training.loop import train
    from unitk.training.saving.checkpoint import load

    words = f"{MIXED} --log-every 1 --valid-every 4 --save-every 4 --best-metric valid.unilm/loss"
    train(begin(f"{words} --max-steps 8", run="whole"))
    train(begin(f"{words} --max-steps 8 --lr-schedule constant", run="other"))
    stopped = f"{words} --max-steps 4 --lr-schedule constant"
    train(begin(stopped, run="parts"))
    train(begin(stopped.replace("steps 4", "steps 8") + " --resume", run="parts"))

    def events(run):
        lines = (tmp_path / run / "log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    last = [event for event in events("whole") if event["kind"] == "valid"][-1]
    assert last["valid.mlm/mlm"] == last["valid.mlm/loss"]
    both = 0.75 * last["valid.mlm/loss"] + 0.25 * last["valid.unilm/loss"]
    assert last["valid/loss"] == pytest.approx(both)
    steps = {e["step"]: e["train.mlm/loss"] for e in events("other") if "train.mlm/loss" in e}
    again = {e["step"]: e["train.mlm/loss"] for e in events("parts") if "train.mlm/loss" in e}
    assert steps == again and len(steps) == 8
    with pytest.raises(UsageError, match="--task is needed: .*trained.*mlm, unilm"):
        load(tmp_path / "whole")
    assert type(load(tmp_path / "whole", task_name="unilm").task).__name__ == "UniLM"
    with pytest.raises(UsageError, match="--task lm: .*trained.*mlm, unilm"):
        load(tmp_path / "whole", task_name="lm")


def test_the_loss_is_the_shares_of_the_means(begin):
    """Gradients of an update are those of the sum of share times mean."""
    import torch

    from unitk.training.loop import Trainer

    trainer = Trainer(begin(f"{MIXED} --max-steps 1"))
    update, *_ = next(trainer.updates())
    trainer.model.eval()
    means = {"mlm": [0.0, 0.0], "unilm": [0.0, 0.0]}
    for batch in update.batches:
        for name, value in trainer.criterion(trainer.model, batch, 0, 1).sums.items():
            means[name.partition(".")[0]][0] += value
            means[name.partition(".")[0]][1] += batch.count[name]
    mean = {name: total / count for name, (total, count) in means.items()}
    # exactly the shares but for updates that lack a task, which 25 and more texts hardly do
    loss = sum(update.weight(f"{name}.mlm") * one for name, one in mean.items())
    assert loss.item() == pytest.approx(
        0.75 * mean["mlm"].item() + 0.25 * mean["unilm"].item(), 1e-3
    )
    weight = trainer.model.decoder.embed.tokens.weight
    [expected] = torch.autograd.grad(loss, [weight])
    found = []
    trainer.plan.step = lambda *bad: found.append(weight.grad.clone())
    trainer.config = trainer.config.__class__(**{**vars(trainer.config), "clip_norm": 0.0})
    trainer.update(update)
    torch.testing.assert_close(found[0], expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("shares", [(15 / 16, 1 / 16), (0.5, 0.5), (0.2, 0.3, 0.5), (1.0, 0.0)])
def test_over_updates_each_mean_counts_its_share(n, shares):
    """Summed over all ways to pick tasks for n texts, by their probability; also where updates are
    so small that some lack a task."""
    named = {f"t{number}": share for number, share in enumerate(shares)}
    update = Update(0, 0, [], [], np.arange(n), named)
    counted = np.zeros(len(shares))
    for picks in product(range(len(shares)), repeat=n):
        for task in set(picks):
            chance = np.prod([shares[pick] for pick in picks])
            counted[task] += chance * update.weight(f"t{task}.lm") if chance else 0
    assert counted == pytest.approx(shares)


def test_fifteen_of_sixteen_texts_are_masked(begin):
    """GPT-BERT's hybrid: shares 15 and 1 are those of texts and of the loss, in one process."""
    words = "--task mlm=15 --task.mlm.shift on --task lm=1 --arch gpt2_tiny --max-steps 1"
    feed, seen = feed_of(begin(words)), {"mlm": 0, "lm": 0}
    updates = feed.updates()
    for _ in range(60):
        update = next(updates)
        assert update.shares == {"mlm": 15 / 16, "lm": 1 / 16}
        for batch in update.batches:
            [name] = {ask.partition(".")[0] for ask in batch.asks}
            seen[name] += len(batch.owner)
            x = batch.towers["x"]
            assert (x[NOW] > 0).any() == (name == "lm")
    texts = sum(seen.values())
    deviation = np.sqrt(15 / 16 / 16 / texts)
    assert texts > 1000 and abs(seen["lm"] / texts - 1 / 16) < 4 * deviation


def test_a_hybrid_writes_and_fills_from_one_checkpoint(begin, tmp_path):
    import unitk
    from unitk.training.loop import train

    words = "--task mlm=1 --task.mlm.shift on --task lm=1 --arch gpt2_tiny --max-steps 2"
    train(begin(words))
    fills = unitk.load(tmp_path / "run", task="mlm")
    assert fills.task.config.shift and "[MASK]" not in fills.infill("The [MASK] of it.")[0][0].text
    writes = unitk.load(tmp_path / "run", task="lm")
    assert writes.generate(["The"], max_len=4)[0][0].hypothesis.ids.size
    assert writes.score(["The"], ["of it."])[0].hypothesis.log_prob < 0
    for one, two in zip(fills.model.parameters(), writes.model.parameters(), strict=True):
        assert (one == two).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--task mlm=1 --task mass=1 --arch unilm_tiny",
            "--task mass needs an encoder and a decoder, but --arch unilm_tiny has one tower",
        ),
        (
            "--task mlm=1 --task seq2seq=1 --arch unilm_tiny",
            "task seq2seq cannot pre-train on texts; it learns from pairs; .*glm_infill, lm, ",
        ),
        ("--task mlm=1 --task pmlm=1 --arch unilm_tiny", "task pmlm needs --arch.num-virtual 1"),
    ],
)
def test_what_cannot_be_mixed_is_named(begin, words, message):
    with pytest.raises(UsageError, match=message):
        begin(f"{words} --max-steps 1")


CUTS = "--task mlm=0.5 --task.mlm.nsp on --task lm=0.5 --arch unilm_tiny --arch.class-heads nsp:2"


def test_tasks_of_other_cuts_show_every_text_once(begin):
    """Sentence pairs beside lines: half of the planned examples have about half of each."""
    source = begin(f"{CUTS} --blocks line --max-steps 1").data.train
    planned = np.arange(len(source.bounds(3)))
    sizes = {}
    for name, part in source.parts.items():
        ids = part.group(3, planned) if part.recut else planned
        assert sorted(ids) == list(range(len(part.bounds(3))))  # each once, in whatever order
        some = part.group(3, planned[::2]) if part.recut else planned[::2]
        assert 0.4 < len(some) / len(ids) < 0.6
        sizes[name] = len(ids)
    assert sizes["lm"] == 200 and sizes["mlm"] < 150


def test_a_plan_over_other_cuts_bounds_what_is_drawn_and_shares_hold(begin):
    feed = feed_of(begin(f"{CUTS} --max-steps 1"))
    updates, tokens = feed.updates(), {"mlm": 0, "lm": 0}
    for _ in range(40):
        update = next(updates)
        bound = feed.examples.bounds(update.epoch - (update.cursor == 0))[update.ids].sum()
        assert sum(batch.num_real for batch in update.batches) <= bound
        for batch in update.batches:
            (name,) = {ask.partition(".")[0] for ask in batch.asks}
            tokens[name] += batch.num_real
            assert ("mlm.nsp" in batch.asks) == (name == "mlm")
    assert tokens["lm"] / sum(tokens.values()) == pytest.approx(0.5, abs=0.1)


def test_mixed_cuts_resume_exactly(begin):
    feed = feed_of(begin(f"{CUTS} --task.mlm.copies 2 --max-steps 1"))
    whole = [next(u) for u in [feed.updates()] for _ in range(5)]
    again = next(feed.updates(whole[3].epoch, whole[3].cursor, step=4))
    for one, two in zip(again.batches, whole[4].batches, strict=True):
        assert (one.towers["x"] == two.towers["x"]).all()


def test_pairs_are_mixed_too(begin):
    feed = feed_of(
        begin("--task lm=1 --task unilm=1 --arch unilm_tiny --max-steps 1", data="pairs")
    )
    names = {name for batch in next(feed.updates()).batches for name in batch.asks}
    assert names == {"lm.lm", "unilm.mlm"}


def test_gpts_auxiliary_loss_is_half_of_a_mean_whatever_the_lengths(begin):
    """GPT, section 3.2: L2 + 0.5 L1, so that the target has two thirds of the gradient."""
    import torch

    from unitk.criterions.base import Loss
    from unitk.training.loop import Trainer

    words = "--task lm --task.source-weight 0.5 --arch gpt2_tiny --max-steps 1"
    trainer = Trainer(begin(words, data="pairs"))
    update, *_ = next(trainer.updates())
    nats = {name: torch.tensor(1.0, requires_grad=True) for name in ("lm", "source")}

    class Equal:
        """Each token costs as much, so many nats."""

        def counts(self, batch):
            return batch.count

        def __call__(self, model, batch, step, total):
            return Loss({name: count * nats[name] for name, count in batch.count.items()}, {})

    trainer.criterion, counts = Equal(), {"lm": 0.0, "source": 0.0}
    for batch in update.batches:
        counts = {name: counts[name] + batch.count[name] for name in counts}
    assert counts["source"] > 1.2 * counts["lm"]
    found = trainer.passes(update, counts)
    assert {name: found[name].item() for name in counts} == counts
    assert nats["lm"].grad.item() == pytest.approx(1)
    assert nats["source"].grad.item() == pytest.approx(0.5)
