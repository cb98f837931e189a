"""Folders of transformers: config.json, model.safetensors or pytorch_model.bin, a tokenizer.

Reads and writes the model types of `unitk list model_type`, of any size. Whole models and bare ones
are read, also sharded files and tensors with old names (gamma, beta). transformers opens what is
written with `from_pretrained`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk import registry
from unitk.decoding.files.defaults import write_defaults
from unitk.errors import CheckpointError, UnitkError, require
from unitk.formats import settings
from unitk.formats.archive import (
    find_file,
    read_json,
    read_tensors,
    without_prefix,
    write_json,
    write_safetensors,
)
from unitk.formats.base import Format, StoredModel
from unitk.formats.hf import checks
from unitk.formats.hf.families import (
    BOTH,
    DOUBLE,
    MODEL_TYPE,
    OUTPUTS,
    Changes,
    Checkpoint,
    Family,
    ModelFolder,
    class_of,
    ending_of,
    families,
    is_tied,
    layout_of,
)
from unitk.formats.hf.generation import FILE, decoding_of, generation
from unitk.formats.hf.heads import Tuned, detect_task, head_settings, named_classes
from unitk.formats.hf.templates import copy_templates
from unitk.formats.hf.tokenizer import tokenizer_settings, write_tokenizer
from unitk.formats.hf.usage import check_sight, sight_of, tag, type_of, usage
from unitk.formats.names import count_from, current_name
from unitk.formats.vocabs import vocab_beside
from unitk.options.fields import flag
from unitk.pretrained import from_hub
from unitk.registry import nearest, register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import Vocab
from unitk.vocab.open import is_released, open_beside

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.safetensors.index.*.json",
    "model.*.safetensors",
    "pytorch_model.*.bin",
)
"""The files of a model's weights; the last ones are those of a variant, such as fp16."""
FAST = "PreTrainedTokenizerFast"
VIRTUAL = "embed.virtual.weight"

