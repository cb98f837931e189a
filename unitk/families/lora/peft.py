"""Adapters in the files of peft: adapter_config.json and adapter_model.safetensors.

    base_model.model.MODULE.lora_A.weight [rank, in]   ... .lora_B.weight [out, rank]

Modules have the names that they have in transformers, so only adapters of models that leave for
transformers leave. What is read becomes part of the weights of its base.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError, require
from unitk.families.lora.config import LoRA
from unitk.families.lora.network import A, B
from unitk.formats.archive import find_file, read_json, read_tensors, write_json, write_safetensors
from unitk.formats.base import Format, StoredModel
from unitk.formats.exported import as_target
from unitk.formats.hf.families import (
    GEMMA_TEXTS,
    PLACES,
    SIMPLE,
    TEXTS,
    WORDS,
    Family,
    class_of,
    ending_of,
    kind_of,
    layout_of,
)
from unitk.formats.hf.folder import find as find_folder
from unitk.formats.hf.folder import translate
from unitk.formats.hf.folder import write as write_folder
from unitk.formats.hf.usage import explain_release, tag
from unitk.formats.names import TURNED, Layout, equal_tensors, list_names
from unitk.formats.settings import check_value
from unitk.options.fields import parse_named
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.training.saving.weights import weights_of
from unitk.vocab.open import is_released, open_vocab

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
WRAPPED = "base_model.model."
BASE = "base"
"""The folder beside an adapter with its base model."""
TASKS = {"lm": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}
TASKS |= dict.fromkeys((TEXTS, GEMMA_TEXTS), "SEQ_CLS") | {WORDS: "TOKEN_CLS"}
TASKS |= dict.fromkeys((PLACES, SIMPLE), "QUESTION_ANS")
"""Task of a family, or suffix of a fine-tuned class, -> `task_type`."""
REFUSED = (
    *("use_dora", "use_qalora", "use_bdlora", "lora_bias", "kasa_config", "monteclora_config"),
    *("arrow_config", "alora_invocation_tokens", "trainable_token_indices", "layer_replication"),
)
"""Settings that add something else than B A to a matrix, or to all texts."""
UNMERGED = "lora_bias", "arrow_config", "alora_invocation_tokens", "layer_replication"
"""Those of them that peft cannot add to the weights either, or not of every base."""
BEGINNINGS = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""First weights of an adapter that leave those of its base as they are."""
MOVED = "training began with other weights than the base's; merge the adapter in peft"
MERGED = "merge the adapter in peft, and save the tokenizer beside the model"
COPIES = ".modules_to_save.", ".original_module."
"""In names of what peft has stored a second time, of a base with further embeddings."""
PAIRS = {"A.weight": "B.weight", "embedding_A": "embedding_B"}
"""What the names of A and B of a matrix, or of a table of embeddings, end in."""


@dataclass(frozen=True)
class Added:
    """The low-rank matrices of one matrix of transformers."""

    module: str
    lower: Tensor  # A [rank, in]
    upper: Tensor  # B [out, rank]


