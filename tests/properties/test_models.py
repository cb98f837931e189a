"""What holds for every registered task with a small model of its default architecture."""

from dataclasses import replace
from pathlib import Path

import entity_files
import numpy as np
import other_archs
import pytest
import torch
from paper_archs import arch_of
from rounding import assert_near
from torch.nn.attention.flex_attention import create_mask

from unitk import registry
from unitk.data.batching import make_batch
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.kernels.flex import BLOCK, render_flex, render_flex_cross
from unitk.masks import cross, dense
from unitk.models.stack import Stack
from unitk.options.config import options
from unitk.slots import collate, lm
from unitk.tasks.base import Task

TASKS = [*registry.names("task"), "mlm gpt2_mini", "seq2seq t5_mini", "mass t5_v1_1_small"]
DISTANCES = ["lm distances", "glm_infill distances_seg", "unilm distances_seg", "mass distances2"]
"""With scores that depend on the query and on distances."""
DENSE = [*DISTANCES, "xlnet"]
"""What FlexAttention refuses."""
RECURRENT = ["lm awd_lstm_tiny", "lm siatl_tiny"]
TASKS += [*DISTANCES, *other_archs.PAIRS, *RECURRENT]
"""Registered names, some with an architecture other than their own."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module")
def linked(tmp_path_factory, toy_vocab):
    OPTIONS["thu_ernie"] = entity_files.write_entities(
        tmp_path_factory.mktemp("entities"), toy_vocab, 100
    )


OPTIONS = {"cloze": {"patterns": "sst2"}}


def build(name, vocab):
    """The task, and a model of its architecture, or of that named after it: two narrow layers."""
    given, (name, _, arch) = name, name.partition(" ")
    cls = registry.get("task", name)
    own = cls.Config(**OPTIONS.get(name if name == "cloze" else given, {}))
    config = registry.get("arch", arch or arch_of(cls))()
    small = {"num_layers": 2, "width": 32, "num_heads": 2, "ffn_width": 64}
    small |= {"dropout": 0.0, "attention_dropout": 0.0}
    task = cls(own, vocab)
    task = task.with_trained(labels=("no", "yes") if task.form else ())
    if arch or task.table_heads or task.needs_criterion:
        small |= {"num_virtual": len(task.virtual), "heads": task.heads}
    torch.manual_seed(1)
    own = {option.name for option in options(type(config))}
    config = replace(config, **{key: value for key, value in small.items() if key in own})
    return task, other_archs.without_zeros(config.build(len(task.vocab)).eval())


def examples(task, vocab, count=7):
    return [asking(one) for one in learnt(task, vocab, count)]


def learnt(task, vocab, count=7):
    rng = np.random.default_rng(0)
    made = []
    for n in rng.integers(3, 40, count).tolist():
        words = rng.integers(30, len(vocab), n)
        try:
            made.append(task.pretrain(Text([words], np.zeros(1, int)), rng))
        except UsageError:
            if type(task).finetune is Task.finetune:
                pytest.skip("learns from labelled texts alone")
            made.append(task.finetune([words[: n // 2]], words[n // 2 :], rng))
    return [with_all_candidates(one, made) for one in made]


def asking(example):
    """An example that asks nothing is asked for its own tokens, which shows all states."""
    if example.asks:
        return example
    tokens = example.towers["x"].token
    return replace(example, asks=[lm(np.arange(len(tokens)), tokens)])


def with_all_candidates(example, made):
    """Entities are compared with those of the batch: each example names those of all."""
    named = [ask.among for one in made for ask in one.asks if ask.among is not None]
    every = np.unique(np.concatenate([*named, np.zeros(0, int)]))
    asks = [
        ask
        if ask.among is None
        else replace(ask, among=every, label=np.searchsorted(every, ask.among[ask.label]))
        for ask in example.asks
    ]
    return replace(example, asks=asks)


def losses(model, batch):
    """Each asked row's loss in the order of the examples, one ask after the other."""
    batch = batch.to("cpu")
    with torch.no_grad():
        states, _ = model(batch, model.condition(batch))
        found = {}
        for name, ask in batch.asks.items():
            found[name] = model.answer(states, batch, [ask], ask.weight**0).loss
    return torch.cat([found[name] for name in sorted(found)])


def numbers(rows):
    """For each loss of `losses`, which example of the rows it belongs to."""
    made = [example for row in rows for example in row]
    names = sorted({ask.name for example in made for ask in example.asks})
    return np.concatenate(
        [
            np.full(len(ask.label), number)
            for name in names
            for number, example in enumerate(made)
            for ask in example.asks
            if ask.name == name
        ]
    )


@pytest.mark.parametrize("name", TASKS)
def test_padding_and_packing_change_nothing(name, toy_vocab):
    task, model = build(name, toy_vocab)
    made = examples(task, toy_vocab)
    each = [losses(model, collate([[one]])) for one in made]
    number = numbers([made])
    alone = torch.empty(len(number))
    for i, part in enumerate(each):
        alone[number == i] = part
    padded = losses(model, collate([[one] for one in made]))
    packed = losses(model, collate([made[:3], made[3:5], made[5:]]))
    assert_near(padded, alone)
    assert_near(packed, alone)