log = logging.getLogger(__name__)


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a folder with config.json and weights, or its file of weights."""
    weights = find_file(path, WEIGHTS, "model")
    family, checkpoint, changes = _read_weights(weights)
    declared, where = checkpoint.declared, checkpoint.where
    opened = _vocab(weights.parent, vocab, declared[MODEL_TYPE])
    fine = detect_task(
        family, checkpoint, family.folder_options(ModelFolder(declared, where.parent, opened))
    )
    config = settings.with_values(checkpoint.config, where, **changes | fine.changes)
    checks.check_word_output(config, family, declared, where)
    return StoredModel(
        weights,
        checkpoint.tensors,
        family.of_checkpoint(layout_of(family, config, fine.head), declared),
        family.presets,
        config,
        vocab=opened,
        **_stored_task(family, fine, declared, where),
        labels=fine.labels,
        spelled=family.spelled(opened) if opened else {},
        decoding=lambda task: decoding_of(where, task),
        check=lambda task: checks.check_decoder_start(task, declared, where),
    )


def _read_weights(weights: Path) -> tuple[Family, Checkpoint, Changes]:
    """The tensors of a file under their family's names, with the settings of its config.json.

    The changes are those that the tensors show, such as tied embeddings.
    """
    where = config_beside(weights)
    declared, stored = read_json(where), read_tensors(weights)
    kind = family_of(declared, stored, where)
    family: Family = registry.get(MODEL_TYPE, kind)
    declared = family.settings_in({**declared, MODEL_TYPE: kind}, where)
    settings.refuse(declared, family.fixed, where)
    checks.check_config(declared, family, where)
    tensors = rename_tensors(stored, family, weights)
    for second, first in family.layout.copies.items():
        if first not in tensors and second in tensors:  # a tied tensor under its other name
            tensors[first] = tensors.pop(second)
    checks.check_rows(declared, family, tensors, where)
    config = settings.read(
        settings.config_of_preset(family.presets[0]), family.keys, declared, where
    )
    changes: Changes = {"tied": is_tied(family.layout, tensors)}
    checks.check_ties(declared, family, tensors, where, tied=changes["tied"])
    for second, first in _biases(family):
        if not changes["tied"] and second in tensors:  # the one that their output map adds
            tensors[first] = tensors.pop(second)
    checkpoint = Checkpoint(config, tensors, declared, where)
    return family, checkpoint, changes | family.complete(checkpoint)


def _vocab(folder: Path, vocab: Path | None, kind: str) -> Vocab | None:
    """The vocabulary of a folder with a model of this kind.

    The file `vocab` has its pieces, if it is given.
    """
    if (vocab is not None and vocab.is_file()) or (vocab is None and is_released(folder)):
        return open_beside(folder, vocab, kind)
    return vocab_beside(folder, vocab)


def _stored_task(
    family: Family, fine: Tuned, declared: Mapping[str, Any], where: Path
) -> dict[str, Any]:
    """The fields of `StoredModel` about the task of a folder."""
    # a folder of others names no task; it was trained to see both sides, so it fills masks
    opened = family.both_ways and family.is_open(declared)
    task, options = ("mlm", settings.NONE) if opened else (fine.task, fine.options)
    return settings.read_task(declared, where, task, options)


def config_beside(weights: Path) -> Path:
    """The settings beside a file of weights: config.json, or bert_config.json as in 2019."""
    where = weights.with_name("config.json")
    if where.exists():
        return where
    if (weights.parent / "manifest.json").exists():
        raise CheckpointError(f"{weights.parent} is a checkpoint of unitk (--from unitk)")
    old = sorted(weights.parent.glob("*_config.json"))
    old = [file for file in old if file.name not in (FILE, "tokenizer_config.json")]
    if len(old) != 1:
        raise CheckpointError(f"{weights} has no config.json beside it, which --from hf needs")
    return old[0]


KIN = {"camembert", "xlm-roberta", "mt5", "marian", "pegasus", "opt", "gpt_neo", "deberta-v2"}
KIN |= {"ltgbert", "gpt_bert", "mbart", "encoder-decoder", "granite"}
"""Families with names of an older one, which is meant where nothing but tensors is known."""


def family_of(declared: Mapping[str, Any], tensors: Mapping[str, Tensor], where: Path) -> str:
    """The `model_type`, else that of the class in `architectures`, else found by the tensors."""
    known_families = families()
    known = ", ".join(known_families)
    if (kind := declared.get("model_type")) not in (None, ""):
        if isinstance(kind, str) and kind in known_families:
            return kind
        hint = nearest(str(kind).lower().rstrip("0123456789"), known_families)  # of any version
        form = "diffusion" if kind in ("mdlm", "bd3lm", "llada") else kind
        if form in registry.names("format"):
            hint = f" (--from {form} reads it)"
        listed = "one of those in `unitk list model_type`"
        raise CheckpointError(f"{where}: model_type must be {listed}, got {kind!r}{hint}")
    classes = named_classes(declared, where)
    for name, family in known_families.items():
        pattern = re.compile(rf"{family.name}(Model|Encoder|PreTrained|For|LMHead|DoubleHeads)\w*")
        if any(map(pattern.fullmatch, classes)):
            return name
    older = {name: family for name, family in known_families.items() if name not in KIN}
    fitting = [name for name, family in older.items() if _matches(family, tensors, where)]
    if not fitting:
        raise CheckpointError(
            f"{where} has no model_type, and its tensors tell none; add one to it: {known}"
        )
    # bare models of these have the same names, but a RoBERTa has no second segment
    single = declared.get("type_vocab_size") == 1 and "roberta" in fitting
    kind = "roberta" if single else fitting[0]
    alike = [
        name
        for name in fitting
        if _first_names(known_families[name]) == _first_names(known_families[kind])
    ]
    if len(alike) > 1:  # they differ in settings that no tensor has
        raise CheckpointError(
            f"{where} has no model_type, and its tensors are those of {', '.join(alike)}; add one "
            "to it"
        )
    log.warning(
        "%s has no model_type: by the names of its tensors, it is of the type %s", where, kind
    )
    return kind


@register("measure", "model_type")
def find_type(folder: Path) -> str:
    """The model type of a folder whose config.json has none; "" if its files do not tell."""
    where = folder / "config.json"
    with suppress(UnitkError):
        if named_classes(declared := read_json(where), where):
            return family_of(declared, {}, where)
        return family_of(declared, read_tensors(find_file(folder, WEIGHTS, "model")), where)
    return ""


def _first_names(family: Family) -> list[str]:
    """A family's names for the embedding and for queries, keys and values of the first layer."""
    names = family.layout.names
    qkv = names.get("layers.#.attention.qkv", names.get("layers.#.attention.qkv.weight", ()))
    stored = (names["embed.tokens"], *((qkv,) if isinstance(qkv, str) else qkv))
    return [str(name).replace("#", "0") for name in stored]