def write(parts: Loaded, folder: Path) -> None:
    """Write the adapter of a run into an empty folder, and its base, as transformers reads it."""
    require("base" in parts.state, f"--to peft: {parts.path} was not trained with --adapter")
    assert parts.path is not None
    config = parse_named("adapter", parts.state["config"]["adapter"], "--adapter")
    require(isinstance(config, LoRA), "--to peft: only --adapter lora leaves for peft")
    tensors = weights_of(parts.path, averages=True, merged=False)
    base = _write_base(parts, tensors, folder / BASE)
    family = _family_of(parts)
    head = parts.task.head
    layout = layout_of(family, parts.model.config, head)

    def target_name(name: str) -> str:
        """The name in the class that is written, which may have another root; "" if it has none."""
        return name if name in base else _complete(name.removeprefix(family.root), base)

    stems = [name.removesuffix(A) for name in tensors if name.endswith(A)]
    added = [
        replace(pair, module=target_name(f"{pair.module}.weight").removesuffix(".weight"))
        for stem in stems
        for pair in split_delta(stem, tensors, parts, layout)
    ]
    whole = _find_whole(parts.path, tensors, layout)
    saved = {target_name(name).rpartition(".")[0] for name in whole} - {""}
    matrices = {f"{pair.module}.lora_A.weight": pair.lower for pair in added}
    matrices |= {f"{pair.module}.lora_B.weight": pair.upper for pair in added}
    matrices |= {name: tensor for name, tensor in base.items() if name.rpartition(".")[0] in saved}
    stored = {WRAPPED + name: tensor.contiguous() for name, tensor in matrices.items()}
    write_safetensors(stored, folder / WEIGHTS[0])
    entries = {
        "task_type": TASKS.get(ending_of(family, head) if head else family.task),
        "fan_in_fan_out": any(layout.form(f"{pair.module}.weight") is TURNED for pair in added),
        "modules_to_save": sorted(saved) or None,
    }
    write_json(_describe(config, added) | entries, folder / CONFIG)


def _write_base(parts: Loaded, tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Write the base model of an adapter; returns its tensors by transformers' names."""
    model = copy.deepcopy(parts.model)
    stays = {name: tensor for name, tensor in tensors.items() if not name.endswith((A, B))}
    model.load_state_dict(stays, strict=False)
    base = replace(parts, model=model)
    folder.mkdir()
    with as_target("peft"):
        write_folder(base, folder)
    return translate(base, base.tensors())


def _find_whole(path: Path, tensors: Mapping[str, Tensor], layout: Layout) -> list[str]:
    """Tensors that were trained beside the low-rank matrices, by transformers' names."""
    stored = [name for name in read_tensors(path / "model.safetensors") if name in tensors]
    # the class may lack an output layer of the base, which no update changed
    known = tuple(f"{name}." for name in layout.names if name.startswith("heads."))
    whole = [
        name
        for name in stored
        if not name.endswith((A, B)) and (not name.startswith("heads.") or name.startswith(known))
    ]
    return [name for line in layout.lines(whole) for name in line.stored]


def _describe(config: LoRA, added: Sequence[Added]) -> dict[str, Any]:
    """What adapter_config.json says of the low-rank matrices."""
    ranks = {pair.module: len(pair.lower) for pair in added if len(pair.lower) != config.rank}
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": BASE,
        "r": config.rank,
        "lora_alpha": config.scale * config.rank,
        "lora_dropout": config.dropout,
        "bias": "none",
        "inference_mode": True,
        "target_modules": [pair.module for pair in added],
        "rank_pattern": ranks,
        "alpha_pattern": {module: config.scale * rank for module, rank in ranks.items()},
    }


def _family_of(parts: Loaded) -> Family:
    """The family of classes of transformers that a model fits."""
    kind = kind_of(parts.model.config, parts.config.get("arch", ""), parts.task.head)
    family: Family = registry.get("model_type", kind)
    return family


