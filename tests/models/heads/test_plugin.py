"""A head from --user-dir, in a file with the task that asks it: trained, resumed, evaluated."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

from unitk import registry
from unitk.data.batching import draw
from unitk.errors import UsageError
from unitk.evaluation.objective import open_setup
from unitk.slots import collate
from unitk.training.saving.checkpoint import load
from unitk.verbs.evaluate import run as evaluate
from unitk.verbs.train import run as train

PLUGIN = '''
import numpy as np
from torch import nn

from unitk.models.heads.base import Categorical
from unitk.registry import register
from unitk.slots import Ask, Example, stay
from unitk.tasks.mlm import MLM
from unitk.tasks.base import frame_parts


@register("head", "bag")
class Bag(Categorical):
    """Classes of the mean of all slots that a row reads."""

    needs_size = True

    def __init__(self, config, vocab_size, size):
        super().__init__(config, vocab_size, size)
        self.out = nn.Linear(config.width, size)

    def forward(self, asked, tokens_VD):
        real = asked.real[..., None]
        return self.out((asked.states * real).sum(1) / real.sum(1))


@register("task", "parity")
class Parity(MLM):
    """Whether the first word's id is odd, from all slots."""

    def __init__(self, config, vocab):
        super().__init__(config, vocab)
        self.heads = ("bag:parity:2",)

    def pretrain(self, text, rng):
        tokens, seg = frame_parts(text.parts, self.vocab.cls, self.vocab.sep)
        slots = stay(tokens, np.arange(len(tokens)), seg=seg)
        every, label = np.arange(len(tokens))[None], text.parts[0][:1] % 2
        return Example({"x": slots}, [Ask("odd", "bag:parity", "x", every, label, np.ones(1, "f"))])
'''


@pytest.fixture
def plugin(tmp_path, own_registry):
    """The folder."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "bag.py").write_text(PLUGIN)
    return folder


def test_it_trains_resumes_and_is_evaluated(plugin, toy_data, tmp_path, capsys):
    words = f"--user-dir {plugin} --task parity --arch bert_tiny --arch.heads bag:parity:2"
    words += f" --data {toy_data / 'text'} --save-dir {tmp_path / 'run'} --valid none --lr 3e-3"
    words += " --blocks line --max-tokens 400 --batch-tokens 800 --precision fp32 --threads 1"
    train(f"{words} --max-steps 3".split())
    train(f"{words} --max-steps 6 --resume".split())
    capsys.readouterr()
    evaluate(
        f"--checkpoint {tmp_path / 'run'} --data {toy_data / 'text'} --user-dir {plugin}"
        " --output-format json --device cpu".split()
    )
    told = json.loads(capsys.readouterr().out)
    loaded = load(tmp_path / "run")
    own = dict(loaded.model.heads["bag:parity"].named_parameters())
    data = open_setup(tmp_path / "run", toy_data / "text", torch.device("cpu")).data
    losses = []
    for index in range(len(data.train.bounds(0))):
        example = draw(data.train, 0, 0, index)
        states = loaded.model(collate([[example]]).to("cpu"))[0]["x"][0, : len(example.towers["x"])]
        logits = F.linear(states.mean(0), own["out.weight"], own["out.bias"])
        losses.append(F.cross_entropy(logits, torch.tensor(example.asks[0].label[0])).item())
    assert told["odd"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert set(told) >= {"loss", "odd", "odd/correct"} and "odd/nll" not in told


def test_a_checkpoint_without_its_head_names_the_plugins(plugin, toy_data, tmp_path, monkeypatch):
    """Of a plug-in head alone, and of a task."""
    words = f"--arch bert_tiny --arch.heads bag:parity:2 --data {toy_data / 'text'} --valid none"
    words += " --max-tokens 400 --max-steps 1 --precision fp32 --threads 1 --save-dir"
    for task in ("mlm", "parity"):
        train(f"--user-dir {plugin} --task {task} {words} {tmp_path / task}".split())
    monkeypatch.setattr(registry, "_loaded", set())
    for kind, name in (("head", "bag"), ("task", "parity")):
        monkeypatch.delitem(registry._entries[kind], name)
    hint = rf"there is no {{}}.* was trained with plug-ins: give --user-dir .*{plugin.name}"
    for task, what in (("mlm", "head 'bag'"), ("parity", "task 'parity'")):
        with pytest.raises(UsageError, match=hint.format(what)):
            load(tmp_path / task)
    begins = f"--task mlm --data {toy_data / 'text'} --save-dir {tmp_path / 'more'} --max-steps 1"
    with pytest.raises(UsageError, match=hint.format("head 'bag'")):
        begins += f" --arch bert_tiny --arch.heads bag:parity:2 --init-from {tmp_path / 'mlm'}"
        train(begins.split())
