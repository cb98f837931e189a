"""Masks are filled: in one pass (mlm), or as a span of known length (mass)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.decoding.generator import Generator
from unitk.errors import DataError, UsageError
from unitk.slots import collate


def build(name, arch, vocab, options=None, **changes):
    cls = registry.get("task", name)
    torch.manual_seed(0)
    config = replace(registry.get("arch", arch)(), init_std=0.2, **changes)
    return Generator(config.build(len(vocab)).eval(), cls(cls.Config(**options or {}), vocab))


@pytest.fixture(scope="module")
def mlm(toy_vocab):
    return build("mlm", "bert_tiny", toy_vocab, max_positions=32)


@pytest.mark.parametrize("shift", [False, True])
def test_each_mask_gets_its_likeliest_word(toy_vocab, shift):
    mlm = build("mlm", "bert_tiny", toy_vocab, {"shift": shift}, max_positions=32)
    texts = ["The [MASK] of [MASK].", "[MASK]", "Babe [MASK] kelo [MASK] mipu [MASK]."]
    for text, [output] in zip(texts, mlm.infill(texts), strict=True):
        source = mlm.encode_blanks(text)
        batch = collate([[mlm.task.prompt(source)]]).to("cpu")
        with torch.no_grad():
            states, _ = mlm.model(batch)
            rows = np.flatnonzero(source[0] == toy_vocab.mask) + 1
            logits = mlm.model.head(states["x"][0, rows - shift])
        logits[:, list(toy_vocab.symbols.values())] = -torch.inf
        best = logits.log_softmax(-1).max(-1)
        assert output.hypothesis.ids.tolist() == best.indices.tolist()
        assert output.hypothesis.log_prob == pytest.approx(float(best.values.sum()), abs=1e-4)
        filled = source[0].copy()
        filled[rows - 1] = best.indices
        assert output.text == toy_vocab.decode(filled)


def test_mistakes(mlm):
    with pytest.raises(UsageError, match="one output"):
        mlm.infill(["The [MASK]."], nbest=2, beam=2)
    for idle in ({"sampling": True}, {"temperature": 2.0}, {"unkpen": 1.0}):
        (name,) = idle
        with pytest.raises(
            UsageError, match=f"--{name} has no effect: masks are filled in one pass"
        ):
            mlm.infill(["The [MASK]."], **idle)
    with pytest.raises(UsageError, match="no blank"):
        mlm.infill(["The."])
    with pytest.raises(UsageError, match=r"fills \[MASK\]s, but a source has none"):
        mlm.generate(["The."])
    with pytest.raises(DataError, match="input 1 is too long: position .* of 32"):
        mlm.infill(["The [MASK]" + " bade" * 60])


def test_a_model_that_fills_nothing_says_so(toy_vocab):
    with pytest.raises(UsageError, match="--infill: task lm does not fill blanks"):
        build("lm", "gpt2_tiny", toy_vocab).infill(["The [MASK]."])


def test_mass_writes_as_many_words_as_there_are_masks(toy_vocab):
    mass = build("mass", "mass_tiny", toy_vocab)
    texts = ["The [MASK][MASK][MASK] of it.", "Babe [MASK].", "The [MASK][MASK][MASK]."]
    for text, outputs in zip(texts, mass.infill(texts, beam=2, nbest=2), strict=True):
        assert len(outputs) == 2
        for output in outputs:
            ids = output.hypothesis.ids
            assert len(ids) == text.count("[MASK]") + 1 and ids[-1] == toy_vocab.sep
            source = mass.encode_blanks(text)[0].copy()
            source[source == toy_vocab.mask] = ids[:-1]
            assert output.text == toy_vocab.decode(source)
