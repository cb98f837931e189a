"""Tokenizers of today's decoders, as released files have them: ids are those of AutoTokenizer."""

import json

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.vocab.test_open import LINES, odd_texts, spiece
from unitk.errors import DataError
from unitk.vocab.open import open_vocab

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{number:02X}>" for number in range(256)]


def split(pattern):
    """A pattern finds the words, whose bytes become letters."""
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([cut, letters])


def digits():
    own = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), own])


def byte_level(words, special, normalizer=None, begin=None, **options):
    """BPE of bytes, whose words are found as `words` says; `begin` is before each text."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer, tokenizer.decoder = words, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    after = [processors.ByteLevel(trim_offsets=False)]
    if begin:
        one, two = f"{begin} $A", f"{begin} $A {begin}:1 $B:1"
        ids = [(begin, tokenizer.token_to_id(begin))]
        after.append(processors.TemplateProcessing(single=one, pair=two, special_tokens=ids))
    tokenizer.post_processor = processors.Sequence(after)
    return tokenizer


def fallback(special, *, normalizer=None, words=None, begin, strip=True):
    """BPE of characters whose rare ones are bytes, in the files that sentencepiece's became."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=[*special, *BYTES], show_progress=False
    )
    trained.train_from_iterator(LINES, trainer)
    spec = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in spec["merges"]]
    own = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    tokenizer = Tokenizer(models.BPE(spec["vocab"], merges, **own))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if words is not None:
        tokenizer.pre_tokenizer = words
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * strip)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    one, ids = f"{begin} $A", [(begin, tokenizer.token_to_id(begin))]
    tokenizer.post_processor = processors.TemplateProcessing(single=one, special_tokens=ids)
    return tokenizer


def prepended():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def metaspace(scheme="first"):
    return pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)


def gemma():
    tokenizer = fallback(
        ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"],
        normalizer=normalizers.Replace(" ", "▁"),
        words=pre_tokenizers.Split(" ", "merged_with_previous"),
        begin="<bos>",
        strip=False,
    )
    # as in the released file, runs of blanks and lines are tokens that are no symbols
    runs = ["\n\n", "\t\t", "▁▁", "▁▁▁▁", "<b>", "</b>"]
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in runs])
    tokenizer.add_special_tokens(["<start_of_turn>", "<end_of_turn>"])
    return tokenizer


