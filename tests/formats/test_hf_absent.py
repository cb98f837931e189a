"""What a config.json leaves out means what transformers takes for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from unitk.errors import CheckpointError, UnitkError
from unitk.formats import settings
from unitk.formats.hf.families import Checkpoint, families
from unitk.models import archs
from unitk.registry import get

FILE = Path("config.json")
OWN = {"ltgbert", "gpt_bert", "encoder-decoder"}  # of which transformers has no class, or no sizes
SIZES = ("size", "num_", "layers", "heads", "dim", "d_", "n_", "position")
"""Parts of the names of sizes, which every file has: tensors of other sizes are refused."""


def outcome(kind, given):
    """The settings that a model of one position is read with, or why it is refused."""
    family = get("model_type", kind)
    try:
        given = family.settings_in(given, FILE)
        settings.refuse(given, family.fixed, FILE)
        config = settings.read(archs.preset(family.presets[0]), family.keys, given, FILE)
        config = replace(config, **family.complete(Checkpoint(config, {}, given, FILE)))
    except UnitkError as error:
        return str(error)
    return replace(config, init_std=1.0)  # of weights that are drawn


@pytest.mark.parametrize("kind", sorted(families().keys() - OWN))
def test_a_setting_that_is_left_out_has_their_default(hf, kind):
    whole = hf.AutoConfig.for_model(kind).to_dict()
    sizes = {
        key: value
        for key, value in whole.items()
        if type(value) is int and any(part in key for part in SIZES) and key != "num_labels"
    }
    assert len(sizes) < len(whole)
    assert outcome(kind, sizes) == outcome(kind, whole)


def test_an_older_name_of_a_setting_counts():
    """The default of its name of today does not win over what a file says."""
    found = get("model_type", "roberta").settings_in({"layer_norm_epsilon": 1e-6}, FILE)
    assert found == {"layer_norm_epsilon": 1e-6}
    nothing = get("model_type", "roberta").settings_in({"layer_norm_eps": None}, FILE)
    assert nothing == {"layer_norm_eps": 1e-12}


@pytest.mark.parametrize("kind", sorted(families().keys() - OWN))
def test_a_setting_may_have_the_name_that_any_model_has(hf, kind):
    """GPT-2's n_head may be there as num_attention_heads, as transformers reads it."""
    config = hf.AutoConfig.for_model(kind)
    read = {key for names in get("model_type", kind).keys.values() for key in names}
    whole, common = config.to_dict(), config.attribute_map
    for name, own in common.items():
        if own in read and name not in read and name != "num_classes":
            renamed = whole | {name: whole[own]}
            del renamed[own]
            assert outcome(kind, renamed) == outcome(kind, whole)


def test_two_numbers_of_heads_are_refused():
    message = "n_head is 4, but num_attention_heads is 8"
    with pytest.raises(CheckpointError, match=message):
        get("model_type", "gpt2").settings_in({"n_head": 4, "num_attention_heads": 8}, FILE)
    # an old BART of fewer layers than the one that it was made of
    both = {"encoder_layers": 3, "num_hidden_layers": 12}
    assert get("model_type", "bart").settings_in(both, FILE)["encoder_layers"] == 3
