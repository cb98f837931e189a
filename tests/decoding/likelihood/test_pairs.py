"""Minimal pairs: what is counted, and that minicons scores alike."""

import json

import numpy as np
import pytest
import torch

from tests.conftest import toy_lines
from unitk.decoding.generator import Generator
from unitk.errors import DataError
from unitk.evaluation.pairs import MinimalPairs, Pair, Scored, accuracy_lines, figures, read_pairs
from unitk.formats.hf import folder as there
from unitk.kernels.weights import prepare_weights
from unitk.models.archs import tiny
from unitk.progress import progress
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.open import open_vocab


def scored(rows):
    """Of (set, term, good, bad, tokens of both)."""
    pairs = [Pair(("a", "b"), name, term, "") for name, term, *_ in rows]
    score = np.array([row[2:4] for row in rows], np.float32)
    return Scored(pairs, score, np.array([row[4:] for row in rows]), 0)


def test_ties_count_half_and_means_are_of_sets():
    rows = [("x", "p", -1, -2, 3, 4), ("x", "p", -2, -2, 3, 3)]
    rows += [("y", "p", -3, -2, 3, 2)] * 4 + [("z", "q", -1, -2, 3, 2)]
    found = figures(scored(rows))
    assert [found["sets"][name]["accuracy"] for name in "xyz"] == [75, 0, 100]
    assert found["sets"]["x"]["ties"] == found["ties"] == 1
    assert found["mean_of_sets"] == pytest.approx(175 / 3, rel=1e-12)
    assert found["phenomena"]["p"] == {"sets": 2, "accuracy": 37.5}
    assert found["mean_of_phenomena"] == (37.5 + 100) / 2
    assert found["sets"]["x"]["shorter"] == 75 and found["sets"]["y"]["shorter"] == 0
    assert found["sets"]["x"]["tokens_bad"] == 3.5
    third = figures(scored([("x", "p", -1, -2, 3, 3)] + [("x", "p", -2, -1, 3, 3)] * 2))
    assert third["mean_of_sets"] == pytest.approx(100 / 3, rel=1e-12)  # not in 32 bits
    assert any(line.startswith("mean of phenomena") for line in accuracy_lines(found))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_sets_are_named_by_the_field_or_the_file(tmp_path):
    good = {"sentence_good": "a b", "sentence_bad": "b a"}
    first = write(tmp_path / "one.jsonl", [good, good | {"UID": "u", "linguistics_term": "t"}])
    second = write(tmp_path / "two.jsonl", [good | {"linguistics_term": "s-selection"}])
    found = read_pairs([first, second])
    assert [pair.name for pair in found] == ["one", "u", "two"]
    assert [pair.phenomenon for pair in found] == ["", "t", "argument_structure"]
    assert "mean_of_phenomena" not in figures(
        Scored(found[:1], np.zeros((1, 2)), np.ones((1, 2)), 0)
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "x.jsonl, line 2: not JSON"),
        ("[1]", "x.jsonl, line 2: not a JSON object"),
        ('{"sentence_good": "a"}', "x.jsonl, line 2: .*'sentence_bad'"),
        ('{"sentence_good": 1, "sentence_bad": "a"}', "line 2: .*'sentence_good'"),
        ('{"sentence_good": "a", "sentence_bad": " "}', "line 2: .*'sentence_bad' is empty"),
    ],
)
def test_bad_input_is_one_line(tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    with pytest.raises(DataError, match=message) as caught:
        read_pairs([path])
    assert "\n" not in str(caught.value)
    path.write_text("\n")
    with pytest.raises(DataError, match="there .*no pairs"):
        read_pairs([path])


def model_of(arch, name, vocab, **options):
    kind = get("task", name)
    task = kind(kind.Config(**options), vocab)
    task = task.with_trained(pairs=False)
    torch.manual_seed(3)
    config = get("arch", arch)()
    model = (tiny(config) if "base" in arch else config).build(len(vocab)).eval()
    with torch.no_grad():  # far from what all models are at the start
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model, task


def pairs_of(lines):
    turned = [" ".join(reversed(line.split())) for line in lines]
    return [Pair(one, "s", "", "") for one in zip(lines, turned, strict=True)]


def test_identical_sentences_tie_and_order_makes_no_winner(toy_vocab):
    model, task = model_of("gpt2_tiny", "lm", toy_vocab)
    line = toy_lines(1)[0]
    found = MinimalPairs().score(
        Generator(model, task), [Pair((line, line), "s", "", "")] * 7, progress
    )
    assert figures(found)["ties"] == 7 and figures(found)["mean_of_sets"] == 50
    with torch.no_grad():  # a model that ignores what it reads: words have their own probability
        model.decoder.norm.weight.zero_()
    found = MinimalPairs().score(Generator(model, task), pairs_of(toy_lines(20)), progress)
    same = found.tokens[:, 0] == found.tokens[:, 1]
    assert same.any() and (found.score[same, 0] == found.score[same, 1]).all()


@pytest.fixture
def pieces(tmp_path):
    """A WordPiece vocabulary, whose tokenizer tells words as minicons does."""
    texts = [line.lower() for line in toy_lines(12)]
    letters = sorted({letter for text in texts for letter in text if letter.isalpha()})
    known = sorted({word[:3] for text in texts for word in text.split() if word[:3].isalpha()})
    parts = [*letters, *known, *(f"##{letter}" for letter in letters), "."]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(parts)]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in words))
    return open_vocab(path), texts


@pytest.mark.parametrize(
    ("arch", "task", "whole_words"),
    [("gpt2_tiny", "lm", False), ("bert_base", "mlm", False), ("bert_base", "mlm", True)],
)
def test_scores_are_those_of_minicons(tmp_path, pieces, monkeypatch, arch, task, whole_words):
    scorer = pytest.importorskip("minicons.scorer")
    tokenizer = pytest.importorskip("transformers").PreTrainedTokenizerBase
    # minicons 0.3.39 calls it by a name that transformers 5 dropped
    monkeypatch.setattr(tokenizer, "batch_encode_plus", tokenizer.__call__, raising=False)
    vocab, lines = pieces
    model, made = model_of(arch, task, vocab)
    folder = tmp_path / "model"
    folder.mkdir()
    there.write(Loaded(model, made, {"arch": arch}, {}), folder)
    pairs = pairs_of(lines)
    found = MinimalPairs(whole_words=whole_words).score(
        Generator(prepare_weights(model, "fp32"), made), pairs, progress
    )
    texts = [text for pair in pairs for text in pair.sentences]
    kind = scorer.IncrementalLMScorer if task == "lm" else scorer.MaskedLMScorer
    how = {"PLL_metric": "within_word_l2r"} if whole_words else {}
    theirs = kind(str(folder), "cpu").sequence_score(
        texts, reduction=lambda x: x.sum().item(), **how
    )
    assert found.score.ravel() == pytest.approx(theirs, rel=0, abs=1e-4)
