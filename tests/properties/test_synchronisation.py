"""In a decoding step, and from a batch to its gradients, the host waits for no value of the device.

Tensors of the device "meta" have shapes but no values. All that would make the host wait for a GPU
(`item`, `tolist`, `cpu`, `nonzero`, an index by a mask, a branch on a value) raises on them, and
nothing that is made for CPUs runs.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from paper_archs import arch_of

from unitk import registry
from unitk.data.cuts import Text
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints, word_rules
from unitk.decoding.constraints.searches import start
from unitk.decoding.decode import PromptReader
from unitk.decoding.search import Request
from unitk.errors import UsageError
from unitk.kernels.capture import recordings
from unitk.slots import collate
from unitk.tasks.base import Task

TASKS = [
    name for name in registry.names("task") if registry.get("task", name).protocol != Task.protocol
]
LEARN = [
    name for name in registry.names("task") if registry.get("task", name).pretrain != Task.pretrain
]
WAITS = {
    "adaptive_mlm": "the tokens that may be hidden, of which it draws",
    "back_translation": "it writes the texts that it then reads",
    "bilm": "the different words of a batch, and the lengths of its texts, which LSTMs need",
    "xlnet": "the distances that there are",
}
"""Tasks whose forward pass makes the host wait, and for what."""
ARCHS = registry.names("arch")
STEPS = 5


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch):
    """PyTorch has no autocast for "meta", and raises where it is asked about."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda device, enabled=True: nullcontext())


def prompted(name, vocab, arch=None):
    """A task, the config of its architecture or of another one, and a batch of prompts."""
    cls = registry.get("task", name)
    config = registry.get("arch", arch or arch_of(cls))()
    task = cls(cls.Config(), vocab)
    words = np.setdiff1d(np.arange(len(vocab)), list(vocab.symbols.values()))
    prompts = []
    for n in (12, 3, 7):
        source = words[:n]
        if task.protocol.begin is not None:
            source = np.insert(source, n // 2, vocab.mask)
        prompts.append([task.prompt([source])])
    return task, config, collate(prompts)


def on_meta(config, words):
    with torch.device("meta"):
        return config.build(words).to("meta").eval()


@torch.inference_mode()
def steps(task, model, batch, config, constraints=None):
    """Read the prompts and write some words, all without values."""
    batch = batch.to("meta")
    reader = PromptReader(model, batch, task.protocol, config)
    constraints = constraints or Constraints.plain(config, len(batch.last))
    numbers = range(len(batch.last))
    given = reader.homes, batch.num_blanks, task.protocol, config, constraints, numbers
    search = start(Request(*given))
    logits_RV = model.head(reader.read_prompt())
    for _ in range(STEPS):
        logits_RV = model.head(reader.read(reader.next_window(), *search.extend(logits_RV)))
    return logits_RV


def test_a_value_that_the_host_asks_for_raises():
    flags = torch.ones(3, dtype=torch.bool, device="meta")
    for ask in (flags.tolist, flags.cpu, flags.nonzero, flags[0].item, lambda: flags[flags]):
        with pytest.raises((RuntimeError, NotImplementedError)):
            ask()
    with pytest.raises(RuntimeError):
        assert flags[0]


@pytest.mark.every(12)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_recorded_step_of_no_architecture_waits(arch, toy_vocab):
    own = registry.get("arch", arch)()
    for name in TASKS:
        task, other, batch = prompted(name, toy_vocab)
        fits = own.sequential or type(other) is type(own)
        if fits and set(batch.towers) == set(own.towers):
            break
    else:
        pytest.skip("no task decodes with it by default")
    way = GenerateConfig(beam=4, max_len=STEPS + 1, capture="on")
    if not own.static_steps:
        with pytest.raises(UsageError, match="--capture on excludes"):
            recordings(on_meta(own, len(task.vocab)), "on")
        return
    few = replace(own, num_layers=2, layer_groups=min(own.layer_groups, 1))
    logits_RV = steps(task, on_meta(few, len(task.vocab)), batch, way)
    assert len(logits_RV) == 3 * 4


RULES = {
    "limits": {"min_len": 2, "unkpen": 1.0, "temperature": 2.0},
    "repeats": {"no_repeat_ngram_size": 2},
    "groups": {"diverse_beam_groups": 2},
    "draws": {"sampling": True, "nbest": 4, "sampling_topk": 5, "sampling_topp": 0.9},
    **{name: {"search": name} for name in ("exact", "fairseq", "glm", "unilm")},
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", [*RULES, "phrases"])
def test_a_step_of_no_search_waits(name, toy_vocab):
    task, own, batch = prompted("lm", toy_vocab)
    options = {"beam": 4, "max_len": STEPS + 1, **RULES.get(name, {})}
    way, constraints = GenerateConfig(**options), None
    if name == "phrases":
        each = [Constraint(max_len=STEPS + 1, phrases=((40, 41), (42,)), prefix=(43,))] * 3
        constraints = Constraints(each, word_rules(way, task.vocab))
    steps(task, on_meta(own, len(task.vocab)), batch, way, constraints)


@pytest.mark.parametrize("name", LEARN)
def test_the_gradients_of_no_task_wait(name, toy_vocab):
    cls = registry.get("task", name)
    task = cls(cls.Config(), toy_vocab)
    rng, text = np.random.default_rng(0), Text([np.arange(40, 60)], np.zeros(1, int))
    try:
        batch = collate([[task.pretrain(text, rng)] for _ in range(3)]).to("meta")
    except UsageError:
        pytest.skip("does not pre-train on texts")
    own = registry.get("arch", arch_of(cls))()
    few = (
        own if own.sequential else replace(own, num_layers=2, layer_groups=min(own.layer_groups, 1))
    )
    few = replace(few, heads=task.heads) if cls.needs_criterion else few
    model = on_meta(few, len(task.vocab)).train()
    criterion = registry.get("criterion", cls.criterion)().build(toy_vocab)
    with pytest.raises((RuntimeError, NotImplementedError)) if name in WAITS else nullcontext():
        sum(criterion(model, batch, 0, 10).sums.values()).backward()
        assert any(p.grad is not None for p in model.parameters())
