"""GLM's files, written by a reference in plain torch under the original names."""

import argparse
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

import unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.formats import glm
from unitk.formats.glm import GPT2, ROBERTA, WORDPIECE
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded, load

D, H, L, P = 64, 1, 2, 41
PIECES, ROWS = 30522, 30592
CLS, MASK, EOS, SOP, EOP = 101, 103, 0, 30522, 30523


def original(rows=ROWS):
    torch.manual_seed(0)
    shapes = {
        "input_layernorm": (D,),
        "attention.query_key_value": (3 * D, D),
        "attention.dense": (D, D),
        "post_attention_layernorm": (D,),
        "mlp.dense_h_to_4h": (4 * D, D),
        "mlp.dense_4h_to_h": (D, 4 * D),
    }
    modules = {f"transformer.layers.{i}.{n}": s for i in range(L) for n, s in shapes.items()}
    modules["transformer.final_layernorm"] = (D,)
    found = {f"{name}.weight": 0.2 * torch.randn(shape) for name, shape in modules.items()}
    found |= {f"{name}.bias": 0.1 * torch.randn(shape[:1]) for name, shape in modules.items()}
    for name in found:
        found[name] += "layernorm.weight" in name
    found["word_embeddings.weight"] = 0.4 * torch.randn(rows, D)
    for name in ("position", "block_position"):
        found[f"transformer.{name}_embeddings.weight"] = torch.randn(P, D)
    return found


