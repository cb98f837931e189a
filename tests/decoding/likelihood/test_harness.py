"""unitk in lm-evaluation-harness: its requests are answered, and its tasks run."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.decoding.generator import Generator
from unitk.evaluation.continuations import Choices, rank_choices, read_choices
from unitk.models.archs import tiny
from unitk.progress import progress

lm_eval = pytest.importorskip("lm_eval")


@pytest.fixture
def model(toy_vocab, monkeypatch):
    from unitk.evaluation import harness

    task = registry.get("task", "lm")(registry.get("task", "lm").Config(), toy_vocab)
    task = task.with_trained(pairs=False)
    torch.manual_seed(0)
    config = tiny(registry.get("arch", "gpt2_mini")())
    generator = Generator(config.build(len(toy_vocab)).eval(), task, {"min_len": 9})
    monkeypatch.setattr(harness.unitk, "load", lambda *args, **options: generator)
    return harness.UnitkLM("run")


def requests(*args):
    return [SimpleNamespace(args=one) for one in args]


def test_log_likelihoods(model):
    [(first, _), (other, _)] = model.loglikelihood(requests(("ba to", " ki sa"), ("", "ba")))
    [gains] = model.generator.likelihood(" ki sa", ["ba to"])
    assert first == pytest.approx(gains.sum(), rel=1e-5)
    assert other == pytest.approx(model.generator.likelihood("ba")[0].sum(), rel=1e-5)
    [moved] = model.loglikelihood(requests(("ba to ", "ki sa")))
    assert moved[0] == pytest.approx(first, rel=1e-5)
    # what follows without a blank goes on with the word
    whole, start, end = (
        found for found, _ in model.loglikelihood(requests(("", "ba."), ("", "ba"), ("ba", ".")))
    )
    assert start + end == pytest.approx(whole, rel=1e-5)


def test_rolling_is_the_whole_text(model):
    [short, long] = model.loglikelihood_rolling(requests(("ba to ki",), ("ba to ki " * 500,)))
    assert short == pytest.approx(model.generator.likelihood("ba to ki")[0].sum(), rel=1e-5)
    assert np.isfinite(long) and long < 100 * short


def test_requests_alone_say_how_it_generates(model):
    assert model.generator.defaults == {}, "not the checkpoint"


def test_generations_are_grouped_and_in_order(model):
    some = [
        ("ba to", {"max_gen_toks": 3}),
        ("ki", {"max_gen_toks": 5}),
        ("sa", {"max_gen_toks": 3}),
    ]
    alone = [model.generate_until(requests(one))[0] for one in some]
    assert model.generate_until(requests(*some)) == alone
    drawn = model.generate_until(requests(("ba", {"do_sample": True, "temperature": 0.5})))
    assert len(drawn) == 1 and isinstance(drawn[0], str)


def test_generation_ends_at_a_string(model):
    whole = model.generate_until(requests(("ba to", {"until": [], "max_gen_toks": 8})))[0]
    stop = whole[len(whole) // 2]
    cut = model.generate_until(requests(("ba to", {"until": [stop], "max_gen_toks": 8})))[0]
    assert whole == model.generator.generate(["ba to"], beam=1, max_len=8)[0][0].text
    assert cut == whole.split(stop)[0]


def test_a_task_of_theirs_gives_our_accuracy(model, tmp_path):
    rng = np.random.default_rng(0)
    words = "ba to ki sa mi ro".split()
    rows = [
        {"context": " ".join(rng.choice(words, 4)), "choices": ["ba to", "mi"], "label": int(label)}
        for label in rng.integers(2, size=20)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": "toy",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}, "cache_dir": str(tmp_path)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{label}}",
        "metric_list": [{"metric": "acc"}],
    }
    found = lm_eval.simple_evaluate(model=model, tasks=[task], bootstrap_iters=0)
    questions = read_choices([path])
    ours = rank_choices(questions, Choices().score(model.generator, questions, progress))
    assert found["results"]["toy"]["acc,none"] == pytest.approx(ours["accuracy_sum"] / 100)
