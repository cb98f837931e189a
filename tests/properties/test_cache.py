"""Cached decoding equals one full pass, for every registered task that decodes.

Ragged sources, hypotheses that share ancestors, blanks that end at different steps; what is open
after some steps is compared too, for a forgotten back-pointer may never show in what finishes.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import other_archs
import pytest
import torch
from paper_archs import arch_of
from rounding import assert_near

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.decode import PromptReader, generate
from unitk.decoding.search import Request, Search
from unitk.families.latent.model import LatentModel
from unitk.kernels.products import has_onednn
from unitk.kernels.weights import prepare_weights
from unitk.slots import collate, unroll
from unitk.tasks.base import Task

TASKS = [
    name for name in registry.names("task") if registry.get("task", name).protocol != Task.protocol
]
SMALL = {
    "num_layers": 2,
    "width": 32,
    "num_heads": 4,
    "ffn_width": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "init_std": 0.12,
}
CONFIG = GenerateConfig(beam=4, nbest=4, max_len=6, lenpen=0.6, search="exact")


DISTANCES = [
    "lm distances",
    "glm_infill distances_seg",
    "unilm distances_seg",
    "seq2seq distances2",
]
RNN = ["lm awd_lstm_tiny", "lm siatl_tiny"]
SHIFTED = "unilm unilm_small position_shift"


MODERN = [pair for pair in other_archs.PAIRS if pair.split()[0] in TASKS]


@pytest.fixture(
    params=[*TASKS, "seq2seq t5_mini", "seq2seq t5_v1_1_small", SHIFTED, *DISTANCES, *MODERN, *RNN]
)
def setting(request, toy_vocab):
    """A task with its default architecture made small, and prompts of 1 to 30 words."""
    name, _, more = request.param.partition(" ")
    arch, _, option = more.partition(" ")
    cls = registry.get("task", name)
    task = cls(cls.Config(**{option: True} if option else {}), toy_vocab)
    torch.manual_seed(0)
    config = registry.get("arch", arch or arch_of(cls))()
    if config.sequential:
        config = replace(config, width=32, cell_width=48, init_range=0.3)
    else:
        rows = max(config.num_virtual, len(task.virtual))
        config = replace(config, **SMALL, num_virtual=rows)
    if not config.sequential and config.fan_in_init:
        config = replace(config, init_std=1.0)
    model = other_archs.without_zeros(config.build(len(task.vocab))).eval()
    if isinstance(model, LatentModel):  # latents that tell the sources apart
        model.bridge.weight.data *= 100
    rng = np.random.default_rng(1)
    words = np.setdiff1d(np.arange(len(toy_vocab)), list(toy_vocab.symbols.values()))
    prompts = []
    for n in (30, 1, 12, 7, 18, 3, 9, 22, 5):
        source = rng.choice(words, n)
        if task.protocol.begin is not None:  # 1 to 3 blanks
            source = np.insert(source, rng.integers(n, size=1 + n % 3), toy_vocab.mask)
        prompts.append(task.prompt([source]))
    make_end_likely(model, prompts, task.protocol)
    return task, model, prompts


@pytest.mark.every(2)
@pytest.mark.parametrize("precision", ["fp32", "bf16", *["int8"] * has_onednn()])
def test_every_task_decodes_in_every_precision(setting, precision):
    """In fp32 the packed weights write the same words; in fewer bits some n best of theirs."""
    task, model, prompts = setting
    expected = generate(model, prompts, task.protocol, CONFIG)
    head = model.head
    del model.head  # the end's raised logit is a closure over the model as it was
    raised = head(torch.zeros(1, model.config.width)) - model.head(
        torch.zeros(1, model.config.width)
    )
    prepared = prepare_weights(copy.deepcopy(model), precision)
    plain = prepared.head
    prepared.head = lambda states_KD: plain(states_KD) + raised.to(states_KD.dtype)
    found = generate(prepared, prompts, task.protocol, CONFIG)
    assert [len(some) for some in found] == [len(some) for some in expected]
    if precision == "fp32":
        for one, other in zip(found, expected, strict=True):
            assert [a.ids.tolist() for a in one] == [b.ids.tolist() for b in other]


def make_end_likely(model, prompts, protocol):
    """Raise the logit of the end to that of the best word, on average: outputs differ in length."""
    head = model.head
    logits = torch.stack([asked(model, prompt, protocol, [protocol.end])[0] for prompt in prompts])
    likely = torch.zeros(logits.shape[1])
    likely[protocol.end] = (logits.amax(1) - logits[:, protocol.end]).mean()
    model.head = lambda states_KD: head(states_KD) + likely


def in_one_pass(model, prompt, protocol, written):
    """The log-probability of each written word."""
    log_probs = asked(model, prompt, protocol, written).log_softmax(-1)
    return log_probs.gather(1, torch.as_tensor(written)[:, None])[:, 0]


@torch.no_grad()
def asked(model, prompt, protocol, written):
    """The logits of what is at each written word."""
    batch = collate([[unroll(prompt, protocol, written)]]).to("cpu")
    states, _ = model(batch, model.condition(batch))
    ask = batch.asks["lm"]
    return model.head(states[ask.tower].flatten(0, 1)[ask.rows[:, 0]])


@pytest.mark.every(8)
def test_finished_outputs_have_the_probabilities_of_one_pass(setting):
    task, model, prompts = setting
    found = generate(model, prompts, task.protocol, CONFIG)
    lengths = set()
    for prompt, hypotheses in zip(prompts, found, strict=True):
        assert len(hypotheses) == 4
        for one in hypotheses:
            expected = in_one_pass(model, prompt, task.protocol, one.ids)
            assert_near(one.token_log_probs, expected)
            assert_near(one.log_prob, float(expected.double().sum()))
            ends = np.flatnonzero(one.ids == task.protocol.end)
            assert len(ends) == 1 + len(prompt.blanks) and ends[-1] == len(one.ids) - 1
            lengths.add((len(prompt.blanks), *ends.tolist()))
    assert len(lengths) > (6 if task.protocol.begin is not None else 2)


@pytest.mark.every(14)
@torch.inference_mode()
def test_open_hypotheses(setting):
    task, model, prompts = setting
    batch = collate([[prompt] for prompt in prompts]).to("cpu")
    reader = PromptReader(model, batch, task.protocol, CONFIG)
    plain = Constraints.plain(CONFIG, len(prompts))
    search = Search(Request(reader.homes, batch.num_blanks, task.protocol, CONFIG, plain))
    logits, shared, compared, depths = model.head(reader.read_prompt()), 0, 0, set()
    for step in range(1, search.max_steps):
        back, token, position = search.extend(logits)
        state = search.state
        for b, prompt in enumerate(prompts):
            for k in range(CONFIG.beam):
                if state.score[b, k] > -torch.inf:
                    expected = in_one_pass(model, prompt, task.protocol, state.written[b, k, :step])
                    assert_near(state.gain[b, k, :step], expected)
                    score = pytest.approx(float(expected.double().sum()), rel=1.5e-5, abs=1.5e-5)
                    assert float(state.score[b, k]) == score
                    compared += 1
                    depths.add((step, int(state.blank[b, k])))
            parents = back[b, state.score[b] > -torch.inf].tolist()
            shared += step > 1 and 1 < len(set(parents)) < len(parents)
        logits = model.head(reader.read(reader.next_window(), back, token, position))
    assert compared > 100
    assert shared > 10, "hypotheses must share ancestors, or else nothing is shown"
    if task.protocol.begin is not None:
        opened = {step for step, blank in depths if blank == 1}
        assert len(opened) > 3, "blanks must end at different steps"
