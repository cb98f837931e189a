"""XLNet's two streams, segments and memory are transformers'; a memory is a longer text."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.errors import UsageError
from unitk.families.xlnet.format import XLNET
from unitk.families.xlnet.task import layout, order
from unitk.models.archs import preset
from unitk.slots import BORN, NEVER, POS, Example, collate, lm, query, stay

V, M = 60, 24
SIZES = {"num_layers": 3, "width": 32, "num_heads": 4, "ffn_width": 48, "memory_length": M}


def small(**more):
    torch.manual_seed(0)
    config = replace(preset("xlnet_tiny"), **SIZES, init_std=0.2, **more)
    return config.build(V).eval()


@pytest.fixture(scope="module")
def both():
    """A model and transformers' with the same random weights."""
    hf = pytest.importorskip("transformers")
    config = hf.XLNetConfig(
        vocab_size=V,
        d_model=32,
        n_layer=3,
        n_head=4,
        d_inner=48,
        ff_activation="gelu_new",
        mem_len=M,
        dropout=0.0,
    )
    theirs = hf.XLNetLMHeadModel(config).eval()
    model = small()
    with torch.no_grad():
        model.words.bias.normal_()
    own = {name: parameter.data for name, parameter in model.named_parameters()}
    theirs.load_state_dict(XLNET.to_stored(own, model.config, copies=True))
    return SimpleNamespace(ours=model, theirs=theirs)


def permuted(rng, n=20, back=False):
    """A text of two segments laid out, and the same for transformers."""
    tokens, seg = rng.integers(5, V, n), np.arange(n) // 13
    late = rng.random(n) < 0.4
    late[:2] = False, True
    at = order(late, 16, rng)
    predicted = np.flatnonzero(late & (tokens % 5 > 0) | (np.arange(n) == 1))
    pos = np.arange(n)[:: -1 if back else 1]
    example = layout(tokens, seg, pos, at, predicted, asking=V)
    is_query = np.isin(np.arange(n), predicted)
    # what a place sees: what comes before it, and what is neither asked nor after it
    now = at - is_query
    hidden = at[None] > now[:, None]
    given = {
        "input_ids": torch.tensor(tokens)[None],
        "token_type_ids": torch.tensor(seg)[None],
        "perm_mask": torch.tensor(hidden)[None].float(),
        "target_mapping": F.one_hot(torch.tensor(predicted), n)[None].float(),
    }
    return example, given


def batch_of(example, carry=None):
    batch = collate([[example]]).to("cpu")
    return replace(batch, stateful_rows=torch.zeros(1, dtype=torch.int64), carry=carry or {})


@torch.no_grad()
def said(model, batch):
    """Logits of what is asked, and what is carried on."""
    states, carry = model(batch, model.condition(batch))
    [ask] = batch.asks.values()
    return model.head(states["x"].flatten(0, 1)[ask.first]), carry


def test_two_streams_with_memory_are_theirs(both):
    """Logits, loss and memory over three texts, the first of which has nothing before it."""
    rng = np.random.default_rng(0)
    mems, carry = None, {}
    for n in (20, 13, 17):
        example, given = permuted(rng, n)
        batch = batch_of(example, carry)
        found, carry = said(both.ours, batch)
        with torch.no_grad():
            wanted = both.theirs(**given, mems=mems, use_mems=True)
        assert_near(found, wanted.logits[0])
        label = batch.asks["lm"].label
        assert_near(F.cross_entropy(found, label), F.cross_entropy(wanted.logits[0], label))
        mems = wanted.mems
        real = carry["slots"][0, BORN] < NEVER
        assert real.sum() == len(mems[0]) and len(real) == M
        for layer, states in enumerate(mems):
            assert_near(carry["states"][0, layer, real], states[:, 0])
        assert carry["slots"][0, POS, real].tolist() == list(range(-len(mems[0]), 0))


def test_the_content_stream_alone_is_theirs(both):
    rng = np.random.default_rng(1)
    tokens, seg = rng.integers(5, V, 18), np.array([0] * 9 + [1] * 8 + [2])
    example = Example({"x": stay(tokens, np.arange(18), seg=seg)}, [lm(np.arange(18), tokens)])
    with torch.no_grad():
        wanted = both.theirs(torch.tensor(tokens)[None], token_type_ids=torch.tensor(seg)[None])
    assert_near(said(both.ours, batch_of(example))[0], wanted.logits[0])


