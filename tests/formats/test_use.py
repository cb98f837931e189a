"""An imported checkpoint is one like any other: it is trained from, and goes out again."""

import json

import numpy as np
import torch
from safetensors.torch import load_file

from unitk.training.saving.checkpoint import load
from unitk.verbs import preprocess, train


def test_trained_from_and_exported(kit, tmp_path, vocab_txt):
    from unitk.formats.unilm import write
    from unitk.models.archs import preset
    from unitk.registry import get
    from unitk.training.saving.checkpoint import Loaded
    from unitk.vocab.open import open_vocab

    task = get("task", "unilm")
    vocab = open_vocab(vocab_txt)
    torch.manual_seed(0)
    model = preset("unilm_tiny").build(len(vocab))
    there = tmp_path / "there"
    there.mkdir()
    rows = {"embed.tokens.weight": 60, "heads.lm.bias": 60}
    write(Loaded(model, task(task.Config(), vocab), {}, rows), there)
    ours = kit.to_unitk("unilm", there, tmp_path / "ours")
    rng = np.random.default_rng(0)
    for side in ("source", "target"):
        lines = [" ".join(f"w{i}" for i in rng.integers(0, 55, 4)) for _ in range(20)]
        (tmp_path / side).write_text("\n".join(lines))
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    sides = ("--source-file", tmp_path / "source", "--target-file", tmp_path / "target")
    preprocess.run([str(word) for word in (*sides, "--vocab", ours, "--dest", corpus)])
    options = ("--data", corpus, "--init-from", ours, "--save-dir", run, "--max-steps", 2)
    train.run([str(word) for word in ("--task", "unilm", *options, "--device", "cpu")])
    trained = load(run)
    assert trained.model.config == load(ours).model.config
    back = kit.from_unitk(run, "hf", tmp_path / "back")
    about = json.loads((back / "config.json").read_text())
    assert about["vocab_size"] == len(vocab) > 60 and about["type_vocab_size"] == 6
    words = load_file(back / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert torch.equal(words, trained.model.decoder.embed.tokens.weight)
