"""From texts to texts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import unitk
from tests.conftest import toy_lines
from unitk import registry
from unitk.api.text_model import TextModel
from unitk.decoding.config import GenerateConfig
from unitk.decoding.ensemble import Ensemble, join
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import DataError, UsageError
from unitk.slots import Protocol
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import Loaded

QUICK = {"beam": 2, "max_len": 4}


@pytest.fixture(scope="module")
def generator(toy_vocab):
    cls = registry.get("task", "glm_infill")
    torch.manual_seed(0)
    config = replace(registry.get("arch", "glm_tiny")(), max_positions=40, init_std=0.2)
    return Generator(config.build(len(toy_vocab)), cls(cls.Config(), toy_vocab))


def texts(found):
    return [[one.text for one in some] for some in found]


def test_a_text_is_a_source_of_one_part(generator):
    one, same = generator.generate(["The bade.", ["The bade."]], nbest=2, **QUICK)
    assert len(one) == 2 and texts([one]) == texts([same])


def test_one_string_is_one_text_wherever_texts_are_given(toy_vocab):
    cls = registry.get("task", "lm")
    model = registry.get("arch", "gpt2_tiny")().build(len(toy_vocab))
    lm = Generator(model, cls(cls.Config(), toy_vocab))
    three = ["A dog.", "The cat.", "A pear."]
    with pytest.raises(UsageError, match="one .*each source"):
        lm.generate(three, prefixes="the", **QUICK)
    with pytest.raises(UsageError, match="before: .*each text"):
        lm.likelihood(three, "the")
    for phrases in ("the", ["the"], [["a"], "the"]):
        with pytest.raises(UsageError, match="constraints must be.*phrases.*text"):
            lm.generate(three[: len(phrases)], constraints=phrases, **QUICK)
    alone = lm.generate(three[0], prefixes="the", **QUICK)
    assert texts(alone) == texts(lm.generate(three[:1], prefixes=["the"], **QUICK))
    [gains], [same] = lm.likelihood("The cat.", "A dog."), lm.likelihood(["The cat."], ["A dog."])
    assert gains.tolist() == same.tolist()


@pytest.mark.parametrize(
    "bad", [["a", None], ["a", float("nan")], [b"a"], [["a", 3]], [[]], 5, None]
)
def test_what_is_no_text_is_named(generator, bad):
    ways = [generator.generate, generator.embed, generator.infill, generator.logits]
    for way in [*ways, generator.likelihood, lambda texts: generator.score(texts, ["a"])]:
        with pytest.raises(UsageError, match="^texts: text [12] must be"):
            way(bad)
    with pytest.raises(UsageError, match="^targets: text [12] must be"):
        generator.score(["a"], bad)


def test_a_table_or_a_record_is_no_list_of_texts(generator):
    class Table(list):  # iterated, it is the names of its columns, as those of pandas are
        columns = ("text", "label")

    with pytest.raises(UsageError, match="texts.*column"):
        generator.generate(Table(Table.columns))
    for record in ({"text": "a"}, [{"text": "a"}]):
        with pytest.raises(UsageError, match="text 1 .*'text': 'a'"):
            generator.generate(record)


def test_empty_sources_have_empty_outputs_and_shift_nothing(generator):
    found = generator.generate(["", "The bade.", "  ", ["", "The fido."]], **QUICK)
    assert [len(some[0].hypothesis.ids) > 0 for some in found] == [False, True, False, True]
    assert found[0][0].text == found[2][0].text == ""
    assert texts(found[1:2]) == texts(generator.generate(["The bade."], **QUICK))


def test_a_beam_is_refused_where_outputs_are_drawn(generator):
    for way in (generator.generate, generator.sample):
        source = [["The bade."]] if way == generator.generate else []
        with pytest.raises(UsageError, match="--beam .*drawn"):
            way(*source, sampling=True, beam=3)
    with pytest.raises(UsageError, match="--beam .*drawn"):
        generator.infill("the [MASK] sat", sampling=True, beam=3)
    generator.generate(["The bade."], sampling=False, beam=3, max_len=2)
    generator.generate(["The bade."], **vars(GenerateConfig(sampling=True, max_len=2)))


def test_a_blank_that_generate_reads_as_plain_text_is_warned_of(generator, caplog):
    generator.infill("the [MASK] sat", **QUICK)
    assert "infill" not in caplog.text
    generator.generate("the [MASK] sat", **QUICK)
    assert "infill" in caplog.text


def test_only_the_last_part_is_shortened(generator, caplog):
    rng = np.random.default_rng(0)
    sources = [[rng.integers(9, 200, n) for n in sizes] for sizes in ((5, 60), (5, 4), (70,))]
    config = GenerateConfig(**QUICK)
    with pytest.raises(DataError, match="input 1 .*too long.* 29 for the 40 positions"):
        generator.outputs(Sources(sources), config)
    found = generator.outputs(Sources(sources, truncate=True), config)
    assert "shortened 2 of 3 sources" in caplog.text
    shorter = [[sources[0][0], sources[0][1][:31]], sources[1], [sources[2][0][:37]]]
    assert texts(found) == texts(generator.outputs(Sources(shorter), config))


def test_sources_are_as_long_as_in_training(generator, caplog):
    rng = np.random.default_rng(0)
    sources = [[rng.integers(9, 200, n) for n in sizes] for sizes in ((5, 20), (5, 4), (30,))]
    found = generator.outputs(Sources(sources), GenerateConfig(**QUICK, max_source_len=12))
    assert "shortened 2 of 3 sources" in caplog.text
    shorter = [[sources[0][0], sources[0][1][:7]], sources[1], [sources[2][0][:12]]]
    assert texts(found) == texts(generator.outputs(Sources(shorter), GenerateConfig(**QUICK)))


def test_without_a_limit_sources_are_those_of_the_training_on_pairs(generator, caplog, monkeypatch):
    long, short = "The bade of a mo. ", "The bade"
    task = generator.task.with_trained(max_source=len(generator.encode([[short]])[0][0]))
    monkeypatch.setattr(generator, "task", task)
    whole = generator.generate(long, **QUICK, max_source_len=None)
    assert "shortened" not in caplog.text
    cut, same = generator.generate([long, short], **QUICK)
    assert "shortened 1 of 2 sources" in caplog.text
    assert texts([cut]) == texts([same])
    assert cut[0].hypothesis.score == pytest.approx(same[0].hypothesis.score, rel=1e-5)
    assert whole[0][0].hypothesis.score != pytest.approx(same[0].hypothesis.score, rel=1e-3)
    # a text with blanks is no source of the training
    blanks = long + "[MASK]"
    [[filled]] = generator.infill(blanks, **QUICK)
    assert filled.text.startswith(long)
    given = generator.score([long, short, long], ["a mo"] * 3)
    scores = [one.hypothesis.score for one in given]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5) and scores[0] == scores[2]
    [alone] = generator.score([long], ["a mo"], max_source_len=None)
    assert alone.hypothesis.score != pytest.approx(scores[0], rel=1e-3)


def test_a_model_of_pairs_truncates_what_its_positions_do_not_hold(generator, monkeypatch):
    source = "The bade kelo mipu tosa lebi ruko " * 8
    [one] = generator.generate(source, **QUICK, truncate=True)
    own = generator.score(source, "a mo", truncate=True)[0].hypothesis
    monkeypatch.setattr(generator, "task", generator.task.with_trained(max_source=None))
    for wrong in (None, False):
        with pytest.raises(DataError, match="too long"):
            generator.generate(source, **QUICK, truncate=wrong)
        with pytest.raises(DataError, match="too long"):
            generator.score(source, "a mo", truncate=wrong)
    # as `unitk generate` does
    monkeypatch.setattr(generator, "task", generator.task.with_trained(max_source=1000))
    assert texts([one]) == texts(generator.generate(source, **QUICK))
    assert own.score == generator.score(source, "a mo")[0].hypothesis.score


def test_every_blank_is_filled(generator):
    found = generator.infill(["The [MASK] of [MASK].", "[MASK]"], **QUICK)
    ends = [(some[0].hypothesis.ids == generator.protocol.end).sum() for some in found]
    assert ends == [2, 1]
    assert found[0][0].text.startswith("The") and "MASK" not in found[0][0].text


def test_the_likeliest_fill_wins_whatever_its_length(generator):
    [found] = generator.infill("a [MASK] c [MASK]", beam=6, nbest=6, max_len=4)
    likely = [one.hypothesis.log_prob for one in found]
    assert [one.hypothesis.score for one in found] == pytest.approx(likely)
    assert likely == sorted(likely, reverse=True)
    [[mean]] = generator.infill("a [MASK] c [MASK]", beam=6, max_len=4, lenpen=1.0)
    words = len(mean.hypothesis.ids)
    assert mean.hypothesis.score == pytest.approx(mean.hypothesis.log_prob / words)


def test_tasks_that_cannot(generator, toy_vocab):
    class Dumb(Task):
        """Has no protocol."""

    with pytest.raises(UsageError, match="task Dumb.*not generate"):
        Generator(generator.model, Dumb(Dumb.Config(), toy_vocab)).generate("so")

    class Plain(Task):
        """Decodes, but has no blanks."""

        protocol = Protocol(end=0)

    with pytest.raises(UsageError, match="--infill: task Plain.*not fill blanks"):
        Generator(generator.model, Plain(Plain.Config(), toy_vocab)).infill(["[MASK]"])


def test_a_temperature_in_a_search_is_for_one_model(generator):
    both = Generator(Ensemble([generator.model] * 2), generator.task)
    with pytest.raises(UsageError, match="--temperature .*search.*one model"):
        both.generate(["The bade."], temperature=0.5, **QUICK)
    generator.generate(["The bade."], temperature=0.5, **QUICK)
    both.generate(["The bade."], temperature=0.5, sampling=True, max_len=4)


def made(task, arch, vocab):
    cls = registry.get("task", task)
    torch.manual_seed(0)
    config = replace(registry.get("arch", arch)(), num_layers=2, width=32, init_std=0.2)
    return Generator(config.build(len(vocab)).eval(), cls(cls.Config(), vocab))


@pytest.mark.parametrize(("task", "arch"), [("lm", "gpt2_tiny"), ("seq2seq", "bart_tiny")])
def test_logits_give_the_log_probabilities_of_given_outputs(toy_vocab, task, arch):
    generator = made(task, arch, toy_vocab)
    texts, targets = toy_lines(9)[:4], [line[:9] for line in toy_lines(9)[4:8]]
    found = generator.logits(texts, targets, max_tokens=64)
    for logits, output in zip(found, generator.score(texts, targets), strict=True):
        ids = output.hypothesis.ids
        logits = logits[: len(ids)].astype(np.float64)
        gains = logits[np.arange(len(ids)), ids] - np.logaddexp.reduce(logits, axis=1)
        assert np.allclose(gains, output.hypothesis.token_log_probs, rtol=1e-4, atol=1e-5)


def test_logits_at_every_slot_are_those_of_the_module(toy_vocab):
    generator, texts = made("mlm", "bert_tiny", toy_vocab), toy_lines(3)
    module = TextModel(Loaded(generator.model, generator.task, {}, {}))
    for ours, theirs in zip(generator.logits(texts), module.logits(texts), strict=True):
        assert np.allclose(ours, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_logits_that_cannot_be(toy_vocab):
    two = made("seq2seq", "bart_tiny", toy_vocab)
    with pytest.raises(UsageError, match="targets .*needed.*encoder"):
        two.logits("a text")
    with pytest.raises(UsageError, match="a target.*each text"):
        two.logits(["a text", "b"], ["another"])
    joined = Generator(join([(name, two.model, two.task) for name in "ab"]), two.task)
    with pytest.raises(UsageError, match="one model.*ensemble"):
        joined.logits("a text", "another")


def test_a_penalty_between_groups_needs_groups():
    model = unitk.load("unitk-base-en-questions")
    texts, how = [["cat", "The cat sat on the mat."]], {"max_len": 2}
    with pytest.raises(UsageError, match="diverse.beam.strength .*diverse.beam.groups"):
        model.generate(texts, diverse_beam_strength=0.9, **how)
    given = {"diverse_beam_groups": 2, "diverse_beam_strength": 0.9}
    found = model.generate(texts, **given, **how)
    model.defaults = {**model.defaults, **given}
    assert [[o.text for o in best] for best in model.generate(texts, **how)] == [
        [o.text for o in best] for best in found
    ]
    assert model.generate(texts, diverse_beam_groups=1, **how)
