"""ELECTRA by truths: what is drawn, what is told, both networks as transformers has them."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near
from safetensors.torch import load_file

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import CheckpointError, UsageError
from unitk.families.electra.config import DETECT, ElectraLossConfig
from unitk.families.electra.criterion import draw_words, replace_words
from unitk.families.electra.task import Electra
from unitk.models.state import Reading
from unitk.slots import TOKEN, collate
from unitk.training.saving.checkpoint import load


def tiny(**changes):
    torch.manual_seed(3)
    config = replace(registry.get("arch", "electra_tiny")(), **changes)
    return config.build(60).eval()


@pytest.fixture
def task(toy_vocab):
    return Electra(Electra.Config(mask_ratio=0.4), toy_vocab)


@pytest.fixture
def batch(toy_vocab, task):
    rng = np.random.default_rng(0)
    texts = [Text([rng.integers(10, 60, n)], np.zeros(1, np.int64)) for n in (9, 14, 5)]
    return collate([[task.pretrain(one, rng)] for one in texts]).to("cpu")


def test_a_number_draws_the_word_whose_stretch_it_falls_into():
    logp = torch.tensor([[0.1, 0.2, 0.0, 0.7]]).log().expand(7, 4)
    numbers = torch.tensor([0.0, 0.09, 0.11, 0.29, 0.31, 0.99, 1 - 2**-24])
    assert draw_words(logp, numbers).tolist() == [0, 0, 1, 1, 3, 3, 3]


def test_words_are_drawn_as_often_as_they_are_likely():
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf])
    count = 40_000
    numbers = (torch.arange(count) + 0.5) / count
    found = (
        draw_words(logits.log_softmax(0).expand(count, 4), numbers).bincount(minlength=4) / count
    )
    assert found.tolist() == pytest.approx(logits.softmax(0).tolist(), abs=1e-4)


def test_the_discriminator_reads_the_text_with_what_was_drawn(batch):
    ask = batch.asks["mlm"]
    other = ask.label.clone()
    other[::2] = (other[::2] + 1) % 60
    text = batch.towers["x"][TOKEN].flatten().clone()
    text[ask.first] = ask.label
    read = replace_words(batch, ask, other)
    token, asked = read.towers["x"][TOKEN].flatten(), read.asks["detect"]
    assert torch.equal(asked.label, (token != text).long())
    assert asked.label[ask.first].tolist() == [i % 2 == 0 for i in range(len(other))]
    # pads weigh nothing
    assert asked.weight.sum() == batch.num_real
    assert torch.equal(replace_words(batch, ask, ask.label).asks["detect"].label, 0 * asked.label)


def test_the_loss_is_that_of_both_networks_by_hand(batch):
    model, criterion = tiny(), ElectraLossConfig(detect_weight=7.0).build(None)
    loss, ask = criterion(model, batch, 0, 1), batch.asks["mlm"]
    states = model.generator.encode(Reading.of(batch, "x")).flatten(0, 1)[ask.first]
    words = model.words.transform(states) @ model.decoder.embed.tokens.weight.T + model.words.bias
    assert_near(loss.sums["mlm"], F.cross_entropy(words, ask.label, reduction="sum"))
    number = batch.inputs["x.draw"].flatten()[ask.first].tolist()
    read = batch.towers["x"].clone()
    token, label = read[TOKEN].flatten(), torch.zeros(read[TOKEN].numel())
    for row, place in enumerate(ask.first.tolist()):
        until = itertools.accumulate(words[row].softmax(0).tolist())
        word = next(word for word, total in enumerate(until) if total > number[row])
        token[place], label[place] = word, float(word != ask.label[row])
    read[TOKEN] = token.view_as(read[TOKEN])
    whole = replace(batch, towers={"x": read})
    told = model.decoder.encode(Reading.of(whole, "x")).flatten(0, 1)
    head = model.heads[DETECT]
    logit = head.out(F.gelu(head.dense(told)))[:, 0]
    real = (batch.towers["x"][5] < 1 << 30).flatten()
    wanted = F.binary_cross_entropy_with_logits(logit[real], label[real], reduction="sum")
    assert_near(loss.sums["detect"], 7 * wanted)
    assert_near(loss.parts["detect/nll"], wanted)
    assert loss.parts["detect/replaced"] == label.sum() > 0
    assert loss.parts["detect/correct"] == ((logit[real] > 0) == (label[real] > 0)).sum()
    assert criterion.counts(batch) == {"mlm": len(ask.label), "detect": int(real.sum())}


def test_no_gradient_of_the_discriminator_reaches_the_generator(batch):
    """But through the embeddings, which both have."""
    model = tiny().train()
    ElectraLossConfig().build(None)(model, batch, 0, 1).sums["detect"].backward()
    own = [p for n, p in model.named_parameters() if n.startswith(("generator.", "heads.lm."))]
    assert own and all(p.grad is None for p in own)
    assert model.decoder.embed.tokens.weight.grad.any()


def test_both_networks_have_one_table_of_each_kind():
    model = tiny()
    names = [name for name, _ in model.named_parameters()]
    assert not [n for n in names if n.startswith("generator.embed.") and ".map." not in n]
    assert model.generator.embed.positions is model.decoder.embed.positions
    assert "generator.embed.map.weight" not in names  # 32 wide, as the tables are
    assert "generator.embed.map.weight" in dict(tiny(generator_divisor=4).named_parameters())


@pytest.mark.parametrize(
    ("name", "millions", "width", "heads"),
    [
        ("electra_small", 13.5, 64, 1),
        ("electra_base", 108.9, 256, 4),
        ("electra_large", 334, 256, 4),
    ],
)
def test_sizes_are_the_papers(name, millions, width, heads):
    config = registry.get("arch", name)()
    with torch.device("meta"):
        parts = dict(config.build(30522).named_parameters())
    told = sum(p.numel() for n, p in parts.items() if not n.startswith(("generator.", "heads.lm.")))
    assert told / 1e6 == pytest.approx(millions, rel=0.01)
    assert (config.generator.width, config.generator.num_heads) == (width, heads)


def test_a_generator_that_knows_nothing_begins_at_the_logarithm_of_the_words(batch):
    model = tiny(init_std=1e-4)
    loss = ElectraLossConfig().build(None)(model, batch, 0, 1)
    words = loss.sums["mlm"].item() / len(batch.asks["mlm"].label)
    assert words == pytest.approx(math.log(60), rel=1e-2)
    told = loss.parts["detect/nll"].item() / batch.num_real
    assert told == pytest.approx(math.log(2), rel=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"nsp": True}, "--task.nsp on"), ({"shift": True}, "--task.shift on")],
)
def test_what_it_has_not_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Electra.Config(**options)


def test_words_need_a_generator(batch):
    lone = tiny(generator_divisor=0, head_transform=False)
    with pytest.raises(UsageError, match="--arch.generator-divisor 0"):
        lone(batch)
    with pytest.raises(UsageError, match="--criterion electra needs"):
        plain = registry.get("arch", "bert_tiny")().build(60)
        ElectraLossConfig().build(None)(plain, batch, 0, 1)


NAMES = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}


@pytest.fixture
def pair(hf, kit, tmp_path, vocab_txt):
    """Both networks of transformers with common embeddings, 3 layers and 2, and their folder."""
    torch.manual_seed(0)
    common = {"vocab_size": 60, "embedding_size": 16, "max_position_embeddings": 40}
    sizes = {
        "discriminator": (3, 32, 4, 48),
        "generator": (2, 16, 2, 24),
    }
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    models = {}
    for side, own in sizes.items():
        config = hf.ElectraConfig(**common, **dict(zip(keys, own, strict=True)))
        models[side] = kit.perturbed(getattr(hf, NAMES[side])(config))
    models["generator"].electra.embeddings.load_state_dict(
        models["discriminator"].electra.embeddings.state_dict()
    )
    for side, model in models.items():
        model.save_pretrained(tmp_path / "pair" / side)
        (tmp_path / "pair" / side / "vocab.txt").write_text(vocab_txt.read_text())
    return models, tmp_path / "pair"


def test_both_networks_are_those_of_transformers_both_ways(kit, pair, batch, tmp_path):
    models, there = pair
    loaded = load(kit.to_unitk("electra_pair", there, tmp_path / "ours"))
    ours, ask = loaded.model, batch.asks["mlm"]
    assert loaded.task.name == "electra" and ours.config.generator_layers == 2
    ids = batch.towers["x"][TOKEN]
    seen = (batch.towers["x"][5] < 1 << 30).long()
    with torch.no_grad():
        wanted = models["generator"](ids, attention_mask=seen).logits.flatten(0, 1)[ask.first]
        found = ours.output(batch, ask)[:, :60]
        assert_near(found, wanted)
        told = replace_words(batch, ask, ask.label)
        wanted = models["discriminator"](told.towers["x"][TOKEN], attention_mask=seen).logits
        assert_near(ours.output(told, told.asks["detect"])[seen.flatten() > 0], wanted[seen > 0])
    back = kit.from_unitk(tmp_path / "ours", "electra_pair", tmp_path / "back")
    for side, name in NAMES.items():
        theirs, again = (load_file(one / side / "model.safetensors") for one in (there, back))
        assert theirs.keys() == again.keys()
        assert not [name for name in theirs if not torch.equal(theirs[name], again[name])]
        assert json.loads((back / side / "config.json").read_text())["architectures"] == [name]
    # the discriminator alone, as what is fine-tuned
    alone = kit.from_unitk(tmp_path / "ours", "hf", tmp_path / "alone")
    assert (
        load_file(alone / "model.safetensors").keys()
        == load_file(there / "discriminator" / "model.safetensors").keys()
    )


def test_networks_that_do_not_belong_together_are_refused(hf, kit, pair, tmp_path):
    models, there = pair
    with torch.no_grad():
        models["generator"].electra.embeddings.word_embeddings.weight[7, 3] += 1
    models["generator"].save_pretrained(there / "generator")
    with pytest.raises(CheckpointError, match=r"generator\.electra\.\S+word_embeddings"):
        kit.to_unitk("electra_pair", there, tmp_path / "ours")
    with pytest.raises(CheckpointError, match=r"generator: .* --from hf"):
        kit.to_unitk("electra_pair", there / "generator", tmp_path / "ours")
