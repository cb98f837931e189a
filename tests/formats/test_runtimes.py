"""Models that other runtimes compute: CTranslate2 and ONNX Runtime say what unitk says."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import toy_lines
from unitk.decoding.generator import Generator
from unitk.errors import UsageError
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.slots import Example, collate
from unitk.training.saving.checkpoint import Loaded


@pytest.fixture
def parts(kit, toy_vocab):
    """A small random model of a task."""

    def made(arch, task, **settings):
        made_from = get("task", task)
        torch.manual_seed(0)
        own = made_from(made_from.Config(), toy_vocab)
        config = replace(tiny(get("arch", arch)()), **settings)
        model = kit.perturbed(config.build(len(toy_vocab)))
        return Loaded(model, own, {"arch": arch}, {})

    return made


def written(parts, target, folder):
    pytest.importorskip("transformers")
    folder.mkdir()
    get("format", target).write(parts, folder)
    return folder


def pieces(folder, texts):
    """The tokens that the tokenizer beside a model makes, with its special symbols."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, [
        tokenizer.convert_ids_to_tokens(tokenizer(one)["input_ids"]) for one in texts
    ]


@pytest.mark.parametrize("arch", ["bart_base", "t5_small"])
def test_ctranslate2_scores_what_two_towers_write(parts, arch, tmp_path):
    ct2 = pytest.importorskip("ctranslate2")
    own = parts(arch, "seq2seq")
    folder = written(own, "ctranslate2", tmp_path / "there")
    sources, targets = toy_lines(3), [line[:12] for line in toy_lines(6)[3:]]
    generator = Generator(own.model, own.task)
    ours = generator.score(sources, targets)
    _, read = pieces(folder, sources)
    vocab = own.task.vocab
    wanted = [vocab.pieces(one.hypothesis.ids[:-1].tolist()) for one in ours]
    theirs = ct2.Translator(str(folder)).score_batch(read, wanted)
    for one, other in zip(ours, theirs, strict=True):
        gains = one.hypothesis.token_log_probs
        assert len(other.log_probs) == len(gains) > 2
        assert np.allclose(other.log_probs, gains, rtol=1e-4, atol=1e-4)


def test_a_second_symbol_is_the_prefix_of_a_translation(parts, tmp_path, caplog):
    ct2 = pytest.importorskip("ctranslate2")
    own = parts("bart_base", "seq2seq")
    kind = type(own.task)
    own = replace(own, task=kind(kind.Config(opening="both"), own.task.vocab))
    folder = written(own, "ctranslate2", tmp_path / "there")
    vocab = own.task.vocab
    first = vocab.pieces([vocab.cls])
    assert f"target_prefix={[first]}" in caplog.text
    sources = toy_lines(3)
    _, read = pieces(folder, sources)
    ours = Generator(own.model, own.task).generate(sources, beam=1, max_len=6)
    theirs = ct2.Translator(str(folder)).translate_batch(
        read, target_prefix=[first] * 3, beam_size=1, max_decoding_length=7
    )
    for (one,), other in zip(ours, theirs, strict=True):
        words = vocab.pieces(one.hypothesis.ids.tolist())
        assert other.hypotheses[0][1:] == words[: len(other.hypotheses[0]) - 1]


def test_ctranslate2_reads_on_as_gpt2_does(parts, tmp_path):
    ct2 = pytest.importorskip("ctranslate2")
    own = parts("gpt2_small", "lm")
    folder = written(own, "ctranslate2", tmp_path / "there")
    generator = Generator(own.model, own.task)
    for text in toy_lines(2):
        [logits] = generator.logits(text)
        ids = own.task.reading([*generator.encode([[text]])[0]]).token
        [found] = ct2.Generator(str(folder)).score_batch([own.task.vocab.pieces(ids.tolist())])
        gains = torch.from_numpy(logits).double().log_softmax(1)[np.arange(len(ids) - 1), ids[1:]]
        assert np.allclose(found.log_probs, gains, rtol=1e-4, atol=1e-4)


def states_of(own, text):
    slots = own.task.reading([np.array(own.task.vocab.encode(text), np.int64)])
    batch = collate([[Example({"x": slots})]]).to("cpu")
    with torch.no_grad():
        return slots.token, own.model(batch)[0]["x"][0, : len(slots)].numpy()


