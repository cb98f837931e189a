"""Reading step by step equals reading at once."""

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import masks
from unitk.errors import UsageError
from unitk.models import archs
from unitk.slots import BORN, NEVER, Example, Slots, collate, lm, stay

V, BEAMS, STEPS = 50, 3, 4


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = archs.preset("glm_tiny").build(V).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def prompts(rng):
    """Two prompts of unlike length; the last slot is read first."""
    return [
        stay(rng.integers(V, size=n), np.arange(n)) + stay([1], [2], pos2=1, at=1) for n in (21, 6)
    ]


def states_of(model, slots: Slots):
    return model(collate([[Example({"x": slots})]]).to("cpu"))[0]["x"][0, len(slots) - 1]


def written(token, prompt, step):
    """The slot of a word: GLM's second position and the clock go on."""
    return stay([token], prompt.pos[-1:], pos2=2 + step, at=2 + step)


@torch.inference_mode()
def test_beams_that_share_a_prompt_and_ancestors_equal_full_passes(model):
    rng = np.random.default_rng(0)
    alone = prompts(rng)
    batch = collate([[Example({"x": slots})] for slots in alone]).to("cpu")
    columns = batch.towers["x"]
    width = columns.shape[2]
    cache = model.new_cache(2, width + STEPS * BEAMS)
    states = model.step(columns, masks.dense(columns, columns), None, cache, 0)
    for b, prompt in enumerate(alone):
        assert_near(states[b, batch.last[b]], states_of(model, prompt))
    assert torch.equal(cache.slots[:, :, :width], columns)

    mine = (columns[BORN] < NEVER)[:, None].expand(2, BEAMS, width)
    paths = [[prompt for _ in range(BEAMS)] for prompt in alone]
    for step in range(STEPS):
        back = rng.integers(BEAMS, size=(2, BEAMS)) if step else np.tile(np.arange(BEAMS), (2, 1))
        token = rng.integers(V, size=(2, BEAMS))
        new = [
            [written(token[b, k], alone[b], step) for k in range(BEAMS)] for b in range(len(alone))
        ]
        paths = [[paths[b][back[b, k]] + new[b][k] for k in range(BEAMS)] for b in range(2)]
        tables = np.stack([sum(row[1:], row[0]).table for row in new], axis=1)
        mine = torch.stack([mine[b, torch.from_numpy(back[b])] for b in range(2)])
        mine = torch.cat([mine, torch.eye(BEAMS, dtype=torch.bool).expand(2, -1, -1)], dim=2)
        at = width + step * BEAMS
        states = model.step(torch.from_numpy(tables), mine, None, cache, at)
        for b in range(2):
            for k in range(BEAMS):
                expected = states_of(model, paths[b][k])
                assert_near(states[b, k], expected)


@torch.inference_mode()
def test_selected_rows_go_on_alone(model):
    rng = np.random.default_rng(1)
    alone = prompts(rng)
    columns = collate([[Example({"x": slots})] for slots in alone]).to("cpu").towers["x"]
    cache = model.new_cache(2, columns.shape[2] + 1)
    model.step(columns, masks.dense(columns, columns), None, cache, 0)
    kept = cache.select(torch.tensor([1]))
    word = written(7, alone[1], 0)
    sight = torch.cat([columns[BORN, 1:] < NEVER, torch.ones(1, 1, dtype=torch.bool)], dim=1)
    state = model.step(
        torch.from_numpy(word.table[:, None]), sight[:, None], None, kept, columns.shape[2]
    )
    assert_near(state[0, 0], states_of(model, alone[1] + word))


@torch.inference_mode()
def test_bf16_cache_follows_the_computation(model):
    slots = prompts(np.random.default_rng(2))[0]
    columns = torch.from_numpy(slots.table[:, None])
    sight = masks.dense(columns, columns)
    exact = model.step(columns, sight, None, model.new_cache(1, len(slots)), 0)
    with torch.autocast("cpu", torch.bfloat16):
        cache = model.new_cache(1, len(slots))
        assert cache.key[0].dtype == torch.bfloat16
        rough = model.step(columns, sight, None, cache, 0)
    model.bfloat16()
    half = model.step(columns, sight, None, model.new_cache(1, len(slots)), 0)
    assert torch.allclose(rough, exact, atol=0.2)
    assert half.dtype == torch.bfloat16 and torch.allclose(half.float(), exact, atol=0.2)


def test_two_towers_and_unknown_heads_are_told(model):
    slots = stay([1, 2], [0, 1])
    towers = {"enc": slots, "dec": slots}
    batch = collate([[Example(towers, [lm(np.arange(2), [1, 2], tower="dec")])]]).to("cpu")
    with pytest.raises(UsageError, match="--arch .*towers x.*task lays.*enc.*dec"):
        model(batch)
    with pytest.raises(UsageError, match="no output layer 'class:nsp'"):
        model.head(torch.zeros(1, 64), "class:nsp")


def test_a_model_is_made_without_weights_and_loaded(model):
    with torch.device("meta"):
        empty = archs.preset("glm_tiny").build(V)
    empty.load_state_dict(model.state_dict(), assign=True)
    slots = prompts(np.random.default_rng(3))[0]
    assert torch.equal(states_of(empty.eval(), slots), states_of(model, slots))
