"""THU-ERNIE is BERT where no entity is linked, and the paper's equations where one is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.errors import UsageError
from unitk.families.thu_ernie.config import CANDIDATES
from unitk.models.archs import preset
from unitk.models.state import Reading
from unitk.slots import Ask, Example, collate, stay
from unitk.training.saving.checkpoint import tensors_of

V, ENTITIES, E, H = 60, 12, 16, 4
SIZES = {"num_layers": 3, "width": 32, "num_heads": 4, "ffn_width": 48, "init_std": 0.2}


def built(name="thu_ernie_tiny", **more):
    torch.manual_seed(0)
    if name == "thu_ernie_tiny":
        more = {"entity_layers": 2, "heads": (f"{CANDIDATES}:{ENTITIES}",), **more}
    model = replace(preset(name), **SIZES, **more).build(V).eval()
    with torch.no_grad():  # zeros and ones would hide what is added or multiplied
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def text(rng, n=12, entities=None, **asked):
    """A text; `entities` [n] are the numbers beside its slots."""
    slots = stay(rng.integers(V, size=n), np.arange(n), seg=np.arange(n) // 7)
    inputs = {} if entities is None else {"x.entity": np.asarray(entities)}
    return Example({"x": slots}, inputs=inputs, **asked)


@torch.no_grad()
def states(model, *rows):
    batch = collate([list(row) for row in rows]).to("cpu")
    return model(batch)[0]["x"]


def test_without_links_it_is_bert_bit_for_bit():
    bert, model, rng = built("bert_tiny"), built(), np.random.default_rng(0)
    with torch.no_grad():
        theirs = dict(bert.named_parameters())
        for name, parameter in model.named_parameters():
            if name in theirs:
                parameter.copy_(theirs[name])
    assert {n for n, _ in model.named_parameters() if n.startswith("fusions.")}
    made = [text(rng, n) for n in (12, 5, 9)]
    zeros = [replace(one, inputs={"x.entity": np.zeros(len(one.towers["x"]), int)}) for one in made]
    wanted = states(bert, made[:2], made[2:])
    assert torch.equal(states(model, made[:2], made[2:]), wanted)
    assert torch.equal(states(model, zeros[:2], zeros[2:]), wanted)


def attended(x, weights, name, heads, among):
    """Attention by hand: the slots `among` [T] look at each other."""
    query, key, value = F.linear(
        x, weights[f"{name}.qkv.weight"], weights[f"{name}.qkv.bias"]
    ).chunk(3, -1)
    found, width = torch.zeros_like(x), x.shape[-1] // heads
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        for i in among.nonzero()[:, 0]:
            score = query[i, own] @ key[among][:, own].T / width**0.5
            found[i, own] = score.softmax(-1) @ value[among][:, own]
    return F.linear(found, weights[f"{name}.out.weight"], weights[f"{name}.out.bias"])


def normed(x, weights, name):
    given = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return F.layer_norm(x, x.shape[-1:], *given, 1e-12)


def by_hand(model, example):
    """The states by equations 1 to 6 of the paper, one layer after the other."""
    w = {name: p.detach() for name, p in model.named_parameters()}
    slots, number = example.towers["x"], torch.tensor(example.inputs["x.entity"])
    token, pos, seg = (torch.tensor(one) for one in (slots.token, slots.pos, slots.seg))
    x = w["embed.tokens.weight"][token] + w["embed.positions.weight"][pos]
    x = normed(x + w["embed.segments.weight"][seg], w, "embed.norm")
    linked, e = number > 0, torch.zeros(len(number), E)
    e[linked] = w[f"heads.{CANDIDATES}.table.weight"][number[linked]]
    every = torch.ones_like(linked)
    for layer in range(3):
        here, fusion = f"layers.{layer}", f"fusions.{layer - 1}"
        x = x + attended(x, w, f"{here}.attention", 4, every)
        x = normed(x, w, f"{here}.attention_norm")
        h = F.linear(x, w[f"{here}.ffn.up.weight"], w[f"{here}.ffn.up.bias"])
        if layer > 0:
            e = normed(
                e + attended(e, w, f"{fusion}.attention", H, linked), w, f"{fusion}.attention_norm"
            )
            h[linked] += e[linked] @ w[f"{fusion}.up.weight"].T
        h = F.gelu(h)
        x = x + F.linear(h, w[f"{here}.ffn.down.weight"], w[f"{here}.ffn.down.bias"])
        x = normed(x, w, f"{here}.ffn_norm")
        if layer == 1:
            e = e + F.linear(h, w[f"{fusion}.down.weight"], w[f"{fusion}.down.bias"])
            e = normed(e, w, f"{fusion}.norm")
    return x


def test_linked_texts_follow_the_papers_equations_however_packed():
    model, rng = built(), np.random.default_rng(1)
    numbers = [0, 3, 0, 0, 11, 0, 0, 3, 0, 0, 1, 0], [0, 0, 2, 0, 0], [0] * 9
    made = [text(rng, len(one), one) for one in numbers]
    wanted = [by_hand(model, one) for one in made]
    packed, alone = states(model, made[:2], made[2:]), states(model, *[[one] for one in made])
    assert_near(packed[0, :12], wanted[0])
    assert_near(packed[0, 12:17], wanted[1])
    assert_near(packed[1, :9], wanted[2])
    assert_near(alone[0, :12], wanted[0])
    # what is linked matters, to slots without an entity too
    other = replace(made[0], inputs={"x.entity": np.where(np.arange(12) == 1, 4, numbers[0])})
    assert not torch.allclose(states(model, [other])[0, 0], wanted[0][0], atol=1e-3)


def test_dense_masks_and_recomputation_give_the_same_numbers():
    model, rng = built(), np.random.default_rng(2)
    rows = [[text(rng, 12, [0, 3] * 6)], [text(rng, 7, [5] * 7)]]
    wanted = states(model, *rows)
    model.decoder.attention = "dense"
    assert_near(states(model, *rows), wanted)
    model.decoder.attention, model.decoder.recompute = "auto", True
    batch = collate(rows).to("cpu")
    again = model.train()(batch)[0]["x"]
    assert_near(again, wanted)
    again.sum().backward()
    assert model.decoder.fusions[0].down.weight.grad.any()


def test_candidates_are_those_of_the_batch_and_their_vectors_stay():
    model, rng = built(), np.random.default_rng(3)

    def asking(entity, *others):
        among, n = np.unique([entity, *others]), 6
        label = np.searchsorted(among, [entity])
        asks = [Ask("dea", CANDIDATES, "x", np.array([[2]]), label, np.ones(1, "f"), among)]
        return text(rng, n, [0, 0, entity, 0, 0, 0], asks=asks)

    made = [asking(4), asking(7, 2)]
    batch = collate([[one] for one in made]).to("cpu")
    terms = model.answer(model(batch)[0], batch, list(batch.asks.values()))
    assert batch.asks["dea"].among.tolist() == [2, 4, 7]
    head = model.heads.get(CANDIDATES)
    each = [head.transform(by_hand(model, one)[2]) @ head.table.weight[[2, 4, 7]].T for one in made]
    wanted = [-one.log_softmax(-1)[label] for one, label in zip(each, (1, 2), strict=True)]
    assert_near(terms.nll, torch.stack(wanted))
    terms.loss.sum().backward()
    assert head.table.weight.grad is None and head.transform.dense.weight.grad.any()
    assert f"heads.{CANDIDATES}.table.weight" in tensors_of(model)  # checkpoints have them


def test_layers_of_a_probe_are_those_of_the_forward_pass():
    model, rng = built(head_layers=(0, 1, 2, 3)), np.random.default_rng(4)
    example = text(rng, 8, [0, 2] * 4)
    batch, every = collate([[example]]).to("cpu"), []
    reading = Reading.of(batch, "x", model.condition(batch), depths=every)
    states_BTD = model.decoder.encode(reading)
    assert len(every) == 4 and torch.equal(every[-1], states_BTD)
    assert_near(every[-1][0, :8], by_hand(model, example))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("entity_layers", 13, "must be 12 (--arch.num-layers) at most, got 13"),
        ("entity_heads", 3, "must be a divisor of --arch.entity-width 100, got 3"),
        ("norm_first", True, "--arch.norm-first must be off where entities are mixed in, got on"),
        ("embedding_skip", True, "--arch.embedding-skip must be off where entities are mixed in"),
    ],
)
def test_options_that_do_not_fit_are_refused(option, value, message):
    with pytest.raises(UsageError) as error:
        replace(preset("thu_ernie_base"), **{option: value})
    assert message in str(error.value)


def test_heads_that_do_not_fit_are_refused():
    lacks = "--arch.heads candidates: this --arch has no entities; thu_* have"
    with pytest.raises(UsageError) as error:
        built("bert_tiny", heads=(f"{CANDIDATES}:5",))
    assert str(error.value) == lacks
    with pytest.raises(UsageError, match="no output layer 'candidates:entity'"):
        states(built(heads=()), [text(np.random.default_rng(0), 4, [0, 1, 0, 0])])


def test_the_paper_counts_its_parameters():
    """Section 4.2: about 114 M in all, the vectors left out; BERT has 110 M."""
    with torch.device("meta"):
        counts = [
            sum(p.numel() for p in preset(name).build(30522).parameters()) / 1e6
            for name in ("bert_base", "thu_ernie_base")
        ]
    assert counts[1] - counts[0] == pytest.approx(4, abs=0.6)
