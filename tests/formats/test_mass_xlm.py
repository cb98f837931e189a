"""MASS for translation, written by a reference in plain torch under the names of XLM's code."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

import unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, UsageError
from unitk.models import archs
from unitk.slots import Example, collate, stay
from unitk.training.saving.checkpoint import load
from unitk.vocab.open import open_vocab

FIRST = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10))]
WORDS = [*FIRST, *(f"w{i}@@" for i in range(46))]
V, D, H, FFN, P = len(WORDS), 64, 4, 48, 40
LAYERS = {"encoder": 2, "decoder": 3}
EOS, PAD, MASK = 1, 2, 5
OUTPUT = "pred_layer.proj.bias"


def original(languages=2):
    """A checkpoint; of one language it has neither language embeddings nor several output maps."""
    torch.manual_seed(0)
    found = {}
    for side, layers in LAYERS.items():
        t = found[side] = {}

        def linear(name, *shape, t=t):
            t[f"{name}.weight"] = 0.2 * torch.randn(shape)
            t[f"{name}.bias"] = 0.1 * torch.randn(shape[:1])

        def norm(name, t=t):
            t[f"{name}.weight"] = 1 + 0.2 * torch.randn(D)
            t[f"{name}.bias"] = 0.1 * torch.randn(D)

        def attention(name, outs):
            for part in "qkv":
                linear(f"{name}.{part}_lin", D, D)
            for out in outs:
                linear(f"{name}.out_lin{out}", D, D)

        t["embeddings.weight"] = 0.15 * torch.randn(V, D)
        t["position_embeddings.weight"] = 2.0 * torch.randn(P, D)
        if languages > 1:
            t["lang_embeddings.weight"] = 0.3 * torch.randn(languages, D)
        norm("layer_norm_emb")
        for i in range(layers):
            attention(f"attentions.{i}", [""])
            if side == "decoder":
                outs = [f".{k}" for k in range(languages)] if languages > 1 else [""]
                attention(f"encoder_attn.{i}", outs)
                norm(f"layer_norm15.{i}")
            linear(f"ffns.{i}.lin1", FFN, D)
            linear(f"ffns.{i}.lin2", D, FFN)
            norm(f"layer_norm1.{i}")
            norm(f"layer_norm2.{i}")
        t["pred_layer.proj.weight"] = t["embeddings.weight"]
        t["pred_layer.proj.bias"] = 0.2 * torch.randn(V)
    names = {0: "en", 1: "fr", 2: "de"}
    found["params"] = {
        **{"n_heads": H, "dropout": 0.1, "attention_dropout": 0.1, "gelu_activation": True},
        **{"asm": False, "n_langs": languages, "eos_index": EOS, "pad_index": PAD, "unk_index": 3},
        **{"mask_index": MASK, "id2lang": {i: names[i] for i in range(languages)}},
    }
    found["dico_id2word"] = dict(enumerate(WORDS))
    found["dico_word2id"] = {word: i for i, word in enumerate(WORDS)}
    found["dico_counts"] = {w: 100 - i if i > 13 else 0 for i, w in enumerate(WORDS)}
    return found


def reference(found, source, fed, languages, positions=None, seen=None):
    """The logits of every decoder slot; `seen`: which source slots the decoder may look at."""

    def tower(side, tokens, positions, language, memory=None):
        t = found[side]

        def norm(x, name):
            return F.layer_norm(x, (D,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-12)

        def linear(x, name):
            return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

        def attend(x, keys, name, out, sees):
            parts = (linear(z, f"{name}.{p}_lin") for z, p in ((x, "q"), (keys, "k"), (keys, "v")))
            q, k, v = (z.view(-1, H, D // H).transpose(0, 1) for z in parts)
            score = (q / math.sqrt(D // H) @ k.mT).masked_fill(~sees, -float("inf"))
            mixed = (score.softmax(-1) @ v).transpose(0, 1).reshape(-1, D)
            return linear(mixed, f"{name}.out_lin{out}")

        tokens = torch.as_tensor(np.array(tokens))
        x = t["embeddings.weight"][tokens] + t["position_embeddings.weight"][positions]
        if "lang_embeddings.weight" in t:
            x = x + t["lang_embeddings.weight"][language]
        x = norm(x, "layer_norm_emb")
        own = torch.ones(len(tokens), len(tokens), dtype=bool)
        own = own if memory is None else own.tril()
        several = "encoder_attn.0.out_lin.0.weight" in t
        for i in range(LAYERS[side]):
            x = norm(x + attend(x, x, f"attentions.{i}", "", own), f"layer_norm1.{i}")
            if memory is not None:
                out = f".{language}" if several else ""
                may = torch.ones(len(memory), dtype=bool) if seen is None else seen
                read = attend(x, memory, f"encoder_attn.{i}", out, may)
                x = norm(x + read, f"layer_norm15.{i}")
            inner = linear(F.gelu(linear(x, f"ffns.{i}.lin1")), f"ffns.{i}.lin2")
            x = norm(x + inner, f"layer_norm2.{i}")
        return x

    memory = tower("encoder", source, torch.arange(len(source)), languages[0])
    positions = torch.arange(len(fed)) if positions is None else torch.as_tensor(positions)
    t = found["decoder"]
    x = tower("decoder", fed, positions, languages[1], memory)
    return x @ t["pred_layer.proj.weight"].T + t["pred_layer.proj.bias"]


def decode(found, source, steps, languages):
    """Greedy, from </s> between sentences that </s> has both ends of."""
    words = [EOS]
    for _ in range(steps):
        said = reference(found, [EOS, *source, EOS], words, languages)[-1]
        said[[PAD, MASK]] = -1e9
        words.append(int(said.argmax()))
        if words[-1] == EOS:
            break
    return words[1:]


@pytest.fixture
def store(tmp_path):
    def stored(found):
        folder = tmp_path / "there"
        folder.mkdir()
        torch.save(found, folder / "mass_enfr.pth", _use_new_zipfile_serialization=False)
        return folder

    return stored


def words(rng, n):
    return rng.integers(len(FIRST), V, n)


@pytest.mark.every(2)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_logits_outputs_and_the_export_are_theirs(kit, store, tmp_path, count):
    found = original(count)
    there = store(found)
    rng = np.random.default_rng(0)
    source, written = words(rng, 12), []
    for pair in ((0, 1), (1, 0), (1, 1)) if count > 1 else ((0, 0),):
        dest = tmp_path / "ours-{}-{}".format(*pair)
        kit.to_unitk("mass", there, dest, "--task.languages", "{},{}".format(*pair))
        loaded = load(dest)
        fed = words(rng, 8)
        example = loaded.task.finetune([source], fed, rng)
        given = [EOS, *source, EOS], [EOS, *fed]
        wanted = reference(found, *given, pair)
        logits = kit.logits(loaded.model, example, V)
        assert_near(logits, wanted)
        [[best]] = unitk.load(dest).outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=7))
        greedy = decode(found, source, 7, pair)
        assert best.hypothesis.ids.tolist()[: len(greedy)] == greedy
        written.append(greedy)
        back = kit.from_unitk(dest, "mass", tmp_path / "back-{}-{}".format(*pair))
        again = torch.load(back / "mass.pth", weights_only=True)
        for side in LAYERS:
            # nothing reads what the encoder would predict
            bias = again["encoder"]["pred_layer.proj.bias"]
            assert not bias.any() and again[side].keys() == found[side].keys()
            kept = {n: t for n, t in found[side].items() if (side, n) != ("encoder", OUTPUT)}
            assert all(torch.equal(again[side][name], kept[name]) for name in kept)
        for name in ("dico_id2word", "dico_word2id", "dico_counts"):
            assert again[name] == found[name]
        names = ("n_heads", "dropout", "gelu_activation", "n_langs", "eos_index", "mask_index")
        assert all(again["params"][name] == found["params"][name] for name in names)
    assert len({tuple(one) for one in written}) > (count > 1)
    assert any(len(set(one)) > 1 for one in written)


def test_a_span_has_its_places_and_its_language(kit, store, tmp_path):
    """Pre-training: both towers in the source's language, hidden words unseen by the decoder."""
    from unitk.data.cuts import Text

    found = original()
    dest = kit.to_unitk("mass", store(found), tmp_path / "ours", "--task.languages", "1,0")
    loaded, rng = load(dest), np.random.default_rng(3)
    text = words(rng, 20)
    example = loaded.task.pretrain(Text([text], np.zeros(1, int)), rng)
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert (enc.token == MASK).sum() > 5 and (enc.token[1:-1] != MASK).sum() > 5
    cls = loaded.vocab.cls
    source, fed = (np.where(x.token == cls, EOS, x.token) for x in (enc, dec))
    seen = torch.from_numpy(source != MASK)
    wanted = reference(found, source, fed, (1, 1), dec.pos, seen)
    logits = kit.logits(loaded.model, example, V)
    assert_near(logits, wanted)