@pytest.mark.parametrize("name", TASKS)
def test_the_order_of_rows_changes_nothing_bit_for_bit(name, toy_vocab):
    task, model = build(name, toy_vocab)
    made = examples(task, toy_vocab)
    one = losses(model, collate([[e] for e in made]))
    other = losses(model, collate([[e] for e in reversed(made)]))
    there, back = numbers([made]), numbers([made[::-1]])
    for i in range(len(made)):
        assert torch.equal(one[there == i], other[back == len(made) - 1 - i])


@pytest.mark.parametrize("name", TASKS)
def test_all_renderings_of_the_mask_agree(name, toy_vocab):
    task, model = build(name, toy_vocab)
    batch = make_batch(examples(task, toy_vocab))
    by_rule = replace(batch, sight=dict.fromkeys(batch.sight, "rule"))
    assert_near(losses(model, batch), losses(model, by_rule))


def towers(batch):
    """(queries, keys, dense mask as one row, block mask) of every attention of a batch."""
    batch = batch.to("cpu")
    for name, slots in batch.towers.items():
        keys = slots[:, :, : batch.num_keys[name]]
        for window in (0, 9):
            flex = render_flex(slots, keys, torch.float32, window=window)
            yield slots, keys, dense(slots, keys, window), flex.blocks
    if "dec" in batch.towers:
        slots, keys = batch.towers["dec"], batch.towers["enc"]
        yield slots, keys, cross(slots, keys), render_flex_cross(slots, keys).blocks


@pytest.mark.every(9)
@pytest.mark.parametrize("name", TASKS)
def test_the_block_mask_is_the_dense_mask(name, toy_vocab):
    task, _ = build(name, toy_vocab)
    made = examples(task, toy_vocab, 40)
    rows = [made[:25], made[25:35], made[35:]]
    for slots, keys, sight, blocks in towers(collate(rows)):
        expected = torch.block_diag(*sight)
        size, wide = slots[0].numel(), keys[0].numel()
        found = create_mask(blocks.mask_mod, 1, 1, *blocks.seq_lengths, device="cpu")[0, 0]
        assert torch.equal(found[:size, :wide].int(), expected.int())
        assert not found[size:].any() and not found[:, wide:].any()
        # no block that is seen is passed over, and one that is called full is seen in full
        each = found.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).transpose(1, 2)
        full = torch.zeros(each.shape[:2], dtype=torch.bool)
        listed = torch.zeros_like(full)
        for count, which, into in (
            (blocks.kv_num_blocks, blocks.kv_indices, [listed]),
            (blocks.full_kv_num_blocks, blocks.full_kv_indices, [listed, full]),
        ):
            for row, number in enumerate(count[0, 0].tolist()):
                for table in into:
                    table[row, which[0, 0, row, :number].long()] = True
        assert (listed | ~each.any(-1).any(-1)).all()
        assert (each.all(-1).all(-1) | ~full).all()
        assert listed.sum() < listed.numel()


def in_rendering(model, choice):
    for part in model.modules():
        if isinstance(part, Stack):
            part.attention = choice
    return model


@pytest.mark.every(4)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", [name for name in TASKS if name not in [*DENSE, *RECURRENT]])
def test_flex_attention_gives_the_numbers_of_the_dense_mask(name, toy_vocab):
    task, model = build(name, toy_vocab)
    batch = make_batch(examples(task, toy_vocab))
    found = [losses(in_rendering(model, choice), batch) for choice in ("dense", "flex")]
    assert_near(*found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention has no backward on a CPU")
@pytest.mark.parametrize("name", [name for name in TASKS if name not in [*DENSE, *RECURRENT]])
def test_flex_attention_gives_the_gradients_of_the_dense_mask(name, toy_vocab):
    task, model = build(name, toy_vocab)
    batch = make_batch(examples(task, toy_vocab)).to("cuda")
    criterion, found = registry.get("criterion", task.criterion)().build(toy_vocab), []
    for choice in ("dense", "flex"):
        model.zero_grad()
        torch.manual_seed(0)
        loss = criterion(in_rendering(model.cuda(), choice), batch, 0, 1)
        sum(loss.sums.values()).backward()
        grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        found.append(grads)
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", TASKS)
def test_every_parameter_that_training_moves_gets_a_gradient(name, toy_vocab):
    task, model = build(name, toy_vocab)
    batch = make_batch(learnt(task, toy_vocab)).to("cpu")
    criterion = registry.get("criterion", task.criterion)().build(toy_vocab)
    loss = criterion(model.train(), batch, 0, 1)
    sum(loss.sums.values()).backward()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    without = [n for n, p in trained.items() if p.grad is None or not p.grad.any()]
    asked = {ask.head for ask in batch.asks.values()}
    spared = tuple(f"heads.{head}." for head in model.heads if head not in asked)
    without = [name for name in without if not name.startswith(spared)]
    assert not without, f"no gradient reaches {without}"
