"""Two directions, words made of characters, sampled softmax, and what heads read."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.recurrent.bilm import BiLM
from unitk.families.recurrent.characters import CharacterEmbedding
from unitk.models.heads.base import LayerMix
from unitk.slots import collate
from unitk.tasks.lm import layout
from unitk.tasks.understanding.labels import Tag

CLIPS = {"cell_clip": 0.3, "projection_clip": 0.2}


def built(vocab, **options):
    torch.manual_seed(0)
    config = replace(registry.get("arch", "elmo_tiny")(), init_range=0.5, **options)
    return config.build(len(vocab)).eval()


def made(vocab, count=3, **options):
    rng, task = np.random.default_rng(0), BiLM(BiLM.Config(**options), vocab)
    texts = [Text([rng.choice(task.words, n)], np.zeros(1, int)) for n in (9, 4, 12)[:count]]
    return task, [task.pretrain(text, rng) for text in texts]


def spell(embed, chars):
    """The embedding of a word [D] from its characters [C], a filter at a time."""
    x = embed.chars.weight[chars]
    best = []
    for conv in embed.convolutions:
        wide = conv.weight.shape[2]
        for weight, bias in zip(conv.weight, conv.bias, strict=True):
            values = [(weight.T * x[i : i + wide]).sum() + bias for i in range(len(x) - wide + 1)]
            best.append(torch.stack(values).max().relu())
    x = torch.stack(best)
    for highway in embed.highways:
        gate = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
        value = torch.relu(highway.transform.weight @ x + highway.transform.bias)
        x = gate * value + (1 - gate) * x
    return embed.map.weight @ x + embed.map.bias


def test_words_are_made_of_their_characters(toy_vocab):
    model = built(toy_vocab)
    task, [example, *_] = made(toy_vocab)
    with torch.no_grad():
        found = model.embed_words(collate([[example]]).to("cpu"))[0]
        for slot, token in enumerate(example.towers["fwd"].token):
            assert_near(
                found[slot], spell(model.decoder.embed, torch.from_numpy(task.chars[token]))
            )
    assert 0.1 < torch.sigmoid(model.decoder.embed.highways[0].gate.bias).mean() < 0.13


def test_words_shorter_than_the_widest_filter_are_filled_up():
    embed = CharacterEmbedding(4, ("1:3", "5:2"), 0, 6)
    chars = torch.tensor([[1, 2, 3]])
    assert_near(embed(chars).detach(), embed(torch.tensor([[1, 2, 3, 0, 0]])).detach())


def test_each_direction_is_the_restated_network(toy_vocab):
    """Embedding, two clipped and projected layers of which the second has a residual, softmax."""
    model = built(toy_vocab, **CLIPS)
    _, examples = made(toy_vocab)
    batch = collate([[one] for one in examples]).to("cpu")
    with torch.no_grad():
        states, _ = model(batch)
        embedded = model.embed_words(batch)
        for row, example in enumerate(examples):
            n = len(example.towers["fwd"])
            for name, order in {"fwd": range(n), "bwd": range(n)[::-1]}.items():
                x = embedded[row, list(order)]
                for number, layer in enumerate(model.tower(name).layers):
                    h, c, rows = torch.zeros(32), torch.zeros(64), []
                    for one in x:
                        gates = layer.weight_ih @ one + layer.weight_hh @ h + layer.bias
                        i, f, g, o = gates.view(4, -1)
                        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                        c = c.clip(-0.3, 0.3)
                        h = (layer.weight_hr @ (torch.sigmoid(o) * torch.tanh(c))).clip(-0.2, 0.2)
                        rows.append(h)
                    x = torch.stack(rows) + (x if number else 0)
                assert_near(states[name][row, list(order)], x)
        for ask in batch.asks.values():
            read = states[ask.tower].flatten(0, 1)[ask.first]
            logits = read @ model.words.weight.T + model.words.bias
            expected = logits.log_softmax(-1).gather(1, ask.label[:, None])[:, 0]
            assert_near(model.log_probs(batch, ask), expected)


def test_the_forward_direction_is_a_causal_model_of_its_own(toy_vocab):
    """Without characters and directions, the same weights under the same names."""
    model = built(toy_vocab, char_width=0)
    config = replace(
        registry.get("arch", "awd_lstm_tiny")(), num_layers=2, width=32, cell_width=64,
        narrowing="projection", residual=True, cell_clip=3.0, projection_clip=3.0, tied=False,
    )  # fmt: skip
    alone = config.build(len(toy_vocab)).eval()
    own = {name: t for name, t in model.state_dict().items() if not name.startswith("bwd.")}
    alone.load_state_dict(own)
    _, [example, *_] = made(toy_vocab)
    token = example.towers["fwd"].token
    with torch.no_grad():
        both, carry = model(collate([[example]]).to("cpu"))
        one, other = alone(collate([[layout(np.append(token, 0))]]).to("cpu"))
        assert_near(both["fwd"][0, : len(token)], one["x"][0, : len(token)])
        assert all(torch.allclose(carry[name], table) for name, table in other.items())
        # only the forward direction reads on from where the text before ended
        batch = collate([[example]]).to("cpu")
        batch.carry.update(carry)
        again, _ = model(batch)
    assert (again["fwd"] - both["fwd"]).abs().max() > 1e-3
    assert torch.equal(again["bwd"], both["bwd"])


def test_heads_read_the_layers_of_both_directions(toy_vocab):
    """A tag is read at its word: gamma times the weighted sum of the layers, each [fwd, bwd]."""
    heads = {"heads": ("tag:label:3",), "head_layers": (0, 1, 2), "head_layer_norm": True}
    model = built(toy_vocab, **heads)
    task = Tag(Tag.Config(layout="bilm"), toy_vocab)
    task = task.with_trained(labels=("x", "y", "z"))
    words = [np.array([40, 41]), np.array([42])]
    example = task.classify(words, np.array([0, 2]), np.random.default_rng(0))
    head = model.heads["tag:label"]
    with torch.no_grad():
        head.mix.weight.copy_(torch.tensor([0.3, -1.0, 0.5]))
        head.mix.scale.fill_(1.7)
        batch = collate([[example]]).to("cpu")
        found = model.output(batch, batch.asks["tag"])
        layers = {name: [] for name in ("fwd", "bwd")}
        x = model.embed_words(batch)
        for name, own in layers.items():
            given = x, batch.towers[name], batch.sight[name], {}, own
            model.tower(name).read(*given)
        share = torch.tensor([0.3, -1.0, 0.5]).softmax(0)
        for row, slot in enumerate((1, 3)):  # C is before the first word
            each = [torch.cat([layers["fwd"][k], layers["bwd"][k]], -1)[0, slot] for k in range(3)]
            each = [(one - one.mean()) / (one.var(correction=0) + 1e-5).sqrt() for one in each]
            mixed = 1.7 * sum(s * one for s, one in zip(share, each, strict=True))
            assert_near(found[row], head.out.weight @ mixed + head.out.bias)
    assert_near(layers["fwd"][0], layers["bwd"][0])  # the embeddings, twice


def test_the_mix_without_a_norm_is_the_weighted_sum():
    mix = LayerMix(2)
    x = torch.randn(5, 1, 2, 4)
    assert_near(mix(x).detach(), x.mean(2))
    assert (LayerMix(2, norm=True)(3 * x) - LayerMix(2, norm=True)(x)).abs().max() < 1e-4


def test_dropout_of_what_heads_read_leaves_the_words_alone(toy_vocab):
    model = built(toy_vocab, heads=("tag:label:3",), head_dropout=0.5).train()
    task = Tag(Tag.Config(layout="bilm"), toy_vocab)
    task = task.with_trained(labels=("x", "y", "z"))
    words = [np.array([40]), np.array([42])]
    batch = collate([[task.classify(words, np.zeros(2, int), None)]]).to("cpu")
    states, _ = model(batch)
    read = states["fwd/layers"]
    whole = torch.cat([states["fwd"], states["bwd"]], -1)
    assert 0.3 < (read == 0)[:, :4].double().mean() < 0.7
    assert_near(read[read != 0].detach(), 2 * whole[read != 0].detach())


def test_sampled_words_are_drawn_by_the_law_and_labels_are_no_wrong_answers(toy_vocab):
    count, size = 4000, len(toy_vocab)
    model = built(toy_vocab, sampled_words=count).train()
    states, label = torch.randn(2, 32), torch.tensor([3, 200])
    weight, bias = model.words.weight, torch.nn.init.normal_(model.words.bias)
    torch.manual_seed(3)
    word = ((torch.rand(count, dtype=torch.float64) * math.log(size + 1)).exp() - 1).long()
    torch.manual_seed(3)
    found = model.sample_logits(states, label).detach()
    law = [math.log((r + 2) / (r + 1)) / math.log(size + 1) for r in range(size)]
    assert sum(law) == pytest.approx(1)
    share = torch.bincount(word, minlength=size) / count
    assert share[:20].tolist() == pytest.approx(law[:20], abs=4 * (0.25 / count) ** 0.5)
    plain = (states @ weight.T + bias).detach()
    assert_near(found[:, 0], plain.gather(1, label[:, None])[:, 0])
    expected = (plain - torch.tensor(law).mul(count).log())[:, word]
    expected = expected.masked_fill(word == label[:, None], -torch.inf)
    assert (word == 3).any() and found[0, 1:].isneginf().equal(word == 3)
    real = ~expected.isneginf()
    assert_near(found[:, 1:][real], expected[real])


def test_the_sampled_loss_comes_near_the_full_one(toy_vocab):
    """With many samples, sums over these estimate the sum over the vocabulary."""
    _, examples = made(toy_vocab)
    batch = collate([[one] for one in examples]).to("cpu")
    asks = [batch.asks["fwd"]]
    model = built(toy_vocab, sampled_words=20000)
    states, _ = model(batch)
    full = model.answer(states, batch, asks).loss
    torch.manual_seed(0)
    sampled = model.train().answer(states, batch, asks).loss
    assert (sampled - full).abs().max() < 0.1
    sampled.sum().backward()
    assert model.words.weight.grad.isfinite().all()
    model.eval()
    assert torch.equal(model.answer(states, batch, asks).loss, full)  # judged by all words
    with pytest.raises(UsageError, match="--criterion.label-smoothing .*--arch.sampled-words"):
        model.train().answer(states, batch, asks, None, 0.1, None, 0.0)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"tied": True}, "--arch.char-width makes words of characters: it needs --arch.tied off"),
        ({"embedding_dropout": 0.1}, "it needs --arch.embedding-dropout 0"),
        ({"char_filters": ("1x32",)}, "--arch.char-filters must be WIDTH:COUNT,..."),
        ({"char_filters": ()}, "--arch.char-filters must be WIDTH:COUNT,..."),
        ({"char_width": 0, "highways": 3}, "--arch.highways must be left out without --arch.char"),
        (
            {"head_layer_norm": True},
            "--arch.head-layer-norm must be off without --arch.head-la",
        ),
        ({"head_layers": (3,)}, "--arch.head-layers"),
    ],
)
def test_wrong_options_are_named(options, what):
    with pytest.raises(UsageError, match=re.escape(what)):
        replace(registry.get("arch", "elmo_tiny")(), **options)


def test_texts_without_characters_are_refused(toy_vocab):
    _, [example, *_] = made(toy_vocab)
    with pytest.raises(UsageError, match="--arch reads characters"):
        built(toy_vocab)(collate([[replace(example, inputs={})]]).to("cpu"))


def test_weights_are_those_of_the_released_model():
    """93.6 M without the softmax (allennlp's page of ELMo)."""
    for name in ("elmo", "elmo_small", "elmo_tiny"):
        config = registry.get("arch", name)()
        with torch.device("meta"):
            model = config.build(1000)
        own = {n: p.numel() for n, p in model.named_parameters()}
        if name == "elmo":
            total = sum(count for part, count in own.items() if not part.startswith("heads."))
            assert round(total / 1e6, 1) == 93.6
        matrices = sum(p.numel() for p in model.parameters() if p.dim() > 1)
        assert matrices == config.num_weights(1000)
