"""ModernBERT and EuroBERT: released names, older spellings, what is refused, how they leave."""

from dataclasses import replace

import pytest
import torch
from rounding import assert_near

import unitk
from unitk.errors import CheckpointError, UsageError
from unitk.formats import settings
from unitk.formats.hf.families import BOTH, ONE_WAY, Checkpoint, kind_of, layout_of
from unitk.models import archs
from unitk.registry import get

RELEASED = {
    "modernbert_base": (BOTH, "ModernBertForMaskedLM"),
    "modernbert_17m": (ONE_WAY, "ModernBertDecoderForCausalLM"),
    "eurobert_210m": (BOTH, "EuroBertForMaskedLM"),
    "distilbert_base": (BOTH, "DistilBertForMaskedLM"),
    "mpnet_base": (BOTH, "MPNetForMaskedLM"),
    "xlmr_base": (BOTH, "XLMRobertaForMaskedLM"),
    "camembert_base": (BOTH, "CamembertForMaskedLM"),
}


@pytest.mark.parametrize("arch", RELEASED)
def test_every_name_and_shape_of_the_released_size_is_theirs(hf, arch):
    """Neither model has any weights; both come from the same config.json, which comes back."""
    sight, cls = RELEASED[arch]
    config, theirs = replace(archs.preset(arch), num_virtual=0), getattr(hf, cls)
    family = get("model_type", kind_of(config, arch, sight=sight))
    about = {**family.fixed, **settings.write(config, family.keys), **family.entries(config)}
    about |= {
        "pad_token_id": max(config.position_offset - 1, 0),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": 50,
    }
    about |= {"cls_token_id": 1, "sep_token_id": 2, "tie_word_embeddings": config.tied}
    with torch.device("meta"):
        ours, other = config.build(50), theirs(theirs.config_class(**about))
    found = layout_of(family, config).to_stored(dict(ours.named_parameters()), config, copies=True)
    wanted = dict(other.state_dict())
    assert {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in wanted.items()}
    read = settings.read(archs.preset(family.presets[0]), family.keys, about, "config.json")
    again = family.complete(Checkpoint(read, found, other.config.to_dict(), "config.json"))
    again = replace(read, **again, tied=config.tied)
    assert again.layer_kinds == config.layer_kinds
    kept = {"head_width": 0, "rotary_base": 1.0, "layer_rotary_bases": (), "layer_windows": ()}
    kept = kept if config.positions == "rotary" else {}
    assert replace(again, **kept) == replace(config, **kept)


SIZES = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 32}


def read(kind, given):
    """The settings that a family reads in a config.json of 4 layers."""
    family, given = get("model_type", kind), SIZES | given
    settings.refuse(given, family.fixed, "config.json")
    config = settings.read(archs.preset(family.presets[0]), family.keys, given, "config.json")
    return family.complete(Checkpoint(config, {}, given, "config.json"))


OLDER = {"global_attn_every_n_layers": 2, "local_attention": 12, "global_rope_theta": 5e4}
OLDER |= {"local_rope_theta": 5e3}


@pytest.mark.parametrize(("kind", "reach"), [("modernbert", 6), ("modernbert-decoder", 5)])
def test_files_of_transformers_4_say_the_same_in_other_places(hf, kind, reach):
    found = read(kind, OLDER)
    assert (found["layer_windows"], found["layer_rotary_bases"]) == ((0, reach), (5e4, 5e3))
    given = hf.AutoConfig.for_model(kind, **SIZES, **OLDER).to_dict()
    assert "layer_types" in given and read(kind, given) == found
    # a key of its own goes before it
    config = hf.AutoConfig.for_model(kind, **SIZES, **OLDER, sliding_window=4)
    assert config.sliding_window == 4
    for given in (config.to_dict(), {**OLDER, "sliding_window": 4}):
        assert read(kind, given)["layer_windows"] == (0, 4 - (kind == "modernbert-decoder"))


