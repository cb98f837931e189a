"""Keyword arguments of unitk's functions. Written by docs/keywords.py."""

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from unitk.api.drawing import Drawing
from unitk.comparison.checks.base import Finding
from unitk.data.corpus.columns import Counts
from unitk.decoding.texts.outputs import Output
from unitk.metrics import Score
from unitk.slots import Floats
from unitk.verbs.serve import Served

Schedule = str | float | Callable[[int, int | None], float]
Records = Iterable[Any]
Strings = str | Path | Sequence[str | Path] | Mapping[str, object]
Numbers = str | float | Sequence[str | float]

class TrainOptions(TypedDict, total=False):
    data: Strings | Records
    valid: Strings | Records
    data_exponent: float | str | Schedule
    save_dir: Path | str
    resume: bool
    new_data: bool
    init_from: Path | str | None
    init_encoder: Path | str | None
    init_decoder: Path | str | None
    config: Path | str | None
    dry_run: bool
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
    adapter: str | None
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
    residual: Literal["full", "half"]
    recompute: bool
    compile: bool
    static: bool
    capture: bool
    profile: bool
    detect_anomaly: bool
    deterministic: bool
    threads: int | str | None
    nproc: int | str
    shard: bool
    save_shards: bool
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
    preprocess: Mapping[str, object] | None
    task: Strings | None
    arch: str | None
    criterion: str | None
    optimizer: str | None

class GenerateOptions(TypedDict, total=False):
    beam: int
    nbest: int
    lenpen: float
    search: Literal["likely", "exact", "fairseq", "glm", "unilm"]
    diverse_beam_groups: int
    diverse_beam_strength: float
    contrast: float
    rerank: Literal["auto", "on", "off"]
    max_tokens: int
    capture: Literal["auto", "on", "off"]
    min_len: str | int
    max_len: str | int
    max_words: int | None
    allow_symbols: str
    end_symbols: str
    begin_word: bool
    sentences: int
    extract: bool
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
    best_of: int
    repeat_cost: float
    seed: int
    steps: int | None
    order: Literal["confident", "random", "ancestral"]
    block_length: int | None
    max_source_len: int | None
    key_phrases: Strings

class EmbedOptions(TypedDict, total=False):
    layer: int
    pool: Literal["auto", "mean", "first", "last", "none", "latent"]
    side: Literal["source", "target"]
    specials: bool
    truncate: bool
    max_tokens: int

class PredictOptions(TypedDict, total=False):
    null_threshold: float
    truncate: bool
    probabilities: bool
    max_tokens: int