def _matches(family: Family, tensors: Mapping[str, Tensor], where: Path) -> bool:
    """Whether tensors have a family's names for the embedding and for the first layer."""
    renamed = rename_tensors(tensors, family, where)
    return all(any(stored.startswith(name) for stored in renamed) for name in _first_names(family))


def rename_tensors(tensors: Mapping[str, Tensor], family: Family, path: Path) -> dict[str, Tensor]:
    """Rename tensors to the current names of a whole model of a family.

    gamma becomes weight, the root is put before the names of a bare model, and a prefix that all
    names of a wrapped model have is taken off.
    """
    root = family.root
    roots = set[str]()
    for stored in (*family.layout.names.values(), *family.layout.copies):
        for name in (stored,) if isinstance(stored, str) else stored:
            roots |= {name.partition(".")[0], name.removeprefix(root).partition(".")[0]}
    outputs = (*OUTPUTS, *family.outputs)
    roots |= {name.rstrip(".") for name in (*family.roots.values(), *outputs)}
    unwrapped = without_prefix(tensors, roots, path)
    # a wrapper's word may be the root, as in model.model.shared.weight of a BART
    while root and all(name.startswith(root) for name in unwrapped):
        inner = {name.removeprefix(root): tensor for name, tensor in unwrapped.items()}
        if not all(name.startswith((root, *outputs)) for name in inner):
            break
        unwrapped = inner
    renamed = {}
    for name, tensor in unwrapped.items():
        name = current_name(name)
        for other in family.roots.values():
            name = name.removeprefix(other)
        if not name.startswith((root, *outputs)):
            name = root + name
        renamed[name] = tensor
    return renamed


def write(parts: Loaded, folder: Path, embeds: bool = False) -> None:
    """Write model, settings and tokenizer (of prompts, or of what is embedded) into a folder."""
    config = parts.model.config
    tensors = parts.tensors()
    kind = type_of(parts)
    family: Family = registry.get(MODEL_TYPE, kind)
    check_sight(parts.task, family)
    lost = _warn_of_lost(parts, family, tensors)
    rows = len(tensors["embed.tokens.weight"])
    stored = ({} if parts.task.head else family.buffers(rows)) | translate(parts, tensors)
    entries = _settings_of(parts, kind, family, rows)
    # a class of left-to-right models fills masks, too, if it is told to see both sides
    fills = family.task == "mlm" or (family.both_ways and sight_of(parts.task) == BOTH)
    if fills and family.task != "mlm":
        entries |= family.opens(config)
        log.warning("it sees both sides in transformers 5, and the left one alone in version 4")
    left = [flag(name) for name in parts.decoding]
    if parts.task.protocol is not None and not fills:
        decoding, left = generation(parts, rows)
        entries |= {key: decoding[key] for key in decoding if key.endswith("_token_id")}
        write_json(decoding, folder / FILE)
    if left:
        log.warning("generate.yaml keeps what transformers lacks: %s", ", ".join(left))
        write_defaults(folder, parts.decoding)
    if not (lost or parts.task.predicts):  # so that unitk reads it as the same task again
        entries[settings.KEPT] = settings.describe_task(parts.task)
    write_safetensors(stored, folder / "model.safetensors")
    reads = tokenizer_settings(parts, family, fills and not embeds)
    pads = write_tokenizer(parts.task, folder, rows, reads, embeds, family.task == "lm")
    if pads is not None:  # what heads look for at the end of a text
        entries["pad_token_id"] = pads
    write_json(family.pack(entries), folder / "config.json")
    if family.tokenizer:
        log.warning("AutoTokenizer takes %s; %s opens the written one", family.tokenizer, FAST)


