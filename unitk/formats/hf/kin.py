"""Architectures by name: models of transformers that differ little from those of unitk.

DistilBERT: Sanh et al. 2019, arXiv 1910.01108. MPNet: Song et al. 2020, arXiv 2004.09297. XLM-R:
Conneau et al. 2020, arXiv 1911.02116. CamemBERT: Martin et al. 2020, arXiv 1911.03894. mT5: Xue et
al. 2021, arXiv 2010.11934. OPT: Zhang et al. 2022, arXiv 2205.01068. GPT-Neo: Black et al. 2021,
https://doi.org/10.5281/zenodo.5297715. Pegasus: Zhang et al. 2020, arXiv 1912.08777. Marian:
Junczys-Dowmunt et al. 2018, arXiv 1804.00344; OPUS-MT: Tiedemann and Thottingal 2020. mBART: Liu
et al. 2020, arXiv 2001.08210. Two BERTs: Rothe et al. 2020, arXiv 1907.12461. EuroBERT: Boizard et
al. 2025, arXiv 2503.05500. ERNIE 4.5: Baidu 2025, https://github.com/PaddlePaddle/ERNIE. GLM-4:
2024, arXiv 2406.12793. Phi-3: Abdin et al. 2024, arXiv 2404.14219. StableLM 2: Bellagente et al.
2024, arXiv 2402.17834. StarCoder2: Lozhkov et al. 2024, arXiv 2402.19173. The tables of
`unitk/formats/hf/tables` have their names; torch is not imported here.
"""

from __future__ import annotations

from dataclasses import fields, replace

from unitk.models.archs import (
    BART,
    BERT,
    GPT2,
    ROBERTA,
    T5_1_1,
    TESTS,
    TESTS2,
    our_sizes,
    resize,
    tiny,
)
from unitk.models.base import Preset
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.models.released import LLAMA
from unitk.registry import register

# half of BERT's layers, and no segments
DISTILBERT = replace(BERT, num_layers=6, num_segments=0, heads=())
MPNET = replace(ROBERTA, num_segments=0, relative_buckets=32, relative_distance=128)
OPT = replace(GPT2, max_positions=2048, position_offset=2, activation="relu")
# every other layer sees 256 slots, of which the slot itself is one
GPT_NEO = replace(
    GPT2,
    max_positions=2048,
    layer_windows=(0, 255),
    score_scale=False,
    attention_bias=False,
    out_bias=True,
)
# the positions that come in are sinusoids, which go on learning here
PEGASUS = replace(
    BART,
    position_offset=0,
    embedding_scale=True,
    norm_first=True,
    embedding_norm=False,
    final_norm=True,
    activation="relu",
)
MARIAN = replace(
    BART,
    max_positions=512,
    position_offset=0,
    embedding_scale=True,
    embedding_norm=False,
    activation="silu",
)
# languages that a vocabulary lacks are virtual rows
MBART = replace(
    BART,
    embedding_scale=True,
    norm_first=True,
    final_norm=True,
    num_virtual=2,
)
# two BERTs, of which the one that writes looks at the other
BERT2BERT = EncoderDecoderConfig(
    **{field.name: getattr(BERT, field.name) for field in fields(ModelConfig)} | {"heads": ()},
    shared_embeddings=False,
)
# nothing says that it sees both ways: a task does
EUROBERT = replace(LLAMA, rotary_base=250000.0, head_dense="gelu", tied=False)
GLM4 = replace(
    resize(LLAMA, 40, 4096, 32, 13696, 2),
    head_width=128,
    rotary_share=0.5,
    tied=False,
)
PHI3 = replace(LLAMA, tied=False)
STABLELM = replace(LLAMA, norm="layer", rotary_share=0.25, qkv_bias=True, tied=False)
STARCODER2 = replace(LLAMA, norm="layer", bias=True, ffn_gate=False, activation="gelu_tanh")
# what tells the multilingual ones apart is their vocabulary
PRESETS: dict[str, tuple[ModelConfig, str]] = {
    "distilbert_tiny": (tiny(DISTILBERT), TESTS),
    "distilbert_base": (DISTILBERT, "DistilBERT, 66 M parameters."),
    "mpnet_tiny": (tiny(MPNET), TESTS),
    "mpnet_base": (MPNET, "MPNet-base, 109 M parameters."),
    "xlmr_base": (ROBERTA, "XLM-R base, 278 M parameters with 250,000 ids."),
    "xlmr_large": (resize(ROBERTA, 24, 1024, 16), "XLM-R large, 560 M parameters."),
    "camembert_base": (ROBERTA, "CamemBERT, 111 M parameters."),
    "mt5_small": (
        replace(resize(T5_1_1, 8, 512, 6), ffn_width=1024),
        "mT5-small, 300 M parameters with 250,000 ids.",
    ),
    "mt5_base": (replace(resize(T5_1_1, 12, 768, 12), ffn_width=2048), "mT5-base, 582 M."),
    "opt_tiny": (tiny(OPT), TESTS),
    "opt_125m": (OPT, "OPT-125M."),
    "opt_1.3b": (resize(OPT, 24, 2048, 32), "OPT-1.3B; further sizes come in by their own."),
    "gpt_neo_tiny": (replace(tiny(GPT_NEO), layer_windows=(0, 7)), TESTS),
    "gpt_neo_125m": (GPT_NEO, "GPT-Neo-125M."),
    "pegasus_tiny": (tiny(PEGASUS), TESTS2),
    "pegasus_large": (resize(PEGASUS, 16, 1024, 16), "Pegasus-large, 571 M parameters."),
    "marian_tiny": (tiny(MARIAN), TESTS2),
    "marian_base": (
        resize(MARIAN, 6, 512, 8),
        "OPUS-MT's models, 74 M parameters with 58,101 ids.",
    ),
    **our_sizes("mbart", MBART, "mini"),
    "mbart_large": (resize(MBART, 12, 1024, 16), "mBART and mBART-50, 611 M parameters."),
    "bert2bert_tiny": (tiny(BERT2BERT), TESTS2),
    "bert2bert_base": (BERT2BERT, "Two BERT-base, the second with cross-attention: 247 M."),
    "eurobert_210m": (EUROBERT, "EuroBERT-210m: 310 M parameters with its output matrix."),
    "ernie4_5_0.3b": (
        replace(resize(LLAMA, 18, 1024, 16, 3072, 2), head_width=128, rotary_base=500000.0),
        "ERNIE 4.5 of 0.36 billion parameters.",
    ),
    "glm_edge_1.5b": (
        replace(resize(LLAMA, 28, 2048, 16, 6144, 4), head_width=128),
        "GLM-Edge 1.5B.",
    ),
    "glm4_9b": (replace(GLM4, norm_eps=1.5625e-7, qkv_bias=True), "GLM-4-9B."),
    "glm4_9b_0414": (replace(GLM4, norm_after=True), "GLM-4-9B of April 2025."),
    "phi3_3.8b": (
        replace(resize(PHI3, 32, 3072, 32, 8192), layer_windows=(2046,)),
        "Phi-3-mini of 4,096 positions.",
    ),
    "stablelm_2_1.6b": (resize(STABLELM, 24, 2048, 32, 5632), "StableLM 2 1.6B."),
    "starcoder2_3b": (
        replace(
            resize(STARCODER2, 30, 3072, 24, 12288, 2),
            layer_windows=(4095,),
            rotary_base=999999.4420358813,
        ),
        "StarCoder2-3B.",
    ),
    "gpt_neo_1.3b": (resize(GPT_NEO, 24, 2048, 16), "GPT-Neo 1.3B."),
}

for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about))
