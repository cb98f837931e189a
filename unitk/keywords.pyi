"""Keyword arguments of unitk's functions. Written by docs/keywords.py."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Required, TypedDict

Schedule = str | float | Callable[[int, int | None], float]
Strings = str | Path | Sequence[str | Path] | Mapping[str, object]
Numbers = str | float | Sequence[str | float]

class PreprocessOptions(TypedDict, total=False):
    input_format: str
    documents: Literal["blank", "line"]
    document_mark: str
    sentences: Literal["lines", "punct"]
    field: Strings
    source_field: Strings
    target_field: Strings
    label_field: str
    labels: Literal["class", "number", "tags", "span", "choice", "links"]
    sentence_mark: str
    skip_empty: bool
    window: int | str | None
    squad_source: str
    dest: Path | str
    input: Strings
    valid: Strings
    test: Strings
    source_file: Strings
    target_file: Strings
    valid_source_file: Strings
    valid_target_file: Strings
    test_source_file: Strings
    test_target_file: Strings
    vocab: Path | str | None
    vocab_size: int | str | None
    vocab_kind: Literal["unigram", "bpe"]
    byte_fallback: bool
    vocab_normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
    vocab_coverage: float | str | None
    vocab_sample: int | str
    vocab_threshold: int | str
    vocab_only: bool
    extra_labels: bool
    annotate: str
    languages: Numbers
    seed: int | str
    workers: int | str | None
    format: str
    source_lang: str
    target_lang: str
    shard: str | None
    overwrite: bool
    config: Path | str | None
    user_dir: Path | str | None
    options: Mapping[str, object] | None

class TrainOptions(TypedDict, total=False):
    data: Strings
    valid: Strings
    save_dir: Path | str
    resume: bool
    new_data: bool
    init_from: Path | str | None
    init_encoder: Path | str | None
    init_decoder: Path | str | None
    config: Path | str | None
    user_dir: Path | str | None
    seeds: int | str | None
    per_label: int | str | None
    max_steps: int | str | None
    max_epochs: int | str | None
    max_words: int | str | None
    max_hours: float | str | None
    patience: int | str | None
    lr: float | str
    lr_schedule: Schedule
    freeze: Strings
    thaw: str | None
    group: Strings
    ema: float | str | None
    average_last: float | str | None
    clip_norm: float | str
    max_tokens: int | str
    batch_tokens: int | str | None
    batch_texts: int | str | None
    stateful_rows: int | str
    blocks: Literal["doc", "full", "stream", "line"]
    block_size: int | str | Schedule
    max_source_len: int | str | None
    max_target_len: int | str | None
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    products: Literal["auto", "torch", "onednn"]
    device: Literal["auto", "cpu", "cuda"]
    attention: Literal["auto", "dense", "flex"]
    recompute: bool
    compile: bool
    profile: bool
    detect_anomaly: bool
    deterministic: bool
    threads: int | str | None
    nproc: int | str
    shard: bool
    rank_timeout: float | str
    seed: int | str
    on_nonfinite: str
    oom_retry: bool
    log_every: int | str | None
    valid_every: int | str
    valid_texts: int | str | None
    valid_generate: int | str | None
    valid_metric: Strings
    valid_beam: int | str
    panel_every: int | str
    panel_texts: int | str
    save_every: int | str
    save_at_words: Numbers
    keep_last: int | str
    keep_best: int | str
    writers: Strings
    best_metric: str | None
    options: Mapping[str, object] | None
    task: Strings | None
    arch: str | None
    criterion: str | None
    optimizer: str | None

class EvaluateOptions(TypedDict, total=False):
    input_format: str
    documents: Literal["blank", "line"]
    document_mark: str
    sentences: Literal["lines", "punct"]
    field: Strings
    source_field: Strings
    target_field: Strings
    label_field: str
    labels: Literal["class", "number", "tags", "span", "choice", "links"]
    sentence_mark: str
    skip_empty: bool
    window: int | str | None
    squad_source: str
    checkpoint: Required[Path | str]
    data: Path | str | None
    choices: Path | str | None
    delimiter: str | None
    infill: Path | str | None
    mask_ratio: Numbers
    last_word: Path | str | None
    pairs: Path | str | None
    bits: bool
    beam: int | str
    max_len: int | str | None
    stateful_rows: int | str
    max_tokens: int | str
    output: Path | str | None
    overwrite: bool
    whole_words: bool
    stride: int | str | None
    context: int | str | None
    draws: int | str | None
    task: str | None
    output_format: Literal["text", "json"]
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    user_dir: Path | str | None
    options: Mapping[str, object] | None

class GenerateOptions(TypedDict, total=False):
    beam: int
    nbest: int
    lenpen: float
    search: Literal["likely", "exact", "fairseq", "glm", "unilm"]
    diverse_beam_groups: int
    diverse_beam_strength: float
    rerank: Literal["auto", "on", "off"]
    max_tokens: int
    capture: bool
    min_len: str | int
    max_len: str | int
    max_words: int | None
    allow_symbols: str
    no_repeat_ngram_size: int
    no_repeat_ngram_ignore: str
    unkpen: float
    bad_words: Path | None
    avoid_part: int
    sampling: bool
    temperature: float
    sampling_topk: int
    sampling_topp: float
    sampling_minp: float
    seed: int
    steps: int | None
    order: Literal["confident", "random", "ancestral"]
    block_length: int | None
    max_source_len: int | None

class EmbedOptions(TypedDict, total=False):
    layer: int
    pool: Literal["mean", "first", "last", "none", "latent"]
    specials: bool
    truncate: bool
    max_tokens: int

class PredictOptions(TypedDict, total=False):
    null_threshold: float
    truncate: bool
    probabilities: bool
    max_tokens: int
