"""DeBERTa, LTG-BERT, GPT-BERT: rows of distances, the released forward pass, names, shapes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near
from safetensors.torch import load_file, save_file

from tests.formats.conftest import goes_back, ids, logits, perturbed, single, to_unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, UsageError
from unitk.families.disentangled.network import distance_rows
from unitk.formats.hf.families import kind_of
from unitk.models import archs
from unitk.registry import get
from unitk.slots import collate
from unitk.training.saving.checkpoint import load

V, D, H, FFN, L, BUCKETS, FAR = 60, 32, 4, 48, 2, 8, 24


def test_rows_of_distances():
    """Up to 4 a row each; up to 23 as many rows as there are left; then the last one."""
    distance = torch.arange(-30, 31)
    found = dict(zip(distance.tolist(), distance_rows(distance, 15, 24).tolist(), strict=True))
    assert [found[n] for n in (-4, -1, 0, 1, 4)] == [3, 6, 7, 8, 11]
    assert found[23] == found[30] == 14 and found[-23] == found[-30] == 0
    # equal factors of 5.75 ** (1 / 3): 4, 7.2, 12.8, 23
    assert [found[n] for n in (5, 7, 8, 12, 13, 23)] == [12, 12, 13, 13, 14, 14]


def names():
    """The shapes of a release's file, by its names."""
    shapes = {
        "embedding.word_embedding.weight": (V, D),
        "embedding.relative_embedding": (2 * BUCKETS - 1, D),
        "embedding.relative_layer_norm.weight": (D,),
        "embedding.relative_layer_norm.bias": (D,),
        "classifier.nonlinearity.1.weight": (D, D),
        "classifier.nonlinearity.1.bias": (D,),
        "classifier.nonlinearity.5.bias": (V,),
    }
    for n in range(L):
        root = f"transformer.layers.{n}."
        for part, rows in (("in_proj_qk", 2 * D), ("in_proj_v", D), ("out_proj", D)):
            shapes |= {f"{root}attention.{part}.weight": (rows, D)}
            shapes |= {f"{root}attention.{part}.bias": (rows,)}
        for part in ("weight", "bias"):
            shapes |= {f"{root}attention.post_layer_norm.{part}": (D,)}
        shapes |= {f"{root}mlp.mlp.1.weight": (2 * FFN, D), f"{root}mlp.mlp.4.weight": (D, FFN)}
    return shapes


CONFIG = {"model_type": "ltgbert", "vocab_size": V, "hidden_size": D, "num_hidden_layers": L}
CONFIG |= {"num_attention_heads": H, "intermediate_size": FFN, "position_bucket_size": BUCKETS}
CONFIG |= {"max_position_embeddings": FAR, "layer_norm_eps": 1e-7}


