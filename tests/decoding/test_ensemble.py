"""The mean of probabilities: equal to brute force, and to the model alone where there is one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from paper_archs import arch_of
from rounding import assert_near

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import decode, generate
from unitk.decoding.ensemble import Ensemble, are_alike, join
from unitk.errors import CheckpointError, DataError
from unitk.slots import collate

CONFIG = GenerateConfig(beam=3, nbest=3, max_len=3, lenpen=0.6, search="exact")


@pytest.fixture
def two(toy, kind):
    """A case, the same with another seed and another size, and prompts."""
    one, other = toy.Case(kind, words=3), toy.Case(kind, words=3, seed=1)
    config = replace(other.model.config, width=24, num_heads=3, num_layers=1)
    other.model = config.build(6).eval()
    prompts = one.prompts(4)
    if kind == "blanks":  # brute force knows outputs of one blank
        prompts = [one.prompt([0, 2, 1, 1][:n], blanks=1) for n in (1, 3, 4)]
    return one, other, prompts


def test_a_model_with_itself_is_the_model(toy, kind):
    case = toy.Case(kind, words=8)
    prompts = case.prompts(9)
    found = generate(Ensemble([case.model] * 3), prompts, case.protocol, CONFIG)
    alone = generate(case.model, prompts, case.protocol, CONFIG)
    for some, others in zip(found, alone, strict=True):
        assert [one.ids.tolist() for one in some] == [one.ids.tolist() for one in others]
        assert_near([one.score for one in some], [o.score for o in others])


@pytest.mark.every(2)
def test_the_mean_of_probabilities_is_searched(toy, two, monkeypatch):
    one, other, prompts = two
    alone, both = one.log_probs, Ensemble([one.model, other.model])

    def mean(prompt, written):
        probs = [np.exp(table(prompt, written)) for table in (alone, other.log_probs)]
        return np.log((probs[0] + probs[1]) / 2)

    monkeypatch.setattr(one, "log_probs", mean)
    config = replace(CONFIG, beam=27, nbest=5)
    found = generate(both, prompts, one.protocol, config)
    for prompt, outputs in zip(prompts, found, strict=True):
        expected = toy.brute_force(one, prompt, config)[:5]
        assert [output.ids.tolist() for output in outputs] == [words for words, _ in expected]
        scores = pytest.approx([score for _, score in expected], rel=1.5e-5, abs=1.5e-5)
        assert [output.score for output in outputs] == scores


def test_one_pass_and_compaction_are_those_of_the_models(two):
    one, other, prompts = two
    both = Ensemble([one.model, other.model]).eval()
    batch = collate([[prompt] for prompt in prompts]).to("cpu")
    with torch.no_grad():
        states, _ = both(batch, both.condition(batch))
        logits = both.head(states[one.tower][:, 0])
        each = [m(batch, m.condition(batch))[0][one.tower][:, 0] for m in both.models]
        probs = [m.head(own).softmax(-1) for m, own in zip(both.models, each, strict=True)]
        assert torch.allclose(logits.exp(), sum(probs) / 2, atol=1e-6)
    cache = both.new_cache(len(prompts), 16, condition=both.condition(batch))
    rows = torch.tensor([2, 0])
    kept = cache.select(rows)
    assert all(
        torch.equal(k.slots, c.slots[:, rows])
        for k, c in zip(kept.of_models, cache.of_models, strict=True)
    )
    alone = decode(both, collate([[prompts[0]]]).to("cpu"), one.protocol, CONFIG)
    assert (
        alone[0][0].ids.tolist() == generate(both, prompts, one.protocol, CONFIG)[0][0].ids.tolist()
    )


def test_the_shortest_table_counts(toy):
    case = toy.Case("shift", words=8)
    short = replace(case.model.config, max_positions=16).build(11)
    free = replace(case.model.config, max_positions=0).build(11)
    prompt = case.prompt([1] * 12)
    for models in ([case.model, free], [free, free], [case.model, case.model]):
        generate(Ensemble(models), [prompt], case.protocol, replace(CONFIG, max_len=9))
    with pytest.raises(DataError, match="too long with --max-len 9 by 5 for the 16 positions"):
        generate(Ensemble([case.model, short]), [prompt], case.protocol, replace(CONFIG, max_len=9))
    with pytest.raises(DataError, match="by 16 for the 16 positions .*; --max-len may be 4$"):
        generate(short, [prompt], case.protocol, replace(CONFIG, max_len=20))
    generate(short, [prompt], case.protocol, replace(CONFIG, max_len=4))


def task(name, vocab, **options):
    cls = registry.get("task", name)
    return cls(cls.Config(**options), vocab)


def test_tasks_that_write_alike(toy_vocab):
    def same(one, other, **options):
        return are_alike(task(one, toy_vocab), task(other, toy_vocab, **options))

    for name in registry.names("task"):
        assert same(name, name)
    assert same("glm_infill", "glm_infill", mask_ratio=0.5)
    assert not same("glm_infill", "glm_infill", mask_symbol="gmask")
    assert not same("lm", "glm_infill")
    assert not same("unilm", "pmlm")
    assert not same("lm", "seq2seq")


def test_what_cannot_be_joined(toy_vocab):
    from unitk.vocab.train import train_vocab

    other = train_vocab(["a b c d e f g h i j k l m n"] * 9, 24)

    def loaded(name, vocab):
        cls = registry.get("task", name)
        small = {"num_layers": 1, "width": 8, "num_heads": 1, "ffn_width": 8}
        model = replace(registry.get("arch", arch_of(cls))(), **small).build(len(vocab))
        return f"runs/{name}", model, task(name, vocab)

    first = loaded("lm", toy_vocab)
    with pytest.raises(CheckpointError, match="runs/lm .*with runs/lm: their.*differ"):
        join([first, loaded("lm", other)])
    with pytest.raises(CheckpointError, match="runs/unilm .*tasks LM and UniLM lay out"):
        join([first, first, loaded("unilm", toy_vocab)])