def _warn_of_lost(parts: Loaded, family: Family, tensors: Mapping[str, Tensor]) -> list[str]:
    """Warn of what no class of transformers has; returns the output layers that are left out."""
    config = parts.model.config
    known = layout_of(family, config, parts.task.head).names
    lost = [head for head in config.head_sizes if not any(f"heads.{head}." in n for n in known)]
    if lost:
        lacks = "no class of transformers has the output layer %s; it is left out"
        log.warning(lacks, " ".join(lost))
    if apart := [name for name in tensors if not family.keeps(name, config)]:
        named = re.findall(r"^(heads\.\w+|\w+)", "\n".join(apart), re.MULTILINE)
        lacks = "no class of transformers has all parts of the model; left out: %s"
        log.warning(lacks, ", ".join(sorted({*named})))
    return lost


def _settings_of(parts: Loaded, kind: str, family: Family, rows: int) -> dict[str, Any]:
    """The entries of config.json for a model with this many rows of token embeddings."""
    config = parts.model.config
    vocab = parts.task.vocab
    pad = _pad(parts, rows)
    entries = {"model_type": kind, "architectures": [class_of(family, config)], **family.fixed}
    entries |= settings.write(config, family.keys)
    entries |= {"vocab_size": rows, "tie_word_embeddings": config.tied}
    ids = {"pad": pad, "bos": vocab.cls, "eos": vocab.sep}
    entries |= {f"{name}_token_id": index if index < rows else None for name, index in ids.items()}
    if parts.task.head:
        entries |= head_settings(parts.task, config, family)
    return entries | family.entries(replace(config, position_offset=family.offset(pad)))


def translate(parts: Loaded, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename and reshape weights, or their gradients, to those of transformers."""
    config, head = parts.model.config, parts.task.head
    family: Family = registry.get(MODEL_TYPE, type_of(parts))
    own = {name: tensor for name, tensor in tensors.items() if family.keeps(name, config)}
    # transformers fixes the number of rows before position 0
    offset = family.offset(_pad(parts, len(own["embed.tokens.weight"])))
    count_from(own, config.position_offset, offset)
    layout = layout_of(family, config, head)
    if VIRTUAL in own and VIRTUAL not in layout.names:
        # rows beyond the vocabulary are no part of what transformers computes
        require(
            not parts.task.virtual,
            f"--to hf: {family.name} has no row for {', '.join(parts.task.virtual)}, "
            f"which task {parts.task.name} reads",
        )
        del own[VIRTUAL]
    double = bool(head) and ending_of(family, head) == DOUBLE
    kept = [f"heads.{head}:label." if head else "heads."]
    if double:
        kept.append("heads.lm.")
    for name in [name for name in own if name.startswith("heads.")]:
        # few classes of transformers have other outputs beside a fine-tuned head
        if not name.startswith(tuple(kept)) or not name.startswith(("heads.lm.", *layout.names)):
            del own[name]
    if "heads.lm.transform.dense.weight" in own and "output_bias" not in family.keys:
        own.setdefault("heads.lm.bias", torch.zeros(len(own["embed.tokens.weight"])))
    stored = family.join(layout.to_stored(own, config))
    if not config.tied:
        stored |= {a: stored[b].clone() for a, b in _biases(family) if b in stored}
    if double:
        stored["multiple_choice_head.summary.bias"] = torch.zeros(1)
    # some classes keep the root that their family had in earlier versions
    root = family.roots.get(ending_of(family, head) if head else "")
    if root is None:
        return stored
    outputs = (*OUTPUTS, *family.outputs)
    return {
        name if name.startswith(outputs) else root + name.removeprefix(family.root): tensor
        for name, tensor in stored.items()
    }


def _biases(family: Family) -> list[tuple[str, str]]:
    """The second and the first name of an output bias, which are two tensors if it is untied."""
    return [(a, b) for a, b in family.layout.copies.items() if a.endswith(".bias")]


def _pad(parts: Loaded, rows: int) -> int:
    """The padding id in transformers' model.

    RoBERTa counts positions from it, so an imported RoBERTa keeps it even if unitk added the
    symbol.
    """
    config = parts.model.config
    pad = parts.task.vocab.pad
    return config.position_offset - 1 if config.position_offset and pad >= rows else pad


register("format", "hf")(
    Format(
        about="transformers: a folder with config.json, weights and tokenizer.",
        find=find,
        write=write,
        translate=translate,
        usage=usage,
        tag=tag,
        carry=copy_templates,
        cure=from_hub,
    )
)