def reference(t, tokens, pos, block, part_a):
    """The logits of every slot; the first `part_a` slots are seen by all, the others from left."""
    x = t["word_embeddings.weight"][torch.as_tensor(tokens)]
    x = x + t["transformer.position_embeddings.weight"][torch.as_tensor(pos)]
    x = x + t["transformer.block_position_embeddings.weight"][torch.as_tensor(block)]
    place = torch.arange(len(tokens))
    sees = (place[None] < part_a) | (place[None] <= place[:, None])

    def norm(x, name):
        return F.layer_norm(x, (D,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    for i in range(L):
        a = f"transformer.layers.{i}."
        qkv = linear(norm(x, f"{a}input_layernorm"), f"{a}attention.query_key_value")
        q, k, v = (z.view(-1, H, D // H).transpose(0, 1) for z in qkv.chunk(3, dim=-1))
        score = (q @ k.mT / math.sqrt(D // H)).masked_fill(~sees, -1e9)
        mixed = (score.softmax(-1) @ v).transpose(0, 1).reshape(-1, D)
        x = x + linear(mixed, f"{a}attention.dense")
        inner = linear(norm(x, f"{a}post_attention_layernorm"), f"{a}mlp.dense_h_to_4h")
        x = x + linear(F.gelu(inner, approximate="tanh"), f"{a}mlp.dense_4h_to_h")
    return norm(x, "transformer.final_layernorm") @ t["word_embeddings.weight"].T


def decode(t, source, steps):
    """Greedy filling of the one blank, which is before the source."""
    part_a = [CLS, MASK, *source, EOS]
    words = []
    for _ in range(steps):
        tokens = [*part_a, SOP, *words]
        pos = [*range(len(part_a)), *[1] * (1 + len(words))]
        block = [*[0] * len(part_a), *range(1, 2 + len(words))]
        said = reference(t, tokens, pos, block, len(part_a))[-1]
        said[[102, CLS, EOS, MASK, SOP, 30524, 30525]] = -1e9
        words.append(int(said.argmax()))
        if words[-1] == EOP:
            break
    return words


@pytest.fixture
def store(tmp_path):
    """Writes a checkpoint as DeepSpeed does, and BERT's vocabulary beside it."""

    def stored(tensors):
        folder = tmp_path / "there"
        folder.mkdir()
        about = {"args": argparse.Namespace(seed=1), "rng": np.random.RandomState(0).get_state()}
        torch.save({"module": tensors, **about}, folder / "mp_rank_00_model_states.pt")
        pieces = [f"w{i}" for i in range(PIECES)]
        for name, index in {"PAD": 0, "UNK": 100, "CLS": 101, "SEP": 102, "MASK": 103}.items():
            pieces[index] = f"[{name}]"
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        return folder

    return stored


def test_logits_outputs_and_the_export_are_theirs(kit, store, tmp_path):
    tensors = original()
    there = store(tensors)
    loaded = load(kit.to_unitk("glm", there, tmp_path / "ours"))
    assert len(loaded.vocab) == ROWS
    assert {name: loaded.vocab.symbols[name] for name in WORDPIECE} == WORDPIECE
    rng = np.random.default_rng(0)
    tokens = rng.integers(200, PIECES, 30)
    pos, block = rng.integers(0, P, (2, 30))
    at = np.maximum(np.arange(30) - 19, 0)
    wanted = reference(tensors, tokens, pos, block, 20)
    found = kit.logits(loaded.model, kit.single(tokens, at=at, pos=pos, pos2=block))
    assert_near(found, wanted)
    source = rng.integers(200, PIECES, 6)
    generator = unitk.load(there, format="glm")
    [[best]] = generator.outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=6))
    words = decode(tensors, source, 6)
    assert best.hypothesis.ids.tolist()[: len(words)] == words and len(set(words)) > 1
    back = kit.goes_back(
        tmp_path / "ours", "glm", tmp_path / "back", "mp_rank_00_model_states.pt", tensors
    )
    assert (back / "vocab.txt").read_text().startswith((there / "vocab.txt").read_text())


@pytest.mark.parametrize(("pieces", "fixed"), [(50257, GPT2), (50265, ROBERTA)])
def test_the_symbols_of_other_tokenizers(kit, store, tmp_path, pieces, fixed):
    """As many pieces as GPT-2's or RoBERTa's tokenizer has: their ids are those that GLM gave."""
    there = store(original(50304))
    (there / "vocab.txt").unlink()
    words = {f"w{i}": i for i in range(pieces)}
    named = {"<|endoftext|>": 50256} if fixed is GPT2 else {"<s>": 0, "<pad>": 1, "</s>": 2}
    named |= {} if fixed is GPT2 else {"<unk>": 3, "<mask>": 50264}
    words = {word: i for word, i in words.items() if i not in named.values()} | named
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w9"}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    special = [{"id": i, "content": word, "special": True, **flags} for word, i in named.items()]
    spec = {"version": "1.0", "added_tokens": special, "model": model, "normalizer": None}
    spec |= {"pre_tokenizer": {"type": "Whitespace"}}
    (there / "tokenizer.json").write_text(json.dumps(spec))
    vocab = load(kit.to_unitk("glm", there, tmp_path / "ours")).vocab
    assert len(vocab) == 50304 and {name: vocab.symbols[name] for name in fixed} == fixed
    assert len(set(vocab.symbols.values())) == len(vocab.symbols)
    assert vocab.encode("w20 w50000") == [20, 50000]


def test_ids_that_collide_are_refused(kit, store, tmp_path):
    """As in a released Chinese model: the end of a blank and [gMASK] had one id."""
    there = store(original())
    ids = {"<|startofpiece|>": 30523, "<|endofpiece|>": 30524, "[gMASK]": 30524}
    (there / "added_tokens.json").write_text(json.dumps(ids))
    with pytest.raises(DataError, match="symbols eop.*id 30524"):
        kit.to_unitk("glm", there, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    ids["[gMASK]"] = 30525
    (there / "added_tokens.json").write_text(json.dumps(ids))
    with pytest.raises(DataError, match="symbols gmask.*id 30525"):
        kit.to_unitk("glm", there, tmp_path / "ours")
    ids["[sMASK]"] = 10**12
    (there / "added_tokens.json").write_text(json.dumps(ids))
    with pytest.raises(DataError, match="smask has id 1000000000000, .*checkpoint.* 30,592"):
        kit.to_unitk("glm", there, tmp_path / "ours")
    ids["[sMASK]"] = 30526
    (there / "added_tokens.json").write_text(json.dumps(ids))
    vocab = load(kit.to_unitk("glm", there, tmp_path / "ours")).vocab
    assert (vocab.sop, vocab.eop, vocab.gmask, vocab.smask) == (30523, 30524, 30525, 30526)


def test_a_model_cut_over_devices_is_refused(kit, store, tmp_path):
    there = store(original())
    (there / "mp_rank_01_model_states.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="divided over several devices"):
        kit.to_unitk("glm", there, tmp_path / "ours")


def test_a_model_without_places_in_blanks_is_no_glm(toy_vocab, tmp_path):
    task = get("task", "lm")
    model = get("arch", "gpt2_tiny")().build(len(toy_vocab))
    parts = Loaded(model, task(task.Config(), toy_vocab), {}, {})
    with pytest.raises(UsageError, match="a GLM has --arch.max-positions2 above 0"):
        glm.write(parts, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows,doubted", [(1060, False), (1061, True)])
def test_a_vocabulary_of_far_fewer_pieces_is_doubted(
    kit, store, tmp_path, vocab_txt, caplog, rows, doubted
):
    """A cased vocabulary for an uncased model would give each piece the row of another one."""
    more = ("--vocab", vocab_txt, "--arch.num-heads", 4)
    kit.to_unitk("glm", store(original(rows)), tmp_path / "ours", *more)
    said = f"the vocabulary has 60 pieces for {rows:,} rows; is it the one of this model?"
    assert (said in caplog.text) == doubted
