"""THU-ERNIE's release: its forward pass restated, with and without entities; what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from tests.formats.conftest import logits, single, to_unitk
from unitk.errors import CheckpointError
from unitk.families.thu_ernie.config import CANDIDATES
from unitk.slots import collate
from unitk.training.saving.checkpoint import load

V, D, H, FFN, E, EH, ENTITIES = 60, 32, 4, 48, 20, 4, 7
TYPES = ["sim", "mix", "norm", "norm"]
CONFIG = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 4, "num_attention_heads": H}
CONFIG |= {"intermediate_size": FFN, "max_position_embeddings": 40, "type_vocab_size": 2}
CONFIG |= {"hidden_act": "gelu", "layer_types": TYPES}


def linear(name, rows, columns):
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def normal(name, width):
    return {f"{name}.gamma": (width,), f"{name}.beta": (width,)}


def shapes():
    """The shapes of the release's file, by its names."""
    found = {f"bert.embeddings.{part}_embeddings.weight": (rows, D)
             for part, rows in (("word", V), ("position", 40), ("token_type", 2))}  # fmt: skip
    found |= normal("bert.embeddings.LayerNorm", D) | linear("bert.pooler.dense", D, D)
    for number, kind in enumerate(TYPES):
        root = f"bert.encoder.layer.{number}."
        for end, width in (("", D), ("_ent", E))[: 1 + (kind == "norm")]:
            for part in ("query", "key", "value"):
                found |= linear(f"{root}attention.self{end}.{part}", width, width)
            found |= linear(f"{root}attention.output{end}.dense", width, width)
            found |= normal(f"{root}attention.output{end}.LayerNorm", width)
        for end, width in (("", D), ("_ent", E))[: 1 + (kind != "sim")]:
            found |= linear(f"{root}intermediate.dense{end}", FFN, width)
            found |= linear(f"{root}output.dense{end}", width, FFN)
            found |= normal(f"{root}output.LayerNorm{end}", width)
    head = "cls.predictions"
    found |= linear(f"{head}.transform.dense", D, D) | normal(f"{head}.transform.LayerNorm", D)
    found |= {f"{head}.bias": (V,)} | linear("cls.seq_relationship", 2, D)
    head = "cls.predictions_ent.transform"
    return found | linear(f"{head}.dense", E, D) | normal(f"{head}.LayerNorm", E)


