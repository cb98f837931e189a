"""A task gives its examples numbers, each of which has an embedding (ERNIE 2.0)."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_options import EXACT
from rounding import assert_near
from safetensors.torch import load_file

from unitk import registry
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.batching import make_batch
from unitk.data.cuts import Text
from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.models import archs
from unitk.slots import collate
from unitk.tasks.lm import LM
from unitk.training import loop
from unitk.training.saving.checkpoint import load, load_weights
from unitk.training.start import parse_train, prepare

TABLE = "embed.tasks.weight"
FILES = ("model.safetensors", "optim.safetensors")


class Numbered(LM):
    """Texts are of task 0 or 2, by their length; prompts of task 2."""

    def pretrain(self, text, rng):
        number = 2 * (len(text.ids) % 2)
        return replace(super().pretrain(text, rng), inputs={"task": np.array([number])})

    def prompt(self, source):
        return replace(super().prompt(source), inputs={"task": np.array([2])})


@pytest.fixture
def words(toy_data, monkeypatch):
    monkeypatch.setitem(registry._entries["task"], "numbered", Numbered)
    monkeypatch.setitem(registry._places, ("task", "numbered"), "tests:1")

    def make(run, more="", tasks=4):
        return (
            f"--task numbered --arch gpt2_tiny --arch.num-tasks {tasks} --data {toy_data / 'text'}"
            f" --save-dir {run} --batch-texts 8 --max-tokens 300 --lr 1e-2 --lr-schedule constant"
            " --optimizer.weight-decay 0 --precision fp32 --valid none"
            f" {EXACT} --writers none --log-every 1 --threads 1 {more}"
        ).split()

    return make


def train(words):
    loop.train(prepare(parse_train(words)))


def config():
    return replace(archs.preset("gpt2_tiny"), num_tasks=4, init_std=0.2)


@pytest.fixture
def made(toy_vocab):
    """A model, its task, and examples of both numbers and some without."""
    torch.manual_seed(0)
    task, rng = Numbered(Numbered.Config(), toy_vocab), np.random.default_rng(0)
    texts = [Text([rng.integers(30, len(toy_vocab), n)], np.zeros(1, int)) for n in (9, 5, 14, 3)]
    examples = [task.pretrain(text, rng) for text in texts]
    assert {int(example.inputs["task"][0]) for example in examples} == {0, 2}
    return config().build(len(toy_vocab)).eval(), task, examples


def test_only_the_embeddings_of_these_tasks_are_trained(made):
    model, _, examples = made
    loss = CrossEntropy()(model, make_batch(examples).to("cpu"), 0, None)
    sum(loss.sums.values()).backward()
    assert model.decoder.embed.tasks.weight.grad.any(1).tolist() == [True, False, True, False]


@torch.no_grad()
def test_an_embedding_is_added_to_every_slot_of_its_example(made):
    """As if it were added to the embeddings of all words, whatever is packed together."""
    model, _, examples = made
    packed = collate([examples[:3], examples[3:]]).to("cpu")
    states, at = model(packed)[0]["x"], {}
    table, tokens = model.decoder.embed.tasks.weight.clone(), model.decoder.embed.tokens
    plain = replace(config(), num_tasks=0).build(len(tokens.weight)).eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k != TABLE})
    words = plain.decoder.embed.tokens.weight.clone()
    for number, example in enumerate(examples):
        row = number // 3
        start = at.get(row, 0)
        at[row] = stop = start + len(example.towers["x"])
        plain.decoder.embed.tokens.weight.copy_(words + table[example.inputs["task"][0]])
        alone = plain(collate([[replace(example, inputs={})]]).to("cpu"))[0]["x"]
        assert_near(states[row, start:stop], alone[0, : stop - start])
    [without] = [collate([[replace(one, inputs={})]]).to("cpu") for one in examples[:1]]
    zero = replace(examples[0], inputs={"task": np.array([0])})
    assert torch.equal(model(without)[0]["x"], model(collate([[zero]]).to("cpu"))[0]["x"])


@torch.no_grad()
def test_decoding_has_the_embedding_of_the_prompt(made):
    model, task, _ = made
    prompts = [task.prompt([np.array(ids)]) for ids in ([40, 50, 60], [70])]
    others = [replace(prompt, inputs={"task": np.array([1])}) for prompt in prompts]
    given = task.protocol, GenerateConfig(beam=2, max_len=5)
    mixed = generate(model, [prompts[0], others[1]], *given)
    for alone, found in zip((prompts[0], others[1]), mixed, strict=True):
        [[best, *_]] = generate(model, [alone], *given)
        assert best.ids.tolist() == found[0].ids.tolist()
        assert_near(best.log_prob, found[0].log_prob)
    assert abs(generate(model, [others[0]], *given)[0][0].log_prob - mixed[0][0].log_prob) > 1e-3


def test_a_run_resumes_with_its_embeddings(words, tmp_path):
    train(words(tmp_path / "whole", "--max-steps 4"))
    train(words(tmp_path / "parts", "--max-steps 2"))
    train(words(tmp_path / "parts", "--max-steps 4 --resume"))
    last = [tmp_path / run / "checkpoints" / "step-4" for run in ("whole", "parts")]
    manifests = [json.loads((one / "manifest.json").read_text())["files"] for one in last]
    for name in FILES:
        assert len({one[name]["sha256"] for one in manifests}) == 1
    first = load_file(tmp_path / "parts" / "checkpoints" / "step-2" / FILES[0])[TABLE]
    moved = (load_file(last[0] / FILES[0])[TABLE] != first).any(1)
    assert moved.tolist() == [True, False, True, False]
    assert load(tmp_path / "parts").model.config.num_tasks == 4


def test_embeddings_that_a_checkpoint_lacks_begin_at_0(words, tmp_path, toy_vocab):
    train(words(tmp_path / "plain", "--max-steps 1", tasks=0))
    train(words(tmp_path / "more", f"--max-steps 2 --init-from {tmp_path / 'plain'}"))
    table = load(tmp_path / "more").model.decoder.embed.tasks.weight
    assert table.any(1).tolist() == [True, False, True, False]  # those of other tasks stay 0
    last = tmp_path / "plain" / "checkpoints" / "step-1"
    plain, model = load(last).model, archs.preset("gpt2_tiny")
    model = replace(model, num_tasks=4, num_segments=2).build(len(toy_vocab))
    load_weights(model, last, task=Numbered(Numbered.Config(), toy_vocab))
    found = model.state_dict()
    assert not found.pop(TABLE).any() and not found.pop("embed.segments.weight").any()
    assert all(torch.equal(found[name], tensor) for name, tensor in plain.state_dict().items())
    with pytest.raises(CheckpointError, match="has no tensor embed"):
        load_weights(model, last)


def test_a_number_beyond_the_table_is_told(words, tmp_path):
    with pytest.raises((DataError, UsageError), match="number 2 is beyond --arch.num-tasks 2"):
        train(words(tmp_path / "run", "--max-steps 1", tasks=2))
    with pytest.raises(UsageError, match="--arch.num-tasks must be 0 .*latent"):
        replace(archs.preset("optimus_tiny"), num_tasks=2)
