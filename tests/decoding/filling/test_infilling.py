"""Words are hidden as they are counted, and what a model writes stands in their places."""

import json

import numpy as np
import pytest
import torch
from paper_archs import arch_of

from tests.conftest import toy_lines
from unitk import registry
from unitk.decoding.config import length
from unitk.decoding.generator import Generator
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.outputs import Output
from unitk.errors import UsageError
from unitk.evaluation import infilling
from unitk.evaluation.infilling import hide, infill
from unitk.models.archs import tiny
from unitk.verbs.evaluate import run
from unitk.verbs.train import run as train

TASKS = ["glm_infill", "mlm", "mass", "bart", "t5", "ul2"]
KNOW_LENGTHS = "mlm", "mass"


def made(name, vocab):
    task = registry.get("task", name)(registry.get("task", name).Config(), vocab)
    task = task.with_trained(pairs=False)
    torch.manual_seed(0)
    config = tiny(registry.get("arch", arch_of(name))())
    return Generator(config.build(len(vocab)).eval(), task)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_a_share_of_the_words_is_hidden_whole(share):
    rng = np.random.default_rng(0)
    starts = rng.random(400) < 0.6
    starts[0] = False  # a text's first token begins a word, whatever it is
    word = np.cumsum(starts)
    for seed in range(20):
        hidden = hide(starts, share, False, np.random.default_rng(seed))
        chosen = {*word[hidden].tolist()}
        assert len(chosen) == round(share * (word[-1] + 1))
        assert all(hidden[word == one].all() for one in chosen)
        run = np.flatnonzero(hide(starts, share, True, np.random.default_rng(seed)))
        assert run[-1] - run[0] + 1 == len(run)
    assert hide(np.array([True]), share, False, rng).tolist() == [True]


@pytest.mark.parametrize("name", TASKS)
def test_what_was_hidden_restores_the_texts(toy_vocab, name, monkeypatch):
    """A model that writes what was hidden has BLEU 100, and reads a mask for a token or a run."""
    generator = made(name, toy_vocab)
    lines = [line for line in toy_lines(6) if len(line.split()) > 3]
    texts = [*lines, " ".join(lines)]  # one is longer than a blank may be
    ids = [one for (one,) in generator.encode([[text] for text in texts])]
    mask, hidden = toy_vocab.mask, list[np.ndarray]()
    own = hide
    monkeypatch.setattr(infilling, "hide", lambda *a: hidden.append(own(*a)) or hidden[-1])

    def knows(sources, config, watch):
        found = []
        for (source,), text, hides in zip(sources.ids, ids, hidden, strict=True):
            runs = int((hides & ~np.append(False, hides[:-1])).sum())
            masks = int(hides.sum()) if name in KNOW_LENGTHS else runs
            assert (source == mask).sum() == masks and (name != "mass" or runs == 1)
            assert source[source != mask].tolist() == text[~hides].tolist()
            end = [generator.protocol.end] if generator.protocol else []
            cuts = np.split(text[hides], np.flatnonzero(np.diff(np.flatnonzero(hides)) > 1) + 1)
            if name in ("t5", "ul2"):
                sentinels = generator.task.sentinels
                cuts = [np.append(one, cut) for one, cut in zip(sentinels, cuts, strict=False)]
            parts = {"glm_infill": cuts, "bart": [text]}.get(name, [np.concatenate(cuts)])
            written = np.concatenate([[*part, *end] for part in parts]).astype(np.int64)
            most = length(config.max_len, len(source))
            assert name == "mlm" or all(len(part) <= most for part in parts)
            gain = np.zeros(len(written), np.float32)
            said = generator.task.text([source], written)
            found.append([Output(said, Hypothesis(written, 0.0, 0.0, gain))])
        return found

    monkeypatch.setattr(generator, "outputs", knows)
    [found] = infill(generator, texts, [0.4], 1000)
    assert found.filled == found.texts
    figures = found.figures()
    assert figures["bleu"] == pytest.approx(100) and figures["bleu_unfilled"] < 90


def test_a_model_that_fills_no_blanks_is_refused(toy_vocab):
    with pytest.raises(UsageError, match="--infill: task lm.*not fill blanks"):
        infill(made("lm", toy_vocab), ["a b"], [0.5], 1000)


def test_more_blanks_than_sentinels_are_refused_before_any_text_is_filled(toy_vocab, monkeypatch):
    generator = made("t5", toy_vocab)
    generator.task = generator.task.with_attributes(sentinels=generator.task.sentinels[:1])
    monkeypatch.setattr(generator, "outputs", lambda *a, **b: pytest.fail("a text was filled"))
    texts = ["the cat", " ".join(toy_lines(9))]
    with pytest.raises(UsageError, match="text 2 with --mask-ratio 0.5: .*text.*has 1 sent"):
        infill(generator, texts, [0.01, 0.5], 1000)


def test_a_text_without_a_token_is_named(toy_vocab):
    """Such as a zero-width space, which is no blank text."""
    with pytest.raises(UsageError, match="text 2 .*token"):
        infill(made("glm_infill", toy_vocab), ["the cat", "\u200b"], [0.5], 1000)


def test_the_command_line_scores_and_writes(toy_data, tmp_path, capsys):
    words = (
        f"--task glm_infill --arch glm_tiny --data {toy_data / 'text'} --save-dir {tmp_path}/run"
    )
    train(f"{words} --max-steps 2 --lr 1e-3 --max-tokens 300 --valid none".split())
    (tmp_path / "texts.txt").write_text("\n".join(toy_lines(5)) + "\n\n")
    words = ["--checkpoint", f"{tmp_path}/run", "--infill", f"{tmp_path}/texts.txt"]
    capsys.readouterr()
    more = ["--mask-ratio", "0.2,0.5", "--output-format", "json", "--output", f"{tmp_path}/out"]
    run([*words, *more])
    figures = json.loads(capsys.readouterr().out)
    assert figures["texts"] == 5 and [one["mask_ratio"] for one in figures["infill"]] == [0.2, 0.5]
    fewer, more = figures["infill"]
    assert more["blanks"] > fewer["blanks"] and fewer["bleu_unfilled"] > more["bleu_unfilled"]
    assert len((tmp_path / "out").read_text().splitlines()) == 10
    for wrong, told in (
        (["--mask-ratio", "1.5"], r"--mask-ratio must be in \(0, 1\), got 1.5"),
        (["--whole-words"], "--whole-words has no effect without --choices, --last-word, "),
    ):
        with pytest.raises(UsageError, match=told):
            run([*words, *wrong])
    with pytest.raises(UsageError, match="--mask-ratio .*no effect.* --infill"):
        run([*words[:2], "--data", "x", "--mask-ratio", "0.5"])
