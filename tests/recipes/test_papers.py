"""The settings of papers are options that exist, and their lengths fit their models."""

import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unitk.api.verb import find_verb
from unitk.data.cuts import Text
from unitk.data.limits import measure_extent
from unitk.decoding.fit import measure_overrun
from unitk.errors import UsageError
from unitk.optim.config import parse_rules
from unitk.optim.plan import OptimPlan
from unitk.optim.schedules import Constant, LinearFromStart
from unitk.options.config import parse
from unitk.registry import get
from unitk.training.config import COMPONENTS, TrainConfig

PAPERS = Path(__file__).resolve().parents[2] / "recipes" / "papers"
FILES = sorted(PAPERS.glob("*/*.yaml"))
NEEDED = {
    "preprocess": ["--dest", "d", "--vocab", "v"],
    "train": ["--data", "d", "--save-dir", "s"],
    "generate": ["--checkpoint", "c", "--input", "i"],
}
NEEDED |= dict.fromkeys(("pretrain", "finetune"), NEEDED["train"])
MAIN = {"train": (TrainConfig, COMPONENTS)}


def read(path: Path):
    verb = {"pretrain": "train", "finetune": "train"}.get(path.stem, path.stem)
    main, kinds = MAIN.get(verb) or (find_verb(verb).options, ())
    return parse(verb, main, ["--config", str(path), *NEEDED[verb]], kinds)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_option_exists(path):
    parsed = read(path)
    given = [key for key, one in parsed.given.items() if one.where == str(path)]
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert sorted(given) == sorted(line.partition(":")[0].replace("-", "_") for line in lines)


@pytest.mark.parametrize("line", ["max-sauce-len: 5", "task.worddrop: 0.5", "lr: fast"])
def test_a_wrong_line_is_refused(tmp_path, line):
    path = tmp_path / "train.yaml"
    path.write_text((PAPERS / "unilm2-cnndm" / "train.yaml").read_text().replace("lr:", "#") + line)
    with pytest.raises(UsageError, match=line.partition(":")[0]):
        read(path)


def test_every_setting_says_how_to_pre_train_or_to_train_and_to_generate():
    folders = sorted(path for path in PAPERS.iterdir() if path.is_dir())
    assert len(folders) == 32
    readme = (PAPERS / "README.md").read_text()
    for folder in folders:
        files = {path.stem for path in folder.glob("*.yaml")}
        assert {"train", "generate"} <= files or "pretrain" in files
        assert f"`{folder.name}`" in readme


@pytest.mark.parametrize(
    "path", sorted(PAPERS.glob("*/train.yaml")), ids=lambda path: path.parent.name
)
def test_sources_targets_and_outputs_fit(path, toy_vocab):
    parsed = read(path)
    task, arch = parsed.components["task"], parsed.components["arch"].config
    made = task.made_from(task.config, toy_vocab)
    assert len(made.virtual) == arch.num_virtual
    limits = parsed.main.max_source_len, parsed.main.max_target_len
    extent = measure_extent("", made.finetune, toy_vocab.unk, made.pair_slots)
    assert limits[0] <= extent.max_source(arch.max_positions, limits[1], 2)
    assert arch.max_positions2 == 0 or limits[1] < arch.max_positions2
    decoding = read(path.with_stem("generate")).main
    assert int(decoding.max_len) <= limits[1]
    assert limits[0] <= decoding.max_source_len
    one = made.prompt([np.zeros(decoding.max_source_len, np.int64)])
    assert max(measure_overrun(one, made.protocol, int(decoding.max_len), arch)) <= 0
    window = path.with_stem("preprocess")
    if window.exists() and "qg" in path.parent.name:
        assert read(window).main.window == limits[0]


@pytest.mark.parametrize(
    "path", sorted(PAPERS.glob("*/pretrain.yaml")), ids=lambda p: p.parent.name
)
def test_texts_of_pre_training_fit_their_models(path, toy_vocab):
    """The longest text that `--block-size` admits has a position for each of its slots."""
    parsed = read(path)
    task, arch = parsed.components["task"], parsed.components["arch"].config
    made = task.made_from(task.config, toy_vocab)
    ids = np.resize(made.words, parsed.main.block_size - made.frame)
    for seed in range(3):
        text = Text([ids], np.zeros(1, int), np.zeros(len(ids), int))
        example = made.pretrain(text, np.random.default_rng(seed))
        if path.parent.name == "t5":  # their inputs of 512 tokens and targets of 114
            sizes = [len(slots) for slots in example.towers.values()]
            assert sizes == [512, 114]
        for slots in example.towers.values():
            assert slots.pos.max() < (arch.max_positions or np.inf)


