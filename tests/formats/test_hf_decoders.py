"""Llama, its descendants and GPT-NeoX: released names, older spellings, what is refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from safetensors.torch import load_file, save_file

from unitk.errors import CheckpointError, UnitkError, UsageError
from unitk.formats import settings
from unitk.formats.hf.checks import check_config
from unitk.formats.hf.families import Checkpoint, kind_of, layout_of
from unitk.formats.hf.layers import period, rotary, rotary_entries
from unitk.models import archs
from unitk.registry import get
from unitk.training.saving.checkpoint import load

RELEASED = {
    "qwen3_0.6b": "Qwen3ForCausalLM",
    "qwen2_0.5b": "Qwen2ForCausalLM",
    "llama_1b": "LlamaForCausalLM",
    "mistral_7b": "MistralForCausalLM",
    "smollm3_3b": "SmolLM3ForCausalLM",
    "ernie4_5_0.3b": "Ernie4_5ForCausalLM",
    "glm_edge_1.5b": "GlmForCausalLM",
    "glm4_9b": "GlmForCausalLM",
    "glm4_9b_0414": "Glm4ForCausalLM",
    "phi3_3.8b": "Phi3ForCausalLM",
    "stablelm_2_1.6b": "StableLmForCausalLM",
    "starcoder2_3b": "Starcoder2ForCausalLM",
    "olmo2_1b": "Olmo2ForCausalLM",
    "gemma3_270m": "Gemma3ForCausalLM",
    "pythia_160m": "GPTNeoXForCausalLM",
    "opt_125m": "OPTForCausalLM",
    "gpt_neo_125m": "GPTNeoForCausalLM",
}


def described(config, arch=""):
    """The family of a model, and its config.json with 50 rows."""
    family = get("model_type", kind_of(config, arch))
    about = {**family.fixed, **settings.write(config, family.keys), **family.entries(config)}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 50}
    return family, about | ids | {"tie_word_embeddings": config.tied}


@pytest.mark.parametrize("arch", ["qwen3_small", "bert_tiny", "t5gemma_mini", "gpt2_small"])
def test_what_only_training_reads_keeps_no_model_here(arch):
    plain = archs.preset(arch)
    begun = {"base_width": 256, "init_std": 0.1, "scaled_init": not plain.scaled_init}
    begun |= {"zero_init": True, "fan_in_init": not plain.fan_in_init}
    trained = replace(plain, **begun, dropout=0.3, attention_dropout=0.3, activation_dropout=0.3)
    assert kind_of(trained, arch) == kind_of(plain, arch)


@pytest.mark.parametrize("arch", RELEASED)
def test_every_name_and_shape_of_the_released_size_is_theirs(hf, arch):
    """Neither model has any weights; both come from the same config.json, which comes back."""
    config = replace(archs.preset(arch), num_virtual=0)
    family, about = described(config, arch)
    theirs = getattr(hf, RELEASED[arch])
    with torch.device("meta"):
        ours, other = config.build(50), theirs(theirs.config_class(**about))
    tensors = dict(ours.named_parameters())
    found = layout_of(family, config).to_stored(tensors, config, copies=True)
    lm_head = found.pop("embed_out.weight", None)  # which transformers 5 renames
    found |= {} if lm_head is None else {"lm_head.weight": lm_head}
    wanted = dict(other.state_dict())
    assert {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in wanted.items()}
    read = settings.read(archs.preset(family.presets[0]), family.keys, about, "config.json")
    changes = family.complete(Checkpoint(read, {}, other.config.to_dict(), "config.json"))
    again = replace(read, **changes, tied=config.tied)
    assert again.layer_kinds == config.layer_kinds and again.rotary_base
    rotary = config.positions == "rotary"
    kept = {"rotary_base": 1.0, "layer_rotary_bases": ()} if rotary else {}
    kept |= {"head_width": 0, "layer_windows": ()}
    free = dict.fromkeys(settings.FREE - {"scaled_init", "zero_init"}, 0.5)
    same = kept | free | {"scaled_init": True, "zero_init": False}
    same |= {"max_positions": 0} if rotary else {}
    assert replace(again, **same) == replace(config, **same)


OLDER = {
    "llama": ({"rope_theta": 77.0}, {"rotary_base": 77.0}),
    "mistral": ({"rope_theta": 1e6, "sliding_window": None}, {"layer_windows": ()}),
    "smollm3": (
        {"rope_theta": 5e6, "no_rope_layer_interval": 2},
        {"rotary_base": 5e6, "layer_rotary_bases": (5e6, 0.0)},
    ),
    "glm": (
        {"rope_theta": 5e5, "partial_rotary_factor": 1.0},
        {"rotary_base": 5e5, "rotary_share": 1.0},
    ),
    "glm4": (
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rotary_base": 5e5, "rotary_share": 0.5, "rotary_factor": 2.0},
    ),
    "phi3": (
        {"rope_theta": 5e5, "sliding_window": 9, "num_key_value_heads": 4},
        {"layer_windows": (8,)},
    ),
    "stablelm": (
        {"rope_theta": 5e5, "hidden_size": 64},
        {"rotary_base": 5e5, "rotary_share": 0.25},
    ),
    "starcoder2": ({"rope_theta": 5e5, "sliding_window": 9}, {"layer_windows": (8,)}),
    "olmo2": (
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rotary_base": 5e5, "rotary_factor": 2.0},
    ),
    "gemma3_text": (
        {"rope_theta": 9e5, "rope_local_base_freq": 5e3, "sliding_window_pattern": 2}
        | {"sliding_window": 9, "head_dim": 256},
        {"layer_windows": (8, 0), "layer_rotary_bases": (5e3, 9e5)},
    ),
    "gpt_neox": (
        {"rotary_emb_base": 5e3, "rotary_pct": 0.5},
        {"rotary_base": 5e3, "rotary_share": 0.5},
    ),
    "qwen3": (
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3},
        {"layer_windows": (0, 0, 0, 8)},
    ),
    "qwen2": ({"use_sliding_window": False, "sliding_window": 9}, {"layer_windows": ()}),
}


SIZES = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_layers": 4,
}


def read(kind, given):
    """The settings that a family reads in a config.json of 4 layers."""
    family = get("model_type", kind)
    given = family.settings_in(SIZES | given, "config.json")
    settings.refuse(given, family.fixed, "config.json")
    check_config(given, family, "config.json")
    config = settings.read(archs.preset(family.presets[0]), family.keys, given, "config.json")
    return family.complete(Checkpoint(config, {}, given, "config.json"))


@pytest.mark.parametrize("kind", OLDER)
def test_files_of_transformers_4_say_the_same_in_other_places(hf, kind):
    """What transformers 5 makes of the older entries reads as they do."""
    given, wanted = OLDER[kind]
    found = read(kind, given)
    assert {key: found[key] for key in wanted} == wanted
    config = hf.AutoConfig.for_model(kind, **(SIZES | given))
    assert read(kind, config.to_dict()) == found
    assert "rope_parameters" in config.to_dict()


OTHERWISE = {"gemma3_270m", "opt_125m", "gpt_neo_125m", "phi3_3.8b"}
"""Without rotary or scaled positions, or with those of types of layers."""


@pytest.mark.parametrize("arch", sorted(RELEASED.keys() - OTHERWISE))
@pytest.mark.parametrize("wavelengths", [(), (16.0, 64.0)])
def test_scaled_positions_are_also_written_for_transformers_4(hf, arch, wavelengths):
    """It reads base and share beside `rope_scaling`, and no `rope_parameters`."""
    change = {"rotary_base": 7e4, "rotary_factor": 4.0, "rotary_wavelengths": wavelengths}
    config = replace(archs.preset(arch), **change, layer_rotary_bases=())
    family, about = described(config, arch)
    about["head_dim"] = config.key_width
    changes = {"rotary_share": config.rotary_share, **change}
    for key in ("rope_scaling", "rope_parameters"):  # the other one alone says the same
        told = {name: value for name, value in about.items() if name != key}
        found = family.complete(Checkpoint(config, {}, told, "config.json"))
        assert {name: found.get(name, ()) for name in changes} == changes
    assert not {"rope_theta", "partial_rotary_factor"} & about["rope_scaling"].keys()
    theirs = getattr(hf, RELEASED[arch]).config_class(**about).rope_parameters
    assert about["rope_parameters"].items() <= theirs.items()


def test_wavelengths_that_are_no_integers_are_written_as_they_were_read():
    rope = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 100}
    rope |= {"low_freq_factor": 3.0, "high_freq_factor": 7.0, "rope_theta": 1e4}
    changes = rotary(rope, "config.json")
    assert changes["rotary_wavelengths"] == pytest.approx((100 / 7, 100 / 3))
    written = rotary_entries(replace(archs.preset("llama_135m"), **changes))
    again = rotary(written, "config.json")["rotary_wavelengths"]
    assert again == pytest.approx(changes["rotary_wavelengths"])


def test_a_head_width_that_attention_of_gpt_neox_ignores_is_refused():
    assert read("gpt_neox", {"hidden_size": 64, "head_dim": 16})
    with pytest.raises(CheckpointError, match="config.json: .* head_dim 16, got 24"):
        read("gpt_neox", {"hidden_size": 64, "head_dim": 24})


def test_smollm3s_list_of_layers_goes_before_its_flag(hf):
    """transformers makes the masks by the list, whatever `use_sliding_window` says."""
    types = ["sliding_attention", "full_attention"] * 2
    given = {"layer_types": types, "sliding_window": 9, "use_sliding_window": False}
    assert read("smollm3", given)["layer_windows"] == (8, 0)
    tokens = torch.arange(24)[None] % 11
    given |= SIZES | {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 11}
    given |= {"pad_token_id": 0}
    narrow, wide = (
        hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**given | more)).eval()
        for more in ({}, {"layer_types": ["full_attention"] * 4})
    )
    wide.load_state_dict(narrow.state_dict())
    assert torch.allclose(wide(tokens).logits[:, :9], narrow(tokens).logits[:, :9])
    assert not torch.allclose(wide(tokens).logits, narrow(tokens).logits)


REFUSED = {
    "a rope that is not computed": ("llama", {"rope_scaling": {"rope_type": "yarn"}}, "rope_type"),
    "a share of channels": ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "nanotron's order": ("llama", {"rope_interleaved": True}, "rope_interleaved"),
    "GLM of 2021": ("glm", {"block_position_encoding": True}, "--from glm reads it"),
    "grouped heads of Phi-3": ("phi3", {"num_key_value_heads": 2}, "num_key_value_heads 4 only"),
    "Phi-3's long positions": ("phi3", {"rope_scaling": {"type": "longrope"}}, "rope_type"),
    "a head width of StableLM": ("stablelm", {"hidden_size": 64, "head_dim": 24}, "head_dim"),
    "its parallel parts": ("stablelm", {"use_parallel_residual": True}, "use_parallel_residual"),
    "its norms of queries": ("stablelm", {"qk_layernorm": True}, "qk_layernorm"),
    "a StableLM that sees both sides": ("stablelm", {"is_causal": False}, "is_causal is false"),
    "a factor of nothing": ("granite", {"logits_scaling": 0}, "above 0"),
    "a factor in words": ("granite", {"logits_scaling": "8"}, "logits_scaling must be a number"),
    "biases": ("llama", {"attention_bias": True}, "attention_bias"),
    "capped scores": ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "a scale of scores": ("gemma3_text", {"query_pre_attn_scalar": 168}, "query_pre_attn_scalar"),
    "one type of scaling": (
        "gemma3_text",
        {"head_dim": 256, "sliding_window_pattern": 2}
        | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "scale the positions",
    ),
    "GPT-Neo's unknown layers": ("gpt_neo", {"attention_types": [[["a"], 4]]}, "attention_types"),
    "too few of its layers": ("gpt_neo", {"attention_types": [[["local"], 3]]}, "attention_types"),
    "no list of them": ("gpt_neo", {"attention_types": ["local"]}, "attention_types"),
    "its window of nothing": ("gpt_neo", {"window_size": 1}, "window_size"),
    "OPT's norms without weights": (
        *("opt", {"layer_norm_elementwise_affine": False}),
        "layer_norm_elementwise_affine",
    ),
    "an unknown type of layer": (
        "gemma3_text",
        {"head_dim": 256, "layer_types": ["a"] * 4},
        "layer_types",
    ),
    "too few types": ("gemma3_text", {"head_dim": 256, "layer_types": []}, "layer_types"),
    "a window of nothing": ("mistral", {"sliding_window": 1}, "sliding_window"),
    "a window that is no number": ("mistral", {"sliding_window": "x"}, "sliding_window"),
    "layers that turn": ("smollm3", {"no_rope_layers": [1, 2, 1, 1]}, "no_rope_layers"),
    "two ropes": (
        "llama",
        {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "dynamic"}},
        "rope_type is 'dynamic' in rope_scaling, but 'default' in rope_parameters",
    ),
    "two factors": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
        | {"rope_scaling": {"type": "linear", "factor": 4.0}},
        "factor is 4.0 in rope_scaling, but 2.0 in rope_parameters",
    ),
    "a base that only one has": (
        "qwen3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
        | {"rope_scaling": {"rope_type": "default"}},
        "rope_theta is None in rope_scaling, but 1000000.0 in rope_parameters",
    ),
    "two of one type of layer": (
        "gemma3_text",
        {"head_dim": 256, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
        | {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "factor is 8.0 in rope_scaling|rope_type is 'linear' in rope_scaling",
    ),
    "a GPT-2 that sees both sides": ("gpt2", {"is_causal": False}, "no GPT2 whose is_causal is"),
    "a T5 whose decoder does": ("t5", {"is_causal": False}, "no T5 whose is_causal is false"),
    "a window in words": ("mistral", {"layer_types": ["sliding"] * 4}, "layer_types"),
    "experts": ("qwen3", {"num_experts": 8}, "a mixture of experts, but num_experts is 8"),
    "a vision part": ("qwen3", {"vision_config": {"hidden_size": 8}}, "vision_config is set"),
    "capped logits": ("qwen3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30"),
    "Granite's factors": ("llama", {"residual_multiplier": 0.2}, "residual_multiplier is 0.2"),
    "few bits": ("mistral", {"quantization_config": {"bits": 4}}, "quantized .*_config is set"),
    "a word for a switch": ("qwen3", {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    "a number for a switch": ("qwen3", {"is_causal": 0}, "is_causal must be true or false, got 0"),
    "a base in words": ("qwen2", {"rope_theta": "big"}, "rope_theta must be a number, got 'big'"),
    "rows that are no number": ("llama", {"vocab_size": math.nan}, "vocab_size"),
    "Qwen's unknown layers": ("qwen3", {"layer_types": ["linear_attention"] * 4}, "layer_types"),
    "types that disagree": ("olmo2", {"rope_parameters": [1]}, "rope_parameters"),
}


def test_both_entries_of_rotary_positions_may_say_the_same():
    """As in files that are to be read by transformers 4 and 5."""
    older = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    of_today = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    assert read("llama", older) == read("llama", of_today) == read("llama", older | of_today)
    # a base of its own wins over that of the file
    found = read("llama", {"rope_theta": 700.0, "rope_parameters": {"rope_theta": 500.0}})
    assert found["rotary_base"] == 500


def test_a_mistral_may_have_a_window_in_some_layers(hf):
    types = ["full_attention", "sliding_attention"] * 2
    given = {"layer_types": types, "sliding_window": 5}
    assert read("mistral", given)["layer_windows"] == (0, 4)
    assert read("mistral", {"sliding_window": 5})["layer_windows"] == (4,)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_computed_is_refused_by_its_field(case):
    kind, given, field = REFUSED[case]
    with pytest.raises(CheckpointError, match=rf"^config.json: .*{field}") as error:
        read(kind, given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("change", [{"layer_windows": (4, 8)}, {"layer_rotary_bases": (1e4, 1e5)}])
def test_layers_that_no_class_has_are_refused(change):
    with pytest.raises(UsageError, match="class of .*: a llama .* has --arch.layer-"):
        kind_of(replace(archs.preset("llama_tiny"), **change), "llama_tiny")


def test_the_class_with_such_layers_is_found():
    llama = archs.preset("llama_tiny")
    assert kind_of(llama) == "llama"
    assert kind_of(replace(llama, layer_windows=(4,))) == "mistral"
    assert kind_of(replace(llama, layer_rotary_bases=(1e4, 0.0))) == "smollm3"
    qwen = archs.preset("qwen3_tiny")
    assert kind_of(replace(qwen, layer_windows=(4, 0)), "qwen3_tiny") == "qwen3"


def test_a_list_that_repeats_is_shortened():
    assert period([1, 0, 1, 0, 1]) == (1, 0)
    assert period([1, 1, 0]) == (1, 1, 0)
    assert period([5.0]) == (5.0,)


@pytest.fixture
def there(hf, tmp_path, vocab_txt):
    """A small Qwen3 in several files."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "vocab_size": 60}
    ids = {"bos_token_id": 2, "eos_token_id": 3, "tie_word_embeddings": False}
    config = hf.Qwen3Config(**SIZES | sizes | ids)
    hf.Qwen3ForCausalLM(config).save_pretrained(tmp_path / "there", max_shard_size="20KB")
    (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
    return tmp_path / "there"


@pytest.mark.parametrize("tied", [True, False])
def test_a_granite_becomes_a_llama(hf, kit, tmp_path, vocab_txt, tied):
    """Its factors are a part of the weights, at all depths and of the output."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 60, "bos_token_id": 2}
    factors = {"embedding_multiplier": 12.0, "attention_multiplier": 0.2}
    factors |= {"residual_multiplier": 0.3, "logits_scaling": 8, "tie_word_embeddings": tied}
    torch.manual_seed(0)
    config = hf.GraniteConfig(**{**SIZES, **sizes, **factors, "eos_token_id": 3})
    model = kit.perturbed(hf.GraniteForCausalLM(config))
    model.save_pretrained(tmp_path / "there")
    (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
    ours = kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    tokens = kit.ids(np.random.default_rng(0), 14)
    row = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        wanted = model(row, output_hidden_states=True)
        found = kit.logits(load(ours).model, kit.single(tokens, at=np.arange(14)), 60)
        back = hf.AutoModelForCausalLM.from_pretrained(
            kit.from_unitk(ours, "hf", tmp_path / "back")
        )
        again = back.eval()(row, output_hidden_states=True)
    assert_near(found, wanted.logits[0])
    assert_near(again.logits, wanted.logits)
    assert back.config.model_type == "llama"
    for one, other in zip(again.hidden_states, wanted.hidden_states, strict=True):
        assert_near(one, other)


def alter(file, **more):
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


def assert_refused(kit, there, message):
    """An import that writes nothing and says why in one line."""
    with pytest.raises(UnitkError, match=message) as error:
        kit.to_unitk("hf", there, there.parent / "ours")
    assert "\n" not in str(error.value) and not (there.parent / "ours").exists()


def test_a_part_that_is_missing_is_named(kit, there):
    first = min(there.glob("*.safetensors"))
    first.unlink()
    assert_refused(kit, there, first.name)


def test_a_tensor_that_only_the_index_has_is_named(kit, there):
    index = there / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    alter(index, weight_map=names | {"model.more.weight": min(names.values())})
    assert_refused(
        kit, there, r"index.json: weight_map names model.more.weight, which .*safetensors does"
    )


def test_tied_matrices_that_differ_are_refused(kit, there):
    alter(there / "config.json", tie_word_embeddings=True)
    assert_refused(
        kit, there, "config.json: tie_word_embeddings is true, but lm_head.weight differs"
    )


def test_an_output_that_is_not_there_is_named(kit, there, caplog):
    """A bare model: its states are whole, but its words are not those of the release."""
    index = there / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    file = there / names.pop("lm_head.weight")
    save_file({n: t for n, t in load_file(file).items() if n != "lm_head.weight"}, file)
    alter(index, weight_map=names)
    kit.to_unitk("hf", there, there.parent / "ours")
    assert {"tie_word_embeddings", "lm_head.weight;"} <= {*caplog.text.split()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_keep_their_values(kit, there, dtype):
    """They come back in 32 bits, which hold them exactly."""
    given = {}
    for file in there.glob("*.safetensors"):
        tensors = {name: one.to(dtype) for name, one in load_file(file).items()}
        save_file(tensors, file)
        given |= tensors
    alter(there / "config.json", torch_dtype=str(dtype).removeprefix("torch."))
    ours = kit.to_unitk("hf", there, there.parent / "ours")
    found = load_file(kit.from_unitk(ours, "hf", there.parent / "back") / "model.safetensors")
    assert {name: one.dtype for name, one in found.items()} == dict.fromkeys(given, torch.float32)
    assert all(torch.equal(found[name], one.float()) for name, one in given.items())


def test_a_tied_matrix_may_be_stored_twice(kit, there):
    found = {file: load_file(file) for file in there.glob("*.safetensors")}
    every = {name: one for tensors in found.values() for name, one in tensors.items()}
    for file, tensors in found.items():
        if "lm_head.weight" in tensors:
            again = every["model.embed_tokens.weight"].clone()
            save_file(tensors | {"lm_head.weight": again}, file)
    alter(there / "config.json", tie_word_embeddings=True)
    ours = load(kit.to_unitk("hf", there, there.parent / "ours")).model
    assert ours.config.tied and "heads.lm.weight" not in dict(ours.named_parameters())


def test_a_vocabulary_beyond_the_table_is_refused(kit, there):
    with (there / "vocab.txt").open("a") as file:
        file.writelines(f"more{number}\n" for number in range(9))
    assert_refused(kit, there, "config.json: vocab_size is 60, but 'more0' has the id 60")


def test_a_table_of_another_size_is_refused(kit, there):
    alter(there / "config.json", vocab_size=59)
    assert_refused(
        kit, there, "config.json: vocab_size is 59, but .*embed_tokens.weight has 60 rows"
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_numbers_that_are_no_weights_are_named(kit, there, dtype):
    """One part of a matrix that unitk joins: the others would make numbers of it."""
    found = {file: load_file(file) for file in there.glob("*.safetensors")}
    file, name = next((f, n) for f in found for n in found[f] if n.endswith("up_proj.weight"))
    save_file(found[file] | {name: found[file][name].to(dtype)}, file)
    kind = str(dtype).removeprefix("torch.")
    assert_refused(kit, there, f"{name} is {kind}, so it is not a weight")


@pytest.mark.parametrize(
    ("kind", "near"),
    [("qwen3_moe", "qwen3"), ("gemma3", "gemma3_text"), ("gemma2", "gemma3_text")]
    + [("glm4_moe", "glm4"), ("granitemoehybrid", "granite"), ("olmo3", "olmo2"), ("phi", "phi3")],
)
def test_experts_pictures_and_other_versions_are_refused_by_their_type(kit, there, kind, near):
    alter(there / "config.json", model_type=kind)
    assert_refused(kit, there, f"config.json: model_type must be .*, got '{kind}'; .* {near}")