def restated(w, row):
    """LTG-BERT's logits for a row of ids (Samuel et al. 2023, sections 3.1 and 3.2)."""

    def plain(x):
        return F.layer_norm(x, x.shape[-1:], eps=1e-7)

    def normed(x, name):
        return F.layer_norm(x, (D,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-7)

    def mapped(x, name):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    x = plain(w["embedding.word_embedding.weight"][row])
    relative = normed(w["embedding.relative_embedding"], "embedding.relative_layer_norm")
    places = range(len(row))
    index = torch.tensor([[BUCKETS - 1 + bucket(i - j) for j in places] for i in places])
    for n in range(L):
        root = f"transformer.layers.{n}."
        read = plain(x)

        def heads(y):
            return y.unflatten(-1, (H, D // H)).transpose(0, 1)

        query, key = map(heads, mapped(read, f"{root}attention.in_proj_qk").chunk(2, -1))
        value = heads(mapped(read, f"{root}attention.in_proj_v"))
        of_query, of_key = map(heads, mapped(relative, f"{root}attention.in_proj_qk").chunk(2, -1))
        score = query @ key.mT
        score = score + torch.einsum("hik,hijk->hij", query, of_key[:, index])
        score = score + torch.einsum("hjk,hijk->hij", key, of_query[:, index])
        made = (score / math.sqrt(3 * D / H)).softmax(-1) @ value
        out = mapped(made.transpose(0, 1).flatten(1), f"{root}attention.out_proj")
        x = x + normed(out, f"{root}attention.post_layer_norm")
        values, gate = mapped(plain(x), f"{root}mlp.mlp.1").chunk(2, -1)
        x = x + mapped(plain(values * F.gelu(gate, approximate="tanh")), f"{root}mlp.mlp.4")
    x = plain(F.gelu(mapped(plain(x), "classifier.nonlinearity.1")))
    return F.linear(x, w["embedding.word_embedding.weight"], w["classifier.nonlinearity.5.bias"])


def bucket(distance):
    """The bucket of a distance, one by one."""
    middle = BUCKETS // 2
    if abs(distance) <= middle:
        return distance
    size = min(abs(distance), FAR - 1)
    steps = math.log(size / middle) / math.log((FAR - 1) / middle) * (middle - 1)
    return int(math.copysign(math.ceil(steps - 1e-6) + middle, distance))


@pytest.fixture
def released(tmp_path):
    """A folder of LTG-BERT with random weights, and these."""
    torch.manual_seed(0)
    w = {name: 0.3 * torch.randn(shape) for name, shape in names().items()}
    (tmp_path / "there").mkdir()
    save_file(w, tmp_path / "there" / "model.safetensors")
    (tmp_path / "there" / "config.json").write_text(json.dumps(CONFIG))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(55))]
    (tmp_path / "there" / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    return w, tmp_path / "there"


def test_ltg_bert_is_the_release(released, tmp_path):
    w, there = released
    ours = load(to_unitk("hf", there, tmp_path / "ours")).model
    tokens = ids(np.random.default_rng(1), 40)  # beyond the longest distance
    assert_near(logits(ours, single(tokens), V), restated(w, torch.from_numpy(tokens)))
    saved = load_file(there / "model.safetensors")
    goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", saved)


def gpt_bert_shapes(layers="model.", head="lm_head."):
    """The shapes of GPT-BERT's file of 2025 (or 2024), by its names."""
    embedding = "embedding." if layers == "transformer." else "model.embedding."
    shapes = {
        f"{embedding}word_embedding.weight": (V, D),
        f"{embedding}relative_embedding": (2 * BUCKETS - 1, D),
        f"{embedding}relative_layer_norm.weight": (D,),
        f"{embedding}relative_layer_norm.bias": (D,),
        f"{head}nonlinearity.1.weight": (D, D),
        f"{head}nonlinearity.1.bias": (D,),
        f"{head}nonlinearity.5.bias": (V,),
    }
    for n in range(L):
        root = f"{layers}attention_layers.{n}."
        for part, rows in (("in_proj_qk", 2 * D), ("in_proj_vg", 2 * D), ("out_proj", D)):
            shapes |= {f"{root}{part}.weight": (rows, D), f"{root}{part}.bias": (rows,)}
        root = f"{layers}mlp_layers.{n}.mlp."
        shapes |= {f"{root}1.weight": (2 * FFN, D), f"{root}4.weight": (D, FFN)}
    sums = {f"{layers}dwa_modules.alphas.{n}": (n + 2,) for n in range(2 * L)}
    return shapes | sums


def restated_gpt_bert(w, row, causal=False):
    """GPT-BERT's logits for a row of ids (Charpentier and Samuel 2024, section 3.1)."""

    def plain(x):
        return F.layer_norm(x, x.shape[-1:], eps=1e-7)

    def mapped(x, name):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def heads(y):
        return y.unflatten(-1, (H, D // H)).transpose(0, 1)

    table = w["model.embedding.relative_embedding"]
    norm = "model.embedding.relative_layer_norm"
    relative = F.layer_norm(table, (D,), w[f"{norm}.weight"], w[f"{norm}.bias"], 1e-7)
    x = plain(w["model.embedding.word_embedding.weight"][row])
    made, places = [x], range(len(row))
    index = torch.tensor([[BUCKETS - 1 + bucket(i - j) for j in places] for i in places])

    def weighed(state):
        made.append(state)
        weight = w[f"model.dwa_modules.alphas.{len(made) - 2}"]
        return sum(a * b for a, b in zip(weight, made, strict=True))

    for n in range(L):
        root, read = f"model.attention_layers.{n}.", plain(x)
        query, key = map(heads, mapped(read, f"{root}in_proj_qk").chunk(2, -1))
        value, gate = mapped(read, f"{root}in_proj_vg").chunk(2, -1)
        of_query, of_key = map(heads, mapped(relative, f"{root}in_proj_qk").chunk(2, -1))
        score = query @ key.mT
        score = score + torch.einsum("hik,hijk->hij", query, of_key[:, index])
        score = score + torch.einsum("hjk,hijk->hij", key, of_query[:, index])
        score = score / math.sqrt(3 * D / H)
        if causal:
            score = score.masked_fill(torch.ones(len(row), len(row)).triu(1).bool(), -math.inf)
        found = (score.softmax(-1) @ heads(value)).transpose(0, 1).flatten(1)
        x = weighed(x + mapped(plain(found * F.gelu(gate)), f"{root}out_proj"))
        root = f"model.mlp_layers.{n}.mlp."
        values, gate = mapped(plain(x), f"{root}1").chunk(2, -1)
        x = weighed(x + mapped(plain(values * F.gelu(gate, approximate="tanh")), f"{root}4"))
    x = plain(F.gelu(mapped(plain(x), "lm_head.nonlinearity.1")))
    bias = w["lm_head.nonlinearity.5.bias"]
    return F.linear(x, w["model.embedding.word_embedding.weight"], bias)


@pytest.mark.parametrize("old", [False, True])
def test_gpt_bert_is_the_release(released, tmp_path, old):
    _, there = released
    w = {name: 0.3 * torch.randn(shape) for name, shape in gpt_bert_shapes().items()}
    stored = w
    if old:  # the same tensors by the names of 2024
        theirs = gpt_bert_shapes("transformer.", "classifier.")
        stored = dict(zip(theirs, w.values(), strict=True))
    save_file(stored, there / "model.safetensors")
    (there / "config.json").write_text(json.dumps(CONFIG | {"model_type": "gpt_bert"}))
    ours = load(to_unitk("hf", there, tmp_path / "ours"))
    assert ours.task.name == "mlm" and ours.task.config.shift
    tokens = ids(np.random.default_rng(1), 40)
    row, at = torch.from_numpy(tokens), np.arange(40)
    assert_near(logits(ours.model, single(tokens), V), restated_gpt_bert(w, row))
    assert_near(
        logits(ours.model, single(tokens, at=at), V), restated_gpt_bert(w, row, causal=True)
    )
    goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", w)


def test_gpt_bert_that_is_called_ltg_bert_is_named(released, tmp_path):
    _, there = released
    w = {
        name: torch.randn(shape)
        for name, shape in gpt_bert_shapes("transformer.", "classifier.").items()
    }
    save_file(w, there / "model.safetensors")
    with pytest.raises(CheckpointError, match="gpt_bert"):
        to_unitk("hf", there, tmp_path / "ours")


def test_each_leaves_as_its_own_type():
    types = {"deberta_v3": "deberta-v2", "ltg_bert": "ltgbert", "gpt_bert": "gpt_bert"}
    for arch, kind in ((f"{arch}_tiny", kind) for arch, kind in types.items()):
        assert kind_of(archs.preset(arch), arch) == kind


@pytest.mark.parametrize("arch", ["deberta_v3_tiny", "ltg_bert_tiny", "gpt_bert_tiny"])
def test_layers_share_the_vectors_of_distances(arch):
    model = perturbed(get("arch", arch)().build(V))
    named = [name for name, _ in model.named_parameters() if "positions.table" in name]
    assert named == ["layers.0.attention.positions.table.weight"]
    # moving a text as a whole changes nothing, moving its parts apart does
    tokens = ids(np.random.default_rng(2), 12)
    at = np.arange(12)
    there = logits(model, single(tokens, pos=at))
    assert_near(logits(model, single(tokens, pos=at + 50)), there)
    assert (logits(model, single(tokens, pos=at + 3 * (at > 5))) - there).abs().max() > 1e-3


@pytest.mark.parametrize("arch", ["deberta_v3_tiny", "ltg_bert_tiny", "gpt_bert_tiny"])
def test_packing_and_padding_change_nothing(arch):
    model = perturbed(get("arch", arch)().build(V)).eval()
    rng = np.random.default_rng(3)
    texts = [single(ids(rng, count)) for count in (9, 14, 5)]
    alone = [logits(model, text, V) for text in texts]
    batch = collate([texts[:2], texts[2:]]).to("cpu")
    with torch.no_grad():
        states = model(batch)[0]["x"].flatten(0, 1)
        assert_near(model.head(states[batch.asks["lm"].rows[:, 0]])[:, :V], torch.cat(alone))


@pytest.mark.parametrize("arch", ["deberta_v3_tiny", "ltg_bert_tiny", "gpt_bert_tiny"])
def test_a_search_finds_what_a_full_pass_says(arch, toy_vocab):
    """As a decoder: scores of cached steps are those of whole texts, for every hypothesis."""
    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    torch.manual_seed(1)
    model = perturbed(get("arch", arch)().build(len(toy_vocab))).eval()
    generator = Generator(model, task)
    config = GenerateConfig(beam=3, nbest=3, max_len=12)
    sources = generator.sources([[text] for text in ("a b c d", "e", "f g a")])
    found = generator.outputs(Sources(sources), config)
    for number in range(3):
        written = [best[number].hypothesis.ids for best in found]
        for best, [one] in zip(
            found, generator.scores(Sources(sources), written, config), strict=True
        ):
            score = best[number].hypothesis.score
            assert one.hypothesis.score == pytest.approx(score, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"conv_kernel_size": 3}, "conv_kernel_size"),
        ({"share_att_key": False}, "share_att_key"),
        ({"pos_att_type": ["c2p"]}, "pos_att_type"),
        ({"position_buckets": -1}, "position_buckets"),
        ({"relative_attention": False}, "relative_attention"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_field(tmp_path, released, change, field):
    _, there = released
    about = {**CONFIG, "model_type": "deberta-v2", "position_buckets": 8, "share_att_key": True}
    about |= {"relative_attention": True, "pos_att_type": "p2c|c2p", **change}
    (there / "config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=f"config.json: .*{field}") as error:
        to_unitk("hf", there, tmp_path / "ours")
    assert "\n" not in str(error.value)


def test_too_few_rows_are_refused():
    with pytest.raises(UsageError, match="--arch.position-rows .* 8"):
        replace(archs.preset("deberta_v3_tiny"), position_rows=3)


def test_scores_that_are_always_scaled_have_no_option():
    with pytest.raises(UsageError, match="--arch.score-scale .* off"):
        replace(archs.preset("deberta_v3_tiny"), score_scale=False)