def split_delta(
    stem: str, tensors: Mapping[str, Tensor], parts: Loaded, layout: Layout
) -> list[Added]:
    """Split the adapter of a matrix of unitk into those of transformers' matrices."""
    lower, upper = tensors[stem + A], tensors[stem + B]
    [line] = layout.lines([f"{stem}weight"])
    rank = parse_named("adapter", parts.state["config"]["adapter"], "--adapter").rank
    own_parts = len(lower) // rank
    stored_parts = len(line.stored)
    if stored_parts == own_parts:
        halves = list(zip(lower.chunk(own_parts), upper.chunk(own_parts), strict=True))
    else:  # one matrix there: its B has zeros where a part of unitk's does not read its own A
        require(
            stored_parts == 1, f"--to peft: {stem}weight has {stored_parts} parts in transformers"
        )
        halves = [(lower, torch.block_diag(*upper.chunk(own_parts)))]
    added = []
    for name, (a, b) in zip(line.stored, halves, strict=True):
        # peft adapts modules; XLNet's maps of attention are parameters of a larger one
        own = name.endswith(".weight")
        require(own, f"--to peft: {name} is no module in transformers: train with lora:on=ffn")
        form = layout.form(name)
        # peft's B has a row for each output, even where the matrix is stored as [in, out]
        if form is not None and form is not TURNED:
            b = form.save(b, parts.model.config)
        added.append(Added(name.removesuffix(".weight"), a, b))
    return added


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read an adapter, and the base that adapter_config.json names."""
    adapter = read_json(path / CONFIG)
    where = path / CONFIG
    if adapter.get("peft_type") != "LORA":
        raise CheckpointError(f"{where}: peft_type must be LORA, got {adapter.get('peft_type')!r}")
    for name in REFUSED:
        if adapter.get(name):
            cure = "" if name in UNMERGED else "; merge the adapter in peft"
            raise CheckpointError(
                f"{where}: {name} is {adapter[name]!r}, which unitk does not read{cure}"
            )
    if (begins := adapter.get("init_lora_weights", True)) not in BEGINNINGS:
        raise CheckpointError(f"{where}: init_lora_weights is {begins!r}: {MOVED}")
    base = find_folder(_base(path, adapter), vocab)
    if vocab is None and base.vocab is not None and is_released(path):
        pieces = [one.pieces(range(len(one))) for one in (open_vocab(path), base.vocab)]
        if pieces[0] != pieces[1]:
            raise CheckpointError(f"{path}: its tokenizer has other tokens than its base: {MERGED}")
    weights = find_file(path, WEIGHTS, "adapter")
    # peft gives each of several tied matrices its own values
    copies = base.layout.copies
    shared = {name: base.tensors[first] for name, first in copies.items() if first in base.tensors}
    tensors = add(read_tensors(weights), {**shared, **base.tensors}, base.layout, adapter, weights)
    output = base.layout.names.get("heads.lm.weight")
    tuned = any(":label" in head for head in base.config.heads)
    for name, first in copies.items():
        alike = name in tensors and equal_tensors(tensors[name], tensors[first])
        if name not in base.tensors and (alike or (tuned and name == output)):
            tensors.pop(name, None)
    config = replace(base.config, tied=base.config.tied and output not in tensors)
    return replace(base, tensors=tensors, config=config)


def add(
    stored: Mapping[str, Tensor],
    base: Mapping[str, Tensor],
    layout: Layout,
    adapter: Mapping[str, Any],
    path: Path,
) -> dict[str, Tensor]:
    """The tensors of a base with those of an adapter, which is stored in the file `path`."""
    stored = {
        name.removeprefix(WRAPPED).replace(".base_layer.", "."): stored[name]
        for name in stored
        if not any(part in name for part in COPIES)
    }
    tensors = dict(base)
    used = set[str]()
    for name in (name for name in stored if ".lora_" not in name):
        whole = _full_name(name, tensors, path)
        own, known = (list(one[key].shape) for one, key in ((stored, name), (tensors, whole)))
        if own != known:
            raise CheckpointError(f"{path}: {name} has shape {own}, but its base {known}: {MERGED}")
        tensors[whole] = stored[name]
        used.add(name)
    for name, lower in stored.items():
        module, _, leaf = name.partition(".lora_")
        upper = stored.get(f"{module}.lora_{PAIRS.get(leaf)}")
        if upper is None:
            continue
        matrix = _full_name(f"{module}.weight", tensors, path)
        added = _scale(adapter, module, len(lower), path.with_name(CONFIG)) * (
            upper.float() @ lower.float()
        )
        if layout.form(matrix) is TURNED or leaf.startswith("embedding"):
            added = added.mT
        if added.shape != tensors[matrix].shape:
            raise CheckpointError(
                f"{path}: what {module} adds has shape {list(added.shape)}, but {matrix} "
                f"{list(tensors[matrix].shape)}"
            )
        tensors[matrix] = tensors[matrix].float() + added
        used |= {name, f"{module}.lora_{PAIRS[leaf]}"}
    if left := stored.keys() - used:
        raise CheckpointError(f"{path} has tensors of no known name: {list_names(left)}")
    return tensors


def _base(path: Path, adapter: Mapping[str, Any]) -> Path:
    """The folder of an adapter's base model."""
    where = path / CONFIG
    key = "base_model_name_or_path"
    name = check_value(adapter.get(key), str, key, where)
    for folder in (path / name, Path(name)):
        if (folder / "config.json").is_file():
            return folder
    raise CheckpointError(
        f"{where}: {key} is {name!r}, which is no folder of a model here: put it into "
        f"{path / BASE}, and write {BASE!r} there"
    )


