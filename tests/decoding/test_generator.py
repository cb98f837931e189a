"""From texts to texts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.ensemble import Ensemble
from unitk.decoding.generator import Generator
from unitk.errors import DataError, UsageError
from unitk.slots import Protocol
from unitk.tasks.base import Task

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


def test_empty_sources_have_empty_outputs_and_shift_nothing(generator):
    found = generator.generate(["", "The bade.", "  ", ["", "The fido."]], **QUICK)
    assert [len(some[0].hypothesis.ids) > 0 for some in found] == [False, True, False, True]
    assert found[0][0].text == found[2][0].text == ""
    assert texts(found[1:2]) == texts(generator.generate(["The bade."], **QUICK))


def test_only_the_last_part_is_shortened(generator, caplog):
    rng = np.random.default_rng(0)
    sources = [[rng.integers(9, 200, n) for n in sizes] for sizes in ((5, 60), (5, 4), (70,))]
    config = GenerateConfig(**QUICK)
    with pytest.raises(DataError, match="input 1 is too long by 29 for the 40 positions"):
        generator.outputs(sources, config)
    found = generator.outputs(sources, config, truncate=True)
    assert "shortened 2 of 3 sources" in caplog.text
    shorter = [[sources[0][0], sources[0][1][:31]], sources[1], [sources[2][0][:37]]]
    assert texts(found) == texts(generator.outputs(shorter, config))


def test_sources_are_as_long_as_in_training(generator, caplog):
    rng = np.random.default_rng(0)
    sources = [[rng.integers(9, 200, n) for n in sizes] for sizes in ((5, 20), (5, 4), (30,))]
    found = generator.outputs(sources, GenerateConfig(**QUICK, max_source_len=12))
    assert "shortened 2 of 3 sources" in caplog.text
    shorter = [[sources[0][0], sources[0][1][:7]], sources[1], [sources[2][0][:12]]]
    assert texts(found) == texts(generator.outputs(shorter, GenerateConfig(**QUICK)))
    with pytest.raises(UsageError, match="--max-source-len must be at least 1, got 0"):
        GenerateConfig(max_source_len=0)


def test_every_blank_is_filled(generator):
    found = generator.infill(["The [MASK] of [MASK].", "[MASK]"], **QUICK)
    ends = [(some[0].hypothesis.ids == generator.protocol.end).sum() for some in found]
    assert ends == [2, 1]
    assert found[0][0].text.startswith("The") and "MASK" not in found[0][0].text


def test_tasks_that_cannot(generator, toy_vocab):
    class Dumb(Task):
        """Has no protocol."""

    with pytest.raises(UsageError, match="task Dumb does not generate"):
        Generator(generator.model, Dumb(Dumb.Config(), toy_vocab)).generate("so")

    class Plain(Task):
        """Decodes, but has no blanks."""

        protocol = Protocol(end=0)

    with pytest.raises(UsageError, match="--infill: task Plain does not fill blanks"):
        Generator(generator.model, Plain(Plain.Config(), toy_vocab)).infill(["[MASK]"])


def test_a_temperature_in_a_search_is_for_one_model(generator):
    both = Generator(Ensemble([generator.model] * 2), generator.task)
    with pytest.raises(UsageError, match="--temperature in a search is for one model"):
        both.generate(["The bade."], temperature=0.5, **QUICK)
    generator.generate(["The bade."], temperature=0.5, **QUICK)
    both.generate(["The bade."], temperature=0.5, sampling=True, max_len=4)
