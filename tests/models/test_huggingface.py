"""BERT, RoBERTa, GPT-2, BART and T5 equal Hugging Face's: states, logits, loss and gradients.

Both get the same random weights; their rows are padded, ours are alone, padded or packed.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.criterions.cross_entropy import CrossEntropy
from unitk.formats.hf.tables.bart import BART
from unitk.formats.hf.tables.bert import BERT, ROBERTA
from unitk.formats.hf.tables.gpt import GPT2
from unitk.formats.hf.tables.t5 import T5, T5_GATED
from unitk.models import archs
from unitk.slots import Ask, Example, collate, lm, stay

V, PAD = 60, 1
LENGTHS = (9, 16, 5, 21)
ROWS = {
    "alone": [[0]],
    "ragged": [[0], [1], [2], [3]],
    "packed": [[0, 1], [3, 2]],
}


def translate(theirs, layout, ours):
    """Their tensors (weights or gradients) under our names; projections are joined."""
    shapes = {name: parameter.shape for name, parameter in ours.named_parameters()}
    return layout.from_stored(theirs, shapes, ours.config, "reference")


@pytest.fixture(scope="module")
def hf():
    found = pytest.importorskip("transformers")
    # they are imported when first named
    assert (
        found.BertModel
        and found.RobertaModel
        and found.GPT2Model
        and found.BartModel
        and found.T5Model
    )
    return found


def twins(reference, ours, layout):
    """Both models with the same weights, far from those at the start."""
    torch.manual_seed(0)
    reference.train()  # their dropout is 0
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    state = translate(dict(reference.named_parameters()), layout, ours)
    missing = ours.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"encoder.embed.tokens.weight"}  # shared
    return reference, ours


def padded(rows, value):
    """Arrays of unlike length as one tensor."""
    out = np.full((len(rows), max(map(len, rows))), value)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(out)


def words(rng, n):
    return rng.integers(5, V, size=n)


def assert_same_loss(ours, batch, loss_of_theirs, reference, layout):
    """Loss and gradients; the loss is the sum of the asks' means."""
    loss = CrossEntropy()(ours, batch, 0, 1)
    total = sum(loss.sums[name] / batch.count[name] for name in loss.sums)
    assert torch.allclose(total, loss_of_theirs, rtol=1e-5)
    total.backward()
    loss_of_theirs.backward()
    wanted = {name: parameter.grad for name, parameter in reference.named_parameters()}
    wanted = translate(wanted, layout, ours)
    for name, parameter in ours.named_parameters():
        assert_near(parameter.grad, wanted[name], roundings=512)


def assert_same_states(ours, batch, order, tower, reference_states):
    """The states of every real slot; `order` are the examples in the batch's order."""
    table, states = batch.towers[tower], ours(batch)[0][tower]
    real = table[5] < 1 << 30
    wanted = torch.cat([reference_states[i, : LENGTHS[i]] for i in order])
    assert_near(states[real], wanted)


