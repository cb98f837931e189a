"""Models in GGUF: llama.cpp continues texts as unitk does, and reads the same ids of a text."""

from __future__ import annotations

import importlib.util
import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import toy_lines
from unitk.decoding.generator import Generator
from unitk.errors import UsageError
from unitk.formats.gguf.model import STACKS as OF_LLAMA_CPP
from unitk.formats.gguf.model import entries_of, stack_of
from unitk.models.archs import preset
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import adopt
from unitk.vocab.open import open_vocab
from unitk.vocab.tokenizer_json import Tokenizers
from unitk.vocab.train import train_vocab

SMALL = dict(num_layers=2, width=64, num_heads=4, ffn_width=96)
STACKS = {
    "qwen3": ("qwen3_tiny", {"num_kv_heads": 2, "head_width": 32, "tied": False}),
    "qwen2": ("qwen2_0.5b", {**SMALL, "num_kv_heads": 2}),
    "llama": ("llama_tiny", {}),
    "llama linear": ("llama_tiny", {"rotary_factor": 4.0}),
    "llama 3": ("llama_tiny", {"rotary_factor": 8.0, "rotary_wavelengths": (16.0, 64.0)}),
    "gemma3": ("gemma3_tiny", {"layer_windows": (3, 0), "tied": False}),
    "olmo2": ("olmo2_1b", SMALL),
    "gptneox": ("pythia_tiny", {}),
    "gptneox in turn": ("pythia_tiny", {"parallel_residual": False}),
    "gpt2": ("gpt2_tiny", {}),
}
ODD = [
    "plain words of a text",
    "  two  blanks\tand tabs ",
    "It's 1234567 o'clock, I'LL go: (no) way!!!",
    "Ünïcödé, naïve ﬁn ① ｆｕｌｌ",
    "\n\nlines\n of\r\ntext\n",
    "漢字とかな 한글 नमस्ते",
    "emoji 👩‍👩‍👧 and \u200b none",
    "xx" + "=" * 9,
    "[MASK] <s> [UNK] </s>",
]


@pytest.fixture
def parts(kit, toy_vocab):
    """A small random model."""

    def made(arch="qwen3_tiny", vocab=None, task="lm", options=None, **changes):
        torch.manual_seed(0)
        kind, vocab = get("task", task), vocab or toy_vocab
        own = kind(kind.Config(**(options or {})), vocab).with_trained(pairs=False)
        model = kit.perturbed(replace(preset(arch), **changes).build(len(vocab)))
        return Loaded(model, own, {"arch": arch}, {})

    return made


def written(own: Loaded, folder: Path, dtype="f32"):
    pytest.importorskip("gguf")
    folder.mkdir()
    get("format", "gguf").write(own, folder, dtype)
    return folder / "model.gguf"


def opened(path):
    """llama.cpp with that file, which rounds nothing to 16 bits."""
    xllamacpp = pytest.importorskip("xllamacpp")
    given = xllamacpp.CommonParams()
    given.model.path, given.n_ctx, given.n_parallel = str(path), 512, 1
    given.warmup, given.fit_params, given.verbosity, given.cpuparams.n_threads = False, False, -1, 1
    given.cache_type_k = given.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    given.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(given)


def continued(server, text, length=16):
    """Each token that llama.cpp writes after a text greedily, with its log-probability and lead."""
    asked = {"prompt": text, "max_tokens": length, "temperature": 0, "top_k": 1, "logprobs": 2}
    [found] = server.handle_completions(asked | {"cache_prompt": False})["choices"]
    tokens = found["logprobs"]["content"]
    leads = [abs(np.diff([one["logprob"] for one in each["top_logprobs"]])[0]) for each in tokens]
    return [one["id"] for one in tokens], [one["logprob"] for one in tokens], leads


