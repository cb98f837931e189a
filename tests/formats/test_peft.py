"""Adapters leave for peft and come from it: the same logits, computed by peft."""

import json
import re
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

    def write(task_name, arch, adapter=LORA, labels=(), heads=(), head_pooler=False, **options):
        torch.manual_seed(0)
        task = get("task", task_name)(get("task", task_name).Config(**options), toy_vocab)
        config, settings = get("arch", arch)(), {"task": task_name, "arch": arch}
        settings |= {f"task.{name}": str(text) for name, text in options.items()}
        if heads:
            task = task.with_trained(labels=labels)
            pooler = "on" if head_pooler else "off"
            settings |= {"arch.heads": ",".join(heads), "arch.head_pooler": pooler}
            config = replace(config, heads=heads, head_pooler=head_pooler)
        model = kit.perturbed(build(config, len(toy_vocab)))
        if adapter:
            settings["adapter"] = adapter
            parse_named("adapter", adapter, "").apply(model)
            kit.perturbed(model)
        named = model.named_parameters()
        stays = {n: p.detach() for n, p in named if ".lora_" not in n and ":" not in n}
        base = Base(stays, {}, None) if adapter else None
        given = Identity(settings, None, "none", toy_vocab.hash, "text", labels=labels)
        parts = model, (), Progress(), given, task
        copy = Ranks().copy_to_host
        folder = tmp_path / "run"
        folder.mkdir()
        snapshot.write(folder, snapshot.take_snapshot(*parts, copy=copy, base=base))
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


LINEAR = {"layout": "lm:opening=none,delimiter=off"}
POOLED = {"layout": "mlm", "head_pooler": True}
HEADS = [
    ("classify", "gpt2_tiny", ("class:label:3",), LINEAR),
    ("choice", "gpt2_tiny", ("choice:label",), LINEAR),
    ("choice", "bert_tiny", ("choice:label",), POOLED),
    ("multi_label", "bert_tiny", ("class:nsp:2", "classes:label:3"), POOLED),
    ("tag", "roberta_tiny", ("tag:label:3",), POOLED),
]


@pytest.mark.parametrize(("task", "arch", "heads", "options"), HEADS)
def test_a_head_that_is_trained_whole_leaves(
    peft, hf, kit, run, tmp_path, monkeypatch, task, arch, heads, options
):
    """The README of the folder opens it; output layers that the class lacks are left out."""
    labels = ("a", "b", "c") if heads[-1].endswith(":3") else ()
    ours = run(task, arch, heads=heads, labels=labels, **options)
    there = kit.from_unitk(ours, "peft", tmp_path / "there")
    stored = read_tensors(there / "base" / "model.safetensors")
    (there / "base" / "model.safetensors").unlink()
    whole = json.loads((there / "adapter_config.json").read_text())["modules_to_save"]
    brought = {n: t for n, t in stored.items() if n.rpartition(".")[0] in whole}
    empty = {name: torch.zeros_like(tensor) for name, tensor in brought.items()}
    write_safetensors(stored | empty, there / "base" / "model.safetensors")
    monkeypatch.chdir(there)
    found = {}
    exec((there / "README.md").read_text().partition("```python\n")[2].partition("```")[0], found)
    name = type(found["model"].base_model.model).__name__
    alone = getattr(hf, name).from_pretrained(kit.from_unitk(ours, "hf", tmp_path / "whole")).eval()
    rows = torch.tensor([[7, 9, 11, 13], [7, 8, 9, 12]])[None if task == "choice" else slice(1)]
    with torch.no_grad():
        a, b = (one(input_ids=rows) for one in (found["model"].eval(), alone))
    a, b = (getattr(one, "mc_logits", one.logits) for one in (a, b))
    assert (a - b).abs().max() < 1e-5 * b.abs().max()


@pytest.mark.parametrize(
    ("kind", "opened", "targets"),
    [
        ("Qwen3", "Qwen3ForCausalLM", ["q_proj", "v_proj", "down_proj"]),
        ("Llama", "LlamaForCausalLM", "all-linear"),
        ("Bert", "BertForMaskedLM", ["query", "value"]),
        ("GPT2", "GPT2LMHeadModel", ["c_attn", "c_proj"]),
    ],
)
@pytest.mark.parametrize("more", [{}, {"use_rslora": True, "alpha_pattern": {r".*\.0\..*": 9}}])
def test_an_adapter_of_others_comes_in(
    peft, hf, kit, adapter_of, tmp_path, kind, opened, targets, more
):
    """peft writes an adapter of a random model of transformers; unitk adds it to the weights."""
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=targets, **more)
    adapter, assert_same_logits = adapter_of(f"{kind}_tiny".lower(), opened, config)
    assert_same_logits(kit.to_unitk("peft", adapter, tmp_path / "ours"))