def masked(tokens, segments, rows, label, next_sentence):
    """An MLM example; also a question of two classes at the first slot where given."""
    slots = stay(tokens, np.arange(len(tokens)), seg=segments)
    asks = [lm(rows, label)]
    if next_sentence is not None:
        zero = np.zeros((1, 1), np.int64)
        one = np.ones(1, np.float32)
        asks.append(Ask("nsp", "class:nsp", "x", zero, np.array([next_sentence]), one))
    return Example({"x": slots}, asks)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_losses_of_bert_and_roberta_are_theirs(hf, family, rows):
    rng = np.random.default_rng(1)
    settings = {
        "vocab_size": V,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": PAD,
    }
    if family == "bert":
        reference = hf.BertForPreTraining(hf.BertConfig(**settings))
        ours = archs.preset("bert_tiny").build(V)
    else:
        more = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        reference = hf.RobertaForMaskedLM(hf.RobertaConfig(**settings, **more))
        ours = archs.tiny(archs.preset("roberta_base")).build(V)
    layout = {"bert": BERT, "roberta": ROBERTA}[family]
    twins(reference, ours, layout)

    tokens = [words(rng, n) for n in LENGTHS]
    segments = [np.arange(n) * (family == "bert") > n // 2 for n in LENGTHS]
    asked = [np.sort(rng.choice(n, 3, replace=False)) for n in LENGTHS]
    label = [words(rng, 3) for _ in LENGTHS]
    following = [i % 2 if family == "bert" else None for i in range(len(LENGTHS))]
    examples = [
        masked(*parts) for parts in zip(tokens, segments, asked, label, following, strict=True)
    ]
    batch = collate([[examples[i] for i in row] for row in rows]).to("cpu")

    order = [i for row in rows for i in row]
    labels = padded(tokens, PAD).fill_(-100)
    for i in order:
        labels[i, asked[i]] = torch.from_numpy(label[i])
    given = {
        "input_ids": padded(tokens, PAD),
        "attention_mask": padded([np.ones(n) for n in LENGTHS], 0),
        "token_type_ids": padded([part.astype(int) for part in segments], 0),
        "labels": labels,
    }
    if family == "bert":
        answers = torch.tensor([y if i in order else -100 for i, y in enumerate(following)])
        given["next_sentence_label"] = answers
    out = reference(**given, output_hidden_states=True)
    assert_same_states(ours, batch, order, "x", out.hidden_states[-1])
    ask = batch.asks["lm"]
    logits = ours.head(ours(batch)[0]["x"].flatten(0, 1)[ask.rows[:, 0]])
    theirs = out.prediction_logits if family == "bert" else out.logits
    wanted = torch.cat([theirs[i, asked[i]] for i in order])
    assert_near(logits, wanted)
    assert_same_loss(ours, batch, out.loss, reference, layout)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_losses_of_gpt2_are_theirs(hf, rows):
    rng = np.random.default_rng(2)
    config = hf.GPT2Config(
        vocab_size=V,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    reference, ours = hf.GPT2LMHeadModel(config), archs.preset("gpt2_tiny").build(V)
    twins(reference, ours, GPT2)
    tokens = [words(rng, n) for n in LENGTHS]
    examples = []
    for ids in tokens:
        order = np.arange(len(ids))
        slots = stay(ids, order, at=order)
        examples.append(Example({"x": slots}, [lm(order[:-1], ids[1:])]))
    batch = collate([[examples[i] for i in row] for row in rows]).to("cpu")
    assert batch.sight["x"] == ("rule" if len(rows) == 2 else "causal")

    order = [i for row in rows for i in row]
    labels = padded([ids if i in order else ids * 0 - 100 for i, ids in enumerate(tokens)], -100)
    out = reference(
        input_ids=padded(tokens, PAD),
        attention_mask=padded([np.ones(n) for n in LENGTHS], 0),
        labels=labels,
        output_hidden_states=True,
    )
    assert_same_states(ours, batch, order, "x", out.hidden_states[-1])
    ask = batch.asks["lm"]
    logits = ours.head(ours(batch)[0]["x"].flatten(0, 1)[ask.rows[:, 0]])
    wanted = torch.cat([out.logits[i, : LENGTHS[i] - 1] for i in order])
    assert_near(logits, wanted)
    assert_same_loss(ours, batch, out.loss, reference, GPT2)


def encoder_decoders(hf, family):
    """Theirs, ours, and the table of names."""
    if family == "bart":
        sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
        sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
        sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 256)
        config = hf.BartConfig(vocab_size=V, d_model=64, dropout=0.0, pad_token_id=PAD, **sizes)
        return hf.BartForConditionalGeneration(config), archs.preset("bart_tiny").build(V), BART
    sizes = {"d_model": 64, "d_kv": 24, "d_ff": 256, "num_layers": 2, "num_heads": 4}
    sizes |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}
    ours = replace(archs.preset("t5_tiny"), relative_buckets=8, relative_distance=10)
    if family == "t5_v1_1":
        ours = replace(ours, ffn_gate=True, activation="gelu_tanh", tied=False, output_scale=False)
        sizes |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    config = hf.T5Config(vocab_size=V, dropout_rate=0.0, pad_token_id=PAD, **sizes)
    theirs = hf.T5ForConditionalGeneration(config)
    if family == "t5_v1_1":  # which their library ties at first
        theirs.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn(V, 64))
    return theirs, ours.build(V), T5 if family == "t5" else T5_GATED


@pytest.mark.parametrize("hidden", [False, True], ids=["open", "hidden"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("family", ["bart", "t5", "t5_v1_1"])
def test_losses_of_encoder_decoders_are_theirs(hf, family, rows, hidden):
    """`hidden`: some of the encoder's slots are hidden from the decoder, as in MASS."""
    rng = np.random.default_rng(3)
    reference, ours, layout = encoder_decoders(hf, family)
    twins(reference, ours, layout)
    source, target = [words(rng, n) for n in LENGTHS], [words(rng, n + 1) for n in LENGTHS[::-1]]
    may = [rng.random(n) < (0.6 if hidden else 2) for n in LENGTHS]
    examples = []
    for ids, reads, written in zip(source, may, target, strict=True):
        reads[0] = True
        order = np.arange(len(written) - 1)
        towers = {
            "enc": stay(ids, np.arange(len(ids)), cross=reads),
            "dec": stay(written[:-1], order, at=order),
        }
        examples.append(Example(towers, [lm(order, written[1:], tower="dec")]))
    batch = collate([[examples[i] for i in row] for row in rows]).to("cpu")

    order = [i for row in rows for i in row]
    encoded = reference.get_encoder()(
        input_ids=padded(source, PAD), attention_mask=padded([np.ones(n) for n in LENGTHS], 0)
    )
    labels = [ids[1:] if i in order else ids[1:] * 0 - 100 for i, ids in enumerate(target)]
    out = reference(
        encoder_outputs=encoded,
        attention_mask=padded([part.astype(int) for part in may], 0),
        decoder_input_ids=padded([ids[:-1] for ids in target], PAD),
        labels=padded(labels, -100),
    )
    assert_same_states(ours, batch, order, "enc", encoded.last_hidden_state)
    ask = batch.asks["lm"]
    logits = ours.head(ours(batch)[0]["dec"].flatten(0, 1)[ask.rows[:, 0]])
    wanted = torch.cat([out.logits[i, : len(target[i]) - 1] for i in order])
    assert_near(logits, wanted)
    assert_same_loss(ours, batch, out.loss, reference, layout)


def test_parameters_of_the_large_bart_are_theirs(hf):
    sizes = {"base": (6, 768, 12, 3072), "large": (12, 1024, 16, 4096)}
    for name, (layers, width, heads, ffn) in sizes.items():
        with torch.device("meta"):
            config = hf.BartConfig(
                encoder_layers=layers,
                decoder_layers=layers,
                d_model=width,
                encoder_attention_heads=heads,
                decoder_attention_heads=heads,
                encoder_ffn_dim=ffn,
                decoder_ffn_dim=ffn,
                vocab_size=50265,
            )
            theirs = hf.BartForConditionalGeneration(config)
            ours = archs.preset(f"bart_{name}").build(50265)
        count, wanted = (sum(p.numel() for p in m.parameters()) for m in (ours, theirs))
        assert count == wanted
