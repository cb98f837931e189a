"""Masks are filled: in one pass (mlm), or as a span of known length (mass)."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.decoding.blanks import refill
from unitk.decoding.fill import fill_in
from unitk.decoding.generator import Generator
from unitk.errors import DataError, UsageError
from unitk.slots import collate
from unitk.vocab.open import open_vocab

WORDS = "the cat ##s , is it so 中".split()


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
        # a text keeps the letters that the vocabulary does not know
        assert output.text == toy_vocab.decode(filled).replace(" ⁇ abe", "Babe")


def test_mistakes_are_refused(mlm):
    with pytest.raises(UsageError, match="one output"):
        mlm.infill(["The [MASK]."], nbest=2, beam=2)
    for idle in ({"sampling": True}, {"temperature": 2.0}, {"unkpen": 1.0}):
        (name,) = idle
        with pytest.raises(UsageError, match=f"--{name} .*no effect.*pass"):
            mlm.infill(["The [MASK]."], **idle)
    with pytest.raises(UsageError, match="no blank"):
        mlm.infill(["The."])
    with pytest.raises(UsageError, match=r"fills \[MASK\]s.*none"):
        mlm.generate(["The."])
    with pytest.raises(DataError, match="input 1 .*too long.*of 32"):
        mlm.infill(["The [MASK]" + " bade" * 60])


def test_a_model_that_fills_nothing_says_so(toy_vocab):
    with pytest.raises(UsageError, match="--infill: task lm.*not fill blanks"):
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
            assert output.text == toy_vocab.decode(source).replace(" ⁇ abe", "Babe")


ODD = [
    "  Zürich's [MASK]\n\tlay [MASK]  the SNOW,\n",
    "[MASK]",
    "un[MASK]able",
    "[MASK][MASK] ½ ﬁne 😀",
]
ODD += [
    "北京是[MASK]的首都。",
    "« [MASK] » [MASK]?",
    "\u00a0[MASK]\u00a0",
    "a [MASK] B [MASK] c [MASK]. D",
]


@pytest.mark.parametrize("kind", ["mlm", "glm_infill", "uncased"])
def test_a_text_with_its_blanks_filled_keeps_its_other_characters(kind, toy_vocab, tmp_path):
    """All but blanks beside what is filled in, which the model's tokens decide."""
    vocab = toy_vocab
    if kind == "uncased":
        (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n,\n中\n")
        vocab = open_vocab(tmp_path / "vocab.txt")
    glm = kind == "glm_infill"
    name, arch = ("glm_infill", "glm_tiny") if glm else ("mlm", "bert_tiny")
    generator = build(name, arch, vocab)
    found = generator.infill(ODD, beam=2, nbest=2, max_len=4) if glm else generator.infill(ODD)
    for text, outputs in zip(ODD, found, strict=True):
        for output in outputs:
            parts = [re.escape(part.strip(" ")) for part in text.split("[MASK]")]
            assert re.fullmatch("[^\0]*?".join(parts).replace(r"\ ", " "), output.text.strip(" "))
        [one] = refill(generator.task, [text], [generator.encode_blanks(text)], [outputs])
        assert [each.text for each in one] == [each.text for each in outputs]


def test_blanks_beside_a_fill_are_those_of_its_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text(
        "\n".join([*"[UNK] [PAD] [CLS] [SEP] [MASK]".split(), *WORDS])
    )
    vocab = open_vocab(tmp_path / "vocab.txt")
    task = build("mlm", "bert_tiny", vocab).task
    for text, words, wanted in [
        ("The [MASK] sat.", ["cat"], "The cat sat."),
        ("The [MASK] sat.", ["##s"], "Thes sat."),
        ("The[MASK] sat.", ["cat"], "The cat sat."),
        ("Is it [MASK] [MASK]?", ["cat", "##s"], "Is it cats?"),
        ("[MASK][MASK] sat.", ["the", "cat"], "the cat sat."),
        ("Zürich [MASK] so", [","], "Zürich, so"),
        ("北京是[MASK]的", ["中"], "北京是中的"),
    ]:
        ids = np.array(vocab.encode_marked(text))
        written = np.array([vocab.model.find(word) for word in words])
        assert fill_in(task, text, [ids], written) == wanted