def stretches(sizes, back):
    """Consecutive parts of a text whose slots see all of their own part and of those before it;
    and the whole text in one pass."""
    rng = np.random.default_rng(2)
    total = sum(sizes)
    tokens, pos = rng.integers(5, V, total), np.arange(total)[:: -1 if back else 1]
    at = np.arange(len(sizes)).repeat(sizes)
    whole = Example({"x": stay(tokens, pos, at=at)}, [lm(np.arange(total), tokens)])
    parts, begin = [], 0
    for size in sizes:
        own = np.arange(size)
        places = own[::-1] if back else own
        slots = stay(tokens[begin : begin + size], places)
        parts.append(Example({"x": slots}, [lm(own, slots.token)]))
        begin += size
    return parts, whole


@pytest.mark.parametrize(
    "options", [{"norm_first": False}, {"norm_first": True}, {"layer_windows": (5, 0, 3)}]
)
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("sizes", [(9, 9, 6), (16, 3, 2, 4), (7, 2, 15)])
def test_texts_one_after_the_other_are_one_long_text(sizes, back, options):
    """The memory has room for all; read from the end it is the same with falling positions."""
    model = small(**options)
    parts, whole = stretches(sizes, back)
    carry, found = {}, []
    for part in parts:
        logits, carry = said(model, batch_of(part, carry))
        found.append(logits)
    assert_near(torch.cat(found), said(model, batch_of(whole))[0])


def test_rows_of_a_batch_carry_their_own(both):
    """Ragged rows: each carries what it does alone."""
    rng = np.random.default_rng(3)
    first = [permuted(rng, n)[0] for n in (9, 20)]
    second = [permuted(rng, n, back)[0] for n, back in ((30, False), (4, True))]
    model = both.ours
    alone = []
    for one, two in zip(first, second, strict=True):
        _, carry = said(model, batch_of(one))
        alone.append(said(model, batch_of(two, carry)))
    rows = torch.arange(2)
    _, carry = said(model, replace(collate([[one] for one in first]).to("cpu"), stateful_rows=rows))
    batch = replace(collate([[one] for one in second]).to("cpu"), stateful_rows=rows, carry=carry)
    logits, carry = said(model, batch)
    assert_near(logits, torch.cat([one for one, _ in alone]))
    for row, (_, own) in enumerate(alone):
        real = own["slots"][0, BORN] < NEVER
        assert torch.equal(carry["slots"][row, BORN], own["slots"][0, BORN])
        assert torch.equal(carry["slots"][row, POS, real], own["slots"][0, POS, real])
        assert_near(carry["states"][row][:, real], own["states"][0][:, real])


def test_the_memory_has_no_gradient_and_its_maps_have_one():
    model = small()
    rng = np.random.default_rng(4)
    _, carry = said(model, batch_of(permuted(rng)[0]))
    batch = batch_of(permuted(rng)[0], carry)
    states, after = model.train()(batch, model.condition(batch))
    assert not any(table.requires_grad for table in after.values())
    states["x"].square().sum().backward()
    with_memory = model.decoder.layers[0].attention.qkv.weight.grad.clone()
    model.zero_grad()
    alone = replace(batch, carry={})
    model(alone, model.condition(alone))[0]["x"].square().sum().backward()
    assert not torch.allclose(with_memory, model.decoder.layers[0].attention.qkv.weight.grad)


def test_without_a_memory_nothing_is_carried():
    model = replace(small().config, memory_length=0).build(V)
    assert not model.config.carries
    assert said(model.eval(), batch_of(permuted(np.random.default_rng(5))[0]))[1] == {}
    with pytest.raises(UsageError, match="--arch.memory-length"):
        replace(model.config, memory_length=-1)


def test_a_query_is_no_key():
    """Another query beside it changes nothing, and neither does what is read at one."""
    model, places = small(), np.arange(6)
    context = stay(places + 5, places)
    one = query([V], [6], at=0)
    more = one + query([9, V], [8, 2], at=0)
    alone, beside = (
        said(model, batch_of(Example({"x": context + asks}, [lm(np.array([6]), [0])])))[0]
        for asks in (one, more)
    )
    assert_near(beside, alone)