@pytest.fixture
def adapter_of(peft, hf, kit, run, toy_vocab, tmp_path):
    """Has peft write a random adapter of a model, and compares a model of unitk with both."""

    def write(arch, opened, config):
        source = run("mlm" if arch.startswith("bert") else "lm", arch, adapter="")
        kit.from_unitk(source, "hf", tmp_path / "model")
        load = getattr(hf, opened).from_pretrained
        torch.manual_seed(1)
        model = peft.get_peft_model(load(tmp_path / "model"), config)
        for parameter in (one for one in model.parameters() if one.requires_grad):
            parameter.data += 0.2 * torch.randn_like(parameter)
        model.save_pretrained(tmp_path / "adapter")
        row = [toy_vocab.cls, *toy_vocab.encode(toy_lines(1)[0])[:12], toy_vocab.sep]
        plain = logits_of(load(tmp_path / "model"), row)
        opened_again = peft.PeftModel.from_pretrained(
            load(tmp_path / "model"), tmp_path / "adapter"
        )
        theirs = logits_of(opened_again, row)
        size = theirs.abs().max()
        assert (plain - theirs).abs().max() > 0.01 * size

        def assert_same_logits(ours):
            at = None if arch.startswith("bert") else range(len(row))
            example = kit.single(torch.tensor(row).numpy(), at=at)
            found = kit.logits(checkpoint.load(ours).model, example, len(toy_vocab))
            assert (found - theirs).abs().max() < 1e-5 * size

        return tmp_path / "adapter", assert_same_logits

    return write


CAUSAL, MASKED = "AutoModelForCausalLM", "AutoModelForMaskedLM"
PARTS = [
    ("qwen3_tiny", CAUSAL, ["q_proj"], {"modules_to_save": ["embed_tokens"]}),
    ("qwen3_tiny", CAUSAL, ["q_proj"], {"modules_to_save": ["lm_head"]}),
    ("qwen3_tiny", CAUSAL, ["q_proj"], {"modules_to_save": ["lm_head", "embed_tokens"]}),
    ("qwen3_tiny", CAUSAL, ["q_proj", "embed_tokens"], {}),
    ("qwen3_tiny", CAUSAL, ["q_proj", "lm_head"], {}),
    ("gpt2_tiny", CAUSAL, ["c_attn", "wte", "wpe"], {"fan_in_fan_out": True}),
    ("bert_tiny", MASKED, ["query"], {"bias": "all"}),
    ("bert_tiny", MASKED, ["query"], {"modules_to_save": ["predictions"]}),
]


@pytest.mark.parametrize(("arch", "opened", "targets", "more"), PARTS)
def test_embeddings_outputs_and_biases_come_in(
    peft, kit, adapter_of, tmp_path, arch, opened, targets, more
):
    """peft gives each of two tied matrices its own values: what changes one unties them."""
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=targets, **more)
    adapter, assert_same_logits = adapter_of(arch, opened, config)
    assert_same_logits(kit.to_unitk("peft", adapter, tmp_path / "ours"))


FACTORS = {"embedding_multiplier": 9.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4}
FACTORS |= {"logits_scaling": 5.0}


