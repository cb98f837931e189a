"""Architectures by name: models of transformers that differ little from BERT, RoBERTa and T5.

DistilBERT: Sanh et al. 2019, arXiv 1910.01108. MPNet: Song et al. 2020, arXiv 2004.09297. XLM-R:
Conneau et al. 2020, arXiv 1911.02116. CamemBERT: Martin et al. 2020, arXiv 1911.03894. mT5: Xue et
al. 2021, arXiv 2010.11934. The tables of `unitk/formats/hf/tables` have their names; torch is not
imported here.
"""

from __future__ import annotations

from dataclasses import replace

from unitk.models.archs import BERT, ROBERTA, T5_1_1, TESTS, Preset, sized, tiny
from unitk.models.config import ModelConfig
from unitk.registry import register

# half of BERT's layers, and no segments
DISTILBERT = replace(BERT, num_layers=6, num_segments=0, heads=())
MPNET = replace(ROBERTA, num_segments=0, relative_buckets=32, relative_distance=128)
# what tells the multilingual ones apart is their vocabulary
PRESETS: dict[str, tuple[ModelConfig, str]] = {
    "distilbert_tiny": (tiny(DISTILBERT), TESTS),
    "distilbert_base": (DISTILBERT, "DistilBERT, 66 M parameters."),
    "mpnet_tiny": (tiny(MPNET), TESTS),
    "mpnet_base": (MPNET, "MPNet-base, 109 M parameters."),
    "xlmr_base": (ROBERTA, "XLM-R base, 278 M parameters with 250,000 ids."),
    "xlmr_large": (sized(ROBERTA, 24, 1024, 16), "XLM-R large, 560 M parameters."),
    "camembert_base": (ROBERTA, "CamemBERT, 111 M parameters."),
    "mt5_small": (
        replace(sized(T5_1_1, 8, 512, 6), ffn_width=1024),
        "mT5-small, 300 M parameters with 250,000 ids.",
    ),
    "mt5_base": (replace(sized(T5_1_1, 12, 768, 12), ffn_width=2048), "mT5-base, 582 M."),
}

for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about))
