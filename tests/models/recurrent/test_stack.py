"""Stacks of LSTM layers: order, what is carried, dropouts, and what they refuse."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.recurrent import lstm
from unitk.slots import Example, collate, lm, stay
from unitk.tasks.lm import layout

ARCHS = ["awd_lstm_tiny", "siatl_tiny"]


def built(name, words=50, **options):
    torch.manual_seed(0)
    return replace(registry.get("arch", name)(), init_range=0.5, **options).build(words).eval()


def read(model, examples, carry=None):
    batch = collate([[one] for one in examples]).to("cpu")
    batch.carry.update(carry or {})
    with torch.no_grad():
        states, carry = model(batch)
    return states["x"], carry


def texts(*sizes):
    rng = np.random.default_rng(0)
    return [rng.integers(2, 50, n) for n in sizes]


@pytest.mark.parametrize("name", ARCHS)
def test_two_stretches_are_one_text(name):
    """Also where the second one of a row is shorter than that of the other."""
    model, whole = built(name), texts(30, 26)
    together, last = read(model, [layout(np.append(one, 0)) for one in whole])
    first, carry = read(model, [layout(np.append(one[:16], 0)) for one in whole])
    second, after = read(model, [layout(np.append(one[16:], 0)) for one in whole], carry)
    for row, one in enumerate(whole):
        assert_near(first[row, :16], together[row, :16])
        assert_near(second[row, : len(one) - 16], together[row, 16 : len(one)])
    assert last.keys() == after.keys() == {"output.0", "cell.0", "output.1", "cell.1"}
    for part, table in last.items():
        assert_near(after[part], table)
    alone, _ = read(model, [layout(np.append(one[16:], 0)) for one in whole])
    assert (alone - second).abs().max() > 1e-3


@pytest.mark.parametrize("name", [*ARCHS, "cell_clip"])
@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_chunks_have_the_gradients_of_stretches_whose_state_is_carried(name, chunks):
    """Of both texts, or of the last chunks of each; the numbers are those of one pass."""
    options, clipped = {"bptt": 8, "bptt_chunks": chunks}, {"cell_clip": 0.5}
    options, name = (options, name) if name in ARCHS else (options | clipped, ARCHS[0])
    model, whole, ends = built(name, **options).train(), texts(30, 13), [30, 13]
    batch = collate([[layout(np.append(one, 0))] for one in whole]).to("cpu")
    states, carry = model(batch)
    expected, after = read(built(name, **options), [layout(np.append(one, 0)) for one in whole])
    assert_near(states["x"].detach(), expected)
    for part, table in carry.items():
        assert_near(table, after[part])
    states["x"].square().sum().backward()
    found = {key: one.grad for key, one in model.named_parameters() if one.grad is not None}

    other = built(name, **options).train()
    for one, end in zip(whole, ends, strict=True):
        carry = {}
        for begin in range(0, end, 8):
            part = collate([[layout(np.append(one[begin : begin + 8], 0))]]).to("cpu")
            part.carry.update(carry)
            made, carry = other(part)
            if not chunks or -(-(end - begin) // 8) <= chunks:
                made["x"].square().sum().backward()
    assert found.keys() >= {"layers.0.weight_hh", "layers.1.weight_ih", "embed.tokens.weight"}
    for key, one in other.named_parameters():
        # the map after the layers (siatl) learns from all states, far ones being constants
        if key in found and not (chunks and key.startswith("map.")):
            assert_near(found[key], one.grad)


@pytest.mark.parametrize("name", ARCHS)
def test_gradients_on_a_cpu_do_not_depend_on_its_chunks(name, monkeypatch):
    found = []
    for steps in (8, 1000):
        monkeypatch.setattr(lstm, "STEPS", steps)
        model = built(name).train()
        batch = collate([[layout(np.append(one, 0))] for one in texts(30, 13)]).to("cpu")
        states, _ = model(batch)
        states["x"][:, 12].square().sum().backward()  # the state in which one text ends
        found.append({k: one.grad for k, one in model.named_parameters() if one.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, grad in found[0].items():
        assert_near(grad, found[1][key])
    assert found[0]["embed.tokens.weight"].abs().sum(1).count_nonzero() > 16  # words of all chunks


@pytest.mark.parametrize("name", ARCHS)
def test_falling_times_read_the_text_turned_round(name):
    model, [words] = built(name), texts(20)
    places = np.arange(20)
    turned = Example({"x": stay(words, pos=places, at=-places)}, [lm(places[1:], words[:-1])])
    plain = Example({"x": stay(words[::-1], pos=places, at=places)}, [lm(places[:-1], words[1:])])
    assert_near(read(model, [turned])[0][0, :20].flip(0), read(model, [plain])[0][0, :20])


@pytest.mark.parametrize("name", [n for n in registry.names("task") if n not in ("lm", "cloze")])
def test_other_objectives_are_refused_in_one_sentence(name, toy_vocab):
    cls = registry.get("task", name)
    task = cls(cls.Config(), toy_vocab)
    rng, words = np.random.default_rng(0), np.arange(30, 50)
    try:
        example = task.pretrain(Text([words], np.zeros(1, int)), rng)
    except UsageError:
        pytest.skip("does not pre-train on texts")
    if set(example.towers) != {"x"}:
        pytest.skip("has other towers")
    with pytest.raises(UsageError, match="one after"):
        read(built("awd_lstm_tiny", words=400), [example, example])


def test_the_words_of_a_row_are_dropped_together_where_dropout_is_locked():
    model, words = built("awd_lstm_tiny", input_dropout=0.5), texts(12, 12)
    stack = model.decoder.train()
    x = torch.ones(2, 12, 64)
    gone = stack.drop(x, 0.5) == 0
    assert (gone == gone[:, :1]).all() and (gone[0, 0] != gone[1, 0]).any()
    assert 0.3 < gone.double().mean() < 0.7
    stack.settings = replace(stack.settings, locked_dropout=False)
    gone = stack.drop(x, 0.5) == 0
    assert (gone != gone[:, :1]).any()
    # in training the first layer reads the dropped embeddings
    assert (read(model, map(layout, words))[0] != read(model.eval(), map(layout, words))[0]).any()


@pytest.mark.parametrize("kind", ["dropout", "input_dropout", "hidden_dropout", "weight_dropout"])
def test_each_dropout_changes_training_alone(kind):
    words = [layout(one) for one in texts(12)]
    model = built("awd_lstm_tiny", **{kind: 0.5})
    plain, _ = read(built("awd_lstm_tiny"), words)
    assert_near(read(model, words)[0], plain)
    found, _ = read(model.train(), words)
    assert (found != plain).any()
    if kind == "dropout":  # of what the last layer gives
        assert_near(found[found != 0], 2 * plain[found != 0])


def test_a_dropped_word_is_dropped_wherever_it_occurs():
    model = built("awd_lstm_tiny", embedding_dropout=0.5)
    batch = collate([[layout(np.append(np.tile(np.arange(2, 42), 3), 0))]]).to("cpu")
    with torch.no_grad():
        x = model.train().embed_words(batch)[0, :120]
        plain = model.eval().embed_words(batch)[0, :120]
    gone = (x == 0).all(1)
    assert (gone[:40] == gone[40:80]).all() and 8 < gone[:40].sum() < 32
    assert_near(x[~gone], 2 * plain[~gone])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"residual": True}, "--arch.residual needs --arch.narrowing projection"),
        ({"projection_clip": 3.0}, "--arch.projection-clip needs --arch.narrowing projection"),
        ({"head_layers": (0, 1)}, "it needs --arch.narrowing projection"),
        ({"bptt_chunks": 2}, "--arch.bptt-chunks needs --arch.bptt"),
        ({"heads": ("class",)}, "--arch.heads must be KIND:NAME[:SIZE],..., got 'class'"),
    ],
)
def test_wrong_options_are_named(options, what):
    with pytest.raises(UsageError, match=re.escape(what)):
        replace(registry.get("arch", "awd_lstm")(), **options)


def test_the_last_chunks_are_those_of_one_direction():
    with pytest.raises(UsageError, match="--arch.bptt-chunks ends.*text"):
        replace(registry.get("arch", "elmo")(), bptt=70, bptt_chunks=20)
    assert replace(registry.get("arch", "elmo")(), bptt=70).bptt == 70


def test_weights_are_counted_and_the_last_cells_of_awd_lstm_are_as_wide_as_embeddings():
    for name in (*ARCHS, "awd_lstm", "siatl"):
        config = registry.get("arch", name)()
        with torch.device("meta"):
            model = config.build(1000)
        matrices = sum(p.numel() for p in model.parameters() if p.dim() > 1)
        assert matrices == config.num_weights(1000)
    shapes = [
        layer.weight_hh.shape
        for layer in registry.get("arch", "awd_lstm")().build(9).decoder.layers
    ]
    assert shapes == [(4608, 1152), (4608, 1152), (1600, 400)]
