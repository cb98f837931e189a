"""What folders of other systems keep of a task and its training, which only unitk reads."""

import json
from dataclasses import replace

import pytest

from unitk.data.limits import measure_extent, source_and_target
from unitk.errors import CheckpointError
from unitk.formats.dictionary import FairseqDictionary, XLMDictionary
from unitk.registry import get, names
from unitk.training.saving.checkpoint import Loaded, load
from unitk.vocab.base import adopt
from unitk.vocab.open import open_vocab

TRAINED = {"parts": 2, "max_source": 9, "window": (7, "{answer} [SEP] {passage}")}
SMALL = {"width": 64, "num_heads": 1, "ffn_width": 64, "num_layers": 1, "decoder_layers": 1}
MODELS = [
    ("hf", "lm", "gpt2_tiny", {"opening": "sep"}),
    ("hf", "bart", "bart_tiny", {"mask_ratio": 0.5}),
    ("electra_pair", "electra", "electra_tiny", {"mask_ratio": 0.4}),
    ("glm", "glm_infill", "glm_tiny", {"opened": False, "mask_symbol": "gmask"}),
    ("unilm", "unilm", "unilm_tiny", {"position_shift": True}),
    ("optimus", "optimus", "optimus_tiny", {"encoder_drop": 0.3}),
    ("diffusion", "mdlm", "mdlm_tiny", {"ends": False, "opening": "sep"}),
    ("diffusion", "mdlm", "llada_tiny", {"ends": False}),
    ("diffusion", "bd3lm", "mdlm_tiny", {"ends": False, "block_length": 3}),
    ("mass", "mass", "mass_tiny", {"opening": "sep", "mask_ratio": 0.3}),
    ("mass_xlm", "mass_translation", "mass_translation", {"languages": (1, 0)}),
    ("fairseq", "bart", "bart_tiny", {"opening": "both", "mask_ratio": 0.5}),
]


VIA_HF = {"peft"}
"""Formats whose base is a folder of transformers."""


def own(toy_vocab, task, arch, options, format):
    """A model of unitk, which was trained on pairs."""
    own_vocabs = {"fairseq": FairseqDictionary, "mass_xlm": XLMDictionary}
    words = "\n".join(f"w{i} 9" for i in range(40)).encode()
    vocab = adopt(own_vocabs[format](words)) if format in own_vocabs else toy_vocab
    made = get("task", task)(get("task", task).Config(**options), vocab)
    config = get("arch", arch)()
    model = replace(config, **(SMALL if config.width > 64 else {})).build(len(vocab))
    return Loaded(model, made.with_trained(pairs=True, **TRAINED), {}, {})


@pytest.mark.parametrize(("format", "task", "arch", "options"), MODELS)
def test_a_model_of_unitk_comes_back_with_its_options_and_lengths(
    kit, toy_vocab, tmp_path, format, task, arch, options
):
    parts = own(toy_vocab, task, arch, options, format)
    (tmp_path / "there").mkdir()
    get("format", format).write(parts, tmp_path / "there")
    back = load(kit.to_unitk(format, tmp_path / "there", tmp_path / "back")).task
    assert type(back) is type(parts.task) and back.config == parts.task.config
    found = {name: getattr(back.trained, name) for name in TRAINED}
    assert back.trained.pairs and found | {"window": tuple(found["window"])} == TRAINED
    assert back.source_vocab is back.vocab


def test_a_model_without_a_limit_of_positions_comes_back(kit, toy_vocab, tmp_path):
    """The lengths that training on pairs gives it, as `source_and_target` does."""
    parts = own(toy_vocab, "lm", "qwen3_tiny", {}, "hf")
    extent = measure_extent("lm", parts.task.finetune, toy_vocab.unk, parts.task.pair_slots)
    longest, _ = source_and_target(extent, get("arch", "qwen3_tiny")(), [9, 3, 1], (None, None))
    parts = replace(parts, task=parts.task.with_trained(max_source=longest))
    (tmp_path / "there").mkdir()
    get("format", "hf").write(parts, tmp_path / "there")
    back = load(kit.to_unitk("hf", tmp_path / "there", tmp_path / "back")).task
    assert back.trained.max_source == longest


@pytest.mark.parametrize("task", ["classify", "span"])
def test_a_model_of_labels_comes_back_with_its_lengths(kit, vocab_txt, tmp_path, task):
    made = get("task", task)(get("task", task).Config(layout="mlm"), open_vocab(vocab_txt))
    made = made.with_trained(pairs=False, labels=("yes", "no"), **TRAINED)
    config = replace(get("arch", "bert_tiny")(), heads=made.heads, head_pooler=task == "classify")
    (tmp_path / "there").mkdir()
    model = config.build(len(made.vocab))
    get("format", "hf").write(Loaded(model, made, {}, {}), tmp_path / "there")
    back = load(kit.to_unitk("hf", tmp_path / "there", tmp_path / "back")).task.trained
    assert (back.pairs, back.parts, back.max_source) == (False, 2, 9)


def test_every_format_that_is_read_and_written_keeps_them():
    formats = {name: get("format", name) for name in names("format")}
    both = {name for name, one in formats.items() if one.find and one.write}
    assert both == {name for name, *_ in MODELS} | VIA_HF


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_source", "9", "max_source must be a whole number"),
        ("window", [9], "window must be a string"),
        ("window", ["9", "x"], "window must be a whole number"),
        ("answers", 1, "answers must be true or false"),
    ],
)
def test_what_is_no_value_is_refused(kit, toy_vocab, tmp_path, key, value, said):
    parts = own(toy_vocab, "mass", "mass_tiny", {"opening": "sep"}, "mass")
    get("format", "mass").write(parts, tmp_path)
    where = tmp_path / "unitk.json"
    kept = json.loads(where.read_text())
    kept["unitk"][key] = value
    where.write_text(json.dumps(kept))
    with pytest.raises(CheckpointError, match=f"unitk.json: {said}"):
        kit.to_unitk("mass", tmp_path, tmp_path / "back")
