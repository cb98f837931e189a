"""The presets are the published sizes."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unitk import registry
from unitk.models import archs, base

DOCS = Path(__file__).parents[2] / "docs"
PRESETS = registry.names("arch")  # when tests are collected: later ones register plug-ins


@pytest.mark.parametrize(
    ("name", "vocab_size", "millions"),
    [
        ("bert_base", 30522, 110.106428),
        ("bert_large", 30522, 336.226108),
        ("roberta_base", 50265, 124.697433),
        ("roberta_large", 50265, 355.412057),
        ("albert_base", 30000, 11.813810),
        ("albert_large", 30000, 17.847474),
        ("albert_xlarge", 30000, 59.021490),
        ("albert_xxlarge", 30000, 223.158450),
        ("gpt_base", 40478, 116.534784),
        ("gpt2_small", 50257, 124.439808),
        ("gpt2_medium", 50257, 354.823168),
        ("gpt2_large", 50257, 774.030080),
        ("gpt2_xl", 50257, 1557.611200),
        ("unilm_base", 28996, 108.9),
        ("unilm_large", 28996, 334.7),
        # 110.1 with the pooler and NSP layer, which nothing in UniLMv2 reads
        ("unilm2_base", 30522, 110.107 - 0.592 + 0.0008),
        ("xlnet_base", 32000, 116.750336),
        ("xlnet_large", 32000, 360.300800),
        ("mass_base", 30522, 123.5),
        ("mass_middle", 30522, 208.7),
        ("bart_base", 50265, 139.420416),
        ("bart_large", 50265, 406.291456),
        ("t5_small", 32128, 60.506624),
        ("t5_base", 32128, 222.903552),
        ("t5_large", 32128, 737.668096),
        ("t5_v1_1_small", 32128, 76.961152),
        ("t5_v1_1_base", 32128, 247.577856),
        ("glm_base", 30592, 109.3),
        ("glm_large", 30592, 334.7),
        ("glm_410m", 30592, 410.3),
        ("glm_515m", 30592, 514.6),
        ("glm_roberta", 50304, 354.9),
        ("glm_2b", 50304, 1920),
        ("glm_10b", 50304, 9880),
        ("qwen3_0.6b", 151936, 596.049920),
        ("qwen2_0.5b", 151936, 494.032768),
        ("llama_135m", 49152, 134.515008),
        ("llama_360m", 49152, 361.821120),
        ("llama_1b", 128256, 1235.814400),
        ("mistral_7b", 32000, 7241.732096),
        ("smollm3_3b", 128256, 3075.098624),
        ("olmo2_1b", 100352, 1484.916736),
        ("ernie4_5_0.3b", 103424, 360.748032),
        ("glm4_9b", 151552, 9399.951360),
        ("phi3_3.8b", 32064, 3821.079552),
        ("stablelm_2_1.6b", 100352, 1644),
        ("starcoder2_3b", 49152, 3030.371328),
        ("gemma3_270m", 262144, 268.098176),
        ("gemma3_1b", 262144, 999.885952),
        ("pythia_14m", 50304, 14.067712),
        ("pythia_31m", 50304, 30.494720),
        ("pythia_70m", 50304, 70.426624),
        ("pythia_160m", 50304, 162.322944),
        ("pythia_410m", 50304, 405.334016),
        ("modernbert_base", 50368, 149.655232),
        ("modernbert_large", 50368, 395.881664),
    ],
)
def test_parameter_counts_are_the_published_ones(name, vocab_size, millions):
    config = registry.get("arch", name)()
    if config.positions == "rotary":  # the virtual row is what tasks add
        config = replace(config, num_virtual=0)
    with torch.device("meta"):
        model = config.build(vocab_size)
    count = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    exact = round(millions, 1) != millions
    assert count == pytest.approx(millions, abs=1e-3 if exact else 0.05 if millions < 1000 else 5)


@pytest.mark.parametrize("millions", [17, 32, 68])
def test_ettins_encoders_have_the_parameters_that_their_names_say(millions):
    with torch.device("meta"):
        model = registry.get("arch", f"modernbert_{millions}m")().build(50368)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == millions


def test_parameters_of_encoders_without_a_preset():
    """ERNIE 1.0 without output layers, MiniLM; their poolers, which unitk does not keep, count."""
    bare = {"head_transform": False, "output_bias": False, "heads": ()}
    ernie = replace(archs.preset("bert_base"), max_positions=513, **bare)
    minilm = replace(archs.preset("bert_base"), width=384, ffn_width=1536, heads=())
    with torch.device("meta"):
        counts = [
            sum(parameter.numel() for parameter in config.build(vocab_size).parameters())
            for config, vocab_size in ((ernie, 18000), (minilm, 30522))
        ]
    poolers = 768 * 768 + 768, 384 * 384 + 384
    assert counts[0] + poolers[0] == 99_866_112
    assert round((counts[1] + poolers[1]) / 1e6, 1) == 33.5


def count_weights(name, vocab_size):
    with torch.device("meta"):
        model = registry.get("arch", name)().build(vocab_size)
    return sum(weight.numel() for weight in model.parameters())


def test_presets_of_our_own_have_the_weights_that_the_page_says():
    """`31 M with 16,384 words`, of each preset of a row."""
    said = dict[tuple[str, int], str]()
    for row in (DOCS / "architectures.md").read_text().splitlines():
        sizes = re.findall(r"((?:[\d.]+ M(?: and )?)+) with ([\d,]+)", row)
        each = [(n, words) for many, words in sizes for n in re.findall(r"[\d.]+", many)]
        names = re.findall(r"`(\w+)`", row.split("|")[1]) if each else []
        for name, (millions, words) in zip(names, each, strict=True):
            said[name, int(words.replace(",", ""))] = millions
    assert len(said) > 10
    for (name, words), millions in said.items():
        digits = len(millions.partition(".")[2])
        assert f"{count_weights(name, words) / 1e6:.{digits}f}" == millions, name


@pytest.mark.parametrize(
    ("name", "vocab_size"), [("bert2bert_base", 30522), ("gpt_bert_small", 8192)]
)
def test_presets_have_the_weights_that_they_say(name, vocab_size):
    about = registry.get("arch", name).__doc__
    assert about.endswith(f" {count_weights(name, vocab_size) / 1e6:.0f} M.")


@pytest.mark.slow
def test_every_preset_builds():
    for name in registry.names("arch"):
        with torch.device("meta"):
            registry.get("arch", name)().build(100)


def test_presets_are_found_without_torch():
    code = (
        "import sys; from unitk import registry\n"
        "for kind in ('arch', 'criterion', 'optimizer', 'schedule'):\n"
        "    for name in registry.names(kind):\n"
        "        registry.get(kind, name)()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_gpt_draws_all_weights_from_one_law():
    """Radford 2018: N(0, 0.02) everywhere; GPT-2 divides residual projections by sqrt(2 layers)."""
    for name, std in (("gpt_base", 0.02), ("gpt2_small", 0.02 / 24**0.5)):
        torch.manual_seed(0)
        config = replace(registry.get("arch", name)(), max_positions=8)
        out = (
            config.build(9).decoder.layers[0].attention.out.weight
        )  # 590,000 numbers: 0.1 % of error
        assert out.std().item() == pytest.approx(std, rel=0.01)


def test_weights_begin_as_their_width_asks():
    """The papers' sizes with the papers' deviation, sizes of our own with a variance of 1 / D."""
    own = re.compile(
        r"_(tiny|mini)$"
        r"|^(bert|unilm2?|mass|bart|glm|optimus|albert|spanbert|roberta|mdlm|llada|ernie2?|xlnet|thu_ernie|two_towers)"
        r"_small$"
    )
    for name in PRESETS:
        config = registry.get("arch", name)()
        ltg_bert = re.match("modern_|qwen3|optimus_sentence", name)  # another law
        if not (config.sequential or config.fan_in_init or ltg_bert):
            expected = config.width**-0.5 if own.search(name) else 0.02
            assert config.init_std == expected, name


def test_a_family_is_named_as_a_whole_where_all_of_it_can():
    assert base.families_with(lambda arch: arch.latent > 0) == "optimus_*"
    able = base.families_with(lambda arch: arch.cross_attention).split(", ")
    assert {"bart_*", "mass_*", "t5_*"} <= set(able) and "modern_*" not in able