ADAM = {"betas": (0.9, 0.999), "eps": 1e-8}
PUBLISHED = [
    # arguments.py and finetune_seq2seq.sh of THUDM/GLM
    ("glm", "train", {**ADAM, "warmup": 0.06, "floor": 0.1, "label_smoothing": 0.1}),
    # README of MASS-summarization; fairseq's epsilon
    ("mass", "train", {"betas": (0.9, 0.98), "eps": 1e-8, "opening": "sep", "warmup": 4000}),
    # README of unilm-v1
    ("unilm-", "train", {"betas": (0.9, 0.999), "eps": 1e-6, "clip_norm": 1.0, "warmup": 0.1}),
    ("unilm", "train", {"label_smoothing": 0.1, "smoothed_over": "others"}),
    ("unilm-gigaword-10k", "generate", {"lenpen": 0, "max_source_len": 192 - 2 - 32}),
    ("unilm-gigaword", "generate", {"max_source_len": 192 - 2 - 32, "search": "unilm"}),
    ("unilm-gigaword/", "generate", {"lenpen": 0.6}),
    # appendix D of Bao et al. 2020; run_seq2seq.py of s2s-ft
    ("unilm2", "train", {**ADAM, "weight_decay": 0.01, "label_smoothing": 0.1}),
    # examples/bart of fairseq; the papers; READMEs of SpanBERT and ALBERT
    ("bart-", "train", {**ADAM, "label_smoothing": 0.1, "clip_norm": 0.1, "lr": 3e-5}),
    ("bart-cnndm", "generate", {"beam": 4, "lenpen": 2.0, "min_len": "55"}),
    ("roberta/", "pretrain", {"betas": (0.9, 0.98), "eps": 1e-6, "warmup": 24000, "lr": 6e-4}),
    ("roberta/", "finetune", {"warmup": 0.06, "max_epochs": 10, "weight_decay": 0.1}),
    ("albert/", "pretrain", {"max_ngram": 3, "copies": 40, "warmup": 3125, "lr": 1.76e-3}),
    ("albert/", "pretrain", {"eps": 1e-6, "always_adapt": False, "clip_norm": 1.0}),
    ("albert/", "finetune", {"eps": 1e-6, "warmup": 1000, "max_steps": 10000, "batch_texts": 128}),
    ("ernie/", "pretrain", {"warmup": 5000, "weight_decay": 0.01, "lr": 1e-4, "stages": True}),
    ("ernie/", "finetune", {"lr": 1e-4, "max_epochs": 3, "warmup": 0}),
    ("electra/", "pretrain", {"detect_weight": 50.0, "mask_ratio": 0.15, "generator_divisor": 4}),
    ("electra/", "finetune", {"lr": 3e-4, "max_epochs": 3, "batch_texts": 32}),
    ("ernie2/", "pretrain", {"betas": (0.9, 0.98), "warmup": 4000, "max_steps": 250000}),
    ("ernie2/", "finetune", {"lr": 3e-5, "warmup": 0.1, "max_epochs": 3, "batch_texts": 64}),
    # opt.py of openai/finetune-transformer-lm and optimization.py of google-research/electra: the
    # rate falls from the start of the run
    ("gpt/", "finetune", {"lr_schedule": LinearFromStart(warmup=0.002)}),
    ("electra/", "finetune", {"lr_schedule": LinearFromStart(warmup=0.1)}),
    ("electra/", "pretrain", {"lr_schedule": LinearFromStart(warmup=10000)}),
    # code/run_pretrain.py and README of thunlp/ERNIE
    ("thu_ernie/", "pretrain", {"lr": 5e-5, "warmup": 0.1, "max_epochs": 1, "batch_texts": 256}),
    ("thu_ernie/", "pretrain", {"entity_width": 100, "entity_heads": 4, "num_layers": 12}),
    ("thu_ernie/", "pretrain", {"random_none_keep": (0.05, 0.15, 0.8), "weight_decay": 0.01}),
    ("thu_ernie/", "finetune", {"lr": 2e-5, "max_epochs": 10, "batch_texts": 32}),
    ("spanbert/", "finetune", {**ADAM, "lr": 2e-5, "max_epochs": 4, "max_source_len": 512 - 3}),
    ("gpt/", "pretrain", {**ADAM, "lr": 2.5e-4, "warmup": 2000, "max_epochs": 100}),
    ("gpt/", "finetune", {**ADAM, "lm_weight": 0.5, "warmup": 0.002, "lr": 6.25e-5}),
    ("t5/", "finetune", {"lr": 1e-3, "max_steps": 2**18, "batch_texts": 128, "warmup": 0}),
    ("t5/", "pretrain", {"lr": 1e-2, "warmup": 0, "weight_decay": 0}),
    ("ul2/", "pretrain", {"mixture": (2.0, 1.0, 4.0), "batch_texts": 1024, "dropout": 0.0}),
    ("spanbert/", "pretrain", {**ADAM, "stop_chance": 0.2, "max_span": 10, "warmup": 10000}),
    ("t5/", "pretrain", {"mask_ratio": 0.15, "mean_span": 3.0, "max_steps": 2**19}),
    # train.py, model_utils.py and run_squad.py of zihangdai/xlnet; 85 of 512 are predicted there
    ("xlnet/", "pretrain", {"one_in": 6, "perm_size": 256, "memory_length": 384, "floor": 0.001}),
    ("xlnet/", "pretrain", {"eps": 1e-6, "warmup": 40000, "lr": 4e-4, "max_steps": 500_000}),
    ("xlnet/", "finetune", {"layer_decay": 0.75, "eps": 1e-6, "weight_decay": 0, "lr": 3e-5}),
    ("xlnet/", "finetune", {"batch_texts": 48, "max_steps": 8000, "max_source_len": 512 - 3}),
    # allenai/bilm-tf
    ("elmo/", "pretrain", {"accumulator": 1, "lr": 0.2, "clip_norm": 10, "stateful_rows": 384}),
    # imdb_scripts of fastai and the papers
    ("ulmfit/", "pretrain", {"betas": (0.7, 0.99), "ar": 2, "tar": 1, "stateful_rows": 64}),
    ("ulmfit/", "finetune", {"lr": 1e-2, "warmup": 0.1, "ratio": 32, "weight_dropout": 0.5}),
    ("ulmfit/", "finetune", {"bptt": 70, "bptt_chunks": 20, "dropout": 0}),
    ("siatl/", "finetune", {"lr": 5e-4, "batch_texts": 32, "max_source_len": 80}),
    ("unilm-squad_qg", "preprocess", {"squad_source": "{passage} [SEP] {answer}"}),
    ("unilm2-squad_qg", "preprocess", {"squad_source": "{passage} [SEP] {answer}"}),
]


