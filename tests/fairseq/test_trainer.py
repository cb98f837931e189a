"""unitk's objectives under fairseq's own trainer, where fairseq is installed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import entity_files
import labelled_corpora
import numpy as np
import pytest
import torch
from fairseq_programs import needs_fairseq, run_fairseq

from unitk import registry
from unitk.data.batching import FixedBatches, draw, make_batch
from unitk.data.examples import open_data
from unitk.fairseq import verb as fairseq_plugin
from unitk.formats.archive import read_pickle
from unitk.models.model import build
from unitk.tasks.base import Task
from unitk.tasks.understanding.base import Understanding
from unitk.training.saving.checkpoint import load
from unitk.training.start import add_heads, parse_train
from unitk.verbs import convert
from unitk.vocab.open import open_vocab

pytestmark = [pytest.mark.slow, needs_fairseq]
CLOZE = 'fields: [a, choices]\nanswers: "{choice}"\npatterns: ["{a} [M]"]\n'


def fairseq_train(folder: Path, data: Path, task: str, words: str, options: str) -> dict:
    """What a run of `fairseq-train` logs: {"train": ..., "valid": ...}."""
    fairseq_plugin.run(["--dest", str(folder / "plugin")])
    line = [str(data), "--user-dir", str(folder / "plugin"), "--task", f"unitk_{task}"]
    line += ["--criterion", "unitk", "--unitk-options", options, "--save-dir", str(folder / "save")]
    line += "--cpu --optimizer adam --num-workers 0 --log-format json".split() + words.split()
    logs = [line.split(" | ") for line in run_fairseq("train", *line).splitlines()]
    return {log[2]: json.loads(log[3]) for log in logs if log[2:3] in (["train"], ["valid"])}


def kinds(name: str) -> list[str]:
    """What a task learns from."""
    cls = registry.get("task", name)
    if issubclass(cls, Understanding):
        return ["labels"]
    can = {"text": cls.pretrain is not Task.pretrain, "pairs": cls.finetune is not Task.finetune}
    return [kind for kind in can if can[kind]]


EVERY = [(name, kind) for name in registry.names("task") for kind in kinds(name)]


@pytest.fixture(scope="module")
def labels(tmp_path_factory, toy_vocab):
    return labelled_corpora.write_corpora(tmp_path_factory.mktemp("labels"), toy_vocab)


@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_the_loss_of_an_update_is_our_own(toy_data, labels, tmp_path, task, kind):
    data = (
        labels / labelled_corpora.FORMS.get(task, "choice") if kind == "labels" else toy_data / kind
    )
    arch = getattr(registry.get("task", task), "arch", "bert_base").rpartition("_")[0] + "_tiny"
    options = {"text": "block-size=64", "pairs": "criterion.label-smoothing=0.1"}.get(kind, "")
    if (task, kind) == ("optimus", "pairs"):
        options = ""  # its criterion has no such option
    if task == "thu_ernie":
        linked = entity_files.write_entities(tmp_path, open_vocab(data / "train"))
        options += "".join(f" task.{key}={path}" for key, path in linked.items())
    if task == "cloze":
        (tmp_path / "cloze.yaml").write_text(CLOZE)
        options += f"task.patterns={tmp_path / 'cloze.yaml'}"
    words = f"--arch unitk_{arch} --lr 0 --max-update 1 --batch-size 1000"
    words += " --required-batch-size-multiple 1"  # else the last rows are a batch of their own
    logged = fairseq_train(tmp_path, data, task, words, options)
    flags = [f"--{word}" for word in options.split()]
    flags += [f"--task={task}", f"--arch={arch}", "--max-steps=1", "--save-dir=unused"]
    parsed = parse_train([*flags, f"--data={data}"])
    opened = open_data(parsed)
    parsed = add_heads(parsed, opened.heads)
    sizes = len(opened.vocab), len(opened.task.source_vocab)
    model = build(parsed.components["arch"].config, *sizes)
    saved = read_pickle(tmp_path / "save" / "checkpoint_last.pt")["model"]
    model.load_state_dict({name.removeprefix("network."): saved[name] for name in saved})
    criterion = parsed.components["criterion"].config.build(opened.vocab)
    examples = opened.train
    drawn = [draw(examples, 1, 0, i) for i in range(len(examples.bounds(0)))]
    valid = [batch for _, batch in FixedBatches(opened.valid["valid"], 10**6)]
    for name, batches in {"train": [make_batch(drawn)], "valid": valid}.items():
        (batch,) = batches
        model.train(name == "train")
        sums, counts = criterion(model, batch.to("cpu"), 0, 1).sums, criterion.counts(batch)
        means = {ask: total / counts[ask] for ask, total in sums.items()}
        whole = sum(examples.asks.get(ask, 1.0) * mean for ask, mean in means.items())
        compared = {"loss": whole, **means}
        if task == "optimus":  # fairseq seeds the draws of latents otherwise
            compared = {"kl": means["kl"]}
        for what, value in compared.items():
            found = float(logged[name][f"{name}_{what}"]) * math.log(2)
            assert found == pytest.approx(value.item(), rel=1e-4, abs=1e-4), f"{name} {what}"
        if name == "train" and task != "optimus":
            whole.backward()
            norm = torch.nn.utils.get_total_norm(
                [p.grad for p in model.parameters() if p.grad is not None]
            )
            found = float(logged["train"]["train_gnorm"])
            assert found == pytest.approx(norm.item(), rel=1e-3, abs=2e-3)
    assert np.isfinite(value.item()) and len(drawn) > 50


def test_it_learns_continues_and_comes_back(toy_data, tmp_path):
    words = "--arch unitk --unitk-arch gpt2_tiny --lr 1e-2 --max-tokens 400 --max-update"
    options = "blocks=line block-size=32"
    first = fairseq_train(tmp_path, toy_data / "text", "lm", f"{words} 5", options)
    (tmp_path / "plugin" / "__init__.py").unlink()
    (tmp_path / "plugin").rmdir()
    later = fairseq_train(tmp_path, toy_data / "text", "lm", f"{words} 60", options)
    assert int(later["train"]["train_num_updates"]) == 60
    losses = [float(log["valid"]["valid_loss"]) for log in (first, later)]
    assert losses[1] < losses[0] - 0.5
    save, dest = tmp_path / "save" / "checkpoint_last.pt", tmp_path / "ours"
    convert.run(["--from", "fairseq", str(save), "--to", "unitk", str(dest)])
    loaded, saved = load(dest), read_pickle(save)["model"]
    assert loaded.task.vocab.hash == open_vocab(toy_data / "text").hash
    for name, tensor in loaded.model.named_parameters():
        assert torch.equal(tensor, saved[f"network.{name}"])


def test_a_classifier_comes_back_with_its_labels(labels, tmp_path):
    words = "--arch unitk_bert_tiny --lr 1e-2 --max-tokens 400 --max-update 3"
    fairseq_train(tmp_path, labels / "class", "classify", words, "")
    save = tmp_path / "save" / "checkpoint_last.pt"
    convert.run(["--from", "fairseq", str(save), "--to", "unitk", str(tmp_path / "ours")])
    loaded, saved = load(tmp_path / "ours"), read_pickle(save)["model"]
    assert loaded.task.trained.labels == ("no", "yes")
    for name, tensor in loaded.model.named_parameters():
        assert torch.equal(tensor, saved[f"network.{name}"])


def test_its_mistakes_are_told(toy_data, tmp_path):
    with pytest.raises(AssertionError, match=r"--unitk-options has no 'lr'.*\n"):
        fairseq_train(tmp_path, toy_data / "text", "lm", "--arch unitk --max-tokens 99", "lr=1")
