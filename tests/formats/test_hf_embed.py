"""The states of imported models are those of transformers, at every depth."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

import unitk
from tests.conftest import toy_lines
from unitk.formats.hf.folder import write
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded, load


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("arch", "task"),
    [
        ("bert_base", "mlm"),
        ("roberta_base", "mlm"),
        ("modernbert_tiny", "mlm"),
        ("modernbert_tiny", "lm"),
        ("eurobert_210m", "mlm"),
        ("gpt2_small", "lm"),
        ("llama_135m", "lm"),
        ("mistral_7b", "lm"),
        ("smollm3_3b", "lm"),
        ("ernie4_5_0.3b", "lm"),
        ("glm_edge_1.5b", "lm"),
        ("glm4_9b_0414", "lm"),
        ("phi3_3.8b", "lm"),
        ("stablelm_2_1.6b", "lm"),
        ("starcoder2_3b", "lm"),
        ("olmo2_1b", "lm"),
        ("gemma3_1b", "lm"),
        ("pythia_14m", "lm"),
        ("bart_base", "seq2seq"),
        ("t5_base", "seq2seq"),
        ("t5gemma_tiny", "seq2seq"),
    ],
)
def test_states_are_theirs(kit, tmp_path, toy_vocab, arch, task):
    hf = pytest.importorskip("transformers")
    task_type = get("task", task)
    torch.manual_seed(0)
    # A T5 of 100 begins its buckets at no whole distance, where rounding would decide between two.
    config = get("arch", arch)()
    config = tiny(replace(config, num_kv_heads=min(config.num_kv_heads, 1)))
    config = replace(config, **{"relative_distance": 100} if arch == "t5_base" else {})
    made = kit.perturbed(config.build(len(toy_vocab)))
    there = tmp_path / "there"
    there.mkdir()
    write(Loaded(made, task_type(task_type.Config(), toy_vocab), {"arch": arch}, {}), there)
    ours = kit.to_unitk("hf", there, tmp_path / "ours")
    texts = toy_lines(9)
    states = [unitk.load(ours).embed(texts, layer=n, pool="none") for n in (0, 1, 2, -1)]
    task = load(ours).task
    model = hf.AutoModel.from_pretrained(there).eval()
    model = model.encoder if model.config.is_encoder_decoder else model
    means = unitk.load(ours).embed(texts)
    assert means.shape == (9, made.config.width) and means.dtype == np.float32
    for i, text in enumerate(texts):
        ids = task.reading([np.array(task.vocab.encode(text))]).token
        with torch.no_grad():
            theirs = model(torch.from_numpy(ids)[None], output_hidden_states=True).hidden_states
        for own, wanted in zip(states, (*theirs, theirs[-1]), strict=True):
            assert_near(own[i], wanted[0])
        scale = theirs[-1].abs().max().item()
        words = ~np.isin(ids, list(task.vocab.symbols.values()))
        assert np.allclose(means[i], theirs[-1][0][words].mean(0), rtol=1e-4, atol=1e-5 * scale)