def test_ctranslate2_reads_as_bert_does(parts, tmp_path):
    ct2 = pytest.importorskip("ctranslate2")
    own = parts("bert_base", "mlm")
    folder = written(own, "ctranslate2", tmp_path / "there")
    for text in toy_lines(2):
        ids, states = states_of(own, text)
        found = ct2.Encoder(str(folder)).forward_batch([ids.tolist()])
        there = np.array(found.last_hidden_state)[0]
        assert np.allclose(there, states, rtol=1e-4, atol=1e-4 * np.abs(states).max())


ENCODERS = ["bert_base", "roberta_base", "albert_base", "deberta_v3_base", "modernbert_base"]


@pytest.mark.parametrize("arch", ENCODERS)
def test_onnx_says_of_each_slot_what_the_model_says(parts, arch, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    own = parts(arch, "mlm")
    folder = written(own, "onnx", tmp_path / "there")
    session = runtime.InferenceSession(str(folder / "model.onnx"))
    texts = toy_lines(3)
    tokenizer, _ = pieces(folder, texts)
    read = tokenizer(texts, padding=True, return_tensors="np")
    names = [one.name for one in session.get_inputs()]
    if "token_type_ids" in names and "token_type_ids" not in read:
        read["token_type_ids"] = np.zeros_like(read["input_ids"])
    outputs = session.run(None, {name: read[name].astype(np.int64) for name in names})
    first = session.get_outputs()[0].name
    assert first in ("logits", "prediction_logits")
    wanted = Generator(own.model, own.task).logits(texts)
    for found, one in zip(outputs[0], wanted, strict=True):
        assert np.allclose(found[: len(one)], one, rtol=1e-4, atol=1e-4 * np.abs(one).max())


@pytest.mark.parametrize("arch", ["bert_base", "roberta_base"])
def test_onnx_has_the_states_of_a_bare_model_and_nothing_made_up(parts, arch, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    own = parts(arch, "mlm", head_transform=False, output_bias=False, heads=())
    session = runtime.InferenceSession(str(written(own, "onnx", tmp_path / "t") / "model.onnx"))
    assert [one.name for one in session.get_outputs()] == ["last_hidden_state"]
    ids, states = states_of(own, toy_lines(1)[0])
    read = {one.name: np.zeros((1, len(ids)), np.int64) for one in session.get_inputs()}
    read |= {"input_ids": ids[None].astype(np.int64), "attention_mask": np.ones((1, len(ids)), int)}
    [found] = session.run(None, read)
    assert np.allclose(found[0], states, rtol=1e-4, atol=1e-4 * np.abs(states).max())


def test_t5_1_1_is_not_taken(parts, tmp_path):
    pytest.importorskip("ctranslate2")
    with pytest.raises(UsageError, match="takes T5 1.0, .*not T5 1.1"):
        written(parts("t5_v1_1_small", "seq2seq"), "ctranslate2", tmp_path / "t5")


def test_a_t5_with_one_head_is_refused(parts, tmp_path):
    pytest.importorskip("ctranslate2")
    own = parts("t5_small", "seq2seq")
    own.model.config = replace(own.model.config, num_heads=1)
    with pytest.raises(UsageError, match="--arch.num-heads"):
        written(own, "ctranslate2", tmp_path / "t5")


def test_an_activation_that_ctranslate2_lacks(parts, tmp_path):
    pytest.importorskip("ctranslate2")
    own = parts("gpt2_small", "lm")
    own.model.config = replace(own.model.config, activation="relu2")
    with pytest.raises(UsageError, match="no activation relu2"):
        written(own, "ctranslate2", tmp_path / "gpt2")


def test_what_they_do_not_take(parts, tmp_path, monkeypatch):
    def find(name, real=importlib.util.find_spec):
        return None if name in ("onnx", "ctranslate2") else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    for target, arch, task, message in (  # whether the package is installed or not
        ("ctranslate2", "albert_base", "mlm", "takes bart, .*, not a albert model"),
        ("onnx", "gpt2_small", "lm", "takes encoders .*, not a gpt2 model"),
        ("onnx", "glm_base", "glm_infill", "^--to onnx: no class of transformers fits"),
    ):
        with pytest.raises(UsageError, match=message):
            written(parts(arch, task), target, tmp_path / arch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    with pytest.raises(UsageError, match="--to onnx.* no GPTBERTFor"):
        written(parts("gpt_bert_tiny", "mlm"), "onnx", tmp_path / "code")
    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(UsageError, match=r"--to onnx needs.*onnx: pip .*unitk\[onnx\]"):
        written(parts("bert_base", "mlm"), "onnx", tmp_path / "missing")
