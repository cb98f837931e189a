"""Write a causal model as one file of llama.cpp: weights, settings and tokenizer.

The names of tensors and settings are those of `gguf/constants.py` in the package gguf. llama.cpp
turns channels i and i + K/2 of a head together, as transformers does, but of `llama` the channels
2i and 2i + 1, as unitk does.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unitk.errors import UsageError, require
from unitk.files import create
from unitk.formats.base import Format
from unitk.formats.gguf.vocabulary import Framing, tokenizer_entries
from unitk.formats.names import HALVES, Layout, Stored, StoredNames, prefix_names
from unitk.formats.settings import find_differences
from unitk.models.config import ModelConfig
from unitk.models.relative import slow_down
from unitk.registry import register
from unitk.slots import NEVER
from unitk.tasks.base import Task
from unitk.training.saving.checkpoint import Loaded

Dtype = Literal["f32", "f16", "q8_0"]
MODEL_FILE = "model.gguf"
VIRTUAL = "embed.virtual.weight"
LONGEST = 32_768  # positions, written for models without a limit
BLOCK = 32  # inputs of a row that have one scale in 8 bits

QUERIES_AND_KEYS = r"blk\.\d+\.attn_[qk](_norm)?\.(weight|bias)"
MAPS: dict[str, StoredNames] = {
    "attention.qkv": ("attn_q", "attn_k", "attn_v"),
    "attention.query": "attn_q",
    "attention.kv": ("attn_k", "attn_v"),
    "attention.query_norm": "attn_q_norm",
    "attention.key_norm": "attn_k_norm",
    "attention.out": "attn_output",
    "ffn.up": ("ffn_gate", "ffn_up"),
    "ffn.down": "ffn_down",
}
NORMS = {"attention_norm": "attn_norm", "ffn_norm": "ffn_norm"}
AFTER = {"attention_after": "post_attention_norm", "ffn_after": "post_ffw_norm"}


def _table(parts: Mapping[str, StoredNames], forms: Mapping[str, Stored], **names: str) -> Layout:
    """The table of names, with these parts of a layer."""
    return Layout(
        {
            "embed.tokens": "token_embd",
            "norm": "output_norm",
            "heads.lm.weight": "output.weight",
            **names,
            **prefix_names("blk.#.", "layers.#.", parts),
        },
        forms=forms,
    )


def _join(rows: Tensor, config: ModelConfig) -> Tensor:
    """Queries, keys and values in one matrix, of whose heads the first channels turn."""
    *turning, values = rows.chunk(3)
    joined = []
    for part in turning:
        heads = part.unflatten(0, (config.num_heads, config.key_width))
        first, rest = heads.split([number := _count_rotated(config), config.key_width - number], 1)
        halves = first.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)
        joined.append(torch.cat([halves, rest], 1).flatten(0, 1))
    return torch.cat([*joined, values])


def _count_rotated(config: ModelConfig) -> int:
    """How many channels of a head turn with the position."""
    return round(config.key_width * config.rotary_share)


JOINED = Stored(_join, _join)


def _rotary(config: ModelConfig) -> dict[str, Any]:
    """The settings of rotary positions."""
    entries: dict[str, Any] = {
        "rope.dimension_count": _count_rotated(config),
        "rope.freq_base": float(config.rotary_base),
    }
    if config.rotary_factor != 1 and not config.rotary_wavelengths:
        entries |= {"rope.scaling.type": "linear", "rope.scaling.factor": config.rotary_factor}
    return entries


def _windows(config: ModelConfig) -> dict[str, Any]:
    """The settings of layers some of which see a window, and have another base (Gemma 3)."""
    kinds = config.layer_kinds
    near, far = (
        {kind for kind in kinds if bool(kind[0]) == sees_window} for sees_window in (True, False)
    )
    require(
        len(near) == len(far) == 1,
        "--to gguf: a gemma3 model has layers of one window, and others without "
        "(--arch.layer-windows, --arch.layer-rotary-bases)",
    )
    require(
        config.rotary_factor == 1,
        "--to gguf: a gemma3 model scales no positions in layers with a window, but "
        f"--arch.rotary-factor is {config.rotary_factor}",
    )
    [(window, base)], [(_, wide_base)] = near, far
    return _rotary(config) | {
        "attention.sliding_window": window + 1,  # the slot itself is one of them there
        "attention.sliding_window_pattern": [bool(kind[0]) for kind in kinds],
        "rope.freq_base": float(wide_base),
        "rope.freq_base_swa": float(base),
    }


@dataclass(frozen=True, kw_only=True)
class Computed:
    """An architecture of llama.cpp that computes what some settings of unitk's stack compute."""

    preset: str
    """unitk's architecture; what differs in a field that is not free is refused."""
    layout: Layout
    free: tuple[str, ...] = ()
    settings: Callable[[ModelConfig], dict[str, Any]] = _rotary
    """Entries of the file beside those that all stacks have."""


