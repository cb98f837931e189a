"""Adapters leave for peft and come from it: the same logits, computed by peft."""

import json
from dataclasses import replace

import pytest
import torch

from tests.conftest import toy_lines
from unitk.errors import CheckpointError, UsageError
from unitk.files import seal
from unitk.formats.archive import read_tensors, write_safetensors
from unitk.models.model import build
from unitk.options.fields import parse_named
from unitk.registry import get
from unitk.training.parallel import Ranks
from unitk.training.saving import checkpoint, snapshot
from unitk.training.saving.state import Identity, Progress
from unitk.training.saving.weights import Base

LORA = "lora:rank=3,alpha=4"


@pytest.fixture(scope="session")
def peft():
    return pytest.importorskip("peft")


@pytest.fixture
def run(kit, toy_vocab, tmp_path):
    """Writes the checkpoint of a random model with a random adapter."""

    def write(task_name, arch, adapter=LORA, labels=(), **options):
        torch.manual_seed(0)
        task = get("task", task_name)(get("task", task_name).Config(**options), toy_vocab)
        config, settings = get("arch", arch)(), {"task": task_name, "arch": arch}
        settings |= {f"task.{name}": str(text) for name, text in options.items()}
        if labels:
            task = task.knowing(labels=labels)
            heads = f"class:label:{len(labels)}"
            settings |= {"arch.heads": heads, "arch.head_pooler": "off"}
            config = replace(config, heads=(heads,), head_pooler=False)
        model = kit.perturbed(build(config, len(toy_vocab)))
        if adapter:
            settings["adapter"] = adapter
            parse_named("adapter", adapter, "").apply(model)
            kit.perturbed(model)
        named = model.named_parameters()
        stays = {n: p.detach() for n, p in named if ".lora_" not in n and ":" not in n}
        base = Base(stays, {}, None) if adapter else None
        given = Identity(settings, None, "none", toy_vocab.hash, "text", labels=labels)
        parts = model, (), Progress(), given, task, Ranks().copied
        folder = tmp_path / "run"
        folder.mkdir()
        snapshot.write(folder, snapshot.take_snapshot(*parts, base=base))
        seal(folder)
        return folder

    return write


def logits_of(model, row):
    with torch.no_grad():
        return model.eval()(torch.tensor(row)[None]).logits[0]


CASES = [
    ("lm", "qwen3_tiny", "AutoModelForCausalLM"),
    ("lm", "llama_tiny", "AutoModelForCausalLM"),
    ("lm", "gpt2_tiny", "AutoModelForCausalLM"),
    ("lm", "pythia_tiny", "AutoModelForCausalLM"),
    ("mlm", "bert_tiny", "AutoModelForMaskedLM"),
]


@pytest.mark.parametrize(("task", "arch", "opened"), CASES)
def test_it_leaves_and_comes_back(peft, hf, kit, run, toy_vocab, tmp_path, task, arch, opened):
    ours = run(task, arch)
    there = kit.from_unitk(ours, "peft", tmp_path / "there")
    base = getattr(hf, opened).from_pretrained(there / "base")
    row = [toy_vocab.cls, *toy_vocab.encode(toy_lines(1)[0])[:12], toy_vocab.sep]
    plain = logits_of(base, row)
    theirs = logits_of(peft.PeftModel.from_pretrained(base, there), row)
    model = checkpoint.load(ours).model
    example = kit.single(torch.tensor(row).numpy(), at=None if task == "mlm" else range(len(row)))
    found = kit.logits(model, example)
    size = theirs.abs().max()
    assert (found - theirs).abs().max() < 1e-5 * size < (plain - theirs).abs().max()
    back = kit.to_unitk("peft", there, tmp_path / "back")
    again = kit.logits(checkpoint.load(back).model, example, len(toy_vocab))
    assert (again - found).abs().max() < 1e-5 * size


def test_a_head_that_is_trained_whole_leaves(peft, hf, kit, run, toy_vocab, tmp_path):
    layout = "lm:opening=none,delimiter=off"
    ours = run("classify", "gpt2_tiny", labels=("a", "b", "c"), layout=layout)
    there = kit.from_unitk(ours, "peft", tmp_path / "there")
    own = hf.AutoModelForSequenceClassification
    base = own.from_pretrained(there / "base")
    with torch.no_grad():
        base.score.weight.zero_()  # the adapter brings it
    row = toy_vocab.encode(toy_lines(1)[0])[:12]
    theirs = logits_of(peft.PeftModel.from_pretrained(base, there), row)
    whole = logits_of(own.from_pretrained(kit.from_unitk(ours, "hf", tmp_path / "whole")), row)
    assert (whole - theirs).abs().max() < 1e-5 * whole.abs().max()


@pytest.mark.parametrize(
    ("kind", "opened", "settings", "targets"),
    [
        ("Qwen3", "Qwen3ForCausalLM", {"head_dim": 8}, ["q_proj", "v_proj", "down_proj"]),
        ("Llama", "LlamaForCausalLM", {}, "all-linear"),
        ("Bert", "BertForMaskedLM", {}, ["query", "value"]),
        ("GPT2", "GPT2LMHeadModel", {}, ["c_attn", "c_proj"]),
    ],
)
@pytest.mark.parametrize("more", [{}, {"use_rslora": True, "alpha_pattern": {"layers.0": 5}}])
def test_an_adapter_of_others_comes_in(
    peft,
    hf,
    kit,
    run,
    toy_vocab,
    tmp_path,
    kind,
    opened,
    settings,
    targets,
    more,
):
    """peft writes an adapter of a random model of transformers; unitk adds it to the weights."""
    source = run({"Bert": "mlm"}.get(kind, "lm"), f"{kind.lower()}_tiny", adapter="")
    kit.from_unitk(source, "hf", tmp_path / "model")
    base = getattr(hf, opened).from_pretrained(tmp_path / "model")
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=targets, **more)
    torch.manual_seed(1)
    model = peft.get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    model.save_pretrained(tmp_path / "adapter")
    row = [toy_vocab.cls, *toy_vocab.encode(toy_lines(1)[0])[:12], toy_vocab.sep]
    theirs = logits_of(model, row)
    ours = kit.to_unitk("peft", tmp_path / "adapter", tmp_path / "ours")
    at = None if kind == "Bert" else range(len(row))
    example = kit.single(torch.tensor(row).numpy(), at=at)
    found = kit.logits(checkpoint.load(ours).model, example, len(toy_vocab))
    assert (found - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_a_model_without_adapter_does_not_leave(kit, run, tmp_path):
    with pytest.raises(UsageError, match="--to peft.*--adapter"):
        kit.from_unitk(run("lm", "gpt2_tiny", adapter=""), "peft", tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type.*LORA.*IA3"),
        ({"use_dora": True}, "use_dora"),
        ({"base_model_name_or_path": "org/none"}, "base_model_name_or_path.*org/none"),
        ({"lora_alpha": "big"}, "lora_alpha.*big"),
        ("lora_A.weight", "no known name.*lora_B"),
        ("lora_B.weight", "no known name.*lora_A"),
    ],
)
def test_what_does_not_come_in(kit, run, tmp_path, change, message):
    there = kit.from_unitk(run("lm", "gpt2_tiny"), "peft", tmp_path / "there")
    if isinstance(change, dict):
        file = there / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    else:
        file = there / "adapter_model.safetensors"
        tensors = read_tensors(file)
        first = next(name for name in tensors if name.endswith(change))
        del tensors[first]
        file.unlink()
        write_safetensors(tensors, file)
    with pytest.raises(CheckpointError, match=message):
        kit.to_unitk("peft", there, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