def pythia():
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = byte_level(words, ["<|endoftext|>", "<|padding|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return tokenizer


CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3_NAMES = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|user|>"]
THREE = ["<unk>", "<s>", "</s>"]
ENDS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
OPEN = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
QWEN = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None}
FAMILIES = {
    "llama": (
        "llama",
        lambda: byte_level(
            split(LLAMA3), LLAMA3_NAMES, begin=OPEN["bos_token"], ignore_merges=True
        ),
        {"tokenizer_class": "PreTrainedTokenizerFast", **OPEN},
    ),
    "llama, whose class is named": (
        "llama",
        lambda: byte_level(split(LLAMA3), LLAMA3_NAMES, begin=OPEN["bos_token"]),
        {"tokenizer_class": "LlamaTokenizer", **OPEN},
    ),
    "llama 2": (
        "llama",
        lambda: fallback(THREE, normalizer=prepended(), begin="<s>"),
        {"tokenizer_class": "LlamaTokenizer", "legacy": False, **ENDS},
    ),
    "tinyllama": (
        "llama",
        lambda: fallback(THREE, normalizer=prepended(), begin="<s>"),
        {"tokenizer_class": "LlamaTokenizer", "legacy": True, **ENDS},
    ),
    "llama without a blank": (
        "llama",
        lambda: fallback(THREE, words=metaspace("never"), begin="<s>", strip=False),
        {"tokenizer_class": "LlamaTokenizerFast", "add_prefix_space": False, **ENDS},
    ),
    "smollm2": (
        "llama",
        lambda: byte_level(digits(), CHAT),
        {"tokenizer_class": "GPT2Tokenizer", **QWEN, "bos_token": "<|im_start|>"},
    ),
    "smollm2 as its file says": (
        "llama",
        lambda: byte_level(digits(), CHAT),
        {"tokenizer_class": "PreTrainedTokenizerFast", **QWEN},
    ),
    "smollm3": (
        "smollm3",
        lambda: byte_level(split(LLAMA3), [*LLAMA3_NAMES, "<|im_end|>"]),
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"},
    ),
    "mistral": (
        "mistral",
        lambda: fallback(THREE, normalizer=prepended(), begin="<s>"),
        {"tokenizer_class": "LlamaTokenizer", "legacy": True, **ENDS},
    ),
    "mistral with metaspace": (
        "mistral",
        lambda: fallback([*THREE, "[INST]", "[/INST]"], words=metaspace(), begin="<s>"),
        {"tokenizer_class": "LlamaTokenizerFast", "legacy": False, **ENDS},
    ),
    "tekken": (
        "mistral",
        lambda: byte_level(split(TEKKEN), [*THREE, "[INST]"], begin="<s>", ignore_merges=True),
        {"tokenizer_class": "PreTrainedTokenizerFast", **ENDS},
    ),
    "qwen2": (
        "qwen2",
        lambda: byte_level(split(LLAMA3.replace("{1,3}", "")), CHAT, normalizers.NFC()),
        {"tokenizer_class": "Qwen2Tokenizer", **QWEN},
    ),
    "qwen2 of another class": (
        "qwen2",
        lambda: byte_level(split(LLAMA3), CHAT),
        {"tokenizer_class": "PreTrainedTokenizerFast", **QWEN},
    ),
    "qwen3": (
        "qwen3",
        lambda: byte_level(split(LLAMA3.replace("{1,3}", "")), CHAT, normalizers.NFC()),
        {"tokenizer_class": "Qwen2Tokenizer", "additional_special_tokens": CHAT[1:], **QWEN},
    ),
    "qwen3 as its file says": (
        "qwen3",
        lambda: byte_level(split(LLAMA3), CHAT),
        {"tokenizer_class": "PreTrainedTokenizerFast", **QWEN},
    ),
    "olmo2": (
        "olmo2",
        lambda: byte_level(split(LLAMA3), [*CHAT, "<|pad|>"]),
        {"tokenizer_class": "GPT2Tokenizer", "eos_token": CHAT[0], "pad_token": "<|pad|>"},
    ),
    "gemma": (
        "gemma3_text",
        gemma,
        {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>"}
        | {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"},
    ),
    "pythia": ("gpt_neox", pythia, {"tokenizer_class": "GPTNeoXTokenizer"}),
}


def folder_of(path, family, **more):
    """A folder of a family, with further entries in tokenizer_config.json."""
    kind, make, settings = FAMILIES[family]
    tokenizer = make()
    tokenizer.save(str(path / "tokenizer.json"))
    about = {"model_type": kind, "vocab_size": tokenizer.get_vocab_size()}
    (path / "config.json").write_text(json.dumps(about))
    (path / "tokenizer_config.json").write_text(json.dumps(settings | more))
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ids_are_those_of_transformers(tmp_path, family):
    """Of texts that spell no symbol; symbols are found in no text here."""
    hf = pytest.importorskip("transformers")
    folder = folder_of(tmp_path, family)
    theirs, ours = hf.AutoTokenizer.from_pretrained(folder), open_vocab(folder)
    names = {name: ours.pieces([index])[0] for name, index in ours.symbols.items()}
    role = {"sep": theirs.eos_token, "cls": theirs.bos_token}
    for name, token in role.items():
        assert token is None or names[name] == token or role["sep"] == token
    texts = [text for text in odd_texts() if not any(name in text for name in names.values())]
    assert len(texts) > 400
    wanted = theirs(texts, add_special_tokens=False).input_ids
    wrong = [text for text, ids in zip(texts, wanted, strict=True) if ours.encode(text) != ids]
    assert not wrong
    own = {index for name, index in ours.symbols.items() if name != "unk"}
    assert not own.intersection(*[ours.encode(f"a {name} b") for name in names.values()])
    back = [ours.decode(ids) for ids in wanted]
    assert back == theirs.batch_decode(wanted, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_a_sentencepiece_model_alone_says_as_much(tmp_path, kind):
    """Merged pieces with bytes, and tokens that a file adds to them."""
    hf = pytest.importorskip("transformers")
    options = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity"}
    options |= {"remove_extra_whitespaces": False, "add_dummy_prefix": kind != "gemma3_text"}
    options |= {"vocab_size": 350}
    (tmp_path / "tokenizer.model").write_bytes(spiece(**options))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    names = {"llama": "LlamaTokenizer", "gemma3_text": "GemmaTokenizer"}
    about = {"tokenizer_class": names[kind], "legacy": False, **ENDS}
    about["extra_special_tokens"] = ["<hl>", "<sep2>"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    theirs, ours = hf.AutoTokenizer.from_pretrained(tmp_path), open_vocab(tmp_path)
    texts = [t for t in odd_texts() if not any(s in t for s in (*THREE, "<pad>", "<mask>"))]
    assert "<hl>" in ours.pieces(ours.encode("a <hl> b"))
    wanted = theirs(texts, add_special_tokens=False).input_ids
    wrong = [text for text, ids in zip(texts, wanted, strict=True) if ours.encode(text) != ids]
    assert not wrong


def test_merged_pieces_of_no_known_class_have_no_place_for_more(tmp_path):
    options = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 350}
    (tmp_path / "tokenizer.model").write_bytes(spiece(**options))
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    assert open_vocab(tmp_path).pieces(open_vocab(tmp_path).encode("The"))[0] == "▁"
    (tmp_path / "tokenizer_config.json").write_text('{"additional_special_tokens": ["<hl>"]}')
    with pytest.raises(DataError, match=r"'<hl>', but .*tokenizer\.model"):
        open_vocab(tmp_path)


def test_a_token_without_a_row_is_named(tmp_path):
    folder = folder_of(tmp_path, "pythia")
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"vocab_size": 390}))
    with pytest.raises(DataError, match="config.json: vocab_size .* 390, .* 390"):
        open_vocab(folder)