TURNS = {QUERIES_AND_KEYS: HALVES}
STACKS = {
    "qwen3": Computed(preset="qwen3_mini", layout=_table({**MAPS, **NORMS}, TURNS)),
    "qwen2": Computed(preset="qwen2_0.5b", layout=_table({**MAPS, **NORMS}, TURNS)),
    # the one whose channels of a pair are neighbours, as here
    "llama": Computed(
        preset="llama_135m",
        layout=_table({**MAPS, **NORMS}, {}),
        free=("rotary_wavelengths",),
    ),
    "gemma3": Computed(
        preset="gemma3_tiny",
        layout=_table({**MAPS, **NORMS, **AFTER}, TURNS),
        free=("layer_windows", "layer_rotary_bases"),
        settings=_windows,
    ),
    "olmo2": Computed(preset="olmo2_1b", layout=_table({**MAPS, **AFTER}, TURNS)),
    "gptneox": Computed(
        preset="pythia_tiny",
        layout=_table(
            {**MAPS, **NORMS, "attention.qkv": "attn_qkv", "ffn.up": "ffn_up"},
            {r"blk\.\d+\.attn_qkv\.(weight|bias)": JOINED},
        ),
        free=("rotary_share", "parallel_residual"),
        settings=lambda config: (
            _rotary(config) | {"use_parallel_residual": config.parallel_residual}
        ),
    ),
    "gpt2": Computed(
        preset="gpt2_small",
        layout=_table(
            {**MAPS, **NORMS, "attention.qkv": "attn_qkv", "ffn.up": "ffn_up"},
            {},
            **{"embed.positions": "position_embd"},
        ),
        settings=lambda config: {},
    ),
}
FREE = {"num_kv_heads", "head_width", "norm_eps", "tied", "num_virtual"}
FREE |= {"rotary_base", "rotary_factor"}


def stack_of(config: ModelConfig, arch: str) -> str:
    """The architecture of llama.cpp that a model fits; `UsageError` names what none has."""
    family = arch.partition("_")[0]
    architectures = dict[str, list[str]]()
    for name, stack in STACKS.items():
        architectures[name] = find_differences(config, stack.preset, FREE | {*stack.free})
        if not architectures[name]:
            return name
    # the one named as the model says what it lacks, or else the nearest
    nearest = min(
        architectures,
        key=lambda stack: (not STACKS[stack].preset.startswith(family), len(architectures[stack])),
    )
    raise UsageError(f"--to gguf: a {nearest} model has {architectures[nearest][0]}")


def framing_of(task: Task, reader: Task | None = None) -> Framing:
    """The symbols around a prompt; `UsageError` where a task does not continue texts.

    `reader` is the task of the same model that does.
    """
    lacks = (
        f"--to gguf: llama.cpp continues texts from left to right, but task {task.name} does not"
    )
    protocol, head = task.protocol, task.head
    shifts = protocol is not None and protocol.probe is None and protocol.begin is None
    cure = "" if shifts else "; --to sentence-transformers and --to hf take what reads both sides"
    cure = cure if reader is None else f"; --task {reader.name} writes this model as one that does"
    require(shifts and not head, lacks + cure)
    assert protocol is not None
    # any two words will do: a symbol among them could not be told from the frame
    words = np.setdiff1d(task.words, [*task.vocab.symbols.values()])[-2:]  # of which two tell order
    towers = task.prompt([words]).towers
    require(towers.keys() == {"x"}, lacks)
    slots = towers["x"]
    # one slot after the other, which all stay: what a cache of keys and values can hold
    reads = (slots.pos == np.arange(len(slots))).all() and (np.diff(slots.now) > 0).all()
    stays = (slots.born == slots.now).all() and (slots.dies == NEVER).all()
    plain = not (slots.pos2.any() or slots.seg.any())
    tokens = slots.token.tolist()
    at = tokens.index(words[0]) if words[0] in tokens else len(tokens)
    before = tokens[:at]
    after = tokens[at + len(words) :]
    whole = tokens == [*before, *words.tolist(), *after]
    require(reads and stays and plain and whole, lacks)
    framed = len(before) <= 1 and after in ([], [protocol.end])
    require(framed, f"--to gguf: a prompt there has one symbol on either side, not as {task.name}")
    return Framing(opening=next(iter(before), None), closed=bool(after), protocol=protocol)


