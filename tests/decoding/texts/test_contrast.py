"""Outputs that fit a part of their source better than another word in its place."""

from dataclasses import replace

import pytest
import torch

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.texts.contrast import OTHERS, other_words
from unitk.decoding.texts.sources import Sources
from unitk.errors import UsageError

SOURCES = [["dog", "The dog sees the apple and a cat."], ["pear", "A pear is near the dog."]]
HOW = {"beam": 4, "max_len": 5, "avoid_part": 1, "lenpen": 1.3}


@pytest.fixture(scope="module", params=["glm_infill", "seq2seq", "unilm"])
def generator(request, toy_vocab):
    cls = registry.get("task", request.param)
    torch.manual_seed(0)
    arch = {"glm_infill": "glm_tiny", "seq2seq": "bart_tiny", "unilm": "unilm_tiny"}[request.param]
    config = replace(registry.get("arch", arch)(), max_positions=60, init_std=0.3)
    return Generator(config.build(len(toy_vocab)).eval(), cls(cls.Config(), toy_vocab))


def words(vocab, source):
    ids = [vocab.encode_packed([text])[0] for text in source]
    return [vocab.decode(word) for word in other_words(ids, 0, vocab)]


def test_other_words_are_the_longest_that_the_part_lacks(toy_vocab):
    assert set(words(toy_vocab, ["dog", "The dog sees an apple."])) == {
        "apple",
        "sees",
        "The",
        "an",
    }
    assert words(toy_vocab, ["dog", "The dog sees an apple."])[:2] == ["apple", "sees"]
    assert words(toy_vocab, ["the dog", "The dog"]) == words(toy_vocab, ["dog"]) == []
    many = " ".join("abcdefghij"[:n] for n in range(1, 11))
    assert len(words(toy_vocab, ["dog", many])) == OTHERS


@pytest.mark.every(3)
@pytest.mark.parametrize("c", [0.1, 3.0])
def test_the_beam_is_ranked_by_what_outputs_lose(generator, c):
    beams = generator.generate(SOURCES, nbest=4, **HOW)
    ranked = generator.generate(SOURCES, nbest=4, contrast=c, **HOW)
    for source, beam, found in zip(SOURCES, beams, ranked, strict=True):

        def rank(one, source=source):
            config = GenerateConfig(lenpen=HOW["lenpen"], max_len=HOW["max_len"])
            others = words(generator.vocab, source)
            elsewhere = generator.encode([[word, source[1]] for word in others])
            found = generator.scores(Sources(elsewhere), [one.hypothesis.ids] * len(others), config)
            most = max(one.hypothesis.log_prob for [one] in found)
            return one.hypothesis.score + c * (one.hypothesis.log_prob - most)

        wanted = sorted(beam, key=rank, reverse=True)
        near = [rank(one) for one in found]
        assert near == pytest.approx([rank(one) for one in wanted], rel=1e-3)
        assert sorted(one.text for one in found) == sorted(one.text for one in beam)
        own = {one.text: one.hypothesis.score for one in beam}
        assert [one.hypothesis.score for one in found] == pytest.approx(
            [own[one.text] for one in found]
        )


def test_the_best_of_all_outputs_of_the_beam_is_written(generator):
    four = generator.generate(SOURCES, nbest=4, contrast=2, **HOW)
    [one], [other] = generator.generate(SOURCES, contrast=2, **HOW)
    assert [one.text, other.text] == [found[0].text for found in four]


def test_a_source_of_one_part_keeps_its_order(generator):
    plain, same = (generator.generate("The dog", contrast=c, **HOW) for c in (0, 2))
    assert [one.text for one in plain[0]] == [one.text for one in same[0]]


@pytest.mark.parametrize("options", [{"avoid_part": 0}, {"beam": 1}, {"sampling": True, "beam": 5}])
def test_what_has_nothing_to_rank_is_refused(generator, options):
    with pytest.raises(UsageError, match="--contrast .*--avoid-part.* 1"):
        generator.generate(SOURCES, **{**HOW, "contrast": 1, **options})


def test_blanks_are_no_part(generator):
    if generator.task.infills:
        with pytest.raises(UsageError, match="--contrast .*blanks"):
            generator.infill("The [MASK] sees.", contrast=1, **HOW)


def test_one_output_leaves_out_a_default(generator):
    meant = Generator(generator.model, generator.task, {**HOW, "contrast": 1.0})
    assert "".join(meant.stream(SOURCES[0])) == meant.generate([SOURCES[0]], beam=1)[0][0].text
    with pytest.raises(UsageError, match="--contrast"):
        meant.generate(SOURCES, beam=1, contrast=1)
