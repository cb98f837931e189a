"""T5Gemma: names and shapes of two towers, what is refused, and what leaves as one."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unitk.errors import CheckpointError, UsageError
from unitk.formats import settings
from unitk.formats.hf.families import Checkpoint, kind_of, layout_of
from unitk.formats.hf.folder import write
from unitk.models import archs
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded

FAMILY = "t5gemma"
FILE = Path("config.json")


def about(config):
    """The config.json of a model with 50 rows."""
    family = get("model_type", FAMILY)
    found = {**family.fixed, **settings.write(config, family.keys), **family.entries(config)}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 50}
    return family.pack(found | ids | {"tie_word_embeddings": config.tied})


def test_scaled_positions_are_also_written_for_transformers_4():
    """It reads the base and `rope_scaling` of each tower, and no `rope_parameters`."""
    found = about(replace(archs.preset("t5gemma_tiny"), rotary_base=7e4, rotary_factor=4.0))
    for side in ("encoder", "decoder"):
        assert found[side]["rope_theta"] == 7e4
        assert found[side]["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize("shared", [True, False])
def test_every_name_and_shape_of_a_base_is_theirs(hf, shared):
    """Neither model has any weights; both come from the same config.json, which comes back."""
    sizes = {"num_layers": 12, "decoder_layers": 10, "width": 768, "head_width": 64}
    config = replace(archs.preset("t5gemma_small"), **sizes, num_heads=12, ffn_width=2048)
    config = replace(config, num_kv_heads=4, shared_embeddings=shared, logit_cap=30.0)
    assert kind_of(config, "t5gemma_small") == FAMILY
    family = get("model_type", FAMILY)
    with torch.device("meta"):
        theirs = hf.T5GemmaForConditionalGeneration(hf.T5GemmaConfig(**about(config)))
        ours = config.build(50)
    found = layout_of(family, config).to_stored(dict(ours.named_parameters()), config, copies=True)
    wanted = dict(theirs.state_dict())
    assert {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in wanted.items()}
    given = family.unpack(theirs.config.to_dict(), FILE)
    settings.refuse(given, family.fixed, FILE)
    read = settings.read(archs.preset(family.presets[0]), family.keys, given, FILE)
    again = replace(read, **family.complete(Checkpoint(read, {}, given, FILE)), tied=config.tied)
    assert replace(again, shared_embeddings=shared) == config


TINY = archs.preset("t5gemma_tiny")


@pytest.mark.parametrize(
    ("side", "change", "message"),
    [
        ("both", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping None, got 50"),
        ("encoder", {"hidden_size": 128}, "the same hidden_size, got 128 and 64"),
        ("decoder", {"head_dim": 32}, "the same head_dim, got 16 and 32"),
        ("both", {"query_pre_attn_scalar": 256}, "query_pre_attn_scalar 16, got 256"),
        (
            "encoder",
            {"layer_types": None},
            "encoder: unitk reads only full_attention in layer_types",
        ),
        ("both", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type must be one of"),
        ("decoder", {"num_hidden_layers": "2"}, "decoder.num_hidden_layers must be a whole number"),
        ("both", None, "the same|layer_types|attn_logit"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_field(side, change, message):
    family, given = get("model_type", FAMILY), about(TINY)
    for one in ("encoder", "decoder") if side == "both" else (side,):
        given[one] = {} if change is None else given[one] | change
    with pytest.raises(CheckpointError, match=rf"^config.json: .*({message})") as error:
        given = family.unpack(given, FILE)
        settings.refuse(given, family.fixed, FILE)
        read = settings.read(archs.preset(family.presets[0]), family.keys, given, FILE)
        family.complete(Checkpoint(read, {}, given, FILE))
    assert "\n" not in str(error.value)


def test_entries_of_towers_count_in_towers_alone(hf):
    given = about(TINY) | {"rms_norm_eps": 0.5, "num_hidden_layers": 7, "head_dim": 5}
    given["decoder"].pop("rms_norm_eps"), given["encoder"].pop("rms_norm_eps")
    found, theirs = get("model_type", FAMILY).unpack(given, FILE), hf.T5GemmaConfig(**given)
    for key in ("rms_norm_eps", "num_hidden_layers", "head_dim"):
        assert found[key] == getattr(theirs.encoder, key) == getattr(theirs.decoder, key)


def test_a_tower_that_is_no_table_is_refused():
    with pytest.raises(CheckpointError, match="config.json: encoder .* object"):
        get("model_type", FAMILY).unpack({"encoder": 3}, FILE)


@pytest.mark.parametrize(
    ("change", "opening", "message"),
    [
        ({}, "pad", "T5Gemma's decoder begins with no .PAD.: give --task.opening cls"),
        ({"cross_rotary": True}, "cls", "--arch.cross-rotary off, but this model has on"),
        ({"layer_windows": (4, 0)}, "cls", "this model has 4,0"),
    ],
)
def test_what_no_class_has_is_named(toy_vocab, tmp_path, change, opening, message):
    config = replace(TINY, **change)
    task = get("task", "seq2seq")
    task = task(task.Config(opening=opening), toy_vocab)
    parts = Loaded(config.build(len(toy_vocab)), task, {"arch": "t5gemma_tiny"}, {})
    with pytest.raises(UsageError, match=message):
        write(parts, tmp_path)
