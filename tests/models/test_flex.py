"""FlexAttention's block mask: what it leaves out, relative biases, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.errors import UsageError
from unitk.kernels import flex
from unitk.kernels.flex import BLOCK, render_flex
from unitk.models import archs, attention
from unitk.models.relative import RelativeBias
from unitk.models.state import Reading
from unitk.slots import Example, collate, query, stay

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def batch(*rows):
    return collate([[Example({"x": slots}) for slots in row] for row in rows]).to("cpu")


def words(n, **where):
    return stay(np.arange(n) % 50, np.arange(n), **where)


def blocks(*rows):
    made = batch(*rows).towers["x"]
    found = render_flex(made, made, torch.float32).blocks
    return found.kv_num_blocks[0, 0].tolist(), found.full_kv_num_blocks[0, 0].tolist()


def test_blocks_of_other_examples_and_of_the_future_are_passed_over():
    two = 2 * BLOCK
    assert blocks([words(two)], [words(two)]) == ([0] * 4, [2] * 4)
    assert blocks([words(4 * BLOCK, at=np.arange(4 * BLOCK))]) == ([1] * 4, [0, 1, 2, 3])
    # 3 blocks become 4: nobody looks at the pads, and they look at nobody
    assert blocks([words(3 * BLOCK)]) == ([0] * 4, [3, 3, 3, 0])
    # queries are never seen
    assert blocks([words(BLOCK) + query(np.arange(BLOCK), np.arange(BLOCK), at=0)])[1] == [1, 1]


@torch.no_grad()
def test_a_relative_bias_is_added_to_the_scores():
    torch.manual_seed(0)
    config = replace(archs.preset("glm_tiny"), relative_buckets=8, relative_distance=12)
    relative = RelativeBias(config)
    rows = batch([words(30), words(20, at=np.arange(20))], [words(40, at=np.arange(40)[::-1])])
    slots, scale = rows.towers["x"], 0.3
    query_, key, value = torch.randn(3, 2, config.num_heads, slots.shape[2], 16)
    found = []
    for choice in ("dense", "flex"):
        view = attention.render_mask(
            Reading(slots, "rule", 64), torch.float32, 0.0, relative, choice
        )
        found.append(view(query_, key, value, scale))
    assert view.kernel is not None
    assert_near(*found)


@torch.no_grad()
def test_narrow_heads_have_the_width_that_compiles(monkeypatch):
    """On CUDA FlexAttention refuses heads of fewer numbers than 16."""
    widths, kernel = [], flex.flex_attention

    def noted(query, key, value, **how):
        widths.extend(one.shape[-1] for one in (query, key, value))
        return kernel(query, key, value, **how)

    monkeypatch.setattr(flex, "_kernel", lambda on_cuda: noted)
    slots = batch([words(30), words(20)], [words(40)]).towers["x"]
    for width in (8, 16, 24):
        given, found = torch.randn(3, 2, 4, slots.shape[2], width), []
        for choice in ("dense", "flex"):
            view = attention.render_mask(
                Reading(slots, "rule", 64), torch.float32, 0.0, choice=choice
            )
            found.append(view(*given, 0.3))
        assert_near(*found)
    assert widths == [16] * 6 + [24] * 3


def test_flex_and_dropout_of_attention_weights_exclude_each_other():
    slots = batch([words(20)]).towers["x"]
    with pytest.raises(UsageError, match="--attention flex .*--arch.attention-dropout 0"):
        attention.render_mask(Reading(slots, "rule", 20), torch.float32, 0.1, choice="flex")


def test_short_rows_and_cpus_have_the_dense_mask_unless_told():
    slots = batch([words(2000, at=np.arange(2000)[::-1])]).towers["x"]
    assert attention.render_mask(Reading(slots, "rule", 2000), torch.float32, 0.0).kernel is None
    assert attention.render_mask(Reading(slots, "full", 2000), torch.float32, 0.0).bias_BHTS is None
    dense = attention.render_mask(Reading(slots, "full", 2000), torch.float32, 0.0, choice="dense")
    assert dense.bias_BHTS is not None


@pytest.mark.slow
@torch.no_grad()
def test_compiled_it_is_the_same_and_new_masks_compile_nothing():
    torch._dynamo.reset()
    compiled, graphs = torch.compile(flex.flex_attention, dynamic=False), []
    for first, width in ((100, 60), (150, 90), (30, 170)):
        slots = batch([words(first, at=np.arange(first)), words(width)], [words(200)]).towers["x"]
        given = torch.randn(3, 2, 4, slots.shape[2], 16)
        view = attention.render_mask(
            Reading(slots, "rule", slots.shape[2]), given.dtype, 0.0, choice="flex"
        )
        found = []
        for kernel in (compiled, flex.flex_attention):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(flex, "_kernel", lambda on_cuda, kernel=kernel: kernel)
                found.append(view(*given, 0.25))
        assert_near(*found)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert len(set(graphs)) == 1
