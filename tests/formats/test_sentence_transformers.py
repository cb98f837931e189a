"""Folders of sentence-transformers: its vectors are those of `unitk embed`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import toy_lines
from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed
from unitk.errors import UsageError
from unitk.formats import push
from unitk.models.archs import preset, tiny
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded

TEXTS = [*toy_lines(5), "one", "", "An emoji 🙂 that nobody knows.", "[CLS] is no [MASK]"]


@pytest.fixture
def parts(kit, toy_vocab):
    """A small random model of a task."""

    def made(arch, task, **changes):
        torch.manual_seed(0)
        kind = get("task", task)
        config = replace(tiny(preset(arch)), **changes)
        model = kit.perturbed(config.build(len(toy_vocab)))
        own = kind(kind.Config(), toy_vocab).with_trained(pairs=False)
        return Loaded(model, own, {"arch": arch}, {})

    return made


def written(own, folder, **options):
    folder.mkdir()
    get("format", "sentence-transformers").write(own, folder, **options)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "task"),
    [
        *(("bert_base", "mlm"), ("roberta_base", "mlm"), ("albert_base", "mlm")),
        *(("qwen3_mini", "mlm"), ("qwen3_mini", "lm"), ("gpt2_small", "lm")),
        *(("llama_tiny", "mlm"), ("gemma3_tiny", "lm"), ("eurobert_210m", "mlm")),
        *(("modernbert_tiny", "mlm"), ("modernbert_tiny", "lm")),
        *(("bert_base", "contrastive"), ("unilm_base", "unilm")),
    ],
)
def test_vectors_are_those_of_embed(parts, tmp_path, arch, task):
    there = pytest.importorskip("sentence_transformers")
    own = parts(arch, task)
    sources = [[np.array(own.vocab.encode(text), np.int64)] * bool(text) for text in TEXTS]
    for number, options in enumerate(
        ({}, {"specials": True}, {"pool": "first"}, {"pool": "last", "normalize": True})
    ):
        folder = written(own, tmp_path / str(number), **options)
        found = there.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=8)
        given = {name: value for name, value in options.items() if name != "normalize"}
        wanted = np.array(embed(own.model, own.task, sources, EmbedConfig(**given)))
        if "normalize" in options:
            wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True).clip(1e-12)
        some = [i for i, text in enumerate(TEXTS) if text or not options]  # an empty one is zeros
        scale = np.abs(wanted).max()
        assert np.allclose(found[some], wanted[some], rtol=1e-4, atol=1e-4 * scale), options


@pytest.mark.parametrize(
    ("arch", "task"), [("bert_base", "mlm"), ("unilm_base", "unilm"), ("gpt2_small", "lm")]
)
def test_texts_are_laid_out_as_embed_reads_them(parts, tmp_path, arch, task):
    transformers = pytest.importorskip("transformers")
    own = parts(arch, task)
    folder = written(own, tmp_path / "it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        read = own.task.to_embed([np.array(own.vocab.encode(text), np.int64)]).towers["enc"]
        found = tokenizer(text)
        assert found["input_ids"] == read.token.tolist()
        assert "token_type_ids" not in found or found["token_type_ids"] == read.seg.tolist()


@pytest.mark.parametrize("task", ["mlm", "contrastive"])
def test_the_folder_names_modules_of_the_package_only(parts, tmp_path, task):
    pytest.importorskip("transformers")
    folder = written(parts("bert_base", task), tmp_path / "it", normalize=True)
    modules = json.loads((folder / "modules.json").read_text())
    assert [one["type"].rpartition(".")[2] for one in modules] == [
        *("Transformer", "WordWeights", "Pooling", "Normalize")
    ]
    assert all(one["type"].startswith("sentence_transformers.models.") for one in modules)
    assert all((folder / one["path"]).is_dir() for one in modules)
    pooling = json.loads((folder / "2_Pooling" / "config.json").read_text())
    assert pooling.keys() == {"word_embedding_dimension", "pooling_mode"}  # known since version 3
    given = push.Options(model=folder, repo="me/it")  # each file is one that may be uploaded
    assert "modules.json" in push.files_of(folder, given, "main")


@pytest.mark.parametrize(
    ("arch", "task", "options", "message"),
    [
        ("bart_base", "seq2seq", {}, "--to sentence-transformers .*bart"),
        ("modern_mini", "lm", {}, "^--to sentence-transformers: .*--arch"),
        ("bert_base", "mlm", {"pool": "first", "specials": True}, "--specials .*--pool first"),
    ],
)
def test_what_has_no_place_there(parts, tmp_path, arch, task, options, message):
    with pytest.raises(UsageError, match=message):
        written(parts(arch, task), tmp_path / "it", **options)