@pytest.mark.parametrize(
    ("kind", "given", "field"),
    [
        ("modernbert", {"mlp_bias": True}, "mlp_bias"),
        ("modernbert", {"classifier_bias": True}, "classifier_bias"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation"),
        ("modernbert", {"hidden_activation": "silu"}, "classifier_activation"),
        ("modernbert", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ("modernbert", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ("modernbert", {"local_attention": 1}, "local_attention"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type"),
        ("modernbert-decoder", {"local_attention": 2}, "local_attention"),
        ("modernbert-decoder", {"local_attention": None}, "local_attention"),
        ("eurobert", {"attention_bias": True}, "attention_bias"),
        ("eurobert", {"rope_parameters": {"rope_type": "dynamic"}}, "rope_type"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_field(kind, given, field):
    with pytest.raises(CheckpointError, match=rf"^config.json: .*{field}") as error:
        read(kind, given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arch", "sight", "kind"),
    [
        ("modernbert_tiny", BOTH, "modernbert"),
        ("modernbert_tiny", ONE_WAY, "modernbert-decoder"),
        ("eurobert_210m", BOTH, "eurobert"),
        ("eurobert_210m", ONE_WAY, "llama"),  # the same layers
        ("llama_tiny", BOTH, "llama"),
        ("qwen3_tiny", BOTH, "qwen3"),
    ],
)
def test_the_class_is_that_which_reads_as_the_model_does(arch, sight, kind):
    assert kind_of(archs.preset(arch), arch, sight=sight) == kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_windows": (0, 4, 8)}, "the same window .* --arch.layer-windows is 0,4,8"),
        ({"layer_rotary_bases": (1e4, 1e5, 1e6)}, "one base .*--arch.layer-rotary-bases is 1"),
        ({"bias": True}, "a modernbert model has --arch.bias off, but this model has on"),
        ({"num_kv_heads": 2}, "--arch.num-kv-heads 0, but this model has 2"),
    ],
)
def test_what_no_class_has_is_named(change, message):
    config = replace(archs.preset("modernbert_tiny"), num_layers=3, **change)
    with pytest.raises(UsageError, match=message):
        kind_of(config, "modernbert_tiny", sight=BOTH)


@pytest.mark.parametrize(
    ("arch", "kind"),
    [
        ("roberta_base", "roberta"),
        ("roberta_small", "roberta"),
        ("xlmr_large", "xlm-roberta"),
        ("camembert_base", "camembert"),
        ("distilbert_tiny", "distilbert"),
        ("mpnet_tiny", "mpnet"),
        ("bert_base", "bert"),
        ("t5_v1_1_small", "t5"),
        ("mt5_small", "mt5"),
    ],
)
def test_models_of_one_shape_leave_as_what_they_are(arch, kind):
    assert kind_of(archs.preset(arch), arch) == kind


def test_pieces_with_other_numbers_than_the_model_are_refused(hf, kit, tmp_path, vocab_txt):
    """XLM-R's file of pieces numbers the symbols otherwise than the model."""
    config = hf.XLMRobertaConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=20, type_vocab_size=1,
    )  # fmt: skip
    hf.XLMRobertaForMaskedLM(config).save_pretrained(tmp_path / "there")
    (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
    with pytest.raises(CheckpointError, match="bos_token_id is 0.*AutoTokenizer"):
        kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")


@pytest.mark.parametrize(("name", "width"), [("Albert", 12), ("Albert", 32), ("Electra", 12)])
def test_a_bare_model_with_narrow_embeddings_has_its_states(
    hf, kit, tmp_path, vocab_txt, caplog, name, width
):
    """The map from its states to the words is drawn, which a warning says."""
    torch.manual_seed(0)
    about = SIZES | {"embedding_size": width, "intermediate_size": 48, "vocab_size": 60}
    model = kit.perturbed(getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**about)))
    model.save_pretrained(tmp_path / "there")
    (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
    ours = kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    assert "untrained" in caplog.text
    found = unitk.load(ours).embed(["w1 w2 w3"], pool="first")
    there = hf.BertTokenizer.from_pretrained(tmp_path / "there")
    with torch.no_grad():
        states = model(**there(["w1 w2 w3"], return_tensors="pt")).last_hidden_state
    assert_near(torch.from_numpy(found), states[:, 0])
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    again = type(model).from_pretrained(back).state_dict()
    assert all(
        torch.equal(tensor, again[key])
        for key, tensor in model.state_dict().items()
        if "pooler" not in key
    )