def _name_of(parts: Loaded, stack: str) -> str:
    """What programs show as the name of a model: that of its run or folder."""
    path = parts.path
    if path is None:
        return parts.config.get("arch", stack)
    return path.parents[1].name if path.parent.name == "checkpoints" else path.name


def write(parts: Loaded, folder: Path, dtype: Dtype = "f16") -> None:
    """Write model.gguf into an empty folder, with matrices of this type and other tensors in f32.

    In q8_0, a matrix whose rows are no multiple of 32 long is written in f16.
    """
    config = parts.model.config
    task = parts.task
    prompt = framing_of(task, parts.reader)
    name = stack_of(config, parts.config.get("arch", ""))
    stack = STACKS[name]
    tensors = parts.tensors()
    rows = len(tensors["embed.tokens.weight"])
    if tensors.pop(VIRTUAL, None) is not None:
        require(
            not task.virtual,
            f"--to gguf: there is no row for {', '.join(task.virtual)}, which task {task.name} "
            "reads",
        )
    # all that can be refused is, before anything is written
    entries = {"general.architecture": name, "general.name": _name_of(parts, name)}
    entries |= {f"{name}.{key}": value for key, value in entries_of(config, rows).items()}
    entries |= {f"{name}.{key}": value for key, value in stack.settings(config).items()}
    entries |= tokenizer_entries(task.vocab, rows, prompt)
    stored = stack.layout.to_stored(tensors, config)
    if config.rotary_wavelengths:
        # by what each pair's angle is divided: by the same without scaling, if it were one
        pairs = config.key_width // 2
        speed = config.rotary_base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        stored["rope_freqs.weight"] = (speed / slow_down(config, speed)).float()
    if importlib.util.find_spec("gguf") is None:
        raise UsageError("--to gguf needs the package gguf: pip install 'unitk[gguf]'")
    _save(
        folder / MODEL_FILE,
        entries,
        {key: _pack(key, tensor, dtype) for key, tensor in stored.items()},
        dtype,
    )


def entries_of(config: ModelConfig, rows: int) -> dict[str, Any]:
    """The settings that every stack has, under llama.cpp's names."""
    eps = "layer_norm_rms_epsilon" if config.norm == "rms" else "layer_norm_epsilon"
    return {
        "block_count": config.num_layers,
        "context_length": config.max_positions or LONGEST,
        "embedding_length": config.width,
        "feed_forward_length": config.ffn_width,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.key_width,
        "attention.value_length": config.key_width,
        f"attention.{eps}": config.norm_eps,
        "vocab_size": rows,
    }


def _pack(name: str, tensor: Tensor, dtype: Dtype) -> tuple[Any, Any]:
    """The values of a tensor as they are stored, and their type if the array does not tell it."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    values = tensor.float().numpy()
    # norms, biases and tables of positions stay: they are small, and read as floats
    if dtype == "f32" or tensor.dim() < 2 or name.startswith("position_embd"):
        return values, None
    if dtype == "q8_0" and values.shape[1] % BLOCK == 0:
        kind = GGMLQuantizationType.Q8_0
        return quantize(values, kind), kind
    half = values.astype(np.float16)
    require(np.isfinite(half).all(), f"--dtype {dtype}: {name} is too large for 16 bits")
    return half, None


def _save(
    path: Path, settings: Mapping[str, Any], tensors: Mapping[str, tuple[Any, Any]], dtype: Dtype
) -> None:
    """Write a file of these entries and tensors."""
    from gguf import GGUFWriter, LlamaFileType

    writer = GGUFWriter(create(path), settings["general.architecture"])
    kinds = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0"}
    entries = {**settings, "general.file_type": int(LlamaFileType[kinds[dtype]])}
    # a number is stored as what it is in Python; of lists, the first element says it
    writers = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
    writers |= {float: writer.add_float32}
    for key, value in entries.items():
        if key != "general.architecture":
            writers.get(type(value), writer.add_array)(key, value)
    for name, (values, kind) in tensors.items():
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


register("format", "gguf")(
    Format(about="GGUF, of llama.cpp: causal models.", write=write, options=("dtype",))
)