def test_directions_are_packed_together(kit, store, tmp_path):
    """Every slot finds the output map of its own language."""
    found, rng = original(), np.random.default_rng(4)
    there, examples, wanted = store(found), [], []
    for pair in ((0, 1), (1, 0)):
        dest = tmp_path / "ours-{}-{}".format(*pair)
        loaded = load(kit.to_unitk("mass", there, dest, "--task.languages", "{},{}".format(*pair)))
        source, fed = words(rng, 9), words(rng, 5)
        examples.append(loaded.task.finetune([source], fed, rng))
        wanted.append(reference(found, [EOS, *source, EOS], [EOS, *fed], pair))
    batch = collate([examples]).to("cpu")
    with torch.no_grad():
        states = loaded.model(batch)[0]["dec"].flatten(0, 1)
        logits = loaded.model.head(states[batch.asks["lm"].rows[:, 0]])[:, :V]
    assert_near(logits, torch.cat(wanted))


def test_an_output_map_for_each_language_is_counted_and_changes_outputs():
    small = {"num_layers": 2, "width": 16, "num_heads": 2, "ffn_width": 32, "max_positions": 9}
    several = replace(archs.preset("mass_translation"), **small)
    slots = stay(np.arange(6), np.arange(6), at=np.arange(6), seg=[0, 0, 0, 1, 1, 1])
    batch = collate([[Example({"enc": slots, "dec": slots})]]).to("cpu")
    states, sizes = [], []
    for config in (several, replace(several, cross_by_segment=False)):
        torch.manual_seed(0)
        model = config.build(10).eval()
        sizes.append(sum(p.numel() for p in model.parameters() if p.dim() > 1))
        assert sizes[-1] == config.num_weights(10)
        states.append(model(batch)[0]["dec"])
    assert sizes[0] > sizes[1]
    assert not torch.allclose(*states, atol=1e-3)
    with pytest.raises(UsageError, match="cross-by-segment must be.* --arch.num-segments"):
        replace(several, num_segments=0)