@pytest.mark.parametrize(("kind", "more"), [("Granite", FACTORS), ("Phi3", {}), ("Glm", {})])
def test_an_adapter_of_a_base_that_is_stored_otherwise(
    peft, hf, kit, tmp_path, vocab_txt, kind, more
):
    """Granite's factors multiply what an adapter adds, too; Phi-3 and GLM have joined matrices."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 60, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
    sizes |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    model_class = getattr(hf, f"{kind}ForCausalLM")
    torch.manual_seed(0)
    model = kit.perturbed(model_class(model_class.config_class(**sizes, **more)))
    there = tmp_path / "adapter"
    model.save_pretrained(there / "base")
    (there / "base" / "vocab.txt").write_text(vocab_txt.read_text())
    row = list(range(5, 19))
    plain = logits_of(model, row)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules="all-linear"))
    for parameter in (one for one in adapted.parameters() if one.requires_grad):
        parameter.data += 0.2 * torch.randn_like(parameter)
    adapted.save_pretrained(there)
    about = json.loads((there / "adapter_config.json").read_text())
    (there / "adapter_config.json").write_text(
        json.dumps(about | {"base_model_name_or_path": "base"})
    )
    theirs = logits_of(adapted, row)
    ours = checkpoint.load(kit.to_unitk("peft", there, tmp_path / "ours")).model
    found = kit.logits(ours, kit.single(torch.tensor(row).numpy(), at=range(len(row))), 60)
    size = theirs.abs().max()
    assert (found - theirs).abs().max() < 1e-5 * size < (plain - theirs).abs().max()


def test_a_pickled_adapter_comes_in(peft, kit, adapter_of, tmp_path):
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj"])
    adapter, assert_same_logits = adapter_of("qwen3_tiny", CAUSAL, config)
    tensors = read_tensors(adapter / "adapter_model.safetensors")
    torch.save(tensors, adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").unlink()
    assert_same_logits(kit.to_unitk("peft", adapter, tmp_path / "ours"))


def test_a_model_without_adapter_does_not_leave(kit, run, tmp_path):
    with pytest.raises(UsageError, match="--to peft.*--adapter"):
        kit.from_unitk(run("lm", "gpt2_tiny", adapter=""), "peft", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_base_that_does_not_leave_is_refused_by_the_name_that_was_given(kit, run, tmp_path):
    with pytest.raises(UsageError, match="^--to peft: ") as refusal:
        kit.from_unitk(run("optimus", "optimus_tiny"), "peft", tmp_path / "there")
    assert "--to hf" not in str(refusal.value)
    assert not (tmp_path / "there").exists()


def test_an_adapter_with_further_tokens_is_told_apart(hf, kit, run, tmp_path):
    """Its tokens would be read as those of the base, and its rows as those of other tokens."""
    there = kit.from_unitk(run("lm", "gpt2_tiny"), "peft", tmp_path / "there")
    tokenizer = hf.AutoTokenizer.from_pretrained(there / "base")
    tokenizer.save_pretrained(there)
    kit.to_unitk("peft", there, tmp_path / "same")
    file = there / "adapter_model.safetensors"
    tensors = read_tensors(file)
    rows = read_tensors(there / "base" / "model.safetensors")["transformer.wte.weight"]
    name = "base_model.model.transformer.wte{}.weight"
    # peft stores some tensors twice
    copies = {name.format(copy): rows for copy in ("", ".modules_to_save", ".original_module")}
    file.unlink()
    write_safetensors({**tensors, **{k: v.clone() for k, v in copies.items()}}, file)
    kit.to_unitk("peft", there, tmp_path / "rows")
    file.unlink()
    write_safetensors({**tensors, name.format(""): torch.cat([rows, rows[:2]])}, file)
    with pytest.raises(CheckpointError, match="wte.weight has shape .*merge"):
        kit.to_unitk("peft", there, tmp_path / "more")
    tokenizer.add_tokens(["<first>"])
    tokenizer.save_pretrained(there)
    with pytest.raises(CheckpointError, match="there: .*tokenizer.*merge"):
        kit.to_unitk("peft", there, tmp_path / "other")


def test_maps_that_are_no_modules_do_not_leave(peft, hf, kit, run, tmp_path):
    """XLNet's feed-forward parts are modules; its maps of attention are not."""
    with pytest.raises(UsageError, match="--to peft: .*rel_attn.*on=ffn"):
        kit.from_unitk(run("xlnet", "xlnet_tiny"), "peft", tmp_path / "there")
    assert not (tmp_path / "there").exists()
    (tmp_path / "run").rename(tmp_path / "first")
    ours = run("xlnet", "xlnet_tiny", adapter=f"{LORA},on=ffn")
    there = kit.from_unitk(ours, "peft", tmp_path / "there")
    whole = hf.XLNetLMHeadModel.from_pretrained(kit.from_unitk(ours, "hf", tmp_path / "whole"))
    base = hf.XLNetLMHeadModel.from_pretrained(there / "base")
    plain = logits_of(base, [7, 8, 9])
    theirs = logits_of(peft.PeftModel.from_pretrained(base, there), [7, 8, 9])
    size = theirs.abs().max()
    assert (logits_of(whole, [7, 8, 9]) - theirs).abs().max() < 1e-5 * size
    assert (plain - theirs).abs().max() > 1e-3 * size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type.*LORA.*IA3"),
        ({"use_dora": True}, "use_dora.*merge.*peft"),
        ({"alora_invocation_tokens": [7]}, "alora_invocation_tokens"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights.*pissa.*merge"),
        ({"base_model_name_or_path": "org/none"}, "base_model_name_or_path.*org/none"),
        ({"lora_alpha": "big"}, "lora_alpha.*big"),
        ({"r": 4}, "config.json: r is 4, but .* 3"),
        ({"rank_pattern": {"c_attn": 7}}, "r is 7, but .*c_attn"),
        ({"alpha_pattern": {"(": 1}}, r"alpha_pattern: '\(' "),
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


@pytest.mark.parametrize("target", ["peft", "hf"])
@pytest.mark.parametrize("arch", ["gpt_bert_tiny", "ltg_bert_tiny", "deberta_v3_tiny"])
def test_readmes_name_classes_that_transformers_has(hf, kit, run, tmp_path, arch, target):
    """A model of which it has none is opened with the code of its release."""
    ours = run("mlm", arch, LORA if target == "peft" else "")
    readme = (kit.from_unitk(ours, target, tmp_path / "there") / "README.md").read_text()
    names = re.findall(r"from transformers import (.*), (.*)", readme)
    assert names and all(hasattr(hf, name) for line in names for name in line)
    assert ("trust_remote_code=True" in readme) == (arch != "deberta_v3_tiny")


@pytest.mark.parametrize(
    ("task", "tag"), [("lm", "text-generation"), ("glm_infill", "feature-extraction")]
)
def test_the_card_says_how_the_base_reads(hf, kit, run, tmp_path, task, tag):
    readme = (
        kit.from_unitk(run(task, "qwen3_tiny"), "peft", tmp_path / "there") / "README.md"
    ).read_text()
    assert f'pipeline_tag: "{tag}"' in readme
    assert ("both sides" in readme) == (task != "lm")
