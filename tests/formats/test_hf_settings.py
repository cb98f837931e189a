"""Settings that differ from those of a class: what is written computes the same, or is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.errors import UsageError
from unitk.formats.hf.families import kind_of
from unitk.models.archs import preset
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded

CASES = {
    "a BART whose output is untied": ("bart_tiny", {"tied": False}),
    "a Marian whose output is untied": ("marian_base", {"tied": False}),
    "an ALBERT with wide embeddings": ("albert_tiny", {"embedding_width": 0}),
    "layers of the same weights": ("bert_tiny", {"layer_groups": 1, "heads": ()}),
    "an ALBERT without segments": ("albert_tiny", {"num_segments": 0}),
    "a discriminator without segments": (
        "electra_tiny",
        {"num_segments": 0, "generator_divisor": 0, "embedding_width": 16}
        | {"heads": (), "head_transform": True, "output_bias": True},
    ),
    "a RoBERTa without segments": ("roberta_base", {"num_segments": 0}),
    "an ERNIE without segments": ("ernie_base", {"num_segments": 0, "heads": ()}),
    "an output without biases": ("bert_tiny", {"output_bias": False}),
    "a RoBERTa without these": ("camembert_base", {"output_bias": False}),
    "pairs of sentences": ("bert_tiny", {"position_offset": 2}),
    "and no segments": ("bert_tiny", {"num_segments": 0}),
}
SMALL = {"num_layers": 2, "width": 32, "num_heads": 4, "ffn_width": 48, "max_positions": 40}


@pytest.mark.parametrize("case", CASES)
def test_transformers_computes_the_same(hf, kit, toy_vocab, tmp_path, case):
    """No tensor is missing in the folder, and none is left over."""
    arch, change = CASES[case]
    torch.manual_seed(0)
    model = kit.perturbed(replace(preset(arch), **SMALL, **change).build(len(toy_vocab)))
    two = "decoder_layers" in vars(model.config)
    task = get("task", "seq2seq" if two else "mlm")
    parts = Loaded(model, task(task.Config(), toy_vocab), {"arch": arch}, {})
    get("format", "hf").write(parts, tmp_path)
    about = hf.AutoConfig.from_pretrained(tmp_path)
    theirs, info = getattr(hf, about.architectures[0]).from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]
    tokens = np.arange(9, 23)
    row = {"input_ids": torch.from_numpy(tokens)[None]}
    row |= {"decoder_input_ids": row["input_ids"][:, :5]} if two else {}
    example = kit.pair(tokens, tokens[:5]) if two else kit.single(tokens)
    with torch.no_grad():
        found = theirs.eval()(**row)
        logits = found.logits if "logits" in found else found.prediction_logits
        assert_near(kit.logits(model, example, len(toy_vocab)), logits[0])


@pytest.mark.parametrize(
    ("arch", "change", "message"),
    [
        ("bert_tiny", {"max_positions": 0}, "max-positions is 0"),
        ("modernbert_tiny", {"layer_rotary_bases": (0.0, 1e4)}, "rotary positions"),
        ("electra_tiny", {"embedding_width": 64, "width": 64}, "--arch.embedding-width"),
        ("mt5_small", {"output_scale": True}, "output-scale off"),
        ("t5_tiny", {"relative_buckets": 0}, "relative-buckets is 0"),
        ("gpt2_tiny", {"max_positions": 0}, "max-positions is 0"),
        ("deberta_v3_tiny", {"position_rows": 17}, "position-rows is 17"),
        ("ltg_bert_tiny", {"position_rows": 16}, "position-rows is 16"),
    ],
)
def test_what_the_class_cannot_have_is_refused(arch, change, message):
    with pytest.raises(UsageError, match=f"^--to hf: .*{message}"):
        kind_of(replace(preset(arch), **change), arch)
