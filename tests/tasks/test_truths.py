"""What the objectives say of each other, with models: PAR and the causal LM, MASS and its ends."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.slots import Example, collate, probe, stay, unroll
from unitk.tasks.lm import layout as causal
from unitk.tasks.mass import layout as mass
from unitk.tasks.pmlm import PMLM
from unitk.tasks.pmlm import layout as pmlm

WORDS = np.arange(30, 39)


def model_of(arch, size=60, **changes):
    torch.manual_seed(0)
    config = replace(registry.get("arch", arch)(), dropout=0.0, attention_dropout=0.0, **changes)
    return config.build(size).eval()


@torch.no_grad()
def states(model, example):
    """The states of each tower's slots."""
    batch = collate([[example]]).to("cpu")
    found, _ = model(batch, model.condition(batch))
    return {name: found[name][0, : len(slots)] for name, slots in example.towers.items()}


def close(one, two):
    assert_near(one, two)


def test_par_of_one_token_blocks_left_to_right_is_a_causal_model():
    """Without M (which fine-tuning has not either) the text's states are those of a causal LM, and
    each P's are those of a mask that is appended to the words before it."""
    model = model_of("unilm2_tiny", init_std=0.2)
    n = len(WORDS)
    place, sizes = np.arange(1, n), np.ones(n - 1, np.int64)
    whole = pmlm(WORDS, 0 * WORDS, place, sizes, np.full(n - 1, 58), mask=58, pseudo=60)
    x = whole.towers["x"]
    kept = np.append(np.arange(n), np.arange(2 * n - 1, len(x)))
    par = states(model, Example({"x": x.take(kept)}))["x"]
    alone = states(model, Example({"x": causal(np.append(WORDS, 0)).towers["x"]}))["x"]
    close(par[:n], alone)
    for i in range(1, n):
        given = stay(WORDS[:i], pos=np.arange(i), at=np.arange(i))
        appended = given + probe([60], [i], at=i)
        close(par[n + i - 1], states(model, Example({"x": appended}))["x"][-1])


def test_ae_states_do_not_depend_on_p_and_the_hidden_words():
    model = model_of("unilm2_tiny", init_std=0.2)
    place, sizes = np.array([4, 5, 2]), np.array([2, 1])
    x = pmlm(WORDS, 0 * WORDS, place, sizes, np.full(3, 58), mask=58, pseudo=60).towers["x"]
    zero = np.flatnonzero(x.now == 0)
    both = states(model, Example({"x": x}))["x"][zero]
    close(both, states(model, Example({"x": x.take(zero)}))["x"])


def test_one_pass_is_a_pass_for_every_step():
    """The states of step i equal those of a pass over context, M, the words of steps before i, and
    P of step i."""
    model = model_of("unilm2_tiny", init_std=0.2)
    place, sizes = np.array([4, 5, 2, 7]), np.array([2, 1, 1])
    x = pmlm(WORDS, 0 * WORDS, place, sizes, np.full(4, 58), mask=58, pseudo=60).towers["x"]
    whole = states(model, Example({"x": x}))["x"]
    for step in (1, 2, 3):
        rows = np.flatnonzero((x.now < 2 * step) & (x.dies > x.now) | (x.now == 2 * step))
        alone = states(model, Example({"x": x.take(rows)}))["x"]
        asked = np.flatnonzero(x.now[rows] == 2 * step)
        close(whole[rows[asked]], alone[asked])


@pytest.mark.parametrize("name, arch", [("pmlm", "unilm2_tiny"), ("unilm", "unilm_tiny")])
def test_teacher_forced_predictions_equal_greedy_decoding(name, arch, toy_vocab):
    cls = registry.get("task", name)
    task, model = cls(cls.Config(), toy_vocab), model_of(arch, len(toy_vocab), init_std=0.2)
    prompts = [task.prompt([task.words[a : a + n]]) for a, n in ((3, 9), (20, 4), (60, 17))]
    found = generate(model, prompts, task.protocol, GenerateConfig(beam=1, max_len=12))
    for prompt, [one] in zip(prompts, found, strict=True):
        written = one.ids
        forced = unroll(prompt, task.protocol, written)
        rows = forced.asks[0].rows[:, 0]
        logits = model.head(states(model, forced)["x"][rows])
        logits[:, list(task.protocol.banned)] = -torch.inf
        assert logits.argmax(-1)[:-1].tolist() == written[:-1].tolist() and len(written) > 3


def test_fine_tuning_of_pmlm_without_noise_is_teacher_forcing(toy_vocab):
    config = PMLM.Config(mask_keep_random=(1.0, 0.0, 0.0), word_drop=0.0)
    task = PMLM(config, toy_vocab)
    target = task.words[40:47]
    made = task.finetune([task.words[:5]], target, np.random.default_rng(0))
    same = unroll(task.prompt([task.words[:5]]), task.protocol, np.append(target, toy_vocab.sep))
    assert (made.towers["x"].table == same.towers["x"].table).all()
    assert (made.asks[0].label == same.asks[0].label).all()


def test_mass_with_everything_hidden_depends_on_the_words_before_only():
    """k = m: what the encoder gives is the same for all texts of a length."""
    model = model_of("mass_tiny", init_std=0.2)
    masks, none = np.full(8, 58), np.zeros(8, np.int64)
    other = WORDS.copy()
    other[5:] += 10
    one, two = (mass(words, np.arange(1, 9), masks, none) for words in (WORDS, other))
    first, second = states(model, one), states(model, two)
    close(first["enc"], second["enc"])
    close(first["dec"][:5], second["dec"][:5])
    assert (first["dec"][5:] - second["dec"][5:]).abs().max() > 1e-2


class Same(torch.nn.Module):
    """A layer in which no slot looks at another."""

    def forward(self, x_BTD, *others):
        return x_BTD


def test_mass_does_not_look_at_masks():
    """What is at a hidden place reaches the decoder only through the encoder's other states."""
    model = model_of("mass_tiny", num_layers=1, init_std=0.2)
    place, shown = np.arange(3, 6), np.full(3, 58)
    hidden = mass(WORDS, place, shown, np.zeros(3, np.int64))
    seen = mass(WORDS, place, shown, np.ones(3, np.int64))
    assert (states(model, hidden)["dec"] - states(model, seen)["dec"]).abs().max() > 1e-3
    enc = hidden.towers["enc"]
    kept = Example({"enc": enc.take(np.flatnonzero(enc.cross)), "dec": hidden.towers["dec"]})
    model.reader.layers = torch.nn.ModuleList([Same()])  # each encoder state is its own slot's
    close(states(model, hidden)["dec"], states(model, kept)["dec"])


def test_mass_positions_matter():
    model = model_of("mass_tiny", init_std=0.2)
    example = mass(WORDS, np.arange(3, 6), np.full(3, 58), np.zeros(3, np.int64))
    dec = example.towers["dec"]
    moved = stay(dec.token, pos=dec.pos - dec.pos[0], at=dec.now)
    other = Example({"enc": example.towers["enc"], "dec": moved})
    assert (states(model, example)["dec"] - states(model, other)["dec"]).abs().max() > 1e-2