def test_what_cannot_be_read_is_named(kit, store, tmp_path, caplog):
    found = original()
    there = store(found)
    with pytest.raises(UsageError, match="has no embedding.*language 2"):
        kit.to_unitk("mass", there, tmp_path / "ours", "--task.languages", "0,2")
    kit.to_unitk("mass", there, tmp_path / "ours")
    assert "from language 0 into language 1" in caplog.text and "(0 en, 1 fr)" in caplog.text
    for change, message in (
        ({"params": None}, "has no params of its model"),
        ({"params": {**found["params"], "attention_setting": "v2"}}, "only attention_setting 'v1'"),
        ({"params": {**found["params"], "n_heads": "x"}}, "n_heads must be a whole number"),
        ({"dico_id2word": None}, "has no dictionary: --vocab is needed"),
        ({"dico_id2word": {0: "a"}}, "does not begin as one of XLM"),
    ):
        torch.save(found | change, there / "mass_enfr.pth")
        with pytest.raises(CheckpointError, match=message):
            kit.to_unitk("mass", there, tmp_path / "none")


def test_the_dictionary_as_a_file(tmp_path):
    path = tmp_path / "vocab.en-fr"
    path.write_text("the 9\nle@@ 5\n")
    vocab = open_vocab(path)
    assert vocab.encode("le@@ the cat <pad> </s>") == [15, 14, 3, 3, 3]
    assert vocab.decode([1, 14, 2, 15, 14, 15, 1]) == "the lethe le"
    vocab.save(tmp_path / "saved")
    assert open_vocab(tmp_path / "saved").hash == vocab.hash