def average(
    *,
    checkpoint: Strings,
    last: int | str | None = ...,
    dest: Path | str,
    options: Mapping[str, object] | None = ...,
) -> Path: ...
def convert(
    *,
    from_: Strings,
    to: Strings,
    revisions: bool = ...,
    license: str = ...,
    language: Strings = ...,
    dataset: Strings = ...,
    scores: Strings = ...,
    dtype: Literal["f32", "f16", "q8_0"] = ...,
    pool: Literal["auto", "mean", "first", "last"] = ...,
    specials: bool = ...,
    normalize: bool = ...,
    vocab: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> None: ...
def embed(
    texts: Strings = ...,
    *,
    checkpoint: Path | str = ...,
    task: str | None = ...,
    input: Path | str | None = ...,
    input_format: str = ...,
    truncate: bool = ...,
    output: Path | str = ...,
    overwrite: bool = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    precision: Literal["fp32", "bf16", "fp16"] = ...,
    max_tokens: int | str = ...,
    config: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    layer: int | str = ...,
    pool: Literal["auto", "mean", "first", "last", "none", "latent"] = ...,
    side: Literal["source", "target"] = ...,
    specials: bool = ...,
    source_field: Strings = ...,
    dimensions: int | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> Floats | builtins.list[Floats]: ...
def evaluate(
    *,
    input_format: str = ...,
    documents: Literal["blank", "line"] = ...,
    document_mark: str = ...,
    sentences: Literal["lines", "punct"] = ...,
    field: Strings = ...,
    source_field: Strings = ...,
    target_field: Strings = ...,
    label_field: str = ...,
    labels: Literal["class", "classes", "number", "tags", "span", "choice", "links"] = ...,
    sentence_mark: str = ...,
    skip_empty: bool = ...,
    window: int | str | None = ...,
    squad_source: str = ...,
    checkpoint: Path | str,
    data: Path | str | None = ...,
    choices: Path | str | None = ...,
    delimiter: str | None = ...,
    infill: Path | str | None = ...,
    mask_ratio: Numbers = ...,
    last_word: Path | str | None = ...,
    pairs: Path | str | None = ...,
    bits: bool = ...,
    beam: int | str = ...,
    max_len: int | str | None = ...,
    stateful_rows: int | str = ...,
    max_tokens: int | str = ...,
    output: Path | str | None = ...,
    overwrite: bool = ...,
    whole_words: bool = ...,
    stride: int | str | None = ...,
    context: int | str | None = ...,
    draws: int | str | None = ...,
    task: str | None = ...,
    output_format: Literal["text", "json"] = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    precision: Literal["fp32", "bf16"] = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> dict[str, Any]: ...
def generate(
    texts: Strings = ...,
    *,
    beam: int | str = ...,
    nbest: int | str = ...,
    lenpen: float | str = ...,
    search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
    diverse_beam_groups: int | str = ...,
    diverse_beam_strength: float | str = ...,
    contrast: float | str = ...,
    rerank: Literal["auto", "on", "off"] = ...,
    max_tokens: int | str = ...,
    capture: Literal["auto", "on", "off"] = ...,
    min_len: str | int = ...,
    max_len: str | int = ...,
    max_words: int | str | None = ...,
    allow_symbols: str = ...,
    end_symbols: str = ...,
    begin_word: bool = ...,
    sentences: int | str = ...,
    extract: bool = ...,
    no_repeat_ngram_size: int | str = ...,
    no_repeat_ngram_ignore: str = ...,
    unkpen: float | str = ...,
    bad_words: Path | str | None = ...,
    avoid_part: int | str = ...,
    sampling: bool = ...,
    temperature: float | str = ...,
    sampling_topk: int | str = ...,
    sampling_topp: float | str = ...,
    sampling_minp: float | str = ...,
    best_of: int | str = ...,
    repeat_cost: float | str = ...,
    seed: int | str = ...,
    steps: int | str | None = ...,
    order: Literal["confident", "random", "ancestral"] = ...,
    block_length: int | str | None = ...,
    max_source_len: int | str | None = ...,
    key_phrases: Strings = ...,
    checkpoint: Strings = ...,
    task: str | None = ...,
    input: Path | str | None = ...,
    infill: str | None = ...,
    num_samples: int | str | None = ...,
    prefix_file: Path | str | None = ...,
    constraints: Path | str | None = ...,
    output: Path | str = ...,
    overwrite: bool = ...,
    input_format: str = ...,
    squad_source: str = ...,
    source_field: Strings = ...,
    target_field: Strings = ...,
    output_format: Literal["auto", "text", "jsonl", "csv", "fairseq"] = ...,
    truncate: bool = ...,
    score: bool = ...,
    references: Path | str | None = ...,
    print_alignment: Literal["off", "hard", "soft"] = ...,
    alignment_layer: int | str = ...,
    interactive: bool = ...,
    buffer_size: int | str = ...,
    resume: bool = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    precision: Literal["fp32", "bf16", "fp16", "int8"] = ...,
    config: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> builtins.list[builtins.list[Output]]: ...
def merge(
    parts: Strings,
    *,
    dest: Path | str,
    overwrite: bool = ...,
    options: Mapping[str, object] | None = ...,
) -> None: ...
def plot(
    runs: Strings,
    *,
    output: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> Path: ...
def predict(
    texts: Strings = ...,
    *,
    checkpoint: Strings = ...,
    task: str | None = ...,
    input: Path | str | None = ...,
    input_format: str = ...,
    truncate: bool = ...,
    output: Path | str = ...,
    overwrite: bool = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    precision: Literal["fp32", "bf16", "fp16"] = ...,
    max_tokens: int | str = ...,
    config: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    null_threshold: float | str = ...,
    probabilities: bool = ...,
    source_field: Strings = ...,
    output_format: Literal["jsonl", "text"] = ...,
    resume: bool = ...,
    options: Mapping[str, object] | None = ...,
) -> builtins.list[dict[str, Any]]: ...
def push(
    *,
    model: Path | str,
    repo: str,
    public: bool = ...,
    include: Strings = ...,
    message: str = ...,
    options: Mapping[str, object] | None = ...,
) -> None: ...
def preprocess(
    *,
    input_format: str = ...,
    documents: Literal["blank", "line"] = ...,
    document_mark: str = ...,
    sentences: Literal["lines", "punct"] = ...,
    field: Strings = ...,
    source_field: Strings = ...,
    target_field: Strings = ...,
    label_field: str = ...,
    labels: Literal["class", "classes", "number", "tags", "span", "choice", "links"] = ...,
    sentence_mark: str = ...,
    skip_empty: bool = ...,
    window: int | str | None = ...,
    squad_source: str = ...,
    dest: Path | str = ...,
    input: Strings | Records = ...,
    valid: Strings | Records = ...,
    test: Strings | Records = ...,
    source_file: Strings = ...,
    target_file: Strings = ...,
    valid_source_file: Strings = ...,
    valid_target_file: Strings = ...,
    test_source_file: Strings = ...,
    test_target_file: Strings = ...,
    vocab: Path | str | None = ...,
    vocab_size: int | str | None = ...,
    vocab_kind: Literal["unigram", "bpe"] = ...,
    byte_fallback: bool = ...,
    vocab_normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = ...,
    vocab_coverage: float | str | None = ...,
    vocab_sample: int | str = ...,
    vocab_threshold: int | str = ...,
    vocab_only: bool = ...,
    extra_labels: bool = ...,
    annotate: Strings = ...,
    languages: Numbers = ...,
    seed: int | str = ...,
    workers: int | str | None = ...,
    format: str = ...,
    source_lang: str = ...,
    target_lang: str = ...,
    shard: str | None = ...,
    overwrite: bool = ...,
    config: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> dict[str, dict[str, Counts]]: ...
def score(
    *,
    metric: Strings,
    hypotheses: Path | str | Records,
    references: Strings | Records,
    sources: Path | str | None | Records = ...,
    hypothesis_field: Strings = ...,
    label_field: str = ...,
    target_field: Strings = ...,
    source_field: Strings = ...,
    treebank: Strings = ...,
    tokenize: Literal[
        "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"
    ] = ...,
    rouge_words: Literal["ascii", "unicode"] = ...,
    lowercase: bool = ...,
    separator: str = ...,
    output: Path | str | None = ...,
    overwrite: bool = ...,
    output_format: Literal["text", "json"] = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> dict[str, Score]: ...
def show(
    text: Strings = ...,
    *,
    target: str | None = ...,
    output: Path | str | None = ...,
    vocab: Path | str | None = ...,
    seed: int | str = ...,
    order: Literal["memory", "pos"] = ...,
    user_dir: Path | str | None = ...,
    task: str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> builtins.list[Drawing]: ...
def list(
    kind: str | None = ...,
    *,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> dict[str, dict[str, str]]: ...
def check(
    paths: Strings = ...,
    *,
    shared: float | str = ...,
    output_format: Literal["text", "json"] = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> builtins.list[Finding]: ...
def compare(
    runs: Strings = ...,
    *,
    input_format: str = ...,
    documents: Literal["blank", "line"] = ...,
    document_mark: str = ...,
    sentences: Literal["lines", "punct"] = ...,
    field: Strings = ...,
    source_field: Strings = ...,
    target_field: Strings = ...,
    label_field: str = ...,
    labels: Literal["class", "classes", "number", "tags", "span", "choice", "links"] = ...,
    sentence_mark: str = ...,
    skip_empty: bool = ...,
    window: int | str | None = ...,
    squad_source: str = ...,
    data: Path | str,
    output: Path | str | None = ...,
    table: Path | str | None = ...,
    overwrite: bool = ...,
    page_documents: int | str = ...,
    task: str | None = ...,
    stride: int | str | None = ...,
    context: int | str | None = ...,
    draws: int | str | None = ...,
    max_tokens: int | str = ...,
    precision: Literal["fp32", "bf16"] = ...,
    output_format: Literal["text", "json"] = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> builtins.list[dict[str, Any]]: ...
def sweep(
    *,
    over: Strings,
    save_dir: Path | str,
    trials: int | str | None = ...,
    halving: int | str | None = ...,
    rungs: int | str = ...,
    seed: int | str = ...,
    train: Mapping[str, object],
    options: Mapping[str, object] | None = ...,
) -> builtins.list[dict[str, Any]]: ...
def quickstart(
    *,
    data: Path | str | None = ...,
    save_dir: Path | str = ...,
    init_from: Path | str = ...,
    teacher: Path | str | None = ...,
    max_steps: int | str = ...,
    options: Mapping[str, object] | None = ...,
) -> None: ...
def scale(
    *,
    sizes: Strings,
    tokens: Numbers,
    tasks: Strings = ...,
    held_out: str | None = ...,
    save_dir: Path | str,
    jobs: int | str = ...,
    plan: bool = ...,
    train: Mapping[str, object],
    options: Mapping[str, object] | None = ...,
) -> dict[str, Any]: ...
def mix(
    *,
    tasks: Strings,
    judge: Strings = ...,
    grid: int | str = ...,
    divide: int | str = ...,
    verify: bool = ...,
    save_dir: Path | str,
    jobs: int | str = ...,
    plan: bool = ...,
    train: Mapping[str, object],
    options: Mapping[str, object] | None = ...,
) -> dict[str, Any]: ...
def search(
    texts: Strings = ...,
    *,
    checkpoint: Path | str = ...,
    task: str | None = ...,
    input: Path | str | None = ...,
    input_format: str = ...,
    truncate: bool = ...,
    output: Path | str = ...,
    overwrite: bool = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    precision: Literal["fp32", "bf16", "fp16"] = ...,
    max_tokens: int | str = ...,
    config: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    layer: int | str = ...,
    pool: Literal["auto", "mean", "first", "last", "none", "latent"] = ...,
    side: Literal["source", "target"] = ...,
    specials: bool = ...,
    source_field: Strings = ...,
    documents: Strings = ...,
    document_field: Strings = ...,
    id_field: str = ...,
    vectors: Path | str | None = ...,
    top: int | str = ...,
    dimensions: int | str | None = ...,
    output_format: Literal["auto", "jsonl", "trec"] = ...,
    options: Mapping[str, object] | None = ...,
) -> builtins.list[dict[str, Any]]: ...
def serve(
    *,
    max_body: int | str = ...,
    max_texts: int | str = ...,
    max_chars: int | str = ...,
    max_output: int | str = ...,
    max_beam: int | str = ...,
    max_queue: int | str = ...,
    max_work: int | str = ...,
    max_tokens: int | str = ...,
    max_connections: int | str = ...,
    timeout: float | str = ...,
    read_timeout: float | str = ...,
    checkpoint: Strings = ...,
    host: str = ...,
    allow_host: Strings = ...,
    root_path: str = ...,
    api_key: Path | str | None = ...,
    access_log: Path | str | None = ...,
    port: int | str = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    precision: Literal["fp32", "bf16", "fp16", "int8"] = ...,
    config: Path | str | None = ...,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> Served: ...
def fairseq_plugin(
    *,
    dest: Path | str,
    user_dir: Path | str | None = ...,
    options: Mapping[str, object] | None = ...,
) -> Path: ...
def launch(
    *,
    scheduler: Literal["slurm", "kubeflow", "skypilot"],
    nodes: int | str = ...,
    gpus: int | str = ...,
    cpus: int | str = ...,
    time: str = ...,
    name: str = ...,
    shards: int | str | None = ...,
    gpu_type: str = ...,
    image: str = ...,
    add: Strings = ...,
    output: Path | str | None = ...,
    overwrite: bool = ...,
    submit: bool = ...,
    train: Mapping[str, object],
    options: Mapping[str, object] | None = ...,
) -> str: ...

class analyse:
    @staticmethod
    def contextuality(
        texts: Strings = ...,
        *,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        max_tokens: int | str = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        source_field: Strings = ...,
        min_count: int | str = ...,
        max_count: int | str = ...,
        seed: int | str = ...,
        plot: Path | str | None = ...,
        output_format: Literal["text", "json"] = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, float]]: ...
    @staticmethod
    def vectors(
        texts: Strings = ...,
        *,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        max_tokens: int | str = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        source_field: Strings = ...,
        layer: int | str = ...,
        reduce: Literal["component", "mean"] = ...,
        lowercase: bool = ...,
        min_count: int | str = ...,
        max_count: int | str = ...,
        seed: int | str = ...,
        options: Mapping[str, object] | None = ...,
    ) -> dict[str, Floats]: ...
    @staticmethod
    def heads(
        *,
        checkpoint: Path | str,
        data: Path | str,
        over_run: bool = ...,
        each: bool = ...,
        step: float | str = ...,
        until: float | str = ...,
        dest: Path | str | None = ...,
        task: str | None = ...,
        plot: Path | str | None = ...,
        output_format: Literal["text", "json"] = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        max_tokens: int | str = ...,
        user_dir: Path | str | None = ...,
        options: Mapping[str, object] | None = ...,
    ) -> dict[str, Any]: ...

class latent:
    @staticmethod
    def encode(
        texts: Strings = ...,
        *,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        max_tokens: int | str = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        feature: Literal["mean", "std", "kl", "pooled"] = ...,
        options: Mapping[str, object] | None = ...,
    ) -> Floats: ...
    @staticmethod
    def plot(
        texts: Strings = ...,
        *,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        max_tokens: int | str = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        method: Literal["pca", "tsne", "umap"] = ...,
        feature: Literal["mean", "pooled"] = ...,
        names: int | str = ...,
        seed: int | str = ...,
        options: Mapping[str, object] | None = ...,
    ) -> Path: ...
    @staticmethod
    def sample(
        texts: Strings = ...,
        *,
        beam: int | str = ...,
        nbest: int | str = ...,
        lenpen: float | str = ...,
        search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
        diverse_beam_groups: int | str = ...,
        diverse_beam_strength: float | str = ...,
        contrast: float | str = ...,
        rerank: Literal["auto", "on", "off"] = ...,
        max_tokens: int | str = ...,
        capture: Literal["auto", "on", "off"] = ...,
        min_len: str | int = ...,
        max_len: str | int = ...,
        max_words: int | str | None = ...,
        allow_symbols: str = ...,
        end_symbols: str = ...,
        begin_word: bool = ...,
        sentences: int | str = ...,
        extract: bool = ...,
        no_repeat_ngram_size: int | str = ...,
        no_repeat_ngram_ignore: str = ...,
        unkpen: float | str = ...,
        bad_words: Path | str | None = ...,
        avoid_part: int | str = ...,
        sampling: bool = ...,
        temperature: float | str = ...,
        sampling_topk: int | str = ...,
        sampling_topp: float | str = ...,
        sampling_minp: float | str = ...,
        best_of: int | str = ...,
        repeat_cost: float | str = ...,
        seed: int | str = ...,
        steps: int | str | None = ...,
        order: Literal["confident", "random", "ancestral"] = ...,
        block_length: int | str | None = ...,
        max_source_len: int | str | None = ...,
        key_phrases: Strings = ...,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        count: int | str = ...,
        spread: float | str = ...,
        among: Path | str | None = ...,
        label: str = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def reconstruct(
        texts: Strings = ...,
        *,
        beam: int | str = ...,
        nbest: int | str = ...,
        lenpen: float | str = ...,
        search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
        diverse_beam_groups: int | str = ...,
        diverse_beam_strength: float | str = ...,
        contrast: float | str = ...,
        rerank: Literal["auto", "on", "off"] = ...,
        max_tokens: int | str = ...,
        capture: Literal["auto", "on", "off"] = ...,
        min_len: str | int = ...,
        max_len: str | int = ...,
        max_words: int | str | None = ...,
        allow_symbols: str = ...,
        end_symbols: str = ...,
        begin_word: bool = ...,
        sentences: int | str = ...,
        extract: bool = ...,
        no_repeat_ngram_size: int | str = ...,
        no_repeat_ngram_ignore: str = ...,
        unkpen: float | str = ...,
        bad_words: Path | str | None = ...,
        avoid_part: int | str = ...,
        sampling: bool = ...,
        temperature: float | str = ...,
        sampling_topk: int | str = ...,
        sampling_topp: float | str = ...,
        sampling_minp: float | str = ...,
        best_of: int | str = ...,
        repeat_cost: float | str = ...,
        seed: int | str = ...,
        steps: int | str | None = ...,
        order: Literal["confident", "random", "ancestral"] = ...,
        block_length: int | str | None = ...,
        max_source_len: int | str | None = ...,
        key_phrases: Strings = ...,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def interpolate(
        texts: Strings = ...,
        *,
        beam: int | str = ...,
        nbest: int | str = ...,
        lenpen: float | str = ...,
        search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
        diverse_beam_groups: int | str = ...,
        diverse_beam_strength: float | str = ...,
        contrast: float | str = ...,
        rerank: Literal["auto", "on", "off"] = ...,
        max_tokens: int | str = ...,
        capture: Literal["auto", "on", "off"] = ...,
        min_len: str | int = ...,
        max_len: str | int = ...,
        max_words: int | str | None = ...,
        allow_symbols: str = ...,
        end_symbols: str = ...,
        begin_word: bool = ...,
        sentences: int | str = ...,
        extract: bool = ...,
        no_repeat_ngram_size: int | str = ...,
        no_repeat_ngram_ignore: str = ...,
        unkpen: float | str = ...,
        bad_words: Path | str | None = ...,
        avoid_part: int | str = ...,
        sampling: bool = ...,
        temperature: float | str = ...,
        sampling_topk: int | str = ...,
        sampling_topp: float | str = ...,
        sampling_minp: float | str = ...,
        best_of: int | str = ...,
        repeat_cost: float | str = ...,
        seed: int | str = ...,
        steps: int | str = ...,
        order: Literal["confident", "random", "ancestral"] = ...,
        block_length: int | str | None = ...,
        max_source_len: int | str | None = ...,
        key_phrases: Strings = ...,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        path: Literal["lerp", "slerp"] = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def analogy(
        texts: Strings = ...,
        *,
        beam: int | str = ...,
        nbest: int | str = ...,
        lenpen: float | str = ...,
        search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
        diverse_beam_groups: int | str = ...,
        diverse_beam_strength: float | str = ...,
        contrast: float | str = ...,
        rerank: Literal["auto", "on", "off"] = ...,
        max_tokens: int | str = ...,
        capture: Literal["auto", "on", "off"] = ...,
        min_len: str | int = ...,
        max_len: str | int = ...,
        max_words: int | str | None = ...,
        allow_symbols: str = ...,
        end_symbols: str = ...,
        begin_word: bool = ...,
        sentences: int | str = ...,
        extract: bool = ...,
        no_repeat_ngram_size: int | str = ...,
        no_repeat_ngram_ignore: str = ...,
        unkpen: float | str = ...,
        bad_words: Path | str | None = ...,
        avoid_part: int | str = ...,
        sampling: bool = ...,
        temperature: float | str = ...,
        sampling_topk: int | str = ...,
        sampling_topp: float | str = ...,
        sampling_minp: float | str = ...,
        best_of: int | str = ...,
        repeat_cost: float | str = ...,
        seed: int | str = ...,
        steps: int | str | None = ...,
        order: Literal["confident", "random", "ancestral"] = ...,
        block_length: int | str | None = ...,
        max_source_len: int | str | None = ...,
        key_phrases: Strings = ...,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        degree: Numbers = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def restyle(
        texts: Strings = ...,
        *,
        beam: int | str = ...,
        nbest: int | str = ...,
        lenpen: float | str = ...,
        search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
        diverse_beam_groups: int | str = ...,
        diverse_beam_strength: float | str = ...,
        contrast: float | str = ...,
        rerank: Literal["auto", "on", "off"] = ...,
        max_tokens: int | str = ...,
        capture: Literal["auto", "on", "off"] = ...,
        min_len: str | int = ...,
        max_len: str | int = ...,
        max_words: int | str | None = ...,
        allow_symbols: str = ...,
        end_symbols: str = ...,
        begin_word: bool = ...,
        sentences: int | str = ...,
        extract: bool = ...,
        no_repeat_ngram_size: int | str = ...,
        no_repeat_ngram_ignore: str = ...,
        unkpen: float | str = ...,
        bad_words: Path | str | None = ...,
        avoid_part: int | str = ...,
        sampling: bool = ...,
        temperature: float | str = ...,
        sampling_topk: int | str = ...,
        sampling_topp: float | str = ...,
        sampling_minp: float | str = ...,
        best_of: int | str = ...,
        repeat_cost: float | str = ...,
        seed: int | str = ...,
        steps: int | str | None = ...,
        order: Literal["confident", "random", "ancestral"] = ...,
        block_length: int | str | None = ...,
        max_source_len: int | str | None = ...,
        key_phrases: Strings = ...,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        degree: Numbers = ...,
        among: Path | str = ...,
        from_: str = ...,
        to: str = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def traverse(
        texts: Strings = ...,
        *,
        beam: int | str = ...,
        nbest: int | str = ...,
        lenpen: float | str = ...,
        search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = ...,
        diverse_beam_groups: int | str = ...,
        diverse_beam_strength: float | str = ...,
        contrast: float | str = ...,
        rerank: Literal["auto", "on", "off"] = ...,
        max_tokens: int | str = ...,
        capture: Literal["auto", "on", "off"] = ...,
        min_len: str | int = ...,
        max_len: str | int = ...,
        max_words: int | str | None = ...,
        allow_symbols: str = ...,
        end_symbols: str = ...,
        begin_word: bool = ...,
        sentences: int | str = ...,
        extract: bool = ...,
        no_repeat_ngram_size: int | str = ...,
        no_repeat_ngram_ignore: str = ...,
        unkpen: float | str = ...,
        bad_words: Path | str | None = ...,
        avoid_part: int | str = ...,
        sampling: bool = ...,
        temperature: float | str = ...,
        sampling_topk: int | str = ...,
        sampling_topp: float | str = ...,
        sampling_minp: float | str = ...,
        best_of: int | str = ...,
        repeat_cost: float | str = ...,
        seed: int | str = ...,
        steps: int | str = ...,
        order: Literal["confident", "random", "ancestral"] = ...,
        block_length: int | str | None = ...,
        max_source_len: int | str | None = ...,
        key_phrases: Strings = ...,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        dimension: Numbers = ...,
        active: int | str = ...,
        reach: float | str = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def neighbors(
        texts: Strings = ...,
        *,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        max_tokens: int | str = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        among: Path | str = ...,
        count: int | str = ...,
        metric: Literal["euclidean", "cosine"] = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
    @staticmethod
    def probe(
        texts: Strings = ...,
        *,
        checkpoint: Path | str = ...,
        task: str | None = ...,
        input: Path | str | None = ...,
        input_format: str = ...,
        truncate: bool = ...,
        output: Path | str = ...,
        overwrite: bool = ...,
        device: Literal["auto", "cpu", "cuda"] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        max_tokens: int | str = ...,
        config: Path | str | None = ...,
        user_dir: Path | str | None = ...,
        output_format: Literal["text", "jsonl"] = ...,
        test: Path | str = ...,
        per_class: Numbers = ...,
        seeds: int | str = ...,
        feature: Literal["pooled", "mean"] = ...,
        penalty: float | str = ...,
        options: Mapping[str, object] | None = ...,
    ) -> builtins.list[dict[str, Any]]: ...