@pytest.fixture
def released(tmp_path):
    """A folder of the release with random weights, and these."""
    torch.manual_seed(0)
    w = {name: 0.3 * torch.randn(shape) for name, shape in shapes().items()}
    table = w["bert.embeddings.word_embeddings.weight"]
    there = tmp_path / "there"
    there.mkdir()
    torch.save(w | {"cls.predictions.decoder.weight": table}, there / "pytorch_model.bin")
    (there / "ernie_config.json").write_text(json.dumps(CONFIG))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(55))]
    (there / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    return w, there


def states(w, tokens, vectors, linked):
    """The release's last states of a text with the vectors [T, E] of the linked slots."""

    def mapped(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def normed(x, name):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.gamma"], w[f"{name}.beta"], 1e-12)

    def attended(x, root, end, heads, seen):
        def split(part):
            made = mapped(x, f"{root}attention.self{end}.{part}")
            return made.unflatten(-1, (heads, -1)).transpose(0, 1)

        score = split("query") @ split("key").mT / (x.shape[-1] // heads) ** 0.5
        found = (score - 1e4 * (1 - seen)).softmax(-1) @ split("value")
        found = mapped(found.transpose(0, 1).flatten(1), f"{root}attention.output{end}.dense")
        return normed(found + x, f"{root}attention.output{end}.LayerNorm")

    e, mask, root = vectors, linked[:, None], "bert.embeddings."
    x = w[f"{root}word_embeddings.weight"][tokens]
    x = x + w[f"{root}position_embeddings.weight"][: len(tokens)]
    x = normed(x + w[f"{root}token_type_embeddings.weight"][0], f"{root}LayerNorm")
    for number, kind in enumerate(TYPES):
        root = f"bert.encoder.layer.{number}."
        x = attended(x, root, "", H, torch.ones(len(tokens)))
        h = mapped(x, f"{root}intermediate.dense")
        if kind != "sim":
            e = (attended(e, root, "_ent", EH, linked) if kind == "norm" else e) * mask
            h = h + mapped(e, f"{root}intermediate.dense_ent")
        h = F.gelu(h)
        x = normed(mapped(h, f"{root}output.dense") + x, f"{root}output.LayerNorm")
        if kind != "sim":
            e = normed(mapped(h, f"{root}output.dense_ent") + e, f"{root}output.LayerNorm_ent")
    return x


def words(w, x):
    """The release's logits over words of states."""
    name = "cls.predictions.transform."
    x = F.gelu(F.linear(x, w[f"{name}dense.weight"], w[f"{name}dense.bias"]))
    x = F.layer_norm(x, (D,), w[f"{name}LayerNorm.gamma"], w[f"{name}LayerNorm.beta"], 1e-12)
    return F.linear(x, w["bert.embeddings.word_embeddings.weight"], w["cls.predictions.bias"])


def test_a_text_without_entities_is_read_as_by_the_release(released, tmp_path):
    """C has an entity without a vector all the same."""
    w, there = released
    ours = load(to_unitk("thu_ernie", there, tmp_path / "ours"))
    assert ours.task.name == "thu_ernie" and ours.task.config.nsp
    tokens = np.random.default_rng(0).integers(5, V, 12)
    first = torch.zeros(12).index_fill(0, torch.tensor([0]), 1)
    wanted = words(w, states(w, torch.from_numpy(tokens), torch.zeros(12, E), first))
    assert_near(logits(ours.model, single(tokens, seg=0), V), wanted)


def test_a_text_with_entities_is_read_as_by_the_release(released, tmp_path):
    """Also after another text of its row."""
    w, there = released
    found = load(to_unitk("thu_ernie", there, tmp_path / "ours")).model
    config = replace(found.config, heads=(*found.config.heads, f"{CANDIDATES}:{ENTITIES}"))
    model = config.build(len(found.decoder.embed.tokens.weight)).eval()
    model.load_state_dict(found.state_dict(), strict=False)
    table = model.heads.get(CANDIDATES).table.weight
    rng, made, wanted = np.random.default_rng(1), [], []
    for n in (9, 12, 5):
        tokens, entity = (
            rng.integers(5, V, n),
            rng.integers(0, ENTITIES, n) * (np.arange(n) % 3 > 1),
        )
        number = torch.from_numpy(entity)
        linked = ((number > 0) | (torch.arange(n) == 0)).float()
        vectors = table.detach()[number] * (number > 0)[:, None]
        wanted.append(states(w, torch.from_numpy(tokens), vectors, linked))
        made.append(replace(single(tokens, seg=0), inputs={"x.entity": entity}))
    batch = collate([made[:2], made[2:]]).to("cpu")
    with torch.no_grad():
        states_BTD = model(batch, model.condition(batch))[0]["x"]
    assert_near(states_BTD[0, :21], torch.cat(wanted[:2]))
    assert_near(states_BTD[1, :5], wanted[2])


@pytest.mark.parametrize(
    "types",
    [["sim"] * 4, ["norm", "sim", "sim", "norm"], ["sim", "mix", "mix", "norm"], ["norm"], 3],
)
def test_layers_in_another_order_are_named(released, tmp_path, types):
    _, there = released
    (there / "ernie_config.json").write_text(json.dumps(CONFIG | {"layer_types": types}))
    with pytest.raises(CheckpointError, match=r"ernie_config\.json: layer_types"):
        to_unitk("thu_ernie", there, tmp_path / "ours")