def ids(server, text):
    body = json.dumps({"content": text, "add_special": True, "parse_special": False}).encode()
    request = urllib.request.Request(
        f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def prompted(own, text):
    return own.task.prompt([np.array(own.vocab.encode(text))]).towers["x"].token.tolist()


def check_continues(own, path, texts, atol):
    """llama.cpp writes the words that unitk writes, with their log-probabilities."""
    server, length = opened(path), 16
    outputs = Generator(own.model, own.task).generate(texts, beam=1, max_len=length)
    for text, [one] in zip(texts, outputs, strict=True):
        assert ids(server, text) == prompted(own, text)
        found, gains, leads = continued(server, text, length)
        wanted = one.hypothesis.ids[:length].tolist()
        wanted = wanted[:-1] if wanted[-1] == own.vocab.sep else wanted
        same = [a == b for a, b in zip(found, wanted, strict=False)]
        # two words that are as likely may change places, and all that follows is another text
        until = same.index(False) if False in same else len(same)
        assert until == len(same) == len(wanted) or leads[until] < 2 * atol
        gold = one.hypothesis.token_log_probs[:until]
        assert np.allclose(gains[:until], gold, atol=atol, rtol=0)


@pytest.mark.parametrize(
    "name", ["qwen3", *(pytest.param(one, marks=pytest.mark.slow) for one in [*STACKS][1:])]
)
def test_llama_cpp_continues_as_unitk_does(name, parts, tmp_path):
    arch, changes = STACKS[name]
    own = parts(arch, **changes)
    assert stack_of(own.model.config, arch) == name.split()[0]
    # its GELU is a table of numbers in 16 bits
    atol = 1e-4 if own.model.config.activation == "silu" else 1e-2
    check_continues(own, written(own, tmp_path / "it"), toy_lines(20), atol)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_smaller_types_continue_alike(dtype, parts, tmp_path):
    own = parts()
    path = written(own, tmp_path / "it", dtype)
    assert path.stat().st_size < {"f16": 0.7, "q8_0": 0.6}[dtype] * (
        written(own, tmp_path / "whole").stat().st_size
    )
    check_continues(own, path, toy_lines(20), {"f16": 0.05, "q8_0": 0.5}[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_own_vocabularies_give_the_same_ids(kind, normalization, parts, tmp_path):
    lines = [*toy_lines(200), *ODD]
    vocab = train_vocab(lines, 420, kind, byte_fallback=kind == "bpe", normalization=normalization)
    own = parts(vocab=vocab)
    server = opened(written(own, tmp_path / "it"))
    same = [text for text in [*lines[-30:]] if ids(server, text) == prompted(own, text)]
    if kind == "unigram":
        assert len(same) == 30
    else:  # texts that a normalization would change are others there
        plain = [one for one in lines[-30:] if vocab.decode(vocab.encode(one)) == one]
        assert set(plain) <= set(same) and len(plain) > 20


def merged(kind, lines):
    """A trained tokenizer.json that merges pieces: of bytes with a pattern, or of characters."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    from unitk.formats.gguf.vocabulary import PATTERNS

    named = {names[0]: pattern for pattern, names in PATTERNS.items()}
    letters = kind.startswith("letters")
    tokenizer = Tokenizer(models.BPE(byte_fallback=letters, fuse_unk=letters, unk_token="<unk>"))
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256) if letters)]
    alphabet = [] if letters else pre_tokenizers.ByteLevel.alphabet()
    if letters:
        prepend = [normalizers.Prepend("▁")] * (kind == "letters")
        steps = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
        tokenizer.normalizer = steps
    elif kind in ("gpt-2", "smollm"):
        digits = [pre_tokenizers.Digits(individual_digits=True)] * (kind == "smollm")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, last]) if digits else last
    else:
        split = pre_tokenizers.Split(Regex(named[kind]), "isolated")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, last])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        lines,
        trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet),
    )
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["id"] < 3]
    return Tokenizers(json.dumps(spec).encode())


BYTE_LEVEL = ["gpt-2", "smollm", "qwen2", "smaug-bpe", "gpt-4o"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*BYTE_LEVEL, "letters", "letters without a blank"])
def test_merged_bytes_and_letters_give_the_same_ids(kind, parts, tmp_path):
    own = parts(vocab=adopt(merged(kind, [*toy_lines(200), *ODD * 3])))
    server = opened(written(own, tmp_path / "it"))
    for text in [*ODD, *toy_lines(10)]:
        assert ids(server, text) == prompted(own, text), text


@pytest.mark.slow
def test_symbols_around_a_prompt(parts, tmp_path):
    for number, (opening, pairs) in enumerate((("none", False), ("sep", False), ("cls", True))):
        own = parts(options={"opening": opening})
        own = replace(own, task=own.task.with_trained(pairs=pairs))
        server = opened(written(own, tmp_path / str(number)))
        assert ids(server, "some words") == prompted(own, "some words")


def test_settings_are_the_models(parts, tmp_path):
    gguf = pytest.importorskip("gguf")
    # without a table of characters, which the package reads byte by byte
    vocab = train_vocab(toy_lines(99), 99, normalization="identity")
    own = parts(vocab=vocab, num_kv_heads=2, head_width=32)
    file = gguf.GGUFReader(written(own, tmp_path / "it"))
    stored = {name: field.contents() for name, field in file.fields.items()}
    assert stored["general.architecture"] == "qwen3"
    for name, value in entries_of(own.model.config, len(own.vocab)).items():
        assert stored[f"qwen3.{name}"] == pytest.approx(value)
    weights = {one.name: torch.from_numpy(one.data.copy()) for one in file.tensors}
    table = weights["token_embd.weight"]
    assert (
        torch.equal(table, own.tensors()["embed.tokens.weight"]) and "output.weight" not in weights
    )


@pytest.mark.parametrize(
    ("arch", "changes", "option"),
    [
        ("modern_tiny", {}, "--arch.max-positions2 0"),
        ("qwen3_tiny", {"activation": "gelu"}, "--arch.activation silu"),
        ("qwen3_tiny", {"layer_windows": (4,)}, "--arch.layer-windows"),
        ("qwen3_tiny", {"logit_cap": 5.0}, "--arch.logit-cap"),
        ("t5_tiny", {}, "--arch."),
    ],
)
def test_a_stack_that_it_does_not_compute(arch, changes, option):
    with pytest.raises(UsageError, match=f"^--to gguf: .*{option}") as raised:
        stack_of(replace(preset(arch), **changes), arch)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", OF_LLAMA_CPP)
def test_a_model_is_compared_with_the_nearest_stack(name):
    """Whatever its own name is."""
    config = preset(OF_LLAMA_CPP[name].preset)
    assert stack_of(config, "opt_tiny") == name
    with pytest.raises(UsageError, match=f"a {name} model has --arch.logit-cap"):
        stack_of(replace(config, logit_cap=5.0), "opt_tiny")


def test_an_opt_is_a_gpt2_whose_positions_begin_at_2():
    with pytest.raises(UsageError, match="a gpt2 model has --arch.position-offset 0, .* 2$"):
        stack_of(preset("opt_tiny"), "opt_tiny")


def test_windows_have_one_width(parts, tmp_path):
    own = parts("gemma3_tiny", layer_windows=(3, 4))
    with pytest.raises(UsageError, match=r"--to gguf: .*--arch\.layer-windows"):
        get("format", "gguf").write(own, tmp_path)


def test_positions_that_only_some_layers_of_llama_cpp_scale_are_named(parts, tmp_path):
    own = parts("gemma3_tiny", layer_windows=(3, 0), rotary_factor=8.0)
    with pytest.raises(UsageError, match="--arch.rotary-factor"):
        get("format", "gguf").write(own, tmp_path)


@pytest.mark.parametrize("task", ["mlm", "glm_infill", "unilm", "classify"])
def test_a_task_that_does_not_continue_texts(task, parts, tmp_path):
    own = parts()
    kind = get("task", task)
    own = replace(own, task=kind(kind.Config(), own.vocab))
    with pytest.raises(UsageError, match=f"^--to gguf: .*{task}"):
        get("format", "gguf").write(own, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_an_encoder_is_told_where_it_can_go(parts, tmp_path):
    """Its task is named, and not the settings in which it differs from some decoder."""
    own, kind = parts("bert_tiny"), get("task", "mlm")
    with pytest.raises(UsageError, match="task mlm .*--to sentence-transformers"):
        get("format", "gguf").write(replace(own, task=kind(kind.Config(), own.vocab)), tmp_path)


def test_vocabularies_that_it_does_not_read(parts, tmp_path, vocab_txt):
    merged_only = train_vocab(toy_lines(200), 120, "bpe")
    for vocab, option in (
        (merged_only, "--byte-fallback on"),
        (open_vocab(vocab_txt), "WordPiece"),
    ):
        with pytest.raises(UsageError, match=f"^--to gguf: .*{option}"):
            get("format", "gguf").write(parts(vocab=vocab), tmp_path)
    spec = json.loads(merged("gpt-2", toy_lines(50)).data)
    spec["pre_tokenizer"]["add_prefix_space"] = True
    vocab = adopt(Tokenizers(json.dumps(spec).encode()))
    with pytest.raises(UsageError, match="--vocab .*pre_tokenizer of tokenizer.json"):
        get("format", "gguf").write(parts(vocab=vocab), tmp_path)


def test_weights_beyond_16_bits_and_a_missing_package(parts, tmp_path, monkeypatch):
    own = parts()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"--to gguf needs.*unitk\[gguf\]"):
        get("format", "gguf").write(own, tmp_path)
    monkeypatch.undo()
    pytest.importorskip("gguf")
    with torch.no_grad():
        dict(own.model.named_parameters())["embed.tokens.weight"][7, 3] = 1e6
    with pytest.raises(UsageError, match=r"--dtype f16: token_embd\.weight"):
        get("format", "gguf").write(own, tmp_path)


@pytest.mark.parametrize(
    ("path", "name"),
    [(None, "qwen3_tiny"), ("runs/mine/checkpoints/step-4", "mine"), ("models/own", "own")],
)
def test_a_model_has_the_name_of_its_folder(parts, tmp_path, path, name):
    gguf = pytest.importorskip("gguf")
    own = replace(parts(), path=path and tmp_path / path)
    fields = gguf.GGUFReader(written(own, tmp_path / "there")).fields
    assert fields["general.name"].contents() == name