@pytest.mark.parametrize(("prefix", "verb", "values"), PUBLISHED)
def test_settings_are_the_published_ones(prefix, verb, values):
    paths = [path for path in FILES if f"{path.parent.name}/".startswith(prefix)]
    paths = [path for path in paths if path.stem == verb]
    assert paths
    for path in paths:
        parsed = read(path)
        settings = [parsed.main, *(one.config for one in parsed.components.values())]
        settings += [parsed.main.lr_schedule] if hasattr(parsed.main, "lr_schedule") else []
        found = {name: value for one in settings for name, value in vars(one).items()}
        assert {name: found[name] for name in values} == values


def test_the_parts_of_siatl_have_their_optimizers_and_rates():
    parsed = read(PAPERS / "siatl" / "finetune.yaml")
    config = replace(get("arch", "siatl_tiny")(), heads=("attend:label:2",))
    optimizer = parsed.components["optimizer"].config
    rules = parse_rules(parsed.main.group, optimizer)
    plan = OptimPlan(config.build(40), optimizer, parsed.main.lr, Constant(), rules)
    plan.begin(0, 1, 0)
    found = {
        name: (type(one).__name__, group["lr"])
        for one in plan.optimizers
        for group in one.param_groups
        for name in group["param_names"]
    }
    for name, given in found.items():
        kind = "AdamW" if name.startswith("heads.attend") else "SGD"
        rate = 1e-4 if name.startswith("embed") else 5e-4 if kind == "AdamW" else 1e-2
        assert given == (kind, pytest.approx(rate)), name
    assert {"heads.lm.bias", "layers.0.weight_hh", "map.weight", "embed.tokens.weight"} < {*found}


def test_a_plan_counts_the_work_of_every_layer(monkeypatch):
    """Of ALBERT's layers, which share their weights, each computes; a figure by hand."""
    monkeypatch.syspath_prepend(PAPERS.parent)
    made = runpy.run_path(str(PAPERS / "plan.py"))
    finetune = ["--config", str(PAPERS / "albert" / "finetune.yaml")]
    said = made["plan"]("albert", "mnli", finetune)
    numbers = [float(one.replace(",", "")) for one in re.findall(r"[\d,]*\d(?:\.\d)?", said)]
    weights, state, updates, texts, slots, hours = numbers[:6]
    layer = 12 * 4096**2  # four maps of attention, and a feed-forward part four times as wide
    assert weights == pytest.approx(223, rel=0.02) and state == pytest.approx(16 * 0.223, rel=0.02)
    assert (updates, texts, slots) == (10_000, 128, 128)
    used = weights * 1e6 + 11 * layer
    wanted = 6 * used * updates * texts * slots / (0.3 * 989e12) / 3600
    assert hours == pytest.approx(wanted, rel=0.03)
