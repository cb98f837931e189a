"""Texts that are written where nothing is given."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from paper_archs import arch_of

from unitk.data.cuts import Text
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.likelihood import likelihoods
from unitk.decoding.texts.sources import Sources
from unitk.errors import DataError, UsageError
from unitk.models.archs import tiny
from unitk.options.config import resolve
from unitk.options.settings import Origin, Settings
from unitk.registry import get, names

NOTHING = np.zeros(0, np.int64)
WORDS = {30: 0.4, 40: 0.2, 50: 0.1, 60: 0.05}  # the rest is the end
LAWS = {
    "lm": {},
    "lm backward": {"backward": "on", "opening": "sep"},
    "glm_infill": {"mixture": "1,0,1"},
    "mdlm": {},
    "bd3lm": {"block_length": "2"},
    "unilm": {},
}


def made(name, vocab, options=None, **more):
    """A generator with random weights, as if it were trained on texts."""
    options = LAWS[name] if options is None else options
    task_type = get("task", name.split()[0])
    given = Settings.of_texts(options, Origin.FLAG)
    task = task_type(resolve(task_type.Config, given).main, vocab)
    task = task.with_trained(pairs=False)
    torch.manual_seed(0)
    config = tiny(get("arch", arch_of(task_type))())
    sizes = {"heads": tuple(task.heads), "max_positions": 64, "dropout": 0.0, "init_std": 0.3}
    sizes |= {"num_virtual": len(task.virtual), **more}
    model = type(config)(**{**vars(config), **sizes}).build(len(vocab)).eval()
    return Generator(model, task)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", LAWS)
def test_words_are_as_frequent_as_the_model_says(name, toy_vocab):
    """In a model that has but the biases of its output, no word depends on another."""
    generator = made(name, toy_vocab, output_bias=True)
    model, end = generator.model, toy_vocab.sep
    end = toy_vocab.eop if name == "glm_infill" else end
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        [bias] = (one for one in model.parameters() if one.shape == (len(toy_vocab),))
        bias.fill_(-1e4)
        for word, share in {**WORDS, end: 1 - sum(WORDS.values())}.items():
            bias[word] = math.log(share)
    count, longest = 1500, 12
    # the confident order prefers frequent words
    order = {"order": "random", "steps": 3} if generator.task.driver == "passes" else {}
    outputs = generator.sample(count, max_len=longest, seed=3, **order)
    written = [one.hypothesis.ids for one in outputs]
    texts = [ids[ids != end] for ids in written]
    found = Counter(word for ids in texts for word in ids.tolist())
    lengths = Counter(len(ids) for ids in texts)
    stops = 1 - sum(WORDS.values())
    law = {n: stops * (1 - stops) ** n for n in range(longest)}
    law[longest] = (1 - stops) ** longest
    # chi-square, whose mean is the number of cells less one
    for cells, shares in ((found, WORDS), (lengths, law)):
        total = sum(cells.values())
        expected = {cell: total * share / sum(shares.values()) for cell, share in shares.items()}
        distance = sum((cells[cell] - want) ** 2 / want for cell, want in expected.items())
        free = len(shares) - 1
        assert distance < free + 4 * math.sqrt(2 * free) and cells.keys() <= shares.keys()


@pytest.mark.parametrize("name", ["lm", "lm backward", "glm_infill", "unilm"])
def test_a_text_has_the_likelihood_that_it_was_drawn_with(name, toy_vocab):
    """--score of an empty source is `likelihood`: what is read first is the same."""
    options = {"mask_symbol": "gmask"} if name == "glm_infill" else None
    generator = made(name, toy_vocab, options)
    outputs = [one.hypothesis for one in generator.sample(6, max_len=8)]
    texts = [one.ids[:-1] for one in outputs]
    turned = slice(None, None, -1 if "backward" in name else 1)
    pairs = [(NOTHING, ids[turned]) for ids in texts]
    found = likelihoods(generator.model, generator.task, pairs)
    assert any(len(ids) > 3 for ids in texts)
    scored = generator.scores(
        Sources([[NOTHING]] * 6), [one.ids for one in outputs], GenerateConfig()
    )
    for one, (same,) in zip(outputs, scored, strict=True):
        assert same.hypothesis.log_prob == pytest.approx(one.log_prob, rel=1e-4)
    for one, (gains, _) in zip(outputs, found, strict=True):
        assert one.token_log_probs[:-1][turned] == pytest.approx(gains, rel=1e-4, abs=1e-4)
        assert one.log_prob == pytest.approx(float(one.token_log_probs.sum()), rel=1e-4)


@pytest.mark.parametrize("name", LAWS)
def test_draws_depend_on_the_seed_and_the_number_alone(name, toy_vocab):
    generator = made(name, toy_vocab)

    def texts(count, **more):
        return [one.hypothesis.ids.tolist() for one in generator.sample(count, max_len=6, **more)]

    many = texts(7)
    assert texts(3) == many[:3] and texts(7, max_tokens=1) == many
    assert texts(7, seed=2) != many and len({*map(tuple, many)}) > 1


def test_what_is_read_first_is_what_training_reads(toy_vocab):
    v, text = toy_vocab, Text([np.array([40, 41])], np.array([0]))
    for opening, first in (("cls", v.cls), ("sep", v.sep)):
        task = made("lm", v, {"opening": opening}).task
        [wanted] = task.pretrain(text, None).towers.values()
        [found] = task.prompt([]).towers.values()
        assert found.token.tolist() == [first] and (found.table == wanted.table[:, :1]).all()
    # GPT-2's texts follow the end of another one
    assert made("lm", v, {"opening": "none"}).task.prompt([]).towers["x"].token.tolist() == [v.sep]
    for mixture, blank in (("1,0,0", v.mask), ("1,0,1", v.gmask)):
        task = made("glm_infill", v, {"mixture": mixture}).task
        assert task.prompt([]).towers["x"].token.tolist() == [v.cls, blank, v.sep, v.sop]
        # a text goes on, if the model has learnt it
        goes_on = [40, 41, blank] if mixture == "1,0,1" else [blank, 40, 41]
        tokens = task.prompt([text.ids]).towers["x"].token
        assert tokens.tolist() == [v.cls, *goes_on, v.sep, v.sop]
        task = task.with_trained(pairs=True)
        tokens = task.prompt([text.ids]).towers["x"].token
        assert tokens.tolist() == [v.cls, v.mask, 40, 41, v.sep, v.sop]


def test_who_cannot_write_from_nothing_is_told_who_can(toy_vocab):
    able = [name for name in names("task") if get("task", name).from_nothing]
    ours = {name for name in able if get("task", name).__module__.startswith("unitk.")}
    assert ours == {"bd3lm", "glm_infill", "lm", "mdlm", "unilm"}
    able = f"{', '.join(able)} do"
    for name in ("seq2seq", "mass", "bart", "t5", "pmlm", "xlnet", "mlm"):
        generator = made(name, toy_vocab, {})
        with pytest.raises(UsageError, match=f"task {name} does not .*from nothing; {able}$"):
            generator.sample(2, max_len=4)
        if generator.protocol is not None:
            with pytest.raises(DataError, match=f"input 2: task {name} .*; {able}$"):
                generator.score(["The", ""], ["a", "b"])
    generator = made("lm", toy_vocab)
    generator.task = generator.task.with_trained(pairs=True)
    with pytest.raises(UsageError, match="task lm .*trained.*source"):
        generator.sample(2)
    with pytest.raises(UsageError, match="a UniLM needs .*--task.shares"):
        made("unilm", toy_vocab, {"shares": "1,1,0,1"}).sample()
    with pytest.raises(UsageError, match="--max-len 64 .*too long.* 1: .*64 .*allow 63"):
        made("lm", toy_vocab).sample(max_len=64)
    for count in (0, "2", 2.5, None):
        with pytest.raises(UsageError, match=f"count .*at least 1, got {count!r}"):
            generator.sample(count)
    assert len(made("lm", toy_vocab).sample(np.int64(2), max_len=4)) == 2
    with pytest.raises(UsageError, match="nbest must be 1"):
        generator.sample(2, nbest=2)