def _full_name(name: str, tensors: Mapping[str, Tensor], path: Path) -> str:
    """The name in the base of a tensor; `CheckpointError` if it has none."""
    if not (whole := _complete(name, tensors)):
        raise CheckpointError(f"{path}: the base has no tensor {name}")
    return whole


def _complete(name: str, tensors: Mapping[str, Tensor]) -> str:
    """The whole name of a tensor, of which that of a bare model lacks the first words, or ""."""
    if name in tensors:
        return name
    alike = [known for known in tensors if known.endswith(f".{name}")]
    return alike[0] if len(alike) == 1 else ""


def _scale(adapter: Mapping[str, Any], module: str, rank: int, where: Path) -> float:
    """The factor of B A, whose rank must be the one declared."""
    declared = _of_module(adapter, "rank_pattern", module, adapter.get("r", 8), where)
    if declared != rank:
        raise CheckpointError(f"{where}: r is {declared!r}, but {module} has the rank {rank}")
    alpha = _of_module(adapter, "alpha_pattern", module, adapter.get("lora_alpha", 8), where)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise CheckpointError(f"{where}: lora_alpha must be a number, got {alpha!r}")
    return float(alpha / rank**0.5 if adapter.get("use_rslora") else alpha / rank)


def _of_module(
    adapter: Mapping[str, Any], key: str, module: str, otherwise: Any, where: Path
) -> Any:
    """What the patterns of an entry say of a module, matched as peft does, or `otherwise`."""
    patterns = check_value(adapter.get(key) or {}, dict, key, where)
    for pattern, value in patterns.items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise CheckpointError(f"{where}: {key}: {pattern!r} is no pattern: {error}") from None
    return otherwise


USAGE = """\
`{base}/` has the model, and this folder an adapter of it:

```python
from peft import PeftModel
from transformers import AutoTokenizer, {model}

tokenizer = AutoTokenizer.from_pretrained("{base}")
model = PeftModel.from_pretrained({model}.from_pretrained("{base}"), ".")
```
"""
BOTH_WAYS = """
Every token sees both sides, not only what is before it. In unitk, the adapter and its base are
one model:

```bash
unitk convert --from peft . --to unitk ../model
```
"""
ADAPTED = """\
This folder has an adapter of it:

```python
from peft import PeftModel

model = PeftModel.from_pretrained(model, ".")
```
"""


def explain(parts: Loaded) -> str:
    """How an adapter that was written is used."""
    family = _family_of(parts)
    head = parts.task.head
    class_name = class_of(family, parts.model.config)
    if head:
        class_name = family.name + ending_of(family, head)
    if release := explain_release(parts, f"`{BASE}/`", BASE):
        return f"{release}\n{ADAPTED}"
    return USAGE.format(base=BASE, model=class_name) + (BOTH_WAYS if tag(parts) else "")


register("format", "peft")(
    Format(
        about="peft: low-rank adapters of models of transformers, beside their base.",
        find=find,
        write=write,
        usage=explain,
        tag=tag,
        library="peft",
    )
)
